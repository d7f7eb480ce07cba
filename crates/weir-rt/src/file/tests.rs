use super::own_handle::with_own;
use super::*;
use crate::process::tests::in_child;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::task::Poll;

/// A directory of its own, removed at the end.
pub(super) struct Dir(pub(super) PathBuf);

impl Dir {
    pub(super) fn new(name: &str) -> Dir {
        // Without links, which some tests are about.
        let directory = std::env::temp_dir().canonicalize().expect("there is one");
        let dir = directory.join(format!("weir-rt-file-{}-{name}", process::pid()));
        // A killed process of the same number may have left one.
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("temporary directory is writable");
        Dir(dir)
    }

    fn file(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, contents).expect("writable");
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("ours");
    }
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

#[test]
fn open_keeps_the_errno() {
    let dir = Dir::new("open");
    assert_eq!(errno(open(&dir.0.join("missing"))), Some(libc::ENOENT));
    assert_eq!(errno(open(Path::new("/dev/null/x"))), Some(libc::ENOTDIR));
    assert_eq!(errno(open(Path::new("a\0b"))), Some(libc::ENOENT));
    assert_eq!(errno(stat(&PathBuf::from("x".repeat(5000)))), Some(libc::ENAMETOOLONG));
    let long = dir.0.join("d/".repeat(300)).join("../".repeat(300)).join("x");
    assert_eq!(errno(open(&long)), Some(libc::ENOENT), "longer than the short buffer");
}

#[test]
fn the_first_bytes_are_those_of_the_file_or_none() {
    let dir = Dir::new("first");
    let bytes: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
    let file = open(&dir.file("a", &bytes)).expect("just written");
    let first = |len| file.bytes_cached(0, len).expect("readable").map(|bytes| bytes.to_vec());
    for len in [0, 1, 4096, 10_000] {
        assert_eq!(first(len).as_deref(), bytes.get(..len), "{len} bytes");
    }
    assert_eq!(first(10_001), None, "the file is shorter");
}

#[test]
fn a_fifo_does_not_hold_the_loop() {
    let dir = Dir::new("fifo");
    let path = dir.0.join("fifo");
    let c = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: a NUL-terminated path.
    assert_eq!(unsafe { libc::mkfifo(c.as_ptr(), 0o600) }, 0);
    let fifo = open(&path).expect("does not wait for a writer");
    assert_eq!(fifo.meta().expect("open").kind, FileKind::Other);
}

#[test]
fn metadata_by_path_link_and_handle() {
    let dir = Dir::new("meta");
    let path = dir.file("a", b"12345");
    let link = dir.0.join("link");
    std::os::unix::fs::symlink(&path, &link).expect("writable");
    let meta = stat(&link).expect("exists");
    assert_eq!((meta.kind, meta.size), (FileKind::File, 5));
    assert_eq!(meta, open(&path).expect("exists").meta().expect("open"));
    assert_eq!(lstat(&link).expect("exists").kind, FileKind::Other);
    assert_eq!(stat(&dir.0).expect("exists").kind, FileKind::Dir);
    let std = std::fs::metadata(&path).expect("exists");
    use std::os::unix::fs::MetadataExt;
    assert_eq!((meta.mtime_s, i64::from(meta.mtime_ns)), (std.mtime(), std.mtime_nsec()));
    assert_eq!((meta.ino, meta.dev, meta.mode), (std.ino(), std.dev(), std.mode()));
    assert_eq!(meta.uid, std.uid());
}

#[test]
fn reads_and_writes_at_offsets() {
    let dir = Dir::new("rw");
    let path = dir.0.join("new");
    let file = create_temp(&path, 0o600).expect("new");
    assert_eq!(errno(create_temp(&path, 0o600)), Some(libc::EEXIST));
    assert_eq!(file.pwrite(b"world", 6).expect("writable"), 5);
    assert_eq!(file.pwrite(b"hello ", 0).expect("writable"), 6);
    let mut buf = [0u8; 32];
    assert_eq!(file.pread(&mut buf, 3).expect("readable"), 8);
    assert_eq!(&buf[..8], b"lo world");
    assert_eq!(file.pread(&mut buf, 11).expect("readable"), 0);
    assert_eq!(errno(file.pread(&mut buf, u64::MAX)), Some(libc::EOVERFLOW));
}

