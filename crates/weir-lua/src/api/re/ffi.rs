//! Patterns: compiled once, then known by a number.

use std::cell::RefCell;

use weir_engine::Exchange;
use weir_engine::deep_traces::{self, PatternRole};
use weir_sys::regex::MatchError;

use crate::api::ffi::{FOUND, FfiAnswer, NOTHING, REFUSED, guarded, slice};
use crate::run::lend;
use crate::vm::lua_vm::LuaVm;
use crate::vm::patterns::{CompiledPattern, PatternError};

thread_local! {
    /// Offsets of the last match, two for each capture group, -1 for one that took no part. They stay where they are:
    /// there is room for as many groups as PCRE2 has, most of which is never touched.
    static SPANS: RefCell<Vec<i32>> = RefCell::new(Vec::with_capacity(2 * (GROUPS + 1)));
}

/// Capture groups of a pattern at most.
const GROUPS: usize = 65_535;

/// Where the offsets of the last match are.
pub(crate) extern "C" fn spans() -> *const i32 {
    SPANS.with_borrow(|spans| spans.as_ptr())
}

/// A pattern's number, with how many groups it has in `number`, how many names in `flags`, and whether it is to be
/// cached in `flag`; -2 and PCRE2's words for a wrong one; refused for an option that does not exist.
pub(crate) unsafe extern "C" fn compile(
    pattern: *const u8,
    pattern_len: usize,
    options: *const u8,
    options_len: usize,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes Lua strings and its own result struct, all kept during the call.
    let (pattern, options, answer) =
        unsafe { (slice(pattern, pattern_len), slice(options, options_len), &mut *answer) };
    guarded(|| {
        lend::vm(|vm| match vm.patterns.number(pattern, options) {
            Ok((number, groups, keep)) => {
                answer.flags = vm.patterns.numbered(number).map_or(0, |compiled| compiled.names.len() as u32);
                answer.number = groups as f64;
                answer.flag = u32::from(keep);
                number
            }
            Err(PatternError::Pattern(message)) => {
                answer.keep(message.as_bytes());
                -2
            }
            Err(PatternError::Flag(_)) => REFUSED,
        })
    })
}

/// Forgets a pattern that is not cached. A VM that is closed forgets all by itself.
pub(crate) extern "C" fn free(number: i32) {
    if !lend::is_running() {
        return;
    }
    let _ = guarded(|| {
        lend::vm(|vm| vm.patterns.forget(number));
        FOUND
    });
}

/// The first match from byte `start` on: how many capture groups there are, with their places in [`spans`]; 0 for none;
/// -2 and PCRE2's number.
pub(crate) unsafe extern "C" fn exec(
    number: i32,
    subject: *const u8,
    len: usize,
    start: f64,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes a Lua string and lends its own result struct, both during the call.
    let (subject, answer) = unsafe { (slice(subject, len), &mut *answer) };
    guarded(|| {
        lend::vm(|vm| {
            let Some(compiled) = vm.patterns.numbered(number) else { return REFUSED };
            SPANS.with_borrow_mut(|spans| {
                spans.clear();
                let found = match deep_traces::is_asked() {
                    false => vm.patterns.spans(&compiled, subject, start as usize, spans),
                    true => watched_spans(vm, &compiled, subject, start as usize, spans),
                };
                match found {
                    Ok(0) => NOTHING,
                    Ok(groups) => groups as i32,
                    Err(error) => {
                        answer.number = f64::from(error.code());
                        -2
                    }
                }
            })
        })
    })
}

/// [`PatternCache::spans`](crate::vm::patterns::PatternCache::spans) in a boundary of its own: `weir trace --deep` asks.
#[cold]
#[inline(never)]
fn watched_spans(
    vm: &LuaVm,
    compiled: &CompiledPattern,
    subject: &[u8],
    start: usize,
    spans: &mut Vec<i32>,
) -> Result<usize, MatchError> {
    let mut look = || vm.patterns.spans(compiled, subject, start, spans);
    let is_match = |found: &Result<usize, MatchError>| found.as_ref().is_ok_and(|groups| *groups > 0);
    let watched =
        |x: &mut Exchange| x.watched_pattern(PatternRole::Script, &compiled.name(), is_match, &mut look);
    // Scripts without a request have no trace.
    match lend::any_exchange(watched) {
        Ok(found) => found,
        Err(_) => look(),
    }
}
