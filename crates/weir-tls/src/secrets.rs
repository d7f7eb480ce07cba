//! What a server's handshake has agreed upon in secret, and keys derived from it for other purposes (exporters: RFC 5705; RFC
//! 8446, section 7.5). rustls' connections without buffers have no exporter, and do not show the random bytes; but a
//! key log gets secrets, and bytes are asked of a source that is the configuration's. Both work on the thread that runs
//! a step, as [`crate::session::HandshakeNotes`] do.

use std::cell::{Cell, RefCell};
use std::fmt;

use rustls::SupportedCipherSuite;
use rustls::crypto::tls13::OkmBlock;
use rustls::crypto::{GetRandomFailed, SecureRandom};

use crate::early_data;

/// A server's handshake: its random bytes and its secret.
#[derive(Clone)]
pub struct HandshakeSecrets {
    client_random: [u8; 32],
    server_random: [u8; 32],
    /// The master secret of TLS 1.2, or the exporter's of TLS 1.3.
    secret: [u8; MOST],
    length: usize,
    suite: Option<SupportedCipherSuite>,
}

/// As long as SHA-384, and as TLS 1.2's master secret.
const MOST: usize = 48;

thread_local! {
    /// What the running step determines.
    static NOTED: RefCell<Option<Box<HandshakeSecrets>>> = const { RefCell::new(None) };
    /// The bytes that are asked for next.
    static NEXT: Cell<Option<[u8; 32]>> = const { Cell::new(None) };
}

impl HandshakeSecrets {
    pub(crate) fn new() -> Box<HandshakeSecrets> {
        let (client_random, server_random) = ([0; 32], RETRY);
        Box::new(HandshakeSecrets { client_random, server_random, secret: [0; MOST], length: 0, suite: None })
    }

    /// Runs a step of the handshake, and takes what is noted meanwhile. `random`: the server's random bytes, if they were
    /// chosen before.
    pub(crate) fn during<R>(
        own: &mut Option<Box<HandshakeSecrets>>,
        random: Option<[u8; 32]>,
        step: impl FnOnce() -> R,
    ) -> R {
        NOTED.set(own.take());
        NEXT.set(random);
        let result = step();
        NEXT.set(None);
        *own = NOTED.take();
        result
    }

    /// Looks for the ServerHello in what is sent; it is the first of its flight (RFC 8446, section 4.1.3).
    pub(crate) fn note_sent(&mut self, flight: &[u8]) {
        const HANDSHAKE: u8 = 22;
        const HEADER: usize = 5;
        if flight.first() == Some(&HANDSHAKE)
            && let Some(message) = flight.get(HEADER..)
        {
            self.note_message(message);
        }
    }

    /// The same in messages without records, as QUIC has them.
    pub(crate) fn note_message(&mut self, message: &[u8]) {
        const SERVER_HELLO: u8 = 2;
        const RANDOM: std::ops::Range<usize> = 6..38;
        if self.is_open()
            && message.first() == Some(&SERVER_HELLO)
            && let Some(Ok(random)) = message.get(RANDOM).map(<[u8; 32]>::try_from)
        {
            self.server_random = random;
        }
    }

    /// No ServerHello has gone out but one that asks for another hello.
    pub(crate) fn is_open(&self) -> bool {
        self.server_random == RETRY
    }

    pub(crate) fn settle(&mut self, suite: Option<SupportedCipherSuite>) {
        self.suite = suite;
    }

    /// The random bytes of the ServerHello.
    pub fn server_random(&self) -> &[u8; 32] {
        &self.server_random
    }

    /// The master secret of TLS 1.2 (48 bytes); `None` for TLS 1.3, and while no cipher suite is agreed.
    pub fn master(&self) -> Option<&[u8]> {
        matches!(self.suite, Some(SupportedCipherSuite::Tls12(_))).then(|| &self.secret[..self.length])
    }

    /// Fills `out` with what `label` and `context` give. `None`: there is too much of one of them.
    pub fn export(&self, label: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Option<()> {
        let secret = &self.secret[..self.length];
        match self.suite? {
            // As OpenSSL has it.
            SupportedCipherSuite::Tls12(_) if out.is_empty() => return None,
            SupportedCipherSuite::Tls13(_) if out.is_empty() => {}
            SupportedCipherSuite::Tls12(suite) => {
                let mut seed = [self.client_random, self.server_random].concat();
                if let Some(context) = context {
                    seed.extend(u16::try_from(context.len()).ok()?.to_be_bytes());
                    seed.extend(context);
                }
                suite.prf_provider.for_secret(out, secret, label, &seed);
            }
            SupportedCipherSuite::Tls13(suite) => {
                let hash = |bytes: &[u8]| suite.common.hash_provider.hash(bytes);
                let mut derived = [0; MOST];
                let derived = &mut derived[..self.length];
                let expand = |from: &[u8], label: &[u8], context: &[u8], out: &mut [u8]| {
                    let expander = suite.hkdf_provider.expander_for_okm(&OkmBlock::new(from));
                    let length = u16::try_from(out.len()).ok()?.to_be_bytes();
                    let label = [b"tls13 ", label].concat();
                    let lengths = (u8::try_from(label.len()).ok()?, u8::try_from(context.len()).ok()?);
                    let info = [&length[..], &[lengths.0], &label, &[lengths.1], context];
                    expander.expand_slice(&info, out).ok()
                };
                expand(secret, label, hash(&[]).as_ref(), derived)?;
                expand(derived, b"exporter", hash(context.unwrap_or_default()).as_ref(), out)?;
            }
        }
        Some(())
    }
}

impl Drop for HandshakeSecrets {
    fn drop(&mut self) {
        self.secret.fill(0);
        std::hint::black_box(&self.secret);
    }
}

impl fmt::Debug for HandshakeSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

/// The random bytes of a ServerHello that asks for another hello (RFC 8446, section 4.1.3); here also of none.
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// A key log that notes what [`HandshakeSecrets`] keep.
#[derive(Debug)]
pub(crate) struct NotingKeyLog;

impl rustls::KeyLog for NotingKeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if label == early_data::LABEL {
            return early_data::note(secret);
        }
        if !self.will_log(label) {
            return;
        }
        NOTED.with_borrow_mut(|noted| {
            if let (Some(noted), Ok(random)) = (noted, client_random.try_into())
                && let Some(place) = noted.secret.get_mut(..secret.len())
            {
                place.copy_from_slice(secret);
                (noted.client_random, noted.length) = (random, secret.len());
            }
        });
    }

    fn will_log(&self, label: &str) -> bool {
        matches!(label, "CLIENT_RANDOM" | "EXPORTER_SECRET" | early_data::LABEL)
    }
}

/// Random bytes; the first that a server's step asks for are those of its ServerHello.
#[derive(Debug)]
pub(crate) struct NotedRandom;

impl SecureRandom for NotedRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        match NEXT.take() {
            Some(chosen) if bytes.len() == chosen.len() => {
                bytes.copy_from_slice(&chosen);
                Ok(())
            }
            _ => aws_lc_rs::rand::fill(bytes).map_err(|_| GetRandomFailed),
        }
    }
}
