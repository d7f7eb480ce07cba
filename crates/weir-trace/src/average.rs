//! The average of many requests: a tree of sites with calls, mean, median and 99th percentile of each.
//!
//! A worker adds requests to an [`AverageTree`] of its own. Once it has seen their shapes it allocates nothing, so a
//! million requests cost a walk over their events each. The parts of the workers are merged by the thread that asked.

use crate::histogram::Histogram;
use crate::model::WaitKind;
use crate::record::RequestRecord;
use crate::site::{Site, SiteKind, SiteTable};
use crate::trace::Trace;
use crate::tree::{EventWalk, TraceTree, TreeNode, WalkSink};
use crate::tree_arranged::{group, kind};
use crate::wanted_requests::WantedRequests;

/// A wish for the average of coming requests, shared by all workers: hand a clone to each one's
/// [`Recorder::average`](crate::Recorder::average), wait until [`left`](AverageWatch::left) is 0 (or not), and collect
/// the parts with [`Recorder::take_average`](crate::Recorder::take_average).
#[derive(Clone)]
pub struct AverageWatch {
    wanted: WantedRequests,
    sites: &'static SiteTable,
}

impl AverageWatch {
    /// Wants `count` requests for which `matches` is true; `sites` says what their sites are.
    pub fn new(
        count: usize,
        sites: &'static SiteTable,
        matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static,
    ) -> AverageWatch {
        AverageWatch { wanted: WantedRequests::new(count, matches), sites }
    }

    /// Without requests that began before `since`, in ticks: they have not recorded what this caller asks for.
    #[must_use]
    pub fn since(self, since: u64) -> AverageWatch {
        AverageWatch { wanted: self.wanted.since(since), ..self }
    }

    /// How many are still wanted, of all workers together.
    #[must_use]
    pub fn left(&self) -> usize {
        self.wanted.left()
    }

    /// Collects no more; what was added remains.
    pub fn cancel(&self) {
        self.wanted.cancel();
    }

    /// True for a clone of the same wish.
    #[must_use]
    pub fn is(&self, other: &AverageWatch) -> bool {
        self.wanted.is(&other.wanted)
    }
}

impl std::fmt::Debug for AverageWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AverageWatch").field("left", &self.left()).finish_non_exhaustive()
    }
}

/// One worker's part of an average, while it is collected.
#[derive(Debug)]
pub(crate) struct AverageCollector {
    watch: AverageWatch,
    average: AverageTree,
}

impl AverageCollector {
    pub(crate) fn new(watch: AverageWatch) -> AverageCollector {
        AverageCollector { watch, average: AverageTree::new() }
    }

    pub(crate) fn is_for(&self, watch: &AverageWatch) -> bool {
        self.watch.is(watch)
    }

    /// False when nothing more is wanted.
    pub(crate) fn is_open(&self) -> bool {
        self.watch.left() > 0
    }

    pub(crate) fn add(&mut self, trace: &Trace, record: &RequestRecord) {
        if self.watch.wanted.takes(record) {
            self.average.add(trace, self.watch.sites);
            self.average.kernel += record.kernel;
        }
    }

    pub(crate) fn finish(self) -> AverageTree {
        self.average
    }
}

/// The sum and the spread of many requests.
#[derive(Clone, Debug, Default)]
pub struct AverageTree {
    /// Sums, as if all requests' trees had been merged.
    tree: TraceTree,
    /// What the kernel took for all requests, in ticks.
    kernel: u64,
    /// One for each node of the tree.
    parts: Vec<AveragePart>,
    /// Phases and chains of filters: nodes that are in no request's events.
    groups: Vec<AverageGroup>,
    /// Nodes that the request at hand has.
    touched: Vec<u32>,
    walk: EventWalk,
}

/// How one node's time is spread over the requests.
#[derive(Clone, Debug, Default)]
pub struct TimeSpread {
    /// Run per request, children included, in ticks; only of requests that came there.
    pub run: Histogram,
    /// Wait per request that waited there, children included, in ticks.
    pub wait: Histogram,
    /// Squares of each run and of each wait, summed: buckets are too coarse for a variance.
    squares: (f64, f64),
}

impl TimeSpread {
    /// The standard deviations of run and of wait over `requests`, of which those that did not come here count as 0, in
    /// ticks.
    #[must_use]
    pub fn deviations(&self, requests: u64) -> (f64, f64) {
        let of = |sum: u64, squares: f64| match requests {
            0 | 1 => 0.0,
            n => ((squares - (sum as f64).powi(2) / n as f64) / (n - 1) as f64).max(0.0).sqrt(),
        };
        (of(self.run.sum(), self.squares.0), of(self.wait.sum(), self.squares.1))
    }

