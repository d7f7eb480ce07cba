//! Stalls in a line each: equal ones together, with what blocked the loop by name.

use weir_http::json::{JsonValue, JsonWriter};

use crate::stall_cause::{cause, is_line_of_lua};
use crate::table::{TableCell, TableColumn, TableReport, time};

/// What a line needs of one stall, as `weir blocked --json` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StallLine {
    location: String,
    by: String,
    /// What equal ones have in common: the line of the script where there is one, else the call that slept, else the module.
    place: String,
    /// Frames by name, innermost first; empty where nobody looked into it.
    stack: Vec<String>,
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
    pub(crate) fn parse(line: &str) -> Result<StallLine, String> {
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
        let no_core = json.field("no_core_ns").and_then(JsonValue::number).unwrap_or(0);
        let line = stack.iter().copied().find(|frame| is_line_of_lua(frame));
        // What ran when it lost its core is not to blame; a script that holds it, too, is a cause of its own.
        let part = if line.is_some() { NEARLY_ALL } else { HALF };
        let lost_its_core = ns > 0 && no_core as f64 >= ns as f64 * part;
        let by = match lost_its_core {
            true => NO_CORE.to_owned(),
            false => cause(&stack, text("syscall"), text("site").unwrap_or("-")),
        };
        let request = text("request").filter(|id| id.bytes().any(|digit| digit != b'0')).unwrap_or_default();
        // A module that computes is met in another function each time.
        let module = text("site").filter(|_| text("syscall").is_none());
        let place = line.or(module).filter(|_| !lost_its_core).unwrap_or(&by);
        Ok(StallLine {
            location: text("location").unwrap_or("-").to_owned(),
            place: place.to_owned(),
            stack: stack.iter().map(|frame| (*frame).to_owned()).collect(),
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

/// Equal stalls.
pub(crate) struct StallRow {
    /// The longest one, with the requests that waited for any of them; it ended when the last one did.
    longest: StallLine,
    times: u64,
    ns: u64,
}

impl StallRow {
    fn add(&mut self, stall: &StallLine) {
        (self.times, self.ns) = (self.times + 1, self.ns + stall.ns);
        let row = &mut self.longest;
        row.waited += stall.waited;
        row.ended = row.ended.zip(stall.ended).map(|(one, other)| one.min(other));
        if stall.ns > row.ns {
            (row.ns, row.request) = (stall.ns, stall.request.clone());
            if !stall.stack.is_empty() {
                (row.by, row.stack) = (stall.by.clone(), stall.stack.clone());
            }
        }
    }
}

/// All stalls: those of one location and line in one row, what took longest in sum first. The function is that of the
/// longest one: a line that computes is met in another one each time. One that nobody looked into is like the others of
/// its location, if these are all alike.
pub(crate) fn rows(stalls: &[StallLine]) -> Vec<StallRow> {
    let mut rows: Vec<StallRow> = Vec::new();
    let (seen, unseen): (Vec<&StallLine>, Vec<&StallLine>) =
        stalls.iter().partition(|stall| !stall.stack.is_empty());
    let looked_into = seen.len();
    for (number, stall) in seen.into_iter().chain(unseen).enumerate() {
        let mut of_location =
            rows.iter().enumerate().filter(|(_, row)| row.longest.location == stall.location);
        let same = of_location.clone().find(|(_, row)| row.longest.place == stall.place);
        let only = of_location.next().filter(|_| number >= looked_into && of_location.next().is_none());
        match same.or(only).map(|(at, _)| at) {
            Some(at) => rows[at].add(stall),
            None => rows.push(StallRow { longest: stall.clone(), times: 1, ns: stall.ns }),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.ns));
    rows
}

/// The table of all stalls.
pub(super) fn table(stalls: &[StallLine]) -> String {
    let mut report = TableReport::new(&COLUMNS);
    for StallRow { longest: row, times, ns } in rows(stalls) {
        report.row([
            TableCell::Text(row.location),
            TableCell::Text(row.by),
            TableCell::Count(times),
            TableCell::Time(row.ns),
            TableCell::Time(ns),
            row.ended.map_or_else(|| TableCell::text("goes on"), TableCell::Time),
            TableCell::Count(row.waited),
            TableCell::Text(if row.request.is_empty() { "-".to_owned() } else { row.request }),
        ]);
    }
    report.text()
}

/// The same as JSON, each row with the stack of its longest stall, innermost first.
pub(crate) fn json(stalls: &[StallLine]) -> String {
    JsonWriter::array(|json| {
        for StallRow { longest: row, times, ns } in rows(stalls) {
            json.nested(|json| {
                json.key("location").text(&row.location);
                json.key("by").text(&row.by);
                json.key("times").raw(times);
                json.key("longest_ns").raw(row.ns);
                json.key("total_ns").raw(ns);
                match row.ended {
                    Some(ended) => json.key("ended_ns").raw(ended),
                    None => json.key("ended_ns").raw("null"),
                }
                json.key("waited").raw(row.waited);
                json.key("request").text(&row.request);
                json.key("stack").list(|json| row.stack.iter().for_each(|frame| json.text(frame)));
            });
        }
    }) + "\n"
}

/// The parts of a stall without a core from which on that is its cause: where a script ran, and where none did.
const NEARLY_ALL: f64 = 0.8;
const HALF: f64 = 0.5;
/// What blocks a worker that other programs keep from its core.
const NO_CORE: &str = "no processor";

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

    /// A filter is met in another function each time, and sometimes nobody looks.
    #[test]
    fn one_cause_is_one_row() {
        let line = |site: &str, syscall: &str, stack: &str, ns: u64| {
            let line = format!(
                r#"{{"ongoing":false,"duration_ns":{ns},"age_ns":{ns},"site":"{site}","location":"/a"{syscall},"stack":[{stack}],"victims":[]}}"#
            );
            StallLine::parse(&line).expect("a stall")
        };
        let gzip = |function: &str, ns| line("body_filter gzip", "", &format!("\"{function}\""), ns);
        let all = [gzip("deflate_slow", 20), gzip("longest_match", 30), line("-", "", "", 90)];
        let found = rows(&all);
        assert_eq!((found.len(), found[0].times, found[0].ns, found[0].longest.ns), (1, 3, 140, 90));
        assert_eq!(found[0].longest.by, "longest_match in body_filter gzip");
        // Two causes: which of them the one is that nobody saw is not known.
        let slept = line("content static", r#","syscall":"read""#, r#""read""#, 40);
        let found = rows(&[gzip("deflate_slow", 20), slept, line("-", "", "", 90)]);
        assert_eq!(found.iter().map(|row| row.ns).collect::<Vec<_>>(), [90, 40, 20]);
        // One that had no processor is none of these, whatever ran then.
        let late = |no_core: u64, frame: &str| {
            let line = format!(
                r#"{{"ongoing":false,"duration_ns":10,"age_ns":10,"no_core_ns":{no_core},"site":"-","location":"/a","stack":["{frame}"],"victims":[]}}"#
            );
            StallLine::parse(&line).expect("a stall")
        };
        assert_eq!((&*late(5, "f").by, rows(&[gzip("f", 20), late(5, "f")]).len()), ("no processor", 2));
        assert_eq!((&*late(5, "a.lua:3").by, &*late(8, "a.lua:3").by), ("a.lua:3", "no processor"));
        let json = json(&all);
        assert!(json.contains(r#""by":"longest_match in body_filter gzip","times":3,"longest_ns":90,"total_ns":140,"ended_ns":0"#), "{json}");
        JsonValue::parse(json.as_bytes()).expect("JSON");
    }

    #[test]
    fn what_is_no_stall_is_refused() {
        assert!(StallLine::parse("{}").is_err() && StallLine::parse("worker").is_err());
    }
}
