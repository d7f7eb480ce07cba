//! A client that speaks TLS, and certificates to be trusted or not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use weir_test::{ReceivedPart, Response};
use weir_tls::suites::{self, ProtocolVersions};
use weir_tls::{
    Certificate, ClientConfig, ClientHandshake, ClientSettings, HandshakeProgress, SessionFacts, SessionStep,
    TlsSession, certificate, key,
};

/// A certificate with its key, both in PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
    params: CertificateParams,
    pair: KeyPair,
}

/// A certificate for `name` of common name `name`, issued by itself.
pub(crate) fn own(name: &str) -> Pair {
    issued(name, None, false, KeyPair::generate().expect("a key"))
}

/// An authority.
pub(crate) fn authority(name: &str) -> Pair {
    issued(name, None, true, KeyPair::generate().expect("a key"))
}

impl Pair {
    /// A certificate that this one issues.
    pub(crate) fn issue(&self, name: &str) -> Pair {
        issued(name, Some(self), false, KeyPair::generate().expect("a key"))
    }

    /// The same with the number `serial`.
    pub(crate) fn issue_number(&self, name: &str, serial: u64) -> Pair {
        let mut issued = self.issue(name);
        issued.params.serial_number = Some(rcgen::SerialNumber::from(serial));
        let signed = issued.params.signed_by(&issued.pair, &self.issuer()).expect("signed");
        Pair { certificate: signed.pem(), ..issued }
    }

    /// The same, valid between the beginnings of two years.
    pub(crate) fn issue_between(&self, name: &str, from: i32, until: i32) -> Pair {
        let mut issued = self.issue(name);
        issued.params.not_before = rcgen::date_time_ymd(from, 1, 1);
        issued.params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let signed = issued.params.signed_by(&issued.pair, &self.issuer()).expect("signed");
        Pair { certificate: signed.pem(), ..issued }
    }

    /// What signs certificates and lists.
    pub(crate) fn issuer(&self) -> Issuer<'_, &KeyPair> {
        Issuer::from_params(&self.params, &self.pair)
    }

    /// As a client shows it.
    pub(crate) fn shown(&self) -> Certificate {
        let chain = certificate::chain(self.certificate.as_bytes()).expect("a certificate");
        Certificate::new(chain, key::read(self.key.as_bytes(), &[]).expect("a key"), None).expect("they fit")
    }
}

/// A certificate with an RSA key of 3,072 bits.
pub(crate) fn large(name: &str) -> Pair {
    let key = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_3072).expect("a key");
    with_key(name, key)
}

/// A certificate with this key, issued by itself.
pub(crate) fn with_key(name: &str, key: KeyPair) -> Pair {
    issued(name, None, false, key)
}

fn issued(name: &str, by: Option<&Pair>, ca: bool, pair: KeyPair) -> Pair {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let certificate = match by {
        None => params.self_signed(&pair),
        Some(by) => params.signed_by(&pair, &by.issuer()),
    };
    Pair { certificate: certificate.expect("signed").pem(), key: pair.serialize_pem(), params, pair }
}

/// What a client offers.
pub(crate) fn client(tls13: bool, certificate: Option<Certificate>) -> ClientConfig {
    client_of(tls13, certificate, "http/1.1", true)
}

/// What a client that speaks `protocol` offers; `tell_name`: the server's name is sent (SNI).
pub(crate) fn client_of(
    tls13: bool,
    certificate: Option<Certificate>,
    protocol: &str,
    tell_name: bool,
) -> ClientConfig {
    let settings = ClientSettings {
        protocols: ProtocolVersions { tls12: !tls13, tls13 },
        suites: suites::default_suites(),
        groups: suites::default_groups(),
        certificate,
        alpn: vec![protocol.as_bytes().to_vec()],
        tell_name,
        sessions: 16,
        key_log: None,
        signatures: weir_tls::SignatureLimits::default(),
        session_tickets: true,
    };
    ClientConfig::new(&settings).expect("a client")
}

/// A connection, and what was received and not read.
pub(crate) struct TlsClient {
    stream: TcpStream,
    session: TlsSession,
    received: Vec<u8>,
    /// What came after the handshake, as it came.
    raw: Vec<u8>,
    /// The server has said that nothing follows.
    ended: bool,
}

impl TlsClient {
    /// Connects, with every flight cut into pieces of `size` bytes.
    ///
    /// # Errors
    /// What the server's response came to.
    pub(crate) fn cut(
        addr: SocketAddr,
        name: &str,
        config: &ClientConfig,
        size: usize,
    ) -> Result<TlsClient, String> {
        TlsClient::over(TcpStream::connect(addr).expect("a server"), name, config, size)
    }

