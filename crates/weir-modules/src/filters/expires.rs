//! `expires`: sets until when a response may be cached, in `Expires` and `Cache-Control: max-age`.

use weir_conf::{LineCx, Result, parse_time_s};
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Text};
use weir_http::{KnownField, date, h1};

use crate::filters::headers::replace;

/// The directive as written.
#[derive(Clone)]
pub(crate) enum ExpiresRule {
    /// One period for all responses.
    Always(ExpiresPeriod),
    /// Known when the response is; `true` with `modified`.
    Variable(ValueScript, bool),
}

/// For how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpiresPeriod {
    /// The fields are left alone.
    Off,
    /// Since 1970, that is not at all.
    Epoch,
    /// Ten years.
    Max,
    /// Seconds from now.
    Access(i64),
    /// Seconds from the modification of what is sent; from now when that is not known.
    Modified(i64),
    /// Until the next time that the local clock shows this many seconds after midnight.
    Daily(i64),
}

impl ExpiresRule {
    /// Reads the line's arguments, `[modified] time`.
    ///
    /// # Errors
    /// nginx's words for an invalid period.
    pub(crate) fn parse_line(line: &mut LineCx<'_>) -> Result<ExpiresRule> {
        let at = line.args().len() - 1;
        let modified = at == 1;
        if modified && line.bytes(0) != b"modified" {
            return Err(line.refuse_arg(0, "invalid value"));
        }
        let script = ValueScript::compile(line, at)?;
        match script.constant() {
            None => Ok(ExpiresRule::Variable(script, modified)),
            Some(value) => match ExpiresPeriod::parse(value, modified) {
                Ok(period) => Ok(ExpiresRule::Always(period)),
                Err(reason) => Err(line.refuse_arg(at, reason)),
            },
        }
    }

    /// Whether it is `off` for every response.
    pub(crate) fn is_off(&self) -> bool {
        matches!(self, ExpiresRule::Always(ExpiresPeriod::Off))
    }

    /// The period for the response of `x`; none when a variable says `off`, or nothing that could be read.
    pub(crate) fn period(&self, x: &mut Exchange) -> Option<ExpiresPeriod> {
        let period = match self {
            ExpiresRule::Always(period) => *period,
            ExpiresRule::Variable(script, modified) => {
                let value = script.value(x);
                ExpiresPeriod::parse(x.text(&value), *modified).ok()?
            }
        };
        (period != ExpiresPeriod::Off).then_some(period)
    }
}

impl ExpiresPeriod {
    /// Reads a period: `epoch`, `max`, `off`, `@time` of day, or a time with a sign.
    fn parse(value: &[u8], modified: bool) -> std::result::Result<ExpiresPeriod, &'static str> {
        let seconds =
            |text| parse_time_s(text).and_then(|time| i64::try_from(time).ok()).ok_or("invalid value");
        match value {
            b"epoch" if !modified => return Ok(ExpiresPeriod::Epoch),
            b"max" if !modified => return Ok(ExpiresPeriod::Max),
            b"off" if !modified => return Ok(ExpiresPeriod::Off),
            [b'@', ..] if modified => return Err("daily time cannot be used with \"modified\" parameter"),
            [b'@', time @ ..] => {
                let time = seconds(time)?;
                let message = "daily time value must be less than 24 hours";
                return if time > DAY { Err(message) } else { Ok(ExpiresPeriod::Daily(time)) };
            }
            _ => {}
        }
        let time = match value {
            [b'+', time @ ..] => seconds(time)?,
            [b'-', time @ ..] => -seconds(time)?,
            time => seconds(time)?,
        };
        Ok(if modified { ExpiresPeriod::Modified(time) } else { ExpiresPeriod::Access(time) })
    }

    /// When the response expires, in seconds since 1970, and its age by then; no age where it shall not be cached.
    /// `offset` is the local clock's, in seconds east of UTC.
    fn resolve(self, now: i64, modified: Option<i64>, offset: i64) -> (i64, Option<u64>) {
        let (at, time) = match self {
            ExpiresPeriod::Off | ExpiresPeriod::Epoch => return (1, None),
            ExpiresPeriod::Max => return (LAST, Some(TEN_YEARS)),
            ExpiresPeriod::Access(0) | ExpiresPeriod::Modified(0) => return (now, Some(0)),
            ExpiresPeriod::Access(time) => (now.saturating_add(time), time),
            ExpiresPeriod::Modified(time) => (modified.unwrap_or(now).saturating_add(time), time),
            ExpiresPeriod::Daily(time) => (next(now, time, offset), time),
        };
        let age = u64::try_from(at.saturating_sub(now)).ok();
        (at.min(LATEST), age.filter(|_| time >= 0))
    }
}

/// The next time after `now` that is `time` seconds after a local midnight.
fn next(now: i64, time: i64, offset: i64) -> i64 {
    let midnight = now - (now + offset).rem_euclid(DAY);
    let today = midnight + time;
    if today > now { today } else { today + DAY }
}

