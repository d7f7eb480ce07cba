//! Responses that are stored with the head of their request: they are those that would be made, and are made for each request
//! where anything but the head decides.

use std::fs;
use std::path::Path;

use weir::modules::MODULES;
use weir_test::{Client, Response, Server, TempDir, both_drivers, wait_for};

use crate::http2::client::{Answer, Client as Http2Client};
use crate::support::inside::Running;
use crate::support::repeated;
use crate::support::tls::{TlsClient, authority, client, own};

/// Locations, each `/N/...` or what it says itself, with a path to ask for.
const LOCATIONS: &[(&str, &str)] = &[
    ("location /0/ { return 200 text; }", "/0/"),
    ("location = /1 { return 200; }", "/1"),
    ("location = /2 { return 204; }", "/2"),
    ("location = /3 { return 404 no; }", "/3"),
    ("location = /4 { return 503; }", "/4"),
    ("location = /5 { return 200 $remote_port.$request_id; }", "/5"),
    ("location = /6 { return 301 /else; }", "/6"),
    ("location = /7 { return 444; }", "/7"),
    ("location = /8 { default_type text/x; charset utf-8; return 200 text; }", "/8"),
    ("location = /9 { add_header X-A b always; return 500 text; }", "/9"),
    ("location = /10 { add_header X-A $connection_requests; return 200 text; }", "/10"),
    ("location = /11 { expires 1h; return 200 text; }", "/11"),
    ("location = /12 { set $a b; return 200 $a; }", "/12"),
    ("location = /13 { if ($arg_x) { return 200 x; } return 200 y; }", "/13?x=1"),
    ("location /14/ { rewrite ^ /0/ last; }", "/14/"),
    ("location = /15 { empty_gif; }", "/15"),
    ("location = /16 { empty_gif; limit_except POST { deny all; } }", "/16"),
    ("location = /17 { deny all; return 200 text; }", "/17"),
    ("location = /18 { deny all; empty_gif; }", "/18"),
    ("location = /19 { auth_basic a; auth_basic_user_file none; empty_gif; }", "/19"),
    ("location = /20 { internal; empty_gif; }", "/20"),
    ("location = /21 { error_page 405 = /0/; empty_gif; }", "/21"),
    ("location = /22 { post_action /0/; empty_gif; }", "/22"),
    ("location = /23 { limit_rate 10m; empty_gif; }", "/23"),
    ("location = /24 { keepalive_timeout 0; empty_gif; }", "/24"),
    ("location = /25 { satisfy any; allow all; deny all; empty_gif; }", "/25"),
    ("location = /26 { gzip on; gzip_min_length 1; default_type text/html; return 200 texttext; }", "/26"),
    ("location = /27 { content_by_lua_block { n = (n or 0) + 1 ngx.print(n > 0) } }", "/27"),
    ("location = /28 { header_filter_by_lua_block { ngx.header.x = 'y' } empty_gif; }", "/28"),
    ("location = /29 { access_by_lua_block { ngx.header.x = 'z' } empty_gif; }", "/29"),
    ("location = /30 { log_by_lua_block { ngx.log(ngx.INFO, 'x') } empty_gif; }", "/30"),
    (
        "location = /31 { body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() } return 200 text; }",
        "/31",
    ),
    ("location ~ ^/(32) { return 200 $1; }", "/32"),
    ("location ~ ^/33/(.*)$ { alias html/$1; }", "/33/a.txt"),
    ("location ~ \\.33a$ { root html; }", "/b.33a"),
    ("location /34/ { alias html/; }", "/34/a.txt"),
    ("location /35/ { alias html/; }", "/35/"),
    ("location /36/ { alias html/; autoindex on; index none; }", "/36/sub/"),
    ("location /37/ { alias html/; index a.txt; }", "/37/"),
    ("location /38/ { alias html/; }", "/38/none.txt"),
    ("location /39/ { alias html/; }", "/39/sub"),
    ("location /40/ { alias html/; etag off; add_header X-A b; add_header X-B c; }", "/40/a.txt?x"),
    ("location /41/ { alias html/; open_file_cache max=9; }", "/41/a.txt"),
    ("location /42/ { alias html/; disable_symlinks on; }", "/42/a.txt"),
    ("location /sub/ { root html; try_files $uri /0/; }", "/sub/b.txt"),
    ("location /44/ { alias html/; profile off; }", "/44/a.txt"),
    ("location /45/ { alias html/; access_log off; }", "/45/a.txt"),
    (
        "location /46/ { alias html/; location /46/a.txt { alias html/a.txt; add_header X-In ner; } }",
        "/46/a.txt",
    ),
    ("location /47/ { alias html/; ssi on; }", "/47/a.html"),
    ("location /48/ { alias html/; sub_filter hello bye; }", "/48/a.html"),
    ("location /49/ { alias html/; mirror /0/; }", "/49/a.txt"),
    ("location /50/ { alias html/; limit_req zone=z burst=100 nodelay; }", "/50/a.txt"),
    ("location /51/ { alias html/; more_set_headers 'X-A: b'; }", "/51/a.txt"),
    ("location /52/ { alias html/; userid on; }", "/52/a.txt"),
    ("location /53/ { alias html/; expires modified 1d; }", "/53/a.txt"),
    ("location /54/ { alias html/; chunked_transfer_encoding off; gzip_static on; }", "/54/a.txt"),
    ("location /55/ { alias html/; error_log error.log debug; }", "/55/a.txt"),
    ("location /56/ { alias html/; }", "/56/large.bin"),
    ("location /57/ { alias html/; }", "/57/10k.bin"),
    ("location /58/ { alias html/$arg_of; }", "/58/a.txt"),
    ("location /59/ { alias html/; add_trailer X-T v; }", "/59/a.txt"),
    ("location /60/ { alias html/; max_ranges 0; if_modified_since off; }", "/60/a.txt"),
    ("location /61/ { alias html/; default_type ''; types { } }", "/61/a.txt"),
    ("location = /62 { echo hello; }", "/62"),
    ("location = /63 { stub_status; }", "/63"),
    (
        "location = /65 { proxy_pass http://127.0.0.1:%%PORT%%/34/a.txt?cached; proxy_cache c; proxy_cache_valid 1h; }",
        "/65",
    ),
    (
        "location = /66 { proxy_pass http://127.0.0.1:%%PORT%%/34/a.txt?cached; proxy_cache c; proxy_cache_valid 1h; proxy_cache_key $http_x_n; }",
        "/66",
    ),
    (
        "location = /67 { proxy_pass http://127.0.0.1:%%PORT%%/34/a.txt?cached; proxy_cache c; proxy_cache_valid 1h; proxy_cache_bypass $arg_no; access_log off; add_header X-Cache yes; }",
        "/67",
    ),
    ("location = /64 { proxy_pass http://127.0.0.1:%%PORT%%/34/a.txt?proxied; }", "/64"),
];

