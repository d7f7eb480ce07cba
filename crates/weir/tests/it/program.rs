//! The program as a user meets it: it serves files, checks configurations, obeys signals.

use crate::support;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use weir_test::{Client, Server, ServerSignal, TempDir, both_drivers, skip, wait_for};

use support::{assert_serves, get, wait_refused};

const CONF: &str = "http { server { listen 127.0.0.1:%%PORT%%; root html;
    location /return { return 200 \"$connection_requests $request_uri\"; }
    location /moved { return 301 /new; }
    location /away { return 302 http://other/x?$args; }
    location /gone { return 410; }
    location /nothing { return 204; }
    location /close { return 444; } } }";

fn started() -> Server {
    Server::builder(CONF).file("html/a.txt", "0123456789").file("html/big", support::pattern(8 << 20)).start()
}

/// The page nginx makes for a status, whatever product it names.
#[track_caller]
fn assert_page(text: &str, title: &str) {
    let start = format!(
        "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n<hr><center>"
    );
    assert!(text.starts_with(&start) && text.ends_with("</center>\r\n</body>\r\n</html>\r\n"), "{text}");
}

both_drivers! {
    fn files_are_served_on_a_connection_that_stays(driver) {
        let server = started();
        let mut client = server.client();
        let file = client.get("/a.txt");
        assert_eq!((file.status, file.reason.as_str(), file.text().as_str()), (200, "OK", "0123456789"));
        assert_eq!(file.field("content-length"), Some("10"));
        assert_eq!(file.field("connection"), Some("keep-alive"));
        assert_eq!(file.field("accept-ranges"), Some("bytes"));
        assert!(file.field("etag").is_some() && file.field("last-modified").is_some(), "{file}");
        assert!(file.field("date").is_some() && file.field("server").is_some(), "{file}");
        let head = client.request("HEAD /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, Some("10"), 0));
        let missing = client.get("/none");
        assert_eq!(missing.status, 404);
        assert_page(&missing.text(), "404 Not Found");
        assert_eq!(missing.field("content-type"), Some("text/html"));
        assert_eq!(client.get("/big").body, support::pattern(8 << 20));
        assert_eq!(client.get("/return").text(), "5 /return", "all on one connection");
        server.error_log_line("open() \"").contains("failed (2: No such file or directory)");
    }

    fn returns_are_as_written(driver) {
        let server = started();
        let moved = server.get("/moved");
        assert_eq!((moved.status, moved.field("location")), (301, Some(&*format!("http://localhost:{}/new", server.port(0)))));
        assert_page(&moved.text(), "301 Moved Permanently");
        assert_eq!(server.get("/away?a=b").field("location"), Some("http://other/x?a=b"));
        assert_page(&server.get("/gone").text(), "410 Gone");
        let nothing = server.get("/nothing");
        assert_eq!((nothing.status, nothing.field("content-length"), nothing.body.len()), (204, None, 0));
        assert_eq!(server.raw(get("/close")), b"", "444 is no answer");
    }

    /// One write, one connection, responses in order; each kind of response between others.
    fn pipelined_requests_are_answered_in_order(driver) {
        let server = started();
        let mut client = server.client();
        let paths: Vec<String> = (0..48)
            .map(|n| match n % 4 {
                0 => format!("/return/{n}"),
                1 => "/a.txt".to_owned(),
                2 => format!("/none/{n}"),
                _ => format!("/moved/{n}"),
            })
            .collect();
        client.send(paths.iter().map(|path| get(path)).collect::<String>());
        for (n, path) in paths.iter().enumerate() {
            let response = client.response();
            match n % 4 {
                0 => assert_eq!(response.text(), format!("{} {path}", n + 1)),
                1 => assert_eq!(response.text(), "0123456789"),
                2 => assert_eq!(response.status, 404),
                _ => assert_eq!(response.status, 301),
            }
        }
        let upload = "POST /return/u HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        client.send(format!("{upload}{upload}{}", get("/return/end")));
        assert_eq!(client.response().text(), "49 /return/u");
        assert_eq!(client.response().text(), "50 /return/u");
        assert_eq!(client.response().text(), "51 /return/end");
    }

    /// Large responses in a pipeline: each is whole although the client reads late.
    fn pipelined_large_files_are_whole(driver) {
        let server = started();
        let mut client = server.client();
        client.send(get("/big").repeat(4) + &get("/return"));
        for _ in 0..4 {
            assert!(client.response().body == support::pattern(8 << 20), "content");
        }
        assert_eq!(client.response().text(), "5 /return");
    }

    fn ranges_are_parts(driver) {
        let server = started();
        let ranged = |range: &str| {
            server.client().request(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nRange: bytes={range}\r\n\r\n"))
        };
        for (range, text, part) in [("2-4", "234", "2-4"), ("7-", "789", "7-9"), ("-2", "89", "8-9"), ("0-99", "0123456789", "0-9")] {
            let response = ranged(range);
            assert_eq!((response.status, response.text().as_str()), (206, text), "{response}");
            assert_eq!(response.field("content-range"), Some(&*format!("bytes {part}/10")));
        }
        let outside = ranged("10-");
        assert_eq!((outside.status, outside.field("content-range")), (416, Some("bytes */10")));
        let several = ranged("0-0,8-");
        assert_eq!(several.status, 206);
        let kind = several.field("content-type").unwrap_or_default();
        let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap_or_else(|| panic!("{several}"));
        let part = |range: &str, text: &str| {
            format!("\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes {range}/10\r\n\r\n{text}")
        };
        assert_eq!(several.text(), part("0-0", "0") + &part("8-9", "89") + &format!("\r\n--{boundary}--\r\n"));
    }

    fn the_command_line_is_nginxs(driver) {
        let server = Server::builder(CONF);
        let path = server.dir().join("nginx.conf").display().to_string();
        let test = server.run(&["-t"]);
        assert!(test.status.success(), "{test}");
        assert!(test.stderr.contains(&format!("the configuration file {path} syntax is ok\n")), "{test}");
        assert!(test.stderr.contains(&format!("configuration file {path} test is successful\n")), "{test}");
        assert_eq!(server.run(&["-t", "-q"]).stderr, "");
        let dump = server.run(&["-T"]);
        let text = fs::read_to_string(&path).expect("the harness wrote it");
        assert_eq!(dump.stdout, format!("# configuration file {path}:\n{text}\n"));
        for (option, words) in [("-v", "nginx version: nginx/"), ("-V", "configure arguments:"), ("-h", "-c filename")] {
            let exit = server.run(&[option]);
            assert!(exit.status.success() && exit.stderr.contains(words), "{option}: {exit}");
        }
        let wrong = server.run(&["-x"]);
        assert_eq!(wrong.status.code(), Some(1));
        assert!(wrong.stderr.contains("invalid option: \"x\""), "{wrong}");
        let more = server.run(&["-t", "-g", "worker_processes nonsense;"]);
        assert!(!more.status.success() && more.stderr.contains("\"worker_processes\" directive invalid value in command line"), "{more}");
    }

    fn a_wrong_configuration_is_told_and_not_served(driver) {
        let server = Server::builder("http {\n  server {\n    listn 127.0.0.1:%%PORT%%;\n  }\n}\n");
        let path = server.dir().join("nginx.conf").display().to_string();
        let words = format!("unknown directive \"listn\" in {path}:3");
        let test = server.run(&["-t"]);
        assert!(test.status.code() == Some(1) && test.stderr.contains(&words), "{test}");
        assert!(test.stderr.contains(&format!("configuration file {path} test failed")), "{test}");
        let exit = server.try_start().expect_err("it cannot serve this");
        assert!(exit.status.code() == Some(1) && exit.stderr.contains(&words), "{exit}");
    }

    fn a_second_server_on_the_address_gives_up(driver) {
        let first = started();
        let port = first.port(0);
        let second = Server::builder(&format!("http {{ server {{ listen 127.0.0.1:{port}; }} }}"));
        let exit = second.try_start().expect_err("the address is in use");
        assert_eq!(exit.status.code(), Some(1));
        let words = format!("[emerg] bind() to 127.0.0.1:{port} failed (98: Address already in use)");
        let log = exit.stderr.clone() + &exit.error_log;
        assert!(exit.stderr.contains(&words), "{exit}");
        assert!(log.contains("still could not bind()"), "{exit}");
        assert_eq!(first.get("/a.txt").status, 200, "the first one is unharmed");
    }

    /// QUIT: no new connections, idle ones are closed, what is under way is finished.
    fn quit_finishes_what_is_under_way(driver) {
        let mut server = started();
        let mut idle = server.client();
        assert_serves(&mut idle, "/a.txt", "0123456789");
        let mut slow = server.client();
        slow.send(get("/big"));
        slow.peek(1).expect("the answer has begun");
        server.signal(ServerSignal::Quit);
        wait_refused(&server);
        idle.expect_close();
        assert!(slow.response().body == support::pattern(8 << 20), "the whole file");
        slow.expect_close();
        let exit = server.wait_exit();
        assert!(exit.status.success(), "{exit}");
        assert!(!server.dir().path().join("nginx.pid").exists(), "its pid file is gone");
        assert_eq!(server.dir().read("access.log").lines().count(), 2);
    }

    /// TERM and INT: at once, whatever is under way; the requests cut off are logged.
    fn term_and_int_end_at_once(driver) {
        for signal in [ServerSignal::Term, ServerSignal::Int] {
            let mut server = started();
            let mut slow = server.client();
            slow.send(get("/big"));
            slow.peek(1).expect("the answer has begun");
            server.signal(signal);
            let exit = server.wait_exit();
            assert!(exit.status.success(), "{signal:?} {exit}");
            assert!(exit.error_log.contains("[notice]") && exit.error_log.contains("exit"), "{exit}");
            let (received, _) = slow.rest();
            assert!(received.len() < 8 << 20, "cut off");
        }
    }

    /// USR1: a log that was moved away is opened again, and no line is lost.
    fn usr1_opens_logs_anew(driver) {
        let mut server = started();
        let mut client = server.client();
        client.get("/return/1");
        let _ = server.access_log_lines(1);
        let path = |name: &str| server.dir().path().join(name);
        fs::rename(path("access.log"), path("access.old")).expect("it is there");
        fs::rename(path("error.log"), path("error.old")).expect("it is there");
        client.get("/return/2");
        wait_for("line in the moved log", || (server.dir().read("access.old").lines().count() == 2).then_some(()));
        server.signal(ServerSignal::Usr1);
        wait_for("new log", || server.dir().path().join("access.log").exists().then_some(()));
        wait_for("new error log", || server.dir().path().join("error.log").exists().then_some(()));
        // A master makes the files a moment before the server has them: lines until then are in the moved one.
        let mut asked = 2;
        wait_for("line in the new log", || {
            client.get("/return/3");
            asked += 1;
            server.dir().read("access.log").contains("/return/3").then_some(())
        });
        wait_for("every line, in one log or the other", || {
            let lines = |name: &str| server.dir().read(name).lines().count();
            (lines("access.old") + lines("access.log") == asked).then_some(())
        });
    }

    /// SOURCES 1: phase by phase, with the handler that responded and the filters it passed.
    fn trace_once_draws_the_next_request(driver) {
        let server = started();
        let mut asked = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["trace", "--once", "--all", "--match", "/a.txt", "-c", "nginx.conf", "-p"])
            .arg(server.dir().path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        // The question may arrive after the first of these requests.
        let mut client = server.client();
        let status = wait_for("trace", || {
            client.get("/return");
            client.get("/a.txt");
            asked.try_wait().expect("our child")
        });
        let mut tree = String::new();
        let mut output = asked.stdout.take().expect("piped");
        std::io::Read::read_to_string(&mut output, &mut tree).expect("text");
        assert!(status.success(), "{tree}");
        let mut at = 0;
        for phase in PHASES {
            let found = tree[at..].find(phase).unwrap_or_else(|| panic!("no {phase} behind byte {at} of\n{tree}"));
            at += found + phase.len();
        }
        assert!(tree.contains("GET /a.txt") && tree.contains("static"), "{tree}");
    }
}

/// The embedded configuration has a fixed port and chooses the driver itself.
#[test]
fn without_arguments_it_serves_a_welcome_page_and_the_directory() {
    if TcpListener::bind("127.0.0.1:8080").is_err() {
        return skip("somebody listens on port 8080");
    }
    let has_page = TcpListener::bind("127.0.0.1:9180").is_ok();
    let directory = TempDir::new();
    directory.write("sub/note.txt", "a note\n");
    let said = directory
        .path()
        .join("../")
        .join(format!("{}.out", directory.path().file_name().expect("it has one").display()));
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .current_dir(directory.path())
        .env("TMPDIR", "/tmp")
        .stdout(fs::File::create(&said).expect("the temporary folder"))
        .spawn()
        .expect("the program runs");
    let address = "127.0.0.1:8080".parse().expect("an address");
    wait_for("server", || TcpStream::connect(address).is_ok().then_some(()));
    let mut client = Client::connect(address);
    let welcome = client.get("/");
    assert!(welcome.text().contains("<a href=\"http://127.0.0.1:9180/\">"), "{welcome}");
    let list = client.get("/files/");
    let note = client.get("/files/sub/note.txt");
    weir_test::send_signal(child.id(), ServerSignal::Quit).expect("our child");
    drop(client);
    let status = child.wait().expect("our child");
    let reported = fs::read_to_string(&said).expect("written above");
    fs::remove_file(&said).expect("written above");
    assert!(status.success());
    assert!(reported.contains("http://127.0.0.1:8080/"), "{reported}");
    assert!(
        !has_page || reported.contains("What it does is shown on http://127.0.0.1:9180/\n"),
        "{reported}"
    );
    assert_eq!(welcome.status, 200);
    for phase in &PHASES[..10] {
        assert!(welcome.text().contains(phase), "no {phase} in {welcome}");
    }
    assert!(list.text().contains("<a href=\"sub/\">sub/</a>"), "{list}");
    assert_eq!(note.text(), "a note\n");
    assert_eq!(
        fs::read_dir(directory.path()).expect("ours").count(),
        1,
        "it leaves nothing in the folder it serves"
    );
}

/// nginx's names, in their order.
const PHASES: [&str; 11] = [
    "post_read",
    "server_rewrite",
    "find_config",
    "rewrite",
    "post_rewrite",
    "preaccess",
    "access",
    "post_access",
    "precontent",
    "content",
    "log",
];
