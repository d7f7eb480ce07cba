//! HTTP/3, asked by aioquic: a client in Python of its own make.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use weir_http::json::JsonValue;
use weir_test::{
    Driver, Server, ServerSignal, TestServerBuilder, both_drivers, require_program, skip, wait_for,
};

use super::process;
use super::support::tls::{authority, own};

/// Python with aioquic; `None`: the test is skipped.
fn client() -> Option<std::path::PathBuf> {
    let python = require_program("python3")?;
    let has = Command::new(&python).args(["-c", "import aioquic"]).stderr(Stdio::null()).status();
    if !has.expect("python runs").success() {
        skip("aioquic, a Python package, is not installed");
        return None;
    }
    Some(python)
}

/// What the client says of each response; `plan` is JSON as tests/data/http3_client.py has it.
#[track_caller]
fn ask(python: &Path, plan: &str) -> Vec<JsonValue> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/http3_client.py");
    let mut command = Command::new(python);
    command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("python runs");
    child.stdin.take().expect("piped").write_all(plan.as_bytes()).expect("it reads its plan");
    let output = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| JsonValue::parse(line).expect("a line of JSON")).collect()
}

fn status(response: &JsonValue) -> Option<u64> {
    response.field("status").and_then(JsonValue::number)
}

#[track_caller]
fn body(response: &JsonValue) -> &str {
    response.field("body").and_then(JsonValue::text).unwrap_or_else(|| panic!("a body: {response:?}"))
}

fn header<'r>(response: &'r JsonValue, name: &str) -> Option<&'r str> {
    response.path(&["headers", name]).and_then(JsonValue::text)
}

fn is(response: &JsonValue, what: &str) -> bool {
    response.field(what).and_then(JsonValue::bool) == Some(true)
}

/// The configuration of a server with a certificate; `%%PORT_0%%` is the port of QUIC.
fn conf(main: &str, server: &str) -> String {
    format!(
        "{main} http {{ ssl_certificate a.crt; ssl_certificate_key a.key; root files; access_log access.log;
            server {{ listen 127.0.0.1:%%PORT_0%% quic; {server} }} }}"
    )
}

fn builder(main: &str, server: &str) -> TestServerBuilder {
    let pair = own("localhost");
    Server::builder(&conf(main, server)).file("a.crt", &pair.certificate).file("a.key", &pair.key)
}

fn serve(driver: Driver, main: &str, server: &str) -> Server {
    builder(main, server).driver(driver).start()
}

