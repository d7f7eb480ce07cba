//! System calls that signals interrupt.

use std::io;

/// Makes `call` until no signal interrupts it. Reads of sockets with a timeout need that: the kernel does not restart them
/// (signal(7)), and the sampler's signals and the end of an io_uring come to threads that read.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
