//! The table of what lines of the configuration cost: own time of the handlers, filters and scripts that each has put
//! into locations, by the marks of every request of the window.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_conf::ConfTree;
use weir_engine::Configuration;
use weir_trace::{AverageTree, AverageWatch, SiteInfo, SiteKind, SiteTable, TraceTree};

use super::super::average;
use super::super::conf_lines::{ConfLineIndex, ConfLinePlace};
use super::super::lines::written;
use super::super::reply::{ReplyFailure, ReplySink};
use super::tables::TopTables;
use crate::source::{ServerSource, scale};
use crate::table::{TableCell, TableColumn, TableReport};

/// Tables, one every `every`. While they are asked for every request is recorded and added up.
pub(super) fn respond(
    source: &ServerSource,
    tables: &TopTables,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    let every = if tables.every.is_zero() { Duration::from_secs(1) } else { tables.every };
    let mut known: Option<(Arc<Configuration>, ConfTree)> = None;
    for _ in 0..tables.count {
        let began = Instant::now();
        let watch = AverageWatch::new(usize::MAX, SiteTable::global(), |_| true);
        let mut stopped = false;
        let (averages, stuck) =
            average::collect(source, &[watch], average::WatchedStart::Any, every, |_| {
                stopped = reply.is_stopped();
                Ok(!stopped)
            })?;
        let configuration = source.configuration();
        if known.as_ref().is_none_or(|(of, _)| !Arc::ptr_eq(of, &configuration)) {
            known = Some((configuration.clone(), written(&configuration)?));
        }
        if let (Some((_, tree)), Some(average)) = (&known, averages.first()) {
            let index = ConfLineIndex::new(tree, configuration.modules());
            let costs = LineCosts::of(average, &index, SiteTable::global());
            reply.out(costs.report(began.elapsed()).write(tables.json).as_bytes())?;
        }
        if stuck > 0 {
            reply.note(&format!("{stuck} workers are busy; theirs are missing"))?;
        }
        if stopped {
            break;
        }
    }
    Ok(())
}

/// What the lines cost in a window.
#[derive(Debug, Default)]
struct LineCosts {
    requests: u64,
    lines: BTreeMap<ConfLinePlace, LineCost>,
}

/// What one line cost, in ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LineCost {
    calls: u64,
    run: u64,
    wait: u64,
}

impl LineCosts {
    fn of(average: &AverageTree, index: &ConfLineIndex<'_>, sites: &SiteTable) -> LineCosts {
        let (tree, _) = average.arranged(sites);
        LineCosts::of_tree(&tree, |info| line(index, info), sites)
    }

    /// Adds up the own times of all nodes by `line`; what has none of its own belongs to the node around it.
    fn of_tree(tree: &TraceTree, line: impl Fn(&SiteInfo) -> NodeLine, sites: &SiteTable) -> LineCosts {
        let mut costs = LineCosts { requests: tree.requests(), lines: BTreeMap::new() };
        let mut lines: Vec<ConfLinePlace> = Vec::with_capacity(tree.nodes().len());
        for (number, node) in tree.nodes().iter().enumerate() {
            let of = match (number, line(&sites.info(node.site))) {
                (0, _) | (_, NodeLine::Server) => server(),
                (_, NodeLine::Own(line)) => line,
                // A parent is before its children.
                (_, NodeLine::Around) => lines.get(node.parent as usize).cloned().unwrap_or_else(server),
            };
            let cost = costs.lines.entry(of.clone()).or_default();
            cost.calls += node.calls;
            cost.run += node.self_run;
            cost.wait += node.self_wait;
            lines.push(of);
        }
        costs
    }

    /// The dearest line first. `run/1M`: what it runs in a million requests of all locations.
    fn report(&self, time: Duration) -> TableReport {
        let all: u64 = self.lines.values().map(|cost| cost.run).sum();
        let million = |ticks: u64| {
            let ns = u128::from(scale(ticks)) * 1_000_000;
            TableCell::Time(u64::try_from(ns / u128::from(self.requests.max(1))).unwrap_or(u64::MAX))
        };
        let mut lines: Vec<_> =
            self.lines.iter().filter(|(_, cost)| cost.calls > 0 || cost.run > 0).collect();
        lines.sort_by_key(|(_, cost)| std::cmp::Reverse((cost.run, cost.wait)));
        let mut report = TableReport::new(&COLUMNS);
        for (line, cost) in lines {
            report.row([
                TableCell::text(line.place.as_str()),
                TableCell::Rate(cost.calls as f64 / time.as_secs_f64().max(1e-9)),
                million(cost.run),
                TableCell::share(cost.run, all),
                million(cost.wait),
                TableCell::text(shortened(&line.text)),
            ]);
        }
        report
    }
}

