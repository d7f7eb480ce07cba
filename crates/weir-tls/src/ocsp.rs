//! The state of certificates, asked from their issuers (OCSP, RFC 6960): a request, and what a response is worth.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::der::{self, INTEGER, OCTETS, OID, SEQUENCE};
use crate::error::{Error, content};
use crate::issuer::{all_with, issued, signed_by};
use crate::signature_limits::algorithms;
use crate::verify::verify;

/// What an issuer says of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateStatus {
    /// It is not revoked.
    Good,
    /// It is revoked.
    Revoked,
    /// The issuer does not know it.
    Unknown,
}

impl CertificateStatus {
    /// OpenSSL's word: `good`, `revoked` or `unknown`.
    pub fn name(self) -> &'static str {
        match self {
            CertificateStatus::Good => "good",
            CertificateStatus::Revoked => "revoked",
            CertificateStatus::Unknown => "unknown",
        }
    }
}

/// What a response says, after its signature was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OcspAnswer {
    /// The certificate's state.
    pub status: CertificateStatus,
    /// Seconds since 1970 until which that holds; `None`: newer responses may be had at any time.
    pub until: Option<u64>,
}

/// Whom a response may be signed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OcspSigner {
    /// Anybody whose certificate is in the response or among the known ones: the caller checks that.
    Any,
    /// The certificate's issuer, or a delegated responder (RFC 6960, section 4.2.2.2).
    Issuer,
}

/// The URL of the OCSP responder that `certificate` names (RFC 5280, section 4.2.2.1). `None` when it names no
/// responder or is malformed.
pub fn responder(certificate: &[u8]) -> Option<String> {
    let certificate = read(certificate)?;
    for extension in certificate.extensions() {
        let ParsedExtension::AuthorityInfoAccess(access) = extension.parsed_extension() else { continue };
        for description in &access.accessdescs {
            if let GeneralName::URI(uri) = &description.access_location
                && description.access_method.as_bytes() == OCSP
            {
                return Some((*uri).to_owned());
            }
        }
    }
    None
}

/// The one of `candidates` that issued `certificate` (DER). `None` when none of them did or the certificate is
/// malformed.
pub fn issuer<'c>(
    certificate: &[u8],
    candidates: impl IntoIterator<Item = &'c CertificateDer<'static>>,
) -> Option<CertificateDer<'static>> {
    let certificate = read(certificate)?;
    let is = |der: &&CertificateDer<'static>| read(der).is_some_and(|it| issued(&it, &certificate));
    candidates.into_iter().find(is).cloned()
}

/// The CertID of `certificate`, of `issuer`, with SHA-1 hashes (RFC 6960, section 4.1.1), in DER: unique, so that it
/// also serves as a cache key. `None` when one of them is malformed.
pub fn id(certificate: &[u8], issuer: &[u8]) -> Option<Vec<u8>> {
    let (certificate, issuer) = (read(certificate)?, read(issuer)?);
    let mut id = SHA1.to_vec();
    put(&mut id, OCTETS, &sha1(certificate.issuer().as_raw()));
    put(&mut id, OCTETS, &sha1(&issuer.public_key().subject_public_key.data));
    put(&mut id, INTEGER, certificate.raw_serial());
    Some(wrapped(SEQUENCE, &id))
}

/// An OCSPRequest for the certificate `id`.
pub fn request(id: &[u8]) -> Vec<u8> {
    // OCSPRequest, TBSRequest, the list, its one Request.
    (0..4).fold(id.to_vec(), |inner, _| wrapped(SEQUENCE, &inner))
}

