//! Requests that are passed on at the sight of their heads: servers get what they would get, clients what they would, and logs say
//! the same of both, whatever servers do.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use weir::modules::MODULES;
use weir_test::{Backend, BackendVisit, Client, Response, Server, both_drivers, wait_for};

use crate::support::inside::Running;
use crate::support::repeated;

/// Locations that pass requests on, a path to ask for, and whether the second request with the same head is passed on at sight.
const LOCATIONS: &[(&str, &str, bool)] = &[
    ("location /0/ { proxy_pass http://u; }", "/0/", true),
    ("location = /1 { proxy_pass http://u/else; }", "/1", true),
    ("location /2/ { proxy_pass http://u/a/; }", "/2/b%20c?x=%20y", false),
    ("location /3/ { proxy_pass http://u; proxy_set_header Host $host; }", "/3/", true),
    ("location /4/ { proxy_pass http://u; proxy_set_header X-A $remote_addr; }", "/4/", true),
    (
        "location /5/ { proxy_pass http://u; proxy_set_header Host $http_host; proxy_set_header X-Real-IP $remote_addr; \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme; \
         proxy_set_header X-Forwarded-Host $host:$server_port; proxy_set_header X-Uri $request_uri; }",
        "/5/?a",
        true,
    ),
    ("location /6/ { proxy_pass http://u; proxy_set_header X-A $http_x_n$arg_b$cookie_c; }", "/6/?b=1", true),
    ("location /7/ { proxy_pass http://u; proxy_set_header X-A $mapped; }", "/7/", false),
    ("location /8/ { proxy_pass http://u; proxy_set_header X-A $connection_requests; }", "/8/", false),
    ("location /9/ { proxy_pass http://u; proxy_set_header X-A $request_id; }", "/9/", false),
    ("location /10/ { set $a b; proxy_pass http://u; proxy_set_header X-A $a; }", "/10/", false),
    ("location ~ ^/11/(.*)$ { proxy_pass http://u; proxy_set_header X-A $1; }", "/11/a", false),
    ("location ~ ^/12/ { proxy_pass http://u; }", "/12/", false),
    ("location /13/ { rewrite ^/13/(.*)$ /0/$1 last; }", "/13/a", false),
    ("location /14/ { rewrite ^/14/(.*)$ /$1 break; proxy_pass http://u; }", "/14/a", false),
    ("location /15/ { allow all; proxy_pass http://u; }", "/15/", false),
    ("location /16/ { limit_req zone=z burst=100 nodelay; proxy_pass http://u; }", "/16/", false),
    ("location /17/ { proxy_pass http://$proxied; }", "/17/", false),
    ("location /18/ { proxy_pass http://u; proxy_method POST; }", "/18/", true),
    ("location /19/ { proxy_pass http://u; proxy_set_body text; }", "/19/", false),
    ("location /20/ { proxy_pass http://u; proxy_http_version 1.0; }", "/20/", true),
    (
        "location /21/ { proxy_pass http://u; proxy_pass_request_headers off; proxy_buffering off; }",
        "/21/",
        true,
    ),
    ("location /22/ { proxy_pass http://u; access_log off; }", "/22/", true),
    ("location /23/ { proxy_pass http://u; access_log off; add_header X-A b; }", "/23/", true),
    ("location /24/ { proxy_pass http://u; access_log off; add_header X-A $upstream_addr; }", "/24/", true),
    (
        "location /25/ { proxy_pass http://u; access_log off; gzip on; gzip_types *; gzip_min_length 1; }",
        "/25/",
        true,
    ),
    (
        "location /26/ { proxy_pass http://u; access_log off; proxy_hide_header X-Own; expires 1h; }",
        "/26/",
        true,
    ),
    ("location /27/ { proxy_pass http://u; access_log off; proxy_limit_rate 1m; }", "/27/", true),
    ("location /28/ { proxy_pass http://u; access_log off; limit_rate 10m; }", "/28/", true),
    (
        "location /29/ { proxy_pass http://u; access_log off; proxy_store %%DIR%%/stored; proxy_store_access user:rw; }",
        "/29/s",
        true,
    ),
    ("location /30/ { proxy_pass http://u; keepalive_timeout 0; }", "/30/", false),
    ("location /31/ { proxy_pass http://u; keepalive_requests 3; }", "/31/", true),
    ("location /32/ { proxy_pass http://u; limit_except GET { deny all; } }", "/32/", true),
    ("location /33/ { proxy_pass http://u; profile off; }", "/33/", true),
    ("location /34/ { proxy_pass http://u; post_action /0/; }", "/34/", true),
    ("location /35/ { proxy_pass http://u; mirror /0/; }", "/35/", false),
    (
        "location /36/ { proxy_pass http://u; access_by_lua_block { ngx.req.set_header('X-A', 'b') } }",
        "/36/",
        false,
    ),
    (
        "location /37/ { proxy_pass http://u; header_filter_by_lua_block { ngx.header.x_a = ngx.var.upstream_addr } }",
        "/37/",
        true,
    ),
    (
        "location /38/ { proxy_pass http://u; body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() } }",
        "/38/",
        true,
    ),
    (
        "location /39/ { proxy_pass http://u; log_by_lua_block { local a = ngx.var.upstream_addr } }",
        "/39/",
        true,
    ),
    ("location /40/ { proxy_pass http://guided; }", "/40/", false),
    ("location /41/ { proxy_pass http://one; }", "/41/", true),
    ("location /42/ { proxy_pass http://hashed; }", "/42/", true),
    ("location /43/ { proxy_pass http://stuck; access_log off; }", "/43/", true),
    ("location /44/ { proxy_pass http://least; access_log off; }", "/44/", true),
    ("location /45/ { proxy_pass http://u; proxy_cache c; proxy_cache_valid 1h; }", "/45/", false),
    ("location /46/ { proxy_pass http://u; error_log error.log debug; }", "/46/", false),
    ("location /47/ { proxy_pass http://u; satisfy any; allow all; }", "/47/", false),
    ("location /48/ { proxy_pass http://u; auth_request /0/; }", "/48/", false),
    ("location /49/ { proxy_pass http://u; proxy_upgrade websocket; }", "/49/", true),
    (
        "location /50/ { proxy_pass http://u; sub_filter own other; sub_filter_types *; access_log off; }",
        "/50/",
        true,
    ),
    ("location /51/ { proxy_pass http://u; error_page 404 = /0/; proxy_intercept_errors on; }", "/51/", true),
    ("location /52/ { try_files /none /0/; }", "/52/", false),
    ("location /53/ { internal; proxy_pass http://u; }", "/53/", false),
    ("location /54 { location /54/in { proxy_pass http://u; proxy_set_header X-A in; } }", "/54/in", true),
    ("location /55/ { proxy_pass http://u; proxy_ignore_client_abort on; }", "/55/", true),
];

