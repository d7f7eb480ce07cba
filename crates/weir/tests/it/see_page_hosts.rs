//! The page over several servers: `admin_host`, `/hosts`, and its view in a browser.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use weir_http::json::JsonValue;
use weir_test::{Backend, Client, Driver, Server, both_drivers, free_port, wait_for};

use crate::support::StopAtEnd;
use crate::support::page::{DESK, fits, keep, opened};

/// A server that is looked at.
const OTHER: &str = "worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%; admin unix:%%DIR%%/admin.sock;
    admin 127.0.0.1:%%PORT_2%% token=0123456789abcdef;
    http { server { listen 127.0.0.1:%%PORT_0%%; keepalive_requests 1000000;
        location / { return 200 ok; }
        location = /gone { return 502; }
        location = '/<img src=x onerror=broken()>' { return 200 odd; }
        location = /proxied { proxy_pass http://127.0.0.1:%%BACKEND%%; } } }";

fn other(driver: Driver, workers: &str, backend: u16) -> Server {
    let conf = OTHER.replace("%%WORKERS%%", workers).replace("%%BACKEND%%", &backend.to_string());
    ready(Server::builder(&conf).driver(driver).start())
}

/// The server whose page shows others: those of `lines`.
fn looking(driver: Driver, workers: &str, lines: &str) -> Server {
    ready(Server::builder(&looking_conf(workers, lines)).file("token", TOKEN).driver(driver).start())
}

fn looking_conf(workers: &str, lines: &str) -> String {
    format!(
        "worker_processes {workers}; admin 127.0.0.1:%%PORT_1%%; admin 127.0.0.1:%%PORT_2%% token=fedcba9876543210;
        {lines}
        http {{ server {{ listen 127.0.0.1:%%PORT_0%%; keepalive_requests 1000000; location / {{ return 200 ok; }} }} }}"
    )
}

fn ready(server: Server) -> Server {
    wait_for("the admin listener", || std::net::TcpStream::connect(server.addr(1)).is_ok().then_some(()));
    server
}

fn requests(server: &Server, path: &str, count: usize) {
    let mut client = server.client();
    for _ in 0..count {
        let _ = client.request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
}

fn hosts(server: &Server, query: &str) -> JsonValue {
    let response = Client::connect(server.addr(1)).get(&format!("/hosts?fmt=json{query}"));
    assert_eq!(response.status, 200, "{response}");
    JsonValue::parse(response.text().as_bytes()).expect("JSON")
}

fn rows<'v>(tables: &'v JsonValue, table: &str) -> &'v [JsonValue] {
    tables.field(table).and_then(JsonValue::list).expect("a table")
}

fn row<'v>(tables: &'v JsonValue, table: &str, key: &str, name: &str) -> Option<&'v JsonValue> {
    rows(tables, table).iter().find(|row| text(row, key) == name)
}

fn text(row: &JsonValue, key: &str) -> String {
    match row.field(key) {
        Some(JsonValue::Text(text)) => text.clone(),
        Some(JsonValue::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// How the host called `name` is shown: its state, and what is said of it.
fn state(tables: &JsonValue, name: &str) -> (String, String) {
    let row = row(tables, "hosts", "host", name).unwrap_or_else(|| panic!("no {name} in {tables:?}"));
    (text(row, "state"), text(row, "says"))
}

/// Requests come to these servers until `f` ends.
fn under_load<T>(load: &[(&Server, &str)], f: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (server, path) in load {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    requests(server, path, 5);
                    // A small load: these tests share the machine.
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            });
        }
        let _stop = StopAtEnd(&done);
        f()
    })
}

/// A peer of any sort: what `respond` does with each connection, which goes on until it ends. How many came is counted.
fn peer(respond: impl Fn(std::net::TcpStream) + Send + Sync + 'static) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let (count, respond) = (Arc::new(AtomicUsize::new(0)), Arc::new(respond));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Relaxed);
            let respond = respond.clone();
            std::thread::spawn(move || respond(stream));
        }
    });
    (address, count)
}

fn head_of(stream: &mut std::net::TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|length| length == 1) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

const TOKEN: &str = "0123456789abcdef\n";

