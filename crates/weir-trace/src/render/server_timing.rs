//! The `Server-Timing` response header field (W3C Server Timing).

use super::TicksToNanos;
use crate::site::{Site, SiteKind, SiteTable};
use crate::tree::TraceTree;

/// The field's value: run and wait of each phase and the upstream's time so far, in milliseconds, then the total.
/// What took no time is left out. It says only durations, no names that a configuration holds.
///
/// ```text
/// rewrite;dur=0.001, access;dur=0.850, upstream;dur=0.350, total;dur=1.412
/// ```
#[must_use]
pub fn server_timing(tree: &TraceTree, sites: &SiteTable, scale: TicksToNanos<'_>) -> String {
    let tree = &tree.arranged(sites);
    let mut metrics: Vec<(&'static str, u64)> = Vec::new();
    for node in tree.nodes() {
        let kind = if node.site == Site::NONE { SiteKind::Other } else { sites.info(node.site).kind };
        let name = match kind {
            SiteKind::Phase(_) => kind.phase(),
            SiteKind::UpstreamTry => Some("upstream"),
            _ => None,
        };
        let Some(name) = name else { continue };
        match metrics.iter_mut().find(|(known, _)| *known == name) {
            Some((_, ticks)) => *ticks += node.inclusive(),
            None => metrics.push((name, node.inclusive())),
        }
    }
    metrics.push(("total", tree.root().inclusive()));
    let timed = metrics.into_iter().map(|(name, ticks)| (name, scale(ticks) / 1_000));
    let parts: Vec<String> = timed
        .filter(|&(_, us)| us > 0)
        .map(|(name, us)| format!("{name};dur={}.{:03}", us / 1_000, us % 1_000))
        .collect();
    parts.join(", ")
}
