//! Early data of TLS 1.3 (RFC 8446, section 4.2.10): taken once, refused and skipped, and what servers get to know of it
//! (RFC 8470).

use crate::support::tls as support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use support::{Pair, own};
use weir_test::{Backend, ReceivedPart, Response, Server, both_drivers};

const NAME: &str = "a.example.com";

/// A server for `NAME` that says `$ssl_early_data`, whether the session is an earlier one, and the method.
fn conf(more: &str) -> String {
    format!(
        "http {{ server {{ listen 127.0.0.1:%%PORT%% ssl; server_name {NAME}; ssl_certificate a.crt;
            ssl_certificate_key a.key; {more} location / {{ return 200 '$ssl_early_data|$ssl_session_reused|$request_method'; }} }} }}"
    )
}

fn start(text: &str, pair: &Pair, driver: weir_test::Driver) -> Server {
    Server::builder(text).file("a.crt", &pair.certificate).file("a.key", &pair.key).driver(driver).start()
}

/// Trusts any server.
#[derive(Debug)]
struct AnyServer(CryptoProvider);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A client of TLS 1.3 that sends early data wherever it has a session for that.
fn client() -> Arc<rustls::ClientConfig> {
    let provider = aws_lc_rs::default_provider();
    let verifier = Arc::new(AnyServer(provider.clone()));
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.enable_early_data = true;
    config.resumption = Resumption::in_memory_sessions(8);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// A connection, and its plain bytes that were not read.
struct EarlyClient {
    tcp: TcpStream,
    tls: ClientConnection,
    plain: Vec<u8>,
}

impl EarlyClient {
    /// Connects with a first flight that has `early` in it, `piece` bytes of it in each record; `rest` follows as it is.
    fn connect(
        addr: SocketAddr,
        config: &Arc<rustls::ClientConfig>,
        early: &[u8],
        piece: usize,
        rest: &[u8],
    ) -> (EarlyClient, Vec<u8>) {
        let name = ServerName::try_from(NAME).expect("a name");
        let mut tls = ClientConnection::new(config.clone(), name).expect("a client");
        let tcp = TcpStream::connect(addr).expect("a server");
        tcp.set_read_timeout(Some(Duration::from_secs(60))).expect("a TCP socket");
        tcp.set_nodelay(true).expect("a TCP socket");
        let (mut tcp, mut flight) = (tcp, Vec::new());
        let mut write = |tls: &mut ClientConnection| {
            let from = flight.len();
            while tls.wants_write() {
                tls.write_tls(&mut flight).expect("memory");
            }
            tcp.write_all(&flight[from..]).expect("the server reads");
        };
        for piece in early.chunks(piece.max(1)) {
            let mut early = tls.early_data().expect("a session that takes early data");
            assert_eq!(early.write(piece).expect("early data"), piece.len(), "the session allows less");
            write(&mut tls);
        }
        write(&mut tls);
        // A server that has enough of them may have closed the connection.
        let _ = tcp.write_all(rest);
        (EarlyClient { tcp, tls, plain: Vec::new() }, flight)
    }

    /// Completes the handshake.
    fn complete(&mut self) -> Result<(), String> {
        while self.tls.is_handshaking() {
            self.exchange()?;
        }
        self.flush();
        Ok(())
    }

    fn flush(&mut self) {
        while self.tls.wants_write() && self.tls.write_tls(&mut self.tcp).is_ok() {}
    }

    /// Sends what is to be sent, and receives once.
    fn exchange(&mut self) -> Result<(), String> {
        self.flush();
        self.receive()
    }

    /// Receives once.
    fn receive(&mut self) -> Result<(), String> {
        match self.tls.read_tls(&mut self.tcp) {
            Ok(0) => return Err("closed".to_owned()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
        self.tls.process_new_packets().map_err(|error| error.to_string())?;
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = self.tls.reader().read(&mut buffer) {
            self.plain.extend_from_slice(&buffer[..n]);
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).expect("memory");
        self.flush();
    }

    #[track_caller]
    fn response(&mut self) -> Response {
        self.flush();
        self.early_response()
    }

    /// A response, while what the client has to send stays with it: the end of its handshake, say.
    #[track_caller]
    fn early_response(&mut self) -> Response {
        loop {
            if let Some((response, taken)) =
                Response::parse(&self.plain, ReceivedPart::SoFar).expect("a response")
            {
                self.plain.drain(..taken);
                return response;
            }
            self.receive().expect("the server responds");
        }
    }
}

fn get(size: usize) -> Vec<u8> {
    let head = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nX: ");
    let fill = "x".repeat(size.saturating_sub(head.len() + 4));
    format!("{head}{fill}\r\n\r\n").into_bytes()
}

/// Gives `config` a session of the server at `addr` that takes early data.
fn learn(addr: SocketAddr, config: &Arc<rustls::ClientConfig>) {
    let (mut it, _) = EarlyClient::connect(addr, config, &[], 1, &[]);
    it.complete().expect("a handshake");
    it.send(&get(0));
    assert_eq!(it.response().text(), "|.|GET");
}

/// A record of application data that no key opens.
fn garbage(size: usize) -> Vec<u8> {
    let mut record = vec![23, 3, 3];
    record.extend((size as u16).to_be_bytes());
    record.extend((0..size).map(|n| (n * 7 + 3) as u8));
    record
}

/// Servers that know no session of another one.
const REFUSING: [&str; 6] = [
    "",
    "ssl_session_tickets off;",
    "ssl_session_tickets off; ssl_session_cache shared:all:1m;",
    "ssl_early_data on;",
    // A client's first share of a key is of none of these groups: it is asked for another hello.
    "ssl_ecdh_curve secp384r1;",
    "ssl_early_data on; ssl_ecdh_curve secp384r1;",
];

both_drivers! {
    fn refused_early_data_is_skipped_and_the_handshake_goes_on(driver) {
        let pair = own(NAME);
        let other = start(&conf("ssl_early_data on;"), &pair, driver);
        for more in REFUSING {
            let server = start(&conf(more), &pair, driver);
            for (size, piece) in [(100, 100), (16_000, 50), (16_000, 1000), (16_384, 16_384)] {
                let config = client();
                learn(other.addr(0), &config);
                let (mut it, _) = EarlyClient::connect(server.addr(0), &config, &get(size), piece, &[]);
                it.complete().unwrap_or_else(|error| panic!("{more:?}, {size} in {piece}: {error}"));
                assert!(!it.tls.is_early_data_accepted());
                it.send(&get(0));
                assert_eq!(it.response().text(), "|.|GET", "{more:?}: it was not seen as a request");
            }
        }
    }

    fn too_much_refused_early_data_ends_the_connection(driver) {
        let pair = own(NAME);
        let other = start(&conf("ssl_early_data on;"), &pair, driver);
        for more in REFUSING {
            let server = start(&conf(more), &pair, driver);
            let config = client();
            learn(other.addr(0), &config);
            let (mut it, _) = EarlyClient::connect(server.addr(0), &config, &get(100), 100, &garbage(16_000).repeat(8));
            // The client's side may be complete before the server has seen all of it.
            let end = it.complete().err().unwrap_or_else(|| loop {
                if let Err(end) = it.exchange() {
                    break end;
                }
            });
            assert!(!it.plain.starts_with(b"HTTP"), "{more:?}: {end}");
            assert!(server.error_log_line("SSL_do_handshake() failed").contains("too much early data"), "{more:?}");
        }
    }

    fn early_data_is_taken_once_and_servers_are_told(driver) {
        let (seen, heads) = mpsc::channel();
        let backend = Backend::start(move |visit| {
            while let Some(head) = visit.head() {
                let early = head.to_ascii_lowercase().contains("\r\nearly-data: 1\r\n");
                let _ = seen.send((head.lines().next().unwrap_or_default().to_owned(), early));
                let status = if early { "425 Too Early" } else { "200 OK" };
                visit.send(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nup"));
            }
        });
        let up = format!(
            "ssl_early_data on; location /up {{ proxy_pass http://127.0.0.1:{}; proxy_set_header Early-Data $ssl_early_data;
                proxy_http_version 1.1; proxy_next_upstream error timeout http_500 non_idempotent; }}",
            backend.port()
        );
        let pair = own(NAME);
        let server = start(&conf(&up).replace("server {", "access_log off; server {"), &pair, driver);
        let config = client();
        learn(server.addr(0), &config);
        let post = format!("POST /up HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 3\r\n\r\nabc");
        let (mut it, flight) = EarlyClient::connect(server.addr(0), &config, post.as_bytes(), 1000, &[]);
        it.complete().expect("a handshake");
        assert!(it.tls.is_early_data_accepted());
        let early = it.response();
        assert_eq!((early.status, early.text().as_str()), (425, "up"), "the server's 425 is passed on");
        it.send(post.as_bytes());
        assert_eq!(it.response().status, 200, "the same again behind the handshake is no early data");
        let all: Vec<_> = heads.try_iter().collect();
        let line = "POST /up HTTP/1.1".to_owned();
        assert_eq!(all, [(line.clone(), true), (line, false)], "425 is not tried again");

        // The same bytes again are refused: the server waits for a client that knows the new handshake's keys.
        let mut again = TcpStream::connect(server.addr(0)).expect("a server");
        again.write_all(&flight).expect("the server reads");
        again.shutdown(std::net::Shutdown::Write).expect("a TCP socket");
        let mut said = Vec::new();
        let _ = again.read_to_end(&mut said);
        assert!(heads.try_recv().is_err(), "a repeated request reached the server");
        assert_eq!(said.first(), Some(&22), "a handshake was begun");
    }

    fn requests_in_early_data_are_marked_until_the_handshake_is_over(driver) {
        let pair = own(NAME);
        let server = start(&conf("ssl_early_data on;"), &pair, driver);
        let config = client();
        learn(server.addr(0), &config);
        let (mut it, _) = EarlyClient::connect(server.addr(0), &config, &[get(300), get(0)].concat(), 200, &[]);
        for request in ["first", "second"] {
            assert_eq!(it.early_response().text(), "1|r|GET", "{request}");
        }
        assert!(it.tls.is_early_data_accepted());
        it.complete().expect("a handshake");
        it.send(&get(0));
        assert_eq!(it.response().text(), "|r|GET", "the handshake is over");
    }
}