both_drivers! {
    fn the_figures_of_hosts_are_shown_and_added_up(driver) {
        let backend = Backend::answering("from afar");
        let (one, two) = (other(driver, "1", backend.port()), other(driver, "8", backend.port()));
        let unix = format!("unix:{}/admin.sock", one.dir().path().display());
        let lines = format!("admin_host {unix}; admin_host {} token_file=token;", two.addr(2));
        let server = looking(driver, "1", &lines);
        let two_name = two.addr(2).to_string();
        under_load(&[(&server, "/"), (&one, "/"), (&two, "/"), (&two, "/gone"), (&one, "/proxied")], || {
            let tables = wait_for("all three", || {
                let tables = hosts(&server, "");
                let all = row(&tables, "locations", "location", "/").is_some_and(|row| text(row, "hosts") == "3");
                let peers = !rows(&tables, "upstreams").is_empty();
                let gone = row(&tables, "locations", "location", "= /gone").is_some();
                (all && gone && peers && rows(&tables, "workers").len() == 10).then_some(tables)
            });
            let names: Vec<String> = rows(&tables, "hosts").iter().map(|row| text(row, "host")).collect();
            assert_eq!(names, ["this server".to_owned(), unix.clone(), two_name.clone()]);
            assert!(rows(&tables, "hosts").iter().all(|row| text(row, "state") == "up"), "{tables:?}");
            let gone = row(&tables, "locations", "location", "= /gone").expect("a row");
            assert_eq!((text(gone, "share_5xx").as_str(), text(gone, "hosts").as_str()), ("1.000000", "1"));
            let rate = |row: &JsonValue| text(row, "requests_per_second").parse::<f64>().expect("a rate");
            let sum: f64 = rows(&tables, "locations").iter().map(rate).sum();
            let each: f64 = rows(&tables, "hosts").iter().map(rate).sum();
            assert!((sum - each).abs() < 0.01 * each + 0.01, "{sum} of locations, {each} of hosts: {tables:?}");
            assert_eq!(text(&rows(&tables, "upstreams")[0], "peer"), format!("127.0.0.1:{}", backend.port()));
            // One of them alone.
            let chosen = hosts(&server, &format!("&host={two_name}"));
            assert_eq!(rows(&chosen, "hosts").len(), 3);
            assert!(rows(&chosen, "workers").iter().all(|row| text(row, "host") == two_name), "{chosen:?}");
            assert!(row(&chosen, "locations", "location", "= /proxied").is_none(), "{chosen:?}");
        });
        // For people, and nothing of what is secret.
        let text = Client::connect(server.addr(1)).get("/hosts").text();
        assert!(text.contains(&two_name) && !text.contains("0123456789abcdef"), "{text}");
        assert_eq!(Client::connect(server.addr(2)).get("/hosts").status, 401, "the page's own token");
    }

    /// Only the hosts of the configuration are asked, whatever a client names; those of a host's own lines are not.
    fn no_client_says_who_is_asked(driver) {
        let (secret, asked) = peer(|mut stream| drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nsecret")));
        let port = free_port();
        // A circle: each lists the other, and itself.
        let second_conf = "worker_processes 1; admin 127.0.0.1:%%PORT_1%%; admin_host 127.0.0.1:FIRST; admin_host 127.0.0.1:%%PORT_1%%;
            http { server { listen 127.0.0.1:%%PORT_0%%; } }";
        let second = ready(Server::builder(&second_conf.replace("FIRST", &port.to_string())).driver(driver).start());
        let first_conf = format!(
            "worker_processes 1; admin 127.0.0.1:%%PORT_1%%; admin 127.0.0.1:{port}; admin_host {}; admin_host 127.0.0.1:{port};
            http {{ server {{ listen 127.0.0.1:%%PORT_0%%; }} }}", second.addr(1));
        let first = ready(Server::builder(&first_conf).driver(driver).start());
        wait_for("the other", || (state(&hosts(&first, ""), &second.addr(1).to_string()).0 == "up").then_some(()));
        wait_for("itself", || {
            let own = state(&hosts(&first, ""), &format!("127.0.0.1:{port}"));
            (own == ("same".to_owned(), "is this server, and is not counted twice".to_owned())).then_some(())
        });
        wait_for("the circle", || (state(&hosts(&second, ""), &format!("127.0.0.1:{port}")).0 == "up").then_some(()));
        for named in [format!("{secret}"), format!("http://{secret}/"), format!("{}%0a", second.addr(1)), "unix:/etc/passwd".to_owned()] {
            let response = Client::connect(first.addr(1)).get(&format!("/hosts?fmt=json&host={named}"));
            assert_eq!((response.status, response.text().contains("secret")), (404, false), "{response}");
        }
        assert_eq!(asked.load(Relaxed), 0);
    }

    /// Whatever a host is, it is shown as such and holds up no other.
    fn hosts_that_are_ill_hold_up_nobody(driver) {
        let (silent, _) = peer(|mut stream| drop(stream.read(&mut [0; 1]).and_then(|_| stream.read_to_end(&mut Vec::new()))));
        let (endless, _) = peer(|mut stream| {
            head_of(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"sites\":[");
            while stream.write_all(&[b'1'; 65_536]).is_ok() {}
        });
        let (slow, _) = peer(|mut stream| {
            head_of(&mut stream);
            while stream.write_all(b"H").is_ok() {
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
        });
        let (garbage, _) = peer(|mut stream| { head_of(&mut stream); let _ = stream.write_all(b"\0\xff\x01 garbage\r\n\r\n"); });
        let (elsewhere, _) = peer(|mut stream| { head_of(&mut stream); let _ = stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n"); });
        let (nested, _) = peer(|mut stream| { head_of(&mut stream); let _ = stream.write_all(&[&b"HTTP/1.1 200 OK\r\n\r\n"[..], &[b'['; 1 << 20]].concat()); });
        // It counts what overflows, and calls itself and its locations what a page could take for its own.
        let times = AtomicUsize::new(0);
        let (boaster, _) = peer(move |mut stream| {
            head_of(&mut stream);
            // Nothing and everything in turn: differences are as large as can be.
            let most = if times.fetch_add(1, Relaxed).is_multiple_of(2) { 0 } else { u64::MAX };
            let site = format!("{{\"kind\":\"request\",\"location\":\"<img src=x onerror=broken()>\",\"name\":\"\",\"calls\":{most},\"in\":{most},\"classes\":[{most},{most},{most},{most},{most},{most}],\"total\":{{\"sum\":{most},\"buckets\":[{most},{most},{most},{most},1,2]}}}}");
            let worker = format!("{{\"requests\":{most},\"busy_ns\":{most},\"parked_ns\":{most}}}");
            let body = format!("{{\"version\":\"<b>{}\",\"uptime_ms\":{most},\"sites\":[{site},{site},{}],\"each_worker\":[{worker},{worker}],\"peers\":[{{\"name\":\"p\",\"requests\":{most},\"faults\":{most}}}]}}", "9".repeat(1000), site.replace("<img", "<other"));
            let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        });
        // A version that knows less.
        let (old, _) = peer(|mut stream| {
            let head = head_of(&mut stream);
            assert!(head.starts_with("GET /totals") && !head.contains("Authorization"), "{head}");
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"uptime_ms\":7000,\"connections\":3,\"workers\":2,\"sites\":[{\"kind\":\"of the future\",\"phase\":\"x\",\"location\":\"/\",\"name\":\"y\"}]}");
        });
        let refused = TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).expect("a port");
        let well = other(driver, "1", 9);
        let all = [silent, endless, slow, garbage, elsewhere, nested, boaster, old, refused, well.addr(2)];
        let lines: String = all.iter().map(|address| format!("admin_host {address};")).collect();
        let lines = lines + &format!("admin_host {}; admin_host unix:/nonexistent;", well.addr(1)) + &(1..50).map(|n| format!("admin_host 127.0.1.{n}:1;")).collect::<String>();
        let server = looking(driver, "2", &lines);
        let well_name = well.addr(1).to_string();
        let begun = Instant::now();
        let first = hosts(&server, "");
        assert!(begun.elapsed().as_secs() < 3, "it waits for none that is slow");
        assert_eq!(rows(&first, "hosts").len(), 62);
        under_load(&[(&well, "/")], || {
            wait_for("the one that is well", || {
                let tables = hosts(&server, "");
                let rate = row(&tables, "hosts", "host", &well_name).map(|row| text(row, "requests_per_second"))?;
                (rate.parse::<f64>().is_ok_and(|rate| rate > 0.0)).then_some(())
            });
        });
        let expected: &[(String, &str, &str)] = &[
            (silent.to_string(), "silent", "in time"),
            (endless.to_string(), "silent", "larger than 8 MB"),
            (slow.to_string(), "silent", "does not respond"),
            (garbage.to_string(), "silent", "does not respond"),
            (elsewhere.to_string(), "silent", "302"),
            (nested.to_string(), "silent", "no admin listener"),
            (boaster.to_string(), "up", ""),
            (old.to_string(), "up", ""),
            (refused.to_string(), "silent", "refused"),
            (well.addr(2).to_string(), "silent", "needs its token"),
            ("unix:/nonexistent".to_owned(), "silent", "No such file"),
            ("127.0.1.9:1".to_owned(), "silent", "refused"),
        ];
        for (name, wanted, words) in expected {
            let found = wait_for(&format!("{name} to be {wanted}"), || {
                let (state, says) = state(&hosts(&server, ""), name);
                (state == *wanted).then_some(says)
            });
            assert!(found.contains(words), "{name}: {found}");
        }
        let tables = hosts(&server, "");
        let old_row = row(&tables, "hosts", "host", &old.to_string()).expect("a row");
        assert_eq!((text(old_row, "connections").as_str(), text(old_row, "uptime_seconds").as_str()), ("3", "7"));
        // What hosts call their locations does not become this server's.
        let own = Client::connect(server.addr(1)).get("/top/routes?every=0&fmt=json").text();
        let metrics = Client::connect(server.addr(1)).get("/metrics").text();
        assert!(!own.contains("onerror") && !metrics.contains("onerror"));
        // The loops never waited.
        assert_eq!(server.get("/").status, 200);
        let Some(mut browser) = opened(&server, &DESK) else { return };
        browser.value("location.hash = '#/hosts'");
        browser.until("[...document.querySelectorAll('table.routes td')].some((e) => e.textContent.startsWith('<img src=x'))");
        assert_eq!(browser.value("document.querySelectorAll('main img, main b').length").number(), Some(0));
        assert_eq!(browser.complaints(), [""; 0]);
    }

    /// A reload brings hosts and takes them; one that began again is followed.
    fn hosts_follow_a_reload(driver) {
        let (one, two) = (other(driver, "1", 9), other(driver, "1", 9));
        let mut server = looking(driver, "2", &format!("admin_host {};", one.addr(1)));
        let names = |server: &Server| rows(&hosts(server, ""), "hosts").iter().map(|row| text(row, "host")).collect::<Vec<_>>();
        assert_eq!(names(&server), ["this server".to_owned(), one.addr(1).to_string()]);
        let locked = two.addr(2);
        let conf = looking_conf("2", &format!("admin_host {locked} token_file=token;"));
        server.reload(&conf);
        wait_for("the other", || (names(&server) == ["this server".to_owned(), locked.to_string()]).then_some(()));
        wait_for("its figures", || (state(&hosts(&server, ""), &locked.to_string()).0 == "up").then_some(()));
        // A wrong token in its file: the host is as it says.
        std::fs::write(server.dir().path().join("token"), "something-else-altogether").expect("written");
        server.reload(&conf);
        wait_for("the refusal", || state(&hosts(&server, ""), &locked.to_string()).1.contains("needs its token").then_some(()));
    }
}

/// Hosts are asked only while somebody looks, and not more often for many.
#[test]
fn hosts_are_asked_as_often_as_once_a_second_at_most() {
    let (address, asked) = peer(|mut stream| {
        head_of(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"uptime_ms\":1,\"sites\":[]}");
    });
    let server = looking(Driver::Epoll, "1", &format!("admin_host {address};"));
    assert_eq!(asked.load(Relaxed), 0, "nobody has looked");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..5).for_each(|_| drop(hosts(&server, ""))));
        }
    });
    let most = begun.elapsed().as_millis() / 950 + 1;
    assert!((1..=most).contains(&(asked.load(Relaxed) as u128)), "{asked:?} of {most}");
}

