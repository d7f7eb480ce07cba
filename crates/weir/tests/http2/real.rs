//! curl, nghttp and h2load.

use std::process::Command;

use weir_test::{Server, both_drivers, require_program};

const CONF: &str = "http { server { listen 127.0.0.1:%%PORT%%; http2 on; root %%DIR%%;
    location /return { return 200 $server_protocol; } } }";

fn output(mut command: Command) -> (bool, String) {
    let output = command.output().expect("the program runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

both_drivers! {
    fn curl_asks_by_prior_knowledge(driver) {
        let Some(curl) = require_program("curl") else { return };
        let server = Server::start(CONF);
        let mut command = Command::new(curl);
        command.args(["-sS", "--max-time", "30", "--http2-prior-knowledge", "-d", "body"]);
        command.arg(format!("http://{}/return", server.addr(0)));
        assert_eq!(output(command), (true, "HTTP/2.0".into()));
    }

    fn nghttp_fetches_several_files(driver) {
        let Some(nghttp) = require_program("nghttp") else { return };
        let server = Server::builder(CONF).file("a", vec![b'a'; 100_000]).file("b", "b").start();
        let mut command = Command::new(nghttp);
        command.args(["-v", "-n", "--no-dep"]);
        command.args(["a", "b", "return"].map(|name| format!("http://{}/{name}", server.addr(0))));
        let (success, text) = output(command);
        assert!(success && text.matches(":status: 200").count() == 3, "{text}");
    }

    fn h2load_has_no_failures(driver) {
        let Some(h2load) = require_program("h2load") else { return };
        let server = Server::builder(CONF).file("a", "hello\n").start();
        let mut command = Command::new(h2load);
        command.args(["-n", "2000", "-c", "8", "-m", "16"]);
        command.arg(format!("http://{}/a", server.addr(0)));
        let (success, text) = output(command);
        assert!(success && text.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
    }
}
