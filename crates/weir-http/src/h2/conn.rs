//! A connection: what both sides agreed on, its streams, and how it begins and ends.

use std::collections::VecDeque;

use super::dependency::StreamDependency;
use super::flow::{RecvWindow, SendWindow};
use super::frame;
use super::guard::AbuseGuard;
use super::heads::{HeaderBlock, ReadBlock};
use super::priority::SendQueue;
use super::recv::DataFrame;
use super::settings::H2Settings;
use super::state::StreamState;
use super::store::{StreamKey, StreamRecord, StreamStore};
use super::{ErrorCode, PREFACE};
use crate::hpack::{self, DecodedSection, HpackDecoder, HpackEncoder};
use crate::message::{MalformedMessage, SectionMessage};
use crate::priority::Priority;

/// Which side of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum H2Role {
    /// Streams are opened by the peer.
    Server,
    /// Streams are opened here.
    Client,
}

/// How a connection is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H2Config {
    /// Streams at once (`http2_max_concurrent_streams`).
    pub max_streams: u32,
    /// Bytes that the peer may send on a stream before any of them is used (`http2_body_preread_size`).
    pub stream_window: u32,
    /// Bytes of content that the peer may send ahead on the whole connection.
    pub window: u32,
    /// Bounds on header sections.
    pub headers: hpack::SectionLimits,
    /// Bytes of a frame's payload that the peer may send (`SETTINGS_MAX_FRAME_SIZE`); [`MIN_FRAME`] at least. A header
    /// section in one frame is buffered until that frame is complete, so that more of it is memory.
    pub max_frame: u32,
    /// True when extended CONNECT is taken (RFC 8441).
    pub connect_protocol: bool,
}

/// One side of a connection.
#[derive(Debug)]
pub struct H2Connection {
    pub(super) role: H2Role,
    pub(super) config: H2Config,
    /// What the peer said of itself.
    pub(super) remote: H2Settings,
    pub(super) decoder: HpackDecoder,
    pub(super) encoder: HpackEncoder,
    /// The header section that was read last.
    pub(super) section: DecodedSection,
    /// What it says.
    pub(super) message: SectionMessage,
    pub(super) malformed: Option<MalformedMessage>,
    /// The block that they were read from.
    pub(super) read: ReadBlock,
    pub(super) store: StreamStore,
    pub(super) queue: SendQueue,
    /// The peer orders its streams by urgencies: dependencies mean nothing.
    pub(super) has_urgencies: bool,
    /// What the last HEADERS frame says of its stream's dependency.
    pub(super) dependency: Option<StreamDependency>,
    pub(super) send: SendWindow,
    pub(super) recv: RecvWindow,
    pub(super) guard: AbuseGuard,
    /// The peer's settings have come.
    pub(super) settled: bool,
    /// The peer has acknowledged ours. Until then it may send as much as their defaults allow (section 6.9.3).
    pub(super) is_acknowledged: bool,
    /// Bytes of the preface that are still to come.
    pub(super) preface: usize,
    /// A header block that goes on in CONTINUATION frames.
    pub(super) block: Option<HeaderBlock>,
    /// A DATA frame of which more is to come.
    pub(super) data: Option<DataFrame>,
    /// The highest stream that the peer opened.
    pub(super) last: u32,
    /// What it was when all that had come was read: streams above came with what is being read.
    pub(super) seen: u32,
    /// The next stream that is opened here.
    pub(super) next: u32,
    /// Streams that were reset here: what comes on them was sent before the peer knew.
    pub(super) reset: VecDeque<u32>,
    /// Streams that ended lately.
    pub(super) ended: VecDeque<u32>,
    /// Priorities of streams that are not there yet (RFC 9218 section 7.1).
    pub(super) early: VecDeque<(u32, Priority)>,
    pub(super) ending: ConnectionEnding,
    /// The peer takes no stream above this one.
    pub(super) peer_last: Option<u32>,
    /// Bytes of the frames of the header section that was read last.
    pub(super) block_len: usize,
}

/// How far a connection has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEnding {
    /// Streams may come.
    No,
    /// No stream is taken any more.
    Final,
    /// It failed.
    Failed,
}

