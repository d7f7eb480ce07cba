//! Dependencies and weights (RFC 7540 section 5.3): which stream sends next, of clients that use them.
//!
//! A stream is served before those that depend on it; those that depend on the same one share what it leaves by their
//! weights. Each node has a wheel of 64 turns for the nodes below it that have something to send. Who has sent goes on by a
//! distance that its bytes and its weight give, with the fraction carried over, so that the next one is the first bit that is
//! set: choosing takes the same time for two streams and for a hundred.

use std::collections::VecDeque;

/// What a PRIORITY frame, or the head of a request, says of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamDependency {
    /// The stream that it depends on; 0: on none.
    pub(super) parent: u32,
    /// 1 to 256.
    pub(super) weight: u16,
    /// It comes between that stream and all that depended on it.
    pub(super) exclusive: bool,
}

impl StreamDependency {
    /// What a stream has of which nothing was said (section 5.3.5).
    pub(super) const USUAL: StreamDependency = StreamDependency { parent: 0, weight: 16, exclusive: false };

    /// Reads the five bytes of a frame.
    pub(super) fn read(bytes: &[u8; 5]) -> StreamDependency {
        let [a, b, c, d, weight] = *bytes;
        let word = u32::from_be_bytes([a, b, c, d]);
        StreamDependency {
            parent: word & 0x7fff_ffff,
            weight: u16::from(weight) + 1,
            exclusive: word >> 31 == 1,
        }
    }
}

/// The streams of a connection by their dependencies, and a few that are not open: clients group by those.
#[derive(Clone, Debug)]
pub(super) struct DependencyTree {
    /// The first one is stream 0, the root.
    nodes: Vec<TreeNode>,
    free: Vec<u32>,
    /// Identifiers and nodes, by identifier.
    ids: Vec<(u32, u32)>,
    /// Nodes without an open stream, the oldest first.
    idle: VecDeque<u32>,
}

#[derive(Clone, Debug)]
struct TreeNode {
    id: u32,
    parent: u32,
    weight: u16,
    /// What of a turn its bytes have taken, in 1/65,536.
    fraction: u16,
    /// Its stream's place, while that may send; [`NONE`]: it may not.
    place: u32,
    /// Its turn in the wheel of its parent; [`NONE`]: nothing in its part of the tree may send.
    turn: u32,
    next: u32,
    previous: u32,
    wheel: Option<Box<TurnWheel>>,
}

/// Nodes below one by the turns at which they are due.
#[derive(Clone, Debug)]
struct TurnWheel {
    /// One bit for each turn at which somebody is due.
    due: u64,
    /// The turn that it is.
    now: u32,
    /// First and last of each turn.
    ends: [(u32, u32); TURNS as usize],
}

impl TurnWheel {
    /// The next turn at which somebody is due.
    fn first(&self) -> Option<u32> {
        let ahead = self.due.rotate_right(self.now).trailing_zeros();
        (self.due != 0).then_some((self.now + ahead) % TURNS)
    }
}

impl Default for DependencyTree {
    fn default() -> DependencyTree {
        let root = TreeNode::new(0, ROOT, 16);
        DependencyTree { nodes: vec![root], free: Vec::new(), ids: Vec::new(), idle: VecDeque::new() }
    }
}

impl TreeNode {
    fn new(id: u32, parent: u32, weight: u16) -> TreeNode {
        let (fraction, wheel) = (0, None);
        TreeNode { id, parent, weight, fraction, place: NONE, turn: NONE, next: NONE, previous: NONE, wheel }
    }

    fn first(&self) -> Option<u32> {
        let wheel = self.wheel.as_ref()?;
        wheel.ends.get(wheel.first()? as usize).map(|(first, _)| *first)
    }

    /// Whether something in its part of the tree may send.
    fn is_active(&self) -> bool {
        self.place != NONE || self.wheel.as_ref().is_some_and(|wheel| wheel.due != 0)
    }
}

impl DependencyTree {
    /// Bytes of memory that it owns.
    pub(super) fn held_bytes(&self) -> usize {
        let wheels = self.nodes.iter().filter(|node| node.wheel.is_some()).count();
        self.nodes.capacity() * size_of::<TreeNode>()
            + wheels * size_of::<TurnWheel>()
            + (self.free.capacity() + self.idle.capacity()) * size_of::<u32>()
            + self.ids.capacity() * size_of::<(u32, u32)>()
    }