/// Reads an OCSPResponse about `certificate`. `others`: certificates that the signer may be among. `now`: seconds since
/// 1970.
///
/// # Errors
/// It is not a response, not about this certificate, not signed by an accepted signer, or not of this time, in nginx's
/// words.
pub fn check_response(
    response: &[u8],
    certificate: &[u8],
    issuer: &[u8],
    others: &[CertificateDer<'_>],
    signer: OcspSigner,
    now: u64,
) -> Result<OcspAnswer, Error> {
    let malformed = || content("d2i_OCSP_RESPONSE() failed");
    let basic = successful(response)?;
    let basic = BasicResponse::parse(basic).ok_or_else(malformed)?;
    basic.verify(issuer, others, signer, now)?;
    let id = id(certificate, issuer).ok_or_else(malformed)?;
    let single =
        basic.find(&id).ok_or_else(|| content("certificate status not found in the OCSP response"))?;
    // As OpenSSL is asked to: clocks may differ by this many seconds.
    const SKEW: u64 = 300;
    let late = single.until.is_some_and(|until| until + SKEW < now || until < single.since);
    if single.since > now + SKEW || late {
        return Err(content("OCSP_check_validity() failed"));
    }
    Ok(OcspAnswer { status: single.status, until: single.until })
}

/// The BasicOCSPResponse of an OCSPResponse that has one.
fn successful(response: &[u8]) -> Result<&[u8], Error> {
    const ENUMERATED: u8 = 0x0a;
    let malformed = || content("d2i_OCSP_RESPONSE() failed");
    let (whole, _) = der::expect(response, SEQUENCE).ok_or_else(malformed)?;
    let (status, rest) = der::expect(whole, ENUMERATED).ok_or_else(malformed)?;
    let text = match status {
        [0] => None,
        [1] => Some("malformedrequest"),
        [2] => Some("internalerror"),
        [3] => Some("trylater"),
        [5] => Some("sigrequired"),
        [6] => Some("unauthorized"),
        _ => Some("(UNKNOWN)"),
    };
    if let Some(text) = text {
        let number = status.first().copied().unwrap_or(0);
        return Err(content(format!("OCSP response not successful ({number}: {text})")));
    }
    let bytes = || {
        let (explicit, _) = der::expect(rest, EXPLICIT_0)?;
        let (inner, _) = der::expect(explicit, SEQUENCE)?;
        let (kind, rest) = der::expect(inner, OID)?;
        (kind == BASIC).then(|| der::expect(rest, OCTETS)).flatten().map(|(bytes, _)| bytes)
    };
    bytes().ok_or_else(|| content("OCSP_response_get1_basic() failed"))
}

/// A BasicOCSPResponse.
struct BasicResponse<'b> {
    /// ResponseData, whole: what is signed.
    signed: &'b [u8],
    responder: der::DerElement<'b>,
    /// The content of the list of SingleResponse.
    singles: &'b [u8],
    /// Of the signature's algorithm.
    oid: &'b [u8],
    signature: &'b [u8],
    certificates: Vec<&'b [u8]>,
}

impl<'b> BasicResponse<'b> {
    fn parse(bytes: &'b [u8]) -> Option<BasicResponse<'b>> {
        const GENERALIZED: u8 = 0x18;
        const BITS: u8 = 0x03;
        let (basic, _) = der::expect(bytes, SEQUENCE)?;
        let data = der::element(basic).filter(|data| data.tag == SEQUENCE)?;
        // A version may precede the responder's name.
        let first = der::element(data.content)?;
        let responder = if first.tag == EXPLICIT_0 { der::element(first.rest)? } else { first };
        let (_, rest) = der::expect(responder.rest, GENERALIZED)?;
        let (singles, _) = der::expect(rest, SEQUENCE)?;
        let (algorithm, rest) = der::expect(data.rest, SEQUENCE)?;
        let (oid, _) = der::expect(algorithm, OID)?;
        let (bits, rest) = der::expect(rest, BITS)?;
        let mut certificates = Vec::new();
        if let Some((explicit, _)) = der::expect(rest, EXPLICIT_0) {
            let (mut list, _) = der::expect(explicit, SEQUENCE)?;
            while let Some(certificate) = der::element(list) {
                certificates.push(certificate.all);
                list = certificate.rest;
            }
        }
        let signature = bits.split_first().filter(|(unused, _)| **unused == 0)?.1;
        Some(BasicResponse { signed: data.all, responder, singles, oid, signature, certificates })
    }

    /// Whether an authorized responder has signed.
    fn verify(
        &self,
        issuer: &[u8],
        others: &[CertificateDer<'_>],
        signer: OcspSigner,
        now: u64,
    ) -> Result<(), Error> {
        let failed = |why: &str| content(format!("OCSP_basic_verify() failed (SSL: {why})"));
        let issuer = read(issuer).ok_or_else(|| failed("signer certificate not found"))?;
        let known = others.iter().map(|der| &der[..]).chain(self.certificates.iter().copied());
        let known: Vec<X509Certificate<'_>> = known.filter_map(read).collect();
        let found = std::iter::once(&issuer).chain(&known).find(|it| self.is_responder(it));
        let found = found.ok_or_else(|| failed("signer certificate not found"))?;
        if !verify(&all_with(algorithms().all, self.oid), found, self.signed, self.signature) {
            return Err(failed("signature failure"));
        }
        let is_issuer = found.public_key().raw == issuer.public_key().raw
            && found.subject().as_raw() == issuer.subject().as_raw();
        if signer == OcspSigner::Any || is_issuer || appointed(found, &issuer, now) {
            return Ok(());
        }
        Err(failed("root ca not trusted"))
    }

    /// ResponderID: a name, or the hash of a key.
    fn is_responder(&self, certificate: &X509Certificate<'_>) -> bool {
        match self.responder.tag {
            0xa1 => certificate.subject().as_raw() == self.responder.content,
            0xa2 => der::expect(self.responder.content, OCTETS)
                .is_some_and(|(hash, _)| hash == sha1(&certificate.public_key().subject_public_key.data)),
            _ => false,
        }
    }

    /// What is said of the certificate `wanted`.
    fn find(&self, wanted: &[u8]) -> Option<SingleResponse> {
        let wanted = key_of(wanted)?;
        let mut rest = self.singles;
        while let Some((single, next)) = der::expect(rest, SEQUENCE) {
            let id = der::element(single)?;
            if key_of(id.all) == Some(wanted) {
                return SingleResponse::parse(id.rest);
            }
            rest = next;
        }
        None
    }
}

/// What is compared of a CertID: algorithm, hashes and number; the algorithm's parameters are written in two ways.
fn key_of(id: &[u8]) -> Option<(&[u8], &[u8])> {
    let (content, _) = der::expect(id, SEQUENCE)?;
    let (algorithm, rest) = der::expect(content, SEQUENCE)?;
    Some((der::expect(algorithm, OID)?.0, rest))
}

/// What follows the CertID in a SingleResponse. Times are seconds since 1970.
struct SingleResponse {
    status: CertificateStatus,
    since: u64,
    until: Option<u64>,
}

impl SingleResponse {
    fn parse(bytes: &[u8]) -> Option<SingleResponse> {
        let state = der::element(bytes)?;
        let status = match state.tag {
            0x80 => CertificateStatus::Good,
            0xa1 => CertificateStatus::Revoked,
            0x82 => CertificateStatus::Unknown,
            _ => return None,
        };
        let since = der::element(state.rest)?;
        let until = match der::expect(since.rest, EXPLICIT_0) {
            Some((time, _)) => Some(seconds(time)?),
            None => None,
        };
        Some(SingleResponse { status, since: seconds(since.all)?, until })
    }
}

/// A GeneralizedTime as seconds since 1970.
fn seconds(element: &[u8]) -> Option<u64> {
    let (_, time) = ASN1Time::from_der(element).ok()?;
    u64::try_from(time.timestamp()).ok()
}

/// Whether `issuer` has authorized `signer` as its responder.
fn appointed(signer: &X509Certificate<'_>, issuer: &X509Certificate<'_>, now: u64) -> bool {
    let usage = signer.extended_key_usage().ok().flatten();
    let validity = signer.validity();
    let in_time = u64::try_from(validity.not_before.timestamp()).unwrap_or(0) <= now
        && u64::try_from(validity.not_after.timestamp()).is_ok_and(|end| now <= end);
    usage.is_some_and(|usage| usage.value.ocsp_signing)
        && in_time
        && issued(issuer, signer)
        && signed_by(signer, issuer)
}

fn read(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate)
}

fn sha1(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec()
}

fn wrapped(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 4);
    put(&mut out, tag, content);
    out
}

