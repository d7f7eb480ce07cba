//! Shared dictionaries.

use crate::api::ffi::{FOUND, FfiAnswer, NOTHING, guarded, kept, slice};
use crate::api::writes_are_ignored;
use crate::dict::call::{self, DictOutcome, IncrCall};
use crate::dict::{EvictionRule, MarkVersion, SMALL, SeenValue, SharedDict, StoreCondition};
use crate::run::lend;

/// A value and how it is stored; `struct weir_value` of the prelude.
#[repr(C)]
pub(crate) struct FfiValue {
    /// The number; of `incr` what is added.
    number: f64,
    /// Where `incr` begins.
    init: f64,
    /// Seconds; 0 for ever.
    ttl: f64,
    flags: u32,
    /// 0 a text, which is passed beside, 1 number, 2 boolean (in `number`), 3 nothing.
    kind: i32,
    /// 0 always, 1 only a new key, 2 only one that is there. Of `incr`: 1 when there is `init`.
    when: i32,
    /// Others may go for it.
    evict: i32,
}

impl FfiValue {
    /// Milliseconds.
    pub(crate) fn ttl(&self) -> u64 {
        (self.ttl * 1000.0) as u64
    }

    pub(crate) fn flags(&self) -> u32 {
        self.flags
    }

    pub(crate) fn when(&self) -> StoreCondition {
        StoreCondition::of(self.when as u64)
    }

    pub(crate) fn eviction(&self) -> EvictionRule {
        EvictionRule::of(self.evict as u64)
    }

    /// The value, whose text is passed beside; `None`: the key gets no value.
    pub(crate) fn value<'t>(&self, text: &'t [u8]) -> Option<call::GivenValue<'t>> {
        match self.kind {
            0 => Some(call::GivenValue::Text(text)),
            1 => Some(call::GivenValue::Number(self.number)),
            2 => Some(call::GivenValue::Boolean(self.number != 0.0)),
            _ => None,
        }
    }

    pub(crate) fn incr(&self) -> IncrCall {
        let init = (self.when == 1).then_some(self.init);
        IncrCall { by: self.number, init, ttl: self.ttl(), ignored: writes_are_ignored() }
    }
}

pub(crate) type FfiSet = unsafe extern "C" fn(
    *const SharedDict,
    *const u8,
    usize,
    *const u8,
    usize,
    *const FfiValue,
    *mut FfiAnswer,
) -> i32;

/// Where dictionary `number`, counted from 1, is as long as the VM: what the prelude names it by.
pub(crate) extern "C" fn place(number: i32) -> *const SharedDict {
    lend::vm(|vm| match vm.dicts.get((number as usize).wrapping_sub(1)) {
        Some((_, dict)) => std::sync::Arc::as_ptr(dict),
        None => std::ptr::null(),
    })
}

/// The value of `key`, its kind as an [`DictOutcome`], a boolean in `number`; `flag` says that it has expired, `mark`
/// how to see without another call that it is still the same.
pub(crate) unsafe extern "C" fn get(
    dict: *const SharedDict,
    key: *const u8,
    len: usize,
    stale: i32,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes what `place` gave, a Lua string and its own result struct, all kept during the call.
    let (dict, key, answer) = unsafe { (&*dict, slice(key, len), &mut *answer) };
    guarded(|| {
        let FfiAnswer { at, len, number, flags, flag, mark, version, expires, room, .. } = answer;
        *mark = std::ptr::null();
        let found = dict.get(key, room, |value, about| {
            if about.expired && stale == 0 {
                return NOTHING;
            }
            (*flags, *flag) = (about.flags, u32::from(about.expired));
            if let Some(MarkVersion { mark: its, version: now }) = about.version {
                (*mark, *version) = (its, now);
                *expires = if about.expires == 0 { f64::INFINITY } else { about.expires as f64 };
            }
            match value {
                SeenValue::Text(text) => {
                    // A short text is in `room` by now, a longer one in the dictionary, which may lose it.
                    *at = if text.len() <= SMALL { text.as_ptr() } else { kept(text) };
                    *len = text.len();
                    1
                }
                SeenValue::Number(value) => {
                    *number = value;
                    2
                }
                SeenValue::Boolean(value) => {
                    *number = f64::from(u8::from(value));
                    3
                }
                SeenValue::List => 4,
            }
        });
        found.unwrap_or(NOTHING)
    })
}

/// Stores a value: an [`DictOutcome`]; `flag`: others have gone.
pub(crate) unsafe extern "C" fn set(
    dict: *const SharedDict,
    key: *const u8,
    len: usize,
    text: *const u8,
    text_len: usize,
    given: *const FfiValue,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes what `place` gave, Lua strings, a value and a result struct of its own, all kept during the
    // call.
    let (dict, key, text, given, answer) =
        unsafe { (&*dict, slice(key, len), slice(text, text_len), &*given, &mut *answer) };
    guarded(|| {
        answer.flag = 0;
        if writes_are_ignored() {
            return FOUND;
        }
        let Some(value) = given.value(text) else {
            dict.delete(key);
            return FOUND;
        };
        let stored = dict.set(key, value.into(), given.ttl(), given.flags, given.when(), given.eviction());
        let (outcome, forced) = DictOutcome::stored(stored);
        answer.flag = u32::from(forced);
        outcome as i32
    })
}

/// Adds to a number: an [`DictOutcome`], and the sum.
pub(crate) unsafe extern "C" fn incr(
    dict: *const SharedDict,
    key: *const u8,
    len: usize,
    given: *const FfiValue,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes what `place` gave, a Lua string, a value and a result struct of its own, all kept during the
    // call.
    let (dict, key, given, answer) = unsafe { (&*dict, slice(key, len), &*given, &mut *answer) };
    guarded(|| {
        let (outcome, forced, sum) = call::add(dict, key, given.incr());
        (answer.flag, answer.number) = (u32::from(forced), sum);
        outcome as i32
    })
}

/// What concerns all of a dictionary: 0 empties it, 1 its capacity, 2 its free space.
pub(crate) unsafe extern "C" fn whole(dict: *const SharedDict, what: i32, answer: *mut FfiAnswer) -> i32 {
    // SAFETY: the prelude passes what `place` gave, which stays for ever, and lends its own result struct during the call.
    let (dict, answer) = unsafe { (&*dict, &mut *answer) };
    guarded(|| {
        match what {
            0 if !writes_are_ignored() => dict.flush_all(),
            0 => {}
            1 => answer.number = dict.capacity() as f64,
            _ => answer.number = dict.free_space() as f64,
        }
        FOUND
    })
}

/// What concerns one key: 0 its time to live in seconds, in `number`; 1 gives it `seconds` from now on. A [`DictOutcome`].
pub(crate) unsafe extern "C" fn key(
    dict: *const SharedDict,
    what: i32,
    key: *const u8,
    len: usize,
    seconds: f64,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes what `place` gave, a Lua string and its own result struct, all kept during the call.
    let (dict, key, answer) = unsafe { (&*dict, slice(key, len), &mut *answer) };
    guarded(|| match key_call(what, key, seconds) {
        Some(call) => {
            let reply = call.perform(dict);
            answer.number = reply.number;
            reply.outcome as i32
        }
        None => DictOutcome::Done as i32,
    })
}

/// What is asked of the dictionary; nothing where writes are ignored.
pub(super) fn key_call(what: i32, key: &[u8], seconds: f64) -> Option<call::DictCall<'_>> {
    match what {
        0 => Some(call::DictCall::Ttl(key)),
        _ if writes_are_ignored() => None,
        _ => Some(call::DictCall::Expire(key, (seconds * 1000.0) as u64)),
    }
}