impl H2Connection {
    /// Bytes of memory that it owns: tables, buffers and places of streams, themselves not counted.
    pub fn held_bytes(&self) -> usize {
        let lists = (self.reset.capacity() + self.ended.capacity()) * size_of::<u32>()
            + self.early.capacity() * size_of::<(u32, Priority)>();
        self.decoder.held_bytes()
            + self.encoder.held_bytes()
            + self.section.held_bytes()
            + self.read.held_bytes()
            + self.store.held_bytes()
            + self.queue.held_bytes()
            + self.block.as_ref().map_or(0, HeaderBlock::held_bytes)
            + lists
    }

    /// The server's side of a connection. Settings and the window of the connection are appended to `out`.
    pub fn server(config: &H2Config, out: &mut Vec<u8>) -> H2Connection {
        let settings = H2Settings {
            max_streams: Some(config.max_streams),
            window: config.stream_window,
            max_frame: config.max_frame,
            connect_protocol: config.connect_protocol,
            ..H2Settings::default()
        };
        H2Connection::new(H2Role::Server, config, settings, out)
    }

    /// The client's side: the preface, settings and the connection's window are appended to `out`.
    pub fn client(config: &H2Config, out: &mut Vec<u8>) -> H2Connection {
        out.extend_from_slice(PREFACE);
        let settings = H2Settings {
            push: false,
            window: config.stream_window,
            max_frame: config.max_frame,
            ..H2Settings::default()
        };
        H2Connection::new(H2Role::Client, config, settings, out)
    }

    fn new(role: H2Role, config: &H2Config, settings: H2Settings, out: &mut Vec<u8>) -> H2Connection {
        settings.write(out);
        let (usual, decoder) = (H2Settings::default(), HpackDecoder::new(hpack::DEFAULT_TABLE));
        let mut recv = RecvWindow::new(usual.window);
        if let Some(more) = recv.widen(config.window.min(0x7fff_ffff)) {
            frame::window_update(out, 0, more);
        }
        H2Connection {
            role,
            config: *config,
            remote: usual,
            decoder: if role == H2Role::Client { decoder.lenient() } else { decoder },
            encoder: HpackEncoder::new(),
            section: DecodedSection::default(),
            message: SectionMessage::default(),
            malformed: None,
            read: ReadBlock::default(),
            store: StreamStore::default(),
            queue: SendQueue::default(),
            has_urgencies: false,
            dependency: None,
            send: SendWindow::new(usual.window),
            recv,
            guard: AbuseGuard::default(),
            settled: false,
            is_acknowledged: false,
            preface: if role == H2Role::Server { PREFACE.len() } else { 0 },
            block: None,
            data: None,
            last: 0,
            seen: 0,
            next: 1,
            reset: VecDeque::new(),
            ended: VecDeque::new(),
            early: VecDeque::new(),
            ending: ConnectionEnding::No,
            peer_last: None,
            block_len: 0,
        }
    }

    /// Begins the connection that a request of HTTP/1.1 was upgraded to (RFC 7540 section 3.2): the request is stream 1,
    /// whose content has come. `settings` is the payload that its `HTTP2-Settings` field carried.
    ///
    /// # Errors
    /// Invalid settings.
    pub fn upgrade(&mut self, settings: &[u8]) -> Result<StreamKey, super::H2Failure> {
        self.remote.read(settings)?;
        self.encoder.set_limit(self.remote.header_table);
        self.last = 1;
        let mut stream = self.stream(1, StreamState::HalfClosedRemote);
        stream.head = true;
        Ok(self.store.insert(stream))
    }

    /// The header section that the last event was about.
    pub fn section(&self) -> &DecodedSection {
        &self.section
    }

    /// The last head as a message, or why it is malformed.
    ///
    /// # Errors
    /// Why the message is malformed.
    pub fn checked(&self) -> Result<&SectionMessage, MalformedMessage> {
        self.malformed.map_or(Ok(&self.message), Err)
    }

    /// What there is of a message, malformed or not.
    pub fn message(&self) -> &SectionMessage {
        &self.message
    }

    /// Bytes of the frames' payloads of the last header section (nginx's `$request_length`).
    pub fn block_len(&self) -> usize {
        self.block_len
    }

    /// What writes header sections.
    pub fn encoder(&self) -> &HpackEncoder {
        &self.encoder
    }

    /// The number of streams that are not released.
    pub fn streams(&self) -> usize {
        self.store.len()
    }

    /// All streams that are not released.
    pub fn keys(&self) -> Vec<StreamKey> {
        self.store.keys().collect()
    }

