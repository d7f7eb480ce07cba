//! The channel between one of the world's and its socket: bytes as they are, or TLS.

use std::collections::VecDeque;
use std::io::{Read, Write};

use rustls::{Connection, ProtocolVersion, ServerConnection};

use weir_sim::tls::TlsPlan;

use super::tls::{SimTime, TlsClients};

/// What happens to the bytes that go out. Places are counted from the first byte.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChannelFaults {
    /// It is closed there.
    pub(super) cut: Option<u64>,
    /// This byte is changed.
    pub(super) garbled: Option<u64>,
    /// Nothing more goes out from there.
    pub(super) stall: Option<u64>,
    /// That nothing more is sent is said before it is closed.
    pub(super) notifies: bool,
}

/// What is between one of the world's and its socket: nothing, or TLS.
#[derive(Debug, Default)]
pub(super) struct TlsChannel {
    tls: Option<Box<Connection>>,
    faults: ChannelFaults,
    /// What the socket is to take, and how much it has taken.
    pub(super) out: VecDeque<u8>,
    pub(super) sent: u64,
    /// TLS has failed, and why.
    pub(super) failure: Option<String>,
}

impl TlsChannel {
    /// The channel of a client that has just connected.
    pub(super) fn new(plan: Option<TlsPlan>, is_http2: bool, clients: &mut TlsClients) -> TlsChannel {
        let Some(plan) = plan else { return TlsChannel::default() };
        let faults =
            ChannelFaults { cut: plan.cut, garbled: plan.garbled, stall: None, notifies: plan.notifies };
        let tls = clients.connect(&plan, is_http2).map(|tls| Box::new(Connection::Client(tls)));
        let mut channel = TlsChannel { tls, faults, ..TlsChannel::default() };
        channel.collect();
        channel
    }

    /// The channel of a server that has a new connection.
    pub(super) fn of_server(tls: ServerConnection, faults: ChannelFaults) -> TlsChannel {
        TlsChannel { tls: Some(Box::new(Connection::Server(tls))), faults, ..TlsChannel::default() }
    }

    /// The next bytes for the socket, `most` at most: of those that the plan has changed on their way, and up to its cut.
    pub(super) fn piece(&self, most: u64) -> Vec<u8> {
        let end = self.faults.cut.into_iter().chain(self.faults.stall).min().unwrap_or(u64::MAX);
        let most = most.min(end.saturating_sub(self.sent));
        let mut piece: Vec<u8> = self.out.iter().take(most as usize).copied().collect();
        let garbled = self.faults.garbled.and_then(|at| at.checked_sub(self.sent));
        if let Some(byte) = garbled.and_then(|at| piece.get_mut(at as usize)) {
            *byte ^= 0x20;
        }
        piece
    }

    /// The socket has taken so many bytes.
    pub(super) fn took(&mut self, count: usize) {
        self.sent += count as u64;
        drop(self.out.drain(..count));
    }

    /// Whether what the client has sent is sent, and does not wait for the end of the handshake.
    pub(super) fn has_sent(&self) -> bool {
        self.out.is_empty() && self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking())
    }

    /// Whether it is to be closed where it is.
    pub(super) fn is_cut(&self) -> bool {
        self.faults.cut.is_some_and(|cut| self.sent >= cut)
    }

    /// The client sends these bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            None => self.out.extend(bytes),
            // Its buffer has no bound: it takes all.
            Some(tls) => drop(tls.writer().write_all(bytes)),
        }
        self.collect();
    }

    /// The client sends no more: an alert says so.
    pub(super) fn notify_end(&mut self) {
        if let Some(tls) = self.tls.as_mut().filter(|_| self.faults.notifies) {
            tls.send_close_notify();
        }
        self.collect();
    }

    /// What the client gets of the bytes that have come from its socket at `now` of the simulation's nanoseconds.
    pub(super) fn receive(&mut self, now: u64, bytes: &[u8]) -> Vec<u8> {
        SimTime::set(now);
        let Some(tls) = &mut self.tls else { return bytes.to_vec() };
        let (mut rest, mut plain) = (bytes, Vec::new());
        while !rest.is_empty() && self.failure.is_none() {
            if tls.read_tls(&mut rest).is_err() {
                break;
            }
            if let Err(error) = tls.process_new_packets() {
                self.failure = Some(error.to_string());
            }
            // It ends with "would block", or with the end.
            let _more = tls.reader().read_to_end(&mut plain);
        }
        self.collect();
        plain
    }

    /// The name that the client has asked a server for (SNI); `-`: none.
    pub(super) fn asked_name(&self) -> &str {
        match self.tls.as_deref() {
            Some(Connection::Server(tls)) => tls.server_name().unwrap_or("-"),
            _ => "-",
        }
    }

    /// Which fault has come by now, in a word for the journal.
    pub(super) fn fault_so_far(&self) -> Option<&'static str> {
        let ChannelFaults { cut, garbled, stall, notifies: _ } = self.faults;
        let has_come = |at: Option<u64>, end: u64| at.is_some_and(|at| at < end);
        match () {
            () if has_come(cut, self.sent + 1) => Some("cut"),
            () if has_come(garbled, self.sent) => Some("garbled"),
            () if has_come(stall, self.sent + 1) => Some("stalls"),
            () => None,
        }
    }

    /// What was agreed on, in a word for the journal; `-`: nothing, or there is no TLS.
    pub(super) fn agreed(&self) -> String {
        let Some(tls) = &self.tls else { return "-".to_owned() };
        let version = match tls.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "1.3",
            Some(ProtocolVersion::TLSv1_2) => "1.2",
            _ => "-",
        };
        let kind = if tls.is_handshaking() {
            "unfinished".to_owned()
        } else {
            format!("{:?}", tls.handshake_kind())
        };
        let kind = kind.trim_start_matches("Some(").trim_end_matches(')').to_owned();
        format!("{version}/{kind}/{}", String::from_utf8_lossy(tls.alpn_protocol().unwrap_or(b"-")))
    }

    fn collect(&mut self) {
        let Some(tls) = &mut self.tls else { return };
        let mut bytes = Vec::new();
        while tls.wants_write() && tls.write_tls(&mut bytes).is_ok() {}
        self.out.extend(bytes);
    }
}
