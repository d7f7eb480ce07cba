//! What a certificate says, as nginx's `$ssl_client_*` show it.

use std::net::IpAddr;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use x509_parser::certificate::Validity;
use x509_parser::extensions::{AccessDescription, GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::time::ASN1Time;

use crate::issuer::{issued, signed_by};
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

/// The first and the last second of validity, since 1970. `None` when `der` is not a certificate. Cheap, for very many:
/// nothing else is looked at.
pub fn validity(der: &[u8]) -> Option<(i64, i64)> {
    let (_, validity) = Validity::from_der(within(der, VALIDITY)?).ok()?;
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

/// The names of the certificate's holder (subjectAltName): DNS names and addresses, as a client compares them. Empty
/// without any, or when `der` is not a certificate.
pub fn alternative_names(der: &[u8]) -> Vec<String> {
    let Some(certificate) = parsed(der) else { return Vec::new() };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    names.value.general_names.iter().filter_map(alternative_name).collect()
}

fn alternative_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) | GeneralName::RFC822Name(name) => {
            Some((*name).to_owned())
        }
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}

/// The kind of the public key: `RSA 2048`, `ECDSA P-256`, `Ed25519`; `None` when `der` is not a certificate.
pub fn key_type(der: &[u8]) -> Option<String> {
    let certificate = parsed(der)?;
    let key = certificate.public_key();
    Some(match key.parsed() {
        Ok(PublicKey::RSA(rsa)) => format!("RSA {}", rsa.key_size()),
        Ok(PublicKey::EC(point)) => match point.key_size() {
            size @ (256 | 384) => format!("ECDSA P-{size}"),
            520 | 521 | 528 => "ECDSA P-521".to_owned(),
            size => format!("EC {size}"),
        },
        _ => match key.algorithm.algorithm.to_id_string().as_str() {
            "1.3.101.112" => "Ed25519".to_owned(),
            "1.3.101.113" => "Ed448".to_owned(),
            id => id.to_owned(),
        },
    })
}

/// Whether the certificate has issued itself, by its names.
pub fn is_self_issued(der: &[u8]) -> bool {
    parsed(der).is_some_and(|it| issued(&it, &it))
}

/// Where the issuer's certificate is published (authorityInfoAccess, caIssuers); `None` where it is not said.
pub fn issuer_url(der: &[u8]) -> Option<String> {
    const CA_ISSUERS: &str = "1.3.6.1.5.5.7.48.2";
    let certificate = parsed(der)?;
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityInfoAccess(access) => {
            let is = |it: &&AccessDescription<'_>| it.access_method.to_id_string() == CA_ISSUERS;
            access.accessdescs.iter().find(is).and_then(|it| alternative_name(&it.access_location))
        }
        _ => None,
    })
}

/// Whether `issuer` is, by name and signature, what has issued `der`.
pub fn is_issued_by(der: &[u8], issuer: &[u8]) -> bool {
    let (Some(own), Some(issuer)) = (parsed(der), parsed(issuer)) else { return false };
    issued(&issuer, &own) && signed_by(&own, &issuer)
}

/// The SubjectPublicKeyInfo in DER (RFC 5280, section 4.1). `None` when `der` is not a certificate.
pub fn public_key(der: &[u8]) -> Option<Vec<u8>> {
    parsed(der).map(|it| it.public_key().raw.to_vec())
}

/// The public key as a part of the encoded certificate (RFC 5280, section 4.1), for very many certificates: nothing
/// else is looked at. `None` if it is not a certificate.
pub(crate) fn public_key_within(der: &[u8]) -> Option<&[u8]> {
    within(der, PUBLIC_KEY)
}

/// What certificates consist of after their version: serial number, signature, issuer, validity, subject, public key.
const FIELDS: [u8; 6] =
    [der::INTEGER, der::SEQUENCE, der::SEQUENCE, der::SEQUENCE, der::SEQUENCE, der::SEQUENCE];
const VALIDITY: usize = 3;
const PUBLIC_KEY: usize = 5;

/// The one of the [`FIELDS`] of this position, as a part of the encoded certificate.
fn within(der: &[u8], field: usize) -> Option<&[u8]> {
    /// `[0] EXPLICIT`, the version, which is absent in certificates of version 1.
    const VERSION: u8 = 0xa0;
    let (certificate, _) = der::expect(der, der::SEQUENCE)?;
    let (mut rest, _) = der::expect(certificate, der::SEQUENCE)?;
    if let Some(version) = der::element(rest).filter(|it| it.tag == VERSION) {
        rest = version.rest;
    }
    for tag in FIELDS.iter().take(field) {
        (_, rest) = der::expect(rest, *tag)?;
    }
    der::element(rest).filter(|it| it.tag == FIELDS[field]).map(|it| it.all)
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

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CustomExtension, IsCa, Issuer, KeyPair};

    use super::*;

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(vec![name.to_owned(), "10.0.0.1".to_owned()]).expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2051, 1, 1);
        params
    }

    #[test]
    fn certificates_say_what_operators_ask() {
        let (ca_key, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
        let mut ca = params("ca");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = ca.self_signed(&ca_key).expect("signed");
        let mut own = params("a.example");
        // SEQUENCE { SEQUENCE { OID caIssuers, [6] "http://ca/" } }
        let access =
            [&[0x30, 0x18, 0x30, 0x16, 6, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 2, 0x86, 10][..], b"http://ca/"];
        own.custom_extensions
            .push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], access.concat()));
        let issued = own.signed_by(&key, &Issuer::from_params(&ca, &ca_key)).expect("signed");
        assert_eq!(
            validity(issued.der()),
            Some((1_577_836_800, 2_556_144_000)),
            "UTCTime and GeneralizedTime"
        );
        assert_eq!(alternative_names(issued.der()), ["a.example", "10.0.0.1"]);
        assert_eq!(key_type(issued.der()).as_deref(), Some("ECDSA P-256"));
        assert!(is_issued_by(issued.der(), root.der()) && !is_issued_by(root.der(), issued.der()));
        assert!(is_self_issued(root.der()) && !is_self_issued(issued.der()));
        assert_eq!(issuer_url(issued.der()).as_deref(), Some("http://ca/"));
        assert_eq!(issuer_url(root.der()), None);
        for broken in [&b""[..], b"\x30\x03abc", &issued.der()[..40]] {
            assert_eq!(
                (validity(broken), key_type(broken), alternative_names(broken)),
                (None, None, Vec::new())
            );
            assert!(!is_issued_by(broken, root.der()) && !is_self_issued(broken));
        }
    }
}
