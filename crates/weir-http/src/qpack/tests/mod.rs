//! The examples of RFC 9204 appendix B, every error, and encoder and decoder against each other.

mod encoder;
mod model;

use super::*;
use crate::header::KnownField;
use crate::hpack::prefixed;
use crate::hpack::{DecodedSection, SectionLimits};

pub(super) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) const ALL: SectionLimits = SectionLimits::new(1 << 20, 1000);

pub(super) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(text, 16).expect("hexadecimal digits")
    };
    digits.chunks(2).map(byte).collect()
}

/// The fields of a section that can be read now; `None`: it has to wait.
pub(super) fn read(
    decoder: &mut QpackDecoder,
    stream: u64,
    block: &[u8],
) -> Result<Option<Fields>, QpackError> {
    let mut section = DecodedSection::default();
    Ok(match decoder.decode(stream, block, ALL, &mut section)? {
        SectionProgress::Read => Some(fields(&section)),
        SectionProgress::Blocked(required) => {
            assert!(required > decoder.inserted());
            None
        }
    })
}

pub(super) fn fields(section: &DecodedSection) -> Fields {
    let text = |span: crate::header::Span| span.of(&section.text).to_vec();
    section.items.iter().map(|item| (text(item.label), text(item.value))).collect()
}

fn of(fields: &[(&str, &str)]) -> Option<Fields> {
    Some(fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect())
}

fn taken(output: &mut Vec<u8>) -> Vec<u8> {
    std::mem::take(output)
}

const CAPACITY: &str = "3fbd01";
const INSERTS: &str = "c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468";
const CUSTOM: &str = "4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565";

