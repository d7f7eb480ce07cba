//! Recodes a body that comes piece by piece. Pieces in which nothing changes pass as they are.

use std::sync::Arc;

use weir_engine::body::{BodyBuf, BodyChain};
use weir_engine::filter::ROOM;

use super::table::CharsetTable;

/// The work on one body.
pub(crate) struct CharsetRecoder {
    table: Arc<CharsetTable>,
    /// The beginning of a character whose end did not come yet.
    held: Vec<u8>,
    /// A piece for which there was no room any more, and how far it is done.
    current: Option<(BodyBuf, usize)>,
}

impl CharsetRecoder {
    /// For one body.
    pub(crate) fn new(table: Arc<CharsetTable>) -> CharsetRecoder {
        CharsetRecoder { table, held: Vec::new(), current: None }
    }

    /// Takes `input`, all or until [`ROOM`] is used up, which is `false`. Of a character that never ends nothing is
    /// left, as in nginx.
    pub(crate) fn step(&mut self, input: &mut BodyChain, output: &mut BodyChain) -> bool {
        while let Some((piece, at)) = self.current.take().or_else(|| Some((input.pop()?, 0))) {
            if output.len() >= ROOM {
                self.current = Some((piece, at));
                return false;
            }
            self.piece(piece, at, output);
        }
        output.append(input);
        true
    }

    /// A piece that needs no change as a whole, else its next [`PART`].
    fn piece(&mut self, piece: BodyBuf, at: usize, output: &mut BodyChain) {
        let Some(bytes) = piece.memory() else { return output.push(piece) };
        if at == 0 && self.held.is_empty() && self.is_same(bytes) {
            return output.push(piece);
        }
        let end = bytes.len().min(at + PART);
        let mut out = Vec::with_capacity(2 * (end - at));
        self.part(&bytes[at..end], &mut out);
        output.push(BodyBuf::Bytes(out));
        if end < bytes.len() {
            self.current = Some((piece, end));
        }
    }

    fn is_same(&self, bytes: &[u8]) -> bool {
        match &*self.table {
            CharsetTable::Bytes(table) => bytes.iter().all(|byte| table[usize::from(*byte)] == *byte),
            CharsetTable::ToUtf8(table) => {
                bytes.is_ascii() && bytes.iter().all(|byte| table[usize::from(*byte)][..2] == [1, *byte])
            }
            CharsetTable::FromUtf8(_) => bytes.is_ascii(),
        }
    }

    fn part(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let table = self.table.clone();
        match &*table {
            CharsetTable::Bytes(table) => out.extend(bytes.iter().map(|byte| table[usize::from(*byte)])),
            CharsetTable::ToUtf8(table) => {
                for byte in bytes {
                    let [len, text @ ..] = &table[usize::from(*byte)];
                    out.extend_from_slice(&text[..usize::from(*len)]);
                }
            }
            CharsetTable::FromUtf8(pages) if self.held.is_empty() => self.utf8_to_bytes(pages, bytes, out),
            CharsetTable::FromUtf8(pages) => {
                let mut held = std::mem::take(&mut self.held);
                held.extend_from_slice(bytes);
                self.utf8_to_bytes(pages, &held, out);
            }
        }
    }

    fn utf8_to_bytes(&mut self, pages: &[Option<Box<[u8; 256]>>; 256], bytes: &[u8], out: &mut Vec<u8>) {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if first.is_ascii() {
                let end = rest.iter().position(|byte| !byte.is_ascii()).unwrap_or(rest.len());
                out.extend_from_slice(&rest[..end]);
                rest = &rest[end..];
                continue;
            }
            let taken = match decode(rest) {
                DecodedStart::Character(number, taken) => {
                    let page = pages.get(number as usize >> 8).and_then(Option::as_ref);
                    match page.map_or(0, |page| page[number as usize & 0xff]) {
                        0 if number > 0x10_ffff => out.push(b'?'),
                        0 => out.extend_from_slice(format!("&#{number};").as_bytes()),
                        byte => out.push(byte),
                    }
                    taken
                }
                DecodedStart::Invalid(taken) => {
                    out.push(b'?');
                    taken
                }
                DecodedStart::Incomplete => {
                    self.held = rest.to_vec();
                    return;
                }
            };
            rest = &rest[taken..];
        }
    }
}

