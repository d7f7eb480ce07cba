//! `weir_request_*`.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use crate::code::{CallFailure, CallResult, WEIR_OK, guard, guard_value};
use crate::data::UserData;
use crate::request::{BodyFunction, BodyWish, EndFunction, EndWish, RequestHandle, SharedRequest};
use crate::request_head::HeadCopy;
use crate::text::{WeirText, bytes, put, reference};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_ref(request: *const RequestHandle) -> *const RequestHandle {
    if !request.is_null() {
        // SAFETY: the program has a reference, or is being called with one, so it is alive and from an `Arc`.
        unsafe { Arc::increment_strong_count(request) };
    }
    request
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_unref(request: *const RequestHandle) {
    guard(|| {
        if !request.is_null() {
            // SAFETY: it gives back a reference that `weir_request_ref` has counted.
            unsafe { Arc::decrement_strong_count(request) };
        }
        Ok(WEIR_OK)
    });
}

/// Calls `f` with a request.
///
/// # Safety
/// NULL, or a request of which the program has a reference.
pub(crate) unsafe fn with(
    request: *const RequestHandle,
    f: impl FnOnce(&SharedRequest) -> CallResult,
) -> c_int {
    // SAFETY: as the caller says.
    guard(|| f(&unsafe { reference(request, "request")? }.0))
}

/// Another reference of a request, for what is called later.
///
/// # Safety
/// A request of which the program has a reference.
pub(crate) unsafe fn another(request: *const RequestHandle) -> Arc<RequestHandle> {
    // SAFETY: it is alive and from an `Arc`; the reference that is counted is that of `from_raw`.
    unsafe {
        Arc::increment_strong_count(request);
        Arc::from_raw(request)
    }
}

/// A function to be called later.
pub(crate) fn function<F>(given: Option<F>) -> Result<F, CallFailure> {
    given.ok_or_else(|| CallFailure::argument("function is NULL"))
}

/// A text of a request's head.
///
/// # Safety
/// NULL, or a request of which the program has a reference.
unsafe fn text(request: *const RequestHandle, part: impl FnOnce(&HeadCopy) -> &[u8]) -> WeirText {
    guard_value(WeirText::NONE, || {
        // SAFETY: as the caller says.
        let request = unsafe { reference(request, "request")? };
        Ok(WeirText::of(part(&request.0.head)))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_method(request: *const RequestHandle) -> WeirText {
    // SAFETY: the header's rules for requests.
    unsafe { text(request, HeadCopy::method) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_target(request: *const RequestHandle) -> WeirText {
    // SAFETY: the header's rules for requests.
    unsafe { text(request, HeadCopy::target) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_path(request: *const RequestHandle) -> WeirText {
    // SAFETY: the header's rules for requests.
    unsafe { text(request, HeadCopy::path) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_query(request: *const RequestHandle) -> WeirText {
    // SAFETY: the header's rules for requests.
    unsafe { text(request, HeadCopy::query) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_host(request: *const RequestHandle) -> WeirText {
    // SAFETY: the header's rules for requests.
    unsafe { text(request, HeadCopy::host) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_version(request: *const RequestHandle) -> WeirText {
    // SAFETY: the header's rules for requests.
    unsafe { text(request, HeadCopy::version) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_peer(request: *const RequestHandle) -> WeirText {
    // SAFETY: the header's rules for requests.
    unsafe { text(request, HeadCopy::peer) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_field(
    request: *const RequestHandle,
    name: *const c_char,
    length: usize,
) -> WeirText {
    guard_value(WeirText::NONE, || {
        // SAFETY: the header's rules for requests and bytes.
        let (request, name) = unsafe { (reference(request, "request")?, bytes(name, length, "name")?) };
        Ok(request.0.head.field(name).map_or(WeirText::NONE, WeirText::of))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_field_count(request: *const RequestHandle) -> usize {
    // SAFETY: the header's rules for requests.
    guard_value(0, || Ok(unsafe { reference(request, "request")? }.0.head.field_count()))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_field_at(
    request: *const RequestHandle,
    index: usize,
    name: *mut WeirText,
    value: *mut WeirText,
) -> c_int {
    guard(|| {
        // SAFETY: the header's rules for requests.
        let request = unsafe { reference(request, "request")? };
        let field = request.0.head.field_at(index);
        let (its_name, its_value) = field.ok_or_else(|| CallFailure::argument("there is no such field"))?;
        // SAFETY: the header's rules for places of results.
        unsafe {
            put(name, WeirText::of(its_name), "name")?;
            put(value, WeirText::of(its_value), "value")
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_worker(request: *const RequestHandle) -> c_int {
    // SAFETY: the header's rules for requests.
    unsafe { with(request, |shared| Ok(shared.worker.into())) }
}

/// Asks for the body.
///
/// # Safety
/// NULL, or a request of which the program has a reference.
unsafe fn ask(
    request: *const RequestHandle,
    whole: bool,
    called: Option<BodyFunction>,
    data: *mut c_void,
) -> c_int {
    let ask = |shared: &SharedRequest| {
        let function = function(called)?;
        // SAFETY: as the caller says; it is not NULL.
        let handle = unsafe { another(request) };
        shared.read(BodyWish { handle, whole, function, data: UserData::new(data) })
    };
    // SAFETY: as the caller says.
    unsafe { with(request, ask) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_body(
    request: *const RequestHandle,
    function: Option<BodyFunction>,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the header's rules for requests.
    unsafe { ask(request, true, function, data) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_read(
    request: *const RequestHandle,
    function: Option<BodyFunction>,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the header's rules for requests.
    unsafe { ask(request, false, function, data) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_on_end(
    request: *const RequestHandle,
    called: Option<EndFunction>,
    data: *mut c_void,
) -> c_int {
    let ask = |shared: &SharedRequest| {
        shared.on_end(EndWish { function: function(called)?, data: UserData::new(data) })
    };
    // SAFETY: the header's rules for requests.
    unsafe { with(request, ask) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_request_is_over(request: *const RequestHandle) -> c_int {
    // SAFETY: the header's rules for requests.
    unsafe { with(request, |shared| Ok(shared.over().is_some().into())) }
}