/// To which line a node's own time belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NodeLine {
    Own(ConfLinePlace),
    /// That of the node around it: what a handler waits for, or runs by itself.
    Around,
    /// None: the server does it whatever is configured.
    Server,
}

fn line(index: &ConfLineIndex<'_>, info: &SiteInfo) -> NodeLine {
    match info.kind {
        SiteKind::Handler(_) | SiteKind::HeaderFilter | SiteKind::BodyFilter => {
            let found = index.line(&info.location, &info.name);
            // A handler that no directive names is what the location does by default.
            let found = match info.kind {
                SiteKind::Handler(_) => found.or_else(|| index.block(&info.location)),
                _ => found,
            };
            found.map_or(NodeLine::Server, NodeLine::Own)
        }
        SiteKind::UpstreamTry
        | SiteKind::LuaResume
        | SiteKind::File
        | SiteKind::Lock
        | SiteKind::Queue
        | SiteKind::Function => NodeLine::Around,
        _ => NodeLine::Server,
    }
}

/// What no line is charged with: reading and parsing heads, choosing locations, framing, sending, logging of the server.
fn server() -> ConfLinePlace {
    ConfLinePlace {
        place: "(server)".to_owned(),
        text: "what all requests pass, whatever is configured".to_owned(),
    }
}

/// The beginning of a long line.
fn shortened(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST - 1).chain(['…']).collect()
}

/// Characters of a line that are shown.
const LONGEST: usize = 80;

const COLUMNS: [TableColumn; 6] = [
    TableColumn("line", "line"),
    TableColumn("calls/s", "calls_per_second"),
    TableColumn("run/1M", "run_ns_per_million"),
    TableColumn("share", "share_of_run"),
    TableColumn("wait/1M", "wait_ns_per_million"),
    TableColumn("text", "text"),
];

#[cfg(test)]
mod tests {
    use weir_trace::Trace;

    use super::*;

    fn place(name: &str) -> ConfLinePlace {
        ConfLinePlace { place: name.to_owned(), text: String::new() }
    }

    #[test]
    fn own_times_add_up_and_what_has_no_line_belongs_around_or_to_the_server() {
        let sites = SiteTable::global();
        let proxy = sites.intern(SiteKind::Handler(9), "/costs", "proxy");
        let peer = sites.intern(SiteKind::UpstreamTry, "/costs", "127.0.0.1:9");
        let gzip = sites.intern(SiteKind::BodyFilter, "/costs", "gzip");
        let mut trace = Trace::new();
        trace.begin(1_000);
        trace.enter(proxy, 1_010);
        trace.enter(peer, 1_020);
        trace.leave(peer, 1_050);
        trace.enter(gzip, 1_060);
        trace.leave(gzip, 1_160);
        trace.leave(proxy, 1_200);
        trace.end(1_210);
        let line = |info: &SiteInfo| match info.kind {
            SiteKind::Handler(_) => NodeLine::Own(place("a:1")),
            SiteKind::BodyFilter => NodeLine::Own(place("a:2")),
            SiteKind::UpstreamTry => NodeLine::Around,
            _ => NodeLine::Server,
        };
        let mut average = AverageTree::new();
        average.add(&trace, sites);
        let (tree, _) = average.arranged(sites);
        let costs = LineCosts::of_tree(&tree, line, sites);
        let run = |line: &ConfLinePlace| costs.lines.get(line).map(|cost| cost.run);
        assert_eq!((run(&place("a:1")), run(&place("a:2")), run(&server())), (Some(90), Some(100), Some(20)));
        assert_eq!(costs.lines.values().map(|cost| cost.run).sum::<u64>(), 210, "nothing is lost");
        assert_eq!(costs.requests, 1);
    }

    #[test]
    fn long_lines_are_cut() {
        assert_eq!(shortened("gzip on;"), "gzip on;");
        assert_eq!(shortened(&"ä".repeat(100)).chars().count(), LONGEST);
    }
}
