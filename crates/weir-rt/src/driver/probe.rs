//! Whether io_uring does here what the driver needs: tried, not looked up, since containers and sandboxes forbid it
//! in ways that version numbers don't show.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::pool::{BufferPool, FreeBuffers, PoolBlocks};

use super::uring::build;
use crate::pool::bufring::{BufRing, GROUP};
use crate::sys;

/// Checks that all operations and flags the io_uring driver uses really work here. Asked once per process.
///
/// # Errors
/// What failed, the kernel's reason, and what forbids it where that can be told: `ENOSYS` or `EPERM` where io_uring is
/// forbidden, `EINVAL` where it is too old (Linux 6.1 is the oldest that can pass).
pub fn probe_io_uring() -> io::Result<()> {
    static ANSWER: OnceLock<Result<(), (io::ErrorKind, String)>> = OnceLock::new();
    let answer = ANSWER.get_or_init(|| probe().map_err(|e| (e.kind(), with_cause(&e))));
    answer.clone().map_err(|(kind, text)| io::Error::new(kind, text))
}

/// The words of `error`, and what is the cause of it.
fn with_cause(error: &io::Error) -> String {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    match cause(error.kind(), disabled.trim(), crate::process::is_filtered()) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// What forbids io_uring, where the kernel says `kind`: the setting `kernel.io_uring_disabled` is `disabled`, and a seccomp filter
/// is in force if `filtered`.
fn cause(kind: io::ErrorKind, disabled: &str, filtered: bool) -> Option<&'static str> {
    Some(match (kind, disabled) {
        (io::ErrorKind::PermissionDenied, "2") => {
            "the setting kernel.io_uring_disabled is 2, for all processes"
        }
        (io::ErrorKind::PermissionDenied, "1") => {
            "the setting kernel.io_uring_disabled is 1: only those of the group kernel.io_uring_group may use it"
        }
        (io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported, _) if filtered => {
            "a seccomp filter forbids it, as those of container runtimes do (io_uring_setup, io_uring_enter, \
             io_uring_register)"
        }
        (io::ErrorKind::Unsupported, _) => "the kernel was built without it, or is older than 5.1",
        (io::ErrorKind::OutOfMemory, _) => "the limit of locked memory is too low (ulimit -l)",
        _ => return None,
    })
}

fn probe() -> io::Result<()> {
    let ring = step("setup with single issuer and deferred task run", build(8, 64))?;
    if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
        return Err(failed("waiting with a time limit, or keeping completions"));
    }
    let buffers = step("provided buffer ring", BufRing::register(&ring, 8))?;
    let mut pool = BufferPool::new(PoolBlocks::new(8)?, FreeBuffers::Ring(buffers));
    pool.publish();
    let mut probe = UringProbe { ring };
    let result = probe.run(&mut pool);
    drop(probe); // the ring, before its buffers
    result
}

struct UringProbe {
    ring: IoUring,
}

impl UringProbe {
    fn run(&mut self, pool: &mut BufferPool) -> io::Result<()> {
        // Loopback may be missing in a sandbox; that is no fault of io_uring.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (more, fd) = self.accept_multishot(&listener)?;
        let mut server = TcpStream::from(sys::adopt(fd));
        if !more {
            return Err(failed("multishot accept"));
        }
        self.receive_multishot(&client, pool)?;
        self.cancel(&client)?;
        self.send(&client, &mut server)?;
        self.send_silently()
    }

