//! Bodies that do not fit in memory: their files, those of requests under `client_body_temp_path`.
//!
//! Files are named by a counter, `0000000001` and on, inside as many levels of directories as configured, each named by
//! the counter's last digits. A file loses its name as soon as it is open, unless `client_body_in_file_only` keeps
//! it. All calls that touch the disk are made on a thread of the pool.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use weir_rt::file::{FileHandle, create_temp, errno_text, on_pool};

use crate::error::EngineError;
use crate::exchange::body_file::BodyFileWriter;
use crate::exchange::{Exchange, TempFile};
use crate::log::LogLevel;
use crate::settings::location::InFileOnly;

/// Adds `piece` to the file of the request's body; a new file begins with what the body has in memory so far. The last
/// pieces are in the file after [`finish`].
///
/// # Errors
/// [`EngineError::file`], logged: no file could be made, or the disk is full, also for a piece before this one.
pub(crate) async fn append(x: &mut Exchange, piece: Vec<u8>) -> Result<(), EngineError> {
    if x.body.file.is_none() {
        x.body.file = Some(create(x).await?);
        let memory = std::mem::take(&mut x.body.memory);
        write(x, memory).await?;
    }
    write(x, piece).await
}

/// Waits until all of the body is in its file, if it has one.
///
/// # Errors
/// As [`append`].
pub(crate) async fn finish(x: &mut Exchange) -> Result<(), EngineError> {
    let Some(mut writer) = x.body.writer.take() else { return Ok(()) };
    let finished = x.waiting(Box::pin(poll_fn(|cx| writer.poll_finish(cx)))).await;
    finished.map_err(|error| write_failed(x, error))
}

/// Sees to it that a body which was read has a file with a name.
///
/// # Errors
/// As [`append`].
pub(crate) async fn name(x: &mut Exchange) -> Result<(), EngineError> {
    if x.body.file.as_ref().is_some_and(|file| file.named) {
        return Ok(());
    }
    let Some(old) = x.body.file.take() else {
        append(x, Vec::new()).await?;
        return finish(x).await;
    };
    x.body.file = Some(create(x).await?);
    let failed = |error| TempFileFailure { call: "pread()", path: path_of(&old), error };
    let mut from = 0;
    while from < old.len {
        let mut bytes = vec![0; (old.len - from).min(PIECE) as usize];
        let read = move |file: &FileHandle| file.pread(&mut bytes, from).map(|n| (n, bytes));
        match x.waiting(on_pool(&old.handle, read)).await {
            Ok((0, _)) => return Err(failed(io::ErrorKind::UnexpectedEof.into()).log(x)),
            Ok((n, mut bytes)) => {
                bytes.truncate(n);
                from += n as u64;
                write(x, bytes).await?;
            }
            Err(error) => return Err(failed(error).log(x)),
        }
    }
    finish(x).await
}

fn path_of(file: &TempFile) -> PathBuf {
    file.path.clone().unwrap_or_default()
}

async fn create(x: &mut Exchange) -> Result<TempFile, EngineError> {
    let (directory, levels) = x.plan.core.client_body_temp_path.clone();
    let only = x.plan.core.client_body_in_file_only;
    let wanted = x.body.named;
    let named = wanted || only != InFileOnly::Off;
    let name = if named { TempFileName::Kept } else { TempFileName::Removed };
    let made = weir_rt::blocking(move || make(&directory, levels, name));
    match x.waiting(Box::pin(made)).await {
        Ok((handle, path)) => {
            if !wanted {
                let level = if named { LogLevel::Notice } else { LogLevel::Warn };
                let name = path.display();
                x.log(level, &format_args!("a client request body is buffered to a temporary file {name}"));
            }
            let remove = wanted || only == InFileOnly::Clean;
            Ok(TempFile { handle: Rc::new(handle), path: Some(path), len: 0, remove, named })
        }
        Err(failed) => Err(failed.log(x)),
    }
}

async fn write(x: &mut Exchange, bytes: Vec<u8>) -> Result<(), EngineError> {
    let buffer_size = x.plan.core.client_body_buffer_size;
    let Some(file) = &mut x.body.file else { return Ok(()) };
    file.len += bytes.len() as u64;
    let mut writer = match x.body.writer.take() {
        Some(writer) => writer,
        None => match file.handle.try_clone() {
            Ok(handle) => Box::new(BodyFileWriter::new(handle, buffer_size, file.len - bytes.len() as u64)),
            Err(error) => return Err(write_failed(x, error)),
        },
    };
    writer.push(bytes);
    if writer.is_due() {
        let begun = x.waiting(Box::pin(poll_fn(|cx| writer.poll_begin(cx)))).await;
        begun.map_err(|error| write_failed(x, error))?;
        if let Some(wire) = x.transport.h1() {
            writer.take_spent().into_iter().for_each(|piece| wire.stream.give_spare(piece));
        }
    }
    x.body.writer = Some(writer);
    Ok(())
}

fn write_failed(x: &Exchange, error: io::Error) -> EngineError {
    let path = x.body.file.as_ref().map(path_of).unwrap_or_default();
    TempFileFailure { call: "pwrite()", path, error }.log(x)
}

/// A file that can't be used.
#[derive(Debug)]
pub struct TempFileFailure {
    /// The name of the system call that failed.
    pub call: &'static str,
    /// Whose path it was given.
    pub path: PathBuf,
    /// The error of that call.
    pub error: io::Error,
}

impl TempFileFailure {
    fn log(&self, x: &Exchange) -> EngineError {
        x.log(LogLevel::Crit, self);
        EngineError::file(self.error.raw_os_error())
    }
}