both_drivers! {
    fn requests_are_served_with_fields_variables_and_bodies(driver) {
        let Some(python) = client() else { return };
        let server = serve(
            driver,
            "",
            r#"location / { add_header X-Seen "$http3 $server_protocol $scheme $request_method $host $arg_a" always;
                return 200 "$request_uri|$http_x_own|$ssl_protocol|$ssl_server_name"; }
              location /echo { client_max_body_size 0; proxy_pass http://127.0.0.1:%%PORT_1%%; }
              location /none { return 204; }
            } server { listen 127.0.0.1:%%PORT_1%%; location / { client_max_body_size 0; client_body_buffer_size 2m;
                echo_read_request_body; echo_request_body; }"#,
        );
        let port = server.port(0);
        let plan = format!(
            r#"{{"port": {port}, "name": "localhost", "steps": [
                [{{"path": "/x?a=5", "headers": [["x-own", "mine"]]}}, {{"path": "/none"}}, {{"path": "/"}}],
                [{{"method": "POST", "path": "/echo", "body": "0123456789", "repeat": 100000}},
                 {{"method": "POST", "path": "/echo", "body": "small"}}]]}}"#
        );
        let all = ask(&python, &plan);
        assert_eq!(all.len(), 5);
        assert_eq!(body(&all[0]), "/x?a=5|mine|TLSv1.3|localhost");
        assert_eq!(header(&all[0], "x-seen"), Some("h3 HTTP/3.0 https GET localhost 5"));
        assert_eq!(all.iter().map(status).collect::<Vec<_>>(), [Some(200), Some(204), Some(200), Some(200), Some(200)]);
        assert_eq!(all[3].field("length").and_then(JsonValue::number), Some(1_000_000));
        assert_eq!(body(&all[4]), "small");
        assert!(all.iter().all(|one| is(one, "ended")));
        let lines = server.access_log_lines(7);
        assert!(lines.iter().any(|line| line.contains("\"GET /x?a=5 HTTP/3.0\" 200")), "{lines:?}");
    }

    fn hints_come_before_the_head(driver) {
        let Some(python) = client() else { return };
        let server = serve(driver, "", "early_hint Link '<$uri.css>'; location / { stub_status; } location /no { early_hints 0; stub_status; }");
        let paths = ["/a", "/a", "/no", "/a%0d%0aX-Own:%201"].map(|path| format!(r#"[{{"path": "{path}"}}]"#)).join(", ");
        let all = ask(&python, &format!(r#"{{"port": {}, "steps": [{paths}]}}"#, server.port(0)));
        let hints = |one: &JsonValue| format!("{:?}", one.field("interim"));
        assert!(all.iter().all(|one| status(one) == Some(200) && is(one, "ended")), "{all:?}");
        assert!(hints(&all[0]).contains("</a.css>") && hints(&all[0]) == hints(&all[1]), "{all:?}");
        assert_eq!(hints(&all[2]), hints(&all[3]), "none");
        assert!(!hints(&all[2]).contains("103"), "{all:?}");
    }

    /// A server process that is gone can't say so; the next one does, and clients begin again at once.
    fn clients_of_a_crashed_process_learn_of_it_from_the_next(driver) {
        let Some(python) = client() else { return };
        for workers in [1, 2] {
            let server = builder(&format!("worker_processes {workers}; master_process on;"), "return 200 $pid;")
                .driver(driver)
                .allow("exited on signal 9")
                .start();
            let go = server.dir().path().join("go");
            let plan = format!(
                r#"{{"port": {}, "await": "{}", "steps": [[{{}}], [{{}}]]}}"#,
                server.port(0),
                go.display()
            );
            let all = std::thread::scope(|scope| {
                let asked = scope.spawn(|| ask(&python, &plan));
                assert_eq!(server.access_log_lines(1).len(), 1);
                let first = process::server_of(server.pid(), None);
                process::kill(first, "KILL");
                process::server_of(server.pid(), Some(first));
                std::fs::write(&go, "").expect("ours");
                asked.join().expect("no panic")
            });
            assert_eq!(status(&all[0]), Some(200));
            assert!(is(&all[1], "is_reset") && !is(&all[1], "ended"), "{all:?}");
        }
    }

    /// USR2, back, and there for good: connections stay with the process that has them, new ones go to the new one.
    fn an_upgrade_loses_nothing(driver) {
        let Some(python) = client() else { return };
        for workers in [1, 3] {
            let content: Vec<u8> = (0..600_000_u32).map(|at| (at % 251) as u8).collect();
            let mut server = builder(
                &format!("worker_processes {workers}; master_process on;"),
                "location / { return 200 $pid; } location /large { limit_rate 300k; }",
            )
            .file("files/large", &content)
            .driver(driver)
            .start();
            let (port, pid, old) = (server.port(0), server.dir().path().join("nginx.pid"), server.pid());
            let old_server = process::server_of(old, None).to_string();
            let one = format!(r#"{{"port": {port}, "steps": [[{{}}]]}}"#);
            let new_clients = std::cell::Cell::new(0);
            let new_client = || {
                new_clients.set(new_clients.get() + 1);
                body(&ask(&python, &one)[0]).to_owned()
            };
            let plan = |go: &Path, steps: &str| {
                format!(r#"{{"port": {port}, "pause": 0.05, "await": "{}", "steps": [[{{}}], {steps}]}}"#, go.display())
            };
            let (go, end) = (server.dir().path().join("go"), server.dir().path().join("end"));
            let (many, large) = (plan(&go, &["[{}]"; 40].join(", ")), plan(&end, r#"[{"path": "/large"}, {}]"#));
            let last = std::thread::scope(|scope| {
                let begin = |plan: &'_ String| {
                    let (python, plan) = (python.clone(), plan.clone());
                    scope.spawn(move || ask(&python, &plan))
                };
                // So many connections that each worker has some, most probably.
                let asking: Vec<_> = (0..4).map(|_| begin(&many)).collect();
                let loading: Vec<_> = (0..4).map(|_| begin(&large)).collect();
                let _served = server.access_log_lines(8);
                std::fs::write(&go, "").expect("ours");
                // There and back: the new binary is sent home.
                let (new, new_server) = process::upgrade::upgrade(&pid, old);
                wait_for("a new client at the new server", || (new_client() == new_server.to_string()).then_some(()));
                process::kill(new, "QUIT");
                process::wait_gone(new);
                assert_eq!(new_client(), old_server);
                // There for good, amid the same connections.
                let (new, new_server) = process::upgrade::upgrade(&pid, old);
                wait_for("a new client at the new server", || (new_client() == new_server.to_string()).then_some(()));
                for asked in asking {
                    let all = asked.join().expect("it asks");
                    assert!(all.len() == 41 && all.iter().all(|it| body(it) == old_server), "{all:?}");
                }
                std::fs::write(&end, "").expect("ours");
                // Files have begun where the small response beside them is there.
                let lines = 8 + 4 * 40 + new_clients.get() + 4;
                let _begun = server.access_log_lines(lines);
                process::kill(old, "QUIT");
                for loaded in loading {
                    let all = loaded.join().expect("it asks");
                    let length = all[1].field("length").and_then(JsonValue::number);
                    assert!(is(&all[1], "ended") && length == Some(600_000), "{all:?}");
                }
                process::wait_gone(old);
                assert_eq!(new_client(), new_server.to_string());
                new
            });
            process::kill(last, "QUIT");
            process::wait_gone(last);
            assert!(server.wait_exit().status.success());
        }
    }

    /// Streams are served by their urgencies (RFC 9218), and a request that comes late is not behind what others have.
    fn urgent_files_come_first(driver) {
        let Some(python) = client() else { return };
        let content: Vec<u8> = (0..2_000_000_u32).map(|at| (at % 251) as u8).collect();
        let server = builder("", "location / { }").file("files/f", &content).driver(driver).start();
        let file = |priority: &str| format!(r#"{{"path": "/f", "headers": [["priority", "{priority}"]]}}"#);
        let steps = [["u=7", "u=0"], ["u=3", "u=2, i"], ["u=3, i", "u=3"], ["", "u=5"], ["i", "i"]];
        let steps: Vec<_> = steps.iter().map(|pair| format!("[{}, {}]", file(pair[0]), file(pair[1]))).collect();
        let all = ask(&python, &format!(r#"{{"port": {}, "steps": [{}]}}"#, server.port(0), steps.join(", ")));
        assert!(all.iter().all(|one| is(one, "ended")), "{all:?}");
        // Bytes that the other had, beside what earlier steps have left.
        let behind = |at: usize| {
            let number = all[at].field("behind").and_then(JsonValue::number).expect("it has ended");
            number - 2_000_000 * (at as u64 / 2) * 2
        };
        let (first, shared) = ([1, 3, 5, 6].map(behind), behind(8).min(behind(9)));
        assert!(first.iter().all(|bytes| *bytes < 700_000), "{first:?}");
        assert!(shared > 1_000_000, "{shared}");
    }

    /// `send_timeout` is over for a stream whose own window the client leaves closed, whatever it takes of others; one that waits for
    /// its turn has time.
    fn a_stream_that_its_client_holds_back_is_given_up(driver) {
        let Some(python) = client() else { return };
        let content = vec![b'x'; 1_000_000];
        let server = builder("", "send_timeout 1s; location / { } location /paced { alias files/f; limit_rate 250k; }")
            .file("files/f", &content)
            .driver(driver)
            .start();
        let step = r#"[{"path": "/f", "stall": true}, {"path": "/paced"}]"#;
        let plan = format!(r#"{{"port": {}, "window": 200000, "steps": [{step}]}}"#, server.port(0));
        let all = ask(&python, &plan);
        let length = |at: usize| all[at].field("length").and_then(JsonValue::number);
        assert!(is(&all[1], "ended") && length(1) == Some(1_000_000), "{all:?}");
        assert!(!is(&all[0], "ended") && length(0).is_some_and(|length| length <= 200_000), "{all:?}");
        assert!(all[0].field("reset").and_then(JsonValue::number).is_some(), "{all:?}");
        let log = server.access_log_lines(2);
        assert!(log[0].contains("GET /f ") && log[1].contains("GET /paced "), "{log:?}");
    }

    fn many_streams_and_large_files_are_whole(driver) {
        let Some(python) = client() else { return };
        for workers in [1, 8] {
            let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
            let small = &content[..10_000];
            let server = builder(&format!("worker_processes {workers};"), "location / { }")
                .file("files/large", &content)
                .file("files/small", small)
                .driver(driver)
                .start();
            let many = [r#"{"path": "/small"}"#; 100].join(", ");
            let plan = format!(
                r#"{{"port": {}, "steps": [[{many}], [{{"path": "/large"}}, {{"path": "/small"}}, {{"path": "/large"}}], [{many}]]}}"#,
                server.port(0)
            );
            let all = ask(&python, &plan);
            assert_eq!(all.len(), 203);
            let sum = |of: &str| {
                let wanted: Vec<_> = all.iter().filter(|one| one.field("length").and_then(JsonValue::number)
                    == Some(if of == "large" { 3_000_000 } else { 10_000 })).collect();
                let sums: std::collections::BTreeSet<_> = wanted.iter().map(|one| format!("{:?}", one.field("sum"))).collect();
                (wanted.len(), sums.len())
            };
            assert_eq!((sum("large"), sum("small")), ((2, 1), (201, 1)));
        }
    }

    /// What came before a reload goes on, and what comes after it is the new configuration's, on the same connection.
    fn a_reload_loses_nothing(driver) {
        let Some(python) = client() else { return };
        let mut server = serve(driver, "worker_processes 2;", "location / { return 200 old; }");
        let port = server.port(0);
        let one = format!(r#"{{"port": {port}, "steps": [[{{"path": "/"}}]]}}"#);
        assert_eq!(body(&ask(&python, &one)[0]), "old");
        let asked = std::thread::scope(|scope| {
            let steps = [r#"[{"path": "/"}]"#; 20].join(", ");
            let plan = format!(r#"{{"port": {port}, "pause": 0.1, "steps": [{steps}]}}"#);
            let python = &python;
            let asking = scope.spawn(move || ask(python, &plan));
            let _served = server.access_log_lines(4);
            server.reload(&conf("worker_processes 2;", "location / { return 200 new; }"));
            asking.join().expect("it asks")
        });
        let bodies: Vec<_> = asked.iter().map(|one| (status(one), body(one).to_owned())).collect();
        assert_eq!(bodies.len(), 20);
        assert!(bodies.iter().all(|(status, _)| *status == Some(200)), "{bodies:?}");
        assert_eq!(body(&ask(&python, &one)[0]), "new");
    }

    fn a_server_that_quits_says_goodbye_and_ends(driver) {
        let Some(python) = client() else { return };
        let mut server = serve(driver, "", "location / { return 200 well; }");
        let plan = format!(r#"{{"port": {}, "linger": 20, "steps": [[{{"path": "/"}}]]}}"#, server.port(0));
        std::thread::scope(|scope| {
            let python = &python;
            let asking = scope.spawn(move || ask(python, &plan));
            let _served = server.access_log_lines(1);
            server.signal(ServerSignal::Quit);
            assert!(server.wait_exit().status.success());
            let lines = asking.join().expect("it asks");
            assert_eq!(lines[1].field("closed").and_then(JsonValue::number), Some(0x100), "{lines:?}");
        });
    }

    /// The connection ends once its client has all of what was composed.
    fn the_last_response_of_a_connection_is_whole(driver) {
        let Some(python) = client() else { return };
        let content = vec![b'x'; 1_000_000];
        let server = builder("", "keepalive_requests 2; location / { }").file("files/f", &content).driver(driver).start();
        let step = r#"[{"path": "/f"}, {"path": "/f"}]"#;
        let all = ask(&python, &format!(r#"{{"port": {}, "linger": 20, "steps": [{step}]}}"#, server.port(0)));
        assert_eq!(all.len(), 3, "{all:?}");
        let length = |at: usize| all[at].field("length").and_then(JsonValue::number);
        assert!((0..2).all(|at| is(&all[at], "ended") && length(at) == Some(1_000_000)), "{all:?}");
        assert_eq!(all[2].field("closed").and_then(JsonValue::number), Some(0x100), "{all:?}");
    }

    /// At once, and not once its own time for silence is over.
    fn a_server_that_stops_tells_its_clients(driver) {
        let Some(python) = client() else { return };
        let mut server = serve(driver, "worker_processes 2;", "location / { return 200 well; }");
        let plan = format!(r#"{{"port": {}, "linger": 20, "steps": [[{{"path": "/"}}]]}}"#, server.port(0));
        std::thread::scope(|scope| {
            let asking: Vec<_> = (0..4).map(|_| scope.spawn(|| ask(&python, &plan))).collect();
            let _served = server.access_log_lines(4);
            server.signal(ServerSignal::Term);
            assert!(server.wait_exit().status.success());
            for asked in asking {
                let lines = asked.join().expect("it asks");
                assert_eq!(lines[1].field("closed").and_then(JsonValue::number), Some(0x100), "{lines:?}");
            }
        });
    }

    fn a_client_without_a_certificate_is_refused_where_one_is_required(driver) {
        let Some(python) = client() else { return };
        let ca = authority("ca");
        let mine = ca.issue("client");
        let server = builder("", "ssl_client_certificate ca.crt; ssl_verify_client on; location / { return 200 $ssl_client_verify; }")
            .file("ca.crt", &ca.certificate)
            .file("mine.crt", &mine.certificate)
            .file("mine.key", &mine.key)
            .driver(driver)
            .start();
        let (port, dir) = (server.port(0), server.dir().path().display().to_string());
        let without = ask(&python, &format!(r#"{{"port": {port}, "steps": [[{{}}]]}}"#));
        assert_eq!(status(&without[0]), Some(400));
        let certificate = format!(r#"["{dir}/mine.crt", "{dir}/mine.key"]"#);
        let with = ask(&python, &format!(r#"{{"port": {port}, "certificate": {certificate}, "steps": [[{{}}]]}}"#));
        assert_eq!((status(&with[0]), body(&with[0])), (Some(200), "SUCCESS"));
    }

    fn sessions_are_resumed_and_retry_asks_once_more(driver) {
        let Some(python) = client() else { return };
        for retry in ["", "quic_retry on;"] {
            let server = serve(driver, "", &format!("{retry} location / {{ return 200 $ssl_session_reused; }}"));
            let plan = format!(r#"{{"port": {}, "sessions": 2, "steps": [[{{}}]]}}"#, server.port(0));
            let all = ask(&python, &plan);
            assert_eq!((body(&all[0]), body(&all[1])), (".", "r"), "{retry}");
        }
    }

    fn clients_that_give_up_leave_nothing_behind(driver) {
        let Some(python) = client() else { return };
        let server = builder("", "location / { } location /slow { limit_rate 1k; }")
            .file("files/large", vec![b'x'; 2_000_000])
            .file("files/slow", vec![b'x'; 2_000_000])
            .driver(driver)
            .start();
        let plan = format!(
            r#"{{"port": {}, "steps": [
                [{{"path": "/large", "stop": true}}, {{"path": "/slow", "stop": true}}, {{"path": "/large", "reset": true}},
                 {{"method": "POST", "path": "/large", "body": "x", "end": false, "reset": true}}],
                [{{"path": "/large"}}]]}}"#,
            server.port(0)
        );
        let all = ask(&python, &plan);
        assert_eq!((status(&all[4]), all[4].field("length").and_then(JsonValue::number)), (Some(200), Some(2_000_000)));
        // One that was reset before anything of it was read is none.
        let _given_up = server.access_log_lines(3);
    }

    /// Each of them costs a stream until this side has ended its direction, too: then nothing more could be asked.
    fn a_connection_outlives_more_cancelled_requests_than_may_be_open(driver) {
        let Some(python) = client() else { return };
        let server = builder("", "http3_max_concurrent_streams 8; location / { } location /slow { limit_rate 1k; }")
            .file("files/small", b"small")
            .file("files/slow", vec![b'x'; 100_000])
            .driver(driver)
            .start();
        let part = r#"{"method": "POST", "path": "/small", "body": "x", "end": false, "reset": true}"#;
        let cancelled = [r#"{"path": "/slow", "stop": true}"#, r#"{"path": "/slow", "reset": true}"#, part].map(|one| format!("[{one}]"));
        let steps = cancelled.iter().cycle().take(40).cloned().collect::<Vec<_>>().join(", ");
        let plan = format!(r#"{{"port": {}, "pause": 0.02, "patience": 20, "steps": [{steps}, [{{"path": "/small"}}]]}}"#, server.port(0));
        let all = ask(&python, &plan);
        assert_eq!(all.last().map(|last| (status(last), body(last))), Some((Some(200), "small")));
    }

    /// ... and does not wait for the end of what it can't have.
    fn a_malformed_request_is_refused_and_its_stream_reset(driver) {
        let Some(python) = client() else { return };
        let server = serve(driver, "", "location / { return 200 well; }");
        let plan = format!(
            r#"{{"port": {}, "patience": 20, "steps": [
                [{{"headers": [["connection", "close"]]}}, {{"method": "POST", "headers": [["content-length", "7"]], "body": "x"}}], [{{}}]]}}"#,
            server.port(0)
        );
        let all = ask(&python, &plan);
        let reset = |one: &JsonValue| one.field("reset").and_then(JsonValue::number);
        assert_eq!((status(&all[0]), reset(&all[0])), (Some(400), Some(0x10e)), "{:?}", all[0]);
        // What it has sent wrongly comes after its response.
        assert_eq!(reset(&all[1]), Some(0x10e), "{:?}", all[1]);
        assert_eq!(body(&all[2]), "well");
        assert_eq!(server.access_log_lines(3).len(), 3);
    }

    /// A request that outlives its connection ends as it is: the next connection may have its place by then.
    fn a_request_that_outlives_its_connection_disturbs_none_after_it(driver) {
        let Some(python) = client() else { return };
        let server = serve(driver, "", "location / { return 200 well; } location /long { content_by_lua_block { ngx.sleep(1.5) ngx.say(1) } }");
        let port = server.port(0);
        let gone = ask(&python, &format!(r#"{{"port": {port}, "steps": [[{{"path": "/long", "stop": true}}]]}}"#));
        assert_eq!(gone.len(), 1);
        let steps = [r#"[{"path": "/"}]"#; 12].join(", ");
        let all = ask(&python, &format!(r#"{{"port": {port}, "pause": 0.2, "patience": 10, "steps": [{steps}]}}"#));
        assert_eq!(all.iter().filter(|one| status(one) == Some(200)).count(), 12);
    }
}
