//! What a seed draws of WebSockets: who opens one and sends what, and what the server at its other end does.

use crate::downtime::UpstreamDown;
use crate::draw::Draw;
use crate::tls::{TlsPlan, TlsSettings};

/// Where servers of WebSockets listen.
pub const TUNNEL_SERVERS: [u16; 2] = [9201, 9202];

/// `keepalive` of their upstream.
pub const TUNNELS_KEPT: u64 = 2;

/// All that is drawn of WebSockets.
#[derive(Clone, Debug, Default)]
pub struct TunnelsPlan {
    /// The settings of their locations, where there are some.
    pub settings: Option<TunnelSettings>,
    /// Those who open one.
    pub tunnels: Vec<TunnelPlan>,
    /// When servers of WebSockets are not there: which of [`TUNNEL_SERVERS`].
    pub downs: Vec<UpstreamDown>,
}

/// The values of the locations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelSettings {
    /// `proxy_read_timeout`, seconds.
    pub timeout: u64,
    /// `proxy_buffering`.
    pub buffering: bool,
}

/// A client that asks for a WebSocket, and what the server does that it comes to.
#[derive(Clone, Debug)]
pub struct TunnelPlan {
    /// Its number, which its bytes have.
    pub number: u64,
    /// When the client connects.
    pub at: u64,
    /// Through which location.
    pub door: TunnelDoor,
    /// What the client does of TLS.
    pub tls: Option<TlsPlan>,
    /// The client sends its bytes without waiting for the response.
    pub is_early: bool,
    /// A usual request precedes it on the connection, in the same bytes.
    pub follows: bool,
    /// What the server says to the request.
    pub reply: TunnelReply,
    /// The client's bytes.
    pub client: TunnelSidePlan,
    /// The server's.
    pub server: TunnelSidePlan,
}

/// How a location passes the client's `Upgrade` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelDoor {
    /// `proxy_upgrade`.
    Own,
    /// nginx's lines.
    Lines,
}

/// What a server says to a request for a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelReply {
    /// 101.
    Accepts,
    /// Another status, with a body.
    Refuses,
    /// It closes.
    Closes,
    /// Nothing.
    Silent,
}

/// What one side does once the protocol has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelSidePlan {
    /// Bytes that it sends.
    pub sends: u64,
    /// How long it waits before the first of them; a server, before its response.
    pub late: u64,
    /// Longest piece in which it sends, bytes.
    pub piece: u64,
    /// Longest time between two pieces.
    pub gap: u64,
    /// Longest time before it reads what has come.
    pub read_gap: u64,
    /// Most that it reads at once, bytes.
    pub read: u64,
    /// Whether there is little room on the way to it.
    pub is_narrow: bool,
    /// How it ends.
    pub end: TunnelSideEnd,
}

/// How a side ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelSideEnd {
    /// It closes when it has sent and got all.
    Closes,
    /// It shuts down its sending side when all is sent, and reads on.
    HalfCloses,
    /// It stays until the other side has said all.
    Stays,
    /// It closes after it has sent so many bytes, without a look at what comes.
    Breaks(u64),
    /// It closes after so long.
    Leaves(u64),
    /// It reads nothing after the head.
    Stalls,
}

impl TunnelsPlan {
    /// What `draw` draws, for clients that come within `span`, beside a server with these settings of TLS; `may_follow`: its
    /// connections take several requests.
    pub fn drawn(draw: &mut Draw, span: u64, tls: Option<&TlsSettings>, may_follow: bool) -> TunnelsPlan {
        if draw.chance(3, 4) {
            return TunnelsPlan::default();
        }
        let settings =
            Some(TunnelSettings { timeout: *draw.one_of(&[3, 6, 60]), buffering: draw.chance(1, 2) });
        let count = *draw.one_of(&[1, 4, 8, 16]);
        let tunnels = (1..=count).map(|number| TunnelPlan::drawn(draw, span, number, tls, may_follow));
        let tunnels = tunnels.collect();
        TunnelsPlan { settings, tunnels, downs: UpstreamDown::several(draw, span, TUNNEL_SERVERS.len()) }
    }

    /// The same configuration without clients, for the server that is started after a crash.
    pub(crate) fn without_clients(&self) -> TunnelsPlan {
        TunnelsPlan { settings: self.settings, ..TunnelsPlan::default() }
    }

    /// How long the server may need to forget its WebSockets, microseconds.
    pub fn rest(&self) -> u64 {
        self.timeout()
    }

    /// `proxy_read_timeout`, microseconds; 0: there are no such locations.
    pub fn timeout(&self) -> u64 {
        self.settings.map_or(0, |settings| settings.timeout * 1_000_000)
    }
}

impl TunnelPlan {
    fn drawn(
        draw: &mut Draw,
        span: u64,
        number: u64,
        tls: Option<&TlsSettings>,
        may_follow: bool,
    ) -> TunnelPlan {
        let is_secret = tls.is_some() && draw.chance(1, 2);
        TunnelPlan {
            number,
            at: draw.below(span),
            door: *draw.one_of(&[TunnelDoor::Own, TunnelDoor::Lines]),
            tls: is_secret.then(|| TlsPlan { is_verified: false, ..TlsPlan::drawn(draw) }),
            is_early: draw.chance(1, 4),
            follows: may_follow && draw.chance(1, 4),
            reply: match draw.below(12) {
                0 => TunnelReply::Refuses,
                1 => TunnelReply::Closes,
                2 => TunnelReply::Silent,
                _ => TunnelReply::Accepts,
            },
            client: TunnelSidePlan::drawn(draw),
            server: TunnelSidePlan::drawn(draw),
        }
    }
}

impl TunnelSidePlan {
    fn drawn(draw: &mut Draw) -> TunnelSidePlan {
        let sends = *draw.one_of(&[0, 1, 3000, 20_000, 300_000]);
        TunnelSidePlan {
            sends,
            late: *draw.one_of(&[0, 0, 0, 100_000, 1_500_000]),
            piece: *draw.one_of(&[1, 100, 1500, 1 << 16]),
            gap: *draw.one_of(&[0, 10, 1000, 10_000]),
            read_gap: *draw.one_of(&[0, 200, 1000, 5000]),
            read: *draw.one_of(&[100, 1500, 1 << 16]),
            is_narrow: draw.chance(1, 3),
            end: match draw.below(10) {
                0..3 => TunnelSideEnd::Closes,
                3..5 => TunnelSideEnd::HalfCloses,
                5..7 => TunnelSideEnd::Stays,
                7 => TunnelSideEnd::Breaks(draw.below(sends + 1)),
                8 => TunnelSideEnd::Leaves(draw.below(400_000)),
                _ => TunnelSideEnd::Stalls,
            },
        }
    }

    /// Whether it does nothing that ends the WebSocket before all has passed.
    pub(crate) fn is_calm(&self) -> bool {
        use TunnelSideEnd::{Closes, HalfCloses, Stays};
        matches!(self.end, Closes | HalfCloses | Stays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_replies_and_ends_are_drawn() {
        let plans: Vec<TunnelsPlan> =
            (0..60).map(|seed| TunnelsPlan::drawn(&mut Draw::new(seed), 1_000_000, None, true)).collect();
        let text = format!("{plans:?}");
        for word in ["Own", "Lines", "Refuses", "Closes", "Silent", "Breaks", "Leaves", "Stalls"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(plans.iter().any(|plan| plan.settings.is_none()));
    }
}
