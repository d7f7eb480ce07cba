//! A page with the flame graph and a table of its frames; it needs no other file and no network.

use std::collections::HashSet;
use std::fmt::Write;

use super::flame::{amount, escape, share, title};
use super::svg;
use crate::stacks::StackSet;

/// The page.
pub(super) fn write(stacks: &StackSet) -> String {
    let title = escape(&title(stacks));
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>weir {title}</title>\n\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n{}\n<h2>Frames</h2>\n\
         <table><thead><tr><th>own</th><th>%</th><th>with what it called</th><th>%</th><th>from</th><th>frame</th></tr>\
         </thead><tbody>\n",
        svg::element(stacks),
    );
    let total = stacks.total().value;
    for (number, sums) in hottest(stacks) {
        let frame = &stacks.frames()[number];
        let place = match (frame.file.is_empty(), frame.line) {
            (true, _) => String::new(),
            (false, line) => format!(" <small>{}:{line}</small>", escape(&frame.file)),
        };
        writeln!(
            out,
            "<tr><td>{}</td><td>{:.1}</td><td>{}</td><td>{:.1}</td><td>{}</td><td>{}{place}</td></tr>",
            amount(stacks, sums.own),
            share(sums.own, total),
            amount(stacks, sums.whole),
            share(sums.whole, total),
            frame.origin.as_str(),
            escape(&frame.name),
        )
        .expect("writing to a String does not fail");
    }
    out.push_str("</tbody></table>\n</body></html>\n");
    out
}

#[derive(Clone, Copy, Default)]
struct PageSums {
    own: u64,
    whole: u64,
}

/// Frames by their own value, then by what they called; a frame inside itself counts once.
fn hottest(stacks: &StackSet) -> Vec<(usize, PageSums)> {
    let mut sums = vec![PageSums::default(); stacks.frames().len()];
    for (stack, weight) in stacks.iter() {
        let seen: HashSet<u32> = stack.iter().copied().collect();
        seen.into_iter().for_each(|frame| sums[frame as usize].whole += weight.value);
        if let Some(&last) = stack.last() {
            sums[last as usize].own += weight.value;
        }
    }
    let mut rows: Vec<(usize, PageSums)> = sums.into_iter().enumerate().collect();
    rows.sort_by(|a, b| (b.1.own, b.1.whole, a.0).cmp(&(a.1.own, a.1.whole, b.0)));
    rows.truncate(ROWS);
    rows
}

/// Frames listed.
const ROWS: usize = 200;
const STYLE: &str = "body{font:14px sans-serif;margin:1em}svg{max-width:100%;height:auto;border:1px solid #ddd}\
td,th{padding:1px 8px;text-align:right}td:nth-child(n+5),th:nth-child(n+5){text-align:left}\
tbody tr:nth-child(odd){background:#f4f4f0}small{color:#777}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::tests::example;

    #[test]
    fn frames_are_listed_hottest_first() {
        let text = write(&example());
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("<tr>")).collect();
        assert_eq!(rows.len(), 4);
        let first = "<tr><td>40 ns</td><td>80.0</td><td>40 ns</td><td>80.0</td><td>native</td><td>find <small>file.rs:7</small></td></tr>";
        assert_eq!(rows[0], first);
        assert!(rows[1].ends_with("<td>phase</td><td>content</td></tr>"), "{}", rows[1]);
        assert!(!text.contains("<b>"), "what a configuration names is text");
    }
}
