//! Certificates and keys that scripts have, each parsed once: what a worker has parsed it knows by its bytes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use weir_tls::certificate::{self, CertificateDer};
use weir_tls::key::{self, SigningKey};
use weir_tls::{Certificate, facts};
use weir_upstream::tls_client::device_certificate;

/// Certificates, the server's own first.
pub(crate) struct CertificateChain {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    /// The public key of the first, as encoded.
    public: Vec<u8>,
    /// With the key that it was last used with.
    made: RefCell<Option<(Rc<PrivateKey>, Certificate)>>,
}

/// A private key.
pub(crate) enum PrivateKey {
    Software(Arc<dyn SigningKey>),
    /// In a device, by its URI (RFC 7512). Nothing is known of it until it is used.
    Device(String),
}

impl CertificateChain {
    /// `None`: the text holds nothing, or the first block is malformed.
    pub(crate) fn new(certificates: Vec<CertificateDer<'static>>) -> Option<CertificateChain> {
        let public = facts::public_key(certificates.first()?)?;
        Some(CertificateChain { certificates, public, made: RefCell::default() })
    }

    /// Whether the key is of the same kind, but another certificate's.
    pub(super) fn mismatches(&self, key: &PrivateKey) -> bool {
        match key {
            PrivateKey::Software(key) => key.public_key().is_some_and(|public| {
                public.as_ref() != self.public && key::same_kind(&public, &self.public)
            }),
            PrivateKey::Device(_) => false,
        }
    }

    fn is_of(&self, key: &PrivateKey) -> bool {
        match key {
            PrivateKey::Software(key) => {
                key.public_key().is_some_and(|public| public.as_ref() == self.public)
            }
            PrivateKey::Device(_) => true,
        }
    }

    /// The certificate with its key.
    ///
    /// # Errors
    /// A device does not have the key.
    pub(super) async fn with(&self, key: &Rc<PrivateKey>) -> Result<Certificate, String> {
        if let Some((_, made)) = self.made.borrow().as_ref().filter(|(own, _)| Rc::ptr_eq(own, key)) {
            return Ok(made.clone());
        }
        let PrivateKey::Device(uri) = &**key else { return self.with_now(key) };
        let (chain, uri) = (self.certificates.clone(), uri.clone());
        let made = weir_rt::blocking(move || device_certificate(chain, &uri)).await?;
        *self.made.borrow_mut() = Some((key.clone(), made.clone()));
        Ok(made)
    }

    /// As [`CertificateChain::with`], for a key that is not to be waited for, or that was used with it before.
    ///
    /// # Errors
    /// They don't fit, or the key is a device's.
    pub(super) fn with_now(&self, key: &Rc<PrivateKey>) -> Result<Certificate, String> {
        if let Some((_, made)) = self.made.borrow().as_ref().filter(|(own, _)| Rc::ptr_eq(own, key)) {
            return Ok(made.clone());
        }
        let PrivateKey::Software(software) = &**key else { return Err("the key is in a device".to_owned()) };
        let made = Certificate::new(self.certificates.clone(), software.clone(), None);
        let made = made.map_err(|error| error.to_string())?;
        *self.made.borrow_mut() = Some((key.clone(), made.clone()));
        Ok(made)
    }
}

/// The certificates that `chains` and `keys` make; of several of one kind the last, as with OpenSSL. `None`: there are
/// certificates, but not their keys.
///
/// # Errors
/// A device does not have a key.
pub(crate) async fn certificates(
    chains: &[Rc<CertificateChain>],
    keys: &[Rc<PrivateKey>],
) -> Result<Option<Vec<Certificate>>, String> {
    let mut made: Vec<Certificate> = Vec::new();
    for chain in chains.iter().rev() {
        // A device's key may belong to any certificate, so those that are known to be the certificate's go first.
        let own = keys.iter().rev().find(|key| matches!(***key, PrivateKey::Software(_)) && chain.is_of(key));
        let Some(key) = own.or_else(|| keys.iter().rev().find(|key| chain.is_of(key))) else { continue };
        let certificate = chain.with(key).await?;
        if made.iter().all(|it| it.key().algorithm() != certificate.key().algorithm()) {
            made.push(certificate);
        }
    }
    Ok((!made.is_empty() || chains.is_empty()).then_some(made))
}

/// What bytes were parsed as.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ParsedAs {
    ChainOfPem,
    ChainOfDer,
    KeyOfPem,
    KeyOfDer,
    PemToDer,
    KeyPemToDer,
}

/// What came of it.
#[derive(Clone)]
enum ParsedItem {
    Chain(Rc<CertificateChain>),
    Key(Rc<PrivateKey>),
    Bytes(Rc<[u8]>),
}

