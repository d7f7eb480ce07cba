//! Bodies that do not fit in memory: their files, those of requests under `client_body_temp_path`.
//!
//! Files are named by a counter, `0000000001` and on, inside as many levels of directories as configured, each named by
//! the counter's last digits. A file loses its name as soon as it is open, unless `client_body_in_file_only` keeps
//! it or a script reads the body. Calls that touch the disk are made on a thread of the pool, and for small bodies on the loop
//! ([`weir_rt::small_write::FileWrite`]).

use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};

use weir_rt::file::{FileHandle, on_pool};
use weir_trace::WaitKind;

use crate::error::EngineError;
use crate::exchange::body_file::{BodyFile, BodyFileWriter};
pub use crate::exchange::temp_file::{TempFileFailure, TempFileName, is_directory, make};
use crate::exchange::{Exchange, TempFile};
use crate::log::LogLevel;
use crate::settings::location::InFileOnly;

/// Adds `piece` to the file of the request's body; a new file begins with what the body has in memory so far. The pieces
/// are in the file, and the body has it, after [`finish`].
///
/// # Errors
/// [`EngineError::file`], logged: no file could be made, or the disk is full, also for a piece before this one.
pub(crate) async fn append(x: &mut Exchange, piece: Vec<u8>) -> Result<(), EngineError> {
    let mut writer = match x.body.writer.take() {
        Some(writer) => writer,
        None => begin(x)?,
    };
    writer.push(piece);
    if writer.is_due() {
        let begun = x.waiting(Box::pin(poll_fn(|cx| writer.poll_begin(cx)))).await;
        report(x, &mut writer);
        begun.map_err(|failed| log(&failed, x))?;
        if let Some(wire) = x.transport.h1() {
            writer.take_spent().into_iter().for_each(|piece| wire.stream.give_spare(piece));
        }
    }
    x.body.writer = Some(writer);
    Ok(())
}

/// Waits until all of the body is in its file, if it goes to one.
///
/// # Errors
/// As [`append`].
pub(crate) async fn finish(x: &mut Exchange) -> Result<(), EngineError> {
    let Some(mut writer) = x.body.writer.take() else { return Ok(()) };
    let finished = x.waiting(Box::pin(poll_fn(|cx| writer.poll_finish(cx)))).await;
    report(x, &mut writer);
    finished.map_err(|failed| log(&failed, x))?;
    x.body.file = writer.into_file();
    Ok(())
}

/// As [`finish`], and does `then` with the file, which puts it at `place`, on the thread that writes its end.
///
/// # Errors
/// As [`append`]; `then` is not called.
pub(crate) async fn finish_and<T: Send + 'static>(
    x: &mut Exchange,
    place: &Path,
    then: impl FnOnce(BodyFile) -> T + Send + 'static,
) -> Result<T, EngineError> {
    let mut writer = match x.body.writer.take() {
        Some(writer) => writer,
        None => begin(x)?,
    };
    let last = x.waiting(Box::pin(poll_fn(|cx| writer.poll_last(cx)))).await;
    report(x, &mut writer);
    let Some(last) = last.map_err(|failed| log(&failed, x))? else {
        return Err(EngineError::file(None));
    };
    let job = last.way_to(place).run(move || last.run_and(then));
    x.waiting_for(WaitKind::ThreadPool, Box::pin(job)).await.map_err(|failed| log(&failed, x))
}

/// Sees to it that a body which was read is on its way to a file with a name.
///
/// # Errors
/// As [`append`].
pub(crate) async fn name(x: &mut Exchange) -> Result<(), EngineError> {
    if x.body.file.as_ref().is_some_and(|file| file.named) {
        return Ok(());
    }
    let Some(old) = x.body.file.take() else {
        return append(x, Vec::new()).await;
    };
    let failed = |error| TempFileFailure { call: "pread()", path: path_of(&old), error };
    let mut from = 0;
    while from < old.len {
        let mut bytes = vec![0; (old.len - from).min(PIECE) as usize];
        let read = move |file: &FileHandle| file.pread(&mut bytes, from).map(|n| (n, bytes));
        match x.waiting(on_pool(&old.handle, read)).await {
            Ok((0, _)) => return Err(log(&failed(io::ErrorKind::UnexpectedEof.into()), x)),
            Ok((n, mut bytes)) => {
                bytes.truncate(n);
                from += n as u64;
                append(x, bytes).await?;
            }
            Err(error) => return Err(log(&failed(error), x)),
        }
    }
    append(x, Vec::new()).await
}

fn path_of(file: &TempFile) -> PathBuf {
    file.path.clone().unwrap_or_default()
}

