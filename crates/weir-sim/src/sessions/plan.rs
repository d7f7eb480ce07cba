//! What a seed draws of sessions: the settings of `stream`, who connects and sends what, and what the servers do.

use super::flows::FlowsPlan;
use crate::downtime::UpstreamDown;
use crate::draw::Draw;
use crate::http2::plan::ClientPace;
use crate::tls::{TlsPlan, TlsSettings};

/// Where servers of sessions listen.
pub const SESSION_SERVERS: [u16; 2] = [9101, 9102];
/// Where HTTP comes to `stream`, which passes it on.
pub const HTTP_PASS_PORT: u16 = 7009;
/// What `return` sends.
pub const RETURNED: &str = "returned";
/// `proxy_protocol_timeout` and `preread_timeout`, seconds.
pub const SESSION_PATIENCE: u64 = 3;
/// `proxy_connect_timeout`, seconds.
pub const CONNECT_PATIENCE: u64 = 3;

/// All that is drawn of sessions; without sessions there is no `stream`.
#[derive(Clone, Debug, Default)]
pub struct StreamPlan {
    /// The settings.
    pub settings: StreamSettings,
    /// Those who connect.
    pub sessions: Vec<SessionPlan>,
    /// When servers of sessions are not there: which of [`SESSION_SERVERS`].
    pub downs: Vec<UpstreamDown>,
    /// Datagrams.
    pub flows: FlowsPlan,
}

/// The values of `stream`.
#[derive(Clone, Debug, Default)]
pub struct StreamSettings {
    /// `proxy_half_close`.
    pub half_close: bool,
    /// `proxy_timeout`, seconds.
    pub timeout: u64,
    /// `proxy_buffer_size`.
    pub buffer: u64,
    /// `proxy_upload_rate` and `proxy_download_rate`; 0: not there.
    pub rates: (u64, u64),
    /// `proxy_protocol`.
    pub sends_header: SentHeader,
    /// `limit_conn`.
    pub limit: u64,
    /// `proxy_next_upstream`.
    pub tries_next: bool,
    /// `reuseport`.
    pub reuseport: bool,
    /// Whether there is little room on the way to servers.
    pub is_narrow: bool,
}

/// `proxy_protocol`: what servers get first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SentHeader {
    /// Nothing.
    #[default]
    None,
    /// The header of version 1.
    Text,
    /// Of version 2.
    Binary,
}

/// Where a client connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionDoor {
    /// What is passed to the group of servers.
    Plain,
    /// The same, behind a header of the PROXY protocol.
    Headed(ClientHeader),
    /// The same, after TLS.
    Secure,
    /// Passed to the server whose name a ClientHello has; `None`: no ClientHello comes.
    Named(Option<usize>),
    /// Handed on to `Plain` by `pass`.
    Passed,
    /// `return`.
    Returned,
    /// Passed to the group, as many at a time as `limit_conn` says.
    Limited,
}

/// What comes before a session where a header of the PROXY protocol is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientHeader {
    /// Version 1.
    Text,
    /// Version 2.
    Binary,
    /// `PROXY UNKNOWN`.
    Unknown,
    /// Something else.
    Wrong,
    /// A part of a header.
    Part,
}

/// A client, and what the server does that its session comes to.
#[derive(Clone, Debug)]
pub struct SessionPlan {
    /// Its number, which its bytes have.
    pub number: u64,
    /// When it connects.
    pub at: u64,
    /// Where.
    pub door: SessionDoor,
    /// Bytes that it sends after its first line.
    pub sends: u64,
    /// How it sends and reads.
    pub pace: ClientPace,
    /// How it leaves.
    pub end: SessionClientEnd,
    /// What it does of TLS.
    pub tls: Option<TlsPlan>,
    /// What its server does.
    pub server: SessionServerPlan,
}

/// How a client of a session leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionClientEnd {
    /// By closing when it has sent and got all.
    Closes,
    /// It shuts down its sending side when all is sent, and reads on.
    HalfCloses,
    /// It stays until the session is closed.
    Stays,
    /// It closes, whatever is under way, after so long.
    Leaves(u64),
}

