//! Which requests are meant: what `--match` says.

use weir_trace::{RequestRecord, SiteTable};

use crate::source;

/// Conditions that must all hold; none holds for every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFilter {
    conditions: Vec<FilterCondition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FilterCondition {
    /// The path begins so.
    Prefix(String),
    /// The path is this.
    Path(String),
    Method(String),
    /// A status, or a class of them: its first digit.
    Status(u16),
    Class(u16),
    Location(String),
    /// The whole time is at least this many nanoseconds.
    Over(u64),
    /// It is less.
    Under(u64),
    /// It ended after this, in milliseconds since 1970.
    After(u64),
    /// It did not.
    Before(u64),
    /// The identifier begins with these digits.
    Id(String),
    /// The path holds this somewhere.
    Has(String),
}

impl RequestFilter {
    /// Reads conditions separated by spaces: a path's beginning (`/img/`), an address whose path is meant
    /// (`http://host/a.txt`), `path=`, `method=`, `status=404`, `status=5xx`, `location=`, `over=20ms`. What has spaces
    /// is in quotes: `location="= /a"`.
    ///
    /// # Errors
    /// What can't be understood.
    pub(crate) fn parse(text: &str) -> Result<RequestFilter, String> {
        let conditions =
            words(text).iter().map(|word| FilterCondition::parse(word)).collect::<Result<_, _>>()?;
        Ok(RequestFilter { conditions })
    }

    /// Whether the request is meant.
    pub(crate) fn takes(&self, record: &RequestRecord) -> bool {
        self.conditions.iter().all(|condition| condition.holds(record))
    }
}

impl FilterCondition {
    fn parse(word: &str) -> Result<FilterCondition, String> {
        for scheme in ["http://", "https://"] {
            if let Some(rest) = word.strip_prefix(scheme) {
                let path = rest.find('/').map_or("/", |at| &rest[at..]);
                return Ok(FilterCondition::Path(without_arguments(path)));
            }
        }
        let Some((key, value)) = word.split_once('=').filter(|_| !word.starts_with('/')) else {
            return Ok(FilterCondition::Prefix(without_arguments(word)));
        };
        Ok(match key {
            "path" => FilterCondition::Path(without_arguments(value)),
            "method" => FilterCondition::Method(value.to_ascii_uppercase()),
            "location" | "route" => FilterCondition::Location(value.to_owned()),
            "over" => FilterCondition::Over(duration_ns(value)?),
            "under" => FilterCondition::Under(duration_ns(value)?),
            "after" => FilterCondition::After(moment(value)?),
            "before" => FilterCondition::Before(moment(value)?),
            "id" => FilterCondition::Id(value.to_ascii_lowercase()),
            "has" => FilterCondition::Has(value.to_owned()),
            "status" => FilterCondition::status(value)?,
            _ => return Err(format!("\"{key}\" is nothing requests are chosen by")),
        })
    }

    fn status(value: &str) -> Result<FilterCondition, String> {
        let wrong = || format!("\"{value}\" is no status");
        if let Some(class) = value.strip_suffix("xx") {
            return class.parse().map(FilterCondition::Class).map_err(|_| wrong());
        }
        value.parse().map(FilterCondition::Status).map_err(|_| wrong())
    }

    fn holds(&self, record: &RequestRecord) -> bool {
        match self {
            FilterCondition::Prefix(prefix) => record.path.as_bytes().starts_with(prefix.as_bytes()),
            FilterCondition::Path(path) => record.path == weir_trace::InlineText::new(path.as_bytes()),
            FilterCondition::Method(method) => record.method.as_bytes() == method.as_bytes(),
            FilterCondition::Status(status) => record.status == *status,
            FilterCondition::Class(class) => record.status / 100 == *class,
            FilterCondition::Location(location) => {
                !record.route.is_none()
                    && is_location(location, &SiteTable::global().info(record.route).location)
            }
            FilterCondition::Over(ns) => source::scale(record.total) >= *ns,
            FilterCondition::Under(ns) => source::scale(record.total) < *ns,
            FilterCondition::After(unix_ms) => end(record) > *unix_ms,
            FilterCondition::Before(unix_ms) => end(record) <= *unix_ms,
            FilterCondition::Id(digits) => record.id.to_string().starts_with(digits),
            FilterCondition::Has(part) => String::from_utf8_lossy(record.path.as_bytes()).contains(part),
        }
    }
}

