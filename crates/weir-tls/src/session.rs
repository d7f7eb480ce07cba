//! An established connection, and the loop that both sides' handshakes run.

use std::cell::{Cell, RefCell};
use std::fmt;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, ReadEarlyData, UnbufferedStatus, WriteTraffic,
};
use rustls::{CommonState, HandshakeKind, SignatureScheme};

use crate::error::Error;
use crate::record_seal::{self, SealedRun};
use crate::secrets::HandshakeSecrets;
use crate::suites;

/// What received bytes came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionStep {
    /// More may follow.
    More,
    /// The peer has said that nothing follows.
    End,
}

/// An established connection of either side.
pub struct TlsSession {
    pub(crate) side: SessionSide,
    /// The beginning of a record whose rest has not come. Empty, and without memory, between records.
    pub(crate) input: Vec<u8>,
    pub(crate) notes: HandshakeNotes,
    /// Of a server's.
    pub(crate) secrets: Option<Box<HandshakeSecrets>>,
    /// What came was no good: rustls is not asked again, and nothing more is sealed.
    pub(crate) is_broken: bool,
}

/// Bytes that rustls and its provider own of an established session, which they do not say: keys of both directions, the
/// state that takes the next record, what the handshake left. Measured by what 500 connections of TLS 1.3 make a process
/// grow (`see_memory.rs` of the end-to-end tests).
const PROVIDER_BYTES: usize = 4096;

/// Both of rustls' connections, of some 1,100 bytes, which would else be copied from hand to hand.
pub(crate) enum SessionSide {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// The signature schemes and the group that a handshake uses, by their numbers; 0: none. rustls does not show the
/// schemes, nor the group of an earlier session, so the code that sees them notes them: all of that happens on the
/// thread that runs a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandshakeNotes {
    pub(crate) own: u16,
    pub(crate) peer: u16,
    /// Of a server only: the key exchange group, or that of the earlier session that was looked at last.
    pub(crate) group: u16,
    /// Of a server only: where the earlier session was that was looked at last.
    pub(crate) found: Option<ResumedFrom>,
}

/// Where a server had the session that a client resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumedFrom {
    /// In the client's ticket.
    Ticket,
    /// In the server's cache, or with the caller ([`ExternalSessions`](crate::ExternalSessions)).
    Cache,
}

thread_local! {
    static NOTED: Cell<HandshakeNotes> =
        const { Cell::new(HandshakeNotes { own: 0, peer: 0, group: 0, found: None }) };
}

impl HandshakeNotes {
    /// Runs a step of a handshake, and takes what was noted meanwhile.
    pub(crate) fn during<R>(&mut self, step: impl FnOnce() -> R) -> R {
        NOTED.set(*self);
        let result = step();
        *self = NOTED.get();
        result
    }

    pub(crate) fn note_own(scheme: SignatureScheme) {
        NOTED.set(HandshakeNotes { own: u16::from(scheme), ..NOTED.get() });
    }

    pub(crate) fn note_peer(scheme: SignatureScheme) {
        NOTED.set(HandshakeNotes { peer: u16::from(scheme), ..NOTED.get() });
    }

    pub(crate) fn note_group(group: u16) {
        NOTED.set(HandshakeNotes { group, ..NOTED.get() });
    }

    pub(crate) fn note_found(found: ResumedFrom) {
        NOTED.set(HandshakeNotes { found: Some(found), ..NOTED.get() });
    }

    /// The group that was noted last in this handshake.
    pub(crate) fn group() -> u16 {
        NOTED.get().group
    }
}

/// What is known once a handshake is complete.
#[derive(Clone, Debug, Default)]
pub struct SessionFacts {
    /// The version as OpenSSL names it: `TLSv1.3`.
    pub version: &'static str,
    /// OpenSSL's name of the cipher suite.
    pub cipher: &'static str,
    /// OpenSSL's name of the key exchange group; empty without a key exchange.
    pub curve: &'static str,
    /// The scheme of our own signature; empty if it signed nothing.
    pub signature: &'static str,
    /// The scheme of the peer's signature; empty if it signed nothing.
    pub peer_signature: &'static str,
    /// True when an earlier session was resumed.
    pub resumed: bool,
    /// Where a server had that session; `None` of a client, and where none was resumed.
    pub resumed_from: Option<ResumedFrom>,
    /// The application protocol agreed upon (ALPN); `None` without one.
    pub alpn: Option<Vec<u8>>,
    /// The peer's certificates, its own first.
    pub peer: Vec<CertificateDer<'static>>,
}

impl SessionFacts {
    /// Version and cipher in nginx's debug words.
    pub fn agreed(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(move |f| {
            let (kx, au, enc) = suites::parts(self.cipher);
            let (version, cipher) = (self.version, self.cipher);
            write!(f, "SSL: {version}, cipher: \"{cipher} {version} Kx={kx} Au={au} Enc={enc} Mac=AEAD\"")
        })
    }
}

