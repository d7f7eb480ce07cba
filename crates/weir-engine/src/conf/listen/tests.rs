use proptest::prelude::*;
use weir_conf::MemoryFiles;
use weir_rt::net::TcpKeepalive;

use super::*;
use crate::conf::test::{FILE, headlines, load, load_files};
use crate::conf::{CORE_MODULES, Configuration};
use crate::settings::listen::ListenAddress;

fn http(text: &str) -> Configuration {
    load(&format!("http {{\n{text}\n}}"), &CORE_MODULES).unwrap_or_else(|error| panic!("{error}"))
}

fn one(listen: &str) -> ListenAddress {
    http(&format!("server {{ listen {listen}; }}")).addresses.swap_remove(0)
}

fn shown(conf: &Configuration) -> Vec<String> {
    conf.addresses.iter().map(|address| address.addr.to_string()).collect()
}

fn warnings(text: &str) -> String {
    let files = MemoryFiles::new().with(FILE, format!("http {{\n{text}\n}}"));
    let (result, warnings) = load_files(&files, &CORE_MODULES);
    assert!(result.is_ok(), "{text}");
    warnings.replace(" in /srv/weir/conf/", " in ")
}

#[test]
fn every_form_of_an_address() {
    for (listen, addresses) in [
        ("80", "0.0.0.0:80"),
        ("*:8080", "0.0.0.0:8080"),
        ("*", "0.0.0.0:80"),
        ("127.0.0.1", "127.0.0.1:80"),
        ("127.0.0.1:81", "127.0.0.1:81"),
        ("[::]:82", "[::]:82"),
        ("[::1]", "[::1]:80"),
        ("unix:/run/w.sock", "unix:/run/w.sock"),
        ("8000-8002", "0.0.0.0:8000 0.0.0.0:8001 0.0.0.0:8002"),
        ("127.0.0.1:8000-8001", "127.0.0.1:8000 127.0.0.1:8001"),
        ("[::1]:9-10", "[::1]:9 [::1]:10"),
        ("127.0.0.1:0", "127.0.0.1:0"),
    ] {
        assert_eq!(shown(&http(&format!("server {{ listen {listen}; }}"))).join(" "), addresses, "{listen}");
    }
}

#[test]
fn a_name_is_all_its_addresses_ipv4_first() {
    let addresses = shown(&http("server { listen localhost:80; }"));
    assert_eq!(addresses.first().map(String::as_str), Some("127.0.0.1:80"));
}

