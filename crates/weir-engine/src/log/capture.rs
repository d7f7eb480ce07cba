//! Lines of a thread's error logs, also for a reader in the program.

use std::cell::RefCell;

use super::LogLevel;
use super::last_lines::{self, LoggedRequest};

/// The function that gets each line, without its newline. It logs nothing itself.
pub type LineTaker = Box<dyn Fn(LogLevel, &[u8])>;

/// From here on the lines that this thread logs go to `taker` as well, besides the files; `None`: to the files only.
pub fn capture(taker: Option<LineTaker>) {
    TAKER.set(taker);
}

/// Remembers the line, and passes it to the taker, if there is one.
pub(crate) fn tell(level: LogLevel, line: &[u8], about: Option<LoggedRequest>) {
    last_lines::remember(level, line.strip_suffix(b"\n").unwrap_or(line), about);
    TAKER.with_borrow(|taker| {
        if let Some(taker) = taker {
            taker(level, line.strip_suffix(b"\n").unwrap_or(line));
        }
    });
}

thread_local! {
    static TAKER: RefCell<Option<LineTaker>> = const { RefCell::new(None) };
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::{LogLevel, capture, tell};

    #[test]
    fn the_taker_has_lines_without_their_end_until_it_goes() {
        let lines = Rc::new(RefCell::new(Vec::new()));
        let taker = lines.clone();
        capture(Some(Box::new(move |level, line| taker.borrow_mut().push((level, line.to_vec())))));
        tell(LogLevel::Warn, b"one\n", None);
        capture(None);
        tell(LogLevel::Warn, b"two\n", None);
        assert_eq!(*lines.borrow(), [(LogLevel::Warn, b"one".to_vec())]);
    }
}
