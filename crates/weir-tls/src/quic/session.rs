//! A server's session of one connection. rustls makes the handshake; what it does not show is noted on the way, as over TCP.

use std::any::Any;
use std::fmt;

use quinn_proto::crypto::{self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::quic::{Connection, KeyChange, Secrets, ServerConnection, Version};

use crate::error::Error;
use crate::secrets::HandshakeSecrets;
use crate::session::{self, HandshakeNotes, SessionFacts};

use super::config::QuicServerConfig;
use super::parameters;
use super::version::{self, for_quinn};

/// What quinn-proto runs a connection's handshake with.
pub(super) struct QuicSession {
    conn: Connection,
    version: Version,
    /// Of which the keys of the next phase are made.
    next: Option<Secrets>,
    notes: HandshakeNotes,
    secrets: Option<Box<HandshakeSecrets>>,
    /// The ClientHello was taken: there is something to say of the handshake.
    is_ready: bool,
    /// Why the handshake failed.
    failure: Option<Error>,
}

/// What a session says of itself (`handshake_data()`): each time as much as is known.
#[derive(Debug)]
pub struct QuicFacts {
    /// What the handshake agreed upon. Client certificates are known once it is complete.
    pub session: SessionFacts,
    /// The name that the client asked for (SNI).
    pub server_name: Option<String>,
    /// The client's early data is taken; it may have been sent before.
    pub takes_early_data: bool,
    /// What the handshake has agreed upon in secret, whole once it is complete.
    pub secrets: Box<HandshakeSecrets>,
    /// Why the handshake failed; the same text is in the connection's error, whose code has the alert.
    pub failure: Option<Error>,
}

impl QuicSession {
    pub(super) fn new(config: &QuicServerConfig, version: Version, own: &TransportParameters) -> QuicSession {
        let mut encoded = Vec::new();
        own.write(&mut encoded);
        let encoded = parameters::with_connection_ids(encoded, config.connection_ids);
        let conn = ServerConnection::new(config.rustls.clone(), version, encoded);
        QuicSession {
            conn: conn.expect("QuicServerConfig::new() has looked at all that may fail").into(),
            version,
            next: None,
            notes: HandshakeNotes::default(),
            secrets: Some(HandshakeSecrets::new()),
            is_ready: false,
            failure: None,
        }
    }

    fn server(&self) -> Option<&ServerConnection> {
        match &self.conn {
            Connection::Server(server) => Some(server),
            Connection::Client(_) => None,
        }
    }

    fn facts(&self) -> QuicFacts {
        let mut secrets = self.secrets.clone().unwrap_or_else(HandshakeSecrets::new);
        secrets.settle(self.conn.negotiated_cipher_suite());
        QuicFacts {
            session: session::facts(&self.conn, self.notes),
            server_name: self.server().and_then(ServerConnection::server_name).map(str::to_owned),
            takes_early_data: self.conn.zero_rtt_keys().is_some(),
            secrets,
            failure: self.failure.clone(),
        }
    }

    fn failed(&mut self, error: rustls::Error) -> TransportError {
        let error = Error::from(error);
        let code = self.conn.alert().map(|alert| TransportErrorCode::crypto(alert.into()));
        let reason = error.to_string();
        self.failure = Some(error);
        TransportError { code: code.unwrap_or(TransportErrorCode::PROTOCOL_VIOLATION), frame: None, reason }
    }
}

impl crypto::Session for QuicSession {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        version::packet_keys(self.version, id, side)
    }

    /// [`QuicFacts`]
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        (self.is_ready || self.failure.is_some()).then(|| -> Box<dyn Any> { Box::new(self.facts()) })
    }

    /// `Vec<CertificateDer<'static>>`, the peer's own first.
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.conn.peer_certificates().map(|chain| -> Box<dyn Any> { Box::new(chain.to_vec()) })
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.conn.zero_rtt_keys()?;
        Some((Box::new(keys.header), Box::new(keys.packet)))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None // asked of clients
    }

    fn is_handshaking(&self) -> bool {
        self.conn.is_handshaking()
    }

    fn read_handshake(&mut self, received: &[u8]) -> Result<bool, TransportError> {
        let QuicSession { conn, notes, secrets, .. } = self;
        let step = || notes.during(|| conn.read_hs(received));
        HandshakeSecrets::during(secrets, None, step).map_err(|error| self.failed(error))?;
        // The protocol is agreed upon, or refused, with the ClientHello.
        let was_ready = std::mem::replace(&mut self.is_ready, self.conn.alpn_protocol().is_some());
        Ok(self.is_ready && !was_ready)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(mut encoded) = self.conn.quic_transport_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(Side::Server, &mut encoded)?))
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let from = out.len();
        let change = self.conn.write_hs(out);
        if let Some(secrets) = &mut self.secrets {
            secrets.note_message(&out[from..]);
        }
        Some(for_quinn(match change? {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(next);
                keys
            }
        }))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next.as_mut()?.next_packet_keys();
        Some(KeyPair { local: Box::new(keys.local), remote: Box::new(keys.remote) })
    }

    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        false // asked of clients
    }

    fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let exported = self.conn.export_keying_material(out, label, Some(context));
        exported.map(|_| ()).map_err(|_| ExportKeyingMaterialError)
    }
}

impl fmt::Debug for QuicSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuicSession")
    }
}
