//! Whether a certificate is for a name (RFC 6125 as OpenSSL's X509_check_host has it).

use std::net::IpAddr;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Whether the certificate `der` is for `name`: by its alternative names, and by its common name only if it has no
/// alternative names of hosts.
pub fn matches_host(der: &[u8], name: &str) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return false };
    let name = name.to_ascii_lowercase();
    let mut any = false;
    // What can't be read is not taken for "has none": the common name would count.
    let Ok(alternatives) = certificate.subject_alternative_name() else { return false };
    if let Some(alternatives) = alternatives {
        for general in &alternatives.value.general_names {
            if let GeneralName::DNSName(pattern) = general {
                any = true;
                if fits(pattern, &name) {
                    return true;
                }
            }
        }
    }
    !any && certificate.subject().iter_common_name().any(|cn| fits(&crate::name::text(cn), &name))
}

/// Whether the certificate `der` is for the address `ip`: by its alternative names alone (RFC 9110, section 4.3.4).
pub fn matches_address(der: &[u8], ip: IpAddr) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return false };
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return false };
    let is = |general: &GeneralName<'_>| match (general, ip) {
        (GeneralName::IPAddress(bytes), IpAddr::V4(v4)) => *bytes == v4.octets(),
        (GeneralName::IPAddress(bytes), IpAddr::V6(v6)) => *bytes == v6.octets(),
        _ => false,
    };
    alternatives.value.general_names.iter().any(is)
}

/// Whether the certificate `der` is for `uri`: by its alternative names alone, letter by letter.
pub fn matches_uri(der: &[u8], uri: &str) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return false };
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return false };
    let is = |general: &GeneralName<'_>| matches!(general, GeneralName::URI(own) if *own == uri);
    alternatives.value.general_names.iter().any(is)
}

/// A star matches the whole first label, of at least two others after it.
fn fits(pattern: &str, name: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    if pattern == name {
        return true;
    }
    let Some(rest) = pattern.strip_prefix("*.") else { return false };
    let Some((label, after)) = name.split_once('.') else { return false };
    !label.is_empty() && rest.contains('.') && after == rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two lists of names, of which none can be said to be the certificate's.
    #[test]
    fn names_that_cannot_be_read_leave_no_common_name() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = |lists: usize| {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name.push(rcgen::DnType::CommonName, "a.test");
            // SEQUENCE { [2] "b.test" }
            let list = [&[0x30, 8, 0x82, 6][..], b"b.test"].concat();
            let extension = || rcgen::CustomExtension::from_oid_content(&[2, 5, 29, 17], list.clone());
            params.custom_extensions = (0..lists).map(|_| extension()).collect();
            params.self_signed(&key).expect("signed")
        };
        for (lists, named) in [(0, "a.test"), (1, "b.test"), (2, "none")] {
            for name in ["a.test", "b.test"] {
                assert_eq!(matches_host(certificate(lists).der(), name), name == named, "{lists} {name}");
            }
        }
    }

    #[test]
    fn addresses_are_alternative_names() {
        let names = vec!["127.0.0.1".to_owned(), "::1".to_owned(), "10.0.0.1.example".to_owned()];
        let key = rcgen::KeyPair::generate().expect("a key");
        let own = rcgen::CertificateParams::new(names).expect("names").self_signed(&key).expect("signed");
        for (ip, expected) in [("127.0.0.1", true), ("::1", true), ("10.0.0.1", false), ("::2", false)] {
            assert_eq!(matches_address(own.der(), ip.parse().expect("an address")), expected, "{ip}");
        }
    }

    #[test]
    fn a_star_is_one_label() {
        for (pattern, name, expected) in [
            ("a.example.com", "a.example.com", true),
            ("A.Example.com", "a.example.com", true),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.b.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.com", "example.com", false),
            ("*", "a", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn alternative_names_hide_the_common_name() {
        let with = |names: &[&str], cn: &str| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut params = rcgen::CertificateParams::new(names).expect("names");
            params.distinguished_name.push(rcgen::DnType::CommonName, cn);
            let key = rcgen::KeyPair::generate().expect("a key");
            params.self_signed(&key).expect("a certificate").der().to_vec()
        };
        assert!(matches_host(&with(&[], "a.example.com"), "a.example.com"));
        assert!(!matches_host(&with(&["b.example.com"], "a.example.com"), "a.example.com"));
        assert!(matches_host(&with(&["b.example.com", "*.c.de"], "x"), "q.c.de"));
        assert!(matches_host(&with(&["127.0.0.1"], "a"), "a"), "addresses are no names of hosts");
        assert!(!matches_host(b"no certificate", "a"));
    }

    #[test]
    fn a_uri_is_an_alternative_name_letter_by_letter() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec!["spiffe".to_owned()]).expect("a name");
        let uri = "spiffe://example/a".try_into().expect("ASCII");
        params.subject_alt_names.push(rcgen::SanType::URI(uri));
        let own = params.self_signed(&key).expect("signed");
        for (uri, expected) in
            [("spiffe://example/a", true), ("spiffe://example/A", false), ("spiffe", false), ("", false)]
        {
            assert_eq!(matches_uri(own.der(), uri), expected, "{uri}");
        }
        assert!(!matches_uri(b"no certificate", "spiffe://example/a"));
    }
}
