//! `map` and `split_clients`: from variables of requests to values. The values are those of nginx.

use std::net::SocketAddr;
use std::sync::Arc;

use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_modules::{Map, Rewrite, SplitClients};
use weir_server::{Server, ServerOptions};
use weir_test::Client;

static MODULES: [ModuleDef; CORE_MODULES.len() + 3] =
    with_core(&[ModuleDef::of::<Map>(), ModuleDef::of::<SplitClients>(), ModuleDef::of::<Rewrite>()]);

struct Site {
    address: SocketAddr,
    _server: Server,
}

impl Site {
    /// `blocks` are in the http block; the response is `text`.
    fn new(blocks: &str, text: &str) -> Site {
        let address = SocketAddr::from(([127, 0, 0, 1], weir_test::free_port()));
        let text = format!(
            "worker_processes 1; events {{ }} http {{ {blocks}
            server {{ listen {address}; location / {{ return 200 \"{text}\"; }} }} }}"
        );
        let configuration =
            weir_engine::conf::test::load(&text, &MODULES).unwrap_or_else(|errors| panic!("{errors}"));
        let server = Server::start(Arc::new(configuration), ServerOptions::default()).expect("starts");
        Site { address, _server: server }
    }

    fn text(&self, args: &str) -> String {
        let request = format!("GET /?{args} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        Client::connect(self.address).request(request).text()
    }
}

#[test]
fn texts_and_patterns() {
    let site = Site::new(
        "map $arg_a $x {
            default  none;
            ''       empty;
            foo      FOO;
            Bar      bar:$arg_b;
            \\default escaped;
            \\~tilde  tilde;
            ~^n(\\d+)(?<rest>.*)$  n=$1,$2,$rest;
            ~*^mixed(.)  caseless-$1;
            ~long    pattern;
            include-me 1;
            *.wild   literal;
        }
        map $x:$arg_c $y { ~^FOO:(.*) <$1>; volatile; }",
        "$x|$y",
    );
    for (args, expected) in [
        ("a=foo", "FOO|<>"),
        ("a=FOO&c=1", "FOO|<1>"),
        ("a=bar&b=7", "bar:7|"),
        ("", "empty|"),
        ("a=default", "escaped|"),
        ("a=~tilde", "tilde|"),
        ("a=n12abc", "n=12,abc,abc|"),
        ("a=N12", "none|"),
        ("a=MIXEDq", "caseless-q|"),
        ("a=very-long-text", "pattern|"),
        ("a=x.wild", "none|"),
        ("a=*.wild", "literal|"),
        ("a=include-me", "1|"),
    ] {
        assert_eq!(site.text(args), expected, "{args}");
    }
    let long = format!("a={}", "A".repeat(1000));
    assert_eq!(site.text(&long), "none|");
}

#[test]
fn host_names() {
    let site = Site::new(
        "map $arg_h $x {
            hostnames;
            default none;
            example.com      exact;
            *.example.com    head;
            *.a.example.com  longer;
            .dot.org         dot;
            www.example.*    tail;
            www.example.co.* longer-tail;
            ~^(.*)\\.re$      $1;
        }",
        "$x",
    );
    for (host, expected) in [
        ("example.com", "exact"),
        ("EXAMPLE.com.", "exact"),
        ("b.example.com", "head"),
        ("c.b.example.com", "head"),
        ("b.a.example.com", "longer"),
        ("a.example.com", "head"),
        ("dot.org", "dot"),
        ("x.dot.org", "dot"),
        ("xdot.org", "none"),
        ("www.example.net", "tail"),
        ("www.example.co.uk", "longer-tail"),
        ("name.re.", "name"),
        ("none.net", "none"),
        ("", "none"),
        (".", "none"),
    ] {
        assert_eq!(site.text(&format!("h={host}")), expected, "{host}");
    }
}

#[test]
fn ten_thousand_entries() {
    let entries: String = (0..10_000).map(|n| format!("key{n} value{n};")).collect();
    let site = Site::new(&format!("map $arg_a $x {{ {entries} }}"), "$x");
    assert_eq!(site.text("a=key0"), "value0");
    assert_eq!(site.text("a=key9999"), "value9999");
    assert_eq!(site.text("a=key10000"), "");
}

#[test]
fn a_circle_has_no_value() {
    let site = Site::new("map $b $a { default A$b; } map $a $b { default B$a; }", "$a.");
    assert_eq!(site.text(""), format!("{}.", "AB".repeat(50)));
}

#[test]
fn shares_of_clients() {
    let site = Site::new(
        "split_clients $arg_a $x { 10% first; 33.3% second; 0.01% third; * $rest; }
        split_clients $arg_a$arg_b $y { 50% half; }",
        "$x $y",
    );
    let answers: Vec<_> = ["", "a=1", "a=12", "a=123", "a=1234", "a=12345", "a=127.0.0.1", "a=x&b=y"]
        .iter()
        .map(|args| site.text(args))
        .collect();
    assert_eq!(answers, NGINX_SHARES);
}

/// How nginx 1.31.5 responds.
const NGINX_SHARES: [&str; 8] =
    ["first half", "second half", "$rest ", "$rest ", "first half", "$rest ", "$rest ", "first "];
