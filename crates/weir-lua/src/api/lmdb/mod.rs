//! The C functions of lua-resty-lmdb's module for nginx, over the environment that the configuration names.
//!
//! The library gives all operations of a transaction in an array, and gets what it reads in a buffer of its own.

mod store;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;

use weir_sys::lmdb::{HandleUse, LmdbEnvironment, LmdbError, LmdbFigures, LmdbTransaction};

use crate::api::ffi::slice;
use crate::run::function::{ApiFunction, CallDone, function};
use crate::run::lend;
use crate::vm::phase::ScriptPhase;

pub(crate) use store::LmdbSettings;

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_lmdb.execute", 0, |l| {
        l.push_pointer(execute as ExecuteFunction as *mut c_void);
        Ok(CallDone::Results(1))
    }),
    function("_lmdb.prefix", 0, |l| {
        l.push_pointer(prefix as PrefixFunction as *mut c_void);
        Ok(CallDone::Results(1))
    }),
    function("_lmdb.env_info", 0, |l| {
        l.push_pointer(env_info as InfoFunction as *mut c_void);
        Ok(CallDone::Results(1))
    }),
];

type ExecuteFunction =
    unsafe extern "C" fn(*mut LmdbOperation, usize, c_int, *mut u8, usize, *mut *const c_char) -> c_int;
type PrefixFunction =
    unsafe extern "C" fn(*mut LmdbOperation, usize, *mut u8, usize, *mut *const c_char) -> c_int;
type InfoFunction = unsafe extern "C" fn(*mut LmdbStatus, *mut *const c_char) -> c_int;

/// `ngx_str_t`
#[repr(C)]
#[derive(Clone, Copy)]
struct LmdbText {
    len: usize,
    data: *const u8,
}

/// `ngx_lua_resty_lmdb_operation_t`
#[repr(C)]
struct LmdbOperation {
    opcode: c_int,
    key: LmdbText,
    value: LmdbText,
    database: u32,
    flags: u32,
}

/// `ngx_lua_resty_lmdb_ffi_status_t`
#[repr(C)]
struct LmdbStatus {
    map_size: usize,
    page_size: u32,
    max_readers: u32,
    num_readers: u32,
    allocated_pages: u32,
    in_use_pages: usize,
    entries: u32,
}

const GET: c_int = 0;
const PREFIX: c_int = 1;
const SET: c_int = 2;
const OPEN: c_int = 3;
const DROP: c_int = 4;
/// `MDB_CREATE`
const CREATE: u32 = 0x40000;

const OK: c_int = 0;
const ERROR: c_int = -1;
const AGAIN: c_int = -2;

/// Why a transaction ends without effect.
enum LmdbStop {
    Failed(LmdbError),
    /// The buffer is too small.
    Again,
    UnknownOperation,
}

impl From<LmdbError> for LmdbStop {
    fn from(error: LmdbError) -> LmdbStop {
        LmdbStop::Failed(error)
    }
}

impl LmdbStop {
    /// What the function returns, with the reason in `reason`.
    ///
    /// # Safety
    /// A text's address may be written to `reason`.
    unsafe fn code(self, reason: *mut *const c_char) -> c_int {
        match self {
            LmdbStop::Again => AGAIN,
            // SAFETY: this function's contract.
            LmdbStop::Failed(error) => unsafe { failed(reason, error.text()) },
            // SAFETY: this function's contract.
            LmdbStop::UnknownOperation => unsafe { failed(reason, c"unknown opcode") },
        }
    }
}

/// # Safety
/// A text's address may be written to `reason`.
unsafe fn failed(reason: *mut *const c_char, text: &'static CStr) -> c_int {
    // SAFETY: this function's contract.
    unsafe { reason.write(text.as_ptr()) };
    ERROR
}

