//! A connection: what both sides agreed on, its streams, and how it begins and ends.

use std::collections::VecDeque;

use super::flow::{RecvWindow, SendWindow};
use super::frame;
use super::guard::Guard;
use super::heads::{Block, ReadBlock};
use super::message::{Malformed, Message};
use super::priority::{Priority, Queue};
use super::recv::Data;
use super::settings::Settings;
use super::state::State;
use super::store::{Key, Store, Stream};
use super::{Code, PREFACE};
use crate::hpack::{self, Decoder, Encoder, Section};

/// Which side of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Streams are opened by the peer.
    Server,
    /// Streams are opened here.
    Client,
}

/// How a connection is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Streams at once (`http2_max_concurrent_streams`).
    pub max_streams: u32,
    /// Bytes that the peer may send on a stream before any of them is used (`http2_body_preread_size`).
    pub stream_window: u32,
    /// The same for the whole connection.
    pub window: u32,
    /// Bounds on header sections.
    pub headers: hpack::Limits,
    /// Bytes of a frame's payload that the peer may send (`SETTINGS_MAX_FRAME_SIZE`); [`MIN_FRAME`] at least. A header
    /// section in one frame is kept until that frame is whole, so that more of it is memory.
    pub max_frame: u32,
    /// Extended CONNECT is taken (RFC 8441).
    pub connect_protocol: bool,
}

/// One side of a connection.
#[derive(Debug)]
pub struct Connection {
    pub(super) role: Role,
    pub(super) config: Config,
    /// What the peer said of itself.
    pub(super) remote: Settings,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    /// The header section that was read last.
    pub(super) section: Section,
    /// What it says.
    pub(super) message: Message,
    pub(super) malformed: Option<Malformed>,
    /// The block that they were read from.
    pub(super) read: ReadBlock,
    pub(super) store: Store,
    pub(super) queue: Queue,
    pub(super) send: SendWindow,
    pub(super) recv: RecvWindow,
    pub(super) guard: Guard,
    /// The peer's settings have come.
    pub(super) settled: bool,
    /// Bytes of the preface that are still to come.
    pub(super) preface: usize,
    /// A header block that goes on in CONTINUATION frames.
    pub(super) block: Option<Block>,
    /// A DATA frame of which more is to come.
    pub(super) data: Option<Data>,
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
    pub(super) ending: Ending,
    /// The peer takes no stream above this one.
    pub(super) peer_last: Option<u32>,
    /// Bytes of the frames of the header section that was read last.
    pub(super) block_len: usize,
}

/// How far a connection has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Streams may come.
    No,
    /// No stream is taken any more.
    Final,
    /// It failed.
    Failed,
}

impl Connection {
    /// The server's side of a connection. Settings and the window of the connection are appended to `out`.
    pub fn server(config: &Config, out: &mut Vec<u8>) -> Connection {
        let settings = Settings {
            max_streams: Some(config.max_streams),
            window: config.stream_window,
            max_frame: config.max_frame,
            connect_protocol: config.connect_protocol,
            no_tree: true,
            ..Settings::default()
        };
        Connection::new(Role::Server, config, settings, out)
    }

    /// The client's side: the preface, settings and the connection's window are appended to `out`.
    pub fn client(config: &Config, out: &mut Vec<u8>) -> Connection {
        out.extend_from_slice(PREFACE);
        let settings = Settings {
            push: false,
            window: config.stream_window,
            max_frame: config.max_frame,
            ..Settings::default()
        };
        Connection::new(Role::Client, config, settings, out)
    }

    fn new(role: Role, config: &Config, settings: Settings, out: &mut Vec<u8>) -> Connection {
        settings.write(out);
        let (usual, decoder) = (Settings::default(), Decoder::new(hpack::DEFAULT_TABLE));
        let mut recv = RecvWindow::new(usual.window);
        if let Some(more) = recv.widen(config.window.min(0x7fff_ffff)) {
            frame::window_update(out, 0, more);
        }
        Connection {
            role,
            config: *config,
            remote: usual,
            decoder: if role == Role::Client { decoder.lenient() } else { decoder },
            encoder: Encoder::new(),
            section: Section::default(),
            message: Message::default(),
            malformed: None,
            read: ReadBlock::default(),
            store: Store::default(),
            queue: Queue::default(),
            send: SendWindow::new(usual.window),
            recv,
            guard: Guard::default(),
            settled: false,
            preface: if role == Role::Server { PREFACE.len() } else { 0 },
            block: None,
            data: None,
            last: 0,
            seen: 0,
            next: 1,
            reset: VecDeque::new(),
            ended: VecDeque::new(),
            early: VecDeque::new(),
            ending: Ending::No,
            peer_last: None,
            block_len: 0,
        }
    }

