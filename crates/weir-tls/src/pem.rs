//! PEM as OpenSSL writes and reads it: blocks between dashes, with the header lines that its old encrypted keys have,
//! and anything at all between the blocks.

/// A block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// What stands behind `BEGIN`.
    pub(crate) label: String,
    /// `Proc-Type: ...` and the like, by name.
    pub(crate) headers: Vec<(String, String)>,
    /// The content.
    pub(crate) bytes: Vec<u8>,
}

impl Block {
    /// The value of a header line.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// The blocks of `text`, in order; what is no whole block is left out.
pub(crate) fn blocks(text: &[u8]) -> Vec<Block> {
    let mut lines = text.split(|b| *b == b'\n').map(|line| line.trim_ascii());
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some(label) = between(line, b"-----BEGIN ") else { continue };
        found.extend(block(label, &mut lines));
    }
    found
}

fn block<'t>(label: &[u8], lines: &mut impl Iterator<Item = &'t [u8]>) -> Option<Block> {
    let (mut headers, mut base64) = (Vec::new(), Vec::new());
    for line in lines {
        if line.starts_with(b"-----END ") {
            let bytes = decode(&base64)?;
            return Some(Block { label: String::from_utf8_lossy(label).into_owned(), headers, bytes });
        }
        match line.iter().position(|b| *b == b':') {
            Some(at) if base64.is_empty() => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
                headers.push((text(&line[..at]), text(&line[at + 1..])));
            }
            _ => base64.extend_from_slice(line),
        }
    }
    None
}

fn between<'l>(line: &'l [u8], start: &[u8]) -> Option<&'l [u8]> {
    line.strip_prefix(start)?.strip_suffix(b"-----")
}

/// Base64 with padding (RFC 4648, section 4); `None` for anything else.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.chunks(4) {
        let [a, b, c, d] = *<&[u8; 4]>::try_from(group).ok()?;
        let (a, b) = (value(a)?, value(b)?);
        out.push(a << 2 | b >> 4);
        match (c, d) {
            (b'=', b'=') => break,
            (c, b'=') => {
                out.push(b << 4 | value(c)? >> 2);
                break;
            }
            (c, d) => {
                let (c, d) = (value(c)?, value(d)?);
                out.push(b << 4 | c >> 2);
                out.push(c << 6 | d);
            }
        }
    }
    Some(out)
}

fn value(b: u8) -> Option<u8> {
    match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// `der` as a block, with nginx's 64 characters a line and a line end behind it.
pub(crate) fn encode(label: &str, der: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in der.chunks(48) {
        for group in line.chunks(3) {
            let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
            let word = byte(0) << 16 | byte(1) << 8 | byte(2);
            for i in 0..4 {
                let symbol = ALPHABET[(word >> (18 - 6 * i) & 63) as usize];
                out.push(if i <= group.len() { symbol as char } else { '=' });
            }
        }
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_are_found_among_other_text() {
        let text = b"subject=x\n-----BEGIN A B-----\nAAEC\n-----END A B-----\r\n\
            -----BEGIN K-----\r\nProc-Type: 4,ENCRYPTED\r\nDEK-Info: AES-128-CBC,00FF\r\n\r\nAA==\r\n-----END K-----\n\
            -----BEGIN CUT-----\nAAAA\n";
        let found = blocks(text);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].label.as_str(), &found[0].bytes[..]), ("A B", &[0, 1, 2][..]));
        assert_eq!(found[1].header("dek-info"), Some("AES-128-CBC,00FF"));
        assert_eq!(found[1].bytes, [0]);
    }

    #[test]
    fn what_is_no_base64_is_no_block() {
        assert_eq!(blocks(b"-----BEGIN A-----\nA*==\n-----END A-----\n"), []);
        assert_eq!(decode(b"AAA"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let found = blocks(encode("X", &bytes).as_bytes());
            prop_assert_eq!(&found[0].bytes, &bytes);
        }

        #[test]
        fn any_text_is_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            blocks(&bytes);
        }
    }
}
