//! Messages between two processes of one machine: bytes, and descriptors that the other gets copies of (SCM_RIGHTS).

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::calls::retry;
use crate::net::{self, SockAddr};

/// One end of a pair. Both calls wait, for [`PATIENCE`] at most: the other end is a process that may be stuck.
#[derive(Debug)]
pub struct ProcessChannel {
    stream: UnixStream,
}

/// A message of the other side: bytes and descriptors.
#[derive(Debug)]
pub struct ChannelMessage {
    /// The message's bytes.
    pub bytes: Vec<u8>,
    /// Its descriptors, in the order they were sent, close-on-exec.
    pub fds: Vec<OwnedFd>,
}

impl ProcessChannel {
    /// Two ends, for a process and the child it is going to fork. Both are close-on-exec.
    ///
    /// # Errors
    /// The errno of socketpair(2).
    pub fn pair() -> io::Result<(ProcessChannel, ProcessChannel)> {
        let (a, b) = UnixStream::pair()?;
        Ok((ProcessChannel::over(a, PATIENCE)?, ProcessChannel::over(b, PATIENCE)?))
    }

    /// A channel to the process that listens on a unix socket at `addr`. Connecting waits for nothing: a listener whose queue
    /// is full is an error. Both calls wait for `patience` at most.
    ///
    /// # Errors
    /// `ENOENT`, `ECONNREFUSED`: nothing listens there; `EAGAIN`: its queue is full; `EACCES`.
    pub fn connect(addr: &SockAddr, patience: Duration) -> io::Result<ProcessChannel> {
        let socket = net::stream_socket(addr)?;
        net::connect_to(socket.as_raw_fd(), addr)?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        ProcessChannel::over(stream, patience)
    }

    /// A channel over a stream socket that is connected already. Both calls wait for `patience` at most.
    ///
    /// # Errors
    /// The errno of setsockopt(2).
    pub fn over(stream: UnixStream, patience: Duration) -> io::Result<ProcessChannel> {
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(ProcessChannel { stream })
    }

    /// Waits for the next message without an end, as long as the other process lives.
    ///
    /// # Errors
    /// As [`ProcessChannel::receive`].
    pub fn receive_patiently(&self) -> io::Result<Option<ChannelMessage>> {
        self.stream.set_read_timeout(None)?;
        self.receive()
    }

    /// The stream that messages go over: for what is said before the first one.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends a message. The descriptors stay open here.
    ///
    /// # Errors
    /// `EPIPE` if the other process is gone, `EAGAIN` if it does not read; the channel is of no use afterwards.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        head[8..].copy_from_slice(&(fds.len() as u64).to_le_bytes());
        (&self.stream).write_all(&head)?;
        for group in fds.chunks(GROUP) {
            let raw: Vec<RawFd> = group.iter().map(AsRawFd::as_raw_fd).collect();
            send_group(self.stream.as_fd(), &raw)?;
        }
        (&self.stream).write_all(bytes)
    }

    /// The next message; `None` when the other process is gone.
    ///
    /// # Errors
    /// `EAGAIN` if its rest does not come; the channel is of no use afterwards.
    pub fn receive(&self) -> io::Result<Option<ChannelMessage>> {
        let mut head = [0; HEAD];
        match (&self.stream).read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let (len, count) = (number(0), number(8));
        if len > LONGEST || count > MOST_FDS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut fds = Vec::new();
        while (fds.len() as u64) < count {
            let before = fds.len();
            receive_group(self.stream.as_fd(), &mut fds)?;
            if fds.len() == before {
                // This process has no descriptors left: the kernel dropped them.
                return Err(io::Error::from_raw_os_error(libc::EMFILE));
            }
        }
        let mut bytes = vec![0; len as usize];
        (&self.stream).read_exact(&mut bytes)?;
        Ok(Some(ChannelMessage { bytes, fds }))
    }
}

impl AsFd for ProcessChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Room for the control message of [`GROUP`] descriptors, aligned as the kernel wants it.
#[repr(C, align(8))]
struct ControlRoom([u8; CONTROL]);

