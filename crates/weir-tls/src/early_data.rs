//! Early data that is not taken. It is skipped (RFC 8446, section 4.2.10), and only a key distinguishes its records
//! from those of the handshake that follow it.
//!
//! rustls skips as much as its configuration would take, looks at skipped records again with each receive, counts them each
//! time, and takes early data as soon as that number is above what a server without it could use. So the records of a client
//! that announces early data are looked at here first, each once; rustls sees those that are no refused early data. Which ones
//! these are the client's handshake key says: rustls gives its secret to a key log, on the thread that runs a step.

use std::cell::RefCell;
use std::fmt;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use rustls::crypto::tls13::OkmBlock;
use rustls::{SupportedCipherSuite, Tls13CipherSuite};

/// A connection's records while early data may come.
pub(crate) struct EarlyRecords {
    /// What was received; up to `at` it was looked at.
    pending: Vec<u8>,
    at: usize,
    /// Bytes of records that may still be skipped.
    left: usize,
    /// It is known that early data is not taken.
    pub(crate) refused: bool,
    /// Of the client's handshake traffic (RFC 8446, section 7.1).
    secret: Vec<u8>,
    /// What that traffic is sealed with, made once: a client may send thousands of records.
    key: Option<HandshakeKey>,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyRecordKind {
    /// Not encrypted.
    Plain,
    /// The first that is sealed with the client's handshake key: no early data follows.
    Handshake,
    /// Early data.
    Early,
}

/// There is more refused early data than anybody needs to send.
#[derive(Debug)]
pub(crate) struct TooMuch;

/// Bytes of records that are skipped: four times what OpenSSL and Weir allow their clients, for those that send it in small
/// records.
const SKIPPED: usize = 64 * 1024;
const HEADER: usize = 5;
/// RFC 8446, section 5.2.
const MOST_RECORD: usize = 16 * 1024 + 256;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

thread_local! {
    /// The secret that the running step has made, if one is wanted.
    static NOTED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

impl EarlyRecords {
    /// Of a client whose hello, and what came along with it, is in `records`: only the hello stays there.
    pub(crate) fn new(records: &mut Vec<u8>) -> EarlyRecords {
        let mut end = 0;
        while records.get(end) == Some(&HANDSHAKE)
            && let Some(length) = record_length(&records[end..])
            && end + length <= records.len()
        {
            end += length;
        }
        let pending = records.split_off(end);
        EarlyRecords { pending, at: 0, left: SKIPPED, refused: false, secret: Vec::new(), key: None }
    }

    /// Takes what was received.
    pub(crate) fn receive(&mut self, received: &[u8]) {
        self.pending.drain(..self.at);
        self.at = 0;
        self.pending.extend_from_slice(received);
    }

    /// The next record that is whole, or more than one could be.
    pub(crate) fn next_record(&mut self) -> Option<Vec<u8>> {
        let rest = &self.pending[self.at..];
        let length = match record_length(rest)? {
            length if length > HEADER + MOST_RECORD => rest.len(),
            length => length,
        };
        let record = rest.get(..length)?.to_vec();
        self.at += length;
        Some(record)
    }

    /// What was not looked at.
    pub(crate) fn into_rest(mut self) -> Vec<u8> {
        self.pending.split_off(self.at)
    }

    /// Runs a step of the handshake, and takes the secret that it makes.
    pub(crate) fn during<R>(&mut self, step: impl FnOnce() -> R) -> R {
        NOTED.set(Some(std::mem::take(&mut self.secret)));
        let result = step();
        self.secret = NOTED.take().unwrap_or_default();
        result
    }

    /// What `record` is, in a handshake that uses `suite`.
    pub(crate) fn kind(&mut self, record: &[u8], suite: Option<SupportedCipherSuite>) -> EarlyRecordKind {
        if record.first() != Some(&APPLICATION_DATA) {
            return EarlyRecordKind::Plain;
        }
        if let (None, Some(SupportedCipherSuite::Tls13(suite))) = (&self.key, suite) {
            self.key = HandshakeKey::new(suite, &self.secret);
        }
        match &self.key {
            Some(key) if key.opens(record) => EarlyRecordKind::Handshake,
            _ => EarlyRecordKind::Early,
        }
    }

    /// Notes that a record is not taken.
    pub(crate) fn skip(&mut self, record: &[u8]) -> Result<(), TooMuch> {
        self.left = self.left.checked_sub(record.len()).ok_or(TooMuch)?;
        Ok(())
    }
}

/// Takes the secret of the client's handshake traffic, which a key log calls [`LABEL`].
pub(crate) fn note(secret: &[u8]) {
    NOTED.with_borrow_mut(|noted| {
        if let Some(noted) = noted {
            *noted = secret.to_vec();
        }
    });
}

/// A key log's name of that secret.
pub(crate) const LABEL: &str = "CLIENT_HANDSHAKE_TRAFFIC_SECRET";

/// With its header, once that is there.
fn record_length(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(3..HEADER)?;
    Some(HEADER + usize::from(u16::from_be_bytes([length[0], length[1]])))
}

/// The key and the vector of the client's handshake traffic.
struct HandshakeKey {
    key: LessSafeKey,
    vector: [u8; NONCE_LEN],
}

impl HandshakeKey {
    /// `None`: there is no secret yet.
    fn new(suite: &Tls13CipherSuite, secret: &[u8]) -> Option<HandshakeKey> {
        let algorithm = match u16::from(suite.common.suite) {
            0x1301 => &AES_128_GCM,
            0x1302 => &AES_256_GCM,
            _ => &CHACHA20_POLY1305,
        };
        if secret.is_empty() {
            return None;
        }
        let (mut key, mut vector) = ([0; 32], [0; NONCE_LEN]);
        let key = &mut key[..algorithm.key_len()];
        expand(suite, secret, b"key", key)?;
        expand(suite, secret, b"iv", &mut vector)?;
        Some(HandshakeKey { key: LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?), vector })
    }

    /// Whether `record` is the first that is sealed with it.
    fn opens(&self, record: &[u8]) -> bool {
        let Some((header, sealed)) = record.split_at_checked(HEADER) else { return false };
        // The number of the first record is 0, so its nonce is the vector itself (RFC 8446, section 5.3).
        let nonce = Nonce::assume_unique_for_key(self.vector);
        self.key.open_in_place(nonce, Aad::from(header), &mut sealed.to_vec()).is_ok()
    }
}

impl fmt::Debug for HandshakeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandshakeKey")
    }
}

