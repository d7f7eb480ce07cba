//! What goes wrong with servers behind a proxy: each fault is one a client may see once, named in the log, or not at
//! all.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use weir_test::{Backend, BackendVisit, Client, Server, both_drivers, free_port, wait_for};

use support::{final_log, get, upload};

/// A proxy to servers on `ports`, with directives of its location.
fn proxy(ports: &[u16], directives: &str) -> Server {
    grouped(ports, "", directives)
}

/// [`proxy`] with parameters of each server and what else is in the upstream.
fn grouped(ports: &[u16], parameters: &str, directives: &str) -> Server {
    let servers: String =
        ports.iter().map(|port| format!("server 127.0.0.1:{port} {parameters};\n")).collect();
    let conf = format!(
        "http {{ log_format t '$status [$upstream_status] $request_uri';
            access_log %%DIR%%/access.log t;
            upstream u {{ {servers} }}
            server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; {directives} }} }} }}"
    );
    Server::builder(&conf).start()
}

/// What nginx writes after a message about a `request` to the server at `port`.
fn context(request: &str, uri: &str, port: u16) -> String {
    format!(
        ", client: 127.0.0.1, server: , request: \"{request}\", upstream: \"http://127.0.0.1:{port}{uri}\", host: \
         \"localhost\""
    )
}

fn assert_line(server: &Server, level: &str, message: &str, context: &str) {
    let line = server.error_log_line(message);
    assert!(
        line.contains(level) && line.contains(&format!("{message}{context}")),
        "{line}\nwanted: {context}"
    );
}

/// The log has an error of a request for `/` to this backend.
fn assert_error(server: &Server, message: &str, backend: &Backend) {
    assert_line(server, "[error]", message, &context("GET / HTTP/1.1", "/", backend.port()));
}

