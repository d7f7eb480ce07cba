//! What `weir diff-config` prints.

use std::fmt::Write;

use weir_http::json::JsonWriter;

use super::compare::PlanChange;
use super::excerpt;
use super::places::ChangedLine;
use super::tally::{ChangedRequests, DiffTally};

/// For people.
pub(super) fn text(tally: &DiffTally) -> String {
    let mut out = String::new();
    summary(&mut out, tally).expect("writing to a String");
    for (count, group) in tally.groups() {
        changed(&mut out, count, group).expect("writing to a String");
    }
    rest(&mut out, tally).expect("writing to a String");
    out
}

fn summary(out: &mut String, tally: &DiffTally) -> std::fmt::Result {
    let (lines, changed, same) = (tally.lines, tally.changed(), tally.same());
    let (undecided, unread) = (tally.undecided(), tally.unread.0);
    let s = if lines == 1 { "" } else { "s" };
    writeln!(
        out,
        "{lines} line{s}: {changed} would change, {same} stay the same, {undecided} could not be decided, {unread} not read"
    )?;
    let (agreed, of) = tally.agreed();
    if of > 0 {
        writeln!(
            out,
            "OLD gives the status in the log for {agreed} of {of} whose status the server makes itself"
        )?;
    }
    writeln!(out, "the log is read as {}; needed of it: {}", tally.format, tally.read.join(", "))?;
    for (name, instead) in &tally.missing {
        writeln!(out, "the log has no {name}: {instead}")?;
    }
    Ok(())
}

fn changed(out: &mut String, count: u64, group: &ChangedRequests) -> std::fmt::Result {
    writeln!(out, "\n{count:>8}  {}", group.name)?;
    writeln!(out, "          e.g. {}", group.example)?;
    for change in &group.changes {
        let is_list = change.is_field || LISTS.contains(&&*change.name);
        let values = excerpt::change(&change.old, &change.new, is_list);
        writeln!(out, "          {}: {values}", change.name)?;
    }
    let (old, new) = &group.at;
    writeln!(out, "          at {old} -> {new}")?;
    let lines = by_relevance(group);
    for line in lines.iter().take(SHOWN_LINES) {
        writeln!(out, "          {}", line_text(line, &group.lines))?;
    }
    if lines.len() > SHOWN_LINES {
        writeln!(out, "          and {} lines more", lines.len() - SHOWN_LINES)?;
    }
    Ok(())
}

fn rest(out: &mut String, tally: &DiffTally) -> std::fmt::Result {
    if tally.ungrouped() > 0 {
        writeln!(out, "\n{:>8}  of further groups", tally.ungrouped())?;
    }
    let parts = tally.unknown_parts();
    if !parts.is_empty() {
        writeln!(out, "\nnot run, and so not compared:")?;
        for (count, name) in parts {
            writeln!(out, "{count:>8}  {name}")?;
        }
    }
    let lines = tally.other_lines();
    if !lines.is_empty() {
        writeln!(out, "\nlines that changed where nothing of what is compared does:")?;
        for (count, line) in lines.iter().take(SHOWN_OTHERS) {
            let others = lines.iter().map(|(_, line)| *line);
            writeln!(out, "{count:>8}  {}", line_text(line, others))?;
        }
        if lines.len() > SHOWN_OTHERS {
            writeln!(out, "          and {} lines more", lines.len() - SHOWN_OTHERS)?;
        }
    }
    if let (count, Some(example)) = &tally.unread {
        writeln!(out, "\n{count:>8}  not read as requests\n          e.g. {example}")?;
    }
    Ok(())
}

/// A line, one among `lines`; of a long one what differs from the one of the other configuration that is like it.
fn line_text<'t>(line: &ChangedLine, lines: impl IntoIterator<Item = &'t ChangedLine>) -> String {
    let side = if line.is_new { '+' } else { '-' };
    let others = lines.into_iter().filter(|other| other.is_new != line.is_new).map(|other| &*other.text);
    let other = excerpt::most_like(&line.text, others);
    format!("{side} {}  {}", excerpt::line(&line.text, other), line.place)
}

