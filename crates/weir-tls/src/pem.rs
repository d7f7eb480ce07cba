//! PEM as OpenSSL writes and reads it: blocks between dashes, with the header lines that its old encrypted keys have,
//! and anything at all between the blocks.

/// A block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PemBlock {
    /// What follows `BEGIN`.
    pub(crate) label: String,
    /// `Proc-Type: ...` and the like, by name.
    pub(crate) headers: Vec<(String, String)>,
    /// The content.
    pub(crate) bytes: Vec<u8>,
}

impl PemBlock {
    /// The value of a header line.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// The blocks of `text`, in order; what is no whole block is left out.
pub(crate) fn blocks(text: &[u8]) -> Vec<PemBlock> {
    each(text).flatten().collect()
}

/// The blocks of `text`, in order. `None`: one is not whole, or its content is no base64.
pub(crate) fn whole(text: &[u8]) -> Option<Vec<PemBlock>> {
    each(text).collect()
}

/// What begins as a block does; `None`: it is not one.
fn each(text: &[u8]) -> impl Iterator<Item = Option<PemBlock>> {
    let mut lines = text.split(|b| *b == b'\n').map(|line| line.trim_ascii());
    std::iter::from_fn(move || {
        let label = lines.by_ref().find_map(|line| between(line, b"-----BEGIN "))?;
        Some(block(label, &mut lines))
    })
}

fn block<'t>(label: &[u8], lines: &mut impl Iterator<Item = &'t [u8]>) -> Option<PemBlock> {
    let (mut headers, mut base64) = (Vec::new(), Vec::new());
    for line in lines {
        if line.starts_with(b"-----END ") {
            let bytes = decode(&base64)?;
            return Some(PemBlock { label: String::from_utf8_lossy(label).into_owned(), headers, bytes });
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
    let mut over = false;
    for group in text.chunks(4) {
        if over {
            return None; // padding is at the end
        }
        let [a, b, c, d] = *<&[u8; 4]>::try_from(group).ok()?;
        match [a, b, c, d].map(value) {
            // Nearly all groups. No value has one of the two highest bits.
            [a, b, c, d] if (a | b | c | d) & 0xc0 == 0 => {
                out.extend_from_slice(&[a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d]);
            }
            [a, b, c, _] if (a | b | c) & 0xc0 == 0 && d == b'=' => {
                out.extend_from_slice(&[a << 2 | b >> 4, b << 4 | c >> 2]);
                over = true;
            }
            [a, b, ..] if (a | b) & 0xc0 == 0 && (c, d) == (b'=', b'=') => {
                out.push(a << 2 | b >> 4);
                over = true;
            }
            _ => return None,
        }
    }
    Some(out)
}

/// The six bits that a character encodes; 255: not a base64 character.
fn value(b: u8) -> u8 {
    VALUES[usize::from(b)]
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut at = 0;
    while at < ALPHABET.len() {
        values[ALPHABET[at] as usize] = at as u8;
        at += 1;
    }
    values
};

/// `der` as a block, with nginx's 64 characters a line and a line end after it.
pub(crate) fn encode(label: &str, der: &[u8]) -> String {
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
        for wrong in [&b"AAA"[..], b"AA==AAAA", b"AAA=AAA=", b"A=AA"] {
            assert_eq!(decode(wrong), None);
        }
        assert_eq!(whole(b"-----BEGIN A-----\nA*==\n-----END A-----\n"), None);
        assert_eq!(whole(b"-----BEGIN A-----\nAA==\n"), None);
        assert_eq!(whole(b"no block"), Some(Vec::new()));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let found = blocks(encode("X", &bytes).as_bytes());
            prop_assert_eq!(&found[0].bytes, &bytes);
        }

        #[test]
        fn any_text_is_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(whole(&bytes).is_none_or(|all| all == blocks(&bytes)));
        }
    }
}
