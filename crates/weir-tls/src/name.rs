//! Distinguished names as OpenSSL prints them.

use x509_parser::der_parser::asn1_rs::Tag;
use x509_parser::objects::oid_registry;
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

fn short(attribute: &AttributeTypeAndValue<'_>) -> String {
    let oid = attribute.attr_type();
    match oid.to_id_string().as_str() {
        "1.2.840.113549.1.9.1" => "emailAddress".to_owned(),
        "2.5.4.9" => "street".to_owned(),
        "2.5.4.5" => "serialNumber".to_owned(),
        "2.5.4.4" => "SN".to_owned(),
        "2.5.4.42" => "GN".to_owned(),
        "0.9.2342.19200300.100.1.25" => "DC".to_owned(),
        "0.9.2342.19200300.100.1.1" => "UID".to_owned(),
        dotted => oid_registry().get(oid).map_or_else(|| dotted.to_owned(), |entry| entry.sn().to_owned()),
    }
}

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
