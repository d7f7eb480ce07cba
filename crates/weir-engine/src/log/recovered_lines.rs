//! Lines of logs that a process which was killed has left ([`kept_lines`](super::kept_lines)).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use weir_rt::{SharedRings, UnsettledRecord};

use super::LogTarget;
use super::file::{self, SharedLogFile};
use super::kept_lines;

/// Writes the lines that a process which has ended has left in `rings` to the logs that this process has open; how many
/// they were. What is in the rings is that process' word: it is written only to logs that are open here.
///
/// # Errors
/// The rings can't be read, or a log can't be written.
pub fn recover(rings: &SharedRings) -> io::Result<u64> {
    let open = file::all();
    let mut logs: BTreeMap<u32, Option<LeftLog>> = BTreeMap::new();
    for record in rings.unsettled()? {
        let number = record.kind;
        if let Some(log) = logs.entry(number).or_insert_with(|| LeftLog::find(rings, number, &open)) {
            log.add(&record);
        }
    }
    let mut lines = 0;
    for log in logs.into_values().flatten().filter(|log| !log.bytes.is_empty()) {
        log.file.write(&log.bytes).map_err(|failure| failure.error)?;
        lines += log.file.lines(&log.bytes);
    }
    Ok(lines)
}

/// A log with lines that were left.
struct LeftLog {
    file: Arc<SharedLogFile>,
    /// What was taken to be written is written.
    has_taken: bool,
    bytes: Vec<u8>,
}

impl LeftLog {
    /// The log of a number; `None`: it is not open here.
    fn find(rings: &SharedRings, number: u32, open: &[Arc<SharedLogFile>]) -> Option<LeftLog> {
        let file = open_at(open, &kept_lines::path(rings, number)?)?;
        let before = kept_lines::length_before(rings, number).ok()?;
        let has_taken = before.zip(file.length()).is_some_and(|(before, now)| now > before);
        Some(LeftLog { file, has_taken, bytes: Vec::new() })
    }

    fn add(&mut self, record: &UnsettledRecord) {
        if !(record.taken && self.has_taken) {
            self.bytes.extend_from_slice(&record.bytes);
        }
    }
}

fn open_at(open: &[Arc<SharedLogFile>], path: &Path) -> Option<Arc<SharedLogFile>> {
    let is_it = |file: &&Arc<SharedLogFile>| {
        file.buffering.is_none() && matches!(&file.target, LogTarget::File(target) if target == path)
    };
    open.iter().rev().find(is_it).cloned()
}
