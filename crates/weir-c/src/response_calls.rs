//! `weir_response_*`.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use crate::code::{CallFailure, CallResult, WEIR_E_THREAD, guard, guard_value};
use crate::data::UserData;
use crate::request::{RequestHandle, RoomFunction, RoomWish, SharedRequest};
use crate::server_calls::limit;
use crate::text::{bytes, reference};

/// Calls `f` with a request.
///
/// # Safety
/// NULL, or a request of which the program has a reference.
unsafe fn with(request: *const RequestHandle, f: impl FnOnce(&SharedRequest) -> CallResult) -> c_int {
    // SAFETY: as the caller says.
    guard(|| f(&unsafe { reference(request, "request")? }.0))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_response_status(request: *const RequestHandle, status: c_int) -> c_int {
    // SAFETY: the header's rules for requests.
    unsafe { with(request, |shared| shared.set_status(status)) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_response_field(
    request: *const RequestHandle,
    name: *const c_char,
    name_length: usize,
    value: *const c_char,
    value_length: usize,
) -> c_int {
    let add = |shared: &SharedRequest| {
        // SAFETY: the header's rules for bytes.
        let (name, value) =
            unsafe { (bytes(name, name_length, "name")?, bytes(value, value_length, "value")?) };
        shared.add_field(name, value)
    };
    // SAFETY: the header's rules for requests.
    unsafe { with(request, add) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_response_length(request: *const RequestHandle, length: u64) -> c_int {
    // SAFETY: the header's rules for requests.
    unsafe { with(request, |shared| shared.set_length(length)) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_response_write(
    request: *const RequestHandle,
    body: *const c_char,
    length: usize,
) -> c_int {
    // SAFETY: the header's rules for requests and bytes.
    unsafe { with(request, |shared| shared.write(bytes(body, length, "bytes")?)) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_response_flush(request: *const RequestHandle) -> c_int {
    // SAFETY: the header's rules for requests.
    unsafe { with(request, SharedRequest::flush) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_response_end(
    request: *const RequestHandle,
    body: *const c_char,
    length: usize,
) -> c_int {
    // SAFETY: the header's rules for requests and bytes.
    unsafe { with(request, |shared| shared.end(bytes(body, length, "bytes")?)) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_response_abort(request: *const RequestHandle) -> c_int {
    // SAFETY: the header's rules for requests.
    unsafe { with(request, SharedRequest::abort) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_response_unsent(request: *const RequestHandle) -> usize {
    // SAFETY: the header's rules for requests.
    guard_value(0, || Ok(unsafe { reference(request, "request")? }.0.unsent()))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_response_on_room(
    request: *const RequestHandle,
    function: Option<RoomFunction>,
    data: *mut c_void,
) -> c_int {
    let ask = |shared: &SharedRequest| {
        let function = function.ok_or_else(|| CallFailure::argument("function is NULL"))?;
        // SAFETY: it is alive and from an `Arc`; the reference that is counted is that of `from_raw`.
        let handle = unsafe {
            Arc::increment_strong_count(request);
            Arc::from_raw(request)
        };
        shared.on_room(RoomWish { handle, function, data: UserData::new(data) })
    };
    // SAFETY: the header's rules for requests.
    unsafe { with(request, ask) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_response_wait_room(
    request: *const RequestHandle,
    milliseconds: i64,
) -> c_int {
    let wait = |shared: &SharedRequest| {
        if weir_server::is_worker_thread() {
            return Err(CallFailure::new(
                WEIR_E_THREAD,
                "a worker can't wait for itself: see weir_response_on_room",
            ));
        }
        shared.wait_room(limit(milliseconds))
    };
    // SAFETY: the header's rules for requests.
    unsafe { with(request, wait) }
}
