//! One pipe of a process: what was read and not taken yet, and the coroutine that waits.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use weir_engine::log::LogLevel;
use weir_rt::file::errno_text;
use weir_rt::process::watch::{WatchInterest, WatchedDescriptor};

use crate::luajit::state::LuaState;

/// Our end of a pipe.
pub(super) struct ProcessPipe {
    fd: RefCell<Option<WatchedDescriptor>>,
    /// Bytes read at a time (`buffer_size`).
    size: usize,
    buffer: RefCell<Vec<u8>>,
    /// Nothing follows what is in the buffer.
    eof: Cell<bool>,
    /// A coroutine waits for it.
    pub(super) busy: Rc<Cell<bool>>,
    /// That one, to be woken when it is closed.
    waker: RefCell<Option<Waker>>,
    /// What a waiting caller gets when it is closed.
    closed: Cell<&'static str>,
}

/// How much is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadKind {
    /// All up to the end.
    All,
    /// This many bytes.
    Bytes(usize),
    /// A line.
    Line,
    /// What there is, this many bytes at most.
    Any(usize),
}

/// What was read, or why it is not what was wanted, and what there is of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PipeRead(Result<Vec<u8>, (String, Vec<u8>)>);

impl PipeRead {
    pub(super) fn push(&self, l: LuaState) -> i32 {
        match &self.0 {
            Ok(bytes) => {
                l.push_bytes(bytes);
                1
            }
            Err((why, partial)) => {
                l.push_nil();
                l.push_bytes(why.as_bytes());
                l.push_bytes(partial);
                3
            }
        }
    }
}