    /// The same over a connection that is there.
    ///
    /// # Errors
    /// As [`TlsClient::cut`].
    pub(crate) fn over(
        mut stream: TcpStream,
        name: &str,
        config: &ClientConfig,
        size: usize,
    ) -> Result<TlsClient, String> {
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a TCP socket");
        let mut connect = ClientHandshake::new(config, name).expect("a configuration");
        let (mut out, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
        let mut progress = connect.handle(&[], &mut out).expect("a hello");
        loop {
            for piece in std::mem::take(&mut out).chunks(size) {
                stream.write_all(piece).map_err(|error| error.to_string())?;
            }
            if progress == HandshakeProgress::Complete {
                break;
            }
            let n = read(&mut stream, &mut buffer).map_err(|error| error.to_string())?;
            if n == 0 {
                return Err("closed".to_owned());
            }
            progress = connect.handle(&buffer[..n], &mut out).map_err(|error| error.to_string())?;
        }
        let (session, received) = connect.into_session();
        Ok(TlsClient { stream, session, received, raw: Vec::new(), ended: false })
    }

    /// Connects.
    #[track_caller]
    pub(crate) fn connect(addr: SocketAddr, name: &str, config: &ClientConfig) -> TlsClient {
        TlsClient::cut(addr, name, config, 1 << 20).unwrap_or_else(|error| panic!("handshake: {error}"))
    }

    /// Connects, and sends `request` in one write with the handshake's last message. Beside it what the next read has brought.
    #[track_caller]
    pub(crate) fn at_once(
        addr: SocketAddr,
        name: &str,
        config: &ClientConfig,
        request: &[u8],
    ) -> (TlsClient, Vec<u8>) {
        let mut stream = TcpStream::connect(addr).expect("a server");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a TCP socket");
        let mut connect = ClientHandshake::new(config, name).expect("a configuration");
        let (mut out, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
        while connect.handle(&[], &mut out).expect("a flight") != HandshakeProgress::Complete {
            stream.write_all(&std::mem::take(&mut out)).expect("the server reads");
            let n = read(&mut stream, &mut buffer).expect("the server answers");
            if connect.handle(&buffer[..n], &mut out).expect("a flight") == HandshakeProgress::Complete {
                break;
            }
        }
        let (mut session, received) = connect.into_session();
        session.seal(request, &mut out);
        stream.write_all(&out).expect("the server reads");
        let mut client = TlsClient { stream, session, received, raw: Vec::new(), ended: false };
        client.more();
        let first = client.received.clone();
        (client, first)
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let mut out = Vec::new();
        self.session.seal(bytes, &mut out);
        self.stream.write_all(&out).expect("the server reads");
    }

    /// Reads the next response.
    #[track_caller]
    pub(crate) fn response(&mut self) -> Response {
        let mut ended = false;
        loop {
            match Response::parse(&self.received, ReceivedPart::of(ended)).expect("an answer") {
                Some((response, taken)) => {
                    self.received.drain(..taken);
                    return response;
                }
                None => ended = !self.more(),
            }
        }
    }

    /// What comes next, of whatever protocol.
    #[allow(dead_code, reason = "each test file uses its own part")]
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        while self.received.is_empty() {
            assert!(self.more() || !self.received.is_empty(), "the server closed the connection");
        }
        std::mem::take(&mut self.received)
    }

    /// Receives; `false`: nothing follows.
    fn more(&mut self) -> bool {
        let (mut buffer, mut out) = (vec![0; 64 * 1024], Vec::new());
        let n = read(&mut self.stream, &mut buffer).expect("the server answers");
        self.raw.extend_from_slice(&buffer[..n]);
        let step = self.session.open(&buffer[..n], &mut self.received, &mut out).expect("good records");
        self.stream.write_all(&out).expect("the server reads");
        self.ended |= step == SessionStep::End;
        n > 0 && !self.ended
    }

    /// Whether the server says, in TLS, that nothing follows.
    pub(crate) fn ends(&mut self) -> bool {
        while !self.ended && self.more() {}
        self.ended && self.received.is_empty()
    }

    /// `GET path` for `host`.
    #[track_caller]
    pub(crate) fn get(&mut self, path: &str, host: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        self.response()
    }

    /// Bytes of what is in each record that came whole, sealed as they are. Not for a connection of which bytes came along
    /// with the end of the handshake.
    pub(crate) fn records(&self) -> Vec<usize> {
        let (mut rest, mut lengths) = (&self.raw[..], Vec::new());
        while let Some((head, behind)) = rest.split_at_checked(5) {
            let length = usize::from(head[3]) << 8 | usize::from(head[4]);
            let Some(next) = behind.get(length..) else { break };
            lengths.push(length);
            rest = next;
        }
        lengths
    }

    pub(crate) fn facts(&self) -> SessionFacts {
        self.session.facts()
    }
}

/// A receive with a time limit is not begun again by the system when a signal interrupts it (of a server that ends, say).
fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
