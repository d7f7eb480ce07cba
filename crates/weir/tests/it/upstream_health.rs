//! Active checks of the servers of an upstream.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use weir_test::{Backend, Server, both_drivers, wait_for};

/// A server that responds to requests with its name, and checks (`GET /health`) with 200 or 503.
struct Checked {
    backend: Backend,
    well: Arc<AtomicBool>,
    checks: Arc<AtomicUsize>,
}

fn checked(name: &'static str, well: bool) -> Checked {
    let (well, checks) = (Arc::new(AtomicBool::new(well)), Arc::new(AtomicUsize::new(0)));
    let (is_well, count) = (well.clone(), checks.clone());
    let backend = Backend::start(move |visit| {
        while let Some(head) = visit.head() {
            if head.starts_with("GET /health HTTP/1.1\r\nHost: checked\r\n") {
                count.fetch_add(1, Ordering::SeqCst);
                if !is_well.load(Ordering::SeqCst) {
                    visit.send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
                    continue;
                }
            }
            visit.answer(name);
        }
    });
    Checked { backend, well, checks }
}

fn conf(servers: &[&Checked], parameters: &str) -> String {
    let lines: String =
        servers.iter().map(|server| format!("server 127.0.0.1:{};", server.backend.port())).collect();
    format!(
        "worker_processes 3; http {{ upstream u {{ {lines} {parameters} }}
         server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; }} }} }}"
    )
}

fn answers(server: &Server) -> String {
    (0..6).map(|_| server.get("/").text()).collect()
}

