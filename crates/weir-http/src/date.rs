//! Times as text: HTTP dates in and out, and the forms nginx's logs and variables use.
//!
//! Calendar arithmetic is our own (proleptic Gregorian, days counted from 1970-01-01); there is no time zone data
//! here: the offset of local time comes in as minutes east of UTC. All times are whole seconds since the epoch,
//! clamped to the years 1970 to 9999 when written, so every form has its fixed width.

/// A moment as calendar fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CivilTime {
    /// Year, 1970 to 9999.
    pub year: u16,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59.
    pub second: u8,
    /// Day of the week, 0 is Sunday.
    pub weekday: u8,
}

const DAY: i64 = 86_400;
/// 9999-12-31 23:59:59.
const LAST: i64 = 253_402_300_799;
const WEEKDAYS: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

impl CivilTime {
    /// The calendar fields of `seconds` since the epoch, clamped to 1970-9999.
    pub fn from_unix(seconds: i64) -> Self {
        let seconds = seconds.clamp(0, LAST);
        let (days, time) = (seconds / DAY, seconds % DAY);
        let (year, month, day) = civil_from_days(days);
        let narrow = |value: i64| value as u8;
        CivilTime {
            year: year as u16,
            month: narrow(month),
            day: narrow(day),
            hour: narrow(time / 3600),
            minute: narrow(time / 60 % 60),
            second: narrow(time % 60),
            // 1970-01-01 was a Thursday.
            weekday: narrow((days + 4) % 7),
        }
    }

    fn weekday_name(&self) -> &'static [u8; 3] {
        WEEKDAYS.get(usize::from(self.weekday)).copied().unwrap_or(b"Sun")
    }

    fn month_name(&self) -> &'static [u8; 3] {
        MONTHS.get(usize::from(self.month).wrapping_sub(1)).copied().unwrap_or(b"Jan")
    }
}

/// Days since the epoch of a date of the years 0 to 9999; `month` 1-12. Counts years from March, so the leap day is the
/// last of a year, and 400 years too many, which nothing below zero comes of.
#[inline]
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    /// Days from 1 March to the first of January, February and so on.
    const BEFORE: [u32; 12] = [306, 337, 0, 31, 61, 92, 122, 153, 184, 214, 245, 275];
    let year = (year + 400 - i64::from(month <= 2)) as u32;
    let before = BEFORE.get((month - 1) as usize).copied().unwrap_or(0);
    let days = year * 365 + year / 4 - year / 100 + year / 400 + before;
    // 719,468 days lie between 0000-03-01 and 1970-01-01; 400 years have 146,097.
    i64::from(days) + day - 1 - 719_468 - 146_097
}

/// The inverse of [`days_from_civil`]: year, month, day.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Reads an HTTP date (RFC 9110, section 5.6.7) in any of its three forms: `Sun, 06 Nov 1994 08:49:37 GMT`,
/// `Sunday, 06-Nov-94 08:49:37 GMT` and `Sun Nov  6 08:49:37 1994`. As nginx, the name of the day is not checked and
/// what follows the time is ignored; two-digit years below 70 are of this century. Months count in any letter case, where
/// nginx looks at some letters of the name only (and takes `JAN` for July).
///
/// Returns seconds since the epoch, negative before 1970; `None` when the text is not a date.
pub fn parse(text: &[u8]) -> Option<i64> {
    text.first_chunk().and_then(usual_form).or_else(|| any_form(text))
}

/// The form that servers send, by its places, at a quarter of the cost; `None`: it is another one, or wrong.
fn usual_form(text: &[u8; 29]) -> Option<i64> {
    let [w, e, k, b',', b' ', d, d1, b' ', m, o, n, b' ', y, y1, y2, y3, b' ', time @ ..] = *text else {
        return None;
    };
    let [h, h1, b':', i, i1, b':', s, s1, ..] = time else { return None };
    let mut digits = DigitPairs::default();
    let (day, year) = (digits.two(d, d1), digits.two(y, y1) * 100 + digits.two(y2, y3));
    let (hour, minute, second) = (digits.two(h, h1), digits.two(i, i1), digits.two(s, s1));
    let good = !digits.others
        && [w, e, k].iter().all(u8::is_ascii_alphabetic)
        && hour < 24
        && minute < 60
        && second < 60;
    let (year, month, day) = (i64::from(year), month_number([m, o, n])?, i64::from(day));
    let exists = (1..=28).contains(&day) || (1..=days_of_month(year, month)).contains(&day);
    let time = i64::from(hour * 3600 + minute * 60 + second);
    (good && exists).then(|| days_from_civil(year, month, day) * DAY + time)
}

