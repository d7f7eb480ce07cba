//! File ranges: whole, parts, mixed with memory, cold, truncated.

mod driver_common;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use driver_common::*;
use weir_rt::{FileHandle, OutputChunk, RecvOutcome, SendError, blocking};

/// A file of `len` bytes of pattern 0, without a name.
fn patterned_file(len: usize) -> (Rc<FileHandle>, File) {
    let handle = weir_rt::file::create_unlinked(&std::env::temp_dir()).expect("a temporary file");
    let mut file = File::from(OwnedFd::from(handle));
    write_pattern(&mut file, 0, len);
    file.flush().expect("flush");
    (Rc::new(FileHandle::from(OwnedFd::from(file.try_clone().expect("dup")))), file)
}

fn range(file: &Rc<FileHandle>, offset: u64, len: u64) -> OutputChunk {
    OutputChunk::File { file: Rc::clone(file), offset, len }
}

both!(files_arrive_whole, || async {
    for len in [1, 100, 4096, 16_384, 16_385, 100_000, 5 << 20] {
        let (stream, client) = pair().await;
        let reader = blocking(move || read_pattern(client, 0));
        let (file, _keep) = patterned_file(len);
        let sender = async {
            stream.queue(range(&file, 0, len as u64));
            stream.drained(0, None).await.expect("sent");
            assert_eq!(stream.sent(), len as u64);
            drop(stream);
        };
        assert_eq!(join(reader, sender).await.0, len);
    }
});

both!(ranges_and_memory_keep_their_order, || async {
    let (file, _keep) = patterned_file(3 << 20);
    let parts: [(u64, u64); 7] =
        [(0, 10), (500, 4000), (5, 20_000), (1 << 20, 700_000), (9, 1), (2 << 20, 1 << 20), (77, 16_000)];
    let mut expected = Vec::new();
    for (n, (offset, len)) in parts.into_iter().enumerate() {
        expected.extend_from_slice(format!("part {n}: ").as_bytes());
        expected.extend_from_slice(&patterned(0, offset as usize, len as usize));
        expected.extend_from_slice(b" end\r\n");
    }
    let (stream, mut client) = pair().await;
    let reader = blocking(move || {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut client, &mut bytes).map(|_| bytes)
    });
    let sender = async {
        for (n, (offset, len)) in parts.into_iter().enumerate() {
            stream.queue(OutputChunk::Bytes(format!("part {n}: ").into_bytes()));
            stream.queue(range(&file, offset, len));
            stream.queue(OutputChunk::Static(b" end\r\n"));
        }
        stream.drained(0, None).await.expect("sent");
        drop(stream);
    };
    let bytes = join(reader, sender).await.0.expect("read");
    assert!(bytes == expected, "{} bytes of {}", bytes.len(), expected.len());
});

both!(a_cold_file_is_read_in_first, || async {
    const LEN: usize = 3 << 20;
    let (file, keep) = patterned_file(LEN);
    keep.sync_all().expect("fsync");
    // SAFETY: no pointers. Where the file system keeps everything in memory the advice does nothing.
    unsafe { libc::posix_fadvise(keep.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    println!("cold: {}", !file.resident(0, LEN as u64));
    let (stream, client) = pair().await;
    let reader = blocking(move || read_pattern(client, 0));
    let sender = async {
        stream.queue(range(&file, 0, LEN as u64));
        stream.drained(0, None).await.expect("sent");
        drop(stream);
    };
    assert_eq!(join(reader, sender).await.0, LEN);
});

both!(a_truncated_file_fails_the_connection, || async {
    for (promised, left) in [(100, 10), (100_000, 40_000), (4 << 20, 1 << 20), (4 << 20, 0)] {
        let (file, keep) = patterned_file(promised);
        keep.set_len(left as u64).expect("truncate");
        let (stream, client) = pair().await;
        let reader = blocking(move || read_pattern(client, 0));
        let sender = async {
            stream.queue(range(&file, 0, promised as u64));
            assert_eq!(stream.drained(0, None).await, Err(SendError::Truncated));
            assert_eq!((stream.sent(), stream.unsent()), (left as u64, 0));
            drop(stream);
        };
        assert_eq!(join(reader, sender).await.0, left, "no byte that the file does not have");
    }
});

/// A file whose beginning can't be read: the first page of no process is mapped.
fn unreadable() -> Rc<FileHandle> {
    Rc::new(weir_rt::file::open(Path::new("/proc/self/mem")).expect("on every Linux"))
}

both!(a_file_that_cannot_be_read_is_not_a_client_that_has_gone, || async {
    let file = unreadable();
    for length in [100, 1 << 20] {
        let (stream, client) = pair().await;
        let reader = blocking(move || read_pattern(client, 0));
        let sender = async {
            stream.queue(range(&file, 0, length));
            assert_eq!(stream.drained(0, None).await, Err(SendError::File(libc::EIO)));
            assert_eq!((stream.file_error(), stream.error()), (Some(SendError::File(libc::EIO)), None));
            drop(stream);
        };
        assert_eq!(join(reader, sender).await.0, 0);
    }
});

both!(who_waits_for_the_peer_learns_that_a_file_failed, || async {
    let file = unreadable();
    for length in [100, 1 << 20] {
        let (stream, client) = pair().await;
        // The peer waits for the file, and has nothing to say itself.
        let reader = blocking(move || read_pattern(client, 0));
        let server = async {
            stream.queue(range(&file, 0, length));
            stream.flush();
            assert!(matches!(stream.recv(None).await, RecvOutcome::Eof));
            assert_eq!(stream.file_error(), Some(SendError::File(libc::EIO)));
            // Nothing that follows takes its place.
            stream.queue(OutputChunk::Static(b"more"));
            stream.flush();
            assert_eq!(stream.drained(0, None).await, Err(SendError::File(libc::EIO)));
        };
        assert_eq!(join(reader, server).await.0, 0);
    }
});

both!(a_file_to_a_slow_or_vanished_reader, || async {
    const LEN: usize = 24 << 20;
    let (file, _keep) = patterned_file(LEN);
    let (stream, client) = pair().await;
    let leaves = blocking(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        std::io::Read::read_exact(&mut &client, &mut vec![0; 8 << 20]).expect("read");
    });
    let sender = async {
        stream.queue(range(&file, 0, LEN as u64));
        assert!(matches!(stream.drained(0, None).await, Err(SendError::Closed(_))));
    };
    join(leaves, sender).await;
});

both!(a_stream_dropped_while_its_file_is_read_in, || async {
    let (file, keep) = patterned_file(2 << 20);
    keep.sync_all().expect("fsync");
    // SAFETY: no pointers.
    unsafe { libc::posix_fadvise(keep.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    for _ in 0..10 {
        let (stream, _client) = pair().await;
        stream.queue(range(&file, 0, 2 << 20));
        stream.flush();
        drop(stream);
    }
    weir_rt::sleep(std::time::Duration::from_millis(20)).await;
});
