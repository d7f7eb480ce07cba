//! `ngx.status`, `headers_sent`, `is_subrequest` and `get_phase` for compiled code.

use crate::api::ffi::{FOUND, REFUSED, changing, guarded};
use crate::api::is_sent;
use crate::run::lend;
use crate::vm::phase::REQUEST;

/// The status of the response so far.
pub(crate) extern "C" fn status() -> i32 {
    guarded(|| {
        if !lend::phase().is_in(REQUEST) {
            return REFUSED;
        }
        let status = lend::exchange(|x| match (x.response.err_status, x.response.status) {
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
