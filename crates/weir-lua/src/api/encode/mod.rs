//! Encoders and digests: `ngx.escape_uri`, `encode_args`, `encode_base64`, `md5`, `crc32_short`, `quote_sql_str` ...

pub(crate) mod ffi;

use aws_lc_rs::{digest, hmac};
use md5::{Digest, Md5};
use weir_engine::log::LogLevel;
use weir_http::{base64, quote};

use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::captured::add_pair;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_count, expect_number, expect_string, fail, function,
};
use crate::run::lend;

pub(super) const TABLE: &[ApiFunction] = &[
    function("escape_uri", 0, escape_uri),
    function("unescape_uri", 0, |l| {
        let text = text_argument(&l, 1, "unescape_uri")?;
        l.push_bytes(&unescape(&text));
        Ok(CallDone::Results(1))
    }),
    function("encode_args", 0, |l| {
        expect_count(l, 1..=1, "1 argument but seen")?;
        if l.kind(1) != kind::TABLE {
            let reason = format!("table expected, got {}", l.kind_name(1));
            return Err(LuaRaise::argument(1, "encode_args", &reason));
        }
        let text = args_of(l, 1)?;
        l.push_bytes(&text);
        Ok(CallDone::Results(1))
    }),
    function("decode_args", 0, |l| {
        expect_count(l, 1..=2, "1 or 2 arguments but seen")?;
        let text = expect_string(&l, 1, "decode_args")?;
        if !l.is_none_or_nil(2) {
            expect_number(l, 2, "decode_args")?;
        }
        let most = most(l, 2);
        push_args(l, &text, most);
        Ok(CallDone::Results(if finish_args(l, &text, most) { 2 } else { 1 }))
    }),
    function("encode_base64", 0, encode_base64),
    function("decode_base64", 0, |l| {
        let text = expect_base64(&l, "decode_base64")?;
        match base64::decode(&text) {
            Some(bytes) => l.push_bytes(&bytes),
            None => l.push_nil(),
        }
        Ok(CallDone::Results(1))
    }),
    function("decode_base64mime", 0, |l| {
        let text = expect_base64(&l, "decode_base64mime")?;
        match decode_mime(&text) {
            Some(bytes) => l.push_bytes(&bytes),
            None => return fail(l, "invalid input"),
        }
        Ok(CallDone::Results(1))
    }),
    function("crc32_short", 0, crc32),
    function("crc32_long", 0, crc32),
    function("md5", 0, |l| {
        l.push_bytes(&md5_hex(&text_argument(&l, 1, "md5")?));
        Ok(CallDone::Results(1))
    }),
    function("md5_bin", 0, |l| {
        l.push_bytes(&md5_bytes(&text_argument(&l, 1, "md5_bin")?));
        Ok(CallDone::Results(1))
    }),
    function("sha1_bin", 0, |l| {
        let sum = sha1(&text_argument(&l, 1, "sha1_bin")?);
        l.push_bytes(&sum);
        Ok(CallDone::Results(1))
    }),
    function("hmac_sha1", 0, |l| {
        expect_count(l, 2..=2, "2 arguments, but got")?;
        let (key, text) = (expect_string(&l, 1, "hmac_sha1")?, expect_string(&l, 2, "hmac_sha1")?);
        l.push_bytes(&hmac_sha1(&key, &text));
        Ok(CallDone::Results(1))
    }),
    function("quote_sql_str", 0, |l| {
        if l.top() != 1 {
            return Err(LuaRaise::text("expecting one argument"));
        }
        let text = expect_string(&l, 1, "quote_sql_str")?;
        l.push_bytes(&quote::sql(&text));
        Ok(CallDone::Results(1))
    }),
];

pub(crate) fn md5_bytes(text: &[u8]) -> Vec<u8> {
    Md5::digest(text).to_vec()
}

pub(crate) fn md5_hex(text: &[u8]) -> Vec<u8> {
    hex(&Md5::digest(text)).into_bytes()
}

pub(crate) fn sha1(text: &[u8]) -> Vec<u8> {
    digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text).as_ref().to_vec()
}

fn hmac_sha1(key: &[u8], text: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key);
    hmac::sign(&key, text).as_ref().to_vec()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// A string, a number, or anything else in Lua's words, nil as nothing.
fn text_argument(l: &LuaState, at: i32, function: &str) -> Result<Vec<u8>, LuaRaise> {
    match l.kind(at) {
        kind::NIL => Ok(Vec::new()),
        kind::BOOLEAN => Ok(if l.boolean(at) { b"true".to_vec() } else { b"false".to_vec() }),
        kind::NONE => Err(LuaRaise::text("expecting one argument")),
        _ => expect_string(l, at, function),
    }
}

