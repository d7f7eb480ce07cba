//! The standard library, but what threads share is loom's: `extern crate loom_std as std` has Weir's files use it, unchanged.
//!
//! `RwLock`, `Arc` and what is a `static` stay those of the standard library: loom's are made for each order.

pub use ::std::*;

/// `std::sync`, with loom's mutexes and atomic numbers.
pub mod sync {
    pub use ::std::sync::*;
    pub use loom::sync::{Mutex, MutexGuard};

    pub mod atomic;
}
