//! SCGI and uwsgi: the same application behind nginx and Weir gets the same requests, and clients the same responses.

use crate::support;

use std::sync::{Arc, Mutex};

use weir_test::{Backend, BackendVisit, RequestKind, Response, Server, both_drivers, require_program};

use support::{get, pattern, upload};

/// What an application got: the bytes before the parameters, these, and the body.
pub(crate) type Got = (Vec<u8>, Pairs, usize);

/// Names and values in the order they came.
pub(crate) type Pairs = Vec<(String, String)>;

/// What a client got: status, reason, fields, body.
type Shown = (u16, String, Pairs, String);

/// Reads a request of either protocol.
pub(crate) fn read(visit: &mut BackendVisit, protocol: &str) -> Option<Got> {
    let (head, pairs) = if protocol == "scgi" { scgi(visit)? } else { uwsgi(visit)? };
    let length = pairs.iter().find(|(name, _)| name == "CONTENT_LENGTH");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let body = visit.bytes(length)?;
    assert!(body == pattern(length) || length < 10, "the body's bytes");
    Some((head, pairs, length))
}

fn scgi(visit: &mut BackendVisit) -> Option<(Vec<u8>, Pairs)> {
    let mut length = String::new();
    loop {
        match visit.bytes(1)?[0] {
            b':' => break,
            digit => length.push(digit.into()),
        }
    }
    let text = String::from_utf8(visit.bytes(length.parse().ok()?)?).ok()?;
    let texts: Vec<_> = text.strip_suffix('\0')?.split('\0').map(str::to_owned).collect();
    let pairs = texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    Some((visit.bytes(1)?, pairs))
}

fn uwsgi(visit: &mut BackendVisit) -> Option<(Vec<u8>, Pairs)> {
    let head = visit.bytes(4)?;
    let mut rest = usize::from(u16::from_le_bytes([head[1], head[2]]));
    let mut text = |rest: &mut usize| {
        let length = visit.bytes(2)?;
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        *rest -= length + 2;
        String::from_utf8(visit.bytes(length)?).ok()
    };
    let mut pairs = Vec::new();
    while rest > 4 {
        pairs.push((text(&mut rest)?, text(&mut rest)?));
    }
    if rest > 0 {
        pairs.push(("uwsgi_string".to_owned(), String::from_utf8(visit.bytes(rest)?).ok()?));
    }
    Some((vec![head[0], head[3]], pairs))
}

fn conf(protocol: &str, port: u16) -> String {
    let modifiers =
        if protocol == "uwsgi" { "uwsgi_modifier1 5; uwsgi_modifier2 7; uwsgi_string abc;" } else { "" };
    let text = "http { P_param URI $request_uri; P_param LENGTH $content_length; P_param SCGI 1;
            P_param CONTENT_LENGTH $content_length if_not_empty; P_param NOT $arg_none if_not_empty;
            server { listen 127.0.0.1:%%PORT%%;
            location / { P_pass 127.0.0.1:PORT; }
            location /inside { return 200 \"inside $args\"; }
            location /quiet/ { P_pass_request_headers off; P_pass 127.0.0.1:PORT; }
            location /file/ { client_body_in_file_only clean; P_pass 127.0.0.1:PORT; }
            location /flow/ { P_request_buffering off; P_pass 127.0.0.1:PORT; MODIFIERS }
            location /bodyless/ { P_pass_request_body off; P_param CONTENT_LENGTH ''; P_pass 127.0.0.1:PORT; }
            location /slow/ { P_buffering off; P_pass 127.0.0.1:PORT; }
            location /if/ { set $to 127.0.0.1:PORT; if ($arg_hand) { P_pass $to; } }
        } }";
    let text = text.replace(
        "P_param CONTENT_LENGTH $content_length if_not_empty;",
        match protocol {
            "uwsgi" => "P_param CONTENT_LENGTH $content_length;",
            _ => "",
        },
    );
    let text = if protocol == "uwsgi" { text } else { text.replace("P_param CONTENT_LENGTH '';", "") };
    text.replace("P_", &format!("{protocol}_"))
        .replace(":PORT;", &format!(":{port};"))
        .replace("MODIFIERS", modifiers)
}

