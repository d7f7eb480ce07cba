//! Records that are sealed where they are sent from.
//!
//! rustls has each record made in a vector of its own and copies it to where its caller wants it: of 16 KB that are
//! sent, 32 KB were copied and as many cleared. The suites here have rustls' keys, nonces, numbers and limits; only what
//! makes a record is another: while [`sealing_into`] runs, it appends the records of the application's data to the vector
//! that is given there, out of the bytes to be sent, and rustls gets empty ones.
//!
//! Nothing is sealed twice: rustls looks whether there is room before it numbers a record. Its own messages (alerts, new
//! keys) have smaller numbers than the records of the same run and are sent before them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::LazyLock;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, TlsProtocolId,
    TlsRecordSealingKey, UnboundKey,
};
use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use rustls::crypto::cipher::{
    AeadKey, Iv, KeyBlockShape, MessageDecrypter, MessageEncrypter, NONCE_LEN, OutboundChunks,
    OutboundOpaqueMessage, OutboundPlainMessage, PrefixedPayload, Tls12AeadAlgorithm, Tls13AeadAlgorithm,
    UnsupportedOperationError, make_tls12_aad, make_tls13_aad,
};
use rustls::{
    CipherSuite, CipherSuiteCommon, ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion,
    SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite,
};

/// rustls' suites, which seal in this way.
pub(crate) fn all_suites() -> &'static [SupportedCipherSuite] {
    static ALL: LazyLock<Vec<SupportedCipherSuite>> =
        LazyLock::new(|| ALL_CIPHER_SUITES.iter().map(|suite| with_own_seal(*suite)).collect());
    &ALL
}

/// The bytes that go before each record.
pub(crate) const HEADER: usize = 5;

/// What [`sealing_into`] came to.
pub(crate) struct SealedRun<T> {
    pub(crate) result: T,
    /// Number of records that were appended; rustls has an empty one for each.
    pub(crate) records: usize,
}

/// Appends the records that `seal` has rustls make of the application's data to `out`.
pub(crate) fn sealing_into<T>(out: &mut Vec<u8>, seal: impl FnOnce() -> T) -> SealedRun<T> {
    PLACE.set(Some(RecordPlace { out: std::mem::take(out), records: 0 }));
    let cleared = ClearedPlace;
    let result = seal();
    let RecordPlace { out: filled, records } = PLACE.take().unwrap_or_default();
    drop(cleared);
    *out = filled;
    SealedRun { result, records }
}

/// Takes the place away when rustls panics, so that no record of another connection gets there.
struct ClearedPlace;

impl Drop for ClearedPlace {
    fn drop(&mut self) {
        PLACE.set(None);
    }
}

/// Where records of this thread go now.
#[derive(Default)]
struct RecordPlace {
    out: Vec<u8>,
    records: usize,
}

thread_local! {
    static PLACE: RefCell<Option<RecordPlace>> = const { RefCell::new(None) };
}

/// Bytes of the tag of every suite here.
const TAG: usize = 16;

/// The suite with this module's sealing; as it is where its cipher is not known here.
fn with_own_seal(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let Some(cipher) = cipher_of(suite.suite()) else { return suite };
    match suite {
        SupportedCipherSuite::Tls13(suite) => {
            let aead = Box::leak(Box::new(SealingAead13 { opening: suite.aead_alg, cipher }));
            SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
                common: copy_of(&suite.common),
                hkdf_provider: suite.hkdf_provider,
                aead_alg: aead,
                quic: suite.quic,
            })))
        }
        SupportedCipherSuite::Tls12(suite) => {
            let aead = Box::leak(Box::new(SealingAead12 { opening: suite.aead_alg, cipher }));
            SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
                common: copy_of(&suite.common),
                prf_provider: suite.prf_provider,
                kx: suite.kx,
                sign: suite.sign,
                aead_alg: aead,
            })))
        }
    }
}

fn copy_of(common: &CipherSuiteCommon) -> CipherSuiteCommon {
    let CipherSuiteCommon { suite, hash_provider, confidentiality_limit } = *common;
    CipherSuiteCommon { suite, hash_provider, confidentiality_limit }
}

