//! curl, nghttp and h2load.

use std::process::Command;

use super::tls::own;
use weir_test::{Server, both_drivers, require_program};

const CONF: &str = "http { server { listen 127.0.0.1:%%PORT%%; http2 on; root %%DIR%%;
    location /return { return 200 $server_protocol; } } }";

fn output(command: &mut Command) -> (bool, String) {
    let output = command.output().expect("the program runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

both_drivers! {
    fn curl_asks_by_prior_knowledge(driver) {
        let Some(curl) = require_program("curl") else { return };
        let server = Server::start(CONF);
        let mut command = Command::new(curl);
        command.args(["-sS", "--noproxy", "*", "--max-time", "90", "--http2-prior-knowledge", "-d", "body"]);
        command.arg(format!("http://{}/return", server.addr(0)));
        assert_eq!(output(&mut command), (true, "HTTP/2.0".into()));
    }

    /// Over TLS the version is agreed upon by ALPN: h2 where the server has it and the client offers it.
    fn curl_agrees_on_h2_over_tls(driver) {
        let Some(curl) = require_program("curl") else { return };
        let pair = own("localhost");
        let server = Server::builder(
            "http { ssl_certificate a.crt; ssl_certificate_key a.key; root %%DIR%%;
                server { listen 127.0.0.1:%%PORT_0%% ssl; http2 on; location /v { return 200 '$http2 $ssl_alpn_protocol $scheme'; } }
                server { listen 127.0.0.1:%%PORT_1%% ssl; location /v { return 200 '$server_protocol $ssl_alpn_protocol'; } } }",
        )
        .file("a.crt", &pair.certificate).file("a.key", &pair.key).file("big", vec![b'x'; 1_000_000]).start();
        let ask = |port: usize, version: &str, path: &str| {
            let mut command = Command::new(&curl);
            command.args(["-sSk", "--noproxy", "*", "--max-time", "90", version]);
            output(command.arg(format!("https://{}{path}", server.addr(port))))
        };
        let (success, big) = ask(0, "--http2", "/big");
        assert_eq!((success, big.len()), (true, 1_000_000));
        assert_eq!(ask(0, "--http2", "/v"), (true, "h2 h2 https".into()));
        assert_eq!(ask(0, "--http1.1", "/v"), (true, " http/1.1 https".into()));
        assert_eq!(ask(1, "--http2", "/v"), (true, "HTTP/1.1 http/1.1".into()));
    }

    fn nghttp_fetches_several_files(driver) {
        let Some(nghttp) = require_program("nghttp") else { return };
        let server = Server::builder(CONF).file("a", vec![b'a'; 100_000]).file("b", "b").start();
        let mut command = Command::new(nghttp);
        command.args(["-v", "-n", "--no-dep"]);
        command.args(["a", "b", "return"].map(|name| format!("http://{}/{name}", server.addr(0))));
        let (success, text) = output(&mut command);
        assert!(success && text.matches(":status: 200").count() == 3, "{text}");
    }

    /// Also where one turn's responses are more than the connection takes at once.
    fn h2load_has_no_failures(driver) {
        let Some(h2load) = require_program("h2load") else { return };
        let server = Server::builder(CONF).file("a", "hello\n").file("b", vec![b'b'; 10_240]).start();
        for (file, streams) in [("a", "16"), ("b", "100")] {
            let mut command = Command::new(&h2load);
            command.args(["-n", "2000", "-c", "8", "-m", streams, "-w", "30", "-W", "30"]);
            command.arg(format!("http://{}/{file}", server.addr(0)));
            let (success, text) = output(&mut command);
            assert!(success && text.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
        }
    }
}
