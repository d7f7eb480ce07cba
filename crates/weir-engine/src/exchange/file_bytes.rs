//! Bytes of files that a response is made of.

use std::io;
use std::rc::Rc;

use weir_rt::file::FileHandle;
use weir_trace::WaitKind;

use super::Exchange;
use crate::error::EngineError;
use crate::log::LogLevel;
use crate::open_file::OpenFile;

impl Exchange {
    /// Reads `len` bytes of `file` from `offset`; waits on a thread of the pool when they are not in memory.
    ///
    /// # Errors
    /// The disk's, or [`EngineError::file`] without errno when the file ends earlier: it was cut short while it was
    /// served.
    pub(crate) async fn read_file(
        &mut self,
        file: &Rc<OpenFile>,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, EngineError> {
        let mut bytes = vec![0; len];
        if matches!(file.handle.pread_cached(&mut bytes, offset), Ok(Some(n)) if n == len) {
            return Ok(bytes);
        }
        let failed = |error: io::Error| EngineError::file(error.raw_os_error());
        let job = move |file: &FileHandle| {
            let whole = file.pread_full(&mut bytes, offset)? == bytes.len();
            Ok((whole, bytes))
        };
        let read = weir_rt::file::on_pool(&file.handle, job);
        match self.waiting_for(WaitKind::ThreadPool, read).await.map_err(failed)? {
            (true, bytes) => Ok(bytes),
            (false, _) => {
                self.log(LogLevel::Alert, &"file was truncated while it was sent");
                Err(EngineError::file(None))
            }
        }
    }
}
