//! What a certificate says, as nginx's `$ssl_client_*` show it.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;

use crate::{der, name};

fn parsed(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate)
}

/// The subject in the form of RFC 2253, `CN=example.org,O=Example` (`$ssl_client_s_dn`). `None` when `der` is not a
/// certificate.
pub fn subject(der: &[u8]) -> Option<String> {
    parsed(der).map(|it| name::rfc2253(it.subject()))
}

/// The issuer in the form of RFC 2253, `CN=CA,O=Example` (`$ssl_client_i_dn`). `None` when `der` is not a certificate.
pub fn issuer(der: &[u8]) -> Option<String> {
    parsed(der).map(|it| name::rfc2253(it.issuer()))
}

/// The subject in OpenSSL's old form, `/O=Example/CN=example.org` (`$ssl_client_s_dn_legacy`). `None` when `der` is not
/// a certificate.
pub fn subject_oneline(der: &[u8]) -> Option<String> {
    parsed(der).map(|it| name::oneline(it.subject()))
}

/// The issuer in OpenSSL's old form, `/O=Example/CN=CA` (`$ssl_client_i_dn_legacy`). `None` when `der` is not a
/// certificate.
pub fn issuer_oneline(der: &[u8]) -> Option<String> {
    parsed(der).map(|it| name::oneline(it.issuer()))
}

/// The subject as the certificate has it, in DER. `None` when `der` is not a certificate.
pub fn raw_subject(der: &[u8]) -> Option<Vec<u8>> {
    parsed(der).map(|it| it.subject().as_raw().to_vec())
}

/// The serial number in upper-case hexadecimal digits, two a byte (`$ssl_client_serial`). `None` when `der` is not a
/// certificate.
pub fn serial(der: &[u8]) -> Option<String> {
    let certificate = parsed(der)?;
    let raw = certificate.raw_serial();
    let digits = raw.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(raw);
    Some(digits.iter().map(|b| format!("{b:02X}")).collect())
}

/// The SHA-1 of the certificate (`$ssl_client_fingerprint`).
pub fn fingerprint(der: &[u8]) -> String {
    let sha1 = digest(&SHA1_FOR_LEGACY_USE_ONLY, der);
    sha1.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

/// The first moment of validity: `Nov 21 14:39:21 2026 GMT` (`$ssl_client_v_start`). `None` when `der` is not a
/// certificate.
pub fn valid_from(der: &[u8]) -> Option<String> {
    parsed(der).map(|it| date(it.validity().not_before))
}

/// The last moment of validity: `Nov 21 14:39:21 2027 GMT` (`$ssl_client_v_end`). `None` when `der` is not a
/// certificate.
pub fn valid_until(der: &[u8]) -> Option<String> {
    parsed(der).map(|it| date(it.validity().not_after))
}

/// Whole days until the certificate expires, 0 for an expired one (`$ssl_client_v_remain`). `now`: seconds since 1970.
/// `None` when `der` is not a certificate.
pub fn days_left(der: &[u8], now: u64) -> Option<u64> {
    let end = parsed(der)?.validity().not_after.timestamp();
    Some(u64::try_from(end).unwrap_or(0).saturating_sub(now) / 86_400)
}

/// The SubjectPublicKeyInfo in DER (RFC 5280, section 4.1). `None` when `der` is not a certificate.
pub fn public_key(der: &[u8]) -> Option<Vec<u8>> {
    parsed(der).map(|it| it.public_key().raw.to_vec())
}

/// The public key as a part of the encoded certificate (RFC 5280, section 4.1), for very many certificates: nothing
/// else is looked at. `None` if it is not a certificate.
pub(crate) fn public_key_within(der: &[u8]) -> Option<&[u8]> {
    /// `[0] EXPLICIT`, the version, which is absent in certificates of version 1.
    const VERSION: u8 = 0xa0;
    let (certificate, _) = der::expect(der, der::SEQUENCE)?;
    let (mut rest, _) = der::expect(certificate, der::SEQUENCE)?;
    if let Some(version) = der::element(rest).filter(|it| it.tag == VERSION) {
        rest = version.rest;
    }
    // Serial number, signature, issuer, validity, subject.
    for tag in [der::INTEGER, der::SEQUENCE, der::SEQUENCE, der::SEQUENCE, der::SEQUENCE] {
        (_, rest) = der::expect(rest, tag)?;
    }
    der::element(rest).filter(|it| it.tag == der::SEQUENCE).map(|it| it.all)
}

/// OpenSSL's form of a time.
fn date(time: ASN1Time) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let time = time.to_datetime();
    let month = MONTHS[usize::from(u8::from(time.month())) - 1];
    let (day, year) = (time.day(), time.year());
    format!("{month} {day:2} {:02}:{:02}:{:02} {year} GMT", time.hour(), time.minute(), time.second())
}
