//! A source with its sites written in, and where each mutant is then.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::ops::Range;

use crate::sites::{Form, Mutant, Site};

/// The text, and ranges of bytes in it: of a mutant's change, of a site (by its index).
pub(crate) struct Written {
    pub(crate) text: String,
    changes: HashMap<u32, Range<usize>>,
    sites: HashMap<usize, Range<usize>>,
}

/// Writes a source with its sites; those outside come first in `sites`.
pub(crate) fn write(source: &str, sites: &[Site], without: &HashSet<u32>) -> Written {
    let mut edges = Vec::new();
    for (index, site) in sites.iter().enumerate() {
        // Where one ends another may begin: what ends comes first, the inner one before the outer one.
        edges.push((site.range.start, 1, index as isize));
        edges.push((site.range.end, if site.range.is_empty() { 2 } else { 0 }, -(index as isize)));
    }
    edges.sort_unstable();
    let mut written = Written { text: String::new(), changes: HashMap::new(), sites: HashMap::new() };
    let mut at = 0;
    for (position, side, index) in edges {
        written.text.push_str(&source[at..position]);
        at = position;
        let index = index.unsigned_abs();
        let begin = written.text.len();
        if side == 1 {
            open(&mut written, &sites[index], without);
            written.sites.insert(index, begin..begin);
        } else {
            close(&mut written.text, &sites[index], without);
            let end = written.text.len();
            written.sites.entry(index).and_modify(|range| range.end = end);
        }
    }
    written.text.push_str(&source[at..]);
    written
}

/// What is written before a site.
fn open(written: &mut Written, site: &Site, without: &HashSet<u32>) {
    let mut left = site.variants.iter().filter(|(number, _)| !without.contains(number)).peekable();
    if left.peek().is_none() {
        return;
    }
    if site.form == Form::Expression {
        written.text.push('(');
    }
    for (number, text) in left {
        let (before, after) = match site.form {
            Form::Function => return,
            Form::Expression => (format!("if crate::weir_mutant::on({number}) {{ "), " } else "),
            Form::Body => (format!(" if crate::weir_mutant::on({number}) {{ return "), "; }"),
            Form::Arm => (format!(" if !crate::weir_mutant::on({number})"), ""),
        };
        written.text.push_str(&before);
        let begin = written.text.len();
        written.text.push_str(text);
        written.changes.insert(*number, begin..written.text.len());
        written.text.push_str(after);
    }
    if site.form == Form::Expression {
        written.text.push_str("{ ");
    }
}

/// What is written after it.
fn close(text: &mut String, site: &Site, without: &HashSet<u32>) {
    if site.form == Form::Expression && site.variants.iter().any(|(number, _)| !without.contains(number)) {
        text.push_str(" })");
    }
}

/// The rows of the table.
pub(crate) fn rows(file: &str, mutants: &[Mutant], written: &Written) -> String {
    let mut rows = String::new();
    for mutant in mutants {
        let change = written.changes.get(&mutant.number).cloned().unwrap_or_default();
        let site = written.sites.get(&mutant.site).cloned().unwrap_or_default();
        let function = written.sites.get(&mutant.function_site).cloned().unwrap_or_default();
        let Mutant { number, line, column, function: name, change: what, .. } = mutant;
        let _ = write!(rows, "{number}\t{file}\t{line}\t{column}\t{name}\t{what}");
        for range in [change, site, function] {
            let _ = write!(rows, "\t{}\t{}", range.start, range.end);
        }
        rows.push('\n');
    }
    rows
}