/// Goes on with the body's file, or, if it has none, with one that the first write makes out of what is in memory.
fn begin(x: &mut Exchange) -> Result<Box<BodyFileWriter>, EngineError> {
    let (buffer_size, policy) = (x.plan.core.client_body_buffer_size, x.plan.core.small_file_writes);
    if let Some(file) = x.body.file.take() {
        let at = file.len;
        let file = BodyFile::of(file).map_err(|failed| log(&failed, x))?;
        return Ok(Box::new(BodyFileWriter::new(file, buffer_size, at, policy)));
    }
    let (directory, levels) = x.plan.core.client_body_temp_path.clone();
    let only = x.plan.core.client_body_in_file_only;
    let named = x.body.named || x.body.keeps_name || only != InFileOnly::Off;
    let name = if named { TempFileName::Kept } else { TempFileName::Removed };
    let remove = x.body.named || only != InFileOnly::On;
    let file = BodyFile::new(directory.to_path_buf(), levels, name, remove);
    let mut writer = Box::new(BodyFileWriter::new(file, buffer_size, 0, policy));
    writer.push(std::mem::take(&mut x.body.memory));
    Ok(writer)
}

/// Says that a file was made, if it was.
fn report(x: &Exchange, writer: &mut BodyFileWriter) {
    let Some(path) = writer.take_news() else { return };
    // A caller that wants the name says so itself.
    if x.body.named {
        return;
    }
    let kept = x.plan.core.client_body_in_file_only != InFileOnly::Off;
    let level = if kept { LogLevel::Notice } else { LogLevel::Warn };
    let name = path.display();
    x.log(level, &format_args!("a client request body is buffered to a temporary file {name}"));
}

/// Logs it; the request's error.
fn log(failed: &TempFileFailure, x: &Exchange) -> EngineError {
    x.log(LogLevel::Crit, failed);
    EngineError::file(failed.error.raw_os_error())
}

/// A body is copied to another file in pieces of this many bytes.
const PIECE: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use weir_test::TempDir;

    use super::*;
    use crate::testing;

    #[test]
    fn a_full_disk_is_an_error() {
        let full = weir_rt::file::open_append(Path::new("/dev/full")).expect("on every Linux");
        let error = full.pwrite_all(&[b"x"], 0).expect_err("no space");
        assert_eq!(error.raw_os_error(), Some(28));
    }

    fn with_directory(settings: &str, test: impl AsyncFnOnce(&mut Exchange, &Path)) {
        let directory = TempDir::new();
        let path = directory.path().display();
        let http = format!("server {{ listen 80; client_body_temp_path {path} 1 2; {settings} }}");
        testing::run(&http, "POST / HTTP/1.1\r\nHost: h\r\n\r\n", async |x| test(x, directory.path()).await);
    }

    #[test]
    fn a_body_goes_on_where_memory_ended() {
        with_directory("", async |x, _| {
            x.body.memory = b"in memory, ".to_vec();
            append(x, b"more, ".to_vec()).await.expect("written");
            append(x, b"and more".to_vec()).await.expect("written");
            finish(x).await.expect("written");
            assert!(x.body.memory.is_empty());
            let file = x.body.file.as_ref().expect("made");
            let mut all = vec![0; 100];
            let n = file.handle.pread(&mut all, 0).expect("readable");
            assert_eq!(&all[..n], b"in memory, more, and more");
            assert_eq!(file.len, n as u64);
            assert!(!file.path.as_ref().expect("named once").exists());
        });
    }

    #[test]
    fn a_body_that_was_read_gets_a_file_with_a_name() {
        with_directory("", async |x, place| {
            for in_file in [false, true] {
                let body = vec![b'x'; 3 * PIECE as usize + 5];
                x.body.replace(body.clone());
                if in_file {
                    x.body.named = false;
                    append(x, Vec::new()).await.expect("written");
                    finish(x).await.expect("written");
                }
                x.read_body_for_file().await.expect("written");
                let there = place.join("there");
                let ended = x.end_body_file(&there, move |mut file| {
                    let path = file.path().to_path_buf();
                    if in_file {
                        file.keep();
                    }
                    (fs::read(&path).expect("its name is there"), path)
                });
                let (bytes, path) = ended.await.expect("written");
                assert!(bytes == body);
                assert_eq!(path.exists(), in_file);
                assert!(x.body.file().is_none(), "the caller has it");
            }
        });
    }

    #[test]
    fn a_kept_file_stays_and_a_clean_one_goes() {
        for (setting, stays) in [("on", true), ("clean", false)] {
            with_directory(&format!("client_body_in_file_only {setting};"), async |x, _| {
                append(x, Vec::new()).await.expect("begun");
                finish(x).await.expect("made");
                let path = x.body.file.as_ref().and_then(|file| file.path.clone()).expect("named");
                assert!(path.exists());
                x.body.file = None;
                assert_eq!(path.exists(), stays);
            });
        }
    }

    #[test]
    fn a_directory_that_is_gone_is_the_server_s_fault() {
        with_directory("", async |x, directory| {
            fs::remove_dir_all(directory).expect("ours");
            append(x, b"x".to_vec()).await.expect("in memory");
            let error = finish(x).await.expect_err("nowhere to write");
            assert_eq!((error, error.status()), (EngineError::file(Some(2)), 500));
            fs::create_dir_all(directory).expect("back");
        });
    }
}
