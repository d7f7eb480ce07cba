//! Each command and each path of the admin listener, against a server under a small load.

use crate::support::StopAtEnd;
use crate::support::says as said;

use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use weir_test::{Backend, Client, DEADLINE, Response, Server, both_drivers, require_program, wait_for};

const CONF: &str = "worker_processes 2; admin 127.0.0.1:%%PORT_1%%; admin unix:%%DIR%%/admin.sock;
    admin 127.0.0.1:%%PORT_2%% token=0123456789abcdef;
    http { limit_req_zone $uri zone=slow:64k rate=1000000r/s;
    server { listen 127.0.0.1:%%PORT_0%% reuseport; root html; keepalive_requests 1000000;
    location / { } location = /gone { return 502; }
    location = /limited { limit_req zone=slow burst=10; return 204; } location /img/ { alias html/; } } }";

fn started() -> Server {
    let server = Server::builder(CONF).file("html/a.txt", "0123456789").start();
    // The pid file is there before the control socket is.
    said::ready(&server);
    server
}

fn weir(server: &Server, words: &[&str]) -> Output {
    said::run(words, &said::of(server))
}

#[track_caller]
fn says(server: &Server, words: &[&str]) -> String {
    said::says(words, &said::of(server))
}

/// What it says once that is right: of an interval in which the requests that are meant were made.
#[track_caller]
fn says_once(server: &Server, words: &[&str], right: impl Fn(&str) -> bool) -> String {
    let end = Instant::now() + DEADLINE;
    loop {
        let said = says(server, words);
        if right(&said) {
            return said;
        }
        assert!(Instant::now() < end, "{words:?}: {said}");
    }
}

fn admin(server: &Server, path: &str) -> Response {
    asked(server, 1, path, "")
}

fn asked(server: &Server, port: usize, path: &str, fields: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    door(server, port).request(request)
}

/// A connection to the admin listener. A port can be in use as it is bound, by a client of another test: then it is
/// bound a little later.
fn door(server: &Server, port: usize) -> Client {
    let address = server.addr(port);
    wait_for("admin listener", || TcpStream::connect(address).is_ok().then_some(()));
    Client::connect(address)
}

