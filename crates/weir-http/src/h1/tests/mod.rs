//! Tables of what is taken and refused, every split point, and httparse as a second opinion.

mod chunks;
mod differential;
mod requests;
mod responses;

use super::{BadRequest, HeadLimits, HeadParse, RequestHead};

/// A parsed head, or why it is not one.
fn parse(buf: &[u8]) -> Result<(HeadParse, RequestHead), BadRequest> {
    let mut head = RequestHead::default();
    head.parse(buf, &HeadLimits::default()).map(|parse| (parse, head))
}

/// A head that must be complete.
fn complete(buf: &[u8]) -> RequestHead {
    match parse(buf) {
        Ok((HeadParse::Complete, head)) => head,
        other => panic!("{}: {other:?}", buf.escape_ascii()),
    }
}

/// Everything a caller can see, for comparing two parses of the same bytes.
fn facts(head: &RequestHead) -> String {
    format!("{head:?}")
}