/// The lines of a group: those first that name what changes.
fn by_relevance(group: &ChangedRequests) -> Vec<&ChangedLine> {
    let mut lines: Vec<&ChangedLine> = group.lines.iter().collect();
    let names = |change: &PlanChange, text: &str| match &*change.name {
        "result" | "location" | "uri" | "file" | "body" if !change.is_field => {
            RESULTS.iter().any(|name| text.starts_with(name))
        }
        "peers" | "balancing" if !change.is_field => text.starts_with("upstream"),
        "sent" if !change.is_field => super::needs::is_sent(text.split(' ').next().unwrap_or_default()),
        name => text.to_lowercase().contains(&name.to_lowercase()),
    };
    let named = |line: &ChangedLine, is_field: bool| {
        group.changes.iter().any(|change| change.is_field == is_field && names(change, &line.text))
    };
    lines.sort_by_key(|line| (!named(line, false), !named(line, true)));
    lines
}

/// For programs.
pub(super) fn json(tally: &DiffTally) -> String {
    JsonWriter::object(|json| {
        json.key("lines").raw(tally.lines);
        json.key("changed").raw(tally.changed());
        json.key("same").raw(tally.same());
        json.key("undecided").raw(tally.undecided());
        json.key("unread").raw(tally.unread.0);
        json.key("decided").raw(tally.decided);
        let (agreed, of) = tally.agreed();
        json.key("status_as_logged").raw(agreed);
        json.key("status_known").raw(of);
        json.key("format").text(&tally.format);
        json.key("needed").list(|json| tally.read.iter().for_each(|name| json.text(name)));
        json.key("missing").list(|json| {
            for (name, instead) in &tally.missing {
                json.nested(|json| {
                    json.key("field").text(name);
                    json.key("assumed").text(instead);
                });
            }
        });
        json.key("groups").list(|json| {
            for (count, group) in tally.groups() {
                json_group(json, count, group);
            }
        });
        json.key("ungrouped").raw(tally.ungrouped());
        json.key("not_run").list(|json| {
            for (count, name) in tally.unknown_parts() {
                json.nested(|json| {
                    json.key("part").text(name);
                    json.key("count").raw(count);
                });
            }
        });
        json.key("other_lines").list(|json| {
            for (count, line) in tally.other_lines() {
                json.nested(|json| {
                    json.key("count").raw(count);
                    json_line(json, line);
                });
            }
        });
    })
}

fn json_group(json: &mut JsonWriter, count: u64, group: &ChangedRequests) {
    json.nested(|json| {
        json.key("group").text(&group.name);
        json.key("count").raw(count);
        json.key("example").text(&group.example);
        json.key("changes").list(|json| {
            for change in &group.changes {
                json.nested(|json| {
                    json.key("name").text(&change.name);
                    json.key("field").raw(change.is_field);
                    json.key("old").text(&change.old);
                    json.key("new").text(&change.new);
                });
            }
        });
        json.key("old_place").text(&group.at.0);
        json.key("new_place").text(&group.at.1);
        json.key("lines").list(|json| {
            for line in by_relevance(group) {
                json.nested(|json| json_line(json, line));
            }
        });
    });
}

fn json_line(json: &mut JsonWriter, line: &ChangedLine) {
    json.key("of").text(if line.is_new { "new" } else { "old" });
    json.key("text").text(&line.text);
    json.key("place").text(&line.place);
}

/// Directives that make results.
const RESULTS: [&str; 15] = [
    "map ",
    "geo ",
    "split_clients ",
    "return",
    "rewrite",
    "if",
    "allow",
    "deny",
    "auth_basic",
    "try_files",
    "root",
    "alias",
    "index",
    "error_page",
    "proxy_pass",
];
/// What is compared that has several parts.
const LISTS: [&str; 3] = ["sent", "peers", "decisions"];
/// Lines of a group that are shown.
const SHOWN_LINES: usize = 8;
/// Other lines that are shown.
const SHOWN_OTHERS: usize = 40;