#[test]
fn logs_are_appended_to() {
    let dir = Dir::new("log");
    let path = dir.0.join("access.log");
    let (a, b) = (open_append(&path).expect("creates"), open_append(&path).expect("exists"));
    for (log, line) in [(&a, "1\n"), (&b, "2\n"), (&a, "3\n")] {
        assert_eq!(log.append(line.as_bytes()).expect("writable"), 2);
    }
    assert_eq!(std::fs::read(&path).expect("readable"), b"1\n2\n3\n");
    assert_eq!(a.meta().expect("open").mode & 0o133, 0, "no more than 0644");
}

#[test]
fn unlinked_files_leave_nothing_behind() {
    let dir = Dir::new("unlinked");
    for file in [create_unlinked(&dir.0), create_then_unlink(&dir.0)] {
        let file = file.expect("writable directory");
        assert_eq!(file.pwrite(b"x", 1 << 20).expect("writable"), 1);
        assert_eq!(file.meta().expect("open").mode & 0o777, 0o600);
    }
    assert_eq!(std::fs::read_dir(&dir.0).expect("exists").count(), 0);
    assert_eq!(errno(create_unlinked(&dir.0.join("missing"))), Some(libc::ENOENT));
}

#[test]
fn sendfile_sends_ranges_and_reports_truncation() {
    let dir = Dir::new("sendfile");
    let path = dir.file("a", b"0123456789");
    let file = open(&path).expect("exists");
    let (ours, mut theirs) = UnixStream::pair().expect("descriptors");
    assert_eq!(file.sendfile(ours.as_raw_fd(), 2, 5).expect("room"), 5);
    assert_eq!(file.sendfile(ours.as_raw_fd(), 8, 100).expect("room"), 2);
    let mut got = [0; 7];
    theirs.read_exact(&mut got).expect("just sent");
    assert_eq!(&got, b"2345689");
    std::fs::File::options().write(true).open(&path).and_then(|f| f.set_len(4)).expect("ours");
    assert_eq!(file.sendfile(ours.as_raw_fd(), 5, 5).expect("room"), 0);
    assert_eq!(errno(file.sendfile(-1, 0, 1)), Some(libc::EBADF));
}

#[test]
fn sendfile_to_a_full_socket_does_not_wait() {
    let dir = Dir::new("full");
    let file = open(&dir.file("a", &[7; 1 << 20])).expect("exists");
    let (ours, _theirs) = UnixStream::pair().expect("descriptors");
    ours.set_nonblocking(true).expect("a socket");
    let mut at = 0;
    let errno = loop {
        match file.sendfile(ours.as_raw_fd(), at, 1 << 20) {
            Ok(n) => at += n as u64,
            Err(e) => break e.raw_os_error(),
        }
        assert!(at < 1 << 20, "a socket took a megabyte");
    };
    assert_eq!(errno, Some(libc::EAGAIN));
}

#[test]
fn what_was_just_written_is_resident_to_its_end() {
    let dir = Dir::new("resident");
    let file = open(&dir.file("a", &[1; 300_001])).expect("exists");
    for (offset, len, expected) in [
        (0, 300_001, true),
        (4095, 2, true),
        (300_000, 1, true),
        (7, 0, true),
        (1 << 30, 1, false),
        (0, 400_000, false),
        (u64::MAX, 1, false),
    ] {
        assert_eq!(file.resident(offset, len), expected, "{len} at {offset}");
        if len > 0 {
            assert_eq!(file.probe(offset, len), expected, "{len} at {offset}, the fallback");
        }
    }
}

/// tmpfs knows no reads that may not wait, and has nothing to wait for.
#[test]
fn files_in_memory_are_resident() {
    let name = CString::new("weir-test").expect("no NUL");
    // SAFETY: a name that ends with NUL; the descriptor is nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC)) };
    let file = FileHandle::from(fd);
    assert_eq!(file.pwrite(&[7; 50_000], 0).expect("memory"), 50_000);
    assert!(file.is_in_memory());
    for (offset, len, expected) in
        [(0, 50_000, true), (49_999, 1, true), (1, 50_000, false), (50_000, 1, false)]
    {
        assert_eq!(file.probe(offset, len), expected, "{len} at {offset}");
        let mut bytes = b"before".to_vec();
        assert_eq!(crate::sys::append_resident(&file, &mut bytes, offset, len as usize), expected);
        assert_eq!(bytes.len() as u64, 6 + if expected { len } else { 0 });
    }
    assert!(!open(Path::new("/proc/self/status")).expect("on every Linux").is_in_memory());
}

