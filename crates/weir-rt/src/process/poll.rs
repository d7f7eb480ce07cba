//! Waiting for several descriptors at once, for threads without a runtime.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Waits until one of `fds` can be read (its end counts), or for `limit`; returns which of them can.
///
/// # Errors
/// The errno of poll(2), but for EINTR, which ends the wait.
pub fn readable<const N: usize>(fds: [BorrowedFd<'_>; N], limit: Option<Duration>) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    // Rounded up, so that a caller that waits for a time does not come back before it.
    let ms = limit.map_or(-1, |limit| i32::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
    // SAFETY: N valid entries.
    let n = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, ms) };
    if n < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok([false; N]) } else { Err(error) };
    }
    Ok(polled.map(|polled| polled.revents != 0))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_one_with_bytes_and_the_one_that_ended() {
        let (a, mut to_a) = io::pipe().expect("descriptors");
        let (b, to_b) = io::pipe().expect("descriptors");
        let ready = || readable([a.as_fd(), b.as_fd()], Some(Duration::ZERO)).expect("poll works");
        assert_eq!(ready(), [false, false]);
        to_a.write_all(b"x").expect("a reader");
        assert_eq!(ready(), [true, false]);
        drop(to_b);
        assert_eq!(ready(), [true, true]);
    }
}