#[test]
fn wrong_lines_are_refused_in_nginx_words_at_their_place() {
    let long = "a".repeat(108);
    let too_long = format!("unix:/{long}");
    for (listen, error, column) in [
        ("99999", "invalid port in \"99999\" of the \"listen\" directive", 17),
        ("80-70", "invalid port range in \"80-70\" of the \"listen\" directive", 17),
        ("80-0", "invalid port in \"80-0\" of the \"listen\" directive", 17),
        ("1:2:3", "invalid port in \"1:2:3\" of the \"listen\" directive", 17),
        ("[::1", "invalid host in \"[::1\" of the \"listen\" directive", 17),
        ("[::1]x", "invalid host in \"[::1]x\" of the \"listen\" directive", 17),
        ("[zz]:80", "invalid IPv6 address in \"[zz]:80\" of the \"listen\" directive", 17),
        ("[]:80", "no host in \"[]:80\" of the \"listen\" directive", 17),
        ("unix:", "no path in the unix domain socket in \"unix:\" of the \"listen\" directive", 17),
        ("w.invalid:80", "host not found in \"w.invalid:80\" of the \"listen\" directive", 17),
        (":80", "no host in \":80\" of the \"listen\" directive", 17),
        ("*:x", "invalid port in \"*:x\" of the \"listen\" directive", 17),
        ("a/b", "invalid host in \"a/b\" of the \"listen\" directive", 17),
        ("80 foo", "invalid parameter \"foo\"", 20),
        ("80 setfib=1", "invalid parameter \"setfib=1\"", 20),
        ("80 bind backlog=0", "invalid backlog \"backlog=0\"", 25),
        ("80 rcvbuf=x", "invalid rcvbuf \"rcvbuf=x\"", 20),
        ("80 sndbuf=1g", "invalid sndbuf \"sndbuf=1g\"", 20),
        ("80 fastopen=x", "invalid fastopen \"fastopen=x\"", 20),
        ("unix:/s mode=8", "invalid mode \"mode=8\"", 25),
        ("80 mode=600", "\"mode=600\" is of unix sockets alone", 20),
        ("unix:/s owner=no-such-user", "invalid owner \"owner=no-such-user\"", 25),
        ("80 ipv6only=ox", "invalid ipv6only flags \"ox\"", 20),
        ("80 ipv6only=x", "invalid parameter \"ipv6only=x\"", 20),
        ("80 so_keepalive=x", "invalid so_keepalive value: \"x\"", 20),
        ("80 so_keepalive=::", "invalid so_keepalive value: \"::\"", 20),
        ("80 so_keepalive=1:2:3:4", "invalid so_keepalive value: \"1:2:3:4\"", 20),
        (
            "80 accept_filter=x",
            "accept filters \"accept_filter=x\" are not supported on this platform, ignored",
            20,
        ),
        (
            "80 quic fastopen=3",
            "\"listen\" directive \"fastopen\" parameter is incompatible with \"quic\"",
            10,
        ),
        // Also where it is the default, as in nginx.
        (
            "80 backlog=511 quic",
            "\"listen\" directive \"backlog\" parameter is incompatible with \"quic\"",
            10,
        ),
        ("80 deferred quic", "\"listen\" directive \"deferred\" parameter is incompatible with \"quic\"", 10),
        (
            "80 quic proxy_protocol",
            "\"listen\" directive \"proxy_protocol\" parameter is incompatible with \"quic\"",
            10,
        ),
        (
            "unix:/run/q quic",
            "\"listen\" directive \"quic\" is not supported for a UNIX-domain socket: its clients have no address to reply to",
            10,
        ),
        ("80 quic ssl", "\"listen\" directive \"ssl\" parameter is incompatible with \"quic\"", 10),
        (
            "80 so_keepalive=on quic",
            "\"listen\" directive \"so_keepalive\" parameter is incompatible with \"quic\"",
            10,
        ),
    ] {
        let text = format!("http {{\nserver {{ listen {listen}; }}\n}}");
        assert_eq!(headlines(&text, &CORE_MODULES), [format!("{error} in weir.conf:2:{column}")], "{listen}");
    }
    let text = format!("http {{ server {{ listen {too_long}; }} }}");
    let Err(error) = load(&text, &CORE_MODULES) else { panic!("{text}") };
    assert!(error.starts_with("too long path in the unix domain socket in \"unix:/aaa"), "{error}");
}

#[test]
fn http2_is_taken_with_nginx_s_warning() {
    let files = MemoryFiles::new().with(FILE, "http { server { listen 80 http2; } }");
    let (conf, warnings) = load_files(&files, &CORE_MODULES);
    assert!(conf.is_ok_and(|conf| conf.addresses[0].http2));
    let message = "the \"listen ... http2\" directive is deprecated, use the \"http2\" directive instead";
    assert!(warnings.contains(message), "{warnings}");
}

#[test]
fn quic_and_http2_in_a_line_are_refused_after_the_warning() {
    let found = headlines("http { server { listen 80 quic http2; } }", &CORE_MODULES);
    let expected = "\"http2\" parameter is incompatible with \"quic\"";
    assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
}

/// TCP and QUIC have an address each: with sockets, default servers and options of their own.
#[test]
fn an_address_may_be_one_of_tcp_and_one_of_quic() {
    let conf = http(
        "server { listen 443 default_server; listen 443 quic reuseport rcvbuf=1m; server_name a; }
         server { listen 443; listen 443 quic default_server; listen 127.0.0.1:443 quic; server_name b; }",
    );
    assert_eq!(shown(&conf), ["0.0.0.0:443", "0.0.0.0:443", "127.0.0.1:443"]);
    let [tcp, quic, special] = &conf.addresses[..] else { panic!("three") };
    assert_eq!((tcp.quic, quic.quic, special.quic), (false, true, true));
    assert_eq!((tcp.default, quic.default), (0, 1));
    assert_eq!(
        (&tcp.servers[..], &quic.servers[..], &special.servers[..]),
        (&[0, 1][..], &[0, 1][..], &[1][..])
    );
    assert!(quic.options.udp && quic.options.reuseport && quic.options.rcvbuf == Some(1 << 20));
    assert!(!tcp.options.udp && tcp.options.rcvbuf.is_none());
    assert!(tcp.key() != quic.key() && tcp.protocols() != quic.protocols());
    assert!(quic.protocols().quic && !quic.protocols().flows && !quic.protocols().ssl);
    assert_eq!((tcp.wildcard_of, special.wildcard_of), (None, Some(1)));
}

