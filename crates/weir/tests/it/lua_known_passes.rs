//! Requests that come to their script at the sight of their heads, and scripts that are polled while they wait: clients get and logs say
//! the same of heads that repeat and of heads that do not, whatever the scripts do.

use weir::modules::MODULES;
use weir_test::{Backend, BackendVisit, Client, Response, Server, both_drivers, wait_for};

use crate::support::inside::Running;
use crate::support::repeated;

/// What locations have, which are `/0/`, `/1/` and so on: and whether the second request with the same head comes to the script at
/// sight: a connection that ends has no second one. `PORT` is that of a server that echoes lines.
const LOCATIONS: &[(&str, bool)] = &[
    ("content_by_lua 'ngx.print(\"hello\")';", true),
    ("content_by_lua 'ngx.header.x_a = \"b\" ngx.say(1) ngx.say(2)';", true),
    ("content_by_lua 'if ngx.var.uri then ngx.exit(403) end ngx.say(1)';", true),
    ("content_by_lua 'local a = nil + 1';", false),
    ("content_by_lua 'ngx.say(1) error(\"late\")';", false),
    ("content_by_lua 'ngx.sleep(0.001) ngx.say(1)';", true),
    ("content_by_lua 'ngx.say(1) ngx.flush(true) ngx.say(2)';", true),
    ("content_by_lua 'ngx.exec(\"/0/\")';", true),
    ("content_by_lua 'ngx.redirect(\"/0/?a\", 302)';", true),
    (
        "content_by_lua 'ngx.print(ngx.location.capture(\"/0/\").body, ngx.location.capture(\"/5/\").body)';",
        true,
    ),
    ("access_by_lua 'ngx.ctx.a = 1'; content_by_lua 'ngx.say(ngx.ctx.a)';", false),
    ("rewrite_by_lua 'ngx.sleep(0.001)'; content_by_lua 'ngx.say(1)';", false),
    (
        "content_by_lua 'ngx.ctx.a = (ngx.ctx.a or 0) + 1 ngx.say(1)'; log_by_lua 'assert(ngx.ctx.a == 1)';",
        true,
    ),
    ("content_by_lua 'ngx.say(\"a\")'; header_filter_by_lua 'ngx.header.x_a = ngx.status';", true),
    ("content_by_lua 'ngx.say(\"a\")'; body_filter_by_lua 'ngx.arg[1] = ngx.arg[1]:upper()';", true),
    ("content_by_lua 'ngx.req.read_body() ngx.say(ngx.req.get_body_data(), ngx.var.args)';", true),
    (
        "content_by_lua 'ngx.req.set_header(\"X-N\", 9) ngx.say(ngx.req.get_headers()[\"x-n\"], ngx.var.http_x_n)';",
        true,
    ),
    ("content_by_lua 'ngx.say(ngx.ctx.a, #ngx.req.raw_header(), ngx.req.get_method()) ngx.ctx.a = 1';", true),
    (
        "content_by_lua 'local t = ngx.thread.spawn(function() ngx.sleep(0.001) ngx.say(1) return 2 end) ngx.say(ngx.thread.wait(t))';",
        true,
    ),
    (
        "content_by_lua 'local f = coroutine.wrap(function(a) a = coroutine.yield(a + 1) ngx.say(a) end) ngx.say(f(1)) f(5)';",
        true,
    ),
    ("content_by_lua 'ngx.exit(444)';", false),
    ("content_by_lua 'ngx.say(1) ngx.eof() ngx.sleep(0.001) ngx.ctx.a = 1';", true),
    ("lua_need_request_body on; content_by_lua 'ngx.say(ngx.req.get_body_data())';", true),
    ("keepalive_requests 3; content_by_lua 'ngx.say(1)';", true),
    ("set $a b; content_by_lua 'ngx.say(ngx.var.a)';", false),
    ("content_by_lua 'ngx.status = 404 ngx.say(1)';", true),
    (
        "content_by_lua 'local s = ngx.socket.tcp() assert(s:connect(\"127.0.0.1\", PORT)) s:send(\"a\\\\n\") ngx.say(s:receive()) \
         s:setkeepalive()';",
        true,
    ),
    (
        "lua_socket_log_errors off; content_by_lua 'local s = ngx.socket.tcp() s:settimeout(20) s:connect(\"127.0.0.1\", PORT) \
         s:send(\"wait\\\\n\") ngx.say(s:receive()) ngx.say(s:close())';",
        true,
    ),
    (
        "content_by_lua 'local s = ngx.socket.tcp() s:connect(\"127.0.0.1\", PORT, {pool = \"own\"}) s:send(\"a\\\\nb\\\\n\") \
         ngx.say(s:receive(), s:receive(2)) s:setkeepalive(1000, 2)';",
        true,
    ),
    ("content_by_lua 'local sema = require(\"ngx.semaphore\").new() ngx.say(sema:wait(0.002))';", true),
    ("content_by_lua 'ngx.say(ngx.req.socket())';", true),
    ("lua_check_client_abort on; content_by_lua 'ngx.sleep(0.001) ngx.say(1)';", true),
    (
        "lua_check_client_abort on; content_by_lua 'ngx.on_abort(function() end) ngx.sleep(0.001) ngx.say(1)';",
        true,
    ),
    ("content_by_lua 'ngx.sleep(0.001) ngx.exit(200)';", true),
    ("content_by_lua 'ngx.sleep(0.001) error(\"on purpose\")';", false),
    ("error_page 503 = /0/; content_by_lua 'ngx.sleep(0.001) ngx.exit(503)';", true),
    ("content_by_lua 'ngx.sleep(0.001) ngx.exec(\"/1/\")';", true),
    ("content_by_lua 'ngx.say(1) ngx.flush(true) ngx.sleep(0.001) error(\"late\")';", false),
    ("content_by_lua 'ngx.say(1) ngx.sleep(0.001) ngx.send_headers() ngx.sleep(0.001) ngx.exit(0)';", true),
    ("content_by_lua 'ngx.send_headers() ngx.exit(0)';", true),
    ("content_by_lua 'ngx.print((\"x\"):rep(200000))';", true),
    ("content_by_lua 'ngx.thread.spawn(function() ngx.sleep(0.001) ngx.exit(410) end) ngx.sleep(9)';", true),
    (
        "content_by_lua 'ngx.sleep(0.001) ngx.print(ngx.location.capture(\"/5/\").body) ngx.sleep(0.001)';",
        true,
    ),
    ("content_by_lua 'ngx.sleep(0.001) ngx.req.read_body() ngx.say(1)';", true),
    ("content_by_lua 'for _ = 1, 5 do ngx.sleep(0) end ngx.say(1)';", true),
    ("limit_except POST { deny all; } content_by_lua 'ngx.say(1)';", false),
    ("internal; content_by_lua 'ngx.say(1)';", false),
    ("satisfy any; allow all; content_by_lua 'ngx.say(1)';", false),
    ("error_log debug.log debug; content_by_lua 'ngx.say(1)';", false),
    ("profile off; content_by_lua 'ngx.sleep(0.001) ngx.say(1)';", true),
    ("access_by_lua 'ngx.sleep(0.001) ngx.exit(401)'; content_by_lua 'ngx.say(1)';", false),
    ("access_by_lua 'ngx.sleep(0.001)'; content_by_lua 'ngx.sleep(0.001) ngx.say(1)';", false),
    ("content_by_lua 'ngx.sleep(0.001) ngx.redirect(\"/0/\")'; post_action /0/;", true),
];

