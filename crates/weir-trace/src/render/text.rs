//! Trees for a terminal.

use std::fmt::Write;
use std::sync::Arc;

use super::TicksToNanos;
use super::rows::{RootLine, lines, name, name_of_missing};
use crate::event::{EventDecoder, EventKind, TraceEvent};
use crate::model::{RequestId, WaitKind};
use crate::record::RequestRecord;
use crate::site::{Site, SiteKind, SiteTable};
use crate::tree::{TraceTree, TreeNode};

/// The line above a request's tree: what was asked, what came of it, and the parts of its time.
///
/// ```text
/// GET /img/a.txt  200  5300 B  worker 1  req 00…7f3a  total 1412.0 µs = run 231.0 + wait 1162.0 + in-loop queue 19.0
/// ```
#[must_use]
pub fn headline(record: &RequestRecord, sites: &SiteTable, scale: TicksToNanos<'_>) -> String {
    let us = |ticks| micros(scale(ticks));
    // Of a head that could not be read there may be neither.
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let (method, path) = (or_dash(record.method.to_string()), or_dash(record.path.to_string()));
    let mut line = format!("{method} {path}  {}  {} B", record.status, record.bytes_out);
    let route = if record.route.is_none() { None } else { Some(sites.info(record.route)) };
    if let Some(route) = route.filter(|route| !route.location.is_empty()) {
        push(&mut line, format_args!("  location {}", route.location));
    }
    push(&mut line, format_args!("  worker {}", record.worker));
    if record.id != RequestId::default() {
        push(&mut line, format_args!("  req {}", record.id));
    }
    let waiting = record.wait().saturating_sub(record.queue());
    let (total, run, wait, queue) = (us(record.total), us(record.run), us(waiting), us(record.queue()));
    push(&mut line, format_args!("  total {total} µs = run {run} + wait {wait} + in-loop queue {queue}"));
    if record.accept_wait | record.receive_wait != 0 {
        let (accept, receive) = (us(record.accept_wait), us(record.receive_wait));
        push(&mut line, format_args!("  (accept queue {accept}, receive queue {receive})"));
    }
    if !record.cause.as_str().is_empty() {
        push(&mut line, format_args!("  {}", record.cause.as_str()));
    }
    line
}

/// The tree [arranged](TraceTree::arranged), one site a line: run with what is inside it, then what is worth saying. The steps
/// up to the virtual server and all eleven phases are listed, also those in which nothing was recorded. Of several
/// requests it shows the mean per request.
///
/// ```text
///   -> access                 38.2 µs   wait 812.0
///      -> auth_request        38.2 µs   self 0.4   wait 812.0
///         -> subrequest       37.8 µs   wait 812.0
/// ```
#[must_use]
pub fn tree(tree: &TraceTree, sites: &SiteTable, scale: TicksToNanos<'_>) -> String {
    let tree = tree.arranged(sites);
    written(TreeRows::of(&tree, sites, scale))
}

/// As [`tree`], without the steps that took less than 0.05 µs and of which there is nothing else to say.
#[must_use]
pub fn short_tree(tree: &TraceTree, sites: &SiteTable, scale: TicksToNanos<'_>) -> String {
    let tree = tree.arranged(sites);
    let mut rows = TreeRows::of(&tree, sites, scale);
    rows.rows.retain(|row| row.run != NOTHING || !row.more.is_empty());
    written(rows)
}