/// What logs say that is the same for two requests with the same head, then times, which are about the same.
const FORMAT: &str = "$status|$request|$request_method|$uri|$args|$http_x_n|$bytes_sent|$body_bytes_sent|$request_length|\
    $request_completion|$sent_http_content_type|$sent_http_content_length|$sent_http_connection|$sent_http_x_a|$sent_http_x_own|\
    $server_name|$server_port|$scheme|$host|$http_host|$limit_rate|$pipe|$upstream_addr|$upstream_status|$upstream_cause|\
    $upstream_response_length|$upstream_bytes_received|$upstream_bytes_sent|$upstream_http_x_own|$upstream_http_date|\
    $upstream_cookie_a|$upstream_trailer_x_t|$proxy_host|$proxy_port|$remote_addr|$cause;\
    $upstream_connect_time $upstream_header_time $upstream_response_time";

/// One server of an upstream, with connections that are kept alive.
fn upstream(name: &str, more: &str, port: u16) -> String {
    format!("upstream {name} {{ {more} server 127.0.0.1:{port}; keepalive 8; }}\n")
}

fn conf(port: u16, more: &str, locations: &str) -> String {
    let upstreams: String = [
        upstream("u", "", port),
        upstream("guided", "balancer_by_lua_block { local b = require 'ngx.balancer' }", port),
        format!("upstream one {{ server 127.0.0.1:{port} max_conns=3; keepalive 8; }}\n"),
        upstream("hashed", "hash $request_uri consistent;", port),
        upstream("stuck", "sticky cookie s;", port),
        upstream("least", "least_conn;", port),
    ]
    .concat();
    format!(
        "http {{ keepalive_requests 1000000; limit_req_zone a zone=z:1m rate=1000r/s; proxy_cache_path cache keys_zone=c:1m;
        proxy_http_version 1.1; proxy_set_header Connection ''; map $http_x_n $mapped {{ 0 zero; default more; }}
        map $uri $proxied {{ default u; }} log_format f '{FORMAT}'; access_log access.log f; {more} {upstreams}
        server {{ listen 127.0.0.1:%%PORT%%; {locations} }} }}"
    )
}

