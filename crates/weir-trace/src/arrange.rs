//! A request's tree in the order that people know: the connection's steps, the phases by name with their handlers
//! inside, header filters, body filters with the write behind them, log, the end.
//!
//! The engine stamps handlers and filters only, since a stamp around each phase as well would double the cost of
//! recording. The groups are made here, when somebody looks; no time moves from one site to another.

use crate::site::{Kind, Site, SiteTable, Step};
use crate::tree::Tree;

impl Tree {
    /// The same time with handlers grouped by phase and filters by their chain, in the order of a request. Arranging
    /// twice changes nothing.
    #[must_use]
    pub fn arranged(&self, sites: &SiteTable) -> Tree {
        self.arranged_with(sites).0
    }

    /// [`arranged`](Tree::arranged), and where each node of this tree stands in that one.
    pub(crate) fn arranged_with(&self, sites: &SiteTable) -> (Tree, Vec<u32>) {
        let kinds: Vec<Kind> = self.nodes.iter().map(|node| kind(node.site, sites)).collect();
        let mut arranged = Tree::new();
        let mut places = vec![0; self.nodes.len()];
        arranged.requests = self.requests;
        self.arrange(0, 0, &kinds, &mut arranged, &mut places);
        arranged.sum_up();
        (arranged, places)
    }

    /// Copies the node `from` into `to`, and what is below it.
    fn arrange(&self, from: u32, to: u32, kinds: &[Kind], arranged: &mut Tree, places: &mut [u32]) {
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

pub(crate) fn kind(site: Site, sites: &SiteTable) -> Kind {
    if site.is_none() { Kind::Request } else { sites.info(site).kind }
}

/// The node that a site is to stand in, if `above` is not it already.
pub(crate) fn group(site: Site, kind: Kind, above: Kind) -> Option<Site> {
    match kind {
        Kind::Handler(phase) if above != Kind::Phase(phase) => Some(Site::phase(phase)),
        Kind::HeaderFilter if site != Site::HEADER_FILTERS => Some(Site::HEADER_FILTERS),
        Kind::BodyFilter if site != Site::BODY_FILTERS => Some(Site::BODY_FILTERS),
        Kind::Connection(Step::Write) => Some(Site::BODY_FILTERS),
        _ => None,
    }
}

/// Where a site stands among others of the same parent; equal ones stay as they came.
pub(crate) fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Phase(LOG) | Kind::Handler(LOG) => 36,
        Kind::Phase(phase) | Kind::Handler(phase) => 10 + phase,
        Kind::Connection(Step::SpecialResponse) => 31,
        Kind::HeaderFilter => 32,
        Kind::BodyFilter => 33,
        Kind::Connection(Step::Write) => 34,
        Kind::Redirect => 35,
        Kind::Connection(Step::Finalise) => 37,
        Kind::Connection(Step::Lingering) => 38,
        Kind::Connection(step) => step as u8,
        _ => 30,
    }
}

/// The log phase comes when everything has been sent.
const LOG: u8 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventKind};

    fn names(tree: &Tree, sites: &SiteTable) -> Vec<String> {
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
        let handler = |phase, name| sites.intern(Kind::Handler(phase), "/", name);
        let marks = [
            Site::step(Step::Parse),
            Site::phase(2),
            handler(3, "rewrite"),
            handler(9, "index"),
            handler(9, "static"),
            sites.intern(Kind::HeaderFilter, "/", "not_modified"),
            Site::HEADER,
            sites.intern(Kind::BodyFilter, "/", "gzip"),
            Site::step(Step::Write),
            handler(9, "static"), // its source was asked for more
            sites.intern(Kind::BodyFilter, "/", "gzip"),
            Site::step(Step::Write),
            handler(10, "log"),
            Site::step(Step::Finalise),
        ];
        let mut events: Vec<Event> =
            marks.iter().map(|&site| Event::pack(EventKind::Mark, site, 10)).collect();
        let redirect = [
            Event::pack(EventKind::Begin, Site::REDIRECT, 0),
            Event::pack(EventKind::Mark, handler(9, "static"), 5),
            Event::pack(EventKind::End, Site::REDIRECT, 1),
        ];
        events.splice(5..5, redirect);
        let tree = Tree::from_events(&events);
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
