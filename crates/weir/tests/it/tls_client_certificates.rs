//! Access by clients' certificates: each server decides by its own settings.

use crate::support::tls as support;

use std::fmt;

use support::{Pair, TlsClient, authority, client_of, own};
use weir_http::h2::{H2Config, H2Connection, H2Event};
use weir_http::hpack::SectionLimits;
use weir_test::{Driver, Server, both_drivers};

/// What the default server `a` says of clients' certificates; its authority is `ca1`.
const DEFAULTS: [&str; 4] = ["on", "optional", "optional_no_ca", "off"];
/// The name in the handshake: `b` wants a certificate of `ca2`, `c` wants none, `zzz` is no server's.
const NAMES: [Option<&str>; 5] = [Some("a"), Some("b"), Some("c"), Some("zzz"), None];
const HOSTS: [&str; 4] = ["a", "b", "c", "zzz"];

/// A client's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Nothing,
    SelfSigned,
    First,
    Second,
}

const SHOWN: [Shown; 4] = [Shown::Nothing, Shown::SelfSigned, Shown::First, Shown::Second];

/// One row of the table.
#[derive(Clone, Copy)]
struct Row {
    default: &'static str,
    /// `b` has a certificate of its own.
    own: bool,
    name: Option<&'static str>,
    host: &'static str,
    shown: Shown,
    tls13: bool,
    http2: bool,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, http) = (if self.tls13 { "1.3" } else { "1.2" }, if self.http2 { "2" } else { "1.1" });
        let Row { default, own, name, host, shown, .. } = self;
        write!(
            f,
            "a: {default}, b with own certificate: {own}, SNI {name:?}, Host {host}, {shown:?}, TLS {version}, HTTP/{http}"
        )
    }
}

impl Row {
    /// Whether `authority` has issued what is shown.
    fn is_of(&self, authority: Shown) -> bool {
        self.shown == authority
    }

    /// The server whose settings the handshake has: `b` has its own only with a certificate, so has `c` never.
    fn handshake_is_b(&self) -> bool {
        self.name == Some("b") && self.own
    }

    /// The certificate that the server gets to see: a client is asked by the handshake's server.
    fn seen(&self) -> Shown {
        let asked = self.handshake_is_b() || self.default != "off";
        if asked { self.shown } else { Shown::Nothing }
    }

    /// What the handshake's server makes of it.
    fn trusted_in_handshake(&self) -> bool {
        self.is_of(if self.handshake_is_b() { Shown::Second } else { Shown::First })
    }

    /// The whole rule, said otherwise than in the server.
    fn expected(&self) -> String {
        let Row { name, host, default, .. } = *self;
        let seen = self.seen();
        let server = if matches!(host, "b" | "c") { host } else { "a" };
        let asks = server == "b" || (server == "a" && default != "off");
        let named = name.filter(|name| *name != "zzz");
        if asks && named.is_some_and(|name| name != host) {
            return "421 Misdirected Request".to_owned();
        }
        let chosen = named.unwrap_or("a") == server;
        let trusted = match server {
            "b" if chosen => self.is_of(Shown::Second),
            "b" => self.trusted_in_handshake() && self.is_of(Shown::Second),
            _ => self.trusted_in_handshake(),
        };
        let tolerates = server == "a" && default == "optional_no_ca";
        if asks && seen != Shown::Nothing && !trusted && !tolerates {
            return "400 The SSL certificate error".to_owned();
        }
        if asks && seen == Shown::Nothing && (server == "b" || default == "on") {
            return "400 No required SSL certificate was sent".to_owned();
        }
        let verdict = match seen {
            Shown::Nothing => "NONE",
            _ if trusted => "SUCCESS",
            _ => "FAILED",
        };
        format!("{server} {verdict}")
    }
}

struct Certificates {
    own: Pair,
    authorities: [Pair; 2],
    clients: [Pair; 3],
}

impl Certificates {
    fn new() -> Certificates {
        let authorities = [authority("ca1"), authority("ca2")];
        let clients = [own("self"), authorities[0].issue("one"), authorities[1].issue("two")];
        Certificates { own: own("a"), authorities, clients }
    }

    fn shown(&self, shown: Shown) -> Option<&Pair> {
        match shown {
            Shown::Nothing => None,
            Shown::SelfSigned => Some(&self.clients[0]),
            Shown::First => Some(&self.clients[1]),
            Shown::Second => Some(&self.clients[2]),
        }
    }

