//! How long a response may be cached, by its header fields (RFC 9111 section 5.2, RFC 5861), read as nginx reads it.

use crate::header::decimal;

/// What the fields of a head come to. Fields are given one by one, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// Until when the response is fresh, in seconds since 1970; `None`: no field says so.
    pub valid: Option<u64>,
    /// For how many more seconds it may be used while a newer one is fetched.
    pub updating: u64,
    /// For how many more seconds it may be used when a newer one can't be fetched.
    pub error: u64,
    /// True when a field forbids caching: `no-cache`, `no-store`, `private`, or an age of 0.
    pub no_cache: bool,
    /// `Expires` lies in the past, or is no date.
    pub expired: bool,
    /// True when the response must not be cached, whatever other fields say.
    pub refused: bool,
    /// `X-Accel-Expires` has decided.
    accel: bool,
}

impl Freshness {
    /// Whether the response may be cached at all.
    pub fn may_be_kept(&self) -> bool {
        !self.no_cache && !self.expired && !self.refused
    }

    /// `X-Accel-Expires`: seconds, or `@` and a time. It outweighs all others; 0 refuses, what is no number says
    /// nothing.
    pub fn accel_expires(&mut self, value: &[u8], now: u64) {
        let until = match value.strip_prefix(b"@") {
            Some(time) => decimal(time),
            None => decimal(value).map(|seconds| now.saturating_add(seconds)),
        };
        self.accel = true;
        if decimal(value) == Some(0) {
            self.refused = true;
        } else if let Some(until) = until {
            (self.valid, self.no_cache, self.expired) = (Some(until), false, false);
        }
    }

    /// `Expires`; counts where no other field has given a time.
    pub fn expires(&mut self, value: &[u8], now: u64) {
        if self.valid.is_some() {
            return;
        }
        match crate::date::parse(value).and_then(|time| u64::try_from(time).ok()) {
            Some(time) if time >= now => self.valid = Some(time),
            _ => self.expired = true,
        }
    }

    /// One line of `Cache-Control`.
    pub fn cache_control(&mut self, value: &[u8], now: u64) {
        if !(self.accel && self.valid.is_some()) {
            if FORBID.iter().any(|word| find(value, word).is_some()) {
                self.no_cache = true;
                return;
            }
            match seconds(value, b"s-maxage=").or_else(|| seconds(value, b"max-age=")) {
                None => {}
                Some(None) => {
                    self.refused = true;
                    return;
                }
                Some(Some(0)) => {
                    self.no_cache = true;
                    return;
                }
                Some(Some(age)) => (self.valid, self.expired) = (Some(now.saturating_add(age)), false),
            }
        }
        for (name, both) in [(&b"stale-while-revalidate="[..], true), (b"stale-if-error=", false)] {
            match seconds(value, name) {
                None => {}
                Some(None) => {
                    self.refused = true;
                    return;
                }
                Some(Some(time)) => {
                    self.error = time;
                    if both {
                        self.updating = time;
                    }
                }
            }
        }
    }
}

/// The number after `name`, if that is there; `Some(None)`: something else is after it.
fn seconds(value: &[u8], name: &[u8]) -> Option<Option<u64>> {
    let rest = &value[find(value, name)? + name.len()..];
    let end = rest.iter().position(|byte| matches!(byte, b',' | b';' | b' ')).unwrap_or(rest.len());
    let digits = &rest[..end];
    if !digits.iter().all(u8::is_ascii_digit) {
        return Some(None);
    }
    // A time beyond all numbers is as good as the longest.
    Some(Some(if digits.is_empty() { 0 } else { decimal(digits).unwrap_or(u64::MAX).min(LONGEST) }))
}

/// Where `word` begins in `text`, in any case.
fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|part| part.eq_ignore_ascii_case(word))
}

/// Words that forbid a shared cache to store a response, or to use it without revalidation.
const FORBID: [&[u8]; 3] = [b"no-cache", b"no-store", b"private"];

/// RFC 9111 section 1.2.2: what a cache may read larger numbers as.
const LONGEST: u64 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn of(fields: &[(&str, &str)]) -> Freshness {
        let mut freshness = Freshness::default();
        for (name, value) in fields {
            let value = value.as_bytes();
            match *name {
                "x" => freshness.accel_expires(value, NOW),
                "e" => freshness.expires(value, NOW),
                _ => freshness.cache_control(value, NOW),
            }
        }
        freshness
    }

    /// Seconds from now; `None`: not cached.
    fn kept(fields: &[(&str, &str)]) -> Option<u64> {
        let freshness = of(fields);
        if freshness.may_be_kept() { freshness.valid.map(|valid| valid - NOW) } else { None }
    }

    const PAST: &str = "Thu, 01 Jan 1970 00:00:01 GMT";
    const LATER: &str = "Mon, 12 Jan 1970 13:46:45 GMT"; // NOW + 5

    #[test]
    fn each_field_tells_a_time_or_forbids() {
        assert_eq!(kept(&[("c", "max-age=10")]), Some(10));
        assert_eq!(kept(&[("c", "public, MAX-AGE=10, s-maxage=20")]), Some(20));
        assert_eq!(kept(&[("c", "max-age=0")]), None);
        assert_eq!(kept(&[("c", "max-age=1x")]), None);
        assert_eq!(kept(&[("c", "max-age=99999999999999999999999")]), Some(LONGEST));
        for word in ["no-cache", "No-Store", "private", "max-age=5, private"] {
            assert_eq!(kept(&[("c", word)]), None, "{word}");
        }
        assert_eq!(kept(&[("e", LATER)]), Some(5));
        assert_eq!((kept(&[("e", PAST)]), kept(&[("e", "0")])), (None, None));
        assert_eq!(kept(&[("x", "7")]), Some(7));
        assert_eq!(kept(&[("x", "@1000009")]), Some(9));
        assert_eq!((kept(&[("x", "0")]), kept(&[("x", "x")])), (None, None));
    }

    #[test]
    fn accel_outweighs_control_and_control_expires_in_any_order() {
        assert_eq!(kept(&[("c", "no-cache"), ("e", PAST), ("x", "7")]), Some(7));
        assert_eq!(kept(&[("x", "7"), ("c", "no-cache"), ("e", PAST)]), Some(7));
        assert_eq!(kept(&[("e", LATER), ("c", "max-age=10")]), Some(10));
        assert_eq!(kept(&[("c", "max-age=10"), ("e", LATER)]), Some(10));
        assert_eq!(kept(&[("e", PAST), ("c", "max-age=10")]), Some(10));
        assert_eq!(kept(&[("e", LATER), ("c", "no-cache")]), None);
    }

    #[test]
    fn stale_answers_have_times_of_their_own() {
        let of = |text| {
            let freshness = of(&[("c", text)]);
            (freshness.updating, freshness.error)
        };
        assert_eq!(of("max-age=1, stale-while-revalidate=5"), (5, 5));
        assert_eq!(of("max-age=1, stale-while-revalidate=5, stale-if-error=9"), (5, 9));
        assert_eq!(of("max-age=1, stale-if-error=9"), (0, 9));
        assert_eq!(kept(&[("c", "max-age=1, stale-if-error=x")]), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(value in proptest::collection::vec(0u8..=255, 0..60), now in 0..u64::MAX) {
            let mut freshness = Freshness::default();
            freshness.cache_control(&value, now);
            freshness.expires(&value, now);
            freshness.accel_expires(&value, now);
        }
    }
}
