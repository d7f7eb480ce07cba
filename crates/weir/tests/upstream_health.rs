//! Active checks of the servers of a group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weir_test::{Backend, Server, both_drivers, wait_for};

/// A server that answers requests with its name, and checks (`GET /health`) with 200 or 503.
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
        let check = "health_check uri=/health host=checked interval=50ms jitter=10ms fails=2 passes=2;";
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
        // Who takes the checks out forgets what they found.
        b.well.store(false, Ordering::SeqCst);
        wait_for("two failures", || {
            (server.error_log().matches("peer is unhealthy").count() == 2).then_some(())
        });
        server.reload(&conf.replace(check, ""));
        wait_for("the configuration without checks", || answers(&server).contains('b').then_some(()));
    }

    /// Three workers, one check; nobody is asked before it.
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
        let conf = conf(&[&one, &other], "health_check type=tcp interval=50ms;");
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

    fn what_is_written_wrongly_is_refused(driver) {
        for parameter in ["type=smtp", "interval=0", "fails=0", "uri=health", "status=2xx", "uri=/\"\\r\"x", "x"] {
            let conf = format!("http {{ upstream u {{ server 127.0.0.1:1; health_check {parameter}; }} }}");
            let exit = Server::builder(&conf).run(&["-t"]);
            assert!(!exit.status.success() && exit.stderr.contains("invalid parameter"), "{parameter}: {exit}");
        }
    }
}
