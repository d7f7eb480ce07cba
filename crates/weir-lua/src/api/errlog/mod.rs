//! `lua_capture_error_log` and `ngx.errlog`: the last lines of a worker's error logs, for its scripts.
//!
//! The ring belongs to the worker's thread, since lines do: the configurations of a reload share it.

pub(crate) mod ffi;

use std::cell::RefCell;
use std::collections::VecDeque;

use weir_engine::log::{self, LogLevel};

use crate::api::log_level;
use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, expect_number, fail, function};
use crate::run::lend;

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_errlog.set_level", 0, |l| {
        let Some(level) = log_level(expect_number(l, 1, "set_filter_level")?) else {
            return fail(l, "bad log level");
        };
        with_ring(l, |ring| {
            ring.limit = level;
            l.push_boolean(true);
        })
    }),
    function("_errlog.take", 0, |l| {
        let most = expect_number(l, 1, "get_logs")?.max(0.0) as usize;
        with_ring(l, |ring| {
            let mut at = 0;
            while at < 3 * most
                && let Some(line) = ring.lines.pop_front()
            {
                l.push_number(f64::from(line.level as u8));
                l.raw_set_index(2, at + 1);
                l.push_number(line.time);
                l.raw_set_index(2, at + 2);
                l.push_bytes(&line.text);
                l.raw_set_index(2, at + 3);
                at += 3;
            }
            l.push_nil();
            l.raw_set_index(2, at + 1);
            l.push_number(at as f64 / 3.0);
        })
    }),
];

/// The captured lines, as if in a ring of memory, each in one piece: so they are as many as in OpenResty.
struct LogRing {
    lines: VecDeque<LoggedLine>,
    /// Where the next line would be.
    next: usize,
    /// The ring's bytes.
    size: usize,
    /// Less severe lines are not captured.
    limit: LogLevel,
}

struct LoggedLine {
    level: LogLevel,
    /// Seconds since 1970.
    time: f64,
    /// Where it is in the ring.
    at: usize,
    text: Box<[u8]>,
}

impl LoggedLine {
    /// What it counts in the ring: its bytes, its level and time.
    fn size(&self) -> usize {
        self.text.len() + 16
    }
}

impl LogRing {
    fn new(size: usize) -> LogRing {
        LogRing { lines: VecDeque::new(), next: 0, size, limit: LogLevel::Debug }
    }

    /// Keeps a line; the oldest, in whose place it is, are dropped. One that is larger than the ring is not stored.
    fn push(&mut self, mut line: LoggedLine) {
        let size = line.size();
        if line.level > self.limit || size > self.size {
            return;
        }
        if self.next + size > self.size {
            // The lines after it are the oldest; it begins at the front.
            while self.lines.front().is_some_and(|oldest| oldest.at >= self.next) {
                self.lines.pop_front();
            }
            self.next = 0;
        }
        let place = self.next..self.next + size;
        while self.lines.front().is_some_and(|oldest| place.contains(&oldest.at)) {
            self.lines.pop_front();
        }
        line.at = place.start;
        self.next = place.end;
        self.lines.push_back(line);
    }
}

thread_local! {
    static RING: RefCell<Option<LogRing>> = const { RefCell::new(None) };
}

/// From here on this thread's lines are captured in a ring of this many bytes; `None`: capturing ends.
pub(crate) fn keep(size: Option<usize>) {
    let Some(size) = size else {
        RING.set(None);
        return log::capture(None);
    };
    RING.with_borrow_mut(|ring| match ring {
        Some(ring) if ring.size == size => {}
        _ => *ring = Some(LogRing::new(size)),
    });
    log::capture(Some(Box::new(|level, text| {
        let time = lend::wall();
        RING.with_borrow_mut(|ring| {
            if let Some(ring) = ring {
                ring.push(LoggedLine { level, time, at: 0, text: text.into() });
            }
        });
    })));
}

/// One result from the ring, or that it is empty.
fn with_ring(l: LuaState, use_it: impl FnOnce(&mut LogRing)) -> CallOutcome {
    let there = RING.with_borrow_mut(|ring| ring.as_mut().map(use_it).is_some());
    match there {
        true => Ok(CallDone::Results(1)),
        false => fail(l, "directive \"lua_capture_error_log\" is not set"),
    }
}

#[cfg(test)]
mod tests {
    use super::{LogLevel, LogRing, LoggedLine};

    fn line(level: LogLevel, text: &str) -> LoggedLine {
        LoggedLine { level, time: 0.0, at: 0, text: text.as_bytes().into() }
    }

    #[test]
    fn the_oldest_lines_go_and_those_that_never_fit_are_not_kept() {
        let mut ring = LogRing::new(60);
        for text in ["first", "second", "third"] {
            ring.push(line(LogLevel::Error, text));
        }
        // The third begins at the front, where the first was, and reaches into the place of no other.
        let kept = |ring: &LogRing| -> Vec<String> {
            ring.lines.iter().map(|line| String::from_utf8_lossy(&line.text).into_owned()).collect()
        };
        assert_eq!(kept(&ring), ["second", "third"]);
        ring.push(line(LogLevel::Error, "fourth"));
        assert_eq!(kept(&ring), ["third", "fourth"]);
        ring.push(line(LogLevel::Error, &"x".repeat(60)));
        ring.limit = LogLevel::Warn;
        ring.push(line(LogLevel::Info, "x"));
        assert_eq!(kept(&ring), ["third", "fourth"]);
        ring.push(line(LogLevel::Error, &"x".repeat(44)));
        assert_eq!(kept(&ring), ["x".repeat(44)]);
    }
}
