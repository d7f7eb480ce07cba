//! Encoders, digests and times.

use weir_http::date;
use weir_rt::clock;

use crate::api::encode;
use crate::api::ffi::{Answer, FOUND, NOTHING, REFUSED, guarded, slice};
use crate::luajit::shared_page;

/// What becomes of a text, by number; `option` is `ngx.escape_uri`'s type, or that there is no padding.
pub(crate) unsafe extern "C" fn text(
    what: i32,
    at: *const u8,
    len: usize,
    option: i32,
    answer: *mut Answer,
) -> i32 {
    // SAFETY: the prelude passes a Lua string and its own answer, both kept during the call.
    let (text, answer) = unsafe { (slice(at, len), &mut *answer) };
    guarded(|| {
        let made = match what {
            0 => Some(encode::md5_hex(text)),
            1 => Some(encode::md5_bytes(text)),
            2 => Some(encode::sha1(text)),
            3 => Some(encode::escape_uri_text(text, option)),
            4 => Some(encode::unescape(text, true)),
            5 => Some(encode::base64_text(text, option == 0)),
            6 => weir_http::base64::decode(text),
            7 => encode::decode_mime(text),
            8 => Some(encode::quote_sql(text)),
            9 => {
                answer.number = f64::from(crc32fast::hash(text));
                return FOUND;
            }
            10 => match date::parse(text) {
                Some(time) => {
                    answer.number = time as f64;
                    return FOUND;
                }
                None => None,
            },
            11 => Some(text.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte }).collect()),
            _ => return REFUSED,
        };
        match made {
            Some(made) => {
                answer.own(made);
                FOUND
            }
            None => NOTHING,
        }
    })
}

/// A time as a text, by number: as HTTP, as cookies have it; now: today, local, UTC.
pub(crate) unsafe extern "C" fn date(what: i32, time: f64, answer: *mut Answer) -> i32 {
    // SAFETY: as `text`.
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

/// Scripts ask for the time anew.
pub(crate) extern "C" fn update_time() {
    shared_page::forget_time();
}

/// Seconds of a clock that nobody sets.
pub(crate) extern "C" fn monotonic() -> f64 {
    clock::monotonic_ns() as f64 / 1e9
}