type ParsedMap = HashMap<(ParsedAs, Box<[u8]>), ParsedItem>;

/// Two generations: what was not asked for while half of [`MOST`] others were is forgotten.
#[derive(Default)]
struct ParsedMemory {
    young: ParsedMap,
    old: ParsedMap,
}

thread_local! {
    static MEMORY: RefCell<ParsedMemory> = RefCell::default();
}

/// Certificates and keys that a worker knows: some 5 MB.
const MOST: usize = 2048;

/// What `bytes` were parsed as, by `parse` where that is not known.
fn known(kind: ParsedAs, bytes: &[u8], parse: impl FnOnce() -> Option<ParsedItem>) -> Option<ParsedItem> {
    let key = (kind, Box::from(bytes));
    let found = MEMORY.with_borrow_mut(|memory| {
        if let Some(found) = memory.young.get(&key) {
            return Some(found.clone());
        }
        let found = memory.old.remove(&key)?;
        memory.young.insert((kind, Box::from(bytes)), found.clone());
        Some(found)
    });
    if found.is_some() {
        return found;
    }
    let parsed = parse()?;
    MEMORY.with_borrow_mut(|memory| {
        if memory.young.len() >= MOST / 2 {
            memory.old = std::mem::take(&mut memory.young);
        }
        memory.young.insert(key, parsed.clone());
    });
    Some(parsed)
}

fn chain(
    kind: ParsedAs,
    bytes: &[u8],
    read: fn(&[u8]) -> Result<Vec<CertificateDer<'static>>, weir_tls::Error>,
) -> Option<Rc<CertificateChain>> {
    let parsed =
        known(kind, bytes, || Some(ParsedItem::Chain(Rc::new(CertificateChain::new(read(bytes).ok()?)?))));
    match parsed? {
        ParsedItem::Chain(chain) => Some(chain),
        _ => None,
    }
}

/// `None`: it is no chain of certificates.
pub(super) fn chain_of_pem(pem: &[u8]) -> Option<Rc<CertificateChain>> {
    chain(ParsedAs::ChainOfPem, pem, certificate::chain)
}

/// `None`: it is no chain of certificates.
pub(super) fn chain_of_der(der: &[u8]) -> Option<Rc<CertificateChain>> {
    chain(ParsedAs::ChainOfDer, der, certificate::chain_of_der)
}

/// OpenSSL's function that fails for a text that is no chain: another one reads what follows the first block.
pub(super) fn failing_reader(pem: &[u8]) -> &'static str {
    let end = pem.windows(END.len()).position(|part| part == END);
    let first = end.map_or(pem, |end| &pem[..end + END.len()]);
    match certificate::chain(first) {
        Ok(_) => "PEM_read_bio_X509() failed",
        Err(_) => "PEM_read_bio_X509_AUX() failed",
    }
}

const END: &[u8] = b"-----END CERTIFICATE-----";

fn private(
    kind: ParsedAs,
    bytes: &[u8],
    read: impl FnOnce() -> Result<Arc<dyn SigningKey>, weir_tls::Error>,
) -> Option<Rc<PrivateKey>> {
    match known(kind, bytes, || Some(ParsedItem::Key(Rc::new(PrivateKey::Software(read().ok()?)))))? {
        ParsedItem::Key(key) => Some(key),
        _ => None,
    }
}

/// `None`: it is no key.
pub(super) fn key_of_pem(pem: &[u8]) -> Option<Rc<PrivateKey>> {
    private(ParsedAs::KeyOfPem, pem, || key::read(pem, &[]))
}

/// `None`: it is no key.
pub(super) fn key_of_der(der: &[u8]) -> Option<Rc<PrivateKey>> {
    private(ParsedAs::KeyOfDer, der, || key::from_der(der))
}

