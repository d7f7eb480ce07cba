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