both_drivers! {
    /// The file is this server's own affair: no other server is asked, none is left out, and the client gets 500.
    fn a_body_s_file_that_is_cut_off_is_no_server_s_fault(driver) {
        let backend = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                let is_whole = !head.starts_with("POST") || visit.bytes(BODY).is_some();
                if !is_whole || !visit.answer("whole") {
                    return;
                }
            }
        });
        let conf = format!("http {{
            upstream one {{ server 127.0.0.1:{} max_fails=1 fail_timeout=1h; }}
            server {{ listen 127.0.0.1:%%PORT%%; proxy_http_version 1.1; client_body_buffer_size 1k;
                location /cut {{ access_by_lua_block {{ ngx.req.read_body() io.open(ngx.req.get_body_file(), 'w'):close() }} proxy_pass http://one; }}
                location / {{ proxy_pass http://one; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).allow("truncated").allow("io.open").start();
        let post = |path: &str| {
            let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {BODY}\r\n\r\n");
            server.client().request([head.as_bytes(), &vec![b'x'; BODY]].concat()).status
        };
        assert_eq!(post("/cut"), 500);
        assert!(server.error_log_line("truncated while sending request to upstream").contains("[alert]"));
        assert_eq!(post("/"), 200);
        assert_eq!(server.get("/").text(), "whole");
    }

    fn a_server_that_refuses_is_named(driver) {
        let port = free_port();
        let server = proxy(&[port], "");
        assert_eq!(server.client().get("/x?y").status, 502);
        assert_line(
            &server,
            "[error]",
            "connect() failed (111: Connection refused) while connecting to upstream",
            &context("GET /x?y HTTP/1.1", "/x?y", port),
        );
        assert_eq!(final_log(server), ["502 [502] /x?y"]);
    }

    /// The other one responds, and the first is not asked again for its time.
    fn a_server_that_refuses_is_left_out(driver) {
        let (dead, alive) = (free_port(), Backend::answering("alive"));
        let server = grouped(&[dead, alive.port()], "fail_timeout=1h", "");
        for _ in 0..4 {
            assert_eq!(server.get("/").text(), "alive");
        }
        assert_line(
            &server,
            "[warn]",
            "upstream server temporarily disabled while connecting to upstream",
            &context("GET / HTTP/1.1", "/", dead),
        );
        assert_eq!(final_log(server), ["200 [502, 200] /", "200 [200] /", "200 [200] /", "200 [200] /"]);
    }

    fn a_server_that_says_nothing_times_out(driver) {
        let backend = Backend::start(BackendVisit::hang);
        let server = proxy(&[backend.port()], "proxy_read_timeout 200ms;");
        assert_eq!(server.client().get("/").status, 504);
        assert_error(&server, "upstream timed out (110: Connection timed out) while reading response header from upstream", &backend);
        assert_eq!(final_log(server), ["504 [504] /"]);
    }

    fn a_server_that_closes_without_an_answer(driver) {
        let backend = Backend::start(|visit| {
            visit.head();
        });
        let server = proxy(&[backend.port()], "");
        assert_eq!(server.client().get("/").status, 502);
        assert_error(&server, "upstream prematurely closed connection while reading response header from upstream", &backend);
    }

    fn a_server_that_resets_before_its_answer(driver) {
        let backend = Backend::start(|visit| {
            visit.head();
            visit.reset();
        });
        let server = proxy(&[backend.port()], "");
        assert_eq!(server.client().get("/").status, 502);
        assert_error(&server, "recv() failed (104: Connection reset by peer) while reading response header from upstream", &backend);
    }

    /// In the middle of a body nothing can be made good: the end of the client's connection shows it.
    fn a_body_that_breaks_off_is_cut_for_the_client(driver) {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345";
        let silent = Backend::start(move |visit| {
            visit.head();
            visit.send(head);
            visit.hang();
        });
        let closing = Backend::start(move |visit| {
            visit.head();
            visit.send(head);
        });
        for (backend, message) in [
            (&silent, "upstream timed out (110: Connection timed out) while reading upstream"),
            (&closing, "upstream prematurely closed connection while reading upstream"),
        ] {
            // Long enough for the head to come on the busiest machine.
            let server = proxy(&[backend.port()], "proxy_read_timeout 20s;");
            let mut client = server.client();
            client.send(get("/"));
            let (bytes, _) = client.rest();
            assert!(bytes.ends_with(b"\r\n\r\n12345"), "{}", String::from_utf8_lossy(&bytes));
            assert_error(&server, message, backend);
            assert_eq!(final_log(server), ["200 [200] /"]);
        }
    }

    fn a_body_that_is_reset_is_cut_for_the_client(driver) {
        let go = Arc::new(AtomicBool::new(false));
        let begun = go.clone();
        let backend = Backend::start(move |visit| {
            visit.head();
            visit.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n");
            wait_for("the client's word", || begun.load(Ordering::SeqCst).then_some(()));
            visit.reset();
        });
        let server = proxy(&[backend.port()], "");
        let mut client = server.client();
        client.send(get("/"));
        assert_eq!(client.response_to_head().status, 200);
        go.store(true, Ordering::SeqCst);
        let (bytes, _) = client.rest();
        assert!(!bytes.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&bytes));
        assert_error(&server, "readv() failed (104: Connection reset by peer) while reading upstream", &backend);
    }

    fn heads_that_are_none_are_502(driver) {
        for (sent, message) in [
            ("\x16\x03\x01\x02 garbage\r\n\r\n", "while reading response header from upstream"),
            ("HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "reading response header"),
        ] {
            let backend = Backend::start(move |visit| {
                visit.head();
                visit.send(sent);
                visit.hang();
            });
            let server = proxy(&[backend.port()], "");
            assert_eq!(server.client().get("/").status, 502, "{sent}");
            let line = server.error_log_line(message);
            assert!(line.contains("[error]") && line.contains("upstream sent"), "{line}");
        }
    }

    fn a_head_larger_than_the_buffer_is_502(driver) {
        let backend = Backend::start(|visit| {
            visit.head();
            visit.send(format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(9000)));
            visit.hang();
        });
        let server = proxy(&[backend.port()], "");
        assert_eq!(server.client().get("/").status, 502);
        assert_error(&server, "upstream sent too big header while reading response header from upstream", &backend);
    }

    fn more_than_was_announced_is_not_passed_on(driver) {
        let backend = Backend::start(|visit| {
            visit.head();
            visit.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
            visit.hang();
        });
        let server = proxy(&[backend.port()], "");
        let mut client = server.client();
        assert_eq!(client.get("/").text(), "ok");
        assert_eq!(client.get("/").text(), "ok");
        assert_eq!(backend.visits(), 2);
        assert_line(
            &server,
            "[warn]",
            "upstream sent more data than specified in \"Content-Length\" header while reading upstream",
            &context("GET / HTTP/1.1", "/", backend.port()),
        );
    }

    /// A cached connection that the server closes under the request: asked again on a fresh one, unless that might be
    /// done twice.
    /// A request that may be sent again goes to the next server, however its body is framed.
    fn requests_without_content_go_to_the_next_server(driver) {
        for method in ["GET", "DELETE", "PUT"] {
            for framing in ["", "Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n"] {
                for buffering in ["on", "off"] {
                    let bad = Backend::start(|visit| if visit.head().is_some() { visit.reset() });
                    let good = Backend::answering("good");
                    let server = proxy(&[bad.port(), good.port()], &format!("proxy_request_buffering {buffering};"));
                    let end = if framing.starts_with('T') { "0\r\n\r\n" } else { "" };
                    let request = format!("{method} / HTTP/1.1\r\nHost: a\r\n{framing}\r\n{end}");
                    let said: Vec<String> = (0..2).map(|_| server.client().request(&request).text()).collect();
                    let begun = framing.starts_with('T') && buffering == "off";
                    // A body that has begun to be passed on can't be sent again, as in nginx.
                    let wanted = |text: &String| text == "good" || begun && text.contains("502");
                    assert!(said.iter().all(wanted), "{method} {framing:?} {buffering}: {said:?}");
                    assert!(bad.visits() > 0 && good.visits() > 0);
                }
            }
        }
    }

    /// The same over a connection that was kept alive, and that the server closes while the request is on its way.
    fn requests_without_content_win_the_keep_alive_race(driver) {
        let backend = Backend::start(|visit| {
            if visit.head().is_some() && visit.answer("good") && visit.head().is_some() {
                visit.reset();
            }
        });
        let server = proxy(&[backend.port()], "");
        for at in 0..4 {
            let request = "DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
            assert_eq!(server.client().request(request).text(), "good", "{at}");
        }
    }

    fn the_keep_alive_race_is_lost_by_nobody(driver) {
        let backend = Backend::start(|visit| {
            visit.head();
            visit.answer("first");
            // The second request is read, and the connection closed.
            visit.head();
        });
        let server = proxy(&[backend.port()], "");
        let mut client = server.client();
        for _ in 0..6 {
            assert_eq!(client.get("/").text(), "first");
        }
        assert_eq!(backend.visits(), 6);
        // A proxy that has learned nothing yet: on a slow machine the ends above may look like those of idle connections.
        let server = proxy(&[backend.port()], "");
        let (mut client, before) = (server.client(), backend.heads());
        assert_eq!(client.get("/").text(), "first");
        let refused = client.request(upload("/", 0));
        assert_eq!(refused.status, 502, "a POST is sent once");
        assert_eq!((backend.visits(), backend.heads() - before), (7, 2));
    }

    /// Also one that has sent a long body, which is received by other means than what waits for its departure.
    fn a_client_that_leaves_after_a_long_body_is_not_worked_for(driver) {
        let (gone, come) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (ended, begun) = (gone.clone(), come.clone());
        let backend = Backend::start(move |visit| {
            visit.head();
            visit.bytes(1_000_000);
            begun.fetch_add(1, Ordering::SeqCst);
            visit.hang();
            ended.fetch_add(1, Ordering::SeqCst);
        });
        for (number, buffering) in [(1, "on"), (2, "off")] {
            let directives = format!("client_max_body_size 0; proxy_request_buffering {buffering};");
            let server = proxy(&[backend.port()], &directives);
            let mut client = server.client();
            client.send(upload("/", 1_000_000) + &"x".repeat(1_000_000));
            wait_for("body at the backend", || (come.load(Ordering::SeqCst) == number).then_some(()));
            drop(client);
            wait_for("end of the backend's connection", || {
                (gone.load(Ordering::SeqCst) == number).then_some(())
            });
            assert_eq!(final_log(server), ["499 [499] /"]);
        }
    }

    fn a_client_that_leaves_is_not_worked_for(driver) {
        let (gone, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, come) = (gone.clone(), left.clone());
        let backend = Backend::start(move |visit| {
            let head = visit.head().unwrap_or_default();
            if head.starts_with("GET /body") {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345");
            }
            come.fetch_add(1, Ordering::SeqCst);
            visit.hang();
            count.fetch_add(1, Ordering::SeqCst);
        });
        let server = proxy(&[backend.port()], "");
        for (number, path, doing) in [(1, "/head", "sending request to upstream"), (2, "/body", "reading upstream")] {
            let mut client = server.client();
            client.send(get(path));
            wait_for("request at the backend", || (left.load(Ordering::SeqCst) == number).then_some(()));
            if number == 2 {
                assert_eq!(client.response_to_head().status, 200);
            }
            drop(client);
            wait_for("end of the backend's connection", || (gone.load(Ordering::SeqCst) == number).then_some(()));
            let request = format!("GET {path} HTTP/1.1");
            assert_line(
                &server,
                "[info]",
                &format!(
                    "epoll_wait() reported that client prematurely closed connection, so upstream connection is \
                     closed too while {doing}"
                ),
                &context(&request, path, backend.port()),
            );
        }
        assert_eq!(final_log(server), ["499 [499] /head", "200 [200] /body"]);
    }

    /// `proxy_ignore_client_abort on`: the response is waited for all the same.
    fn a_client_that_leaves_may_be_worked_for(driver) {
        let gone = Arc::new(AtomicBool::new(false));
        let client_gone = gone.clone();
        let backend = Backend::start(move |visit| {
            visit.head();
            wait_for("the client's end", || client_gone.load(Ordering::SeqCst).then_some(()));
            visit.answer("done");
        });
        let server = proxy(&[backend.port()], "proxy_ignore_client_abort on;");
        let mut client = server.client();
        client.send(get("/"));
        wait_for("request at the backend", || (backend.heads() == 1).then_some(()));
        drop(client);
        gone.store(true, Ordering::SeqCst);
        assert_eq!(server.access_log_lines(1), ["200 [200] /"]);
    }

    /// One of three dies under load: no request fails.
    fn a_death_among_three_fails_nothing(driver) {
        let mut backends: Vec<Backend> = (0..3).map(|_| Backend::answering("ok")).collect();
        let ports: Vec<u16> = backends.iter().map(Backend::port).collect();
        let server = proxy(&ports, "");
        let (address, done) = (server.addr(0), Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let done = done.clone();
                std::thread::spawn(move || {
                    let mut client = Client::connect(address);
                    let answers: Vec<u16> = (0..500)
                        .map(|_| {
                            done.fetch_add(1, Ordering::SeqCst);
                            client.get("/").status
                        })
                        .collect();
                    answers.into_iter().filter(|status| *status != 200).count()
                })
            })
            .collect();
        wait_for("load", || (done.load(Ordering::SeqCst) > 400).then_some(()));
        let dead = backends.pop().expect("there are three");
        dead.kill();
        let failed: usize = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        assert_eq!(failed, 0, "of 2,000");
        assert!(dead.heads() > 0);
    }

    /// All die: the response comes at once, and again 200 as soon as one is back and its time is over.
    fn the_death_of_all_is_told_at_once_and_over_when_one_is_back(driver) {
        let backends = [Backend::answering("ok"), Backend::answering("ok")];
        let ports = [backends[0].port(), backends[1].port()];
        let server = grouped(&ports, "fail_timeout=1s", "");
        assert_eq!(server.get("/").status, 200);
        backends.iter().for_each(Backend::kill);
        // The first that fails finds it; a later one knows, unless a slow machine has let the second pass in between.
        wait_for("nobody to ask", || {
            assert_eq!(server.get("/nobody").status, 502);
            server.error_log().contains("no live upstreams while connecting to upstream").then_some(())
        });
        assert_line(
            &server,
            "[error]",
            "no live upstreams while connecting to upstream",
            ", client: 127.0.0.1, server: , request: \"GET /nobody HTTP/1.1\", upstream: \"http://u/nobody\", host: \
             \"localhost\"",
        );
        let _back = Backend::answering_at(ports[0], "back");
        wait_for("recovery", || (server.get("/").status == 200).then_some(()));
    }

    /// A client that takes nothing, and a server that takes nothing: what is held is bounded either way.
    fn large_bodies_pass_in_little_memory(driver) {
        const BIG: usize = 96 << 20;
        let go = Arc::new(AtomicBool::new(false));
        let may_read = go.clone();
        let backend = Backend::start(move |visit| {
            let head = visit.head().unwrap_or_default();
            if head.starts_with("POST") {
                wait_for("the client's word", || may_read.load(Ordering::SeqCst).then_some(()));
                for _ in 0..BIG >> 20 {
                    visit.bytes(1 << 20);
                }
                visit.answer("taken");
                return;
            }
            visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n"));
            let piece = vec![b'x'; 1 << 20];
            for _ in 0..BIG >> 20 {
                visit.send(&piece);
            }
        });
        let server = proxy(
            &[backend.port()],
            "proxy_request_buffering off; client_max_body_size 0; proxy_max_temp_file_size 0;",
        );
        let before = server.resident_bytes();
        let mut client = server.client();
        client.send(get("/"));
        client.peek(1000).expect("it has begun");
        std::thread::sleep(Duration::from_millis(300));
        assert!(server.resident_bytes() < before + LITTLE, "a client that reads nothing");
        assert_eq!(client.response().body.len(), BIG);
        assert!(server.resident_bytes() < before + LITTLE, "a download");

        let mut client = server.client();
        client.send(upload("/", BIG));
        let sender = std::thread::spawn(move || {
            let piece = vec![b'x'; 1 << 20];
            for _ in 0..BIG >> 20 {
                client.send(&piece);
            }
            client.response().text()
        });
        wait_for("request at the backend", || (backend.heads() == 2).then_some(()));
        std::thread::sleep(Duration::from_millis(300));
        assert!(server.resident_bytes() < before + LITTLE, "a server that reads nothing");
        go.store(true, Ordering::SeqCst);
        assert_eq!(sender.join().expect("no panic"), "taken");
        assert!(server.resident_bytes() < before + LITTLE, "an upload");
    }

    /// A tunnel outlives a reload, for `worker_shutdown_timeout` at most.
    fn a_web_socket_lives_through_a_reload_for_a_while(driver) {
        let backend = Backend::start(|visit| {
            visit.head();
            visit.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
            while let Some(bytes) = visit.bytes(4) {
                visit.send(bytes);
            }
        });
        let conf = format!(
            "worker_shutdown_timeout 20s;
             http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://127.0.0.1:{};
                proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }} }} }}",
            backend.port()
        );
        let mut server = Server::start(&conf);
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
        assert_eq!(client.response_to_head().status, 101);
        echo(&mut client);
        server.reload(&conf);
        echo(&mut client);
        client.expect_close();
    }
}

fn echo(client: &mut Client) {
    client.send("ping");
    assert_eq!(client.bytes(4), b"ping");
}

/// What a connection may hold: what the sockets' buffers and ours take.
const LITTLE: u64 = 16 << 20;

/// More than a body's buffer.
const BODY: usize = 200_000;
