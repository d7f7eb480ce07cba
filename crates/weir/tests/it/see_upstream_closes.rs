//! Why connections to servers end: counted by reason and by who was first, in `weir top closes` and `/metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use weir_test::{Backend, BackendVisit, Client, Driver, Server, both_drivers, wait_for};

use crate::support::says as said;

const CONF: &str = "worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%;
    http { proxy_http_version 1.1; proxy_set_header Connection ''; proxy_connect_timeout 300ms;
    lua_socket_log_errors off;
    upstream kept { server 127.0.0.1:%%BACKEND%%; keepalive 8; }
    upstream one { server 127.0.0.1:%%BACKEND%%; keepalive 1; }
    upstream few { server 127.0.0.1:%%BACKEND%%; keepalive 8; keepalive_requests 1; }
    upstream old { server 127.0.0.1:%%BACKEND%%; keepalive 8; keepalive_time 1ms; }
    upstream short { server 127.0.0.1:%%BACKEND%%; keepalive 8; keepalive_timeout 100ms; }
    upstream next { server 127.0.0.1:%%BACKEND%%; server 127.0.0.1:%%BACKEND%% backup; keepalive 8; }
    server { listen 127.0.0.1:%%PORT_0%%;
        location / { proxy_pass http://kept; }
        location /off { proxy_set_header Connection close; proxy_pass http://kept; }
        location /two { proxy_pass http://one; }
        location /few { proxy_pass http://few; }
        location /old { proxy_pass http://old; }
        location /short { proxy_pass http://short; }
        location /big { proxy_buffer_size 4k; proxy_pass http://kept; }
        location /hang { proxy_read_timeout 300ms; proxy_pass http://kept; }
        location /next { proxy_next_upstream http_503; proxy_http_version 1.0; proxy_pass http://next; }
        location /instead { proxy_intercept_errors on; error_page 404 =200 /fallback; proxy_pass http://kept; }
        location = /fallback { return 200 fallback; }
        location /upgraded { proxy_set_header Connection upgrade; proxy_set_header Upgrade $http_upgrade; proxy_pass http://kept; }
        location /tls { proxy_pass https://127.0.0.1:%%SILENT%%; }
        location /fastcgi { fastcgi_pass 127.0.0.1:%%SILENT%%; }
        location /scgi { scgi_pass 127.0.0.1:%%SILENT%%; }
        location /uwsgi { uwsgi_pass 127.0.0.1:%%SILENT%%; }
        location /memcached { set $memcached_key k; memcached_pass 127.0.0.1:%%SILENT%%; }
        location /grpc { grpc_pass grpc://127.0.0.1:%%BACKEND%%; }
        location /lua/ { content_by_lua_block {
            local how = ngx.var.uri:sub(6)
            local sock = ngx.socket.tcp()
            assert(sock:connect('127.0.0.1', %%BACKEND%%, {pool = how, pool_size = 1}))
            if how == 'close' then sock:close() end
            if how == 'closed' then
                sock:send('GET /before HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n')
                sock:receive('*a')
                sock:close()
            end
            if how == 'short' then sock:setkeepalive(50) end
            if how == 'full' then
                local other = ngx.socket.tcp()
                assert(other:connect('127.0.0.1', %%BACKEND%%, {pool = how, pool_size = 1}))
                sock:setkeepalive(100000)
                other:setkeepalive(100000)
            end
            if how == 'refused' then
                sock:send('GET /spoken HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n')
                ngx.sleep(0.1)
                sock:setkeepalive()
            end
            ngx.say(how)
        } } } }";

/// What the server behind does, by the path.
fn behave(visit: &mut BackendVisit, twos: &AtomicUsize) {
    while let Some(head) = visit.head() {
        let path = head.split(' ').nth(1).unwrap_or_default();
        match path {
            "/leaves" => {
                visit.answer("leaves");
                return;
            }
            "/asked" => {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
                return;
            }
            "/nolength" => {
                visit.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok");
                return;
            }
            "/before" => return,
            "/cut" => {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok");
                return;
            }
            "/reset" => return visit.reset(),
            "/big" => {
                visit.send(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(9000)));
                let _ = visit.head();
                return;
            }
            "/more" => {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokmore");
                let _ = visit.head();
                return;
            }
            "/spoken" => {
                visit.send("a\r\nHTTP/1.1 408 Late\r\n\r\n");
                let _ = visit.head();
                return;
            }
            "/hang" | "/wait" => return visit.hang(),
            "/old" => {
                std::thread::sleep(Duration::from_millis(20));
                visit.answer("old");
            }
            "/two" => {
                twos.fetch_add(1, SeqCst);
                wait_for("the other one", || (twos.load(SeqCst).is_multiple_of(2)).then_some(()));
                visit.answer("two");
            }
            "/next" => {
                visit.send("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
            }
            "/instead" => {
                visit.send("HTTP/1.1 404 No\r\nContent-Length: 4\r\n\r\nnone");
            }
            "/upgraded" => {
                visit.send(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
                );
                let _ = visit.bytes(1);
                return;
            }
            // The preface of HTTP/2 is a head.
            "*" => return,
            _ => {
                visit.answer("ok");
            }
        }
    }
}

struct Servers {
    server: Server,
    backend: Backend,
    silent: Backend,
}

fn started(driver: Driver, workers: &str) -> Servers {
    let twos = Arc::new(AtomicUsize::new(0));
    let backend = Backend::start(move |visit| behave(visit, &twos));
    let silent = Backend::start(BackendVisit::hang);
    let conf = CONF
        .replace("%%WORKERS%%", workers)
        .replace("%%BACKEND%%", &backend.port().to_string())
        .replace("%%SILENT%%", &silent.port().to_string());
    let server = Server::builder(&conf).allow("upstream").driver(driver).start();
    said::ready(&server);
    Servers { server, backend, silent }
}

/// What has ended, by protocol, who was first, and why; and how many were opened.
fn closed(server: &Server) -> (BTreeMap<[String; 3], u64>, u64) {
    let text =
        Client::connect(server.addr(1)).request("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    let mut closed = BTreeMap::new();
    let mut opened = 0;
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("weir_upstream_connections_opened_total ") {
            opened = number.parse().expect("a number");
        }
        let Some(rest) = line.strip_prefix("weir_upstream_connections_closed_total{") else { continue };
        let (labels, value) = rest.split_once("} ").expect("a sample");
        let texts: Vec<String> = labels.split('"').skip(1).step_by(2).map(str::to_owned).collect();
        let key = <[String; 3]>::try_from(texts).expect("three labels");
        closed.insert(key, value.parse().expect("a number"));
    }
    (closed, opened)
}

/// What ends one connection to a server, or several.
type Way = fn(&Servers);

fn get(servers: &Servers, path: &str) -> Client {
    let mut client = servers.server.client();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    let _ = client.rest();
    client
}

/// Asks, and leaves when `backend` has the connection.
fn leave(servers: &Servers, path: &str, backend: fn(&Servers) -> &Backend) {
    let before = backend(servers).visits();
    let mut client = servers.server.client();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    wait_for("the connection", || (backend(servers).visits() > before).then_some(()));
}

/// Protocol, who was first, the reason, and what has it come to that.
const WAYS: &[(&str, &str, &str, Way)] = &[
    ("http1", "upstream", "idle", |s| drop(get(s, "/leaves"))),
    ("http1", "upstream", "asked", |s| drop(get(s, "/asked"))),
    ("http1", "upstream", "no_length", |s| drop(get(s, "/nolength"))),
    ("http1", "upstream", "before_response", |s| drop(get(s, "/before"))),
    ("http1", "upstream", "in_response", |s| drop(get(s, "/cut"))),
    ("http1", "upstream", "reset", |s| drop(get(s, "/reset"))),
    ("http1", "upstream", "bad_response", |s| drop(get(s, "/big"))),
    ("http1", "upstream", "unexpected_data", |s| drop(get(s, "/more"))),
    ("http1", "client", "client_gone", |s| leave(s, "/wait", |s| &s.backend)),
    ("http1", "server", "read_timeout", |s| drop(get(s, "/hang"))),
    ("http1", "server", "keepalive_off", |s| drop(get(s, "/off"))),
    ("http1", "server", "keepalive_requests", |s| drop(get(s, "/few"))),
    ("http1", "server", "keepalive_time", |s| drop(get(s, "/old"))),
    ("http1", "server", "keepalive_timeout", |s| drop(get(s, "/short"))),
    ("http1", "server", "keepalive_full", |s| {
        let mut clients: Vec<Client> = (0..2)
            .map(|_| {
                let mut client = s.server.client();
                client.send("GET /two HTTP/1.1\r\nHost: a\r\n\r\n");
                client
            })
            .collect();
        clients.iter_mut().for_each(|client| {
            client.until("two");
        });
    }),
    ("http1", "server", "next_server", |s| drop(get(s, "/next"))),
    ("http1", "server", "unread", |s| drop(get(s, "/instead"))),
    ("http1", "server", "tunnel", |s| {
        let mut client = s.server.client();
        client.send("GET /upgraded HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        client.until("\r\n\r\n");
    }),
    ("http1", "server", "handshake_timeout", |s| drop(get(s, "/tls"))),
    ("fastcgi", "client", "client_gone", |s| leave(s, "/fastcgi", |s| &s.silent)),
    ("scgi", "client", "client_gone", |s| leave(s, "/scgi", |s| &s.silent)),
    ("uwsgi", "client", "client_gone", |s| leave(s, "/uwsgi", |s| &s.silent)),
    ("memcached", "client", "client_gone", |s| leave(s, "/memcached", |s| &s.silent)),
    ("lua", "server", "script", |s| drop(get(s, "/lua/close"))),
    ("lua", "server", "script_end", |s| drop(get(s, "/lua/forget"))),
    ("lua", "server", "keepalive_timeout", |s| drop(get(s, "/lua/short"))),
    ("lua", "server", "keepalive_full", |s| drop(get(s, "/lua/full"))),
    ("lua", "server", "setkeepalive_refused", |s| drop(get(s, "/lua/refused"))),
    ("lua", "upstream", "closed", |s| drop(get(s, "/lua/closed"))),
];

both_drivers! {
    /// Each way adds to its own reason; none ends without one, and none is lost.
    fn each_end_of_a_connection_to_a_server_has_its_reason(driver) {
        for workers in ["1", "3"] {
            let servers = started(driver, workers);
            for (protocol, by, reason, way) in WAYS {
                // With several workers what overflows one's share is all workers'.
                if workers != "1" && *reason == "keepalive_full" && *protocol == "http1" {
                    continue;
                }
                let key = [*protocol, *by, *reason].map(str::to_owned);
                let count = || closed(&servers.server).0.get(&key).copied().unwrap_or(0);
                let before = count();
                way(&servers);
                let what = format!("{workers} workers, {key:?}: {:?}", closed(&servers.server).0);
                wait_for(&what, || (count() > before).then_some(()));
            }
            // HTTP/2 to a server that leaves: what came first depends on the bytes on their way.
            drop(get(&servers, "/grpc"));
            wait_for("the session's end", || closed(&servers.server).0.keys().any(|key| key[0] == "http2" && key[1] == "upstream").then_some(()));
            let dropped: Vec<_> = closed(&servers.server).0.into_keys().filter(|key| key[2] == "dropped").collect();
            assert!(dropped.is_empty(), "{dropped:?}");
            // What is still open is kept alive: by the upstreams, or by the pools of scripts.
            let (ends, opened) = closed(&servers.server);
            let ended: u64 = ends.values().sum();
            assert!(ended <= opened && opened - ended < 10, "{ended} of {opened}: {ends:?}");
            let table = said::says(&["top", "closes", "-b", "-d", "0"], &said::of(&servers.server));
            let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
            assert!(rows.iter().any(|row| row[..3] == ["to_http1", "upstream", "idle"]), "{table}");
            assert!(rows.iter().any(|row| row[..3] == ["to_lua", "server", "script_end"]), "{table}");
        }
    }
}
