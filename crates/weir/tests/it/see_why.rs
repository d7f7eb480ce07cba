//! `weir why`: twelve faults, each named with its place and nothing else named; and silence on a healthy server.

use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::faults::{FaultLoad, resetting_backend, slow_files, weir};
use weir_http::json::JsonValue;
use weir_test::{Backend, Client, Server, both_drivers, require_program, wait_for};

/// A finding: kind, sentence and line.
#[derive(Debug)]
struct Found {
    kind: String,
    says: String,
    line: String,
}

fn why(server: &Server) -> Vec<Found> {
    let text = weir(server, &["why", "-t", "1500ms", "--json"]);
    let json = JsonValue::parse(text.as_bytes()).expect("JSON");
    let list = json.field("findings").and_then(JsonValue::list).expect("a list");
    let text =
        |finding: &JsonValue, key: &str| finding.field(key).and_then(JsonValue::text).expect(key).to_owned();
    list.iter()
        .map(|finding| Found {
            kind: text(finding, "kind"),
            says: text(finding, "says"),
            line: text(finding, "line"),
        })
        .collect()
}

fn started(
    conf: &str,
    files: &[(&str, &str)],
    prepare: impl FnOnce(weir_test::TestServerBuilder) -> weir_test::TestServerBuilder,
) -> Server {
    let mut builder = Server::builder(conf);
    for (name, content) in files {
        builder = builder.file(name, content);
    }
    let server = prepare(builder).start();
    crate::support::says::ready(&server);
    server
}

/// Looks until `kind` is found with `place` in its sentence or line. Besides it, only want of a processor may be found:
/// the machine may be as busy as it likes.
fn named(server: &Server, kind: &str, place: &str) -> Found {
    let begun = Instant::now();
    let found = wait_for(&format!("{kind} at {place}"), || {
        let mut all = why(server);
        let wrong: Vec<&Found> = all.iter().filter(|one| one.kind != kind && one.kind != "no_core").collect();
        assert!(wrong.is_empty(), "instead of {kind}: {wrong:?}");
        let at = all
            .iter()
            .position(|one| one.kind == kind && (one.says.contains(place) || one.line.contains(place)))?;
        Some(all.swap_remove(at))
    });
    eprintln!("{:.1} s: {}", begun.elapsed().as_secs_f64(), found.says);
    found
}

const PAUSE: Duration = Duration::from_millis(1);

fn lua(script: &str) -> (String, String) {
    let conf = "worker_processes 1; events { } http { keepalive_requests 1000000; server { listen 127.0.0.1:%%PORT%%;
        location / { content_by_lua_file fault.lua; } } }";
    (conf.to_owned(), format!("{script}\nngx.say('done')"))
}

fn with_script(script: &str) -> Server {
    let (conf, script) = lua(script);
    started(&conf, &[("fault.lua", &script)], |builder| builder)
}

fn upstream(ports: &[u16]) -> String {
    let servers: String = ports.iter().map(|port| format!("server 127.0.0.1:{port};")).collect();
    format!(
        "worker_processes 1; events {{ }} http {{ keepalive_requests 1000000; upstream backends {{ {servers} keepalive 8; }}
        server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://backends; }} }} }}"
    )
}

