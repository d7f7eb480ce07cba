//! Functions as a table, for a terminal: those that take most themselves first.

use std::collections::{BTreeMap, BTreeSet};

use super::compared::change;
use super::flame::{amount, share, title};
use crate::stacks::StackSet;
use crate::table::{TableCell, TableColumn, TableReport};

/// What functions of one name took.
#[derive(Clone, Copy, Default)]
struct FunctionSums {
    /// Themselves.
    own: u64,
    /// With what they called; once where it called itself.
    whole: u64,
}

/// The functions of `stacks`.
pub(super) fn write(stacks: &StackSet) -> String {
    let (sums, total) = (sums(stacks), stacks.total().value);
    let mut rows: Vec<(&str, FunctionSums)> = sums.into_iter().collect();
    rows.sort_by_key(|(_, sums)| std::cmp::Reverse((sums.own, sums.whole)));
    let mut report = TableReport::new(&COLUMNS);
    let part = |value: u64| TableCell::Share(share(value, total) / 100.0);
    for (name, sums) in rows.iter().take(ROWS) {
        report.row([
            TableCell::text(amount(stacks, sums.own)),
            part(sums.own),
            TableCell::text(amount(stacks, sums.whole)),
            part(sums.whole),
            TableCell::text(*name),
        ]);
    }
    headed(title(stacks), &report, rows.len())
}

/// The functions of two recordings, those first whose shares have changed most.
pub(super) fn compared(now: &StackSet, before: &StackSet) -> String {
    let (sums_now, sums_before) = (sums(now), sums(before));
    let totals = (now.total().value, before.total().value);
    let names: BTreeSet<&str> = sums_now.keys().chain(sums_before.keys()).copied().collect();
    let of = |sums: &BTreeMap<&str, FunctionSums>, name| sums.get(name).copied().unwrap_or_default();
    let changes = |name| {
        let (one, two) = (of(&sums_now, name), of(&sums_before, name));
        let own = change((one.own, totals.0), (two.own, totals.1));
        (own, change((one.whole, totals.0), (two.whole, totals.1)))
    };
    let mut rows: Vec<(&str, (f64, f64))> = names.into_iter().map(|name| (name, changes(name))).collect();
    // What only calls others is told apart from what has changed itself by having changed once, not twice.
    let size = |(own, whole): (f64, f64)| own.abs() + whole.abs();
    rows.sort_by(|a, b| size(b.1).total_cmp(&size(a.1)));
    let mut report = TableReport::new(&CHANGES);
    for (name, (own, whole)) in rows.iter().take(ROWS) {
        let (one, two) = (of(&sums_now, name), of(&sums_before, name));
        let part = |value: u64, total: u64| TableCell::Share(share(value, total) / 100.0);
        report.row([
            TableCell::Text(signed(*own)),
            part(one.own, totals.0),
            part(two.own, totals.1),
            TableCell::Text(signed(*whole)),
            part(one.whole, totals.0),
            part(two.whole, totals.1),
            TableCell::text(*name),
        ]);
    }
    headed(format!("{}\nbefore: {}", title(now), title(before)), &report, rows.len())
}

/// A function between those that called it and those that it called.
pub(super) fn sandwich(stacks: &StackSet, name: &str) -> String {
    let (mut callers, mut callees) = (BTreeMap::<&str, u64>::new(), BTreeMap::<&str, u64>::new());
    let (mut whole, mut own) = (0, 0);
    for (stack, weight) in stacks.iter() {
        let names: Vec<&str> =
            stack.iter().map(|&frame| stacks.frames()[frame as usize].name.as_str()).collect();
        // Of one that calls itself the outermost call counts, and what the innermost called.
        let (Some(first), Some(last)) =
            (names.iter().position(|it| *it == name), names.iter().rposition(|it| *it == name))
        else {
            continue;
        };
        whole += weight.value;
        let caller = if first == 0 { "(outermost)" } else { names[first - 1] };
        *callers.entry(caller).or_default() += weight.value;
        match names.get(last + 1) {
            Some(callee) => *callees.entry(callee).or_default() += weight.value,
            None => own += weight.value,
        }
    }
    let total = stacks.total().value;
    let head = format!(
        "{name}: {} ({:.1}%), own {} ({:.1}%)",
        amount(stacks, whole),
        share(whole, total),
        amount(stacks, own),
        share(own, total)
    );
    let half = |heading: &'static str, of: &BTreeMap<&str, u64>| {
        let mut rows: Vec<_> = of.iter().collect();
        rows.sort_by_key(|(_, value)| std::cmp::Reverse(**value));
        let mut report = TableReport::new(&[
            TableColumn("value", "value"),
            TableColumn("share", "share"),
            TableColumn(heading, "function"),
        ]);
        for (name, value) in rows.iter().take(ROWS) {
            report.row([
                TableCell::text(amount(stacks, **value)),
                TableCell::share(**value, whole),
                TableCell::text(**name),
            ]);
        }
        report.text()
    };
    format!("{}\n{head}\n\n{}\n{}", title(stacks), half("called by", &callers), half("calls", &callees))
}