#[test]
fn residence_is_known_also_of_files_we_do_not_own() {
    let name = "file::tests::residence_is_known_also_of_files_we_do_not_own";
    if let Some(out) = in_child(name, &[]) {
        assert!(out.status.success(), "{out:?}");
        return;
    }
    let dir = Dir::new("foreign");
    let file = open(&dir.file("a", &[1; 100_000])).expect("exists");
    if process::is_root() {
        // The effective user of this thread alone, so that the directory can be removed again.
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, u32::MAX, 65534, u32::MAX) }, 0);
    }
    assert!(file.resident(0, 100_000));
    assert!(!file.resident(90_000, 20_000));
    let clone = file.try_clone().expect("a descriptor");
    assert!(clone.resident(0, 100_000));
    // SAFETY: no pointers; back to the real user, which made the directory.
    unsafe { libc::syscall(libc::SYS_setresuid, u32::MAX, libc::getuid(), u32::MAX) };
}

#[test]
fn readahead_brings_back_what_was_dropped() {
    let dir = Dir::new("readahead");
    let file = open(&dir.file("a", &[1; 1 << 20])).expect("exists");
    // SAFETY: no pointers.
    unsafe {
        libc::fsync(file.fd());
        libc::posix_fadvise(file.fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
    }
    if file.resident(0, 1 << 20) {
        eprintln!("not dropped: the temporary directory is in memory");
    }
    file.readahead_blocking(0, 1 << 30).expect("ends at the end of the file");
    assert!(file.resident(0, 1 << 20) && file.probe(0, 1 << 20));
}

#[test]
fn errors_have_the_c_librarys_words() {
    assert_eq!(errno_text(libc::ENOENT), "No such file or directory");
    assert_eq!(errno_text(libc::EACCES), "Permission denied");
    if cfg!(target_env = "gnu") {
        assert_eq!(errno_text(libc::EADDRINUSE), "Address already in use");
    }
    assert!(errno_text(133).len() > 3);
    for wild in [-1, 134, i32::MAX, i32::MIN] {
        assert_eq!(errno_text(wild), "Unknown error");
    }
}

/// Without a descriptor for the pool's thread the loop does it.
#[test]
fn what_a_thread_can_not_do_is_done_here() {
    let dir = Dir::new("on-pool");
    let file = open(&dir.file("a", b"0123456789")).expect("there");
    let read = |file: &FileHandle| {
        let mut bytes = [0; 4];
        file.pread(&mut bytes, 3).map(|n| (n, bytes, std::thread::current().id()))
    };
    let refused = |errno| Err(io::Error::from_raw_os_error(errno));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut here = with_own(refused(libc::EMFILE), &file, read);
    let Poll::Ready(Ok((n, bytes, thread))) = here.as_mut().poll(&mut cx) else {
        panic!("it waits, or fails")
    };
    assert_eq!((n, &bytes, thread), (4, b"3456", std::thread::current().id()));
    let mut failed = with_own(refused(libc::EBADF), &file, read);
    let Poll::Ready(failed) = failed.as_mut().poll(&mut cx) else { panic!("it waits") };
    assert_eq!(errno(failed), Some(libc::EBADF));
}

#[test]
fn a_signal_amid_a_transfer_is_no_failure() {
    let ends = |errors: &[c_int]| {
        let mut errors = errors.iter();
        transfer(|| {
            let Some(errno) = errors.next() else { return 8 };
            // SAFETY: the errno of this thread, which is always there.
            unsafe { *libc::__errno_location() = *errno };
            -1
        })
    };
    assert_eq!(ends(&[libc::EINTR, libc::EINTR]).expect("after two signals"), 8);
    assert_eq!(errno(ends(&[libc::EINTR, libc::EIO])), Some(libc::EIO));
}
