//! Values by a number that stays theirs.

/// Values by index; an index is used again when its value was removed.
pub(super) struct IndexSlots<T> {
    values: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for IndexSlots<T> {
    fn default() -> Self {
        IndexSlots { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> IndexSlots<T> {
    pub(super) fn insert(&mut self, value: T) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.values[at] = Some(value);
                at
            }
            None => {
                self.values.push(Some(value));
                self.values.len() - 1
            }
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<T> {
        self.free.push(at);
        self.values[at].take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().flatten()
    }
}
