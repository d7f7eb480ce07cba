//! `lua_malloc_trim`: memory that is free goes back to the system after this many requests.

use std::cell::Cell;
use std::rc::Rc;

use weir_engine::log::LogLevel;
use weir_engine::phase::Handler;
use weir_engine::{Exchange, Verdict};

/// Requests of a worker since memory was last given back.
#[derive(Default)]
pub(crate) struct TrimCount(Cell<u64>);

/// A handler of the log phase.
pub(crate) struct MallocTrim {
    every: u64,
    count: Rc<TrimCount>,
}

impl MallocTrim {
    pub(crate) fn new(every: u64, count: Rc<TrimCount>) -> MallocTrim {
        MallocTrim { every, count }
    }
}

impl Handler for MallocTrim {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        let count = self.count.0.get() + 1;
        self.count.0.set(count % self.every);
        if count >= self.every {
            trim(x);
        }
        Verdict::Declined
    }
}

/// Only glibc can.
#[cfg(target_env = "gnu")]
fn trim(x: &Exchange) {
    // SAFETY: the allocator may be asked at any time; it takes its own locks.
    let given = unsafe { libc::malloc_trim(1) };
    x.log(LogLevel::Debug, &format_args!("malloc_trim(1) returned {given}"));
}

#[cfg(not(target_env = "gnu"))]
fn trim(x: &Exchange) {
    x.log(LogLevel::Debug, &"malloc_trim is not supported by this platform, ignored");
}
