//! HUP: the new configuration for every request that begins afterwards, and no request lost on the way.

use crate::support;

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weir_test::{Client, ReadError, Server, both_drivers, wait_for};

use support::{Load, StopAtEnd, assert_serves, get, wait_refused};

const BIG: usize = 16 << 20;

/// A server that responds with `word`.
fn answering(word: &str) -> String {
    format!(
        "http {{ keepalive_requests 1000000; server {{ listen 127.0.0.1:%%PORT%%; location / {{ return 200 {word}; }} location /big {{ root html; }} }} }}"
    )
}

both_drivers! {
    /// The "Must show": twenty reloads under load, no failed request, no connection closed unannounced.
    fn twenty_reloads_under_load_fail_no_request(driver) {
        for workers in [1, 3] {
            let conf = |number: usize| format!("worker_processes {workers}; {}", answering(&format!("v{number}")));
            let mut server = Server::start(&conf(0));
            let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
            let load = Load { address: server.addr(0), stop: &stop, asked: &asked };
            let mut first = server.client();
            std::thread::scope(|scope| {
                let _stops = StopAtEnd(&stop);
                let threads: Vec<_> = (0..5).map(|n| scope.spawn(move || load.ask(n % 2 == 0))).collect();
                for number in 1..=20 {
                    server.reload(&conf(number));
                    let wanted = format!("v{number}");
                    wait_for(&wanted, || (first.get("/").text() == wanted).then_some(()));
                }
                stop.store(true, Ordering::Release);
                for thread in threads {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                }
            });
            assert!(asked.load(Ordering::Relaxed) > 100, "there was load");
            assert!(!server.error_log().contains("[emerg]"), "{}", server.error_log());
        }
    }

    /// Descriptors and threads of old configurations go.
    fn reloads_leave_nothing_behind(driver) {
        let mut server = Server::start(&answering("v0"));
        let before = support::settled(&server);
        for number in 1..=10 {
            server.reload(&answering(&format!("v{number}")));
            let wanted = format!("v{number}");
            wait_for(&wanted, || (server.get("/").text() == wanted).then_some(()));
        }
        support::wait_open_files(&server, before + 1);
    }

    /// The first configuration goes like any other, with what it had open.
    fn the_log_of_the_first_configuration_is_closed(driver) {
        let conf = |log: &str| {
            format!("http {{ access_log {log}.log; server {{ listen 127.0.0.1:%%PORT%%; return 200 {log}; }} }}")
        };
        let mut server = Server::start(&conf("first"));
        assert_eq!(server.get("/").text(), "first");
        server.reload(&conf("second"));
        wait_for("second", || (server.get("/").text() == "second").then_some(()));
        let directory = format!("/proc/{}/fd", server.serving_pid());
        let is_open = || {
            let files = std::fs::read_dir(&directory).expect("it lives").flatten();
            files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|path| path.ends_with("first.log"))
        };
        wait_for("the log is closed", || (!is_open()).then_some(()));
    }

    fn a_wrong_file_changes_nothing_and_says_why(driver) {
        let mut server = Server::start(&answering("v0"));
        let mut client = server.client();
        assert_serves(&mut client, "/", "v0");
        server.reload("http {\n  server { listen 127.0.0.1:%%PORT%%; retrun 200 v1; }\n}");
        let line = server.error_log_line("unknown directive \"retrun\"");
        assert!(line.contains("[emerg]") && line.contains("nginx.conf:2"), "{line}");
        assert_serves(&mut client, "/", "v0");
        assert_eq!(server.get("/").text(), "v0");
        server.reload(&answering("v2"));
        wait_for("v2", || (client.get("/").text() == "v2").then_some(()));
    }

    /// An address that cannot be bound: everything stays as it was, the other new addresses too.
    fn an_address_in_use_changes_nothing(driver) {
        let taken = TcpListener::bind("127.0.0.1:0").expect("loopback binds");
        let port = taken.local_addr().expect("bound").port();
        let two = "http { server { listen 127.0.0.1:%%PORT_0%%; return 200 v0; } server { listen 127.0.0.1:%%PORT_1%%; return 200 w0; } }";
        let mut server = Server::start(two);
        server.reload(&format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT_0%%; return 200 v1; }} server {{ listen 127.0.0.1:{port}; return 200 x; }} }}"
        ));
        let line = server.error_log_line("(98: Address already in use)");
        assert!(line.contains(&format!("bind() to 127.0.0.1:{port} failed")), "{line}");
        assert_eq!(server.get("/").text(), "v0");
        assert_eq!(Client::connect(server.addr(1)).get("/").text(), "w0", "it is still listened on");
    }

    /// A connection that was there before the reload gets the new configuration with its next request.
    fn an_old_connection_sees_the_new_root(driver) {
        let conf = |root: &str| format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; root {root}; }} }}");
        let mut server = Server::builder(&conf("one")).file("one/a.txt", "1").file("two/a.txt", "2").start();
        let mut old: Vec<Client> = (0..5).map(|_| server.client()).collect();
        for client in &mut old {
            assert_serves(client, "/a.txt", "1");
        }
        server.reload(&conf("two"));
        wait_for("new root", || (server.get("/a.txt").text() == "2").then_some(()));
        for client in &mut old {
            assert_serves(client, "/a.txt", "2");
        }
    }

    /// An address that goes takes its idle connections along; one that comes is served.
    fn listeners_come_and_go(driver) {
        let one = "http { server { listen 127.0.0.1:%%PORT_0%%; return 200 v0; } }";
        let two = "http { server { listen 127.0.0.1:%%PORT_0%%; return 200 v1; } server { listen 127.0.0.1:%%PORT_1%%; return 200 w1; } }";
        let mut server = Server::start(two);
        let mut leaving = Client::connect(server.addr(1));
        assert_serves(&mut leaving, "/", "w1");
        server.reload(one);
        wait_for("refused connection", || std::net::TcpStream::connect(server.addr(1)).is_err().then_some(()));
        assert_eq!(server.get("/").text(), "v0");
        leaving.send(get("/"));
        match leaving.try_response() {
            // The request was on its way: it gets its response, and the connection ends.
            Ok(response) => assert!(!response.keeps_alive(), "{response}"),
            Err(error) => assert!(matches!(error, ReadError::Closed | ReadError::Reset), "{error}"),
        }
        server.reload(two);
        wait_for("second address", || std::net::TcpStream::connect(server.addr(1)).is_ok().then_some(()));
        assert_eq!(Client::connect(server.addr(1)).get("/").text(), "w1");
    }

    /// The response under way is finished as it began.
    fn an_answer_under_way_is_finished(driver) {
        let mut server = Server::builder(&answering("v0")).file("html/big", support::pattern(BIG)).start();
        let mut slow = server.client();
        slow.send(get("/big"));
        slow.peek(1).expect("it has begun");
        server.reload(&answering("v1"));
        wait_for("v1", || (server.get("/").text() == "v1").then_some(()));
        assert!(slow.response().body == support::pattern(BIG), "the whole file");
        assert_serves(&mut slow, "/", "v1");
    }

    /// Logs are those of the configuration a request began with.
    fn a_new_log_is_written(driver) {
        let conf = |log: &str| format!("http {{ access_log %%DIR%%/{log}; server {{ listen 127.0.0.1:%%PORT%%; return 200 {log}; }} }}");
        let mut server = Server::start(&conf("one.log"));
        let mut client = server.client();
        client.get("/1");
        server.reload(&conf("two.log"));
        wait_for("new configuration", || (server.get("/").text() == "two.log").then_some(()));
        client.get("/2");
        assert!(server.quit().status.success());
        let (one, two) = (server.dir().read("one.log"), server.dir().read("two.log"));
        assert!(one.contains("GET /1 ") && !one.contains("GET /2 "), "{one}");
        assert!(two.contains("GET /2 ") && !two.contains("GET /1 "), "{two}");
    }

    /// HUP and QUIT at once: it ends.
    fn a_reload_just_before_the_end(driver) {
        let mut server = Server::start(&answering("v0"));
        server.reload(&answering("v1"));
        server.signal(weir_test::ServerSignal::Quit);
        wait_refused(&server);
        assert!(server.wait_exit().status.success());
    }
}
