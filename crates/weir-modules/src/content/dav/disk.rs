//! What WebDAV does to the disk. Plain calls that may block: for threads of the pool ([`away`]).

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use weir_engine::Exchange;
use weir_engine::log::LogLevel;
use weir_rt::file::errno::{EACCES, EEXIST, EISDIR, ENAMETOOLONG, ENOENT, ENOSPC, ENOTDIR, EPERM, EXDEV};
use weir_rt::file::{FileMeta, errno_text, lstat, stat};
use weir_trace::WaitKind;

use super::mapped;

/// Where a URI leads.
#[derive(Clone, Debug)]
pub(super) struct DavPath {
    /// The path as it was mapped, the slash at its end too.
    pub(super) full: PathBuf,
    /// The path without slashes at its end.
    pub(super) bare: PathBuf,
    /// It ends with a slash.
    pub(super) slash: bool,
}

impl DavPath {
    /// That of the request's own URI.
    pub(super) fn of(x: &mut Exchange) -> Result<DavPath, weir_engine::Verdict> {
        Ok(DavPath::new(&mapped(x)?))
    }

    fn new(path: &[u8]) -> DavPath {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let slash = end < path.len();
        let bare = if end == 0 { b"/" } else { &path[..end] };
        DavPath { full: to_path(path), bare: to_path(bare), slash }
    }
}

fn to_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Runs `job` on a thread of the pool.
pub(super) async fn away<T: Send + 'static>(x: &Exchange, job: impl FnOnce() -> T + Send + 'static) -> T {
    x.waiting_for(WaitKind::ThreadPool, Box::pin(weir_rt::blocking(job))).await
}

/// A system call that failed.
#[derive(Debug)]
pub(super) struct DiskFailure {
    call: &'static str,
    path: PathBuf,
    /// The second path, of rename(2).
    to: Option<PathBuf>,
    pub(super) errno: i32,
}

/// The status of what is not there.
#[derive(Clone, Copy)]
pub(super) struct NotFound(pub(super) u16);

/// What many calls came to: those that failed and were passed over, and the one that decided.
#[derive(Debug, Default)]
pub(super) struct DiskOutcome {
    pub(super) passed: Vec<DiskFailure>,
    pub(super) failed: Option<DiskFailure>,
}

type DiskResult<T = ()> = Result<T, DiskFailure>;

impl DiskFailure {
    fn of(call: &'static str, path: &Path, error: &io::Error) -> DiskFailure {
        // Without a number only a NUL in the path was refused: there is no such file.
        let errno = error.raw_os_error().unwrap_or(ENOENT);
        DiskFailure { call, path: path.to_path_buf(), to: None, errno }
    }

    /// A directory where a file was meant.
    pub(super) fn is_directory(call: &'static str, path: &Path) -> DiskFailure {
        DiskFailure { call, path: path.to_path_buf(), to: None, errno: EISDIR }
    }

    /// Something on the way is not a directory.
    pub(super) fn is_not_a_directory(&self) -> bool {
        self.errno == ENOTDIR
    }

    /// nginx's level and status for it.
    pub(super) fn judge(&self, not_found: NotFound) -> (LogLevel, u16) {
        match self.errno {
            // What nginx does to whole files it takes more seriously.
            _ if matches!(self.call, "open()" | "rename()" | "write()" | "chmod()" | "futimes()") => {
                (LogLevel::Crit, 500)
            }
            ENOENT | ENOTDIR | ENAMETOOLONG => (LogLevel::Error, not_found.0),
            EEXIST => (LogLevel::Error, 405),
            EACCES | EPERM => (LogLevel::Error, 403),
            ENOSPC => (LogLevel::Crit, 507),
            _ => (LogLevel::Crit, 500),
        }
    }
}

impl fmt::Display for DiskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.call, self.path.display())?;
        if let Some(to) = &self.to {
            write!(f, " to \"{}\"", to.display())?;
        }
        write!(f, " failed ({}: {})", self.errno, errno_text(self.errno))
    }
}

/// What the path names, a symbolic link itself.
pub(super) fn look(path: &Path) -> DiskResult<FileMeta> {
    lstat(path).map_err(|error| DiskFailure::of("lstat()", path, &error))
}

/// What the path leads to.
pub(super) fn look_through(path: &Path) -> DiskResult<FileMeta> {
    stat(path).map_err(|error| DiskFailure::of("stat()", path, &error))
}

/// A user that may read files may enter their directory.
pub(super) fn directory_access(access: u32) -> u32 {
    access | (access & 0o444) >> 2
}

/// Makes one directory.
pub(super) fn make_directory(path: &Path, access: u32) -> DiskResult {
    let made = DirBuilder::new().mode(access).create(path);
    made.map_err(|error| DiskFailure::of("mkdir()", path, &error))
}

/// Removes a file or a link.
pub(super) fn delete_file(path: &Path) -> DiskOutcome {
    let failed = fs::remove_file(path).err().map(|error| DiskFailure::of("unlink()", path, &error));
    DiskOutcome { failed, ..DiskOutcome::default() }
}

