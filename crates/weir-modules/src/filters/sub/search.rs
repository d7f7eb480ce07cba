//! Finds several texts in bytes that come piece by piece, mostly without regard to case.
//!
//! The search is for the first bytes of every text: as many vector instructions look at 32 bytes at once for all
//! spellings of them (the packed searcher takes 64 spellings, four letters have sixteen), or, where the texts are
//! too many for that, an automaton goes through the bytes one by one. Where they are found the texts are compared.

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, MatchKind, Span, packed};
use memchr::memmem;
use weir_engine::regex::LetterCase;

/// Texts to look for.
pub(crate) struct TextPatterns {
    /// In lower case unless case counts, by first byte; of the same first byte in the order given.
    texts: Box<[TextPattern]>,
    /// Where in `texts` those of a first byte begin; one more for the end.
    first: Box<[u8; 257]>,
    finder: TextFinder,
    caseless: bool,
    /// Bytes that `finder` compares, of the texts that have as many.
    window: usize,
    /// The only text is no longer than that: where `finder` finds something it is there.
    whole: bool,
    /// Bytes of the longest text.
    longest: usize,
}

struct TextPattern {
    text: Box<[u8]>,
    /// Its place among those given.
    which: usize,
}

/// What is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundText {
    /// Nothing, and nothing begins.
    Nothing,
    /// From here on all bytes are the beginning of a text, and more would have to be seen.
    Beginning(usize),
    /// A text.
    Match {
        /// Its first byte.
        start: usize,
        /// One past its last.
        end: usize,
        /// Which.
        which: usize,
    },
}

