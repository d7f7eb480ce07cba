//! The examples of RFC 7541 appendix C, and that what was encoded is decoded.

use proptest::prelude::*;

use super::*;
use crate::header::KnownField;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(text, 16).expect("hexadecimal digits")
    };
    digits.chunks(2).map(byte).collect()
}

const ALL: SectionLimits = SectionLimits::new(1 << 20, 1000);

fn read(decoder: &mut HpackDecoder, block: &[u8]) -> Result<Vec<(String, String)>, HpackError> {
    let mut section = DecodedSection::default();
    decoder.decode(block, ALL, &mut section)?;
    let text = |span: crate::header::Span| String::from_utf8_lossy(span.of(&section.text)).into_owned();
    Ok(section.items.iter().map(|item| (text(item.label), text(item.value))).collect())
}

fn expect(decoder: &mut HpackDecoder, hex: &str, fields: &[(&str, &str)]) {
    let found = read(decoder, &bytes(hex)).expect("a good block");
    let found: Vec<(&str, &str)> =
        found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(found, fields);
}

const FIRST: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];
const SECOND: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "www.example.com"),
    ("cache-control", "no-cache"),
];
const THIRD: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/index.html"),
    (":authority", "www.example.com"),
    ("custom-key", "custom-value"),
];

#[test]
fn requests_of_appendix_c_3_and_c_4() {
    let mut plain = HpackDecoder::new(DEFAULT_TABLE);
    expect(&mut plain, "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", FIRST);
    expect(&mut plain, "8286 84be 5808 6e6f 2d63 6163 6865", SECOND);
    expect(&mut plain, "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", THIRD);
    let mut coded = HpackDecoder::new(DEFAULT_TABLE);
    expect(&mut coded, "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", FIRST);
    expect(&mut coded, "8286 84be 5886 a8eb 1064 9cbf", SECOND);
    expect(&mut coded, "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", THIRD);
}

const DATE: &str = "Mon, 21 Oct 2013 20:13:21 GMT";
const PLACE: &str = "https://www.example.com";
const COOKIE: &str = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";

#[test]
fn responses_of_appendix_c_5_and_c_6_evict() {
    let first = [(":status", "302"), ("cache-control", "private"), ("date", DATE), ("location", PLACE)];
    let second = [(":status", "307"), first[1], first[2], first[3]];
    let third = [
        (":status", "200"),
        first[1],
        ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
        first[3],
        ("content-encoding", "gzip"),
        ("set-cookie", COOKIE),
    ];
    let mut plain = HpackDecoder::new(256);
    let hex = "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 \
               3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d";
    expect(&mut plain, hex, &first);
    expect(&mut plain, "4803 3330 37c1 c0bf", &second);
    let hex = "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 \
               7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 \
               6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31";
    expect(&mut plain, hex, &third);
    let mut coded = HpackDecoder::new(256);
    let hex = "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad \
               1718 63c7 8f0b 97c8 e9ae 82ae 43d3";
    expect(&mut coded, hex, &first);
    expect(&mut coded, "4883 640e ffc1 c0bf", &second);
    let hex = "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 \
               e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07";
    expect(&mut coded, hex, &third);
}

#[test]
fn literals_of_appendix_c_2() {
    let mut decoder = HpackDecoder::new(DEFAULT_TABLE);
    let hex = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    expect(&mut decoder, hex, &[("custom-key", "custom-header")]);
    expect(&mut decoder, "040c 2f73 616d 706c 652f 7061 7468", &[(":path", "/sample/path")]);
    expect(&mut decoder, "1008 7061 7373 776f 7264 0673 6563 7265 74", &[("password", "secret")]);
    expect(&mut decoder, "be", &[("custom-key", "custom-header")]);
}

