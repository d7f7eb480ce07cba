//! What Weir's dictionaries use of `crossbeam_epoch`, over loom's atomic pointers, with the strictest rule that an epoch may
//! follow: what is deferred is gone as soon as no guard of its time is left. Reading it afterwards fails; so does deferring it twice.
//! Its memory is freed after the order is over ([`finish`]), so that no address is used again in one order.
//!
//! All of loom's threads share one thread of the system, and what is borrowed here is given back before they change.

use std::cell::RefCell;
use std::collections::HashSet;
use std::marker::PhantomData;

use loom_std::sync::atomic::{AtomicPtr, Ordering, fence};

/// See `crossbeam_epoch::Guard`.
pub struct Guard {
    number: u64,
}

/// See `crossbeam_epoch::Atomic`.
#[derive(Debug)]
pub struct Atomic<T>(AtomicPtr<T>);

/// See `crossbeam_epoch::Shared`.
#[derive(Debug)]
pub struct Shared<'g, T> {
    raw: *const T,
    guard: PhantomData<&'g T>,
}

#[derive(Default)]
struct Epochs {
    next: u64,
    pinned: HashSet<u64>,
    waiting: Vec<Garbage>,
    gone: HashSet<usize>,
    drops: Vec<Box<dyn FnOnce()>>,
}

/// Memory that is gone when no guard of `guards` is left.
struct Garbage {
    address: usize,
    guards: HashSet<u64>,
}

thread_local! {
    static EPOCHS: RefCell<Epochs> = RefCell::default();
}

static UNPROTECTED: Guard = Guard { number: u64::MAX };

/// See `crossbeam_epoch::pin`.
pub fn pin() -> Guard {
    let guard = EPOCHS.with_borrow_mut(|epochs| {
        epochs.next += 1;
        epochs.pinned.insert(epochs.next);
        Guard { number: epochs.next }
    });
    // As crossbeam's: a thread that pins after something was deferred sees that it is taken out.
    fence(Ordering::SeqCst);
    guard
}

/// See `crossbeam_epoch::unprotected`.
///
/// # Safety
/// As there.
pub unsafe fn unprotected() -> &'static Guard {
    &UNPROTECTED
}

/// How many values were deferred in this order.
pub fn deferred() -> usize {
    EPOCHS.with_borrow(|epochs| epochs.drops.len())
}

/// Frees what the order has left; called at the end of each, by its last thread.
pub fn finish() {
    let epochs = EPOCHS.take();
    assert!(epochs.pinned.is_empty(), "a guard is left");
    epochs.drops.into_iter().for_each(|drop| drop());
}

impl Guard {
    /// See `crossbeam_epoch::Guard::defer_unchecked`. What is deferred is one pointer.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn defer_unchecked<F: FnOnce() -> R, R>(&self, f: F) {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // SAFETY: as large as that, by the assertion; it is looked at, not used.
        let address = unsafe { std::mem::transmute_copy::<F, usize>(&f) };
        fence(Ordering::SeqCst);
        let f: Box<dyn FnOnce() + '_> = Box::new(move || drop(f()));
        // SAFETY: it is called before the order ends, in which all lives that it refers to.
        let f = unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce()>>(f) };
        EPOCHS.with_borrow_mut(|epochs| {
            let twice =
                epochs.gone.contains(&address) || epochs.waiting.iter().any(|one| one.address == address);
            assert!(!twice, "it is deferred twice");
            let guards = epochs.pinned.clone();
            epochs.waiting.push(Garbage { address, guards });
            epochs.drops.push(f);
        });
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        EPOCHS.with_borrow_mut(|epochs| {
            epochs.pinned.remove(&self.number);
            let Epochs { waiting, gone, .. } = epochs;
            waiting.retain_mut(|garbage| {
                garbage.guards.remove(&self.number);
                if garbage.guards.is_empty() {
                    gone.insert(garbage.address);
                }
                !garbage.guards.is_empty()
            });
        });
    }
}

impl<T> Atomic<T> {
    /// See `crossbeam_epoch`.
    pub fn null() -> Atomic<T> {
        Atomic(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// See `crossbeam_epoch`.
    pub fn load<'g>(&self, order: Ordering, _guard: &'g Guard) -> Shared<'g, T> {
        Shared::from(self.0.load(order).cast_const())
    }

    /// See `crossbeam_epoch`.
    pub fn store(&self, new: Shared<'_, T>, order: Ordering) {
        self.0.store(new.raw.cast_mut(), order);
    }

    /// See `crossbeam_epoch`; what is there instead is not given.
    ///
    /// # Errors
    /// It is another one by now.
    pub fn compare_exchange<'g>(
        &self,
        current: Shared<'_, T>,
        new: Shared<'g, T>,
        success: Ordering,
        failure: Ordering,
        _guard: &'g Guard,
    ) -> Result<Shared<'g, T>, ()> {
        let done = self.0.compare_exchange(current.raw.cast_mut(), new.raw.cast_mut(), success, failure);
        done.map(|_| new).map_err(drop)
    }
}

impl<T> From<*const T> for Atomic<T> {
    fn from(raw: *const T) -> Atomic<T> {
        Atomic(AtomicPtr::new(raw.cast_mut()))
    }
}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<'_, T> {}

impl<T> From<*const T> for Shared<'_, T> {
    fn from(raw: *const T) -> Self {
        Shared { raw, guard: PhantomData }
    }
}

impl<'g, T> Shared<'g, T> {
    /// See `crossbeam_epoch`.
    pub fn null() -> Self {
        Shared::from(std::ptr::null())
    }

    /// See `crossbeam_epoch`.
    pub fn is_null(&self) -> bool {
        self.raw.is_null()
    }

    /// See `crossbeam_epoch`.
    pub fn as_raw(&self) -> *const T {
        self.raw
    }

    /// See `crossbeam_epoch`.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn as_ref(&self) -> Option<&'g T> {
        let gone = EPOCHS.with_borrow(|epochs| epochs.gone.contains(&self.raw.addr()));
        assert!(!gone, "it is read after it is gone");
        // SAFETY: by the caller's word; what is gone is still in memory.
        unsafe { self.raw.as_ref() }
    }
}
