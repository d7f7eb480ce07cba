//! Blocks with one owner or several, in a region or on the heap. Their layouts are fixed, so that the next process can
//! read them.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use super::region::{ZonePlace, give};

/// A value in a block.
#[repr(transparent)]
#[derive(Debug)]
pub struct ZoneBox<T> {
    value: NonNull<T>,
    owns: PhantomData<T>,
}

/// Values side by side: their address, and how many.
#[repr(C)]
#[derive(Debug)]
pub struct ZoneSlice<T> {
    first: NonNull<T>,
    length: usize,
    owns: PhantomData<T>,
}

/// A value with several owners.
#[repr(transparent)]
#[derive(Debug)]
pub struct ZoneArc<T> {
    counted: NonNull<CountedValue<T>>,
    owns: PhantomData<CountedValue<T>>,
}

#[repr(C)]
struct CountedValue<T> {
    owners: AtomicUsize,
    value: T,
}

impl<T> ZoneBox<T> {
    /// Puts a value into a block.
    #[inline]
    pub fn new(value: T, place: ZonePlace) -> ZoneBox<T> {
        const { assert!(align_of::<T>() <= 16) };
        let block = place.take(size_of::<T>()).cast();
        // SAFETY: a fresh block with room for the value, aligned for it.
        unsafe { block.write(value) };
        ZoneBox { value: block, owns: PhantomData }
    }

    /// The value's address, with which its ownership goes to the caller.
    pub fn into_raw(self) -> *mut T {
        ManuallyDrop::new(self).value.as_ptr()
    }

    /// What [`ZoneBox::into_raw`] gave.
    ///
    /// # Safety
    /// It is that, not null, and there is no other owner.
    pub unsafe fn from_raw(value: *mut T) -> ZoneBox<T> {
        // SAFETY: by the caller's word.
        ZoneBox { value: unsafe { NonNull::new_unchecked(value) }, owns: PhantomData }
    }
}

impl<T> Drop for ZoneBox<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the one owner of a value in a block.
        unsafe {
            self.value.drop_in_place();
            give(self.value.cast());
        }
    }
}

impl<T> Deref for ZoneBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the owner of a value, which lives as long as this.
        unsafe { self.value.as_ref() }
    }
}

// SAFETY: an owner of its value, as a `Box` is.
unsafe impl<T: Send> Send for ZoneBox<T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for ZoneBox<T> {}

impl<T> ZoneSlice<T> {
    /// `length` values that `make` makes. If that panics they stay where they are.
    #[inline]
    pub fn from_fn(length: usize, place: ZonePlace, mut make: impl FnMut(usize) -> T) -> ZoneSlice<T> {
        const { assert!(align_of::<T>() <= 16) };
        let size = length.checked_mul(size_of::<T>()).expect("values fit in the memory");
        let first = place.take(size).cast::<T>();
        for at in 0..length {
            // SAFETY: a fresh block with room for all values, aligned for them.
            unsafe { first.add(at).write(make(at)) };
        }
        ZoneSlice { first, length, owns: PhantomData }
    }

    /// Where they are.
    pub fn address(&self) -> u64 {
        self.first.addr().get() as u64
    }
}

impl ZoneSlice<u8> {
    /// A copy of bytes.
    #[inline]
    pub fn copy(bytes: &[u8], place: ZonePlace) -> ZoneSlice<u8> {
        let first = place.take(bytes.len());
        // SAFETY: a fresh block with room for the bytes.
        unsafe { first.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        ZoneSlice { first, length: bytes.len(), owns: PhantomData }
    }
}

impl<T> DerefMut for ZoneSlice<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the one owner of so many values, which live as long as this.
        unsafe { NonNull::slice_from_raw_parts(self.first, self.length).as_mut() }
    }
}

impl<T> Drop for ZoneSlice<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the one owner of values in a block.
        unsafe {
            NonNull::slice_from_raw_parts(self.first, self.length).drop_in_place();
            give(self.first.cast());
        }
    }
}

impl<T> Deref for ZoneSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the owner of so many values, which live as long as this.
        unsafe { NonNull::slice_from_raw_parts(self.first, self.length).as_ref() }
    }
}

// SAFETY: an owner of its values, as a `Box` is.
unsafe impl<T: Send> Send for ZoneSlice<T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for ZoneSlice<T> {}

impl<T> ZoneArc<T> {
    /// Where in the block the value is, in bytes from what the arc holds.
    pub const VALUE: usize = std::mem::offset_of!(CountedValue<T>, value);

    /// Puts a value into a block.
    pub fn new(value: T, place: ZonePlace) -> ZoneArc<T> {
        let counted = ZoneBox::new(CountedValue { owners: AtomicUsize::new(1), value }, place).into_raw();
        // SAFETY: a block's address is not null.
        ZoneArc { counted: unsafe { NonNull::new_unchecked(counted) }, owns: PhantomData }
    }

    /// The value, if this was its last owner.
    pub fn into_inner(self) -> Option<T> {
        let this = ManuallyDrop::new(self);
        if !this.is_last() {
            return None;
        }
        // SAFETY: the last owner takes the value out of its block, and gives that back.
        unsafe {
            let value = (&raw const (*this.counted.as_ptr()).value).read();
            give(this.counted.cast());
            Some(value)
        }
    }

    /// Gives up the ownership: whether there is no other one.
    fn is_last(&self) -> bool {
        // SAFETY: an owner of the block.
        let owners = unsafe { &self.counted.as_ref().owners };
        if owners.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        // What others did with the value comes before.
        fence(Ordering::Acquire);
        true
    }
}

impl<T> Clone for ZoneArc<T> {
    fn clone(&self) -> ZoneArc<T> {
        // SAFETY: an owner of the block.
        unsafe { self.counted.as_ref() }.owners.fetch_add(1, Ordering::Relaxed);
        ZoneArc { counted: self.counted, owns: PhantomData }
    }
}

impl<T> Drop for ZoneArc<T> {
    fn drop(&mut self) {
        if self.is_last() {
            // SAFETY: the last owner.
            drop(unsafe { ZoneBox::from_raw(self.counted.as_ptr()) });
        }
    }
}

impl<T> Deref for ZoneArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: an owner of the block.
        &unsafe { self.counted.as_ref() }.value
    }
}

// SAFETY: as `std::sync::Arc`.
unsafe impl<T: Send + Sync> Send for ZoneArc<T> {}
// SAFETY: the same.
unsafe impl<T: Send + Sync> Sync for ZoneArc<T> {}
