//! `echo` and its relatives, end to end.

use weir_test::{Server, both_drivers};

const CONF: &str = r#"http {
    default_type text/plain;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /echo { echo -n "a $arg_x"; echo b c; echo; echo -- -n; echo_duplicate 3 ab; }
        location /status { echo_status 404; echo gone; }
        location /sleep { echo_reset_timer; echo before; echo_flush; echo_sleep 0.05; echo after; }
        location /body { echo_read_request_body; echo "[$echo_request_body]"; echo_request_body; }
        location /parts {
            echo "(";
            echo_location_async /part a=1;
            echo_sleep 0.01;
            echo_location /part "a=2&b=$arg_x";
            echo_subrequest POST /part -q a=3 -b body;
            echo_location /missing/../part;
            echo ")";
        }
        location /part { echo_read_request_body; echo "$echo_request_method $uri $args $echo_request_body"; }
        location /exec { echo_exec /part x=y; }
        location /named { echo_exec @named; }
        location @named { echo "named $uri"; }
        location /head { echo -n $echo_client_request_headers; }
    }
}"#;

both_drivers! {
    fn what_is_echoed_is_said(driver) {
        let server = Server::builder(CONF).driver(driver).start();
        let said = server.get("/echo?x=1");
        assert_eq!((said.status, said.field("Content-Type")), (200, Some("text/plain")));
        assert_eq!(said.text(), "a 1b c\n\n-n\nababab");
        assert_eq!((server.get("/status").status, server.get("/status").text().as_str()), (404, "gone\n"));
        assert_eq!(server.get("/sleep").text(), "before\nafter\n");
        assert_eq!(server.get("/exec").text(), "GET /part x=y \n");
        assert_eq!(server.get("/named").text(), "named /named\n");
        let head = "GET /head HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";
        assert_eq!(server.client().request(head).text(), "GET /head HTTP/1.1\r\nHost: a\r\nX: y\r\n");
    }

    fn subrequests_stand_in_order(driver) {
        let server = Server::builder(CONF).driver(driver).start();
        let said = server.get("/parts?x=9").text();
        assert_eq!(said, "(\nGET /part a=1 \nGET /part a=2&b=9 \nPOST /part a=3 body\n)\n");
        let _ = server.error_log_line("unsafe URI \"/missing/../part\" was detected");
        let post = server.client().request("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(post.text(), "[abc]\nabc");
    }
}
