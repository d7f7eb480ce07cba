//! Encoders and digests for compiled code.

use weir_http::date;

use crate::api::encode;
use crate::api::ffi::{FOUND, FfiAnswer, NOTHING, REFUSED, guarded, slice};

/// What becomes of a text, by number; `option` is `ngx.escape_uri`'s type, or that there is no padding.
pub(crate) unsafe extern "C" fn text(
    what: i32,
    at: *const u8,
    len: usize,
    option: i32,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes a Lua string and its own result struct, both kept during the call.
    let (text, answer) = unsafe { (slice(at, len), &mut *answer) };
    guarded(|| {
        let made = match what {
            0 => Some(encode::md5_hex(text)),
            1 => Some(encode::md5_bytes(text)),
            2 => Some(encode::sha1(text)),
            3 => Some(encode::escape_uri_text(text, option)),
            4 => Some(encode::unescape(text)),
            5 if option == 0 => Some(encode::base64_text(text, encode::Base64Padding::Written)),
            5 => Some(encode::base64_text(text, encode::Base64Padding::Omitted)),
            6 => weir_http::base64::decode(text),
            7 => encode::decode_mime(text),
            8 => Some(weir_http::quote::sql(text)),
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
            12 => Some(swapped(encode::base64_text(text, encode::Base64Padding::Omitted), *b"+/", *b"-_")),
            13 => weir_http::base64::decode_url(text),
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

/// The text with these two bytes as those.
fn swapped(mut text: Vec<u8>, from: [u8; 2], to: [u8; 2]) -> Vec<u8> {
    for byte in &mut text {
        if let Some(at) = from.iter().position(|one| one == byte) {
            *byte = to[at];
        }
    }
    text
}
