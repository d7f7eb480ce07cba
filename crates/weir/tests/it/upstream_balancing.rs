//! What `upstream` does beyond choosing in turn: clients bound to servers, servers that are drained, that start slowly,
//! that are waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use weir_test::{Backend, DEADLINE, Response, Server, both_drivers, wait_for};

/// A proxy to an upstream of `lines`, in which `%a`, `%b` are the ports of servers that respond with `a` and `b`.
fn proxy(lines: &str) -> (Server, [Backend; 2]) {
    let backends = [Backend::answering("a"), Backend::answering("b")];
    let server = to(&backends, lines);
    (server, backends)
}

fn to(backends: &[Backend; 2], lines: &str) -> Server {
    let lines = lines
        .replace("%a", &format!("127.0.0.1:{}", backends[0].port()))
        .replace("%b", &format!("127.0.0.1:{}", backends[1].port()));
    let conf = format!(
        "http {{ upstream u {{ {lines} }} server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; }} }} }}"
    );
    Server::start(&conf)
}

fn with_cookie(server: &Server, cookie: &str) -> Response {
    server.client().request(format!("GET / HTTP/1.1\r\nHost: localhost\r\nCookie: x=y; {cookie}\r\n\r\n"))
}

both_drivers! {
    fn a_cookie_binds_a_client_to_its_server(driver) {
        let (server, backends) = proxy("server %a; server %b; sticky cookie to expires=1h path=/ httponly samesite=lax;");
        let first = server.get("/");
        let cookie = first.field("Set-Cookie").expect("a cookie").to_owned();
        let (pair, rest) = cookie.split_once(';').expect("attributes");
        assert_eq!(pair.len(), "to=".len() + 32, "{cookie}");
        assert!(rest.starts_with(" expires=") && rest.ends_with("; max-age=3600; path=/; httponly; samesite=lax"), "{cookie}");
        for _ in 0..5 {
            let again = with_cookie(&server, pair);
            assert_eq!(again.text(), first.text());
            assert!(again.field("Set-Cookie").is_some_and(|cookie| cookie.starts_with(pair)));
        }
        // No server has this one; the choice is the balancer's, which goes on where it was.
        assert_eq!(with_cookie(&server, "to=garbage").text(), "b");
        // Bound to one that died: bound again.
        backends[usize::from(first.text() == "b")].kill();
        let moved = with_cookie(&server, pair);
        assert_ne!(moved.text(), first.text());
        assert!(moved.field("Set-Cookie").is_some_and(|cookie| !cookie.starts_with(pair)));
    }

    fn a_route_binds_and_is_a_cookie_s_value(driver) {
        let (server, _backends) = proxy("server %a route=one; server %b route=two; sticky route $arg_none $arg_to;");
        for (uri, body) in [("/?to=two", "b"), ("/?to=two", "b"), ("/?to=one", "a"), ("/?to=one", "a")] {
            assert_eq!(server.get(uri).text(), body);
        }
        let (server, _backends) = proxy("server %a route=one; server %b; sticky cookie to;");
        let values: Vec<_> = (0..2).map(|_| server.get("/").field("Set-Cookie").expect("a cookie").to_owned()).collect();
        assert!(values.iter().any(|value| value == "to=one"), "{values:?}");
        assert_eq!(with_cookie(&server, "to=one").text(), "a");
    }

    /// The session that a server opens is remembered, also over a reload.
    fn sessions_are_learnt(driver) {
        let open = |name: &'static str| {
            Backend::start(move |visit| {
                while visit.head().is_some() {
                    let body = format!("Set-Cookie: session={name}\r\nContent-Length: 1\r\n\r\n{name}");
                    visit.send(format!("HTTP/1.1 200 OK\r\n{body}"));
                }
            })
        };
        let backends = [open("a"), open("b")];
        let mut server = to(
            &backends,
            "server %a; server %b;
             sticky learn create=$upstream_cookie_session lookup=$cookie_session zone=s:1m timeout=1h;",
        );
        assert_eq!([server.get("/").text(), server.get("/").text()].concat(), "ab");
        for _ in 0..3 {
            assert_eq!(with_cookie(&server, "session=b").text(), "b");
        }
        let conf = server.dir().read("nginx.conf");
        server.reload(&conf);
        assert_eq!(with_cookie(&server, "session=b").text(), "b");
        // Unknown ones are spread.
        let spread: Vec<_> = (0..4).map(|_| with_cookie(&server, "session=x").text()).collect();
        assert!(spread.contains(&"a".to_owned()) && spread.contains(&"b".to_owned()), "{spread:?}");
    }

    fn a_drained_server_is_asked_by_those_bound_to_it(driver) {
        let (server, _backends) = proxy("server %a route=one drain; server %b route=two; sticky route $arg_to;");
        for _ in 0..4 {
            assert_eq!(server.get("/").text(), "b");
        }
        assert_eq!(server.get("/?to=one").text(), "a");
    }

    /// Two at a time, two more wait, the fifth is refused at once.
    fn requests_wait_for_a_free_server(driver) {
        let at_once = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)));
        let counted = at_once.clone();
        let backend = Backend::start(move |visit| {
            while visit.head().is_some() {
                let (now, most, go) = &*counted;
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                wait_for("the test's word", || (go.load(Ordering::SeqCst) > 0).then_some(()));
                now.fetch_sub(1, Ordering::SeqCst);
                visit.answer("served");
            }
        });
        let backends = [backend, Backend::answering("never")];
        let server = to(&backends, "server %a max_conns=2; server %b down; queue 2 timeout=60s;");
        let (address, (tell, reported)) = (server.addr(0), channel());
        for _ in 0..5 {
            let tell = tell.clone();
            thread::spawn(move || tell.send(weir_test::Client::connect(address).get("/").status));
        }
        assert_eq!(reported.recv_timeout(DEADLINE), Ok(502), "the first that is answered");
        at_once.2.store(1, Ordering::SeqCst);
        let answers: Vec<_> = (0..4).map(|_| reported.recv_timeout(DEADLINE)).collect();
        assert_eq!(answers, [Ok(200); 4]);
        assert!(at_once.1.load(Ordering::SeqCst) <= 2, "at most two at a time");
    }

    /// A server that is `down` is no other one to ask: what the last one says is the response.
    fn the_last_answer_counts_where_the_rest_is_down(driver) {
        let backend = Backend::start(|visit| {
            while visit.head().is_some() {
                visit.send("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nmine");
            }
        });
        let conf = format!(
            "http {{ upstream u {{ server 127.0.0.1:{}; server 127.0.0.1:1 down; }}
             server {{ listen 127.0.0.1:%%PORT%%;
                location / {{ proxy_pass http://u; proxy_next_upstream http_404; }} }} }}",
            backend.port()
        );
        let answer = Server::start(&conf).get("/");
        assert_eq!((answer.status, answer.text()), (404, "mine".to_owned()));
    }

    /// The faster one gets most; the slow one is asked now and then, and more when it has become fast.
    fn the_faster_server_is_asked_more(driver) {
        for method in [
            "least_time header;",
            "least_time last_byte;",
            "peak_ewma decay=1s;",
            "random two least_time=header;",
            "random two least_time=last_byte;",
        ] {
            let slow = Arc::new(AtomicUsize::new(1));
            let shared = slow.clone();
            let backend = Backend::start(move |visit| {
                while visit.head().is_some() {
                    thread::sleep(std::time::Duration::from_millis(400 * shared.load(Ordering::SeqCst) as u64));
                    visit.answer("slow");
                }
            });
            let backends = [backend, Backend::answering("fast")];
            // A busy machine may hold up the fast one at the wrong moment, but not every time.
            let server = wait_for(method, || {
                let server = to(&backends, &format!("{method} server %a; server %b;"));
                let mut client = server.client();
                let fast = (0..24).filter(|_| client.get("/").text() == "fast").count();
                drop(client);
                (16..24).contains(&fast).then_some(server)
            });
            if !method.contains("decay=1s") {
                // That long until the slow one is tried again is too long for a test.
                continue;
            }
            slow.store(0, Ordering::SeqCst);
            // On connections of their own: one may make a thousand requests only.
            wait_for("the one that was slow", || (server.get("/").text() == "slow").then_some(()));
        }
    }

    /// Once it is known how fast bodies get to each, long ones go where they got soonest, however long responses to
    /// others take.
    fn long_bodies_take_the_fastest_line(driver) {
        const LEN: usize = 4 << 20;
        let reads = |name: &'static str, pause: u64| {
            Backend::start(move |visit| {
                while let Some(head) = visit.head() {
                    for _ in 0..if head.starts_with("POST") { LEN >> 16 } else { 0 } {
                        thread::sleep(std::time::Duration::from_millis(pause));
                        if visit.bytes(1 << 16).is_none() {
                            return;
                        }
                    }
                    visit.answer(name);
                }
            })
        };
        let backends = [reads("slow", 40), reads("fast", 0)];
        let conf = format!(
            "http {{ upstream u {{ server 127.0.0.1:{} bind=127.0.0.2; server 127.0.0.1:{}; least_time upload; }}
             server {{ listen 127.0.0.1:%%PORT%%; client_max_body_size 0;
                location / {{ proxy_pass http://u; proxy_request_buffering off; }} }} }}",
            backends[0].port(),
            backends[1].port()
        );
        // A busy machine may hold up the fast one at the wrong moment, but not every time.
        wait_for("long bodies that go to the fast one", || {
            let server = Server::start(&conf);
            let mut client = server.client();
            let mut upload = || {
                client.send(format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LEN}\r\n\r\n"));
                client.send(vec![b'x'; LEN]);
                client.response().text()
            };
            wait_for("both to be known", || (upload() == "slow").then_some(()));
            (0..4).all(|_| upload() == "fast").then_some(())
        });
    }

    /// It fails at nothing, and is left out all the same, with a word in the log.
    fn a_server_far_slower_than_the_others_is_left_out(driver) {
        let slow = Backend::start(|visit| {
            while visit.head().is_some() {
                thread::sleep(std::time::Duration::from_secs(2));
                visit.answer("slow");
            }
        });
        let backends = [slow, Backend::answering("fast")];
        let server = to(&backends, "server %a; server %b; outlier 1.5 min=500ms answers=1 time=1h;");
        let mut client = server.client();
        wait_for("the slow one to be left out", || {
            client.get("/");
            server.error_log().contains("peer is an outlier").then_some(())
        });
        let line = server.error_log_line("peer is an outlier");
        let peer = format!("left out for 3600s, peer 127.0.0.1:{} in upstream \"u\"", backends[0].port());
        assert!(line.contains("[warn]") && line.ends_with(&peer), "{line}");
        for _ in 0..6 {
            assert_eq!(client.get("/").text(), "fast");
        }
    }

    /// One server, two ways to it: connections come from the address that each names, and are pooled separately.
    fn a_server_s_line_is_the_address_that_it_names(driver) {
        let backend = Backend::start(|visit| {
            let from = visit.peer().map(|peer| peer.ip().to_string()).unwrap_or_default();
            while visit.head().is_some() {
                visit.answer(&from);
            }
        });
        let backends = [backend, Backend::answering("b")];
        let server = to(&backends, "server %a bind=127.0.0.2; server %a bind=127.0.0.3:0; server %b down;");
        let mut client = server.client();
        let answers: Vec<_> = (0..6).map(|_| client.get("/").text()).collect();
        assert_eq!(answers, ["127.0.0.2", "127.0.0.3"].repeat(3));
        assert_eq!(backends[0].visits(), 2);
        // Over a reload each is still the same peer.
        let conf = server.dir().read("nginx.conf");
        let mut server = server;
        server.reload(&conf);
        // The turn begins again somewhere among these.
        let answers: Vec<_> = (0..4).map(|_| server.get("/").text()).collect();
        assert!(["127.0.0.2", "127.0.0.3"].iter().all(|line| answers.iter().any(|text| text == line)), "{answers:?}");
    }

    fn what_is_written_wrongly_is_refused(driver) {
        for (lines, message) in [
            ("server 127.0.0.1:1; sticky cookie;", "invalid number of arguments in \"sticky\" directive"),
            ("server 127.0.0.1:1; sticky cookie a nothing;", "invalid parameter \"nothing\""),
            ("server 127.0.0.1:1; sticky learn create=$arg_a lookup=$arg_a;", "must have \"zone\" parameter"),
            ("server 127.0.0.1:1; sticky route $arg_a; sticky route $arg_a;", "\"sticky\" directive is duplicate"),
            ("server 127.0.0.1:1 bind=;", "invalid parameter \"bind=\""),
            ("server 127.0.0.1:1 bind=unix:/x;", "invalid parameter \"bind=unix:/x\""),
            ("server 127.0.0.1:1; random two least_time=never;", "invalid parameter \"least_time=never\""),
            ("server 127.0.0.1:1; outlier 1;", "invalid value \"1\""),
            ("server 127.0.0.1:1; outlier 2 answers=0;", "invalid parameter \"answers=0\""),
            ("server 127.0.0.1:1; queue 0;", "invalid value \"0\""),
            ("hash $uri; server 127.0.0.1:1 slow_start=1s;", "balancing method does not support parameter \"slow_start\""),
        ] {
            let conf = format!("http {{ upstream u {{ {lines} }} }}");
            let exit = Server::builder(&conf).run(&["-t"]);
            assert!(!exit.status.success() && exit.stderr.contains(message), "{lines}: {exit}");
        }
    }
}