/// Requests and the response to each.
fn cases() -> Vec<(String, String)> {
    let ok = "Content-Type: text/plain\r\n\r\nhello";
    let ask = |request: String| (request, ok.to_owned());
    let answered = |answer: &str| (get("/x"), answer.to_owned());
    let body = |path: &str, length: usize| {
        ask(upload(path, length) + &String::from_utf8(pattern(length)).expect("letters"))
    };
    vec![
        ask(get("/x?a=b%20c")),
        ask("GET /x HTTP/1.1\r\nHost: localhost\r\nX-Two: 1\r\nX_Y: lost\r\nCookie: a=1\r\n\r\n".to_owned()),
        ask(get("/if/x?hand=1")),
        ask(get("/slow/")),
        body("/x", 3),
        body("/x", 70_000),
        body("/file/x", 100_000),
        ask("POST /flow/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_owned()),
        ask("HEAD /x HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned()),
        ask(format!("GET /long HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n", "l".repeat(7000))),
        answered("Status: 404 Nowhere\nX-A: 1\nx-a: 2\n\nlines of LF"),
        answered("Status: 204 No Content\r\n\r\n"),
        answered("Location: http://elsewhere/\r\n\r\n"),
        answered("Status: 4x4 Bad\r\n\r\n"),
        answered("HTTP/1.0 201 Made\r\nX-A: 1\r\n\r\nmade"),
        answered("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
        answered("Content-Length: 3\r\n\r\nhello"),
        answered("Content-Length: 9\r\n\r\nhello"),
        answered("X-Accel-Redirect: /inside?a=b\r\nSet-Cookie: kept=1\r\n\r\n"),
        answered(""),
        answered("HT"),
        answered("Content-Type: text/plain\r\n"),
        answered(&format!("X-Long: {}\r\n\r\n", "x".repeat(5000))),
        answered(&format!("\r\n{}", "y".repeat(200_000))),
    ]
}

/// Asks everything in `cases` of a server.
fn ask(
    start: impl Fn(&str) -> Server,
    protocol: &'static str,
    cases: &[(String, String)],
) -> Vec<(Result<Shown, String>, Vec<Got>)> {
    let answer = Arc::new(Mutex::new(String::new()));
    let got = Arc::new(Mutex::new(Vec::new()));
    let (answers, seen) = (answer.clone(), got.clone());
    let app = Backend::start(move |visit| {
        if let Some(request) = read(visit, protocol) {
            seen.lock().expect("no panic").push(request);
            let answer = answers.lock().expect("no panic").clone();
            visit.send(answer);
        }
    });
    let server = start(&conf(protocol, app.port()));
    let mut outcomes = Vec::new();
    for (request, text) in cases {
        *answer.lock().expect("no panic") = text.clone();
        let mut client = server.client();
        client.send(request);
        let response = client.try_response_to(RequestKind::of(request.as_bytes())).map(shown);
        client.half_close();
        let _ = client.rest();
        let got = std::mem::take(&mut *got.lock().expect("no panic"));
        outcomes.push((response.map_err(|_| "broken off".to_owned()), got));
    }
    outcomes
}

/// Without what always differs.
fn shown(response: Response) -> Shown {
    let page = response.text().contains("<hr>");
    let skip = |name: &str| {
        ["date", "server"].contains(&name) || page && ["content-length", "content-type"].contains(&name)
    };
    let fields = response.fields.iter().filter(|(name, _)| !skip(&name.to_ascii_lowercase()));
    let mut fields: Vec<_> = fields.cloned().collect();
    fields.sort();
    let body = if page { "page".to_owned() } else { response.text() };
    (response.status, response.reason.clone(), fields, body)
}

fn compare(protocol: &'static str) {
    if require_program("nginx").is_none() {
        return;
    }
    let cases = cases();
    let nginx = |conf: &str| weir_test::nginx(conf).expect("it is there").allow("[").start();
    let theirs = ask(nginx, protocol, &cases);
    let ours = ask(|conf| Server::builder(conf).allow("[").start(), protocol, &cases);
    let brief = |outcome: &_| format!("{outcome:?}").chars().take(700).collect::<String>();
    let mut different = Vec::new();
    for (number, ((request, _), (theirs, ours))) in cases.iter().zip(theirs.iter().zip(&ours)).enumerate() {
        if theirs != ours {
            let line = request.lines().next().unwrap_or_default();
            different.push(format!("{number} {line}\nnginx {}\nweir  {}", brief(theirs), brief(ours)));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// Requests for what a cache keeps, and their further fields.
const KEPT: [(&str, &str); 10] = [
    ("/", "Range: bytes=0-1\r\n"),
    ("/", ""),
    ("/", "If-None-Match: \"t\"\r\n"),
    ("/?other", ""),
    ("/never", ""),
    ("/never", ""),
    ("/missing", ""),
    ("/missing", ""),
    ("/old", ""),
    ("/old", ""),
];

/// The response of an application behind a cache to `uri`, of which the cache has a part.
fn kept(uri: &str) -> String {
    let (status, expires) = match uri {
        "/never" => ("200 OK", "0"),
        "/missing" => ("404 Not Found", ""),
        "/old" => ("200 OK", "@1"),
        _ => ("200 OK", "100"),
    };
    let expires = if expires.is_empty() { String::new() } else { format!("X-Accel-Expires: {expires}\r\n") };
    format!("Status: {status}\r\nContent-Type: text/plain\r\nETag: \"t\"\r\n{expires}\r\nanswer to {uri}")
}

/// For each of [`KEPT`] the status, where the response came from, and its body; and the ranges and conditions that the
/// application was asked for.
fn ask_cached(protocol: &'static str, start: impl FnOnce(&str) -> Server) -> (Vec<String>, Vec<String>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let app = Backend::start(move |visit| {
        let Some((_, pairs, _)) = read(visit, protocol) else { return };
        let value = |wanted: &str| {
            let found = pairs.iter().find(|(name, _)| name == wanted);
            found.map_or_else(String::new, |(_, value)| value.clone())
        };
        let uri = value("URI");
        let reported = format!("{uri} [{}] [{}]", value("HTTP_RANGE"), value("HTTP_IF_NONE_MATCH"));
        log.lock().expect("no panic").push(reported);
        visit.send(kept(&uri));
    });
    let text = "http { P_cache_path %%DIR%%/c levels=1:2 keys_zone=one:1m;
        server { listen 127.0.0.1:%%PORT%%; add_header X-Cache $upstream_cache_status always;
            location / {
                P_pass 127.0.0.1:APP; P_param URI $request_uri; P_param CONTENT_LENGTH 0;
                P_cache one; P_cache_key $request_uri; P_cache_valid 404 1h; P_cache_revalidate on;
            } } }";
    let server =
        start(&text.replace("P_", &format!("{protocol}_")).replace(":APP;", &format!(":{};", app.port())));
    let answers = KEPT.iter().map(|(uri, fields)| {
        let request = format!("GET {uri} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n");
        let answer = server.client().request(request);
        format!("{} {} {}", answer.status, answer.field("X-Cache").unwrap_or("-"), answer.text())
    });
    let answers = answers.collect();
    let asked = std::mem::take(&mut *asked.lock().expect("no panic"));
    (answers, asked)
}

both_drivers! {
    fn answers_are_kept_as_by_nginx(driver) {
        for protocol in ["scgi", "uwsgi"] {
            let (answers, asked) = ask_cached(protocol, Server::start);
            assert_eq!(answers[..3], ["200 MISS answer to /", "200 HIT answer to /", "304 HIT "], "{protocol}");
            assert_eq!(asked[0], "/ [] []", "{protocol}: the whole is asked for");
            let nginx = |conf: &str| weir_test::nginx(&format!("events {{ }} {conf}"));
            if require_program("nginx").is_some() {
                let theirs = ask_cached(protocol, |conf| nginx(conf).expect("it is there").start());
                assert_eq!((answers, asked), theirs, "{protocol}");
            }
        }
    }

    fn scgi_is_spoken_as_by_nginx(driver) {
        compare("scgi");
    }

    fn uwsgi_is_spoken_as_by_nginx(driver) {
        compare("uwsgi");
    }

    /// nginx does so from 1.31 on, but for a body that is not passed: it sends SCGI its length all the same.
    fn bodies_and_lengths_fit(driver) {
        for protocol in ["scgi", "uwsgi"] {
            let request = |path, length| {
                (upload(path, length) + &String::from_utf8(pattern(length)).expect("letters"), "\r\nok".to_owned())
            };
            let cases = [request("/flow/x", 100_000), request("/bodyless/x", 9), (get("/quiet/"), "\r\nok".to_owned())];
            let outcomes = ask(|conf| Server::builder(conf).start(), protocol, &cases);
            for ((answer, got), length) in outcomes.iter().zip([100_000, 0, 0]) {
                assert_eq!(answer.as_ref().map(|shown| shown.0), Ok(200));
                assert!(matches!(&got[..], [(_, _, body)] if *body == length), "{got:?}");
            }
            let (_, quiet) = &outcomes[2];
            assert!(quiet[0].1.contains(&("HTTP_HOST".to_owned(), "localhost".to_owned())), "{quiet:?}");
        }
    }

    /// The guard against a field that programs take for a setting of theirs, and the host of a client that names none.
    fn what_is_written_empty_is_withheld(driver) {
        for protocol in ["scgi", "uwsgi"] {
            let got = Arc::new(Mutex::new(Vec::new()));
            let noted = got.clone();
            let backend = Backend::start(move |visit| {
                if let Some((_, pairs, _)) = read(visit, protocol) {
                    *noted.lock().expect("no panic") = pairs;
                    visit.send("Status: 200 OK\r\nContent-Type: a/b\r\n\r\nok");
                }
            });
            let server = Server::start(&format!(
                "http {{ server {{ listen 127.0.0.1:%%PORT%%; server_name named; location / {{
                    {protocol}_param HTTP_PROXY ''; {protocol}_param CONTENT_LENGTH 0; {protocol}_pass 127.0.0.1:{}; }} }} }}",
                backend.port()
            ));
            assert_eq!(server.client().request("GET / HTTP/1.0\r\nProxy: evil\r\nX-A: 1\r\n\r\n").text(), "ok");
            let got = got.lock().expect("no panic").clone();
            let value = |name: &str| got.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
            assert_eq!(["HTTP_PROXY", "HTTP_X_A", "HTTP_HOST"].map(value), [None, Some("1"), Some("named")], "{protocol}: {got:?}");
        }
    }

    fn what_does_not_fit_is_refused(driver) {
        let server = Server::builder(
            "http { map $uri $long { default 'a'; volatile; } server { listen 127.0.0.1:%%PORT%%;
                large_client_header_buffers 4 80k;
                location / { uwsgi_param A $arg_a; uwsgi_pass 127.0.0.1:1; } } }",
        ).allow("uwsgi request is too big").start();
        assert_eq!(server.get(&format!("/?a={}", "x".repeat(70_000))).status, 500);
        assert!(server.error_log_line("[alert]").contains("uwsgi request is too big"));
    }
}
