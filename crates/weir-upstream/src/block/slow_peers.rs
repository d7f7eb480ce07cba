//! `outlier`: peers whose responses take much longer than those of the others are left out for a while.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::block::upstream::Upstream;
use crate::peer::outlier::OutlierLimits;
use crate::peer::{Peer, PeerState};
use weir_engine::log;
use weir_engine::log::LogLevel;

impl Upstream {
    /// `peer` has responded after this many microseconds.
    pub(crate) fn judge_slowness(&self, outlier: &OutlierLimits, peer: &Arc<Peer>, us: u64) {
        let Some(mean) = peer.state.slowness.add(outlier, us) else { return };
        let now = crate::peer::balance::now();
        let members = self.members();
        let is_other = |state: &PeerState| !std::ptr::eq(state, &raw const *peer.state);
        let all = members.primary.iter().filter(|other| !other.is_down());
        let (count, out) = all.fold((0, 0), |(count, out), other| {
            (count + 1, out + usize::from(is_other(&other.state) && other.state.slowness.is_out(now)))
        });
        let means = members.primary.iter().filter(|other| is_other(&other.state) && other.is_available(now));
        let mut means: Vec<u64> =
            means.map(|other| other.state.slowness.mean.load(Relaxed)).filter(|mean| *mean > 0).collect();
        if (out + 1) * 2 > count || !outlier.is_one(mean, &mut means) {
            return;
        }
        peer.state.slowness.leave_out(now + outlier.time);
        self.changes.tell();
        let (name, upstream, ms, time) = (&peer.name, &self.name, mean / 1000, outlier.time);
        log::cycle(
            LogLevel::Warn,
            &format_args!(
                "peer is an outlier: {ms} ms on average, left out for {time}s, peer {name} in upstream \"{upstream}\""
            ),
        );
    }
}
