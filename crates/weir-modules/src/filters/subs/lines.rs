//! Texts and patterns that are replaced line by line: each in what the one before has made of the line.

use std::rc::Rc;
use std::sync::Arc;

use weir_engine::body::{BodyBuf, BodyChain};
use weir_engine::filter::ROOM;
use weir_engine::regex::RegexPattern;

use super::value::ReplacementValue;
use crate::filters::sub::search::{FoundText, TextPatterns};

/// The work on one body. A line without end is cut at [`LINE`].
pub(crate) struct LineReplacer {
    pairs: Vec<LinePair>,
    /// A line whose end did not come yet.
    held: Vec<u8>,
    /// A piece for which there was no room any more, and how far it is done.
    current: Option<(BodyBuf, usize)>,
    groups: Vec<(usize, usize)>,
    /// A line, and what is made of it.
    line: Vec<u8>,
    made: Vec<u8>,
}

/// What is replaced, and by what.
pub(crate) struct LinePair {
    pub(crate) search: SubsSearch,
    pub(crate) value: ReplacementValue,
    pub(crate) once: bool,
    /// It was replaced, `once`.
    pub(crate) done: bool,
}

/// What is looked for.
#[derive(Clone)]
pub(crate) enum SubsSearch {
    /// One text.
    Text(Rc<TextPatterns>),
    /// A regular expression.
    Pattern(Arc<RegexPattern>),
}

/// The match of a pattern was given up: it backtracks without end, or memory ended. The text is for the log.
#[derive(Debug)]
pub(crate) struct GivenUp(pub(crate) String);

/// Gives the value of a pair's part.
pub(crate) type ComputeValue<'a> = &'a mut dyn FnMut(usize, usize) -> Rc<[u8]>;

impl LineReplacer {
    /// For one body; buffers of a line have `size` bytes at first, [`LINE`] at most.
    pub(crate) fn new(pairs: Vec<LinePair>, size: u64) -> LineReplacer {
        let buffer = || Vec::with_capacity(size.min(LINE as u64) as usize);
        LineReplacer { pairs, held: buffer(), current: None, groups: vec![], line: buffer(), made: buffer() }
    }

    /// Takes `input`, all or until [`ROOM`] is used up, which is `false`.
    pub(crate) fn step(
        &mut self,
        input: &mut BodyChain,
        output: &mut BodyChain,
        compute: ComputeValue<'_>,
    ) -> Result<bool, GivenUp> {
        let mut out = Vec::new();
        while let Some((piece, at)) = self.current.take().or_else(|| Some((input.pop()?, 0))) {
            if at == 0 && self.held.is_empty() && self.pairs.iter().all(|pair| pair.done) {
                push(output, &mut out);
                output.push(piece);
                continue;
            }
            let bytes = piece.memory().unwrap_or_default();
            if out.capacity() == 0 {
                out.reserve(bytes.len() - at + (bytes.len() - at) / 4);
            }
            let at = self.lines(bytes, at, &mut out, compute)?;
            if at < bytes.len() {
                self.current = Some((piece, at));
                push(output, &mut out);
                return Ok(false);
            }
        }
        if input.last {
            let line = std::mem::take(&mut self.held);
            self.replace(&line, &mut out, compute)?;
        }
        push(output, &mut out);
        output.append(input);
        Ok(true)
    }

    /// The lines of `bytes` from `at` on; where it ended, which is before their end when there is no room.
    fn lines(
        &mut self,
        bytes: &[u8],
        at: usize,
        out: &mut Vec<u8>,
        compute: ComputeValue<'_>,
    ) -> Result<usize, GivenUp> {
        let mut at = at;
        while at < bytes.len() && (out.len() as u64) < ROOM {
            let rest = &bytes[at..];
            let room = LINE - self.held.len();
            let (end, whole) = match memchr::memchr(b'\n', &rest[..rest.len().min(room)]) {
                Some(end) => (end + 1, true),
                None => (rest.len().min(room), rest.len() >= room),
            };
            at += end;
            if !whole {
                self.held.extend_from_slice(&rest[..end]);
            } else if self.held.is_empty() {
                self.replace(&rest[..end], out, compute)?;
            } else {
                let mut line = std::mem::take(&mut self.held);
                line.extend_from_slice(&rest[..end]);
                self.replace(&line, out, compute)?;
                line.clear();
                self.held = line;
            }
        }
        Ok(at)
    }

