//! The last lines of the error logs from `warn` on, for those who look into the server and not at its files.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, TryLockError};

use weir_trace::{RequestId, Site};

use super::LogLevel;

/// A line of an error log, without its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastLine {
    /// How grave it is.
    pub level: LogLevel,
    /// What was written; of a long line the beginning.
    pub text: Box<[u8]>,
    /// The request that it is about, if it is about one.
    pub about: Option<LoggedRequest>,
}

/// The request that a line of an error log is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedRequest {
    /// Its number.
    pub id: RequestId,
    /// Its location, where that was known.
    pub route: Site,
}

/// The last [`MOST`] lines that this process logged at `warn` and graver, oldest first, and how many more there were.
#[must_use]
pub fn last_lines() -> (Vec<LastLine>, u64) {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    (lines.iter().cloned().collect(), GONE.load(Relaxed))
}

/// How many lines at `warn` and graver this process has logged.
#[must_use]
pub fn lines_logged() -> u64 {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    GONE.load(Relaxed) + lines.len() as u64
}

/// Remembers a line. One that comes while another thread has the list is only counted: no worker waits for this.
pub(super) fn remember(level: LogLevel, line: &[u8], about: Option<LoggedRequest>) {
    if level > LogLevel::Warn {
        return;
    }
    let mut lines = match LINES.try_lock() {
        Ok(lines) => lines,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            GONE.fetch_add(1, Relaxed);
            return;
        }
    };
    if lines.len() == MOST {
        lines.pop_front();
        GONE.fetch_add(1, Relaxed);
    }
    lines.push_back(LastLine { level, text: line[..line.len().min(LONGEST)].into(), about });
}

static LINES: Mutex<VecDeque<LastLine>> = Mutex::new(VecDeque::new());
/// Lines that are not remembered any more, or never were.
static GONE: AtomicU64 = AtomicU64::new(0);
/// Lines that are remembered; with [`LONGEST`] some 200 KB at most.
const MOST: usize = 200;
/// Bytes of each.
const LONGEST: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_remembered_and_the_others_counted() {
        remember(LogLevel::Info, b"not this one", None);
        (0..MOST + 5).for_each(|number| remember(LogLevel::Error, format!("line {number}").as_bytes(), None));
        remember(LogLevel::Warn, &[b'x'; 5_000], None);
        let (lines, gone) = last_lines();
        assert_eq!(lines.len(), MOST);
        assert!(gone >= 6, "{gone}");
        assert_eq!(lines.last().map(|line| (line.level, line.text.len())), Some((LogLevel::Warn, LONGEST)));
        assert!(lines.iter().all(|line| !line.text.starts_with(b"not")));
    }
}
