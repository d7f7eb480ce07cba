//! Chunked bodies: the grammar byte by byte, and every way of cutting them.

use proptest::prelude::*;

use super::super::*;
use crate::header::KnownField;

/// What a decoder makes of `input` given in pieces that end at `cuts`: the data, the bytes consumed, whether done.
type Outcome = Result<(Vec<u8>, usize, bool), BadChunk>;

fn decode(decoder: &mut ChunkedDecoder, input: &[u8], cuts: &[usize]) -> Outcome {
    let (mut data, mut at) = (Vec::new(), 0);
    for &cut in cuts.iter().chain([&input.len()]) {
        while at < cut {
            let step = decoder.decode(&input[at..cut])?;
            assert!(step.consumed > 0 || step.done, "no progress at {at}");
            data.extend_from_slice(&input[at..cut][step.data]);
            at += step.consumed;
            if step.done {
                assert!(decoder.is_done() && decoder.at_least() == 0);
                return Ok((data, at, true));
            }
            assert!(decoder.at_least() > 0);
        }
    }
    Ok((data, at, false))
}

fn whole(input: &[u8], strictness: ChunkStrictness) -> Outcome {
    decode(&mut ChunkedDecoder::new(strictness, TrailerLimits::default()), input, &[])
}

#[test]
fn bodies_that_are_taken() {
    for (input, data) in [
        ("0\r\n\r\n", ""),
        ("000\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("00000000000000a\r\n0123456789\r\n1\r\n!\r\n0\r\n\r\n", "0123456789!"),
        ("B\r\n\r\n0\r\n\r\n\0\0\0\0\r\n0\r\n\r\n", "\r\n0\r\n\r\n\0\0\0\0"),
        ("1;a=b;c=\"d e\"\r\nx\r\n0;last\r\n\r\n", "x"),
        ("1\r\nx\r\n0\r\nA: b\r\nC: d\r\n\r\n", "x"),
    ] {
        let text = [input, "next"].concat().into_bytes();
        for strictness in [ChunkStrictness::Client, ChunkStrictness::Upstream] {
            assert_eq!(
                whole(&text, strictness),
                Ok((data.into(), input.len(), true)),
                "{}",
                input.escape_debug()
            );
        }
    }
}

#[test]
fn bodies_that_are_refused_from_a_client() {
    use BadChunk::*;
    for (input, bad) in [
        ("\r\n", InvalidSize),
        (";x\r\n", InvalidSize),
        ("x\r\n", InvalidSize),
        ("+1\r\nx\r\n", InvalidSize),
        ("-1\r\nx\r\n", InvalidSize),
        (" 1\r\nx\r\n", InvalidSize),
        ("1 \r\nx\r\n", InvalidSize),
        ("1\t;a\r\nx\r\n", InvalidSize),
        ("0x1\r\nx\r\n", InvalidSize),
        ("1_0\r\nx\r\n", InvalidSize),
        ("1\nx\r\n", InvalidSize),
        ("1\rx\r\n", InvalidLineEnd),
        ("1\r\r\nx\r\n", InvalidLineEnd),
        ("8000000000000000\r\n", SizeTooLarge),
        ("ffffffffffffffff\r\n", SizeTooLarge),
        ("10000000000000000\r\n", SizeTooLarge),
        ("00000000000000001\r\n", SizeTooLarge),
        ("1;a\nb\r\nx\r\n", InvalidExtension),
        ("1;a\0\r\nx\r\n", InvalidExtension),
        ("1;a\x7f\r\nx\r\n", InvalidExtension),
        ("1;a\rb\r\nx\r\n", InvalidLineEnd),
        ("1\r\nxy\r\n", InvalidLineEnd),
        ("1\r\nx\n0\r\n\r\n", InvalidLineEnd),
        ("1\r\nx\rx0\r\n\r\n", InvalidLineEnd),
        ("2\r\nx\r\n0\r\n\r\n", InvalidLineEnd),
        ("0\r\n\n", InvalidLineEnd),
        ("0\r\nA: b\n\r\n", InvalidLineEnd),
        ("0\r\nA: b\rc\r\n\r\n", InvalidLineEnd),
        ("0\r\n\rX", InvalidLineEnd),
        ("0\r\nA: \0\r\n\r\n", InvalidTrailer(BadRequest::InvalidValue)),
        ("0\r\nA: b\r\n c\r\n\r\n", InvalidTrailer(BadRequest::ObsFold)),
        ("0\r\nA : b\r\n\r\n", InvalidTrailer(BadRequest::SpaceBeforeColon)),
        ("0\r\nA\r\n\r\n", InvalidTrailer(BadRequest::MissingColon)),
    ] {
        assert_eq!(whole(input.as_bytes(), ChunkStrictness::Client), Err(bad), "{}", input.escape_debug());
        assert_eq!(bad.message(), "client sent invalid chunked body");
    }
}

#[test]
fn an_upstream_may_leave_out_crs_and_pad_sizes() {
    for input in ["1\nx\n0\n\n", "1  \r\nx\r\n0 ;y\n\r\n", "1\r\nx\n0\r\nA: b\n\n"] {
        assert_eq!(
            whole(input.as_bytes(), ChunkStrictness::Upstream),
            Ok((b"x".to_vec(), input.len(), true)),
            "{}",
            input.escape_debug()
        );
    }
    for input in ["\n", "1\rx", "1x\n", "-1\r\n", "1\r\nxy"] {
        assert!(whole(input.as_bytes(), ChunkStrictness::Upstream).is_err(), "{}", input.escape_debug());
    }
}

#[test]
fn trailers_are_bounded_and_forbidden_ones_dropped() {
    let limits = TrailerLimits { bytes: 60, fields: 3, misfit: TrailerMisfit::Refused };
    let mut decoder = ChunkedDecoder::new(ChunkStrictness::Client, limits);
    let input = b"0\r\nHost: a\r\nX-Sum: 9\r\nContent-Length: 7\r\n\r\n";
    assert_eq!(decode(&mut decoder, input, &[]), Ok((Vec::new(), input.len(), true)));
    let trailers = decoder.trailers();
    let [field] = trailers.fields() else { panic!("{trailers:?}") };
    assert_eq!((field.known, field.name.of(trailers.bytes())), (KnownField::Other, &b"X-Sum"[..]));
    assert_eq!(field.value.of(trailers.bytes()), b"9");

    let refused = |input: &str| {
        decode(&mut ChunkedDecoder::new(ChunkStrictness::Client, limits), input.as_bytes(), &[])
    };
    assert_eq!(refused("0\r\nA:b\r\nA:b\r\nA:b\r\nA:b\r\n\r\n"), Err(BadChunk::TrailersTooLarge));
    assert_eq!(refused(&format!("0\r\nA: {}\r\n\r\n", "b".repeat(60))), Err(BadChunk::TrailersTooLarge));
}

/// As nginx has it where trailers are not passed on: the section ends with its empty line whatever is in it.
#[test]
fn a_trailer_section_that_is_skipped_breaks_no_body() {
    let limits = TrailerLimits { bytes: 60, fields: 3, misfit: TrailerMisfit::Skipped };
    let lines = [
        "A: b\r\n".repeat(4),
        format!("A: {}\r\n", "b".repeat(100_000)),
        "bad name: x\r\n".to_owned(),
        ":status: 500\r\n".to_owned(),
        "A: b\0c\r\nD: e\r\n".to_owned(),
        "none\r\n".to_owned(),
    ];
    for lines in lines {
        let input = format!("2\r\nab\r\n0\r\n{lines}\r\n");
        for cut in [vec![], vec![input.len() / 2], (1..input.len().min(90)).collect()] {
            let mut decoder = ChunkedDecoder::new(ChunkStrictness::Upstream, limits);
            let read = decode(&mut decoder, format!("{input}HTTP").as_bytes(), &cut);
            assert_eq!(read, Ok((b"ab".to_vec(), input.len(), true)), "{}", lines.escape_debug());
            assert!(decoder.trailers().fields().is_empty());
            assert!(decoder.trailers().bytes().len() <= 60);
        }
    }
    // What can be read is there all the same.
    let mut decoder = ChunkedDecoder::new(ChunkStrictness::Upstream, limits);
    decode(&mut decoder, b"0\r\nA: b\r\n\r\n", &[]).expect("it is well formed");
    assert_eq!(decoder.trailers().fields().len(), 1);
}

#[test]
fn a_trailer_that_is_refused_is_named() {
    for (line, named) in [
        ("bad name: x", "\"bad\\x20...\""),
        (":status: 500", "\"\\x3a...\""),
        ("X: a\0b", "\"X: a\\x00...\""),
    ] {
        let mut decoder = ChunkedDecoder::new(ChunkStrictness::Upstream, TrailerLimits::default());
        let read = decode(&mut decoder, format!("0\r\nOk: 1\r\n{line}\r\n\r\n").as_bytes(), &[]);
        assert!(matches!(read, Err(BadChunk::InvalidTrailer(_))), "{line}: {read:?}");
        let message = String::from_utf8(decoder.trailers().log_message()).expect("it is text");
        assert_eq!(message, format!("upstream sent invalid trailer: {named}"));
    }
}

#[test]
fn trailers_whose_names_are_no_names_are_dropped() {
    let mut decoder = ChunkedDecoder::new(ChunkStrictness::Upstream, TrailerLimits::default());
    decode(&mut decoder, b"0\r\n\xff: 1\r\nX_u: 2\r\nX.d: 3\r\nX(: 4\r\n\r\n", &[])
        .expect("it is well formed");
    let trailers = decoder.trailers();
    let names: Vec<&[u8]> = trailers.fields().iter().map(|field| field.name.of(trailers.bytes())).collect();
    assert_eq!(names, [&b"X_u"[..], b"X.d"]);
}

#[test]
fn extensions_are_bounded_over_the_whole_body() {
    let chunk = "1;0123456789abcde\r\nx\r\n";
    assert!(whole(chunk.repeat(1024).as_bytes(), ChunkStrictness::Client).is_ok());
    assert_eq!(
        whole(chunk.repeat(1025).as_bytes(), ChunkStrictness::Client),
        Err(BadChunk::ExtensionsTooLong)
    );
}

#[test]
fn at_least_is_met_by_the_shortest_body() {
    let input = b"3;e\r\nabc\r\n0\r\n\r\n";
    for cut in 0..=input.len() {
        let mut decoder = ChunkedDecoder::default();
        let done = decode(&mut decoder, &input[..cut], &[]).expect("a good prefix").2;
        assert_eq!(done, cut == input.len());
        assert!(decoder.at_least() <= (input.len() - cut) as u64, "after {cut}: {}", decoder.at_least());
    }
}

/// Chunks with extensions and trailers, as an encoder may write them.
fn body() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let chunk = (prop::collection::vec(any::<u8>(), 1..40), "(;[a-z=]{0,8})?");
    (prop::collection::vec(chunk, 0..6), "([A-Z][a-z]{0,5}: [a-z ]{0,9}\r\n){0,3}").prop_map(
        |(chunks, trailer)| {
            let (mut wire, mut data) = (Vec::new(), Vec::new());
            for (bytes, extension) in chunks {
                chunk_head(&mut wire, bytes.len() as u64);
                let line_end = wire.len() - 2;
                wire.splice(line_end..line_end, extension.bytes());
                wire.extend_from_slice(&bytes);
                wire.extend_from_slice(b"\r\n");
                data.extend_from_slice(&bytes);
            }
            let trailers = trailer.lines().filter_map(|line| line.split_once(": "));
            last_chunk(&mut wire, trailers.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
            (wire, data)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_is_decoded_at_every_split((wire, data) in body()) {
        for first in 0..=wire.len() {
            let outcome = decode(&mut ChunkedDecoder::default(), &wire, &[first]);
            prop_assert_eq!(outcome, Ok((data.clone(), wire.len(), true)));
        }
        let each: Vec<_> = (0..wire.len()).collect();
        prop_assert_eq!(decode(&mut ChunkedDecoder::default(), &wire, &each), Ok((data, wire.len(), true)));
    }

    #[test]
    fn damaged_bodies_end_the_same_at_every_split(
        (mut wire, _) in body(), place in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let place = place.index(wire.len());
        wire[place] = byte;
        for strictness in [ChunkStrictness::Client, ChunkStrictness::Upstream] {
            let decoder = || ChunkedDecoder::new(strictness, TrailerLimits::default());
            let together = decode(&mut decoder(), &wire, &[]);
            for first in 0..wire.len() {
                prop_assert_eq!(&decode(&mut decoder(), &wire, &[first]), &together);
            }
        }
    }
}
