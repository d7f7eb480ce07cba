//! `weir_response_*`.

use std::ffi::{c_char, c_int, c_void};

use crate::code::{CallFailure, WEIR_E_THREAD, guard_value};
use crate::data::UserData;
use crate::request::{RequestHandle, RoomFunction, RoomWish, SharedRequest};
use crate::request_calls::{another, function, with};
use crate::server_calls::limit;
use crate::text::{bytes, reference};

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
    called: Option<RoomFunction>,
    data: *mut c_void,
) -> c_int {
    let ask = |shared: &SharedRequest| {
        let function = function(called)?;
        // SAFETY: the header's rules for requests; it is not NULL.
        let handle = unsafe { another(request) };
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
