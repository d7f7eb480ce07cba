//! What became of a reload: a file beside the pid file, by which `-s reload` learns it.
//!
//! Its first line has the time at which the reload began, on the clock that all processes share, so the process that
//! sent the signal knows whether the file's content is the response to it. The other lines say what was wrong.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use weir_rt::clock;
use weir_rt::file::replace_file;

use crate::pid;

/// The outcome of a reload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReloadOutcome {
    /// When the signal was seen, nanoseconds of the monotonic clock.
    pub began: u64,
    /// Why the configuration before goes on; `Ok`: the new one is in force.
    pub result: Result<(), Vec<String>>,
}

impl ReloadOutcome {
    /// Writes it beside the pid file, whole or not at all; only the server's owner may read it, since messages quote
    /// the configuration.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn write(&self, pid: &Path) -> io::Result<()> {
        let path = pid::status(pid);
        let draft = path.with_extension("status.new");
        let mut text = Vec::new();
        let word = if self.result.is_ok() { "ok" } else { "failed" };
        writeln!(text, "{} {word}", self.began)?;
        for line in self.result.as_ref().err().into_iter().flatten() {
            // What shows the place in the file has further lines.
            writeln!(text, "{}", line.replace('\n', "\n\t"))?;
        }
        replace_file(&path, &draft, 0o600, &text)
    }

    /// The file beside the pid file.
    fn read(pid: &Path) -> Option<ReloadOutcome> {
        ReloadOutcome::parse(&std::fs::read_to_string(pid::status(pid)).ok()?)
    }

    fn parse(text: &str) -> Option<ReloadOutcome> {
        let mut lines = text.lines();
        let (began, word) = lines.next()?.split_once(' ')?;
        let began = began.parse().ok()?;
        let result = match word {
            "ok" => Ok(()),
            _ => Err(messages(lines)),
        };
        Some(ReloadOutcome { began, result })
    }
}

fn messages<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut messages: Vec<String> = Vec::new();
    for line in lines {
        match (line.strip_prefix('\t'), messages.last_mut()) {
            (Some(more), Some(message)) => message.extend(["\n", more]),
            _ => messages.push(line.to_owned()),
        }
    }
    messages
}

/// Waits for the outcome of a reload. Made before the signal is sent.
pub(crate) struct ReloadWaiter {
    since: u64,
    answers: bool,
}

impl ReloadWaiter {
    /// For the server with that pid file; one that is not Weir will not respond.
    pub(crate) fn new(pid: &Path) -> ReloadWaiter {
        ReloadWaiter { since: clock::monotonic_ns(), answers: ReloadOutcome::read(pid).is_some() }
    }

    /// The outcome; `Ok` also for a server that does not report it.
    ///
    /// # Errors
    /// The server's reasons, or that it does not respond.
    pub(crate) fn wait(&self, pid: &Path, lives: impl Fn() -> bool) -> Result<(), Vec<String>> {
        if !self.answers {
            return Ok(());
        }
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(outcome) = ReloadOutcome::read(pid).filter(|outcome| outcome.began >= self.since) {
                return outcome.result;
            }
            if !lives() {
                return Err(vec!["the server ended meanwhile".to_owned()]);
            }
            if Instant::now() > end {
                return Err(vec![format!("no answer within {} seconds", PATIENCE.as_secs())]);
            }
            std::thread::sleep(EVERY);
        }
    }
}

/// More than a server gives its workers to take a configuration.
const PATIENCE: Duration = Duration::from_secs(120);
const EVERY: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use weir_test::TempDir;

    use super::*;

    #[test]
    fn outcomes_read_back() {
        let directory = TempDir::new();
        let pid = directory.path().join("nginx.pid");
        for result in [Ok(()), Err(vec!["one\n  ^^^".to_owned(), "two: \"x\"".to_owned()])] {
            let outcome = ReloadOutcome { began: 17, result };
            outcome.write(&pid).expect("ours");
            assert_eq!(ReloadOutcome::read(&pid), Some(outcome));
        }
        assert_eq!(ReloadOutcome::parse(""), None);
        assert_eq!(ReloadOutcome::parse("x ok"), None);
    }

    #[test]
    fn only_an_answer_to_this_signal_counts() {
        let directory = TempDir::new();
        let pid = directory.path().join("nginx.pid");
        assert_eq!(ReloadWaiter::new(&pid).wait(&pid, || true), Ok(()), "no Weir");
        ReloadOutcome { began: 0, result: Ok(()) }.write(&pid).expect("ours");
        let waiter = ReloadWaiter::new(&pid);
        assert_eq!(waiter.wait(&pid, || false), Err(vec!["the server ended meanwhile".to_owned()]));
        let failed = Err(vec!["why".to_owned()]);
        ReloadOutcome { began: clock::monotonic_ns(), result: failed.clone() }.write(&pid).expect("ours");
        assert_eq!(waiter.wait(&pid, || true), failed);
    }
}
