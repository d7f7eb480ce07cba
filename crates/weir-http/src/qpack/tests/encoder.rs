//! Our encoder, by itself and with our decoder.

use proptest::prelude::*;

use super::*;
use crate::coder::FieldIndexing;
use crate::qpack::encode::MOST_SENT;

/// A response of usual fields.
fn response(encoder: &mut QpackEncoder, stream: u64, length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    encoder.status(200, &mut out);
    encoder.known(KnownField::Server, b"weir", &mut out);
    encoder.known(KnownField::ContentLength, length.to_string().as_bytes(), &mut out);
    encoder.known(KnownField::ContentType, b"text/plain", &mut out);
    encoder.field(b"x-own", b"value", FieldIndexing::Allowed, &mut out);
    encoder.finish(stream, &mut out);
    out
}

/// An encoder that has inserted an entry, which is acknowledged, and has sent a section that refers to it on `stream`.
pub(super) fn sent_once(stream: u64) -> QpackEncoder {
    let mut encoder = QpackEncoder::new();
    encoder.set_limit(4096);
    for round in 0..3 {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        encoder.known(KnownField::Server, b"weir", &mut out);
        encoder.finish(stream, &mut out);
        if round == 1 {
            encoder.receive(&[1]).expect("one entry");
        }
    }
    encoder
}

#[test]
fn without_a_table_there_are_static_references_and_literals() {
    let mut encoder = QpackEncoder::new();
    for limit in [None, Some(0), Some(31)] {
        limit.into_iter().for_each(|limit| encoder.set_limit(limit));
        let out = response(&mut encoder, 0, 5);
        assert_eq!(out, response(&mut encoder, 4, 5), "nothing is remembered");
        assert_eq!(&out[..3], [0, 0, 0xc0 | 25]);
        assert!(encoder.output().is_empty());
        let back = read(&mut QpackDecoder::new(0), 0, &out).expect("a good section");
        let expected = [
            (":status", "200"),
            ("server", "weir"),
            ("content-length", "5"),
            ("content-type", "text/plain"),
            ("x-own", "value"),
        ];
        assert_eq!(back, of(&expected));
    }
}

#[test]
fn secrets_are_marked() {
    let mut encoder = QpackEncoder::new();
    encoder.set_limit(4096);
    for _ in 0..3 {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        encoder.known(KnownField::Authorization, b"Basic 0", &mut out);
        encoder.field(b"x-key", b"\x01", FieldIndexing::Never, &mut out);
        encoder.known(KnownField::SetCookie, b"a=b", &mut out);
        encoder.finish(0, &mut out);
        assert_eq!(out[2..4], [0x7f, 84 - 15], "a name reference with the N bit");
        assert!(out.windows(2).any(|pair| pair == [0x3c, 0xf2] || pair[0] & 0xf0 == 0x30));
        assert_eq!(encoder.output().len(), 3, "the capacity and nothing else");
    }
}

#[test]
fn what_is_sent_often_becomes_one_byte() {
    let (mut encoder, mut decoder) = (QpackEncoder::new(), QpackDecoder::new(4096));
    encoder.set_limit(4096);
    let mut sizes = Vec::new();
    for length in 0..4 {
        let stream = 4 * length as u64;
        let block = response(&mut encoder, stream, length);
        decoder.receive(&taken(encoder.output())).expect("good instructions");
        assert!(read(&mut decoder, stream, &block).expect("a good section").is_some());
        encoder.receive(&taken(decoder.output())).expect("good acknowledgments");
        sizes.push(block.len());
    }
    // Prefix, status, server, length (3), type, x-own; the length 0 is in the static table.
    assert!(sizes[0] > 15 && sizes[1] > 15 && sizes[2] == 9 && sizes[3] == 9, "{sizes:?}");
}

#[test]
fn nothing_is_referred_to_before_it_is_acknowledged() {
    let (mut encoder, mut decoder) = (QpackEncoder::new(), QpackDecoder::new(4096));
    encoder.set_limit(4096);
    for stream in 0..20 {
        let block = response(&mut encoder, 4 * stream, 7);
        assert!(read(&mut decoder, 4 * stream, &block).expect("a good section").is_some());
        assert_eq!(block[0], 0);
    }
    decoder.receive(&taken(encoder.output())).expect("good instructions");
    assert_eq!(decoder.inserted(), 2);
    encoder.receive(decoder.output()).expect("good acknowledgments");
    assert_eq!(response(&mut encoder, 80, 7)[0], 3);
}