/// What logs know of a request and its response that is the same for two requests with the same head.
const FORMAT: &str = "$status|$request|$request_method|$uri|$args|$document_uri|$request_filename|$http_user_agent|\
    $bytes_sent|$body_bytes_sent|$request_length|$request_completion|$sent_http_content_type|\
    $sent_http_content_length|$sent_http_etag|$sent_http_last_modified|$sent_http_connection|$sent_http_x_a|\
    $sent_http_location|$content_type|$server_name|$server_port|$scheme|$host|$http_host|$limit_rate|$pipe|\
    $upstream_status|$realip_remote_addr|$document_root|$is_args|$request_uri|$server_protocol|$remote_user|\
    $http_x_n";

fn conf(more: &str) -> String {
    let locations: String = LOCATIONS.iter().map(|(location, _)| format!("{location}\n")).collect();
    format!(
        "http {{ keepalive_requests 1000000; limit_req_zone a zone=z:1m rate=1000r/s; proxy_cache_path cache keys_zone=c:1m; log_format f '{FORMAT}';
        access_log access.log f; {more}
        server {{ listen 127.0.0.1:%%PORT%%; http2 on; {locations} }} }}"
    )
}

fn started(conf: &str) -> Server {
    Server::builder(conf)
        .file("html/a.txt", "hello\n")
        .file("html/a.html", "hello <!--#echo var=\"uri\" -->\n")
        .file("html/b.33a", "b")
        .file("html/10k.bin", "x".repeat(10_000))
        .file("html/large.bin", "x".repeat(200_000))
        .file("html/sub/b.txt", "b")
        .allow("[error]")
        .allow("[crit]")
        .start()
}

