//! A request's tree in the order that people know: the connection's steps, the phases by name with their handlers
//! inside, header filters, body filters with the write after them, log, the end.
//!
//! The engine stamps handlers and filters only, since a stamp around each phase as well would double the cost of
//! recording. The groups are made here, when the tree is read; no time moves from one site to another.

use crate::site::{ConnectionStep, Site, SiteKind, SiteTable};
use crate::tree::TraceTree;

impl TraceTree {
    /// The tree with handlers grouped by phase and filters by their chain, in the order of a request; its times are
    /// the same. Arranging twice changes nothing.
    #[must_use]
    pub fn arranged(&self, sites: &SiteTable) -> TraceTree {
        self.arranged_with(sites).0
    }

    /// [`arranged`](TraceTree::arranged), and where each node of this tree is in that one.
    pub(crate) fn arranged_with(&self, sites: &SiteTable) -> (TraceTree, Vec<u32>) {
        let kinds: Vec<SiteKind> = self.nodes.iter().map(|node| kind(node.site, sites)).collect();
        let mut arranged = TraceTree::new();
        let mut places = vec![0; self.nodes.len()];
        arranged.requests = self.requests;
        self.arrange(0, 0, &kinds, &mut arranged, &mut places);
        arranged.sum_up();
        (arranged, places)
    }

    /// Copies the node `from` into `to`, and what is below it.
    fn arrange(&self, from: u32, to: u32, kinds: &[SiteKind], arranged: &mut TraceTree, places: &mut [u32]) {
        let node = &self.nodes[from as usize];
        places[from as usize] = to;
        arranged.nodes[to as usize].add(node);
        for wait in self.waits(from) {
            arranged.add_wait(to, wait.kind, wait.calls, wait.ticks);
        }
        let mut children: Vec<u32> = self.children(from).collect();
        children.sort_by_key(|&child| rank(kinds[child as usize]));
        for child in children {
            let site = self.nodes[child as usize].site;
            let mut parent = to;
            if let Some(group) = group(site, kinds[child as usize], kinds[from as usize])
                && group != node.site
            {
                parent = arranged.child(to, group);
                let calls = &mut arranged.nodes[parent as usize].calls;
                *calls = (*calls).max(self.nodes[child as usize].calls);
            }
            let copy = arranged.child(parent, site);
            self.arrange(child, copy, kinds, arranged, places);
        }
    }
}

pub(crate) fn kind(site: Site, sites: &SiteTable) -> SiteKind {
    if site.is_none() { SiteKind::Request } else { sites.info(site).kind }
}

/// The node that a site is to be in, if `above` is not it already.
pub(crate) fn group(site: Site, kind: SiteKind, above: SiteKind) -> Option<Site> {
    match kind {
        SiteKind::Handler(phase) if above != SiteKind::Phase(phase) => Some(Site::phase(phase)),
        SiteKind::HeaderFilter if site != Site::HEADER_FILTERS => Some(Site::HEADER_FILTERS),
        SiteKind::BodyFilter if site != Site::BODY_FILTERS => Some(Site::BODY_FILTERS),
        SiteKind::Connection(ConnectionStep::Write) => Some(Site::BODY_FILTERS),
        _ => None,
    }
}

/// Where a site is among others of the same parent; equal ones stay as they came.
pub(crate) fn rank(kind: SiteKind) -> u8 {
    match kind {
        SiteKind::Phase(LOG) | SiteKind::Handler(LOG) => 36,
        SiteKind::Phase(phase) | SiteKind::Handler(phase) => 10 + phase,
        SiteKind::Connection(ConnectionStep::SpecialResponse) => 31,
        SiteKind::HeaderFilter => 32,
        SiteKind::BodyFilter => 33,
        SiteKind::Connection(ConnectionStep::Write) => 34,
        SiteKind::Redirect => 35,
        SiteKind::Connection(ConnectionStep::Finalise) => 37,
        SiteKind::Connection(ConnectionStep::Lingering) => 38,
        SiteKind::Connection(step) => step as u8,
        _ => 30,
    }
}

/// The log phase comes when everything has been sent.
const LOG: u8 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventKind, TraceEvent};

    fn names(tree: &TraceTree, sites: &SiteTable) -> Vec<String> {
        let depth = |mut node: u32| {
            let mut depth = 0;
            while node != 0 {
                node = tree.nodes()[node as usize].parent;
                depth += 1;
            }
            depth
        };
        let mut out = Vec::new();
        let mut left: Vec<u32> = vec![0];
        while let Some(node) = left.pop() {
            if node != 0 {
                let name = sites.info(tree.nodes()[node as usize].site).label();
                out.push(format!("{}{name}", " ".repeat(depth(node) - 1)));
            }
            let mut below: Vec<u32> = tree.children(node).collect();
            below.reverse();
            left.extend(below);
        }
        out
    }

    #[test]
    fn handlers_stand_in_their_phase_and_filters_in_their_chain() {
        let sites = SiteTable::new();
        let handler = |phase, name| sites.intern(SiteKind::Handler(phase), "/", name);
        let marks = [
            Site::step(ConnectionStep::Parse),
            Site::phase(2),
            handler(3, "rewrite"),
            handler(9, "index"),
            handler(9, "static"),
            sites.intern(SiteKind::HeaderFilter, "/", "not_modified"),
            Site::HEADER,
            sites.intern(SiteKind::BodyFilter, "/", "gzip"),
            Site::step(ConnectionStep::Write),
            handler(9, "static"), // its source was asked for more
            sites.intern(SiteKind::BodyFilter, "/", "gzip"),
            Site::step(ConnectionStep::Write),
            handler(10, "log"),
            Site::step(ConnectionStep::Finalise),
        ];
        let mut events: Vec<TraceEvent> =
            marks.iter().map(|&site| TraceEvent::pack(EventKind::Mark, site, 10)).collect();
        let redirect = [
            TraceEvent::pack(EventKind::Begin, Site::REDIRECT, 0),
            TraceEvent::pack(EventKind::Mark, handler(9, "static"), 5),
            TraceEvent::pack(EventKind::End, Site::REDIRECT, 1),
        ];
        events.splice(5..5, redirect);
        let tree = TraceTree::from_events(&events);
        let arranged = tree.arranged(&sites);
        let expected = [
            "parse",
            "find_config",
            "rewrite",
            " rewrite",
            "content",
            " index",
            " static",
            "header_filter",
            " header_filter not_modified",
            " header_filter header",
            "body_filter",
            " body_filter gzip",
            " write",
            "internal_redirect",
            " content",
            "  static",
            "log",
            " log",
            "finalise",
        ];
        assert_eq!(names(&arranged, &sites), expected);
        assert_eq!((arranged.root().run, arranged.root().self_run), (tree.root().run, tree.root().self_run));
        assert_eq!(arranged.arranged(&sites), arranged);
        let of = |site| arranged.nodes().iter().find(|node| node.site == site).expect("it is there");
        assert_eq!((of(Site::phase(9)).run, of(Site::phase(9)).calls), (30, 2));
        assert_eq!(of(Site::BODY_FILTERS).run, 40);
    }
}
