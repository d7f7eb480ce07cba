//! What each variable is for a request that has everything, and for one that has nothing.

use weir_http::KnownField;

use crate::exchange::{Exchange, HeaderName, ResponseHeader};
use crate::testing::{run, value};
use crate::text::Text;
use crate::transport::ProxiedAddresses;

const SERVER: &str = "server { listen 8080; server_name Example.org www.example.org; root /srv/www;
    location /a/ { root /srv/$host/www; limit_rate 4k; } location /b/ { alias /data/; } }";

const FULL: &str = "GET /a//x%20y.html?k=v&Name=w&k=2&e= HTTP/1.1\r\nHost: EXAMPLE.org:8080\r\n\
    User-Agent: curl/8\r\nX-Forwarded-For: 10.0.0.1\r\nx-forwarded-for: 10.0.0.2\r\nCookie: a=1; b=two\r\n\
    Cookie: c=\r\nX-Two: 1\r\nX_Bad: 0\r\nX-Two: 2\r\nX-Two: 3\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\
    Authorization: basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n";

const BARE: &str = "GET / HTTP/1.0\r\n\r\n";

/// Compares many variables; `-` means no value.
fn check(x: &mut Exchange, expected: &[(&str, &str)]) {
    for (name, expected) in expected {
        let found = value(x, name);
        assert_eq!(found.as_deref().unwrap_or("-"), *expected, "${name}");
    }
}

#[test]
fn of_a_request_that_has_everything() {
    run(SERVER, FULL, async |x| {
        let length = (FULL.len()).to_string();
        check(
            x,
            &[
                ("host", "example.org"),
                ("http_host", "EXAMPLE.org:8080"),
                ("request", "GET /a//x%20y.html?k=v&Name=w&k=2&e= HTTP/1.1"),
                ("request_method", "GET"),
                ("request_uri", "/a//x%20y.html?k=v&Name=w&k=2&e="),
                ("uri", "/a/x y.html"),
                ("document_uri", "/a/x y.html"),
                ("args", "k=v&Name=w&k=2&e="),
                ("query_string", "k=v&Name=w&k=2&e="),
                ("is_args", "?"),
                ("server_protocol", "HTTP/1.1"),
                ("request_port", "8080"),
                ("is_request_port", ":"),
                ("request_length", &length),
                ("server_name", "example.org"),
                ("document_root", "/srv/example.org/www"),
                ("content_length", "5"),
                ("content_type", "text/plain"),
                ("remote_user", "Aladdin"),
                ("http_user_agent", "curl/8"),
                ("http_x_forwarded_for", "10.0.0.1, 10.0.0.2"),
                ("http_cookie", "a=1; b=two; c="),
                ("http_x_two", "1, 2, 3"),
                ("HTTP_X_Two", "1, 2, 3"),
                ("http_x_bad", "-"),
                ("cookie_b", "two"),
                ("cookie_c", ""),
                ("cookie_d", "-"),
                ("arg_k", "v"),
                ("arg_name", "w"),
                ("arg_e", ""),
                ("arg_none", "-"),
                ("limit_rate", "4096"),
            ],
        );
    });
}

#[test]
fn a_content_type_that_came_twice_is_joined() {
    let head = "POST / HTTP/1.0\r\nContent-Type: a/b\r\nContent-Type: c/d\r\n\r\n";
    run(SERVER, head, async |x| check(x, &[("content_type", "a/b, c/d")]));
}

#[test]
fn of_a_request_that_has_nothing() {
    run(SERVER, BARE, async |x| {
        check(
            x,
            &[
                ("host", "example.org"),
                ("http_host", "-"),
                ("args", "-"),
                ("is_args", ""),
                ("request_port", ""),
                ("is_request_port", ""),
                ("content_length", "-"),
                ("content_type", "-"),
                ("remote_user", "-"),
                ("request_body", "-"),
                ("request_body_file", "-"),
                ("http_cookie", "-"),
                ("cookie_a", "-"),
                ("arg_a", "-"),
                ("limit_rate", "0"),
                ("proxy_protocol_addr", "-"),
                ("proxy_protocol_tlv_alpn", "-"),
                ("nothing_of_this_name", "-"),
            ],
        );
    });
}

#[test]
fn of_the_connection() {
    run(SERVER, BARE, async |x| {
        check(
            x,
            &[
                ("remote_addr", "192.0.2.1"),
                ("remote_port", "54321"),
                ("binary_remote_addr", r"\xc0\x00\x02\x01"),
                ("server_addr", "198.51.100.1"),
                ("server_port", "8080"),
                ("scheme", "http"),
                ("https", ""),
                ("connection", "7"),
                ("connection_requests", "2"),
                ("pipe", "."),
                ("tcpinfo_rtt", "-"),
                ("pid", &std::process::id().to_string()),
            ],
        );
        x.pipelined = true;
        check(x, &[("pipe", "p")]);
        let proxied = ProxiedAddresses {
            source: "[2001:db8::1]:1234".parse().expect("an address"),
            destination: "203.0.113.9:443".parse().expect("an address"),
            tlvs: b"\x01\x00\x02h2".as_slice().into(),
        };
        x.connection.proxied.set(proxied).expect("not set yet");
        check(
            x,
            &[
                ("proxy_protocol_addr", "2001:db8::1"),
                ("proxy_protocol_port", "1234"),
                ("proxy_protocol_server_addr", "203.0.113.9"),
                ("proxy_protocol_server_port", "443"),
                ("proxy_protocol_tlv_alpn", "h2"),
                ("proxy_protocol_tlv_0x01", "h2"),
                ("proxy_protocol_tlv_authority", "-"),
            ],
        );
    });
}

