//! FastCGI: the same application behind nginx and Weir gets the same requests, and clients the same responses; php-fpm
//! as a real process.

use crate::support;

use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use weir_test::{
    Backend, FcgiApp, FcgiOut, FcgiRequest, RequestKind, Response, Server, ServerSignal, both_drivers,
    require_program, send_signal, wait_for,
};

use FcgiOut::{End, Raw, Stderr, Stdout};
use support::{pattern, upload};

/// One request and the application's response.
struct Case {
    request: String,
    answer: Vec<FcgiOut>,
}

fn case(request: impl Into<String>, answer: Vec<FcgiOut>) -> Case {
    Case { request: request.into(), answer }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn out(text: &str) -> FcgiOut {
    Stdout(text.into())
}

/// What an application may say, wrong things included.
fn answers() -> Vec<Case> {
    let whole = |text: &str| FcgiOut::answer(text);
    let unlike = |pieces: Vec<FcgiOut>| case(get("/x"), pieces);
    let ok = "Content-Type: text/plain\r\n\r\nhello";
    vec![
        unlike(whole(ok)),
        unlike(whole("Status: 404 Nowhere\nX-A: 1\nx-a: 2\n\nlines of LF")),
        unlike(whole("Status: 204 No Content\r\n\r\n")),
        unlike(whole("Status: 403 Forbidden\r\nContent-Type: text/html; charset=utf-8\r\n\r\nno")),
        unlike(whole("Location: http://elsewhere/\r\n\r\n")),
        unlike(whole("Location: /here\r\n\r\nmoved")),
        unlike(whole("Status: 4x4 Bad\r\n\r\n")),
        unlike(whole("Content-Length: 5\r\n\r\nhello")),
        unlike(whole("Content-Length: 3\r\n\r\nhello")),
        unlike(whole("Content-Length: 9\r\n\r\nhello")),
        unlike(whole(
            "Server: app\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nX-Powered-By: PHP\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n",
        )),
        unlike(whole("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nETag: \"x\"\r\n\r\nx")),
        unlike(whole("X-Accel-Redirect: /inside?a=b\r\nSet-Cookie: kept=1\r\n\r\n")),
        case("HEAD /x HTTP/1.1\r\nHost: localhost\r\n\r\n", whole(ok)),
        unlike(vec![Stderr(b"PHP message: oh no.\n".to_vec()), out(ok), Stdout(Vec::new()), End]),
        unlike(vec![
            out("Content-Type: text/plain\r\n\r\nhello"),
            Stderr(b"late".to_vec()),
            out("more"),
            End,
        ]),
        unlike(vec![Stderr(b"x".repeat(5000)), out(ok), Stdout(Vec::new()), End]),
        unlike(vec![Stderr(b"catch me".to_vec()), out(ok), Stdout(Vec::new()), End]),
        unlike(vec![out("Content-"), out("Type: text/pl"), out("ain\r\n\r"), out("\nhel"), out("lo"), End]),
        unlike(vec![Stdout(Vec::new()), End]),
        unlike(vec![End]),
        unlike(vec![Raw(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())]),
        unlike(vec![Raw(vec![1, 9, 0, 1, 0, 0, 0, 0])]),
        unlike(vec![Raw(vec![1, 6, 0, 2, 0, 0, 0, 0])]),
        unlike(vec![]),
        unlike(vec![out("Content-Type: text/plain\r\n")]),
        unlike(vec![out("Content-Type: text/plain\r\n\r\ncut")]),
        unlike(vec![out(&format!("X-Long: {}\r\n\r\n", "x".repeat(5000))), End]),
        unlike(vec![
            out(&format!("\r\n{}", "y".repeat(60_000))),
            out(&"z".repeat(60_000)),
            Stdout(Vec::new()),
            End,
        ]),
    ]
}

/// What a server may send.
fn requests() -> Vec<Case> {
    let ask = |request: &str| case(request, FcgiOut::answer("\r\nok"));
    let body = |path: &str, length: usize| ask(&(upload(path, length) + &text(length)));
    vec![
        ask(
            "GET /x?a=b%20c HTTP/1.1\r\nHost: localhost\r\nX-Two: 1\r\nCookie: a=1\r\nX_Y: lost\r\nEmpty:\r\n\r\n",
        ),
        ask("GET /x HTTP/1.0\r\n\r\n"),
        ask(&get("/app/index.php/path/info?x")),
        ask(&get("/app/%41.php")),
        ask(&get("/dir/")),
        ask(&get("/plain")),
        ask(&get("/if/x?hand=1")),
        ask("POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
        ask("POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"),
        body("/x", 3),
        body("/x", 70_000),
        body("/file/x", 100_000),
        body("/flow/x", 100_000),
        body("/bodyless/x", 10),
        ask(&format!("GET /long HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n", "l".repeat(7000))),
    ]
}

fn text(length: usize) -> String {
    String::from_utf8(pattern(length)).expect("letters")
}

fn conf(port: u16) -> String {
    format!(
        "http {{ fastcgi_catch_stderr 'catch me'; fastcgi_param URI $request_uri; fastcgi_param LENGTH $content_length;
            fastcgi_param METHOD $request_method; fastcgi_param NONE $arg_none; fastcgi_param NOT $arg_none if_not_empty;
            fastcgi_param SCRIPT $fastcgi_script_name; fastcgi_param INFO $fastcgi_path_info;
            fastcgi_param HTTP_EMPTY set;
            server {{ listen 127.0.0.1:%%PORT%%; fastcgi_index index.php;
            location / {{ fastcgi_pass 127.0.0.1:{port}; }}
            location /inside {{ return 200 \"inside $args\"; }}
            location ~ ^/app {{ fastcgi_split_path_info ^(.+?\\.php)(/.*)$; fastcgi_pass 127.0.0.1:{port}; }}
            location /quiet/ {{ fastcgi_pass_request_headers off; fastcgi_pass 127.0.0.1:{port}; }}
            location /file/ {{ client_body_in_file_only clean; fastcgi_pass 127.0.0.1:{port}; }}
            location /flow/ {{ fastcgi_request_buffering off; fastcgi_pass 127.0.0.1:{port}; }}
            location /bodyless/ {{ fastcgi_pass_request_body off; fastcgi_pass 127.0.0.1:{port}; }}
            location /if/ {{ set $to 127.0.0.1:{port}; if ($arg_hand) {{ fastcgi_pass $to; }} }}
        }} }}"
    )
}

/// A response's status, reason, fields and body.
type Shown = (u16, String, Vec<(String, String)>, String);

/// What came of one case: the client's response, what the application got, what was logged.
#[derive(Debug, PartialEq)]
struct Outcome {
    answer: Result<Shown, String>,
    got: Vec<FcgiRequest>,
    logged: Vec<String>,
}

/// Asks everything in `cases` of a server started from the configuration.
fn ask(start: impl Fn(&str) -> Server, cases: &[Case]) -> Vec<Outcome> {
    let answer = Arc::new(Mutex::new(Vec::new()));
    let got = Arc::new(Mutex::new(Vec::new()));
    let (answers, seen) = (answer.clone(), got.clone());
    let app = FcgiApp::start(move |request| {
        seen.lock().expect("no panic").push(request.clone());
        answers.lock().expect("no panic").clone()
    });
    let server = start(&conf(app.port()));
    let mut outcomes = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        *answer.lock().expect("no panic") = case.answer.clone();
        let mut client = server.client();
        client.send(case.request.replace("localhost", &format!("h{number}")));
        let response = client.try_response_to(RequestKind::of(case.request.as_bytes()));
        client.half_close();
        let _ = client.rest();
        let answer = response.map(shown).map_err(|_| "broken off".to_owned());
        outcomes.push(Outcome {
            answer,
            got: std::mem::take(&mut got.lock().expect("no panic")),
            logged: Vec::new(),
        });
    }
    let mut server = server;
    let log = server.quit().error_log;
    for (number, outcome) in outcomes.iter_mut().enumerate() {
        outcome.logged = messages(&log, number);
    }
    outcomes
}

/// Without what always differs.
fn shown(response: Response) -> Shown {
    let own = |name: &str, value: &str| {
        name.eq_ignore_ascii_case("date") && !value.contains("1970")
            || name.eq_ignore_ascii_case("server") && value != "app"
    };
    let page = response.status >= 300 && response.text().contains("<hr>");
    let fields = response
        .fields
        .iter()
        .filter(|(name, value)| !(own(name, value) || page && name.eq_ignore_ascii_case("content-length")));
    let mut fields: Vec<_> = fields.cloned().collect();
    // nginx writes some before, some after its own.
    fields.sort();
    let body = if page { "page".to_owned() } else { response.text() };
    (response.status, response.reason.clone(), fields, body)
}

/// The messages about the case of this number, without their context.
fn messages(log: &str, number: usize) -> Vec<String> {
    let mark = format!("host: \"h{number}\"");
    let about = |line: &str| {
        let level =
            ["[warn]", "[error]", "[crit]", "[alert]"].into_iter().find(|level| line.contains(level))?;
        let message = line.contains(&mark).then(|| line.split_once(": *")?.1.split_once(' '))??.1;
        let message = message.split(", client:").next()?;
        // nginx logs the file that a body is buffered in, and of long messages in pieces.
        (!message.contains("temporary file") && !message.contains("xxxx"))
            .then(|| format!("{level} {message}"))
    };
    log.lines().filter_map(about).collect()
}

fn compare(cases: &[Case]) {
    if require_program("nginx").is_none() {
        return;
    }
    let nginx = |conf: &str| weir_test::nginx(conf).expect("it is there").allow("[").start();
    let theirs = ask(nginx, cases);
    let ours = ask(|conf| Server::builder(conf).allow("[").start(), cases);
    let mut different = Vec::new();
    for (number, (case, (theirs, ours))) in cases.iter().zip(theirs.iter().zip(&ours)).enumerate() {
        if theirs != ours {
            let line = case.request.lines().next().unwrap_or_default();
            different.push(format!("{number} {line}\nnginx {}\nweir  {}", brief(theirs), brief(ours)));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

fn brief(outcome: &Outcome) -> String {
    format!("{outcome:?}").chars().take(900).collect()
}

both_drivers! {
    fn answers_are_taken_as_nginx_takes_them(driver) {
        compare(&answers());
    }

    fn requests_are_those_of_nginx(driver) {
        compare(&requests());
    }

    /// nginx does so from 1.23 on; the host is what the target says from 1.31 on.
    fn lines_of_one_name_are_one_parameter(driver) {
        let app = FcgiApp::start(|request| {
            let values = ["HTTP_X_TWO", "HTTP_COOKIE", "HTTP_HOST"].map(|name| request.param(name));
            FcgiOut::answer(&format!("\r\n{}", values.join("|")))
        });
        let server = Server::start(&conf(app.port()));
        let request = "GET http://A:81/ HTTP/1.1\r\nHost: Other\r\nX-Two: 1\r\nCookie: a=1\r\nx-two: 2\r\nCookie: b=2\r\n\r\n";
        assert_eq!(server.client().request(request).text(), "1, 2|a=1; b=2|a:81");
    }

    /// The guard against a field that programs take for a setting of theirs, and the host of a client that names none.
    fn what_is_written_empty_is_withheld(driver) {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let noted = sent.clone();
        let app = FcgiApp::start(move |request| {
            *noted.lock().expect("no panic") = request.params.clone();
            let names = ["HTTP_PROXY", "HTTP_X_A", "HTTP_X_B", "HTTP_X_C", "EMPTY", "HTTP_", "HTTP_HOST"];
            let values = names.map(|name| format!("{name}={:?}", request.param(name)));
            FcgiOut::answer(&format!("\r\n{}", values.join(" ")))
        });
        let server = Server::start(&format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; server_name named; location / {{ fastcgi_pass 127.0.0.1:{};
                fastcgi_param HTTP_PROXY \"\"; fastcgi_param HTTP_x_a ''; fastcgi_param HTTP_X_B $arg_none; fastcgi_param EMPTY '';
                fastcgi_param HTTP_ ''; }} }} }}",
            app.port()
        ));
        let fields = "Proxy: evil\r\nX-A: 1\r\nX-B: 2\r\nX-C: 3\r\n";
        let answer = server.client().request(format!("GET / HTTP/1.0\r\n{fields}\r\n"));
        assert_eq!(
            answer.text(),
            "HTTP_PROXY=\"\" HTTP_X_A=\"\" HTTP_X_B=\"\" HTTP_X_C=\"3\" EMPTY=\"\" HTTP_=\"\" HTTP_HOST=\"named\""
        );
        let sent = sent.lock().expect("no panic").clone();
        for (name, there) in [("HTTP_PROXY", false), ("HTTP_x_a", false), ("HTTP_X_B", true), ("EMPTY", true), ("HTTP_", true)] {
            assert_eq!(sent.iter().any(|(known, _)| known == name), there, "{name}: {sent:?}");
        }
    }

    /// The end of what is not sent on is not waited for, and yet the try has ended.
    fn a_head_alone_has_its_time(driver) {
        let app = Backend::start(|visit| {
            if visit.bytes(8).is_some() {
                visit.send(out("Content-Type: a/b\r\n\r\n").bytes());
                visit.hang();
            }
        });
        let server = Server::start(&format!(
            "http {{ log_format t '$request_method [$upstream_response_time]'; access_log %%DIR%%/access.log t;
                server {{ listen 127.0.0.1:%%PORT%%; location / {{ fastcgi_pass 127.0.0.1:{}; }} }} }}",
            app.port()
        ));
        let mut client = server.client();
        assert_eq!(client.request("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 200);
        let lines = server.access_log_lines(1);
        assert!(lines[0].starts_with("HEAD [0.") || lines[0].starts_with("HEAD [1"), "{lines:?}");
    }

    /// An application that only complains has its response read on and on, and others are served meanwhile; the log has no line
    /// for each byte.
    fn messages_without_end_hold_nobody_up(driver) {
        let over = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicUsize::new(0));
        let (ends, count) = (over.clone(), sent.clone());
        let app = Backend::start(move |visit| {
            let mut goes_on = visit.bytes(8).is_some() && visit.send(out("Content-Type: a/b\r\n\r\nhi").bytes());
            let messages = Stderr(b"x".to_vec()).bytes().repeat(4000);
            // A server that is held up would be so until the end; a gigabyte is enough of that.
            for _ in 0..30_000 {
                goes_on = goes_on && !ends.load(Ordering::Relaxed) && visit.send(&messages);
                count.fetch_add(1, Ordering::Relaxed);
            }
            visit.send([Stdout(Vec::new()).bytes(), End.bytes()].concat());
        });
        let server = Server::start(&format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; location /ok {{ return 200 ok; }}
                location / {{ fastcgi_pass 127.0.0.1:{}; }} }} }}",
            app.port()
        ));
        let mut client = server.client();
        client.send(get("/"));
        wait_for("megabytes of messages", || (sent.load(Ordering::Relaxed) > 100).then_some(()));
        (0..20).for_each(|_| assert_eq!(server.get("/ok").text(), "ok"));
        assert!(!over.swap(true, Ordering::Relaxed));
        assert_eq!(client.response().text(), "hi");
        let _ = server.error_log_line("FastCGI sent in stderr");
        let lines = server.error_log().matches("FastCGI sent in stderr").count();
        assert!((1..=1000).contains(&lines), "{lines} lines");
    }

    /// The rest of a response that is longer than it said is neither read nor reported, piece by piece.
    fn more_than_was_said_ends_the_response(driver) {
        let app = Backend::start(|visit| {
            let head = out("Content-Length: 2\r\n\r\nhi").bytes();
            let more = out("x").bytes().repeat(4000);
            let mut goes_on = visit.bytes(8).is_some() && visit.send(head);
            while goes_on {
                goes_on = visit.send(&more);
            }
        });
        let server = Server::start(&format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ fastcgi_pass 127.0.0.1:{}; fastcgi_keep_conn on; }} }} }}",
            app.port()
        ));
        let mut client = server.client();
        (0..3).for_each(|_| assert_eq!(client.request(get("/")).text(), "hi"));
        let lines = server.error_log().matches("more data than specified").count();
        assert!(lines <= 3, "{lines} lines for three responses");
    }

    /// A client that gets 100 waits for another response, and takes the next one for it.
    fn a_status_that_is_not_final_is_no_response(driver) {
        for (protocol, line) in [("fastcgi", "Status: "), ("scgi", "Status: "), ("uwsgi", "Status: "), ("scgi", "HTTP/1.1 "), ("uwsgi", "HTTP/1.1 ")] {
            for status in ["100 Continue", "103 Early", "199 x", "099 x", "2000"] {
                let app = Backend::start(move |visit| {
                    let head = format!("{line}{status}\r\nX: y\r\n\r\n");
                    if visit.bytes(8).is_some() {
                        visit.send(if protocol == "fastcgi" { [out(&head).bytes(), End.bytes()].concat() } else { head.into_bytes() });
                    }
                });
                let server = Server::start(&format!(
                    "http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ {protocol}_pass 127.0.0.1:{}; }} }} }}", app.port()));
                assert_eq!(server.get("/").status, 502, "{protocol} {line}{status}");
            }
        }
    }

    /// The end of a request before its response, with content or without.
    fn an_end_before_the_head_is_no_response(driver) {
        for end in [End.bytes(), vec![1, 3, 0, 1, 0, 0, 0, 0]] {
            let app = Backend::start(move |visit| {
                if visit.bytes(8).is_some() && visit.send(&end) {
                    visit.hang();
                }
            });
            let server = Server::start(&conf(app.port()));
            assert_eq!(server.get("/x").status, 502);
            let _ = server.error_log_line("upstream sent unexpected FastCGI record: 3");
        }
    }

    fn connections_are_kept_when_both_sides_wish(driver) {
        let app = FcgiApp::start(|_| vec![out("Content-Type: a/b\r\n\r\nhi"), Stdout(Vec::new()), End]);
        let server = Server::start(&format!(
            "http {{ upstream app {{ server 127.0.0.1:{}; keepalive 4; }} server {{ listen 127.0.0.1:%%PORT%%;
                location / {{ fastcgi_pass app; fastcgi_keep_conn on; }} }} }}",
            app.port()
        ));
        let mut client = server.client();
        for _ in 0..5 {
            assert_eq!(client.get("/").text(), "hi");
        }
        assert_eq!(app.visits(), 1);
    }

    fn php_runs(driver) {
        let Some(php) = php() else { return };
        let directory = weir_test::TempDir::new();
        let socket = directory.path().join("php.sock");
        directory.write("a.php", "<?php header('X-A: b'); echo $_SERVER['PATH_INFO'], '|', file_get_contents('php://input'); error_log('noted');");
        directory.write("fpm.conf", format!(
            "[global]\nerror_log={0}/fpm.log\ndaemonize=no\n[www]\nlisten={0}/php.sock\npm=static\npm.max_children=1\n\
             catch_workers_output=no\n",
            directory.path().display()
        ));
        let mut command = Command::new(php);
        command.stdout(Stdio::null()).stderr(Stdio::null()).args(["-n", "-F", "-R", "-y"]).arg(directory.path().join("fpm.conf"));
        let _fpm = Process(command.spawn().expect("php-fpm starts"));
        wait_for("php-fpm", || UnixStream::connect(&socket).ok());
        let server = Server::builder(&format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; root {root};
                location ~ \\.php(/|$) {{ fastcgi_split_path_info ^(.+?\\.php)(/.*)$; try_files $fastcgi_script_name =404;
                fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param PATH_INFO $fastcgi_path_info;
                fastcgi_param REQUEST_METHOD $request_method; fastcgi_param CONTENT_LENGTH $content_length;
                fastcgi_pass unix:{root}/php.sock; }} }} }}",
            root = directory.path().display()
        )).allow("FastCGI sent in stderr").start();
        let answer = server.client().request(upload("/a.php", 4) + "body");
        assert_eq!((answer.status, answer.field("x-a"), answer.text().as_str()), (200, Some("b"), "|body"), "{answer}");
        assert_eq!(server.get("/none.php").status, 404);
    }
}

/// Debian names the program by its version.
fn php() -> Option<std::path::PathBuf> {
    let versions = std::fs::read_dir("/usr/sbin").into_iter().flatten().flatten();
    let found = versions.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("/php-fpm"));
    found.or_else(|| require_program("php-fpm"))
}

/// Ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Its children end with it only when it is asked to. It may have ended by itself.
        let _ = send_signal(self.0.id(), ServerSignal::Term);
        let _ = self.0.wait();
    }
}