/// The environment of the running script's configuration. As with nginx it is absent before workers start.
fn environment() -> Option<Arc<LmdbEnvironment>> {
    if lend::phase() == ScriptPhase::Init {
        return None;
    }
    lend::vm(|vm| vm.main_conf.lmdb.clone())
}

const NO_ENVIRONMENT: &CStr = c"no LMDB environment defined";

/// What is left of the caller's buffer.
struct LmdbBuffer {
    at: *mut u8,
    left: usize,
}

impl LmdbBuffer {
    /// A copy of `bytes` in the buffer.
    fn keep(&mut self, bytes: &[u8]) -> Result<LmdbText, LmdbStop> {
        if bytes.len() > self.left {
            return Err(LmdbStop::Again);
        }
        let kept = LmdbText { len: bytes.len(), data: self.at };
        // SAFETY: the caller's buffer has `left` bytes from `at` on, and nothing of LMDB's map is in it.
        unsafe {
            self.at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            self.at = self.at.add(bytes.len());
        }
        self.left -= bytes.len();
        Ok(kept)
    }
}

/// Carries out the operations in one transaction. What it reads is in `buffer` afterwards; `AGAIN`: that is too small.
///
/// # Safety
/// There are `count` operations, whose texts are as long as they say, and `room` bytes at `buffer`; an address may be written to
/// `reason`. All of it is the caller's and stays during the call.
unsafe extern "C" fn execute(
    operations: *mut LmdbOperation,
    count: usize,
    need_write: c_int,
    buffer: *mut u8,
    room: usize,
    reason: *mut *const c_char,
) -> c_int {
    // SAFETY: this function's contract.
    let operations = unsafe { all(operations, count) };
    // SAFETY: this function's contract.
    let Some(environment) = environment() else { return unsafe { failed(reason, NO_ENVIRONMENT) } };
    let mut buffer = LmdbBuffer { at: buffer, left: room };
    let done = if need_write != 0 {
        let closes = operations.iter().any(|operation| operation.opcode == DROP && operation.flags != 0);
        let closes = if closes { HandleUse::Closed } else { HandleUse::Kept };
        environment.write(closes, |transaction| {
            operations.iter_mut().try_for_each(|operation| {
                // SAFETY: this function's contract: the operation's texts are as long as they say.
                unsafe { change(operation, transaction, &mut buffer) }
            })
        })
    } else {
        environment.read(|transaction| {
            operations.iter_mut().try_for_each(|operation| match operation.opcode {
                // SAFETY: this function's contract.
                GET => unsafe { get(operation, transaction, &mut buffer) },
                _ => Err(LmdbStop::UnknownOperation),
            })
        })
    };
    match done {
        Ok(()) => OK,
        // SAFETY: this function's contract.
        Err(stop) => unsafe { stop.code(reason) },
    }
}

/// # Safety
/// There are `count` operations at `operations`, which nobody else uses as long as the result is.
unsafe fn all<'a>(operations: *mut LmdbOperation, count: usize) -> &'a mut [LmdbOperation] {
    if count == 0 || operations.is_null() {
        return &mut [];
    }
    // SAFETY: this function's contract.
    unsafe { std::slice::from_raw_parts_mut(operations, count) }
}

/// # Safety
/// The key is as long as it says.
unsafe fn get(
    operation: &mut LmdbOperation,
    transaction: &LmdbTransaction<'_>,
    buffer: &mut LmdbBuffer,
) -> Result<(), LmdbStop> {
    // SAFETY: this function's contract.
    let key = unsafe { slice(operation.key.data, operation.key.len) };
    operation.value = match transaction.get(operation.database, key)? {
        Some(value) => buffer.keep(value)?,
        None => LmdbText { len: 0, data: std::ptr::null() },
    };
    Ok(())
}

