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
    let from = match size {
        0 => &[][..],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(from, size) },
    };
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