/// Removes a directory with all that is in it. Goes on where something can't be removed; what counts is the outermost.
pub(super) fn delete_directory(path: &Path) -> DiskOutcome {
    let mut done = DiskOutcome::default();
    empty(path, &mut done.passed);
    done.failed = fs::remove_dir(path).err().map(|error| DiskFailure::of("rmdir()", path, &error));
    done
}

fn empty(directory: &Path, failures: &mut Vec<DiskFailure>) {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => return failures.push(DiskFailure::of("opendir()", directory, &error)),
    };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return failures.push(DiskFailure::of("readdir()", directory, &error)),
        };
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            empty(&path, failures);
            note(failures, "rmdir()", &path, fs::remove_dir(&path));
        } else {
            note(failures, "unlink()", &path, fs::remove_file(&path));
        }
    }
}

fn note(failures: &mut Vec<DiskFailure>, call: &'static str, path: &Path, result: io::Result<()>) {
    if let Err(error) = result {
        failures.push(DiskFailure::of(call, path, &error));
    }
}

/// A file that gets its place.
pub(super) struct ArrivingFile {
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
    /// The permission bits that it gets before; else it keeps its own.
    pub(super) access: Option<u32>,
    /// The time of modification that it gets before, seconds since 1970.
    pub(super) modified: Option<i64>,
    /// Directories missing on the way are made, with these bits.
    pub(super) directories: Option<u32>,
}

impl ArrivingFile {
    /// Renames the file; across file systems it is copied beside its place first, so that it always appears whole.
    pub(super) fn settle(&self) -> DiskResult {
        let ArrivingFile { from, to, .. } = self;
        if let Some(access) = self.access {
            let set = fs::set_permissions(from, Permissions::from_mode(access));
            set.map_err(|error| DiskFailure::of("chmod()", from, &error))?;
        }
        if let Some(seconds) = self.modified {
            let set = set_modified(from, seconds);
            set.map_err(|error| DiskFailure::of("futimes()", from, &error))?;
        }
        let mut renamed = fs::rename(from, to);
        if let (Err(error), Some(access), Some(parent)) = (&renamed, self.directories, to.parent())
            && error.raw_os_error() == Some(ENOENT)
        {
            let made = DirBuilder::new().recursive(true).mode(access).create(parent);
            made.map_err(|error| DiskFailure::of("mkdir()", parent, &error))?;
            renamed = fs::rename(from, to);
        }
        match renamed {
            Err(error) if error.raw_os_error() == Some(EXDEV) => {
                copy_file(from, to)?;
                fs::remove_file(from).map_err(|error| DiskFailure::of("unlink()", from, &error))
            }
            Err(error) => {
                Err(DiskFailure { to: Some(to.clone()), ..DiskFailure::of("rename()", from, &error) })
            }
            Ok(()) => Ok(()),
        }
    }
}

fn set_modified(path: &Path, seconds: i64) -> io::Result<()> {
    let since = Duration::from_secs(seconds.unsigned_abs());
    let time = match seconds < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(since),
        false => SystemTime::UNIX_EPOCH.checked_add(since),
    };
    let time = time.ok_or(io::ErrorKind::InvalidInput)?;
    let times = FileTimes::new().set_modified(time).set_accessed(time);
    OpenOptions::new().write(true).open(path)?.set_times(times)
}

/// Copies a file with its permissions and time of modification: into a file beside `to`, which is then renamed.
pub(super) fn copy_file(from: &Path, to: &Path) -> DiskResult {
    let (mut source, meta) = open_source(from).map_err(|error| DiskFailure::of("open()", from, &error))?;
    let (beside, mut file) = create_beside(to, meta.mode() & 0o777)?;
    let mut copy = || {
        io::copy(&mut source, &mut file).map_err(|error| DiskFailure::of("write()", &beside, &error))?;
        let times = meta.modified().map(|time| FileTimes::new().set_modified(time).set_accessed(time));
        let set = times.and_then(|times| file.set_times(times));
        set.map_err(|error| DiskFailure::of("futimes()", &beside, &error))?;
        let renamed = fs::rename(&beside, to);
        renamed.map_err(|error| DiskFailure {
            to: Some(to.to_path_buf()),
            ..DiskFailure::of("rename()", &beside, &error)
        })
    };
    let copied = copy();
    if copied.is_err() {
        // The copy is lost in any case; that its rest can't be removed would hide why.
        let _ = fs::remove_file(&beside);
    }
    copied
}

/// Opens what is to be copied, without waiting for the other end of a FIFO.
fn open_source(path: &Path) -> io::Result<(File, fs::Metadata)> {
    let file = OpenOptions::new().read(true).custom_flags(weir_rt::file::O_NONBLOCK).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() { Ok((file, meta)) } else { Err(io::Error::from_raw_os_error(EPERM)) }
}