/// Appends an element of at most 64 KB.
fn put(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    let len = content.len();
    out.push(tag);
    match len {
        0..=0x7f => out.push(len as u8),
        0x80..=0xff => out.extend([0x81, len as u8]),
        _ => out.extend([0x82, (len >> 8) as u8, len as u8]),
    }
    out.extend_from_slice(content);
}

const EXPLICIT_0: u8 = 0xa0;
/// id-ad-ocsp, 1.3.6.1.5.5.7.48.1
const OCSP: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01];
/// id-pkix-ocsp-basic, 1.3.6.1.5.5.7.48.1.1
const BASIC: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];
/// The AlgorithmIdentifier of SHA-1, by which certificates are named (RFC 5019, section 2.1.1).
const SHA1: &[u8] = &[0x30, 0x09, 0x06, 0x05, 0x2b, 0x0e, 0x03, 0x02, 0x1a, 0x05, 0x00];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_answer_is_told() {
        let say = |response: &[u8]| {
            let error = check_response(response, &[], &[], &[], OcspSigner::Any, 0).expect_err("no answer");
            error.to_string()
        };
        assert_eq!(say(b"no"), "d2i_OCSP_RESPONSE() failed");
        assert_eq!(say(&[0x30, 3, 0x0a, 1, 3]), "OCSP response not successful (3: trylater)");
        assert_eq!(say(&[0x30, 3, 0x0a, 1, 0]), "OCSP_response_get1_basic() failed");
    }

    #[test]
    fn lengths_are_written_in_their_shortest_form() {
        for (len, head) in [(5, vec![4, 5]), (200, vec![4, 0x81, 200]), (600, vec![4, 0x82, 2, 88])] {
            let element = wrapped(OCTETS, &vec![7; len]);
            assert_eq!(element[..head.len()], head);
            assert_eq!(der::expect(&element, OCTETS).map(|(content, _)| content.len()), Some(len));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let wrap = |tag, content: &[u8]| wrapped(tag, content);
            let basic = wrap(OCTETS, &wrap(SEQUENCE, &bytes));
            let inner = [wrap(OID, BASIC), basic].concat();
            let inner = wrap(EXPLICIT_0, &wrap(SEQUENCE, &inner));
            let whole = wrap(SEQUENCE, &[&[0x0a, 1, 0][..], &inner].concat());
            let read = check_response(&whole, &[], &[], &[], OcspSigner::Any, 0);
            prop_assert!(read.is_err(), "there is nothing to be answered");
            let _ = BasicResponse::parse(&bytes);
            let _ = SingleResponse::parse(&bytes);
        }
    }
}
