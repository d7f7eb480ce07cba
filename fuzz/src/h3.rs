//! HTTP/3: header sections with both streams of their tables, and a server's side of a connection.

use std::collections::BTreeMap;

use weir_http::h3::{H3Abuse, H3Config, H3Connection, H3Event, H3Failure, UniInterest, frame_head, kind};
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
        let config = H3Config { table: 300, blocked: 3, limits: LIMITS, connect_protocol: true };
        Served { server: H3Connection::new(config), streams: BTreeMap::new(), has_waited: false }
    }

    /// Takes records: a stream, whether it ends, so many bytes.
    fn all(&mut self, data: &[u8], size: usize) -> Result<(), H3Failure> {
        let mut rest = data;
        while let [stream, length, after @ ..] = rest {
            let (bytes, next) = after.split_at(usize::from(*length).min(after.len()));
            rest = next;
            let (id, end) = (u64::from(stream & 0x1f), StreamEnd::last_if(stream & 0x80 != 0));
            let mut pieces = bytes.chunks(size).peekable();
            while let Some(piece) = pieces.next() {
                let end = if pieces.peek().is_some() { StreamEnd::More } else { end };
                self.piece(id, piece, end).inspect_err(failed)?;
            }
        }
        self.streams.keys().for_each(|id| self.server.forget(*id));
        self.streams.values_mut().for_each(|stream| stream.rest.clear());
        let held = self.server.decoder_output().len() + self.server.encoder_output().len();
        assert!(held <= 3 * data.len() + 16, "acknowledgments are as many as what they are for");
        Ok(())
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
            let (used, event) = self.server.receive(id, &stream.rest, stream.end.unwrap_or(StreamEnd::More))?;
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
                    self.server.head(id, &mut Vec::new(), |coder, out| coder.status(204, out));
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

/// What is said of content that was announced and is missing.
const LENGTH: &str = "sent content of another length than \"Content-Length\"";

/// What a connection fails with has a code, and a name where it is a limit's.
fn failed(failure: &H3Failure) {
    assert!(failure.code.number() > 0x100 && !failure.reason.is_empty());
    assert!(failure.abuse.is_none_or(|abuse: H3Abuse| failure.reason.contains(abuse.name())));
}

/// A frame, for seeds that are built.
#[cfg(test)]
fn headers(block: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame_head(kind::HEADERS, block.len() as u64, &mut out);
    out.extend_from_slice(block);
    out
}
