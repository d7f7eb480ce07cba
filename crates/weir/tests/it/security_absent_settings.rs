//! What is let in where there is nothing to check with; docs/explanation/security.md has the list. Of TLS: tls_client_certificates.rs.

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

both_drivers! {
    /// What can't be read is no permission; a key that is too long is not limited, as in nginx, and the log says so.
    fn what_cannot_be_read_lets_nobody_in(driver) {
        let server = Server::builder("http { limit_conn_zone $arg_k zone=c:1m; limit_req_zone $arg_k zone=r:1m rate=1r/m;
            geo $arg_a $inside { default 0; 10.0.0.0/8 1; }
            server { listen 127.0.0.1:%%PORT%%; auth_basic_user_file users;
                location /password/ { auth_basic x; echo in; }
                location /geo/ { if ($inside = 0) { return 403; } echo in; }
                location /link/ { secure_link $arg_m,$arg_e; secure_link_md5 x; if ($secure_link != 1) { return 403; } echo in; }
                location /conn/ { limit_conn c 1; echo in; }
                location /req/ { limit_req zone=r; echo in; } } }")
            .driver(driver)
            .file("users", "bad:$2y$99$x\nodd:$6$\nplain:{PLAIN}b\n")
            .start();
        let get = |path: &str, word: &str| {
            let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: {word}\r\nConnection: close\r\n\r\n");
            server.client().request(text).status
        };
        // plain:b, then bad:x, odd:x, and what is no base64 or no pair.
        assert_eq!(get("/password/", "Basic cGxhaW46Yg=="), 200);
        for word in ["Basic YmFkOng=", "Basic b2RkOng=", "Basic !!!!", "Basic cGxhaW4=", "Basic", "Bearer cGxhaW46Yg=="] {
            assert!(matches!(get("/password/", word), 401 | 403 | 500), "{word}");
        }
        for (path, status) in [
            ("/geo/?a=10.1.2.3", 200), ("/geo/?a=10.1.2.3x", 403), ("/geo/?a=10.1", 403), ("/geo/?a=", 403), ("/geo/?a=::ffff:1", 403),
            ("/link/?m=x&e=99999999999999999999999", 403), ("/link/?m=%00&e=-1", 403), ("/link/?m=&e=", 403),
        ] {
            assert_eq!(get(path, "-"), status, "{path}");
        }
        let long = "k".repeat(300);
        assert_eq!(get(&format!("/conn/?k={long}"), "-"), 200);
        let _ = server.error_log_line("the value of the \"$arg_k\" key is more than 255 bytes");
        assert_eq!([get(&format!("/req/?k={long}"), "-"), get(&format!("/req/?k={long}"), "-")], [200, 503]);
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
