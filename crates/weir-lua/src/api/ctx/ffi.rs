//! `ngx.ctx` for compiled code.

use crate::api::ffi::{FOUND, REFUSED, guarded};
use crate::api::ssl;
use crate::api::{ctx_anchor, keep_ctx};
use crate::run::lend;
use crate::vm::lua_vm::LuaVm;

/// The anchor of the request's `ngx.ctx`; -2 when it has none yet, and less by the number of fields to make room for.
pub(crate) extern "C" fn ctx() -> i32 {
    // All but the first use in a run.
    if let Some(anchor) = lend::ctx() {
        return anchor;
    }
    guarded(|| match ctx_anchor() {
        Ok(Some(anchor)) => anchor,
        // What it inherits from is the other function's business.
        Ok(None) if ssl::is_inherited() => REFUSED,
        Ok(None) => -2 - lend::vm(LuaVm::ctx_fields) as i32,
        Err(_) => REFUSED,
    })
}

/// Makes the table that the prelude has anchored the request's `ngx.ctx`.
pub(crate) extern "C" fn give_ctx(anchor: i32) -> i32 {
    guarded(|| keep_ctx(anchor).map_or(REFUSED, |()| FOUND))
}
