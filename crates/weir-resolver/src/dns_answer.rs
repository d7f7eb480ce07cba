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

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// The addresses, IPv4 before IPv6, in the name server's order.
    pub addresses: Vec<IpAddr>,
    /// The servers of a service, those to be preferred first.
    pub services: Vec<DnsService>,
    /// The names of an address.
    pub names: Vec<DnsName>,
    /// Until when it holds, in the caller's milliseconds. A stale answer holds for a short time: it is asked for again.
    pub until: u64,
    /// From when on a look-up has it asked for again in advance.
    pub refresh: u64,
    /// It has expired, and no server had a newer one.
    pub stale: bool,
}

/// A server of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsService {
    /// The lowest is asked first.
    pub priority: u16,
    /// Its share among those of its priority.
    pub weight: u16,
    /// Its port.
    pub port: u16,
    /// Its name.
    pub target: DnsName,
    /// Its addresses.
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
