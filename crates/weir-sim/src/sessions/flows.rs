//! Flows of datagrams: what a seed draws of them, and their servers in the configuration.

use std::fmt::Write;

use crate::downtime::UpstreamDown;
use crate::draw::Draw;

/// Where servers of datagrams are.
pub const FLOW_SERVERS: [u16; 2] = [9201, 9202];
/// The first port of clients.
pub const FLOW_CLIENTS: u16 = 20_001;
/// What `return` sends.
pub const RETURNED_DATAGRAM: &str = "returned to $remote_port";

/// All that is drawn of datagrams.
#[derive(Clone, Debug, Default)]
pub struct FlowsPlan {
    /// The settings.
    pub settings: FlowSettings,
    /// Those who send.
    pub clients: Vec<FlowPlan>,
    /// When servers are not there: which of [`FLOW_SERVERS`].
    pub downs: Vec<UpstreamDown>,
    /// What the network does.
    pub network: NetworkPlan,
}

/// The values of the servers of `stream`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSettings {
    /// `proxy_requests`.
    pub requests: u64,
    /// `proxy_responses`.
    pub responses: Option<u64>,
    /// `proxy_timeout`, seconds.
    pub timeout: u64,
    /// `reuseport`.
    pub reuseport: bool,
}

/// What becomes of datagrams on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkPlan {
    /// Of 1,000, so many are lost.
    pub lost: u64,
    /// Of 1,000, so many come twice.
    pub doubled: u64,
    /// The longest time on the way: those of one sender overtake each other.
    pub latency: u64,
    /// Of 1,000, so many are not taken by the server's system.
    pub refused: u64,
    /// Whether the machine of a server that is not there says so.
    pub reports: bool,
}

/// A client of datagrams.
#[derive(Clone, Debug)]
pub struct FlowPlan {
    /// Its number, from 1.
    pub number: u64,
    /// Where it sends to.
    pub door: FlowDoor,
    /// What it sends.
    pub datagrams: Vec<FlowDatagram>,
}

/// A datagram of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowDatagram {
    /// When it is sent.
    pub at: u64,
    /// At least so many bytes.
    pub length: u64,
    /// How often the server replies to it.
    pub replies: u64,
    /// How long the server waits before each of these.
    pub delay: u64,
}

/// Where a client sends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowDoor {
    /// What is passed on as the settings say.
    Drawn,
    /// What is passed on without expected numbers.
    Open,
    /// The same, of a socket that is bound to all addresses, at this one.
    Wildcard(u8),
    /// `return`.
    Returned,
}

impl FlowDoor {
    /// The last byte of the address, and the port.
    pub fn address(self) -> ([u8; 4], u16) {
        match self {
            FlowDoor::Drawn => ([127, 0, 0, 1], 7101),
            FlowDoor::Open => ([127, 0, 0, 1], 7102),
            FlowDoor::Wildcard(last) => ([127, 0, 0, last], 7103),
            FlowDoor::Returned => ([127, 0, 0, 1], 7104),
        }
    }
}

impl FlowsPlan {
    /// What `draw` draws, of clients within `span`.
    pub(crate) fn drawn(draw: &mut Draw, span: u64) -> FlowsPlan {
        if draw.chance(1, 3) {
            return FlowsPlan::default();
        }
        let settings = FlowSettings {
            requests: *draw.one_of(&[0, 0, 1, 3]),
            responses: *draw.one_of(&[None, Some(0), Some(1), Some(1), Some(2)]),
            timeout: *draw.one_of(&[2, 5]),
            reuseport: draw.chance(1, 2),
        };
        let count = *draw.one_of(&[1, 4, 12]);
        let clients = (1..=count).map(|number| FlowPlan::drawn(draw, span, number)).collect();
        let downs = UpstreamDown::several(draw, span, FLOW_SERVERS.len());
        let network = NetworkPlan {
            lost: *draw.one_of(&[0, 0, 100]),
            doubled: *draw.one_of(&[0, 0, 200]),
            latency: *draw.one_of(&[1, 1000, 100_000]),
            refused: *draw.one_of(&[0, 0, 0, 100]),
            reports: draw.chance(2, 3),
        };
        FlowsPlan { settings, clients, downs, network }
    }

    /// The settings alone.
    pub(crate) fn without_clients(&self) -> FlowsPlan {
        FlowsPlan { settings: self.settings, ..FlowsPlan::default() }
    }

    /// Whether nothing is against what is promised of each datagram.
    pub(crate) fn is_calm(&self) -> bool {
        self.downs.is_empty() && self.network.refused == 0
    }

