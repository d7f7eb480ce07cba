//! A client and a server of quinn-proto, their datagrams handed over in memory, and the configurations that the tests begin with.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event,
    Incoming, StreamId,
};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use weir_tls::quic::{QuicFacts, QuicKeys, QuicServerConfig};
use weir_tls::suites::{self, ProtocolVersions};
use weir_tls::{Certificate, ServerConfig, ServerSettings, SignatureLimits, TicketKeys, certificate, key};

pub(crate) const NAME: &str = "a.example.com";
pub(crate) const H3: &[&[u8]] = &[b"h3"];

/// A certificate of [`NAME`] that is its own authority.
pub(crate) struct Identity {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) key: KeyPair,
}

impl Identity {
    pub(crate) fn new() -> Identity {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![NAME.to_owned()]).expect("a name");
        let der = params.self_signed(&key).expect("signed").der().clone();
        Identity { der, key }
    }

    pub(crate) fn certificate(&self) -> Certificate {
        let pem = pem(&self.der);
        let chain = certificate::chain(pem.as_bytes()).expect("a certificate");
        let key = key::read(self.key.serialize_pem().as_bytes(), &[]).expect("a key");
        Certificate::new(chain, key, None).expect("they fit")
    }
}

fn pem(der: &[u8]) -> String {
    use std::fmt::Write;
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for group in der.chunks(3) {
        let bits =
            group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..4 {
            let digit = char::from(ALPHABET[(bits >> (18 - 6 * at) & 63) as usize]);
            let _ = write!(text, "{}", if at > group.len() { '=' } else { digit });
        }
    }
    text + "\n-----END CERTIFICATE-----\n"
}

/// A server's settings with both versions of TLS and tickets.
pub(crate) fn settings() -> ServerSettings {
    ServerSettings {
        protocols: ProtocolVersions::default(),
        suites: suites::default_suites(),
        groups: suites::default_groups(),
        compress: false,
        prefer_own_order: false,
        prioritize_chacha: false,
        alpn: vec![b"http/1.1".to_vec()],
        cache: None,
        tickets: Some(TicketKeys::random(300).expect("random bytes").tickets(b"", 300)),
        early_data: 0,
        client_subjects: None,
        signatures: SignatureLimits::default(),
        tickets_sent: None,
    }
}

pub(crate) fn server(settings: &ServerSettings, identity: &Identity) -> ServerConfig {
    ServerConfig::new(settings, vec![identity.certificate()]).expect("a server")
}

/// A client that trusts `server`, shows `own` if it is asked, and offers `alpn`.
pub(crate) fn client(server: &Identity, own: Option<&Identity>, alpn: &[&[u8]]) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(server.der.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version")
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let key = own.key.serialize_der().try_into().expect("a key");
            builder.with_client_auth_cert(vec![own.der.clone()], key).expect("they fit")
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    config.enable_early_data = true;
    config
}

/// How a server receives a client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reception {
    Accept,
    /// With a Retry packet first.
    Retry,
}

/// One side of a [`Pair`].
pub(crate) struct End {
    endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    pub(crate) connection: Option<(ConnectionHandle, Connection)>,
    pub(crate) events: Vec<Event>,
}

impl End {
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection.as_mut().expect("it has begun").1
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Connected))
    }

    /// Why the connection was lost.
    pub(crate) fn lost(&self) -> Option<&ConnectionError> {
        self.events.iter().find_map(|event| match event {
            Event::ConnectionLost { reason } => Some(reason),
            _ => None,
        })
    }

    pub(crate) fn facts(&mut self) -> Box<QuicFacts> {
        let data = self.connection().crypto_session().handshake_data().expect("the hello has come");
        data.downcast::<QuicFacts>().expect("that is what it is")
    }

    /// What the connection has to send.
    fn datagrams(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let Some((handle, connection)) = &mut self.connection else { return Vec::new() };
        let mut all = Vec::new();
        loop {
            let mut datagram = Vec::new();
            if connection.poll_transmit(now, 1, &mut datagram).is_none() {
                break;
            }
            all.push(datagram);
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        self.events.extend(std::iter::from_fn(|| connection.poll()));
        all
    }
}

