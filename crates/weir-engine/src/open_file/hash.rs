//! A hash of paths and keys for tables that clients fill.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// Hashes `path`: eight bytes a step by a folded 128-bit product. The process's random seeds keep clients from
/// choosing names that collide.
#[inline]
pub fn hash(path: &[u8]) -> u64 {
    let &[first, second] = SEEDS.get_or_init(seeds);
    let mut state = first ^ path.len() as u64;
    let (words, rest) = path.as_chunks::<8>();
    for word in words {
        state = fold(state ^ u64::from_le_bytes(*word), second);
    }
    let mut tail = [0; 8];
    tail[..rest.len()].copy_from_slice(rest);
    fold(fold(state ^ u64::from_le_bytes(tail), second), first)
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn seeds() -> [u64; 2] {
    // Odd, so that no product loses its low bits.
    [RandomState::new().hash_one(1) | 1, RandomState::new().hash_one(2) | 1]
}

static SEEDS: OnceLock<[u64; 2]> = OnceLock::new();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_differ() {
        let mut all: Vec<u64> =
            (0..100_000).map(|n| hash(format!("/var/www/html/{n}.html").as_bytes())).collect();
        all.extend((0..64).map(|n| hash(&vec![0; n])));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        let high: std::collections::HashSet<u64> = all.iter().map(|h| h >> 57).collect();
        assert_eq!(high.len(), 128, "the bits that tables look at first are used");
    }
}
