//! What functions of the C library that return -1 and set errno have said.

use std::ffi::c_int;
use std::io;

/// The errno, if the call has failed.
pub(crate) fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Calls again as long as a signal has interrupted it. The result is negative where the call has failed.
pub(crate) fn retry<T: Default + PartialOrd>(mut call: impl FnMut() -> T) -> T {
    loop {
        let result = call();
        if result >= T::default() || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return result;
        }
    }
}