#[test]
fn what_lines_of_quic_say_twice_is_refused_as_of_tcp() {
    for (servers, message) in [
        ("server { listen 80 quic; listen 80 quic; }", "a duplicate listen 0.0.0.0:80"),
        (
            "server { listen 80 quic default_server; } server { listen 80 quic default_server; }",
            "a duplicate default server for 0.0.0.0:80",
        ),
        (
            "server { listen 80 quic reuseport; } server { listen 80 quic reuseport; }",
            "duplicate listen options for 0.0.0.0:80",
        ),
    ] {
        let found = headlines(&format!("http {{ {servers} }}"), &CORE_MODULES);
        assert!(found.iter().any(|error| error.contains(message)), "{servers}: {found:?}");
    }
}

#[test]
fn every_parameter_is_recorded() {
    let address = one(
        "80 default_server bind proxy_protocol reuseport backlog=5 rcvbuf=8k sndbuf=1m fastopen=3 deferred ipv6only=off \
         so_keepalive=30m::10",
    );
    let keepalive = TcpKeepalive { on: true, idle: Some(1800), interval: None, count: Some(10) };
    let expected = ListenOptions {
        backlog: 5,
        reuseport: true,
        ipv6only: Some(false),
        rcvbuf: Some(8192),
        sndbuf: Some(1 << 20),
        fastopen: Some(3),
        deferred: true,
        keepalive: Some(keepalive),
        nodelay: true,
        udp: false,
        ..ListenOptions::default()
    };
    assert_eq!(address.options, expected);
    assert!(address.proxy_protocol);
    assert_eq!(one("80").options, ListenOptions::default());
    assert_eq!(one("80 so_keepalive=off").options.keepalive, Some(TcpKeepalive::default()));
}

#[test]
fn contradictions_are_found_at_the_later_line() {
    for (servers, error) in [
        ("server { listen 80; listen *:80; }", "a duplicate listen 0.0.0.0:80 in weir.conf:2:21"),
        (
            "server { listen 80 backlog=5; } server { listen 80 backlog=6; }",
            "duplicate listen options for 0.0.0.0:80 in weir.conf:2:42",
        ),
        (
            "server { listen 80 default_server; } server { listen 80 default; }",
            "a duplicate default server for 0.0.0.0:80 in weir.conf:2:47",
        ),
        (
            "server { server_name a..b; } server { }",
            "invalid server name or wildcard \"a..b\" on 0.0.0.0:80 in weir.conf:2:22",
        ),
        (
            "server { server_name w*w; } server { }",
            "invalid server name or wildcard \"w*w\" on 0.0.0.0:80 in weir.conf:2:22",
        ),
    ] {
        let port = ListenLine::implied().addrs[0].to_string();
        let error =
            if servers.contains("listen") { error.to_owned() } else { error.replace("0.0.0.0:80", &port) };
        assert_eq!(headlines(&format!("http {{\n{servers}\n}}"), &CORE_MODULES), [error], "{servers}");
    }
}

#[test]
fn servers_share_addresses() {
    let conf = http(
        "server { listen 80; listen 81; } server { listen 80 default_server; } server { listen 80 backlog=7; }",
    );
    let address = &conf.addresses[0];
    assert_eq!((&*address.servers, address.default, address.options.backlog), (&[0, 1, 2][..], 1, 7));
    assert_eq!((&*conf.addresses[1].servers, conf.addresses[1].default), (&[0][..], 0));
}

#[test]
fn a_wrong_listen_is_no_missing_one() {
    let text = "http {\nserver { listen 80x/; server_name a..b; } server { }\n}";
    assert_eq!(
        headlines(text, &CORE_MODULES),
        ["invalid host in \"80x/\" of the \"listen\" directive in weir.conf:2:17"]
    );
}

#[test]
fn a_server_without_listen_has_one() {
    let port = if weir_rt::process::is_root() { 80 } else { 8000 };
    assert_eq!(shown(&http("server { }")), [format!("0.0.0.0:{port}")]);
}

