//! Certificates of servers: replaced without a reload, and of very many servers.

use crate::support::tls as support;

use std::fmt::Write;
use std::net::TcpStream;

use support::{Pair, TlsClient, client, own};
use weir_test::{Client, Response, Server, both_drivers, wait_for};

const CONF: &str = "worker_processes 2; admin 127.0.0.1:%%PORT_1%%;
    http { server { listen 127.0.0.1:%%PORT_0%% ssl; server_name a.example.com www.a.example.com;
        ssl_certificate a.crt; ssl_certificate_key a.key; return 200 a; }
      server { listen 127.0.0.1:%%PORT_0%% ssl; server_name b.example.com;
        ssl_certificate b.crt; ssl_certificate_key b.key; return 200 b; }
      server { listen 127.0.0.1:%%PORT_0%% ssl; server_name c.example.com;
        ssl_certificate $ssl_server_name.crt; ssl_certificate_key b.key; return 200 c; } }";

fn admin(server: &Server, method: &str, name: &str, body: &str) -> Response {
    let address = server.addr(1);
    wait_for("admin listener", || TcpStream::connect(address).is_ok().then_some(()));
    let length = body.len();
    Client::connect(address).request(format!(
        "{method} /certificates/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

fn body(certificate: &str, key: &str) -> String {
    let [certificate, key] = [certificate, key].map(|pem| pem.replace('\n', "\\n"));
    format!("{{\"certificate\":\"{certificate}\",\"key\":\"{key}\"}}")
}

/// The next handshakes, of both workers, show `pair`, and requests get responses.
fn shows(server: &Server, name: &str, pair: &Pair) {
    for _ in 0..8 {
        let mut it = TlsClient::connect(server.addr(0), name, &client(true, None));
        assert_eq!(it.facts().peer, pair.shown().chain(), "{name}");
        assert_eq!(it.get("/", name).status, 200);
    }
}

both_drivers! {
    fn a_certificate_is_replaced_without_a_reload(driver) {
        let (a, b, new) = (own("a.example.com"), own("b.example.com"), own("new.example.com"));
        let mut server = Server::builder(CONF)
            .file("a.crt", &a.certificate).file("a.key", &a.key)
            .file("b.crt", &b.certificate).file("b.key", &b.key)
            .driver(driver).start();
        shows(&server, "a.example.com", &a);
        let reported = admin(&server, "GET", "a.example.com", "");
        assert_eq!(reported.status, 200);
        assert!(reported.text().contains("\"subject\":\"CN=a.example.com\""), "{}", reported.text());
        assert!(reported.text().contains("\"replaced\":false"), "{}", reported.text());

        let reported = admin(&server, "PUT", "WWW.a.example.com", &body(&new.certificate, &new.key));
        assert_eq!(reported.status, 200, "{}", reported.text());
        assert!(reported.text().contains("\"subject\":\"CN=new.example.com\""), "{}", reported.text());
        assert!(reported.text().contains("\"replaced\":true"), "{}", reported.text());
        shows(&server, "a.example.com", &new);
        shows(&server, "b.example.com", &b);

        for (name, body, status, why) in [
            ("a.example.com", body(&a.certificate, &b.key), 400, "key values mismatch"),
            ("a.example.com", body("", &a.key), 400, "no start line"),
            ("a.example.com", "{\"key\":\"\"}".to_owned(), 400, "are needed"),
            ("a.example.com", "{".to_owned(), 400, "error"),
            ("c.example.com", body(&a.certificate, &a.key), 409, "variables in their names"),
            ("d.example.com", body(&a.certificate, &a.key), 404, "no server"),
        ] {
            let refused = admin(&server, "PUT", name, &body);
            assert_eq!(refused.status, status, "{name} {}", refused.text());
            assert!(refused.text().contains(why), "{}", refused.text());
        }
        assert_eq!(admin(&server, "DELETE", "a.example.com", "").status, 405);
        shows(&server, "a.example.com", &new);

        server.reload(CONF);
        wait_for("the reload", || {
            let it = TlsClient::connect(server.addr(0), "a.example.com", &client(true, None));
            (it.facts().peer == a.shown().chain()).then_some(())
        });
    }

    fn of_very_many_servers_those_that_are_built_when_asked_for_are_as_the_others(driver) {
        let (a, b) = (own("a.example.com"), own("b.example.com"));
        let mut conf = String::from(
            "http { ssl_certificate_key a.key; server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate a.crt; } ",
        );
        for number in 0..1050 {
            write!(conf, "server {{ listen 127.0.0.1:%%PORT_0%%; server_name n{number};
                location / {{ return 200 $server_name; }} }} ").expect("memory");
        }
        conf.push_str("server { listen 127.0.0.1:%%PORT_1%% ssl; server_name last ~^l\\d; ssl_certificate b.crt;
            ssl_certificate_key b.key; location = /own { return 200 own; } } }");
        let server = Server::builder(&conf)
            .file("a.crt", &a.certificate).file("a.key", &a.key)
            .file("b.crt", &b.certificate).file("b.key", &b.key)
            .driver(driver).start();
        for name in ["n0", "n1049"] {
            let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
            let reported = Client::connect(server.addr(0)).request(request);
            assert_eq!(reported.text(), name);
        }
        for name in ["last", "l7"] {
            let mut it = TlsClient::connect(server.addr(1), name, &client(true, None));
            assert_eq!(it.facts().peer, b.shown().chain(), "{name}");
            assert_eq!(it.get("/own", name).text(), "own");
        }
    }
}
