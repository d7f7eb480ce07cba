//! Members that come, go and change at run time, through the admin listener.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::support::StopAtEnd;
use weir_http::json::JsonValue;
use weir_test::{Backend, Client, Response, Server, both_drivers, wait_for};

/// A proxy on two workers to an upstream `u` of `lines`, in which `%a`, `%b` are the addresses of servers that respond
/// so.
fn proxy(lines: &str) -> (Server, [Backend; 2]) {
    let backends = [Backend::answering("a"), Backend::answering("b")];
    let conf = conf(&backends, lines);
    (Server::start(&conf), backends)
}

fn conf(backends: &[Backend; 2], lines: &str) -> String {
    let lines = lines.replace("%a", &address(&backends[0])).replace("%b", &address(&backends[1]));
    format!(
        "worker_processes 2; admin 127.0.0.1:%%PORT_1%%;
         http {{ upstream u {{ {lines} }} upstream other {{ server 127.0.0.1:1; }}
         server {{ listen 127.0.0.1:%%PORT_0%% reuseport; location / {{ proxy_pass http://u; }} }} }}"
    )
}

fn address(backend: &Backend) -> String {
    format!("127.0.0.1:{}", backend.port())
}

fn admin(server: &Server, method: &str, path: &str, body: &str) -> Response {
    let address = server.addr(1);
    wait_for("admin listener", || TcpStream::connect(address).is_ok().then_some(()));
    let length = body.len();
    Client::connect(address).request(format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

/// The responses to the next requests, on new connections and so on both workers.
fn answers(server: &Server, count: usize) -> String {
    (0..count).map(|_| server.client().get("/").text()).collect()
}

/// The how-manieth reload; when it returns both workers have the configuration.
fn reload(server: &mut Server, conf: &str, number: usize) {
    server.reload(conf);
    wait_for("the reload", || {
        (server.error_log().matches("exited with code 0").count() == 2 * number).then_some(())
    });
}

both_drivers! {
    /// Several lines may name one server, each with its own address to come from.
    fn lines_of_one_server_have_each_its_own_peer(driver) {
        let lines = "server %a bind=127.0.0.2; server %a bind=127.0.0.3 weight=2; server %a backup; server %a;";
        let (server, _backends) = proxy(lines);
        let text = admin(&server, "GET", "/upstreams/u", "").text();
        let value = JsonValue::parse(text.as_bytes()).expect("JSON");
        let servers = value.field("servers").and_then(JsonValue::list).expect("a list");
        let weights: Vec<Vec<u64>> = servers
            .iter()
            .map(|server| {
                let peers = server.field("peers").and_then(JsonValue::list).expect("a list");
                peers.iter().filter_map(|peer| peer.field("weight").and_then(JsonValue::number)).collect()
            })
            .collect();
        assert_eq!(weights, [vec![1], vec![2], vec![1], vec![1]], "{text}");
    }

    /// Each change is in force when its response comes: for the requests that follow, on every worker.
    fn members_come_and_go_at_once(driver) {
        let (server, backends) = proxy("server %a;");
        let (a, b) = (address(&backends[0]), address(&backends[1]));
        assert_eq!(answers(&server, 8), "aaaaaaaa");
        let added = admin(&server, "POST", "/upstreams/u/servers", &format!("{{\"server\":\"{b}\",\"weight\":2}}"));
        assert_eq!(added.status, 201);
        assert!(added.text().contains(&format!("\"address\":\"{b}\",\"weight\":2,\"health\":\"up\"")), "{}", added.text());
        let both = answers(&server, 24);
        assert!(both.contains('a') && both.contains('b'), "{both}");
        assert_eq!(admin(&server, "DELETE", &format!("/upstreams/u/servers/{a}"), "").status, 200);
        assert_eq!(answers(&server, 12), "b".repeat(12));
        assert_eq!(admin(&server, "PUT", "/upstreams/u/servers", &format!("[\"{a}\"]")).status, 200);
        assert_eq!(answers(&server, 12), "a".repeat(12));
        assert_eq!(admin(&server, "PUT", "/upstreams/u/servers", "[]").status, 200);
        assert_eq!(server.get("/").status, 502);
        assert!(server.error_log_line("no live upstreams").contains("[error]"));
    }

    fn members_are_drained_and_weighed(driver) {
        let (server, backends) = proxy("server %a route=one; server %b route=two; sticky route $arg_to;");
        let path = format!("/upstreams/u/servers/{}", address(&backends[0]));
        assert_eq!(admin(&server, "PATCH", &path, "{\"drain\":true}").status, 200);
        assert_eq!(answers(&server, 12), "b".repeat(12));
        assert_eq!(server.get("/?to=one").text(), "a", "bound clients are served");
        let weighed = admin(&server, "PATCH", &path, "{\"drain\":false,\"weight\":7}");
        assert!(weighed.text().contains("\"weight\":7,\"route\":\"one\""), "{}", weighed.text());
        // On one connection, so on one worker: seven of eight.
        let mut client = server.client();
        let answered: String = (0..16).map(|_| client.get("/").text()).collect();
        assert_eq!(answered.matches('a').count(), 14, "{answered}");
        assert_eq!(admin(&server, "PATCH", &path, "{\"down\":true}").status, 200);
        assert_eq!(answers(&server, 8), "b".repeat(8));
    }

    /// A reload keeps the list, unless its configuration says something else of the upstream.
    fn changes_live_through_a_reload(driver) {
        let backends = [Backend::answering("a"), Backend::answering("b")];
        let mut server = Server::start(&conf(&backends, "server %a;"));
        let b = address(&backends[1]);
        assert_eq!(admin(&server, "PUT", "/upstreams/u/servers", &format!("[\"{b}\"]")).status, 200);
        reload(&mut server, &conf(&backends, "server %a; keepalive 4;"), 1);
        assert_eq!(answers(&server, 8), "b".repeat(8));
        assert!(admin(&server, "GET", "/upstreams/u", "").text().contains("\"changed\":true"));
        reload(&mut server, &conf(&backends, "server %a max_fails=3;"), 2);
        assert_eq!(answers(&server, 8), "a".repeat(8));
        assert!(admin(&server, "GET", "/upstreams/u", "").text().contains("\"changed\":false"));
    }

    /// `state`: the list is that of the run before.
    fn a_state_file_is_read_at_the_next_start(driver) {
        let backends = [Backend::answering("a"), Backend::answering("b")];
        let conf = conf(&backends, "state %%DIR%%/u.json;");
        let server = Server::start(&conf);
        assert_eq!(server.get("/").status, 502, "nobody is there yet");
        let b = address(&backends[1]);
        assert_eq!(admin(&server, "POST", "/upstreams/u/servers", &format!("\"{b}\"")).status, 201);
        assert_eq!(server.get("/").text(), "b");
        let kept = server.dir().read("u.json");
        assert_eq!(kept, format!("[{{\"server\":\"{b}\"}}]"));
        drop(server);
        let again = Server::builder(&conf).file("u.json", &kept).start();
        assert_eq!(again.get("/").text(), "b");
    }

    fn what_is_wrong_is_refused_and_changes_nothing(driver) {
        let (server, backends) = proxy("server %a; hash $uri;");
        let (a, path) = (address(&backends[0]), "/upstreams/u/servers");
        let refused = |method: &str, path: &str, body: &str| {
            let answer = admin(&server, method, path, body);
            (answer.status, answer.text())
        };
        let error = |status: u16, why: &str| (status, format!("{{\"error\":\"{why}\"}}\n"));
        assert_eq!(refused("POST", path, "{"), error(400, "no JSON at byte 1"));
        assert_eq!(refused("POST", path, &format!("\"{a}\"")), error(409, "this server is in the upstream already"));
        assert_eq!(refused("POST", "/upstreams/v/servers", "\"127.0.0.1:1\""), error(404, "there is no such upstream"));
        let unknown = error(404, "there is no such server in this upstream");
        assert_eq!(refused("DELETE", &format!("{path}/127.0.0.1:9"), ""), unknown);
        assert_eq!(refused("PATCH", &format!("{path}/127.0.0.1:9"), "{}"), unknown);
        let backup = "{\"server\":\"127.0.0.1:1\",\"backup\":true}";
        let why = "balancing method does not support parameter \\\"backup\\\"";
        assert_eq!(refused("POST", path, backup), error(400, why));
        let why = "no resolver defined to resolve names at run time in upstream \\\"u\\\"";
        assert_eq!(refused("POST", path, "\"example.org\""), error(400, why));
        assert_eq!(refused("PUT", "/upstreams/u", "[]").0, 405);
        assert_eq!(refused("POST", "/metrics", "").0, 405);
        let form = Client::connect(server.addr(1)).request(format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n[]"
        ));
        assert_eq!(form.status, 415, "what any page may send is not enough");
        assert_eq!(answers(&server, 4), "aaaa");
    }

    /// What is known of members: health and since when, counts, times, the last error.
    fn members_are_described(driver) {
        let (server, backends) = proxy("server %a; server %b max_fails=1 fail_timeout=1h;");
        answers(&server, 8);
        backends[1].kill();
        assert_eq!(answers(&server, 8), "a".repeat(8));
        // The last request may have its response before it is counted as over.
        let text = wait_for("rest", || {
            let text = admin(&server, "GET", "/upstreams", "").text();
            (!text.contains("\"in_flight\":1")).then_some(text)
        });
        assert!(text.starts_with("[{\"name\":\"u\",\"method\":\"round_robin\",\"changed\":false,\"servers\":["), "{text}");
        assert!(text.contains("{\"name\":\"other\""), "{text}");
        let of = |backend: &Backend| {
            let from = text.find(&format!("\"address\":\"{}\"", address(backend))).expect("it is there");
            text[from..].split("]}").next().unwrap_or_default().to_owned()
        };
        let (a, b) = (of(&backends[0]), of(&backends[1]));
        assert!(a.contains("\"health\":\"up\",\"since\":null,\"in_flight\":0,") && !a.contains("\"p99\":null"), "{a}");
        assert!(a.contains("\"failed\":0,\"faults\":0,\"refused\":0,\"reset\":0,\"repeated\":0,\"fails\":0,") && a.ends_with("\"last_error\":null,\"last_failed_check\":null}"), "{a}");
        assert!(b.contains("\"health\":\"unavailable\",\"since\":1") && b.contains("\"fails\":1"), "{b}");
        assert!(b.contains("\"last_error\":{\"at\":1") && b.contains("\"cause\":\""), "{b}");
    }

    /// Members come and go under load: no request notices.
    fn changes_under_load_cost_no_request(driver) {
        let (server, backends) = proxy("server %a; server %b;");
        let (done, served) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut client = server.client();
                    while !done.load(Relaxed) {
                        assert_eq!(client.get("/").status, 200);
                        served.fetch_add(1, Relaxed);
                    }
                });
            }
            let _stop = StopAtEnd(&done);
            for round in 0..40 {
                let one = address(&backends[round % 2]);
                let path = format!("/upstreams/u/servers/{one}");
                assert_eq!(admin(&server, "DELETE", &path, "").status, 200);
                assert_eq!(admin(&server, "POST", "/upstreams/u/servers", &format!("\"{one}\"")).status, 201);
            }
            let before = served.load(Relaxed);
            wait_for("requests behind the last change", || (served.load(Relaxed) > before + 8).then_some(()));
        });
    }
}