/// A response without what differs by the second or the request.
fn settled(response: &Response) -> (Vec<String>, Vec<u8>) {
    let passing = ["Date: ", "Set-Cookie: ", "Expires: ", "Cache-Control: max-age", "X-A: "];
    let head = response.head_text();
    let lines = head.lines().filter(|line| !passing.iter().any(|name| line.starts_with(name)));
    (lines.map(str::to_owned).collect(), response.body.clone())
}

/// So many requests with one head: the first is read, the second recalled and its response stored, the others get that.
const TIMES: usize = 5;

/// Requests for `path` on a connection of their own, all with one head, or each with another one.
fn ask(server: &Server, path: &str, alike: bool) -> Vec<Option<(Vec<String>, Vec<u8>)>> {
    repeated::ask(server, path, (0..TIMES).map(|number| if alike { 0 } else { number }), settled)
}

/// A response by HTTP/2: status, fields, body, and whether its stream was reset.
type StreamResponse = (u16, Vec<(String, String)>, Vec<u8>, bool);

/// [`settled`] of a response by HTTP/2.
fn settled_fields(answer: &Answer) -> StreamResponse {
    let passing = ["date", "set-cookie", "expires", "cache-control", "x-a"];
    let fields = answer.fields.iter().filter(|(name, _)| !passing.contains(&name.as_str()));
    (answer.status, fields.cloned().collect(), answer.body.clone(), answer.reset.is_some())
}

/// [`ask`] by HTTP/2. The first sections put fields into the table, so that the later ones are the same bytes.
fn ask_http2(server: &Server, path: &str, alike: bool) -> Vec<StreamResponse> {
    let mut client = Http2Client::connect(server.addr(0));
    let one = |number: usize| {
        if client.closed || client.goaway.is_some() {
            client = Http2Client::connect(server.addr(0));
        }
        let number = if alike { "0".to_owned() } else { number.to_string() };
        let key = client.open("GET", path, &[("x-n", &number)], None);
        settled_fields(&client.answer(key))
    };
    (0..TIMES + 2).map(one).collect()
}

/// The lines of the access log once there are so many for this path.
fn log_lines(server: &Server, path: &str, count: usize) -> Vec<String> {
    repeated::log_lines(server, "access.log", &format!("|GET {path} HTTP"), count)
}

fn replace(directory: &Path, name: &str, text: &str) {
    let aside = directory.join("new");
    fs::write(&aside, text).expect("the directory is ours");
    fs::rename(&aside, directory.join(name)).expect("the directory is ours");
}

const GET: &str = "GET /34/a.txt HTTP/1.1\r\nHost: a\r\n\r\n";

fn repeat(client: &mut Client, head: &str, times: usize) -> Response {
    for _ in 1..times {
        client.request(head);
    }
    client.request(head)
}

