//! `buffer=` and `flush=`: lines are gathered until the next one does not fit, or until the oldest has waited enough.

/// `buffer=`, `flush=` and `gzip` of `access_log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBuffering {
    /// Bytes that are gathered before they are written.
    pub size: usize,
    /// Milliseconds after which buffered lines are written anyway; `None`: only when the buffer is full.
    pub flush: Option<u64>,
    /// Compression level, 1 to 9; `None`: not compressed.
    pub gzip: Option<u8>,
}

/// The gathered lines of one log.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    lines: Vec<u8>,
    due: Option<u64>,
}

impl LineBuffer {
    /// Adds whole lines at time `now` (milliseconds) and writes what has no room, each time as many lines as fit in
    /// the buffer. A line longer than it is written alone.
    pub(super) fn add(&mut self, lines: &[u8], how: &LogBuffering, now: u64, mut write: impl FnMut(&[u8])) {
        if self.lines.is_empty() {
            self.due = how.flush.map(|flush| now + flush);
        }
        self.lines.extend_from_slice(lines);
        let mut rest = &self.lines[..];
        while rest.len() > how.size {
            let (batch, after) = rest.split_at(cut(rest, how.size));
            write(batch);
            rest = after;
        }
        let written = self.lines.len() - rest.len();
        if written > 0 {
            self.lines.drain(..written);
            self.due = how.flush.filter(|_| !self.lines.is_empty()).map(|flush| now + flush);
        }
    }

    /// Writes what is there.
    pub(super) fn flush(&mut self, write: impl FnOnce(&[u8])) {
        self.due = None;
        if !self.lines.is_empty() {
            write(&self.lines);
            self.lines.clear();
        }
    }

    /// When the lines must be written, in milliseconds.
    pub(super) fn due(&self) -> Option<u64> {
        self.due
    }

    /// Whether that time has come.
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Nothing is gathered.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// How many bytes to write of `lines`, which are more than `size`: the lines that fit, or the first alone.
fn cut(lines: &[u8], size: usize) -> usize {
    let end_of = |at| at + 1;
    let fitting = lines[..size].iter().rposition(|byte| *byte == b'\n').map(end_of);
    fitting.or_else(|| lines.iter().position(|byte| *byte == b'\n').map(end_of)).unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOW: LogBuffering = LogBuffering { size: 10, flush: Some(500), gzip: None };

    fn added(buffer: &mut LineBuffer, lines: &str, now: u64) -> Vec<String> {
        let mut written = Vec::new();
        buffer.add(lines.as_bytes(), &HOW, now, |bytes| {
            written.push(String::from_utf8_lossy(bytes).into_owned());
        });
        written
    }

    #[test]
    fn lines_are_written_when_the_next_does_not_fit() {
        let mut buffer = LineBuffer::default();
        assert!(added(&mut buffer, "1234\n", 0).is_empty());
        assert!(added(&mut buffer, "5678\n", 0).is_empty(), "ten bytes fit into ten");
        assert_eq!(added(&mut buffer, "9\n", 0), ["1234\n5678\n"]);
        assert_eq!(added(&mut buffer, "a long line of text\n", 0), ["9\n", "a long line of text\n"]);
        assert!(buffer.is_empty());
    }

    #[test]
    fn the_oldest_line_decides_when_to_write() {
        let mut buffer = LineBuffer::default();
        added(&mut buffer, "1\n", 100);
        added(&mut buffer, "2\n", 400);
        assert!(!buffer.is_due(599) && buffer.is_due(600));
        added(&mut buffer, "345678\n", 500);
        assert_eq!(buffer.due(), Some(1000), "a new oldest line after a write");
        let mut last = Vec::new();
        buffer.flush(|bytes| last.extend_from_slice(bytes));
        assert_eq!(last, b"345678\n");
        assert_eq!(buffer.due(), None);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_torn(lines in proptest::collection::vec("[a-z]{0,14}\n", 0..40), parts in 1usize..5) {
            let (mut buffer, mut written) = (LineBuffer::default(), Vec::new());
            for part in lines.chunks(parts) {
                buffer.add(part.concat().as_bytes(), &HOW, 0, |batch| {
                    assert!(batch.len() <= HOW.size || batch.iter().filter(|b| **b == b'\n').count() == 1);
                    assert_eq!(batch.last(), Some(&b'\n'));
                    written.extend_from_slice(batch);
                });
            }
            buffer.flush(|batch| written.extend_from_slice(batch));
            prop_assert_eq!(written, lines.concat().into_bytes());
        }
    }
}
