//! `ngx.status`, `headers_sent`, `is_subrequest` and `get_phase` for compiled code.

use crate::api::ffi::{FOUND, REFUSED, changing, guarded, slice};
use crate::api::is_sent;
use crate::run::lend;
use crate::vm::phase::REQUEST;

/// The status of the response so far.
pub(crate) extern "C" fn status() -> i32 {
    guarded(|| {
        let status = lend::request(|x| match (x.response.err_status, x.response.status) {
            // A script before this one may have ended with one.
            (0, 0) if x.internal => REFUSED,
            (0, status) => i32::from(status),
            (error, _) => i32::from(error),
        });
        status.unwrap_or(REFUSED)
    })
}

/// Sets the response's status, as long as its head is not sent.
pub(crate) extern "C" fn set_status(status: i32) -> i32 {
    changing(|| {
        if !lend::phase().is_in(REQUEST) || !(100..1000).contains(&status) || is_sent() {
            return REFUSED;
        }
        let done = lend::exchange(|x| {
            (x.response.status, x.response.err_status, x.response.reason) = (status as u16, 0, None);
            FOUND
        });
        done.unwrap_or(REFUSED)
    })
}

/// Whether the head has gone, or would have by now in OpenResty.
pub(crate) extern "C" fn headers_sent() -> i32 {
    guarded(|| lend::exchange(|_| ()).map_or(REFUSED, |()| i32::from(is_sent())))
}

/// Whether the request is a subrequest.
pub(crate) extern "C" fn is_subrequest() -> i32 {
    guarded(|| lend::exchange(|x| i32::from(x.is_subrequest())).unwrap_or(REFUSED))
}

/// The running script's context, as a bit.
pub(crate) extern "C" fn phase() -> i32 {
    guarded(|| lend::phase() as i32)
}

/// `bypass_if_checks` of `ngx.resp`
pub(crate) extern "C" fn bypass() -> i32 {
    changing(|| {
        if !lend::phase().is_in(REQUEST) {
            return REFUSED;
        }
        lend::exchange(|x| x.response.disable_not_modified = true).map_or(REFUSED, |()| FOUND)
    })
}

/// `set_status` of `ngx.resp` with words for the status line.
pub(crate) unsafe extern "C" fn set_reason(status: i32, text: *const u8, len: usize) -> i32 {
    if set_status(status) != FOUND {
        return REFUSED;
    }
    // SAFETY: the prelude passes a Lua string, which its stack keeps during the call.
    let text = unsafe { slice(text, len) };
    guarded(|| super::give_reason(text).map_or(REFUSED, |()| FOUND))
}
