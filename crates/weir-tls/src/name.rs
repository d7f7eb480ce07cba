//! Distinguished names as OpenSSL prints them.

use x509_parser::der_parser::asn1_rs::Tag;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// RFC 2253: `CN=a,O=b`, the last first.
pub(crate) fn rfc2253(name: &X509Name<'_>) -> String {
    let relative = |rdn: &x509_parser::x509::RelativeDistinguishedName<'_>| {
        let mut parts: Vec<String> = rdn.iter().map(part).collect();
        parts.reverse();
        parts.join("+")
    };
    let mut all: Vec<String> = name.iter_rdn().map(relative).collect();
    all.reverse();
    all.join(",")
}

fn part(attribute: &AttributeTypeAndValue<'_>) -> String {
    format!("{}={}", short(attribute), escape(&text(attribute)))
}

/// The old form: `/O=b/CN=a`.
pub(crate) fn oneline(name: &X509Name<'_>) -> String {
    let mut out = String::new();
    for attribute in name.iter_attributes() {
        out.push('/');
        out.push_str(&short(attribute));
        out.push('=');
        for b in text(attribute).bytes() {
            match b {
                b' '..=b'~' => out.push(b as char),
                other => out.push_str(&format!("\\x{other:02X}")),
            }
        }
    }
    out
}

/// OpenSSL's short name of the attribute, or its number.
fn short(attribute: &AttributeTypeAndValue<'_>) -> String {
    let dotted = attribute.attr_type().to_id_string();
    let known = SHORT.iter().find(|(number, _)| *number == dotted);
    known.map_or(dotted, |(_, name)| (*name).to_owned())
}

const SHORT: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("2.5.4.97", "organizationIdentifier"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("1.3.6.1.4.1.311.60.2.1.1", "jurisdictionL"),
    ("1.3.6.1.4.1.311.60.2.1.2", "jurisdictionST"),
    ("1.3.6.1.4.1.311.60.2.1.3", "jurisdictionC"),
];

/// The value as UTF-8; strings of two bytes a character are converted.
pub(crate) fn text(attribute: &AttributeTypeAndValue<'_>) -> String {
    let value = attribute.attr_value();
    let data = value.data;
    if value.tag() == Tag::BmpString {
        let units: Vec<u16> = data.chunks_exact(2).map(|b| u16::from_be_bytes([b[0], b[1]])).collect();
        return String::from_utf16_lossy(&units);
    }
    match std::str::from_utf8(data) {
        Ok(text) => text.to_owned(),
        Err(_) => data.iter().map(|b| *b as char).collect(),
    }
}

/// RFC 2253, section 2.4, with OpenSSL's escapes of what is no printable ASCII.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let last = text.len().saturating_sub(1);
    for (at, b) in text.bytes().enumerate() {
        match b {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                out.push('\\');
                out.push(b as char);
            }
            b'#' if at == 0 => out.push_str("\\#"),
            b' ' if at == 0 || at == last => out.push_str("\\ "),
            b' '..=b'~' => out.push(b as char),
            other => out.push_str(&format!("\\{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};
    use x509_parser::prelude::{FromDer, X509Certificate};

    use super::*;

    #[test]
    fn names_are_printed_as_openssl_prints_them() {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let parts = [
            (DnType::CountryName, DnValue::Utf8String("DE".into())),
            (DnType::OrganizationName, DnValue::Utf8String(" #a+b ".into())),
            (DnType::OrganizationalUnitName, DnValue::Utf8String("#c d".into())),
            (DnType::CustomDnType(vec![1, 2, 3, 4]), DnValue::Utf8String("<e>;\\".into())),
            (DnType::CommonName, DnValue::Utf8String("\u{e9},\"".into())),
        ];
        parts.into_iter().for_each(|(kind, value)| params.distinguished_name.push(kind, value));
        let key = KeyPair::generate().expect("a key");
        let own = params.self_signed(&key).expect("signed");
        let (_, certificate) = X509Certificate::from_der(own.der()).expect("a certificate");
        let name = certificate.subject();
        assert_eq!(rfc2253(name), r#"CN=\C3\A9\,\",1.2.3.4=\<e\>\;\\,OU=\#c d,O=\ #a\+b\ ,C=DE"#);
        assert_eq!(oneline(name), r#"/C=DE/O= #a+b /OU=#c d/1.2.3.4=<e>;\/CN=\xC3\xA9,""#);
    }
}
