//! Values by a number that stays theirs.

use weir_rt::HeldMemory;

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

/// Bytes of the place of a `T`.
pub(super) const fn place_of<T>() -> usize {
    size_of::<Option<T>>()
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

    /// The value at `at`.
    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.values.get(at)?.as_ref()
    }

    /// Places, those without a value too.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The places without a value.
    pub(super) fn unused(&self) -> HeldMemory {
        let unused = self.values.capacity() - (self.values.len() - self.free.len());
        let bytes = unused * place_of::<T>() + self.free.capacity() * size_of::<usize>();
        HeldMemory::new(unused, bytes)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().flatten()
    }
}
