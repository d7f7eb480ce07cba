//! The lines of a tree for a terminal, the same for one request and for an average: which there are, and their names.

use crate::site::{ConnectionStep, PHASES, SiteInfo, SiteKind, SiteTable};
use crate::tree::TraceTree;
use crate::tree_arranged::rank;

/// A line directly below the request.
pub(super) enum RootLine {
    /// A node of the tree.
    Node(u32),
    /// What every request passes and this one has no time of.
    Missing(SiteKind),
}

/// The children of the request of an [arranged](TraceTree::arranged) tree; what is missing is where it would have come.
pub(super) fn lines(tree: &TraceTree, sites: &SiteTable) -> Vec<RootLine> {
    let mut expected = STEPS.into_iter().chain((0..PHASES.len() as u8).map(SiteKind::Phase)).peekable();
    let mut lines = Vec::new();
    for child in tree.children(0) {
        let rank_here = rank(sites.info(tree.nodes()[child as usize].site).kind);
        while let Some(missing) = expected.next_if(|&expected| rank(expected) < rank_here) {
            lines.push(RootLine::Missing(missing));
        }
        expected.next_if(|&expected| rank(expected) == rank_here);
        lines.push(RootLine::Node(child));
    }
    lines.extend(expected.map(RootLine::Missing));
    lines
}

/// The indented name of a node at `depth`; the kind is left out when it is that of the node `above`.
pub(super) fn name(info: &SiteInfo, depth: usize, above: SiteKind) -> String {
    let label = if info.kind == above { info.name.to_string() } else { info.label() };
    format!("{:indent$}-> {label}", "", indent = 2 + depth * 3)
}

/// The indented name of a [`RootLine::Missing`].
pub(super) fn name_of_missing(kind: SiteKind) -> String {
    let name = match kind {
        SiteKind::Connection(step) => step.as_str(),
        kind => kind.phase().unwrap_or_default(),
    };
    format!("  -> {name}")
}

/// What every request passes before its phases.
const STEPS: [SiteKind; 3] = [
    SiteKind::Connection(ConnectionStep::HeadRead),
    SiteKind::Connection(ConnectionStep::Parse),
    SiteKind::Connection(ConnectionStep::VirtualServer),
];
