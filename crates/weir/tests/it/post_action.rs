//! `post_action`: what a request does when its response is out, beside nginx.

use crate::support;

use support::{final_log, get};
use weir_test::{Server, both_drivers, wait_for};

const CONF: &str = r#"http {
    log_format told '$server_port $request_uri $uri $status $body_bytes_sent';
    access_log %%DIR%%/access.log told;
    server {
        listen 127.0.0.1:%%PORT_0%%;
        location / { post_action /done; return 200 hello; }
        location = /done {
            internal;
            proxy_set_header Connection close;
            proxy_pass http://127.0.0.1:%%PORT_1%%/count?uri=$request_uri&sent=$body_bytes_sent&ok=$request_completion;
        }
        location /file { root %%DIR%%; post_action @named; }
        location @named { return 204; }
        location /missing { post_action /nothing/there; return 200 here; }
        location /nothing { return 404; }
        location /chain { post_action /chain2; return 200 chain; }
        location /chain2 { post_action @named; return 200 never; }
        location /sub { root %%DIR%%; ssi on; ssi_types *; }
    }
    server {
        listen 127.0.0.1:%%PORT_1%%;
        location / { return 200 counted; }
    }
}"#;

const PATHS: [(&str, &str); 6] = [
    ("/", "hello"),
    ("/file", "of a file"),
    ("/missing", "here"),
    ("/chain", "chain"),
    ("/sub", "[hello]"),
    ("/x?y", "hello"),
];

/// Asks for all paths on one connection. What is logged, the ports by their numbers.
fn ask(server: Server) -> Vec<String> {
    let ports = [server.port(0), server.port(1)].map(|port| port.to_string());
    let mut client = server.client();
    for (count, (path, text)) in PATHS.iter().enumerate() {
        let response = client.request(get(path));
        assert_eq!((response.status, response.text().as_str()), (200, *text), "{path}");
        // The next request's lines come after this one's.
        let done = |line: &&String| line.starts_with(&ports[0]);
        wait_for("its line", || {
            (server.access_log_lines(count + 1).iter().filter(done).count() > count).then_some(())
        });
    }
    drop(client);
    let lines = final_log(server);
    lines.iter().map(|line| line.replace(&ports[0], "0").replace(&ports[1], "1")).collect()
}

both_drivers! {
    fn what_comes_behind_the_answer_is_not_sent_and_is_logged(driver) {
        let file = |builder: weir_test::TestServerBuilder| {
            builder.file("file", "of a file").file("sub", "[<!--#include virtual=\"/\" -->]")
        };
        let lines = ask(file(Server::builder(CONF)).driver(driver).start());
        assert!(lines.contains(&"1 /count?uri=/x?y&sent=5&ok=OK /count 200 7".to_owned()), "{lines:#?}");
        assert!(lines.contains(&"0 /file /file 204 9".to_owned()), "{lines:#?}");
        let Some(nginx) = weir_test::nginx(&format!("events {{ }} {CONF}")) else { return };
        assert_eq!(lines, ask(file(nginx).start()));
    }
}
