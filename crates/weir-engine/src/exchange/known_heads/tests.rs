use proptest::prelude::*;
use weir_http::h1::HeadParse;

use super::*;
use crate::request_head::{self, HeadFailure};
use crate::testing::{self, NoTls};

/// Reads the head that `input` begins with as a connection does, and says all that came of it.
fn read(x: &mut Exchange, input: &[u8], recalls: bool) -> String {
    let connection = x.connection.clone();
    x.reset(&connection, &connection.server());
    let limits = x.server.settings.limits();
    let known = recalls && recall(x, input, &limits);
    let checked = if known {
        request_head::check_again::<NoTls>(x)
    } else {
        match x.request.head.parse(input, &limits) {
            Ok(HeadParse::Complete) => {
                x.arena.push(&input[..x.request.head.len]);
                request_head::check::<NoTls>(x)
            }
            Ok(HeadParse::Incomplete { .. }) => return "incomplete".to_owned(),
            Err(bad) => Err(request_head::refuse_bad::<NoTls>(x, input, bad)),
        }
    };
    let refused = checked.err().map(|failure| match failure {
        HeadFailure::Refuse(status) | HeadFailure::Silent(status) => status,
        HeadFailure::Nothing => 0,
    });
    let (server, text) = (x.server.name.escape_ascii(), x.arena.whole().escape_ascii());
    format!("{refused:?} {} \"{server}\" {:?} {text}", x.keep_alive, x.request)
}

/// Whether the head that `input` begins with would be recalled.
fn is_known(x: &mut Exchange, input: &[u8]) -> bool {
    let connection = x.connection.clone();
    x.reset(&connection, &connection.server());
    let limits = x.server.settings.limits();
    recall(x, input, &limits)
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_head_that_comes_again_is_recalled_whatever_follows_it() {
    testing::run("server { server_name a; }", GET, async |x| {
        let head = b"GET /b.txt?c=d HTTP/1.1\r\nHost: a:80\r\nContent-Length: 3\r\nX-Other: e\r\n\r\n";
        x.server.caches.known.clear();
        read(x, head, true);
        for rest in [&b""[..], b"x", b"\r\n", b"\n\n\n", b"GET / HTTP/1.1\r\n", b"\0"] {
            let input = [head, rest].concat();
            assert!(is_known(x, &input), "{}", rest.escape_ascii());
            assert_eq!(read(x, &input, true), read(x, &input, false));
        }
        assert!(!is_known(x, &head[..head.len() - 1]));
    });
}

#[test]
fn a_head_of_the_same_length_that_differs_in_a_byte_is_another_one() {
    testing::run("server { server_name a; }", GET, async |x| {
        let head = b"POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 31\r\nConnection: close\r\n\r\n";
        for at in 0..head.len() {
            let mut other = head.to_vec();
            for byte in [b'1', b'\r', b'\n', b' ', b':', 0, b'/'].into_iter().filter(|byte| *byte != head[at])
            {
                other[at] = byte;
                x.server.caches.known.clear();
                read(x, head, true);
                assert!(is_known(x, head) && !is_known(x, &other), "{}", other.escape_ascii());
                assert_eq!(read(x, &other, true), read(x, &other, false));
            }
        }
    });
}

#[test]
fn a_head_of_which_something_is_composed_or_dropped_is_not_stored() {
    testing::run("server { server_name a; }", GET, async |x| {
        for head in [
            "GET //a HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /%61 HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: A\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nun_usual: b\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
            "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        ] {
            x.server.caches.known.clear();
            read(x, head.as_bytes(), true);
            assert!(!is_known(x, head.as_bytes()), "{head}");
        }
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(LONGEST));
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(FIELDS));
        for head in [long, many] {
            x.server.caches.known.clear();
            read(x, head.as_bytes(), true);
            assert!(!is_known(x, head.as_bytes()), "{head}");
        }
    });
}

