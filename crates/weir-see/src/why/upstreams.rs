//! Peers that are slow, refuse, or break off.

use super::figures::{PeerLoad, UpstreamLoad, WhyFigures};
use super::queues::LOST;
use super::{FAULTY_PEER, Finding, SLOW_PEER};
use crate::table::time;

/// Peers that are much slower than the others of their upstream.
pub(super) fn slow(figures: &WhyFigures) -> Vec<Finding> {
    figures.upstreams.iter().flat_map(|upstream| slow_of(figures, upstream)).collect()
}

fn slow_of(figures: &WhyFigures, upstream: &UpstreamLoad) -> Vec<Finding> {
    let timed: Vec<&PeerLoad> = upstream.peers.iter().filter(|peer| peer.responses >= FEW).collect();
    // Peers may be on this machine, and have no core either.
    let starved = figures.workers.iter().any(|worker| worker.run_queue >= LOST) || is_blocked(figures);
    let least = if starved { STARVED_US } else { LEAST_US };
    let found = timed.iter().filter_map(|peer| {
        // The median of the others; of an even number the lower one.
        let mut others: Vec<u64> =
            timed.iter().filter(|other| other.name != peer.name).map(|other| other.p50_us).collect();
        others.sort_unstable();
        let usual = *others.get(others.len().checked_sub(1)? / 2)?;
        let times = peer.p50_us as f64 / usual.max(1) as f64;
        (times >= TIMES && peer.p50_us - usual >= least).then(|| Finding {
            kind: SLOW_PEER,
            weight: (peer.p50_us - usual) as f64 * peer.responses as f64 / 1e6 / figures.seconds.max(1e-9),
            says: format!(
                "{} is {times:.1} times slower than the other servers of {}: {} to a response against {}",
                peer.name,
                upstream.name,
                time(peer.p50_us * 1_000),
                time(usual * 1_000)
            ),
            subject: peer.name.clone(),
            line: String::new(),
            command: "weir top upstreams".to_owned(),
        })
    });
    found.collect()
}

/// Whether loops are blocked so much that responses which are there wait to be read.
fn is_blocked(figures: &WhyFigures) -> bool {
    let blocked: u64 = figures.stalls.iter().map(|stall| stall.ns).sum();
    blocked as f64 / 1e9 >= LOST * figures.seconds
}

/// Peers that refuse connections, break them off, or are left out.
pub(super) fn faulty(figures: &WhyFigures) -> Vec<Finding> {
    figures
        .upstreams
        .iter()
        .flat_map(|upstream| upstream.peers.iter().filter_map(|peer| faulty_of(figures, upstream, peer)))
        .collect()
}

fn faulty_of(figures: &WhyFigures, upstream: &UpstreamLoad, peer: &PeerLoad) -> Option<Finding> {
    let tries = (peer.requests + peer.repeated).max(1);
    let share = |count: u64| count as f64 / tries as f64;
    let counts = |count: u64| count >= OFTEN && share(count) >= LITTLE;
    let others = peer.faults.saturating_sub(peer.refused + peer.reset.saturating_sub(peer.repeated));
    let what = if peer.refused > 0 {
        format!("refuses connections: {} in {:.0} s", peer.refused, figures.seconds.ceil())
    } else if counts(peer.reset) {
        let repeated = match peer.repeated {
            0 => String::new(),
            count => format!("; {count} requests were repeated and no client saw it"),
        };
        format!(
            "breaks off {:.0}% of its connections without a response{repeated}",
            share(peer.reset) * 100.0
        )
    } else if counts(others) {
        format!("fails {:.0}% of its requests", share(others) * 100.0)
    } else {
        format!("gets no requests: {}", peer.out.as_deref()?)
    };
    let bad = (peer.faults + peer.repeated) as f64 / figures.seconds.max(1e-9);
    Some(Finding {
        kind: FAULTY_PEER,
        // A request that fails, or is made twice, weighs as one that waits for a fifth of a second.
        weight: bad * 0.2 + 0.1,
        says: format!("{} of {} {what}", peer.name, upstream.name),
        subject: peer.name.clone(),
        line: String::new(),
        command: "weir top upstreams".to_owned(),
    })
}

/// Responses in the window from which on a time says something.
const FEW: u64 = 10;
/// Slower by this factor is much slower, if the difference is worth mention.
const TIMES: f64 = 4.0;
const LEAST_US: u64 = 10_000;
/// Where workers want a core.
const STARVED_US: u64 = 40_000;
/// Connections that were broken off, from which on they are no accident: so many, and that share.
const OFTEN: u64 = 3;
const LITTLE: f64 = 0.03;
