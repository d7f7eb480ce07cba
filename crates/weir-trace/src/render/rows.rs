//! The lines of a tree for a terminal, the same for one request and for an average: which there are, and their names.

use crate::arrange::rank;
use crate::site::{Kind, PHASES, SiteInfo, SiteTable, Step};
use crate::tree::Tree;

/// A line directly below the request.
pub(super) enum Line {
    /// A node of the tree.
    Node(u32),
    /// What every request passes and this one has no time of.
    Missing(Kind),
}

/// The children of the request of an [arranged](Tree::arranged) tree; what is missing stands where it would have come.
pub(super) fn lines(tree: &Tree, sites: &SiteTable) -> Vec<Line> {
    let mut expected = STEPS.into_iter().chain((0..PHASES.len() as u8).map(Kind::Phase)).peekable();
    let mut lines = Vec::new();
    for child in tree.children(0) {
        let rank_here = rank(sites.info(tree.nodes()[child as usize].site).kind);
        while let Some(missing) = expected.next_if(|&expected| rank(expected) < rank_here) {
            lines.push(Line::Missing(missing));
        }
        expected.next_if(|&expected| rank(expected) == rank_here);
        lines.push(Line::Node(child));
    }
    lines.extend(expected.map(Line::Missing));
    lines
}

/// The indented name of a node at `depth`; the kind is left out when it is that of the node `above`.
pub(super) fn name(info: &SiteInfo, depth: usize, above: Kind) -> String {
    let label = if info.kind == above { info.name.to_string() } else { info.label() };
    format!("{:indent$}-> {label}", "", indent = 2 + depth * 3)
}

/// The indented name of a [`Line::Missing`].
pub(super) fn name_of_missing(kind: Kind) -> String {
    let name = match kind {
        Kind::Connection(step) => step.as_str(),
        kind => kind.phase().unwrap_or_default(),
    };
    format!("  -> {name}")
}

/// What every request passes before its phases.
const STEPS: [Kind; 3] =
    [Kind::Connection(Step::HeadRead), Kind::Connection(Step::Parse), Kind::Connection(Step::VirtualServer)];
