//! A comparison for a terminal and as JSON.

use weir_http::json::JsonWriter;

use super::joined::{ComparedSide, JoinedNode, NodeTime};
use super::stats::DifferenceEstimate;

/// What a side is called, and how many requests it had.
#[derive(Clone, Debug)]
pub(crate) struct SideName {
    pub(crate) name: String,
    pub(crate) requests: u64,
}

impl SideName {
    pub(crate) fn new(name: impl Into<String>, requests: u64) -> SideName {
        SideName { name: name.into(), requests }
    }
}

/// What the two sides are called, and how many requests each had.
#[derive(Clone, Debug)]
pub(crate) struct SideNames {
    pub(crate) a: SideName,
    pub(crate) b: SideName,
    /// How many rounds; 1 of two averages.
    pub(crate) rounds: usize,
}

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownParts {
    pub(crate) time: NodeTime,
}

impl ShownParts {
    /// Running, or what was waited.
    pub(crate) fn new(wait: bool) -> ShownParts {
        ShownParts { time: if wait { NodeTime::Wait } else { NodeTime::Run } }
    }
}

/// A line a node: both means, the difference with its interval, and the change where there is one.
pub(crate) fn text(joined: &JoinedNode, names: &SideNames, shown: ShownParts) -> String {
    let mut lines = vec![head()];
    lines.push(line("request".to_owned(), joined, joined, shown));
    for child in &joined.children {
        rows(&mut lines, child, joined, 0, "request", shown);
    }
    let widths: Vec<usize> = (0..COLUMNS)
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = headline("A", &names.a, joined, ComparedSide::A);
    out.push_str(&headline("B", &names.b, joined, ComparedSide::B));
    for cells in lines {
        let mut line = format!("{:<width$}", cells[0], width = widths[0]);
        for (cell, width) in cells.iter().zip(&widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push_str(&match names.rounds {
        1 => format!("{}, µs a request; 95% intervals by Welch, of single requests\n", word(shown)),
        rounds => format!("{}, µs a request; 95% intervals of {rounds} paired rounds\n", word(shown)),
    });
    out
}

/// The comparison as nested JSON; times are nanoseconds per request. An interval that is not known is `null`.
pub(crate) fn json(joined: &JoinedNode, names: &SideNames, shown: ShownParts) -> String {
    let side = |json: &mut JsonWriter, named: &SideName| {
        json.nested(|json| {
            json.key("name").text(&named.name);
            json.key("requests").raw(named.requests);
        });
    };
    let text = JsonWriter::object(|json| {
        side(json.key("a"), &names.a);
        side(json.key("b"), &names.b);
        json.key("rounds").raw(names.rounds);
        json.key("time").text(word(shown));
        json.key("root");
        node(json, joined, joined, shown);
    });
    text + "\n"
}

fn node(json: &mut JsonWriter, here: &JoinedNode, whole: &JoinedNode, shown: ShownParts) {
    let estimate = here.estimate(shown.time, whole);
    let number = |json: &mut JsonWriter, value: Option<f64>| match value.filter(|value| value.is_finite()) {
        Some(value) => json.raw(format_args!("{value:.1}")),
        None => json.raw("null"),
    };
    json.nested(|json| {
        json.key("kind").text(if here.kind.is_empty() { "request" } else { &here.kind });
        json.key("name").text(&called(here));
        number(json.key("a_ns"), here.mean(ComparedSide::A, shown.time));
        number(json.key("b_ns"), here.mean(ComparedSide::B, shown.time));
        number(json.key("difference_ns"), Some(estimate.difference));
        number(json.key("low_ns"), Some(estimate.low()));
        number(json.key("high_ns"), Some(estimate.high()));
        json.key("children").list(|json| {
            here.children.iter().for_each(|child| node(json, child, whole, shown));
        });
    });
}

fn headline(side: &str, named: &SideName, joined: &JoinedNode, of: ComparedSide) -> String {
    let mean = |time| micros(joined.mean(of, time).unwrap_or(0.0));
    format!(
        "{side} {}: {} requests, run {} + wait {} µs\n",
        named.name,
        named.requests,
        mean(NodeTime::Run),
        mean(NodeTime::Wait)
    )
}

/// The lines of `here` and what is below it; those in which nothing took time are left out.
fn rows(
    lines: &mut Vec<[String; COLUMNS]>,
    here: &JoinedNode,
    whole: &JoinedNode,
    depth: usize,
    above: &str,
    shown: ShownParts,
) {
    let took = |side| here.mean(side, shown.time).is_some_and(|mean| mean >= LEAST);
    if !took(ComparedSide::A) && !took(ComparedSide::B) {
        return;
    }
    let name = match here.kind.as_str() {
        // Their names say what they are.
        "phase" | "connection" | "handler" | "other" => called(here),
        kind if kind == above => called(here),
        kind => format!("{kind} {}", called(here)).trim_end().to_owned(),
    };
    let mut cells = line(name, here, whole, shown);
    cells[0] = format!("{:indent$}-> {}", "", cells[0], indent = 2 + depth * 3);
    lines.push(cells);
    for child in &here.children {
        rows(lines, child, whole, depth + 1, &here.kind, shown);
    }
}

fn line(name: String, here: &JoinedNode, whole: &JoinedNode, shown: ShownParts) -> [String; COLUMNS] {
    let side = |side| here.mean(side, shown.time).map_or_else(|| "-".to_owned(), micros);
    let estimate = here.estimate(shown.time, whole);
    let half =
        if estimate.half.is_finite() { format!("± {}", micros(estimate.half)) } else { "± ?".to_owned() };
    let change = change(estimate, here.mean(ComparedSide::A, shown.time));
    [
        name,
        side(ComparedSide::A),
        side(ComparedSide::B),
        format!("{:+.1}", estimate.difference / 1e3),
        half,
        change,
    ]
}

/// In per cent of A; nothing where no difference is seen.
fn change(estimate: DifferenceEstimate, a: Option<f64>) -> String {
    match a.filter(|a| *a > 0.0) {
        _ if !estimate.is_seen() => "not seen".to_owned(),
        Some(a) => format!("{:+.1}%", estimate.difference * 100.0 / a),
        None => "new".to_owned(),
    }
}

fn called(here: &JoinedNode) -> String {
    let (a, b) = &here.names;
    if a == b { a.clone() } else { format!("{a} / {b}") }
}

fn head() -> [String; COLUMNS] {
    ["", "A", "B", "B - A", "", "change"].map(str::to_owned)
}

fn word(shown: ShownParts) -> &'static str {
    match shown.time {
        NodeTime::Run => "run",
        NodeTime::Wait => "wait",
    }
}

fn micros(ns: f64) -> String {
    format!("{:.1}", ns / 1e3)
}

const COLUMNS: usize = 6;
/// Nanoseconds that would be shown as more than 0.0 µs.
const LEAST: f64 = 50.0;

#[cfg(test)]
mod tests {
    use super::super::joined::tests::sides;
    use super::*;

    fn scaled() -> JoinedNode {
        let (mut a, mut b) = sides();
        fn times(node: &mut super::super::MeasuredNode) {
            node.run.mean *= 1e3;
            node.run.variance *= 1e6;
            node.children.iter_mut().for_each(times);
        }
        times(&mut a);
        times(&mut b);
        JoinedNode::new(&[(a, b)], &[("sub".to_owned(), "subs".to_owned())])
    }

    fn names() -> SideNames {
        SideNames { a: SideName::new("/sub/", 100), b: SideName::new("/subs/", 100), rounds: 1 }
    }

    #[test]
    fn a_table_of_both_sides() {
        let text = text(&scaled(), &names(), ShownParts::new(false));
        let expected = "\
A /sub/: 100 requests, run 100.0 + wait 0.0 µs
B /subs/: 100 requests, run 110.0 + wait 0.0 µs
                        A      B  B - A           change
request             100.0  110.0  +10.0  ± 2.9    +10.0%
  -> parse            5.0    5.0   +0.0  ± 0.1  not seen
  -> access             -   20.0  +20.0  ± 0.4       new
  -> body_filter     50.0   40.0  -10.0  ± 1.3    -20.0%
     -> sub / subs   40.0   30.0  -10.0  ± 1.0    -25.0%
run, µs a request; 95% intervals by Welch, of single requests
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_same_for_programs() {
        let json = json(&scaled(), &names(), ShownParts::new(true));
        assert!(json.starts_with(r#"{"a":{"name":"/sub/","requests":100},"b":{"name":"/subs/","requests":100},"rounds":1,"time":"wait","root":{"kind":"request","name":"","a_ns":0.0,"b_ns":0.0,"difference_ns":0.0,"low_ns":0.0,"high_ns":0.0,"children":[{"kind":"connection","name":"parse","#), "{json}");
    }
}
