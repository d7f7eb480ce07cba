//! Replaces texts in a body that comes piece by piece; of it no more is held than may yet become a match.

use std::rc::Rc;

use weir_engine::body::{BodyBuf, BodyChain};
use weir_engine::filter::ROOM;

use super::search::{FoundText, TextPatterns};

/// The work on one body.
pub(crate) struct TextReplacer {
    patterns: Rc<TextPatterns>,
    /// Each text is replaced once only.
    once: bool,
    /// Which were, where `once`.
    used: Box<[bool]>,
    left: usize,
    /// What replaces each text, once that was asked for.
    values: Box<[Option<Rc<[u8]>>]>,
    /// The end of what came so far, if a text may begin in it: less than the longest text.
    held: Vec<u8>,
    /// A piece for which there was no room any more, and how far it is done.
    current: Option<(BodyBuf, usize)>,
}

impl TextReplacer {
    /// For one body.
    pub(crate) fn new(patterns: Rc<TextPatterns>, once: bool) -> TextReplacer {
        let count = patterns.len();
        TextReplacer {
            patterns,
            once,
            used: vec![false; count].into(),
            left: count,
            values: vec![None; count].into(),
            held: Vec::new(),
            current: None,
        }
    }

    /// Takes `input`, all or until [`ROOM`] is used up, which is `false`. `value` says what replaces a text.
    pub(crate) fn step(
        &mut self,
        input: &mut BodyChain,
        output: &mut BodyChain,
        value: &mut dyn FnMut(usize) -> Rc<[u8]>,
    ) -> bool {
        let mut out = OutputChain { chain: output, bytes: Vec::new() };
        while let Some((piece, at)) = self.current.take().or_else(|| Some((input.pop()?, 0))) {
            self.piece(piece, at, &mut out, value);
            if out.is_full() && (self.current.is_some() || !input.is_empty()) {
                out.end();
                return false;
            }
        }
        if input.last {
            out.copy(&std::mem::take(&mut self.held));
        }
        out.end();
        output.append(input);
        true
    }

    /// One piece, of which `at` bytes are done.
    fn piece(
        &mut self,
        piece: BodyBuf,
        at: usize,
        out: &mut OutputChain<'_>,
        value: &mut dyn FnMut(usize) -> Rc<[u8]>,
    ) {
        let Some(bytes) = piece.memory() else { return out.push(piece) };
        let mut at = at;
        if !self.held.is_empty() {
            at += self.bridge(&bytes[at..], out, value);
        }
        let len = bytes.len();
        while !self.is_done() {
            if out.is_full() {
                self.current = Some((piece, at));
                return;
            }
            match self.patterns.find(bytes, at, &self.used) {
                FoundText::Nothing => break,
                FoundText::Beginning(start) => {
                    self.held.extend_from_slice(&bytes[start..]);
                    return out.part(piece, at, start);
                }
                FoundText::Match { start, end, which } => {
                    out.copy_of(&bytes[at..start], len);
                    self.replace(which, out, value);
                    at = end;
                }
            }
        }
        out.part(piece, at, len);
    }

    /// Finds what begins in `held` and may go on in `bytes`; how many of these are done.
    fn bridge(
        &mut self,
        bytes: &[u8],
        out: &mut OutputChain<'_>,
        value: &mut dyn FnMut(usize) -> Rc<[u8]>,
    ) -> usize {
        let mut held = std::mem::take(&mut self.held);
        let border = held.len();
        // Whatever begins before the border ends within these.
        let more = bytes.len().min(self.patterns.longest().saturating_sub(1));
        held.extend_from_slice(&bytes[..more]);
        let mut at = 0;
        while at < border && !self.is_done() {
            match self.patterns.find(&held, at, &self.used) {
                FoundText::Match { start, end, which } if start < border => {
                    out.copy(&held[at..start]);
                    self.replace(which, out, value);
                    at = end;
                }
                FoundText::Beginning(start) if start < border => {
                    out.copy(&held[at..start]);
                    held.drain(..start);
                    self.held = held;
                    return more;
                }
                _ => break,
            }
        }
        out.copy(held.get(at..border).unwrap_or_default());
        at.saturating_sub(border)
    }

    fn replace(&mut self, which: usize, out: &mut OutputChain<'_>, value: &mut dyn FnMut(usize) -> Rc<[u8]>) {
        let text = self.values[which].get_or_insert_with(|| value(which));
        if text.len() < REFERRED {
            out.copy(text);
        } else {
            out.push(BodyBuf::shared(text.clone()));
        }
        if self.once {
            self.used[which] = true;
            self.left -= 1;
        }
    }

    /// A piece is left for which there was no room.
    pub(crate) fn is_full(&self) -> bool {
        self.current.is_some()
    }

    /// Everything was replaced that was to be.
    fn is_done(&self) -> bool {
        self.left == 0
    }
}

/// Collects output: short stretches in one vector, since a piece of its own costs the connection more than the copy.
struct OutputChain<'a> {
    chain: &'a mut BodyChain,
    bytes: Vec<u8>,
}

