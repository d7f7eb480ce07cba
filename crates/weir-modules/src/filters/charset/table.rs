//! `charset_map`: what the bytes of one charset are in another.

use std::sync::Arc;

use weir_conf::{LineCx, Result};

/// One direction between two charsets.
#[derive(Debug)]
pub(crate) enum CharsetTable {
    /// A byte for a byte.
    Bytes(Box<[u8; 256]>),
    /// Of each byte how many bytes it is in UTF-8, and these.
    ToUtf8(Box<[[u8; 4]; 256]>),
    /// By the upper eight bits of a character its lower eight bits' bytes; 0 means no such character.
    FromUtf8(Box<[Option<Box<[u8; 256]>>; 256]>),
}

/// A `charset_map`, both directions.
#[derive(Clone, Debug)]
pub(crate) struct CharsetMap {
    from: Box<[u8]>,
    to: Box<[u8]>,
    forth: Arc<CharsetTable>,
    back: Arc<CharsetTable>,
}

impl CharsetMap {
    /// Reads a block whose charsets are not those of one of `others`.
    ///
    /// # Errors
    /// nginx's, for equal charsets, a map that is there already, and wrong lines.
    pub(crate) fn parse(line: &mut LineCx<'_>, others: &[CharsetMap]) -> Result<CharsetMap> {
        let (from, to) = (line.bytes(0), line.bytes(1));
        let names = |text: &str| format!("{text} \"{}\" and \"{}\"", line.arg(0), line.arg(1));
        if from.eq_ignore_ascii_case(to) {
            return Err(line.fail(names("\"charset_map\" between the same charsets")));
        }
        if from.eq_ignore_ascii_case(UTF8) {
            let message = "\"charset_map\" with \"utf-8\" charset should be given in the second column";
            return Err(line.fail(message));
        }
        if others.iter().any(|map| map.between(from, to).is_some()) {
            return Err(line.fail(names("duplicate \"charset_map\" between")));
        }
        let (forth, back) = if to.eq_ignore_ascii_case(UTF8) { utf8(line)? } else { bytes(line)? };
        Ok(CharsetMap { from: from.into(), to: to.into(), forth: Arc::new(forth), back: Arc::new(back) })
    }

    /// The table from one charset to another, if this map has it.
    pub(crate) fn between(&self, from: &[u8], to: &[u8]) -> Option<&Arc<CharsetTable>> {
        let are = |a: &[u8], b: &[u8]| a.eq_ignore_ascii_case(from) && b.eq_ignore_ascii_case(to);
        if are(&self.from, &self.to) {
            return Some(&self.forth);
        }
        are(&self.to, &self.from).then_some(&self.back)
    }

    /// Whether the charset of this name is one of the two.
    pub(crate) fn knows(&self, name: &[u8]) -> bool {
        self.from.eq_ignore_ascii_case(name) || self.to.eq_ignore_ascii_case(name)
    }
}

impl CharsetTable {
    /// The body changes its length.
    pub(crate) fn is_utf8(&self) -> bool {
        !matches!(self, CharsetTable::Bytes(_))
    }
}

fn bytes(line: &mut LineCx<'_>) -> Result<(CharsetTable, CharsetTable)> {
    let ascii: [u8; 256] = std::array::from_fn(|byte| if byte < 128 { byte as u8 } else { b'?' });
    let (mut forth, mut back) = (Box::new(ascii), Box::new(ascii));
    for entry in line.entries()? {
        let entry = line.entry(entry);
        let from = source(&entry)?;
        let to =
            hex(entry.bytes(0)).and_then(|n| u8::try_from(n).ok()).ok_or_else(|| entry.invalid_value(0))?;
        forth[usize::from(from)] = to;
        back[usize::from(to)] = from;
    }
    Ok((CharsetTable::Bytes(forth), CharsetTable::Bytes(back)))
}

fn utf8(line: &mut LineCx<'_>) -> Result<(CharsetTable, CharsetTable)> {
    let mut forth: Box<[[u8; 4]; 256]> =
        Box::new(std::array::from_fn(|byte| [1, if byte < 128 { byte as u8 } else { b'?' }, 0, 0]));
    let mut back: Box<[Option<Box<[u8; 256]>>; 256]> = Box::new([const { None }; 256]);
    back[0] = Some(Box::new(std::array::from_fn(|byte| if byte < 128 { byte as u8 } else { 0 })));
    for entry in line.entries()? {
        let entry = line.entry(entry);
        let from = source(&entry)?;
        let (to, character) = character(entry.bytes(0)).ok_or_else(|| entry.invalid_value(0))?;
        forth[usize::from(from)] = to;
        let page = back[usize::from(character >> 8)].get_or_insert_with(|| Box::new([0; 256]));
        page[usize::from(character & 0xff)] = from;
    }
    Ok((CharsetTable::ToUtf8(forth), CharsetTable::FromUtf8(back)))
}

/// The first column: a byte.
fn source(entry: &LineCx<'_>) -> Result<u8> {
    let name = &entry.line().name;
    if entry.args().len() != 1 {
        return Err(entry.fail("invalid parameters number"));
    }
    let byte = hex(name.bytes()).and_then(|n| u8::try_from(n).ok());
    byte.ok_or_else(|| entry.fail(format!("invalid value \"{name}\"")))
}

/// A character of one to three bytes written in hexadecimal digits, with its number.
fn character(digits: &[u8]) -> Option<([u8; 4], u16)> {
    if digits.is_empty() || digits.len() > 6 || !digits.len().is_multiple_of(2) {
        return None;
    }
    let mut bytes = [0; 4];
    let len = digits.len() / 2;
    bytes[0] = len as u8;
    for (at, pair) in digits.chunks_exact(2).enumerate() {
        bytes[at + 1] = u8::try_from(hex(pair)?).ok()?;
    }
    let text = &bytes[1..=len];
    let number = match super::recode::decode(text) {
        super::recode::DecodedStart::Character(number, taken) if taken == len => number,
        _ => return None,
    };
    Some((bytes, u16::try_from(number).ok()?))
}

fn hex(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| Some(number << 4 | char::from(*digit).to_digit(16)?))
}

const UTF8: &[u8] = b"utf-8";
