//! `/history` of the admin listener: the last minute and the last hour, as the page draws them.

use weir_http::json::JsonValue;
use weir_test::{Client, Server, both_drivers, wait_for};

const CONF: &str = "worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%; admin 127.0.0.1:%%PORT_2%% token=0123456789abcdef;
    http { server { listen 127.0.0.1:%%PORT_0%%; root html;
        location /fine/ { return 200 fine; }
        location /fails/ { return 503; }
        location /peer/ { proxy_pass http://127.0.0.1:%%PORT_3%%; }
        location /slow/ { content_by_lua_block { ngx.sleep(0.08) ngx.say('slow') } } }
      server { listen 127.0.0.1:%%PORT_3%%; location / { return 200 back; } } }";

fn started(workers: u16) -> Server {
    let server = Server::builder(&CONF.replace("%%WORKERS%%", &workers.to_string())).start();
    wait_for("admin listener", || std::net::TcpStream::connect(server.addr(1)).is_ok().then_some(()));
    server
}

fn history(server: &Server, arguments: &str) -> JsonValue {
    let response = Client::connect(server.addr(1)).get(&format!("/history?{arguments}"));
    assert_eq!(response.status, 200, "{response}");
    JsonValue::parse(&response.body).expect("valid JSON")
}

/// The values of a figure of one of `kind` called `name`.
fn figures(history: &JsonValue, kind: &str, name: &str, key: &str) -> Vec<u64> {
    let all = history.path(&[kind, "series"]).and_then(JsonValue::list).expect("series");
    let found = all.iter().find(|series| series.field("name").and_then(JsonValue::text) == Some(name));
    let values = found.and_then(|series| series.field(key)).and_then(JsonValue::list).unwrap_or_default();
    values.iter().map(|value| value.number().unwrap_or(0)).collect()
}

/// Waits until the points have this many requests together.
#[track_caller]
fn counted(server: &Server, kind: &str, name: &str, requests: u64) -> JsonValue {
    wait_for(&format!("{requests} requests of {name}"), || {
        let history = history(server, "span=minute");
        (figures(&history, kind, name, "requests").iter().sum::<u64>() == requests).then_some(history)
    })
}

fn points_are_what_happened(workers: u16) {
    let server = started(workers);
    // Counting begins with the first moment; its length shows that it was.
    wait_for("the first point", || {
        let history = history(&server, "");
        history.field("ends_unix_ms").and_then(JsonValue::list).filter(|ends| !ends.is_empty()).map(|_| ())
    });
    let mut client = server.client();
    (0..20).for_each(|_| assert_eq!(client.get("/fine/").status, 200));
    (0..3).for_each(|_| assert_eq!(client.get("/fails/").status, 503));
    (0..5).for_each(|_| assert_eq!(client.get("/peer/").status, 200));
    (0..2).for_each(|_| assert_eq!(client.get("/slow/").status, 200));
    counted(&server, "locations", "/fine/", 20);
    let seen = counted(&server, "locations", "/fails/", 3);
    assert_eq!(figures(&seen, "locations", "/fails/", "errors_5xx").iter().sum::<u64>(), 3);
    assert_eq!(figures(&seen, "locations", "/fine/", "errors_5xx").iter().sum::<u64>(), 0);
    let seen = counted(&server, "locations", "/slow/", 2);
    let slowest = figures(&seen, "locations", "/slow/", "p99_ns").into_iter().max();
    assert!(slowest.is_some_and(|ns| (80_000_000..20_000_000_000).contains(&ns)), "{slowest:?}");
    let waited = figures(&seen, "locations", "/slow/", "wait_ns").into_iter().max();
    assert!(waited.is_some_and(|ns| ns >= 79_000_000), "{waited:?}");
    let peer = server.addr(3).to_string();
    counted(&server, "upstreams", &peer, 5);
    // Requests by how long they took: none below 65 ms, where that bin ends.
    let heat = history(&server, "span=minute&heat=/slow/");
    let bounds = heat.field("bins_ns").and_then(JsonValue::list).expect("bounds");
    let bin = bounds.iter().position(|bound| bound.number() > Some(80_000_000)).expect("a bin");
    let points = heat.field("heat").and_then(JsonValue::list).expect("points");
    let all = |bins: std::ops::Range<usize>| -> u64 {
        let of = |point: &JsonValue| -> u64 {
            point.list().map_or(0, |point| point[bins.clone()].iter().filter_map(JsonValue::number).sum())
        };
        points.iter().map(of).sum()
    };
    assert_eq!((all(0..bin), all(bin..bounds.len() + 1)), (0, 2));
    // Of the workers each has its figures.
    let all = heat.field("workers").and_then(JsonValue::list).expect("workers");
    let numbers: Vec<_> =
        all.iter().filter_map(|worker| worker.field("worker").and_then(JsonValue::number)).collect();
    assert_eq!(numbers, (0..u64::from(workers)).collect::<Vec<_>>());
    // What is known already is not sent again.
    let last = heat
        .field("ends_unix_ms")
        .and_then(JsonValue::list)
        .and_then(|ends| ends.last()?.number())
        .expect("an end");
    let rest = history(&server, &format!("since={last}"));
    let ends = rest.field("ends_unix_ms").and_then(JsonValue::list).expect("ends");
    assert!(ends.iter().all(|end| end.number() > Some(last)) && ends.len() < 60, "{ends:?}");
}

both_drivers! {
    fn points_are_what_happened_with_one_worker(driver) {
        points_are_what_happened(1);
    }

    fn points_are_what_happened_with_several_workers(driver) {
        points_are_what_happened(3);
    }

    fn series_go_on_after_a_reload(driver) {
        let mut server = started(1);
        wait_for("the first point", || {
            let history = history(&server, "");
            history.field("ends_unix_ms").and_then(JsonValue::list).filter(|ends| !ends.is_empty()).map(|_| ())
        });
        server.get("/fine/");
        counted(&server, "locations", "/fine/", 1);
        server.reload(&CONF.replace("%%WORKERS%%", "2").replace("return 200 fine", "return 204"));
        wait_for("the new configuration", || (server.get("/fine/").status == 204).then_some(()));
        wait_for("the second worker", || {
            let history = history(&server, "");
            history.field("workers").and_then(JsonValue::list).filter(|workers| workers.len() == 2).map(|_| ())
        });
        let requests = figures(&history(&server, ""), "locations", "/fine/", "requests").iter().sum::<u64>();
        assert!(requests >= 2, "{requests}");
    }
}

/// A peer that refuses connections shows as one: its tries are counted as failed, and the log says why, without arguments.
#[test]
fn tries_that_failed_are_counted_at_their_peer() {
    let server = Server::builder(
        "worker_processes 1; admin 127.0.0.1:%%PORT_1%%; http {
            upstream peers { server 127.0.0.1:%%PORT_2%% max_fails=0; server 127.0.0.1:%%PORT_3%%; }
            server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://peers; } }
            server { listen 127.0.0.1:%%PORT_3%%; location / { return 200 ok; } } }",
    )
    .allow("connect() failed")
    .start();
    wait_for("admin listener", || std::net::TcpStream::connect(server.addr(1)).is_ok().then_some(()));
    let (closed, open) = (server.addr(2).to_string(), server.addr(3).to_string());
    let mut client = server.client();
    let seen = wait_for("tries", || {
        assert_eq!(client.get("/a?secret=1").status, 200);
        let history = history(&server, "");
        let tries = |name: &str| figures(&history, "upstreams", name, "requests").iter().sum::<u64>();
        (tries(&closed) > 2 && tries(&open) > 2).then_some(history)
    });
    let failed = |name: &str| figures(&seen, "upstreams", name, "errors_5xx").iter().sum::<u64>();
    let tries = figures(&seen, "upstreams", &closed, "requests").iter().sum::<u64>();
    assert_eq!((failed(&closed), failed(&open)), (tries, 0));
    let log = Client::connect(server.addr(1)).get("/log?n=5");
    assert!(log.text().contains("connect() failed") && !log.text().contains("secret"), "{log}");
}