    /// Begins the connection that a request of HTTP/1.1 was upgraded to (RFC 7540 section 3.2): the request is stream 1,
    /// whose content has come. `settings` is the payload that its `HTTP2-Settings` field carried.
    ///
    /// # Errors
    /// Settings that are none.
    pub fn upgrade(&mut self, settings: &[u8]) -> Result<Key, super::Failure> {
        self.remote.read(settings)?;
        self.encoder.set_limit(self.remote.header_table);
        self.last = 1;
        let mut stream = self.stream(1, true);
        stream.head = true;
        Ok(self.store.insert(stream))
    }

    /// The header section that the last event was about.
    pub fn section(&self) -> &Section {
        &self.section
    }

    /// What it says as a message, or why it is none. What there is of a malformed one is in [`Connection::message`].
    ///
    /// # Errors
    /// Why the message is malformed.
    pub fn checked(&self) -> Result<&Message, Malformed> {
        self.malformed.map_or(Ok(&self.message), Err)
    }

    /// What there is of a message, malformed or not.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Bytes of the frames' payloads of the last header section (nginx's `$request_length`).
    pub fn block_len(&self) -> usize {
        self.block_len
    }

    /// Streams that are not released.
    pub fn streams(&self) -> usize {
        self.store.len()
    }

    /// All streams that are not released.
    pub fn keys(&self) -> Vec<Key> {
        self.store.keys().collect()
    }

    /// The number of a stream; 0 once it was released.
    pub fn id(&self, key: Key) -> u32 {
        self.store.get(key).map_or(0, |stream| stream.id)
    }

    /// The state of a stream; closed once it was released.
    pub fn state(&self, key: Key) -> State {
        self.store.get(key).map_or(State::Closed, |stream| stream.state)
    }

    /// Whether the peer has said anything of itself.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// What the peer said of itself.
    pub fn remote(&self) -> &Settings {
        &self.remote
    }

    /// The peer's preface has come whole.
    pub fn is_begun(&self) -> bool {
        self.preface == 0
    }

    /// A stream of the peer's number `id`, or one of ours.
    pub(super) fn stream(&self, id: u32, ended: bool) -> Stream {
        Stream {
            id,
            state: if ended { State::HalfClosedRemote } else { State::Open },
            priority: Priority::default(),
            send: SendWindow::new(self.remote.window),
            recv: RecvWindow::new(self.config.stream_window),
            pending: 0,
            last: false,
            queued: false,
            head: false,
            chunk: u32::MAX,
            expected: None,
            broken: false,
            received: 0,
        }
    }

    /// Tells the peer that the connection ends: streams that are open go on, others are not taken, and are free to be
    /// asked for on another connection. As nginx does it, in one step.
    pub fn go_away(&mut self, code: Code, out: &mut Vec<u8>) {
        if self.ending == Ending::No {
            self.ending = Ending::Final;
            frame::goaway(out, self.last, code);
        }
    }

    /// No stream is open, and none can come.
    pub fn is_over(&self) -> bool {
        self.ending == Ending::Failed || (self.ending == Ending::Final && self.store.len() == 0)
    }

    /// The peer was told that the connection ends, or told us.
    pub fn is_ending(&self) -> bool {
        self.ending != Ending::No || self.peer_last.is_some()
    }

    /// Ends a stream with `code`. Nothing is said twice.
    pub fn reset(&mut self, key: Key, code: Code, out: &mut Vec<u8>) {
        let Some(stream) = self.store.get_mut(key) else { return };
        if stream.state == State::Closed {
            return;
        }
        stream.state = State::Closed;
        let id = stream.id;
        self.unqueue(key);
        frame::reset(out, id, code);
        remember(&mut self.reset, id, RESET);
    }

    /// Forgets a stream: nothing is to be sent or read on it any more. One that we have not ended is reset, and one that
    /// the peer has not, whose content nobody wants, is told so (RFC 9113 section 8.1).
    pub fn release(&mut self, key: Key, out: &mut Vec<u8>) {
        match self.state(key) {
            State::HalfClosedLocal if self.role == Role::Server => self.reset(key, Code::No, out),
            State::Closed => {}
            _ => self.reset(key, Code::Internal, out),
        }
        self.unqueue(key);
        if let Some(stream) = self.store.remove(key) {
            remember(&mut self.ended, stream.id, ENDED);
        }
        if let Some(content) = self.data.as_mut().filter(|data| data.key == Some(key)).map(Data::orphan)
            && let Some(more) = self.recv.release(content)
        {
            frame::window_update(out, 0, more);
        }
    }

    pub(super) fn unqueue(&mut self, key: Key) {
        if let Some(stream) = self.store.get_mut(key)
            && std::mem::take(&mut stream.queued)
        {
            self.queue.remove(stream.priority, key.0);
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
/// Peers may send frames of so many bytes before they are told, and always (RFC 9113 section 4.2).
pub const MIN_FRAME: u32 = 16_384;
/// Streams that ended lately, to tell a frame on them from one on a stream that never was.
const ENDED: usize = 32;
