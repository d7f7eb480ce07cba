//! `more_set_headers`, `more_clear_headers` and their forms for requests, end to end.

use weir_test::{Server, both_drivers};

const CONF: &str = r#"http {
    more_set_headers 'X-Http: all' 'Server: mine';
    server {
        listen 127.0.0.1:%%PORT%%;
        root html;
        location /set {
            more_set_headers -s '404' 'X-Missing: $uri';
            more_set_headers -t 'text/plain' 'X-Plain: yes' 'Content-Type: text/other';
            more_set_headers -a 'X-Http: too';
        }
        location /clear {
            more_clear_headers Server Date 'Last-*' 'X-H*' ETag Accept-Ranges Content-Type;
        }
        location /input {
            more_set_input_headers 'X-New: $arg_a' 'X-Old: changed' 'Host: other.example:81';
            more_set_input_headers -r 'X-Absent: never' 'User-Agent: nobody';
            more_set_input_headers -t 'text/plain' 'X-Typed: yes';
            more_clear_input_headers 'X-Secret-*' Cookie;
            proxy_pass http://127.0.0.1:%%PORT_1%%;
            proxy_set_header Host $http_host;
        }
    }
    server {
        listen 127.0.0.1:%%PORT_1%%;
        return 200 "$http_x_new|$http_x_old|$http_host|$http_x_absent|$http_user_agent|$http_x_typed|$http_x_secret_a|$http_cookie";
    }
}"#;

both_drivers! {
    fn fields_of_answers_are_set_whatever_the_status(driver) {
        let server = Server::builder(CONF).driver(driver).file("html/set.txt", "text").start();
        let found = server.get("/set.txt");
        assert_eq!((found.status, found.field("Content-Type"), found.field("X-Plain")), (200, Some("text/other"), Some("yes")));
        assert_eq!((found.field("Server"), found.all("X-Http")), (Some("mine"), vec!["all", "too"]));
        assert_eq!(found.field("X-Missing"), None);
        let missing = server.get("/set/none");
        assert_eq!((missing.status, missing.field("X-Missing"), missing.field("X-Plain")), (404, Some("/set/none"), None));
        assert_eq!(missing.field("Server"), Some("mine"));
    }

    fn fields_of_answers_are_cleared(driver) {
        let server = Server::builder(CONF).driver(driver).file("html/clear.txt", "text").start();
        let found = server.get("/clear.txt");
        assert_eq!((found.status, found.text().as_str()), (200, "text"));
        for name in ["Server", "Date", "X-Http", "ETag", "Accept-Ranges", "Content-Type"] {
            assert_eq!(found.field(name), None, "{}", found.head_text());
        }
        assert_eq!(found.field("Content-Length"), Some("4"));
    }

    fn fields_of_requests_are_changed_before_they_are_passed_on(driver) {
        let server = Server::builder(CONF).driver(driver).start();
        let head = "GET /input?a=1 HTTP/1.1\r\nHost: a\r\nX-Old: old\r\nUser-Agent: me\r\nContent-Type: text/plain; charset=x\r\n\
                    X-Secret-A: s\r\nCookie: c=d\r\n\r\n";
        assert_eq!(server.client().request(head).text(), "1|changed|other.example:81||nobody|yes||");
        let plain = server.client().request("GET /input HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(plain.text(), "|changed|other.example:81|||||");
    }
}