#[test]
fn only_who_may_ask_sees_the_history() {
    let server = started(1);
    let mut guarded = Client::connect(server.addr(2));
    for path in ["/history", "/log"] {
        assert_eq!(guarded.get(path).status, 401, "{path}");
    }
    let mut open = Client::connect(server.addr(1));
    assert_eq!(open.request("GET /history HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 403);
    for (arguments, status) in
        [("span=year", 400), ("since=x", 400), ("heat=/none/", 200), ("since=99999999999999", 200)]
    {
        assert_eq!(
            Client::connect(server.addr(1)).get(&format!("/history?{arguments}")).status,
            status,
            "{arguments}"
        );
    }
}

/// The names of all threads of the server.
fn threads(server: &Server) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("a process");
    tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok()).collect()
}

#[test]
fn without_a_listener_to_show_it_nothing_is_remembered() {
    let conf = "# %%PORT_1%%\nworker_processes 1; %%ADMIN%% http { server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 ok; } } }";
    let mut server = Server::builder(&conf.replace("%%ADMIN%%", "")).start();
    let remembers = |server: &Server| threads(server).iter().any(|name| name.trim() == "weir history");
    server.get("/");
    assert!(!remembers(&server), "{:?}", threads(&server));
    server.reload(&conf.replace("%%ADMIN%%", "admin 127.0.0.1:%%PORT_1%%;"));
    wait_for("the thread", || remembers(&server).then_some(()));
}
