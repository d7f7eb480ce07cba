//! Jobs on a file that another thread may do: with a descriptor of its own, since the waiting task may be gone before the job is.

use std::future::ready;
use std::io;
use std::pin::Pin;

use super::FileHandle;

/// Runs `job` with `file` on a thread of the blocking pool. The thread gets a descriptor of its own, since the waiting
/// task may be gone before the job is; where none is left to the process the job is done here, and the loop waits for
/// the disk: better late than with a response that breaks off.
///
/// # Errors
/// Those of `job`, and others of dup(2) than `EMFILE`.
pub fn on_pool<T: Send + 'static>(
    file: &FileHandle,
    job: impl FnOnce(&FileHandle) -> io::Result<T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = io::Result<T>>>> {
    with_own(file.try_clone(), file, job)
}

pub(super) fn with_own<T: Send + 'static>(
    own: io::Result<FileHandle>,
    file: &FileHandle,
    job: impl FnOnce(&FileHandle) -> io::Result<T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = io::Result<T>>>> {
    match own_or_here(own, file, job) {
        Ok((own, job)) => Box::pin(crate::blocking(move || job(&own))),
        Err(done) => Box::pin(ready(done)),
    }
}

/// The descriptor and the job for another thread.
///
/// # Errors
/// The result, where no descriptor could be had: that of the job, done here, if the process has none left.
pub(crate) fn own_or_here<T, J: FnOnce(&FileHandle) -> io::Result<T>>(
    own: io::Result<FileHandle>,
    file: &FileHandle,
    job: J,
) -> Result<(FileHandle, J), io::Result<T>> {
    match own {
        Ok(own) => Ok((own, job)),
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => Err(job(file)),
        Err(error) => Err(Err(error)),
    }
}
