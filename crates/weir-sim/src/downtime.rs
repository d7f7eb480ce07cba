//! When a server that is asked is not there.

use crate::draw::Draw;

/// Where the upstream servers listen that speak no TLS.
pub const UPSTREAM_PORTS: [u16; 2] = [9001, 9002];

/// An upstream server is not there: its connections end, and others are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamDown {
    /// Which one of its kind.
    pub server: usize,
    /// From when.
    pub from: u64,
    /// Until when.
    pub to: u64,
}

impl UpstreamDown {
    /// None, one or two of so many `servers`, within the first `span` microseconds.
    pub(crate) fn several(draw: &mut Draw, span: u64, servers: usize) -> Vec<UpstreamDown> {
        (0..draw.below(4).saturating_sub(1)).map(|_| UpstreamDown::drawn(draw, span, servers)).collect()
    }

    fn drawn(draw: &mut Draw, span: u64, servers: usize) -> UpstreamDown {
        let from = draw.below(span);
        let to = from + *draw.one_of(&[1000, 50_000, 800_000]);
        UpstreamDown { server: draw.below(servers as u64) as usize, from, to }
    }
}