both_drivers! {
    /// Every location: heads that repeat get what heads get that do not, and logs say the same of them.
    fn a_head_that_comes_again_gets_what_another_one_gets(driver) {
        let server = started(&conf(""));
        let own = ["/5", "/27", "/63"];
        for (location, path) in LOCATIONS {
            let (alike, unlike) = (ask(&server, path, true), ask(&server, path, false));
            if !own.contains(path) {
                assert_eq!(alike, unlike, "{location}");
                assert!(alike.iter().all(|response| *response == alike[0]), "{location}");
            }
        }
        let logged = |path: &str| !["/7", "/45/a.txt", "/67"].contains(&path);
        for (location, path) in LOCATIONS.iter().filter(|(_, path)| logged(path)) {
            let lines = log_lines(&server, path, 2 * TIMES);
            let mut seen: Vec<&str> =
                lines.iter().filter_map(|line| line.rsplit_once('|')).map(|(line, _)| line).collect();
            assert_eq!(seen.len(), 2 * TIMES, "{location}");
            seen.dedup();
            assert!(seen.len() == 1 || own.contains(path) || ["/10", "/49/a.txt", "/65", "/66"].contains(path), "{location}: {seen:#?}");
        }
    }

    /// Which responses are stored, and given without making them: what the other tests compare is not one way with itself.
    fn responses_that_follow_from_their_heads_are_stored(driver) {
        // Not 503 and other pages, charsets, captures; `return` comes before `deny`, as in nginx.
        let stored = [
            "/0/", "/1", "/3", "/15", "/17", "/21", "/34/a.txt", "/40/a.txt?x", "/41/a.txt", "/44/a.txt", "/45/a.txt",
            "/46/a.txt", "/60/a.txt",
        ];
        // What several frames or fields of other names make has no number, and a connection of HTTP/1 that ends no next request.
        let (of_http1, of_http2) = (["/9", "/57/10k.bin", "/61/a.txt"], ["/24"]);
        let mut wrong = Vec::new();
        for http2 in [false, true] {
            let text = conf("").replace("127.0.0.1:%%PORT%%;", "%%ADDRESS%%;").replace("access_log access.log f;", "access_log off;");
            let text = text.replace("%%PORT%%", "1");
            // Blocks of Lua need the lexer of the whole server, files the place of their own.
            let text: String =
                text.lines().filter(|line| !line.contains("_by_lua")).flat_map(|line| [line, "\n"]).collect();
            let files = TempDir::new();
            let place = |name: &str| files.path().join(name).display().to_string();
            let text = text.replace("alias html/", &format!("alias {}/", place("html")));
            let text = text.replace("root html", &format!("root {}", place("html")));
            let text = text.replace("error_log error.log", &format!("error_log {}", place("error.log")));
            let text = text.replace("cache_path cache", &format!("cache_path {}", place("cache")));
            let (_, http) = text.split_once('{').expect("a block");
            let http = http.rsplit_once('}').expect("it ends").0;
            for (name, length) in [("a.txt", 6), ("a.html", 6), ("b.33a", 1), ("10k.bin", 10_000), ("large.bin", 200_000)] {
                files.write(&format!("html/{name}"), "x".repeat(length));
            }
            let running = Running::start(driver, MODULES, "", http);
            // Those that ask another server, or a port that nobody listens at, respond with an error.
            for (location, path) in LOCATIONS.iter().filter(|(text, path)| *path != "/7" && !text.contains("_by_lua")) {
                let before = running.on_worker(|worker| {
                    worker.trim_exchanges();
                    worker.known_responses()
                });
                assert_eq!(before, 0);
                if http2 {
                    let mut client = Http2Client::connect(running.address);
                    (0..TIMES + 2).for_each(|_| drop(client.fetch(path)));
                } else {
                    let mut client = running.client();
                    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
                    for _ in 0..TIMES {
                        if !client.request(&head).keeps_alive() {
                            client = running.client();
                        }
                    }
                }
                let also = if http2 { &of_http2[..] } else { &of_http1[..] };
                let expected = stored.contains(path) || also.contains(path);
                let known = running.on_worker(|worker| worker.known_responses());
                if (known > 0) != expected {
                    wrong.push(format!("{location} http2: {http2}, known: {known}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// The same by HTTP/2.
    fn a_section_that_comes_again_gets_what_another_one_gets(driver) {
        for log in ["", "access_log off;"] {
            let server = started(&conf("").replace("access_log access.log f;", log));
            // Without a response there is none to compare.
            for (location, path) in LOCATIONS.iter().filter(|(_, path)| *path != "/7") {
                let (alike, unlike) = (ask_http2(&server, path, true), ask_http2(&server, path, false));
                if !["/5", "/27", "/63"].contains(path) {
                    assert_eq!(alike, unlike, "{location}");
                    assert!(alike.iter().all(|response| *response == alike[0]), "{location}");
                }
            }
        }
    }

    /// Bodies, resets and other sections between equal ones: each stream has its own response.
    fn streams_among_equal_ones_have_their_own_responses(driver) {
        let server = started(&conf("").replace("access_log access.log f;", "access_log off;"));
        let mut client = Http2Client::connect(server.addr(0));
        for _ in 0..20 {
            let first: Vec<_> = (0..5).map(|_| client.get("/34/a.txt")).collect();
            let other = client.get("/57/10k.bin");
            let post = client.open("POST", "/34/a.txt", &[], Some(b"abc"));
            let with_body = client.open("GET", "/34/a.txt", &[], Some(b"abc"));
            let head = client.open("HEAD", "/34/a.txt", &[], None);
            let given_up = client.get("/34/a.txt");
            client.reset(given_up);
            let last: Vec<_> = (0..5).map(|_| client.get("/34/a.txt")).collect();
            for key in first.into_iter().chain(last) {
                assert_eq!(client.answer(key).text(), "hello\n");
            }
            assert_eq!(client.answer(other).body.len(), 10_000);
            assert_eq!(client.answer(post).status, 405);
            assert_eq!(client.answer(with_body).text(), "hello\n");
            let head = client.answer(head);
            assert_eq!((head.field("content-length"), head.text().as_str()), (Some("6"), ""));
        }
        // A client that takes nothing at first gets it later.
        let mut slow = Http2Client::with_window(server.addr(0), 0);
        slow.reads = false;
        let keys: Vec<_> = (0..6).map(|_| slow.get("/34/a.txt")).collect();
        slow.until("heads", |client| keys.iter().all(|key| client.answers[key].status == 200));
        assert!(keys.iter().all(|key| slow.answers[key].body.is_empty()));
    }

    /// What a client with a certificate has asked for is no one else's.
    fn a_client_without_a_certificate_has_no_other_s_response(driver) {
        let (ca, own) = (authority("ca"), own("a"));
        let server = Server::builder(
            "http { ssl_certificate own.crt; ssl_certificate_key own.key; access_log off;
            server { listen 127.0.0.1:%%PORT%% ssl; server_name a; ssl_client_certificate ca.crt; ssl_verify_client on;
                location = /a { return 200 secret; } }
            server { listen 127.0.0.1:%%PORT%% ssl; server_name b; location = /a { return 200 open; } } }",
        );
        let server = server
            .file("own.crt", &own.certificate).file("own.key", &own.key).file("ca.crt", &ca.certificate).start();
        let request = |host: &str| format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let ask = |client: &mut TlsClient, host: &str| {
            client.send(request(host).as_bytes());
            client.response()
        };
        let trusted = client(true, Some(ca.issue("client").shown()));
        let nothing = client(true, None);
        let mut with = TlsClient::connect(server.addr(0), "a", &trusted);
        for _ in 0..6 {
            assert_eq!(ask(&mut with, "a").text(), "secret");
        }
        // Heads are stored by the number of their connection: these have all places.
        for _ in 0..40 {
            let mut without = TlsClient::connect(server.addr(0), "a", &nothing);
            assert_eq!(ask(&mut without, "a").status, 400);
            let mut open = TlsClient::connect(server.addr(0), "b", &nothing);
            assert_eq!((ask(&mut open, "b").text(), ask(&mut open, "b").text()), ("open".to_owned(), "open".to_owned()));
            assert_eq!((ask(&mut open, "b").text(), ask(&mut open, "a").status), ("open".to_owned(), 421));
            let mut plain = server.client();
            assert_eq!(plain.request(request("a")).status, 400);
            let mut plain = server.client();
            assert_eq!(plain.request(request("b")).status, 400);
        }
        assert_eq!(ask(&mut with, "a").text(), "secret");
    }

    /// What depends on the request is made for each.
    fn what_differs_by_request_is_made_for_each(driver) {
        let server = started(
            "http { keepalive_requests 1000000; access_log off;
            limit_req_zone $binary_remote_addr zone=z:1m rate=1r/m;
            map $connection_requests $odd { ~[13579]$ odd; default even; }
            server { listen 127.0.0.1:%%PORT%%; root html;
                location = /count { content_by_lua_block { n = (n or 0) + 1 ngx.print(n) } }
                location = /number { return 200 $connection_requests; }
                location = /map { add_header X-Odd $odd; empty_gif; }
                location = /limit { limit_req zone=z; empty_gif; }
                location = /lua { access_by_lua_block { m = (m or 0) + 1 if m > 3 then ngx.exit(403) end } empty_gif; }
                location = /closed { keepalive_requests 3; empty_gif; }
            } }",
        );
        let head = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut client = server.client();
        for number in 1..=6 {
            assert_eq!(client.request(head("/number")).text(), number.to_string());
        }
        for number in 1..=6 {
            assert_eq!(client.request(head("/count")).text(), number.to_string());
        }
        for number in 13..=18 {
            let odd = if number % 2 == 1 { "odd" } else { "even" };
            assert_eq!(client.request(head("/map")).field("x-odd"), Some(odd));
        }
        let statuses = |path: &str| (0..6).map(|_| server.get(path).status).collect::<Vec<_>>();
        assert_eq!(statuses("/limit"), [200, 503, 503, 503, 503, 503]);
        let mut client = server.client();
        let lua: Vec<u16> = (0..6).map(|_| client.request(head("/lua")).status).collect();
        assert_eq!(lua, [200, 200, 200, 403, 403, 403]);
        let mut client = server.client();
        let kept: Vec<bool> = (0..3).map(|_| client.request(head("/closed")).keeps_alive()).collect();
        assert_eq!(kept, [true, true, false]);
        let mut client = server.client();
        let old = "GET /closed HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
        let kept: Vec<bool> = (0..3).map(|_| client.request(old).keeps_alive()).collect();
        assert_eq!(kept, [true, true, false]);
    }

    /// A file is looked at for each request, whatever is known of its response.
    fn a_file_that_changes_is_seen(driver) {
        for (location, workers) in [("", 1), ("sendfile off;", 2)] {
            let server = started(&format!("worker_processes {workers}; {}", conf(location)));
            let directory = server.dir().path().join("html");
            let mut client = server.client();
            assert_eq!(repeat(&mut client, GET, 5).text(), "hello\n");
            for text in ["hallo\n", "longer than before\n", "short", &"x".repeat(5_000), &"y".repeat(70_000), "again\n"] {
                replace(&directory, "a.txt", text);
                for _ in 0..4 {
                    assert_eq!(client.request(GET).text(), text);
                }
            }
            fs::remove_file(directory.join("a.txt")).expect("it is there");
            assert_eq!([client.request(GET).status, client.request(GET).status], [404, 404]);
            fs::create_dir(directory.join("a.txt")).expect("it is not there");
            assert_eq!(client.request(GET).status, 301);
            fs::remove_dir(directory.join("a.txt")).expect("it is there");
            replace(&directory, "a.txt", "back\n");
            assert_eq!(repeat(&mut client, GET, 5).text(), "back\n");
        }
    }

    /// Many in one packet, among others, and with a body that is announced: each has its response, in order.
    fn pipelined_heads_get_their_responses_in_order(driver) {
        let server = started(&conf(""));
        let mut client = server.client();
        let other = "GET /57/10k.bin HTTP/1.1\r\nHost: a\r\n\r\n";
        let post = "POST /34/a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        let text = "GET /0/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        let one = [GET, GET, GET, GET, other, other, other, other, post, GET, text, text, text, text, GET].concat();
        client.send(one.repeat(20));
        for _ in 0..20 {
            for length in [6, 6, 6, 6, 10_000, 10_000, 10_000, 10_000] {
                assert_eq!(client.response().body.len(), length);
            }
            assert_eq!(client.response().status, 405);
            assert_eq!(client.response().text(), "hello\n");
            for _ in 0..4 {
                assert_eq!(client.response().text(), "text");
            }
            assert_eq!(client.response().text(), "hello\n");
        }
    }

    /// A cached response is looked for in its cache for each request.
    fn a_cached_response_that_goes_is_seen(driver) {
        let visits = weir_test::Backend::start(|visit| {
            while visit.head().is_some() {
                let text = "Cache-Control: max-age=2\r\n";
                visit.send(format!("HTTP/1.1 200 OK\r\n{text}Content-Length: 5\r\n\r\nhello"));
            }
        });
        let server = Server::start(&format!(
            "http {{ access_log off; keepalive_requests 100000000; proxy_cache_path cache keys_zone=c:1m;
            server {{ listen 127.0.0.1:%%PORT%%; http2 on;
                location / {{ proxy_pass http://127.0.0.1:{}; proxy_cache c; proxy_cache_purge $http_purge; }}
                location /own/ {{ proxy_pass http://127.0.0.1:{}; proxy_cache c; proxy_cache_valid 1h; }} }} }}",
            visits.port(), visits.port()
        ));
        let head = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut client = server.client();
        let mut streams = Http2Client::connect(server.addr(0));
        for path in ["/a", "/own/a"] {
            let before = visits.heads();
            for _ in 0..20 {
                assert_eq!(client.request(head(path)).text(), "hello");
                assert_eq!(streams.fetch(path).text(), "hello");
            }
            // The response may have become too old meanwhile.
            assert!(visits.heads() - before < 10, "{path}: {}", visits.heads() - before);
            // It becomes too old: the server is asked again.
            let asked = visits.heads();
            wait_for("a new fetch", || {
                assert_eq!(client.request(head(path)).text(), "hello");
                (visits.heads() > asked).then_some(())
            });
            // Who removes the files is heard at once.
            for _ in 0..3 {
                repeat(&mut client, &head(path), 10);
                let asked = visits.heads();
                fs::remove_dir_all(server.dir().path().join("cache")).expect("it is there");
                fs::create_dir(server.dir().path().join("cache")).expect("it is not there");
                assert_eq!(client.request(head(path)).text(), "hello");
                assert!(visits.heads() > asked, "{path}");
            }
        }
    }

    /// A reload changes what is known; the connection stays.
    fn a_reload_forgets_responses(driver) {
        let with = |text: &str| {
            format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; location = /a {{ return 200 {text}; }} }} }}")
        };
        let mut server = started(&with("v0"));
        let mut client = server.client();
        let head = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(repeat(&mut client, head, 5).text(), "v0");
        for number in 1..4 {
            server.reload(&with(&format!("v{number}")));
            wait_for("the new text", || {
                client = server.client();
                (client.request(head).text() == format!("v{number}")).then_some(())
            });
            for _ in 0..5 {
                assert_eq!(client.request(head).text(), format!("v{number}"));
            }
        }
    }
}
