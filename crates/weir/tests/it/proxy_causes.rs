//! `$cause` and `$upstream_cause`: why the server responded as it did, for each way in which things go wrong.

use crate::support;

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use weir_test::{Backend, BackendVisit, NameReply, NameServer, Server, both_drivers, free_port, wait_for};

use support::{final_log, get, upload};

/// A server whose log shows status, cause, and those of tries.
fn serve(http: &str, directives: &str) -> Server {
    let conf = format!(
        "http {{ log_format t '$status $cause [$upstream_status] [$upstream_cause]'; access_log %%DIR%%/access.log t;
            large_client_header_buffers 2 1k; {http}
            server {{ listen 127.0.0.1:%%PORT%%; {directives} }} }}"
    );
    Server::builder(&conf).allow("[").start()
}

fn to(port: u16, directives: &str) -> Server {
    serve("", &format!("location / {{ proxy_pass http://127.0.0.1:{port}; {directives} }}"))
}

/// Asks for `/` of a location that passes to a server that does `behave`; the line in the log.
fn cause(directives: &str, behave: impl Fn(&mut BackendVisit) + Send + Sync + 'static) -> String {
    let backend = Backend::start(behave);
    let server = to(backend.port(), directives);
    let mut client = server.client();
    client.send(get("/"));
    let _ = client.rest_or_response();
    drop(client);
    logged(server)
}

fn logged(server: Server) -> String {
    final_log(server).join("\n")
}

/// Waits for a response or for the end of one.
trait RestOrResponse {
    fn rest_or_response(&mut self) -> bool;
}

impl RestOrResponse for weir_test::Client {
    fn rest_or_response(&mut self) -> bool {
        self.try_response().is_ok()
    }
}

/// A port at which nothing accepts any more: a connection to it hangs.
struct Full {
    port: u16,
    _listener: TcpListener,
    _filled: Vec<TcpStream>,
}

fn full() -> Full {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let mut filled = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        filled.push(stream);
    }
    Full { port: address.port(), _listener: listener, _filled: filled }
}