    /// A stream is open; `dependency`: what its head says.
    pub(super) fn open(&mut self, id: u32, dependency: Option<StreamDependency>) {
        let known = self.find(id);
        match (known, dependency) {
            (Some(node), dependency) => {
                self.idle.retain(|idle| *idle != node);
                if let Some(dependency) = dependency {
                    self.place_at(node, dependency);
                }
            }
            (None, dependency) => {
                self.add(id, dependency.unwrap_or(StreamDependency::USUAL));
            }
        }
    }

    /// A PRIORITY frame came. The stream may be open, not open yet, or gone.
    pub(super) fn depend(&mut self, id: u32, dependency: StreamDependency) {
        match self.find(id) {
            Some(node) => self.place_at(node, dependency),
            None => {
                let node = self.add(id, dependency);
                self.grow_idle(node);
            }
        }
    }

    /// A stream is gone; for a while others may depend on it still.
    pub(super) fn close(&mut self, id: u32) {
        let Some(node) = self.find(id) else { return };
        self.remove(id);
        self.grow_idle(node);
    }

    /// The stream `id`, whose place is `place`, may send.
    pub(super) fn push(&mut self, id: u32, place: u32) {
        let node = self.find(id).unwrap_or_else(|| self.add(id, StreamDependency::USUAL));
        self.node_mut(node).place = place;
        self.activate(node);
    }

    /// The stream `id` may not send, or has nothing to send.
    pub(super) fn remove(&mut self, id: u32) {
        let Some(node) = self.find(id) else { return };
        self.node_mut(node).place = NONE;
        self.deactivate(node);
    }

    /// The place of the stream whose turn it is.
    pub(super) fn first(&self) -> Option<u32> {
        self.first_node().map(|node| self.node(node).place)
    }

    /// The first stream has sent so many bytes, and has more where `more` says so: it goes on to its next turn, and so does all
    /// that it depends on.
    pub(super) fn sent(&mut self, bytes: u64, more: bool) {
        let Some(mut node) = self.first_node() else { return };
        if !more {
            self.node_mut(node).place = NONE;
        }
        while node != ROOT {
            let (turn, parent) = (self.node(node).turn, self.node(node).parent);
            if let Some(wheel) = &mut self.node_mut(parent).wheel {
                wheel.now = turn;
            }
            self.unlink(node);
            if self.node(node).is_active() {
                self.link(node, bytes);
            }
            node = parent;
        }
    }

    fn first_node(&self) -> Option<u32> {
        let mut node = self.node(ROOT).first()?;
        while self.node(node).place == NONE {
            node = self.node(node).first()?;
        }
        Some(node)
    }

    #[expect(clippy::indexing_slicing, reason = "numbers of nodes come from this tree alone")]
    fn node(&self, node: u32) -> &TreeNode {
        &self.nodes[node as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "numbers of nodes come from this tree alone")]
    fn node_mut(&mut self, node: u32) -> &mut TreeNode {
        &mut self.nodes[node as usize]
    }

    fn find(&self, id: u32) -> Option<u32> {
        let at = self.ids.binary_search_by_key(&id, |(other, _)| *other).ok()?;
        self.ids.get(at).map(|(_, node)| *node)
    }

    fn add(&mut self, id: u32, dependency: StreamDependency) -> u32 {
        let fresh = TreeNode::new(id, ROOT, 16);
        let node = match self.free.pop() {
            Some(node) => {
                *self.node_mut(node) = fresh;
                node
            }
            None => {
                self.nodes.push(fresh);
                self.nodes.len() as u32 - 1
            }
        };
        let at = self.ids.partition_point(|(other, _)| *other < id);
        self.ids.insert(at, (id, node));
        self.place_at(node, dependency);
        node
    }

    /// `node` has no open stream: of such ones the oldest are forgotten.
    fn grow_idle(&mut self, node: u32) {
        self.idle.push_back(node);
        if self.idle.len() > IDLE
            && let Some(oldest) = self.idle.pop_front()
        {
            self.forget(oldest);
        }
    }

