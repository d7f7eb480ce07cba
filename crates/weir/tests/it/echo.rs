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
        location /each { echo_foreach_split & $args; echo "[$echo_it]"; echo_end; echo "end $echo_it"; }
        location /nested { echo_foreach_split , a,b; echo_foreach_split , c,d; echo_end; echo_end; }
        location /blocking { echo_reset_timer; echo_blocking_sleep 0.02; echo $echo_timer_elapsed; }
        location /wrong { echo_sleep soon; echo_blocking_sleep later; echo still; }
        location /around {
            echo_before_body -n "<$echo_response_status ";
            echo_before_body $uri;
            echo_after_body -n "$echo_request_uri>";
            root html;
        }
        location /filed { echo_subrequest PUT /part -f body.txt; echo_subrequest_async POST /part -f none.txt; echo end; }
        location /counts { echo $echo_incr; echo_location /counted; echo "$echo_incr $echo_incr"; }
        location /counted { echo "sub $echo_incr $echo_client_request_method $echo_request_method $echo_cacheable_request_uri"; }
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
        assert_eq!(server.client().request(head).text(), head);
    }

    fn loops_blocks_and_counts(driver) {
        let server = Server::builder(CONF).driver(driver).start();
        assert_eq!(server.get("/each?a=1&&b=2&").text(), "[a=1]\n[b=2]\nend \n");
        assert_eq!(server.get("/each").text(), "end \n");
        assert_eq!(server.get("/nested").status, 500);
        let _ = server.error_log_line("Nested echo_foreach_split not supported yet.");
        let slept: f64 = server.get("/blocking").text().trim().parse().expect("seconds");
        assert!(slept >= 0.02, "{slept}");
        assert_eq!(server.get("/wrong").text(), "still\n");
        let _ = server.error_log_line("invalid sleep time");
        assert_eq!(server.get("/counts").text(), "1\nsub 2 GET GET /counted\n3 4\n");
        let posted = "POST /counts HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(server.client().request(posted).text(), "1\nsub 2 POST GET /counted\n3 4\n");
    }

    fn files_are_sent_and_bodies_are_framed(driver) {
        let server = Server::builder(CONF).driver(driver);
        let server = server.file("body.txt", "of a file").file("html/around", "body").start();
        assert_eq!(server.get("/filed").text(), "PUT /part  of a file\nend\n");
        let _ = server.error_log_line("none.txt\" failed (2: No such file or directory)");
        let around = server.get("/around?x=y");
        assert_eq!(around.text(), "<200 /around\nbody/around?x=y>");
        assert_eq!((around.field("Content-Length"), around.field("Accept-Ranges")), (None, None));
        assert_eq!(server.get("/around/none").text().lines().next(), Some("<404 /around/none"));
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
