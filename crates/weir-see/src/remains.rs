//! What remains of a server process that crashed: the last seconds of its workers, in memory that its master has too.
//!
//! A thread of the server writes them there as a timeline for Perfetto: every five seconds if requests were retained,
//! so that they are there also after a SIGKILL, and once more when a signal is about to end the process, with the
//! requests that were in flight. The memory is a file without a name, opened before the fork; a record is begun after
//! the one before it and counts when the header names it, so one that was interrupted changes nothing.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use weir_rt::{clock, crash, process};
use weir_trace::{InFlight, KeptRequest};

use crate::responses::record;
use crate::source::{BRIEFLY, ServerSource, ticks};

/// Memory that outlives the process which writes to it.
#[derive(Debug)]
pub struct CrashRemains {
    file: File,
}

impl CrashRemains {
    /// Memory for a crash record, still empty.
    ///
    /// # Errors
    /// The errno of memfd_create(2).
    pub fn new() -> io::Result<CrashRemains> {
        Ok(CrashRemains { file: process::memory_file("weir-remains")? })
    }

    /// Replaces the record.
    fn write(&self, number: u64, record: &[u8]) -> io::Result<()> {
        let at = if number.is_multiple_of(2) { HEADER } else { HEADER + LARGEST };
        let record = &record[..record.len().min(LARGEST as usize)];
        self.file.write_all_at(record, at)?;
        let mut header = [0; HEADER as usize];
        header[..8].copy_from_slice(&at.to_le_bytes());
        header[8..].copy_from_slice(&(record.len() as u64).to_le_bytes());
        self.file.write_all_at(&header, 0)
    }

    /// Takes the last record, a Perfetto trace, and empties the memory; for the master, after the process that wrote it
    /// has ended. `None` when no record was written or the memory can't be read.
    #[must_use]
    pub fn take(&self) -> Option<Vec<u8>> {
        let mut header = [0; HEADER as usize];
        self.file.read_exact_at(&mut header, 0).ok()?;
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let (at, length) = (word(0), word(8));
        let mut record = vec![0; usize::try_from(length.min(LARGEST)).ok()?];
        let read = self.file.read_exact_at(&mut record, at);
        // The next process finds nothing of this one.
        self.file.set_len(0).ok()?;
        read.ok()?;
        Some(record).filter(|record| !record.is_empty())
    }
}

/// Writes to `remains` what goes on in the server, until the process ends.
///
/// # Errors
/// Another one does already, or a thread can't be had.
pub fn keep(remains: CrashRemains, source: Arc<ServerSource>) -> io::Result<()> {
    let mut watch = crash::watch()?;
    let mut keeper = RemainsKeeper {
        remains,
        source,
        kept: VecDeque::new(),
        since: clock::ticks(),
        ended: 0,
        number: 0,
        written: Instant::now(),
        fresh: false,
    };
    let mut run = move || -> io::Result<()> {
        watch.is_here()?;
        loop {
            match watch.wait(OFTEN)? {
                None => keeper.look(),
                Some(signal) => {
                    keeper.last(signal);
                    watch.done();
                    return Ok(());
                }
            }
        }
    };
    // What fails in there leaves the server without a record of its crash, which is no reason to end it.
    thread::Builder::new().name("weir-remains".to_owned()).spawn(move || drop(run()))?;
    Ok(())
}

/// `record`, and after it how the process that left it ended.
#[must_use]
pub fn complete(record: Vec<u8>, pid: u32, how: &str) -> Vec<u8> {
    let mut file = record;
    file.extend(record::end_of(pid, how));
    file
}

/// The path of a master's crash record: that of the control socket `socket`, with the extension `.crash.pftrace`.
#[must_use]
pub fn beside(socket: &Path) -> PathBuf {
    socket.with_extension("crash.pftrace")
}

struct RemainsKeeper {
    remains: CrashRemains,
    source: Arc<ServerSource>,
    /// Requests of the last seconds.
    kept: VecDeque<KeptRequest>,
    /// Up to when they are known.
    since: u64,
    /// How many requests had ended by then.
    ended: u64,
    /// Of the record.
    number: u64,
    /// When it was written last.
    written: Instant,
    /// Requests have come since.
    fresh: bool,
}

