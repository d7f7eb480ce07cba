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
}

impl TlsLayer {
    /// The layer of `session`; `early` becomes true while its early data may be read.
    pub fn new(session: TlsSession, early: Rc<Cell<bool>>) -> TlsLayer {
        early.set(session.is_handshaking());
        TlsLayer { session, early, record: MOST_RECORD }
    }

    /// With records of at most `bytes` (`ssl_buffer_size`); there are no larger ones than of 16 KB.
    pub fn with_records(self, bytes: u64) -> TlsLayer {
        let record = u16::try_from(bytes).unwrap_or(MOST_RECORD).clamp(1, MOST_RECORD);
        TlsLayer { record, ..self }
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
        self.session.seal(plain, out);
    }

    fn piece(&self) -> usize {
        usize::from(self.record)
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        self.session.close(out);
    }
}

/// RFC 8446, section 5.1.
const MOST_RECORD: u16 = 16 * 1024;
