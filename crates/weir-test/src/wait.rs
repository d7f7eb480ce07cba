//! Waiting for a condition, up to a deadline.

use std::io::{self, ErrorKind, Read};
use std::thread;
use std::time::{Duration, Instant};

/// How long the harness waits for anything: far more than a busy machine needs, since a test that works never
/// waits for it.
pub const DEADLINE: Duration = Duration::from_secs(90);

/// Asks `condition` until it gives a value.
///
/// # Panics
/// After [`DEADLINE`], saying that there was no `what`.
#[track_caller]
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    match poll_until(DEADLINE, &mut condition) {
        Some(value) => value,
        None => panic!("no {what} within {DEADLINE:?}"),
    }
}

/// As [`wait_for`], with `None` after `limit`.
pub(crate) fn poll_until<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

/// Between two looks: short beside a process start, long beside a look.
const PAUSE: Duration = Duration::from_millis(2);

/// Reads what there is, as [`Read::read`] does, again where a signal interrupted that: the kernel never restarts a read
/// that has a time limit, and other tests of the process send signals.
///
/// # Errors
/// Those of reading but [`ErrorKind::Interrupted`].
pub fn read_some(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(into) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_is_asked_again_until_it_holds() {
        let mut asked = 0;
        let value = wait_for("third look", || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(value, 3);
    }

    #[test]
    fn a_condition_is_looked_at_even_without_time() {
        assert_eq!(poll_until(Duration::ZERO, || Some(1)), Some(1));
        assert_eq!(poll_until(Duration::ZERO, || None::<u8>), None);
    }
}
