//! Microseconds and bytes of compressing 64 KB of JSON, as gzip does by default: `cargo bench -p weir-http --bench deflate`.
//!
//! Thirty texts take turns: of one alone the processor learns the jumps by heart, and level 1 looks a third faster than it
//! is. The median of the rounds is printed, and the best.

use std::hint::black_box;
use std::time::Instant;

use weir_http::deflate::{DeflateEncoder, DeflateOp, DeflateSettings};

const TEXTS: u64 = 30;
const ROUNDS: usize = 600;
const WORDS: &[&str] = &[
    "lorem",
    "ipsum",
    "dolor",
    "sit",
    "amet",
    "consectetur",
    "adipiscing",
    "elit",
    "sed",
    "do",
    "eiusmod",
    "tempor",
    "incididunt",
    "ut",
    "labore",
    "et",
];

/// Records with texts, numbers and a random key each.
fn json(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut out = String::from("[");
    for id in 0.. {
        if out.len() >= 64 * 1024 {
            break;
        }
        let key: String = (0..32).map(|_| char::from(b"0123456789abcdef"[draw(16) as usize])).collect();
        let about: Vec<&str> = (0..12).map(|_| WORDS[draw(WORDS.len() as u64) as usize]).collect();
        let (active, balance, day) = (draw(2) == 0, draw(1_000_000), draw(28) + 1);
        out.push_str(&format!(
            "{{\"id\": {id}, \"key\": \"{key}\", \"active\": {active}, \"balance\": {}.{:02}, \
             \"created\": \"2024-03-{day:02}T12:00:00Z\", \"about\": \"{}\"}},",
            balance / 100,
            balance % 100,
            about.join(" "),
        ));
    }
    out.into_bytes()
}

/// Compresses `text`, given in pieces as a file is read; how many bytes come.
fn pack(encoder: &mut DeflateEncoder, text: &[u8], output: &mut [u8]) -> usize {
    encoder.reset();
    let mut total = 0;
    let mut pieces = text.chunks(32 * 1024).peekable();
    while let Some(piece) = pieces.next() {
        let op = if pieces.peek().is_none() { DeflateOp::Finish } else { DeflateOp::Run };
        let mut taken = 0;
        loop {
            let progress = encoder.run(black_box(&piece[taken..]), output, op);
            (taken, total) = (taken + progress.taken, total + progress.given);
            if progress.done {
                break;
            }
        }
    }
    total
}

fn main() {
    let texts: Vec<Vec<u8>> = (0..TEXTS).map(json).collect();
    let mut output = vec![0; 8 * 1024];
    for level in [1, 6, 9] {
        let window = if level == 1 { 15 } else { 14 };
        let mut encoder = DeflateEncoder::new(DeflateSettings { level, window, memory: 7 });
        let bytes: usize = texts.iter().map(|text| pack(&mut encoder, text, &mut output)).sum();
        let mut times: Vec<f64> = (0..ROUNDS)
            .map(|round| {
                let begun = Instant::now();
                black_box(pack(&mut encoder, &texts[round % texts.len()], &mut output));
                begun.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let bytes = bytes / texts.len();
        println!("level {level}: {:7.1} us (best {:7.1}), {bytes} bytes", times[ROUNDS / 2], times[0]);
    }
}