#[test]
fn an_address_beside_a_wildcard_has_a_socket_only_when_it_asks_for_one() {
    let conf = http(
        "server { listen 127.0.0.1:80; } server { listen 80; } server { listen 127.0.0.2:80 bind; }
         server { listen [::1]:80; } server { listen 127.0.0.1:81; }",
    );
    let of: Vec<_> = conf.addresses.iter().map(|address| address.wildcard_of).collect();
    assert_eq!(of, [Some(1), None, None, None, None]);
}

#[test]
fn names_of_two_servers_are_warned_about() {
    for (servers, expected) in [
        (
            "server { listen 80; server_name a A b; } server { listen 80; server_name b; }",
            "conflicting server name \"a\" on 0.0.0.0:80, ignored in weir.conf:2:35\n\
             conflicting server name \"b\" on 0.0.0.0:80, ignored in weir.conf:2:74\n",
        ),
        (
            "server { listen 80; server_name .x.y *.x.y x.y; } server { listen 80; server_name c; }",
            "conflicting server name \"*.x.y\" on 0.0.0.0:80, ignored in weir.conf:2:38\n\
             conflicting server name \"x.y\" on 0.0.0.0:80, ignored in weir.conf:2:44\n",
        ),
        (
            "server { listen 80; } server { listen 80; }",
            "conflicting server name \"\" on 0.0.0.0:80, ignored in weir.conf:2:23\n",
        ),
        ("server { listen 80; server_name a a b..c ~x; }", ""),
        (
            "server { listen 80; server_name a a ~(x); }",
            "conflicting server name \"a\" on 0.0.0.0:80, ignored in weir.conf:2:35\n",
        ),
        ("server { listen 80; server_name a; } server { listen 81; server_name a; }", ""),
        ("server { listen 80; server_name w.*; } server { listen 80; server_name w; }", ""),
        (
            "server { listen 80; server_name a/b; }",
            "server name \"a/b\" has suspicious symbols in weir.conf:2:33\n",
        ),
    ] {
        assert_eq!(warnings(servers), expected, "{servers}");
    }
}

#[test]
fn protocols_that_lines_do_not_agree_on_are_warned_about() {
    let redefined = "protocol options redefined for 0.0.0.0:80 in weir.conf:";
    for (servers, columns) in [
        ("listen 80 proxy_protocol; | listen 80;", &[][..]),
        ("listen 80; | listen 80 proxy_protocol;", &[]),
        ("listen 80; | listen 80 proxy_protocol; | listen 80;", &[]),
        ("listen 80 proxy_protocol; | listen 80; | listen 80 proxy_protocol;", &[4]),
        ("listen 80 bind; | listen 80 proxy_protocol;", &[3]),
        ("listen 80; | listen 80 bind proxy_protocol;", &[]),
    ] {
        let servers = servers.split('|').enumerate();
        let text: String =
            servers.map(|(i, listen)| format!("server {{ server_name n{i}; {listen} }}\n")).collect();
        let expected: String = columns.iter().map(|line| format!("{redefined}{line}:27\n")).collect();
        assert_eq!(warnings(&text), expected, "{text}");
    }
}

#[test]
fn a_listener_sends_small_pieces_at_once_unless_its_default_server_says_no() {
    let conf = http(
        "server { listen 80; tcp_nodelay off; } server { listen 81; } server { listen 80; server_name a; }",
    );
    let of: Vec<_> = conf.addresses.iter().map(|address| address.options.nodelay).collect();
    assert_eq!(of, [false, true]);
}

proptest! {
    #[test]
    fn no_address_panics(host in "(unix:[@/a]{0,3}|\\[[0-9a-f:\\]]{0,12}|[*/?-]{0,3}|127\\.0\\.0\\.1|)", port in "(:[0-9:-]{0,12})?") {
        if let Ok(addrs) = address::parse(format!("{host}{port}").as_bytes()) {
            prop_assert!(!addrs.is_empty());
        }
    }

    #[test]
    fn ports_and_ranges_are_read_back(first in 1_u16..65_000, more in 0_u16..50) {
        let addrs = address::parse(format!("127.0.0.1:{first}-{}", first + more).as_bytes());
        let ports: Vec<_> = addrs.iter().flatten().filter_map(SockAddr::port).collect();
        prop_assert_eq!(ports, (first..=first + more).collect::<Vec<_>>());
    }
}
