//! `early_hint`: who is sent a response 103, how often, and that no value of a request makes a field of its own.

use weir_test::{Driver, Server, both_drivers};

use crate::http2::client::Client as Http2Client;

const CONF: &str = r#"http { early_hint Link </a.css>; server { listen 127.0.0.1:%%PORT%%; http2 on; root files;
    location / { early_hints $arg_h; }
    location /page { early_hints 1; ssi on; ssi_types *; early_hint Link </page.css>; }
    location /moved { early_hints 1; internal_redirect /page; }
    location /lost { early_hints 1; error_page 404 = /page; }
    location /after { early_hints 1; post_action /page; }
    location /uri/ { early_hints 1; early_hint Link $uri; early_hint X-Kept yes; stub_status; }
    location /strict/ { early_hints 1; early_hint Link $uri; stub_status; }
    location /both { early_hints 1; if ($arg_if) { early_hint Link </if.css>; } stub_status; }
    location /denied { early_hints 1; deny all; }
    location /returned { early_hints 1; return 200 text; } } }"#;

const LINK: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";

fn serve(driver: Driver) -> Server {
    let page = "[<!--#include virtual=\"/file?h=1\" -->]";
    Server::builder(CONF)
        .file("files/file", "file")
        .file("files/page", page)
        .file("files/after", "after")
        .driver(driver)
        .start()
}

/// Everything that the responses to GETs of `paths` on one connection are, the last of them closed.
fn all(server: &Server, version: &str, paths: &[&str]) -> String {
    let mut client = server.client();
    let (last, before) = paths.split_last().expect("a path");
    let request = |path: &str, fields: &str| format!("GET {path} HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
    for path in before {
        client.send(request(path, "Connection: keep-alive\r\n"));
    }
    client.send(request(last, "Connection: close\r\n"));
    String::from_utf8(client.rest().0).expect("it is text")
}

both_drivers! {
    fn each_request_of_a_connection_has_its_hints_before_its_head(driver) {
        let server = serve(driver);
        for count in [1, 2, 8] {
            let text = all(&server, "1.1", &vec!["/file?h=1"; count]);
            let pair = format!("{LINK}HTTP/1.1 200 OK\r\n");
            assert!(text.starts_with(&pair), "{text}");
            assert_eq!((text.matches(&pair).count(), text.matches(" 103 ").count()), (count, count), "{text}");
        }
        let mut client = Http2Client::connect(server.addr(0));
        for path in ["/file?h=1", "/file?h=1", "/file?h=1", "/page"] {
            assert_eq!(client.fetch(path).interim, [103], "{path}");
        }
        assert_eq!(client.fetch("/file").interim, [0; 0], "early_hints says no");
    }

    fn old_clients_subrequests_and_second_places_have_none(driver) {
        let server = serve(driver);
        for (path, link) in [("/page", "page"), ("/moved", "page"), ("/lost", "a"), ("/after", "a"), ("/both", "a"), ("/both?if=1", "if")] {
            assert_eq!(all(&server, "1.0", &[path]).matches(" 103 ").count(), 0, "{path}");
            let text = all(&server, "1.1", &[path]);
            assert!(text.contains("HTTP/1.1 200 OK\r\n"), "{text}");
            assert_eq!(text.matches(" 103 ").count(), 1, "{path}: {text}");
            assert!(text.starts_with(&format!("HTTP/1.1 103 Early Hints\r\nLink: </{link}.css>\r\n\r\n")), "{path}: {text}");
        }
        for path in ["/file", "/file?h=0", "/denied", "/returned"] {
            assert!(!all(&server, "1.1", &[path]).contains(" 103 "), "{path}");
        }
    }

    /// `$uri` is decoded: a line end in it would begin a field, or the response.
    fn a_value_of_a_request_begins_no_field(driver) {
        let server = serve(driver);
        for bad in ["%0d%0aX-Own:%201", "%0aX-Own:%201", "%0d%0a%0d%0aHTTP/1.1%20200%20OK", "%0dX-Own:%201"] {
            let text = all(&server, "1.1", &[&format!("/uri/{bad}")]);
            assert!(text.starts_with("HTTP/1.1 103 Early Hints\r\nX-Kept: yes\r\n\r\nHTTP/1.1 200 OK\r\n"), "{text}");
            assert!(!text.contains("X-Own") && text.matches("200 OK").count() == 1, "{text}");
            let text = all(&server, "1.1", &[&format!("/strict/{bad}")]);
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "a hint without fields: {text}");
            let answer = Http2Client::connect(server.addr(0)).fetch(&format!("/uri/{bad}"));
            assert_eq!((answer.interim, answer.status), (vec![103], 200));
        }
        let text = all(&server, "1.1", &["/uri/x"]);
        assert!(text.starts_with("HTTP/1.1 103 Early Hints\r\nLink: /uri/x\r\nX-Kept: yes\r\n\r\n"), "{text}");
    }
}
