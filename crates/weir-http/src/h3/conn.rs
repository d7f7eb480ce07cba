//! A connection: what both sides agreed on, its streams, and what is written on them.

use std::collections::VecDeque;

use super::frame::{self, frame_head, kind};
use super::guard::{AbuseBudget, H3Abuse};
use super::repeat::ReadBlock;
use super::settings::H3Settings;
use super::stream::{H3Stream, StreamList};
use super::uni::{CONTROL, DECODER, ENCODER, UniStreams};
use super::{H3ErrorCode, H3Failure, varint};
use crate::hpack::{DecodedSection, SectionLimits};
use crate::message::{MalformedMessage, SectionMessage};
use crate::priority::Priority;
use crate::qpack::{QpackDecoder, QpackEncoder};

/// How a connection is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H3Config {
    /// Bytes of the dynamic table that the peer may use for the fields that it sends.
    pub table: usize,
    /// Bytes of a name or a value that the peer may put there.
    pub longest: usize,
    /// Streams whose header sections may wait for entries of that table.
    pub blocked: usize,
    /// Bounds on header sections.
    pub limits: SectionLimits,
    /// True when extended CONNECT is taken (RFC 9220).
    pub connect_protocol: bool,
}

/// Which side of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum H3Role {
    /// Requests are received.
    Server,
    /// Requests are sent.
    Client,
}

/// One side of a connection.
#[derive(Debug)]
pub struct H3Connection {
    pub(super) role: H3Role,
    pub(super) config: H3Config,
    /// What the peer said of itself; `None` until it has.
    pub(super) remote: Option<H3Settings>,
    pub(super) decoder: QpackDecoder,
    pub(super) encoder: QpackEncoder,
    /// The header section that was read last.
    pub(super) section: DecodedSection,
    /// What it says.
    pub(super) message: SectionMessage,
    pub(super) malformed: Option<MalformedMessage>,
    /// Bytes of the header section that was read last, as it was sent.
    pub(super) block_len: usize,
    /// The block that it was read from.
    pub(super) read: ReadBlock,
    pub(super) streams: StreamList,
    pub(super) unis: UniStreams,
    /// Streams whose header sections wait, and for how many entries of the dynamic table.
    pub(super) blocked: Vec<(u64, u64)>,
    /// Bytes of header sections that have come in part, or wait.
    pub(super) held: usize,
    /// The request stream after the last one that was seen.
    pub(super) next: u64,
    /// Priorities of streams that are not there yet (RFC 9218 section 7).
    pub(super) early: VecDeque<(u64, Priority)>,
    /// Requests from this one on are not taken: our GOAWAY frame.
    pub(super) last: Option<u64>,
    /// What the peer's GOAWAY frame said.
    pub(super) peer_last: Option<u64>,
    /// What the peer's MAX_PUSH_ID frame said.
    pub(super) most_push: Option<u64>,
    pub(super) budget: AbuseBudget,
    scratch: Vec<u8>,
}

impl H3Connection {
    /// The server's side of a connection.
    pub fn new(config: H3Config) -> H3Connection {
        H3Connection::of(H3Role::Server, config)
    }

    /// The client's side.
    pub fn client(config: H3Config) -> H3Connection {
        H3Connection::of(H3Role::Client, config)
    }

    fn of(role: H3Role, config: H3Config) -> H3Connection {
        H3Connection {
            role,
            config,
            remote: None,
            decoder: QpackDecoder::new(config.table).with_longest(config.longest),
            encoder: QpackEncoder::new(),
            section: DecodedSection::default(),
            message: SectionMessage::default(),
            malformed: None,
            block_len: 0,
            read: ReadBlock::default(),
            streams: StreamList::default(),
            unis: UniStreams::default(),
            blocked: Vec::new(),
            held: 0,
            next: 0,
            early: VecDeque::new(),
            last: None,
            peer_last: None,
            most_push: None,
            budget: AbuseBudget::new(),
            scratch: Vec::new(),
        }
    }

    /// Bytes of memory that it owns: tables, buffers and places of streams, itself not counted.
    pub fn held_bytes(&self) -> usize {
        let lists = self.blocked.capacity() * size_of::<(u64, u64)>()
            + self.early.capacity() * size_of::<(u64, Priority)>();
        self.decoder.held_bytes()
            + self.encoder.held_bytes()
            + self.section.held_bytes()
            + self.read.held_bytes()
            + self.streams.held_bytes()
            + self.unis.held_bytes()
            + self.scratch.capacity()
            + lists
    }

    /// What our control stream begins with: its type, and our settings.
    pub fn begin_control(&self, out: &mut Vec<u8>) {
        varint::write(out, CONTROL);
        let settings = H3Settings {
            table: self.config.table as u64,
            blocked: self.config.blocked as u64,
            connect_protocol: self.config.connect_protocol && self.role == H3Role::Server,
            ..H3Settings::default()
        };
        settings.write(out);
    }

    /// What the stream of our decoder begins with. It is of use where the peer may use a dynamic table.
    pub fn begin_decoder(&self, out: &mut Vec<u8>) {
        varint::write(out, DECODER);
    }

    /// What the stream of our encoder begins with. It is not opened before there is something to be sent on it.
    pub fn begin_encoder(&self, out: &mut Vec<u8>) {
        varint::write(out, ENCODER);
    }

