//! What is distinguished, and access: servers behind a proxy, locations of one name in two servers, a request that
//! carries a signed field, and commands while the configuration is being written.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use weir_http::json::JsonValue;
use weir_test::{Backend, Client, DEADLINE, Server, both_drivers, wait_for};

use crate::support::says as said;

#[track_caller]
fn says(server: &Server, words: &[&str]) -> String {
    said::says(words, &said::of(server))
}

fn started(conf: &str) -> Server {
    let server = Server::start(conf);
    said::ready(&server);
    server
}

/// The names (`key`) in the rows of a table that is asked for until `right` holds: rows are of the last interval. As
/// JSON: on a busy machine the table for people ends with lines that say so.
#[track_caller]
fn rows(server: &Server, table: &str, key: &str, ask: impl Fn(), right: impl Fn(&[String]) -> bool) {
    let end = Instant::now() + DEADLINE;
    loop {
        let said = std::thread::scope(|scope| {
            let said = scope.spawn(|| says(server, &["top", table, "-b", "-d", "300ms", "--json"]));
            while !said.is_finished() {
                ask();
            }
            said.join().expect("the command runs")
        });
        let said = JsonValue::parse(said.as_bytes()).expect("JSON");
        let names = said.list().expect("rows").iter().filter_map(|row| row.field(key)?.text());
        let last: Vec<String> = names.map(str::to_owned).collect();
        if right(&last) {
            return;
        }
        assert!(Instant::now() < end, "{last:?}");
    }
}

both_drivers! {
    fn each_server_of_a_group_has_figures_of_its_own(driver) {
        let (one, other) = (Backend::answering("a"), Backend::answering("b"));
        let server = started(&format!(
            "http {{ upstream u {{ server 127.0.0.1:{}; server localhost:{}; }}
             server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; }}
                location /computed {{ proxy_pass http://127.0.0.1:$arg_port; }} }} }}",
            one.port(), other.port()
        ));
        let names = [format!("127.0.0.1:{}", one.port()), format!("localhost:{}", other.port()), "proxy".to_owned()];
        let ask = || {
            let mut client = server.client();
            client.get("/");
            client.get("/");
            assert_eq!(client.get(&format!("/computed?port={}", one.port())).text(), "a");
        };
        rows(&server, "upstreams", "peer", ask, |rows| rows.len() == 3 && names.iter().all(|name| rows.contains(name)));
    }

    fn locations_of_one_name_in_two_servers_have_figures_of_their_own(driver) {
        let server = started(
            "http { server { listen 127.0.0.1:%%PORT%%; server_name a; location / { return 200 a; } location /own { return 200; } }
             server { listen 127.0.0.1:%%PORT%%; server_name b; location / { return 200 b; } } }",
        );
        let ask = || {
            let mut client = server.client();
            for (host, path) in [("a", "/"), ("a", "/own"), ("b", "/")] {
                client.request(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            }
        };
        rows(&server, "routes", "location", ask, |rows| {
            rows.len() == 3 && ["a/", "b/", "/own"].iter().all(|name| rows.iter().any(|row| row == name))
        });
    }

    fn a_signed_field_has_the_request_s_tree_kept(driver) {
        let server = started(
            "http { trace sample=off slow=off; trace_header X-Trace 0123456789abcdef;
             server { listen 127.0.0.1:%%PORT%%; location / { return 200 a; } location /other { trace_header T fedcba9876543210; } } }",
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        assert!(now < 4_102_444_800, "the field of this test has ended");
        let mut client = server.client();
        let mut ask = |path: &str, field: &str| {
            let response = client.request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
            response.field("X-Trace").map(str::to_owned)
        };
        let signed = format!("x-trace: 4102444800 {SIGNATURE}\r\n");
        let id = ask("/secret?argument", &signed).expect("it is signed");
        // The response may come before its tree is retained.
        wait_for("the tree", || says(&server, &["slow", "--json"]).contains(&id).then_some(()));
        let reported = says(&server, &["explain", &id]);
        assert!(reported.starts_with("GET /secret  200") && reported.contains("-> trace_header "), "{reported}");
        assert!(reported.contains("\nkept because its trace header or its location asks for that\n"), "{reported}");
        for wrong in ["", "X-Trace: 1\r\n", &signed.replace("41", "42"), &signed.replace(" 4102444800", " 1000000000")] {
            assert_eq!(server.client().request(format!("GET / HTTP/1.1\r\nHost: a\r\n{wrong}\r\n")).field("X-Trace"), None);
        }
        assert_eq!(server.client().request(format!("GET /other HTTP/1.1\r\nHost: a\r\n{signed}\r\n")).field("X-Trace"), None);
        assert_eq!(says(&server, &["slow", "--json"]).lines().count(), 1);
    }

    /// Only the lines outside of blocks are read, and what they include.
    fn commands_find_the_server_whatever_its_file_has_become(driver) {
        let mut server = started("pid %%DIR%%/nginx.pid; http { server { listen 127.0.0.1:%%PORT%%; return 200 a; } }");
        let client = Client::connect(server.addr(0));
        let directory = server.dir().path().display().to_string();
        for text in [
            "include more.conf; http { server { listn x; ssl_certificate nowhere; include nowhere; }".to_owned(),
            format!("worker_processes unknown; pid '{directory}/nginx.pid'; http {{ \"unclosed"),
            format!("pid {directory}/nginx.pid; http {{ content_by_lua_block {{ local s = \"}}\" }} }} }} }}"),
        ] {
            server.dir().write("nginx.conf", text);
            server.dir().write("more.conf", format!("pid {directory}/nginx.pid;"));
            assert!(says(&server, &["doctor"]).contains("ok   server"));
        }
        drop(client);
        assert!(server.quit().status.success());
    }
}

/// HMAC-SHA-256 of `4102444800`, the year 2100, with the key `0123456789abcdef`.
const SIGNATURE: &str = "b602b35f6af5a7024cdbf179d142e30b7ce9e387730040767a221f3095f61bf7";