const FORMAT: &str = "$status|$request|$uri|$args|$bytes_sent|$body_bytes_sent|$request_length|$request_completion|\
    $sent_http_content_type|$sent_http_content_length|$sent_http_connection|$sent_http_x_a|$cause|$pipe|$http_x_n";

/// So many requests with one head: the first is read, the second recalled, the others come to their script at sight.
const TIMES: usize = 6;

/// What a client gets, without what differs by the second; `None`: the connection ended.
type Seen = Option<(Vec<String>, String)>;

fn conf(port: u16) -> String {
    let location =
        |(number, (text, _)): (usize, &(&str, bool))| format!("location /{number}/ {{ {text} }}\n");
    let locations: String = LOCATIONS.iter().enumerate().map(location).collect();
    format!(
        "http {{ keepalive_requests 1000000; log_format f '{FORMAT}'; access_log access.log f;
        server {{ listen 127.0.0.1:%%PORT%%; default_type text/plain; {locations} }} }}"
    )
    .replace("PORT)", &format!("{port})"))
    .replace("PORT,", &format!("{port},"))
}

fn settled(response: &Response) -> (Vec<String>, String) {
    let head = response.head_text();
    let lines = head.lines().filter(|line| !line.starts_with("Date: "));
    (lines.map(str::to_owned).collect(), response.text())
}

/// Requests for `path`, all with one head, or each with another one.
fn ask(server: &Server, path: &str, alike: bool) -> Vec<Seen> {
    repeated::ask(server, path, repeated::numbers(alike, TIMES), settled)
}

/// Lines of a log that speak of requests for `path`, once there are so many.
fn lines_of(server: &Server, log: &str, path: &str, count: usize) -> Vec<String> {
    repeated::log_lines(server, log, &format!("GET {path} HTTP"), count)
}

/// Says each line again; `wait` it keeps for itself.
fn echoing(visit: &mut BackendVisit) {
    let mut line = Vec::new();
    while let Some(byte) = visit.bytes(1) {
        line.extend(byte);
        if line.ends_with(b"wait\n") {
            return visit.hang();
        }
        if line.ends_with(b"\n") && !visit.send(std::mem::take(&mut line)) {
            return;
        }
    }
}

