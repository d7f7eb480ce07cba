//! `$request_id`: 128 random bits for each request, in 32 hexadecimal digits.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use crate::exchange::Exchange;
use crate::text::Text;

/// The request's number; made when asked for first, the same for its subrequests and after internal redirects.
pub(super) fn id(x: &mut Exchange) -> Option<Text> {
    if let Some(id) = x.variables.request_id() {
        return Some(Text::Span(id));
    }
    let id = x.arena.write(|out| out.extend_from_slice(&digits(random())));
    x.variables.keep_request_id(id);
    Some(Text::Span(id))
}

/// A keyed hash of a counter: the standard library's hash tables get their keys from the system's random numbers,
/// once per thread, so this costs no system call and no state of ours to seed.
fn random() -> u128 {
    thread_local! {
        static STATE: (RandomState, Cell<u64>) = (RandomState::new(), Cell::new(0));
    }
    STATE.with(|(key, next)| {
        let n = next.get();
        next.set(n + 2);
        u128::from(key.hash_one(n)) << 64 | u128::from(key.hash_one(n + 1))
    })
}

fn digits(number: u128) -> [u8; 32] {
    let mut digits = [0; 32];
    for (at, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (124 - 4 * at)) as usize & 15];
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_all_of_the_number() {
        let text = digits(0x0123_4567_89ab_cdef_0fed_cba9_8765_4321);
        assert_eq!(&text, b"0123456789abcdef0fedcba987654321");
    }

    #[test]
    fn numbers_do_not_repeat() {
        let numbers: std::collections::HashSet<u128> = (0..1000).map(|_| random()).collect();
        assert_eq!(numbers.len(), 1000);
    }
}