    /// Takes out `node`; what depended on it depends on its parent, and shares its weight (section 5.3.4).
    fn forget(&mut self, node: u32) {
        let (parent, weight) = (self.node(node).parent, u32::from(self.node(node).weight));
        let below = self.below(node);
        let sum: u32 = below.iter().map(|child| u32::from(self.node(*child).weight)).sum();
        for child in below {
            let share = (weight * u32::from(self.node(child).weight) / sum.max(1)).clamp(1, 256);
            self.node_mut(child).weight = share as u16;
            self.hang(child, parent);
        }
        self.deactivate(node);
        let id = self.node(node).id;
        self.ids.retain(|(other, _)| *other != id);
        // Nothing is below it, and it is nobody's: it can't be found until it is used again.
        self.node_mut(node).parent = NONE;
        self.free.push(node);
    }

    /// The nodes that depend on `node`.
    fn below(&self, node: u32) -> Vec<u32> {
        let numbers = 1..self.nodes.len() as u32;
        numbers.filter(|child| self.node(*child).parent == node).collect()
    }

    /// Gives `node` its place in the tree (section 5.3.3). What it depends on is the root where that is not known.
    fn place_at(&mut self, node: u32, dependency: StreamDependency) {
        let known = if dependency.parent == 0 { Some(ROOT) } else { self.find(dependency.parent) };
        let StreamDependency { weight, exclusive, .. } =
            if known.is_some() { dependency } else { StreamDependency::USUAL };
        let parent = known.unwrap_or(ROOT);
        if parent == node {
            return;
        }
        if self.is_below(parent, node) {
            let over = self.node(node).parent;
            self.hang(parent, over);
        }
        if exclusive {
            for child in self.below(parent) {
                if child != node {
                    self.hang(child, node);
                }
            }
        }
        self.deactivate_whole(node);
        self.node_mut(node).weight = weight;
        self.node_mut(node).parent = parent;
        if self.node(node).is_active() {
            self.activate(node);
        }
    }

    /// Whether `node` is in the part of the tree below `above`.
    fn is_below(&self, mut node: u32, above: u32) -> bool {
        while node != ROOT {
            node = self.node(node).parent;
            if node == above {
                return true;
            }
        }
        false
    }

    /// Makes `node` depend on `parent`, with all that is below it.
    fn hang(&mut self, node: u32, parent: u32) {
        self.deactivate_whole(node);
        self.node_mut(node).parent = parent;
        if self.node(node).is_active() {
            self.activate(node);
        }
    }

    /// Something in the part of `node` may send.
    fn activate(&mut self, mut node: u32) {
        while node != ROOT && self.node(node).turn == NONE {
            self.link(node, FRAME);
            node = self.node(node).parent;
        }
    }

    /// Takes `node` out of its parent's turns, if nothing in its part may send.
    fn deactivate(&mut self, node: u32) {
        if node != ROOT && !self.node(node).is_active() {
            self.deactivate_whole(node);
        }
    }

    /// Takes `node` out of its parent's turns, and the parent out of its own where it was all that may send.
    fn deactivate_whole(&mut self, mut node: u32) {
        while node != ROOT && self.node(node).turn != NONE {
            self.unlink(node);
            node = self.node(node).parent;
            if self.node(node).is_active() {
                return;
            }
        }
    }

    /// Puts `node` in its parent's turns, as one that has sent so many bytes.
    #[expect(clippy::indexing_slicing, reason = "a turn is less than TURNS")]
    fn link(&mut self, node: u32, bytes: u64) {
        let own = self.node_mut(node);
        let units = u64::from(own.fraction) + distance(bytes, own.weight);
        own.fraction = units as u16;
        let (ahead, parent) = (((units >> 16) as u32).min(TURNS - 1), own.parent);
        let wheel = self.node_mut(parent).wheel.get_or_insert_default();
        let turn = (wheel.now + ahead) % TURNS;
        let (first, last) = &mut wheel.ends[turn as usize];
        let before = *last;
        (*first, *last) = (if before == NONE { node } else { *first }, node);
        wheel.due |= 1 << turn;
        let own = self.node_mut(node);
        (own.turn, own.previous, own.next) = (turn, before, NONE);
        if before != NONE {
            self.node_mut(before).next = node;
        }
    }

