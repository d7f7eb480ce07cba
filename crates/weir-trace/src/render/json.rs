//! JSON, written by hand: a few objects of known shape.
//!
//! Times are integers in nanoseconds and end in `_ns`. Request ids are strings. Nothing holds arguments, cookies or
//! authorization, because records do not.

use std::fmt::Write;

use weir_sys::json::escape;

use super::TicksToNanos;
use crate::histogram::Histogram;
use crate::kept_request::KeptRequest;
use crate::live_counts::SiteTotals;
use crate::model::WaitKind;
use crate::record::RequestRecord;
use crate::site::{Site, SiteTable};
use crate::status_counts::StatusCounts;
use crate::tree::TraceTree;

/// A retained request: why, its record and its tree.
#[must_use]
pub fn kept_json(kept: &KeptRequest, sites: &SiteTable, scale: TicksToNanos<'_>) -> String {
    let mut out = String::new();
    let mut object = ObjectWriter::new(&mut out);
    object.text("why", kept.why().as_str());
    object.raw("record", &record_json(kept.record(), sites, scale));
    object.raw("tree", &tree_json(&kept.tree(), sites, scale));
    object.close();
    out
}

/// A request record as one JSON object: id, method, path, location, status, bytes, and times in nanoseconds (`*_ns`),
/// converted from ticks by `scale`.
#[must_use]
pub fn record_json(record: &RequestRecord, sites: &SiteTable, scale: TicksToNanos<'_>) -> String {
    let mut out = String::new();
    let mut object = ObjectWriter::new(&mut out);
    object.text("id", &record.id.to_string());
    object.text("method", &String::from_utf8_lossy(record.method.as_bytes()));
    object.text("path", &String::from_utf8_lossy(record.path.as_bytes()));
    if !record.route.is_none() {
        object.text("location", &sites.info(record.route).location);
    }
    object.number("status", record.status.into());
    object.number("worker", record.worker.into());
    object.number("protocol", record.protocol.into());
    object.text("cause", record.cause.as_str());
    object.number("unix_ms", record.unix_ms);
    for (name, ticks) in [
        ("total_ns", record.total),
        ("run_ns", record.run),
        ("kernel_ns", record.kernel),
        ("wait_ns", record.wait()),
        ("accept_wait_ns", record.accept_wait),
        ("receive_wait_ns", record.receive_wait),
        ("lock_ns", record.lock),
        ("gc_ns", record.gc),
        ("jit_ns", record.jit),
    ] {
        object.number(name, scale(ticks));
    }
    object.raw("waits_ns", &waits_json(record, scale));
    object.number("bytes_in", record.bytes_in);
    object.number("bytes_out", record.bytes_out);
    object.number("trace_exits", record.trace_exits);
    object.number("lua_bytes", record.lua_bytes);
    object.close();
    out
}

/// A tree, [arranged](TraceTree::arranged) and nested: each node with its `children`; over several requests, sums with their number in `requests`.
#[must_use]
pub fn tree_json(tree: &TraceTree, sites: &SiteTable, scale: TicksToNanos<'_>) -> String {
    let mut out = String::new();
    let mut object = ObjectWriter::new(&mut out);
    object.number("requests", tree.requests());
    let (mut root, arranged) = (String::new(), tree.arranged(sites));
    node_json(&mut root, &arranged, 0, sites, scale, &|object, index| {
        extras(object, &arranged, index, scale);
    });
    object.raw("root", &root);
    object.close();
    out
}

/// The counts of sites, as from [`RecorderReader::merged`](crate::RecorderReader::merged): an array with one object
/// a site.
#[must_use]
pub fn totals_json(totals: &[(Site, SiteTotals)], sites: &SiteTable, scale: TicksToNanos<'_>) -> String {
    let mut out = String::from("[");
    for (n, (site, totals)) in totals.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        let mut object = ObjectWriter::new(&mut out);
        object.site(*site, sites);
        object.raw("run", &histogram_json(&totals.run, scale));
        object.raw("wait", &histogram_json(&totals.wait, scale));
        object.number("calls", totals.counts.calls);
        object.number("bytes_in", totals.counts.bytes_in);
        object.number("bytes_out", totals.counts.bytes_out);
        object.number("errors", totals.counts.errors);
        object.number("asleep_ns", scale(totals.counts.asleep));
        object.number("no_core_ns", scale(totals.counts.no_core));
        object.number("kernel_ns", scale(totals.counts.kernel));
        if let Some(status) = &totals.status {
            object.raw("total", &histogram_json(&totals.total, scale));
            object.raw("status", &status_json(status));
        }
        object.close();
    }
    out.push(']');
    out
}

