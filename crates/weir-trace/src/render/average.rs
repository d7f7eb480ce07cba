//! The average of many requests, for a terminal and as JSON.

use std::fmt::Write;

use super::TicksToNanos;
use super::json::{ObjectWriter, histogram_json, node_json, node_waits_json};
use super::rows::{RootLine, lines, name, name_of_missing};
use super::text::{kernel_of, micros, run_split};
use crate::average::{AverageTree, TimeSpread};
use crate::site::{SiteKind, SiteTable};
use crate::tree::{TraceTree, TreeNode};

/// The average tree, one site a line: calls per request; run per request, children included, as mean over all requests
/// (so that lines add up) and as median and 99th percentile of the requests that came there; the share of the whole time,
/// run and wait; waiting where there was any. Microseconds. All eleven phases are listed by name.
///
/// ```text
/// 1000000 requests: mean 12.1 µs = run 12.1 + wait 0.0, p50 11.8, p99 24.9
///                            calls      mean       p50       p99   share  wait mean  wait p99
///   -> parse                  1.00       0.6       0.6       0.9    5.0%
/// ```
#[must_use]
pub fn average(average: &AverageTree, sites: &SiteTable, scale: TicksToNanos<'_>) -> String {
    let (tree, spreads) = average.arranged(sites);
    let mut rows = AverageRows { tree: &tree, spreads: &spreads, sites, scale, rows: Vec::new() };
    rows.root();
    let width = rows.rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut out = rows.headline();
    out.push_str(&run_split(&tree, scale));
    out.push_str(&kernel_of(average.kernel(), average.requests(), scale));
    write!(out, "{:<width$}", "").expect(INFALLIBLE);
    for head in ["calls", "mean", "p50", "p99", "share", "wait mean", "wait p99"] {
        write!(out, "  {head:>9}").expect(INFALLIBLE);
    }
    out.push('\n');
    for (name, figures) in &rows.rows {
        let line = format!("{name:<width$}{figures}");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The average as nested JSON: each node with its sums over all requests, the spread of run and wait per request,
/// their standard deviations over all requests (`_sd_ns`; a request that did not come there counts as 0), and its
/// `children`.
#[must_use]
pub fn average_json(average: &AverageTree, sites: &SiteTable, scale: TicksToNanos<'_>) -> String {
    let (tree, spreads) = average.arranged(sites);
    let mut out = String::new();
    let mut object = ObjectWriter::new(&mut out);
    object.number("requests", average.requests());
    object.number("kernel_ns", scale(average.kernel()));
    let mut root = String::new();
    node_json(&mut root, &tree, 0, sites, scale, &|object, index| {
        let spread = &spreads[index as usize];
        extras(object, &tree.nodes()[index as usize], spread, scale);
        object.raw("waits_ns", &node_waits_json(&tree, index, scale));
        // A tick in nanoseconds, to nine digits: single ticks would be rounded to none.
        let tick = scale(MANY) as f64 / MANY as f64;
        let (run, wait) = spread.deviations(average.requests());
        object.raw("run_sd_ns", &format!("{:.1}", run * tick));
        object.raw("wait_sd_ns", &format!("{:.1}", wait * tick));
    });
    object.raw("root", &root);
    object.close();
    out
}

/// What a node has besides its times: sums, and the spread over the requests.
fn extras(object: &mut ObjectWriter<'_>, node: &TreeNode, spread: &TimeSpread, scale: TicksToNanos<'_>) {
    for (name, value) in [
        ("lock_ns", scale(node.lock)),
        ("gc_ns", scale(node.gc)),
        ("jit_ns", scale(node.jit)),
        ("asleep_ns", scale(node.asleep)),
        ("no_core_ns", scale(node.no_core)),
        ("bytes_in", node.bytes_in),
        ("bytes_out", node.bytes_out),
        ("errors", node.errors),
    ] {
        object.number(name, value);
    }
    object.raw("run", &histogram_json(&spread.run, scale));
    object.raw("wait", &histogram_json(&spread.wait, scale));
}

struct AverageRows<'a> {
    tree: &'a TraceTree,
    spreads: &'a [TimeSpread],
    sites: &'a SiteTable,
    scale: TicksToNanos<'a>,
    /// Name and figures.
    rows: Vec<(String, String)>,
}

impl AverageRows<'_> {
    fn headline(&self) -> String {
        let requests = self.tree.requests();
        let (root, spread) = (self.tree.root(), &self.spreads[0]);
        let mut line = format!(
            "{requests} requests: mean {} µs = run {} + wait {}",
            self.mean(root.run + root.wait),
            self.mean(root.run),
            self.mean(root.wait)
        );
        let us = |q| micros((self.scale)(spread.run.quantile(q)));
        writeln!(line, ", run p50 {}, p99 {}", us(0.5), us(0.99)).expect(INFALLIBLE);
        line
    }

    /// The children of the request, completed by what every request passes.
    fn root(&mut self) {
        for line in lines(self.tree, self.sites) {
            match line {
                RootLine::Node(child) => self.node(child, 0, SiteKind::Request),
                RootLine::Missing(kind) => self.empty(kind),
            }
        }
    }

    fn node(&mut self, index: u32, depth: usize, above: SiteKind) {
        let info = self.sites.info(self.tree.nodes()[index as usize].site);
        self.rows.push((name(&info, depth, above), self.figures(index)));
        for child in self.tree.children(index) {
            self.node(child, depth + 1, info.kind);
        }
    }

    fn empty(&mut self, kind: SiteKind) {
        let zero = "0.0";
        let figures = format!("  {:>9}  {zero:>9}  {zero:>9}  {zero:>9}  {:>9}", "0.00", "0.0%");
        self.rows.push((name_of_missing(kind), figures));
    }

    fn figures(&self, index: u32) -> String {
        let (node, spread) = (&self.tree.nodes()[index as usize], &self.spreads[index as usize]);
        let us = |histogram: &crate::Histogram, q| micros((self.scale)(histogram.quantile(q)));
        let whole = self.tree.root().inclusive().max(1);
        let mut figures = format!("  {:>9.2}", node.calls as f64 / self.tree.requests().max(1) as f64);
        for figure in [self.mean(node.run), us(&spread.run, 0.5), us(&spread.run, 0.99)] {
            write!(figures, "  {figure:>9}").expect(INFALLIBLE);
        }
        let share = format!("{:.1}%", node.inclusive() as f64 * 100.0 / whole as f64);
        write!(figures, "  {share:>9}").expect(INFALLIBLE);
        if node.wait > 0 {
            write!(figures, "  {:>9}  {:>9}", self.mean(node.wait), us(&spread.wait, 0.99))
                .expect(INFALLIBLE);
        }
        figures
    }

    /// Microseconds per request.
    fn mean(&self, ticks: u64) -> String {
        micros((self.scale)(ticks) / self.tree.requests().max(1))
    }
}

const MANY: u64 = 1 << 30;
const INFALLIBLE: &str = "writing to a String does not fail";