impl TlsSession {
    /// Bytes of memory that it takes, itself not counted. What rustls and its provider own is [`PROVIDER_BYTES`].
    pub fn held_bytes(&self) -> usize {
        let connection = match &self.side {
            SessionSide::Server(_) => size_of::<UnbufferedServerConnection>(),
            SessionSide::Client(_) => size_of::<UnbufferedClientConnection>(),
        };
        let secrets = self.secrets.as_ref().map_or(0, |_| size_of::<HandshakeSecrets>());
        connection + PROVIDER_BYTES + self.input.capacity() + secrets
    }

    /// Takes received bytes; appends what they say to `plain`, what must be sent because of them to `out`.
    ///
    /// # Errors
    /// What came is no good; an alert for the peer is in `out`.
    pub fn open(
        &mut self,
        received: &[u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<SessionStep, Error> {
        if self.is_broken {
            return Err(Error::Content("the session has ended with an error".to_owned()));
        }
        self.input.extend_from_slice(received);
        let step = match &mut self.side {
            SessionSide::Server(conn) => run(&mut **conn, &mut self.input, plain, out),
            SessionSide::Client(conn) => run(&mut **conn, &mut self.input, plain, out),
        };
        self.is_broken = step.is_err();
        step
    }

    /// Appends records with `plain` to `out`; nothing after [`TlsSession::open`] has failed, whose alert was the last word.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        self.write(Some(plain), out);
    }

    /// Appends the alert that nothing follows to `out`, unless an error has ended the session.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        self.write(None, out);
    }

    fn write(&mut self, plain: Option<&[u8]>, out: &mut Vec<u8>) {
        match &mut self.side {
            _ if self.is_broken => (),
            SessionSide::Server(conn) => write(&mut **conn, &mut self.input, plain, out),
            SessionSide::Client(conn) => write(&mut **conn, &mut self.input, plain, out),
        }
    }

    /// What the handshake agreed upon.
    pub fn facts(&self) -> SessionFacts {
        let common: &CommonState = match &self.side {
            SessionSide::Server(conn) => conn,
            SessionSide::Client(conn) => conn,
        };
        facts(common, self.notes)
    }

    /// The secrets a server's handshake agreed upon. `None` when they were not recorded, for a client, and once they
    /// were taken.
    pub fn take_secrets(&mut self) -> Option<Box<HandshakeSecrets>> {
        self.secrets.take()
    }

    /// The handshake is not over: what was received is early data, which may have been sent before.
    pub fn is_handshaking(&self) -> bool {
        match &self.side {
            SessionSide::Server(conn) => conn.is_handshaking(),
            SessionSide::Client(conn) => conn.is_handshaking(),
        }
    }
}

pub(crate) fn facts(common: &CommonState, notes: HandshakeNotes) -> SessionFacts {
    let group = common.negotiated_key_exchange_group();
    let resumed = common.handshake_kind() == Some(HandshakeKind::Resumed);
    // A certificate may have been chosen before it came out that none is needed.
    let (own, peer) = if resumed { (0, 0) } else { (notes.own, notes.peer) };
    // TLS 1.2 exchanges no keys in a session that is resumed: the earlier one's group stays in use.
    let group = group.map_or(if resumed { notes.group } else { 0 }, |group| u16::from(group.name()));
    SessionFacts {
        version: common.protocol_version().map_or("", suites::version_name),
        cipher: common.negotiated_cipher_suite().map_or("", |suite| suites::suite_name(suite.suite())),
        curve: suites::group_name(group),
        signature: suites::signature_name(own),
        peer_signature: suites::signature_name(peer),
        resumed,
        resumed_from: notes.found.filter(|_| resumed),
        alpn: common.alpn_protocol().map(<[u8]>::to_vec),
        peer: common.peer_certificates().unwrap_or_default().to_vec(),
    }
}

/// A connection of rustls, of either side.
pub(crate) trait RecordConnection {
    /// Its side's own data.
    type Data;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// Whether it has something to send of its own.
    fn has_output(&self) -> bool;

    /// Takes the early data that has come.
    fn early(state: ReadEarlyData<'_, '_, Self::Data>, plain: &mut Vec<u8>) -> Result<(), rustls::Error>;
}

impl RecordConnection for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, ServerConnectionData> {
        self.process_tls_records(incoming)
    }

    fn has_output(&self) -> bool {
        self.wants_write()
    }

    fn early(
        mut state: ReadEarlyData<'_, '_, ServerConnectionData>,
        plain: &mut Vec<u8>,
    ) -> Result<(), rustls::Error> {
        while let Some(record) = state.next_record() {
            plain.extend_from_slice(record?.payload);
        }
        Ok(())
    }
}