/// Sends descriptors with a byte that carries them.
fn send_group(socket: BorrowedFd<'_>, fds: &[RawFd]) -> io::Result<()> {
    let mut byte = [0u8; 1];
    let mut control = ControlRoom([0; CONTROL]);
    let size = size_of_val(fds) as u32;
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: pointers and integers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: arithmetic only.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as _;
    // SAFETY: the control buffer has room for one header and GROUP descriptors, and `fds` is no longer than that.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size) as _;
        std::ptr::copy_nonoverlapping(fds.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), size as usize);
    }
    let sent = retry(|| {
        // SAFETY: `message` and all it points to outlive the call.
        let n = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        n as i32 // at most the one byte
    });
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives one group's byte, and puts what it carries after `fds`.
fn receive_group(socket: BorrowedFd<'_>, fds: &mut Vec<OwnedFd>) -> io::Result<()> {
    let mut byte = [0u8; 1];
    let mut control = ControlRoom([0; CONTROL]);
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: pointers and integers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    let received = retry(|| {
        // SAFETY: `message` and all it points to are writable for the lengths given.
        let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        n as i32 // at most the one byte
    });
    match received {
        1 => {}
        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
        _ => return Err(io::Error::last_os_error()),
    }
    // SAFETY: the kernel has filled the control buffer as far as `msg_controllen` says.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: not null, so within the control buffer.
        let (level, kind, len) = unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_RIGHTS {
            #[allow(clippy::unnecessary_cast, reason = "musl's type is another")]
            // SAFETY: arithmetic only.
            let size = len as usize - unsafe { libc::CMSG_LEN(0) } as usize;
            for i in 0..size / size_of::<RawFd>() {
                // SAFETY: the kernel put that many descriptors there; the place need not be aligned for them. Each is
                // fresh, and nothing else owns them.
                fds.push(unsafe {
                    let at = libc::CMSG_DATA(header).cast::<RawFd>().add(i);
                    OwnedFd::from_raw_fd(at.read_unaligned())
                });
            }
        }
        // SAFETY: both belong to the message just received.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(())
}

/// Two numbers: bytes and descriptors.
const HEAD: usize = 16;
/// Descriptors sent at a time; the kernel takes 253 (SCM_MAX_FD).
const GROUP: usize = 64;
/// CMSG_SPACE of so many, and to spare.
const CONTROL: usize = 64 + GROUP * size_of::<RawFd>();
/// No message is longer: the texts of a configuration are 64 MiB each at most.
const LONGEST: u64 = 1 << 30;
/// More than a process may have open by default limits of any system.
const MOST_FDS: u64 = 1 << 20;
/// How long the other process may take to read or to go on.
const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn bytes_and_descriptors_arrive_in_order() {
        let (ours, theirs) = ProcessChannel::pair().expect("descriptors");
        let null = File::open("/dev/null").expect("everywhere");
        let zero = File::open("/dev/zero").expect("everywhere");
        // More than one group, and more bytes than the socket buffers.
        let sent: Vec<BorrowedFd<'_>> =
            (0..150).map(|i| if i == 149 { zero.as_fd() } else { null.as_fd() }).collect();
        let bytes: Vec<u8> = (0..3_000_000u32).map(|i| i as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| ours.send(&bytes, &sent).expect("it is read"));
            let message = theirs.receive().expect("whole").expect("not the end");
            assert!(message.bytes == bytes);
            assert_eq!(message.fds.len(), 150);
            let device = |file: File| file.metadata().expect("open").rdev();
            let (null, zero) =
                (device(null.try_clone().expect("fds")), device(zero.try_clone().expect("fds")));
            for (i, fd) in message.fds.into_iter().enumerate() {
                assert_eq!(device(File::from(fd)), if i == 149 { zero } else { null }, "{i}");
            }
        });
        ours.send(b"", &[]).expect("it lives");
        assert!(theirs.receive().expect("whole").expect("a message").bytes.is_empty());
    }

    #[test]
    fn the_end_of_the_other_process_shows() {
        let (ours, theirs) = ProcessChannel::pair().expect("descriptors");
        drop(ours);
        assert!(theirs.receive().expect("no error").is_none());
        let error = theirs.send(&[0; 8], &[]).expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        let (ours, theirs) = ProcessChannel::pair().expect("descriptors");
        (&ours.stream).write_all(&[0xff; HEAD]).expect("it lives");
        assert_eq!(theirs.receive().expect_err("nonsense").kind(), io::ErrorKind::InvalidData);
    }
}
