//! Times for compiled code.

use weir_http::date;
use weir_rt::clock;

use crate::api::ffi::{FOUND, FfiAnswer, REFUSED, guarded};
use crate::luajit::shared_page;

/// A time as a text, by number: as HTTP, as cookies have it; now: today, local, UTC.
pub(crate) unsafe extern "C" fn date(what: i32, time: f64, answer: *mut FfiAnswer) -> i32 {
    // SAFETY: the prelude lends its own result struct, exclusively during the call.
    let answer = unsafe { &mut *answer };
    guarded(|| {
        let (now, _) = clock::unix_time();
        let here = |to: usize| shown(now, clock::local_offset(now) / 60)[..to].to_vec();
        let made = match what {
            0 => date::http(time as i64).to_vec(),
            1 => {
                let mut text = Vec::new();
                date::cookie(&mut text, time as i64);
                text
            }
            2 => here(10),
            3 => here(19),
            4 => shown(now, 0)[..19].to_vec(),
            _ => return REFUSED,
        };
        answer.keep(&made);
        FOUND
    })
}

/// `2026-11-21 15:04:05`
fn shown(now: u64, offset: i32) -> Vec<u8> {
    date::error_log(now as i64, offset).map(|byte| if byte == b'/' { b'-' } else { byte }).to_vec()
}

/// Seconds since 1970, with milliseconds.
pub(crate) extern "C" fn now() -> f64 {
    shared_page::wall()
}

/// Whole seconds since 1970.
pub(crate) extern "C" fn seconds() -> f64 {
    shared_page::wall().floor()
}

/// Reads the clock again.
pub(crate) extern "C" fn update_time() {
    shared_page::renew_time();
}

/// Seconds of the monotonic clock.
pub(crate) extern "C" fn monotonic() -> f64 {
    clock::monotonic_ns() as f64 / 1e9
}