#[test]
fn entries_stay_while_a_section_refers_to_them() {
    let mut encoder = sent_once(8);
    let mut out = Vec::new();
    for number in 0..1000_u32 {
        let value = format!("{number:0100}");
        for _ in 0..2 {
            out.clear();
            encoder.begin(&mut out);
            encoder.field(b"x-value", value.as_bytes(), FieldIndexing::Allowed, &mut out);
            encoder.finish(12, &mut out);
        }
    }
    assert_eq!(encoder.table.oldest(), 0, "its entry is needed");
    let full = encoder.table.inserted();
    assert!(encoder.output().len() < 4096, "a table's worth of instructions at most");
    encoder.receive(&bytes("88")).expect("an acknowledgment");
    encoder.begin(&mut out);
    for _ in 0..2 {
        encoder.field(b"x-value", b"after", FieldIndexing::Allowed, &mut out);
    }
    assert_eq!(encoder.table.inserted(), full + 1, "the first one has gone");
}

#[test]
fn a_peer_that_acknowledges_nothing_gets_literals() {
    let mut encoder = sent_once(0);
    let mut sizes = Vec::new();
    for stream in 0..300 {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        encoder.known(KnownField::Server, b"weir", &mut out);
        encoder.finish(4 * stream, &mut out);
        sizes.push(out.len());
    }
    assert_eq!((sizes[0], sizes[254], sizes[255]), (3, 3, 8));
    assert_eq!(encoder.sent.len(), MOST_SENT);
}

/// A section with a field that every one has, and one of this value. Its instructions arrive, and it is read.
fn section_with(encoder: &mut QpackEncoder, decoder: &mut QpackDecoder, stream: u64, value: &str) -> Vec<u8> {
    let mut block = Vec::new();
    encoder.begin(&mut block);
    encoder.field(b"x-hot", b"a value that every section has", FieldIndexing::Allowed, &mut block);
    encoder.field(b"x-value", value.as_bytes(), FieldIndexing::Allowed, &mut block);
    encoder.finish(stream, &mut block);
    decoder.receive(&taken(encoder.output())).expect("good instructions");
    assert!(read(decoder, stream, &block).expect("a good section").is_some());
    block
}

#[test]
fn what_every_section_has_does_not_keep_the_table_full() {
    let (mut encoder, mut decoder) = (QpackEncoder::new(), QpackDecoder::new(4096));
    encoder.set_limit(4096);
    let (mut late, mut literals) = (Vec::new(), 0);
    for round in 0..300_u64 {
        let value = format!("{round:0100}");
        for repeat in 0..5 {
            let block = section_with(&mut encoder, &mut decoder, 4 * (5 * round + repeat), &value);
            // One section is always on its way.
            encoder.receive(&late).expect("good acknowledgments");
            late = taken(decoder.output());
            literals += usize::from(block.len() > 10);
        }
    }
    assert!(encoder.table.inserted() > 305, "its entry was inserted again: {}", encoder.table.inserted());
    assert!(literals < 1000, "{literals} of 1500");
}

#[test]
fn the_oldest_quarter_of_a_full_table_drains() {
    let (mut encoder, mut decoder) = (QpackEncoder::new(), QpackDecoder::new(4096));
    encoder.set_limit(4096);
    let mut number = 0;
    while encoder.table.size() <= 4096 / 4 * 3 {
        assert!((0..encoder.table.inserted()).all(|entry| !encoder.is_draining(entry)), "there is room");
        for _ in 0..2 {
            section_with(&mut encoder, &mut decoder, 0, &format!("{number:060}"));
            encoder.receive(&taken(decoder.output())).expect("good acknowledgments");
        }
        number += 1;
    }
    let entries = encoder.table.inserted();
    let draining = (0..entries).filter(|entry| encoder.is_draining(*entry)).count() as u64;
    assert_eq!(
        (draining, encoder.is_draining(0), encoder.is_draining(entries - 1)),
        (entries / 4, true, false)
    );
}

