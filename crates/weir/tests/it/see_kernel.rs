//! `kernel`: what the kernel did for requests besides their run, in `weir top`, trees and `/metrics`.

use crate::support::says as said;

use weir_http::json::JsonValue;
use weir_test::{Backend, Client, Server, both_drivers, wait_for};

const CONF: &str = "worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%;
    http { client_max_body_size 64m; %%TRACE%%
    upstream back { server 127.0.0.1:%%BACKEND%%; keepalive 8; }
    server { listen 127.0.0.1:%%PORT_0%%; root html; keepalive_requests 1000000;
    location / { }
    location = /return { return 200 hello; }
    location = /back { proxy_http_version 1.1; proxy_set_header Connection ''; proxy_pass http://back; }
    location = /upload { proxy_request_buffering off; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_pass http://back; }
    location = /socket { content_by_lua_block {
        local socket = ngx.socket.tcp()
        assert(socket:connect('127.0.0.1', %%BACKEND%%))
        assert(socket:send('GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n'))
        ngx.print((assert(socket:receive())))
        socket:close()
    } }
    location = /checked { auth_request /check; return 200 checked; }
    location = /check { internal; proxy_pass_request_body off; proxy_set_header Content-Length ''; proxy_pass http://back; } } }";

struct KernelServer {
    server: Server,
    _backend: Backend,
}

fn conf(workers: &str, trace: &str, backend: &Backend) -> String {
    let conf = CONF.replace("%%WORKERS%%", workers).replace("%%TRACE%%", trace);
    conf.replace("%%BACKEND%%", &backend.port().to_string())
}

fn started(workers: &str, trace: &str) -> KernelServer {
    let backend = Backend::start(|visit| {
        while let Some(head) = visit.head() {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
            if visit.bytes(length.unwrap_or(0)).is_none() || !visit.answer("from behind") {
                break;
            }
        }
    });
    let server = Server::builder(&conf(workers, trace, &backend)).file("html/a.txt", "0123456789").start();
    said::ready(&server);
    KernelServer { server, _backend: backend }
}

fn number(value: &JsonValue, keys: &[&str]) -> u64 {
    let found = keys.iter().try_fold(value, |value, key| value.field(key));
    found.and_then(JsonValue::number).unwrap_or(0)
}

/// How many requests of a location were recorded, and what the kernel did for all of them, in nanoseconds.
fn charged(server: &Server, location: &str) -> (u64, u64) {
    let text = said::says(&["trace", "--sites", "--json"], &said::of(server));
    let json = JsonValue::parse(text.as_bytes()).expect("JSON");
    let is_it = |site: &&JsonValue| {
        let text = |key| site.field(key).and_then(JsonValue::text);
        text("kind") == Some("request") && text("location") == Some(location)
    };
    let site = json.list().expect("a list").iter().find(is_it);
    site.map_or((0, 0), |site| (number(site, &["run", "count"]), number(site, &["kernel_ns"])))
}

/// Waits until that many requests of a location were counted; what the kernel did for each, as a mean.
#[track_caller]
fn each(server: &Server, location: &str, requests: u64) -> u64 {
    let kernel = wait_for(&format!("{requests} requests of {location}"), || {
        let (count, kernel) = charged(server, location);
        (count == requests).then_some(kernel)
    });
    kernel / requests
}

fn get(client: &mut Client, path: &str) {
    let response = client.request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(response.status, 200, "{path}");
}

both_drivers! {
    fn every_kind_of_request_is_charged(driver) {
        for workers in ["1", "3"] {
            let KernelServer { server, _backend } = &started(workers, "");
            let mut client = server.client();
            let kinds = [("/a.txt", "/"), ("/return", "= /return"), ("/back", "= /back"), ("/checked", "= /checked")];
            for (path, _) in kinds {
                (0..20).for_each(|_| get(&mut client, path));
            }
            let means: Vec<u64> = kinds.iter().map(|(_, location)| each(server, location, 20)).collect();
            // A send is 94 ns at least, whatever was measured, and a request a thing of less than a second.
            assert!(means.iter().all(|ns| (90..1_000_000_000).contains(ns)), "{means:?}");
        }
    }

    fn a_connection_for_each_request_costs_it_more(driver) {
        let KernelServer { server, _backend } = &started("1", "");
        let mut client = server.client();
        // In turn, so that both are priced alike.
        for _ in 0..200 {
            get(&mut client, "/a.txt");
            get(&mut server.client(), "/return");
        }
        let (kept, anew) = (each(server, "/", 200), each(server, "= /return", 200));
        assert!(anew > kept, "{anew} ns with a connection, {kept} ns without");
    }

    fn sockets_of_scripts_are_their_requests(driver) {
        let KernelServer { server, _backend } = &started("1", "");
        let mut client = server.client();
        for _ in 0..100 {
            get(&mut client, "/socket");
            get(&mut client, "/return");
        }
        let (socket, alone) = (each(server, "= /socket", 100), each(server, "= /return", 100));
        assert!(socket > alone, "{socket} ns with a connection of its script's, {alone} ns without");
    }

    /// The send is the first one's; the others pay for their bytes.
    fn of_a_batch_the_first_pays_for_the_send(driver) {
        let KernelServer { server, _backend } = &started("1", "");
        let mut client = server.client();
        (0..50).for_each(|_| get(&mut client, "/a.txt"));
        let alone = each(server, "/", 50);
        for _ in 0..50 {
            client.send("GET /return HTTP/1.1\r\nHost: a\r\n\r\n".repeat(16));
            (0..16).for_each(|_| assert_eq!(client.response().status, 200));
        }
        let batched = each(server, "= /return", 50 * 16);
        assert!(batched * 2 < alone, "{batched} ns in batches of 16, {alone} ns alone");
    }

    /// Its body is received and sent in many turns of the loop; of a waiting connection nothing is charged to others.
    fn an_upload_pays_for_all_its_bytes(driver) {
        let KernelServer { server, _backend } = &started("1", "");
        let mut idle: Vec<Client> = (0..20).map(|_| server.client()).collect();
        idle.iter_mut().for_each(|client| get(client, "/return"));
        let mut client = server.client();
        (0..20).for_each(|_| get(&mut client, "/back"));
        let small = each(server, "= /back", 20);
        let body = vec![b'x'; 8 << 20];
        client.send(format!("GET /upload HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
        for piece in body.chunks(1 << 20) {
            client.send(piece);
            get(&mut idle[0], "/return");
        }
        assert_eq!(client.response().text(), "from behind");
        let upload = each(server, "= /upload", 1);
        assert!(upload > 2 * small, "{upload} ns for 8 MB, {small} ns without");
        drop(idle);
        get(&mut client, "/back");
        let after = charged(server, "= /back");
        assert!(after.1 < 20 * small + upload, "{after:?}");
    }

    fn it_is_shown_wherever_time_is(driver) {
        let KernelServer { server, _backend } = &started("1", "trace sample=1/1;");
        let mut client = server.client();
        (0..10).for_each(|_| get(&mut client, "/a.txt"));
        each(server, "/", 10);
        let place = said::of(server);
        let top = said::says(&["top", "routes", "-b", "-d", "0"], &place);
        assert!(top.contains("kernel/req"), "{top}");
        let phases = said::says(&["top", "phases", "-b", "-d", "0"], &place);
        let shares = phases.lines().filter_map(|line| line.split_whitespace().nth(4)?.strip_suffix('%'));
        let sum: f64 = shares.map(|share| share.parse::<f64>().expect("a share")).sum();
        assert!(phases.lines().any(|line| line.starts_with("kernel ")) && sum < 101.0, "{phases}");
        let slow = said::says(&["slow", "--json"], &place);
        let first = JsonValue::parse(slow.lines().next().expect("a request").as_bytes()).expect("JSON");
        let id = first.field("record").and_then(|record| record.field("id")).and_then(JsonValue::text).expect("an id");
        let explained = said::says(&["explain", id], &place);
        assert!(explained.contains("\n  kernel "), "{explained}");
        let metrics = Client::connect(server.addr(1)).request("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
        let sample = "weir_request_kernel_seconds_total{location=\"/\"} ";
        let seconds = metrics.lines().find_map(|line| line.strip_prefix(sample)?.parse::<f64>().ok());
        assert!(seconds.is_some_and(|seconds| seconds > 0.0), "{metrics}");
    }

    /// What was done while nothing was recorded is nobody's, on a connection that lives through both.
    fn what_was_not_recorded_is_not_charged_later(driver) {
        let KernelServer { mut server, _backend } = started("1", "trace level=off;");
        let mut client = server.client();
        (0..500).for_each(|_| get(&mut client, "/return"));
        assert_eq!(charged(&server, "= /return"), (0, 0));
        server.reload(&conf("1", "", &_backend));
        wait_for("the new configuration", || {
            get(&mut client, "/return");
            (charged(&server, "= /return").0 > 0).then_some(())
        });
        let (first, before) = charged(&server, "= /return");
        (0..500).for_each(|_| get(&mut client, "/return"));
        let (_, all) = wait_for("requests", || Some(charged(&server, "= /return")).filter(|now| now.0 == first + 500));
        assert!(before < (all - before).max(1) / 2, "{before} ns at first, then {} ns for 500", all - before);
    }

    fn a_log_line_has_what_is_recorded(driver) {
        let text = "http { log_format price '$trace_run $trace_kernel'; server { listen 127.0.0.1:%%PORT%%; access_log access.log price;
            location / { return 200 hello; } } }";
        let server = Server::start(text);
        get(&mut server.client(), "/");
        let line = server.access_log_lines(1).remove(0);
        let times: Vec<f64> = line.split(' ').map(|ms| ms.parse().expect("milliseconds")).collect();
        assert!(times.len() == 2 && times[1] > 0.0, "{line}");
    }

    /// A tunnel's bytes are its request's, once it ends.
    fn a_tunnel_is_charged_when_it_ends(driver) {
        let backend = Backend::start(|visit| {
            if visit.head().is_some() && visit.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n") {
                while let Some(bytes) = visit.bytes(4) {
                    visit.send(&bytes);
                }
            }
        });
        let text = "worker_processes 1; http { server { listen 127.0.0.1:%%PORT_0%%; location = /t { proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; proxy_pass http://127.0.0.1:%%BACKEND%%; } } }";
        let server = Server::start(&text.replace("%%BACKEND%%", &backend.port().to_string()));
        said::ready(&server);
        let mut client = server.client();
        client.send("GET /t HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n");
        assert_eq!(client.response_to_head().status, 101);
        for _ in 0..100 {
            client.send("ping");
            assert_eq!(client.bytes(4), b"ping");
        }
        client.half_close();
        client.rest();
        // A hundred receives and sends on both sides.
        assert!(each(&server, "= /t", 1) > 400 * 22);
    }
}