    fn accept_multishot(&mut self, listener: &TcpListener) -> io::Result<(bool, i32)> {
        let accept = opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).flags(libc::SOCK_CLOEXEC).build();
        let (result, flags) = self.call("multishot accept", accept.user_data(1), 1)?;
        Ok((cqueue::more(flags), result))
    }

    fn receive_multishot(&mut self, client: &TcpStream, pool: &mut BufferPool) -> io::Result<()> {
        let (mut a, b) = std::os::unix::net::UnixStream::pair()?;
        b.set_nonblocking(true)?;
        let recv = opcode::RecvMulti::new(Fd(b.as_raw_fd()), GROUP).build();
        a.write_all(b"weir")?;
        let (result, flags) = self.call("multishot receive", recv.user_data(2), 2)?;
        let Some(bid) = cqueue::buffer_select(flags) else { return Err(failed("buffer selection")) };
        let id = pool.taken(bid);
        // SAFETY: four bytes of this buffer were written by the receive just completed.
        let right =
            result == 4 && unsafe { std::slice::from_raw_parts(pool.start(id).as_ptr(), 4) } == b"weir";
        if !right || !cqueue::more(flags) {
            return Err(failed("multishot receive into a provided buffer"));
        }
        // For `cancel`: armed, with nothing to receive.
        let recv = opcode::RecvMulti::new(Fd(client.as_raw_fd()), GROUP).build();
        self.push(recv.user_data(3))
    }

    fn cancel(&mut self, client: &TcpStream) -> io::Result<()> {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::fd(Fd(client.as_raw_fd())).all()).build();
        match self.call("cancelling by descriptor", cancel.flags(squeue::Flags::SKIP_SUCCESS), 3) {
            Err(e) if e.raw_os_error() == Some(libc::ECANCELED) => Ok(()),
            Err(e) => Err(e),
            Ok(_) => Err(failed("cancelling by descriptor")),
        }
    }

    fn send(&mut self, client: &TcpStream, server: &mut TcpStream) -> io::Result<()> {
        static BYTES: [u8; 4] = *b"weir";
        let send =
            opcode::Send::new(Fd(client.as_raw_fd()), BYTES.as_ptr(), 4).flags(libc::MSG_NOSIGNAL).build();
        self.call("send", send.user_data(4), 4)?;
        let mut echo = [0; 4];
        server.read_exact(&mut echo)?;
        if echo == BYTES { Ok(()) } else { Err(failed("send")) }
    }

    /// A send that succeeds without a word, and one that does not fit and says so within its call.
    fn send_silently(&mut self) -> io::Result<()> {
        static BYTES: [u8; 1 << 20] = [0; 1 << 20];
        let (mut reader, writer) = std::os::unix::net::UnixStream::pair()?;
        for (length, data) in [(4, 5), (BYTES.len(), 6)] {
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL;
            let send = opcode::Send::new(Fd(writer.as_raw_fd()), BYTES.as_ptr(), length as u32).flags(flags);
            self.push(send.build().user_data(data).flags(squeue::Flags::SKIP_SUCCESS))?;
            // What the sends leave comes before this.
            self.push(opcode::Nop::new().build().user_data(7))?;
            while self
                .ring
                .submitter()
                .submit_and_wait(1)
                .is_err_and(|e| e.raw_os_error() == Some(libc::EINTR))
            {}
            let said: Vec<_> = self.ring.completion().map(|c| (c.user_data(), c.result())).collect();
            let right = match said.as_slice() {
                [(7, _)] => length == 4,
                [(6, result), (7, _)] => (-libc::EAGAIN..BYTES.len() as i32).contains(result),
                _ => false,
            };
            if !right {
                return Err(failed("silent send"));
            }
        }
        let mut echo = [1; 4];
        reader.read_exact(&mut echo)?;
        if echo == [0; 4] { Ok(()) } else { Err(failed("silent send")) }
    }

    /// Submits and waits up to a second for the completion tagged `data`.
    fn call(&mut self, what: &str, entry: squeue::Entry, data: u64) -> io::Result<(i32, u32)> {
        self.push(entry)?;
        let second = Timespec::new().sec(1);
        for _ in 0..8 {
            match self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&second)) {
                Err(e) if e.raw_os_error() == Some(libc::ETIME) => return Err(failed(what)),
                Err(e) if e.raw_os_error() != Some(libc::EINTR) => return step(what, Err(e)),
                _ => (),
            }
            if let Some(c) = self.ring.completion().find(|c| c.user_data() == data) {
                let result = c.result();
                return if result < 0 {
                    Err(io::Error::from_raw_os_error(-result))
                } else {
                    Ok((result, c.flags()))
                };
            }
        }
        Err(failed(what))
    }

    fn push(&mut self, entry: squeue::Entry) -> io::Result<()> {
        // SAFETY: entries of this module point to statics and to buffers that outlive the ring; `probe` drops the
        // ring before them.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| failed("submission queue"))
    }
}

fn step<T>(what: &str, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|e| io::Error::new(e.kind(), format!("io_uring: {what}: {e}")))
}

fn failed(what: &str) -> io::Error {
    io::Error::other(format!("io_uring: {what}: not as needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forbids_it_is_named() {
        use io::ErrorKind::{InvalidInput, OutOfMemory, PermissionDenied, Unsupported};
        for (kind, disabled, filtered, words) in [
            (PermissionDenied, "2", true, Some("io_uring_disabled is 2")),
            (PermissionDenied, "1", false, Some("io_uring_group")),
            (PermissionDenied, "0", true, Some("seccomp")),
            (PermissionDenied, "", false, None),
            (Unsupported, "0", true, Some("seccomp")),
            (Unsupported, "", false, Some("older than 5.1")),
            (OutOfMemory, "0", true, Some("ulimit -l")),
            (InvalidInput, "2", true, None),
        ] {
            let found = cause(kind, disabled, filtered);
            assert_eq!(found.is_some(), words.is_some(), "{kind:?}");
            assert!(found.unwrap_or_default().contains(words.unwrap_or_default()), "{found:?}");
        }
        assert_eq!(io::Error::from_raw_os_error(libc::EPERM).kind(), PermissionDenied);
        assert_eq!(io::Error::from_raw_os_error(libc::ENOSYS).kind(), Unsupported);
        assert_eq!(io::Error::from_raw_os_error(libc::ENOMEM).kind(), OutOfMemory);
    }
}