enum TextFinder {
    /// The whole of one text, as it is.
    Exact(Box<memmem::Finder<'static>>),
    Packed(packed::Searcher),
    Automaton(AhoCorasick),
}

impl TextPatterns {
    /// At most 255 texts, none of them empty; several are always searched with [`LetterCase::Ignored`].
    pub(crate) fn new(texts: &[Vec<u8>], case: LetterCase) -> TextPatterns {
        let caseless = case == LetterCase::Ignored;
        let lower = |(which, text): (usize, &Vec<u8>)| TextPattern {
            text: if caseless { text.to_ascii_lowercase().into() } else { text.clone().into() },
            which,
        };
        let mut sorted: Vec<TextPattern> = texts.iter().enumerate().map(lower).collect();
        sorted.sort_by_key(|pattern| pattern.text.first().copied());
        let mut first = Box::new([0; 257]);
        for byte in 0..=256_usize {
            let begins = |pattern: &TextPattern| pattern.text.first().is_some_and(|b| usize::from(*b) < byte);
            first[byte] = sorted.partition_point(begins) as u8;
        }
        let (finder, window) = match &*sorted {
            [only] if !caseless => {
                (TextFinder::Exact(Box::new(memmem::Finder::new(&only.text).into_owned())), only.text.len())
            }
            sorted => finder(sorted),
        };
        let longest = sorted.iter().map(|pattern| pattern.text.len()).max().unwrap_or(0);
        let whole = matches!(&*sorted, [only] if only.text.len() <= window);
        TextPatterns { texts: sorted.into(), first, finder, caseless, window, whole, longest }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Bytes of the longest.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// The first match in `bytes` that begins at `from` or after it; where several begin, of the text given first.
    /// A text that may yet match, if there were more bytes, comes before all that are after it. Those `used` don't
    /// count.
    pub(crate) fn find(&self, bytes: &[u8], from: usize, used: &[bool]) -> FoundText {
        // Where the searcher, which wants a window of bytes, may miss what begins.
        let tail = bytes.len().saturating_sub(self.window - 1);
        let mut at = from;
        while let Some(candidate) = self.finder.find(bytes, at)
            && candidate < tail
        {
            if self.whole && !used[0] {
                return FoundText::Match { start: candidate, end: candidate + self.longest, which: 0 };
            }
            if let Some(found) = self.compare(bytes, candidate, used) {
                return found;
            }
            at = candidate + 1;
        }
        (at.max(tail)..bytes.len()).find_map(|at| self.compare(bytes, at, used)).unwrap_or(FoundText::Nothing)
    }

    #[inline]
    fn compare(&self, bytes: &[u8], start: usize, used: &[bool]) -> Option<FoundText> {
        let rest = &bytes[start..];
        let byte = usize::from(if self.caseless { rest[0].to_ascii_lowercase() } else { rest[0] });
        for pattern in &self.texts[usize::from(self.first[byte])..usize::from(self.first[byte + 1])] {
            if used[pattern.which] {
                continue;
            }
            let len = pattern.text.len().min(rest.len());
            let (there, text) = (&rest[..len], &pattern.text[..len]);
            let same = if self.caseless { there.eq_ignore_ascii_case(text) } else { there == text };
            if !same {
                continue;
            }
            return Some(if len < pattern.text.len() {
                FoundText::Beginning(start)
            } else {
                FoundText::Match { start, end: start + len, which: pattern.which }
            });
        }
        None
    }
}

impl TextFinder {
    #[inline]
    fn find(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let span = Span::from(from.min(bytes.len())..bytes.len());
        let found = match self {
            TextFinder::Exact(finder) => return finder.find(&bytes[span.start..]).map(|at| span.start + at),
            TextFinder::Packed(searcher) => searcher.find_in(bytes, span),
            TextFinder::Automaton(automaton) => automaton.find(aho_corasick::Input::new(bytes).span(span)),
        };
        found.map(|found| found.start())
    }
}

/// What finds the first bytes of the texts, and how many of them.
fn finder(texts: &[TextPattern]) -> (TextFinder, usize) {
    for window in (2..=WINDOW).rev() {
        // In the order given, small letters first: the searcher compares those that it can't distinguish one by one.
        let mut seen = BTreeSet::new();
        let mut spelled: Vec<Vec<u8>> = heads(texts, window).flat_map(spellings).collect();
        spelled.retain(|text| seen.insert(text.clone()));
        if spelled.len() <= SPELLINGS
            && let Some(searcher) = packed::Config::new()
                .match_kind(packed::MatchKind::LeftmostFirst)
                .builder()
                .extend(spelled)
                .build()
        {
            return (TextFinder::Packed(searcher), window);
        }
    }
    let automaton = AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::LeftmostFirst)
        .build(heads(texts, WINDOW))
        .expect("255 texts of four bytes are far below the limits");
    (TextFinder::Automaton(automaton), WINDOW)
}

fn heads(texts: &[TextPattern], window: usize) -> impl Iterator<Item = &[u8]> {
    texts.iter().map(move |pattern| &pattern.text[..pattern.text.len().min(window)])
}

/// All ways in which a text can be written in letters small and large.
fn spellings(text: &[u8]) -> Vec<Vec<u8>> {
    text.iter().fold(vec![Vec::new()], |spelled, byte| {
        let with = |byte: u8| {
            spelled.iter().map(move |text| {
                let mut text = text.clone();
                text.push(byte);
                text
            })
        };
        match byte.to_ascii_uppercase() {
            upper if upper == *byte => with(*byte).collect(),
            upper => with(*byte).chain(with(upper)).collect(),
        }
    })
}

/// How many first bytes are searched for. Four letters are in text where the whole is, nearly always.
const WINDOW: usize = 4;
/// What a packed searcher takes at most.
const SPELLINGS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[&str], bytes: &str) -> FoundText {
        let texts: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        let patterns = TextPatterns::new(&texts, LetterCase::Ignored);
        patterns.find(bytes.as_bytes(), 0, &vec![false; texts.len()])
    }

    #[test]
    fn the_leftmost_counts_then_the_first_given() {
        let a = |start, end, which| FoundText::Match { start, end, which };
        assert_eq!(found(&["span"], "a <sPaN> b"), a(3, 7, 0));
        assert_eq!(found(&["b", "ab"], "xab"), a(1, 3, 1));
        assert_eq!(found(&["ab", "abc"], "xabc"), a(1, 3, 0));
        assert_eq!(found(&["abc", "ab"], "xabc"), a(1, 4, 0));
        assert_eq!(found(&["abcd", "ab"], "xabc"), FoundText::Beginning(1));
        assert_eq!(found(&["abcd", "bc"], "xabce"), a(2, 4, 1));
        assert_eq!(found(&["span"], "spa spa s"), FoundText::Beginning(8));
        assert_eq!(found(&["span"], "spa spa x"), FoundText::Nothing);
        assert_eq!(found(&["\u{e9}"], "x\u{c3}"), FoundText::Nothing);
    }

    #[test]
    fn many_texts_are_found_too() {
        let texts: Vec<Vec<u8>> = (0..255).map(|n| format!("word{n:03}").into_bytes()).collect();
        let patterns = TextPatterns::new(&texts, LetterCase::Ignored);
        assert!(matches!(patterns.finder, TextFinder::Packed(_)), "all begin alike");
        let texts: Vec<Vec<u8>> =
            (0..255_u8).map(|n| [b'g' + n / 16, b'g' + n % 16, b'0', b'x'].to_vec()).collect();
        let patterns = TextPatterns::new(&texts, LetterCase::Ignored);
        assert!(matches!(patterns.finder, TextFinder::Automaton(_)));
        let text = "!".repeat(100) + "VU0X";
        let found = patterns.find(text.as_bytes(), 0, &[false; 255]);
        assert_eq!(found, FoundText::Match { start: 100, end: 104, which: 254 });
    }
}