    #[expect(clippy::indexing_slicing, reason = "a turn is less than TURNS")]
    fn unlink(&mut self, node: u32) {
        let own = self.node_mut(node);
        let (turn, previous, next, parent) = (own.turn, own.previous, own.next, own.parent);
        own.turn = NONE;
        if let Some(wheel) = &mut self.node_mut(parent).wheel {
            let ends = &mut wheel.ends[turn as usize];
            let first = if previous == NONE { next } else { ends.0 };
            *ends = (first, if next == NONE { previous } else { ends.1 });
            if first == NONE {
                wheel.due &= !(1 << turn);
            }
        }
        if previous != NONE {
            self.node_mut(previous).next = next;
        }
        if next != NONE {
            self.node_mut(next).previous = previous;
        }
    }
}

impl Default for TurnWheel {
    fn default() -> TurnWheel {
        TurnWheel { due: 0, now: 0, ends: [(NONE, NONE); TURNS as usize] }
    }
}

/// How far so many bytes take a stream of that weight, in 1/65,536 of a turn: a frame of one of weight 1 takes it all around.
fn distance(bytes: u64, weight: u16) -> u64 {
    (u64::from(TURNS - 1) << 16) * bytes.min(FRAME) / FRAME / u64::from(weight.max(1))
}

const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;
const TURNS: u32 = 64;
/// Bytes of a usual frame.
const FRAME: u64 = 16 * 1024;
/// How many streams that are not open are known: groups that clients make of such ones are six or so.
const IDLE: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn on(parent: u32, weight: u16, exclusive: bool) -> StreamDependency {
        StreamDependency { parent, weight, exclusive }
    }

    /// A tree of open streams that all may send; the place of each is its identifier.
    fn tree(streams: &[(u32, StreamDependency)]) -> DependencyTree {
        let mut tree = DependencyTree::default();
        for (id, dependency) in streams {
            tree.open(*id, Some(*dependency));
            tree.push(*id, *id);
        }
        tree
    }

    /// How many of so many full frames each of the streams 1, 3 and 5 gets.
    fn shares(tree: &mut DependencyTree, frames: usize) -> [usize; 3] {
        let mut counts = [0; 3];
        for _ in 0..frames {
            let place = tree.first().expect("all have something to send");
            counts[(place / 2) as usize] += 1;
            tree.sent(FRAME, true);
        }
        counts
    }

    #[test]
    fn the_five_bytes_are_read() {
        assert_eq!(StreamDependency::read(&[0x80, 0, 0, 5, 255]), on(5, 256, true));
        assert_eq!(StreamDependency::read(&[0, 0, 1, 0, 0]), on(256, 1, false));
    }

    #[test]
    fn weights_are_shares() {
        let mut two = tree(&[(1, on(0, 256, false)), (3, on(0, 1, false))]);
        assert_eq!(shares(&mut two, 2570), [2560, 10, 0]);
        let mut three = tree(&[(1, on(0, 16, false)), (3, on(0, 32, false)), (5, on(0, 48, false))]);
        let got = shares(&mut three, 6000);
        assert!(got.iter().zip([1000, 2000, 3000]).all(|(a, b): (_, usize)| a.abs_diff(b) <= 4), "{got:?}");
    }

    #[test]
    fn bytes_count_and_not_frames() {
        let mut two = tree(&[(1, on(0, 16, false)), (3, on(0, 16, false))]);
        let mut bytes = [0; 2];
        for _ in 0..4000 {
            let place = two.first().expect("both have something");
            let len = if place == 1 { FRAME } else { FRAME / 8 };
            bytes[(place / 2) as usize] += len;
            two.sent(len, true);
        }
        assert!(bytes[0].abs_diff(bytes[1]) <= 8 * FRAME, "{bytes:?}");
    }

    #[test]
    fn what_is_depended_on_comes_first() {
        let mut tree = tree(&[(1, on(0, 16, false)), (3, on(1, 256, false)), (5, on(3, 256, false))]);
        assert_eq!(shares(&mut tree, 10), [10, 0, 0]);
        tree.sent(FRAME, false);
        assert_eq!(shares(&mut tree, 10), [0, 10, 0]);
        // A stream that is gone leaves its place to the next.
        tree.close(3);
        assert_eq!(shares(&mut tree, 10), [0, 0, 10]);
        // And one that has something again comes before those that depend on it.
        tree.push(1, 1);
        assert_eq!(tree.first(), Some(1));
    }

    #[test]
    fn groups_of_streams_that_never_open_share_by_their_weights() {
        let mut groups = DependencyTree::default();
        groups.depend(101, on(0, 200, false));
        groups.depend(103, on(0, 100, false));
        for (id, group) in [(1, 101), (3, 103), (5, 103)] {
            groups.open(id, Some(on(group, 32, false)));
            groups.push(id, id);
        }
        let got = shares(&mut groups, 6000);
        assert!(got.iter().zip([4000, 1000, 1000]).all(|(a, b): (_, usize)| a.abs_diff(b) <= 4), "{got:?}");
    }

    #[test]
    fn an_exclusive_one_comes_between() {
        let mut tree = tree(&[(1, on(0, 16, false)), (3, on(0, 16, false)), (5, on(0, 16, true))]);
        assert_eq!(shares(&mut tree, 4), [0, 0, 4]);
        tree.remove(5);
        assert_eq!(shares(&mut tree, 4), [2, 2, 0]);
    }

    #[test]
    fn a_stream_that_is_to_depend_on_one_below_it_is_preceded_by_that() {
        let mut tree = tree(&[(1, on(0, 16, false)), (3, on(1, 16, false)), (5, on(3, 16, false))]);
        tree.depend(1, on(5, 16, false));
        assert_eq!(shares(&mut tree, 3), [0, 0, 3]);
        tree.close(5);
        assert_eq!(shares(&mut tree, 3), [3, 0, 0]);
    }

    #[test]
    fn few_streams_that_are_not_open_are_known() {
        let mut tree = tree(&[(1, on(0, 16, false))]);
        for id in (3..2003).step_by(2) {
            tree.depend(id, on(id - 2, 16, id % 4 == 1));
        }
        assert!(tree.nodes.len() <= IDLE + 3, "{}", tree.nodes.len());
        assert_eq!((tree.first(), tree.ids.len()), (Some(1), IDLE + 1));
    }

    /// The order by definition: nobody is served while one that it depends on may send.
    fn check(tree: &DependencyTree) {
        let mut active = 0;
        for node in 1..tree.nodes.len() as u32 {
            let own = tree.node(node);
            if own.parent == NONE {
                continue;
            }
            assert_eq!(own.turn != NONE, own.is_active(), "stream {}", own.id);
            active += u32::from(own.place != NONE);
            let mut above = node;
            for _ in 0..=tree.nodes.len() {
                if above == ROOT {
                    break;
                }
                above = tree.node(above).parent;
            }
            assert_eq!(above, ROOT, "stream {} is in a circle", own.id);
        }
        let Some(first) = tree.first_node() else { return assert_eq!(active, 0, "somebody is forgotten") };
        let mut above = tree.node(first).parent;
        while above != ROOT {
            assert_eq!(tree.node(above).place, NONE, "served before what it depends on");
            above = tree.node(above).parent;
        }
    }

    #[test]
    fn whatever_comes_nobody_is_forgotten_and_nothing_goes_in_circles() {
        let mut seed = 1_u64;
        let mut draw = |most: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as u32 % most
        };
        let mut tree = DependencyTree::default();
        let mut open: Vec<u32> = Vec::new();
        for step in 0..60_000 {
            let id = draw(60) * 2 + 1;
            let dependency = on(draw(61) * 2 / 3 * 2, 1 + draw(256) as u16, draw(4) == 0);
            let dependency = StreamDependency { parent: dependency.parent.saturating_sub(1), ..dependency };
            match draw(7) {
                0 | 1 if !open.contains(&id) && open.len() < 40 => {
                    tree.open(id, (draw(2) == 0 && dependency.parent != id).then_some(dependency));
                    open.push(id);
                }
                2 if dependency.parent != id => tree.depend(id, dependency),
                3 if open.contains(&id) => tree.push(id, id),
                4 => {
                    if let Some(at) = open.iter().position(|other| *other == id) {
                        open.remove(at);
                        tree.close(id);
                    }
                }
                5 if open.contains(&id) => tree.remove(id),
                _ => tree.sent(u64::from(draw(20_000)), draw(3) > 0),
            }
            if step % 7 == 0 {
                check(&tree);
            }
        }
        open.iter().for_each(|id| tree.close(*id));
        assert_eq!(tree.first(), None);
        assert!(tree.nodes.len() <= IDLE + 42, "{}", tree.nodes.len());
    }
}
