//! Cached responses (`proxy_cache`), case by case beside nginx: where each response comes from, and how often
//! the server is asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};

use weir_test::{Backend, BackendVisit, RequestKind, Server, both_drivers};

/// A server whose responses say how often their path was asked for.
fn counting() -> Backend {
    let counts: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    Backend::start(move |visit| {
        while let Some(head) = visit.head() {
            let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let count = {
                let mut counts = counts.lock().expect("no panic");
                let count = counts.entry(target.clone()).or_default();
                *count += 1;
                *count
            };
            if !respond(visit, &head, &target, count) {
                return;
            }
        }
    })
}

/// `false`: the connection ends.
fn respond(visit: &mut BackendVisit, head: &str, target: &str, count: usize) -> bool {
    let name = target.trim_start_matches('/').split(['?', '/']).next_back().unwrap_or_default();
    let name = if target.contains('?') { target[1..].split(['?', '/']).next().unwrap_or(name) } else { name };
    let mut body = format!("{name} {count}");
    let (mut status, mut fields) = ("200 OK", fields_of(name));
    match name {
        "missing" => status = "404 Not Found",
        "moved" => (status, fields) = ("301 Moved Permanently", "Location: /x\r\n"),
        "broken" => status = "500 Internal Server Error",
        "breaks" if count == 1 => fields = "X-Accel-Expires: @1\r\n",
        "breaks" => status = "500 Internal Server Error",
        "dies" if count == 1 => fields = "X-Accel-Expires: @1\r\n",
        "dies" => return false,
        "etag" | "tagged" if head.contains("If-None-Match: \"e\"") => {
            return visit.send("HTTP/1.1 304 Not Modified\r\nETag: \"e\"\r\n\r\n");
        }
        "etag" => fields = "ETag: \"e\"\r\nX-Accel-Expires: @1\r\n",
        "tagged" => {
            fields =
                "ETag: \"e\"\r\nLast-Modified: Mon, 28 Sep 1970 06:00:00 GMT\r\nAccept-Ranges: bytes\r\n";
            body = "0123456789".to_owned();
        }
        "chunked" => {
            return visit.send(format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            ));
        }
        "close" => {
            visit.send(format!("HTTP/1.1 200 OK\r\n\r\n{body}"));
            return false;
        }
        "short" => {
            visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{body}"));
            return false;
        }
        _ => {}
    }
    let length = body.len();
    let body = if head.starts_with("HEAD") { "" } else { &body };
    visit.send(format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{fields}\r\n{body}"))
}

/// The fields of a response that is named for them.
fn fields_of(name: &str) -> &'static str {
    match name {
        "age" => "Cache-Control: max-age=100\r\n",
        "smaxage" => "Cache-Control: max-age=0, s-maxage=100\r\n",
        "age0" => "Cache-Control: max-age=0\r\n",
        "nocache" => "Cache-Control: no-cache\r\n",
        "nostore" => "cache-control: NO-STORE\r\n",
        "private" => "Cache-Control: private\r\n",
        "twolines" => "Cache-Control: public\r\nCache-Control: no-store\r\n",
        "accel" => "X-Accel-Expires: 100\r\nCache-Control: no-cache\r\nExpires: 0\r\n",
        "accel0" => "X-Accel-Expires: 0\r\n",
        "expired" => "Expires: Thu, 01 Jan 1970 00:00:01 GMT\r\n",
        "later" => "Expires: Thu, 31 Dec 2099 00:00:01 GMT\r\n",
        "cookie" => "Set-Cookie: a=b\r\n",
        "vary" => "Vary: X-V, X-W\r\n",
        "star" => "Vary: *\r\n",
        "stars" => "Vary: *\r\nVary: *\r\n",
        "starlast" => "Vary: X-V\r\nVary: *\r\n",
        "starin" => "Vary: X-V , *,X-W\r\n",
        "starname" => "Vary: X*\r\n",
        "capitals" => "Expires: Thu, 31 DEC 2099 00:00:01 GMT\r\n",
        "small" => "Expires: Thu, 31 jan 2099 00:00:01 GMT\r\n",
        "dashes" => "Expires: Thursday, 31-DEC-38 00:00:01 GMT\r\n",
        "asctime" => "Expires: Thu DEC 31 00:00:01 2099\r\n",
        "nomonth" => "Expires: Thu, 31 XXX 2099 00:00:01 GMT\r\n",
        "past" | "meanwhile" => "X-Accel-Expires: @1\r\n",
        "swr" => {
            "Cache-Control: max-age=1, stale-while-revalidate=3600, stale-if-error=3600\r\nX-Accel-Expires: @1\r\n"
        }
        _ => "",
    }
}