fn all_locations() -> String {
    LOCATIONS.iter().map(|(location, ..)| format!("{location}\n")).collect()
}

/// Responds with what it was sent, as a text of the same length for all values of `X-N`.
fn echoing(visit: &mut BackendVisit) {
    while let Some(head) = visit.head() {
        // Of `proxy_set_body`.
        let body = if head.contains("Content-Length: 4") { visit.bytes(4) } else { None };
        let text = masked(&head) + &String::from_utf8_lossy(&body.unwrap_or_default());
        let length = text.len();
        let fields = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nX-Own: own\r\n";
        let body = if head.starts_with("HEAD ") { "" } else { &text };
        visit.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {length}\r\n\r\n{body}"));
    }
}

/// A text in which the numbers of requests are the same.
fn masked(text: &str) -> String {
    (0..10).fold(text.to_owned(), |text, number| {
        text.replace(&format!("X-N: {number}"), "X-N: n").replace(&format!("X-A: {number}"), "X-A: n")
    })
}

/// So many requests with one head: the first is read, the second recalled, what becomes of it is stored, and the others are passed on
/// at sight; the last of them get heads that came before.
const TIMES: usize = 9;

/// What a client gets, without what differs by the second or the request; `None`: the connection ended.
type Seen = Option<(Vec<String>, String)>;

fn settled(response: &Response) -> (Vec<String>, String) {
    let passing = ["Date: ", "Set-Cookie: ", "Expires: ", "Cache-Control: max-age"];
    let head = response.head_text();
    let lines = head.lines().filter(|line| !passing.iter().any(|name| line.starts_with(name)));
    (lines.map(masked).collect(), masked(&response.text()))
}

/// Requests for `path`, all with one head, or each with another one.
fn ask(server: &Server, path: &str, alike: bool, times: usize) -> Vec<Seen> {
    repeated::ask(server, path, repeated::numbers(alike, times), settled)
}

/// The lines of the access log once there are so many for this path, those of requests with one head first, without `X-N` and
/// times, which must be some.
fn log_lines(server: &Server, path: &str, count: usize) -> Vec<String> {
    let lines = repeated::log_lines(server, "access.log", &format!("|GET {path} HTTP"), count);
    let settled = |line: &String| {
        let (line, times) = line.split_once(';').expect("times follow");
        let is_time = |time: &str| time == "-" || time.parse::<f64>().is_ok_and(|seconds| seconds < 60.0);
        assert!(times.split([' ', ',', ':']).filter(|time| !time.is_empty()).all(is_time), "{times}");
        let fields: Vec<&str> = line.split('|').collect();
        let without = |(at, field): (usize, &&str)| if at == 5 { "n".to_owned() } else { masked(field) };
        fields.iter().enumerate().map(without).collect::<Vec<_>>().join("|")
    };
    let is_alike = |line: &&String| line.split('|').nth(5) == Some("0");
    let (alike, unlike): (Vec<&String>, Vec<&String>) = lines.iter().partition(is_alike);
    alike.into_iter().chain(unlike).map(settled).collect()
}

fn started(conf: &str) -> Server {
    Server::builder(conf).allow("[error]").allow("[warn]").allow("[crit]").start()
}