#[test]
fn blocks_that_are_wrong_are_told_apart() {
    for (hex, error) in [
        ("80", HpackError::Index),
        ("be", HpackError::Index),
        ("7f ff ff ff ff ff 01", HpackError::Integer),
        ("ff", HpackError::Truncated),
        ("82 41", HpackError::Truncated),
        ("82 41 05 61", HpackError::Truncated),
        ("41 81 ff ff", HpackError::Huffman),
        ("41 84 ff ff ff ff", HpackError::Huffman),
        ("3f e2 1f", HpackError::TableSize),
        ("82 20", HpackError::TableSize),
    ] {
        assert_eq!(read(&mut HpackDecoder::new(DEFAULT_TABLE), &bytes(hex)), Err(error), "{hex}");
    }
}

#[test]
fn fields_that_are_left_out_do_not_count() {
    use crate::header::IgnoredFields::{self, Invalid, InvalidOrUnderscored};
    for (names, ignored, whole) in [
        (["a", "b_b", "c", "d+"], IgnoredFields::None, false),
        (["a", "b_b", "c", "d+"], Invalid, true),
        (["a", "b_b", "c", "d_d"], Invalid, false),
        (["a_", "b", "c+", "d"], InvalidOrUnderscored, true),
        (["a_", "b", "c", "d"], InvalidOrUnderscored, true),
        (["a", "b", "c", "d"], InvalidOrUnderscored, false),
    ] {
        let (mut block, mut section) = (Vec::new(), DecodedSection::default());
        let mut encoder = HpackEncoder::new();
        for name in names {
            encoder.field(name.as_bytes(), b"x", FieldIndexing::Never, &mut block);
        }
        let limits = SectionLimits { ignored, ..SectionLimits::new(1000, 3) };
        HpackDecoder::new(DEFAULT_TABLE).decode(&block, limits, &mut section).expect("a good block");
        assert_eq!((!section.too_large, section.items.len() == 4), (whole, whole), "{names:?} {ignored:?}");
    }
}

#[test]
fn a_bomb_of_references_is_not_unpacked() {
    let mut decoder = HpackDecoder::new(DEFAULT_TABLE);
    let mut block = bytes("40 01 61");
    block.extend([0x7f, 0xa1, 0x1e]);
    block.extend([b'x'; 4000]);
    let mut section = DecodedSection::default();
    let limits = SectionLimits::new(8192, 100);
    decoder.decode(&block, limits, &mut section).expect("it fits");
    decoder.decode(&[0xbe; 4], limits, &mut section).expect("a little too large");
    assert!(section.too_large);
    assert_eq!(section.items.len(), 2);
    assert_eq!(decoder.decode(&[0xbe; 16_000], limits, &mut section), Err(HpackError::TooLarge));
    assert_eq!(decoder.decode(&[0x82; 151], limits, &mut section), Err(HpackError::TooLarge));
    assert!(section.text.capacity() < 20_000);
    decoder.decode(&[0x82; 101], limits, &mut section).expect("good references");
    assert!(section.too_large && section.items.len() == 100);
}

#[test]
fn what_is_sent_often_becomes_one_byte() {
    let mut encoder = HpackEncoder::new();
    let mut sizes = Vec::new();
    let mut decoder = HpackDecoder::new(DEFAULT_TABLE);
    for length in 0..4_u32 {
        let (mut block, length) = (Vec::new(), length.to_string());
        encoder.begin(&mut block);
        encoder.status(200, &mut block);
        encoder.known(KnownField::Server, b"weir", &mut block);
        encoder.known(KnownField::ContentLength, length.as_bytes(), &mut block);
        encoder.known(KnownField::ContentType, b"text/plain", &mut block);
        encoder.field(b"x-own", b"value", FieldIndexing::Allowed, &mut block);
        let fields = read(&mut decoder, &block).expect("a good block");
        assert_eq!(fields[2], ("content-length".into(), length));
        assert_eq!(fields[4], ("x-own".into(), "value".into()));
        sizes.push(block.len());
    }
    assert!(sizes[1] > 20 && sizes[2] == 8 && sizes[3] == 8, "{sizes:?}");
}