impl ProcessPipe {
    pub(super) fn new(fd: WatchedDescriptor, size: usize) -> ProcessPipe {
        ProcessPipe {
            fd: RefCell::new(Some(fd)),
            size: size.min(LARGEST),
            buffer: RefCell::default(),
            eof: Cell::new(false),
            busy: Rc::default(),
            waker: RefCell::default(),
            closed: Cell::new("aborted"),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.fd.borrow().is_none()
    }

    /// Closes it; a waiting caller gets `why`.
    pub(super) fn close(&self, why: &'static str) {
        self.closed.set(why);
        let fd = self.fd.take();
        drop(fd);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// What there is without waiting; `None`: not enough.
    pub(super) fn read(&self, kind: ReadKind) -> Option<PipeRead> {
        let fd = self.fd.borrow();
        let Some(fd) = &*fd else { return Some(self.rest(self.closed.get(), kind)) };
        loop {
            if let Some(bytes) = take(&mut self.buffer.borrow_mut(), kind) {
                return Some(PipeRead(Ok(bytes)));
            }
            if self.eof.get() {
                return Some(match kind {
                    ReadKind::All => PipeRead(Ok(self.buffer.take())),
                    _ => self.rest("closed", kind),
                });
            }
            match fd.read(&mut self.buffer.borrow_mut(), self.size) {
                Ok(0) => self.eof.set(true),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Some(self.rest(errno_text(error.raw_os_error().unwrap_or_default()), kind));
                }
            }
        }
    }

    /// Whether more, or the end, has come for the coroutine that waits for it.
    pub(super) fn has_news(&self) -> bool {
        let fd = self.fd.borrow();
        let Some(fd) = fd.as_ref().filter(|_| self.busy.get() && !self.eof.get()) else { return false };
        match fd.read(&mut self.buffer.borrow_mut(), self.size) {
            Ok(count) => {
                self.eof.set(count == 0);
                true
            }
            Err(error) => error.kind() == ErrorKind::Interrupted,
        }
    }

    /// What there is, which is not what was wanted, because of `why`.
    pub(super) fn rest(&self, why: &str, kind: ReadKind) -> PipeRead {
        let mut partial = self.buffer.take();
        if kind == ReadKind::Line {
            partial.retain(|byte| *byte != b'\r');
        }
        PipeRead(Err((why.to_owned(), partial)))
    }

    pub(super) fn poll_read(&self, cx: &mut Context<'_>, kind: ReadKind) -> Poll<PipeRead> {
        loop {
            if let Some(wanted) = self.read(kind) {
                return Poll::Ready(wanted);
            }
            if let Err(why) = std::task::ready!(self.poll_ready(cx, WatchInterest::Read)) {
                return Poll::Ready(self.rest(&why, kind));
            }
        }
    }

    fn poll_ready(&self, cx: &mut Context<'_>, interest: WatchInterest) -> Poll<Result<(), String>> {
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        match &*self.fd.borrow() {
            Some(fd) => fd.poll_ready(cx, interest).map_err(|_| "failed to add event".to_owned()),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Writes what there is room for of `data`, of which this many bytes were sent before; `None`: there is no more.
    pub(super) fn write(&self, data: &[u8], sent: &mut usize) -> Option<Result<(), String>> {
        let fd = self.fd.borrow();
        let Some(fd) = &*fd else { return Some(Err(self.closed.get().to_owned())) };
        while *sent < data.len() {
            match fd.write(&data[*sent..]) {
                Ok(n) => *sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or_default();
                    let (at, reason) = (std::ptr::from_ref(self).addr(), errno_text(errno));
                    let message = format!("lua pipe write data error pipe:{at:016X} ({errno}: {reason})");
                    crate::run::lend::log_plain(LogLevel::Debug, &message);
                    let closed = error.kind() == ErrorKind::BrokenPipe;
                    return Some(Err((if closed { "closed" } else { reason }).to_owned()));
                }
            }
        }
        Some(Ok(()))
    }

    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        data: &[u8],
        sent: &mut usize,
    ) -> Poll<Result<(), String>> {
        loop {
            if let Some(written) = self.write(data, sent) {
                return Poll::Ready(written);
            }
            if let Err(why) = std::task::ready!(self.poll_ready(cx, WatchInterest::Write)) {
                return Poll::Ready(Err(why));
            }
        }
    }
}

/// As much is read at a time, whatever was asked for.
const LARGEST: usize = 1 << 20;

/// Takes from the front of `buffer` what is wanted, if it is there.
fn take(buffer: &mut Vec<u8>, kind: ReadKind) -> Option<Vec<u8>> {
    let count = match kind {
        ReadKind::All => return None,
        ReadKind::Bytes(count) => Some(count).filter(|count| buffer.len() >= *count)?,
        ReadKind::Any(most) => Some(most.min(buffer.len())).filter(|count| *count > 0)?,
        ReadKind::Line => buffer.iter().position(|byte| *byte == b'\n')? + 1,
    };
    let rest = buffer.split_off(count);
    let mut taken = std::mem::replace(buffer, rest);
    if kind == ReadKind::Line {
        taken.pop();
        // Wherever they are, as in OpenResty.
        taken.retain(|byte| *byte != b'\r');
    }
    Some(taken)
}

/// A coroutine uses it.
pub(super) struct PipeBusy {
    flag: Rc<Cell<bool>>,
    /// What is logged when the wait is called off.
    say: Option<&'static str>,
}

impl PipeBusy {
    /// `None`: another one waits already.
    pub(super) fn begin(flag: &Rc<Cell<bool>>) -> Option<PipeBusy> {
        (!flag.replace(true)).then(|| PipeBusy { flag: flag.clone(), say: None })
    }

    pub(super) fn or_say(mut self, say: &'static str) -> PipeBusy {
        self.say = Some(say);
        self
    }

    /// It was not called off.
    pub(super) fn done(mut self) {
        self.say = None;
    }
}

impl Drop for PipeBusy {
    fn drop(&mut self) {
        self.flag.set(false);
        if let Some(say) = self.say {
            crate::run::lend::log_plain(LogLevel::Debug, &say);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_taken() {
        let mut buffer = b"one\r\ntwo\nthree".to_vec();
        assert_eq!(take(&mut buffer, ReadKind::Line), Some(b"one".to_vec()));
        assert_eq!(take(&mut buffer, ReadKind::Bytes(20)), None);
        assert_eq!(take(&mut buffer, ReadKind::Bytes(2)), Some(b"tw".to_vec()));
        assert_eq!(take(&mut buffer, ReadKind::Line), Some(b"o".to_vec()));
        assert_eq!(take(&mut buffer, ReadKind::Line), None);
        assert_eq!(take(&mut buffer, ReadKind::All), None);
        assert_eq!(take(&mut buffer, ReadKind::Any(3)), Some(b"thr".to_vec()));
        assert_eq!(take(&mut buffer, ReadKind::Any(9)), Some(b"ee".to_vec()));
        assert_eq!(take(&mut buffer, ReadKind::Any(9)), None);
    }
}
