//! `weir help DIRECTIVE`: what the reference says of a directive, in a terminal.

use std::fmt::Write;

use weir::comparison::NginxComparison;
use weir::reference::{self, ReferenceRow};
use weir_conf::nearest;
use weir_see::commands::{TextStyle, filled};

/// The directive `name`, once for each table that has it; what is known of it, if Weir does not have it.
pub(super) fn text(name: &str, style: TextStyle) -> Option<String> {
    let rows: Vec<_> = reference::directives().filter(|row| row.row.name == name).collect();
    if rows.is_empty() {
        return reference::absent(name)
            .map(|hint| filled("", &format!("Weir does not have \"{name}\": {hint}")));
    }
    Some(rows.iter().map(|row| row_text(row, style)).collect::<Vec<_>>().join("\n"))
}

/// The directive whose name is nearest to `word`.
pub(super) fn nearest_name(word: &str) -> Option<&'static str> {
    nearest(word, reference::directives().map(|row| row.row.name))
}

fn row_text(row: &ReferenceRow, style: TextStyle) -> String {
    let signature = &row.row;
    let mut out = String::new();
    let mut part = |name: &str, value: &str| {
        writeln!(out, "{}{}{value}", style.heading(name), " ".repeat(INDENT - name.len()))
            .expect("writing to a String");
    };
    for (nth, form) in row.forms().lines().enumerate() {
        part(if nth == 0 { "Syntax:" } else { "" }, form);
    }
    for (nth, value) in signature.default.lines().enumerate() {
        part(if nth == 0 { "Default:" } else { "" }, &format!("{} {value};", signature.name));
    }
    part("Context:", &signature.contexts.to_string().replace('"', ""));
    part("Module:", row.module);
    part("nginx:", NginxComparison::of(signature).about());
    out.push('\n');
    signature.doc.split("\n\n").for_each(|paragraph| out.push_str(&filled("", paragraph)));
    if !signature.example.is_empty() {
        writeln!(out, "\n{}", style.heading("Example:")).expect("writing to a String");
        signature.example.lines().for_each(|line| writeln!(out, "    {line}").expect("writing to a String"));
    }
    out
}

/// Columns before a value.
const INDENT: usize = 10;
