//! What a client gets first: a response together with the tickets, in records that don't wait for their ends.

use std::time::Duration;

use weir_test::{Server, both_drivers};

use crate::support::tls::{Pair, TlsClient, client, client_of, own};

const CONF: &str = "worker_processes 2; http { server { listen 127.0.0.1:%%PORT%% ssl reuseport; server_name a.example.com; http2 on;
    ssl_certificate a.crt; ssl_certificate_key a.key; root .; location = /six { return 200 sixsix; } } }";

fn started(pair: &Pair, driver: weir_test::Driver) -> Server {
    let server = Server::builder(CONF).file("a.crt", &pair.certificate).file("a.key", &pair.key);
    server.file("big", vec![b'x'; 200_000]).driver(driver).start()
}

/// The preface, empty SETTINGS, and a request for `/six` that ends its stream.
fn http2_request() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let head = b"\x82\x87\x41\x0da.example.com\x04\x04/six";
    bytes.extend_from_slice(&[0, 0, head.len() as u8, 1, 5, 0, 0, 0, 1]);
    bytes.extend_from_slice(head);
    bytes
}

/// Lengths of the records of `/big`, without what TLS 1.2 with AES-GCM adds.
fn records(it: &mut TlsClient) -> Vec<usize> {
    let known = it.records().len();
    assert_eq!(it.get("/big", "a.example.com").body.len(), 200_000);
    it.records()[known..].iter().map(|length| length - 24).collect()
}

both_drivers! {
    /// One write has all of it, so one read does, too.
    fn a_response_leaves_with_the_tickets(driver) {
        let pair = own("a.example.com");
        let server = started(&pair, driver);
        for tls13 in [false, true] {
            let request = b"GET /six HTTP/1.1\r\nHost: a.example.com\r\n\r\n";
            let (_, first) = TlsClient::at_once(server.addr(0), "a.example.com", &client(tls13, None), request);
            assert!(first.ends_with(b"\r\n\r\nsixsix"), "{:?}", String::from_utf8_lossy(&first));
            let config = client_of(tls13, None, "h2", true);
            let (_, first) = TlsClient::at_once(server.addr(0), "a.example.com", &config, &http2_request());
            assert_eq!(first.get(3), Some(&4), "SETTINGS are first: {first:?}");
            assert!(first.ends_with(b"sixsix"), "{first:?}");
        }
    }

    /// A client that says nothing has the end of its handshake nevertheless.
    fn a_handshake_ends_without_a_request(driver) {
        let pair = own("a.example.com");
        let server = started(&pair, driver);
        for tls13 in [false, true] {
            let mut it = TlsClient::connect(server.addr(0), "a.example.com", &client(tls13, None));
            assert_eq!(it.get("/six", "a.example.com").text(), "sixsix");
        }
    }

    fn the_first_records_are_short(driver) {
        let pair = own("a.example.com");
        let server = started(&pair, driver);
        let mut it = TlsClient::connect(server.addr(0), "a.example.com", &client(false, None));
        let first = records(&mut it);
        assert!(first[..11].iter().all(|length| *length <= 1_399), "{first:?}");
        assert!(first.iter().take(22).all(|length| *length <= 3 * 1_428), "{first:?}");
        assert_eq!(first.iter().max(), Some(&(16 * 1024)), "{first:?}");
        assert!(first.len() < 45, "{first:?}");
        // The window is open now, until the connection has rested.
        let second = records(&mut it);
        assert!(second[1..second.len() - 1].iter().all(|length| *length == 16 * 1024), "{second:?}");
        std::thread::sleep(Duration::from_millis(1_200));
        let rested = records(&mut it);
        assert!(rested[..11].iter().all(|length| *length <= 1_399), "{rested:?}");
    }
}
