//! What functions return: codes, and the message of the last failure of each thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_engine::EngineError;
use weir_engine::error::{EngineErrorKind, FaultSide};

/// Done.
pub(crate) const WEIR_OK: c_int = 0;
/// Done, and more than enough waits to be sent.
pub(crate) const WEIR_FULL: c_int = 1;
/// NULL or another argument that can't be.
pub(crate) const WEIR_E_ARGUMENT: c_int = -1;
/// The configuration is wrong, or what it asks for can't be had.
pub(crate) const WEIR_E_START: c_int = -2;
/// Too late, or too early.
pub(crate) const WEIR_E_STATE: c_int = -3;
/// The client has left.
pub(crate) const WEIR_E_GONE: c_int = -4;
/// The server has ended.
pub(crate) const WEIR_E_STOPPED: c_int = -5;
/// It would block a worker.
pub(crate) const WEIR_E_THREAD: c_int = -6;
/// The timer was cancelled.
pub(crate) const WEIR_E_CANCELLED: c_int = -7;
/// Not in time.
pub(crate) const WEIR_E_TIMEOUT: c_int = -8;
/// The request's body is larger than allowed.
pub(crate) const WEIR_E_TOO_LARGE: c_int = -9;
/// The client broke the protocol.
pub(crate) const WEIR_E_PROTOCOL: c_int = -10;
/// The system refused something.
pub(crate) const WEIR_E_SYSTEM: c_int = -11;
/// The process was forked after the server had started.
pub(crate) const WEIR_E_FORKED: c_int = -12;
/// A fault of Weir's.
pub(crate) const WEIR_E_INTERNAL: c_int = -13;

/// Why a function failed.
#[derive(Debug)]
pub(crate) struct CallFailure {
    code: c_int,
    message: String,
}

/// What functions end with.
pub(crate) type CallResult = Result<c_int, CallFailure>;

impl CallFailure {
    pub(crate) fn new(code: c_int, message: impl Into<String>) -> CallFailure {
        CallFailure { code, message: message.into() }
    }

    /// An argument that can't be.
    pub(crate) fn argument(message: impl Into<String>) -> CallFailure {
        CallFailure::new(WEIR_E_ARGUMENT, message)
    }

    /// Too late, or too early.
    pub(crate) fn state(message: impl Into<String>) -> CallFailure {
        CallFailure::new(WEIR_E_STATE, message)
    }
}

impl From<weir::Error> for CallFailure {
    fn from(error: weir::Error) -> CallFailure {
        CallFailure::new(WEIR_E_START, error.to_string())
    }
}

impl From<std::io::Error> for CallFailure {
    fn from(error: std::io::Error) -> CallFailure {
        CallFailure::new(WEIR_E_SYSTEM, error.to_string())
    }
}

/// The code of what went wrong with a request.
pub(crate) fn code_of(error: EngineError) -> c_int {
    match (error.side, error.kind) {
        (_, EngineErrorKind::TooLarge) => WEIR_E_TOO_LARGE,
        (_, EngineErrorKind::TimedOut) => WEIR_E_TIMEOUT,
        (FaultSide::Client, EngineErrorKind::Closed) => WEIR_E_GONE,
        (FaultSide::Client, _) => WEIR_E_PROTOCOL,
        (_, EngineErrorKind::File) => WEIR_E_SYSTEM,
        _ => WEIR_E_INTERNAL,
    }
}

/// What a code means.
pub(crate) fn code_text(code: c_int) -> &'static CStr {
    match code {
        WEIR_OK => c"done",
        WEIR_FULL => c"done, and more than enough waits to be sent",
        WEIR_E_ARGUMENT => c"an argument is NULL or invalid",
        WEIR_E_START => c"the configuration is wrong or can't be taken into use",
        WEIR_E_STATE => c"not possible any more, or not yet",
        WEIR_E_GONE => c"the client has left",
        WEIR_E_STOPPED => c"the server has ended",
        WEIR_E_THREAD => c"not possible on a worker's thread, which it would block",
        WEIR_E_CANCELLED => c"cancelled",
        WEIR_E_TIMEOUT => c"not in time",
        WEIR_E_TOO_LARGE => c"the request's body is larger than client_max_body_size",
        WEIR_E_PROTOCOL => c"the client broke the protocol",
        WEIR_E_SYSTEM => c"the system refused it",
        WEIR_E_FORKED => c"the process was forked after the server had started",
        WEIR_E_INTERNAL => c"a fault of Weir's",
        _ => c"no code of Weir's",
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a function that C has called. Its failure becomes a code and the thread's message, and a panic goes no further.
pub(crate) fn guard(call: impl FnOnce() -> CallResult) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err(CallFailure::new(WEIR_E_INTERNAL, "a panic inside of Weir: please report it as a fault"))
    });
    result.unwrap_or_else(|failure| {
        remember(&failure);
        failure.code
    })
}

/// As [`guard`], of a function that returns something else, and `otherwise` where it fails.
pub(crate) fn guard_value<T>(otherwise: T, call: impl FnOnce() -> Result<T, CallFailure>) -> T {
    let mut value = None;
    let _remembered = guard(|| {
        value = Some(call()?);
        Ok(WEIR_OK)
    });
    value.unwrap_or(otherwise)
}

fn remember(failure: &CallFailure) {
    let text: Vec<u8> = failure.message.bytes().filter(|byte| *byte != 0).collect();
    // A thread that ends has no message any more.
    let _ended = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
}

/// The message of the last function that failed on this thread; empty before the first.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn weir_error_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// What a code means.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn weir_code_text(code: c_int) -> *const c_char {
    code_text(code).as_ptr()
}
