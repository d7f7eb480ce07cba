//! Writing heads: whole slices appended, no formatting machinery.

use crate::header::KnownField;
use crate::status;

/// Appends `HTTP/1.1 200 OK` and a line end; always HTTP/1.1, as nginx, whatever the request's version.
///
/// A status without a known reason gets an empty one, with the space before it that RFC 9112 section 4 asks for: so do 494 to
/// 497 of scripts and upstreams. Those of nginx's own pages are 400 by then.
pub fn status_line(out: &mut Vec<u8>, status: u16) {
    // Each by a copy of its own, of a length that the compiler knows.
    match status {
        200 => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        206 => out.extend_from_slice(b"HTTP/1.1 206 Partial Content\r\n"),
        304 => out.extend_from_slice(b"HTTP/1.1 304 Not Modified\r\n"),
        404 => out.extend_from_slice(b"HTTP/1.1 404 Not Found\r\n"),
        _ => rare_status_line(out, status),
    }
}

/// Appends `name: value` and a line end. The caller vouches for both: no CR, LF or NUL.
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// [`field`] for a name of the table.
pub fn known_field(out: &mut Vec<u8>, name: KnownField, value: &[u8]) {
    let label = name.label().as_bytes();
    out.reserve(label.len() + value.len() + 2);
    out.extend_from_slice(label);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends `Content-Length: length` and a line end; `length` in bytes of the body.
pub fn content_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    number(out, length);
    out.extend_from_slice(b"\r\n");
}

/// Appends the empty line that ends a head.
pub fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Appends `number` in decimal digits.
pub fn number(out: &mut Vec<u8>, number: u64) {
    let digit = |value: u64| b'0' + (value % 10) as u8;
    match number {
        0..10 => return out.push(digit(number)),
        10..100 => return out.extend_from_slice(&[digit(number / 10), digit(number)]),
        100..1000 => {
            return out.extend_from_slice(&[digit(number / 100), digit(number / 10), digit(number)]);
        }
        _ => {}
    }
    let mut digits = [0; 20];
    let mut rest = number;
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        used += 1;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.split_at(20 - used).1);
}

/// Appends a number of thousandths as a decimal number: whole digits, a point, three digits (milliseconds as seconds).
pub fn thousandths(out: &mut Vec<u8>, thousandths: u64) {
    number(out, thousandths / 1000);
    let digit = |value: u64| b'0' + (value % 10) as u8;
    out.extend_from_slice(&[b'.', digit(thousandths / 100), digit(thousandths / 10), digit(thousandths)]);
}

/// Appends `number` in lower-case hexadecimal digits.
pub(crate) fn hexadecimal(out: &mut Vec<u8>, number: u64) {
    let nibbles = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for nibble in (0..nibbles).rev() {
        let digit = (number >> (nibble * 4) & 15) as u8;
        out.push(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
    }
}

#[cold]
fn rare_status_line(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    if status < 100 {
        out.extend_from_slice(if status < 10 { b"00" } else { b"0" });
    }
    number(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(status::reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("heads are ASCII")
    }

    #[test]
    fn fields_have_their_names_as_the_table_writes_them() {
        assert_eq!(written(|out| known_field(out, KnownField::Host, b"a")), "Host: a\r\n");
        assert_eq!(
            written(|out| known_field(out, KnownField::TransferEncoding, b"")),
            "Transfer-Encoding: \r\n"
        );
        assert_eq!(written(|out| content_length(out, 1234)), "Content-Length: 1234\r\n");
    }

    #[test]
    fn status_lines_are_nginxs() {
        for (status, line) in [
            (200, "HTTP/1.1 200 OK\r\n"),
            (206, "HTTP/1.1 206 Partial Content\r\n"),
            (302, "HTTP/1.1 302 Moved Temporarily\r\n"),
            (304, "HTTP/1.1 304 Not Modified\r\n"),
            (404, "HTTP/1.1 404 Not Found\r\n"),
            (413, "HTTP/1.1 413 Request Entity Too Large\r\n"),
            (414, "HTTP/1.1 414 Request-URI Too Large\r\n"),
            (416, "HTTP/1.1 416 Requested Range Not Satisfiable\r\n"),
            (494, "HTTP/1.1 494 \r\n"),
            (503, "HTTP/1.1 503 Service Temporarily Unavailable\r\n"),
            (7, "HTTP/1.1 007 \r\n"),
            (299, "HTTP/1.1 299 \r\n"),
        ] {
            assert_eq!(written(|out| status_line(out, status)), line);
        }
    }

    #[test]
    fn the_common_lines_agree_with_the_table() {
        for status in [200, 206, 304, 404] {
            assert_eq!(written(|out| status_line(out, status)), written(|out| rare_status_line(out, status)));
        }
    }

    #[test]
    fn numbers_have_every_length() {
        let mut value = 0_u64;
        loop {
            assert_eq!(written(|out| number(out, value)), value.to_string());
            assert_eq!(written(|out| hexadecimal(out, value)), format!("{value:x}"));
            let Some(next) = value.checked_mul(3).and_then(|value| value.checked_add(1)) else { break };
            value = next;
        }
        assert_eq!(written(|out| content_length(out, u64::MAX)), "Content-Length: 18446744073709551615\r\n");
    }
}
