//! Nanoseconds per head, ours and httparse's, on a tool's request and a browser's: `cargo bench -p weir-http`.
//!
//! Rounds alternate and the best of each is printed, so that a busy machine disturbs both alike.

use std::hint::black_box;
use std::time::Instant;

use weir_http::h1::{HeadLimits, HeadParse, RequestHead, content_length, end, field, status_line};

const TOOL: &[u8] = b"GET /6b.txt HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

const BROWSER: &[u8] = b"GET /articles/2026/11/an-article?utm_source=feed&page=2 HTTP/1.1\r\n\
Host: www.example.com\r\n\
Connection: keep-alive\r\n\
Cache-Control: max-age=0\r\n\
sec-ch-ua: \"Chromium\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\n\
sec-ch-ua-mobile: ?0\r\n\
sec-ch-ua-platform: \"Linux\"\r\n\
Upgrade-Insecure-Requests: 1\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
Sec-Fetch-Site: same-origin\r\n\
Sec-Fetch-Mode: navigate\r\n\
Referer: https://www.example.com/articles/2026/11/\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\n\
Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; seen=1\r\n\r\n";

/// Calls in a round: about 20 ms of work.
const CALLS: u32 = 100_000;
const ROUNDS: u32 = 30;

fn main() {
    for (name, head) in [("tool", TOOL), ("browser", BROWSER)] {
        let mut ours = RequestHead::default();
        let limits = HeadLimits::default();
        let (mut best_ours, mut best_httparse) = (f64::MAX, f64::MAX);
        for _ in 0..ROUNDS {
            best_ours = best_ours.min(nanoseconds(|| {
                assert_eq!(ours.parse(black_box(head), &limits), Ok(HeadParse::Complete));
                black_box(&mut ours);
            }));
            best_httparse = best_httparse.min(nanoseconds(|| httparse_once(black_box(head))));
        }
        println!("{name:8} {:4} bytes  weir {best_ours:6.1} ns  httparse {best_httparse:6.1} ns", head.len());
    }
    let mut out = Vec::with_capacity(512);
    let best =
        (0..ROUNDS).map(|_| nanoseconds(|| response_once(black_box(&mut out)))).fold(f64::MAX, f64::min);
    println!("response {:4} bytes  weir {best:6.1} ns", out.len());
}

fn nanoseconds(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

/// With the header array zeroed, since the faster variant needs `unsafe` to build its array.
fn httparse_once(head: &[u8]) {
    let mut slots = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut slots);
    assert!(request.parse(head).is_ok_and(|status| status.is_complete()));
    black_box(&mut request);
}

fn response_once(out: &mut Vec<u8>) {
    out.clear();
    status_line(out, 200);
    field(out, b"Server", b"weir");
    field(out, b"Date", b"Sat, 21 Nov 2026 05:26:56 GMT");
    field(out, b"Content-Type", b"text/plain");
    content_length(out, 6);
    field(out, b"Last-Modified", b"Sat, 21 Nov 2026 05:26:56 GMT");
    field(out, b"Connection", b"keep-alive");
    field(out, b"ETag", b"\"6740c1a0-6\"");
    field(out, b"Accept-Ranges", b"bytes");
    end(out);
}
