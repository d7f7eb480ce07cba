//! `ngx.header` for compiled code: single fields of the response.

use weir_engine::Text;
use weir_http::{KnownField, classify};

use crate::api::ffi::lists;
use crate::api::ffi::{FOUND, FfiAnswer, LastText, NOTHING, REFUSED, SAME, changing, guarded, slice};
use crate::api::header::{response_name, response_values};
use crate::api::is_sent;
use crate::run::lend;
use crate::run::settings::ScriptSettings;
use crate::vm::phase::{REQUEST, ScriptPhase};

/// The value of a field of the response that it has once, and that the server does not compose itself; if it is `last`,
/// it is not copied again.
pub(crate) unsafe extern "C" fn header(
    name: *const u8,
    len: usize,
    last: *const u8,
    last_len: usize,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes Lua strings (null for no last value) and lends its own result struct, all during the call.
    let (name, last, answer) = unsafe { (slice(name, len), LastText::new(last, last_len), &mut *answer) };
    guarded(|| {
        if !lend::phase().is_in(REQUEST) || name.contains(&b'_') || composed(classify(name)) {
            return REFUSED;
        }
        let found = lend::exchange(|x| {
            let mut values = x.response.headers.iter().filter(|header| header.name.is(&x.arena, name));
            match (values.next(), values.next()) {
                (None, _) => NOTHING,
                (Some(header), None) if last.is(x.text(&header.value)) => SAME,
                (Some(header), None) => {
                    answer.text(x.text(&header.value));
                    FOUND
                }
                (Some(_), Some(_)) => REFUSED,
            }
        });
        found.unwrap_or(REFUSED)
    })
}

/// Bytes of names that are sent as they are: letters, digits, `-` and `_`.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        plain[byte] = (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'-' | b'_');
        byte += 1;
    }
    plain
};

/// Whether the field is elsewhere than with the others.
fn composed(known: KnownField) -> bool {
    matches!(
        known,
        KnownField::ContentType
            | KnownField::ContentLength
            | KnownField::Server
            | KnownField::Date
            | KnownField::Location
            | KnownField::LastModified
            | KnownField::Connection
            | KnownField::TransferEncoding
    )
}

/// Gives a field of the response a value that needs no escaping. `plain`: the name is one without `_` that was taken
/// before.
pub(crate) unsafe extern "C" fn set_header(
    name: *const u8,
    name_len: usize,
    value: *const u8,
    value_len: usize,
    plain: i32,
) -> i32 {
    // SAFETY: the prelude passes Lua strings, which its stack keeps during the call.
    let (name, value) = unsafe { (slice(name, name_len), slice(value, value_len)) };
    changing(|| {
        let (phase, plain) = (lend::phase(), plain != 0);
        let is_taken = || name.iter().all(|byte| PLAIN[usize::from(*byte)]) && !composed(classify(name));
        if !phase.is_in(REQUEST)
            || name.is_empty()
            || value.is_empty()
            || value.iter().any(|byte| *byte < 0x20 || *byte == 0x7f)
            || (is_sent() && phase != ScriptPhase::HeaderFilter)
            || !(plain || is_taken())
        {
            return REFUSED;
        }
        let done = lend::exchange(|x| {
            if !plain
                && name.contains(&b'_')
                && x.plan.kept::<ScriptSettings>().is_none_or(|kept| kept.underscores)
            {
                return REFUSED;
            }
            let span = x.arena.push(value);
            x.set_response_field(name, Text::Span(span));
            FOUND
        });
        done.unwrap_or(REFUSED)
    })
}

/// All values of a field of the response as a list without names; how many they are.
pub(crate) unsafe extern "C" fn header_values(name: *const u8, len: usize, answer: *mut FfiAnswer) -> i32 {
    // SAFETY: the prelude passes a Lua string and lends its own result struct, both during the call.
    let (name, answer) = unsafe { (slice(name, len), &mut *answer) };
    guarded(|| {
        if !lend::phase().is_in(REQUEST) {
            return REFUSED;
        }
        let found = response_name(name).and_then(|name| response_values(&name));
        found.map_or(REFUSED, |values| lists::give(&values, answer))
    })
}
