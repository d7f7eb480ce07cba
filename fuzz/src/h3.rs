//! HTTP/3: header sections with both streams of their tables, and a server's side of a connection.

use std::collections::BTreeMap;

use weir_http::h3::{
    H3Abuse, H3Config, H3Connection, H3ErrorCode, H3Event, H3Failure, H3Settings, UniInterest, frame_head,
    kind,
};
use weir_http::hpack::{DecodedSection, FieldIndexing, SectionLimits};
use weir_http::message::StreamEnd;
use weir_http::qpack::{QpackDecoder, QpackEncoder, QpackError, SectionProgress};

const LIMITS: SectionLimits = SectionLimits::new(4096, 64);

/// Instructions, whole and in pieces, and a section that uses what they insert; what was read is written, acknowledged, and
/// read again the same.
pub fn qpack(data: &[u8]) {
    let Some((&cut, rest)) = data.split_first() else { return };
    let (instructions, block) = rest.split_at(usize::from(cut).min(rest.len()));
    let (mut decoder, mut pieces) = (QpackDecoder::new(512), QpackDecoder::new(512));
    let whole = decoder.receive(instructions);
    let size = usize::from(cut % 7) + 1;
    let in_pieces = instructions.chunks(size).try_for_each(|piece| pieces.receive(piece));
    assert_eq!((whole, decoder.inserted()), (in_pieces, pieces.inserted()));
    let mut section = DecodedSection::default();
    let read = decoder.decode(4, block, LIMITS, &mut section);
    assert_eq!(pieces.decode(4, block, LIMITS, &mut DecodedSection::default()), read);
    assert_eq!(decoder.output(), pieces.output());
    if read != Ok(SectionProgress::Read) {
        return;
    }
    assert!(section.text.len() <= LIMITS.text && section.items.len() <= LIMITS.fields);
    written(&section).expect("what was written is good");
}

/// Writes a section several times, as its fields enter the table and are acknowledged.
fn written(section: &DecodedSection) -> Result<(), QpackError> {
    let (mut encoder, mut decoder) = (QpackEncoder::new(), QpackDecoder::new(1000));
    encoder.set_limit(1000);
    for stream in 0..4 {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for item in &section.items {
            let (name, value) = (item.label.of(&section.text), item.value.of(&section.text));
            encoder.field(name, value, FieldIndexing::Allowed, &mut out);
        }
        encoder.finish(stream, &mut out);
        let mut again = DecodedSection::default();
        assert_eq!(decoder.decode(stream, &out, LIMITS, &mut again)?, SectionProgress::Read);
        assert_eq!((&again.text, &again.items), (&section.text, &section.items));
        decoder.receive(&std::mem::take(encoder.output()))?;
        encoder.receive(&std::mem::take(decoder.output()))?;
    }
    Ok(())
}

/// Bytes of several streams, taken whole and in pieces: the same comes of both, what is taken was there, each stream's events
/// come in their order, and each request can be responded to and forgotten.
pub fn h3_streams(data: &[u8]) {
    let (mut whole, mut pieces) = (Served::new(), Served::new());
    let size = usize::from(data.first().copied().unwrap_or(1) % 16) + 1;
    let outcome = whole.all(data, usize::MAX);
    let in_pieces = pieces.all(data, size);
    // What an encoder does to sections that wait depends on when they are read.
    if !whole.has_waited && !pieces.has_waited {
        assert_eq!((&whole.streams, outcome), (&pieces.streams, in_pieces));
    }
}

/// A server and what it has received.
struct Served {
    server: H3Connection,
    streams: BTreeMap<u64, Received>,
    has_waited: bool,
}

/// A stream.
#[derive(Debug, Default, PartialEq)]
struct Received {
    /// Bytes that were not taken.
    rest: Vec<u8>,
    waits: bool,
    head: bool,
    trailers: bool,
    over: bool,
    end: Option<StreamEnd>,
    content: Vec<u8>,
    fault: Option<&'static str>,
}

impl Served {
    fn new() -> Served {
        let config =
            H3Config { table: 300, longest: 200, blocked: 3, limits: LIMITS, connect_protocol: true };
        let server = H3Connection::new(config);
        begun(&server, &mut H3Connection::client(config)).expect("what a server begins with is good");
        Served { server, streams: BTreeMap::new(), has_waited: false }
    }

    /// Takes records: a stream, whether it ends or is reset, so many bytes.
    fn all(&mut self, data: &[u8], size: usize) -> Result<(), H3Failure> {
        let outcome = self.records(data, size);
        // How far a stream was read when its connection failed depends on the pieces.
        self.streams.values_mut().for_each(|stream| (stream.rest, stream.end) = (Vec::new(), None));
        self.streams.keys().for_each(|id| self.server.forget(*id));
        let held = self.server.decoder_output().len() + self.server.encoder_output().len();
        assert!(held <= 3 * data.len() + 16, "acknowledgments are as many as what they are for");
        outcome
    }

