//! TLS seen from inside: `weir tls`, `/tls`, `/metrics`, what `weir why` says of certificates that end and handshakes that
//! fail, and the view of the page.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use weir_http::json::JsonValue;
use weir_test::{Client, Driver, Server, both_drivers, wait_for};

use crate::support::StopAtEnd;
use crate::support::browser::Browser;
use crate::support::page::{DESK, fits, keep, opened};
use crate::support::says::{of, ready, says};
use crate::support::tls::{Pair, TlsClient, authority, client, client_of, own};

const CONF: &str = "worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%; admin 127.0.0.1:%%PORT_2%% token=0123456789abcdef;
error_log logs/error.log crit;
http {
    ssl_session_cache shared:hands:1m;
    server {
        listen 127.0.0.1:%%PORT_0%% ssl; http2 on;
        server_name good.example other.example;
        ssl_certificate good.crt; ssl_certificate_key good.key;
        return 200 good;
    }
    server {
        listen 127.0.0.1:%%PORT_0%% ssl;
        server_name old.example;
        ssl_certificate old.crt;
        ssl_certificate_key old.key;
        return 200 old;
    }
    server {
        listen 127.0.0.1:%%PORT_0%% ssl;
        server_name asks.example;
        ssl_certificate good.crt; ssl_certificate_key good.key;
        ssl_verify_client on; ssl_client_certificate ca.crt;
        return 200 $ssl_client_verify;
    }
    server { listen 127.0.0.1:%%PORT_0%% ssl; server_name none.example; ssl_reject_handshake on; }
    server { listen 127.0.0.1:%%PORT_0%% ssl; server_name %%CHAIN%%; ssl_certificate chain.crt; ssl_certificate_key chain.key; }
}";

struct Site {
    server: Server,
    ca: Pair,
}

fn started(driver: Driver, workers: &str) -> Site {
    started_with(driver, workers, "chain.example")
}

/// With a name of the server whose chain of certificates is broken.
fn started_with(driver: Driver, workers: &str, name: &str) -> Site {
    let ca = authority("ca");
    let (good, old, chained) =
        (own("good.example"), ca.issue_between("old.example", 2020, 2021), ca.issue("x"));
    // The wrong one after it: an authority that has not issued it.
    let broken = chained.certificate.clone() + &authority("stranger").certificate;
    let server = Server::builder(&CONF.replace("%%WORKERS%%", workers).replace("%%CHAIN%%", name))
        .file("good.crt", &good.certificate)
        .file("good.key", &good.key)
        .file("old.crt", old.certificate.clone() + &ca.certificate)
        .file("old.key", &old.key)
        .file("chain.crt", broken)
        .file("chain.key", &chained.key)
        .file("ca.crt", &ca.certificate)
        .driver(driver)
        .start();
    wait_for("the admin listener", || TcpStream::connect(server.addr(1)).is_ok().then_some(()));
    Site { server, ca }
}

impl Site {
    fn tls(&self, query: &str) -> JsonValue {
        let response = Client::connect(self.server.addr(1)).get(&format!("/tls?fmt=json{query}"));
        assert_eq!(response.status, 200, "{response}");
        JsonValue::parse(response.text().as_bytes()).expect("JSON")
    }

    /// Requests over TLS: full and resumed handshakes of both versions, HTTP/1 and HTTP/2, with and without certificates.
    fn visits(&self) {
        let addr = self.server.addr(0);
        for tls13 in [true, false] {
            let config = client(tls13, None);
            for _ in 0..2 {
                let mut it = TlsClient::connect(addr, "good.example", &config);
                assert_eq!(it.get("/", "good.example").text(), "good");
            }
        }
        drop(TlsClient::connect(addr, "good.example", &client_of(true, None, "h2", true)));
        let shown = |pair: &Pair| client(true, Some(pair.shown()));
        let mut it = TlsClient::connect(addr, "asks.example", &shown(&self.ca.issue("visitor")));
        assert_eq!(it.get("/", "asks.example").text(), "SUCCESS");
        let mut it = TlsClient::connect(addr, "asks.example", &shown(&own("stranger")));
        assert_eq!(it.get("/", "asks.example").status, 400);
        let mut it = TlsClient::connect(addr, "asks.example", &client(true, None));
        assert_eq!(it.get("/", "asks.example").status, 400);
    }

    /// A handshake that the client ends with this alert after the server's first flight.
    fn alert(&self, name: &str, description: u8) {
        let mut stream = TcpStream::connect(self.server.addr(0)).expect("a server");
        stream.write_all(&hello(name)).expect("sent");
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).expect("a flight"), 1);
        stream.write_all(&weir_tls::fatal_alert(description)).expect("sent");
        while stream.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {}
    }
}