#[test]
fn instructions_refer_to_names_and_entries_where_they_can() {
    let mut encoder = QpackEncoder::new();
    encoder.set_limit(4096);
    assert_eq!(taken(encoder.output()), bytes("3fe11f"));
    let mut out = Vec::new();
    encoder.begin(&mut out);
    for _ in 0..2 {
        encoder.known(KnownField::Server, b"\x01", &mut out);
    }
    assert_eq!(taken(encoder.output()), bytes("ff1d 0101"), "the name is in the static table");
    for _ in 0..2 {
        encoder.field(b"\x02", b"\x01", FieldIndexing::Allowed, &mut out);
    }
    assert_eq!(taken(encoder.output()), bytes("4102 0101"));
    let large = vec![b'x'; 2048 - 32 - 5];
    for _ in 0..2 {
        encoder.field(b"x-owns", &large, FieldIndexing::Allowed, &mut out);
        encoder.field(b"x-own", &large, FieldIndexing::Allowed, &mut out);
    }
    assert_eq!(encoder.table.inserted(), 3, "of more than half of the table none is made");
    assert_eq!(encoder.table.at(2).map(|row| row.label), Some(5));
}

#[test]
fn acknowledgments_come_in_any_pieces() {
    let input = bytes("44 7f c1 03 48 80 01");
    for cut in 0..=input.len() {
        let mut encoder = sent_once(0);
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for _ in 0..2 {
            encoder.field(b"x-own", b"value", FieldIndexing::Allowed, &mut out);
        }
        encoder.finish(8, &mut out);
        let (first, second) = input.split_at(cut);
        encoder.receive(first).expect("good acknowledgments");
        encoder.receive(second).expect("good acknowledgments");
        out.clear();
        encoder.begin(&mut out);
        encoder.field(b"x-own", b"value", FieldIndexing::Allowed, &mut out);
        encoder.finish(0, &mut out);
        assert_eq!(out, bytes("0300 80"), "{cut}");
        assert_eq!(encoder.receive(&bytes("80 80")), Err(QpackError::Acknowledgment), "there is one");
    }
}

#[test]
fn streams_that_are_cancelled_need_nothing_others_do() {
    let mut encoder = sent_once(8);
    let mut out = Vec::new();
    encoder.begin(&mut out);
    encoder.known(KnownField::Server, b"weir", &mut out);
    encoder.finish(12, &mut out);
    encoder.receive(&bytes("48")).expect("a stream that is cancelled");
    assert_eq!(encoder.sent.len(), 1);
    assert_eq!(encoder.receive(&bytes("8c")), Ok(()));
    assert_eq!(encoder.receive(&bytes("88")), Err(QpackError::Acknowledgment));
}

#[test]
fn both_coders_write_what_is_asked_of_either() {
    fn write<C: crate::coder::SectionCoder>(coder: &mut C, out: &mut Vec<u8>) {
        coder.status(204, out);
        coder.known(KnownField::Etag, b"1", out);
        coder.field(b"x-own", b"value", FieldIndexing::Not, out);
    }
    let expected = of(&[(":status", "204"), ("etag", "1"), ("x-own", "value")]);
    let (mut encoder, mut block) = (QpackEncoder::new(), Vec::new());
    encoder.begin(&mut block);
    write(&mut encoder, &mut block);
    encoder.finish(0, &mut block);
    assert_eq!(read(&mut QpackDecoder::new(0), 0, &block), Ok(expected.clone()));
    let (mut encoder, mut block) = (crate::hpack::HpackEncoder::new(), Vec::new());
    write(&mut encoder, &mut block);
    let mut section = DecodedSection::default();
    crate::hpack::HpackDecoder::new(0).decode(&block, ALL, &mut section).expect("a good block");
    assert_eq!(Some(fields(&section)), expected);
}

#[test]
fn memory_is_counted() {
    let (mut encoder, mut decoder) = (QpackEncoder::new(), QpackDecoder::new(4096));
    assert_eq!((encoder.held_bytes(), decoder.held_bytes()), (0, 0));
    encoder.set_limit(4096);
    assert!((2048..3000).contains(&encoder.held_bytes()), "{}", encoder.held_bytes());
    let before = encoder.held_bytes();
    for number in 0..40_u64 {
        let value = format!("{number:060}");
        for _ in 0..2 {
            section_with(&mut encoder, &mut decoder, 4 * number, &value);
            encoder.receive(&taken(decoder.output())).expect("good acknowledgments");
        }
    }
    assert!((before + 2000..before + 16_000).contains(&encoder.held_bytes()), "{}", encoder.held_bytes());
    assert!((2000..16_000).contains(&decoder.held_bytes()), "{}", decoder.held_bytes());
    let before = decoder.held_bytes();
    decoder.receive(&[&bytes("c1 7f8107")[..], &[b'x'; 1000]].concat()).expect("a piece of an instruction");
    assert!((before + 1000..before + 2000).contains(&decoder.held_bytes()));
}