both_drivers! {
    /// Every location: servers, clients and logs have the same of heads that repeat and of heads that do not.
    fn a_head_that_comes_again_is_passed_on_as_another_one(driver) {
        let backend = Backend::start(echoing);
        for workers in [1, 2] {
            let text = conf(backend.port(), "", &all_locations());
            let server = started(&format!("worker_processes {workers}; {text}"));
            for (location, path, _) in LOCATIONS {
                let (alike, unlike) = (ask(&server, path, true, TIMES), ask(&server, path, false, TIMES));
                let differs = ["/6/?b=1", "/7/", "/9/"].contains(path);
                assert!(differs || alike == unlike, "{location}: {alike:#?}\n{unlike:#?}");
            }
            let unlogged = |location: &str| location.contains("access_log off");
            let own = ["/8/", "/9/", "/13/a", "/34/", "/35/", "/48/", "/45/", "/52/"];
            for (location, path, _) in LOCATIONS.iter().filter(|(location, path, _)| !unlogged(location) && !own.contains(path)) {
                let mut lines = log_lines(&server, path, 2 * TIMES);
                assert_eq!(lines.len(), 2 * TIMES, "{location}");
                // Clients that come to several workers have their lines written by several.
                lines[..TIMES].sort();
                lines[TIMES..].sort();
                assert_eq!(lines[..TIMES], lines[TIMES..], "{location}");
            }
        }
    }

    /// Which requests are: what the other tests compare is not one way with itself.
    fn requests_that_follow_from_their_heads_are_passed_on_at_sight(driver) {
        let backend = Backend::start(echoing);
        let mut wrong = Vec::new();
        let usable = |text: &str| !text.contains("_by_lua") && !text.contains("guided");
        let locations: String = LOCATIONS.iter().filter(|(text, ..)| usable(text)).map(|(text, ..)| format!("{text}\n")).collect();
        let text = conf(backend.port(), "access_log off;", &locations).replace("127.0.0.1:%%PORT%%;", "%%ADDRESS%%;");
        let text: String = text.lines().filter(|line| !line.contains("_by_lua")).flat_map(|line| [line, "\n"]).collect();
        let files = weir_test::TempDir::new();
        let place = |name: &str| files.path().join(name).display().to_string();
        let text = text.replace("access_log access.log f;", "").replace("cache_path cache", &format!("cache_path {}", place("cache")));
        let text = text.replace("error_log error.log", &format!("error_log {}", place("error.log")));
        let text = text.replace("proxy_store %%DIR%%/stored", &format!("proxy_store {}", place("stored")));
        let (_, http) = text.split_once('{').expect("a block");
        let running = Running::start(driver, MODULES, "", http.rsplit_once('}').expect("it ends").0);
        for (location, path, expected) in LOCATIONS.iter().filter(|(text, ..)| usable(text)) {
            let ask = |client: &mut Client| client.request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).keeps_alive();
            let known = repeated::comes_at_sight(&running, TIMES, ask);
            if known != *expected {
                wrong.push(format!("{location} known: {known}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Servers do as usual for a while and then something else: clients and logs have the same of both kinds of heads.
    fn a_server_may_do_anything_after_a_head_that_was_passed_on_at_sight(driver) {
        for logged in [true, false] {
            let counts = Mutex::new(HashMap::<String, usize>::new());
            let backend = Backend::start(move |visit| acting(visit, &counts));
            let more = if logged { "" } else { "access_log off;" };
            let locations = "location / { proxy_pass http://u; proxy_next_upstream_tries 2; }
                location /next/ { proxy_pass http://both; proxy_next_upstream error timeout http_503 http_404 invalid_header; }
                location /into/ { return 200 into; }";
            let text = conf(backend.port(), more, locations).replace("access_log access.log f;", if logged { "access_log access.log f;" } else { "" });
            let peer = format!("server 127.0.0.1:{} max_fails=0;", backend.port());
            let both = format!("upstream both {{ {peer} {peer} keepalive 8; }} server {{ listen");
            let server = started(&text.replacen("server { listen", &both, 1));
            for (number, _) in ACTS.iter().enumerate() {
                for place in ["", "/next"] {
                    let path = |kind: &str| format!("{place}/{number}/{kind}");
                    let alike = ask(&server, &path("alike"), true, 2 * TIMES);
                    let unlike = ask(&server, &path("other"), false, 2 * TIMES);
                    assert_eq!(alike, unlike, "{place} {}", ACTS[number]);
                    if logged {
                        let lines = |kind: &str| {
                            let path = path(kind);
                            let lines = log_lines(&server, &path, 2 * TIMES);
                            lines.iter().map(|line| line.replace(&path, "path")).collect::<Vec<_>>()
                        };
                        assert_eq!(lines("alike"), lines("other"), "{place} {}", ACTS[number]);
                    }
                }
            }
        }
    }

    /// A client that leaves while its request is with a server: its line says so, the connection to the server ends, and the next
    /// requests are served.
    fn a_client_leaves_after_its_request_was_passed_on_at_sight(driver) {
        let silent = std::sync::Arc::new(AtomicUsize::new(0));
        let told = silent.clone();
        let backend = Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                if told.load(SeqCst) == 1 {
                    told.store(2, SeqCst);
                    visit.hang();
                    told.store(3, SeqCst);
                    return;
                }
                visit.answer(&masked(&head));
            }
        });
        let server = started(&conf(backend.port(), "", "location / { proxy_pass http://u; }"));
        let head = "GET /gone HTTP/1.1\r\nHost: a\r\nX-N: 1\r\n\r\n";
        for _ in 0..3 {
            let mut client = server.client();
            (0..TIMES).for_each(|_| assert_eq!(client.request(head).status, 200));
            silent.store(1, SeqCst);
            client.send(head);
            wait_for("the request", || (silent.load(SeqCst) == 2).then_some(()));
            client.abort();
            wait_for("the end of the connection to the server", || (silent.load(SeqCst) == 3).then_some(()));
            silent.store(0, SeqCst);
        }
        wait_for("three lines with 499", || {
            let text = fs::read_to_string(server.dir().path().join("access.log")).unwrap_or_default();
            (text.lines().filter(|line| line.starts_with("499|GET /gone")).count() == 3).then_some(())
        });
    }

    /// A server that says nothing is given up after the usual time.
    fn a_server_says_nothing_to_a_request_that_was_passed_on_at_sight(driver) {
        let backend = Backend::start(|visit| {
            for _ in 0..TIMES {
                if visit.head().is_none() {
                    return;
                }
                visit.answer("text");
            }
            visit.hang();
        });
        let locations = "location / { proxy_pass http://u; proxy_read_timeout 1s; }";
        let server = started(&conf(backend.port(), "", locations));
        let head = "GET /late HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut client = server.client();
        for _ in 0..2 {
            (0..TIMES).for_each(|_| assert_eq!(client.request(head).text(), "text"));
            assert_eq!(client.request(head).status, 504);
        }
        let lines = log_lines(&server, "/late", 2 * TIMES + 2);
        assert_eq!(lines.iter().filter(|line| line.starts_with("504|") && line.contains("|504|")).count(), 2, "{lines:#?}");
    }

    /// Many in one packet, among others and with bodies.
    fn pipelined_heads_are_passed_on_in_order(driver) {
        let backend = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                let body = if head.contains("ontent-") { visit.bytes(3) } else { None };
                let target = head.split(' ').nth(1).unwrap_or_default();
                visit.answer(&format!("{target} {}", String::from_utf8_lossy(&body.unwrap_or_default())));
            }
        });
        let locations = "location / { proxy_pass http://u; } location /here { return 200 here; }";
        let server = started(&conf(backend.port(), "access_log off;", locations).replace("access_log access.log f;", ""));
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let post = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc".to_owned();
        let some = "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxyz".to_owned();
        let mut client = server.client();
        let one = [get("/a"), get("/a"), get("/a"), get("/here"), get("/b"), post, get("/a"), some.clone(), some, get("/a"), get("/a")];
        client.send(one.concat().repeat(10));
        for _ in 0..10 {
            for text in ["/a ", "/a ", "/a ", "here", "/b ", "/a abc", "/a ", "/a xyz", "/a xyz", "/a ", "/a "] {
                assert_eq!(client.response().text(), text);
            }
        }
    }

    /// What connections do not have in common is sent as each has it.
    fn connections_that_share_a_head_have_their_own_addresses(driver) {
        let backend = Backend::start(echoing);
        let fields = "proxy_set_header X-At $server_addr:$server_port; proxy_set_header X-Via $scheme; proxy_set_header X-Port $remote_port;";
        let known = "proxy_set_header X-At $server_addr:$server_port; proxy_set_header X-Via $scheme;";
        let locations = format!("location / {{ proxy_pass http://u; {fields} }} location /known {{ proxy_pass http://u; {known} }}");
        let text = conf(backend.port(), "", &locations).replace("listen 127.0.0.1:%%PORT%%;", "listen %%PORT%%;");
        let server = started(&text);
        let port = server.addr(0).port();
        let mut clients: Vec<(String, Client)> = (0..80)
            .map(|number| {
                let address = format!("127.0.0.{}:{port}", number % 3 + 1);
                let client = Client::connect(address.parse::<SocketAddr>().expect("an address"));
                (address, client)
            })
            .collect();
        for path in ["/", "/known"] {
            for _ in 0..4 {
                for (address, client) in &mut clients {
                    let own = client.local_addr().port();
                    let text = client.request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).text();
                    assert!(text.contains(&format!("X-At: {address}\r\nX-Via: http\r\n")), "{address}: {text}");
                    assert!(path == "/known" || text.contains(&format!("X-Port: {own}\r\n")), "{own}: {text}");
                }
            }
        }
    }

    /// Servers of an upstream take turns, leave and come back.
    fn servers_take_turns_and_leave(driver) {
        for workers in [1, 2] {
            let backends: Vec<Backend> = (0..3).map(|number| Backend::answering(&number.to_string())).collect();
            let ports: Vec<u16> = backends.iter().map(Backend::port).collect();
            let servers: String = ports.iter().map(|port| format!("server 127.0.0.1:{port} fail_timeout=1s;")).collect();
            let server = started(&format!(
                "worker_processes {workers}; http {{ access_log off; keepalive_requests 1000000; proxy_http_version 1.1; proxy_set_header Connection '';
                upstream u {{ {servers} keepalive 8; }} server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; }} }} }}"
            ));
            let mut client = server.client();
            let head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            let mut ask = |times: usize| -> Vec<String> { (0..times).map(|_| client.request(head).text()).collect() };
            let turns = ask(30);
            assert!(turns.windows(3).all(|three| three[0] != three[1] && three[1] != three[2] && three[0] != three[2]), "{turns:?}");
            backends[1].kill();
            let texts = ask(30);
            assert!(texts.iter().all(|text| text == "0" || text == "2"), "{texts:?}");
            let back = Backend::answering_at(ports[1], "back");
            wait_for("the server that is back", || ask(1).contains(&"back".to_owned()).then_some(()));
            drop(back);
        }
    }

    /// A reload leads elsewhere; the connection stays, or its client connects again.
    fn a_reload_leads_elsewhere(driver) {
        let backends: Vec<Backend> = (0..3).map(|number| Backend::answering(&number.to_string())).collect();
        for workers in [1, 8] {
            let text = |number: usize| {
                let locations = format!("location / {{ proxy_pass http://u; proxy_set_header X-A {number}; }}");
                format!("worker_processes {workers}; {}", conf(backends[number].port(), "", &locations))
            };
            let mut server = started(&text(0));
            let mut client = server.client();
            let head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            (0..TIMES).for_each(|_| assert_eq!(client.request(head).text(), "0"));
            for number in [1, 2] {
                server.reload(&text(number));
                wait_for("the new server", || {
                    client = server.client();
                    (client.request(head).text() == number.to_string()).then_some(())
                });
                (0..TIMES).for_each(|_| assert_eq!(client.request(head).text(), number.to_string()));
            }
        }
    }
}