/// An operation of a transaction that writes.
///
/// # Safety
/// The operation's texts are as long as they say.
unsafe fn change(
    operation: &mut LmdbOperation,
    transaction: &mut LmdbTransaction<'_>,
    buffer: &mut LmdbBuffer,
) -> Result<(), LmdbStop> {
    let (database, LmdbText { len, data }) = (operation.database, operation.key);
    match operation.opcode {
        // SAFETY: this function's contract.
        GET => unsafe { get(operation, transaction, buffer)? },
        SET => {
            // SAFETY: this function's contract.
            let (key, value) =
                unsafe { (slice(data, len), slice(operation.value.data, operation.value.len)) };
            match operation.value.data.is_null() {
                false => transaction.put(database, key, value)?,
                true => transaction.delete(database, key)?,
            }
        }
        OPEN => {
            // SAFETY: this function's contract.
            let name = CString::new(unsafe { slice(data, len) })
                .map_err(|_| LmdbStop::Failed(LmdbError::NOT_FOUND))?;
            let create = operation.flags & CREATE != 0;
            operation.database = transaction.open_database(&name, create)?;
        }
        DROP if operation.flags == 0 => transaction.clear(database)?,
        DROP => transaction.remove(database)?,
        _ => return Err(LmdbStop::UnknownOperation),
    }
    Ok(())
}

/// Finds as many as `count` keys from that of the first operation on that begin as the key of the second does, and puts them with
/// their values into the operations; how many there were.
///
/// # Safety
/// As [`execute`].
unsafe extern "C" fn prefix(
    operations: *mut LmdbOperation,
    count: usize,
    buffer: *mut u8,
    room: usize,
    reason: *mut *const c_char,
) -> c_int {
    // SAFETY: this function's contract.
    let operations = unsafe { all(operations, count) };
    // SAFETY: this function's contract.
    let Some(environment) = environment() else { return unsafe { failed(reason, NO_ENVIRONMENT) } };
    let [first, second, ..] = &*operations else {
        // SAFETY: this function's contract.
        return unsafe { LmdbStop::UnknownOperation.code(reason) };
    };
    let (database, start, begin) = (first.database, first.key, second.key);
    // SAFETY: this function's contract.
    let (start, begin) = unsafe { (slice(start.data, start.len), slice(begin.data, begin.len)) };
    let mut buffer = LmdbBuffer { at: buffer, left: room };
    let (mut found, mut again) = (0, false);
    let done: Result<(), LmdbError> = environment.read(|transaction| {
        transaction.from(database, start, |key, value| {
            let Some(operation) = operations.get_mut(found).filter(|_| key.starts_with(begin)) else {
                return false;
            };
            let (Ok(key), Ok(value)) = (buffer.keep(key), buffer.keep(value)) else {
                again = true;
                return false;
            };
            (operation.opcode, operation.key, operation.value) = (PREFIX, key, value);
            found += 1;
            true
        })
    });
    match done {
        Ok(()) if again => AGAIN,
        Ok(()) => c_int::try_from(found).unwrap_or(c_int::MAX),
        // SAFETY: this function's contract.
        Err(error) => unsafe { failed(reason, error.text()) },
    }
}

/// # Safety
/// Both may be written to.
unsafe extern "C" fn env_info(status: *mut LmdbStatus, reason: *mut *const c_char) -> c_int {
    // SAFETY: this function's contract.
    let Some(environment) = environment() else { return unsafe { failed(reason, NO_ENVIRONMENT) } };
    match environment.figures() {
        Ok(figures) => {
            let LmdbFigures { map_size, page_size, max_readers, num_readers, allocated_pages, .. } = figures;
            let LmdbFigures { in_use_pages, entries, .. } = figures;
            let known = LmdbStatus {
                map_size,
                page_size,
                max_readers,
                num_readers,
                allocated_pages,
                in_use_pages,
                entries,
            };
            // SAFETY: this function's contract.
            unsafe { status.write(known) };
            OK
        }
        // SAFETY: this function's contract.
        Err(error) => unsafe { failed(reason, error.text()) },
    }
}