/// Functions by their names.
fn sums(stacks: &StackSet) -> BTreeMap<&str, FunctionSums> {
    let mut sums = BTreeMap::<&str, FunctionSums>::new();
    for (stack, weight) in stacks.iter() {
        let name = |&frame: &u32| stacks.frames()[frame as usize].name.as_str();
        let seen: BTreeSet<&str> = stack.iter().map(name).collect();
        seen.into_iter().for_each(|name| sums.entry(name).or_default().whole += weight.value);
        if let Some(last) = stack.last() {
            sums.entry(name(last)).or_default().own += weight.value;
        }
    }
    sums
}

fn headed(title: String, report: &TableReport, rows: usize) -> String {
    let more = match rows.saturating_sub(ROWS) {
        0 => String::new(),
        more => format!("{more} more functions\n"),
    };
    format!("{title}\n{}{more}", report.text())
}

fn signed(change: f64) -> String {
    format!("{:+.1}%", change * 100.0)
}

/// Functions that are listed.
const ROWS: usize = 40;
const COLUMNS: [TableColumn; 5] = [
    TableColumn("own", "own"),
    TableColumn("%", "own_share"),
    TableColumn("with calls", "whole"),
    TableColumn("%", "whole_share"),
    TableColumn("function", "function"),
];
const CHANGES: [TableColumn; 7] = [
    TableColumn("own", "own_change"),
    TableColumn("now", "own_share"),
    TableColumn("before", "own_share_before"),
    TableColumn("with calls", "whole_change"),
    TableColumn("now", "whole_share"),
    TableColumn("before", "whole_share_before"),
    TableColumn("function", "function"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::tests::example;
    use crate::stacks::{FrameOrigin, StackFrame, StackWeight};

    #[test]
    fn functions_are_listed_by_what_they_take_themselves() {
        let text = write(&example());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("cpu: 50 ns"), "{text}");
        assert!(lines[2].starts_with("40 ns  80.0%  40 ns") && lines[2].ends_with("find"), "{text}");
        assert_eq!(lines.len(), 6);
    }

    #[test]
    fn a_difference_has_what_changed_most_first() {
        let mut now = example();
        now.add([StackFrame::new(FrameOrigin::Lua, "new.lua:3")], StackWeight { count: 1, value: 50 });
        let text = compared(&now, &example());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("before: cpu: 50 ns"), "{text}");
        assert!(lines[3].starts_with("+50.0%  50.0%    0.0%") && lines[3].ends_with("new.lua:3"), "{text}");
        assert!(lines[4].starts_with("-40.0%  40.0%   80.0%") && lines[4].ends_with("find"), "{text}");
    }

    #[test]
    fn a_function_is_between_its_callers_and_its_callees() {
        let text = sandwich(&example(), "content");
        assert!(text.contains("content: 50 ns (100.0%), own 10 ns (20.0%)"), "{text}");
        assert!(text.contains("40 ns  80.0%  /\n") && text.contains("40 ns  80.0%  find\n"), "{text}");
        let mut again = example();
        let frame = |name| StackFrame::new(FrameOrigin::Native, name);
        again.add(
            [frame("a"), frame("f"), frame("b"), frame("f"), frame("c")],
            StackWeight { count: 1, value: 7 },
        );
        let text: Vec<String> = sandwich(&again, "f").lines().map(words).collect();
        assert_eq!(text[1], "f: 7 ns (12.3%), own 0 ns (0.0%)");
        assert_eq!((text[4].as_str(), text[7].as_str()), ("7 ns 100.0% a", "7 ns 100.0% c"), "{text:?}");
    }

    /// A line of a table, whatever the widths of its columns are.
    fn words(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}
