//! C functions of nginx's that libraries for OpenResty call through `ffi.C`; `symbols.c` has their names.

use weir_http::escape::{self, EscapeSet};

unsafe extern "C" {
    fn weir_lua_symbols();
}

/// Has the names linked into the program.
pub(crate) fn keep() {
    // SAFETY: it does nothing.
    unsafe { weir_lua_symbols() };
}

/// `ngx_escape_uri`: with nowhere to write the number of bytes that are escaped, else where what was written ends.
///
/// # Safety
/// `from` has `size` bytes; `to`, unless it is null, has room for them and two more for each that is escaped.
#[unsafe(no_mangle)]
unsafe extern "C" fn weir_lua_escape_uri(to: *mut u8, from: *const u8, size: usize, kind: usize) -> usize {
    // SAFETY: the caller's promise.
    let from = unsafe { bytes(from, size) };
    let set = set(kind);
    if to.is_null() {
        return escape::count(from, set);
    }
    let mut text = Vec::with_capacity(size);
    escape::escape(&mut text, from, set);
    // SAFETY: the caller's promise: what is escaped takes three bytes, the others one.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len()) };
    to.addr() + text.len()
}

/// # Safety
/// `at` has `size` bytes as long as the result is used.
unsafe fn bytes<'a>(at: *const u8, size: usize) -> &'a [u8] {
    match size {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(at, size) },
    }
}

/// `ngx_atoi`, `ngx_hextoi`: the number that `line` is, -1 for any other text and beyond 2^63 - 1.
///
/// # Safety
/// `line` has `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn weir_lua_number(line: *const u8, length: usize, radix: u32) -> isize {
    // SAFETY: the caller's promise.
    let digits = unsafe { bytes(line, length) };
    let add = |sum: isize, digit: &u8| {
        let digit = char::from(*digit).to_digit(radix)? as isize;
        sum.checked_mul(radix as isize)?.checked_add(digit)
    };
    match digits {
        [] => -1,
        digits => digits.iter().try_fold(0, add).unwrap_or(-1),
    }
}

/// `ngx_parse_time`: the time that `line` is, in seconds or milliseconds, -1 for any other text.
///
/// # Safety
/// `line` has `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn weir_lua_parse_time(line: *const u8, length: usize, seconds: usize) -> isize {
    // SAFETY: the caller's promise.
    let text = unsafe { bytes(line, length) };
    let time = if seconds != 0 { weir_conf::parse_time_s(text) } else { weir_conf::parse_time_ms(text) };
    time.and_then(|time| isize::try_from(time).ok()).unwrap_or(-1)
}

/// nginx's numbers of what is escaped for.
fn set(kind: usize) -> EscapeSet {
    match kind {
        1 => EscapeSet::Args,
        2 => EscapeSet::UriComponent,
        3 => EscapeSet::Html,
        4 => EscapeSet::Refresh,
        5 => EscapeSet::Memcached,
        _ => EscapeSet::Uri,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times() {
        // SAFETY: the text has as many bytes.
        let number = |text: &str, radix| unsafe { weir_lua_number(text.as_ptr(), text.len(), radix) };
        assert_eq!((number("0", 10), number("120", 10), number("fF", 16)), (0, 120, 255));
        assert_eq!(number("9223372036854775807", 10), isize::MAX);
        for (text, radix) in [
            ("", 10),
            ("-1", 10),
            ("1f", 10),
            ("g", 16),
            ("9223372036854775808", 10),
            ("8000000000000000", 16),
        ] {
            assert_eq!(number(text, radix), -1, "{text}");
        }
        // SAFETY: the text has as many bytes.
        let time = |text: &str, seconds| unsafe { weir_lua_parse_time(text.as_ptr(), text.len(), seconds) };
        assert_eq!((time("1h 30m", 1), time("1s", 0), time("5ms", 0)), (5400, 1000, 5));
        assert_eq!((time("", 1), time("5ms", 1), time("x", 0)), (-1, -1, -1));
    }

    #[test]
    fn counted_and_written() {
        let from = b"/a b?c";
        let call = |to: *mut u8, kind| {
            // SAFETY: there is room for each byte three times.
            unsafe { weir_lua_escape_uri(to, from.as_ptr(), from.len(), kind) }
        };
        assert_eq!((call(std::ptr::null_mut(), 0), call(std::ptr::null_mut(), 2)), (2, 3));
        let mut to = [0; 18];
        let end = call(to.as_mut_ptr(), 0);
        assert_eq!(&to[..end - to.as_ptr().addr()], b"/a%20b%3Fc");
        // SAFETY: there is nothing to read.
        assert_eq!(unsafe { weir_lua_escape_uri(std::ptr::null_mut(), std::ptr::null(), 0, 0) }, 0);
    }
}
