//! The time of one phase of a request, without drawing its tree: for variables.

use crate::event::{EventDecoder, EventKind};
use crate::site::{Site, SiteKind, SiteTable};
use crate::trace::Trace;

/// Which phase each site belongs to. Made when a configuration is installed: sites come only then.
#[derive(Clone, Debug, Default)]
pub struct PhaseMap {
    /// By the site's number: its phase, or [`NO_PHASE`].
    phases: Box<[u8]>,
}

impl PhaseMap {
    /// Of the sites there are now.
    #[must_use]
    pub fn new(sites: &SiteTable) -> PhaseMap {
        let phase = |kind| match kind {
            SiteKind::Phase(phase) | SiteKind::Handler(phase) => phase,
            _ => NO_PHASE,
        };
        PhaseMap { phases: sites.kinds().into_iter().map(phase).collect() }
    }

    fn phase(&self, site: Site) -> u8 {
        self.phases.get(site.index()).copied().unwrap_or(NO_PHASE)
    }
}

impl Trace {
    /// Run and wait of `phase` so far, up to `now`, in ticks. What runs because of it (a subrequest's phases) counts for
    /// it and not for those.
    #[must_use]
    pub fn phase(&self, phase: u8, map: &PhaseMap, now: u64) -> u64 {
        let mut sum = 0;
        // The outermost open site that belongs to a phase, and how many are open inside it.
        let mut open: Option<(u8, Vec<Site>)> = None;
        let mut decoder = EventDecoder::default();
        for &event in self.events() {
            let Some((kind, site, ticks)) = decoder.decode(event) else { continue };
            if !kind.is_timed() {
                continue;
            }
            let of = match &open {
                Some((outer, _)) => *outer,
                None if kind == EventKind::Mark => map.phase(site),
                None => NO_PHASE,
            };
            if of == phase {
                sum += ticks;
            }
            open = match (open, kind) {
                (Some((outer, mut inside)), EventKind::Begin) => {
                    inside.push(site);
                    Some((outer, inside))
                }
                (None, EventKind::Begin) if map.phase(site) != NO_PHASE => {
                    Some((map.phase(site), vec![site]))
                }
                (Some((outer, mut inside)), EventKind::End) => {
                    inside.truncate(site.outside(&inside, |open| *open));
                    (!inside.is_empty()).then_some((outer, inside))
                }
                (open, _) => open,
            };
        }
        match open {
            Some((outer, _)) if outer == phase && !self.is_folded() => {
                sum + now.saturating_sub(self.start() + self.total())
            }
            _ => sum,
        }
    }
}

const NO_PHASE: u8 = u8::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_s_time_is_that_of_its_handlers_and_what_they_cause() {
        let sites = SiteTable::new();
        let auth = sites.intern(SiteKind::Handler(6), "/", "auth_request");
        let rule = sites.intern(SiteKind::Handler(6), "/", "access");
        let content = sites.intern(SiteKind::Handler(9), "/", "static");
        let map = PhaseMap::new(&sites);
        let mut trace = Trace::new();
        trace.begin(0);
        trace.mark(rule, 5);
        trace.enter(auth, 10);
        trace.enter(Site::SUBREQUEST, 12);
        trace.mark(content, 20);
        trace.suspend(25);
        trace.resume(125);
        trace.leave(Site::SUBREQUEST, 127);
        trace.leave(auth, 130);
        trace.mark(Site::HEADER, 140);
        trace.enter(content, 150);
        assert_eq!(trace.phase(6, &map, 151), 5 + 120);
        assert_eq!(trace.phase(9, &map, 157), 7, "it goes on");
        trace.leave(content, 160);
        trace.end(200);
        assert_eq!((trace.phase(6, &map, 200), trace.phase(9, &map, 200)), (125, 10));
        assert_eq!(trace.phase(3, &map, 200), 0);
    }
}
