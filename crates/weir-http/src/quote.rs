//! Texts as literals of other languages: of SQL for MySQL and PostgreSQL, and of JSON.

/// As MySQL wants strings.
pub fn sql(text: &[u8]) -> Vec<u8> {
    let mut out = vec![b'\''];
    for &byte in text {
        let escape = match byte {
            0 => b'0',
            b'\n' => b'n',
            b'\r' => b'r',
            0x08 => b'b',
            b'\t' => b't',
            0x1a => b'Z',
            b'\\' | b'\'' | b'"' => byte,
            byte => {
                out.push(byte);
                continue;
            }
        };
        out.extend([b'\\', escape]);
    }
    out.push(b'\'');
    out
}

/// As PostgreSQL wants strings, `''` if it is empty. Of a text that is not UTF-8 all bytes above 127 are written as two backslashes and
/// three octal digits, of which `bytea` makes bytes.
pub(crate) fn postgresql(text: &[u8]) -> Vec<u8> {
    if text.is_empty() {
        return b"''".to_vec();
    }
    let quoted = [b"E", &*sql(text)].concat();
    if std::str::from_utf8(text).is_ok() {
        return quoted;
    }
    let mut out = Vec::with_capacity(quoted.len() * 2);
    for byte in quoted {
        match byte {
            0..0x80 => out.push(byte),
            _ => out.extend([b'\\', b'\\', b'0' + (byte >> 6), b'0' + (byte >> 3 & 7), b'0' + (byte & 7)]),
        }
    }
    out
}

/// As JSON wants strings, bytes above 127 as they are; `null` if it is empty.
pub fn json(text: &[u8]) -> Vec<u8> {
    if text.is_empty() {
        return b"null".to_vec();
    }
    let mut out = vec![b'"'];
    for &byte in text {
        match byte {
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0x08 => out.extend(b"\\b"),
            0x0c => out.extend(b"\\f"),
            b'"' | b'\\' => out.extend([b'\\', byte]),
            0..0x20 => out.extend(format!("\\u{byte:04x}").into_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted() {
        let text = b"a\n\r'\"\\\t\x08\x00\x1a\x01 \xc3\xa9";
        assert_eq!(sql(text), b"'a\\n\\r\\'\\\"\\\\\\t\\b\\0\\Z\x01 \xc3\xa9'");
        assert_eq!(postgresql(text), b"E'a\\n\\r\\'\\\"\\\\\\t\\b\\0\\Z\x01 \xc3\xa9'");
        assert_eq!(postgresql(b"a\xc3"), b"E'a\\\\303'");
        assert_eq!(
            json(b"a\n\r'\"\\\t\x08\x0c\x00\x1f\x7f\xc3\xa9"),
            b"\"a\\n\\r'\\\"\\\\\\t\\b\\f\\u0000\\u001f\x7f\xc3\xa9\""
        );
        assert_eq!(
            (sql(b""), postgresql(b""), json(b"")),
            (b"''".to_vec(), b"''".to_vec(), b"null".to_vec())
        );
    }
}
