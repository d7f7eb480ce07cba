//! Logs as an operator sees them: every request once, before the end, whatever happens to the disk.

use crate::support;

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::sync::mpsc::channel;

use weir_test::{Client, DEADLINE, Server, ServerSignal, both_drivers, wait_for};

use support::{final_log, get};

both_drivers! {
    /// The line is there without a further request, and has nginx's default form.
    fn a_request_is_logged_in_the_combined_form(driver) {
        let server = Server::start("http { server { listen 127.0.0.1:%%PORT%%; return 200 hello; } }");
        server.client().request("GET /a?b=\"c\" HTTP/1.1\r\nHost: x\r\nReferer: http://r/\r\nUser-Agent: agent\\1\r\nConnection: close\r\n\r\n");
        let lines = server.access_log_lines(1);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let (start, end) = ("127.0.0.1 - - [", "] \"GET /a?b=\\x22c\\x22 HTTP/1.1\" 200 5 \"http://r/\" \"agent\\x5C1\"");
        assert!(line.starts_with(start) && line.ends_with(end), "{line}");
        assert_eq!(line.len(), start.len() + "21/Nov/2026:00:00:00 +0000".len() + end.len(), "{line}");
    }

    /// A client that reads the logs when its connection has ended finds its lines there; a log with a buffer is not
    /// waited for.
    fn lines_are_written_before_the_connection_ends(driver) {
        let server = Server::start(
            "error_log %%DIR%%/error.log; http { log_format u '$uri'; access_log %%DIR%%/access.log u;
            server { listen 127.0.0.1:%%PORT%%; location / { root %%DIR%%/nothing; } location /b { access_log %%DIR%%/buffered.log u buffer=64k; return 200; } } }",
        );
        for n in 0..50 {
            for path in ["b", "a"] {
                server.client().send(format!("GET /{path}{n} HTTP/1.0\r\n\r\n")).rest();
            }
            let (log, errors) = (server.dir().read("access.log"), server.dir().read("error.log"));
            assert_eq!(log.lines().last(), Some(&format!("/a{n}")[..]));
            assert!(errors.lines().last().is_some_and(|line| line.contains(&format!("/nothing/a{n}\" failed"))), "{errors}");
        }
        assert_eq!(server.dir().read("buffered.log"), "");
    }

    /// `debug_connection`: everything about connections from there is in all logs, whatever their levels, and nothing about
    /// others. `error_log … debug`: the same of all requests of a location.
    fn single_connections_and_locations_are_debugged(driver) {
        let server = Server::builder(
            "error_log %%DIR%%/error.log debug; events { debug_connection 198.51.100.0/24; debug_connection ::1; }
            http { error_log %%DIR%%/one.log alert; error_log %%DIR%%/two.log alert;
            server { listen 127.0.0.1:%%PORT_0%%; listen [::1]:%%PORT_1%%;
                location / { return 200 $uri; }
                location /more { error_log %%DIR%%/three.log debug; return 200 ok; } } }",
        );
        let server = server.driver(driver).start();
        assert_eq!(server.get("/quiet").text(), "/quiet");
        assert_eq!(server.get("/more/?a=b").text(), "ok");
        let three = wait_for("the end of a request", || {
            Some(server.dir().read("three.log")).filter(|log| log.contains("http finalize request: 200"))
        });
        for line in ["using configuration \"/more\"", "] ", "\"/more/?a=b\" sent:", "| rewrite "] {
            assert!(three.contains(line), "{line}: {three}");
        }
        let Ok(socket) = std::net::TcpStream::connect(("::1", server.port(1))) else {
            println!("skipped: no IPv6 here");
            return;
        };
        drop(socket);
        let reported = wait_for("the connection's end, in both", || {
            let one = Some(server.dir().read("one.log")).filter(|log| log.contains("while waiting for request"));
            one.filter(|log| *log == server.dir().read("two.log"))
        });
        assert!(reported.contains("[debug]") && reported.contains("accept: [::1]:"), "{reported}");
        assert!(!reported.contains("127.0.0.1"), "{reported}");
    }

    /// 4 connections, 2,000 requests, then the end: each is in the log exactly once.
    fn no_line_is_lost_at_the_end(driver) {
        for (signal, buffer) in [(ServerSignal::Quit, ""), (ServerSignal::Term, ""), (ServerSignal::Quit, "buffer=64k flush=1h"), (ServerSignal::Term, "buffer=64k flush=1h")] {
            let mut server = Server::start(&format!(
                "http {{ log_format t '$request_uri'; access_log %%DIR%%/access.log t {buffer};
                server {{ listen 127.0.0.1:%%PORT%%; return 200 hello; }} }}"
            ));
            let address = server.addr(0);
            support::together(4, |thread| {
                let mut client = Client::connect(address);
                for batch in 0..50 {
                    client.send((0..10).map(|n| get(&format!("/{thread}/{batch}/{n}"))).collect::<String>());
                    for _ in 0..10 {
                        assert_eq!(client.response().status, 200);
                    }
                }
            });
            server.signal(signal);
            assert!(server.wait_exit().status.success());
            let log = server.dir().read("access.log");
            let lines: Vec<&str> = log.lines().collect();
            let distinct: HashSet<&str> = lines.iter().copied().collect();
            assert_eq!((lines.len(), distinct.len()), (2000, 2000), "{signal:?} {buffer}");
        }
    }

    /// `flush`: a buffer that is not full is written after its time.
    fn a_buffer_is_written_after_its_time(driver) {
        let server = Server::start(
            "http { access_log %%DIR%%/access.log combined buffer=64k flush=1s; server { listen 127.0.0.1:%%PORT%%; return 200 hello; } }",
        );
        server.get("/a");
        assert_eq!(server.access_log_lines(1).len(), 1);
    }

    fn a_compressed_log_is_a_gzip_file(driver) {
        let mut server = Server::start(
            "http { access_log %%DIR%%/log.gz combined gzip flush=1h; server { listen 127.0.0.1:%%PORT%%; return 200 hello; } }",
        );
        for _ in 0..10 {
            server.get("/a");
        }
        assert!(server.quit().status.success());
        let bytes = fs::read(server.dir().path().join("log.gz")).expect("written");
        assert_eq!(bytes[..3], [0x1f, 0x8b, 8], "RFC 1952");
        let size = u32::from_le_bytes(bytes[bytes.len() - 4..].try_into().expect("four bytes"));
        assert!(size > 500, "ten lines: {size} bytes");
    }

    /// An object a line: numbers bare, missing values null, whatever a client sends escaped.
    fn a_json_format_is_json(driver) {
        let server = Server::start(
            "http { log_format j json status=$status uri=$request_uri agent=$http_user_agent 'who=$remote_addr: \"$http_x\"' none=$http_none length=$body_bytes_sent;
            log_format text json$status; access_log %%DIR%%/access.log j; access_log %%DIR%%/text.log text; server { listen 127.0.0.1:%%PORT%%; return 200 hello; } }",
        );
        let head = [&b"GET /a\" HTTP/1.0\r\nUser-Agent: \xff\\\"\tx\r\nX: \xc3\xa9\r\n\r\n"[..]].concat();
        server.client().send(head).rest();
        let expected = "{\"status\":200,\"uri\":\"/a\\\"\",\"agent\":\"\u{fffd}\\\\\\\"\\tx\",\"who\":\"127.0.0.1: \\\"\u{e9}\\\"\",\"none\":null,\"length\":5}\n";
        assert_eq!(server.dir().read("access.log"), expected);
        assert_eq!(server.dir().read("text.log"), "json200\n");
    }

    /// Access and error logs to a server that takes lines; one that is not there blocks nothing, and is reported.
    fn lines_are_sent_to_a_socket(driver) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let gone = weir_test::free_port();
        let mut server = Server::start(&format!(
            "error_log %%DIR%%/error.log; http {{ log_format u '$uri'; access_log tcp://127.0.0.1:{port} u buffer=64k flush=100ms; access_log tcp://127.0.0.1:{gone} u;
            server {{ listen 127.0.0.1:%%PORT%%; location / {{ return 200; }} location /no {{ error_log udp://127.0.0.1:{port}; error_log tcp://127.0.0.1:{port}; root %%DIR%%; }} }} }}"
        ));
        for path in ["/a", "/b", "/no"] {
            server.client().get(path);
        }
        let (tell, reported) = channel();
        std::thread::spawn(move || {
            // Two logs, a connection each; they end with the server.
            while let Ok((stream, _)) = listener.accept() {
                let tell = tell.clone();
                std::thread::spawn(move || {
                    for line in BufReader::new(stream).lines().map_while(Result::ok) {
                        let _ = tell.send(line); // nothing waits for more than four
                    }
                });
            }
        });
        let mut lines: Vec<String> = (0..4).map(|_| reported.recv_timeout(DEADLINE).expect("a line")).collect();
        lines.sort();
        assert!(lines[3].contains("[error]") && lines[3].contains("/no\" failed (2:"), "{lines:?}");
        assert_eq!(lines[..3], ["/a", "/b", "/no"]);
        let reported = server.error_log_line(&format!("sending to log \"tcp://127.0.0.1:{gone}\" failed (111: Connection refused), lines wait"));
        assert!(reported.contains("[error]"), "{reported}");
        assert!(server.quit().status.success(), "an unreachable server is not waited for");
    }

    /// `if=`, `off`, several logs, JSON: by location, one line per log.
    fn each_location_has_its_logs(driver) {
        let mut server = Server::start(
            "http { log_format j escape=json '{\"uri\":\"$request_uri\",\"none\":\"$http_none\"}'; log_format d escape=none '[$http_x]';
            access_log %%DIR%%/access.log;
            server { listen 127.0.0.1:%%PORT%%;
                location /default { return 200; }
                location /off { access_log off; return 200; }
                location /json { access_log %%DIR%%/json.log j; return 200; }
                location /two { access_log %%DIR%%/access.log; access_log %%DIR%%/raw.log d; return 200; }
                location /if { access_log %%DIR%%/if.log combined if=$arg_log; return 200; } } }",
        );
        for path in ["/default", "/off", "/json?a=\"b\"", "/if", "/if?log=0", "/if?log=1"] {
            server.get(path);
        }
        server.client().request("GET /two HTTP/1.1\r\nHost: a\r\nX: \"q\"\\\r\n\r\n");
        assert!(server.quit().status.success());
        let log = server.dir().read("access.log");
        assert_eq!(log.lines().count(), 2, "{log}");
        assert!(log.contains("/default") && log.contains("/two"), "{log}");
        assert_eq!(server.dir().read("json.log"), "{\"uri\":\"/json?a=\\\"b\\\"\",\"none\":\"\"}\n");
        assert_eq!(server.dir().read("raw.log"), "[\"q\"\\]\n");
        let conditional = server.dir().read("if.log");
        assert!(conditional.lines().count() == 1 && conditional.contains("log=1"), "{conditional}");
    }

    /// No space for the access log: requests go on, the error log says it, once.
    fn a_full_disk_stops_nobody(driver) {
        let server = Server::builder("http { access_log /dev/full; server { listen 127.0.0.1:%%PORT%%; return 200 hello; } }")
            .allow("/dev/full")
            .start();
        for _ in 0..20 {
            assert_eq!(server.get("/a").text(), "hello");
        }
        let line = server.error_log_line("write() to \"/dev/full\"");
        assert!(line.contains("(28: No space left on device)"), "{line}");
        for _ in 0..200 {
            assert_eq!(server.get("/a").text(), "hello");
        }
        let reported = server.error_log().lines().filter(|line| line.contains("/dev/full")).count();
        assert!((1..=20).contains(&reported), "{reported} lines");
    }

    /// No space for the error log: nothing can be logged, and still all clients are served.
    fn a_full_disk_for_errors_stops_nobody(driver) {
        let server = Server::builder("error_log /dev/full info; http { server { listen 127.0.0.1:%%PORT%%; root html; location /ok { return 200 hello; } } }")
            .allow("/dev/full")
            .start();
        for _ in 0..50 {
            assert_eq!(server.get("/none").status, 404);
            assert_eq!(server.get("/ok").text(), "hello");
        }
        assert_eq!(final_log(server).len(), 100);
    }

    /// Levels and places of error logs; nginx's context after each message.
    fn errors_go_where_they_belong(driver) {
        let mut server = Server::start(
            "http { server { listen 127.0.0.1:%%PORT%%; server_name here; root html; error_log %%DIR%%/server.log;
                location /quiet { error_log %%DIR%%/quiet.log crit; }
                location /missing { log_not_found off; } } }",
        );
        for path in ["/none", "/quiet", "/missing"] {
            assert_eq!(server.client().request(format!("GET {path} HTTP/1.1\r\nHost: here\r\nReferer: http://r/\r\n\r\n")).status, 404);
        }
        assert!(server.quit().status.success());
        let log = server.dir().read("server.log");
        assert_eq!(log.lines().count(), 1, "{log}");
        let context = "/html/none\" failed (2: No such file or directory), client: 127.0.0.1, server: here, \
            request: \"GET /none HTTP/1.1\", host: \"here\", referrer: \"http://r/\"";
        assert!(log.contains("[error]") && log.trim_end().ends_with(context), "{log}");
        assert_eq!(server.dir().read("quiet.log"), "");
    }

    /// A log whose directory is missing is a reason not to start, with nginx's words.
    fn a_log_that_cannot_be_opened(driver) {
        let server = Server::builder("http { access_log /no/such/folder/log; server { listen 127.0.0.1:%%PORT%%; } }");
        let exit = server.try_start().expect_err("nowhere to write");
        assert!(exit.stderr.contains("open() \"/no/such/folder/log\" failed (2: No such file or directory)"), "{exit}");
    }

    /// A file that was removed is made again on request, and until then other logs miss no lines.
    fn reopening_makes_a_removed_log(driver) {
        let mut server = Server::start("http { server { listen 127.0.0.1:%%PORT%%; return 200 hello; } }");
        server.get("/a");
        let _ = server.access_log_lines(1);
        fs::remove_file(server.dir().path().join("access.log")).expect("it is there");
        server.get("/b");
        server.signal(ServerSignal::Usr1);
        wait_for("new log", || server.dir().path().join("access.log").exists().then_some(()));
        // The master makes the file a moment before the server has it; and the line of /b may still be on its way.
        wait_for("line in it", || {
            server.get("/c");
            server.dir().read("access.log").contains("GET /c ").then_some(())
        });
    }
}

/// A program that has ended is started again by the next line, and what is lost in between is reported.
#[test]
fn a_log_s_program_that_ends_is_started_again() {
    let conf = "http { log_format u '$uri'; access_log \"|head -n 1 >> %%DIR%%/lines\" u;
        server { listen 127.0.0.1:%%PORT%%; return 200; } }";
    let server = Server::builder(conf).allow("Broken pipe").start();
    let mut client = server.client();
    assert_eq!(client.get("/first").status, 200);
    wait_for("the first line", || (server.dir().read("lines") == "/first\n").then_some(()));
    let mut number = 0;
    let lines = wait_for("programs after it", || {
        number += 1;
        assert_eq!(client.get(&format!("/{number}")).status, 200);
        Some(server.dir().read("lines")).filter(|lines| lines.lines().count() >= 3)
    });
    assert!(lines.lines().skip(1).all(|line| line[1..].parse::<u32>().is_ok()), "whole lines: {lines}");
}