    /// Bytes for the stream of our decoder, which the caller takes and sends.
    pub fn decoder_output(&mut self) -> &mut Vec<u8> {
        self.decoder.output()
    }

    /// Bytes for the stream of our encoder, which the caller takes and sends.
    pub fn encoder_output(&mut self) -> &mut Vec<u8> {
        self.encoder.output()
    }

    /// The header section that the last event was about.
    pub fn section(&self) -> &DecodedSection {
        &self.section
    }

    /// What there is of it as a message, malformed or not.
    pub fn message(&self) -> &SectionMessage {
        &self.message
    }

    /// Whether the last message is well-formed.
    ///
    /// # Errors
    /// Why it is malformed.
    pub fn checked(&self) -> Result<(), MalformedMessage> {
        self.malformed.map_or(Ok(()), Err)
    }

    /// Bytes of the last header section as it was sent (nginx's `$request_length`).
    pub fn block_len(&self) -> usize {
        self.block_len
    }

    /// The number of what the last header section says: two of one number say the same.
    pub fn section_number(&self) -> u64 {
        self.read.version
    }

    /// What writes header sections. A section begins with [`QpackEncoder::begin`] and ends with [`QpackEncoder::finish`];
    /// [`H3Connection::head`] sees to both.
    pub fn encoder(&mut self) -> &mut QpackEncoder {
        &mut self.encoder
    }

    /// What the peer said of itself; `None` until it has.
    pub fn remote(&self) -> Option<&H3Settings> {
        self.remote.as_ref()
    }

    /// Appends a header section as a HEADERS frame: a head, an interim one, or trailers. `write` writes its fields.
    pub fn head(&mut self, id: u64, out: &mut Vec<u8>, write: impl FnOnce(&mut QpackEncoder, &mut Vec<u8>)) {
        let mut block = std::mem::take(&mut self.scratch);
        block.clear();
        self.encoder.begin(&mut block);
        write(&mut self.encoder, &mut block);
        self.encoder.finish(id, &mut block);
        frame_head(kind::HEADERS, block.len() as u64, out);
        out.extend_from_slice(&block);
        self.scratch = block;
        if let Some(stream) = self.streams.get_mut(id) {
            stream.is_responded = true;
        }
    }

    /// The request stream after the last one that was seen: what a GOAWAY frame of ours may say.
    pub fn next_stream(&self) -> u64 {
        self.next
    }

    /// Appends a GOAWAY frame for our control stream: requests from stream `id` on are not taken. It can't be taken back: a
    /// larger one than before is not sent.
    pub fn go_away(&mut self, id: u64, out: &mut Vec<u8>) {
        if self.last.is_none_or(|last| id < last) {
            self.last = Some(id);
            frame::integer(kind::GOAWAY, id, out);
        }
    }

    /// Whether a GOAWAY frame was sent or received.
    pub fn is_ending(&self) -> bool {
        self.last.is_some() || self.peer_last.is_some()
    }

    /// The stream `id` is forgotten: nothing more of it may be handed over. Where its sections were not all read, the peer's encoder
    /// learns that they use its table no longer. Its response, where there was one, pays for a reset.
    pub fn forget(&mut self, id: u64) {
        if self.drop_stream(id).is_some_and(|stream| stream.is_responded) {
            self.budget.pay(H3Abuse::Resets, 1);
        }
    }

    /// The peer has reset the stream `id`, of which something was handed over or nothing. It is forgotten.
    ///
    /// # Errors
    /// It resets too many.
    pub fn peer_reset(&mut self, id: u64) -> Result<(), H3Failure> {
        if self.drop_stream(id).is_none() {
            self.decoder.cancel(id);
        }
        self.budget.spend(H3Abuse::Resets)
    }

    fn drop_stream(&mut self, id: u64) -> Option<H3Stream> {
        let stream = self.streams.remove(id)?;
        self.held -= stream.block.len();
        self.blocked.retain(|(blocked, _)| *blocked != id);
        if !stream.is_read() {
            self.decoder.cancel(id);
        }
        Some(stream)
    }

    /// A stream whose header section waited for the dynamic table, and need not wait any longer: [`H3Connection::receive`] goes
    /// on there, also without further bytes. Each is reported once.
    pub fn unblocked(&mut self) -> Option<u64> {
        let inserted = self.decoder.inserted();
        let at = self.blocked.iter().position(|(_, required)| *required <= inserted)?;
        Some(self.blocked.remove(at).0)
    }

    /// The stream `id`, which the peer may have opened with what is being read.
    ///
    /// # Errors
    /// It is no request's.
    pub(super) fn opened(&mut self, id: u64) -> Result<(), H3Failure> {
        if self.streams.get(id).is_some() {
            return Ok(());
        }
        if !id.is_multiple_of(4) {
            return Err(H3Failure::new(H3ErrorCode::StreamCreation, "opened bidirectional stream"));
        }
        let mut stream = H3Stream::new(id);
        if let Some(at) = self.early.iter().position(|(early, _)| *early == id)
            && let Some((_, priority)) = self.early.remove(at)
        {
            (stream.priority, stream.is_reprioritized) = (priority, true);
        }
        self.streams.add(stream);
        self.next = self.next.max(id.saturating_add(4));
        Ok(())
    }
}
