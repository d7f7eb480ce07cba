//! The time in a form of C's `strftime`.

use weir_http::date::CivilTime;

/// The present time in the form `format`; GMT unless it is `local`.
pub(crate) fn now(format: &[u8], local: bool) -> Vec<u8> {
    let (now, _) = weir_rt::unix_time();
    let offset = if local { weir_rt::clock::local_offset(now) } else { 0 };
    let zone = match (local, offset) {
        (false, _) => "GMT".to_owned(),
        (true, 0) => "UTC".to_owned(),
        (true, offset) => numeric(offset),
    };
    let mut out = Vec::with_capacity(48);
    FormattedMoment {
        civil: CivilTime::from_unix(now as i64 + i64::from(offset)),
        offset,
        zone: &zone,
        unix: now,
    }
    .write(&mut out, format);
    out
}

struct FormattedMoment<'a> {
    civil: CivilTime,
    /// Seconds east of UTC.
    offset: i32,
    zone: &'a str,
    unix: u64,
}

impl FormattedMoment<'_> {
    /// Writes the moment as `format` says, with English names.
    fn write(&self, out: &mut Vec<u8>, format: &[u8]) {
        let mut rest = format;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            match (byte, after.split_first()) {
                (b'%', Some((conversion, after))) => {
                    rest = after;
                    self.convert(out, *conversion);
                }
                (byte, _) => out.push(*byte),
            }
        }
    }

    fn convert(&self, out: &mut Vec<u8>, conversion: u8) {
        let CivilTime { year, month, day, hour, minute, second, weekday } = self.civil;
        let twelve = if hour % 12 == 0 { 12 } else { hour % 12 };
        let weekday_name = WEEKDAYS[usize::from(weekday % 7)];
        let month_name = MONTHS[usize::from(month.saturating_sub(1) % 12)];
        let text = match conversion {
            b'a' => weekday_name[..3].to_owned(),
            b'A' => weekday_name.to_owned(),
            b'b' | b'h' => month_name[..3].to_owned(),
            b'B' => month_name.to_owned(),
            b'c' => return self.write(out, b"%a %b %e %H:%M:%S %Y"),
            b'C' => format!("{:02}", year / 100),
            b'd' => format!("{day:02}"),
            b'D' | b'x' => return self.write(out, b"%m/%d/%y"),
            b'e' => format!("{day:2}"),
            b'F' => return self.write(out, b"%Y-%m-%d"),
            b'g' => format!("{:02}", self.iso_week().0 % 100),
            b'G' => self.iso_week().0.to_string(),
            b'H' => format!("{hour:02}"),
            b'I' => format!("{twelve:02}"),
            b'j' => format!("{:03}", self.day_of_year() + 1),
            b'k' => format!("{hour:2}"),
            b'l' => format!("{twelve:2}"),
            b'm' => format!("{month:02}"),
            b'M' => format!("{minute:02}"),
            b'n' => "\n".to_owned(),
            b'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            b'P' => if hour < 12 { "am" } else { "pm" }.to_owned(),
            b'r' => return self.write(out, b"%I:%M:%S %p"),
            b'R' => return self.write(out, b"%H:%M"),
            b's' => self.unix.to_string(),
            b'S' => format!("{second:02}"),
            b't' => "\t".to_owned(),
            b'T' | b'X' => return self.write(out, b"%H:%M:%S"),
            b'u' => (if weekday == 0 { 7 } else { weekday }).to_string(),
            b'U' => format!("{:02}", (self.day_of_year() + 7 - u32::from(weekday)) / 7),
            b'V' => format!("{:02}", self.iso_week().1),
            b'w' => weekday.to_string(),
            b'W' => format!("{:02}", (self.day_of_year() + 7 - u32::from(weekday + 6) % 7) / 7),
            b'y' => format!("{:02}", year % 100),
            b'Y' => year.to_string(),
            b'z' => numeric(self.offset),
            b'Z' => self.zone.to_owned(),
            b'%' => "%".to_owned(),
            other => return out.extend_from_slice(&[b'%', other]),
        };
        out.extend_from_slice(text.as_bytes());
    }

    /// Days since the first of January.
    fn day_of_year(&self) -> u32 {
        let leap = u32::from(is_leap(self.civil.year));
        let before = (1..self.civil.month).map(|month| match month {
            2 => 28 + leap,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        });
        before.sum::<u32>() + u32::from(self.civil.day) - 1
    }

    /// Year and week of ISO 8601: the week with the year's first Thursday is the first.
    fn iso_week(&self) -> (u16, u32) {
        let year = self.civil.year;
        let monday = u32::from(self.civil.weekday + 6) % 7;
        let week = (self.day_of_year() + 10 - monday) / 7;
        match week {
            0 => (year - 1, weeks_of(year - 1)),
            week if week > weeks_of(year) => (year + 1, 1),
            week => (year, week),
        }
    }
}

/// How many ISO weeks a year has: 53 if it, or in a leap year the day before it, begins with a Thursday.
fn weeks_of(year: u16) -> u32 {
    let last = |year: u16| {
        let year = u32::from(year);
        (year + year / 4 - year / 100 + year / 400) % 7
    };
    if last(year) == 4 || last(year - 1) == 3 { 53 } else { 52 }
}

fn is_leap(year: u16) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// `+hhmm`
fn numeric(offset: i32) -> String {
    let minutes = offset.unsigned_abs() / 60;
    let sign = if offset < 0 { '-' } else { '+' };
    format!("{sign}{:02}{:02}", minutes / 60, minutes % 60)
}

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn at(unix: u64, format: &str) -> String {
        let mut out = Vec::new();
        FormattedMoment { civil: CivilTime::from_unix(unix as i64), offset: 0, zone: "GMT", unix }
            .write(&mut out, format.as_bytes());
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn moments_are_written_as_strftime_writes_them() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        assert_eq!(at(784_111_777, "%A, %d-%b-%Y %H:%M:%S %Z"), "Sunday, 06-Nov-1994 08:49:37 GMT");
        assert_eq!(
            at(784_111_777, "%c|%D|%r|%j|%U|%W|%u|%z|%%|%q|%"),
            "Sun Nov  6 08:49:37 1994|11/06/94|08:49:37 AM|310|45|44|7|+0000|%|%q|%"
        );
        assert_eq!(at(784_111_777, "%G-%V"), "1994-44");
        // Fri, 01 Jan 2010; Thu, 31 Dec 2009; Mon, 31 Dec 2012.
        assert_eq!(at(1_262_304_000, "%G-%V %j"), "2009-53 001");
        assert_eq!(at(1_262_217_600, "%G-%V %j"), "2009-53 365");
        assert_eq!(at(1_356_912_000, "%G-%V %j %U %W"), "2013-01 366 53 53");
    }
}
