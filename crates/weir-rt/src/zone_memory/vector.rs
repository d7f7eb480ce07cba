//! Values side by side that become more.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::region::{ZonePlace, give};

/// As a `Vec`, in a region or on the heap. Values that were there stay where they are while there is room.
#[derive(Debug)]
pub struct ZoneVec<T> {
    first: NonNull<T>,
    length: usize,
    room: usize,
    place: ZonePlace,
    owns: PhantomData<T>,
}

impl<T> ZoneVec<T> {
    /// An empty one with room for so many values.
    pub fn with_room(room: usize, place: ZonePlace) -> ZoneVec<T> {
        ZoneVec { first: block_of(room, place), length: 0, room, place, owns: PhantomData }
    }

    /// Where they are.
    pub fn address(&self) -> u64 {
        self.first.addr().get() as u64
    }

    /// Adds a value; where there is no room, all move to a block with twice as much.
    pub fn push(&mut self, value: T) {
        if self.length == self.room {
            self.grow();
        }
        // SAFETY: the block has room for more values than there are.
        unsafe { self.first.add(self.length).write(value) };
        self.length += 1;
    }

    #[cold]
    fn grow(&mut self) {
        let room = (self.room * 2).max(8);
        let first = block_of(room, self.place);
        // SAFETY: two blocks; the values move from the one, which is given back, to the other, which has room for them.
        unsafe {
            first.copy_from_nonoverlapping(self.first, self.length);
            give(self.first.cast());
        }
        (self.first, self.room) = (first, room);
    }
}

/// A block with room for so many values.
fn block_of<T>(room: usize, place: ZonePlace) -> NonNull<T> {
    const { assert!(align_of::<T>() <= 16) };
    place.take(room.checked_mul(size_of::<T>()).expect("values fit in the memory")).cast()
}

impl<T> Drop for ZoneVec<T> {
    fn drop(&mut self) {
        // SAFETY: the one owner of values in a block.
        unsafe {
            NonNull::slice_from_raw_parts(self.first, self.length).drop_in_place();
            give(self.first.cast());
        }
    }
}

impl<T> Deref for ZoneVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the owner of so many values, which live as long as this.
        unsafe { NonNull::slice_from_raw_parts(self.first, self.length).as_ref() }
    }
}

impl<T> DerefMut for ZoneVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the one owner of so many values, which live as long as this.
        unsafe { NonNull::slice_from_raw_parts(self.first, self.length).as_mut() }
    }
}

// SAFETY: an owner of its values, as a `Vec` is.
unsafe impl<T: Send> Send for ZoneVec<T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for ZoneVec<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone_memory::{ZoneFile, ZoneSlice};

    #[test]
    fn values_stay_until_there_is_no_room_and_are_dropped_once() {
        let file = ZoneFile::new("test").expect("memory");
        let region = file.region("zone", 1, 1 << 20).expect("memory");
        for place in [ZonePlace::HEAP, region.place(0)] {
            let mut vector = ZoneVec::with_room(4, place);
            let address = vector.address();
            for number in 0..100_u8 {
                vector.push(ZoneSlice::copy(&[number; 20], place));
                assert_eq!(vector.address() == address, number < 4);
            }
            vector[7] = ZoneSlice::copy(b"other", place);
            assert_eq!((vector.len(), &*vector[7], &*vector[99]), (100, &b"other"[..], &[99; 20][..]));
        }
        assert_eq!(region.missed(), 0);
    }
}