    fn records(&mut self, data: &[u8], size: usize) -> Result<(), H3Failure> {
        let mut rest = data;
        while let [stream, length, after @ ..] = rest {
            let (bytes, next) = after.split_at(usize::from(*length).min(after.len()));
            rest = next;
            let (id, end) = (u64::from(stream & 0x1f), StreamEnd::last_if(stream & 0x80 != 0));
            if stream & 0x40 != 0 {
                self.reset(id).inspect_err(failed)?;
                continue;
            }
            if bytes.is_empty() {
                self.piece(id, bytes, end).inspect_err(failed)?;
            }
            let mut pieces = bytes.chunks(size).peekable();
            while let Some(piece) = pieces.next() {
                let end = if pieces.peek().is_some() { StreamEnd::More } else { end };
                self.piece(id, piece, end).inspect_err(failed)?;
            }
        }
        Ok(())
    }

    fn reset(&mut self, id: u64) -> Result<(), H3Failure> {
        if !id.is_multiple_of(4) {
            return self.server.reset_uni(id).inspect_err(|failed| {
                assert_eq!(*failed, H3Failure::CLOSED_CRITICAL_STREAM);
            });
        }
        let stream = self.streams.entry(id).or_default();
        (stream.end, stream.waits) = (Some(StreamEnd::Last), false);
        self.server.peer_reset(id)
    }

    fn piece(&mut self, id: u64, piece: &[u8], end: StreamEnd) -> Result<(), H3Failure> {
        if !id.is_multiple_of(4) {
            let _interest: UniInterest = self.server.receive_uni(id, piece, end)?;
            while let Some(id) = self.server.unblocked() {
                self.streams.entry(id).or_default().waits = false;
                self.request(id)?;
            }
            return Ok(());
        }
        let stream = self.streams.entry(id).or_default();
        if stream.end == Some(StreamEnd::Last) {
            return Ok(());
        }
        stream.rest.extend_from_slice(piece);
        stream.end = Some(end);
        if stream.waits { Ok(()) } else { self.request(id) }
    }

    fn request(&mut self, id: u64) -> Result<(), H3Failure> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        loop {
            let (used, event) =
                self.server.receive(id, &stream.rest, stream.end.unwrap_or(StreamEnd::More))?;
            assert!(used <= stream.rest.len());
            let Some(event) = event else {
                assert_eq!(used, stream.rest.len());
                stream.rest.clear();
                return Ok(());
            };
            assert!(!stream.over, "nothing comes after the end");
            match event {
                H3Event::Head { end } => {
                    assert!(!std::mem::replace(&mut stream.head, true));
                    let short = self.server.message().content_length.is_some_and(|length| length > 0);
                    stream.over = end == StreamEnd::Last;
                    if stream.over && short {
                        assert!(self.server.checked().is_err());
                        stream.fault = Some(LENGTH);
                    }
                    let mut out = Vec::new();
                    self.server.head(id, &mut out, |coder, out| coder.status(200, out));
                    frame_head(kind::DATA, 1, &mut out);
                    assert_eq!(out, [1, 3, 0, 0, 0xd9, 0, 1]);
                }
                H3Event::Data { range, end } => {
                    assert!(stream.head && !stream.trailers && range.end <= used);
                    stream.content.extend_from_slice(&stream.rest[range]);
                    stream.over = end == StreamEnd::Last;
                }
                H3Event::Trailers { end } => {
                    assert!(stream.head && !std::mem::replace(&mut stream.trailers, true));
                    stream.over = end == StreamEnd::Last;
                }
                H3Event::End => {
                    assert!(stream.head);
                    stream.over = true;
                }
                H3Event::Blocked => {
                    (stream.waits, self.has_waited) = (true, true);
                    stream.rest.drain(..used);
                    return Ok(());
                }
                H3Event::Malformed { reason } | H3Event::Reset { reason, .. } => {
                    (stream.over, stream.fault) = (true, Some(reason));
                }
                H3Event::Interim => unreachable!("of a request"),
            }
            stream.rest.drain(..used);
        }
    }
}

/// A client takes what a server's streams begin with.
fn begun(server: &H3Connection, client: &mut H3Connection) -> Result<(), H3Failure> {
    let (mut control, mut encoder, mut decoder) = (Vec::new(), Vec::new(), Vec::new());
    server.begin_control(&mut control);
    server.begin_encoder(&mut encoder);
    server.begin_decoder(&mut decoder);
    for (id, bytes) in [(3, control), (7, encoder), (11, decoder)] {
        assert_eq!(client.receive_uni(id, &bytes, StreamEnd::More)?, UniInterest::Wanted);
    }
    let settings = H3Settings { table: 300, blocked: 3, connect_protocol: true, ..H3Settings::default() };
    assert_eq!(client.remote(), Some(&settings));
    Ok(())
}

/// What is said of content that was announced and is missing.
const LENGTH: &str = "sent content of another length than \"Content-Length\"";

/// What a connection fails with has a code, and a name where it is a limit's.
fn failed(failure: &H3Failure) {
    assert!(failure.code != H3ErrorCode::No && failure.code != H3ErrorCode::Internal);
    assert!(!failure.reason.is_empty());
    assert!(failure.abuse.is_none_or(|abuse: H3Abuse| failure.reason.contains(abuse.name())));
}
