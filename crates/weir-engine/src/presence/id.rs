//! Numbers of requests.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use weir_trace::RequestId;

/// A worker's source of numbers: a counter, mixed. The seed comes from the system's random numbers, as the standard
/// library's hash tables get them, so numbers repeat neither among workers nor after a restart. They distinguish
/// requests apart; they keep no secret.
#[derive(Debug)]
pub(crate) struct RequestIds {
    seed: u128,
    counter: Cell<u64>,
}

impl RequestIds {
    pub(crate) fn new() -> RequestIds {
        let key = RandomState::new();
        let seed = u128::from(key.hash_one(0)) << 64 | u128::from(key.hash_one(1));
        RequestIds { seed, counter: Cell::new(key.hash_one(2)) }
    }

    /// The next number; never 0.
    #[inline]
    pub(crate) fn next(&self) -> RequestId {
        let n = self.counter.get().wrapping_add(GOLDEN);
        self.counter.set(n);
        RequestId((mix(n) ^ self.seed) | 1)
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

/// One multiplication, which every upper bit of the product depends on, and the lower ones with the upper ones mixed
/// into them. Different `n` have different products, and different results.
#[inline]
fn mix(n: u64) -> u128 {
    let product = u128::from(n) * u128::from(FACTOR);
    product ^ product >> 64
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// Odd, and its bits look like those of a random number.
const FACTOR: u64 = 0xD6E8_FEB8_6659_FD93;

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
        let (one, two) = (RequestIds::new(), RequestIds::new());
        let numbers: std::collections::HashSet<RequestId> =
            (0..1000).flat_map(|_| [one.next(), two.next()]).collect();
        assert_eq!(numbers.len(), 2000);
        assert!(!numbers.contains(&RequestId(0)));
    }
}
