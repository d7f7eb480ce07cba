//! What is let in where there is nothing to check with; docs/untrusted.md has the list. Of TLS: mtls.rs.

use weir_test::{Server, both_drivers};

both_drivers! {
    fn what_is_absent_lets_nobody_in_where_a_check_is_asked_for(driver) {
        let table = [
            ("auth_basic x; auth_basic_user_file nowhere;", 403),
            ("auth_request /nowhere;", 500),
            ("auth_request /down;", 500),
            ("if ($secure_link = '') { return 403; }", 403),
            ("secure_link_secret x; if ($secure_link = '') { return 403; }", 403),
            ("valid_referers server_names; if ($invalid_referer) { return 403; }", 403),
            ("satisfy any; deny all;", 403),
            // Nothing is asked for, as in nginx.
            ("auth_basic x;", 200),
            ("if ($invalid_referer) { return 403; }", 200),
            ("satisfy any;", 200),
            ("", 200),
        ];
        let place = |(at, (directives, _)): (usize, &(&str, u16))| format!("location /{at}/ {{ {directives} echo in; }}\n");
        let places: String = table.iter().enumerate().map(place).collect();
        let server = Server::builder(&format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; {places}
                location = /down {{ proxy_pass http://127.0.0.1:1; }} location = /nowhere {{ return 404; }} }} }}"
        ))
        .driver(driver)
        .start();
        for (at, (directives, status)) in table.iter().enumerate() {
            let request = format!("GET /{at}/a HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YTpi\r\nConnection: close\r\n\r\n");
            assert_eq!(server.client().request(request).status, *status, "{directives}");
        }
    }
}

#[test]
fn what_a_check_needs_must_be_there_when_it_starts() {
    for (directives, words) in [
        ("location / { limit_req zone=none; }", "none"),
        ("location / { limit_conn none 1; }", "none"),
        (
            "location / { proxy_ssl_verify on; proxy_pass https://127.0.0.1:1; }",
            "no proxy_ssl_trusted_certificate for proxy_ssl_verify",
        ),
        (
            "location / { proxy_ssl_verify on; proxy_ssl_trusted_certificate nowhere; proxy_pass https://127.0.0.1:1; }",
            "nowhere",
        ),
    ] {
        let text = format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; {directives} }} }}");
        let exit = Server::builder(&text).run(&["-t"]);
        assert!(!exit.status.success() && exit.stderr.contains(words), "{directives}: {}", exit.stderr);
    }
}
