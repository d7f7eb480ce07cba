//! UNIX-domain sockets whose connections a worker does not want: a script has said so.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module. Not on any request's path: looked at for new connections of UNIX-domain sockets alone.
#[derive(Debug, Default)]
pub struct RefusedSockets {
    /// There is one.
    any: AtomicBool,
    names: Mutex<Vec<Box<str>>>,
}

impl RefusedSockets {
    /// From here on the worker wants no connections of the socket `name` (`unix:/path`).
    pub fn add(&self, name: &str) {
        let mut names = self.names();
        if !names.iter().any(|known| **known == *name) {
            names.push(name.into());
        }
        self.any.store(true, Relaxed);
    }

    /// It wants those of all sockets again.
    pub fn clear(&self) {
        if self.is_any() {
            self.names().clear();
            self.any.store(false, Relaxed);
        }
    }

    /// Whether there is such a socket.
    pub fn is_any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Whether the worker does not want those of the socket `name`.
    pub fn has(&self, name: &str) -> bool {
        self.is_any() && self.names().iter().any(|known| **known == *name)
    }

    fn names(&self) -> MutexGuard<'_, Vec<Box<str>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