#[test]
fn a_client_that_never_repeats_itself_is_copied_now_and_then() {
    testing::run("server { server_name a; }", GET, async |x| {
        x.server.caches.known.clear();
        let heads = (0..200).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let stored = heads.filter(|head| {
            read(x, head.as_bytes(), true);
            is_known_still(x, head.as_bytes())
        });
        let stored = stored.count();
        assert!((5..25).contains(&stored), "{stored}");
    });
}

/// As [`is_known`], without what a repeated head does to its place.
fn is_known_still(x: &Exchange, head: &[u8]) -> bool {
    let places = x.server.caches.known.0.borrow();
    let known = places.get(place(x.connection.number)).and_then(|place| place.known.as_ref());
    known.is_some_and(|known| known.bytes == head)
}

fn piece(texts: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(texts)
}

/// Heads, good and bad, of pieces that meet in many ways.
fn head() -> impl Strategy<Value = Vec<u8>> {
    let line = (
        piece(&["", "", "", "\r\n", "\n"]),
        piece(&["GET", "GET", "POST", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get"]),
        piece(&["/", "/a", "/a.b?c", "//a", "/%41", "/a/../b", "*", "http://b/a", "b:80", "/a#b", "/\x7f"]),
        piece(&[" HTTP/1.1", " HTTP/1.1", " HTTP/1.1", " HTTP/1.0", "", " HTTP/2.0", "  HTTP/1.1 "]),
        piece(&["\r\n", "\r\n", "\n", "\r"]),
    );
    let field = piece(&[
        "Host: a\r\n",
        "Host: b\r\n",
        "Host: B:81\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "Content-Length: 5\r\n",
        "Content-Length: +5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Expect: 100-continue\r\n",
        "X-A:\tb \r\n",
        "x_b: c\r\n",
        "X-C: \x01\r\n",
        "X-D: e\n",
        " folded\r\n",
        "X-E : f\r\n",
    ]);
    let fields = prop::collection::vec(field, 0..5);
    (line, fields, piece(&["\r\n", "\r\n", "\r\n", "\n", ""])).prop_map(
        |((before, method, target, version, end), fields, last)| {
            [before, method, " ", target, version, end, &fields.concat(), last].concat().into_bytes()
        },
    )
}

/// What a connection receives: heads of a few that come again, changed in a byte or not, with something after them.
fn inputs() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let rest = piece(&[
        "",
        "",
        "x",
        "\r\n",
        "GET /",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "5\r\nabcde\r\n0\r\n\r\n",
    ]);
    let change = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
    let turn = (any::<prop::sample::Index>(), change, rest);
    (prop::collection::vec(head(), 1..4), prop::collection::vec(turn, 1..24)).prop_map(|(heads, turns)| {
        let input = |(head, change, rest): (prop::sample::Index, Option<(prop::sample::Index, u8)>, &str)| {
            let mut input = head.get(&heads).clone();
            if let Some((at, byte)) = change {
                let at = at.index(input.len());
                input[at] = byte;
            }
            input.extend_from_slice(rest.as_bytes());
            input
        };
        turns.into_iter().map(input).collect()
    })
}

/// Servers that judge heads in different ways, by which address is asked and which host is named.
const SERVERS: [&str; 3] = [
    "server { server_name a; } server { server_name b; merge_slashes off; invalid_header_values reject; }",
    "server { server_name b; merge_slashes off; ignore_invalid_headers off; } server { server_name a; }",
    "server { server_name a; underscores_in_headers on; max_headers 3; }",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// The short cut and the whole way come to the same, in any order of heads, at each of them.
    #[test]
    fn recalling_is_reading(inputs in inputs(), servers in prop::sample::select(&SERVERS[..])) {
        let differences = testing::run(servers, GET, async |x| {
            let both = |input: &Vec<u8>| (read(x, input, true), read(x, input, false));
            let pairs: Vec<_> = inputs.iter().map(both).collect();
            pairs
        });
        for (recalled, whole) in differences {
            prop_assert_eq!(recalled, whole);
        }
    }
}