/// Reads digits, and notes whether there was anything else among them.
#[derive(Default)]
struct DigitPairs {
    others: bool,
}

impl DigitPairs {
    #[inline]
    fn two(&mut self, tens: u8, ones: u8) -> u32 {
        let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
        self.others |= tens > 9 || ones > 9;
        u32::from(tens) * 10 + u32::from(ones)
    }
}

#[inline]
fn month_number(name: [u8; 3]) -> Option<i64> {
    match &name {
        b"Jan" => Some(1),
        b"Feb" => Some(2),
        b"Mar" => Some(3),
        b"Apr" => Some(4),
        b"May" => Some(5),
        b"Jun" => Some(6),
        b"Jul" => Some(7),
        b"Aug" => Some(8),
        b"Sep" => Some(9),
        b"Oct" => Some(10),
        b"Nov" => Some(11),
        b"Dec" => Some(12),
        _ => month_in_any_case(name),
    }
}

#[cold]
fn month_in_any_case(name: [u8; 3]) -> Option<i64> {
    MONTHS.iter().zip(1..).find(|(month, _)| month.eq_ignore_ascii_case(&name)).map(|(_, number)| number)
}

fn any_form(text: &[u8]) -> Option<i64> {
    let separator = text.iter().position(|&byte| byte == b',' || byte == b' ')?;
    let mut rest = DateReader(text.get(separator + 1..)?);
    rest.spaces();
    let (year, month, day, time) = if text.get(separator) == Some(&b' ') {
        let month = rest.month()?;
        rest.byte(b' ')?;
        let day = rest.padded_day()?;
        rest.byte(b' ')?;
        let time = rest.time()?;
        rest.byte(b' ')?;
        (rest.digits(4)?, month, day, time)
    } else {
        let day = rest.digits(2)?;
        let dashed = rest.0.first() == Some(&b'-');
        let between = if dashed { b'-' } else { b' ' };
        rest.byte(between)?;
        let month = rest.month()?;
        rest.byte(between)?;
        let year = if dashed { century(rest.digits(2)?) } else { rest.digits(4)? };
        rest.byte(b' ')?;
        (year, month, day, rest.time()?)
    };
    (1..=days_of_month(year, month)).contains(&day).then(|| days_from_civil(year, month, day) * DAY + time)
}

fn century(year: i64) -> i64 {
    if year < 70 { 2000 + year } else { 1900 + year }
}

/// The rest of a date.
struct DateReader<'a>(&'a [u8]);