const CONF: &str = r#"http {
    proxy_cache_path %%DIR%%/cache levels=1:2 keys_zone=one:1m;
    proxy_cache_path %%DIR%%/aside keys_zone=two:1m use_temp_path=off max_size=100m;
    server {
        listen 127.0.0.1:%%PORT%%;
        access_log off;
        add_header X-Cache "$upstream_cache_status [$upstream_http_etag]" always;
        proxy_cache one;
        proxy_cache_valid 1h;
        proxy_cache_valid 404 1h;
        location / { proxy_pass http://127.0.0.1:BACKEND; }
        location /two/ { proxy_pass http://127.0.0.1:BACKEND; proxy_cache two; proxy_cache_valid any 1h; }
        location /off/ { proxy_pass http://127.0.0.1:BACKEND; proxy_cache off; }
        location /named/ { proxy_pass http://127.0.0.1:BACKEND; proxy_cache $arg_zone; }
        location /stale/ {
            proxy_pass http://127.0.0.1:BACKEND;
            proxy_cache_use_stale error http_500;
        }
        location /any/ { proxy_pass http://127.0.0.1:BACKEND; proxy_cache_valid any 1h; }
        location /reval/ { proxy_pass http://127.0.0.1:BACKEND; proxy_cache_revalidate on; }
        location /uses/ { proxy_pass http://127.0.0.1:BACKEND; proxy_cache_min_uses 3; }
        location /post/ { proxy_pass http://127.0.0.1:BACKEND; proxy_cache_methods POST; }
        location /nohead/ {
            proxy_pass http://127.0.0.1:BACKEND;
            proxy_cache_convert_head off;
            proxy_cache_key $request_method$uri;
        }
        location /tests/ {
            proxy_pass http://127.0.0.1:BACKEND;
            proxy_cache_key $uri;
            proxy_cache_bypass $arg_bypass $arg_other;
            proxy_no_cache $arg_no;
        }
        location /ignore/ {
            proxy_pass http://127.0.0.1:BACKEND;
            proxy_ignore_headers Cache-Control Expires X-Accel-Expires Set-Cookie Vary;
        }
        location /unbuffered/ { proxy_pass http://127.0.0.1:BACKEND; proxy_buffering off; }
        location /offset/ { proxy_pass http://127.0.0.1:BACKEND; proxy_cache_max_range_offset 5; }
        location /pages/ {
            proxy_pass http://127.0.0.1:BACKEND;
            proxy_intercept_errors on;
            error_page 404 /page.html;
        }
        location /page.html { proxy_pass http://127.0.0.1:BACKEND; proxy_cache off; }
        location /forced/ { proxy_pass http://127.0.0.1:BACKEND; proxy_force_ranges on; }
        location /hidden/ { proxy_pass http://127.0.0.1:BACKEND; proxy_hide_header ETag; }
    }
}"#;

/// Requests in order: method and path, further fields.
const CASES: &[(&str, &str)] = &[
    ("GET /plain", ""),
    ("GET /plain", ""),
    ("GET /plain?a", ""),
    ("GET /plain?a", ""),
    ("HEAD /plain", ""),
    ("POST /plain", "Content-Length: 0\r\n"),
    ("HEAD /first", ""),
    ("GET /first", ""),
    ("GET /age", ""),
    ("GET /age", ""),
    ("GET /smaxage", ""),
    ("GET /smaxage", ""),
    ("GET /age0", ""),
    ("GET /age0", ""),
    ("GET /nocache", ""),
    ("GET /nocache", ""),
    ("GET /nostore", ""),
    ("GET /nostore", ""),
    ("GET /private", ""),
    ("GET /private", ""),
    ("GET /twolines", ""),
    ("GET /twolines", ""),
    ("GET /accel", ""),
    ("GET /accel", ""),
    ("GET /accel0", ""),
    ("GET /accel0", ""),
    ("GET /expired", ""),
    ("GET /expired", ""),
    ("GET /later", ""),
    ("GET /later", ""),
    ("GET /cookie", ""),
    ("GET /cookie", ""),
    ("GET /star", ""),
    ("GET /star", ""),
    ("GET /missing", ""),
    ("GET /missing", ""),
    ("GET /moved", ""),
    ("GET /moved", ""),
    ("GET /broken", ""),
    ("GET /broken", ""),
    ("GET /chunked", ""),
    ("GET /chunked", ""),
    ("GET /close", ""),
    ("GET /close", ""),
    ("GET /past", ""),
    ("GET /past", ""),
    ("GET /breaks", ""),
    ("GET /breaks", ""),
    ("GET /vary", "X-V: a\r\n"),
    ("GET /vary", "X-V:   a \r\n"),
    ("GET /vary", "X-V: b\r\n"),
    ("GET /vary", "X-V: b\r\n"),
    ("GET /vary", "X-V: a\r\n"),
    ("GET /vary", "X-V: a\r\nX-W: c\r\n"),
    ("GET /vary", "X-V: a\r\nX-W: c\r\n"),
    ("GET /vary", ""),
    ("GET /vary", ""),
    ("GET /vary", "X-V: b\r\n"),
    ("GET /tagged", "If-None-Match: \"e\"\r\n"),
    ("GET /tagged", "If-None-Match: \"e\"\r\n"),
    ("GET /tagged", "If-None-Match: \"x\"\r\n"),
    ("GET /tagged", "If-Modified-Since: Mon, 28 Sep 1970 06:00:00 GMT\r\n"),
    ("GET /tagged", "Range: bytes=2-3\r\n"),
    ("GET /tagged", "Range: bytes=2-3,5-6\r\n"),
    ("GET /tagged", "Range: bytes=20-\r\n"),
    ("GET /tagged", "Range: bytes=2-3\r\nIf-Range: \"e\"\r\n"),
    ("GET /tagged", "Range: bytes=2-3\r\nIf-Range: \"x\"\r\n"),
    ("GET /tagged", "If-Match: \"x\"\r\n"),
    ("GET /tagged?new", "Range: bytes=2-3\r\n"),
    ("GET /tagged?new", ""),
    ("GET /two/plain", ""),
    ("GET /two/plain", ""),
    ("GET /two/broken", ""),
    ("GET /two/broken", ""),
    ("GET /off/plain", ""),
    ("GET /off/tagged", "If-None-Match: \"y\"\r\n"),
    ("GET /off/plain", ""),
    ("GET /named/plain?zone=one", ""),
    ("GET /named/plain?zone=one", ""),
    ("GET /named/plain?zone=off", ""),
    ("GET /named/plain?zone=none", ""),
    ("GET /named/plain", ""),
    ("GET /stale/breaks", ""),
    ("GET /stale/breaks", ""),
    ("GET /stale/dies", ""),
    ("GET /stale/dies", ""),
    ("GET /stale/past", ""),
    ("GET /stale/past", ""),
    ("GET /dies", ""),
    ("GET /dies", ""),
    ("GET /any/dies", ""),
    ("GET /any/dies", ""),
    ("GET /any/dies", ""),
    ("GET /swr", ""),
    ("GET /swr", ""),
    ("GET /reval/etag", ""),
    ("GET /reval/etag", ""),
    ("GET /reval/etag", ""),
    ("GET /etag", ""),
    ("GET /etag", ""),
    ("GET /uses/plain", ""),
    ("GET /uses/plain", ""),
    ("GET /uses/plain", ""),
    ("GET /uses/plain", ""),
    ("POST /post/plain", "Content-Length: 0\r\n"),
    ("POST /post/plain", "Content-Length: 0\r\n"),
    ("HEAD /nohead/plain", ""),
    ("HEAD /nohead/plain", ""),
    ("GET /nohead/plain", ""),
    ("GET /nohead/plain", ""),
    ("GET /tests/plain", ""),
    ("GET /tests/plain?bypass=0", ""),
    ("GET /tests/plain?bypass=1", ""),
    ("GET /tests/plain", ""),
    ("GET /tests/plain?bypass=0&other=1&no=1", ""),
    ("GET /tests/plain", ""),
    ("GET /tests/other?no=1", ""),
    ("GET /tests/other?no=0", ""),
    ("GET /tests/other", ""),
    ("GET /ignore/nocache", ""),
    ("GET /ignore/nocache", ""),
    ("GET /ignore/accel0", ""),
    ("GET /ignore/accel0", ""),
    ("GET /ignore/cookie", ""),
    ("GET /ignore/cookie", ""),
    ("GET /ignore/vary", "X-V: a\r\n"),
    ("GET /ignore/vary", "X-V: b\r\n"),
    ("GET /unbuffered/plain", ""),
    ("GET /unbuffered/plain", ""),
    ("GET /offset/tagged", "Range: bytes=5-6\r\n"),
    ("GET /offset/tagged", "Range: bytes=4-6\r\n"),
    ("GET /offset/tagged", "Range: bytes=5-6\r\n"),
    ("GET /offset/tagged?x", "Range: bytes=-2\r\n"),
    ("GET /offset/tagged?x", ""),
    ("GET /pages/missing", ""),
    ("GET /pages/missing", ""),
    ("GET /forced/plain", "Range: bytes=0-1\r\n"),
    ("GET /forced/plain", "Range: bytes=0-1\r\n"),
    ("GET /hidden/tagged", ""),
    ("GET /hidden/tagged", ""),
];

/// The text without the number of 20 digits that stands between the parts of a body, which is random.
fn parts(text: &str) -> String {
    let mut lines: Vec<&str> = text.split("\r\n").collect();
    for line in &mut lines {
        if line.starts_with("--") && line.len() > 20 {
            *line = "--";
        }
    }
    lines.join("\r\n")
}

/// How `server` responds to all cases, and how often it asked the backend.
fn ask(server: &Server, backend: &Backend) -> (Vec<String>, usize) {
    let one = |(request, fields): &(&str, &str)| {
        let (method, path) = request.split_once(' ').expect("a method");
        let mut client = server.client();
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n"
        ));
        let response = client.try_response_to(RequestKind::of(method.as_bytes()));
        let response = response.unwrap_or_else(|error| panic!("{request} {fields:?}: {error:?}"));
        let fields = [
            "X-Cache",
            "Content-Length",
            "Transfer-Encoding",
            "ETag",
            "Last-Modified",
            "Accept-Ranges",
            "Content-Range",
            "Cache-Control",
            "Expires",
            "Set-Cookie",
            "Vary",
            "Age",
            "X-Accel-Expires",
        ];
        let fields: Vec<String> = fields
            .iter()
            .map(|name| (name, response.all(name)))
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| format!("{name}: {}", values.join(" + ")))
            .collect();
        // A length that the server did not send is sent to later clients, which nginx does not.
        let unknown = path == "/chunked" || path == "/close";
        let fields: Vec<String> = fields
            .into_iter()
            .filter(|line| {
                !unknown || !line.starts_with("Content-Length") && !line.starts_with("Transfer-Encoding")
            })
            .collect();
        // Pages name their server.
        let page = response.text().contains("<center>");
        let fields = fields.join(", ");
        match page {
            true => format!("{} page {}", response.status, response.all("X-Cache").first().unwrap_or(&"-")),
            false => format!("{} {:?} {fields}", response.status, parts(&response.text())),
        }
    };
    (CASES.iter().map(one).collect(), backend.heads())
}

both_drivers! {
    /// RFC 9111 section 4.1: no request can be compared with what `*` matches, wherever it is. nginx looks at the
    /// whole value alone.
    fn what_varies_by_everything_is_not_kept(driver) {
        let backend = counting();
        let server = Server::start(&CONF.replace("BACKEND", &backend.port().to_string()));
        for path in ["/star", "/stars", "/starlast", "/starin"] {
            for _ in 0..2 {
                assert_eq!(server.get(path).field("X-Cache"), Some("MISS []"), "{path}");
            }
        }
        let states = [server.get("/starname"), server.get("/starname")];
        assert_eq!(states.map(|response| response.field("X-Cache").map(str::to_owned)), ["MISS []", "HIT []"].map(|state| Some(state.to_owned())));
    }

    /// nginx takes months in capitals, as far as their letters are those that it looks at.
    fn months_count_in_any_letter_case(driver) {
        let backend = counting();
        let server = Server::start(&CONF.replace("BACKEND", &backend.port().to_string()));
        for (path, second) in [("/capitals", "HIT []"), ("/small", "HIT []"), ("/dashes", "HIT []"), ("/asctime", "HIT []"), ("/nomonth", "MISS []")] {
            assert_eq!(server.get(path).field("X-Cache"), Some("MISS []"), "{path}");
            assert_eq!(server.get(path).field("X-Cache"), Some(second), "{path}");
        }
    }

    /// A short response is written at once when it is whole; a client does not wait for that where its server stops.
    fn a_short_response_whose_server_stops_comes_as_far_as_it_is_there(driver) {
        let (gate, turn) = mpsc::channel::<()>();
        let turn = Mutex::new(turn);
        let backend = Backend::start(move |visit| {
            while visit.head().is_some() {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nCache-Control: max-age=100\r\n\r\nfirst");
                turn.lock().expect("no panic").recv().expect("the test lets it go on");
                visit.send("-rest");
            }
        });
        let server = Server::start(&CONF.replace("BACKEND", &backend.port().to_string()));
        let mut client = server.client();
        client.send("GET /stops HTTP/1.1\r\nHost: h\r\n\r\n").until("first");
        gate.send(()).expect("the server waits");
        let states = [client.response(), server.get("/stops")].map(|response| {
            (response.text().to_owned(), response.field("X-Cache").map(str::to_owned))
        });
        let expected = ["MISS []", "HIT []"].map(|state| ("first-rest".to_owned(), Some(state.to_owned())));
        assert_eq!(states, expected);
    }

    fn answers_come_from_where_nginx_s_do(driver) {
        let backend = counting();
        let conf = CONF.replace("BACKEND", &backend.port().to_string());
        let server = Server::builder(&conf).allow("upstream").allow("cache \"none\" not found").start();
        let (ours, we_asked) = ask(&server, &backend);
        // Another server for nginx: this one has counted.
        let backend = counting();
        let conf = CONF.replace("BACKEND", &backend.port().to_string());
        let Some(nginx) = weir_test::nginx(&format!("events {{ }} {conf}")) else { return };
        let nginx = nginx.allow("upstream").allow("cache \"none\" not found").start();
        let (theirs, they_asked) = ask(&nginx, &backend);
        let differ: Vec<String> = CASES
            .iter()
            .zip(ours.iter().zip(&theirs))
            .filter(|(_, (ours, theirs))| ours != theirs)
            .map(|(case, (ours, theirs))| format!("{case:?}\n  weir:  {ours}\n  nginx: {theirs}"))
            .collect();
        assert!(differ.is_empty(), "{}", differ.join("\n"));
        assert_eq!(we_asked, they_asked, "requests to the server");
    }
}