both_drivers! {
    fn connections_that_cannot_be_made(driver) {
        let server = to(free_port(), "");
        assert_eq!(server.get("/").status, 502);
        assert_eq!(logged(server), "502 connect_refused [502] [connect_refused]");

        let hung = full();
        let server = to(hung.port, "proxy_connect_timeout 200ms;");
        assert_eq!(server.get("/").status, 504);
        assert_eq!(logged(server), "504 connect_timeout [504] [connect_timeout]");

        let server = serve("", "location / { proxy_pass http://unix:/nowhere/at/all; }");
        assert_eq!(server.get("/").status, 502);
        assert_eq!(logged(server), "502 connect_failed [502] [connect_failed]");
    }

    fn no_answer_comes(driver) {
        let fails = |directives: &str, behave: fn(&mut BackendVisit)| cause(directives, behave);
        for (line, directives, behave) in [
            ("502 closed_before_response [502] [closed_before_response]", "", (|visit| { visit.head(); }) as fn(&mut BackendVisit)),
            ("502 reset_before_response [502] [reset_before_response]", "", |visit| { visit.head(); visit.reset(); }),
            ("504 read_timeout [504] [read_timeout]", "proxy_read_timeout 200ms;", BackendVisit::hang),
            ("502 invalid_header [502] [invalid_header]", "", |visit| { visit.head(); visit.send("HTTP/1.1 nonsense\r\n\r\n"); }),
            ("502 header_too_large [502] [header_too_large]", "", |visit| {
                visit.head();
                visit.send(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(5000)));
                visit.hang();
            }),
        ] {
            assert_eq!(fails(directives, behave), line);
        }
    }

    fn an_answer_breaks_off(driver) {
        for (line, behave) in [
            ("200 closed_in_response [200] [-]", (|visit| {
                visit.head();
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1");
            }) as fn(&mut BackendVisit)),
            ("200 read_timeout [200] [-]", |visit| {
                visit.head();
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1");
                visit.hang();
            }),
            ("200 invalid_body [200] [-]", |visit| {
                visit.head();
                visit.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nzz\r\n");
                visit.hang();
            }),
        ] {
            let limit = if line.contains("timeout") { "proxy_read_timeout 5s;" } else { "" };
            assert_eq!(cause(limit, behave), line);
        }
    }

    fn an_answer_is_reset(driver) {
        let (tell, reported) = std::sync::mpsc::channel::<()>();
        let reported = std::sync::Mutex::new(reported);
        let backend = Backend::start(move |visit| {
            visit.head();
            visit.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1");
            // Not before the client has the head.
            let _ = reported.lock().expect("no panic").recv();
            visit.reset();
        });
        let server = to(backend.port(), "");
        let mut client = server.client();
        client.send(get("/"));
        client.peek(1).expect("a head");
        tell.send(()).expect("a backend that waits");
        assert!(client.try_response().is_err(), "it is not whole");
        drop(client);
        assert_eq!(logged(server), "200 reset_in_response [200] [-]");
    }

    fn a_server_that_does_not_speak_tls(driver) {
        let backend = Backend::start(|visit| {
            visit.bytes(1);
            visit.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            visit.hang();
        });
        let server = serve("", &format!("location / {{ proxy_pass https://127.0.0.1:{}; }}", backend.port()));
        assert_eq!(server.get("/").status, 502);
        assert_eq!(logged(server), "502 tls_failed [502] [tls_failed]");
    }

    /// The name servers know nothing any more; what they said before is used on, and the request says so.
    fn addresses_of_before_are_used(driver) {
        let dns = NameServer::start(|_| NameReply::Addresses(vec![Ipv4Addr::LOCALHOST.into()], 60));
        let backend = Backend::answering("served");
        let server = serve(
            &format!("resolver {} valid=1s ipv6=off;", dns.address()),
            &format!("location / {{ proxy_pass http://$arg_host.example:{}; }}", backend.port()),
        );
        assert_eq!(server.get("/?host=a").text(), "served");
        dns.set(|_| NameReply::Code(2));
        let mut asked = 1;
        let stale = wait_for("an old address", || {
            assert_eq!(server.get("/?host=a").text(), "served");
            asked += 1;
            let line = server.access_log_lines(asked).pop();
            line.filter(|line| line != "200 - [200] [-]")
        });
        assert_eq!(stale, "200 dns_stale_used [200] [-]");
    }

    fn a_server_takes_nothing(driver) {
        let (reported, done) = std::sync::mpsc::channel::<()>();
        let done = std::sync::Mutex::new(done);
        let backend = Backend::start(move |_| {
            // It reads nothing until the test is over.
            let _ = done.lock().expect("no panic").recv();
        });
        let server = to(backend.port(), "proxy_send_timeout 200ms; client_max_body_size 0;");
        let mut client = server.client();
        client.send(upload("/", 24 << 20));
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..24 {
            client.send(&piece);
        }
        assert_eq!(client.response().status, 504);
        drop(reported);
        assert_eq!(logged(server), "504 send_timeout [504] [send_timeout]");
    }

    /// The second request finds both left out.
    fn all_are_down(driver) {
        let (one, two) = (free_port(), free_port());
        let http =
            format!("upstream u {{ server 127.0.0.1:{one} fail_timeout=1h; server 127.0.0.1:{two} fail_timeout=1h; }}");
        let server = serve(&http, "location / { proxy_pass http://u; }");
        assert_eq!(server.get("/").status, 502);
        assert_eq!(server.get("/").status, 502);
        assert_eq!(
            logged(server),
            "502 connect_refused [502, 502] [connect_refused, connect_refused]\n502 all_peers_down [502] [all_peers_down]"
        );
    }

    fn a_better_answer_hides_the_first_failure(driver) {
        let (dead, alive) = (free_port(), Backend::answering("alive"));
        let http = format!("upstream u {{ server 127.0.0.1:{dead}; server 127.0.0.1:{}; }}", alive.port());
        let server = serve(&http, "location / { proxy_pass http://u; }");
        assert_eq!(server.get("/").text(), "alive");
        assert_eq!(logged(server), "200 - [502, 200] [connect_refused, -]");
    }

    fn a_kept_connection_is_lost_under_a_request_that_may_not_be_repeated(driver) {
        let backend = Backend::start(|visit| {
            visit.head();
            visit.answer("kept");
            // The second request is read, so that the server has not closed before it came.
            visit.head();
        });
        let http = format!("upstream u {{ server 127.0.0.1:{}; }}", backend.port());
        let server = serve(&http, "location / { proxy_pass http://u; }");
        let mut client = server.client();
        assert_eq!(client.get("/").text(), "kept");
        assert_eq!(client.request(upload("/", 1) + "x").status, 502);
        drop(client);
        assert_eq!(logged(server), "200 - [200] [-]\n502 keepalive_race [502] [closed_before_response]");
    }

    /// That a server closes a cached connection is an `error`: a request is repeated only where `proxy_next_upstream`
    /// names it.
    fn a_kept_connection_is_lost_and_nothing_may_be_repeated(driver) {
        let backend = Backend::start(|visit| {
            visit.head();
            visit.answer("kept");
            visit.head();
        });
        let http = format!("upstream u {{ server 127.0.0.1:{}; }}", backend.port());
        for (repeated, status) in [("off", 502), ("timeout http_500", 502), ("error", 200)] {
            let location = format!("location / {{ proxy_pass http://u; proxy_next_upstream {repeated}; }}");
            let server = Server::builder(&format!(
                "http {{ {http} server {{ listen 127.0.0.1:%%PORT%%; {location} }} }}"
            ));
            let server = server.driver(driver).allow("upstream prematurely closed").start();
            let mut client = server.client();
            assert_eq!(client.get("/").text(), "kept");
            assert_eq!(client.get("/").status, status, "{repeated}");
        }
    }

    fn names_that_nobody_knows(driver) {
        let nobody = free_port();
        let server = serve(
            &format!("resolver 127.0.0.1:{nobody}; resolver_timeout 300ms;"),
            "location / { proxy_pass http://$arg_host.example; }",
        );
        assert_eq!(server.get("/?host=a").status, 502);
        assert_eq!(logged(server), "502 dns_failed [-] [-]");
    }

    fn the_client_leaves(driver) {
        let backend = Backend::start(BackendVisit::hang);
        let server = to(backend.port(), "");
        let mut client = server.client();
        client.send(get("/"));
        wait_for("visit", || (backend.visits() == 1).then_some(()));
        client.abort();
        let line = server.access_log_lines(1);
        assert_eq!(line, ["499 client_closed [499] [-]"]);
    }

    fn what_the_server_itself_refuses(driver) {
        let server = serve(
            "limit_req_zone $uri zone=z:1m rate=1r/m;",
            "client_max_body_size 1; location /none { root /nowhere; } location /no { deny all; }
             location /limited { limit_req zone=z; empty_gif; } location /told { return 418; }",
        );
        for (request, line) in [
            (get("/none"), "404 not_found"),
            (get("/no"), "403 forbidden"),
            (get("/told"), "418 configured"),
            (get("/limited"), "200 -"),
            (get("/limited"), "503 limit"),
            (upload("/", 2), "413 body_too_large"),
            (get(&"/x".repeat(2000)), "414 request_header_too_large"),
            ("GET / HTTP/1.1\r\nHost: /\r\n\r\n".to_owned(), "400 bad_request"),
        ] {
            let mut client = server.client();
            client.send(request);
            let status = client.response().status;
            assert!(line.starts_with(&status.to_string()), "{line} {status}");
        }
        let wanted = ["404 not_found", "403 forbidden", "418 configured", "200 -", "503 limit", "413 body_too_large",
            "414 request_header_too_large", "400 bad_request"].map(|line| format!("{line} [-] [-]"));
        assert_eq!(final_log(server), wanted);
    }
}
