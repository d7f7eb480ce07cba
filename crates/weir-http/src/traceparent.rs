//! The `traceparent` field of W3C Trace Context (level 1, section 3.2): which trace a request belongs to.

use std::fmt;

/// What a `traceparent` field says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; never 0.
    pub trace: u128,
    /// The caller's own number in it (parent-id); never 0.
    pub span: u64,
    /// True when the caller records the trace.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads a `traceparent` field (W3C Trace Context): `00-`, 32 hexadecimal digits (the trace), `-`, 16 (the parent
    /// span), `-`, 2 (the flags), in lower case. `None` for any other form, for version `ff` and where a number is 0.
    /// In later versions what follows the flags is ignored (section 4.3).
    #[must_use]
    pub fn parse(field: &[u8]) -> Option<TraceParent> {
        let (version, rest) = field.split_at_checked(3)?;
        let (trace, rest) = rest.split_at_checked(33)?;
        let (span, rest) = rest.split_at_checked(17)?;
        let (flags, rest) = rest.split_at_checked(2)?;
        let version = hex(version.strip_suffix(b"-")?)?;
        let ends = rest.is_empty() || (version > 0 && rest.starts_with(b"-"));
        if version == 0xff || !ends {
            return None;
        }
        let trace = hex(trace.strip_suffix(b"-")?).filter(|&number| number != 0)?;
        let span = hex(span.strip_suffix(b"-")?).filter(|&number| number != 0)?;
        Some(TraceParent { trace, span: span as u64, sampled: hex(flags)? & 1 == 1 })
    }
}

impl fmt::Display for TraceParent {
    /// The field, of version 00.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_parent_is_taken_as_the_standard_has_it() {
        let parse = |text: &str| TraceParent::parse(text.as_bytes());
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = parse(good).expect("the standard's example");
        assert_eq!((parent.span, parent.sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(parent.to_string(), good);
        assert!(!parse(&good.replace("-01", "-00")).expect("not sampled").sampled);
        assert!(parse(&good.replace("00-4b", "cc-4b")).is_some(), "a later version");
        assert!(parse(&(good.replace("00-4b", "cc-4b") + "-what-the-future-will-bring")).is_some());
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
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(trace in 1u128.., span in 1u64.., sampled: bool) {
            let parent = TraceParent { trace, span, sampled };
            prop_assert_eq!(TraceParent::parse(parent.to_string().as_bytes()), Some(parent));
        }

        #[test]
        fn what_is_taken_stands_in_the_field(field: Vec<u8>, text in "[0-9a-f]{2}-[0-9a-g]{31,33}-[0-9a-f]{16}-[0-9]{2}") {
            for field in [&field, text.as_bytes()] {
                let written = TraceParent::parse(field).map(|parent| parent.to_string());
                prop_assert!(written.is_none_or(|written| written.as_bytes()[2..53] == field[2..53]));
            }
        }
    }
}
