//! Shared dictionaries for the scripts of the privileged agent: the functions of [`crate::api::shared::ffi`], with the server asked.

use crate::agent;
use crate::api::ffi::{FOUND, FfiAnswer, guarded, slice};
use crate::api::shared::ffi::{FfiValue, key_call};
use crate::api::writes_are_ignored;
use crate::dict::SharedDict;
use crate::dict::call::{DictCall, DictReply};
use crate::run::lend;

/// The number identifies the dictionary, which is not in this process.
pub(crate) extern "C" fn place(number: i32) -> *const SharedDict {
    std::ptr::without_provenance(number as usize)
}

fn ask(dict: *const SharedDict, call: &DictCall<'_>) -> DictReply {
    lend::vm(|vm| vm.dicts.get(dict.addr().wrapping_sub(1)).map(|(name, _)| agent::ask(name, call)))
        .unwrap_or_default()
}

/// Of a text a copy, which is kept until the next call.
fn tell(reply: DictReply, answer: &mut FfiAnswer) -> i32 {
    answer.mark = std::ptr::null();
    (answer.number, answer.flags, answer.flag) = (reply.number, reply.flags, u32::from(reply.flag));
    answer.own(reply.text);
    reply.outcome as i32
}

pub(crate) unsafe extern "C" fn get(
    dict: *const SharedDict,
    key: *const u8,
    len: usize,
    stale: i32,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes a Lua string and its own result struct, both kept during the call.
    let (key, answer) = unsafe { (slice(key, len), &mut *answer) };
    guarded(|| {
        let reply = ask(dict, &DictCall::Get(key));
        tell(if reply.flag && stale == 0 { DictReply::default() } else { reply }, answer)
    })
}

pub(crate) unsafe extern "C" fn set(
    dict: *const SharedDict,
    key: *const u8,
    len: usize,
    text: *const u8,
    text_len: usize,
    given: *const FfiValue,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes Lua strings (or null for no text), a value and a result struct of its own, all kept during
    // the call.
    let (key, text, given, answer) =
        unsafe { (slice(key, len), slice(text, text_len), &*given, &mut *answer) };
    guarded(|| {
        answer.flag = 0;
        if writes_are_ignored() {
            return FOUND;
        }
        let (ttl, flags, when, eviction) = (given.ttl(), given.flags(), given.when(), given.eviction());
        let call = match given.value(text) {
            Some(value) => DictCall::Set { key, value, ttl, flags, when, eviction },
            None => DictCall::Delete(key),
        };
        tell(ask(dict, &call), answer)
    })
}

pub(crate) unsafe extern "C" fn incr(
    dict: *const SharedDict,
    key: *const u8,
    len: usize,
    given: *const FfiValue,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes a Lua string, a value and a result struct of its own, all kept during the call.
    let (key, given, answer) = unsafe { (slice(key, len), &*given, &mut *answer) };
    guarded(|| tell(ask(dict, &DictCall::Incr(key, given.incr())), answer))
}

/// What concerns all of a dictionary: 0 empties it, 1 its capacity, 2 its free space.
pub(crate) unsafe extern "C" fn whole(dict: *const SharedDict, what: i32, answer: *mut FfiAnswer) -> i32 {
    // SAFETY: the prelude lends its own result struct, exclusively during the call; the dictionary's number is not followed.
    let answer = unsafe { &mut *answer };
    guarded(|| {
        let call = match what {
            0 if writes_are_ignored() => return FOUND,
            0 => DictCall::FlushAll,
            1 => DictCall::Capacity,
            _ => DictCall::FreeSpace,
        };
        tell(ask(dict, &call), answer);
        FOUND
    })
}

/// As [`key`](super::ffi::key) of the server's own process.
pub(crate) unsafe extern "C" fn key(
    dict: *const SharedDict,
    what: i32,
    key: *const u8,
    len: usize,
    seconds: f64,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes a Lua string and its own result struct, both kept during the call.
    let (key, answer) = unsafe { (slice(key, len), &mut *answer) };
    guarded(|| key_call(what, key, seconds).map_or(FOUND, |call| tell(ask(dict, &call), answer)))
}