/// The first flight of a client.
fn hello(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut it = weir_tls::ClientHandshake::new(&client(false, None), name).expect("a configuration");
    it.handle(&[], &mut out).expect("a hello");
    out
}

fn rows<'v>(known: &'v JsonValue, table: &str) -> &'v [JsonValue] {
    known.field(table).and_then(JsonValue::list).expect("a table")
}

fn text(row: &JsonValue, key: &str) -> String {
    row.field(key).and_then(JsonValue::text).unwrap_or_default().to_owned()
}

fn number(row: &JsonValue, key: &str) -> u64 {
    row.field(key).and_then(JsonValue::number).unwrap_or_else(|| panic!("no {key} in {row:?}"))
}

/// How many handshakes had this value of this trait.
fn agreed(known: &JsonValue, of: &str, value: &str) -> u64 {
    let row =
        rows(known, "handshakes").iter().find(|row| text(row, "of") == of && text(row, "value") == value);
    row.map_or(0, |row| number(row, "total"))
}

fn failed(known: &JsonValue, reason: &str) -> (String, u64) {
    let row = rows(known, "failures").iter().find(|row| text(row, "reason") == reason);
    row.map_or_else(Default::default, |row| (text(row, "by"), number(row, "total")))
}

fn certificate<'v>(known: &'v JsonValue, name: &str) -> &'v JsonValue {
    let is = |row: &&JsonValue| text(row, "names").contains(name);
    rows(known, "certificates").iter().find(is).unwrap_or_else(|| panic!("no {name} in {known:?}"))
}

/// Handshakes of every kind are counted by what they agreed upon.
fn handshakes_are_counted(driver: Driver, workers: &str) {
    let site = started(driver, workers);
    site.visits();
    let known = wait_for("all handshakes", || {
        let known = site.tls("&every=0");
        (number(&known, "complete") == 8).then_some(known)
    });
    let resumed = agreed(&known, "session", "ticket") + agreed(&known, "session", "cache");
    assert_eq!((resumed, agreed(&known, "session", "full")), (2, 6), "{known:?}");
    assert_eq!((agreed(&known, "version", "TLSv1.3"), agreed(&known, "version", "TLSv1.2")), (6, 2));
    assert_eq!((agreed(&known, "alpn", "h2"), agreed(&known, "alpn", "http/1.1")), (1, 7));
    for shown in ["verified", "refused", "none"] {
        assert_eq!(agreed(&known, "client_certificate", shown), 1, "{shown}: {known:?}");
    }
    let groups: u64 = rows(&known, "handshakes")
        .iter()
        .filter(|row| text(row, "of") == "group")
        .map(|row| number(row, "total"))
        .sum();
    assert_eq!(groups, 8, "each has a group: {known:?}");
    let times: Vec<(String, u64)> =
        rows(&known, "times").iter().map(|row| (text(row, "handshake"), number(row, "count"))).collect();
    assert_eq!(times, [("full".to_owned(), 6), ("resumed".to_owned(), 2)]);
    assert!(
        rows(&known, "times")
            .iter()
            .all(|row| number(row, "p99_ns") >= number(row, "p50_ns") && number(row, "p50_ns") > 0)
    );
    let kinds: Vec<String> =
        rows(&known, "sessions").iter().map(|row| text(row, "what") + " " + &text(row, "name")).collect();
    assert_eq!(kinds, ["ticket keys this process", "session cache hands"]);
    let metrics = Client::connect(site.server.addr(1)).get("/metrics").text();
    assert!(metrics.contains("weir_tls_handshakes_total{of=\"version\",value=\"TLSv1.3\"} 6"), "{metrics}");
    assert!(metrics.contains("weir_tls_handshake_duration_seconds_count{session=\"resumed\"} 2"));
}

