//! Header blocks (RFC 7541): an encoder that never compresses, but fills the peer's table; a decoder of all that may come.

use std::collections::VecDeque;

use super::huffman;
use crate::wire::BadMessage;

/// A field's name and value.
pub type FieldPair = (String, String);

/// How a field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldForm {
    /// Literal without indexing.
    Plain,
    /// Literal never indexed.
    Never,
    /// Literal with incremental indexing: the peer's table takes it.
    Added,
}

/// A header block of `fields`, all of which have names and values of their own.
pub fn encode(fields: &[FieldPair], form: FieldForm) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(match form {
            FieldForm::Plain => 0x00,
            FieldForm::Never => 0x10,
            FieldForm::Added => 0x40,
        });
        text(&mut block, name);
        text(&mut block, value);
    }
    block
}

fn text(block: &mut Vec<u8>, text: &str) {
    integer(block, 0, 7, text.len());
    block.extend_from_slice(text.as_bytes());
}

/// An integer after `first`, whose lower `bits` are its prefix (RFC 7541 section 5.1).
pub fn integer(block: &mut Vec<u8>, first: u8, bits: u32, value: usize) {
    let most = (1_usize << bits) - 1;
    if value < most {
        return block.push(first | value as u8);
    }
    block.push(first | most as u8);
    let mut rest = value - most;
    while rest >= 128 {
        block.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// The reading side of a connection.
#[derive(Clone, Debug)]
pub struct HpackReader {
    entries: VecDeque<FieldPair>,
    /// What the entries may take, as the peer says.
    size: usize,
    /// What they may take, as we have said.
    limit: usize,
    /// The peer has to say that its table is smaller than the one that both begin with (section 4.2).
    must_shrink: bool,
}

/// The table that both sides begin with, bytes.
pub(super) const USUAL: usize = 4096;

impl HpackReader {
    /// A reader that allows a table of so many bytes.
    pub fn new(limit: usize) -> HpackReader {
        HpackReader { entries: VecDeque::new(), size: USUAL, limit, must_shrink: limit < USUAL }
    }

    /// From now on a table of so many bytes is allowed.
    pub(super) fn allow(&mut self, limit: usize) {
        (self.limit, self.must_shrink) = (limit, self.size > limit);
    }

    /// The fields of a block.
    ///
    /// # Errors
    /// These bytes are no header block.
    pub fn decode(&mut self, block: &[u8]) -> Result<Vec<FieldPair>, BadMessage> {
        let mut rest = block;
        let mut fields = Vec::new();
        while let Some(first) = rest.first().copied() {
            if self.must_shrink && !(0x20..0x40).contains(&first) {
                return Err(BadMessage(format!("no word of a table of {} bytes", self.limit)));
            }
            self.must_shrink = false;
            match first {
                0x80.. => {
                    let index = taken(&mut rest, 7)?;
                    fields.push(self.entry(index)?);
                }
                0x40.. => {
                    let field = self.literal(&mut rest, 6)?;
                    self.entries.push_front(field.clone());
                    self.evict();
                    fields.push(field);
                }
                0x20.. => {
                    self.size = taken(&mut rest, 5)?;
                    if self.size > self.limit || !fields.is_empty() {
                        return Err(BadMessage(format!("a table of {} bytes", self.size)));
                    }
                    self.evict();
                }
                _ => fields.push(self.literal(&mut rest, 4)?),
            }
        }
        Ok(fields)
    }

    fn literal(&mut self, rest: &mut &[u8], bits: u32) -> Result<FieldPair, BadMessage> {
        let name = match taken(rest, bits)? {
            0 => string(rest)?,
            index => self.entry(index)?.0,
        };
        Ok((name, string(rest)?))
    }

    fn entry(&self, index: usize) -> Result<FieldPair, BadMessage> {
        let absent = || BadMessage(format!("index {index} of a table of {}", self.entries.len()));
        if let Some((name, value)) = index.checked_sub(1).and_then(|at| STATIC.get(at)) {
            return Ok(((*name).to_owned(), (*value).to_owned()));
        }
        let at = index.checked_sub(STATIC.len() + 1).ok_or_else(absent)?;
        self.entries.get(at).cloned().ok_or_else(absent)
    }

    fn evict(&mut self) {
        let taken = |entries: &VecDeque<FieldPair>| -> usize {
            entries.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
        };
        while taken(&self.entries) > self.size {
            self.entries.pop_back();
        }
    }
}

fn cut() -> BadMessage {
    BadMessage("a header block ends too early".to_owned())
}

fn taken(rest: &mut &[u8], bits: u32) -> Result<usize, BadMessage> {
    let (first, mut after) = rest.split_first().ok_or_else(cut)?;
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(*first) & most;
    let mut shift = 0;
    let mut is_whole = value < most;
    while !is_whole {
        let (byte, next) = after.split_first().ok_or_else(cut)?;
        if shift > 28 {
            return Err(BadMessage("an integer of a header block is too long".to_owned()));
        }
        value += usize::from(byte & 0x7f) << shift;
        (shift, is_whole, after) = (shift + 7, byte & 0x80 == 0, next);
    }
    *rest = after;
    Ok(value)
}

fn string(rest: &mut &[u8]) -> Result<String, BadMessage> {
    let is_coded = rest.first().ok_or_else(cut)? & 0x80 != 0;
    let length = taken(rest, 7)?;
    let (bytes, after) = rest.split_at_checked(length).ok_or_else(cut)?;
    *rest = after;
    let bytes = if is_coded { huffman::decode(bytes)? } else { bytes.to_vec() };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// RFC 7541 appendix A.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> FieldPair {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let fields = vec![pair(":path", "/a?n=1"), pair("x-long", &"y".repeat(5000))];
        for form in [FieldForm::Plain, FieldForm::Never, FieldForm::Added] {
            assert_eq!(HpackReader::new(4096).decode(&encode(&fields, form)), Ok(fields.clone()));
        }
    }

    #[test]
    fn examples_of_the_rfc_are_read() {
        // C.6.1 and C.6.2: responses in Huffman code, with a table of 256 bytes.
        let mut reader = HpackReader::new(256);
        reader.decode(&bytes("3fe101")).expect("its size");
        let first = "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3";
        let fields = reader.decode(&bytes(first)).expect("good");
        assert_eq!(fields[0], pair(":status", "302"));
        assert_eq!(fields[3], pair("location", "https://www.example.com"));
        let second = reader.decode(&bytes("4883640effc1c0bf")).expect("good");
        assert_eq!((&second[0], &second[1]), (&pair(":status", "307"), &pair("cache-control", "private")));
        assert_eq!(second[3], fields[3]);
    }

    #[test]
    fn what_is_no_block_is_an_error() {
        for text in ["80", "be", "40", "4005", "3fe2ff", "ff", "8220", "0085ffffffffff"] {
            assert!(HpackReader::new(4096).decode(&bytes(text)).is_err(), "{text}");
        }
        assert!(HpackReader::new(256).decode(&bytes("82")).is_err(), "the table is not said to be small");
    }

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex")).collect()
    }
}
