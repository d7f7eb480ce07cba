//! What `conformance/differ` found by running generated configurations on nginx and on Weir.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use weir_test::{Backend, Server, both_drivers, wait_for};

both_drivers! {
    /// A copy of a request (`mirror`) does not count a second time: limits around its location refused it.
    fn limits_count_a_mirrored_request_once(driver) {
        let copies = Arc::new(AtomicUsize::new(0));
        let seen = copies.clone();
        let backend = Backend::start(move |visit| {
            while visit.head().is_some() {
                seen.fetch_add(1, Ordering::SeqCst);
                if !visit.answer("ok") {
                    return;
                }
            }
        });
        for limit in ["limit_req zone=requests;", "limit_conn connections 1;"] {
            copies.store(0, Ordering::SeqCst);
            let conf = format!("http {{ limit_req_zone $server_addr zone=requests:64k rate=1r/m;
                limit_conn_zone $server_addr zone=connections:64k;
                server {{ listen 127.0.0.1:%%PORT%%; {limit}
                    location / {{ mirror /copy; return 204; }}
                    location /static/ {{ mirror /copy; }}
                    location = /copy {{ internal; proxy_pass http://127.0.0.1:{}; }} }} }}", backend.port());
            let server = Server::builder(&conf).driver(driver).file("html/static/a", "a").allow("limiting").start();
            assert_eq!(server.get("/static/a").status, 200, "{limit}");
            wait_for(limit, || (copies.load(Ordering::SeqCst) == 1).then_some(()));
        }
    }

    /// A response to HEAD has no content (RFC 9110, 9.3.2), also where the line or a field is refused.
    fn what_is_refused_of_a_head_request_has_no_page(driver) {
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%%; } }").driver(driver).start();
        for head in ["HEAD /a b HTTP/1.1\r\nHost: a", "HEAD a HTTP/1.1\r\nHost: a", "HEAD * HTTP/1.1\r\nHost: a",
            "\r\nHEAD /\x01 HTTP/1.1\r\nHost: a", "HEAD / HTTP/1.1x\r\nHost: a", "HEAD / HTTP/2.0\r\nHost: a",
            "HEAD / HTTP/1.1", "HEAD / HTTP/1.1\r\nHost: a\r\nHost: b", "HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: x"] {
            let said = server.raw(format!("{head}\r\n\r\n"));
            let said = String::from_utf8_lossy(&said);
            assert!(said.starts_with("HTTP/1.1 400 ") || said.starts_with("HTTP/1.1 505 "), "{head}: {said}");
            assert!(said.ends_with("\r\n\r\n"), "{head}: {said}");
        }
        let said = server.raw("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(said.ends_with(b"</html>\r\n"));
    }

    /// What fills a cache is a GET for HEAD, before `proxy_method` counts: an empty body was kept, or another method's.
    fn a_head_that_fills_a_cache_is_a_get_whatever_proxy_method_says(driver) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = lines.clone();
        let backend = Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                seen.lock().expect("no panic").push(head.lines().next().unwrap_or_default().to_owned());
                if !visit.answer("page") {
                    return;
                }
            }
        });
        let conf = format!("http {{ proxy_cache_path cache keys_zone=kept:1m; server {{ listen 127.0.0.1:%%PORT%%;
            proxy_cache kept; proxy_cache_valid 1h; proxy_method HEAD;
            location / {{ proxy_pass http://127.0.0.1:{}; }} }} }}", backend.port());
        let server = Server::builder(&conf).driver(driver).start();
        let said = server.raw("HEAD /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(said.starts_with(b"HTTP/1.1 200") && said.ends_with(b"\r\n\r\n"), "{}", String::from_utf8_lossy(&said));
        assert_eq!(server.get("/a").text(), "page");
        assert_eq!(*lines.lock().expect("no panic"), ["GET /a HTTP/1.1"]);
    }
}
