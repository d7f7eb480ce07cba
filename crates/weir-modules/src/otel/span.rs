//! The spans of a request: itself, its phases, and what it asked of servers.

use weir_trace::walk::{OpenStep, TraceStretch, TraceVisitor, walk};
use weir_trace::{KeptRequest, Site, SiteKind, SiteTable, WaitKind};

/// A stretch of a request, in ticks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SpanStretch {
    /// The span's name.
    pub name: String,
    /// What the stretch is.
    pub sort: SpanSort,
    /// Index of the stretch that it is inside of; `None`: the request.
    pub parent: Option<usize>,
    /// When it began, in ticks.
    pub start: u64,
    /// When it ended, in ticks.
    pub end: u64,
    /// Ticks of it spent running, without stretches inside.
    pub run: u64,
    /// Ticks of it spent waiting by kind, without stretches inside.
    pub waits: Vec<(WaitKind, u64)>,
    /// Modules whose handlers ran in it; of a try the server.
    pub names: Vec<String>,
    /// The code of an error in it; `None` without one.
    pub failed: Option<u64>,
}

/// What a stretch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanSort {
    /// Handlers of a phase, one after the other.
    Phase(u8),
    /// An attempt at a server.
    Try,
}

/// The stretches of a request in the order of their beginnings, [`MOST`] at most. What ran and waited outside of them is
/// the request's own.
pub(super) fn stretches(kept: &KeptRequest) -> Vec<SpanStretch> {
    let mut found = FoundStretches(Vec::new());
    walk(kept, kept.record().start, &mut found);
    found.0
}

/// The stretches so far. A step that is open knows which it is part of.
struct FoundStretches(Vec<SpanStretch>);

type StretchOf = Option<usize>;

impl FoundStretches {
    /// The stretch that begins with `site`, or goes on with it; none: `site` has no stretch of its own.
    fn open_at(&mut self, site: Site, at: u64, parent: StretchOf) -> StretchOf {
        let info = SiteTable::global().info(site);
        if *info.module == *super::NAME {
            return None;
        }
        let (sort, name) = match info.kind {
            SiteKind::Handler(phase) => (SpanSort::Phase(phase), info.phase.unwrap_or("phase").to_owned()),
            SiteKind::UpstreamTry => (SpanSort::Try, format!("upstream {}", info.name)),
            _ => return None,
        };
        let before = self.0.iter().rposition(|stretch| stretch.parent == parent);
        let number = match before.filter(|at| sort != SpanSort::Try && self.0[*at].sort == sort) {
            Some(same) => same,
            None if self.0.len() == MOST => return None,
            None => {
                self.0.push(SpanStretch {
                    name,
                    sort,
                    parent,
                    start: at,
                    end: at,
                    run: 0,
                    waits: Vec::new(),
                    names: Vec::new(),
                    failed: None,
                });
                self.0.len() - 1
            }
        };
        let names = &mut self.0[number].names;
        if !names.iter().any(|name| **name == *info.name) {
            names.push(info.name.to_string());
        }
        Some(number)
    }

    fn inside(&mut self, step: Option<&StretchOf>) -> Option<&mut SpanStretch> {
        step.copied().flatten().map(|at| &mut self.0[at])
    }
}

impl TraceVisitor for FoundStretches {
    type Step = StretchOf;

    fn opens(&mut self, site: Site, at: u64, around: &[OpenStep<StretchOf>]) -> StretchOf {
        let parent = around.last().and_then(|open| open.step);
        self.open_at(site, at, parent).or(parent)
    }

    fn closes(&mut self, step: StretchOf, at: u64) {
        if let Some(stretch) = self.inside(Some(&step)) {
            stretch.end = at;
        }
    }

    fn runs(&mut self, TraceStretch { from, to }: TraceStretch, inside: Option<&StretchOf>) {
        if let Some(stretch) = self.inside(inside) {
            stretch.run += to - from;
        }
    }

    fn waits(&mut self, kind: WaitKind, TraceStretch { from, to }: TraceStretch, inside: Option<&StretchOf>) {
        if let Some(stretch) = self.inside(inside) {
            stretch.wait(kind, to - from);
        }
    }

    fn fails(&mut self, code: u64, inside: Option<&StretchOf>) {
        if let Some(stretch) = self.inside(inside) {
            stretch.failed = Some(code);
        }
    }
}

impl SpanStretch {
    fn wait(&mut self, kind: WaitKind, ticks: u64) {
        match self.waits.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum += ticks,
            None => self.waits.push((kind, ticks)),
        }
    }
}

/// Stretches of a request at most: some hundred subrequests are exported in part.
const MOST: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::{EventKind, KeepReason, RequestRecord, Trace};

    #[test]
    fn phases_and_tries_are_stretches() {
        let sites = SiteTable::global();
        let rewrite = sites.intern(SiteKind::Handler(3), "/span", "rewrite");
        let first = sites.intern(SiteKind::Handler(6), "/span", "access");
        let second = sites.intern(SiteKind::Handler(6), "/span", "auth_basic");
        let proxy = sites.intern(SiteKind::Handler(9), "/span", "proxy");
        let server = sites.intern(SiteKind::UpstreamTry, "/span", "127.0.0.1:9");
        let mut trace = Trace::new();
        trace.begin(1_000);
        trace.mark(rewrite, 1_010);
        trace.mark(first, 1_030);
        trace.mark(second, 1_070);
        trace.enter(proxy, 1_100);
        for (begin, end) in [(1_110, 1_200), (1_210, 1_900)] {
            trace.enter(server, begin);
            trace.wait_kind(WaitKind::UpstreamFirstByte);
            trace.suspend(begin + 5);
            trace.resume(end - 5);
            trace.note(EventKind::Error, server, if end == 1_200 { 111 } else { 0 });
            trace.leave(server, end);
        }
        trace.leave(proxy, 2_000);
        trace.end(2_000);
        let record = RequestRecord { start: 1_000, total: 1_000, ..RequestRecord::default() };
        let found = stretches(&KeptRequest::new(KeepReason::Asked, &record, &trace));
        let reported: Vec<_> = found
            .iter()
            .map(|one| (&*one.name, one.parent, one.start, one.end, one.run, one.names.join(" "), one.failed))
            .collect();
        let names = |text: &str| text.to_owned();
        let expected = [
            ("rewrite", None, 1_000, 1_010, 10, names("rewrite"), None),
            ("access", None, 1_010, 1_070, 60, names("access auth_basic"), None),
            ("content", None, 1_100, 2_000, 120, names("proxy"), None),
            ("upstream 127.0.0.1:9", Some(2), 1_110, 1_200, 10, names("127.0.0.1:9"), Some(111)),
            ("upstream 127.0.0.1:9", Some(2), 1_210, 1_900, 10, names("127.0.0.1:9"), None),
        ];
        assert_eq!(reported, expected);
        assert_eq!(found[4].waits, [(WaitKind::UpstreamFirstByte, 680)]);
    }

    #[test]
    fn there_are_not_more_than_fit() {
        let server = SiteTable::global().intern(SiteKind::UpstreamTry, "/span", "many");
        let mut trace = Trace::new();
        trace.begin(0);
        (1..300).for_each(|at| trace.mark(server, at));
        trace.end(300);
        let found = stretches(&KeptRequest::new(KeepReason::Asked, &RequestRecord::default(), &trace));
        assert_eq!(found.len(), MOST);
    }
}
