//! Which content handler responds and which scripts run in `if`, `limit_except`, nested and named locations, and what
//! becomes of every outcome of an access script under `satisfy`; no request ends without a response.
//!
//! `data/handlers.tsv` has the responses of nginx with ngx_lua and echo (`conformance/handlers` asks it).

use weir_test::{Driver, ReceivedPart, RequestKind, Response, Server, both_drivers};

/// One line of the table.
struct Case {
    group: &'static str,
    name: &'static str,
    conf: &'static str,
    method: &'static str,
    target: &'static str,
    field: &'static str,
    /// Status, `X-H` and body, as nginx has them.
    wanted: [&'static str; 3],
}

/// How Weir responds otherwise on purpose: the part of a case's name, how it responds, and why.
const OTHERWISE: &[(&str, [&str; 3], &str)] = &[];

const TABLE: &str = include_str!("../data/handlers.tsv");

fn cases(group: &str) -> Vec<Case> {
    let cases = TABLE.lines().map(|line| {
        let cells: Vec<&'static str> = line.split('\t').collect();
        let [group, name, conf, method, target, field, status, shown, body] = cells[..] else {
            panic!("nine cells: {line}")
        };
        Case { group, name, conf, method, target, field, wanted: [status, shown, body] }
    });
    cases.filter(|case| case.group == group).collect()
}

fn conf(cases: &[Case]) -> String {
    let locations: String = cases.iter().map(|case| format!("{}\n", case.conf)).collect();
    format!(
        "worker_processes 1;
         events {{}}
         http {{
             lua_shared_dict logged 1m;
             default_type text/plain;
             variables_hash_max_size 4096;
             server {{
                 listen 127.0.0.1:%%PORT%%;
                 set $y 0;
                 set $z '';
                 location /target {{ echo target; }}
                 location @target {{ echo named; }}
                 location = /logged {{
                     content_by_lua_block {{ ngx.print(ngx.shared.logged:get(ngx.var.arg_of) or '-') }}
                 }}
                 {}
             }}
         }}",
        locations.replace("%DIR%", "%%DIR%%")
    )
}

/// The body as the table has it: pages have the product's name, and some bodies are of the moment.
fn shown(body: &str) -> String {
    if let Some(end) = body.rfind("</html>") {
        return format!("*{}", body[end + 7..].trim());
    }
    if body.starts_with("GIF89a") || body.starts_with("Active connections") {
        return "*".to_owned();
    }
    body.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t")
}

fn ask(server: &Server, case: &Case) -> [String; 3] {
    let mut head = format!("{} {} HTTP/1.0\r\nHost: a\r\n", case.method, case.target);
    if !case.field.is_empty() {
        head += &format!("{}\r\n", case.field);
    }
    if case.method == "POST" {
        head += "Content-Length: 0\r\n";
    }
    let got = server.raw(format!("{head}\r\n"));
    // To the connection's end: body filters may say more than the length that is in the head.
    let text = String::from_utf8_lossy(&got).into_owned();
    let (Ok(Some((got, _))), Some((_, body))) =
        (Response::parse_to(RequestKind::Head, &got, ReceivedPart::All), text.split_once("\r\n\r\n"))
    else {
        return ["0".to_owned(), "-".to_owned(), String::new()];
    };
    let field = got.field("X-H").unwrap_or("-").to_owned();
    [got.status.to_string(), field, shown(body)]
}

/// What the location's log script has left, which runs when the response is out.
fn logged(server: &Server, case: &Case) -> String {
    let path = case.target.split('?').next().unwrap_or_default();
    server.get(&format!("/logged?of={path}")).text()
}

fn compare(group: &str, driver: Driver) {
    let cases = cases(group);
    assert!(cases.len() > 50, "the table has cases of {group}");
    let server = Server::builder(&conf(&cases))
        .driver(driver)
        .file("content.lua", "ngx.say('file ', ngx.var.y)\n")
        .file("page.txt", "page\n")
        .file("users", "u:{PLAIN}p\n")
        .start();
    let mut wrong = Vec::new();
    for case in &cases {
        let mut got = ask(&server, case);
        if case.name.starts_with("log") {
            got[1] = logged(&server, case);
        }
        let otherwise = OTHERWISE.iter().find(|(name, ..)| *name == case.name).map(|(_, wanted, _)| *wanted);
        let wanted = otherwise.unwrap_or(case.wanted);
        if got != wanted {
            wrong.push(format!("{}: {wanted:?}, not {got:?}\n    {}", case.name, case.conf));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

both_drivers! {
    fn content_handlers_in_every_block_are_nginx_s(driver) {
        compare("handlers", driver);
    }

    fn scripts_in_every_block_are_openresty_s(driver) {
        compare("scripts", driver);
    }

    fn outcomes_of_access_scripts_under_satisfy_are_openresty_s(driver) {
        compare("satisfy", driver);
    }
}

/// What begins a response in each way there is.
const SPEAKERS: &[&str] = &[
    "echo body;",
    "echo_duplicate 3 body;",
    "echo_flush; echo late;",
    "echo_sleep 0.001; echo late;",
    "echo_location /target;",
    "echo_location_async /target;",
    "echo_before_body before; root %%DIR%%; try_files /page.txt =404;",
    "return 200 body;",
    "empty_gif;",
    "stub_status;",
    "root %%DIR%%; try_files /page.txt =404;",
    "proxy_pass http://127.0.0.1:%%PORT%%/target;",
    "proxy_buffering off; proxy_pass http://127.0.0.1:%%PORT%%/target;",
    "content_by_lua_block { ngx.say('body') }",
    "content_by_lua_block { ngx.say('body') ngx.flush(true) ngx.say('more') }",
    "content_by_lua_block { ngx.send_headers() ngx.say('body') }",
    "content_by_lua_block { ngx.say('body') ngx.eof() }",
    "content_by_lua_block { ngx.sleep(0.001) ngx.print('body') }",
    "content_by_lua_block { ngx.say(ngx) }",
    "content_by_lua_block { ngx.print({ a = 1 }) }",
    "content_by_lua_block { ngx.sleep(0.001) ngx.say(print) }",
    "content_by_lua_block { ngx.say('body') error('late') }",
    "content_by_lua_block { ngx.thread.spawn(function() ngx.say(ngx) end) }",
    "access_by_lua_block { ngx.say(ngx) } echo body;",
    "rewrite_by_lua_block { ngx.say(ngx) } echo body;",
    "rewrite_by_lua_block { ngx.say('body') } echo body;",
    "access_by_lua_block { ngx.say('body') ngx.flush() } echo body;",
    "precontent_by_lua_block { ngx.say(ngx) } echo body;",
];

/// What a request may bring that its response is not for.
const CONDITIONS: &[&str] = &[
    "",
    "If-Match: \"no\"\r\n",
    "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:01 GMT\r\n",
    "Range: bytes=900000-\r\n",
    "If-None-Match: *\r\n",
    "Expect: 100-continue\r\nContent-Length: 0\r\n",
];

/// What filters have to say to a response.
const FILTERS: &[&str] = &[
    "",
    "header_filter_by_lua_block { error('no') }",
    "header_filter_by_lua_block { ngx.exit(503) }",
    "body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1] }",
    "error_page 412 500 = /target;",
];

/// Handlers x conditions x filters x methods: each request has a response, or at least a line in the error log.
fn none_ends_in_silence(driver: Driver) {
    let mut locations = String::new();
    for (at, speaker) in SPEAKERS.iter().enumerate() {
        for (beside, filter) in FILTERS.iter().enumerate() {
            locations += &format!("location /c{at}/{beside} {{ {speaker} {filter} }}\n");
        }
    }
    let server = Server::builder(&format!(
        "worker_processes 1;
         http {{
             default_type text/plain;
             server {{
                 listen 127.0.0.1:%%PORT%%;
                 location = /target {{ return 200 'target'; }}
                 {locations}
             }}
         }}"
    ))
    .driver(driver)
    .file("page.txt", "page\n")
    .allow("[error]")
    .allow("[alert]")
    .start();
    let mut silent = Vec::new();
    for (at, speaker) in SPEAKERS.iter().enumerate() {
        for (beside, filter) in FILTERS.iter().enumerate() {
            for (condition, method) in CONDITIONS
                .iter()
                .flat_map(|condition| ["GET", "HEAD", "POST"].map(|method| (condition, method)))
            {
                let head = format!(
                    "{method} /c{at}/{beside} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{condition}\r\n"
                );
                if !server.raw(head).starts_with(b"HTTP/1.1 ") {
                    silent.push(format!("{method} with {condition:?} of {speaker} {filter}"));
                }
            }
        }
    }
    assert!(silent.is_empty(), "{} requests without a response:\n{}", silent.len(), silent.join("\n"));
}

both_drivers! {
    fn every_request_has_a_response(driver) {
        none_ends_in_silence(driver);
    }

    fn a_failing_precondition_of_a_piecewise_response_is_412(driver) {
        let server = Server::builder(
            "http { server { listen 127.0.0.1:%%PORT%%; location /e { echo hi; }
             location /s { content_by_lua_block { ngx.say(ngx) } } } }",
        )
        .driver(driver)
        .allow("bad argument #1 to 'say'")
        .start();
        let asked = |fields: &str| server.client().request(format!("GET /e HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(asked("If-Match: \"no\"\r\n").status, 412);
        assert_eq!(asked("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:01 GMT\r\n").status, 412, "without a date, too");
        assert_eq!(asked("").text(), "hi\n");
        assert_eq!(server.get("/s").status, 500);
    }

    /// `auth_require` and `internal_redirect`, by the manual of nginx, whose commercial edition has them.
    fn access_by_variables_and_then_another_location(driver) {
        let server = Server::builder(
            "http { server { listen 127.0.0.1:%%PORT%%; auth_require $arg_a;
                location / { return 200 plain; }
                location /two { auth_require $arg_b $arg_c error=401; auth_require $arg_d; return 200 two; }
                location /any { satisfy any; deny all; return 200 any; }
                location /open { auth_require off; return 200 open; }
                location /in { auth_require $arg_a; internal_redirect $arg_to?via=$uri; }
                location /named { internal_redirect @named; }
                location @named { internal; auth_require $arg_a; return 200 named$args; }
                location /stay { auth_require off; internal_redirect $arg_none; try_files /none =404; }
                location /to { auth_require off; internal; return 200 $args; } } }",
        )
        .driver(driver)
        .allow("access forbidden by rule")
        .start();
        for (target, status, text) in [
            ("/file?a=1", 200, "plain"),
            ("/file", 200, "plain"),
            ("/two?b=1&c=1&d=1", 200, "two"),
            ("/open", 200, "open"),
            ("/any?a=1", 200, "any"),
        ] {
            let said = server.get(target);
            // `return` comes before the access phase.
            assert_eq!((said.status, said.text().as_str()), (status, text), "{target}");
        }
        for (target, status) in [("/in?to=/to", 403), ("/in?a=0&to=/to", 403), ("/named", 403), ("/to", 404), ("/stay", 404)] {
            assert_eq!(server.get(target).status, status, "{target}");
        }
        assert_eq!(server.get("/in?a=1&to=/to").text(), "via=/in");
        assert_eq!(server.get("/named?a=1").text(), "nameda=1");
    }

    fn what_auth_require_refuses_has_its_status(driver) {
        let server = Server::builder(
            "http { server { listen 127.0.0.1:%%PORT%%;
                location / { auth_require $arg_a $arg_b error=401; auth_require $arg_c; }
                location /any/ { satisfy any; deny all; auth_require $arg_a; alias html/; }
                location /from/ { allow all; auth_require $arg_a error=503; alias html/; } } }",
        )
        .driver(driver)
        .file("html/file", "x")
        .allow("access forbidden by rule")
        .start();
        for (target, status) in [
            ("/file", 401),
            ("/file?a=1", 401),
            ("/file?a=1&b=0", 401),
            ("/file?a=1&b=1", 403),
            ("/file?a=1&b=1&c=", 403),
            ("/file?a=1&b=1&c=00", 200),
            ("/any/file", 403),
            ("/any/file?a=1", 200),
            ("/from/file", 503),
            ("/from/file?a=1", 200),
        ] {
            assert_eq!(server.get(target).status, status, "{target}");
        }
    }
}