    /// The number of a stream; 0 once it was released.
    pub fn id(&self, key: StreamKey) -> u32 {
        self.store.get(key).map_or(0, |stream| stream.id)
    }

    /// The state of a stream; closed once it was released.
    pub fn state(&self, key: StreamKey) -> StreamState {
        self.store.get(key).map_or(StreamState::Closed, |stream| stream.state)
    }

    /// Whether the peer has said anything of itself.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// What the peer said of itself.
    pub fn remote(&self) -> &H2Settings {
        &self.remote
    }

    /// The peer's preface has come whole.
    pub fn is_begun(&self) -> bool {
        self.preface == 0
    }

    /// A stream of the peer's number `id`, or one of ours.
    pub(super) fn stream(&self, id: u32, state: StreamState) -> StreamRecord {
        StreamRecord {
            id,
            state,
            priority: Priority::default(),
            send: SendWindow::new(self.remote.window),
            recv: match self.is_acknowledged {
                true => RecvWindow::new(self.config.stream_window),
                false => RecvWindow::early(self.config.stream_window, H2Settings::default().window),
            },
            pending: 0,
            last: false,
            queued: false,
            held: false,
            head: false,
            chunk: u32::MAX,
            expected: None,
            broken: false,
            received: 0,
        }
    }

    /// Sends the peer that the connection ends (GOAWAY): open streams go on, others are not taken, and are free to be
    /// asked for on another connection. As nginx does it, in one step.
    pub fn go_away(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        if self.ending == ConnectionEnding::No {
            self.ending = ConnectionEnding::Final;
            frame::goaway(out, self.last, code);
        }
    }

    /// No stream is open, and none can come.
    pub fn is_over(&self) -> bool {
        self.ending == ConnectionEnding::Failed
            || (self.ending == ConnectionEnding::Final && self.store.len() == 0)
    }

    /// A GOAWAY frame was sent or received.
    pub fn is_ending(&self) -> bool {
        self.ending != ConnectionEnding::No || self.peer_last.is_some()
    }

    /// Ends a stream with `code`. Nothing is said twice.
    pub fn reset(&mut self, key: StreamKey, code: ErrorCode, out: &mut Vec<u8>) {
        let Some(stream) = self.store.get_mut(key) else { return };
        if stream.state == StreamState::Closed {
            return;
        }
        stream.state = StreamState::Closed;
        let id = stream.id;
        self.unqueue(key);
        frame::reset(out, id, code);
        remember(&mut self.reset, id, RESET);
    }

    /// Forgets a stream: nothing is to be sent or read on it any more. One that we have not ended is reset, and one that
    /// the peer has not, whose content is not wanted, learns it by NO_ERROR (RFC 9113 section 8.1). The code of that
    /// reset; `None`: there was nothing to reset.
    pub fn release(&mut self, key: StreamKey, out: &mut Vec<u8>) -> Option<ErrorCode> {
        let code = match self.state(key) {
            StreamState::HalfClosedLocal if self.role == H2Role::Server => Some(ErrorCode::No),
            StreamState::Closed => None,
            _ => Some(ErrorCode::Internal),
        };
        if let Some(code) = code {
            self.reset(key, code, out);
        }
        self.unqueue(key);
        if let Some(stream) = self.store.remove(key) {
            if let Some(tree) = &mut self.queue.tree {
                tree.close(stream.id);
            }
            remember(&mut self.ended, stream.id, ENDED);
        }
        if let Some(content) = self.data.as_mut().filter(|data| data.key == Some(key)).map(DataFrame::orphan)
            && let Some(more) = self.recv.release(content)
        {
            frame::window_update(out, 0, more);
        }
        code
    }

    pub(super) fn unqueue(&mut self, key: StreamKey) {
        if let Some(stream) = self.store.get_mut(key)
            && std::mem::take(&mut stream.queued)
        {
            self.queue.remove(stream.priority, stream.id, key.0);
        }
    }
}

/// Adds `id`, forgetting the oldest of `most`.
pub(super) fn remember(list: &mut VecDeque<u32>, id: u32, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(id);
}

/// Streams that were reset here and may still get frames: all that are open at once, twice.
pub(super) const RESET: usize = 256;
/// Peers may send frames of this many bytes before they get our settings, and always (RFC 9113 section 4.2).
pub const MIN_FRAME: u32 = 16_384;
/// Streams that ended lately, to distinguish a frame on them from one on a stream that never was.
const ENDED: usize = 32;
