//! `lua_capture_error_log` and `ngx.errlog`: the last lines of a worker's error logs, for its scripts.
//!
//! The ring belongs to the worker's thread, since lines do: the configurations of a reload share it.

use std::cell::RefCell;
use std::collections::VecDeque;

use weir_core::log::{self, Level};
use weir_rt::clock;

use crate::api::{Done, Function, Outcome, expect_number, expect_string, fail, function, log_level};
use crate::lend;
use crate::state::State;

pub(crate) const TABLE: &[Function] = &[
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
            while let Some(line) = ring.lines.pop_front().filter(|_| at < 3 * most) {
                ring.bytes -= line.size();
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
    function("_errlog.level", 0, |l| {
        let limit = lend::exchange(|x| x.plan.core.error_log.limit()).unwrap_or_else(|_| log::main_limit());
        l.push_number(f64::from(limit as u8));
        Ok(Done::Results(1))
    }),
    function("_errlog.raw", 0, |l| {
        let level = log_level(expect_number(l, 1, "raw_log")?);
        let message = expect_string(&l, 2, "raw_log")?;
        if let Some(level) = level {
            lend::log_plain(level, &String::from_utf8_lossy(&message));
        }
        l.push_boolean(level.is_some());
        Ok(Done::Results(1))
    }),
];

/// The lines that are kept.
struct Ring {
    lines: VecDeque<Line>,
    /// The sizes of `lines` together, bytes.
    bytes: usize,
    /// At most so many.
    size: usize,
    /// What is less grave is not kept.
    limit: Level,
}

struct Line {
    level: Level,
    /// Seconds since 1970.
    time: f64,
    text: Box<[u8]>,
}

impl Line {
    /// What it counts in the ring: its bytes, its level and time.
    fn size(&self) -> usize {
        self.text.len() + 16
    }
}

impl Ring {
    fn new(size: usize) -> Ring {
        Ring { lines: VecDeque::new(), bytes: 0, size, limit: Level::Debug }
    }

    /// Keeps a line; the oldest ones go for it. One that is larger than the ring is not kept.
    fn push(&mut self, line: Line) {
        if line.level > self.limit || line.size() > self.size {
            return;
        }
        self.bytes += line.size();
        self.lines.push_back(line);
        while self.bytes > self.size {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.size();
        }
    }
}

thread_local! {
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

/// From here on this thread's lines are kept in so many bytes; `None`: not any more.
pub(crate) fn keep(size: Option<usize>) {
    let Some(size) = size else {
        RING.set(None);
        return log::capture(None);
    };
    RING.with_borrow_mut(|ring| match ring {
        Some(ring) => ring.size = size,
        None => *ring = Some(Ring::new(size)),
    });
    log::capture(Some(Box::new(|level, text| {
        let (seconds, nanos) = clock::unix_time();
        let time = seconds as f64 + f64::from(nanos / 1_000_000) / 1000.0;
        RING.with_borrow_mut(|ring| {
            if let Some(ring) = ring {
                ring.push(Line { level, time, text: text.into() });
            }
        });
    })));
}

/// One result from the ring, or that there is none.
fn with_ring(l: State, use_it: impl FnOnce(&mut Ring)) -> Outcome {
    let there = RING.with_borrow_mut(|ring| ring.as_mut().map(use_it).is_some());
    match there {
        true => Ok(Done::Results(1)),
        false => fail(l, "directive \"lua_capture_error_log\" is not set"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Level, Line, Ring};

    fn line(level: Level, text: &str) -> Line {
        Line { level, time: 0.0, text: text.as_bytes().into() }
    }

    #[test]
    fn the_oldest_lines_go_and_those_that_never_fit_are_not_kept() {
        let mut ring = Ring::new(60);
        for text in ["first", "second", "third"] {
            ring.push(line(Level::Error, text));
        }
        let kept: Vec<&[u8]> = ring.lines.iter().map(|line| &*line.text).collect();
        assert_eq!(kept, [b"second".as_slice(), b"third"]);
        ring.push(line(Level::Error, &"x".repeat(60)));
        ring.limit = Level::Warn;
        ring.push(line(Level::Info, "x"));
        assert_eq!((ring.lines.len(), ring.bytes), (2, 2 * 16 + 11));
    }
}