impl RemainsKeeper {
    /// Writes what has come since the last time. Idle workers are not woken for that.
    fn look(&mut self) {
        let ended = self.source.workers().iter().map(|worker| worker.recorder.requests().total()).sum();
        if ended == std::mem::replace(&mut self.ended, ended) && !self.fresh {
            return;
        }
        self.fresh |= self.gather();
        if self.fresh && self.written.elapsed() >= WRITTEN {
            self.fresh = false;
            self.written = Instant::now();
            self.write(Vec::new(), None);
        }
    }

    /// Writes what is still to be had: a worker that crashes says nothing any more, but what it does is in a table.
    fn last(&mut self, signal: i32) {
        self.gather();
        let in_flight = self.source.workers().iter().flat_map(|worker| worker.now.requests()).collect();
        self.write(in_flight, Some(signal));
    }

    /// Asks the workers for the requests they have retained since; `true` if there were any.
    fn gather(&mut self) -> bool {
        let (since, now) = (self.since, clock::ticks());
        let said = self.source.ask(BRIEFLY, move |worker| {
            let recorder = worker.recorder.borrow();
            let lately = |kept: &&KeptRequest| record::end(kept) >= since;
            recorder.kept().filter(lately).cloned().collect::<Vec<_>>()
        });
        // A worker that did not come to it is asked for the same time again.
        if said.stuck == 0 {
            self.since = now;
        }
        let before = self.kept.len();
        for kept in said.answers.into_iter().flatten() {
            if !self.kept.iter().any(|known| known.record().id == kept.record().id) {
                self.kept.push_back(kept);
            }
        }
        let came = self.kept.len() > before;
        let oldest = now.saturating_sub(ticks(SPAN.as_nanos() as u64));
        self.kept.retain(|kept| record::end(kept) >= oldest);
        self.kept.drain(..self.kept.len().saturating_sub(MOST));
        came
    }

    fn write(&mut self, in_flight: Vec<InFlight>, signal: Option<i32>) {
        let oldest = clock::ticks().saturating_sub(ticks(SPAN.as_nanos() as u64));
        let stalls = record::stalls(&self.source, oldest);
        let file = record::file(self.kept.iter().cloned().collect(), stalls, &in_flight, signal);
        // Without memory the record before stays.
        if self.remains.write(self.number, &file).is_ok() {
            self.number += 1;
        }
    }
}

/// How often it is looked for requests.
const OFTEN: Duration = Duration::from_secs(1);
/// How often they are written: what that takes is no more than a thousandth of a core.
const WRITTEN: Duration = Duration::from_secs(5);
/// How long requests are remembered.
const SPAN: Duration = Duration::from_secs(10);
/// How many are.
const MOST: usize = 500;
/// Where the record is, and its length.
const HEADER: u64 = 16;
/// A larger record is cut: half a kilobyte for each boundary of the longest requests.
const LARGEST: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_record_is_found_once() {
        let remains = CrashRemains::new().expect("memory");
        assert_eq!(remains.take(), None);
        let other = CrashRemains { file: remains.file.try_clone().expect("a descriptor") };
        other.write(0, b"first").expect("memory");
        other.write(1, b"second").expect("memory");
        // One that was interrupted: its header never came.
        other.file.write_all_at(b"th", HEADER).expect("memory");
        assert_eq!(remains.take().as_deref(), Some(&b"second"[..]));
        assert_eq!(remains.take(), None);
        other.write(7, b"again").expect("memory");
        assert_eq!(remains.take().as_deref(), Some(&b"again"[..]));
    }

    #[test]
    fn what_does_not_fit_is_cut() {
        let remains = CrashRemains::new().expect("memory");
        remains.write(0, &vec![7; LARGEST as usize + 1]).expect("memory");
        assert_eq!(remains.take().map(|record| record.len() as u64), Some(LARGEST));
    }
}