#[test]
fn the_exchanges_of_appendix_b() {
    let mut decoder = QpackDecoder::new(220);
    let literal = bytes("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    assert_eq!(read(&mut decoder, 0, &literal), Ok(of(&[(":path", "/index.html")])));
    assert_eq!(taken(decoder.output()), b"", "it needs no acknowledgment");

    let post_base = bytes("0381 10 11");
    assert_eq!(read(&mut decoder, 4, &post_base), Ok(None), "its entries are on their way");
    decoder.receive(&bytes(CAPACITY)).expect("a capacity");
    decoder.receive(&bytes(INSERTS)).expect("two entries");
    let expected = of(&[(":authority", "www.example.com"), (":path", "/sample/path")]);
    assert_eq!(read(&mut decoder, 4, &post_base), Ok(expected));
    assert_eq!(taken(decoder.output()), bytes("84"));

    decoder.receive(&bytes(CUSTOM)).expect("an entry");
    assert_eq!(taken(decoder.output()), bytes("01"));

    let duplicated = bytes("0500 80 c1 81");
    assert_eq!(read(&mut decoder, 8, &duplicated), Ok(None));
    decoder.cancel(8);
    assert_eq!(taken(decoder.output()), bytes("48"));
    decoder.receive(&bytes("02")).expect("a duplicate");
    let expected = of(&[(":authority", "www.example.com"), (":path", "/"), ("custom-key", "custom-value")]);
    assert_eq!(read(&mut decoder, 12, &duplicated), Ok(expected));
    assert_eq!(decoder.table.size(), 217);

    decoder.receive(&bytes("810d 6375 7374 6f6d 2d76 616c 7565 32")).expect("an entry");
    assert_eq!((decoder.table.size(), decoder.table.oldest(), decoder.inserted()), (215, 1, 5));
    assert_eq!(decoder.table.at(4).map(|row| row.text), Some(&b"custom-keycustom-value2"[..]));
    assert_eq!(taken(decoder.output()), bytes("8c 01"));
}

#[test]
fn instructions_come_in_any_pieces() {
    let stream = [CAPACITY, INSERTS, CUSTOM, "02", "810d 6375 7374 6f6d 2d76 616c 7565 32", "3f4d"].concat();
    let stream = bytes(&stream);
    for piece in 1..stream.len() {
        for start in 0..piece {
            let mut decoder = QpackDecoder::new(220);
            let (first, rest) = stream.split_at(start);
            decoder.receive(first).expect("good instructions");
            for part in rest.chunks(piece) {
                decoder.receive(part).expect("good instructions");
            }
            assert_eq!((decoder.inserted(), decoder.table.capacity()), (5, 108));
            assert_eq!(decoder.table.at(4).map(|row| row.label), Some(10));
            assert_eq!(decoder.partial.held_bytes(), 0);
        }
    }
}

/// A decoder of 220 bytes with the three entries of appendix B.
fn filled() -> QpackDecoder {
    let mut decoder = QpackDecoder::new(220);
    decoder.receive(&bytes(&[CAPACITY, INSERTS, CUSTOM].concat())).expect("good instructions");
    decoder
}

#[test]
fn every_representation_is_read() {
    let key = ("custom-key", "v");
    let value = ("custom-key", "custom-value");
    for (hex, expected) in [
        ("0000", &[][..]),
        ("0000 d9 ff22", &[(":status", "200"), ("x-frame-options", "deny")]),
        ("0000 5f4d 0176 7f4d 0176", &[("server", "v"), ("server", "v")]),
        ("0000 2161 0176 3161 0176", &[("a", "v"), ("a", "v")]),
        ("0000 291f 811f", &[("a", "a")]),
        // Base 3: below it.
        ("0400 80 40 0176 60 0176", &[value, key, key]),
        // Base 5, above what is required.
        ("0402 82 42 0176", &[value, key]),
        // Base 0: above it.
        ("0482 12 02 0176 0a 0176", &[value, key, key]),
        ("0481 11 01 0176", &[value, key]),
        ("0280 10", &[(":authority", "www.example.com")]),
    ] {
        assert_eq!(read(&mut filled(), 0, &bytes(hex)), Ok(of(expected)), "{hex}");
    }
}

#[test]
fn sections_that_are_wrong_are_told_apart() {
    for (hex, error) in [
        ("", QpackError::Truncated),
        ("04", QpackError::Truncated),
        ("0000 5f", QpackError::Truncated),
        ("0000 51 05 61", QpackError::Truncated),
        ("0000 22 61", QpackError::Truncated),
        ("0000 ff ff ff ff ff ff ff ff ff ff 01", QpackError::Integer),
        ("ff ff ff ff ff ff ff ff ff ff 01 00", QpackError::Integer),
        ("00 7f ff ff ff ff ff ff ff ff ff 01", QpackError::Integer),
        // The static table has 99 entries.
        ("0000 ff 24", QpackError::Index),
        ("0000 7f 54 00", QpackError::Index),
        // Nothing is required, so nothing may be referred to.
        ("0000 80", QpackError::Index),
        ("0000 40 00", QpackError::Index),
        ("0000 10", QpackError::Index),
        ("0000 00 00", QpackError::Index),
        // Two are required: the third is there, but may not be used.
        ("0301 80", QpackError::Index),
        ("0381 12", QpackError::Index),
        // Below the first one.
        ("0400 83", QpackError::Index),
        ("0400 43 00", QpackError::Index),
        ("0000 51 82 ffff", QpackError::Huffman),
        ("0000 2a ffff 00", QpackError::Huffman),
        // Six entries fit: twelve counts are distinguished.
        ("0d 00", QpackError::InsertCount),
        ("ff 00 00", QpackError::InsertCount),
        // 0 is encoded as 0, and ten can't be needed yet.
        ("01 00", QpackError::InsertCount),
        ("0b 00", QpackError::InsertCount),
        ("00 80", QpackError::Base),
        ("04 83", QpackError::Base),
    ] {
        assert_eq!(read(&mut filled(), 0, &bytes(hex)), Err(error), "{hex}");
        assert_eq!(error.code(), 0x200);
    }
    let mut none = QpackDecoder::new(0);
    assert_eq!(read(&mut none, 0, &bytes("02 00")), Err(QpackError::InsertCount), "there is no table");
    none.cancel(4);
    assert_eq!(taken(none.output()), b"");
}

#[test]
fn what_is_evicted_is_gone() {
    let mut decoder = filled();
    decoder.receive(&bytes("3f09")).expect("a smaller table");
    assert_eq!((decoder.table.capacity(), decoder.table.oldest()), (40, 3));
    assert_eq!(read(&mut decoder, 0, &bytes("0400 80")), Err(QpackError::Index));
    assert_eq!(decoder.receive(&bytes("00")), Err(QpackError::InsertIndex));
}

#[test]
fn instructions_that_are_wrong_are_told_apart() {
    for (hex, error) in [
        ("3fbe01", QpackError::Capacity),
        ("3fffffffff0f", QpackError::Capacity),
        ("ff24 00", QpackError::InsertIndex),
        ("83 00", QpackError::InsertIndex),
        ("03", QpackError::InsertIndex),
        ("c0 82ffff", QpackError::InsertHuffman),
        ("62ffff 00", QpackError::InsertHuffman),
        ("3fffffffffffffffffff01", QpackError::InsertInteger),
        ("ffffffffffffffffffff01", QpackError::InsertInteger),
        ("c0 7fffffffffffffffffff01", QpackError::InsertInteger),
        // The name is as long as the table; so is the value. What is coded may be longer.
        ("5fbd01", QpackError::Truncated),
        ("5fbe01", QpackError::Entry),
        ("c0 7fde00", QpackError::Entry),
        ("c0 fff405", QpackError::Truncated),
        ("c0 fff505", QpackError::Entry),
        ("20 40 00", QpackError::Entry),
    ] {
        let received = filled().receive(&bytes(hex));
        if error == QpackError::Truncated {
            assert_eq!(received, Ok(()), "{hex}");
            continue;
        }
        assert_eq!(received, Err(error), "{hex}");
        assert_eq!(error.code(), 0x201);
    }
    let mut decoder = filled();
    let long = [&bytes("c0 7f40")[..], &[b'x'; 191]].concat();
    assert_eq!(decoder.receive(&long), Err(QpackError::Entry), "10 of the name, 191, and 32");
}

#[test]
fn acknowledgments_that_are_wrong_are_told_apart() {
    for (hex, error) in [
        ("84", QpackError::Acknowledgment),
        ("80 80", QpackError::Acknowledgment),
        ("48 80", QpackError::Acknowledgment),
        ("00", QpackError::Increment),
        ("02", QpackError::Increment),
        ("01 01", QpackError::Increment),
        ("80 01", QpackError::Increment),
        ("ffffffffffffffffffff01", QpackError::AcknowledgedInteger),
        ("7fffffffffffffffffff01", QpackError::AcknowledgedInteger),
    ] {
        let mut encoder = encoder::sent_once(0);
        if hex == "48 80" {
            encoder.receive(&bytes("40")).expect("a stream that is cancelled");
        }
        assert_eq!(encoder.receive(&bytes(hex)), Err(error), "{hex}");
        assert_eq!(error.code(), 0x202);
    }
}

#[test]
fn counts_go_round_many_times() {
    let mut decoder = QpackDecoder::new(100);
    decoder.receive(&bytes("3f45")).expect("100 bytes");
    for number in 0..1000_u64 {
        assert_eq!(decoder.inserted(), number);
        let mut block = Vec::new();
        prefixed::integer(&mut block, 0, 8, (number + 1) % 6 + 1);
        block.extend_from_slice(&[0, 0x80]);
        assert_eq!(read(&mut decoder, 4, &block), Ok(None), "{number}");
        decoder.receive(&bytes("c1 0161")).expect("an entry");
        assert_eq!(read(&mut decoder, 4, &block), Ok(of(&[(":path", "a")])), "{number}");
        assert_eq!(taken(decoder.output()), [0x84]);
    }
}

#[test]
fn a_bomb_of_references_is_not_unpacked() {
    let mut decoder = QpackDecoder::new(4096);
    decoder.receive(&[&bytes("3fe11f 41 61 7fa11e")[..], &[b'x'; 4000]].concat()).expect("a large entry");
    let limits = SectionLimits::new(8192, 100);
    let mut section = DecodedSection::default();
    let block = |count| [&[2, 0][..], &vec![0x80; count]].concat();
    assert_eq!(decoder.decode(0, &block(4), limits, &mut section), Ok(SectionProgress::Read));
    assert!(section.too_large && section.items.len() == 2);
    assert_eq!(decoder.decode(0, &block(16_000), limits, &mut section), Err(QpackError::TooLarge));
    assert!(section.text.capacity() < 20_000);
    assert_eq!(QpackError::TooLarge.code(), 0x107);
}

#[test]
fn a_flood_of_duplicates_ends() {
    let mut decoder = QpackDecoder::new(4096);
    decoder.receive(&[&bytes("3fe11f 41 61 7fa11e")[..], &[b'x'; 4000]].concat()).expect("a large entry");
    let flood = vec![0; 4096];
    assert_eq!(decoder.receive(&flood), Err(QpackError::Copies));
    assert!(decoder.inserted() < 300);
    let mut used = QpackDecoder::new(4096);
    used.receive(&[&bytes("3fe11f 41 61 7fa11e")[..], &[b'x'; 4000]].concat()).expect("a large entry");
    for _ in 0..1000 {
        used.receive(&[0; 10]).expect("few for each section");
        assert!(read(&mut used, 0, &bytes("0000 d9")).is_ok());
    }
}

#[test]
fn names_are_classified_once_and_values_are_checked() {
    let mut decoder = filled();
    decoder.receive(&bytes("c0 02 6120 44 686f 7374 01 61")).expect("two entries");
    let mut section = DecodedSection::default();
    decoder.decode(0, &bytes("0600 80 81 82"), ALL, &mut section).expect("a good section");
    let what: Vec<_> = section.items.iter().map(|item| (item.name.known, item.clean)).collect();
    assert_eq!(what, [(KnownField::Host, true), (KnownField::Other, false), (KnownField::Other, true)]);
}
