//! Questions and answers.

use std::fmt;
use std::net::IpAddr;

use crate::name::DnsName;

/// What a look-up is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DnsQuestion {
    /// The addresses of a name.
    Addresses(DnsName),
    /// The servers of a service (SRV, RFC 2782), with their addresses.
    Service(DnsName),
    /// The names of an address.
    Names(IpAddr),
}

/// The result of a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// The addresses, IPv4 before IPv6, in the name server's order.
    pub addresses: Vec<IpAddr>,
    /// The servers of a service, those to be preferred first.
    pub services: Vec<DnsService>,
    /// The names of an address.
    pub names: Vec<DnsName>,
    /// When it expires, in milliseconds of the caller's clock. A stale answer is valid for a short time, then asked
    /// for again.
    pub until: u64,
    /// From when on a look-up has it asked for again in advance, in milliseconds of the caller's clock.
    pub refresh: u64,
    /// True when it has expired, and no server had a newer one.
    pub stale: bool,
}

/// A server of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsService {
    /// Peers of the lowest number are asked first (RFC 2782).
    pub priority: u16,
    /// The share of requests among those of its priority; 0: a very small one (RFC 2782).
    pub weight: u16,
    /// The TCP or UDP port.
    pub port: u16,
    /// The host name.
    pub target: DnsName,
    /// The addresses of `target`; empty if it has none.
    pub addresses: Vec<IpAddr>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsFailure {
    /// No name server answered in time.
    TimedOut,
    /// What the name servers said: a response code (RFC 1035 section 4.1.1), 3 also for a name without such records.
    Code(u8),
}

impl DnsFailure {
    /// The number in nginx's messages: the response code, or the errno of a timeout.
    pub fn number(self) -> u16 {
        match self {
            DnsFailure::TimedOut => 110,
            DnsFailure::Code(code) => u16::from(code),
        }
    }
}

impl fmt::Display for DnsFailure {
    /// nginx's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DnsFailure::TimedOut => "Operation timed out",
            DnsFailure::Code(1) => "Format error",
            DnsFailure::Code(2) => "Server failure",
            DnsFailure::Code(3) => "Host not found",
            DnsFailure::Code(4) => "Unimplemented",
            DnsFailure::Code(5) => "Operation refused",
            DnsFailure::Code(_) => "Unknown error",
        })
    }
}
