//! Rings that hold the last ones of something.

/// The last `room` of something, the oldest overwritten in place.
#[derive(Debug)]
pub(crate) struct RecordRing<T> {
    items: Vec<T>,
    room: usize,
    /// Of a full ring, the oldest: overwritten next.
    next: usize,
}

impl<T> RecordRing<T> {
    pub(crate) fn new(room: usize) -> RecordRing<T> {
        RecordRing { items: Vec::new(), room, next: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, overwrite: impl FnOnce(&mut T), new: impl FnOnce() -> T) {
        if self.items.len() < self.room {
            self.items.push(new());
        } else if let Some(slot) = self.items.get_mut(self.next) {
            overwrite(slot);
            self.next = if self.next + 1 == self.room { 0 } else { self.next + 1 };
        }
    }

    /// The place for the next one, with an old one or an empty one in it; `None` without room.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<&mut T>
    where
        T: Default,
    {
        if self.items.len() < self.room {
            self.items.push(T::default());
            return self.items.last_mut();
        }
        let at = self.next;
        self.next = if at + 1 >= self.room { 0 } else { at + 1 };
        self.items.get_mut(at)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Bytes of memory that it takes, without what each item owns.
    pub(crate) fn held_bytes(&self) -> usize {
        self.items.capacity() * size_of::<T>()
    }

    pub(crate) fn newest(&self) -> Option<&T> {
        match self.next {
            0 => self.items.last(),
            next => self.items.get(next - 1),
        }
    }

    /// Changes the room; the newest stay.
    pub(crate) fn resize(&mut self, room: usize) {
        if room != self.room {
            self.items.rotate_left(self.next);
            self.items.drain(..self.items.len().saturating_sub(room));
            (self.room, self.next) = (room, 0);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let (newer, older) = self.items.split_at(self.next);
        older.iter().chain(newer)
    }
}