/// What is at the beginning of bytes that shall be UTF-8.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DecodedStart {
    /// A character, and how many bytes it has.
    Character(u32, usize),
    /// None, and how many bytes say so: these are gone.
    Invalid(usize),
    /// More is needed.
    Incomplete,
}

/// Decodes as nginx does: of the bytes after the first one is only asked that they are no ASCII, and one that is
/// belongs to what is invalid.
pub(crate) fn decode(bytes: &[u8]) -> DecodedStart {
    let (bits, least, len) = match bytes.first() {
        None => return DecodedStart::Incomplete,
        Some(first @ 0xf0..=0xf7) => (first & 0x07, 0x1_0000, 3),
        Some(first @ 0xe0..=0xef) => (first & 0x0f, 0x800, 2),
        Some(first @ 0xc2..=0xdf) => (first & 0x1f, 0x80, 1),
        Some(_) => return DecodedStart::Invalid(1),
    };
    let Some(rest) = bytes.get(1..=len) else { return DecodedStart::Incomplete };
    let mut number = u32::from(bits);
    for (at, byte) in rest.iter().enumerate() {
        if byte.is_ascii() {
            return DecodedStart::Invalid(at + 2);
        }
        number = number << 6 | u32::from(byte & 0x3f);
    }
    if number < least { DecodedStart::Invalid(len + 1) } else { DecodedStart::Character(number, len + 1) }
}

/// How much is recoded before it is looked whether there is room: at most ten bytes come of two.
const PART: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::pieces;

    fn run(table: &Arc<CharsetTable>, pieces: &[&[u8]]) -> Vec<u8> {
        let mut recoder = CharsetRecoder::new(table.clone());
        let mut whole = Vec::new();
        for piece in pieces {
            let mut input = BodyChain::default();
            input.push(BodyBuf::Bytes(piece.to_vec()));
            loop {
                let mut output = BodyChain::default();
                let done = recoder.step(&mut input, &mut output);
                assert!(output.len() < ROOM + 5 * PART as u64);
                while let Some(buf) = output.pop() {
                    whole.extend_from_slice(buf.memory().expect("in memory"));
                }
                if done {
                    break;
                }
            }
        }
        whole
    }

    fn latin() -> Arc<CharsetTable> {
        let mut pages = Box::new([const { None }; 256]);
        pages[0] = Some(Box::new(std::array::from_fn(|byte| byte as u8)));
        Arc::new(CharsetTable::FromUtf8(pages))
    }

    #[test]
    fn characters_without_a_byte_are_entities() {
        let recode = |text: &[u8]| String::from_utf8_lossy(&run(&latin(), &[text])).into_owned();
        assert_eq!(recode("a\u{20ac}b\u{1f600}".as_bytes()), "a&#8364;b&#128512;");
        assert_eq!(run(&latin(), &["\u{e9}".as_bytes()]), [0xe9]);
        assert_eq!(recode(b"\xff\xc3(\xe2\x82"), "??");
        let many = "\u{43f}".repeat(100_000);
        assert_eq!(recode(many.as_bytes()), "&#1087;".repeat(100_000));
    }

    proptest! {
        #[test]
        fn chunks_make_no_difference(bytes: Vec<u8>, text: String, cuts in proptest::collection::vec(1..4_usize, 0..40)) {
            let bytes = [text.as_bytes(), &bytes, text.as_bytes()].concat();
            let pieces = pieces(&bytes, &cuts);
            prop_assert_eq!(run(&latin(), &pieces), run(&latin(), &[&bytes]));
        }
    }
}