    /// A server of which `conf` names `own.crt`, `ca1.crt` and `ca2.crt`.
    fn start(&self, conf: &str, driver: Driver) -> Server {
        Server::builder(conf)
            .file("own.crt", &self.own.certificate)
            .file("own.key", &self.own.key)
            .file("ca1.crt", &self.authorities[0].certificate)
            .file("ca2.crt", &self.authorities[1].certificate)
            .driver(driver)
            .start()
    }
}

/// The servers `a`, `b` and `c`; the text after the server's name is `$ssl_client_verify`.
fn conf(default: &str, own: bool, b: &str) -> String {
    let certificate = "ssl_certificate own.crt; ssl_certificate_key own.key;";
    let of_b = if own { certificate } else { "" };
    format!(
        "http {{ http2 on;
            server {{ listen 127.0.0.1:%%PORT%% ssl; server_name a; {certificate} ssl_verify_client {default};
                ssl_client_certificate ca1.crt; return 200 \"a $ssl_client_verify\"; }}
            server {{ listen 127.0.0.1:%%PORT%% ssl; server_name b; {of_b} {b} return 200 \"b $ssl_client_verify\"; }}
            server {{ listen 127.0.0.1:%%PORT%% ssl; server_name c; return 200 \"c $ssl_client_verify\"; }} }}"
    )
}

const B: &str = "ssl_verify_client on; ssl_client_certificate ca2.crt;";

/// The response to a client: the name of the server and the verdict, or the title of an error page.
fn ask(server: &Server, certificates: &Certificates, row: Row) -> String {
    let protocol = if row.http2 { "h2" } else { "http/1.1" };
    let shown = certificates.shown(row.shown).map(Pair::shown);
    let config = client_of(row.tls13, shown, protocol, row.name.is_some());
    let mut it = TlsClient::connect(server.addr(0), row.name.unwrap_or("127.0.0.1"), &config);
    let body = if row.http2 { over_http2(&mut it, row.host) } else { it.get("/", row.host).text() };
    said(&body)
}

fn said(body: &str) -> String {
    match body.split_once("<title>") {
        Some((_, rest)) => rest.split("</title>").next().unwrap_or(rest).to_owned(),
        None => body.split(':').next().unwrap_or(body).to_owned(),
    }
}

/// The body of the response to `GET /` for `host`.
fn over_http2(it: &mut TlsClient, host: &str) -> String {
    let config = H2Config {
        max_streams: 0,
        stream_window: 1 << 20,
        window: 1 << 20,
        headers: SectionLimits::new(1 << 16, 1000),
        max_frame: weir_http::h2::MIN_FRAME,
        connect_protocol: false,
    };
    let (mut out, mut input, mut body) = (Vec::new(), Vec::new(), Vec::new());
    let mut conn = H2Connection::client(&config, &mut out);
    let write = |coder: &mut weir_http::hpack::HpackEncoder, out: &mut Vec<u8>| {
        coder.pseudo(":method", b"GET", out);
        coder.pseudo(":scheme", b"https", out);
        coder.pseudo(":authority", host.as_bytes(), out);
        coder.pseudo(":path", b"/", out);
    };
    conn.open(weir_http::h2::StreamEnd::Last, &mut out, write).expect("streams are free");
    loop {
        it.send(&std::mem::take(&mut out));
        input.extend_from_slice(&it.bytes());
        loop {
            let received = conn.receive(&input, 0, &mut out);
            let (used, event) = received.unwrap_or_else(|failure| panic!("server {failure}"));
            if let Some(H2Event::Data { range, end, .. }) = &event {
                body.extend_from_slice(&input[range.clone()]);
                if *end {
                    return String::from_utf8_lossy(&body).into_owned();
                }
            }
            input.drain(..used);
            if event.is_none() {
                break;
            }
        }
    }
}

/// All rows of a pair of servers.
fn rows(default: &'static str, own: bool) -> impl Iterator<Item = Row> {
    let names = NAMES.into_iter().flat_map(|name| HOSTS.map(|host| (name, host)));
    let shown = names.flat_map(|(name, host)| SHOWN.map(|shown| (name, host, shown)));
    shown.flat_map(move |(name, host, shown)| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(tls13, http2)| Row {
            default,
            own,
            name,
            host,
            shown,
            tls13,
            http2,
        })
    })
}

both_drivers! {
    /// 2,560 rows, half of them with each driver. A certificate opens what its own authority is named for, and nothing else.
    fn a_certificate_opens_the_servers_that_name_its_authority(driver) {
        let certificates = Certificates::new();
        let (mut count, mut wrong) = (0, Vec::new());
        for default in DEFAULTS {
            for own in [true, false] {
                let server = certificates.start(&conf(default, own, B), driver);
                // Each driver has both versions of TLS and of HTTP, and both together have all four pairs.
                let mixed = |row: &Row| (driver == Driver::Epoll) == (row.tls13 == row.http2);
                for row in rows(default, own).filter(mixed) {
                    let (expected, said) = (row.expected(), ask(&server, &certificates, row));
                    count += 1;
                    if said != expected {
                        wrong.push(format!("{row}: {said}, not {expected}"));
                    }
                }
            }
        }
        assert_eq!(count, 1280);
        assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    }
}

both_drivers! {
    fn a_server_that_names_nobody_trusts_nobody(driver) {
        let certificates = Certificates::new();
        let text = conf("on", false, "ssl_verify_client optional;");
        let server = certificates.start(&text, driver);
        for shown in [Shown::First, Shown::Second, Shown::SelfSigned] {
            let row = Row { default: "on", own: false, name: Some("b"), host: "b", shown, tls13: true, http2: false };
            assert_eq!(ask(&server, &certificates, row), "400 The SSL certificate error", "{shown:?}");
        }
        let warned = server.stderr() + &server.error_log();
        let words = "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client: every certificate is refused";
        assert!(warned.contains(words), "{warned}");
    }

    /// Of the server that is asked for, which has no certificate of its own.
    fn depth_and_issuers_are_the_chosen_servers(driver) {
        let certificates = Certificates::new();
        let row = Row { default: "on", own: false, name: Some("b"), host: "b", shown: Shown::Second, tls13: true, http2: false };
        let nameless = Row { name: None, shown: Shown::First, ..row };
        let asks = "ssl_verify_client on; ssl_client_certificate ca1.crt; ssl_ocsp leaf; ssl_ocsp_responder http://127.0.0.1:1/;";
        let server = certificates.start(&conf("on", false, asks), driver);
        let named = Row { shown: Shown::First, ..row };
        assert_eq!(ask(&server, &certificates, named), "400 The SSL certificate error", "nobody could be asked");
        let _ = server.error_log_line("client SSL certificate verify error: certificate status request failed");
        assert_eq!(ask(&server, &certificates, nameless), "421 Misdirected Request", "nobody was asked");
    }

    /// It lets strangers pass. A stranger's certificate that has expired, or that an authority should not have issued, is
    /// refused nevertheless, as in nginx: the verdict is the last that is found.
    fn optional_no_ca_lets_strangers_pass_and_nothing_else(driver) {
        let stranger = authority("stranger");
        let leaf = stranger.issue("leaf");
        let mut of_leaf = leaf.issue("of a leaf");
        of_leaf.certificate += &leaf.certificate;
        let certificates = Certificates::new();
        for own in [true, false] {
            let server = certificates.start(&conf("optional_no_ca", own, "ssl_verify_client optional_no_ca;"), driver);
            for (shown, refused) in [
                (&stranger.issue("now"), false),
                (&stranger.issue_between("past", 2001, 2002), true),
                (&stranger.issue_between("future", 2090, 2091), true),
                (&of_leaf, true),
            ] {
                for (name, tls13) in [("a", true), ("a", false), ("b", true), ("b", false)] {
                    let config = client_of(tls13, Some(shown.shown()), "http/1.1", true);
                    let said = said(&TlsClient::connect(server.addr(0), name, &config).get("/", name).text());
                    let expected = if refused { "400 The SSL certificate error" } else { &format!("{name} FAILED") };
                    assert_eq!(said, expected, "own certificate: {own}");
                }
            }
        }
    }

    /// A session identifies the client; whether that is trusted is checked again.
    fn a_resumed_session_is_judged_by_the_server_that_is_asked_for(driver) {
        let certificates = Certificates::new();
        for own in [true, false] {
            let server = certificates.start(&conf("on", own, B), driver);
            for (tls13, name, shown, expected) in [false, true].into_iter().flat_map(|tls13| [
                (tls13, "b", Shown::Second, "b SUCCESS"),
                (tls13, "b", Shown::First, "400 The SSL certificate error"),
                (tls13, "b", Shown::SelfSigned, "400 The SSL certificate error"),
                (tls13, "a", Shown::First, "a SUCCESS"),
                (tls13, "a", Shown::Second, "400 The SSL certificate error"),
            ]) {
                let config = client_of(tls13, certificates.shown(shown).map(Pair::shown), "http/1.1", true);
                let ask = || {
                    let mut it = TlsClient::connect(server.addr(0), name, &config);
                    let body = it.get("/", name).text();
                    (it.facts().resumed, said(&body))
                };
                assert_eq!(ask(), (false, expected.to_owned()), "{name} {shown:?}");
                assert_eq!(ask(), (true, expected.to_owned()), "{name} {shown:?}");
            }
        }
    }
}

#[test]
fn what_a_server_without_certificate_trusts_must_be_there() {
    let own = own("a");
    let text = conf("on", false, "ssl_verify_client on; ssl_client_certificate nowhere.crt;");
    let exit = Server::builder(&text)
        .file("own.crt", &own.certificate)
        .file("own.key", &own.key)
        .file("ca1.crt", &own.certificate)
        .run(&["-t"]);
    assert!(!exit.status.success() && exit.stderr.contains("nowhere.crt"), "{}", exit.stderr);
}

/// A list of `authority` that has `serials`, begun in `year`; `authorities`: it is for authorities only.
fn list(authority: &Pair, year: i32, serials: &[u64], authorities: bool) -> String {
    let revoked = |serial: &u64| rcgen::RevokedCertParams {
        serial_number: rcgen::SerialNumber::from(*serial),
        revocation_time: rcgen::date_time_ymd(2020, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let place = rcgen::CrlIssuingDistributionPoint {
        distribution_point: rcgen::CrlDistributionPoint { uris: vec!["http://a/".to_owned()] },
        scope: Some(rcgen::CrlScope::CaCertsOnly),
    };
    let params = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(year, 1, 1),
        next_update: rcgen::date_time_ymd(2099, 1, 1),
        crl_number: rcgen::SerialNumber::from(u64::from(year.unsigned_abs())),
        issuing_distribution_point: authorities.then_some(place),
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    params.signed_by(&authority.issuer()).expect("signed").pem().expect("text")
}

both_drivers! {
    /// Of clients (`ssl_crl`, of a server without a certificate of its own, too) and of servers (`proxy_ssl_crl`).
    fn a_revoked_certificate_is_refused_whatever_other_lists_there_are(driver) {
        let ca = authority("ca");
        let revoked = ca.issue_number("revoked", 5);
        let base = list(&ca, 2021, &[5], false);
        let other = list(&ca, 2024, &[], true);
        for crl in [base.clone(), format!("{base}{other}"), other, list(&ca, 2090, &[], false)] {
            let server = Server::builder(
                "http {
                    server { listen 127.0.0.1:%%PORT%% ssl; server_name a; ssl_certificate own.crt; ssl_certificate_key own.key;
                        ssl_verify_client optional_no_ca; return 200 a; }
                    server { listen 127.0.0.1:%%PORT%% ssl; server_name b;
                        ssl_verify_client on; ssl_client_certificate ca.crt; ssl_crl crl; return 200 b; }
                    server { listen 127.0.0.1:%%PORT_1%%; location / { proxy_pass https://127.0.0.1:%%PORT%%;
                        proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.crt; proxy_ssl_name revoked; proxy_ssl_crl crl; } } }",
            )
            .file("own.crt", &revoked.certificate)
            .file("own.key", &revoked.key)
            .file("ca.crt", &ca.certificate)
            .file("crl", &crl)
            .driver(driver)
            .start();
            let config = client_of(true, Some(revoked.shown()), "http/1.1", true);
            let mut it = TlsClient::connect(server.addr(0), "b", &config);
            assert_eq!(said(&it.get("/", "b").text()), "400 The SSL certificate error");
            assert_eq!(weir_test::Client::connect(server.addr(1)).get("/").status, 502);
        }
    }
}
