//! `std::sync::atomic`: loom's numbers, with two of its gaps closed.
//!
//! 1. Of the accesses to a number loom remembers the last one only, when it looks for those that may change places. A thread
//!    that reads a number and then writes it hides from loom that another one has read it in between. So each access is preceded by
//!    a relaxed change of a number beside it, which orders nothing, but counts for loom as an access of its own.
//! 2. loom has no single order of `SeqCst` accesses. They are made here as compilers make them for processors that have
//!    none either: with a fence, after writes and before reads, and a write is an exchange.

pub use ::std::sync::atomic::*;
pub use loom::sync::atomic::fence;

use loom::sync::atomic::AtomicUsize as Probe;

macro_rules! atomic {
    ($name:ident $(<$param:ident>)?, $value:ty) => {
        /// As that of the standard library.
        #[derive(Debug)]
        pub struct $name $(<$param>)? {
            probe: Probe,
            inner: loom::sync::atomic::$name $(<$param>)?,
        }

        impl $(<$param>)? $name $(<$param>)? {
            /// As that of the standard library, but not `const`.
            pub fn new(value: $value) -> Self {
                let inner = loom::sync::atomic::$name::new(value);
                Self { probe: Probe::new(0), inner }
            }

            pub fn load(&self, order: Ordering) -> $value {
                probe(&self.probe, order);
                self.inner.load(order)
            }

            pub fn store(&self, value: $value, order: Ordering) {
                probe(&self.probe, Ordering::Relaxed);
                if order == Ordering::SeqCst {
                    self.inner.swap(value, Ordering::Release);
                } else {
                    self.inner.store(value, order);
                }
                written(order);
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                probe(&self.probe, order);
                let before = self.inner.swap(value, order);
                written(order);
                before
            }

            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                probe(&self.probe, success);
                let result = self.inner.compare_exchange(current, new, success, failure);
                written(success);
                result
            }

            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut next: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut now = self.load(fetch);
                while let Some(wanted) = next(now) {
                    match self.compare_exchange(now, wanted, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(other) => now = other,
                    }
                }
                Err(now)
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        atomic!($name, $value);

        impl $name {
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.change(order, |number| number.fetch_add(value, order))
            }

            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.change(order, |number| number.fetch_sub(value, order))
            }

            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.change(order, |number| number.fetch_or(value, order))
            }

            fn change(
                &self,
                order: Ordering,
                change: impl FnOnce(&loom::sync::atomic::$name) -> $value,
            ) -> $value {
                probe(&self.probe, order);
                let before = change(&self.inner);
                written(order);
                before
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }
    };
}

number!(AtomicU64, u64);
number!(AtomicUsize, usize);
atomic!(AtomicBool, bool);
atomic!(AtomicPtr<T>, *mut T);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(::std::ptr::null_mut())
    }
}

fn probe(probe: &Probe, order: Ordering) {
    probe.fetch_add(1, Ordering::Relaxed);
    if order == Ordering::SeqCst {
        fence(Ordering::SeqCst);
    }
}

fn written(order: Ordering) {
    if order == Ordering::SeqCst {
        fence(Ordering::SeqCst);
    }
}
