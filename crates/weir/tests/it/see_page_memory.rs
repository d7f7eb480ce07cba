//! The page of the admin listener takes as much memory after an hour as after some minutes. Its hour is a minute here
//! (`tests/data/page_hour.js`), and a third of it unless WEIR_TEST_LONG is set.

use crate::support::browser::Browser;
use crate::support::faults::FaultLoad;
use crate::support::page::{DESK, started_browser};
use crate::support::tls::own;

use std::time::Duration;

use weir_test::{Server, wait_for};

const CONF: &str = "worker_processes 2; admin 127.0.0.1:%%PORT_1%%;
http {
    trace sample=1/1;
    upstream backends { server 127.0.0.1:%%PORT_0%%; keepalive 4; }
    server {
        listen 127.0.0.1:%%PORT_0%%;
        keepalive_requests 1000000;
        location /one/ { return 200 one; }
        location /two/ { return 404; }
        location /api/ { proxy_pass http://backends/one/; }
        location /tls/ { proxy_pass https://127.0.0.1:%%PORT_2%%/; proxy_ssl_session_reuse off; }
        location /slow/ { content_by_lua_block { ngx.sleep(0.03) ngx.say('slow') } }
    }
    server { listen 127.0.0.1:%%PORT_2%% ssl; ssl_certificate own.crt; ssl_certificate_key own.key; return 200 tls; }
}";

/// Bytes of the heap, nodes of documents and listeners, after what is not used any more was collected.
#[derive(Debug)]
struct PageMemory {
    heap: f64,
    nodes: f64,
    listeners: f64,
}

fn memory(browser: &mut Browser) -> PageMemory {
    let [heap, nodes, listeners] = browser.memory();
    PageMemory { heap, nodes, listeners }
}

/// Memory after `looks` more looks at the history.
fn after(browser: &mut Browser, looks: u64) -> PageMemory {
    let polls = browser.value("window.polls").number().expect("a count");
    browser.until(&format!("window.polls >= {}", polls + looks));
    memory(browser)
}

impl PageMemory {
    fn is_flat_since(&self, early: &PageMemory) -> bool {
        self.heap <= early.heap * 1.04 + 20_000.0
            && self.nodes <= early.nodes + 300.0
            && self.listeners <= early.listeners + 60.0
    }
}

/// In a view nothing grows with the number of looks. What grows once is no leak, such as code that the browser compiles at last: of
/// three halves in a row one is flat.
fn stays_flat(browser: &mut Browser, view: &str, looks: u64) {
    browser.value(&format!("location.hash = '#/{view}'; true"));
    // The minute is full, and code was compiled that will be.
    let mut seen = vec![after(browser, looks / 2)];
    for _ in 0..3 {
        let late = after(browser, looks / 2);
        let flat = seen.last().is_some_and(|early| late.is_flat_since(early));
        seen.push(late);
        if flat {
            return;
        }
    }
    panic!("{view}: {seen:#?}");
}

#[test]
fn an_hour_of_looking_keeps_nothing() {
    let own = own("own");
    let server = Server::builder(CONF).file("own.crt", own.certificate).file("own.key", own.key).start();
    let Some(mut browser) = started_browser(&server, &DESK) else { return };
    wait_for("admin listener", || std::net::TcpStream::connect(server.addr(1)).is_ok().then_some(()));
    // What the view of TLS shows; that more come is made up.
    for _ in 0..3 {
        assert_eq!(server.get("/tls/").status, 200);
    }
    let pause = Duration::from_millis(20);
    let load = ["/one/", "/two/", "/api/", "/slow/"]
        .iter()
        .fold(FaultLoad::default(), |load, path| load.clients(&server, 1, path, pause));
    browser.before_each_page(include_str!("../data/page_hour.js"));
    browser.open(&format!("http://{}/", server.addr(1)));
    browser.until("document.querySelectorAll('.routes tbody tr').length >= 4 && window.polls > 5");
    let long = std::env::var_os("WEIR_TEST_LONG").is_some();
    let (first, others) = if long { (1200, 400) } else { (400, 140) };
    stays_flat(&mut browser, "", first);
    for view in ["workers", "upstreams", "tls"] {
        stays_flat(&mut browser, view, others);
    }
    // Views that are left give back what they had.
    let before = memory(&mut browser);
    for _ in 0..10 {
        for view in ["route/%2Fone%2F", "requests", "server", "lua", "tls", "workers", ""] {
            browser.value(&format!("location.hash = '#/{view}'; true"));
            browser.until("document.querySelector('h1')");
        }
    }
    browser.value("location.hash = '#/upstreams'; true");
    let left = after(&mut browser, 100);
    assert!(left.nodes <= before.nodes + 600.0, "{before:?} {left:?}");
    drop(load);
    assert_eq!(browser.complaints(), [""; 0]);
}
