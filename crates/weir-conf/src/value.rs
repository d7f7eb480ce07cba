//! Values as nginx writes them: numbers, sizes, offsets, times.
//!
//! Pure functions over bytes, for whole arguments and for parts such as the `10m` of `inactive=10m`. Each returns
//! `None` for what nginx refuses; nothing here wraps around: the greatest value is that of nginx, 2^63 - 1.

/// The value of a directive such as `gzip_buffers 16 8k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// How many buffers, at least one.
    pub number: u64,
    /// The size of each in bytes, at least one.
    pub size: u64,
}

/// `on` or `off`, in letters of any case; `None` for other text.
pub fn parse_flag(text: &[u8]) -> Option<bool> {
    if text.eq_ignore_ascii_case(b"on") {
        Some(true)
    } else if text.eq_ignore_ascii_case(b"off") {
        Some(false)
    } else {
        None
    }
}

/// A decimal number without sign.
pub fn parse_number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0, |value, &digit| append(value, digit))
}

/// A decimal number with at most `point` digits after the dot, times ten to the power of `point`: `parse_fixed(b"10.5",
/// 2)` is 1050. `None` for other text and for a value beyond 2^63 - 1.
pub fn parse_fixed(text: &[u8], point: u32) -> Option<u64> {
    let mut parts = text.splitn(2, |&b| b == b'.');
    let (whole, fraction) = (parts.next()?, parts.next().unwrap_or(b""));
    if whole.is_empty() && fraction.is_empty() || fraction.len() > point as usize {
        return None;
    }
    let digits = whole.iter().chain(fraction).try_fold(0, |value, &digit| append(value, digit))?;
    scale(digits, 10_u64.checked_pow(point - fraction.len() as u32)?)
}

/// A size in bytes: digits and an optional unit `k` (1,024 bytes) or `m` (1,048,576) of either case. `None` for other
/// text and for a value beyond 2^63 - 1.
pub fn parse_size(text: &[u8]) -> Option<u64> {
    let (digits, unit) = match text {
        [digits @ .., b'k' | b'K'] => (digits, 1 << 10),
        [digits @ .., b'm' | b'M'] => (digits, 1 << 20),
        digits => (digits, 1),
    };
    scale(parse_number(digits)?, unit)
}

/// An offset in a file or body, in bytes: as [`parse_size`], and with the unit `g` of either case. `None` for other
/// text and for a value beyond 2^63 - 1.
pub fn parse_offset(text: &[u8]) -> Option<u64> {
    match text {
        [digits @ .., b'g' | b'G'] => scale(parse_number(digits)?, 1 << 30),
        _ => parse_size(text),
    }
}

/// A time in milliseconds: `30`, `30s`, `500ms`, `1h30m`, `1d 2h`. A number without unit is seconds; units are
/// from the greatest to the least, of `w d h m s ms`.
pub fn parse_time_ms(text: &[u8]) -> Option<u64> {
    parse_time(text, TimeUnit::Month, 1000)
}

/// A time in seconds: as [`parse_time_ms`], with the units `y M w d h m s` (a year is 365 days, a month 30). `None` for
/// other text, also for milliseconds, and for a value beyond 2^63 - 1.
pub fn parse_time_s(text: &[u8]) -> Option<u64> {
    parse_time(text, TimeUnit::Start, 1)
}

/// Units in the order in which they may follow each other. A blank after a bare number makes it seconds.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum TimeUnit {
    Start,
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Blank,
}

impl TimeUnit {
    /// The unit `text` begins with and the length of its name.
    fn read(text: &[u8]) -> Option<(Self, usize)> {
        Some(match text {
            [b'y', ..] => (Self::Year, 1),
            [b'M', ..] => (Self::Month, 1),
            [b'w', ..] => (Self::Week, 1),
            [b'd', ..] => (Self::Day, 1),
            [b'h', ..] => (Self::Hour, 1),
            [b'm', b's', ..] => (Self::Millisecond, 2),
            [b'm', ..] => (Self::Minute, 1),
            [b's', ..] => (Self::Second, 1),
            [b' ', ..] => (Self::Blank, 1),
            _ => return None,
        })
    }

    const fn seconds(self) -> u64 {
        match self {
            Self::Year => 365 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Week => 7 * 86_400,
            Self::Day => 86_400,
            Self::Hour => 3_600,
            Self::Minute => 60,
            Self::Start | Self::Second | Self::Millisecond | Self::Blank => 1,
        }
    }
}

/// `last` is the unit that counts as written already; `second` is a second in units of the result.
fn parse_time(text: &[u8], mut last: TimeUnit, second: u64) -> Option<u64> {
    let (mut rest, mut total, mut value, mut any) = (text, 0_u64, 0, false);
    while let [first, tail @ ..] = rest {
        if first.is_ascii_digit() {
            value = append(value, *first)?;
            (rest, any) = (tail, true);
            continue;
        }
        let (unit, length) = TimeUnit::read(rest)?;
        let out_of_order = unit <= last || (unit == TimeUnit::Blank && last >= TimeUnit::Second);
        if out_of_order || (unit == TimeUnit::Millisecond && second == 1) {
            return None;
        }
        let factor = if unit == TimeUnit::Millisecond { 1 } else { unit.seconds() * second };
        total = bounded(total.checked_add(scale(value, factor)?)?)?;
        (value, last) = (0, unit);
        rest = &rest[length..];
        while let [b' ', tail @ ..] = rest {
            rest = tail;
        }
    }
    let total = total.checked_add(scale(value, second)?)?;
    if any { bounded(total) } else { None }
}

