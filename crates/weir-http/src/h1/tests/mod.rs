//! Tables of what is taken and refused, every split point, and httparse as a second opinion.

mod chunks;
mod differential;
mod requests;
mod responses;

use super::{BadRequest, Limits, Parse, RequestHead};

/// A parsed head, or why it is not one.
fn parse(buf: &[u8]) -> Result<(Parse, RequestHead), BadRequest> {
    let mut head = RequestHead::default();
    head.parse(buf, &Limits::default()).map(|parse| (parse, head))
}

/// A head that must be complete.
fn complete(buf: &[u8]) -> RequestHead {
    match parse(buf) {
        Ok((Parse::Complete, head)) => head,
        other => panic!("{}: {other:?}", buf.escape_ascii()),
    }
}

/// Everything a caller can see, for comparing two parses of the same bytes.
fn facts(head: &RequestHead) -> String {
    format!("{head:?}")
}