    /// All pairs in one line.
    fn replace(&mut self, line: &[u8], out: &mut Vec<u8>, compute: ComputeValue<'_>) -> Result<(), GivenUp> {
        let (mut made, mut current) = (std::mem::take(&mut self.made), std::mem::take(&mut self.line));
        let mut changed = false;
        for (at, pair) in self.pairs.iter_mut().enumerate().filter(|(_, pair)| !pair.done) {
            made.clear();
            let subject = if changed { &current[..] } else { line };
            let found = match pair.search.clone() {
                SubsSearch::Text(patterns) => {
                    pair.text(&patterns, subject, &mut made, &mut |part| compute(at, part))
                }
                SubsSearch::Pattern(pattern) => {
                    pair.pattern(&pattern, subject, &mut self.groups, &mut made, &mut |part| {
                        compute(at, part)
                    })?
                }
            };
            if found {
                std::mem::swap(&mut made, &mut current);
                changed = true;
            }
        }
        out.extend_from_slice(if changed { &current } else { line });
        (self.made, self.line) = (made, current);
        Ok(())
    }
}

impl LinePair {
    /// Replaces a text; whether it was there, without which `out` is not touched.
    fn text(
        &mut self,
        patterns: &TextPatterns,
        line: &[u8],
        out: &mut Vec<u8>,
        compute: &mut dyn FnMut(usize) -> Rc<[u8]>,
    ) -> bool {
        let mut at = 0;
        while !self.done
            && let FoundText::Match { start, end, .. } = patterns.find(line, at, &[false])
        {
            out.extend_from_slice(&line[at..start]);
            out.extend_from_slice(&self.value.text(compute));
            at = end;
            self.done = self.once;
        }
        if at > 0 {
            out.extend_from_slice(&line[at..]);
        }
        at > 0
    }

    /// Replaces what matches; as [`LinePair::text`]. What follows a match is searched as a line of its own, as in nginx's
    /// module: `^` matches there again.
    fn pattern(
        &mut self,
        pattern: &RegexPattern,
        line: &[u8],
        groups: &mut Vec<(usize, usize)>,
        out: &mut Vec<u8>,
        compute: &mut dyn FnMut(usize) -> Rc<[u8]>,
    ) -> Result<bool, GivenUp> {
        let mut rest = line;
        let mut found = false;
        while !self.done && !rest.is_empty() {
            let matches = pattern.groups_of(rest, groups).map_err(|error| {
                let rest = String::from_utf8_lossy(rest);
                GivenUp(format!("{error} on \"{rest}\" using \"{}\"", pattern.text()))
            })?;
            if !matches {
                break;
            }
            let (start, end) = groups[0];
            out.extend_from_slice(&rest[..start]);
            self.value.write(out, rest, groups, compute);
            (found, self.done) = (true, self.once);
            // nginx's module never gets ahead of a match of nothing.
            let next = if start == end { rest.len().min(end + 1) } else { end };
            out.extend_from_slice(&rest[end..next]);
            rest = &rest[next..];
        }
        if found {
            out.extend_from_slice(rest);
        }
        Ok(found)
    }
}

fn push(output: &mut BodyChain, out: &mut Vec<u8>) {
    output.push(BodyBuf::Bytes(std::mem::take(out)));
}

/// The longest line that is searched as one.
const LINE: usize = 64 * 1024;
