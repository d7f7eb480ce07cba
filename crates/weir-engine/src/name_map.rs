//! Tables whose keys come from the configuration: no client chooses what is in them, so their hash need not be
//! one that withstands attacks, which costs four times as much.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Values by names of the configuration: of servers, of locations.
pub type NameMap<V> = HashMap<Box<[u8]>, V, BuildHasherDefault<NameHasher>>;

/// Eight bytes a step by an odd multiplier, the high half folded back in.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameHasher(u64);

impl NameHasher {
    #[inline]
    fn add(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

impl Hasher for NameHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            self.add(rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    #[inline]
    fn write_usize(&mut self, length: usize) {
        self.0 ^= (length as u64) << 48;
    }

    /// Tables look at the low and at the highest bits.
    #[inline]
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;

    /// Whether a server block is another one after a reload is said by the hash of its words.
    #[test]
    fn lines_that_say_something_else_differ() {
        let number = |text: &str| {
            let tree = weir_conf::read_one(std::path::Path::new("a"), text.as_bytes(), |name| name == b"l");
            let mut hasher = NameHasher::default();
            tree.expect("valid").lines.iter().for_each(|line| line.hash_words(&mut hasher));
            hasher.finish()
        };
        let texts = [
            "s { x \"\" a; }",
            "s { x a \"\"; }",
            "s { x a; }",
            "s { x; a; }",
            "s { xa; }",
            "s { x a a; }",
            "s { x \"\" \"\" a; }",
            "s { x \"\" a \"\"; }",
            "s { x { a; } }",
            "s { x { } a; }",
            "s { x { \"\" { a; } } }",
            "s { x { } \"\" a; }",
            "s { l { a } }",
            "s { l { a} }",
            "s { l { } a; }",
            "s { }",
        ];
        let numbers: HashSet<u64> = texts.iter().map(|text| number(text)).collect();
        assert_eq!(numbers.len(), texts.len());
        assert_eq!(number("s{x a;}"), number("s {\n # b\n  x 'a' ; }"));
    }

    #[test]
    fn close_names_differ() {
        let hash = |name: String| BuildHasherDefault::<NameHasher>::default().hash_one(name.as_bytes());
        let all: Vec<u64> = (0..100_000).map(|n| hash(format!("www{n}.example.com"))).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert_eq!(all.iter().map(|hash| hash >> 57).collect::<HashSet<_>>().len(), 128);
        assert!(all.iter().map(|hash| hash & 0xffff).collect::<HashSet<_>>().len() > 45_000);
    }
}