both_drivers! {
    fn what_handshakes_agreed_upon_is_counted_by_one_worker(driver) {
        handshakes_are_counted(driver, "1");
    }

    fn what_handshakes_agreed_upon_is_counted_by_eight(driver) {
        handshakes_are_counted(driver, "8");
    }

    fn failures_have_their_reason_their_client_and_the_name_it_asked_for(driver) {
        let mut site = started(driver, "1");
        let addr = site.server.addr(0);
        site.alert("good.example", 48);
        site.alert("good.example", 45);
        // Nothing in common, no server, no TLS, and one that goes away.
        for bytes in [hello("none.example"), b"\x16\x99\x99no tls at all".to_vec(), hello("good.example")[..20].to_vec()] {
            let mut stream = TcpStream::connect(addr).expect("a server");
            stream.write_all(&bytes).expect("sent");
            let _ = stream.shutdown(std::net::Shutdown::Write);
            while stream.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {}
        }
        let reasons = [("unknown_ca", "client"), ("certificate_expired", "client"), ("no_server", "server"), ("closed", "client")];
        let known = wait_for("all failures", || {
            let known = site.tls("&every=0");
            (number(&known, "failed") == 5).then_some(known)
        });
        for (reason, by) in reasons {
            assert_eq!(failed(&known, reason), (by.to_owned(), 1), "{reason}: {known:?}");
        }
        let last = rows(&known, "last_failures");
        assert_eq!(last.len(), 5);
        let one = last.iter().find(|row| text(row, "reason") == "unknown_ca").expect("a row");
        assert_eq!((text(one, "server_name").as_str(), text(one, "client").starts_with("127.0.0.1:")), ("good.example", true));
        // What was counted stays when the configuration is read again.
        let conf = site.server.dir().path().join("nginx.conf");
        let conf = std::fs::read_to_string(conf).expect("a configuration");
        site.server.reload(&(conf + "\n"));
        assert!(number(&site.tls("&every=0"), "failed") >= 5);
    }

    fn certificates_say_whose_they_are_and_when_they_end(driver) {
        let site = started(driver, "2");
        let known = site.tls("&every=0&of=certificates");
        assert!(known.field("handshakes").is_none(), "one table: {known:?}");
        let all = rows(&known, "certificates");
        assert_eq!(all.len(), 3, "two servers of one certificate are one row: {all:?}");
        assert_eq!(text(&all[0], "state"), "expired", "those first that end first");
        let old = certificate(&known, "old.example");
        assert_eq!((text(old, "line").as_str(), text(old, "chain").as_str()), ("nginx.conf:14", "complete"));
        assert!(text(old, "left").ends_with(" years ago"), "{old:?}");
        let good = certificate(&known, "good.example");
        assert_eq!(text(good, "names"), "good.example other.example asks.example");
        assert_eq!((text(good, "state").as_str(), text(good, "chain").as_str(), number(good, "servers")), ("valid", "self-signed", 2));
        assert_eq!((text(good, "key").as_str(), text(good, "alternative_names").as_str()), ("ECDSA P-256", "good.example"));
        assert_eq!(text(certificate(&known, "chain.example"), "chain"), "broken");
        let shown = format!("{known:?}");
        assert!(!shown.contains("PRIVATE KEY") && !shown.contains(".key"), "nothing of keys: {shown}");
        // A replaced certificate is another one at once.
        let new = own("good.example");
        let body = format!("{{\"certificate\":{:?},\"key\":{:?}}}", new.certificate, new.key);
        let request = format!(
            "PUT /certificates/old.example HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        assert_eq!(Client::connect(site.server.addr(1)).request(request).status, 200);
        let known = site.tls("&every=0&of=certificates");
        let replaced = certificate(&known, "old.example");
        assert_eq!(text(replaced, "state"), "valid");
        assert!(text(replaced, "file").ends_with("old.crt (replaced)"), "{replaced:?}");
    }

    fn why_names_what_has_expired_and_what_clients_refuse(driver) {
        let site = started(driver, "1");
        ready(&site.server);
        let place = of(&site.server);
        let why = || says(&["why", "-t", "300ms", "-n", "9"], &place);
        let said = why();
        assert!(said.contains("the certificate of old.example expired ") && said.contains("(nginx.conf:14)"), "{said}");
        assert!(!said.contains("handshakes fail"), "{said}");
        let said = wait_for("the finding", || {
            let said = std::thread::scope(|scope| {
                let asked = scope.spawn(why);
                while !asked.is_finished() {
                    site.alert("good.example", 48);
                }
                asked.join().expect("an answer")
            });
            said.contains("handshakes fail").then_some(said)
        });
        assert!(said.contains("most of them for good.example: The client does not trust the issuer"), "{said}");
        assert!(said.contains("weir tls failures"), "{said}");
        let doctor = says(&["doctor"], &place);
        assert!(doctor.contains("the certificate of old.example expired "), "{doctor}");
        let table = says(&["tls", "certificates", "-t", "0"], &place);
        assert!(table.contains("expired") && table.contains("nginx.conf:14") && !table.contains("\u{1b}"), "{table}");
        let all = says(&["tls", "-t", "100ms"], &place);
        for heading in ["certificates, those first", "handshakes that were complete", "handshakes that failed", "keys of tickets", "threads for keys"] {
            assert!(all.contains(heading), "{heading}: {all}");
        }
    }
}

#[test]
fn strangers_see_nothing_and_a_server_without_tls_has_nothing() {
    let site = started(Driver::Epoll, "1");
    assert_eq!(Client::connect(site.server.addr(2)).get("/tls").status, 401);
    let plain = Server::builder(
        "worker_processes 1; admin 127.0.0.1:%%PORT_1%%; http { server { listen 127.0.0.1:%%PORT_0%%; return 200 ok; } }",
    )
    .start();
    wait_for("the admin listener", || TcpStream::connect(plain.addr(1)).is_ok().then_some(()));
    let text = Client::connect(plain.addr(1)).get("/tls").text();
    assert!(text.contains("certificates, those first that end first:\nnone\n"), "{text}");
    assert_eq!(Client::connect(plain.addr(1)).get("/tls?of=secrets").status, 400);
}

/// The view: what has expired stands out, failures come with their client, and names are text.
#[test]
fn the_page_shows_certificates_handshakes_and_failures() {
    let site = started(Driver::Epoll, "2");
    let Some(mut browser) = opened(&site.server, &DESK) else { return };
    // Handshakes of all kinds, and clients that trust other authorities, during the look.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (site, done) = (&site, &done);
        scope.spawn(move || {
            while !done.load(Relaxed) {
                site.visits();
                site.alert("good.example", 48);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let _stop = StopAtEnd(done);
        looked_at(&mut browser);
    });
    assert_eq!(browser.complaints(), [""; 0]);
}

fn looked_at(browser: &mut Browser) {
    browser.until("document.querySelector('#findings li[data-kind=certificate]')");
    browser.click("#findings li[data-kind=certificate] .links a", "tls");
    let row = |name: &str| {
        format!(
            "[...document.querySelectorAll('table.certificates tbody tr')].find((row) => row.cells[0].querySelector('summary').textContent.includes({name:?}))"
        )
    };
    browser.until(
        &format!(
            "{}.cells[1].classList.contains('bad') && {0}.cells[1].textContent === 'expired'",
            row("old.example")
        )
        .replace("{0}", &row("old.example")),
    );
    browser.until(&format!("!{}.cells[1].classList.contains('bad')", row("good.example")));
    browser.until(&format!("{}.cells[4].classList.contains('bad')", row("chain.example")));
    browser.until("[...document.querySelectorAll('table.closes tbody tr')].some((row) => row.cells[0].textContent === 'unknown ca' && row.cells[1].textContent === 'client')");
    browser.until("[...document.querySelectorAll('table.last tbody tr')].some((row) => row.cells[1].textContent === 'good.example')");
    browser.until("[...document.querySelectorAll('table.handshakes tbody tr')].some((row) => row.cells[1].textContent === 'TLSv1.3')");
    browser.until("document.querySelector('.chart path.line').getAttribute('d').split('L').length > 12");
    browser.value(&format!("{}.querySelector('summary').click()", row("old.example")));
    browser
        .until(&format!("{}.querySelector('pre').textContent.includes('issuer: CN=ca')", row("old.example")));
    keep(browser, "tls.png");
    browser.value(&format!("{}.querySelector('td:last-child a').click()", row("old.example")));
    browser.until(
        "document.querySelector('dialog[open] li.meant').textContent.includes('ssl_certificate old.crt;')",
    );
    browser.click("dialog button", "close");
    fits(browser);
    browser.value(&format!("{}.querySelector('summary').click()", row("old.example")));
    browser.prefer("dark");
    browser.resize(390, 844, true);
    browser.until("document.querySelector('table.certificates tbody tr') && document.querySelector('table.handshakes tbody tr')");
    fits(browser);
    browser.value("scrollTo(0, 0)");
    keep(browser, "phone-tls.png");
}

/// Names of servers, and those that clients ask for, are text.
#[test]
fn names_in_certificates_and_hellos_are_shown_as_they_are() {
    let odd = "'<img src=x onerror=broken()>'";
    let site = started_with(Driver::Epoll, "1", odd);
    site.alert("good.example", 48);
    let Some(mut browser) = opened(&site.server, &DESK) else { return };
    browser.click("nav a", "tls");
    browser.until("[...document.querySelectorAll('table.certificates summary')].some((e) => e.textContent === '<img src=x onerror=broken()>')");
    browser.until("document.querySelector('table.last tbody tr')");
    assert_eq!(browser.value("document.querySelectorAll('main img, main script').length").number(), Some(0));
    assert_eq!(browser.complaints(), [""; 0]);
}
