//! The spans of a request: itself, its phases, and what it asked of servers.

use weir_trace::event::EventDecoder;
use weir_trace::{EventKind, KeptRequest, Site, SiteKind, SiteTable, WaitKind};

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
    let mut walk = SpanWalk { at: kept.record().start, found: Vec::new(), open: Vec::new() };
    let mut decoder = EventDecoder::default();
    for event in kept.events() {
        if let Some((kind, site, value)) = decoder.decode(*event) {
            walk.take(kind, site, value);
        }
    }
    walk.at = walk.at.max(kept.record().start + kept.record().total);
    walk.leave(0);
    walk.found
}

struct SpanWalk {
    at: u64,
    found: Vec<SpanStretch>,
    /// The sites that are open, with the stretch that each is part of.
    open: Vec<(Site, Option<usize>)>,
}

impl SpanWalk {
    fn take(&mut self, kind: EventKind, site: Site, value: u64) {
        let before = self.at;
        if kind.is_timed() {
            self.at += value;
        }
        match kind {
            EventKind::Begin => {
                self.ran(value);
                let inside = self.open_at(site, self.at).or(self.current());
                self.open.push((site, inside));
            }
            EventKind::End => {
                self.ran(value);
                self.leave(site.outside(&self.open, |open| open.0));
            }
            EventKind::Mark => {
                let inside = self.open_at(site, before);
                self.open.push((site, inside.or(self.current())));
                self.ran(value);
                self.leave(self.open.len() - 1);
            }
            EventKind::Suspend => self.ran(value),
            EventKind::Resume => {
                if let Some(stretch) = self.inside() {
                    stretch.wait(WaitKind::from_code(site.0), value);
                }
            }
            EventKind::Error => {
                if let Some(stretch) = self.inside() {
                    stretch.failed = Some(value);
                }
            }
            _ => {}
        }
    }

    /// The stretch that begins with `site`, or goes on with it; none: `site` has no stretch of its own.
    fn open_at(&mut self, site: Site, at: u64) -> Option<usize> {
        let info = SiteTable::global().info(site);
        if *info.name == *super::NAME {
            return None;
        }
        let parent = self.current();
        let (sort, name) = match info.kind {
            SiteKind::Handler(phase) => (SpanSort::Phase(phase), info.phase.unwrap_or("phase").to_owned()),
            SiteKind::UpstreamTry => (SpanSort::Try, format!("upstream {}", info.name)),
            _ => return None,
        };
        let before = self.found.iter().rposition(|stretch| stretch.parent == parent);
        let number = match before.filter(|at| sort != SpanSort::Try && self.found[*at].sort == sort) {
            Some(same) => same,
            None if self.found.len() == MOST => return None,
            None => {
                self.found.push(SpanStretch {
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
                self.found.len() - 1
            }
        };
        let names = &mut self.found[number].names;
        if !names.iter().any(|name| **name == *info.name) {
            names.push(info.name.to_string());
        }
        Some(number)
    }

    fn current(&self) -> Option<usize> {
        self.open.last().and_then(|(_, stretch)| *stretch)
    }

    fn inside(&mut self) -> Option<&mut SpanStretch> {
        self.current().map(|at| &mut self.found[at])
    }

    fn ran(&mut self, ticks: u64) {
        if let Some(stretch) = self.inside() {
            stretch.run += ticks;
        }
    }

    fn leave(&mut self, depth: usize) {
        for (_, stretch) in self.open.drain(depth..) {
            if let Some(at) = stretch {
                self.found[at].end = self.at;
            }
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
    use weir_trace::{KeepReason, RequestRecord, Trace};

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
