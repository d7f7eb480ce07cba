//! An answer on a plain stream, as SCGI and uwsgi have it: a head, with a status line or without, and a body that ends
//! where its length says, or with the connection.

use weir_core::Exchange;
use weir_core::upstream::protocol::{Decoder, Head, Incoming};
use weir_http::h1::{Limits, Parse, ResponseHead};
use weir_http::{Known, Method};

use super::head;
use crate::answer_head;

/// Reads the head at the start of `bytes`, of which `most` may be the head.
///
/// # Errors
/// nginx's words for what is wrong.
pub(crate) fn read(
    x: &mut Exchange,
    bytes: &[u8],
    most: usize,
    incoming: &mut Incoming,
) -> Result<Head, String> {
    let line = bytes.get(..LINE.len().min(bytes.len())).unwrap_or_default();
    if line.len() < LINE.len() && LINE.starts_with(line) {
        return Ok(Head::Incomplete);
    }
    let found = if line == LINE { with_line(x, bytes, most, incoming)? } else { None };
    let found = match found {
        Some(found) => found,
        None => match head::read(x, bytes, most, incoming)? {
            Some(len) => Head::Complete(len),
            None => Head::Incomplete,
        },
    };
    if let Head::Complete(_) = found {
        let bodiless = x.request.method == Method::Head || matches!(incoming.status, 204 | 304);
        incoming.upgraded = incoming.status == 101;
        if incoming.upgraded && !x.request.fields.iter().any(|field| field.known == Known::Upgrade) {
            return Err("upstream sent 101 to a request that asked for no other protocol".to_owned());
        }
        incoming.decoder = match incoming.content_length {
            _ if bodiless => Decoder::None,
            Some(0) => Decoder::None,
            Some(length) => Decoder::Length(length),
            None => Decoder::UntilClose,
        };
    }
    Ok(found)
}

/// A head that begins as HTTP does; `None`: its first line is no status line.
fn with_line(
    x: &mut Exchange,
    bytes: &[u8],
    most: usize,
    incoming: &mut Incoming,
) -> Result<Option<Head>, String> {
    let limits = Limits { max_line: most, max_head: most, ..Limits::default() };
    let mut line = ResponseHead::default();
    match line.parse(bytes, &limits) {
        Ok(Parse::Incomplete { .. }) => return Ok(Some(Head::Incomplete)),
        Ok(Parse::Complete) => {}
        Err(weir_http::h1::BadResponse::InvalidStatusLine) => return Ok(None),
        Err(bad) => return Err(answer_head::complaint(&line, bad, bytes)),
    }
    let len = line.len;
    answer_head::keep(x, bytes, line, incoming);
    if !head::is_final(incoming.status) {
        return Err(format!("upstream sent invalid status \"{}\"", incoming.status));
    }
    Ok(Some(Head::Complete(len)))
}

/// How a status line begins.
const LINE: &[u8] = b"HTTP/";
