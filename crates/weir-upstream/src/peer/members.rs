//! The peers of an upstream at one moment.

use std::sync::Arc;

use crate::peer::Peer;

/// The servers of an upstream at one moment.
#[derive(Debug, Default)]
pub struct UpstreamMembers {
    /// Those that are asked.
    pub primary: Vec<Arc<Peer>>,
    /// Those that are asked when all others are unavailable.
    pub backup: Vec<Arc<Peer>>,
}

impl UpstreamMembers {
    /// All of them, backups last.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Peer>> + Clone {
        self.primary.iter().chain(&self.backup)
    }

    /// Whether these are the very peers of `other`.
    pub(crate) fn are(&self, other: &UpstreamMembers) -> bool {
        let same = |a: &[Arc<Peer>], b: &[Arc<Peer>]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        same(&self.primary, &other.primary) && same(&self.backup, &other.backup)
    }
}