/// A node and those below it: its site and own times, what `more` adds, and its `children`.
pub(super) fn node_json(
    out: &mut String,
    tree: &TraceTree,
    index: u32,
    sites: &SiteTable,
    scale: TicksToNanos<'_>,
    more: &dyn Fn(&mut ObjectWriter<'_>, u32),
) {
    let node = &tree.nodes()[index as usize];
    let mut object = ObjectWriter::new(out);
    object.site(node.site, sites);
    object.number("calls", node.calls);
    object.number("run_ns", scale(node.run));
    object.number("wait_ns", scale(node.wait));
    object.number("self_run_ns", scale(node.self_run));
    object.number("self_wait_ns", scale(node.self_wait));
    more(&mut object, index);
    object.key("children");
    object.out.push('[');
    for (n, child) in tree.children(index).enumerate() {
        if n > 0 {
            object.out.push(',');
        }
        node_json(object.out, tree, child, sites, scale, more);
    }
    object.out.push(']');
    object.close();
}

/// What one request's node may have besides: bytes, errors, a line, and what it waited for.
fn extras(object: &mut ObjectWriter<'_>, tree: &TraceTree, index: u32, scale: TicksToNanos<'_>) {
    let node = &tree.nodes()[index as usize];
    let optional = [
        ("bytes_in", node.bytes_in),
        ("bytes_out", node.bytes_out),
        ("lock_ns", scale(node.lock)),
        ("gc_ns", scale(node.gc)),
        ("jit_ns", scale(node.jit)),
        ("asleep_ns", scale(node.asleep)),
        ("no_core_ns", scale(node.no_core)),
        ("errors", node.errors),
        ("last_error", node.last_error),
        ("line", node.line),
    ];
    for (name, value) in optional.into_iter().filter(|&(_, value)| value > 0) {
        object.number(name, value);
    }
    object.raw("waits_ns", &node_waits_json(tree, index, scale));
}

/// What a node itself waited for, by kind.
pub(super) fn node_waits_json(tree: &TraceTree, index: u32, scale: TicksToNanos<'_>) -> String {
    let mut out = String::new();
    let mut by_kind = ObjectWriter::new(&mut out);
    tree.waits(index).for_each(|wait| by_kind.number(wait.kind.as_str(), scale(wait.ticks)));
    by_kind.close();
    out
}

fn waits_json(record: &RequestRecord, scale: TicksToNanos<'_>) -> String {
    let mut out = String::new();
    let mut object = ObjectWriter::new(&mut out);
    for (kind, ticks) in WaitKind::ALL.iter().zip(record.waits).filter(|&(_, ticks)| ticks > 0) {
        object.number(kind.as_str(), scale(ticks));
    }
    object.close();
    out
}

pub(super) fn histogram_json(histogram: &Histogram, scale: TicksToNanos<'_>) -> String {
    let mut out = String::new();
    let mut object = ObjectWriter::new(&mut out);
    object.number("count", histogram.count());
    object.number("sum_ns", scale(histogram.sum()));
    object.number("mean_ns", scale(histogram.mean()));
    object.number("p50_ns", scale(histogram.quantile(0.5)));
    object.number("p99_ns", scale(histogram.quantile(0.99)));
    object.number("max_ns", scale(histogram.max()));
    object.close();
    out
}

fn status_json(status: &StatusCounts) -> String {
    let mut out = String::new();
    let mut object = ObjectWriter::new(&mut out);
    for (name, count) in ["none", "1xx", "2xx", "3xx", "4xx", "5xx"].iter().zip(status.classes) {
        object.number(name, count);
    }
    for (code, count) in StatusCounts::NAMED.iter().zip(status.named) {
        object.number(&code.to_string(), count);
    }
    object.close();
    out
}

/// An object being written. Keys are ours and need no escaping.
pub(super) struct ObjectWriter<'a> {
    pub(super) out: &'a mut String,
    first: bool,
}

impl<'a> ObjectWriter<'a> {
    pub(super) fn new(out: &'a mut String) -> ObjectWriter<'a> {
        out.push('{');
        ObjectWriter { out, first: true }
    }

    pub(super) fn key(&mut self, key: &str) {
        if !std::mem::take(&mut self.first) {
            self.out.push(',');
        }
        self.out.push('"');
        self.out.push_str(key);
        self.out.push_str("\":");
    }

    pub(super) fn raw(&mut self, key: &str, value: &str) {
        self.key(key);
        self.out.push_str(value);
    }

    pub(super) fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        write!(self.out, "{value}").expect("writing to a String does not fail");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        escape(self.out, value);
    }

    pub(super) fn site(&mut self, site: Site, sites: &SiteTable) {
        let info = sites.info(site);
        self.text("kind", if site.is_none() { "request" } else { info.kind.as_str() });
        if let Some(phase) = info.phase {
            self.text("phase", phase);
        }
        if !info.location.is_empty() {
            self.text("location", &info.location);
        }
        self.text("name", &info.name);
    }

    pub(super) fn close(self) {
        self.out.push('}');
    }
}
