//! Numbers of requests.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use weir_trace::RequestId;

/// A worker's source of numbers: a counter, mixed. The seed comes from the system's random numbers, as the standard
/// library's hash tables get them, so numbers repeat neither among workers nor after a restart. They tell requests
/// apart; they keep no secret.
#[derive(Debug)]
pub(crate) struct Ids {
    seeds: [u64; 2],
    counter: Cell<u64>,
}

impl Ids {
    pub(crate) fn new() -> Ids {
        let key = RandomState::new();
        Ids { seeds: [key.hash_one(0), key.hash_one(1)], counter: Cell::new(key.hash_one(2)) }
    }

    /// The next number; never 0.
    #[inline]
    pub(crate) fn next(&self) -> RequestId {
        let n = self.counter.get().wrapping_add(GOLDEN);
        self.counter.set(n);
        let half = |seed: u64| mix(n ^ seed);
        RequestId(u128::from(half(self.seeds[0])) << 64 | u128::from(half(self.seeds[1]) | 1))
    }
}

/// The 32 digits of a number.
pub(crate) fn digits(RequestId(number): RequestId) -> [u8; 32] {
    let mut digits = [0; 32];
    for (at, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (124 - 4 * at)) as usize & 15];
    }
    digits
}

/// Stafford's mix 13: every bit of the number depends on every bit of `n`.
#[inline]
fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ n >> 31
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_all_of_the_number() {
        let id = RequestId(0x0123_4567_89ab_cdef_0fed_cba9_8765_4321);
        assert_eq!(&digits(id), b"0123456789abcdef0fedcba987654321");
        assert_eq!(id.to_string().as_bytes(), digits(id));
    }

    #[test]
    fn numbers_do_not_repeat() {
        let (one, two) = (Ids::new(), Ids::new());
        let numbers: std::collections::HashSet<RequestId> =
            (0..1000).flat_map(|_| [one.next(), two.next()]).collect();
        assert_eq!(numbers.len(), 2000);
        assert!(!numbers.contains(&RequestId(0)));
    }
}
