//! Events drawn as a tree: what called what, and where the time went.

use std::collections::BTreeMap;

use crate::event::{EventDecoder, EventKind, TraceEvent};
use crate::model::WaitKind;
use crate::site::Site;

/// One request's time, or the sum over several, by site within site. The root is the request itself.
///
/// Calls of one site within the same parent are one node with a count: the several calls a response makes of a body
/// filter are summed. A node's time is its own and its children's, to the tick, in run and in wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceTree {
    pub(crate) nodes: Vec<TreeNode>,
    pub(crate) waits: Vec<NodeWait>,
    pub(crate) requests: u64,
}

/// One site below one parent. Times are in ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeNode {
    /// The site; [`Site::NONE`] for the root.
    pub site: Site,
    /// Index of the node above; the root is its own.
    pub parent: u32,
    /// How often it was entered or marked.
    pub calls: u64,
    /// Ticks run outside of its children.
    pub self_run: u64,
    /// Ticks waited outside of its children.
    pub self_wait: u64,
    /// Ticks run, children included.
    pub run: u64,
    /// Ticks waited, children included.
    pub wait: u64,
    /// Bytes that went in.
    pub bytes_in: u64,
    /// Bytes that came out.
    pub bytes_out: u64,
    /// Ticks of its own run spent waiting for locks.
    pub lock: u64,
    /// Ticks of its own run spent in garbage collection.
    pub gc: u64,
    /// Of its own run, compiling Lua code.
    pub jit: u64,
    /// Of its own run, asleep in calls that block; known of turns above a millisecond.
    pub asleep: u64,
    /// Of its own run, ready and without a core; known of turns above a millisecond.
    pub no_core: u64,
    /// Number of errors noted.
    pub errors: u64,
    /// The code of the last error noted.
    pub last_error: u64,
    /// The Lua prototype and line of the last yield; 0 for none.
    pub line: u64,
    first_child: u32,
    last_child: u32,
    next: u32,
}

impl TreeNode {
    /// Ticks of run and wait, children included.
    #[must_use]
    pub fn inclusive(&self) -> u64 {
        self.run + self.wait
    }
}

/// Own waiting of one node for one kind of thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeWait {
    /// Index of the node.
    pub node: u32,
    /// What it waited for.
    pub kind: WaitKind,
    /// How often it waited.
    pub calls: u64,
    /// Ticks waited in all.
    pub ticks: u64,
}