both_drivers! {
    /// A zone of limits with room for a few clients: the others' limits begin again and again.
    fn zones_of_limits_that_forget(driver) {
        let conf = "worker_processes 1; http { limit_req_zone $arg_k zone=small:32k rate=1000r/s;
            server { listen 127.0.0.1:%%PORT_0%%; keepalive_requests 1000000;
            location / { limit_req zone=small burst=5; empty_gif; } } }";
        let server = started(conf, &[], |builder| builder.driver(driver));
        let (mut client, mut number) = (server.client(), 0);
        let _load = FaultLoad::default().with(move || {
            number += 1;
            client.send(format!("GET /?k={number:0>200} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let _ = client.try_response();
        });
        let says = wait_for("the finding", || {
            why(&server).into_iter().find(|found| found.kind == "zone").map(|found| found.says)
        });
        assert!(says.starts_with("limit_req_zone small (") && says.contains(" is full: "), "{says}");
    }

    /// A log on a disk that is full: how many lines are lost, and why.
    fn lines_of_logs_that_are_lost(driver) {
        let conf = "worker_processes 1; http { server { listen 127.0.0.1:%%PORT_0%%; keepalive_requests 1000000;
            location / { access_log /dev/full; return 200 ok; } } }";
        let server = started(conf, &[], |builder| builder.driver(driver).allow("/dev/full"));
        let _load = FaultLoad::default().clients(&server, 1, "/", Duration::from_millis(5));
        let says = wait_for("the finding", || {
            why(&server).into_iter().find(|found| found.kind == "logs").map(|found| found.says)
        });
        assert!(says.contains(" lines of logs were lost, "), "{says}");
        assert!(says.ends_with("write() to \"/dev/full\" failed (28: No space left on device)"), "{says}");
    }

    fn a_script_that_computes(driver) {
        let server = with_script("local ends, x = os.clock() + 0.03, 0\n\
            while os.clock() < ends do x = x + 1 end");
        let _load = FaultLoad::default().clients(&server, 2, "/", PAUSE);
        let found = named(&server, "cpu", "computed without a pause");
        assert!(found.says.contains("fault.lua:2"), "{found:?}");
    }

    /// It holds nothing up, and takes most of what the worker runs: in two locations, of which each has a half.
    fn a_script_that_takes_cpu_all_the_time(driver) {
        let conf = "worker_processes 1; events { } http { keepalive_requests 1000000; log_by_lua_file audit.lua;
            server { listen 127.0.0.1:%%PORT%%; location /a { return 200 ok; }
            location /b { return 200 ok; } } }";
        let script = "local ends, x = os.clock() + 0.0015, 0\nwhile os.clock() < ends do x = x + 1 end";
        let server = started(conf, &[("audit.lua", script)], |builder| builder);
        let _load = FaultLoad::default().clients(&server, 2, "/a", PAUSE).clients(&server, 2, "/b", PAUSE);
        let found = named(&server, "cpu", "audit.lua:2");
        let says = &found.says;
        assert!(says.starts_with("log_by_lua (nginx.conf:1) in /") && says.contains(" and one other location takes "), "{says}");
        assert!(says.contains("% of the workers' CPU, ") && says.contains(" a request, most of it at "), "{says}");
    }

    /// What it runs behind a wait is its own, also where few requests have their boundaries recorded.
    fn a_script_that_waits_first(driver) {
        let conf = "worker_processes 1; events { } http { keepalive_requests 1000000; trace level=sampled sample=1/64;
            server { listen 127.0.0.1:%%PORT%%; location /a {
            access_by_lua_block {
                ngx.sleep(0.001)
                local ends, x = os.clock() + 0.002, 0 while os.clock() < ends do x = x + 1 end
            } return 200 ok; } } }";
        let server = started(&conf.replace("return 200 ok", "empty_gif"), &[], |builder| builder);
        let _load = FaultLoad::default().clients(&server, 2, "/a", PAUSE);
        let found = named(&server, "cpu", "access_by_lua (nginx.conf:3)");
        assert!(found.says.contains("most of it at access_by_lua(nginx.conf:3):3"), "{found:?}");
        assert!(!found.says.contains(" a request"), "of most it is not known which requests they are of: {found:?}");
    }

    fn a_filter_with_a_dear_setting(driver) {
        let conf = "worker_processes 1; events { } http { keepalive_requests 1000000; server { listen 127.0.0.1:%%PORT%%; root html;
            gzip on; gzip_types text/plain;
            gzip_comp_level 9; location / { } } }";
        let text: String = (0..40_000_u64).map(|n| format!("{:x} ", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44)).collect();
        let server = started(conf, &[("html/a.txt", &text)], |builder| builder);
        let address = server.addr(0);
        let mut client = Client::connect(address);
        let _load = FaultLoad::default().with(move || {
            client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
            let _ = client.try_response();
        });
        let found = named(&server, "cpu", "gzip");
        let share = found.says.split("% of the workers'").next().and_then(|says| says.rsplit(' ').next());
        let share = share.and_then(|share| share.parse::<u32>().ok());
        assert!(share.is_none_or(|share| share <= 100), "{found:?}");
        // A turn of it may be a long one, too.
        if found.says.contains("computed without a pause") {
            return;
        }
        let says = &found.says;
        assert!(says.contains("; gzip_comp_level is 9 (nginx.conf:3): level 1 costs least") && found.line == "nginx.conf:2", "{found:?}");
    }

    fn a_timer_that_takes_cpu_all_the_time(driver) {
        let conf = "worker_processes 1; events { } http { init_worker_by_lua_file timer.lua;
            server { listen 127.0.0.1:%%PORT%%; location / { return 200 ok; } } }";
        let script = "local function work()\nlocal ends, x = os.clock() + 0.003, 0\nwhile os.clock() < ends do x = x + 1 end\nend\n\
            ngx.timer.every(0.004, work)";
        let server = started(conf, &[("timer.lua", script)], |builder| builder);
        let found = named(&server, "cpu", "timer.lua:3");
        assert!(found.says.starts_with("ngx.timer takes "), "{found:?}");
    }

    /// As busy as it gets, with nothing that takes more than it must.
    fn a_busy_server_of_short_responses_has_nothing_wrong(driver) {
        let conf = "worker_processes 1; events { } http { keepalive_requests 1000000; server { listen 127.0.0.1:%%PORT%%; root html;
            location / { return 200 ok; } location /file/ { alias html/; } } }";
        let server = started(conf, &[("html/a.txt", "text")], |builder| builder);
        let load = FaultLoad::default().clients(&server, 3, "/", Duration::ZERO);
        let _load = load.clients(&server, 3, "/file/a.txt", Duration::ZERO);
        for _ in 0..5 {
            let found: Vec<Found> = why(&server).into_iter().filter(|one| one.kind != "no_core").collect();
            assert!(found.is_empty(), "{found:?}");
        }
    }

    fn a_call_that_blocks(driver) {
        let server = with_script("local n = 1\nos.execute('sleep 0.02')");
        let _load = FaultLoad::default().clients(&server, 2, "/", PAUSE);
        let found = named(&server, "blocked", "fault.lua:2");
        assert!(found.says.contains("os.execute") && found.says.contains(" times a second"), "{found:?}");
    }

    /// Some requests of a location fail: the line that does it, and the failed request's own page has what the log says of it.
    fn a_script_that_fails_for_some(driver) {
        let (conf, script) = lua("local user = { name = 'ann' }\nif ngx.var.arg_none then user = nil end\nngx.say(user.name)");
        let server = started(&conf, &[("fault.lua", &script)], |builder| builder.allow("attempt to index"));
        let load = FaultLoad::default().clients(&server, 3, "/", PAUSE);
        let port = server.addr(0);
        // A 500 ends its connection.
        let _load = load.with(move || {
            let mut client = Client::connect(port);
            client.send("GET /?none=secret HTTP/1.1\r\nHost: a\r\n\r\n");
            let _ = client.try_response();
            thread::sleep(PAUSE);
        });
        let found = named(&server, "errors", "fault.lua:3");
        assert!(found.says.contains("% of the responses of / are 500") && found.says.contains("attempt to index"), "{found:?}");
        // Of a request the server remembers what was logged while it is one of the last 200 lines.
        let story = wait_for("a request with its line", || {
            let slow = weir(&server, &["slow", "--match", "status=5xx", "-n", "200", "--json"]);
            let kept = slow.lines().filter_map(|line| JsonValue::parse(line.as_bytes()).ok());
            let latest = kept.max_by_key(|kept| kept.path(&["record", "unix_ms"]).and_then(JsonValue::number))?;
            let id = latest.path(&["record", "id"]).and_then(JsonValue::text).expect("an id");
            Some(weir(&server, &["explain", id])).filter(|story| story.contains("\nlogged [error]: "))
        });
        assert!(story.contains("fault.lua:3: attempt to index"), "{story}");
        assert!(!story.contains("secret") && !found.says.contains("secret"), "{story}");
    }

    fn a_location_that_refuses_everything(driver) {
        let conf = "worker_processes 1; events { } http { keepalive_requests 1000000; server { listen 127.0.0.1:%%PORT%%;
            location / { return 200; } location /closed/ { deny all; } } }";
        let server = started(conf, &[], |builder| builder.allow("forbidden by rule"));
        let _load = FaultLoad::default().clients(&server, 2, "/", PAUSE).clients(&server, 1, "/closed/x", PAUSE);
        let found = named(&server, "errors", "/closed/");
        assert!(found.says.contains("100% of the responses") && found.says.contains("access forbidden by rule"), "{found:?}");
    }

    fn a_lock_that_another_program_holds(driver) {
        let server = with_script("local ffi = require 'ffi'\n\
            if not fault_fd then ffi.cdef 'int open(const char *, int); int flock(int, int);'\n\
            rawset(_G, 'fault_fd', ffi.C.open(ngx.config.prefix() .. 'fault.lua', 0)) end\n\
            ffi.C.flock(fault_fd, 2)\n\
            ffi.C.flock(fault_fd, 8)");
        let file = std::fs::File::open(server.dir().path().join("fault.lua")).expect("it is there");
        let load = FaultLoad::default().with(move || {
            file.lock().expect("a lock");
            thread::sleep(Duration::from_millis(25));
            file.unlock().expect("ours");
            thread::sleep(Duration::from_millis(2));
        });
        let _load = load.clients(&server, 2, "/", PAUSE);
        named(&server, "lock", "fault.lua:4");
    }

    /// What it collects is made in pieces: on a busy machine making it would be a fault of its own.
    fn a_collector_that_stops_the_worker(driver) {
        let server = with_script("if not fault_kept then\n\
            local kept = {}\n\
            for n = 1, 300000 do kept[n] = { n } if n % 1000 == 0 then ngx.sleep(0) end end\n\
            rawset(_G, 'fault_kept', kept) end\n\
            collectgarbage()");
        let _load = FaultLoad::default().clients(&server, 2, "/", PAUSE);
        named(&server, "gc", "garbage collection of Lua");
    }

    fn a_peer_that_is_slow(driver) {
        let quick = Backend::answering("quick");
        let slow = Backend::start(|visit| {
            while visit.head().is_some() {
                thread::sleep(Duration::from_millis(50));
                visit.answer("slow");
            }
        });
        let server = started(&upstream(&[quick.port(), slow.port()]), &[], |builder| builder);
        let _load = FaultLoad::default().clients(&server, 4, "/", PAUSE);
        named(&server, "slow_peer", &format!("127.0.0.1:{} is ", slow.port()));
    }

    /// Requests are repeated, so that no client sees anything.
    fn a_peer_that_resets_every_fifth_request(driver) {
        let well = Backend::answering("well");
        let broken = resetting_backend();
        let server = started(&upstream(&[well.port(), broken.port()]), &[], |builder| builder.allow("recv() failed").allow("prematurely closed"));
        let _load = FaultLoad::default().clients(&server, 2, "/", PAUSE);
        let peer = format!("127.0.0.1:{}", broken.port());
        let found = named(&server, "faulty_peer", &format!("{peer} of backends breaks off "));
        assert!(found.says.contains("requests were repeated and no client saw it"), "{found:?}");
        let row = wait_for("the peer's row", || {
            let table = weir(&server, &["top", "upstreams", "-b"]);
            table.lines().find(|row| row.starts_with(&peer)).map(str::to_owned)
        });
        let repeated: Vec<&str> = row.split_whitespace().collect();
        assert!(repeated[5].parse::<u64>().is_ok_and(|count| count > 0), "{row}");
    }

    fn a_peer_that_refuses(driver) {
        let well = Backend::answering("well");
        let gone = Backend::answering("gone");
        let port = gone.port();
        gone.kill();
        let server = started(&upstream(&[well.port(), port]), &[], |builder| builder.allow("Connection refused").allow("temporarily disabled"));
        let _load = FaultLoad::default().clients(&server, 2, "/", PAUSE);
        named(&server, "faulty_peer", &format!("127.0.0.1:{port} of backends "));
    }

    fn files_that_are_slow(driver) {
        let conf = "worker_processes 1; events { } http { keepalive_requests 1000000;
            server { listen 127.0.0.1:%%PORT%%; root html; sub_filter_types *; sub_filter_once off; sub_filter abc xyz; } }";
        let builder = Server::builder(conf).file("html/a.bin", vec![b'x'; 100_000]);
        let Some(library) = slow_files(builder.dir()) else { return };
        let server = builder.env("LD_PRELOAD", &library).start();
        crate::support::says::ready(&server);
        let _load = FaultLoad::default().clients(&server, 4, "/a.bin", PAUSE);
        named(&server, "disk", "file operations take");
    }

    fn an_accept_queue_that_is_full(driver) {
        let conf = "worker_processes 1; events { worker_connections 16; } http { keepalive_timeout 600;
            server { listen 127.0.0.1:%%PORT%% backlog=4; location / { return 200 ok; } } }";
        let server = started(conf, &[], |builder| builder.allow("worker_connections are not enough"));
        let mut open: Vec<Client> = (0..16).map(|_| server.client()).collect();
        for client in &mut open {
            client.send("GET / HTTP/1.1\r\n");
        }
        let address = server.addr(0);
        // The kernel lets no more in than the queue holds: what does not come in goes on trying.
        let brief = Duration::from_millis(300);
        let _load = (0..12).fold(FaultLoad::default(), |load, _| {
            load.with(move || {
                let stream = TcpStream::connect_timeout(&address, brief);
                thread::sleep(if stream.is_ok() { brief } else { PAUSE });
            })
        });
        let found = named(&server, "accept_queue", "the accept queue of ");
        assert!(found.says.contains(" is full: "), "{found:?}");
    }

    fn workers_whose_shares_are_uneven(driver) {
        let conf = |workers| format!("worker_processes {workers}; events {{ worker_connections 1024; }}
            http {{ client_header_timeout 600s; server {{ listen 127.0.0.1:%%PORT%%; location / {{ return 200 ok; }} }} }}");
        let mut server = started(&conf(1), &[], |builder| builder);
        // What has begun a request stays with its worker.
        let mut open: Vec<Client> = (0..60).map(|_| server.client()).collect();
        for client in &mut open {
            client.send("GET / HTTP/1.1\r\n");
        }
        server.reload(&conf(2));
        named(&server, "uneven", "worker 0 has ");
    }

    fn a_worker_whose_core_others_have(driver) {
        let Some(taskset) = require_program("taskset") else { return };
        let conf = "worker_processes 1; worker_cpu_affinity 1; events { } http { keepalive_requests 1000000;
            server { listen 127.0.0.1:%%PORT%%; location / { content_by_lua_block {
                local ends = os.clock() + 0.002 while os.clock() < ends do end ngx.print('done') } } } }";
        let server = started(conf, &[], |builder| builder);
        let mut load = FaultLoad::default().clients(&server, 2, "/", PAUSE);
        for _ in 0..3 {
            let mut spinner = Command::new(&taskset);
            spinner.args(["-c", "0", "sh", "-c", "while :; do :; done"]);
            load.children.push(spinner.spawn().expect("taskset runs"));
        }
        let found = named(&server, "no_core", "worker 0 was ready and had no processor for ");
        assert!(found.says.contains("times of running include that"), "{found:?}");
    }

    /// Ten times: files, two servers that are alike, a script, all at once. Want of a processor is the machine's.
    fn a_healthy_server_has_none(driver) {
        let (one, other) = (Backend::answering("well"), Backend::answering("well"));
        let conf = format!(
            "worker_processes 2; events {{ }} http {{ keepalive_requests 1000000; gzip on; gzip_min_length 1;
            upstream backends {{ server 127.0.0.1:{}; server 127.0.0.1:{}; keepalive 8; }}
            server {{ listen 127.0.0.1:%%PORT%%; root html;
                location /api/ {{ proxy_pass http://backends; }}
                location /lua/ {{ content_by_lua_block {{ ngx.sleep(0.01) ngx.print(('text '):rep(100)) }} }} }} }}",
            one.port(),
            other.port()
        );
        let server = started(&conf, &[("html/a.txt", &"text ".repeat(200))], |builder| builder);
        let pause = Duration::from_millis(10);
        let load = FaultLoad::default().clients(&server, 2, "/api/", pause).clients(&server, 2, "/lua/", pause);
        let _load = load.clients(&server, 2, "/a.txt", pause);
        for _ in 0..10 {
            let found: Vec<Found> = why(&server).into_iter().filter(|one| one.kind != "no_core").collect();
            assert!(found.is_empty(), "{found:?}");
        }
    }
}