both_drivers! {
    /// Left out while it is unwell, also over a reload, and back when it is well again; no request notices.
    fn an_unwell_server_is_left_out_until_it_is_well(driver) {
        let (a, b) = (checked("a", true), checked("b", true));
        let check = "health_check uri=/health host=checked interval=50ms jitter=10ms timeout=60s fails=2 passes=2;";
        let conf = conf(&[&a, &b], check);
        let mut server = Server::start(&conf);
        wait_for("checks", || (b.checks.load(Ordering::SeqCst) > 1).then_some(()));
        assert!(answers(&server).contains('b'));
        b.well.store(false, Ordering::SeqCst);
        let line = server.error_log_line("peer is unhealthy");
        let peer = format!("the status was 503, health check of peer 127.0.0.1:{} in upstream \"u\"", b.backend.port());
        assert!(line.contains("[warn]") && line.ends_with(&peer), "{line}");
        assert_eq!(answers(&server), "aaaaaa");
        server.reload(&conf);
        assert_eq!(answers(&server), "aaaaaa");
        b.well.store(true, Ordering::SeqCst);
        assert!(server.error_log_line("peer is healthy").contains("[notice]"));
        assert!(answers(&server).contains('b'));
        // Without the checks their results are forgotten.
        b.well.store(false, Ordering::SeqCst);
        wait_for("two failures", || {
            (server.error_log().matches("peer is unhealthy").count() == 2).then_some(())
        });
        server.reload(&conf.replace(check, ""));
        wait_for("the configuration without checks", || answers(&server).contains('b').then_some(()));
    }

    /// Three workers, one check; no server is asked before it.
    fn a_mandatory_check_comes_first_and_once_for_all_workers(driver) {
        let go = Arc::new(AtomicBool::new(false));
        let (may, checks) = (go.clone(), Arc::new(AtomicUsize::new(0)));
        let count = checks.clone();
        let backend = Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                if head.starts_with("GET /health") {
                    count.fetch_add(1, Ordering::SeqCst);
                    wait_for("the test's word", || may.load(Ordering::SeqCst).then_some(()));
                }
                visit.answer("served");
            }
        });
        let one = Checked { backend, well: Arc::default(), checks: checks.clone() };
        let conf = conf(&[&one], "health_check uri=/health interval=1h timeout=1m mandatory;");
        let server = Server::start(&conf);
        wait_for("a check", || (checks.load(Ordering::SeqCst) == 1).then_some(()));
        assert_eq!(server.get("/").status, 502);
        go.store(true, Ordering::SeqCst);
        wait_for("service", || (server.get("/").status == 200).then_some(()));
        assert_eq!(answers(&server), "served".repeat(6));
        assert_eq!(checks.load(Ordering::SeqCst), 1);
    }

    fn a_connection_is_enough_for_tcp(driver) {
        let one = checked("a", false);
        let port = one.backend.port();
        let other = checked("b", true);
        let conf = conf(&[&one, &other], "health_check type=tcp interval=50ms timeout=60s;");
        let server = Server::start(&conf);
        wait_for("checks", || (one.backend.visits() > 2).then_some(()));
        assert!(answers(&server).contains('a'));
        one.backend.kill();
        let line = server.error_log_line("peer is unhealthy");
        assert!(line.contains("connect() failed (111: Connection refused), health check of peer"), "{line}");
        assert_eq!(answers(&server), "bbbbbb");
        let _back = Backend::answering_at(port, "a");
        let _ = server.error_log_line("peer is healthy");
        assert!(answers(&server).contains('a'));
    }

    /// Status, fields of the head and body must be as the `match` block says, whose place may be after the upstream.
    fn an_answer_must_match(driver) {
        let answers = Arc::new(Mutex::new(String::new()));
        let (say, well) = (answers.clone(), "HTTP/1.1 201 OK\r\nContent-Type: a/b\r\nContent-Length: 9\r\n\r\nall well\n");
        let backend = Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                if head.starts_with("GET /health ") {
                    visit.send(&*say.lock().expect("no panic"));
                    return;
                }
                visit.answer("a");
            }
        });
        *answers.lock().expect("no panic") = well.to_owned();
        let conf = format!(
            "http {{ upstream u {{ server 127.0.0.1:{}; health_check uri=/health interval=50ms timeout=60s match=w; }}
             server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; }} }}
             match w {{ status 200-201 204; header Content-Type = a/b; header ! X-Ill; header X-Load !~ ^[5-9];
                body ~ well; body !~ unwell; }} }}",
            backend.port()
        );
        let server = Server::start(&conf);
        let chunked = "HTTP/1.1 200 OK\r\ncontent-type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nwe\r\n2\r\nll\r\n0\r\n\r\n";
        let until_close = "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nX-Load: 1\r\n\r\nwell";
        for (count, (bad, why, good)) in [
            (well.replace("201", "202"), "the status was 202", chunked),
            (well.replace("a/b", "a/c"), "the header \"Content-Type\" did not match", until_close),
            (well.replace("\r\n\r\n", "\r\nx-ill: 1\r\n\r\n"), "the header \"X-Ill\" did not match", chunked),
            (well.replace("\r\n\r\n", "\r\nX-Load: 7\r\n\r\n"), "the header \"X-Load\" did not match", well),
            (well.replace("all", "bad").replace("well", "good"), "the body did not match", chunked),
            (well.replace("all well", "unwell!!"), "the body did not match", well),
            (well.replace("9", "99"), "upstream prematurely closed connection", well),
        ].into_iter().enumerate() {
            *answers.lock().expect("no panic") = bad;
            let reported = |word: &str| {
                wait_for(word, || {
                    let log = server.error_log();
                    let lines: Vec<_> = log.lines().filter(|line| line.contains(word)).collect();
                    lines.get(count).map(|line| (*line).to_owned())
                })
            };
            let line = reported("peer is unhealthy");
            assert!(line.contains(&format!("peer is unhealthy: {why}, health check")), "{line}");
            *answers.lock().expect("no panic") = good.to_owned();
            reported("peer is healthy");
        }
    }

    fn what_a_match_block_may_not_say(driver) {
        for (lines, message) in [
            ("match w { status; }", "invalid number of parameters in \"status\""),
            ("match w { status 99; }", "invalid parameter \"99\""),
            ("match w { status 200; status 201; }", "\"status\" directive is duplicate"),
            ("match w { header a < b; }", "invalid parameter \"<\""),
            ("match w { header a = b c; }", "invalid number of parameters in \"header\""),
            ("match w { body = a; }", "invalid parameter \"=\""),
            ("match w { body ~ (; }", "pcre2_compile() failed"),
            ("match w { require $x; }", "unknown directive \"require\" in \"match\""),
            ("match w { } match w { }", "duplicate match \"w\""),
            ("upstream v { server 127.0.0.1:1; health_check match=x; }", "match \"x\" is not defined"),
        ] {
            let exit = Server::builder(&format!("http {{ {lines} }}")).run(&["-t"]);
            assert!(!exit.status.success() && exit.stderr.contains(message), "{lines}: {exit}");
        }
    }

    fn what_is_written_wrongly_is_refused(driver) {
        for parameter in ["type=smtp", "interval=0", "fails=0", "uri=health", "status=2xx", "uri=/\"\\r\"x", "x"] {
            let conf = format!("http {{ upstream u {{ server 127.0.0.1:1; health_check {parameter}; }} }}");
            let exit = Server::builder(&conf).run(&["-t"]);
            assert!(!exit.status.success() && exit.stderr.contains("invalid parameter"), "{parameter}: {exit}");
        }
    }
}
