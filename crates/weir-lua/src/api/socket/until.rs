//! `receiveuntil`: finds a pattern in bytes that come in pieces.
//!
//! The search is that of Knuth, Morris and Pratt: bytes are looked at once, and what may be the pattern's beginning stays
//! unread until it is clear what it is.

/// A pattern, ready to be searched for.
#[derive(Debug)]
pub(crate) struct UntilPattern {
    bytes: Vec<u8>,
    /// For each length of a beginning of the pattern the longest shorter one that it ends with.
    borders: Vec<usize>,
    /// The pattern is part of what is given.
    pub(super) inclusive: bool,
}

/// How far a search has come in bytes that are not taken yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UntilProgress {
    /// Bytes that are not the pattern's.
    pub(crate) given: usize,
    /// Bytes after those that may be its beginning.
    pub(crate) matched: usize,
}

/// What a search came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UntilSearch {
    /// All bytes were looked at.
    More,
    /// As many bytes as wanted are there, and perhaps some more that turned out not to be the pattern's.
    Enough,
    /// The pattern follows after [`UntilProgress::given`].
    Found,
}

impl UntilPattern {
    /// The pattern `bytes`, at least one.
    pub(crate) fn new(bytes: &[u8], inclusive: bool) -> UntilPattern {
        let mut borders = vec![0; bytes.len() + 1];
        let mut border = 0;
        for at in 1..bytes.len() {
            while border > 0 && bytes[at] != bytes[border] {
                border = borders[border];
            }
            border += usize::from(bytes[at] == bytes[border]);
            borders[at + 1] = border;
        }
        UntilPattern { bytes: bytes.to_vec(), borders, inclusive }
    }

    /// Bytes of the pattern.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Goes on with the search in `bytes`, of which `progress` covers the beginning, until `most` bytes are there.
    pub(crate) fn search(
        &self,
        progress: &mut UntilProgress,
        bytes: &[u8],
        most: Option<usize>,
    ) -> UntilSearch {
        while let Some(byte) = bytes.get(progress.given + progress.matched) {
            if *byte == self.bytes[progress.matched] {
                progress.matched += 1;
                if progress.matched == self.bytes.len() {
                    return UntilSearch::Found;
                }
                continue;
            }
            if progress.matched == 0 {
                self.skip(progress, bytes, most);
            } else {
                self.fall_back(progress, *byte);
            }
            if most.is_some_and(|most| progress.given >= most) {
                return UntilSearch::Enough;
            }
        }
        UntilSearch::More
    }

    /// Passes bytes that the pattern does not begin with.
    fn skip(&self, progress: &mut UntilProgress, bytes: &[u8], most: Option<usize>) {
        let rest = &bytes[progress.given..];
        let rest = &rest[..rest.len().min(most.map_or(usize::MAX, |most| most - progress.given))];
        progress.given += rest.iter().position(|byte| *byte == self.bytes[0]).unwrap_or(rest.len());
    }

    /// `byte` is not the pattern's next: of what matched, the end may still be a beginning.
    fn fall_back(&self, progress: &mut UntilProgress, byte: u8) {
        let mut border = self.borders[progress.matched];
        while border > 0 && self.bytes[border] != byte {
            border = self.borders[border];
        }
        progress.given += progress.matched - border;
        progress.matched = border;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `bytes` in pieces; what was given before the pattern, and whether it was found.
    fn fed(pattern: &UntilPattern, pieces: &[&[u8]], most: Option<usize>) -> (Vec<Vec<u8>>, bool) {
        let (mut progress, mut buffer, mut given) = (UntilProgress::default(), Vec::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                let search = pattern.search(&mut progress, &buffer, most);
                if search == UntilSearch::More {
                    break;
                }
                given.push(buffer.drain(..progress.given).collect());
                progress.given = 0;
                if search == UntilSearch::Found {
                    return (given, true);
                }
            }
        }
        given.push(buffer[..progress.given].to_vec());
        (given, false)
    }

    fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
        haystack.windows(needle.len()).position(|window| window == needle)
    }

    #[test]
    fn a_beginning_may_begin_anew_within_itself() {
        for (pattern, bytes, before) in [
            ("abcabd", "abcabcabd", "abc"),
            ("--abc", "----abc", "--"),
            ("aa", "aaa", ""),
            ("aaaaad", "baaaaaaaaeaaaaaaadf", "baaaaaaaaeaa"),
            ("x", "abx", "ab"),
        ] {
            let pattern = UntilPattern::new(pattern.as_bytes(), false);
            for cut in 0..=bytes.len() {
                let (left, right) = bytes.as_bytes().split_at(cut);
                let (given, found) = fed(&pattern, &[left, right], None);
                assert!(found, "{bytes} cut at {cut}");
                assert_eq!(given.concat(), before.as_bytes(), "{bytes} cut at {cut}");
            }
        }
    }

    #[test]
    fn what_may_be_the_pattern_is_kept_back() {
        let pattern = UntilPattern::new(b"abc", false);
        assert_eq!(fed(&pattern, &[b"xxab"], None), (vec![b"xx".to_vec()], false));
    }

    #[test]
    fn pieces_have_the_wanted_length_unless_they_end_in_what_looked_like_the_pattern() {
        let pattern = UntilPattern::new(b"--abc", false);
        let (given, found) = fed(&pattern, &[b"wxyz--ab!--abc"], Some(3));
        assert!(found);
        assert_eq!(given, [b"wxy".to_vec(), b"z--ab".to_vec(), b"!".to_vec()]);
    }

    proptest! {
        #[test]
        fn finds_what_a_plain_search_finds(
            pattern in "[ab]{1,6}",
            pieces in prop::collection::vec("[ab]{0,7}", 0..8),
            most in prop::option::of(1usize..5),
        ) {
            let whole = pieces.concat();
            let cut: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
            let (given, found) = fed(&UntilPattern::new(pattern.as_bytes(), false), &cut, most);
            let expected = find(whole.as_bytes(), pattern.as_bytes());
            prop_assert_eq!(found, expected.is_some());
            let given = given.concat();
            match expected {
                Some(at) => prop_assert_eq!(&given[..], &whole.as_bytes()[..at]),
                None => prop_assert!(whole.as_bytes().starts_with(&given) && whole.len() - given.len() < pattern.len()),
            }
        }
    }
}
