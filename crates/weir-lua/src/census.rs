//! What a VM's memory consists of: its objects by type, its biggest tables and what holds those. Counted when somebody
//! asks (`weir lua objects`, `weir lua tables`), on the worker's thread between two rounds: about 20 ms for a million
//! objects, during which it serves nobody.

use std::ffi::c_char;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use weir_rt::Remote;

use crate::state::State;
use crate::sys::LuaState;

/// Types, in the order of `census.c`.
pub(crate) const TYPES: [&str; 10] = [
    "strings",
    "tables",
    "functions",
    "prototypes",
    "upvalues",
    "coroutines",
    "userdata",
    "cdata",
    "traces",
    "others",
];

/// How many objects there are of a type, and their bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

/// A big table; without bytes there is none.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Big {
    pub(crate) bytes: u64,
    /// Places of its array.
    pub(crate) array: u64,
    /// Places of its hash.
    pub(crate) hash: u64,
    held: [c_char; 160],
}

impl Big {
    /// How it is reached: `_G.cache.users`, `local seen of shop.lua:3 [2]`; empty where four steps do not lead there.
    pub(crate) fn held(&self) -> String {
        let bytes: Vec<u8> = self.held.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }
}

/// `struct census` of `census.c`
#[repr(C)]
#[derive(Clone)]
pub(crate) struct Census {
    pub(crate) types: [Sum; TYPES.len()],
    pub(crate) tables: [Big; 10],
}

unsafe extern "C" {
    fn weir_census(l: *mut LuaState, out: *mut Census);
}

/// How other threads have a VM counted.
pub(crate) struct Counter {
    /// Null when the VM is closed. Its worker's thread alone writes and follows it.
    main: AtomicPtr<LuaState>,
    remote: Remote,
}

impl Counter {
    /// For the VM of the worker that calls.
    pub(crate) fn new(main: State) -> Arc<Counter> {
        Arc::new(Counter { main: AtomicPtr::new(main.raw()), remote: weir_rt::remote() })
    }

    /// The VM will be closed.
    pub(crate) fn close(&self) {
        self.main.store(std::ptr::null_mut(), Relaxed);
    }

    /// Has the worker count. `None` when it does not come to it in time, since it is busy or gone.
    pub(crate) fn census(self: &Arc<Counter>) -> Option<Box<Census>> {
        let (answer, counted) = mpsc::sync_channel(1);
        let counter = Arc::downgrade(self);
        self.remote.run(Box::new(move || {
            if let Some(census) = Weak::upgrade(&counter).and_then(|counter| counter.count()) {
                // Nobody is there any more when it took too long.
                let _ = answer.send(census);
            }
        }));
        counted.recv_timeout(PATIENCE).ok()
    }

    fn count(&self) -> Option<Box<Census>> {
        let main = self.main.load(Relaxed);
        if main.is_null() {
            return None;
        }
        let none = Big { bytes: 0, array: 0, hash: 0, held: [0; 160] };
        let mut census = Box::new(Census { types: Default::default(), tables: [none; 10] });
        // SAFETY: on the VM's thread, between two rounds, so that no script runs; it is open until `close`.
        unsafe { weir_census(main, &raw mut *census) };
        Some(census)
    }
}

/// A worker that is blocked for longer is what `weir blocked` is for.
const PATIENCE: Duration = Duration::from_secs(2);
