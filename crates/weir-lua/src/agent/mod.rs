//! The privileged agent is a process of its own, with rights that the server has not; what their scripts share is the
//! server's: dictionaries and events. Two sockets connect them. On one the agent asks, and waits for the response: 20
//! microseconds a call, where a worker's takes a fraction of one. On the other it receives what was published.
//!
//! Neither believes the other's bytes: an attacker who has broken into the server must not get the agent's rights by
//! them.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use weir_engine::log::{self, LogLevel};
use weir_engine::wire::{IpcReader, IpcWriter};
use weir_engine::worker::WorkerCounts;

use crate::dict::call::{DictCall, DictReply};

/// The agent's way to the server, in its process.
pub(crate) static LINK: OnceLock<Mutex<UnixStream>> = OnceLock::new();

/// Whether this is the agent's process.
pub(crate) fn is_here() -> bool {
    LINK.get().is_some()
}

/// Has the server do what is asked of its dictionary `name`. Nothing where it is gone.
pub(crate) fn ask(name: &str, call: &DictCall<'_>) -> DictReply {
    let mut out = IpcWriter::default();
    out.number(DICT);
    out.bytes(name.as_bytes());
    call.encode(&mut out);
    exchange_or_lose(&out.0)
}

/// From now on the agent hears what is published.
pub(crate) fn join() {
    exchange_or_lose(&JOIN.to_le_bytes());
}

/// It does not any more.
pub(crate) fn leave() {
    // A server that has ended sends nothing any more, as it should be.
    exchange(&LEAVE.to_le_bytes());
}

/// What the server's workers have counted.
pub(crate) fn counts() -> WorkerCounts {
    let mut from = exchange_or_lose(&COUNTS.to_le_bytes()).keys.into_iter();
    let mut number = || from.next().and_then(|bytes| IpcReader(&bytes).number()).unwrap_or_default();
    WorkerCounts {
        accepted: number(),
        requests: number(),
        active: number(),
        writing: number(),
        waiting: number(),
    }
}

/// What the server says to that; nothing where it is gone.
pub(crate) fn exchange_or_lose(question: &[u8]) -> DictReply {
    exchange(question).unwrap_or_else(lost)
}

/// Asks the server; `None` when it is gone.
pub(crate) fn exchange(question: &[u8]) -> Option<DictReply> {
    let stream = LINK.get()?.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = send(&stream, question).and_then(|()| receive(&stream));
    answer.ok().flatten().and_then(|answer| DictReply::decode(&answer))
}

/// The error that a script gets when the server is gone. The agent is about to end, too.
pub(crate) fn lost() -> DictReply {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        log::cycle(LogLevel::Error, &"the server is gone, and what the privileged agent shares with it");
    }
    DictReply::default()
}

/// Sends a message after its length.
pub(crate) fn send(mut stream: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    let mut message = Vec::with_capacity(8 + bytes.len());
    message.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    message.extend_from_slice(bytes);
    stream.write_all(&message)
}

/// The next message; `None` at the end of the connection.
pub(crate) fn receive(mut stream: &UnixStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; 8];
    match stream.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let len = u64::from_le_bytes(head);
    if len > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new(); // as long as bytes come, whatever the head says
    match stream.take(len).read_to_end(&mut bytes)? as u64 == len {
        true => Ok(Some(bytes)),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

pub(crate) const DICT: u64 = 0;
pub(crate) const JOIN: u64 = 1;
pub(crate) const LEAVE: u64 = 2;
pub(crate) const PUBLISH: u64 = 3;
pub(crate) const COUNTS: u64 = 4;

/// No message is longer: all keys of the largest dictionary that is sensible.
const LONGEST: u64 = 1 << 30;