impl fmt::Display for TempFileFailure {
    /// nginx's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = self.error.raw_os_error();
        let reason = errno.map_or("unexpected end", errno_text);
        write!(f, "{} \"{}\" failed ({}: {reason})", self.call, self.path.display(), errno.unwrap_or(0))
    }
}

/// What becomes of a new file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TempFileName {
    /// The file keeps its name after it was opened.
    Kept,
    /// It is removed at once: the file goes with its handle.
    Removed,
}

/// Makes the file of the next free number, and the directories it lies in; on a thread that may wait for the disk.
///
/// # Errors
/// Which call failed.
pub fn make(
    directory: &Path,
    levels: [u8; 3],
    name: TempFileName,
) -> Result<(FileHandle, PathBuf), TempFileFailure> {
    make_from(directory, levels, name, &NUMBER).map_err(|(path, error)| TempFileFailure {
        call: "open()",
        path,
        error,
    })
}

fn make_from(
    directory: &Path,
    levels: [u8; 3],
    name: TempFileName,
    number: &AtomicU32,
) -> Result<(FileHandle, PathBuf), (PathBuf, io::Error)> {
    let mut step = 1;
    loop {
        let path = path(directory, levels, number.fetch_add(step, Ordering::Relaxed).wrapping_add(step));
        match create_in(directory, &path) {
            Ok(handle) if name == TempFileName::Kept => return Ok((handle, path)),
            Ok(handle) => {
                return match fs::remove_file(&path) {
                    Ok(()) => Ok((handle, path)),
                    Err(error) => Err((path, error)),
                };
            }
            // Left by an earlier process or made by another one: far away there is room.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => step = LEAP,
            Err(error) => return Err((path, error)),
        }
    }
}

/// Creates the file, and first, if they are missing, the levels between it and `directory`.
fn create_in(directory: &Path, path: &Path) -> io::Result<FileHandle> {
    let parent = path.parent().unwrap_or(directory);
    match create_temp(path, 0o600) {
        Err(error)
            if error.kind() == io::ErrorKind::NotFound && parent != directory && directory.is_dir() =>
        {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            create_temp(path, 0o600)
        }
        result => result,
    }
}

/// `directory/9/78/0123456789` for levels 1 and 2.
fn path(directory: &Path, levels: [u8; 3], number: u32) -> PathBuf {
    let name = format!("{number:010}");
    let mut path = directory.to_path_buf();
    let mut end = name.len();
    for level in levels.into_iter().map(usize::from).take_while(|&level| level > 0) {
        let start = end.saturating_sub(level);
        path.push(&name[start..end]);
        end = start;
    }
    path.push(name);
    path
}

/// The number of the last file made in this process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A body is copied to another file in pieces of this many bytes.
const PIECE: u64 = 64 * 1024;

/// How far the number goes when its file exists already.
const LEAP: u32 = 123_456;

#[cfg(test)]
mod tests {
    use weir_test::TempDir;

    use super::*;
    use crate::testing;

    #[test]
    fn levels_take_the_last_digits() {
        let at = |levels| path(Path::new("/t"), levels, 123_456_789).display().to_string();
        assert_eq!(at([0, 0, 0]), "/t/0123456789");
        assert_eq!(at([1, 2, 0]), "/t/9/78/0123456789");
        assert_eq!(at([2, 2, 2]), "/t/89/67/45/0123456789");
    }

    #[test]
    fn files_lose_their_name_or_keep_it() {
        let dir = TempDir::new();
        let directory = dir.path().join("temp");
        fs::create_dir(&directory).expect("a fresh directory");
        let number = AtomicU32::new(0);
        let (unnamed, first) =
            make_from(&directory, [1, 2, 0], TempFileName::Removed, &number).expect("made");
        assert!(first.ends_with("1/00/0000000001"), "{}", first.display());
        assert!(!first.exists());
        unnamed.pwrite_all(&[b"hello"], 0).expect("written");
        unnamed.pwrite_all(&[b"HE"], 0).expect("written");
        assert_eq!(unnamed.meta().expect("open").size, 5);
        let (_, second) = make_from(&directory, [1, 2, 0], TempFileName::Kept, &number).expect("made");
        assert!(second.exists());
        number.store(1, Ordering::Relaxed);
        let (_, third) = make_from(&directory, [1, 2, 0], TempFileName::Kept, &number).expect("made");
        assert!(third.ends_with("0000123458"), "{}", third.display());
        fs::remove_dir_all(&directory).expect("ours");
        let (path, error) =
            make_from(&directory, [1, 0, 0], TempFileName::Kept, &number).expect_err("the directory is gone");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(path.starts_with(&directory));
    }

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
        with_directory("", async |x, _| {
            for in_file in [false, true] {
                let body = vec![b'x'; 3 * PIECE as usize + 5];
                x.body.replace(body.clone());
                if in_file {
                    x.body.named = false;
                    append(x, Vec::new()).await.expect("written");
                    finish(x).await.expect("written");
                }
                x.read_body_into_file().await.expect("written");
                let mut file = x.body.take_file().expect("made");
                let path = file.path.clone().expect("named");
                assert!(fs::read(&path).expect("its name is there") == body);
                if in_file {
                    file.keep();
                }
                drop(file);
                assert_eq!(path.exists(), in_file);
            }
        });
    }

    #[test]
    fn a_kept_file_stays_and_a_clean_one_goes() {
        for (setting, stays) in [("on", true), ("clean", false)] {
            with_directory(&format!("client_body_in_file_only {setting};"), async |x, _| {
                append(x, Vec::new()).await.expect("made");
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
            let error = append(x, b"x".to_vec()).await.expect_err("nowhere to write");
            assert_eq!((error, error.status()), (EngineError::file(Some(2)), 500));
            fs::create_dir_all(directory).expect("back");
        });
    }
}
