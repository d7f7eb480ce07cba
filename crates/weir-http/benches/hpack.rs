//! Nanoseconds per header block: a browser's, first and repeated, and a response's: `cargo bench -p weir-http --bench hpack`.
//!
//! The best of many rounds is printed, so that a busy machine disturbs little. `valgrind --tool=callgrind` on the same
//! binary counts instructions (`--once` runs every case once a round).

use std::hint::black_box;
use std::time::Instant;

use weir_http::hpack::{
    DEFAULT_TABLE, DecodedSection, FieldIndexing, HpackDecoder, HpackEncoder, SectionLimits,
};
use weir_http::{KnownField, classify};

const BROWSER: &[(&str, &str)] = &[
    (":method", "GET"),
    (":authority", "www.example.com"),
    (":scheme", "https"),
    (":path", "/articles/2026/11/an-article?utm_source=feed&page=2"),
    ("sec-ch-ua", "\"Chromium\";v=\"142\", \"Not_A Brand\";v=\"99\""),
    ("sec-ch-ua-mobile", "?0"),
    ("sec-ch-ua-platform", "\"Linux\""),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    ),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-GB,en;q=0.9,de;q=0.8"),
];

const LIMITS: SectionLimits = SectionLimits::new(32_768, 100);
const ROUNDS: u32 = 200;
const CALLS: u32 = 500;

/// The browser's block, fields indexed as browsers do, for a table as `encoder` knows it.
fn block(encoder: &mut HpackEncoder) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    for (name, value) in BROWSER {
        match *name {
            ":method" => encoder.pseudo(":method", value.as_bytes(), &mut out),
            ":scheme" => encoder.pseudo(":scheme", value.as_bytes(), &mut out),
            _ if classify(name.as_bytes()) != KnownField::Other => {
                encoder.known(classify(name.as_bytes()), value.as_bytes(), &mut out);
            }
            _ => encoder.field(name.as_bytes(), value.as_bytes(), FieldIndexing::Allowed, &mut out),
        }
    }
    out
}

fn best(mut round: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            round();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    best
}

fn main() {
    let mut encoder = HpackEncoder::new();
    let blocks = [block(&mut encoder), block(&mut encoder), block(&mut encoder)];
    let fresh = HpackDecoder::new(DEFAULT_TABLE);
    let mut section = DecodedSection::default();
    let mut warm = fresh.clone();
    for block in &blocks[..2] {
        warm.decode(block, LIMITS, &mut section).expect("a good block");
    }
    // The second block has the literals that enter the table, as a browser's first has.
    let copying = best(|| drop(black_box(fresh.clone())));
    let first = best(|| {
        let mut decoder = fresh.clone();
        decoder.decode(black_box(&blocks[1]), LIMITS, &mut section).expect("a good block");
        black_box(decoder);
    });
    let again = best(|| warm.decode(black_box(&blocks[2]), LIMITS, &mut section).expect("a good block"));
    println!(
        "first    {:3} bytes {:7.1} ns (a table is made in {copying:.1} ns of it)",
        blocks[1].len(),
        first
    );
    println!("repeated {:3} bytes {again:7.1} ns", blocks[2].len());
    let mut out = Vec::with_capacity(512);
    let mut respond = || {
        out.clear();
        encoder.begin(&mut out);
        encoder.status(200, &mut out);
        encoder.known(KnownField::Server, b"weir", &mut out);
        encoder.known(KnownField::Date, b"Sat, 21 Nov 2026 14:00:00 GMT", &mut out);
        encoder.known(KnownField::ContentType, b"text/plain", &mut out);
        encoder.known(KnownField::ContentLength, b"1024", &mut out);
        black_box(out.len())
    };
    let bytes = (0..3).map(|_| respond()).last().unwrap_or_default();
    println!("response {bytes:3} bytes {:7.1} ns", best(|| _ = respond()));
}
