//! Messages (RFC 1035 section 4), as far as a stub resolver needs them: one question out, answers in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::name::DnsName;

/// The type of a DNS record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum RecordType {
    /// An IPv4 address.
    A = 1,
    /// A name server.
    Ns = 2,
    /// The name of an address.
    Ptr = 12,
    /// An IPv6 address (RFC 3596).
    Aaaa = 28,
    /// A server of a service (RFC 2782).
    Srv = 33,
}

/// Bytes of a datagram that fit through any path (DNS flag day 2020).
const PAYLOAD: u16 = 1232;
/// The class of the internet.
const IN: u16 = 1;
/// The type of an alias.
const CNAME: u16 = 5;
/// The type (SOA) that says, beside an empty answer, how long there will be nothing (RFC 2308).
const SOA: u16 = 6;

/// What a query has after its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryOptions {
    /// Nothing, for servers that know none.
    None,
    /// The response may be larger than 512 bytes (RFC 6891).
    Edns,
}

/// Encodes a query with the number `id` for `name` and type `kind`.
pub fn query(id: u16, name: &DnsName, kind: RecordType, options: QueryOptions) -> Vec<u8> {
    let edns = options == QueryOptions::Edns;
    let mut out = Vec::with_capacity(64);
    let recursion_desired = 0x0100;
    for word in [id, recursion_desired, 1, 0, 0, u16::from(edns)] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    name.write(&mut out);
    for word in [kind as u16, IN] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    if edns {
        out.extend_from_slice(&[0, 0, 41]);
        out.extend_from_slice(&PAYLOAD.to_be_bytes());
        out.extend_from_slice(&[0; 6]);
    }
    out
}

/// A response, as far as it is of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsResponse {
    /// The number of the query it answers.
    pub id: u16,
    /// The response code: 0 all right, 2 the server failed, 3 no such name, ...
    pub code: u8,
    /// True when the response was cut off: the rest is available over TCP.
    pub truncated: bool,
    /// The question, whose type may be one that is not asked for here.
    pub question: (DnsName, u16),
    /// The records of the answer section.
    pub records: Vec<DnsRecord>,
    /// Seconds for which an empty answer is valid; `None` if the response does not say.
    pub negative: Option<u32>,
}

/// A record of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsRecord {
    /// The name that the record belongs to.
    pub name: DnsName,
    /// Seconds that it holds.
    pub ttl: u32,
    /// The record's data.
    pub data: RecordData,
}

/// The data of a record, by its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordData {
    /// An A or AAAA record: the address.
    Address(IpAddr),
    /// A CNAME record: the canonical name.
    Alias(DnsName),
    /// A PTR record: the host name.
    Name(DnsName),
    /// An SRV record.
    Service {
        /// The lowest is asked first.
        priority: u16,
        /// Its share.
        weight: u16,
        /// Its port.
        port: u16,
        /// Its name.
        target: DnsName,
    },
}

/// Reads a response; `None` when it is not a response, or is malformed before the end of the answer section.
pub fn parse(message: &[u8]) -> Option<DnsResponse> {
    let mut reader = MessageReader { message, at: 0 };
    let id = reader.word()?;
    let flags = reader.word()?;
    let counts = [reader.word()?, reader.word()?, reader.word()?, reader.word()?];
    if flags & 0x8000 == 0 || flags & 0x7800 != 0 || counts[0] != 1 {
        return None;
    }
    let name = reader.name()?;
    let kind = reader.word()?;
    let class = reader.word()?;
    if class != IN {
        return None;
    }
    let truncated = flags & 0x0200 != 0;
    let mut response = DnsResponse {
        id,
        code: (flags & 15) as u8,
        truncated,
        question: (name, kind),
        records: Vec::new(),
        negative: None,
    };
    // What is cut off is asked for again.
    if truncated {
        return Some(response);
    }
    for _ in 0..counts[1] {
        let raw = reader.record()?;
        if raw.class == IN
            && let Some(data) = raw.data(message)?
        {
            response.records.push(DnsRecord { name: raw.name, ttl: raw.ttl, data });
        }
    }
    for _ in 0..counts[2] {
        // Nothing but a hint: what is broken here spoils nothing.
        let Some(raw) = reader.record() else { break };
        if raw.kind == SOA && raw.class == IN {
            response.negative = raw.negative(message);
        }
    }
    Some(response)
}

struct MessageReader<'m> {
    message: &'m [u8],
    at: usize,
}

/// A record before its type is looked at; `start..end` is its data in the message.
struct RawRecord {
    name: DnsName,
    kind: u16,
    class: u16,
    ttl: u32,
    start: usize,
    end: usize,
}

impl MessageReader<'_> {
    fn word(&mut self) -> Option<u16> {
        let word = word(self.message, self.at)?;
        self.at += 2;
        Some(word)
    }

    fn name(&mut self) -> Option<DnsName> {
        let (name, after) = DnsName::read(self.message, self.at)?;
        self.at = after;
        Some(name)
    }

    fn record(&mut self) -> Option<RawRecord> {
        let name = self.name()?;
        let (kind, class) = (self.word()?, self.word()?);
        let ttl = u32::from(self.word()?) << 16 | u32::from(self.word()?);
        // One with the highest bit set counts as 0 (RFC 2181 section 8).
        let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
        let length = usize::from(self.word()?);
        let start = self.at;
        self.at += length;
        (self.at <= self.message.len()).then_some(RawRecord { name, kind, class, ttl, start, end: self.at })
    }
}

impl RawRecord {
    /// `Some(None)`: of no interest. `None`: malformed.
    fn data(&self, message: &[u8]) -> Option<Option<RecordData>> {
        let bytes = &message[self.start..self.end];
        let name =
            |at: usize| DnsName::read(message, at).filter(|(_, end)| *end == self.end).map(|(name, _)| name);
        Some(Some(match self.kind {
            1 => RecordData::Address(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
            28 => RecordData::Address(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
            CNAME => RecordData::Alias(name(self.start)?),
            12 => RecordData::Name(name(self.start)?),
            33 => RecordData::Service {
                priority: word(bytes, 0)?,
                weight: word(bytes, 2)?,
                port: word(bytes, 4)?,
                target: name(self.start + 6)?,
            },
            _ => return Some(None),
        }))
    }

    /// The shorter of the record's own time and the zone's (RFC 2308 section 5).
    fn negative(&self, message: &[u8]) -> Option<u32> {
        let minimum = message.get(self.start..self.end)?.last_chunk::<4>()?;
        Some(u32::from_be_bytes(*minimum).min(self.ttl))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