/// What a server does in the place of the usual response, in words that [`acting`] knows.
const ACTS: &[&str] = &[
    "another body",
    "a longer body",
    "no body",
    "chunks",
    "until close",
    "another field",
    "404",
    "503",
    "204",
    "304",
    "head in pieces",
    "body later",
    "body in pieces",
    "more than announced",
    "less than announced",
    "two lengths",
    "no head",
    "close",
    "reset",
    "hints",
    "continue",
    "redirect",
    "cookie",
    "big head",
    "close after",
    "http/1.0",
    "trailer",
    "upgrade",
    "large",
    "accel",
];

const USUAL: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nX-Own: own\r\nContent-Length: 5\r\n\r\nhello";

/// Responds as usual but to every seventh request for a path, where it does what the number in the path says.
fn acting(visit: &mut BackendVisit, counts: &Mutex<HashMap<String, usize>>) {
    while let Some(head) = visit.head() {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let count = {
            let mut counts = counts.lock().expect("no thread has panicked");
            let count = counts.entry(path.clone()).or_default();
            *count += 1;
            *count
        };
        let act = path
            .trim_start_matches("/next")
            .split('/')
            .nth(1)
            .and_then(|number| number.parse::<usize>().ok());
        let act = act.and_then(|act| ACTS.get(act)).copied().unwrap_or_default();
        let usual = format!("HTTP/1.1 200 OK\r\n{USUAL}");
        let goes_on = if count % 7 == 0 { unusual(visit, act) } else { visit.send(usual) };
        if !goes_on {
            return;
        }
    }
}

