//! The head of a response as CGI has it (RFC 3875 section 6): fields, and the status in one of them.

use weir_engine::{Exchange, Span};
use weir_http::h1::{HeadLimits, HeadParse, ResponseHead};
use weir_http::{Field, KnownField};
use weir_upstream::protocol::IncomingHead;

use crate::gateway::answer_head;

/// Reads the head at the start of `bytes`, of which `most` may be the head; its length, or `None` when it is not
/// whole. All but the body's end is filled in.
///
/// # Errors
/// nginx's words for what is wrong.
pub(crate) fn read(
    x: &mut Exchange,
    bytes: &[u8],
    most: usize,
    incoming: &mut IncomingHead,
) -> Result<Option<usize>, String> {
    let limits = HeadLimits { max_line: most, max_head: most, ..HeadLimits::default() };
    let mut head = ResponseHead::default();
    match head.parse_fields(bytes, &limits) {
        Ok(HeadParse::Incomplete { .. }) => return Ok(None),
        Ok(HeadParse::Complete) => {}
        Err(bad) => return Err(answer_head::complaint(&head, bad, bytes)),
    }
    let len = head.len;
    keep(x, bytes, head, incoming)?;
    Ok(Some(len))
}

/// Keeps a head without a status line; its status is in one of its fields.
///
/// # Errors
/// As [`read`].
pub(crate) fn keep(
    x: &mut Exchange,
    bytes: &[u8],
    head: ResponseHead,
    incoming: &mut IncomingHead,
) -> Result<(), String> {
    answer_head::keep(x, bytes, head, incoming);
    (incoming.status, incoming.reason) = status(x, &incoming.fields)?;
    Ok(())
}

/// What `Status` says; without it a `Location` means 302, as in nginx.
fn status(x: &Exchange, fields: &[Field]) -> Result<(u16, Option<Span>), String> {
    let field = fields.iter().find(|field| x.arena.get(field.name).eq_ignore_ascii_case(b"status"));
    let Some(field) = field else {
        let moved = fields.iter().any(|field| field.known == KnownField::Location);
        return Ok((if moved { 302 } else { 200 }, None));
    };
    let line = x.arena.get(field.value);
    match number(line) {
        Some(status) => Ok((status, (line.len() > 3).then_some(field.value))),
        None => Err(format!("upstream sent invalid status \"{}\"", String::from_utf8_lossy(line))),
    }
}

/// The three digits that a status begins with, and that are all of it or have a space after them. None below 200 is
/// final: the client would take the next response for this one's. 101 is judged by the request.
pub(crate) fn number(line: &[u8]) -> Option<u16> {
    let (digits, reason) = line.split_at_checked(3)?;
    let number = u16::try_from(weir_http::header::decimal(digits)?).ok()?;
    let whole = reason.first().is_none_or(|byte| matches!(byte, b' ' | b'\t'));
    (whole && is_final(number)).then_some(number)
}

/// Whether a response with this status may be passed on as the only one.
pub(crate) fn is_final(status: u16) -> bool {
    status >= 200 || status == 101
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_status_begins_with_three_digits() {
        assert_eq!(number(b"404 Not Found"), Some(404));
        assert_eq!(number(b"404"), Some(404));
        assert_eq!(number(b"40"), None);
        assert_eq!(number(b"4x4 a"), None);
        assert_eq!(number(b"101 Switching"), Some(101));
        for odd in ["100 Continue", "103", "099 a", "000", "2000", "200OK", "+20 a"] {
            assert_eq!(number(odd.as_bytes()), None, "{odd}");
        }
    }
}
