//! Which of the two orders of streams a connection has: by urgencies, or by dependencies.
//!
//! Clients of RFC 9218 may send dependencies, too, for servers that know only these: the first word of an urgency decides for
//! the whole connection. Where the peer sends neither, streams are as urgencies have them that nobody set.

use super::conn::{H2Connection, H2Role};
use super::dependency::{DependencyTree, StreamDependency};
use super::store::StreamKey;

impl H2Connection {
    /// Whether the peer has said nothing of the order of its streams so far.
    pub fn says_no_priorities(&self) -> bool {
        !self.has_urgencies && self.queue.tree.is_none()
    }

    /// The peer says what the stream `id` depends on.
    pub(super) fn depend(&mut self, id: u32, dependency: StreamDependency) {
        if self.takes_dependency(dependency)
            && let Some(tree) = &mut self.queue.tree
        {
            tree.depend(id, dependency);
        }
    }

    /// The stream `id` is open; what its head says of its dependency is taken.
    #[inline]
    pub(super) fn join_tree(&mut self, id: u32) {
        let dependency = self.dependency.take();
        if dependency.is_some() || self.queue.tree.is_some() {
            self.join_with(id, dependency);
        }
    }

    fn join_with(&mut self, id: u32, dependency: Option<StreamDependency>) {
        if let Some(dependency) = dependency {
            self.takes_dependency(dependency);
        }
        if let Some(tree) = &mut self.queue.tree {
            tree.open(id, dependency);
        }
    }

    /// Whether the peer's dependencies count. The first one that says something makes the tree.
    fn takes_dependency(&mut self, dependency: StreamDependency) -> bool {
        if self.has_urgencies || self.role == H2Role::Client {
            return false;
        }
        if self.queue.tree.is_none() && dependency != StreamDependency::USUAL {
            let mut tree = DependencyTree::default();
            self.store.streams().for_each(|stream| tree.open(stream.id, None));
            self.reorder(Some(Box::new(tree)));
        }
        self.queue.tree.is_some()
    }

    /// The peer orders its streams by urgencies.
    #[inline]
    pub(super) fn use_urgencies(&mut self) {
        self.has_urgencies = true;
        if self.queue.tree.is_some() {
            self.reorder(None);
        }
    }

    /// Takes another order into use; streams that wait for their turns go on to do so.
    fn reorder(&mut self, tree: Option<Box<DependencyTree>>) {
        let queued: Vec<StreamKey> =
            self.keys().into_iter().filter(|key| self.store.get(*key).is_some_and(|s| s.queued)).collect();
        queued.iter().for_each(|key| self.unqueue(*key));
        self.queue.tree = tree;
        queued.iter().for_each(|key| self.enqueue(*key));
    }
}