impl TraceTree {
    /// Bytes of memory that it owns.
    pub(crate) fn held_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<TreeNode>() + self.waits.capacity() * size_of::<NodeWait>()
    }

    /// A tree of no time at all, to be [merged](TraceTree::merge) into.
    #[must_use]
    pub fn new() -> TraceTree {
        TraceTree { nodes: vec![TreeNode::default()], waits: Vec::new(), requests: 0 }
    }

    /// The tree of one request's events.
    #[must_use]
    pub(crate) fn from_events(events: &[TraceEvent]) -> TraceTree {
        let mut builder = TreeBuilder::default();
        builder.absorb(events);
        builder.finish()
    }

    /// The request itself.
    #[must_use]
    pub fn root(&self) -> &TreeNode {
        &self.nodes[0]
    }

    /// All nodes; a parent is before its children.
    #[must_use]
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }

    /// How many requests are summed here.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Of the run of all nodes, asleep and without a core, in ticks.
    #[must_use]
    pub fn off_core(&self) -> (u64, u64) {
        self.nodes
            .iter()
            .fold((0, 0), |(asleep, no_core), node| (asleep + node.asleep, no_core + node.no_core))
    }

    /// The indexes of the children of a node, in the order they were first seen.
    pub fn children(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.nodes.get(node as usize).map_or(0, |n| n.first_child);
        std::iter::successors(Some(first), |&child| Some(self.nodes[child as usize].next))
            .take_while(|&child| child != 0)
    }

    /// What a node itself waited for.
    pub fn waits(&self, node: u32) -> impl Iterator<Item = &NodeWait> + '_ {
        self.waits.iter().filter(move |wait| wait.node == node)
    }

    /// The nodes of each site added up, wherever they are: times inclusive, a site inside itself counted once. Own
    /// times are added up too; what a node says of others (`site` apart) means nothing here.
    #[must_use]
    pub(crate) fn by_site(&self) -> BTreeMap<Site, TreeNode> {
        let mut sums = BTreeMap::<Site, TreeNode>::new();
        for (index, node) in self.nodes.iter().enumerate().skip(1) {
            let sum = sums.entry(node.site).or_default();
            sum.site = node.site;
            sum.add(node);
            if !self.is_inside_itself(index) {
                sum.run += node.run;
                sum.wait += node.wait;
            }
        }
        sums
    }

    fn is_inside_itself(&self, index: usize) -> bool {
        let above = |node: &&TreeNode| (node.parent != 0).then(|| &self.nodes[node.parent as usize]);
        std::iter::successors(Some(&self.nodes[index]), above)
            .skip(1)
            .any(|outer| outer.site == self.nodes[index].site)
    }

    /// Adds another tree to this one, node by node along the same path.
    pub fn merge(&mut self, other: &TraceTree) {
        let mut here = vec![0u32; other.nodes.len()];
        for (index, node) in other.nodes.iter().enumerate() {
            if index > 0 {
                here[index] = self.child(here[node.parent as usize], node.site);
            }
            self.nodes[here[index] as usize].add(node);
        }
        for wait in &other.waits {
            self.add_wait(here[wait.node as usize], wait.kind, wait.calls, wait.ticks);
        }
        self.requests += other.requests;
        self.sum_up();
    }

    /// The child of `parent` for `site`, made if need be. A tree that has grown to its bound charges the parent.
    pub(crate) fn child(&mut self, parent: u32, site: Site) -> u32 {
        if let Some(child) = self.children(parent).find(|&child| self.nodes[child as usize].site == site) {
            return child;
        }
        if self.nodes.len() >= MAX_NODES {
            return parent;
        }
        let index = self.nodes.len() as u32;
        self.nodes.push(TreeNode { site, parent, ..TreeNode::default() });
        let above = &mut self.nodes[parent as usize];
        let before = std::mem::replace(&mut above.last_child, index);
        if before == 0 {
            above.first_child = index;
        } else {
            self.nodes[before as usize].next = index;
        }
        index
    }

    pub(crate) fn add_wait(&mut self, node: u32, kind: WaitKind, calls: u64, ticks: u64) {
        match self.waits.iter_mut().find(|wait| wait.node == node && wait.kind == kind) {
            Some(wait) => {
                wait.calls += calls;
                wait.ticks += ticks;
            }
            None => self.waits.push(NodeWait { node, kind, calls, ticks }),
        }
    }

    /// Computes the inclusive times from the own ones; children are after their parents.
    pub(crate) fn sum_up(&mut self) {
        for node in &mut self.nodes {
            node.run = node.self_run;
            node.wait = node.self_wait;
        }
        for index in (1..self.nodes.len()).rev() {
            let TreeNode { parent, run, wait, .. } = self.nodes[index];
            self.nodes[parent as usize].run += run;
            self.nodes[parent as usize].wait += wait;
        }
    }
}

impl Default for TraceTree {
    fn default() -> TraceTree {
        TraceTree::new()
    }
}

impl TreeNode {
    /// Adds another node's own values; inclusive ones follow from them.
    pub(crate) fn add(&mut self, other: &TreeNode) {
        self.calls += other.calls;
        self.self_run += other.self_run;
        self.self_wait += other.self_wait;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.lock += other.lock;
        self.gc += other.gc;
        self.jit += other.jit;
        self.asleep += other.asleep;
        self.no_core += other.no_core;
        self.errors += other.errors;
        if other.errors > 0 {
            self.last_error = other.last_error;
        }
        if other.line > 0 {
            self.line = other.line;
        }
    }
}

/// A tree while its request goes on: takes events in batches, so that a long request can be folded as it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeBuilder {
    tree: TraceTree,
    walk: EventWalk,
}

impl TreeBuilder {
    pub(crate) fn absorb(&mut self, events: &[TraceEvent]) {
        self.walk.absorb(events, &mut self.tree);
    }

    pub(crate) fn finish(mut self) -> TraceTree {
        self.tree.requests = 1;
        self.tree.nodes[0].calls = 1;
        self.tree.sum_up();
        self.tree
    }
}

