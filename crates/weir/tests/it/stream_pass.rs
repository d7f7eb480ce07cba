//! `pass` of `stream`: a connection goes on at another address of the configuration.

use crate::support::tls as support;

use support::{TlsClient, client, client_of, own};
use weir_test::{Client, ConnectionEnd, Server, both_drivers, wait_for};

const HTTP: &str = "log_format t '$remote_addr $server_port $scheme $status'; access_log %%DIR%%/http.log t;";
const STREAM: &str = "log_format t '$server_port $status'; access_log %%DIR%%/access.log t;";

/// What a connection gets that sends nothing, and how it ends.
fn said(server: &Server, port: usize) -> (String, ConnectionEnd) {
    let (bytes, end) = Client::connect(server.addr(port)).rest();
    (String::from_utf8_lossy(&bytes).into_owned(), end)
}

both_drivers! {
    fn a_connection_goes_on_as_one_of_http(driver) {
        for workers in [1, 3] {
            let server = Server::builder(&format!("worker_processes {workers};
                http {{ {HTTP}
                    server {{ listen 127.0.0.1:%%PORT%%; location / {{ return 200 '$remote_addr $remote_port $server_addr:$server_port $scheme'; }} }}
                    server {{ listen %%PORT_1%%; return 200 'all $server_addr'; }}
                    server {{ listen unix:%%DIR%%/h.sock; return 200 unix; }} }}
                stream {{ {STREAM}
                    map $server_port $to {{ default 127.0.0.1:%%PORT%%; }}
                    server {{ listen 127.0.0.1:%%PORT_2%%; pass 127.0.0.1:%%PORT%%; }}
                    server {{ listen 127.0.0.1:%%PORT_3%%; pass $to; }}
                    server {{ listen 127.0.0.1:%%PORT_4%%; pass 127.0.0.2:%%PORT_1%%; }}
                    server {{ listen 127.0.0.1:%%PORT_5%%; pass unix:%%DIR%%/h.sock; }}
                    server {{ listen 127.0.0.1:%%PORT_6%%; return logged; }} }}")).driver(driver).start();
            for port in [2, 3] {
                let mut client = Client::connect(server.addr(port));
                let text = format!("127.0.0.1 {} 127.0.0.1:{} http", client.local_addr().port(), server.port(0));
                for _ in 0..3 {
                    assert_eq!(client.get("/").text(), text);
                }
                // Idle for longer than it takes to be parked.
                std::thread::sleep(std::time::Duration::from_millis(1200));
                assert_eq!(client.get("/").text(), text);
            }
            assert_eq!(Client::connect(server.addr(4)).get("/").text(), "all 127.0.0.2");
            assert_eq!(Client::connect(server.addr(5)).get("/").text(), "unix");
            // A session that is passed on has no line of its own.
            assert_eq!(said(&server, 6).0, "logged");
            assert_eq!(server.access_log_lines(1), [format!("{} 200", server.port(6))]);
        }
    }

    fn tls_that_has_ended_in_stream_is_the_request_s(driver) {
        let a = own("a.example.com");
        let server = Server::builder(&format!("http {{ {HTTP} http2 on;
                server {{ listen 127.0.0.1:%%PORT%%; return 200 '$scheme $ssl_protocol $ssl_server_name $server_protocol'; }}
                server {{ listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key; return 200 https; }} }}
            stream {{ ssl_certificate a.crt; ssl_certificate_key a.key;
                server {{ listen 127.0.0.1:%%PORT_2%% ssl; pass 127.0.0.1:%%PORT%%; }}
                server {{ listen 127.0.0.1:%%PORT_3%% ssl; pass 127.0.0.1:%%PORT_1%%; }} }}"))
            .file("a.crt", &a.certificate).file("a.key", &a.key).driver(driver).start();
        for (tls13, version) in [(true, "TLSv1.3"), (false, "TLSv1.2")] {
            let mut tls = TlsClient::connect(server.addr(2), "a.example.com", &client(tls13, None));
            for _ in 0..2 {
                assert_eq!(tls.get("/", "x").text(), format!("https {version} a.example.com HTTP/1.1"));
            }
        }
        // TLS in TLS is what no client means.
        let mut tls = TlsClient::connect(server.addr(3), "a.example.com", &client(true, None));
        assert!(tls.ends());
        assert!(server.error_log_line("cannot pass a connection with TLS to \"127.0.0.1:").contains("[error]"));
    }

    /// What was looked at is read again where the connection goes on.
    fn a_name_in_a_hello_chooses_where_tls_ends(driver) {
        let (a, b) = (own("a.example.com"), own("b.example.com"));
        let server = Server::builder("http { server { listen 127.0.0.1:%%PORT%% ssl; http2 on; ssl_certificate a.crt; ssl_certificate_key a.key;
                return 200 'http $ssl_server_name'; } }
            stream { map $ssl_preread_server_name $to { a.example.com 127.0.0.1:%%PORT%%; default 127.0.0.1:%%PORT_1%%; }
                server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate b.crt; ssl_certificate_key b.key; return 'stream $ssl_server_name'; }
                server { listen 127.0.0.1:%%PORT_2%%; ssl_preread on; pass $to; } }")
            .file("a.crt", &a.certificate).file("a.key", &a.key).file("b.crt", &b.certificate).file("b.key", &b.key)
            .driver(driver).start();
        for size in [1 << 20, 1] {
            let mut tls = TlsClient::cut(server.addr(2), "a.example.com", &client_of(true, None, "http/1.1", true), size).expect("a handshake");
            assert_eq!(tls.get("/", "a.example.com").text(), "http a.example.com");
            let mut tls = TlsClient::cut(server.addr(2), "b.example.com", &client(true, None), size).expect("a handshake");
            assert_eq!(tls.bytes(), b"stream b.example.com");
        }
    }

    fn the_client_s_address_goes_along(driver) {
        let server = Server::builder(&format!("http {{ {HTTP}
                server {{ listen 127.0.0.1:%%PORT%%; return 200 '$remote_addr $proxy_protocol_addr'; }}
                server {{ listen 127.0.0.1:%%PORT_1%% proxy_protocol; return 200 '$remote_addr $proxy_protocol_addr'; }} }}
            stream {{
                server {{ listen 127.0.0.1:%%PORT_2%% proxy_protocol; set_real_ip_from 127.0.0.1; pass 127.0.0.1:%%PORT%%; }}
                server {{ listen 127.0.0.1:%%PORT_3%% proxy_protocol; pass 127.0.0.1:%%PORT_1%%; }} }}")).driver(driver).start();
        let line = |ip: &str| format!("PROXY TCP4 {ip} 192.0.2.9 5678 80\r\n");
        let get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        // Header and request in one piece: what is left of it goes along.
        let mut client = Client::connect(server.addr(2));
        assert_eq!(client.request(format!("{}{get}", line("192.0.2.1"))).text(), "192.0.2.1 192.0.2.1");
        let mut client = Client::connect(server.addr(3));
        assert_eq!(client.request(format!("{}{}{get}", line("192.0.2.1"), line("192.0.2.2"))).text(), "127.0.0.1 192.0.2.2");
    }

    fn what_can_t_be_passed_on_is_closed_and_logged(driver) {
        let server = Server::builder(&format!("stream {{ {STREAM}
            map $server_port $nowhere {{ default localhost:80; }}
            server {{ listen 127.0.0.1:%%PORT%%; pass 127.0.0.1:1; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; pass $nowhere; }}
            server {{ listen 127.0.0.1:%%PORT_2%%; pass 127.0.0.1:%%PORT_3%%; }}
            server {{ listen 127.0.0.1:%%PORT_3%%; pass 127.0.0.1:%%PORT_2%%; }} }}")).driver(driver).start();
        for port in 0..4 {
            assert_eq!(said(&server, port).0, "");
        }
        for message in ["port not found for \"127.0.0.1:1\"", "no addresses in pass \"localhost:80\"", "it was passed 8 times"] {
            assert!(server.error_log_line(message).contains("[error]"));
        }
        let lines = server.access_log_lines(4);
        assert!(lines.iter().all(|line| line.ends_with(" 500")), "{lines:?}");
    }

    /// Or a limit would be none.
    fn a_session_s_limits_hold_until_its_connection_ends(driver) {
        let server = Server::builder(&format!("http {{ access_log off; server {{ listen 127.0.0.1:%%PORT%%; return 200 http; }} }}
            stream {{ {STREAM} limit_conn_zone $remote_addr zone=z:1m;
                server {{ listen 127.0.0.1:%%PORT_1%%; limit_conn z 1; pass 127.0.0.1:%%PORT%%; }} }}")).driver(driver).start();
        let mut first = Client::connect(server.addr(1));
        assert_eq!(first.get("/").text(), "http");
        for _ in 0..2 {
            assert_eq!(said(&server, 1).0, "");
        }
        assert_eq!(first.get("/").text(), "http");
        drop(first);
        wait_for("the place", || {
            let mut next = Client::connect(server.addr(1));
            next.try_send("GET / HTTP/1.0\r\n\r\n").ok()?;
            next.try_response().is_ok().then_some(())
        });
        let lines = server.access_log_lines(2);
        assert!(lines.iter().all(|line| line.ends_with(" 503")), "{lines:?}");
    }

    fn a_connection_that_was_passed_on_lives_through_a_reload(driver) {
        let conf = |text: &str, extra: &str| format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; return 200 {text}; }} }}
            stream {{ server {{ listen 127.0.0.1:%%PORT_1%%; {extra} }} }}");
        let mut server = Server::builder(&conf("old", "pass 127.0.0.1:%%PORT%%;")).driver(driver).start();
        let mut client = Client::connect(server.addr(1));
        assert_eq!(client.get("/").text(), "old");
        server.reload(&conf("new", "return gone;"));
        wait_for("the new configuration", || {
            let mut next = Client::connect(server.addr(1));
            next.try_send("GET / HTTP/1.0\r\n\r\n").ok()?;
            (next.rest().0 == b"gone").then_some(())
        });
        assert_eq!(client.get("/").text(), "new");
        server.signal(weir_test::ServerSignal::Quit);
        client.expect_close();
        assert!(server.wait_exit().status.success());
    }
}