/// A new file beside `path`: its name and ten digits.
fn create_beside(path: &Path, access: u32) -> DiskResult<(PathBuf, File)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let mut name = path.as_os_str().to_os_string();
        name.push(format!(".{:010}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let beside = PathBuf::from(name);
        match OpenOptions::new().write(true).create_new(true).mode(access).open(&beside) {
            Ok(file) => return Ok((beside, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(DiskFailure::of("open()", path, &error)),
        }
    }
}

/// Moves a directory to where nothing is. What can't be copied is passed over; a directory that was not copied whole is
/// not removed.
///
/// # Errors
/// The directory itself can't be made.
pub(super) fn move_directory(from: &Path, to: &Path) -> DiskResult<DiskOutcome> {
    if fs::rename(from, to).is_ok() {
        return Ok(DiskOutcome::default());
    }
    let mut done = copy_directory(from, to)?;
    if done.passed.is_empty() {
        return Ok(delete_directory(from));
    }
    done.failed = done.passed.pop();
    Ok(done)
}

/// Copies a directory to where nothing is. What can't be copied is passed over.
///
/// # Errors
/// The directory itself can't be made.
pub(super) fn copy_directory(from: &Path, to: &Path) -> DiskResult<DiskOutcome> {
    let mode = look(from)?.mode & 0o777;
    make_directory(to, mode)?;
    let mut done = DiskOutcome::default();
    copy_inside(from, to, &mut done.passed);
    Ok(done)
}

/// Copies what is in a directory; links and what is neither file nor directory are left out, as in nginx.
fn copy_inside(from: &Path, to: &Path, failures: &mut Vec<DiskFailure>) {
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        Err(error) => return failures.push(DiskFailure::of("opendir()", from, &error)),
    };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return failures.push(DiskFailure::of("readdir()", from, &error)),
        };
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        let result = match look(&path) {
            Ok(meta) if meta.kind == weir_rt::file::FileKind::Dir => {
                make_directory(&copy, meta.mode & 0o777).map(|()| copy_inside(&path, &copy, failures))
            }
            Ok(meta) if meta.kind == weir_rt::file::FileKind::File => copy_file(&path, &copy),
            Ok(_) => Ok(()),
            Err(failure) => Err(failure),
        };
        failures.extend(result.err());
    }
    let times = fs::metadata(from).and_then(|meta| meta.modified());
    let set = times.and_then(|time| {
        let times = FileTimes::new().set_modified(time).set_accessed(time);
        File::open(to)?.set_times(times)
    });
    note(failures, "utimes()", to, set);
}

#[cfg(test)]
mod tests {
    use weir_test::TempDir;

    use super::*;

    #[test]
    fn a_place_is_known_with_and_without_its_slash() {
        let place = DavPath::new(b"/root/a//");
        assert_eq!((place.bare.as_os_str(), place.slash), (OsStr::new("/root/a"), true));
        let place = DavPath::new(b"/");
        assert_eq!((place.bare.as_os_str(), place.slash), (OsStr::new("/"), true));
        assert!(!DavPath::new(b"/a").slash);
    }

    #[test]
    fn a_directory_is_copied_and_removed_with_all_that_is_in_it() {
        let root = TempDir::new();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        fs::create_dir_all(from.join("a/b")).expect("fresh");
        fs::write(from.join("a/b/file"), "text").expect("writable");
        fs::set_permissions(from.join("a/b/file"), Permissions::from_mode(0o640)).expect("ours");
        std::os::unix::fs::symlink("/etc", from.join("link")).expect("fresh");
        set_modified(&from.join("a/b/file"), 1_000_000).expect("ours");
        let done = copy_directory(&from, &to).expect("made");
        assert!(done.passed.is_empty() && done.failed.is_none(), "{done:?}");
        let meta = stat(&to.join("a/b/file")).expect("copied");
        assert_eq!((meta.size, meta.mtime_s, meta.mode & 0o777), (4, 1_000_000, 0o640));
        assert!(lstat(&to.join("link")).is_err());
        let done = delete_directory(&from);
        assert!(done.passed.is_empty() && done.failed.is_none() && !from.exists(), "{done:?}");
        assert!(Path::new("/etc").exists());
    }

    #[test]
    fn a_copy_replaces_what_was_there_and_leaves_nothing_behind() {
        let root = TempDir::new();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        fs::write(&from, "new").expect("writable");
        fs::write(&to, "what was there").expect("writable");
        copy_file(&from, &to).expect("copied");
        assert_eq!(fs::read_to_string(&to).expect("there"), "new");
        let missing = copy_file(&from, &root.path().join("none/to")).expect_err("no such folder");
        assert_eq!((missing.call, missing.errno), ("open()", ENOENT));
        assert_eq!(fs::read_dir(root.path()).expect("there").count(), 2);
    }

    #[test]
    fn failures_have_nginx_levels_and_statuses() {
        let judge =
            |errno| DiskFailure { call: "x()", path: PathBuf::new(), to: None, errno }.judge(NotFound(409));
        assert_eq!(judge(ENOENT), (LogLevel::Error, 409));
        assert_eq!(judge(EEXIST), (LogLevel::Error, 405));
        assert_eq!(judge(EACCES), (LogLevel::Error, 403));
        assert_eq!(judge(ENOSPC), (LogLevel::Crit, 507));
        assert_eq!(judge(5), (LogLevel::Crit, 500));
    }
}