impl DateReader<'_> {
    fn spaces(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    fn byte(&mut self, expected: u8) -> Option<()> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        (byte == expected).then_some(())
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits
            .iter()
            .try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0')))
    }

    fn month(&mut self) -> Option<i64> {
        let (name, rest) = self.0.split_first_chunk::<3>()?;
        self.0 = rest;
        month_number(*name)
    }

    /// asctime's day: two digits, or a space and one, or one.
    fn padded_day(&mut self) -> Option<i64> {
        if self.0.first() == Some(&b' ') {
            self.byte(b' ')?;
        }
        let count = if self.0.get(1) == Some(&b' ') { 1 } else { 2 };
        self.digits(count)
    }

    /// `08:49:37` as seconds of the day.
    fn time(&mut self) -> Option<i64> {
        let hour = self.digits(2)?;
        self.byte(b':')?;
        let minute = self.digits(2)?;
        self.byte(b':')?;
        let second = self.digits(2)?;
        (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`: `Date`, `Last-Modified`, `Expires` (RFC 9110, section 5.6.7).
pub fn http(seconds: i64) -> [u8; 29] {
    let civil = CivilTime::from_unix(seconds);
    let mut text = DateText::new();
    text.put(civil.weekday_name()).put(b", ").two(civil.day).put(b" ").put(civil.month_name()).put(b" ");
    text.year(&civil).put(b" ").time(&civil).put(b" GMT");
    text.bytes
}

/// `Sun, 06-Nov-94 08:49:37 GMT`: the `expires` of a cookie as nginx writes it, appended to `out`. From 2038 on the
/// year has four digits.
pub fn cookie(out: &mut Vec<u8>, seconds: i64) {
    let civil = CivilTime::from_unix(seconds);
    let mut date = DateText::<12>::new();
    date.put(civil.weekday_name()).put(b", ").two(civil.day).put(b"-").put(civil.month_name()).put(b"-");
    let mut year = DateText::<4>::new();
    year.year(&civil);
    let mut time = DateText::<13>::new();
    time.put(b" ").time(&civil).put(b" GMT");
    let digits = if civil.year > 2037 { 0.. } else { 2.. };
    out.extend_from_slice(&date.bytes);
    out.extend_from_slice(year.bytes.get(digits).unwrap_or_default());
    out.extend_from_slice(&time.bytes);
}

/// `06/Nov/1994:08:49:37 +0000`: `$time_local`. `offset` is local time's distance from UTC, in minutes east.
pub fn local(seconds: i64, offset: i32) -> [u8; 26] {
    let civil = local_civil(seconds, offset);
    let mut text = DateText::new();
    text.two(civil.day).put(b"/").put(civil.month_name()).put(b"/").year(&civil).put(b":").time(&civil);
    text.put(b" ").offset(offset, b"");
    text.bytes
}

/// `1994-11-06T08:49:37+00:00`: `$time_iso8601`. `offset` in minutes east of UTC.
pub fn iso8601(seconds: i64, offset: i32) -> [u8; 25] {
    let civil = local_civil(seconds, offset);
    let mut text = DateText::new();
    text.year(&civil).put(b"-").two(civil.month).put(b"-").two(civil.day).put(b"T").time(&civil);
    text.offset(offset, b":");
    text.bytes
}

/// `1994/11/06 08:49:37`: the beginning of an error log line. `offset` in minutes east of UTC.
pub fn error_log(seconds: i64, offset: i32) -> [u8; 19] {
    let civil = local_civil(seconds, offset);
    let mut text = DateText::new();
    text.year(&civil).put(b"/").two(civil.month).put(b"/").two(civil.day).put(b" ").time(&civil);
    text.bytes
}

/// `Nov  6 08:49:37`: a syslog header (RFC 3164, section 4.1.2). `offset` in minutes east of UTC.
pub fn syslog(seconds: i64, offset: i32) -> [u8; 15] {
    let civil = local_civil(seconds, offset);
    let mut text = DateText::new();
    text.put(civil.month_name()).put(b" ");
    match civil.day {
        day @ 0..10 => text.put(&[b' ', b'0' + day]),
        day => text.two(day),
    };
    text.put(b" ").time(&civil);
    text.bytes
}

fn line(seconds: i64) -> [u8; 37] {
    let mut text = DateText::new();
    text.put(b"Date: ").put(&http(seconds)).put(b"\r\n");
    text.bytes
}

fn local_civil(seconds: i64, offset: i32) -> CivilTime {
    CivilTime::from_unix(seconds.saturating_add(i64::from(offset) * 60))
}

/// A text of fixed length under construction. Every form above fills its array exactly; the tests hold that.
struct DateText<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> DateText<N> {
    fn new() -> Self {
        DateText { bytes: [b' '; N], at: 0 }
    }

    fn put(&mut self, part: &[u8]) -> &mut Self {
        let end = self.at + part.len();
        self.bytes.get_mut(self.at..end).expect("the array is as long as its form").copy_from_slice(part);
        self.at = end;
        self
    }

    fn two(&mut self, value: u8) -> &mut Self {
        self.put(&[b'0' + value / 10 % 10, b'0' + value % 10])
    }

    fn year(&mut self, civil: &CivilTime) -> &mut Self {
        self.two((civil.year / 100) as u8).two((civil.year % 100) as u8)
    }

    fn time(&mut self, civil: &CivilTime) -> &mut Self {
        self.two(civil.hour).put(b":").two(civil.minute).put(b":").two(civil.second)
    }

    fn offset(&mut self, minutes: i32, between: &[u8]) -> &mut Self {
        let distance = minutes.unsigned_abs();
        self.put(if minutes < 0 { b"-" } else { b"+" }).two((distance / 60 % 100) as u8);
        self.put(between).two((distance % 60) as u8)
    }
}

/// The latest times asked for as [`http`] writes them: those of files, asked for with every request.
#[derive(Debug, Clone)]
pub struct DateMemo {
    /// Each in the one place that its lowest bits lead to.
    places: [(i64, [u8; 29]); PLACES],
}

impl DateMemo {
    /// The time `seconds` (since 1970) as an HTTP date, as [`http`] writes it: `Sun, 06 Nov 1994 08:49:37 GMT`. It is
    /// formatted only when the memo does not hold it.
    #[inline]
    pub fn http(&mut self, seconds: i64) -> &[u8; 29] {
        let (of, text) = &mut self.places[seconds as usize % PLACES];
        if *of != seconds {
            (*of, *text) = (seconds, http(seconds));
        }
        text
    }
}

impl Default for DateMemo {
    fn default() -> DateMemo {
        // What any text may hash to before it is looked up: a time that leads to another place, or the right one.
        DateMemo { places: [(0, http(0)); PLACES] }
    }
}

/// Times remembered; a power of two.
const PLACES: usize = 64;

/// The current time in every form, written once a second however often it is asked for.
#[derive(Debug, Clone)]
pub struct CachedTime {
    seconds: i64,
    offset: i32,
    http: [u8; 29],
    line: [u8; 37],
    local: [u8; 26],
    iso8601: [u8; 25],
    error_log: [u8; 19],
    syslog: [u8; 15],
}

impl CachedTime {
    /// The forms of `seconds` since the epoch; `offset` is local time's distance from UTC in minutes east.
    pub fn new(seconds: i64, offset: i32) -> Self {
        CachedTime {
            seconds,
            offset,
            http: http(seconds),
            line: line(seconds),
            local: local(seconds, offset),
            iso8601: iso8601(seconds, offset),
            error_log: error_log(seconds, offset),
            syslog: syslog(seconds, offset),
        }
    }

    /// Moves to `seconds`; formats again only when second or offset changed, and says whether it did.
    pub fn update(&mut self, seconds: i64, offset: i32) -> bool {
        let changed = seconds != self.seconds || offset != self.offset;
        if changed {
            *self = CachedTime::new(seconds, offset);
        }
        changed
    }

    /// Seconds since 1970.
    pub fn seconds(&self) -> i64 {
        self.seconds
    }

    /// The HTTP date (RFC 9110, section 5.6.7), in UTC: `Sun, 06 Nov 1994 08:49:37 GMT`.
    pub fn http(&self) -> &[u8; 29] {
        &self.http
    }

    /// The field line `Date: `, [`http`] and the line end.
    pub fn line(&self) -> &[u8; 37] {
        &self.line
    }

    /// nginx's `$time_local`, in local time: `06/Nov/1994:08:49:37 +0000`.
    pub fn local(&self) -> &[u8; 26] {
        &self.local
    }

    /// nginx's `$time_iso8601`, in local time: `1994-11-06T08:49:37+00:00`.
    pub fn iso8601(&self) -> &[u8; 25] {
        &self.iso8601
    }

    /// The time as lines of the error log begin, in local time: `1994/11/06 08:49:37`.
    pub fn error_log(&self) -> &[u8; 19] {
        &self.error_log
    }

    /// The time in the header of a syslog message (RFC 3164), in local time: `Nov  6 08:49:37`.
    pub fn syslog(&self) -> &[u8; 15] {
        &self.syslog
    }
}

#[cfg(test)]
mod tests;
