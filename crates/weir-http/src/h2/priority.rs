//! Which stream sends next, by extensible priorities (RFC 9218) or by dependencies (RFC 7540).
//!
//! Eight urgencies, 0 first. Within one, streams that are not incremental are served one after the other in the order
//! of their identifiers, since half of one is of no use; incremental ones share the rest by turns, frame by frame. A client
//! that sends dependencies, and nothing of urgencies, gets a [tree](DependencyTree).

use std::collections::VecDeque;

use super::dependency::DependencyTree;
use crate::priority::Priority;

/// Streams that have something to send and may.
#[derive(Clone, Debug, Default)]
pub(super) struct SendQueue {
    levels: [UrgencyLevel; 8],
    /// One bit for each level that is not empty.
    ready: u8,
    /// Instead of the levels, for clients of RFC 7540.
    pub(super) tree: Option<Box<DependencyTree>>,
}

#[derive(Clone, Debug, Default)]
struct UrgencyLevel {
    /// Not incremental: identifier and place, by identifier.
    ordered: VecDeque<(u32, u32)>,
    /// Incremental: places, by turns.
    turns: VecDeque<u32>,
}

impl SendQueue {
    /// Bytes of memory that it owns.
    pub(super) fn held_bytes(&self) -> usize {
        let level = |level: &UrgencyLevel| {
            level.ordered.capacity() * size_of::<(u32, u32)>() + level.turns.capacity() * size_of::<u32>()
        };
        let tree = self.tree.as_ref().map_or(0, |tree| size_of::<DependencyTree>() + tree.held_bytes());
        self.levels.iter().map(level).sum::<usize>() + tree
    }

    /// Puts in the stream `id` at `place`, which is not in.
    pub(super) fn push(&mut self, priority: Priority, id: u32, place: u32) {
        if let Some(tree) = &mut self.tree {
            return tree.push(id, place);
        }
        let Some(level) = self.levels.get_mut(usize::from(priority.urgency)) else { return };
        self.ready |= 1 << priority.urgency;
        if priority.incremental {
            return level.turns.push_back(place);
        }
        match level.ordered.back() {
            Some((last, _)) if *last > id => {
                let at = level.ordered.partition_point(|(other, _)| *other < id);
                level.ordered.insert(at, (id, place));
            }
            _ => level.ordered.push_back((id, place)),
        }
    }

    /// The stream whose turn it is; it stays in.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        if self.ready == 0 {
            return self.tree.as_ref().and_then(|tree| tree.first());
        }
        let level = self.levels.get(self.ready.trailing_zeros() as usize)?;
        level.ordered.front().map(|(_, place)| *place).or_else(|| level.turns.front().copied())
    }

    /// The first stream sent a frame of so many bytes and has more: those that share go on to the next.
    pub(super) fn turn(&mut self, bytes: u64) {
        if let Some(tree) = &mut self.tree {
            return tree.sent(bytes, true);
        }
        if let Some(level) = self.levels.get_mut(self.ready.trailing_zeros() as usize)
            && level.ordered.is_empty()
        {
            level.turns.rotate_left(usize::from(level.turns.len() > 1));
        }
    }

    /// The first stream sent so many bytes and has nothing more to send, or may not.
    pub(super) fn pop(&mut self, bytes: u64) {
        if let Some(tree) = &mut self.tree {
            return tree.sent(bytes, false);
        }
        let urgency = self.ready.trailing_zeros();
        let Some(level) = self.levels.get_mut(urgency as usize) else { return };
        if level.ordered.pop_front().is_none() {
            level.turns.pop_front();
        }
        if level.ordered.is_empty() && level.turns.is_empty() {
            self.ready &= !(1 << urgency);
        }
    }

    /// Takes out the stream `id` at `place`, which was put in with `priority`.
    pub(super) fn remove(&mut self, priority: Priority, id: u32, place: u32) {
        if let Some(tree) = &mut self.tree {
            return tree.remove(id);
        }
        let Some(level) = self.levels.get_mut(usize::from(priority.urgency)) else { return };
        level.ordered.retain(|(_, other)| *other != place);
        level.turns.retain(|other| *other != place);
        if level.ordered.is_empty() && level.turns.is_empty() {
            self.ready &= !(1 << priority.urgency);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_urgent_first_then_by_identifier_then_by_turns() {
        let mut queue = SendQueue::default();
        let of = |urgency, incremental| Priority { urgency, incremental };
        queue.push(of(3, true), 1, 10);
        queue.push(of(3, true), 3, 11);
        queue.push(of(3, false), 7, 13);
        queue.push(of(3, false), 5, 12);
        queue.push(of(0, false), 9, 14);
        let mut order = Vec::new();
        for keep in [true, false, true, false, false, true, true, true, false, false] {
            order.push(queue.first().expect("somebody"));
            if keep { queue.turn(1) } else { queue.pop(1) }
        }
        assert_eq!(order, [14, 14, 12, 12, 13, 10, 11, 10, 11, 10]);
        assert_eq!(queue.first(), None);
        queue.push(of(6, false), 11, 15);
        queue.remove(of(6, false), 11, 15);
        assert_eq!((queue.first(), queue.ready), (None, 0));
    }
}
