//! What a VM's memory consists of: its objects by type, its biggest tables and what holds those. Counted when a command
//! asks (`weir lua objects`, `weir lua tables`), on the worker's thread between two rounds: about 20 ms for a million
//! objects, during which the worker serves no request.

use std::ffi::c_char;

use crate::luajit::state::LuaState;
use crate::luajit::sys::RawState;

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
pub(crate) struct TypeSum {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

/// A big table; 0 bytes mean an empty place.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BigTable {
    pub(crate) bytes: u64,
    /// Places of its array.
    pub(crate) array: u64,
    /// Places of its hash.
    pub(crate) hash: u64,
    held: [c_char; 160],
}

impl BigTable {
    /// How it is reached: `_G.cache.users`, `local seen of shop.lua:3 [2]`; empty where four steps do not lead there.
    pub(crate) fn held(&self) -> String {
        let bytes: Vec<u8> = self.held.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }
}

/// `struct census` of `census.c`
#[repr(C)]
#[derive(Clone)]
pub(crate) struct HeapCensus {
    pub(crate) types: [TypeSum; TYPES.len()],
    pub(crate) tables: [BigTable; 10],
}

unsafe extern "C" {
    fn weir_census(l: *mut RawState, out: *mut HeapCensus);
}

/// Counts what the VM of `main` consists of; on its thread, while no script runs.
pub(crate) fn count(main: LuaState) -> Box<HeapCensus> {
    let none = BigTable { bytes: 0, array: 0, hash: 0, held: [0; 160] };
    let mut census = Box::new(HeapCensus { types: Default::default(), tables: [none; 10] });
    // SAFETY: the VM is open as long as its state is in use, and on this thread.
    unsafe { weir_census(main.raw(), &raw mut *census) };
    census
}