fn append(value: u64, digit: u8) -> Option<u64> {
    let digit = char::from(digit).to_digit(10)?;
    bounded(value.checked_mul(10)?.checked_add(u64::from(digit))?)
}

fn scale(value: u64, factor: u64) -> Option<u64> {
    bounded(value.checked_mul(factor)?)
}

fn bounded(value: u64) -> Option<u64> {
    (value <= i64::MAX as u64).then_some(value)
}

/// The host and the port of `host[:port]`; the host may be an IPv6 address in brackets, and keeps them.
///
/// # Errors
/// The port is no number from 1 to 65535.
pub fn split_port(text: &str) -> Result<(&str, Option<u16>), std::num::ParseIntError> {
    let after = text.rfind(']').map_or(0, |at| at + 1);
    match text[after..].find(':') {
        None => Ok((text, None)),
        Some(at) => {
            let (name, port) = text.split_at(after + at);
            let number: std::num::NonZeroU16 = port[1..].parse()?;
            Ok((name, Some(number.get())))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(parse_number(b"0042"), Some(42));
        assert_eq!(parse_number(b"9223372036854775807"), Some(i64::MAX as u64));
        for wrong in ["", "-1", "+1", "1.0", "9223372036854775808", "99999999999999999999", "1 ", "0x1"] {
            assert_eq!(parse_number(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn fixed_point_numbers() {
        assert_eq!(parse_fixed(b"10.5", 2), Some(1050));
        assert_eq!(parse_fixed(b"10", 2), Some(1000));
        assert_eq!(parse_fixed(b"0.05", 2), Some(5));
        for wrong in ["", ".", "1.234", "1.2.3", "-1", "1.x"] {
            assert_eq!(parse_fixed(wrong.as_bytes(), 2), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_and_offsets() {
        assert_eq!(parse_size(b"8k"), Some(8192));
        assert_eq!(parse_size(b"1M"), Some(1 << 20));
        assert_eq!(parse_size(b"17"), Some(17));
        assert_eq!(parse_size(b"1g"), None, "nginx has no g in sizes");
        assert_eq!(parse_offset(b"2G"), Some(2 << 30));
        assert_eq!(parse_offset(b"2m"), Some(2 << 20));
        for wrong in ["", "k", "1kk", "k1", "1.5m", "9007199254740992k"] {
            assert_eq!(parse_size(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(parse_offset(b"8589934592g"), None);
        assert_eq!(parse_size(b"9007199254740991k"), Some(9_007_199_254_740_991 << 10));
    }

    #[test]
    fn times_in_milliseconds() {
        for (text, milliseconds) in [
            ("30", 30_000),
            ("30s", 30_000),
            ("500ms", 500),
            ("1m", 60_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1d", 86_400_000),
            ("1w2d", 777_600_000),
            ("1s500ms", 1_500),
            ("1h30", 3_630_000),
            ("30 ", 30_000),
            ("0", 0),
        ] {
            assert_eq!(parse_time_ms(text.as_bytes()), Some(milliseconds), "{text}");
        }
        for wrong in ["", "s", "1y", "1M", "1.5h", "30m1h", "1s1s", "1x", "-1", "1ms1s", " "] {
            assert_eq!(parse_time_ms(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(parse_time_ms(b"9223372036854775"), Some(9_223_372_036_854_775_000));
        assert_eq!(parse_time_ms(b"9223372036854776"), None);
    }

    #[test]
    fn times_in_seconds() {
        for (text, seconds) in
            [("1y", 31_536_000), ("1M", 2_592_000), ("1y6M", 47_088_000), ("90", 90), ("2m", 120)]
        {
            assert_eq!(parse_time_s(text.as_bytes()), Some(seconds), "{text}");
        }
        for wrong in ["1ms", "1M1y", "1year", "1s 1 "] {
            assert_eq!(parse_time_s(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_value_panics_or_exceeds_the_greatest(text in "[0-9ymMwdhskKgG .]{0,24}") {
            let text = text.as_bytes();
            let all = [parse_number(text), parse_size(text), parse_offset(text), parse_time_ms(text), parse_time_s(text), parse_fixed(text, 3)];
            for value in all.into_iter().flatten() {
                prop_assert!(i64::try_from(value).is_ok());
            }
        }

        #[test]
        fn what_is_a_time_in_hours_and_minutes_adds_up(h in 0_u64..10_000, m in 0_u64..10_000) {
            prop_assert_eq!(parse_time_s(format!("{h}h{m}m").as_bytes()), Some(h * 3600 + m * 60));
            prop_assert_eq!(parse_time_ms(format!("{h}h {m}m").as_bytes()), Some((h * 3600 + m * 60) * 1000));
        }
    }
}