/// HKDF-Expand-Label without a context (RFC 8446, section 7.1).
fn expand(suite: &Tls13CipherSuite, secret: &[u8], label: &[u8], out: &mut [u8]) -> Option<()> {
    let expander = suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret));
    let length = u16::try_from(out.len()).ok()?.to_be_bytes();
    let label = [b"tls13 ", label].concat();
    expander.expand_slice(&[&length[..], &[u8::try_from(label.len()).ok()?], &label, &[0]], out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, size: usize) -> Vec<u8> {
        let mut record = vec![kind, 3, 3];
        record.extend(u16::try_from(size).expect("short").to_be_bytes());
        record.resize(HEADER + size, 1);
        record
    }

    #[test]
    fn records_are_found_however_they_come() {
        let all = [record(HANDSHAKE, 300), record(20, 1), record(23, 40)].concat();
        for cut in 300 + HEADER..all.len() {
            let mut first = all[..cut].to_vec();
            let mut early = EarlyRecords::new(&mut first);
            assert_eq!(first.len(), 300 + HEADER);
            let mut found: Vec<_> = std::iter::from_fn(|| early.next_record()).collect();
            early.receive(&all[cut..]);
            found.extend(std::iter::from_fn(|| early.next_record()));
            assert_eq!(found, [record(20, 1), record(23, 40)], "cut at {cut}");
        }
    }

    #[test]
    fn what_is_skipped_is_bounded() {
        let mut early = EarlyRecords::new(&mut Vec::new());
        let one = record(23, 1000);
        assert!((0..SKIPPED / one.len()).all(|_| early.skip(&one).is_ok()));
        assert!(early.skip(&one).is_err());
        early.receive(&[23, 3, 3, 255, 255, 0]);
        assert_eq!(
            early.next_record().map(|it| it.len()),
            Some(6),
            "no record is as long: it is not waited for"
        );
    }
}
