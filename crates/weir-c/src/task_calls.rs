//! Tasks and timers.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use crate::code::{CallFailure, WEIR_OK, guard};
use crate::server::ForeignServer;
use crate::task::{ForeignTimer, OwedCall, TaskFunction};
use crate::text::{put, reference};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_post(
    server: *const ForeignServer,
    worker: c_int,
    function: Option<TaskFunction>,
    data: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: the header's rules for servers.
        let server = unsafe { reference(server, "server")? };
        let function = function.ok_or_else(|| CallFailure::argument("function is NULL"))?;
        server.post(worker, OwedCall::new(function, data, server.queue().ok().cloned()))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_timer(
    server: *const ForeignServer,
    worker: c_int,
    milliseconds: u64,
    function: Option<TaskFunction>,
    data: *mut c_void,
    timer: *mut *const ForeignTimer,
) -> c_int {
    guard(|| {
        // SAFETY: the header's rules for servers.
        let server = unsafe { reference(server, "server")? };
        let function = function.ok_or_else(|| CallFailure::argument("function is NULL"))?;
        let call = OwedCall::new(function, data, server.queue().ok().cloned());
        let started = server.start_timer(worker, Duration::from_millis(milliseconds), call)?;
        if timer.is_null() {
            return Ok(WEIR_OK);
        }
        // SAFETY: the header's rules for places of results.
        unsafe { put(timer, Arc::into_raw(started), "timer") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_timer_cancel(timer: *const ForeignTimer) -> c_int {
    // SAFETY: the header's rules for timers.
    guard(|| unsafe { reference(timer, "timer")? }.cancel())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_timer_free(timer: *const ForeignTimer) {
    guard(|| {
        if !timer.is_null() {
            // SAFETY: it came from `weir_server_timer`, and the program frees it once.
            drop(unsafe { Arc::from_raw(timer) });
        }
        Ok(WEIR_OK)
    });
}