fn cipher_of(suite: CipherSuite) -> Option<&'static Algorithm> {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Some(&AES_128_GCM),
        CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Some(&AES_256_GCM),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Some(&CHACHA20_POLY1305),
        _ => None,
    }
}

/// A suite's cipher of TLS 1.3: rustls opens, this module seals.
struct SealingAead13 {
    opening: &'static dyn Tls13AeadAlgorithm,
    cipher: &'static Algorithm,
}

impl Tls13AeadAlgorithm for SealingAead13 {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        let key = SealingKey::new(self.cipher, key.as_ref());
        Box::new(RecordSealer { key, iv, form: RecordForm::Tls13 })
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        self.opening.decrypter(key, iv)
    }

    fn key_len(&self) -> usize {
        self.opening.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.opening.extract_keys(key, iv)
    }

    fn fips(&self) -> bool {
        self.opening.fips()
    }
}

/// The same of TLS 1.2.
struct SealingAead12 {
    opening: &'static dyn Tls12AeadAlgorithm,
    cipher: &'static Algorithm,
}

impl Tls12AeadAlgorithm for SealingAead12 {
    fn encrypter(&self, key: AeadKey, iv: &[u8], extra: &[u8]) -> Box<dyn MessageEncrypter> {
        let key = SealingKey::new(self.cipher, key.as_ref());
        // GCM: four bytes of the key block and eight that each record begins with (RFC 5288, section 3). ChaCha20 has all
        // twelve of the key block (RFC 7905, section 2).
        let mut whole = [0; NONCE_LEN];
        whole.iter_mut().zip(iv.iter().chain(extra)).for_each(|(to, from)| *to = *from);
        let form = if extra.is_empty() { RecordForm::Tls12 } else { RecordForm::Tls12WithNonce };
        Box::new(RecordSealer { key, iv: Iv::new(whole), form })
    }

    fn decrypter(&self, key: AeadKey, iv: &[u8]) -> Box<dyn MessageDecrypter> {
        self.opening.decrypter(key, iv)
    }

    fn key_block_shape(&self) -> KeyBlockShape {
        self.opening.key_block_shape()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: &[u8],
        explicit: &[u8],
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.opening.extract_keys(key, iv, explicit)
    }

    fn fips(&self) -> bool {
        self.opening.fips()
    }
}

/// A key that seals: AES-GCM's refuses a nonce that is not larger than those before.
enum SealingKey {
    Gcm(TlsRecordSealingKey),
    ChaCha(LessSafeKey),
}

impl SealingKey {
    fn new(cipher: &'static Algorithm, key: &[u8]) -> SealingKey {
        if *cipher == CHACHA20_POLY1305 {
            let key = UnboundKey::new(cipher, key).expect("rustls gives as many bytes as the cipher says");
            return SealingKey::ChaCha(LessSafeKey::new(key));
        }
        // In TLS 1.2, too: its nonces are made as in 1.3, by an exclusive or of the record's number.
        let key = TlsRecordSealingKey::new(cipher, TlsProtocolId::TLS13, key);
        SealingKey::Gcm(key.expect("rustls gives as many bytes as the cipher says, of a cipher of GCM"))
    }

    /// Appends `plain`, and `inner` after it, sealed, and a tag; nothing, where they can't be sealed.
    fn seal(
        &mut self,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        plain: &[u8],
        inner: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let (nonce, aad, start) = (Nonce::assume_unique_for_key(nonce), Aad::from(aad), out.len());
        out.extend_from_slice(plain);
        out.extend_from_slice(inner);
        let content = &mut out[start..];
        let tag = match self {
            SealingKey::Gcm(key) => key.seal_in_place_separate_tag(nonce, aad, content),
            SealingKey::ChaCha(key) => key.seal_in_place_separate_tag(nonce, aad, content),
        };
        let Ok(tag) = tag else {
            out.truncate(start);
            return Err(Error::EncryptError);
        };
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }
}

