//! A session as the layer of a stream.

use std::cell::Cell;
use std::rc::Rc;

use weir_rt::{OpenOutcome, StreamLayer};
use weir_tls::{SessionStep, TlsSession};

/// What seals and opens a connection's bytes.
pub struct TlsLayer {
    session: TlsSession,
    /// Shared with the connection: its handshake is not over, requests come as early data.
    early: Rc<Cell<bool>>,
    /// Bytes of a record.
    record: u16,
    /// The first records are short.
    grows: bool,
    /// Bytes that were sealed since the connection began or rested.
    sealed: u32,
}

impl TlsLayer {
    /// The layer of `session`; `early` becomes true while its early data may be read.
    pub fn new(session: TlsSession, early: Rc<Cell<bool>>) -> TlsLayer {
        early.set(session.is_handshaking());
        TlsLayer { session, early, record: MOST_RECORD, grows: false, sealed: 0 }
    }

    /// For a server: with records of at most `bytes` (`ssl_buffer_size`); there are no larger ones than of 16 KB. The first ones
    /// are shorter. A peer can read nothing of a record before all of it has come, and few packets may be in flight when a
    /// connection begins: the end of a record of 16 KB would come a round trip later, and everything in it with that.
    pub fn with_records(self, bytes: u64) -> TlsLayer {
        let record = u16::try_from(bytes).unwrap_or(MOST_RECORD).clamp(1, MOST_RECORD);
        TlsLayer { record, grows: true, ..self }
    }
}

impl StreamLayer for TlsLayer {
    fn held_bytes(&self) -> usize {
        // The count of references to the flag, and the flag.
        size_of::<TlsLayer>() + self.session.held_bytes() + 3 * size_of::<usize>()
    }

    fn open(&mut self, received: &[u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) -> OpenOutcome {
        let opened = match self.session.open(received, plain, out) {
            Ok(SessionStep::More) => OpenOutcome::More,
            Ok(SessionStep::End) => OpenOutcome::End,
            Err(_) => OpenOutcome::Broken,
        };
        if self.early.get() {
            self.early.set(self.session.is_handshaking());
        }
        opened
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        self.sealed = self.sealed.saturating_add(plain.len() as u32);
        self.session.seal(plain, out);
    }

    fn piece(&self) -> usize {
        let most = match self.sealed {
            ..FIRST_FLIGHT if self.grows => ONE_PACKET,
            ..OPEN_WINDOW if self.grows => THREE_PACKETS,
            _ => MOST_RECORD,
        };
        usize::from(self.record.min(most))
    }

    fn rested(&mut self) {
        self.sealed = 0;
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        self.session.close(out);
    }
}

/// Bytes of a record that is one packet: 1,500 of Ethernet without headers of IPv6 (40) and TCP (32 with timestamps) and without what
/// TLS adds (29, with AES-GCM in TLS 1.2).
const ONE_PACKET: u16 = 1_399;
/// The same of three packets, whose headers of TLS are one.
const THREE_PACKETS: u16 = 3 * 1_428 - 29;
/// So many bytes are sent before anything is acknowledged: ten packets (RFC 6928), a little more.
const FIRST_FLIGHT: u32 = 16 * 1024;
/// After the third flight whole records cost little time, and short ones would cost CPU.
const OPEN_WINDOW: u32 = 64 * 1024;
/// RFC 8446, section 5.1.
const MOST_RECORD: u16 = 16 * 1024;