#[test]
fn of_an_answer_before_and_after_its_head_is_sent() {
    run(SERVER, FULL, async |x| {
        check(x, &[("status", "000"), ("sent_http_content_type", "-"), ("request_completion", "")]);
        x.response.status = 301;
        x.response.content_type = Some(Text::from("text/html"));
        x.response.charset = Some(Text::from("utf-8"));
        x.response.content_length = Some(162);
        x.response.last_modified = Some(0);
        x.response.location = Some(Text::from("/a/"));
        x.response.add(KnownField::CacheControl, "no-store");
        x.response.add(KnownField::CacheControl, "max-age=1");
        x.response.add_named(Text::from("X-Own"), Text::from("yes"));
        let trailer =
            ResponseHeader { name: HeaderName::Other(Text::from("X-Sum")), value: Text::from("ab") };
        x.response.trailers.push(trailer);
        check(
            x,
            &[
                ("status", "301"),
                ("sent_http_content_type", "text/html"),
                ("sent_http_content_length", "162"),
                ("sent_http_last_modified", "Thu, 01 Jan 1970 00:00:00 GMT"),
                ("sent_http_location", "/a/"),
                ("sent_http_cache_control", "no-store, max-age=1"),
                ("sent_http_x_own", "yes"),
                ("sent_http_server", "-"),
                ("sent_http_connection", "keep-alive"),
                ("sent_http_keep_alive", "-"),
                ("sent_http_transfer_encoding", "-"),
                ("sent_trailer_x_sum", "ab"),
                ("bytes_sent", "0"),
                ("body_bytes_sent", "0"),
            ],
        );
        x.response.header_sent = true;
        x.response.err_status = 404;
        x.response.chunked = true;
        x.keep_alive = false;
        x.delivery.set(crate::exchange::ResponseDelivery::Whole);
        check(
            x,
            &[
                ("status", "404"),
                ("sent_http_content_type", "text/html; charset=utf-8"),
                ("sent_http_location", "http://example.org:8080/a/"),
                ("sent_http_transfer_encoding", "chunked"),
                ("sent_http_connection", "close"),
                ("request_completion", "OK"),
            ],
        );
    });
}

#[test]
fn of_a_304_there_is_neither_type_nor_length() {
    run(SERVER, BARE, async |x| {
        x.response.content_type = Some(Text::from("text/html"));
        x.response.content_length = Some(1);
        x.response.not_modified = true;
        check(x, &[("sent_http_content_type", "-"), ("sent_http_content_length", "-")]);
    });
}

#[test]
fn of_a_body_that_was_read() {
    run(SERVER, BARE, async |x| {
        x.body.replace(b"k=v".to_vec());
        check(x, &[("request_body", "k=v"), ("request_body_file", "-")]);
        x.body.replace(Vec::new());
        check(x, &[("request_body", "-")]);
    });
}

#[test]
fn paths_follow_root_and_alias() {
    run(SERVER, "GET /b/c/d HTTP/1.0\r\n\r\n", async |x| {
        check(x, &[("document_root", "/data/"), ("request_filename", "/data/c/d"), ("realpath_root", "-")]);
    });
    run("server { root /proc/self/..; }", BARE, async |x| {
        check(x, &[("realpath_root", "/proc"), ("document_root", "/proc/self/..")]);
    });
}

#[test]
fn a_file_is_looked_for_under_a_root_with_variables() {
    run(SERVER, FULL, async |x| check(x, &[("request_filename", "/srv/example.org/www/a/x y.html")]));
}

#[test]
fn times_have_nginxs_forms() {
    run(SERVER, BARE, async |x| {
        let shape = |text: String| -> String {
            text.bytes().map(|byte| if byte.is_ascii_digit() { '0' } else { char::from(byte) }).collect()
        };
        for (name, form) in [
            ("request_time", "0.000"),
            ("connection_time", "0.000"),
            ("msec", "0000000000.000"),
            ("time_iso8601", "0000-00-00T00:00:00"),
        ] {
            let found = value(x, name).expect("always there");
            assert!(shape(found.clone()).starts_with(form), "${name} is {found}");
        }
        let local = value(x, "time_local").expect("always there");
        assert_eq!((local.len(), &local[20..21]), (26, " "), "{local}");
    });
}

#[test]
fn args_and_limit_rate_can_be_set() {
    let server = "server { root /srv/$args/$limit_rate; }";
    run(server, "GET /?a=1 HTTP/1.0\r\n\r\n", async |x| {
        check(x, &[("document_root", "/srv/a=1/0")]);
        let index = |x: &Exchange, name| x.server.tables().variables.find(name).expect("it is used");
        let (args, rate) = (index(x, "args"), index(x, "limit_rate"));
        x.set_variable(args, Text::from("b=2"));
        x.set_variable(rate, Text::from("8k"));
        check(
            x,
            &[("document_root", "/srv/b=2/8192"), ("arg_b", "2"), ("arg_a", "-"), ("request_uri", "/?a=1")],
        );
        assert!(!x.request.uri_is_plain);
        x.set_variable(rate, Text::from("fast"));
        check(x, &[("limit_rate", "8192")]);
    });
}

#[test]
fn a_request_keeps_its_id() {
    run("server { root /srv/$request_id; }", BARE, async |x| {
        let id = value(x, "request_id").expect("always there");
        assert!(id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{id}");
        check(x, &[("request_id", &id), ("document_root", &format!("/srv/{id}"))]);
    });
    let other = || run(SERVER, BARE, async |x| (value(x, "request_id"), value(x, "request_id")));
    let ((a, b), (c, _)) = (other(), other());
    assert_eq!(a, b, "asked for by name only");
    assert_ne!(a, c);
}

#[test]
fn no_name_stands_twice_in_the_table() {
    let mut names: Vec<&str> = super::VARIABLES.iter().map(|variable| variable.name).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}