    /// The servers in the block `stream`.
    pub(crate) fn configuration(&self) -> String {
        if self.settings.timeout == 0 {
            return String::new();
        }
        let mut text = String::from("    upstream datagrams {\n");
        for port in FLOW_SERVERS {
            let _ = writeln!(text, "        server 127.0.0.1:{port} max_fails=0;");
        }
        text.push_str("    }\n");
        let s = &self.settings;
        let usual = format!(
            "proxy_protocol off; proxy_upload_rate 0; proxy_download_rate 0; proxy_timeout {}s;",
            s.timeout
        );
        let responses = s.responses.map(|count| format!(" proxy_responses {count};")).unwrap_or_default();
        let drawn = format!("proxy_pass datagrams; {usual} proxy_requests {};{responses}", s.requests);
        let reuseport = if s.reuseport { " reuseport" } else { "" };
        for (address, lines) in [
            ("127.0.0.1:7101", drawn),
            ("127.0.0.1:7102", format!("proxy_pass datagrams; {usual}")),
            ("7103", format!("proxy_pass datagrams; {usual}")),
            ("127.0.0.1:7104", format!("return '{RETURNED_DATAGRAM}';")),
        ] {
            let _ = writeln!(text, "    server {{ listen {address} udp{reuseport}; {lines} }}");
        }
        text
    }
}

impl FlowPlan {
    fn drawn(draw: &mut Draw, span: u64, number: u64) -> FlowPlan {
        let door = match draw.below(8) {
            0..4 => FlowDoor::Drawn,
            4 | 5 => FlowDoor::Open,
            6 => FlowDoor::Wildcard(*draw.one_of(&[1, 2, 77])),
            _ => FlowDoor::Returned,
        };
        let count = *draw.one_of(&[1, 2, 5, 30]);
        let gap = *draw.one_of(&[0, 1000, 100_000, 1_500_000]);
        let mut at = draw.below(span);
        let datagrams = (0..count).map(|_| {
            at += draw.below(gap + 1);
            FlowDatagram {
                at,
                length: *draw.one_of(&[0, 100, 1400]),
                replies: *draw.one_of(&[0, 1, 1, 1, 2]),
                delay: *draw.one_of(&[0, 100, 20_000, 900_000]),
            }
        });
        FlowPlan { number, door, datagrams: datagrams.collect() }
    }

    /// The port that it sends from.
    pub fn port(&self) -> u16 {
        FLOW_CLIENTS + self.number as u16 - 1
    }

    /// The bytes of its datagram at a place.
    pub fn bytes(&self, place: usize) -> Vec<u8> {
        let datagram = self.datagrams[place];
        DatagramName { client: self.number, place, reply: 0 }.bytes(datagram.length)
    }
}

/// Whose datagram it is, and which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatagramName {
    /// The client's number.
    pub client: u64,
    /// Its place in the client's plan.
    pub place: usize,
    /// Which reply to it it is, from 1; 0: it is the client's.
    pub reply: u64,
}

impl DatagramName {
    /// A datagram of this name, of at least `length` bytes.
    pub fn bytes(&self, length: u64) -> Vec<u8> {
        let mut text = format!("D {} {} {} ", self.client, self.place, self.reply).into_bytes();
        let count = (length as usize).saturating_sub(text.len());
        text.extend(std::iter::repeat_n(b'x', count));
        text
    }

    /// The name of a datagram; `None`: it has none.
    pub fn of(bytes: &[u8]) -> Option<DatagramName> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.strip_prefix("D ")?.split(' ');
        let name = DatagramName {
            client: words.next()?.parse().ok()?,
            place: words.next()?.parse().ok()?,
            reply: words.next()?.parse().ok()?,
        };
        words.next()?.bytes().all(|byte| byte == b'x').then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_has_its_name() {
        for length in [0, 100] {
            let name = DatagramName { client: 3, place: 14, reply: 1 };
            assert_eq!(DatagramName::of(&name.bytes(length)), Some(name));
        }
        assert_eq!(DatagramName::bytes(&DatagramName { client: 1, place: 0, reply: 0 }, 100).len(), 100);
        for wrong in [&b""[..], b"D 1 2", b"D 1 2 3 xxD 1", b"returned"] {
            assert_eq!(DatagramName::of(wrong), None);
        }
    }

    #[test]
    fn all_doors_are_drawn() {
        let plans: Vec<FlowsPlan> =
            (0..40).map(|seed| FlowsPlan::drawn(&mut Draw::new(seed), 1_000_000)).collect();
        let text = format!("{plans:?}");
        for word in ["Drawn", "Open", "Wildcard(77)", "Returned", "responses: Some(0)", "reports: true"] {
            assert!(text.contains(word), "{word}");
        }
    }
}
