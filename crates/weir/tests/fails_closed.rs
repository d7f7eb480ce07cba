//! What can't be found out is never taken for "no": attacks that make a check give up get no further than the check.

mod support;

use weir_test::{Backend, Driver, Server, both_drivers};

/// Patterns that explode on many letters: rules as they are written, whose last alternative is what they are for.
const CONF: &str = r#"http {
    map $http_x_map $mapped { "~(?:^(?:[a-z]+/?)+-old$|evil)" bad; default good; }
    map $http_x_volatile $role { volatile; "~^(?:[a-z]+/?)+$" guest; default admin; }
    server { listen 127.0.0.1:%%PORT%%; root html;
        location ~ (?:^/(?:[a-z]+/?)+-old$|\.bak$|/private/) { return 403 "denied\n"; }
        location / { return 200 "static\n"; }
        location /if { if ($http_user_agent ~* "(?:(?:[a-z]+ ?)+/crawl|evilbot)") { return 403; }
            return 200 "passed\n"; }
        location ^~ /unless { if ($http_user_agent !~* "^(?:[a-z]+ ?)+$") { return 200 "passed\n"; }
            return 403; }
        location ^~ /rw/ { rewrite "(?:^/rw/(?:[a-z]+/?)+-$|/admin$)" /denied last; return 200 "passed\n"; }
        location = /denied { return 403; }
        location = /map { if ($mapped = bad) { return 403; } return 200 "passed\n"; }
        location = /add { add_header X-Role $role always; return 200 "passed\n"; }
        location = /page { error_page 500 /fallback; if ($mapped = bad) { return 403; } return 200 "passed\n"; }
        location = /fallback { internal; return 200 "fallback\n"; }
        location = /proxied { proxy_set_header X-Role $role; proxy_pass http://127.0.0.1:%%PORT1%%; }
        location = /referer { valid_referers "~^(?:[a-z]+/?)+$"; if ($invalid_referer) { return 403; }
            return 200 "passed\n"; }
        location = /gzip { gzip on; gzip_min_length 1; gzip_types *; gzip_disable "^(?:[a-z]+ ?)+$";
            return 200 "passed and long enough to be packed\n"; }
        location = /redirect { proxy_pass http://127.0.0.1:%%PORT1%%;
            proxy_redirect "~^http://[0-9.:]+/(?:[a-z]+/?)+$" /; }
    }
    server { listen 127.0.0.1:%%PORT%%; server_name "~^(?:[a-z]+\.?)+-old\.test$"; return 200 "named\n"; }
}"#;

fn letters() -> String {
    "a".repeat(40)
}

fn start(driver: Driver) -> (Server, Backend) {
    let secret = format!("http://10.0.0.1/{}!", letters());
    let backend = Backend::start(move |visit| {
        while visit.head().is_some() {
            let head = format!("HTTP/1.1 302 Found\r\nLocation: {secret}\r\nContent-Length: 3\r\n\r\nok\n");
            if !visit.send(head) {
                return;
            }
        }
    });
    let conf = CONF.replace("%%PORT1%%", &backend.port().to_string());
    let alert = "pcre2_match() failed: -47";
    (Server::builder(&conf).driver(driver).allow(alert).start(), backend)
}

fn get(server: &Server, path: &str, fields: &str) -> weir_test::Response {
    server.client().request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
}

both_drivers! {
    fn a_pattern_that_gives_up_ends_the_request_with_500(driver) {
        let (server, backend) = start(driver);
        let many = letters();
        for (path, fields) in [
            (format!("/{many}/private/y"), String::new()),
            (format!("/{many}{many}.bak"), String::new()),
            ("/if".into(), format!("User-Agent: {many} evilbot\r\n")),
            ("/unless".into(), format!("User-Agent: {many}!\r\n")),
            (format!("/rw/{many}/admin"), String::new()),
            ("/map".into(), format!("X-Map: {many} evil\r\n")),
            ("/add".into(), format!("X-Volatile: {many}!\r\n")),
            ("/proxied".into(), format!("X-Volatile: {many}!\r\n")),
            ("/referer".into(), format!("Referer: http://{many}!\r\n")),
            ("/redirect".into(), String::new()),
        ] {
            let response = get(&server, &path, &fields);
            assert_eq!(response.status, 500, "{path} {fields}: {response:?}");
            assert!(response.field("location").is_none(), "{response:?}");
        }
        assert_eq!(backend.heads(), 1, "only /redirect has come to the server");
        let log = server.error_log_line("using \"(?:^/(?:[a-z]+/?)+-old$|\\.bak$|/private/)\" in ");
        assert!(log.contains("[alert]") && log.contains("pcre2_match() failed: -47 on \"/aaaa"), "{log}");
        assert!(log.contains("nginx.conf:5,"), "the pattern's place: {log}");
        assert_eq!(get(&server, "/x/private/y", "").status, 403);
        assert_eq!(get(&server, "/x", "").text(), "static\n");
        assert_eq!(get(&server, "/map", "X-Map: evil\r\n").status, 403);
        assert_eq!(get(&server, "/map", "X-Map: x\r\n").text(), "passed\n");
    }

    fn an_error_page_serves_a_pattern_that_gave_up(driver) {
        let (server, _backend) = start(driver);
        let response = get(&server, "/page", &format!("X-Map: {} evil\r\n", letters()));
        assert_eq!((response.status, response.text().as_str()), (500, "fallback\n"));
    }

    fn gzip_is_left_out_where_its_pattern_gives_up(driver) {
        let (server, _backend) = start(driver);
        let fields = format!("Accept-Encoding: gzip\r\nUser-Agent: {}!\r\n", letters());
        let response = get(&server, "/gzip", &fields);
        assert_eq!((response.status, response.field("content-encoding")), (200, None));
    }

    /// nginx closes without a response; this one says why.
    fn a_server_name_that_gives_up_is_no_default_server(driver) {
        let (server, _backend) = start(driver);
        let host = format!("{}.test", letters());
        let response = server.client().request(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(response.status, 500);
        assert!(!response.keeps_alive());
    }

    /// 20 letters take some million steps: PCRE2's limit, and so nginx's, is ten.
    fn what_nginx_answers_is_answered(driver) {
        let (server, _backend) = start(driver);
        let response = get(&server, "/map", &format!("X-Map: {}!\r\n", "a".repeat(20)));
        assert_eq!(response.text(), "passed\n");
    }
}
