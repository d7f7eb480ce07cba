//! Domain names.

use std::fmt;
use std::net::IpAddr;

/// A domain name: its labels as on the wire, in lower case, each after its length, without the final empty one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DnsName(Box<[u8]>);

/// The longest name, with the final empty label (RFC 1035 section 2.3.4).
const LONGEST: usize = 255;

impl DnsName {
    /// Reads `www.example.org`, with or without a dot at the end. `None`: an empty label, or one of more than 63 bytes,
    /// or too many of them.
    pub fn parse(text: &str) -> Option<DnsName> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return None;
        }
        let mut wire = Vec::with_capacity(text.len() + 1);
        for label in text.split('.') {
            push(&mut wire, label.as_bytes())?;
        }
        Some(DnsName(wire.into()))
    }

    /// The root of the name tree, `.`: the name without labels.
    pub fn root() -> DnsName {
        DnsName::default()
    }

    /// The name under which an address is looked up (RFC 1035 section 3.5, RFC 3596 section 2.5).
    pub(crate) fn of_address(address: IpAddr) -> DnsName {
        let text = match address {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                format!("{d}.{c}.{b}.{a}.in-addr.arpa")
            }
            IpAddr::V6(v6) => {
                let nibbles = v6.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
                nibbles.fold(String::new(), |text, nibble| text + &format!("{nibble:x}.")) + "ip6.arpa"
            }
        };
        DnsName::parse(&text).expect("labels of digits, 74 bytes at most")
    }

    /// This name inside `domain`; `None` when that is too long.
    pub fn within(&self, domain: &DnsName) -> Option<DnsName> {
        let wire = [&self.0[..], &domain.0].concat();
        (wire.len() < LONGEST).then(|| DnsName(wire.into()))
    }

    /// How many dots it has between its labels.
    pub fn dots(&self) -> usize {
        self.labels().count().saturating_sub(1)
    }

    /// As on the wire, without compression.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
        out.push(0);
    }

    /// Reads a name at `at` of a message, following pointers, each of which must lead back; the position after it.
    pub(crate) fn read(message: &[u8], at: usize) -> Option<(DnsName, usize)> {
        let mut wire = Vec::new();
        // What may still be pointed to lies before this: so it ends.
        let (mut at, mut before, mut after) = (at, at, None);
        loop {
            let length = usize::from(*message.get(at)?);
            match length {
                0 => return Some((DnsName(wire.into()), after.unwrap_or(at + 1))),
                1..=63 => {
                    push(&mut wire, message.get(at + 1..at + 1 + length)?)?;
                    at += 1 + length;
                }
                192.. => {
                    let to = (length & 63) << 8 | usize::from(*message.get(at + 1)?);
                    after.get_or_insert(at + 2);
                    if to >= before {
                        return None;
                    }
                    (at, before) = (to, to);
                }
                _ => return None,
            }
        }
    }

    fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first()?;
            let (label, after) = after.split_at(usize::from(*length));
            rest = after;
            Some(label)
        })
    }
}

/// Appends a label.
fn push(wire: &mut Vec<u8>, label: &[u8]) -> Option<()> {
    if label.is_empty() || label.len() > 63 || wire.len() + label.len() + 2 > LONGEST {
        return None;
    }
    wire.push(label.len() as u8);
    wire.extend(label.iter().map(u8::to_ascii_lowercase));
    Some(())
}

impl fmt::Display for DnsName {
    /// Dots and what is not printable in labels are escaped as in master files (RFC 1035 section 5.1).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(".");
        }
        for (at, label) in self.labels().enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            for &byte in label {
                match byte {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                    b'!'..=b'~' => write!(f, "{}", char::from(byte))?,
                    _ => write!(f, "\\{byte:03}")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_and_have_no_empty_labels() {
        let text = |name: &str| DnsName::parse(name).map(|name| name.to_string());
        assert_eq!(text("WWW.Example.org."), Some("www.example.org".to_owned()));
        assert_eq!(text("a..b"), None);
        assert_eq!(text(""), None);
        assert_eq!(text(&"a".repeat(64)), None);
        assert_eq!(text(&"abcdefg.".repeat(32)), None);
        assert_eq!(text(&"abcdefg.".repeat(31)).map(|name| name.len()), Some(247));
    }

    #[test]
    fn addresses_have_names() {
        let name = |address: &str| DnsName::of_address(address.parse().expect("an address")).to_string();
        assert_eq!(name("127.0.0.1"), "1.0.0.127.in-addr.arpa");
        assert!(name("2001:db8::1").starts_with("1.0.0.0.0.0.0.0."));
        assert!(name("2001:db8::1").ends_with(".8.b.d.0.1.0.0.2.ip6.arpa"));
    }

    #[test]
    fn pointers_lead_back_or_nowhere() {
        assert_eq!(DnsName::read(&[0xc0, 0], 0), None, "to itself");
        assert_eq!(DnsName::read(&[0xc0, 2, 0xc0, 0], 2), None, "in a circle");
        let (name, after) = DnsName::read(b"\x01a\x00\x01b\xc0\x00", 3).expect("a name");
        assert_eq!((name.to_string().as_str(), after), ("b.a", 7));
    }
}
