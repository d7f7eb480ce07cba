//! `ngx.errlog` for compiled code.

use weir_engine::log;

use crate::api::ffi::{FOUND, NOTHING, guarded, slice};
use crate::api::log_level;
use crate::run::lend;

/// Logs a line as it is; nothing for a level that does not exist.
pub(crate) unsafe extern "C" fn raw_log(level: f64, text: *const u8, len: usize) -> i32 {
    // SAFETY: the prelude passes a Lua string, which its stack keeps during the call.
    let text = unsafe { slice(text, len) };
    guarded(|| {
        let Some(level) = log_level(level) else { return NOTHING };
        lend::log_doing(level, &String::from_utf8_lossy(text));
        FOUND
    })
}

/// The least severe level that is logged.
pub(crate) extern "C" fn log_limit() -> i32 {
    guarded(|| {
        let limit = lend::any_exchange(|x| x.plan.core.error_log.limit());
        i32::from(limit.unwrap_or_else(|_| log::main_limit()) as u8)
    })
}
