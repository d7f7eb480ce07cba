//! The bare io_uring loop: multishot accept and receive, a ring of buffers, one silent SEND per piece of input, one
//! enter per turn.
//!
//! Sends leave no completion (`SKIP_SUCCESS`), so a second send of a connection may start before a blocked first one
//! ends. That is right for the bench's clients alone, which ask again only when they have read everything.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::http::{Answers, Input};

/// Serves until the process is killed.
pub fn run(listener: &TcpListener, answers: &Answers) -> io::Result<()> {
    let mut ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(8 * ENTRIES)
        .build(ENTRIES)?;
    let mut buffers = Buffers::register(&ring)?;
    let mut inputs: Vec<Input> = Vec::new();
    let mut out = vec![accept(listener)];
    let mut done = Vec::new();
    loop {
        push(&mut ring, &mut out)?;
        match ring.submit_and_wait(1) {
            Err(error) if error.raw_os_error() != Some(libc::EINTR) => return Err(error),
            _ => {}
        }
        done.extend(ring.completion().map(|entry| (entry.user_data(), entry.result(), entry.flags())));
        for (id, result, flags) in done.drain(..) {
            match id {
                ACCEPT => {
                    if result >= 0 {
                        let fd = result as usize;
                        if inputs.len() <= fd {
                            inputs.resize_with(fd + 1, Input::default);
                        }
                        inputs[fd].clear();
                        out.push(receive(result));
                    }
                    if !cqueue::more(flags) {
                        out.push(accept(listener));
                    }
                }
                // Only sends that failed are heard of; the receive ends as well then.
                SENT => {}
                fd => received(fd as i32, result, flags, &mut inputs, &mut buffers, answers, &mut out),
            }
        }
        buffers.publish();
    }
}

fn received(
    fd: i32,
    result: i32,
    flags: u32,
    inputs: &mut [Input],
    buffers: &mut Buffers,
    answers: &Answers,
    out: &mut Vec<squeue::Entry>,
) {
    if result <= 0 && result != -libc::ENOBUFS {
        // SAFETY: the descriptor is this loop's own; the receive has ended, so the ring no longer holds it.
        unsafe { libc::close(fd) };
        return;
    }
    if let Some(buffer) = cqueue::buffer_select(flags) {
        let mut owed = inputs[fd as usize].requests(buffers.filled(buffer, result as usize));
        buffers.give_back(buffer);
        while owed > 0 {
            let (bytes, taken) = answers.take(owed);
            owed -= taken;
            out.push(send(fd, bytes));
        }
    }
    if !cqueue::more(flags) {
        out.push(receive(fd));
    }
}

fn accept(listener: &TcpListener) -> squeue::Entry {
    opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).build().user_data(ACCEPT)
}

fn receive(fd: i32) -> squeue::Entry {
    opcode::RecvMulti::new(Fd(fd), GROUP).build().user_data(fd as u64)
}

fn send(fd: i32, bytes: &[u8]) -> squeue::Entry {
    opcode::Send::new(Fd(fd), bytes.as_ptr(), bytes.len() as u32)
        .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS)
        .user_data(SENT)
}

fn push(ring: &mut IoUring, out: &mut Vec<squeue::Entry>) -> io::Result<()> {
    for entry in out.drain(..) {
        // SAFETY: what an entry points to is the answers, which live as long as `run`, hence as long as the ring.
        while unsafe { ring.submission().push(&entry) }.is_err() {
            ring.submit()?;
        }
    }
    Ok(())
}

/// The ring of receive buffers shared with the kernel.
struct Buffers {
    entries: *mut BufRingEntry,
    memory: Vec<u8>,
    tail: u16,
}

impl Buffers {
    fn register(ring: &IoUring) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let length = usize::from(BUFFERS) * size_of::<BufRingEntry>();
        // SAFETY: a new private mapping, page-aligned as the kernel wants it, kept until the process ends.
        let entries = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0)
        };
        if entries == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping holds exactly the entries announced.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries as u64, BUFFERS, GROUP, 0)? };
        let memory = vec![0; usize::from(BUFFERS) * BUFFER_BYTES];
        let mut buffers = Self { entries: entries.cast(), memory, tail: 0 };
        (0..BUFFERS).for_each(|buffer| buffers.give_back(buffer));
        buffers.publish();
        Ok(buffers)
    }

    fn filled(&self, buffer: u16, length: usize) -> &[u8] {
        let start = usize::from(buffer) * BUFFER_BYTES;
        &self.memory[start..start + length]
    }

    /// The kernel sees it at the next `publish`.
    fn give_back(&mut self, buffer: u16) {
        let slot = usize::from(self.tail & (BUFFERS - 1));
        // SAFETY: the slot lies in the mapping, and the kernel does not read slots behind the published tail; the
        // buffer's memory is not moved as long as `self` lives.
        unsafe {
            let entry = &mut *self.entries.add(slot);
            entry.set_addr(self.memory.as_mut_ptr().add(usize::from(buffer) * BUFFER_BYTES) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the tail is a u16 inside the mapping, shared with the kernel, which reads it with acquire.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

const ENTRIES: u32 = 1024;
const BUFFERS: u16 = 1024;
const BUFFER_BYTES: usize = 4096;
const GROUP: u16 = 0;
/// Identities beside the descriptors, which are the identities of receives.
const ACCEPT: u64 = u64::MAX;
const SENT: u64 = u64::MAX - 1;