#[test]
fn several_servers_on_the_page() {
    let backend = Backend::answering("from afar");
    let (one, two) = (other(Driver::Epoll, "1", backend.port()), other(Driver::Epoll, "2", backend.port()));
    let gone = TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).expect("a port");
    let lines = format!(
        "admin_host {}; admin_host {} token_file=token; admin_host {gone};",
        one.addr(1),
        two.addr(2)
    );
    let server = looking(Driver::Epoll, "1", &lines);
    let Some(mut browser) = opened(&server, &DESK) else { return };
    let first = |table: &str, name: &str| {
        format!(
            "[...document.querySelectorAll('table.{table} tbody tr')].some((row) => row.cells[0].textContent === '{name}')"
        )
    };
    let odd = "/%3Cimg%20src=x%20onerror=broken()%3E";
    under_load(&[(&server, "/"), (&one, "/proxied"), (&one, odd), (&two, "/"), (&two, "/gone")], || {
        browser.click("nav a", "hosts");
        browser.until("document.querySelectorAll('table.hosts tbody tr').length === 4");
        browser.until(&first("routes", "= /gone"));
        browser.until(&first("routes", "= /proxied"));
        browser.until(&first("routes", "= /<img src=x onerror=broken()>"));
        browser.until(&first("tries", &format!("127.0.0.1:{}", backend.port())));
        browser.until("document.querySelectorAll('table.crew tbody tr').length === 4");
        browser.until("[...document.querySelectorAll('table.hosts .bad')].some((e) => e.textContent === 'silent') && document.body.innerText.includes('1 of them silent')");
        keep(&mut browser, "hosts.png");
        // One of them.
        browser.value(&format!("(() => {{ const s = document.querySelector('select[aria-label=host]'); s.value = '{}'; s.dispatchEvent(new Event('change')); }})()", two.addr(2)));
        browser.until("document.querySelectorAll('table.crew tbody tr').length === 2");
        browser.until(&first("routes", "= /gone"));
        let odd_ones = browser.value("[...document.querySelectorAll('table.routes td')].filter((e) => e.textContent.includes('proxied')).length");
        assert_eq!(odd_ones.number(), Some(0));
        browser.click("table.hosts a", "this server");
        browser.until("document.querySelectorAll('table.crew tbody tr').length === 1 && document.querySelector('select[aria-label=host]').value === 'this server'");
        assert_eq!(browser.value("document.querySelectorAll('main img').length").number(), Some(0));
        // The token stays in the server.
        let all = browser.value(
            "document.documentElement.outerHTML + JSON.stringify({ ...sessionStorage, ...localStorage })",
        );
        assert!(!all.text().expect("text").contains("0123456789abcdef"));
    });
    browser.resize(390, 844, true);
    browser.click("nav a", "hosts");
    browser.until("document.querySelectorAll('table.crew tbody tr').length === 4");
    fits(&mut browser);
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_server_alone_says_how_others_come_to_its_page() {
    let server = looking(Driver::Epoll, "1", "");
    let tables = hosts(&server, "");
    assert_eq!(rows(&tables, "hosts").len(), 1);
    let Some(mut browser) = opened(&server, &DESK) else { return };
    browser.click("nav a", "hosts");
    browser.until("document.body.innerText.includes('admin_host ADDRESS;')");
}

#[test]
fn mistakes_of_lines_are_reported() {
    for (lines, message) in [
        ("admin_host 127.0.0.1:1 token_file=none;", "token_file"),
        ("admin_host 127.0.0.1:1 token_file=.;", "is no regular file"),
        ("admin_host 127.0.0.1:1 token_file=empty;", "holds no token"),
    ] {
        let output = Server::builder(&looking_conf("1", lines)).file("empty", "\n").run(&["-t"]);
        assert!(!output.status.success() && output.stderr.contains(message), "{}", output.stderr);
    }
    let lines: String = (1..=65).map(|n| format!("admin_host 127.0.0.1:{n};")).collect();
    let output = Server::builder(&looking_conf("1", &lines)).run(&["-t"]);
    assert!(output.stderr.contains("more than 64"), "{}", output.stderr);
}
