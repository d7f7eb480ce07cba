//! Bodies in chunks: freed of their framing, and what may be wrong with it.

use weir_http::h1::{BadChunk, ChunkedDecoder, TrailerFields};

/// Leaves of `body` the bytes without the framing; how many of the bytes were used, and whether the body is over.
pub(super) fn unframe(decoder: &mut ChunkedDecoder, body: &mut Vec<u8>) -> (usize, Result<bool, String>) {
    // The body's bytes move up to where the framing was.
    let (mut at, mut end, mut read) = (0, 0, Ok(false));
    while read == Ok(false) && at < body.len() {
        read = decoder.decode(&body[at..]).map(|step| {
            let data = at + step.data.start..at + step.data.end;
            at += step.consumed;
            body.copy_within(data.clone(), end);
            end += data.len();
            step.done
        });
    }
    body.truncate(end);
    (at, read.map_err(|bad| chunk_message(bad, decoder.trailers())))
}

/// What is wrong with a body in chunks, `trailers` being what was read of its trailer section.
fn chunk_message(bad: BadChunk, trailers: &TrailerFields) -> String {
    match bad {
        BadChunk::TrailersTooLarge => "upstream sent too big trailers".to_owned(),
        BadChunk::InvalidTrailer(_) => String::from_utf8_lossy(&trailers.log_message()).into_owned(),
        _ => "upstream sent invalid chunked response".to_owned(),
    }
}