fn crc32(l: LuaState) -> CallOutcome {
    let text = text_argument(&l, 1, "crc32_short")?;
    l.push_number(f64::from(crc32fast::hash(&text)));
    Ok(CallDone::Results(1))
}

fn escape_uri(l: LuaState) -> CallOutcome {
    let text = text_argument(&l, 1, "escape_uri")?;
    let kind = if l.is_none_or_nil(2) { Some(2.0) } else { l.number(2).filter(|_| l.string(2).is_none()) };
    let kind = kind.ok_or_else(|| LuaRaise::Plain("\"type\" is not a number".to_owned()))?;
    if !(0.0..=6.0).contains(&kind) {
        return Err(LuaRaise::Plain(format!("\"type\" {kind} out of range")));
    }
    l.push_bytes(&escape_uri_text(&text, kind as i32));
    Ok(CallDone::Results(1))
}

/// `text` escaped for what nginx numbers so: a whole URI (0), arguments (1), a part of a URI (2), HTML (3), a page that
/// refreshes (4), memcached (5), a mail server (6). The sets are ngx_lua's own, not nginx's of the same names.
pub(crate) fn escape_uri_text(text: &[u8], kind: i32) -> Vec<u8> {
    let keeps: fn(u8) -> bool = match kind {
        0 => |byte| is_visible(byte) && !matches!(byte, b'#' | b'%' | b'?'),
        1 => |byte| is_visible(byte) && !matches!(byte, b'#' | b'%' | b'+' | b'?'),
        3 => |byte| is_visible(byte) && !matches!(byte, b'"' | b'#' | b'%' | b'\''),
        4 => |byte| is_visible(byte) && !matches!(byte, b'"' | b'\''),
        5 | 6 => |byte| byte > b' ' && byte != b'%',
        _ => keeps_in_component,
    };
    let mut out = Vec::with_capacity(text.len());
    escape(text, keeps, &mut out);
    out
}

/// What is not a reserved character of RFC 3986, as ngx.escape_uri leaves it.
fn keeps_in_component(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'!' | b'\'' | b'(' | b')' | b'*')
}

/// ASCII that is no space and no control character.
fn is_visible(byte: u8) -> bool {
    (0x21..0x7f).contains(&byte)
}

/// Appends `text` with `%XX` for what `keeps` does not.
pub(super) fn escape(text: &[u8], keeps: fn(u8) -> bool, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text {
        match keeps(byte) {
            true => out.push(byte),
            false => out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

/// The first byte that is not allowed in a URI: a control character other than the tab.
pub(super) fn unsafe_byte(text: &[u8]) -> Option<u8> {
    text.iter().copied().find(|byte| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f)
}

/// What is not plain ASCII, quotes and backslashes as `\x0D`, as messages show them.
pub(super) fn escaped_bytes(text: &[u8]) -> String {
    let mut out = String::new();
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.push_str(&format!("\\x{byte:02X}")),
            b' '..=b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("\\x{byte:02X}")),
        }
    }
    out
}

/// `%XX` decoded, and `+`, which is a space; what is not well-formed stays.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'%' => match (digit(at), digit(at + 1)) {
                (Some(high), Some(low)) => {
                    out.push((high * 16 + low) as u8);
                    at += 2;
                }
                _ => out.push(b'%'),
            },
            b'+' => out.push(b' '),
            byte => out.push(byte),
        }
    }
    out
}

/// The table at `at` as arguments of a URI.
pub(super) fn args_of(l: LuaState, at: i32) -> Result<Vec<u8>, LuaRaise> {
    let mut out = Vec::new();
    l.push_nil();
    while l.next(at) {
        if l.kind(-2) != kind::STRING {
            return Err(LuaRaise::text("attempt to use a non-string key in the \"args\" option table"));
        }
        let mut name = Vec::new();
        escape(l.bytes(-2).unwrap_or_default(), keeps_in_component, &mut name);
        if l.kind(-1) == kind::TABLE {
            let table = l.top();
            for index in 1..=l.sequence(table).unwrap_or(0) {
                l.raw_get_index(table, index);
                let result = arg(l, &name, &mut out);
                l.pop(1);
                result?;
            }
        } else {
            arg(l, &name, &mut out)?;
        }
        l.pop(1);
    }
    Ok(out)
}