/// What a walk over events fills: nodes by their number, 0 for the request itself.
pub(crate) trait WalkSink {
    /// The child of `parent` for `site`, made if need be.
    fn child(&mut self, parent: u32, site: Site) -> u32;
    /// A node, to count in.
    fn node(&mut self, node: u32) -> &mut TreeNode;
    /// A node waited.
    fn wait(&mut self, node: u32, kind: WaitKind, ticks: u64);
}

impl WalkSink for TraceTree {
    fn child(&mut self, parent: u32, site: Site) -> u32 {
        TraceTree::child(self, parent, site)
    }

    fn node(&mut self, node: u32) -> &mut TreeNode {
        &mut self.nodes[node as usize]
    }

    fn wait(&mut self, node: u32, kind: WaitKind, ticks: u64) {
        self.nodes[node as usize].self_wait += ticks;
        self.add_wait(node, kind, 1, ticks);
    }
}

/// The walk over a request's events: which node each one is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventWalk {
    decoder: EventDecoder,
    /// The open sites below the root, innermost last, each with its node.
    open: Vec<(Site, u32)>,
    /// Sites opened beyond [`MAX_DEPTH`]: they are charged to the innermost one that was taken.
    beyond: u64,
}

impl EventWalk {
    pub(crate) fn absorb(&mut self, events: &[TraceEvent], sink: &mut impl WalkSink) {
        for &event in events {
            if let Some((kind, site, value)) = self.decoder.decode(event) {
                self.take(kind, site, value, sink);
            }
        }
    }

    /// Forgets what is open: the next event is another request's.
    pub(crate) fn reset(&mut self) {
        self.decoder = EventDecoder::default();
        self.open.clear();
        self.beyond = 0;
    }

    fn take(&mut self, kind: EventKind, site: Site, value: u64, sink: &mut impl WalkSink) {
        let top = self.open.last().map_or(0, |&(_, node)| node);
        match kind {
            EventKind::Begin => {
                sink.node(top).self_run += value;
                self.begin(top, site, sink);
            }
            EventKind::End => {
                sink.node(top).self_run += value;
                self.close(site);
            }
            EventKind::Mark => {
                let child = sink.child(top, site);
                let child = sink.node(child);
                child.self_run += value;
                child.calls += 1;
            }
            EventKind::Suspend => sink.node(top).self_run += value,
            EventKind::Resume => sink.wait(top, WaitKind::from_code(site.0), value),
            _ => {
                let node = self.place(site, sink);
                remark(sink.node(node), kind, value);
            }
        }
    }

    fn begin(&mut self, top: u32, site: Site, sink: &mut impl WalkSink) {
        if self.open.len() >= MAX_DEPTH {
            self.beyond += 1;
            return;
        }
        let child = sink.child(top, site);
        sink.node(child).calls += 1;
        self.open.push((site, child));
    }

    fn close(&mut self, site: Site) {
        if self.beyond > 0 && !site.is_none() {
            self.beyond -= 1;
            return;
        }
        self.beyond = 0;
        self.open.truncate(site.outside(&self.open, |open| open.0));
    }

    /// The node a remark about `site` belongs to: the innermost open one if it is `site`, else the mark inside it.
    fn place(&mut self, site: Site, sink: &mut impl WalkSink) -> u32 {
        match self.open.last() {
            None if site.is_none() => 0,
            Some(&(open, node)) if open == site || site.is_none() => node,
            Some(&(_, node)) => sink.child(node, site),
            None => sink.child(0, site),
        }
    }
}

fn remark(node: &mut TreeNode, kind: EventKind, value: u64) {
    match kind {
        EventKind::BytesIn => node.bytes_in += value,
        EventKind::BytesOut => node.bytes_out += value,
        EventKind::Lock => node.lock += value,
        EventKind::Gc => node.gc += value,
        EventKind::Jit => node.jit += value,
        EventKind::Asleep => node.asleep += value,
        EventKind::NoCore => node.no_core += value,
        EventKind::Line => node.line = value,
        EventKind::Error => {
            node.errors += 1;
            node.last_error = value;
        }
        _ => {}
    }
}

/// Nodes in a tree at most; what does not fit is charged to its parent.
pub(crate) const MAX_NODES: usize = 1024;
/// Sites open at once at most. An engine that enters and never leaves must not grow the server.
pub(crate) const MAX_DEPTH: usize = 64;