fn bytes(kind: ParsedAs, from: &[u8], convert: impl FnOnce() -> Option<Vec<u8>>) -> Option<Rc<[u8]>> {
    match known(kind, from, || Some(ParsedItem::Bytes(convert()?.into())))? {
        ParsedItem::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

/// The chain as [`chain_of_der`] takes it.
pub(super) fn certificate_to_der(pem: &[u8]) -> Option<Rc<[u8]>> {
    bytes(ParsedAs::PemToDer, pem, || {
        Some(certificate::chain(pem).ok()?.iter().flat_map(|der| der.to_vec()).collect())
    })
}

/// The key as [`key_of_der`] takes it.
pub(super) fn key_to_der(pem: &[u8], password: Option<&[u8]>) -> Option<Rc<[u8]>> {
    let passwords: Vec<Vec<u8>> = password.map(<[u8]>::to_vec).into_iter().collect();
    let known_by = [pem, b"\0", password.unwrap_or_default()].concat();
    bytes(ParsedAs::KeyPemToDer, &known_by, || key::to_der(pem, &passwords).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(
        kind: &'static rcgen::SignatureAlgorithm,
    ) -> (Rc<CertificateChain>, Rc<PrivateKey>, String, String) {
        let key = rcgen::KeyPair::generate_for(kind).expect("a key");
        let text = rcgen::CertificateParams::default().self_signed(&key).expect("signed").pem();
        let (chain, own) = (chain_of_pem(text.as_bytes()), key_of_pem(key.serialize_pem().as_bytes()));
        (chain.expect("a chain"), own.expect("a key"), text, key.serialize_pem())
    }

    fn made(chains: &[&Rc<CertificateChain>], keys: &[&Rc<PrivateKey>]) -> Option<usize> {
        let chains: Vec<Rc<CertificateChain>> = chains.iter().map(|it| Rc::clone(it)).collect();
        let keys: Vec<Rc<PrivateKey>> = keys.iter().map(|it| Rc::clone(it)).collect();
        let mut future = std::pin::pin!(certificates(&chains, &keys));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(made) => made.expect("no device").map(|made| made.len()),
            std::task::Poll::Pending => panic!("nothing is waited for"),
        }
    }

    #[test]
    fn what_is_known_is_not_parsed_again() {
        let (chain, key, text, key_text) = pair(&rcgen::PKCS_ECDSA_P256_SHA256);
        assert!(Rc::ptr_eq(&chain, &chain_of_pem(text.as_bytes()).expect("known")));
        assert!(Rc::ptr_eq(&key, &key_of_pem(key_text.as_bytes()).expect("known")));
        let der = certificate_to_der(text.as_bytes()).expect("a chain");
        assert!(Rc::ptr_eq(&der, &certificate_to_der(text.as_bytes()).expect("known")));
        assert!(chain_of_der(&der).is_some_and(|other| other.certificates == chain.certificates));
        let der = key_to_der(key_text.as_bytes(), None).expect("a key");
        assert!(!chain.mismatches(&key_of_der(&der).expect("a key")));
        let bad = |at| [&text[..at], "=", &text[at + 1..]].concat();
        for (broken, reader) in [
            (bad(60), "PEM_read_bio_X509_AUX() failed"),
            (text.clone() + &bad(60), "PEM_read_bio_X509() failed"),
        ] {
            assert!(chain_of_pem(broken.as_bytes()).is_none());
            assert_eq!(failing_reader(broken.as_bytes()), reader);
        }
        for wrong in [&b"x"[..], b""] {
            assert!(chain_of_pem(wrong).is_none() && chain_of_der(wrong).is_none());
            assert!(key_of_pem(wrong).is_none() && key_of_der(wrong).is_none());
        }
    }

    #[test]
    fn what_is_not_asked_for_is_forgotten() {
        let (chain, _, text, _) = pair(&rcgen::PKCS_ECDSA_P256_SHA256);
        let ask = |n: usize| {
            known(ParsedAs::PemToDer, &n.to_be_bytes(), || Some(ParsedItem::Bytes(Rc::from(&[][..]))));
        };
        // Asked for now and then it stays.
        for n in 0..3 * MOST {
            ask(n);
            if n % 100 == 0 {
                assert!(Rc::ptr_eq(&chain, &chain_of_pem(text.as_bytes()).expect("known")), "{n}");
            }
        }
        (0..2 * MOST).for_each(|n| ask(n + 1_000_000));
        assert!(!Rc::ptr_eq(&chain, &chain_of_pem(text.as_bytes()).expect("parsed again")));
        MEMORY.with_borrow(|memory| assert!(memory.young.len() + memory.old.len() <= MOST));
    }

    #[test]
    fn keys_find_their_certificates() {
        let (first, first_key, ..) = pair(&rcgen::PKCS_ECDSA_P256_SHA256);
        let (second, second_key, ..) = pair(&rcgen::PKCS_ECDSA_P384_SHA384);
        let (other, other_key, ..) = pair(&rcgen::PKCS_ED25519);
        assert_eq!(made(&[&first, &other], &[&other_key, &first_key]), Some(2));
        // Of one kind the last counts.
        assert_eq!(made(&[&first, &second], &[&first_key, &second_key]), Some(1));
        assert_eq!(made(&[&first], &[&other_key]), None);
        assert_eq!(made(&[], &[&other_key]), Some(0));
        assert!(first.mismatches(&second_key), "both are ECDSA");
        assert!(!first.mismatches(&other_key) && !first.mismatches(&first_key));
    }
}