fn written(rows: TreeRows<'_>) -> String {
    let width = rows.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let mut text = run_split(rows.tree, rows.scale);
    for row in rows.rows {
        let line = format!("{:<width$}  {:>11}{}", row.name, row.run, row.more);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// What the run consists of, where a part of it was not on the processor: a line, or nothing. Of several requests, the
/// mean per request.
pub(super) fn run_split(tree: &TraceTree, scale: TicksToNanos<'_>) -> String {
    let (asleep, no_core) = tree.off_core();
    if asleep + no_core == 0 {
        return String::new();
    }
    let run = tree.root().run;
    let us = |ticks: u64| micros(scale(ticks) / tree.requests().max(1));
    format!(
        "  run {} µs = on the processor {} + asleep in calls {} + without a processor {}\n",
        us(run),
        us(run.saturating_sub(asleep + no_core)),
        us(asleep),
        us(no_core)
    )
}

/// What the kernel did for the request outside of its time: a line, or nothing.
#[must_use]
pub fn kernel_line(record: &RequestRecord, scale: TicksToNanos<'_>) -> String {
    kernel_of(record.kernel, 1, scale)
}

/// [`kernel_line`] of `ticks` for several requests: the mean.
pub(super) fn kernel_of(ticks: u64, requests: u64, scale: TicksToNanos<'_>) -> String {
    if ticks == 0 {
        return String::new();
    }
    let each = micros(scale(ticks) / requests.max(1));
    format!("  kernel {each} µs besides, to receive, send and accept (estimated)\n")
}

/// The boundaries one by one, as a function tracer prints them: `->` entered, `<-` left, `|` marked, `..` waited;
/// each with its time since the request began and, where it closes one, the interval.
#[must_use]
pub fn flow(events: &[TraceEvent], sites: &SiteTable, scale: TicksToNanos<'_>) -> String {
    let mut text = String::new();
    let mut decoder = EventDecoder::default();
    let mut open: Vec<(Site, u64)> = Vec::new();
    let mut now = 0u64;
    for &event in events {
        let Some((kind, site, value)) = decoder.decode(event) else { continue };
        if kind.is_timed() {
            now += value;
        }
        if kind == EventKind::End {
            let depth = site.outside(&open, |open| open.0);
            for (left, begun) in open.split_off(depth).into_iter().rev() {
                depth_line(
                    &mut text,
                    open.len(),
                    scale(now),
                    "<-",
                    &sites.info(left).label(),
                    scale(now - begun),
                );
            }
            continue;
        }
        if let Some((sign, what, ns)) = describe(kind, site, value, sites, scale) {
            depth_line(&mut text, open.len(), scale(now), sign, &what, ns);
        }
        if kind == EventKind::Begin {
            open.push((site, now));
        }
    }
    text
}

fn describe(
    kind: EventKind,
    site: Site,
    value: u64,
    sites: &SiteTable,
    scale: TicksToNanos<'_>,
) -> Option<(&'static str, String, u64)> {
    let label = || sites.info(site).label();
    Some(match kind {
        EventKind::Begin => ("->", label(), 0),
        EventKind::Mark => ("|", label(), scale(value)),
        EventKind::Resume => ("..", format!("wait {}", WaitKind::from_code(site.0).as_str()), scale(value)),
        EventKind::BytesIn => ("+", format!("{} {value} B in", label()), 0),
        EventKind::BytesOut => ("+", format!("{} {value} B out", label()), 0),
        EventKind::Error => ("!", format!("{} error {value}", label()), 0),
        EventKind::Lock => ("+", format!("{} lock", label()), scale(value)),
        EventKind::Gc => ("+", format!("{} gc", label()), scale(value)),
        EventKind::Jit => ("+", format!("{} jit", label()), scale(value)),
        EventKind::Asleep => ("+", format!("{} asleep", label()), scale(value)),
        EventKind::NoCore => ("+", format!("{} no core", label()), scale(value)),
        EventKind::Line => ("+", format!("{} line {value}", label()), 0),
        EventKind::High | EventKind::End | EventKind::Suspend => return None,
    })
}

fn depth_line(text: &mut String, depth: usize, at: u64, sign: &str, what: &str, ns: u64) {
    push(text, format_args!("{:>10}  {:indent$}{sign} {what}", micros(at), "", indent = depth * 2));
    if ns > 0 {
        push(text, format_args!("  {} µs", micros(ns)));
    }
    text.push('\n');
}

struct TreeRow {
    name: String,
    run: String,
    more: String,
}

struct TreeRows<'a> {
    tree: &'a TraceTree,
    sites: &'a SiteTable,
    scale: TicksToNanos<'a>,
    rows: Vec<TreeRow>,
}

impl<'a> TreeRows<'a> {
    fn of(tree: &'a TraceTree, sites: &'a SiteTable, scale: TicksToNanos<'a>) -> TreeRows<'a> {
        let mut rows = TreeRows { tree, sites, scale, rows: Vec::new() };
        rows.root();
        rows
    }

    /// The request's own waits and its children, completed by what every request passes.
    fn root(&mut self) {
        self.waits(0, 0);
        for line in lines(self.tree, self.sites) {
            match line {
                RootLine::Node(child) => self.node(child, 0, SiteKind::Request),
                RootLine::Missing(kind) => self.empty(kind),
            }
        }
    }

    fn node(&mut self, index: u32, depth: usize, above: SiteKind) {
        let node = &self.tree.nodes()[index as usize];
        let info = self.sites.info(node.site);
        let name = name(&info, depth, above);
        let run = format!("{} µs", self.us(node.run));
        let mut more = self.more(node);
        if matches!(info.kind, SiteKind::Redirect | SiteKind::Subrequest)
            && let Some(location) = self.location(index)
        {
            push(&mut more, format_args!("   location {location}"));
        }
        self.rows.push(TreeRow { name, run, more });
        self.waits(index, depth + 1);
        for child in self.tree.children(index) {
            self.node(child, depth + 1, info.kind);
        }
    }

    /// Where the response to a redirect or subrequest was made: the location of its content handler, or whatever ran in
    /// one last.
    fn location(&self, index: u32) -> Option<Arc<str>> {
        let mut found = None;
        for child in self.tree.children(index) {
            let info = self.sites.info(self.tree.nodes()[child as usize].site);
            if matches!(info.kind, SiteKind::Redirect | SiteKind::Subrequest) {
                continue;
            }
            let here = Some(info.location).filter(|location| !location.is_empty());
            found = here.or_else(|| self.location(child)).or(found);
        }
        found
    }

    fn waits(&mut self, index: u32, depth: usize) {
        for wait in self.tree.waits(index) {
            let name = format!("{:indent$}.. {}", "", wait.kind.as_str(), indent = 2 + depth * 3);
            let more = format!("   wait {}", self.us(wait.ticks));
            self.rows.push(TreeRow { name, run: String::new(), more });
        }
    }

    fn empty(&mut self, kind: SiteKind) {
        let (name, run) = (name_of_missing(kind), NOTHING.to_owned());
        self.rows.push(TreeRow { name, run, more: String::new() });
    }

    fn more(&self, node: &TreeNode) -> String {
        let mut more = String::new();
        if node.self_run != node.run && node.self_run > 0 {
            push(&mut more, format_args!("   self {}", self.us(node.self_run)));
        }
        for (name, ticks) in [
            ("wait", node.wait),
            ("lock", node.lock),
            ("gc", node.gc),
            ("jit", node.jit),
            ("asleep", node.asleep),
            ("no core", node.no_core),
        ] {
            if ticks > 0 {
                push(&mut more, format_args!("   {name} {}", self.us(ticks)));
            }
        }
        let requests = self.tree.requests().max(1);
        if node.bytes_in | node.bytes_out != 0 {
            let (input, output) = (node.bytes_in / requests, node.bytes_out / requests);
            push(&mut more, format_args!("   {input} -> {output} B"));
        }
        if node.calls > requests && requests == 1 {
            push(&mut more, format_args!("   calls {}", node.calls));
        } else if node.calls != requests {
            push(&mut more, format_args!("   calls {:.2}", node.calls as f64 / requests as f64));
        }
        if node.errors > 0 {
            push(&mut more, format_args!("   errors {} (last {})", node.errors, node.last_error));
        }
        more
    }

    fn us(&self, ticks: u64) -> String {
        micros((self.scale)(ticks) / self.tree.requests().max(1))
    }
}

/// What runs for less than 0.05 µs.
const NOTHING: &str = "0.0 µs";

/// Nanoseconds as microseconds with one digit.
pub(super) fn micros(ns: u64) -> String {
    let tenths = ns / 100 + u64::from(ns % 100 >= 50);
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writing to a String does not fail");
}