fn started(conf: &str) -> Server {
    Server::builder(conf).allow("[error]").allow("[warn]").allow("[crit]").start()
}

/// Scripts that share what runs have, and what they say each time.
const MIXED: &[(&str, &str)] = &[
    ("ngx.say(tostring(ngx.ctx.a)) ngx.ctx.a = 1", "nil\n"),
    ("ngx.print(\"said\") ngx.sleep(0.001) ngx.print(\" later\")", "said later"),
    ("ngx.thread.spawn(function() ngx.sleep(0.002) ngx.say(2) end) ngx.say(1)", "1\n2\n"),
    ("ngx.say(coroutine.wrap(function() return ngx.get_phase() end)())", "content\n"),
    ("ngx.say(1) ngx.flush(true) ngx.sleep(0.001) ngx.say(2)", "1\n2\n"),
    ("local ok = pcall(ngx.sleep, 0.001) ngx.say(ok)", "true\n"),
    ("ngx.say(ngx.location.capture(\"/m0/\").status)", "200\n"),
    ("for at = 1, 40 do ngx.thread.spawn(function() ngx.sleep(at % 3 / 1000) end) end ngx.say(3)", "3\n"),
];

both_drivers! {
    /// Every location: clients and logs have the same of heads that repeat and of heads that do not.
    fn a_head_that_comes_again_gets_its_script_as_another_one(driver) {
        let backend = Backend::start(echoing);
        for workers in [1, 8] {
            let server = started(&format!("worker_processes {workers}; {}", conf(backend.port())));
            for (number, (text, _)) in LOCATIONS.iter().enumerate() {
                let path = format!("/{number}/?b");
                let (alike, unlike) = (ask(&server, &path, true), ask(&server, &path, false));
                assert_eq!(alike, unlike, "{text}");
                if !text.contains("keepalive_requests") {
                    assert!(alike.iter().all(|seen| *seen == alike[0]), "{text}: {alike:#?}");
                }
                let mut lines = lines_of(&server, "access.log", &path, 2 * TIMES);
                assert_eq!(lines.len(), 2 * TIMES, "{text}");
                let without = |line: &mut String| line.truncate(line.len() - 1);
                lines.iter_mut().for_each(without);
                // Clients that come to several workers have their lines written by several.
                if !text.contains("keepalive_requests") {
                    lines.sort();
                    lines.dedup();
                    assert_eq!(lines.len(), 1, "{text}: {lines:#?}");
                }
            }
            for (number, errors) in [(3, "arithmetic on a nil value"), (34, "on purpose"), (37, "late")] {
                let log = server.error_log();
                let of = |line: &&str| line.contains(&format!("GET /{number}/?b HTTP"));
                let lines = lines_of(&server, "error.log", &format!("/{number}/?b"), 2 * TIMES);
                assert_eq!(lines.len(), 2 * TIMES, "{errors}: {:#?}", log.lines().filter(of).collect::<Vec<_>>());
                assert!(log.matches(errors).count() >= 2 * TIMES, "{errors}");
            }
        }
    }

    /// Which requests do: what the other tests compare is not one way with itself.
    fn requests_come_to_their_scripts_at_sight(driver) {
        let backend = Backend::start(echoing);
        let text = conf(backend.port()).replace("127.0.0.1:%%PORT%%;", "%%ADDRESS%%;");
        let files = weir_test::TempDir::new();
        let text = text.replace("access_log access.log f;", "access_log off;");
        let text = text.replace("debug.log", &files.path().join("debug.log").display().to_string());
        let (_, http) = text.split_once('{').expect("a block");
        let running = Running::start(driver, MODULES, "", http.rsplit_once('}').expect("it ends").0);
        let mut wrong = Vec::new();
        for (number, (text, expected)) in LOCATIONS.iter().enumerate() {
            let ask = |client: &mut Client| {
                client.send(format!("GET /{number}/ HTTP/1.1\r\nHost: a\r\n\r\n"));
                client.try_response().is_ok_and(|response| response.keeps_alive())
            };
            let known = repeated::comes_at_sight(&running, TIMES, ask);
            if known != *expected {
                wrong.push(format!("{text} known: {known}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Nothing of a run is left for the next: scripts that end in all ways, at the same time, on connections that stay.
    fn runs_have_nothing_of_those_before(driver) {
        let location = |(at, (script, _)): (usize, &(&str, &str))| format!("location /m{at}/ {{ content_by_lua '{script}'; }}");
        let locations: Vec<String> = MIXED.iter().enumerate().map(location).collect();
        let failing = "location /fails/ { content_by_lua 'ngx.ctx.a = 2 ngx.sleep(0.001) ngx.header.x_a = 1 error(\"on purpose\")'; }
            location /exits/ { content_by_lua 'ngx.thread.spawn(function() ngx.sleep(0.001) ngx.exit(403) end) ngx.sleep(9)'; }";
        for workers in [1, 8] {
            let server = started(&format!(
                "worker_processes {workers}; http {{ access_log off; keepalive_requests 1000000;
                server {{ listen 127.0.0.1:%%PORT%%; {failing} {} }} }}",
                locations.join("\n")
            ));
            let mut clients: Vec<_> = (0..12).map(|_| server.client()).collect();
            for round in 0..40 {
                // Every client asks for another one each round, and for all of them in the end.
                let chosen = |client: usize| (round * 5 + client * 7) % (MIXED.len() + 2);
                for (at, client) in clients.iter_mut().enumerate() {
                    let path = match chosen(at) {
                        number if number < MIXED.len() => format!("/m{number}/"),
                        number if number == MIXED.len() => "/fails/".to_owned(),
                        _ => "/exits/".to_owned(),
                    };
                    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
                }
                for (at, client) in clients.iter_mut().enumerate() {
                    let response = client.response();
                    match MIXED.get(chosen(at)) {
                        Some((script, said)) => assert_eq!((response.status, response.text().as_str()), (200, *said), "{script}"),
                        None => assert!([500, 403].contains(&response.status), "{}", response.status),
                    }
                    if !response.keeps_alive() {
                        *client = server.client();
                    }
                }
            }
        }
    }

    /// A client that leaves ends a script that wants to know, and no other; what was sent for it stays the server's.
    fn clients_leave_while_their_scripts_wait(driver) {
        // Where the client's leaving ends it, the script would wait for longer than that may take.
        for (setting, ends, seconds) in [("off", 6, 0.1), ("on", 0, 600.0)] {
            let script = format!("local d = ngx.shared.d d:incr(\"began\", 1, 0) ngx.sleep({seconds}) d:incr(\"ended\", 1, 0) ngx.say(1)");
            let server = started(&format!(
                "http {{ lua_shared_dict d 1m; server {{ listen 127.0.0.1:%%PORT%%;
                location / {{ lua_check_client_abort {setting}; content_by_lua '{script}'; }}
                location /say {{ lua_check_client_abort {setting}; content_by_lua 'ngx.sleep(0.001) ngx.say(1)'; }}
                location /count {{ content_by_lua 'local d = ngx.shared.d ngx.print(d:get(\"began\") or 0, \" \", d:get(\"ended\") or 0)'; }} }} }}"
            ));
            let mut counts = server.client();
            for number in 1..=6 {
                let mut client = server.client();
                client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                let began = format!("{number} ");
                wait_for("the script", || counts.get("/count").text().starts_with(&began).then_some(()));
                client.abort();
            }
            if ends == 0 {
                wait_for("the log", || (server.error_log().matches("client prematurely closed connection").count() >= 6).then_some(()));
            }
            let all = format!("6 {ends}");
            wait_for("the scripts' ends", || (counts.get("/count").text() == all).then_some(()));
            assert_eq!(server.client().get("/say").text(), "1\n");
        }
    }

    /// A server that ends lets scripts that are polled come to their ends.
    fn a_server_ends_after_scripts_that_wait(driver) {
        let mut server = started(
            "http { lua_shared_dict d 1m; server { listen 127.0.0.1:%%PORT%%;
            location / { content_by_lua 'ngx.shared.d:set(\"began\", 1) ngx.sleep(0.2) ngx.say(1)'; }
            location /count { content_by_lua 'ngx.print(ngx.shared.d:get(\"began\"))'; } } }",
        );
        let mut counts = server.client();
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_for("the script", || (counts.get("/count").text() == "1").then_some(()));
        server.signal(weir_test::ServerSignal::Quit);
        assert_eq!(client.response().text(), "1\n");
        let _ = server.wait_exit();
    }

    /// After a reload the next request gets the new script.
    fn a_reload_changes_scripts(driver) {
        for workers in [1, 8] {
            let text = |number: usize| {
                format!(
                    "worker_processes {workers}; http {{ server {{ listen 127.0.0.1:%%PORT%%;
                    location / {{ content_by_lua 'ngx.sleep(0.001) ngx.print({number})'; }} }} }}"
                )
            };
            let mut server = started(&text(0));
            let mut client = server.client();
            let head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            (0..TIMES).for_each(|_| assert_eq!(client.request(head).text(), "0"));
            for number in [1, 2] {
                server.reload(&text(number));
                wait_for("the new server", || {
                    client = server.client();
                    (client.request(head).text() == number.to_string()).then_some(())
                });
                (0..TIMES).for_each(|_| assert_eq!(client.request(head).text(), number.to_string()));
            }
        }
    }
}
