//! Strings and pointers as they come from C and go there.

use std::ffi::{CStr, c_char, c_int};

use crate::code::{CallFailure, CallResult, WEIR_OK};

/// Bytes that belong to the library or to the caller, not ended by NUL. Empty ones may have no address.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WeirText {
    bytes: *const c_char,
    length: usize,
}

impl WeirText {
    pub(crate) const NONE: WeirText = WeirText { bytes: std::ptr::null(), length: 0 };

    pub(crate) fn of(bytes: &[u8]) -> WeirText {
        WeirText { bytes: bytes.as_ptr().cast(), length: bytes.len() }
    }
}

/// Instead of a length: the string ends with NUL.
pub(crate) const WEIR_NUL: usize = usize::MAX;

/// What `pointer` refers to.
///
/// # Safety
/// NULL, or what it refers to lives at least for `'a` and is changed by nobody but through cells and locks.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, CallFailure> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_ref() }.ok_or_else(|| CallFailure::argument(format!("{name} is NULL")))
}

/// `length` bytes at `pointer`; NULL is good for none.
///
/// # Safety
/// NULL, or that many readable bytes (up to a NUL, with [`WEIR_NUL`]) that stay as they are for `'a`.
pub(crate) unsafe fn bytes<'a>(
    pointer: *const c_char,
    length: usize,
    name: &str,
) -> Result<&'a [u8], CallFailure> {
    match (pointer.is_null(), length) {
        (true, 0) => Ok(&[]),
        (true, _) => Err(CallFailure::argument(format!("{name} is NULL"))),
        // SAFETY: not NULL, and ended by NUL, as the caller says.
        (false, WEIR_NUL) => Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes()),
        (false, _) if isize::try_from(length).is_err() => {
            Err(CallFailure::argument(format!("{name} can't be {length} bytes long")))
        }
        // SAFETY: not NULL, and so many bytes, as the caller says.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), length) }),
    }
}

/// A string that ends with NUL, of UTF-8.
///
/// # Safety
/// NULL, or a string that ends with NUL and stays as it is for `'a`.
pub(crate) unsafe fn string<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, CallFailure> {
    // SAFETY: as the caller says.
    let bytes = unsafe { bytes(pointer, WEIR_NUL, name)? };
    utf8(bytes, name)
}

/// `bytes` as text.
pub(crate) fn utf8<'a>(bytes: &'a [u8], name: &str) -> Result<&'a str, CallFailure> {
    std::str::from_utf8(bytes).map_err(|error| CallFailure::argument(format!("{name} is no UTF-8: {error}")))
}

/// Writes `value` where the caller wants it.
///
/// # Safety
/// `place` is NULL or may be written.
pub(crate) unsafe fn put<T>(place: *mut T, value: T, name: &str) -> CallResult {
    if place.is_null() {
        return Err(CallFailure::argument(format!("{name} is NULL")));
    }
    // SAFETY: not NULL, so it may be written, as the caller says.
    unsafe { place.write(value) };
    Ok(WEIR_OK)
}

/// The version of the library.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn weir_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The version of the interface: `WEIR_ABI_VERSION` of the header that the library was made with.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn weir_abi_version() -> c_int {
    0
}