/// A client and a server.
pub(crate) struct Pair {
    pub(crate) client: End,
    pub(crate) server: End,
    pub(crate) now: Instant,
    reception: Reception,
}

impl Pair {
    pub(crate) fn new(
        client: &rustls::ClientConfig,
        server: Arc<QuicServerConfig>,
        reception: Reception,
    ) -> Pair {
        let keys = QuicKeys::from_host_key(b"the server's");
        let config = quinn_proto::ServerConfig::new(server, keys.token_key());
        let endpoint = |config| {
            let common = Arc::new(EndpointConfig::new(keys.reset_key()));
            Endpoint::new(common, config, true, None)
        };
        let end = |endpoint, port| End {
            endpoint,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            connection: None,
            events: Vec::new(),
        };
        let (mut client_end, server_end) = (end(endpoint(None), 1), end(endpoint(Some(Arc::new(config))), 2));
        let now = Instant::now();
        let crypto = Arc::new(QuicClientConfig::try_from(client.clone()).expect("TLS 1.3"));
        let config = quinn_proto::ClientConfig::new(crypto);
        let connection = client_end.endpoint.connect(now, config, server_end.address, NAME);
        client_end.connection = Some(connection.expect("a connection"));
        Pair { client: client_end, server: server_end, now, reception }
    }

    /// Hands datagrams over until no side has more to say.
    pub(crate) fn run(&mut self) {
        for _ in 0..100 {
            let to_server = self.client.datagrams(self.now);
            let mut to_client = Vec::new();
            for datagram in &to_server {
                to_client.extend(self.receive_at_server(datagram));
            }
            to_client.extend(self.server.datagrams(self.now));
            for datagram in &to_client {
                let (from, mut out) = (self.server.address, Vec::new());
                let event = self.client.endpoint.handle(
                    self.now,
                    from,
                    None,
                    None,
                    BytesMut::from(&datagram[..]),
                    &mut out,
                );
                if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                    self.client.connection().handle_event(event);
                }
            }
            if to_server.is_empty() && to_client.is_empty() {
                return;
            }
            self.now += Duration::from_millis(1);
        }
        panic!("they do not come to an end");
    }

    /// What the server's endpoint itself sends back.
    pub(crate) fn receive_at_server(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let (from, mut out) = (self.client.address, Vec::new());
        let datagram = BytesMut::from(datagram);
        match self.server.endpoint.handle(self.now, from, None, None, datagram, &mut out)? {
            DatagramEvent::ConnectionEvent(_, event) => self.server.connection().handle_event(event),
            DatagramEvent::NewConnection(incoming) => self.receive_client(incoming, &mut out),
            DatagramEvent::Response(_) => {}
        }
        (!out.is_empty()).then_some(out)
    }

    fn receive_client(&mut self, incoming: Incoming, out: &mut Vec<u8>) {
        if self.reception == Reception::Retry && !incoming.remote_address_validated() {
            let sent = self.server.endpoint.retry(incoming, out).expect("it was not validated");
            assert_eq!(sent.size, out.len());
            return;
        }
        match self.server.endpoint.accept(incoming, self.now, out, None) {
            Ok(connection) => self.server.connection = Some(connection),
            Err(error) => self.server.events.push(Event::ConnectionLost { reason: error.cause }),
        }
    }

    /// The client's first datagrams, which nobody has received.
    pub(crate) fn first_datagrams(&mut self) -> Vec<Vec<u8>> {
        self.client.datagrams(self.now)
    }

    /// Sends `text` on a new stream of the client.
    pub(crate) fn send(&mut self, text: &[u8]) {
        let id = self.client.connection().streams().open(Dir::Bi).expect("streams are allowed");
        let mut stream = self.client.connection().send_stream(id);
        assert_eq!(stream.write(text), Ok(text.len()));
        stream.finish().expect("it is open");
    }

    /// What the server has received on its next stream.
    pub(crate) fn received(&mut self) -> Option<Vec<u8>> {
        let id: StreamId = self.server.connection().streams().accept(Dir::Bi)?;
        let mut stream = self.server.connection().recv_stream(id);
        let mut chunks = stream.read(true).expect("a stream");
        let mut all = Vec::new();
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            all.extend_from_slice(&chunk.bytes);
        }
        let _ = chunks.finalize();
        Some(all)
    }
}