/// How a section's fields are written.
fn sections() -> impl Strategy<Value = Vec<Vec<(u8, u8, Vec<u8>)>>> {
    let value = prop_oneof![
        "[a-d]{0,2}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..200),
        Just(b"text/plain".to_vec()),
    ];
    let field = (0..6_u8, 0..4_u8, value);
    proptest::collection::vec(proptest::collection::vec(field, 0..8), 1..60)
}

const KNOWN: [KnownField; 4] =
    [KnownField::ContentType, KnownField::AccessControlAllowHeaders, KnownField::Vary, KnownField::SetCookie];
const NAMES: [&[u8]; 4] = [b":path", b"x-own", b"timing-allow-origin", b"\xff"];

fn write(encoder: &mut QpackEncoder, section: &[(u8, u8, Vec<u8>)], stream: u64) -> (Vec<u8>, Fields) {
    let (mut out, mut fields) = (b"before".to_vec(), Fields::new());
    encoder.begin(&mut out);
    for (how, which, value) in section {
        let (known, name) = (KNOWN[usize::from(*which)], NAMES[usize::from(*which)]);
        let indexing = [FieldIndexing::Allowed, FieldIndexing::Not, FieldIndexing::Never];
        match how {
            0 => {
                let status = 100 + value.len() as u16;
                encoder.status(status, &mut out);
                fields.push((b":status".to_vec(), status.to_string().into_bytes()));
            }
            1 | 2 => {
                encoder.known(known, value, &mut out);
                fields.push((known.lower().as_bytes().to_vec(), value.clone()));
            }
            _ => {
                encoder.field(name, value, indexing[usize::from(*how - 3)], &mut out);
                fields.push((name.to_vec(), value.clone()));
            }
        }
    }
    encoder.finish(stream, &mut out);
    (out.split_off(b"before".len()), fields)
}

proptest! {
    /// Sections, instructions and acknowledgments come late, and in any order but for that of one stream.
    #[test]
    fn both_sides_agree_whatever_is_late(
        sections in sections(),
        limit in prop_oneof![Just(0_u64), 32..300_u64, Just(4096), Just(100_000)],
        late in proptest::collection::vec(any::<(bool, bool, bool, u8)>(), 60),
    ) {
        let (mut encoder, mut decoder) = (QpackEncoder::new(), QpackDecoder::new(limit as usize));
        encoder.set_limit(limit);
        let (mut waiting, mut instructions, mut acknowledgments) = (Vec::new(), Vec::new(), Vec::new());
        for (number, section) in sections.iter().enumerate() {
            let stream = 4 * (number as u64 / 2);
            let (block, fields) = write(&mut encoder, section, stream);
            waiting.push((stream, block, fields));
            instructions.append(encoder.output());
            let (some, all, back, cut) = late[number];
            if some {
                let cut = usize::from(cut).min(instructions.len());
                decoder.receive(&instructions.drain(..cut).collect::<Vec<u8>>()).expect("good instructions");
            }
            if all {
                for (stream, block, fields) in waiting.drain(..) {
                    // None of ours ever waits.
                    prop_assert_eq!(read(&mut decoder, stream, &block).expect("a good section"), Some(fields));
                }
            }
            acknowledgments.append(decoder.output());
            if back {
                let cut = usize::from(cut).min(acknowledgments.len());
                encoder.receive(&acknowledgments.drain(..cut).collect::<Vec<u8>>()).expect("good acknowledgments");
            }
            prop_assert!(instructions.len() < 5000);
        }
        decoder.receive(&instructions).expect("good instructions");
        prop_assert_eq!(decoder.inserted(), encoder.table.inserted());
        prop_assert_eq!(decoder.table.size(), encoder.table.size());
    }

    #[test]
    fn no_bytes_make_the_encoder_fall(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _outcome = sent_once(0).receive(&input);
    }
}