/// How a record lies around its cipher text.
#[derive(Clone, Copy)]
enum RecordForm {
    /// The type of its content is sealed after the content (RFC 8446, section 5.2).
    Tls13,
    Tls12,
    /// Half of the nonce is sent before.
    Tls12WithNonce,
}

struct RecordSealer {
    key: SealingKey,
    iv: Iv,
    form: RecordForm,
}

impl MessageEncrypter for RecordSealer {
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        seq: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let (kind, version) = match self.form {
            RecordForm::Tls13 => (ContentType::ApplicationData, ProtocolVersion::TLSv1_2),
            RecordForm::Tls12 | RecordForm::Tls12WithNonce => (message.typ, message.version),
        };
        let plain = match &message.payload {
            OutboundChunks::Single(plain) => Cow::Borrowed(*plain),
            several @ OutboundChunks::Multiple { .. } => Cow::Owned(several.to_vec()),
        };
        // Messages of rustls' own are as it makes them: it keeps them until they are taken.
        let placed = message.typ == ContentType::ApplicationData
            && PLACE.with_borrow_mut(|place| match place {
                None => Ok(false),
                Some(place) => {
                    let length = self.encrypted_payload_len(plain.len());
                    place.out.extend_from_slice(&header(kind, version, length)?);
                    place.records += 1;
                    self.append(&message, &plain, seq, &mut place.out).map(|()| true)
                }
            })?;
        let mut sealed = Vec::new();
        if !placed {
            self.append(&message, &plain, seq, &mut sealed)?;
        }
        Ok(OutboundOpaqueMessage::new(kind, version, PrefixedPayload::from(sealed.as_slice())))
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        let more = match self.form {
            RecordForm::Tls13 => 1,
            RecordForm::Tls12 => 0,
            RecordForm::Tls12WithNonce => EXPLICIT,
        };
        payload_len + more + TAG
    }
}

/// Bytes of a nonce that are sent, of GCM in TLS 1.2.
const EXPLICIT: usize = 8;

impl RecordSealer {
    /// Appends what follows a record's header: `plain`, the content of `message`, sealed.
    fn append(
        &mut self,
        message: &OutboundPlainMessage<'_>,
        plain: &[u8],
        seq: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let length = self.encrypted_payload_len(plain.len());
        let nonce = rustls::crypto::cipher::Nonce::new(&self.iv, seq).0;
        let kind = [u8::from(message.typ)];
        let (before, inner): (&[u8], &[u8]) = match self.form {
            RecordForm::Tls13 => (&[], &kind),
            RecordForm::Tls12 => (&[], &[]),
            RecordForm::Tls12WithNonce => (&nonce[NONCE_LEN - EXPLICIT..], &[]),
        };
        out.extend_from_slice(before);
        match self.form {
            RecordForm::Tls13 => self.key.seal(nonce, &make_tls13_aad(length), plain, inner, out),
            RecordForm::Tls12 | RecordForm::Tls12WithNonce => {
                let aad = make_tls12_aad(seq, message.typ, message.version, plain.len());
                self.key.seal(nonce, &aad, plain, inner, out)
            }
        }
    }
}

/// The header of a record whose sealed content has `length` bytes.
fn header(kind: ContentType, version: ProtocolVersion, length: usize) -> Result<[u8; HEADER], Error> {
    let [major, minor] = u16::from(version).to_be_bytes();
    let [high, low] = u16::try_from(length).map_err(|_| Error::EncryptError)?.to_be_bytes();
    Ok([u8::from(kind), major, minor, high, low])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_sealed_is_not_sent() {
        let mut key = SealingKey::new(&AES_128_GCM, &[7; 16]);
        let mut out = b"before".to_vec();
        let nonce = [3; NONCE_LEN];
        key.seal(nonce, b"header", b"secret", &[23], &mut out).expect("sealed");
        assert_eq!(out.len(), 6 + 6 + 1 + TAG);
        assert!(!out.windows(6).any(|found| found == b"secret"));
        let before = out.clone();
        assert!(
            key.seal(nonce, b"header", b"secret", &[23], &mut out).is_err(),
            "a nonce for the second time"
        );
        assert_eq!(out, before);
    }
}