/// Sets both fields; those that the response had are replaced.
pub(crate) fn set_expires(x: &mut Exchange, period: ExpiresPeriod) {
    let now = x.worker.dates(|dates| dates.seconds());
    let offset = match period {
        ExpiresPeriod::Daily(_) => weir_rt::clock::local_offset(now as u64),
        _ => 0,
    };
    let (at, age) = period.resolve(now, x.response.last_modified, i64::from(offset));
    let expires = x.arena.push(&date::http(at));
    replace(x, KnownField::Expires, Text::Span(expires));
    let control = match age {
        None => Text::from("no-cache"),
        Some(age) => Text::Span(x.arena.write(|out| {
            out.extend_from_slice(b"max-age=");
            h1::number(out, age);
        })),
    };
    replace(x, KnownField::CacheControl, control);
}

/// Seconds of a day.
const DAY: i64 = 24 * 60 * 60;
/// Thu, 31 Dec 2037 23:55:55 GMT: the last date that is safe with 32 bits, as nginx writes it for `max`.
const LAST: i64 = 2_145_916_555;
/// Fri, 31 Dec 9999 23:59:59 GMT: no date of HTTP is later (RFC 9110 section 5.6.7 has years of four digits).
const LATEST: i64 = 253_402_300_799;
/// Seconds of ten years.
const TEN_YEARS: u64 = 315_360_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_read_as_nginx_reads_them() {
        for (value, modified, period) in [
            ("epoch", false, Ok(ExpiresPeriod::Epoch)),
            ("max", false, Ok(ExpiresPeriod::Max)),
            ("off", false, Ok(ExpiresPeriod::Off)),
            ("off", true, Err("invalid value")),
            ("1h", false, Ok(ExpiresPeriod::Access(3600))),
            ("+1h 30m", false, Ok(ExpiresPeriod::Access(5400))),
            ("-1", false, Ok(ExpiresPeriod::Access(-1))),
            ("0", false, Ok(ExpiresPeriod::Access(0))),
            ("24h", true, Ok(ExpiresPeriod::Modified(DAY))),
            ("@15h30m", false, Ok(ExpiresPeriod::Daily(15 * 3600 + 1800))),
            ("@24h", false, Ok(ExpiresPeriod::Daily(DAY))),
            ("@24h1s", false, Err("daily time value must be less than 24 hours")),
            ("@1h", true, Err("daily time cannot be used with \"modified\" parameter")),
            ("", false, Err("invalid value")),
            ("+", false, Err("invalid value")),
            ("@", false, Err("invalid value")),
            ("--1", false, Err("invalid value")),
            ("tomorrow", false, Err("invalid value")),
        ] {
            assert_eq!(ExpiresPeriod::parse(value.as_bytes(), modified), period, "{value}");
        }
    }

    #[test]
    fn periods_become_a_date_and_an_age() {
        const NOW: i64 = 1_000_000;
        for (period, modified, at, age) in [
            (ExpiresPeriod::Epoch, None, 1, None),
            (ExpiresPeriod::Max, None, LAST, Some(TEN_YEARS)),
            (ExpiresPeriod::Access(0), None, NOW, Some(0)),
            (ExpiresPeriod::Access(60), Some(5), NOW + 60, Some(60)),
            (ExpiresPeriod::Access(-60), None, NOW - 60, None),
            (ExpiresPeriod::Modified(60), None, NOW + 60, Some(60)),
            (ExpiresPeriod::Modified(60), Some(NOW - 20), NOW + 40, Some(40)),
            (ExpiresPeriod::Modified(60), Some(NOW - 90), NOW - 30, None),
            (ExpiresPeriod::Modified(-60), Some(NOW + 90), NOW + 30, None),
            (ExpiresPeriod::Access(i64::MAX), None, LATEST, Some((i64::MAX - NOW) as u64)),
        ] {
            assert_eq!(period.resolve(NOW, modified, 0), (at, age), "{period:?} {modified:?}");
        }
        assert_eq!(&date::http(LAST), b"Thu, 31 Dec 2037 23:55:55 GMT");
        assert_eq!(&date::http(1), b"Thu, 01 Jan 1970 00:00:01 GMT");
    }

    #[test]
    fn a_time_of_day_is_the_next_one_of_the_local_clock() {
        let noon = 10 * DAY + DAY / 2;
        let hour = 3600;
        assert_eq!(next(noon, 13 * hour, 0), noon + hour);
        assert_eq!(next(noon, 12 * hour, 0), noon + DAY);
        assert_eq!(next(noon, 11 * hour, 0), noon + 23 * hour);
        assert_eq!(
            next(noon, 13 * hour, 2 * hour),
            noon + 23 * hour,
            "it is 14 o'clock two hours to the east"
        );
        assert_eq!(next(noon, 0, -13 * hour), noon + hour, "it is 23 o'clock, the day before");
    }
}
