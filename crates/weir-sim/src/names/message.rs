//! Messages of DNS (RFC 1035 section 4) as the simulation's name servers read and write them.

use std::net::Ipv4Addr;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameQuestion {
    id: u16,
    /// The name, in small letters, without its last dot.
    pub name: String,
    /// The kind of record; 1: addresses of IPv4.
    pub kind: u16,
    /// The question as it has come, which the response repeats.
    text: Vec<u8>,
}

/// What a response says besides its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameCode {
    /// There are these records, or none.
    Good,
    /// The server can't say (SERVFAIL).
    Fails,
    /// There is no such name (NXDOMAIN).
    Absent,
    /// The server does not want to say (REFUSED).
    Refuses,
}

impl NameQuestion {
    /// Reads a query.
    ///
    /// # Errors
    /// It is none.
    pub fn read(bytes: &[u8]) -> Result<NameQuestion, String> {
        let wrong = || format!("no query: {bytes:?}");
        let head = bytes.get(..12).ok_or_else(wrong)?;
        let is_query = head[2] & 0xf8 == 0 && head[4..8] == [0, 1, 0, 0];
        let mut at = 12;
        let mut labels = Vec::new();
        while let Some(length) = bytes.get(at).map(|length| usize::from(*length)).filter(|length| *length > 0) {
            let label = bytes.get(at + 1..at + 1 + length).ok_or_else(wrong)?;
            labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
            at += 1 + length;
        }
        let rest = bytes.get(at + 1..at + 5).filter(|_| is_query).ok_or_else(wrong)?;
        Ok(NameQuestion {
            id: u16::from_be_bytes([head[0], head[1]]),
            name: labels.join("."),
            kind: u16::from_be_bytes([rest[0], rest[1]]),
            text: bytes[12..at + 5].to_vec(),
        })
    }

    /// A response with these addresses, each for `ttl` seconds; `is_cut`: it says that there is more.
    pub fn response(&self, code: NameCode, hosts: &[Ipv4Addr], ttl: u32, is_cut: bool) -> Vec<u8> {
        let hosts = if is_cut { &[] } else { hosts };
        let mut bytes = self.id.to_be_bytes().to_vec();
        let code = match code {
            NameCode::Good => 0,
            NameCode::Fails => 2,
            NameCode::Absent => 3,
            NameCode::Refuses => 5,
        };
        bytes.extend([0x81 | if is_cut { 2 } else { 0 }, 0x80 | code, 0, 1, 0, hosts.len() as u8, 0, 0, 0, 0]);
        bytes.extend_from_slice(&self.text);
        for host in hosts {
            bytes.extend([0xc0, 12, 0, 1, 0, 1]);
            bytes.extend(ttl.to_be_bytes());
            bytes.extend([0, 4]);
            bytes.extend(host.octets());
        }
        bytes
    }

    /// The same question with another number: what a forger says.
    pub fn forged(&self) -> NameQuestion {
        NameQuestion { id: self.id.wrapping_add(1), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: &[u8] = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02H0\x03sim\x00\x00\x01\x00\x01";

    #[test]
    fn a_query_is_read_and_its_response_repeats_it() {
        let question = NameQuestion::read(QUERY).expect("a query");
        assert_eq!((question.name.as_str(), question.kind), ("h0.sim", 1));
        let bytes = question.response(NameCode::Good, &[Ipv4Addr::new(127, 0, 1, 9)], 5, false);
        assert_eq!(bytes[..8], [0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1]);
        assert!(bytes[12..].starts_with(&QUERY[12..]) && bytes.ends_with(&[0, 0, 0, 5, 0, 4, 127, 0, 1, 9]));
        let cut = question.forged().response(NameCode::Good, &[Ipv4Addr::LOCALHOST], 5, true);
        assert_eq!(cut[..8], [0x12, 0x35, 0x83, 0x80, 0, 1, 0, 0]);
        for length in 0..QUERY.len() {
            assert!(NameQuestion::read(&QUERY[..length]).is_err(), "{length}");
        }
    }
}