/// When a request ended, in milliseconds since 1970.
fn end(record: &RequestRecord) -> u64 {
    record.unix_ms + source::scale(record.total) / 1_000_000
}

fn moment(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("\"{text}\" is no moment: milliseconds since 1970 are"))
}

/// Whether the location that is called `name` is meant by `wanted`: its whole name (`= /a`), or its path, which several
/// locations may have (`/a` for `/a`, `= /a` and `^~ /a`).
pub(crate) fn is_location(wanted: &str, name: &str) -> bool {
    let path = ["= ", "^~ ", "~* ", "~ "].iter().find_map(|modifier| name.strip_prefix(modifier));
    wanted == name || path == Some(wanted)
}

/// The words between spaces; in quotes, which are left out, a space is one of the word.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match (c, words.last_mut()) {
            ('"', _) => quoted = !quoted,
            (c, _) if c.is_whitespace() && !quoted => words.push(String::new()),
            (c, word) => word.into_iter().for_each(|word| word.push(c)),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Records hold paths without arguments.
fn without_arguments(path: &str) -> String {
    path.split(['?', '#']).next().unwrap_or(path).to_owned()
}

/// A time as nginx writes it, in nanoseconds: `10ms`, `2s`, `5m`, `1h`; a bare number is seconds.
///
/// # Errors
/// What it is not.
pub(crate) fn duration_ns(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "" | "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return Err(format!("\"{text}\" is no time: a number with us, ms, s, m or h is")),
    };
    match number.parse::<f64>() {
        Ok(number) if number >= 0.0 && number * factor < 1e18 => Ok((number * factor) as u64),
        _ => Err(format!("\"{text}\" is no time: a number with us, ms, s, m or h is")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(method: &str, path: &str, status: u16) -> RequestRecord {
        let mut record = RequestRecord { status, ..RequestRecord::default() };
        record.method.set(method.as_bytes());
        record.set_path(path.as_bytes());
        record
    }

    #[test]
    fn all_conditions_must_hold() {
        let of = |text: &str| RequestFilter::parse(text).expect("valid");
        let get = record("GET", "/img/a.txt?secret", 404);
        for text in [
            "",
            "/img/",
            "method=get status=404",
            "status=4xx /",
            "http://h:80/img/a.txt?x",
            "path=/img/a.txt",
            "has=mg/a under=1ms before=1 id=0000",
        ] {
            assert!(of(text).takes(&get), "{text}");
        }
        for text in [
            "/b",
            "status=5xx",
            "status=404 method=POST",
            "http://h",
            "path=/img/",
            "over=1ms",
            "location=/",
            "has=b",
            "id=1",
            "under=0",
            "after=0",
        ] {
            assert!(!of(text).takes(&get), "{text}");
        }
        let quoted = RequestFilter::parse("location=\"= /a\" method=get \"path=/a b").expect("valid");
        let words = ["= /a", "GET", "/a b"].map(str::to_owned);
        let [location, method, path] = words;
        let expected = [
            FilterCondition::Location(location),
            FilterCondition::Method(method),
            FilterCondition::Path(path),
        ];
        assert_eq!(quoted.conditions, expected);
        assert!(RequestFilter::parse("colour=red").is_err() && RequestFilter::parse("status=abc").is_err());
        assert!(RequestFilter::parse("after=yesterday").is_err() && RequestFilter::parse("under=x").is_err());
    }

    #[test]
    fn a_location_is_meant_by_its_name_or_its_path() {
        for name in ["/a", "= /a", "^~ /a", "~ /a", "~* /a"] {
            assert!(is_location("/a", name) && is_location(name, name), "{name}");
        }
        assert!(!is_location("= /a", "/a") && !is_location("/a", "= /ab") && !is_location("/a", "/a/"));
    }

    #[test]
    fn times_have_units() {
        for (text, ns) in
            [("10ms", 10_000_000), ("2", 2_000_000_000), ("1.5s", 1_500_000_000), ("5m", 300_000_000_000)]
        {
            assert_eq!(duration_ns(text), Ok(ns));
        }
        for text in ["", "ms", "1d", "-1s", "1.2.3s", "99999999999h"] {
            assert!(duration_ns(text).is_err(), "{text}");
        }
    }
}