/// Does `act`; `false`: the connection ends.
fn unusual(visit: &mut BackendVisit, act: &str) -> bool {
    let usual = format!("HTTP/1.1 200 OK\r\n{USUAL}");
    let with = |field: &str| usual.replace("X-Own: own\r\n", &format!("X-Own: own\r\n{field}\r\n"));
    let status = |status: &str| usual.replace("200 OK", status);
    let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
    let (first, last) = usual.split_at(40);
    let (whole_head, body) = usual.split_at(usual.len() - 5);
    match act {
        "another body" => visit.send(usual.replace("hello", "olleh")),
        "a longer body" => visit.send(usual.replace("5\r\n\r\nhello", "9\r\n\r\nhello you")),
        "no body" => visit.send(usual.replace("5\r\n\r\nhello", "0\r\n\r\n")),
        "chunks" => visit.send(usual.replace(
            "Content-Length: 5\r\n\r\nhello",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        )),
        "until close" => ended(visit.send(usual.replace("Content-Length: 5\r\n", ""))),
        "another field" => visit.send(with("X-Other: field")),
        "404" => visit.send(status("404 Not Found")),
        "503" => visit.send(status("503 Service Unavailable")),
        "204" => visit.send("HTTP/1.1 204 No Content\r\nX-Own: own\r\n\r\n"),
        "304" => visit.send("HTTP/1.1 304 Not Modified\r\nX-Own: own\r\n\r\n"),
        "head in pieces" => {
            visit.send(first) && {
                pause();
                visit.send(last)
            }
        }
        "body later" => {
            visit.send(whole_head) && {
                pause();
                visit.send(body)
            }
        }
        "body in pieces" => {
            visit.send(format!("{whole_head}he")) && {
                pause();
                visit.send("llo")
            }
        }
        "more than announced" => ended(visit.send(format!("{usual}more"))),
        "less than announced" => ended(visit.send(&usual[..usual.len() - 2])),
        "two lengths" => ended(visit.send(with("Content-Length: 5"))),
        "no head" => ended(visit.send("nonsense\r\n\r\n")),
        "reset" => {
            visit.reset();
            false
        }
        "hints" => visit.send(format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{usual}")),
        "continue" => visit.send(format!("HTTP/1.1 100 Continue\r\n\r\n{usual}")),
        "redirect" => visit
            .send(status("302 Found").replace("X-Own: own\r\n", "X-Own: own\r\nLocation: http://u/a\r\n")),
        "cookie" => visit.send(with("Set-Cookie: a=b")),
        "big head" => ended(visit.send(with(&format!("X-Big: {}", "x".repeat(10_000))))),
        "close after" => ended(visit.send(with("Connection: close"))),
        "http/1.0" => ended(visit.send(usual.replace("HTTP/1.1", "HTTP/1.0"))),
        "trailer" => visit.send(usual.replace(
            "Content-Length: 5\r\n\r\nhello",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: t\r\n\r\n",
        )),
        "upgrade" => {
            ended(visit.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n"))
        }
        "large" => {
            visit.send(usual.replace("5\r\n\r\nhello", &format!("100000\r\n\r\n{}", "x".repeat(100_000))))
        }
        "accel" => visit.send(with("X-Accel-Redirect: /into/")),
        // "close"
        _ => false,
    }
}

/// The server ends its connection after what it has sent.
fn ended(_sent: bool) -> bool {
    false
}