    fn record(&mut self, run: u64, wait: u64) {
        self.run.record(run);
        self.squares.0 += (run as f64).powi(2);
        if wait > 0 {
            self.wait.record(wait);
            self.squares.1 += (wait as f64).powi(2);
        }
    }

    fn merge(&mut self, other: &TimeSpread) {
        self.run.merge(&other.run);
        self.wait.merge(&other.wait);
        self.squares = (self.squares.0 + other.squares.0, self.squares.1 + other.squares.1);
    }
}

#[derive(Clone, Debug, Default)]
struct AveragePart {
    spread: TimeSpread,
    /// What the node counted before the request at hand.
    before: (u64, u64),
    /// Times of the request at hand, children included.
    now: (u64, u64),
    touched: bool,
    /// Index of the group it is in, plus 1.
    group: u32,
}

#[derive(Clone, Debug)]
struct AverageGroup {
    /// The node it is in.
    parent: u32,
    site: Site,
    spread: TimeSpread,
    now: (u64, u64),
    touched: bool,
}

impl AverageTree {
    /// A tree without requests, to which requests' trees are added.
    #[must_use]
    pub fn new() -> AverageTree {
        AverageTree { parts: vec![AveragePart::default()], ..AverageTree::default() }
    }

    /// How many requests it is of.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.tree.requests
    }

    /// What the kernel took for them outside of their run, in ticks ([`RequestRecord::kernel`]).
    #[must_use]
    pub fn kernel(&self) -> u64 {
        self.kernel
    }

    /// Adds a request that was recorded.
    pub fn add(&mut self, trace: &Trace, sites: &SiteTable) {
        if trace.is_folded() {
            self.add_tree(&trace.tree(), sites);
            return;
        }
        let mut walk = std::mem::take(&mut self.walk);
        self.touch(0);
        self.tree.nodes[0].calls += 1;
        walk.reset();
        walk.absorb(trace.events(), &mut AverageFiller { average: self, sites });
        self.walk = walk;
        self.settle();
    }

    /// Adds the figures of `other`, another worker's tree.
    pub fn merge(&mut self, other: &AverageTree) {
        let mut here = vec![0u32; other.tree.nodes.len()];
        for (index, node) in other.tree.nodes.iter().enumerate() {
            if index > 0 {
                here[index] = self.tree.child(here[node.parent as usize], node.site);
            }
            self.parts.resize_with(self.tree.nodes.len(), AveragePart::default);
            self.tree.nodes[here[index] as usize].add(node);
            let theirs = &other.parts[index];
            self.parts[here[index] as usize].spread.merge(&theirs.spread);
            if let Some(group) = other.groups.get((theirs.group as usize).wrapping_sub(1)) {
                let group = self.group(here[group.parent as usize], group.site);
                self.parts[here[index] as usize].group = group;
            }
        }
        for wait in &other.tree.waits {
            self.tree.add_wait(here[wait.node as usize], wait.kind, wait.calls, wait.ticks);
        }
        for group in &other.groups {
            let at = self.group(here[group.parent as usize], group.site) as usize - 1;
            self.groups[at].spread.merge(&group.spread);
        }
        self.tree.requests += other.tree.requests;
        self.kernel += other.kernel;
        self.tree.sum_up();
    }

    /// The sums, arranged as people know them, and the spread of each node.
    #[must_use]
    pub fn arranged(&self, sites: &SiteTable) -> (TraceTree, Vec<TimeSpread>) {
        let mut sums = self.tree.clone();
        sums.sum_up();
        let (tree, places) = sums.arranged_with(sites);
        let mut spreads = vec![TimeSpread::default(); tree.nodes.len()];
        for (part, &place) in self.parts.iter().zip(&places) {
            spreads[place as usize].merge(&part.spread);
            if let Some(group) = self.groups.get((part.group as usize).wrapping_sub(1)) {
                let above = tree.nodes[place as usize].parent as usize;
                if tree.nodes[above].site == group.site {
                    spreads[above] = group.spread.clone();
                }
            }
        }
        (tree, spreads)
    }

    /// A request so long that its events alone do not say it.
    #[cold]
    fn add_tree(&mut self, tree: &TraceTree, sites: &SiteTable) {
        let mut here = vec![0u32; tree.nodes.len()];
        for (index, node) in tree.nodes.iter().enumerate() {
            if index > 0 {
                here[index] = self.child(here[node.parent as usize], node.site, sites);
            }
            self.touch(here[index]);
            self.tree.nodes[here[index] as usize].add(node);
        }
        for wait in &tree.waits {
            self.tree.add_wait(here[wait.node as usize], wait.kind, wait.calls, wait.ticks);
        }
        self.settle();
    }

    /// The request at hand is complete: its times go up the tree and into the histograms.
    fn settle(&mut self) {
        self.tree.requests += 1;
        // Children are after their parents.
        self.touched.sort_unstable();
        for &at in &self.touched {
            let node = &self.tree.nodes[at as usize];
            let part = &mut self.parts[at as usize];
            part.now = (node.self_run - part.before.0, node.self_wait - part.before.1);
        }
        for &at in self.touched.iter().rev() {
            let (run, wait) = self.parts[at as usize].now;
            if at > 0 {
                let above = &mut self.parts[self.tree.nodes[at as usize].parent as usize].now;
                *above = (above.0 + run, above.1 + wait);
            }
            if let Some(group) = self.groups.get_mut((self.parts[at as usize].group as usize).wrapping_sub(1))
            {
                group.now = (group.now.0 + run, group.now.1 + wait);
                group.touched = true;
            }
        }
        for at in self.touched.drain(..) {
            let part = &mut self.parts[at as usize];
            part.spread.record(part.now.0, part.now.1);
            part.touched = false;
        }
        for group in self.groups.iter_mut().filter(|group| group.touched) {
            group.spread.record(group.now.0, group.now.1);
            (group.now, group.touched) = ((0, 0), false);
        }
    }

    fn touch(&mut self, at: u32) {
        let (part, node) = (&mut self.parts[at as usize], &self.tree.nodes[at as usize]);
        if !std::mem::replace(&mut part.touched, true) {
            part.before = (node.self_run, node.self_wait);
            self.touched.push(at);
        }
    }

    fn child(&mut self, parent: u32, site: Site, sites: &SiteTable) -> u32 {
        let child = self.tree.child(parent, site);
        if child as usize == self.parts.len() {
            self.adopt(parent, site, sites);
        }
        child
    }

    /// Makes the part of a new node, and the group it is in.
    #[cold]
    fn adopt(&mut self, parent: u32, site: Site, sites: &SiteTable) {
        let above = self.tree.nodes[parent as usize].site;
        let above: SiteKind = kind(above, sites);
        let group = match group(site, kind(site, sites), above) {
            Some(group) if group != self.tree.nodes[parent as usize].site => self.group(parent, group),
            _ => 0,
        };
        self.parts.push(AveragePart { group, ..AveragePart::default() });
    }

    /// The number of a group, made if need be.
    fn group(&mut self, parent: u32, site: Site) -> u32 {
        let same = |group: &AverageGroup| (group.parent, group.site) == (parent, site);
        let at = self.groups.iter().position(same).unwrap_or_else(|| {
            let group =
                AverageGroup { parent, site, spread: TimeSpread::default(), now: (0, 0), touched: false };
            self.groups.push(group);
            self.groups.len() - 1
        });
        at as u32 + 1
    }
}