impl OutputChain<'_> {
    fn copy(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A stretch of a piece of `len` bytes: most of the others are likely to follow.
    fn copy_of(&mut self, bytes: &[u8], len: usize) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(len + len / 4);
        }
        self.copy(bytes);
    }

    fn push(&mut self, buf: BodyBuf) {
        self.end();
        self.chain.push(buf);
    }

    /// The bytes `from..to` of `piece`, uncopied where that can be.
    fn part(&mut self, piece: BodyBuf, from: usize, to: usize) {
        match piece {
            BodyBuf::Bytes(mut bytes) if from == 0 => {
                bytes.truncate(to);
                self.push(BodyBuf::Bytes(bytes));
            }
            BodyBuf::Bytes(bytes) => self.copy(&bytes[from..to]),
            other if to - from < REFERRED && from != 0 => {
                self.copy(&other.memory().unwrap_or_default()[from..to]);
            }
            other => self.push(other.slice(from as u64, to as u64)),
        }
    }

    fn is_full(&self) -> bool {
        self.chain.len() + self.bytes.len() as u64 >= ROOM
    }

    fn end(&mut self) {
        if !self.bytes.is_empty() {
            self.chain.push(BodyBuf::Bytes(std::mem::take(&mut self.bytes)));
        }
    }
}

/// From this length on a replacement is a piece of its own.
const REFERRED: usize = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_engine::regex::LetterCase;

    use super::*;
    use crate::testing::pieces;

    /// What comes of `pieces`, and the largest step.
    fn run(pairs: &[(&str, &str)], once: bool, pieces: &[&[u8]]) -> (Vec<u8>, u64) {
        let texts: Vec<Vec<u8>> = pairs.iter().map(|(text, _)| text.as_bytes().to_vec()).collect();
        let mut replacer = TextReplacer::new(Rc::new(TextPatterns::new(&texts, LetterCase::Ignored)), once);
        let mut value = |which: usize| Rc::from(pairs[which].1.as_bytes());
        let (mut whole, mut largest) = (Vec::new(), 0);
        for (at, piece) in pieces.iter().enumerate() {
            let mut input = BodyChain::default();
            input.push(if at % 2 == 0 {
                BodyBuf::Bytes(piece.to_vec())
            } else {
                BodyBuf::shared(Rc::from(*piece))
            });
            input.last = at + 1 == pieces.len();
            loop {
                let mut output = BodyChain::default();
                let done = replacer.step(&mut input, &mut output, &mut value);
                largest = largest.max(output.len());
                let last = output.last;
                while let Some(buf) = output.pop() {
                    whole.extend_from_slice(buf.memory().expect("in memory"));
                }
                if done {
                    assert_eq!(last, at + 1 == pieces.len());
                    break;
                }
            }
        }
        (whole, largest)
    }

    fn whole(pairs: &[(&str, &str)], once: bool, text: &str) -> String {
        String::from_utf8(run(pairs, once, &[text.as_bytes()]).0).expect("text")
    }

    #[test]
    fn texts_are_replaced() {
        let pair = [("span", "div")];
        assert_eq!(whole(&pair, false, "<span>a</SPAN> spa"), "<div>a</div> spa");
        assert_eq!(whole(&pair, true, "<span>a</SPAN>"), "<div>a</SPAN>");
        let two = [("a", "b"), ("b", "a")];
        assert_eq!(whole(&two, false, "aabb"), "bbaa");
        assert_eq!(whole(&two, true, "aabb"), "baab");
        assert_eq!(whole(&[("abcd", "1"), ("bc", "2")], false, "abcd bc abc"), "1 2 abc");
        assert_eq!(whole(&[("x", "")], false, "xxaxx"), "a");
    }

    #[test]
    fn output_is_bounded() {
        let long = "y".repeat(10_000);
        let text = "x".repeat(1_000);
        let (bytes, largest) = run(&[("x", &long)], false, &[text.as_bytes(), text.as_bytes()]);
        assert_eq!(bytes.len(), 20_000_000);
        assert!(largest < ROOM + 10_000, "{largest}");
    }

    fn words() -> impl Strategy<Value = Vec<(String, String)>> {
        proptest::collection::vec(("[abAB]{1,6}", "[xab]{0,3}"), 1..5)
    }

    proptest! {
        #[test]
        fn chunks_make_no_difference(
            pairs in words(), once: bool, text in "[abcABC]{0,200}", cuts in proptest::collection::vec(1..7_usize, 0..60)
        ) {
            let pairs: Vec<(&str, &str)> = pairs.iter().map(|(a, b)| (&**a, &**b)).collect();
            let pieces = pieces(text.as_bytes(), &cuts);
            let (cut, _) = run(&pairs, once, &pieces);
            let (one, _) = run(&pairs, once, &[text.as_bytes()]);
            prop_assert_eq!(String::from_utf8(cut), String::from_utf8(one));
        }

        #[test]
        fn one_text_is_replaced_as_by_the_standard_library(text in "[abc]{0,200}", word in "[ab]{1,4}") {
            prop_assert_eq!(whole(&[(&word, "-")], false, &text), text.replace(&word, "-"));
        }
    }
}
