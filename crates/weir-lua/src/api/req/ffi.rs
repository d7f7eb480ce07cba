//! `ngx.req` for compiled code: the request's line and single fields.

use weir_engine::exchange::FieldPattern;
use weir_http::{KnownField, Method, Version, classify};

use crate::api::ffi::{FOUND, FfiAnswer, NOTHING, REFUSED, changing, guarded, slice};
use crate::api::{safe_name, started};
use crate::run::lend;
use crate::vm::phase::REQUEST;

/// What of the request is a number or a text, by number: 0 its method; 1 when it began, 2 its version, 3 whether it is
/// internal; 4 an address that represents it, that of a timer's, too.
pub(crate) unsafe extern "C" fn request(what: i32, answer: *mut FfiAnswer) -> i32 {
    // SAFETY: the prelude lends its own result struct, exclusively during the call.
    let answer = unsafe { &mut *answer };
    guarded(|| {
        if what == 4 {
            let place = lend::any_exchange(|x| answer.at = std::ptr::from_mut(x).cast_const().cast());
            return place.map_or(REFUSED, |()| FOUND);
        }
        let done = lend::request(|x| {
            match what {
                0 => answer.text(x.arena.get(x.request.head.method_span)),
                1 => answer.number = started(x),
                2 => answer.number = version(x.request.head.version),
                3 => answer.number = f64::from(u8::from(x.internal)),
                _ => return REFUSED,
            }
            FOUND
        });
        done.unwrap_or(REFUSED)
    })
}

/// `ngx.req.http_version`
pub(crate) fn version(version: Version) -> f64 {
    match version {
        Version::V09 => 0.9,
        Version::V10 => 1.0,
        Version::V11 => 1.1,
        _ => 2.0,
    }
}

/// Gives the request the method that scripts know by this number.
pub(crate) extern "C" fn set_method(number: i32) -> i32 {
    changing(|| {
        let name = u32::try_from(number).ok().and_then(crate::api::method_name);
        let (Some(name), true) = (name, lend::phase().is_in(REQUEST)) else { return REFUSED };
        let done = lend::exchange(|x| {
            x.request.head.method = Method::parse(name.as_bytes());
            x.request.head.method_span = x.arena.push(name.as_bytes());
            FOUND
        });
        done.unwrap_or(REFUSED)
    })
}

/// Gives the request one field of that name, or none where `value` is null or empty.
pub(crate) unsafe extern "C" fn set_request_header(
    name: *const u8,
    name_len: usize,
    value: *const u8,
    value_len: usize,
) -> i32 {
    // SAFETY: the prelude passes Lua strings, kept during the call; a null value is not followed.
    let (name, value) =
        unsafe { (slice(name, name_len), (!value.is_null()).then(|| slice(value, value_len))) };
    changing(|| {
        let bad = |text: &[u8]| text.iter().any(|byte| *byte < 0x20 || *byte == 0x7f);
        if value.is_some_and(bad) {
            return REFUSED;
        }
        // No value means an absent field; an invalid length is refused elsewhere.
        let value = value.filter(|value| !value.is_empty());
        let name = safe_name(name);
        let done = lend::request(|x| {
            match value {
                Some(value) => {
                    let known = classify(&name);
                    if known == KnownField::ContentLength {
                        return REFUSED;
                    }
                    let value = x.arena.push(value);
                    x.set_known_request_field(known, &name, value);
                }
                None => x.remove_request_fields(FieldPattern::Exactly(&name)),
            }
            FOUND
        });
        done.unwrap_or(REFUSED)
    })
}

/// The value of a field of the request that it has once.
pub(crate) unsafe extern "C" fn request_header(name: *const u8, len: usize, answer: *mut FfiAnswer) -> i32 {
    // SAFETY: the prelude passes a Lua string and lends its own result struct, both during the call.
    let (name, answer) = unsafe { (slice(name, len), &mut *answer) };
    guarded(|| {
        let found = lend::exchange(|x| match x.request_field(name) {
            Some(value) => {
                answer.text(value);
                FOUND
            }
            None => NOTHING,
        });
        found.unwrap_or(REFUSED)
    })
}
