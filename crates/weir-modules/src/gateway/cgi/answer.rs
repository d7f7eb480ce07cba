//! A response on a plain stream, as SCGI and uwsgi have it: a head, with a status line or without, and a body that ends
//! where its length says, or with the connection.

use weir_engine::Exchange;
use weir_http::h1::{BadResponse, HeadLimits, HeadParse, ResponseHead};
use weir_http::{KnownField, Method};
use weir_upstream::protocol::{BodyDecoder, HeadProgress, IncomingHead};

use super::head;
use crate::gateway::answer_head;

/// Reads the head at the start of `bytes`, of which `most` may be the head.
///
/// # Errors
/// nginx's words for what is wrong.
pub(crate) fn read(
    x: &mut Exchange,
    bytes: &[u8],
    most: usize,
    incoming: &mut IncomingHead,
) -> Result<HeadProgress, String> {
    let mut head = ResponseHead::default();
    match parse(bytes, most, &mut head) {
        Ok(HeadParse::Incomplete { .. }) => return Ok(HeadProgress::Incomplete),
        Ok(HeadParse::Complete) => {}
        Err(bad) => return Err(answer_head::complaint(&head, bad, bytes)),
    }
    let len = head.len;
    if head.status == 0 {
        head::keep(x, bytes, head, incoming)?;
    } else {
        answer_head::keep(x, bytes, head, incoming);
        if !head::is_final(incoming.status) {
            return Err(format!("upstream sent invalid status \"{}\"", incoming.status));
        }
    }
    frame(x, incoming)?;
    Ok(HeadProgress::Complete(len))
}

/// Reads a head that begins as HTTP does, or, where there is no status line, as CGI has it: its status is 0 then.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(bytes: &[u8], most: usize, head: &mut ResponseHead) -> Result<HeadParse, BadResponse> {
    let limits = HeadLimits { max_line: most, max_head: most, ..HeadLimits::default() };
    let line = bytes.get(..LINE.len()).unwrap_or(bytes);
    if line.len() < LINE.len() && LINE.starts_with(line) {
        return Ok(HeadParse::Incomplete { in_line: true });
    }
    if line == LINE {
        match head.parse(bytes, &limits) {
            Err(BadResponse::InvalidStatusLine) => {}
            parsed => return parsed,
        }
    }
    head.parse_fields(bytes, &limits)
}

/// Where the body ends.
fn frame(x: &Exchange, incoming: &mut IncomingHead) -> Result<(), String> {
    let bodiless = x.request.head.method == Method::Head || matches!(incoming.status, 204 | 304);
    incoming.upgraded = incoming.status == 101;
    if incoming.upgraded && !x.request.head.fields.iter().any(|field| field.known == KnownField::Upgrade) {
        return Err("upstream sent 101 to a request that asked for no other protocol".to_owned());
    }
    incoming.decoder = match incoming.content_length {
        _ if bodiless => BodyDecoder::None,
        Some(0) => BodyDecoder::None,
        Some(length) => BodyDecoder::Length(length),
        None => BodyDecoder::UntilClose,
    };
    Ok(())
}

/// How a status line begins.
const LINE: &[u8] = b"HTTP/";
