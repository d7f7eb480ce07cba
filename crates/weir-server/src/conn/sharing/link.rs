//! The way to another process that has the same sockets.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

use super::lock;
use weir_engine::transport::sharing::{BadSharingFrame, SharingFrame};

/// A connection to a process, which takes no time of those who send on it.
pub(super) struct SiblingLink {
    socket: UnixStream,
    /// The rest of a frame of which a part is on its way.
    rest: Mutex<Vec<u8>>,
}

impl SiblingLink {
    /// # Errors
    /// The errno of ioctl(2).
    pub(super) fn new(socket: UnixStream) -> io::Result<SiblingLink> {
        socket.set_nonblocking(true)?;
        Ok(SiblingLink { socket, rest: Mutex::default() })
    }

    /// Sends a frame, unless there is no room for it; who listens no more is found out by the thread that waits for its end.
    pub(super) fn send(&self, frame: &[u8]) {
        let mut rest = lock(&self.rest);
        if !rest.is_empty() {
            let sent = (&self.socket).write(&rest).unwrap_or(0);
            rest.drain(..sent);
        }
        if rest.is_empty()
            && let Ok(sent @ 1..) = (&self.socket).write(frame)
        {
            rest.extend_from_slice(&frame[sent..]);
        }
    }
}

impl AsFd for SiblingLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Frames out of a connection.
pub(super) struct FrameReader {
    socket: UnixStream,
    bytes: Vec<u8>,
}

impl FrameReader {
    pub(super) fn new(socket: UnixStream) -> FrameReader {
        FrameReader { socket, bytes: Vec::new() }
    }

    /// The next frame. `None`: the other process has ended, or says what is no frame, or nothing for so long as `patience`.
    pub(super) fn next(&mut self, patience: Duration) -> Option<SharingFrame> {
        self.socket.set_nonblocking(false).ok()?;
        self.socket.set_read_timeout(Some(patience)).ok()?;
        loop {
            if let Some((frame, length)) = SharingFrame::read(&self.bytes).ok()? {
                self.bytes.drain(..length);
                return Some(frame);
            }
            if !self.read_some().ok()? {
                return None;
            }
        }
    }

    /// From here on nothing waits.
    pub(super) fn no_waiting(&self) -> io::Result<()> {
        self.socket.set_nonblocking(true)
    }

    /// What has come by now goes to `take`, frame by frame; `false`: the other process has ended, or says what is no frame.
    pub(super) fn all(&mut self, mut take: impl FnMut(SharingFrame)) -> bool {
        let has_more = match self.read_some() {
            Err(error) => error.kind() == ErrorKind::WouldBlock,
            Ok(is_open) => is_open,
        };
        let mut at = 0;
        let is_right = loop {
            match SharingFrame::read(&self.bytes[at..]) {
                Ok(None) => break true,
                Err(BadSharingFrame) => break false,
                Ok(Some((frame, length))) => {
                    at += length;
                    take(frame);
                }
            }
        };
        self.bytes.drain(..at);
        has_more && is_right
    }

    pub(super) fn say(&mut self, frame: &SharingFrame) -> io::Result<()> {
        self.socket.write_all(&frame.write())
    }

    /// `false`: the end.
    fn read_some(&mut self) -> io::Result<bool> {
        let mut room = [0; 16 << 10];
        loop {
            match self.socket.read(&mut room) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => {
                    let length = read?;
                    self.bytes.extend_from_slice(&room[..length]);
                    return Ok(length > 0);
                }
            }
        }
    }

    /// The connection, to send on it. What has come and was not read is lost.
    pub(super) fn into_socket(self) -> UnixStream {
        self.socket
    }
}

impl AsFd for FrameReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