impl RecordConnection for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, ClientConnectionData> {
        self.process_tls_records(incoming)
    }

    fn has_output(&self) -> bool {
        self.wants_write()
    }

    fn early(_: ReadEarlyData<'_, '_, ClientConnectionData>, _: &mut Vec<u8>) -> Result<(), rustls::Error> {
        Ok(()) // clients receive none
    }
}

/// Uses up `input` as far as that goes.
pub(crate) fn run<C: RecordConnection>(
    conn: &mut C,
    input: &mut Vec<u8>,
    plain: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<SessionStep, Error> {
    let (mut used, mut step) = (0, SessionStep::More);
    let result = loop {
        let UnbufferedStatus { discard, state } = conn.process(&mut input[used..]);
        used += discard;
        match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    used += record.discard;
                    plain.extend_from_slice(record.payload);
                }
            }
            Ok(ConnectionState::ReadEarlyData(state)) => C::early(state, plain)?,
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => step = SessionStep::End,
            Ok(_) => break Ok(step),
            Err(error) => break Err(error),
        }
    };
    input.drain(..used);
    if let Err(error) = result {
        alert(conn, input, out);
        input.clear();
        return Err(error.into());
    }
    if input.is_empty() {
        *input = Vec::new();
    }
    Ok(step)
}

/// After an error: the alert that rustls wants to send to the peer. It has places in `input` where half a message has come, and
/// must not look at the rest again.
fn alert<C: RecordConnection>(conn: &mut C, input: &mut [u8], out: &mut Vec<u8>) {
    while conn.has_output() {
        match conn.process(input).state {
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(_) | Err(_) => return,
        }
    }
}

fn encode<D>(mut data: EncodeTlsData<'_, D>, out: &mut Vec<u8>) {
    let start = out.len();
    loop {
        match data.encode(&mut out[start..]) {
            Ok(written) => return out.truncate(start + written),
            Err(EncodeError::InsufficientSize(size)) => out.resize(start + size.required_size, 0),
            Err(EncodeError::AlreadyEncoded) => return,
        }
    }
}

/// Seals `plain`, or the alert that nothing follows, after what the connection has to send itself.
fn write<C: RecordConnection>(conn: &mut C, input: &mut Vec<u8>, plain: Option<&[u8]>, out: &mut Vec<u8>) {
    let mut used = 0;
    loop {
        let UnbufferedStatus { discard, state } = conn.process(&mut input[used..]);
        used += discard;
        match state {
            Ok(ConnectionState::WriteTraffic(traffic)) => {
                traffic_out(traffic, plain, out);
                break;
            }
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => {}
            // Closed from both sides, or broken: the reader gets an error.
            Ok(_) | Err(_) => break,
        }
    }
    input.drain(..used);
}

/// More than any record adds to what is in it, at most a record for every 16 KB.
const OVERHEAD: usize = 64;

thread_local! {
    /// Where rustls writes, besides the empty records that [`record_seal`] leaves it, what it has to send before the
    /// application's data. Its bytes are cleared once.
    static ASIDE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn traffic_out<D>(mut traffic: WriteTraffic<'_, D>, plain: Option<&[u8]>, out: &mut Vec<u8>) {
    ASIDE.with_borrow_mut(|aside| match plain {
        Some(plain) => data_out(&mut traffic, plain, aside, out),
        None => end_out(&mut traffic, aside, out),
    });
}

fn data_out<D>(traffic: &mut WriteTraffic<'_, D>, plain: &[u8], aside: &mut Vec<u8>, out: &mut Vec<u8>) {
    let start = out.len();
    let mut room = plain.len() + (plain.len() / (16 * 1024) + 1) * OVERHEAD;
    loop {
        if aside.len() < room {
            aside.resize(room, 0);
        }
        out.reserve(room);
        let SealedRun { result, records } = record_seal::sealing_into(out, || traffic.encrypt(plain, aside));
        match result {
            Ok(written) => {
                // Messages of rustls' own that waited have smaller numbers than the records.
                let empty = records * record_seal::HEADER;
                debug_assert!(written >= empty, "{written} bytes with {records} records");
                let own = written.saturating_sub(empty);
                out.splice(start..start, aside[..own].iter().copied());
                return;
            }
            Err(EncryptError::InsufficientSize(size)) => room = size.required_size,
            // Nothing more may be sent under these keys; the peer sees a truncated stream.
            Err(EncryptError::EncryptExhausted) => return,
        }
    }
}

fn end_out<D>(traffic: &mut WriteTraffic<'_, D>, aside: &mut Vec<u8>, out: &mut Vec<u8>) {
    loop {
        match traffic.queue_close_notify(aside) {
            Ok(written) => return out.extend_from_slice(&aside[..written]),
            Err(EncryptError::InsufficientSize(size)) => aside.resize(size.required_size, 0),
            Err(EncryptError::EncryptExhausted) => return,
        }
    }
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if matches!(self.side, SessionSide::Server(_)) { "server" } else { "client" };
        write!(f, "Session({side})")
    }
}