/// What a server does in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionServerPlan {
    /// Bytes that it sends.
    pub sends: u64,
    /// How long it waits before the first of them.
    pub late: u64,
    /// Longest piece in which it sends, bytes.
    pub piece: u64,
    /// Longest time between two pieces.
    pub gap: u64,
    /// Longest time before it reads what has come.
    pub read_gap: u64,
    /// How it ends.
    pub end: SessionServerEnd,
}

/// How a server of a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionServerEnd {
    /// It closes when it has sent and got all.
    Closes,
    /// It shuts down its sending side when all is sent, and reads on.
    HalfCloses,
    /// It stays until the other side has said all.
    Stays,
    /// It closes after it has sent so many bytes, without a look at what comes.
    Resets(u64),
    /// It reads nothing after the first line.
    Stalls,
}

impl StreamPlan {
    /// What `draw` draws, for clients that come within `span`, beside a server with these settings of TLS.
    pub fn drawn(draw: &mut Draw, span: u64, tls: Option<&TlsSettings>) -> StreamPlan {
        if draw.chance(3, 4) {
            return StreamPlan::default();
        }
        let settings = StreamSettings::drawn(draw);
        let count = *draw.one_of(&[1, 4, 10, 16]);
        let sessions =
            (1..=count).map(|number| SessionPlan::drawn(draw, span, number, tls, &settings)).collect();
        let downs = UpstreamDown::several(draw, span, SESSION_SERVERS.len());
        let flows = FlowsPlan::drawn(&mut draw.apart(1), span);
        StreamPlan { settings, sessions, downs, flows }
    }

    /// Those who come after a crash.
    pub(crate) fn after_crash(&self, draw: &mut Draw, span: u64, tls: Option<&TlsSettings>) -> StreamPlan {
        if self.is_empty() {
            return StreamPlan::default();
        }
        let settings = self.settings.clone();
        let sessions = (1..=6).map(|n| SessionPlan::drawn(draw, span, n, tls, &settings)).collect();
        StreamPlan { settings, sessions, downs: Vec::new(), flows: self.flows.without_clients() }
    }

    /// Whether there is no `stream`.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.flows.clients.is_empty()
    }

    /// How long the server may need to forget its sessions, microseconds.
    pub fn rest(&self) -> u64 {
        if self.is_empty() { 0 } else { self.settings.timeout.max(self.flows.settings.timeout) * 1_000_000 }
    }
}

impl StreamSettings {
    fn drawn(draw: &mut Draw) -> StreamSettings {
        let rate = |draw: &mut Draw| *draw.one_of(&[0, 0, 0, 2000, 50_000]);
        StreamSettings {
            half_close: draw.chance(1, 2),
            timeout: *draw.one_of(&[3, 6, 60]),
            buffer: *draw.one_of(&[1000, 4096, 16_384]),
            rates: (rate(draw), rate(draw)),
            sends_header: *draw.one_of(&[
                SentHeader::None,
                SentHeader::None,
                SentHeader::Text,
                SentHeader::Binary,
            ]),
            limit: draw.between(1, 3),
            tries_next: draw.chance(3, 4),
            reuseport: draw.chance(1, 3),
            is_narrow: draw.chance(1, 2),
        }
    }
}

impl SessionPlan {
    fn drawn(
        draw: &mut Draw,
        span: u64,
        number: u64,
        tls: Option<&TlsSettings>,
        settings: &StreamSettings,
    ) -> SessionPlan {
        let door = SessionDoor::drawn(draw, tls.is_some());
        let most = |rate: u64| match rate {
            0 => 5,
            1..10_000 => 3,
            _ => 4,
        };
        let size = |draw: &mut Draw, rate: u64| {
            const SIZES: [u64; 5] = [0, 1, 3000, 20_000, 300_000];
            SIZES[draw.below(most(rate)) as usize]
        };
        SessionPlan {
            number,
            at: draw.below(span),
            door,
            sends: size(draw, settings.rates.0),
            pace: ClientPace {
                piece: *draw.one_of(&[1, 100, 1500, 1 << 20]),
                gap: *draw.one_of(&[0, 10, 1000, 30_000]),
                read_gap: *draw.one_of(&[0, 10, 1000, 5000]),
                read: *draw.one_of(&[100, 1500, 1 << 16]),
                is_narrow: draw.chance(1, 3),
            },
            end: match draw.below(8) {
                // Where each side may end alone, more do.
                0..3 if settings.half_close => SessionClientEnd::HalfCloses,
                0..3 => SessionClientEnd::Closes,
                3..5 => SessionClientEnd::HalfCloses,
                5..7 => SessionClientEnd::Stays,
                _ => SessionClientEnd::Leaves(draw.below(400_000)),
            },
            tls: (door == SessionDoor::Secure)
                .then(|| TlsPlan { is_verified: false, ..TlsPlan::drawn(draw) }),
            server: SessionServerPlan::drawn(draw, |draw| size(draw, settings.rates.1)),
        }
    }
}