/// Runs `f` while requests come.
fn loaded<T>(server: &Server, f: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for path in ["/a.txt", "/img/a.txt", "/gone"] {
            let done = &done;
            scope.spawn(move || {
                let mut client = server.client();
                while !done.load(Relaxed) {
                    let status = client.get(path).status;
                    assert!(status == 200 || status == 502, "{status}");
                    // A small load: these tests share the machine.
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let _stop = StopAtEnd(&done);
        f()
    })
}

/// The cell of the row that begins with `name`, by the head of its column; `None` without such a row.
#[track_caller]
fn cell(table: &str, name: &str, column: &str) -> Option<String> {
    let mut lines = table.lines();
    let head: Vec<&str> =
        lines.next().unwrap_or("").split("  ").map(str::trim).filter(|w| !w.is_empty()).collect();
    let at = head.iter().position(|word| *word == column).unwrap_or_else(|| panic!("no {column} in {table}"));
    let rows =
        lines.map(|line| line.split("  ").map(str::trim).filter(|w| !w.is_empty()).collect::<Vec<_>>());
    let row = rows.into_iter().find(|row| row.first() == Some(&name))?;
    Some(row[at].to_owned())
}

/// An endless `weir trace --avg` that gets SIGINT after `pause`: how it ended, and what it printed.
fn stopped_after(server: &Server, pause: Duration) -> (ExitStatus, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["trace", "--avg", "1000000000", "-c", "nginx.conf", "-p"])
        .arg(server.dir().path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    std::thread::sleep(pause);
    let interrupt = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status();
    assert!(interrupt.expect("a shell").success());
    let status = wait_for("its end", || child.try_wait().expect("our child"));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().expect("piped"), &mut text).expect("text");
    (status, text)
}

both_drivers! {
    /// What `mirror` makes is work that no client waits for, and is seen as other requests are.
    fn copies_of_requests_are_seen(driver) {
        let backends = [Backend::answering("a"), Backend::answering("b")];
        let ports = [&backends[0], &backends[1]].map(Backend::port);
        let server = Server::start(&format!(
            "http {{ upstream first {{ server 127.0.0.1:{}; }} upstream second {{ server 127.0.0.1:{}; }}
             server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ mirror /copy; proxy_pass http://first; }}
             location /copy {{ internal; proxy_pass http://second; }} }} }}",
            ports[0], ports[1]
        ));
        said::ready(&server);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Not by one connection, which ends after `keepalive_requests`.
                while !done.load(Relaxed) {
                    assert_eq!(server.get("/some/path").text(), "a");
                }
            });
            let seen = std::panic::catch_unwind(|| {
                let tree = says(&server, &["trace", "--match", "location=/copy", "-n", "1"]);
                // Phases in which nothing ran are left out.
                assert!(!tree.contains("-> post_access"), "{tree}");
                assert!(tree.contains("/copy") && tree.contains("proxy"), "{tree}");
                says_once(&server, &["top", "-b"], |table| table.contains("/copy"));
                says_once(&server, &["top", "upstreams", "-b"], |table| table.contains(&ports[1].to_string()));
            });
            done.store(true, Relaxed);
            seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    fn tables_of_what_goes_on(driver) {
        let server = started();
        loaded(&server, || {
            says_once(&server, &["top", "-b", "-d", "500ms"], |routes| {
                cell(routes, "= /gone", "502").as_deref() == Some("100.0%")
                    && cell(routes, "/", "5xx").as_deref() == Some("0.0%")
            });
            says_once(&server, &["top", "phases", "-b", "-d", "300ms"], |phases| {
                let rate = cell(phases, "content", "req/s").and_then(|rate| rate.parse::<f64>().ok());
                rate.is_some_and(|rate| rate > 0.0)
            });
            says_once(&server, &["top", "modules", "-b", "-d", "300ms"], |modules| {
                modules.contains("content static") && modules.contains("rewrite rewrite")
            });
            let workers = says(&server, &["top", "workers", "-b", "-d", "300ms"]);
            // On a busy machine a worker may be reported as blocked, or as one without a processor, too.
            let notes = [" is blocked for ", " waited for a processor "];
            let rows = workers.lines().filter(|line| !notes.iter().any(|note| line.contains(note)));
            assert_eq!(rows.count(), 4, "{workers}");
            for head in ["conns", "share", "dealt", "handed on", "taken over", "parked", "queued", "lag", "csw/s", "minflt/s", "majflt/s", "disk/s", "memory"] {
                assert!(workers.contains(head), "{workers}");
            }
            assert!(says(&server, &["top", "upstreams", "-b", "-d", "0"]).starts_with("peer"));
            says_once(&server, &["top", "routes", "--json", "-d", "300ms"], |json| {
                json.starts_with('[') && json.contains("\"share_502\":1.000000")
            });
            let resources = says(&server, &["use", "-t", "100ms"]);
            for resource in ["descriptors", "accept queues", "file threads", "key threads", "buffers", "to servers", "log queue"] {
                assert!(resources.contains(resource), "{resources}");
            }
            let full = cell(&resources, "limit_req_zone slow", "saturation");
            assert_eq!(full.as_deref(), Some("0 times full"), "{resources}");
            assert_eq!(cell(&resources, "limit_req_zone slow", "since start").as_deref(), Some("0 times full"));
            assert_eq!(cell(&resources, "disk", "since start").as_deref(), Some("0 log lines lost"), "{resources}");
        });
    }

    /// What only a busy worker knows is neither zero nor waited for.
    fn a_busy_worker_leaves_open_what_it_would_say(driver) {
        let block = "content_by_lua_block { os.execute('sleep 4') ngx.say('done') }";
        let server = Server::start(&format!(
            "events {{ worker_connections 77; }} http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ {block} }} }} }}"
        ));
        says_once(&server, &["use", "-t", "10ms"], |quiet| quiet.contains(" of 77") && !quiet.contains('?'));
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_for("a busy worker", || {
            let output = weir(&server, &["use", "-t", "10ms"]);
            let table = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && !table.contains(" of 0"), "{table}");
            (table.contains(" of ?") && table.ends_with("?: a worker is busy and does not say (weir blocked)\n")).then_some(())
        });
        assert_eq!(client.response().text(), "done\n");
    }

    /// Nobody learns anything from an empty table.
    fn an_idle_server_shows_all_time(driver) {
        let server = started();
        server.get("/");
        let idle = "no request ended in the last 100.0 ms: this is all since the server began";
        says_once(&server, &["top", "-b", "-d", "100ms"], |routes| {
            routes.contains(idle) && cell(routes, "/", "4xx").is_some()
        });
        assert!(!says(&server, &["top", "workers", "-b", "-d", "100ms"]).contains("no request ended"));
        assert!(!says(&server, &["top", "--json", "-d", "100ms"]).contains("no request ended"));
    }

    fn queues_of_sockets(driver) {
        let server = started();
        loaded(&server, || {
            // Whichever driver it has, a worker knows how long bytes waited; the kernel begins to stamp when it comes to it.
            wait_for("waits", || {
                let json = says(&server, &["queue", "-t", "300ms", "--json"]);
                let some = |queue: &str| {
                    let row = format!("\"queue\":\"{queue}\",\"count\":");
                    json.split(&row).skip(1).any(|rest| !rest.starts_with('0'))
                };
                (some("receive") && some("loop")).then_some(())
            });
            let table = says(&server, &["queue", "-t", "10ms"]);
            for queue in ["accept", "receive", "loop", "send", "send kernel", "send window", "listen 127.0.0.1:"] {
                assert!(table.contains(queue), "{table}");
            }
            let all = says(&server, &["queue", "--all"]);
            assert_eq!(cell(&all, "0", "queue").as_deref(), Some("accept"), "{all}");
        });
    }

    fn trees_of_requests(driver) {
        let server = started();
        loaded(&server, || {
            let trees = says(&server, &["trace", "--match", "status=502", "-n", "3"]);
            assert_eq!(trees.matches("GET /gone  502").count(), 3, "{trees}");
            let average = says(&server, &["trace", "http://any/img/a.txt", "--avg", "50"]);
            assert!(average.starts_with("50 requests: mean "), "{average}");
            for phase in weir_trace::PHASES {
                assert!(average.contains(&format!("-> {phase} ")), "{average}");
            }
            let json = says(&server, &["trace", "--avg", "20", "--json"]);
            assert!(json.starts_with("{\"requests\":20,"), "{json}");
            // Failed requests are retained.
            let slow = says(&server, &["slow", "-n", "1", "--match", "/gone"]);
            let id = slow.lines().nth(1).and_then(|line| line.split_whitespace().next()).expect("a row").to_owned();
            let tree = says(&server, &["explain", &id]);
            assert!(tree.starts_with("GET /gone  502") && tree.contains(&id), "{tree}");
            let json = says(&server, &["explain", &id, "--json"]);
            // It may be one of the three that were waited for; on a busy machine it may have taken so long that it blocked.
            let why = ["failed", "matched", "blocked_others"].iter().any(|why| json.starts_with(&format!("{{\"why\":\"{why}\",")));
            assert!(why && json.contains(&format!("\"id\":\"{id}\"")), "{json}");
            // A whole id: fewer digits may begin another request's.
            assert!(!weir(&server, &["explain", &"0".repeat(32)]).status.success());
        });
    }

    fn flames_and_profiles(driver) {
        let server = started();
        loaded(&server, || {
            says_once(&server, &["flame", "wall", "-t", "300ms", "-o", "folded"], |wall| {
                wall.lines().any(|line| line.starts_with("/;content;static "))
            });
            let words = ["flame", "wall", "-t", "300ms", "-o", "folded", "--phase", "content", "--route", "/"];
            let content = says_once(&server, &words, |content| !content.is_empty());
            assert!(content.lines().all(|line| line.starts_with("/;content;")), "{content}");
            let file = server.dir().path().join("wait.svg");
            says(&server, &["flame", "wait", "-t", "100ms", "-o", file.to_str().expect("text")]);
            assert!(std::fs::read_to_string(&file).expect("written").contains("</svg>"));
            let html = admin(&server, "/flame/cpu?seconds=0.5&fmt=html");
            assert_eq!((html.status, html.field("content-type")), (200, Some("text/html; charset=utf-8")));
            let profile = admin(&server, "/debug/pprof/profile?seconds=0.2");
            assert_eq!((profile.status, &profile.body[..2]), (200, &[0x1f, 0x8b][..]));
            assert_eq!(admin(&server, "/debug/pprof/block?seconds=0.2").body[..2], [0x1f, 0x8b]);
        });
    }

    fn timelines_of_what_workers_did(driver) {
        let server = started();
        let has = |file: &[u8], text: &str| file.windows(text.len()).any(|window| window == text.as_bytes());
        loaded(&server, || {
            let file = server.dir().path().join("weir.pftrace");
            let words = ["record", "--next", "-t", "300ms", "-o", file.to_str().expect("text")];
            // On a busy machine no request may end in so short a time.
            wait_for("requests in a timeline", || {
                says(&server, &words);
                let file = std::fs::read(&file).expect("written");
                (has(&file, "GET /gone") && has(&file, "content static") && has(&file, "requests 1")).then_some(())
            });
            // Of what nobody asked for nothing is retained; a loop may have been blocked just then.
            wait_for("an empty timeline", || {
                let words = ["record", "-t", "1ms", "--match", "path=/none", "-o", file.to_str().expect("text")];
                let out = weir(&server, &words);
                String::from_utf8_lossy(&out.stderr).contains("weir: it is empty: ").then_some(())
            });
            // Failed requests are retained.
            wait_for("kept requests", || {
                let kept = admin(&server, "/record.pftrace?seconds=600&match=status%3D502");
                assert_eq!((kept.status, has(&kept.body, "GET /img/")), (200, false));
                has(&kept.body, "GET /gone").then_some(())
            });
        });
    }

    fn commands_without_load(driver) {
        let server = started();
        assert!(says(&server, &["reqs"]).starts_with("id "));
        assert_eq!(says(&server, &["reqs", "--json"]), "[]\n");
        says(&server, &["blocked", "--over", "1h"]);
        says(&server, &["blocked", "--blame"]);
        let doctor = says(&server, &["doctor"]);
        assert!(doctor.contains("ok   server "), "{doctor}");
        for name in ["trace", "slow", "explain", "top", "flame", "blocked", "reqs", "queue", "use", "doctor", "profile"] {
            let help = says(&server, &[name, "--help"]);
            assert!(help.starts_with(&format!("usage: weir {name}")) && help.contains("--json"), "{help}");
        }
        assert!(says(&server, &["profile"]).contains("worker 0: level full, "));
        let json = says(&server, &["profile", "level", "--json"]);
        assert!(json.starts_with(r#"[{"worker":0,"level":"full","requests":"#), "{json}");
        assert!(says(&server, &["profile", "level", "sampled", "--for", "300ms"]).contains("level sampled"));
        wait_for("the old level", || says(&server, &["profile"]).contains("worker 0: level full, ").then_some(()));
        for words in [&["top", "colours"][..], &["flame", "hot"], &["flame", "-o", "a.png"], &["trace", "--what"], &["reqs", "all"]] {
            let output = weir(&server, words);
            assert!(!output.status.success() && output.stderr.starts_with(b"weir: "), "{words:?} {output:?}");
        }
    }

    /// Ctrl-C: what was collected until then is printed, and the status is that of success.
    fn what_is_stopped_prints_what_there_is(driver) {
        let server = started();
        loaded(&server, || {
            // It can't be seen from outside when it has asked and the workers collect: a busy machine needs longer.
            let whole = [500, 1000, 2000, 4000, 8000].into_iter().any(|ms| {
                let (status, text) = stopped_after(&server, Duration::from_millis(ms));
                status.success() && text.contains(" requests: mean ")
            });
            assert!(whole);
        });
    }

    fn paths_of_the_admin_listener(driver) {
        let server = started();
        assert_eq!(server.get("/gone").status, 502);
        assert_eq!(server.get("/a.txt").status, 200);
        for (path, text) in [
            ("/", "/metrics"),
            ("/slow", "GET /gone"),
            ("/reqs", "id "),
            ("/use?every=50ms", "descriptors"),
            ("/queue", "accept"),
            ("/top/routes", "/gone"),
            ("/top/workers", "memory"),
            ("/blocked?follow=no", ""),
            ("/blame", "because of"),
            ("/sites", "content static"),
            ("/debug/pprof/", "profile"),
            ("/debug/pprof/symbol", "num_symbols: 1"),
            ("/debug/pprof/cmdline", "weir"),
        ] {
            // A response may come before its request is recorded.
            wait_for(path, || {
                let response = admin(&server, path);
                assert_eq!(response.status, 200, "{path}: {response}");
                response.text().contains(text).then_some(())
            });
        }
        let json = asked(&server, 1, "/slow?n=1", "Accept: application/json\r\n");
        assert_eq!(json.field("content-type"), Some("application/json"));
        let id = json.text().split("\"id\":\"").nth(1).map(|rest| rest[..32].to_owned()).expect("an id");
        assert!(admin(&server, &format!("/req/{id}")).text().starts_with("GET /"));
        assert_eq!(admin(&server, "/req/zz").status, 404);
        assert_eq!(admin(&server, "/nothing").status, 404);
        assert_eq!(admin(&server, "/flame/cpu?fmt=png").status, 400);
        let mut client = door(&server, 1);
        assert_eq!(client.request("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nab").status, 405);
        assert_eq!(client.get("/reqs").status, 200);
        let mut unix = Client::connect_unix(&server.dir().path().join("admin.sock"));
        assert_eq!(unix.get("/use?every=10ms").status, 200);
    }

    /// Requests as they come: chunks, until the client has what it wanted.
    fn a_tree_by_http(driver) {
        let server = started();
        loaded(&server, || {
            let tree = admin(&server, "/trace?match=/gone&n=2");
            assert_eq!(tree.text().matches("GET /gone  502").count(), 2, "{tree}");
            assert!(tree.chunks.len() >= 2, "{:?}", tree.chunks);
            assert!(admin(&server, "/trace/avg?n=10").text().starts_with("10 requests"));
        });
    }

    fn who_may_ask(driver) {
        let server = started();
        let foreign = door(&server, 1).request("GET /reqs HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        assert_eq!(foreign.status, 403);
        assert_eq!(asked(&server, 2, "/reqs", "").status, 401);
        assert_eq!(asked(&server, 2, "/reqs", "Authorization: Bearer 0123456789abcdee\r\n").status, 401);
        assert_eq!(asked(&server, 2, "/reqs", "Authorization: Bearer 0123456789abcdef\r\n").status, 200);
    }

    /// A reload opens and closes doors, and changes tokens.
    fn doors_follow_the_configuration(driver) {
        let mut server = started();
        let text = CONF.replace("token=0123456789abcdef", "token=fedcba9876543210").replace("admin unix:%%DIR%%/admin.sock;", "");
        server.reload(&text);
        wait_for("the new token", || {
            (asked(&server, 2, "/reqs", "Authorization: Bearer fedcba9876543210\r\n").status == 200).then_some(())
        });
        let socket = server.dir().path().join("admin.sock");
        wait_for("the door's end", || std::os::unix::net::UnixStream::connect(&socket).is_err().then_some(()));
        assert_eq!(admin(&server, "/reqs").status, 200);
    }

    /// The busiest locations have series of their own, all others those of `other`; a reload with a higher bound adds
    /// what is new.
    fn metrics_of_more_locations_than_places_are_added_up(driver) {
        let conf = CONF.replace("http {", "metrics_locations 1; http {");
        let mut server = Server::builder(&conf).file("html/a.txt", "0123456789").start();
        (0..30).for_each(|_| assert_eq!(server.get("/gone").status, 502));
        ["/a.txt", "/img/a.txt", "/a.txt"].iter().for_each(|path| assert_eq!(server.get(path).status, 200));
        let text = || {
            let folded = "weir_metrics_locations_folded 2\n";
            let other = "weir_requests_total{location=\"other\",status=\"2xx\"} 3\n";
            wait_for("all requests", || {
                Some(admin(&server, "/metrics").text()).filter(|text| text.contains(folded) && text.contains(other))
            })
        };
        let before = text();
        assert!(before.contains("weir_requests_total{location=\"= /gone\",status=\"502\"} 30\n"), "{before}");
        assert!(before.contains("weir_request_duration_seconds_count{location=\"other\"} 3\n"), "{before}");
        assert!(before.contains("kind=\"handler\",phase=\"content\",location=\"other\""), "{before}");
        assert!(!before.contains("location=\"/\"") && !before.contains("location=\"/img/\""), "{before}");
        let new = "location = /new { return 204; } location /img/";
        server.reload(&CONF.replace("http {", "metrics_locations 2; http {").replace("location /img/", new));
        wait_for("the new configuration", || (server.get("/new").status == 204).then_some(()));
        let after = wait_for("the new location", || {
            Some(admin(&server, "/metrics").text()).filter(|text| text.contains("location=\"= /new\",status"))
        });
        assert!(after.contains("location=\"other\",status=\"2xx\"} 3\n") && !after.contains("location=\"/\""), "{after}");
        assert!(after.contains("location=\"= /new\",status=\"2xx\"} 1\n"), "{after}");
    }

    fn metrics_are_what_prometheus_reads(driver) {
        let server = started();
        (0..70).for_each(|_| assert_eq!(server.get("/gone").status, 502));
        // The last response may come before its request is counted.
        let all = "weir_requests_total{location=\"= /gone\",status=\"502\"} 70\n";
        let classic = wait_for("all of them", || {
            Some(admin(&server, "/metrics")).filter(|classic| classic.text().contains(all))
        });
        assert_eq!(classic.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        // Examples come from the workers, which may be busy.
        let open = wait_for("an exemplar", || {
            let accept = "Accept: application/openmetrics-text; version=1.0.0\r\n";
            Some(asked(&server, 1, "/metrics", accept).text()).filter(|open| open.contains("# {request_id=\""))
        });
        assert!(open.ends_with("# EOF\n") && open.contains("# TYPE weir_requests counter\n"), "{open}");
        let example = open.lines().find(|line| line.contains("# {request_id=\"")).expect("waited for above");
        let id = example.split("request_id=\"").nth(1).map(|rest| &rest[..32]).expect("an id");
        assert_eq!(admin(&server, &format!("/req/{id}")).status, 200, "{example}");
        let Some(promtool) = require_program("promtool") else { return };
        let mut check = Command::new(promtool)
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        check.stdin.take().expect("piped").write_all(&classic.body).expect("it reads");
        let output = check.wait_with_output().expect("our child");
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}

/// A client that does not send its head keeps out no other client, and the texts of the configuration show no token.
#[test]
fn sockets_that_trickle_do_not_shut_the_admin_listener() {
    let server = Server::start(CONF);
    let shown =
        admin(&server, &format!("/text?file={}/nginx.conf&line=1", server.dir().path().display())).text();
    assert!(shown.contains("token=***") && !shown.contains("0123456789abcdef"), "{shown}");
    let mut trickling: Vec<Client> = (0..40).map(|_| door(&server, 2)).collect();
    trickling.iter_mut().for_each(|client| drop(client.try_send("G")));
    let token = "Authorization: Bearer 0123456789abcdef\r\n";
    for _ in 0..3 {
        assert_eq!(asked(&server, 2, "/metrics", token).status, 200);
        trickling.iter_mut().for_each(|client| drop(client.try_send("E")));
    }
    assert_eq!(asked(&server, 2, "/metrics", "").status, 401);
}
