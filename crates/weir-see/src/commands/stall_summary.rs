//! Stalls in a line each: equal ones together, with what blocked the loop by name.

use weir_http::json::JsonValue;

use crate::stall_cause::{cause, is_line_of_lua};
use crate::table::{TableCell, TableColumn, TableReport, time};

/// What a line needs of one stall, as `weir blocked --json` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StallLine {
    location: String,
    by: String,
    /// What equal ones have in common: the line of the script where there is one, else all of `by`.
    place: String,
    ns: u64,
    /// Nanoseconds since it ended; `None` while it lasts.
    ended: Option<u64>,
    /// Requests that had to wait.
    waited: u64,
    /// The request that ran; empty for none.
    request: String,
}

impl StallLine {
    /// Reads a line of JSON whose stack has names.
    ///
    /// # Errors
    /// Which key is missing.
    pub(super) fn parse(line: &str) -> Result<StallLine, String> {
        let json = JsonValue::parse(line.as_bytes()).map_err(|error| error.to_string())?;
        let text = |key: &str| json.field(key).and_then(JsonValue::text);
        let number = |key: &str| {
            let number = json.field(key).and_then(JsonValue::number);
            number.ok_or_else(|| format!("a stall without \"{key}\""))
        };
        let list = |key: &str| json.field(key).and_then(JsonValue::list).unwrap_or_default();
        let stack: Vec<&str> = list("stack").iter().filter_map(JsonValue::text).collect();
        let ongoing = json.field("ongoing").and_then(JsonValue::bool) == Some(true);
        let (ns, age) = (number("duration_ns")?, number("age_ns")?);
        let by = cause(&stack, text("syscall"), text("site").unwrap_or("-"));
        let request = text("request").filter(|id| id.bytes().any(|digit| digit != b'0')).unwrap_or_default();
        Ok(StallLine {
            location: text("location").unwrap_or("-").to_owned(),
            place: stack
                .iter()
                .find(|frame| is_line_of_lua(frame))
                .map_or(by.as_str(), |line| line)
                .to_owned(),
            by,
            ns,
            ended: (!ongoing).then(|| age.saturating_sub(ns)),
            waited: list("victims").len() as u64,
            request: request.to_owned(),
        })
    }

    /// By itself, for a list that grows.
    pub(super) fn text(&self) -> String {
        let StallLine { location, by, ns, waited, request, .. } = self;
        let waited = if *waited > 0 { format!(", {waited} waited") } else { String::new() };
        let request = if request.is_empty() { String::new() } else { format!(", req {request}") };
        format!("{} in {location} by {by}{waited}{request}\n", time(*ns))
    }
}

/// The table of all stalls: those of one location and line in one row, what took longest in sum first. The function is
/// that of the longest one: a line that computes is met in another one each time.
pub(super) fn table(stalls: &[StallLine]) -> String {
    let mut rows: Vec<(StallLine, u64, u64)> = Vec::new();
    for stall in stalls {
        let same =
            rows.iter_mut().find(|(row, ..)| (&row.location, &row.place) == (&stall.location, &stall.place));
        let Some((row, times, total)) = same else {
            rows.push((stall.clone(), 1, stall.ns));
            continue;
        };
        (*times, *total) = (*times + 1, *total + stall.ns);
        row.waited += stall.waited;
        row.ended = row.ended.zip(stall.ended).map(|(one, other)| one.min(other));
        if stall.ns > row.ns {
            (row.ns, row.request, row.by) = (stall.ns, stall.request.clone(), stall.by.clone());
        }
    }
    rows.sort_by_key(|(_, _, total)| std::cmp::Reverse(*total));
    let mut report = TableReport::new(&COLUMNS);
    for (row, times, total) in rows {
        report.row([
            TableCell::Text(row.location),
            TableCell::Text(row.by),
            TableCell::Count(times),
            TableCell::Time(row.ns),
            TableCell::Time(total),
            row.ended.map_or_else(|| TableCell::text("goes on"), TableCell::Time),
            TableCell::Count(row.waited),
            TableCell::Text(if row.request.is_empty() { "-".to_owned() } else { row.request }),
        ]);
    }
    report.text()
}

const COLUMNS: [TableColumn; 8] = [
    TableColumn("location", "location"),
    TableColumn("blocked by", "by"),
    TableColumn("times", "times"),
    TableColumn("longest", "longest_ns"),
    TableColumn("total", "total_ns"),
    TableColumn("ago", "ended_ns"),
    TableColumn("waited", "waited"),
    TableColumn("longest one's id", "request"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn line(location: &str, ns: u64, ended: bool, request: u8) -> String {
        let called = if request == 1 { "nanosleep" } else { "usleep" };
        format!(
            r#"{{"worker":0,"ongoing":{},"duration_ns":{ns},"age_ns":{},"site":"s","location":"{location}","request":"{request:032x}","wait_channel":"","stack":["{called}","a.lua:3"],"victims":[{{"request":"1","waited_ns":5}}]}}"#,
            !ended,
            ns + 1_000
        )
    }

    #[test]
    fn equal_ones_are_one_row() {
        let all = [
            line("/a", 20_000_000, true, 1),
            line("/b", 90_000_000, false, 0),
            line("/a", 30_000_000, true, 2),
        ];
        let stalls: Vec<StallLine> =
            all.iter().map(|line| StallLine::parse(line).expect("a stall")).collect();
        let table = table(&stalls);
        let rows: Vec<String> =
            table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(rows[1], "/b usleep at a.lua:3 1 90.0 ms 90.0 ms goes on 1 -");
        assert_eq!(rows[2], format!("/a usleep at a.lua:3 2 30.0 ms 50.0 ms 1.0 µs 2 {:032x}", 2));
        assert_eq!(stalls[1].text(), "90.0 ms in /b by usleep at a.lua:3, 1 waited\n");
    }

    #[test]
    fn what_is_no_stall_is_refused() {
        assert!(StallLine::parse("{}").is_err() && StallLine::parse("worker").is_err());
    }
}
