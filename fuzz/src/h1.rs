//! HTTP/1: heads and chunked bodies. Each target parses its input whole and in pieces and asserts what callers rely
//! on: spans inside the buffer, no byte consumed that is not there, the same outcome at every split.

use weir_http::h1::{
    BadChunk, ChunkStrictness, ChunkedDecoder, HeadLimits, HeadParse, RequestHead, ResponseHead,
    TrailerLimits, TrailerMisfit,
};
use weir_http::{Field, Span};

/// Small enough for a fuzzer to reach.
const LIMITS: HeadLimits = HeadLimits::new(256, 1024, 16);

/// A request head.
pub fn h1_head(data: &[u8]) {
    let mut head = RequestHead::default();
    let whole = head.parse(data, &LIMITS);
    match whole {
        Ok(HeadParse::Complete) => {
            let spans = [head.method_span, head.target, head.protocol, head.line, head.path()];
            check(data, head.len, &spans, &head.fields);
            assert!(!head.method_span.is_empty() && !head.target.is_empty());
            assert!(!(head.chunked && head.content_length.is_some()), "two lengths");
        }
        Ok(HeadParse::Incomplete { .. }) => assert!(data.len() < head.leading_crlf + LIMITS.max_head),
        Err(bad) => {
            assert!(matches!(bad.status(), 400 | 414 | 494 | 501 | 505));
            assert!(head.line.end as usize <= data.len() && head.offending.end as usize <= data.len());
            assert!(head.log_message(bad, data).starts_with(b"client sent "));
        }
    }
    let mut part = RequestHead::default();
    for length in prefixes(data) {
        match (part.parse(&data[..length], &LIMITS), whole) {
            (Ok(HeadParse::Incomplete { .. }), Ok(HeadParse::Complete)) => assert!(length < head.len),
            (Ok(HeadParse::Incomplete { .. }), _) => {}
            (Ok(HeadParse::Complete), Ok(HeadParse::Complete)) => {
                assert_eq!(format!("{part:?}"), format!("{head:?}"));
            }
            // A line too long may be known before the fault in it is seen.
            (Err(_), Err(_)) => {}
            (part, whole) => panic!("{length} bytes give {part:?}, all {whole:?}"),
        }
    }
}

/// A response head.
pub fn response_head(data: &[u8]) {
    let mut head = ResponseHead::default();
    let whole = head.parse(data, &LIMITS);
    if whole == Ok(HeadParse::Complete) {
        check(data, head.len, &[head.reason], &head.fields);
        assert!((100..=999).contains(&head.status));
        assert!(!(head.chunked && head.content_length.is_some()), "two lengths");
    }
    let mut part = ResponseHead::default();
    for length in prefixes(data) {
        match (part.parse(&data[..length], &LIMITS), whole) {
            (Ok(HeadParse::Incomplete { .. }), _) | (Err(_), Err(_)) => {}
            (Ok(HeadParse::Complete), Ok(HeadParse::Complete)) => {
                assert_eq!(format!("{part:?}"), format!("{head:?}"));
            }
            (part, whole) => panic!("{length} bytes give {part:?}, all {whole:?}"),
        }
    }
}

/// A chunked body, as a client's and as an upstream's.
pub fn chunked(data: &[u8]) {
    for strictness in [ChunkStrictness::Client, ChunkStrictness::Upstream] {
        let whole = decode(data, data.len().max(1), strictness);
        for piece in [1, 2, 3, 7, 16] {
            assert_eq!(decode(data, piece, strictness), whole, "in pieces of {piece}");
        }
    }
}

/// The data, the bytes consumed and the trailers of a body that arrives in pieces.
fn decode(
    input: &[u8],
    piece: usize,
    strictness: ChunkStrictness,
) -> Result<(Vec<u8>, usize, String), BadChunk> {
    let mut decoder = ChunkedDecoder::new(
        strictness,
        TrailerLimits { bytes: 128, fields: 4, misfit: TrailerMisfit::Refused },
    );
    let (mut data, mut at) = (Vec::new(), 0);
    for end in (0..input.len()).map(|start| (start + piece).min(input.len())).step_by(piece) {
        while at < end && !decoder.is_done() {
            let part = &input[at..end];
            let step = decoder.decode(part)?;
            assert!(step.consumed <= part.len() && step.data.end <= step.consumed);
            assert!(step.consumed > 0, "no progress");
            data.extend_from_slice(&part[step.data]);
            at += step.consumed;
        }
    }
    assert_eq!(decoder.is_done(), decoder.at_least() == 0);
    if decoder.is_done() {
        let trailers = decoder.trailers();
        check(trailers.bytes(), trailers.bytes().len(), &[], trailers.fields());
    }
    Ok((data, at, format!("{:?}", decoder.trailers())))
}

fn check(data: &[u8], len: usize, spans: &[Span], fields: &[Field]) {
    assert!(len <= data.len());
    let fields = fields.iter().flat_map(|field| [field.name, field.value]);
    for span in spans.iter().copied().chain(fields) {
        assert!(span.start <= span.end && span.end as usize <= len, "{span:?} outside {len} bytes");
    }
}

/// Every prefix of a short input, some of a long one.
fn prefixes(data: &[u8]) -> impl Iterator<Item = usize> {
    (0..data.len()).step_by(data.len() / 128 + 1)
}