#[test]
fn a_peer_s_limit_is_told_back_to_it() {
    let mut encoder = HpackEncoder::new();
    encoder.set_limit(0);
    encoder.set_limit(100);
    let mut block = Vec::new();
    encoder.begin(&mut block);
    assert_eq!(block, bytes("20 3f 45"));
    block.clear();
    encoder.begin(&mut block);
    encoder.set_limit(1 << 20);
    encoder.begin(&mut block);
    assert_eq!(block, bytes("3f e1 1f"));
}

/// Fields that come again, with values of all lengths and kinds.
fn fields() -> impl Strategy<Value = Vec<(u8, String, Vec<u8>, u32)>> {
    let value = prop_oneof![
        "[a-z0-9/]{0,30}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..300),
        Just(b"again".to_vec()),
    ];
    let field = (0..4_u8, "[a-z-]{1,3}", value, 0..2_000_000_u32);
    proptest::collection::vec(field, 1..60)
}

proptest! {
    #[test]
    fn both_sides_agree_whatever_is_sent(fields in fields()) {
        let (mut encoder, mut decoder) = (HpackEncoder::new(), HpackDecoder::new(DEFAULT_TABLE));
        let mut section = DecodedSection::default();
        for block in fields.chunks(5) {
            let mut out = Vec::new();
            encoder.begin(&mut out);
            for (how, name, value, limit) in block {
                match how {
                    0 => encoder.field(name.as_bytes(), value, FieldIndexing::Allowed, &mut out),
                    1 => encoder.field(name.as_bytes(), value, FieldIndexing::Never, &mut out),
                    2 => encoder.known(KnownField::Vary, value, &mut out),
                    _ => {
                        encoder.field(name.as_bytes(), value, FieldIndexing::Not, &mut out);
                        let _ = limit;
                    }
                }
            }
            decoder.decode(&out, ALL, &mut section).expect("a good block");
            prop_assert_eq!(section.items.len(), block.len());
            for (item, (how, name, value, _)) in section.items.iter().zip(block) {
                let name = if *how == 2 { "vary" } else { name };
                prop_assert_eq!(item.label.of(&section.text), name.as_bytes());
                prop_assert_eq!(item.value.of(&section.text), &value[..]);
            }
            encoder.set_limit(block[0].3 % 5000);
        }
    }

    #[test]
    fn no_bytes_make_the_decoder_fall(block in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut section = DecodedSection::default();
        let mut decoder = HpackDecoder::new(DEFAULT_TABLE);
        let limits = SectionLimits::new(500, 10);
        for _ in 0..2 {
            let _outcome = decoder.decode(&block, limits, &mut section);
            prop_assert!(section.items.len() <= 10);
            for item in &section.items {
                prop_assert!(item.value.end as usize <= section.text.len());
            }
        }
    }
}

/// Eleven bytes of code and one of padding.
#[test]
fn padding_of_a_whole_byte_is_an_error_but_for_the_lenient() {
    let code = [0x1d, 0x75, 0xd0, 0x62, 0x0d, 0x26, 0x3d, 0x4c, 0x4d, 0x65, 0x64, 0xff];
    let block = [&[0x5f, 0x8c][..], &code].concat();
    let limits = SectionLimits::new(1000, 10);
    let mut section = DecodedSection::default();
    assert_eq!(
        HpackDecoder::new(DEFAULT_TABLE).decode(&block, limits, &mut section),
        Err(HpackError::Huffman)
    );
    assert_eq!(HpackDecoder::new(DEFAULT_TABLE).lenient().decode(&block, limits, &mut section), Ok(()));
    assert_eq!(section.items[0].value.of(&section.text), b"application/grpc");
    let twice = [&[0x5f, 0x8d][..], &code, &[0xff]].concat();
    assert!(HpackDecoder::new(DEFAULT_TABLE).lenient().decode(&twice, limits, &mut section).is_err());
}