/// One argument, whose value is on top.
fn arg(l: LuaState, name: &[u8], out: &mut Vec<u8>) -> Result<(), LuaRaise> {
    if l.kind(-1) == kind::BOOLEAN && !l.boolean(-1) {
        return Ok(());
    }
    if !out.is_empty() {
        out.push(b'&');
    }
    out.extend_from_slice(name);
    match l.kind(-1) {
        kind::BOOLEAN => {}
        kind::STRING | kind::NUMBER => {
            l.push_value(-1);
            out.push(b'=');
            escape(l.bytes(-1).unwrap_or_default(), keeps_in_component, out);
            l.pop(1);
        }
        _ => {
            let name = l.kind_name(-1);
            return Err(LuaRaise::text(format!("attempt to use {name} as query arg value")));
        }
    }
    Ok(())
}

/// How many fields or arguments a table has at most, as the argument at `at` says; 100 without it, 0 for all.
pub(super) fn most(l: LuaState, at: i32) -> usize {
    l.number(at).filter(|most| *most >= 0.0).unwrap_or(100.0) as usize
}

/// Pushes a table of the arguments in `text`, `most` at most (0 for all).
pub(super) fn push_args(l: LuaState, text: &[u8], most: usize) {
    l.new_table(0, 4);
    let most = if most == 0 { usize::MAX } else { most };
    for part in text.split(|byte| *byte == b'&').filter(|part| !part.is_empty()).take(most) {
        let (name, value) = argument(part);
        if name.is_empty() {
            continue;
        }
        add_pair(l, &name, &|| match &value {
            Some(value) => l.push_bytes(value),
            None => l.push_boolean(true),
        });
    }
}

/// One argument's name, and its value if it has one.
pub(crate) fn argument(part: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    match part.iter().position(|byte| *byte == b'=') {
        Some(at) => (unescape(&part[..at]), Some(unescape(&part[at + 1..]))),
        None => (unescape(part), None),
    }
}

/// Pushes "truncated" when there were more than `most`.
pub(super) fn finish_args(l: LuaState, text: &[u8], most: usize) -> bool {
    let count = text.split(|byte| *byte == b'&').filter(|part| !part.is_empty()).count();
    let cut = most > 0 && count > most;
    if cut {
        lend::log(LogLevel::Debug, &format_args!("lua hit query args limit {most}"));
        l.push_bytes(b"truncated");
    }
    cut
}

fn encode_base64(l: LuaState) -> CallOutcome {
    let text = text_argument(&l, 1, "encode_base64")?;
    if !l.is_none_or_nil(2) && l.kind(2) != kind::BOOLEAN {
        return Err(LuaRaise::text(format!("bad no_padding: boolean expected, got {}", l.kind_name(2))));
    }
    let padding = if l.boolean(2) { Base64Padding::Omitted } else { Base64Padding::Written };
    l.push_bytes(&base64_text(&text, padding));
    Ok(CallDone::Results(1))
}

/// What the end of a text gets that does not fill its last group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base64Padding {
    /// `=`, up to a multiple of four.
    Written,
    /// Nothing (`no_padding`).
    Omitted,
}

pub(crate) fn base64_text(text: &[u8], padding: Base64Padding) -> Vec<u8> {
    let mut out = Vec::new();
    base64::encode(text, &mut out);
    while padding == Base64Padding::Omitted && out.last() == Some(&b'=') {
        out.pop();
    }
    out
}

fn expect_base64(l: &LuaState, name: &str) -> Result<Vec<u8>, LuaRaise> {
    match l.kind(1) {
        kind::STRING => expect_string(l, 1, name),
        _ => Err(LuaRaise::text("string argument only")),
    }
}

/// Bytes outside of the alphabet count for nothing (RFC 2045).
pub(crate) fn decode_mime(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    base64::decode(&text.iter().copied().filter(digit).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded_with_and_without_padding() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob")] {
            assert_eq!(base64::decode(text.as_bytes()).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(base64::decode(b"Z"), None);
        assert_eq!(base64::decode(b"Zm 9v"), None);
        assert_eq!(decode_mime(b"Zm\n9v").as_deref(), Some(&b"foo"[..]));
    }

    /// RFC 2202, cases 1 and 6.
    #[test]
    fn hmac_is_that_of_the_rfc() {
        assert_eq!(hex(&hmac_sha1(&[0x0b; 20], b"Hi There")), "b617318655057264e28bc0b6fb378c8ef146be00");
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(hex(&hmac_sha1(&[0xaa; 80], text)), "aa4ae5e15272d00e95705637ce8a3b55ed402112");
    }

    #[test]
    fn what_is_escaped_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let mut text = Vec::new();
        escape(&all, keeps_in_component, &mut text);
        assert_eq!(unescape(&text), all);
        assert_eq!(unescape(b"a%2+%zz%4"), b"a%2 %zz%4");
    }
}
