//! What the error log says about a refused head, in nginx's words and with the text nginx quotes.

use super::{BadRequest, BadResponse, RequestHead, ResponseHead};
use crate::header::{Field, KnownField, Span};

/// nginx cuts a quoted header line at 2048 bytes less room for the rest of the log line.
const LONGEST_QUOTE: usize = 1748;

impl RequestHead {
    /// nginx's message for `bad`, which [`parse`](RequestHead::parse) returned for `buf`; without the action.
    ///
    /// The quoted bytes are the client's own: the caller that writes the log escapes them.
    pub fn log_message(&self, bad: BadRequest, buf: &[u8]) -> Vec<u8> {
        let mut out = bad.message().as_bytes().to_vec();
        match bad {
            BadRequest::ObsFold
            | BadRequest::SpaceBeforeColon
            | BadRequest::InvalidName
            | BadRequest::MissingColon
            | BadRequest::InvalidValue
            | BadRequest::BareCr => quote_line(&mut out, buf, self.offending),
            BadRequest::FieldTooLong => {
                let line = buf.get(self.offending.start as usize..).unwrap_or_default();
                append(&mut out, &[b": \"", line.get(..LONGEST_QUOTE).unwrap_or(line), b"...\""]);
            }
            BadRequest::RepeatedHost => self.quote_repeated(&mut out, buf, KnownField::Host),
            BadRequest::ContentLengthRepeated => {
                self.quote_repeated(&mut out, buf, KnownField::ContentLength);
            }
            BadRequest::RepeatedField(known) => self.quote_repeated(&mut out, buf, known),
            BadRequest::TransferEncodingUnknown => {
                let value =
                    self.field(KnownField::TransferEncoding).map_or(&b""[..], |field| field.value.of(buf));
                append(&mut out, &[b": \"", value, b"\""]);
            }
            _ => {}
        }
        out
    }

    fn quote_repeated(&self, out: &mut Vec<u8>, buf: &[u8], known: KnownField) {
        quote_repeated(out, buf, &self.fields, known);
    }
}

impl ResponseHead {
    /// nginx's message for `bad`, which [`parse`](ResponseHead::parse) returned for `buf`; without the action.
    ///
    /// The quoted bytes are the server's own: the caller that writes the log escapes them.
    pub fn log_message(&self, bad: BadResponse, buf: &[u8]) -> Vec<u8> {
        let mut out = bad.message().as_bytes().to_vec();
        let repeated = |known| self.fields.iter().filter(|field| field.known == known).count() > 1;
        let known = match bad {
            BadResponse::ContentLengthInvalid => KnownField::ContentLength,
            BadResponse::TransferEncoding => KnownField::TransferEncoding,
            BadResponse::Field(
                BadRequest::HeadTooLarge
                | BadRequest::FieldTooLong
                | BadRequest::LineTooLong
                | BadRequest::TooManyFields,
            ) => return out,
            BadResponse::Field(_) => {
                quote_line(&mut out, buf, self.offending);
                return out;
            }
            _ => return out,
        };
        match self.fields.last().filter(|field| field.known == known) {
            Some(_) if repeated(known) => {
                out = b"upstream sent duplicate header line".to_vec();
                quote_repeated(&mut out, buf, &self.fields, known);
            }
            Some(field) if known == KnownField::ContentLength => {
                append(&mut out, &[b": \"", field.name.of(buf), b": ", field.value.of(buf), b"\""]);
            }
            Some(field) => append(&mut out, &[b": \"", field.value.of(buf), b"\""]),
            None => {}
        }
        out
    }
}

/// The line up to the wrong byte, and that byte in hexadecimal.
pub(super) fn quote_line(out: &mut Vec<u8>, buf: &[u8], offending: Span) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let byte = buf.get(offending.end as usize).copied().unwrap_or_default();
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or_default();
    let code = [digit(byte >> 4), digit(byte & 15)];
    append(out, &[b": \"", offending.of(buf), b"\\x", &code, b"...\""]);
}

fn quote_repeated(out: &mut Vec<u8>, buf: &[u8], fields: &[Field], known: KnownField) {
    let mut found = fields.iter().filter(|field| field.known == known);
    let text = |field: Option<&Field>| {
        field.map_or_else(Vec::new, |field| [field.name.of(buf), field.value.of(buf)].join(&b": "[..]))
    };
    let (first, second) = (text(found.next()), text(found.next()));
    append(out, &[b": \"", &second, b"\", previous value: \"", &first, b"\""]);
}

fn append(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::HeadLimits;

    fn logged(buf: &[u8]) -> String {
        let mut head = RequestHead::default();
        let limits = HeadLimits { max_line: 64, ..HeadLimits::default() };
        let bad = head.parse(buf, &limits).expect_err("the head is bad");
        String::from_utf8(head.log_message(bad, buf)).expect("the test's heads are ASCII")
    }

    #[test]
    fn messages_quote_what_nginx_quotes() {
        let long = ["GET / HTTP/1.1\r\nX: ", &"y".repeat(70), "\r\n"].concat();
        let long_logged = ["client sent too long header line: \"X: ", &"y".repeat(70), "\r\n...\""].concat();
        for (head, message) in [
            ("get / HTTP/1.1\r\n\r\n", "client sent invalid method"),
            ("GET / HTTP/1.1\r\nA b: c\r\n\r\n", r#"client sent invalid header line: "A\x20...""#),
            ("GET / HTTP/1.1\r\nA: b\0c\r\n\r\n", r#"client sent invalid header line: "A: b\x00...""#),
            ("GET / HTTP/1.1\r\n b: c\r\n\r\n", r#"client sent invalid header line: "\x20...""#),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
                r#"client sent duplicate host header: "host: b", previous value: "Host: a""#,
            ),
            (
                "GET / HTTP/1.1\r\nIf-Match: a\r\nIf-Match: b\r\n\r\n",
                r#"client sent duplicate header line: "If-Match: b", previous value: "If-Match: a""#,
            ),
            (
                "GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
                r#"client sent unknown "Transfer-Encoding": "gzip""#,
            ),
            (&long, &long_logged),
        ] {
            assert_eq!(logged(head.as_bytes()), message);
        }
    }

    #[test]
    fn a_message_has_its_action() {
        let both = |bad: BadRequest| (bad.message(), bad.action());
        assert_eq!(
            both(BadRequest::InvalidMethod),
            ("client sent invalid method", "reading client request line")
        );
        let missing = "client sent HTTP/1.1 request without \"Host\" header";
        assert_eq!(both(BadRequest::MissingHost), (missing, "reading client request headers"));
    }
}
