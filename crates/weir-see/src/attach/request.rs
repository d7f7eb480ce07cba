//! One request of the probed process: what its functions took, and what it was.

use weir_trace::{RequestRecord, Site, Trace, WaitKind};

use super::fields::RequestTexts;
use crate::source;

/// A request from its creation on. Times are nanoseconds of the corrected clock.
#[derive(Debug, Default)]
pub(super) struct ProbedRequest {
    begun: u64,
    sums: Vec<SiteSum>,
    /// Functions of it that are running.
    pub(super) open: u32,
    /// Since when nothing of it runs.
    suspended: Option<u64>,
    /// Where it is when nothing runs, and why.
    place: (Site, WaitKind),
    /// The content handler that hands it on to another server.
    handler: Site,
    headers_sent: bool,
    /// It has been forgotten by nginx.
    pub(super) freed: bool,
    pub(super) connection: u64,
    pub(super) said: RequestTexts,
}

/// What one site took.
#[derive(Clone, Copy, Debug, Default)]
struct SiteSum {
    site: Site,
    /// The site it is in, or none.
    parent: Site,
    calls: u64,
    run: u64,
    wait: u64,
    kind: WaitKind,
    /// Its thread did not run: it waited for a disk, or others had their turn.
    off: u64,
}

impl ProbedRequest {
    pub(super) fn new(begun: u64, connection: u64) -> ProbedRequest {
        let place = (Site::step(weir_trace::ConnectionStep::HeadRead), WaitKind::ClientRead);
        ProbedRequest { begun, connection, place, ..ProbedRequest::default() }
    }

    /// It ran for so long in `site`.
    pub(super) fn ran(&mut self, site: Site, ns: u64) {
        self.sum(site).run += ns;
    }

    /// It was in `site` while its thread did not run.
    pub(super) fn stood(&mut self, site: Site, ns: u64) {
        self.sum(site).off += ns;
    }

    /// A function of it was entered.
    pub(super) fn enter(&mut self, now: u64) {
        if let Some(since) = self.suspended.take() {
            let (site, kind) = self.place;
            let sum = self.sum(site);
            sum.wait += now.saturating_sub(since);
            sum.kind = kind;
        }
        self.open += 1;
    }

    /// A function of it returned.
    pub(super) fn leave(&mut self, now: u64) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.suspend(now);
        }
    }

    /// Nothing of it runs from now on.
    pub(super) fn suspend(&mut self, now: u64) {
        self.suspended.get_or_insert(now);
    }

    /// `site` was called.
    pub(super) fn called(&mut self, site: Site) {
        self.sum(site).calls += 1;
    }

    /// What it waits in from now on, should it wait: a phase's handler, or reading the body.
    pub(super) fn stands_in(&mut self, site: Site, kind: WaitKind) {
        self.place = (site, kind);
    }

    /// From now on it waits for another server's response; `site` is the content handler, or a step after it.
    pub(super) fn hands_on(&mut self, site: Site, is_handler: bool) {
        if is_handler {
            self.handler = site;
        } else if self.handler != Site::NONE {
            self.sum(site).parent = self.handler;
        }
        let kind = if self.headers_sent { WaitKind::UpstreamBody } else { WaitKind::UpstreamFirstByte };
        self.place = (site, kind);
    }

    /// The response's head is on its way.
    pub(super) fn sends_headers(&mut self) {
        self.headers_sent = true;
        self.place = match self.handler {
            Site::NONE => (Site::step(weir_trace::ConnectionStep::Write), WaitKind::ClientWrite),
            _ => (self.place.0, WaitKind::UpstreamBody),
        };
    }

    /// What it took, as Weir's own requests say it.
    pub(super) fn trace(&self, now: u64) -> Trace {
        let mut trace = Trace::new();
        let mut at = 0;
        trace.begin(source::ticks(self.begun));
        let tops = self.sums.iter().filter(|sum| sum.parent == Site::NONE);
        for sum in tops {
            self.tell(sum, &mut trace, &mut at);
        }
        let total = now.saturating_sub(self.begun).max(at);
        // What is between the probed functions, and was not run in any.
        if total > at && self.open == 0 {
            trace.suspend(source::ticks(self.begun + at));
            trace.wait_kind(WaitKind::Other);
        }
        trace.end(source::ticks(self.begun + total));
        trace
    }

    /// Writes one site's sums, and what is inside it, after what is there at `at`.
    fn tell(&self, sum: &SiteSum, trace: &mut Trace, at: &mut u64) {
        let stamp = |at: u64| source::ticks(self.begun + at);
        // What is charged to no site is the request's own, outside of all.
        let has_site = sum.site != Site::NONE;
        if has_site {
            trace.enter(sum.site, stamp(*at));
        }
        *at += sum.run;
        for (kind, wait) in [(sum.kind, sum.wait), (WaitKind::Other, sum.off)] {
            if wait > 0 {
                trace.suspend(stamp(*at));
                trace.wait_kind(kind);
                *at += wait;
                trace.resume(stamp(*at));
            }
        }
        if !has_site {
            return;
        }
        for inner in self.sums.iter().filter(|inner| inner.parent == sum.site) {
            self.tell(inner, trace, at);
        }
        trace.leave(sum.site, stamp(*at));
        (1..sum.calls.min(MOST_CALLS)).for_each(|_| trace.pass(sum.site));
    }

    pub(super) fn record(&self) -> RequestRecord {
        let mut record = RequestRecord { status: self.said.status, ..RequestRecord::default() };
        record.method.set(self.said.method.as_bytes());
        record.set_path(self.said.path.as_bytes());
        record
    }

    fn sum(&mut self, site: Site) -> &mut SiteSum {
        let at = self.sums.iter().position(|sum| sum.site == site).unwrap_or_else(|| {
            self.sums.push(SiteSum { site, ..SiteSum::default() });
            self.sums.len() - 1
        });
        &mut self.sums[at]
    }
}

/// Calls of one site that are counted.
const MOST_CALLS: u64 = 400;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::{SiteKind, SiteTable};

    #[test]
    fn a_request_is_told_as_weir_tells_its_own() {
        let table = SiteTable::global();
        let proxy = table.intern(SiteKind::Handler(9), "", "proxy");
        let upstream = table.intern(SiteKind::UpstreamTry, "", "");
        let ms = 1_000_000;
        let mut request = ProbedRequest::new(ms, 7);
        request.ran(Site::NONE, ms);
        request.stood(Site::NONE, 2 * ms);
        request.enter(4 * ms);
        request.called(proxy);
        request.ran(proxy, ms);
        request.hands_on(proxy, true);
        request.called(upstream);
        request.hands_on(upstream, false);
        request.leave(5 * ms);
        request.enter(9 * ms);
        request.called(upstream);
        request.ran(upstream, 3 * ms);
        request.leave(12 * ms);
        let tree = request.trace(12 * ms).tree();
        let node = |site: Site| tree.nodes().iter().find(|node| node.site == site).expect("it ran");
        let whole = |ticks: u64| (source::scale(ticks) as f64 / ms as f64).round() as u64;
        assert_eq!((whole(tree.root().run), whole(tree.root().wait)), (5, 6));
        assert_eq!((whole(tree.root().self_run), whole(tree.root().self_wait)), (1, 2));
        assert_eq!((node(proxy).calls, whole(node(proxy).self_run)), (1, 1));
        assert_eq!((node(upstream).calls, whole(node(upstream).run), whole(node(upstream).wait)), (2, 3, 4));
        assert_eq!(tree.nodes()[node(upstream).parent as usize].site, proxy);
    }
}