impl SessionDoor {
    fn drawn(draw: &mut Draw, has_tls: bool) -> SessionDoor {
        const HEADERS: [ClientHeader; 5] = [
            ClientHeader::Text,
            ClientHeader::Binary,
            ClientHeader::Unknown,
            ClientHeader::Wrong,
            ClientHeader::Part,
        ];
        match draw.below(12) {
            0..3 => SessionDoor::Plain,
            3..5 => SessionDoor::Headed(*draw.one_of(&HEADERS)),
            5 | 6 if has_tls => SessionDoor::Secure,
            5 | 6 => SessionDoor::Plain,
            7 | 8 => SessionDoor::Named(*draw.one_of(&[None, Some(0), Some(1)])),
            9 => SessionDoor::Passed,
            10 => SessionDoor::Returned,
            _ => SessionDoor::Limited,
        }
    }

    /// Where it connects.
    pub fn port(self) -> u16 {
        match self {
            SessionDoor::Plain => 7001,
            SessionDoor::Headed(_) => 7002,
            SessionDoor::Secure => 7003,
            SessionDoor::Named(_) => 7004,
            SessionDoor::Passed => 7005,
            SessionDoor::Returned => 7006,
            SessionDoor::Limited => 7007,
        }
    }

    /// The port that its line in the log has.
    pub fn logged_port(self) -> u16 {
        if self == SessionDoor::Passed { SessionDoor::Plain.port() } else { self.port() }
    }

    /// Whether it ends before a server is looked for.
    pub fn is_refused(self) -> bool {
        matches!(self, SessionDoor::Headed(ClientHeader::Wrong | ClientHeader::Part))
    }
}

/// All ports of `stream`.
pub const DOORS: [u16; 8] = [7001, 7002, 7003, 7004, 7005, 7006, 7007, HTTP_PASS_PORT];

impl SessionServerPlan {
    fn drawn(draw: &mut Draw, size: impl FnOnce(&mut Draw) -> u64) -> SessionServerPlan {
        let sends = size(draw);
        SessionServerPlan {
            sends,
            late: *draw.one_of(&[0, 0, 0, 100_000, 1_500_000, 20_000_000]),
            piece: *draw.one_of(&[100, 1500, 1 << 16]),
            gap: *draw.one_of(&[0, 100, 3000]),
            read_gap: *draw.one_of(&[200, 200, 5000]),
            end: match draw.below(10) {
                0..4 => SessionServerEnd::Closes,
                4..6 => SessionServerEnd::HalfCloses,
                6..8 => SessionServerEnd::Stays,
                8 => SessionServerEnd::Resets(draw.below(sends + 1)),
                _ => SessionServerEnd::Stalls,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_doors_and_ends_are_drawn() {
        let tls = (0..).find_map(|seed| TlsSettings::drawn(&mut Draw::new(seed)));
        let plans: Vec<StreamPlan> =
            (0..60).map(|seed| StreamPlan::drawn(&mut Draw::new(seed), 1_000_000, tls.as_ref())).collect();
        let text = format!("{plans:?}");
        for word in
            ["Headed(Part)", "Named(Some(1))", "Passed", "Returned", "Limited", "Secure", "Stalls", "Resets"]
        {
            assert!(text.contains(word), "{word}");
        }
        assert!(plans.iter().any(StreamPlan::is_empty));
    }

    #[test]
    fn every_door_has_a_port_of_its_own() {
        use SessionDoor::{Headed, Limited, Named, Passed, Plain, Returned, Secure};
        let doors = [Plain, Headed(ClientHeader::Text), Secure, Named(None), Passed, Returned, Limited];
        let mut ports: Vec<u16> = doors.iter().map(|door| door.port()).collect();
        ports.push(HTTP_PASS_PORT);
        assert_eq!(ports, DOORS);
    }
}