/// Lets a walk count in an average.
struct AverageFiller<'a> {
    average: &'a mut AverageTree,
    sites: &'a SiteTable,
}

impl WalkSink for AverageFiller<'_> {
    fn child(&mut self, parent: u32, site: Site) -> u32 {
        // A parent that did nothing itself is part of the request all the same.
        self.average.touch(parent);
        let child = self.average.child(parent, site, self.sites);
        self.average.touch(child);
        child
    }

    fn node(&mut self, node: u32) -> &mut TreeNode {
        self.average.touch(node);
        &mut self.average.tree.nodes[node as usize]
    }

    fn wait(&mut self, node: u32, kind: WaitKind, ticks: u64) {
        self.node(node).self_wait += ticks;
        self.average.tree.add_wait(node, kind, 1, ticks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::ConnectionStep;

    struct Sites {
        table: SiteTable,
        access: [Site; 2],
        gzip: Site,
    }

    fn sites() -> Sites {
        let table = SiteTable::new();
        let access = ["access", "auth_basic"].map(|name| table.intern(SiteKind::Handler(6), "/", name));
        let gzip = table.intern(SiteKind::BodyFilter, "/", "gzip");
        Sites { table, access, gzip }
    }

    /// 10 for the parser, 20 and `auth` in the access phase, gzip twice with a wait of 50 in the second call.
    fn request(sites: &Sites, auth: u64) -> Trace {
        let mut trace = Trace::new();
        trace.begin(0);
        trace.mark(Site::step(ConnectionStep::Parse), 10);
        trace.mark(sites.access[0], 30);
        trace.mark(sites.access[1], 30 + auth);
        trace.mark(sites.gzip, 35 + auth);
        trace.enter(sites.gzip, 35 + auth);
        trace.suspend(40 + auth);
        trace.resume(90 + auth);
        trace.leave(sites.gzip, 90 + auth);
        trace.end(100 + auth);
        trace
    }

    fn node(average: &(TraceTree, Vec<TimeSpread>), site: Site) -> (&TreeNode, &TimeSpread) {
        let at = average.0.nodes().iter().position(|node| node.site == site).expect("it ran");
        (&average.0.nodes()[at], &average.1[at])
    }

    #[test]
    fn nodes_and_their_groups_have_mean_and_quantiles() {
        let sites = sites();
        let mut average = AverageTree::new();
        (1..=100).for_each(|n| average.add(&request(&sites, n), &sites.table));
        assert_eq!(average.requests(), 100);
        let arranged = average.arranged(&sites.table);
        let (auth, spread) = node(&arranged, sites.access[1]);
        assert_eq!((auth.calls, auth.self_run, spread.run.mean()), (100, 5050, 50));
        assert!((spread.deviations(100).0 - 29.011).abs() < 0.001, "of 1 to 100");
        assert!(
            (50..=53).contains(&spread.run.quantile(0.5)) && (99..=100).contains(&spread.run.quantile(0.99))
        );
        let (phase, spread) = node(&arranged, Site::phase(6));
        assert_eq!((phase.run, spread.run.count(), spread.run.sum()), (7050, 100, 7050));
        assert!((118..=120).contains(&spread.run.quantile(0.99)), "{}", spread.run.quantile(0.99));
        let (gzip, spread) = node(&arranged, sites.gzip);
        assert_eq!((gzip.calls, spread.run.mean(), spread.wait.mean()), (200, 10, 50));
        let (root, spread) = (arranged.0.root(), &arranged.1[0]);
        assert_eq!((root.run + root.wait, spread.run.sum() + spread.wait.sum()), (15_050, 15_050));
    }

    #[test]
    fn what_few_requests_do_is_averaged_over_those() {
        let sites = sites();
        let mut average = AverageTree::new();
        let mut plain = Trace::new();
        plain.begin(0);
        plain.mark(Site::step(ConnectionStep::Parse), 10);
        plain.end(10);
        (0..9).for_each(|_| average.add(&plain, &sites.table));
        average.add(&request(&sites, 500), &sites.table);
        let arranged = average.arranged(&sites.table);
        let (auth, spread) = node(&arranged, sites.access[1]);
        assert_eq!((auth.calls, spread.run.count(), spread.run.mean()), (1, 1, 500));
        // Nine times 0, once 500.
        assert!((spread.deviations(10).0 - 158.114).abs() < 0.001);
        assert_eq!(arranged.1[0].run.count(), 10);
    }

    #[test]
    fn the_parts_of_workers_add_up() {
        let sites = sites();
        let (mut one, mut two, mut both) = (AverageTree::new(), AverageTree::new(), AverageTree::new());
        for n in 1..=20 {
            one.add(&request(&sites, n), &sites.table);
            both.add(&request(&sites, n), &sites.table);
        }
        let mut plain = Trace::new();
        plain.begin(0);
        plain.mark(sites.gzip, 7);
        plain.end(10);
        two.add(&plain, &sites.table);
        both.add(&plain, &sites.table);
        let mut merged = AverageTree::new();
        merged.merge(&two);
        merged.merge(&one);
        assert_eq!(merged.requests(), 21);
        let (merged, both) = (merged.arranged(&sites.table), both.arranged(&sites.table));
        for site in [Site::NONE, Site::phase(6), Site::BODY_FILTERS, sites.gzip, sites.access[0]] {
            let (a, b) = (node(&merged, site), node(&both, site));
            assert_eq!((a.0.calls, a.0.run, a.0.wait), (b.0.calls, b.0.run, b.0.wait), "{site:?}");
            assert_eq!((&a.1.run, &a.1.wait), (&b.1.run, &b.1.wait), "{site:?}");
        }
    }

    #[test]
    fn long_requests_are_added_by_their_tree() {
        let sites = sites();
        let mut trace = Trace::new();
        trace.begin(0);
        (1..=3_000).for_each(|n| trace.mark(sites.gzip, n * 2));
        trace.end(6_000);
        assert!(trace.is_folded());
        let mut average = AverageTree::new();
        average.add(&trace, &sites.table);
        let arranged = average.arranged(&sites.table);
        let (gzip, spread) = node(&arranged, sites.gzip);
        assert_eq!((gzip.calls, spread.run.count(), spread.run.sum()), (3_000, 1, 6_000));
    }
}
