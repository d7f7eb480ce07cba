//! Numbers of requests: our own, and those of W3C Trace Context that others give.

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

/// What a `traceparent` field says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    /// The trace it belongs to.
    pub(crate) trace: RequestId,
    /// Its caller records the trace.
    pub(crate) sampled: bool,
}

/// Reads a `traceparent` field (W3C Trace Context, section 3.2): `00-` 32 hexadecimal digits `-` 16 of them `-` two
/// more, lower case, neither number 0. Of later versions what stands behind the flags is left alone (section 4).
pub(crate) fn parse(field: &[u8]) -> Option<Parent> {
    let (version, rest) = field.split_at_checked(3)?;
    let (trace, rest) = rest.split_at_checked(33)?;
    let (span, rest) = rest.split_at_checked(17)?;
    let (flags, rest) = rest.split_at_checked(2)?;
    let version = hex(version.strip_suffix(b"-")?)?;
    if version == 0xff || (version == 0 && !rest.is_empty()) || !(rest.is_empty() || rest[0] == b'-') {
        return None;
    }
    let trace = hex(trace.strip_suffix(b"-")?).filter(|&number| number != 0)?;
    hex(span.strip_suffix(b"-")?).filter(|&number| number != 0)?;
    Some(Parent { trace: RequestId(trace), sampled: hex(flags)? & 1 == 1 })
}

/// A `traceparent` field.
pub(crate) fn traceparent(id: RequestId, span: u64, sampled: bool) -> String {
    format!("00-{id}-{span:016x}-{:02x}", u8::from(sampled))
}

/// The 32 digits of a number.
pub(crate) fn digits(RequestId(number): RequestId) -> [u8; 32] {
    let mut digits = [0; 32];
    for (at, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (124 - 4 * at)) as usize & 15];
    }
    digits
}

fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
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
    use proptest::prelude::*;

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

    #[test]
    fn a_parent_is_taken_as_the_standard_has_it() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = parse(good.as_bytes()).expect("the standard's example");
        assert_eq!(parent.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(parent.sampled);
        assert!(!parse(good.replace("-01", "-00").as_bytes()).expect("not sampled").sampled);
        assert!(parse(good.replace("00-4b", "cc-4b").as_bytes()).is_some(), "a later version");
        assert!(parse((good.replace("00-4b", "cc-4b") + "-what-the-future-will-bring").as_bytes()).is_some());
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(trace in 1u128.., span in 1u64.., sampled: bool) {
            let field = traceparent(RequestId(trace), span, sampled);
            prop_assert_eq!(parse(field.as_bytes()), Some(Parent { trace: RequestId(trace), sampled }));
        }

        #[test]
        fn no_field_makes_it_panic(field: Vec<u8>, text in "[0-9a-f-]{0,70}") {
            parse(&field);
            parse(text.as_bytes());
        }
    }
}
