//! Questions about a trace while it goes on: where the request is, and where it was longest.

use crate::event::{EventDecoder, EventKind, TraceEvent};
use crate::site::Site;
use crate::trace::Trace;

impl Trace {
    /// The innermost open site; [`Site::NONE`] between sites. Looks at the events from the end, until it finds one
    /// that opened and was not closed. In a request so long that its events were folded, what was opened before that
    /// is forgotten.
    #[must_use]
    pub fn innermost(&self) -> Site {
        let mut closed: Vec<Site> = Vec::new();
        for event in self.events().iter().rev() {
            match event.kind() {
                EventKind::End if event.site().is_none() => return Site::NONE,
                EventKind::End => closed.push(event.site()),
                EventKind::Begin => match closed.iter().rposition(|&site| site == event.site()) {
                    Some(at) => closed.truncate(at),
                    // Inside one that was closed: closed with it.
                    None if closed.is_empty() => return event.site(),
                    None => {}
                },
                _ => {}
            }
        }
        Site::NONE
    }

    /// Where the request ran longest without a stamp, from `since` on: what to blame when a turn of the loop was too
    /// long.
    #[must_use]
    pub fn longest_since(&self, since: u64) -> Site {
        self.longest(since).map_or(Site::NONE, |run| run.place)
    }

    /// Of what ran longest from `since` on, `asleep` ticks were spent asleep in a call that blocks, and `no_core` ticks
    /// ready and without a core. Nothing is noted that is 0.
    pub fn off_core(&mut self, since: u64, asleep: u64, no_core: u64) {
        let run = self.longest(since);
        // After a mark it is about the mark; before what opens, closes or suspends, about what was open.
        let (at, site) = match run {
            Some(run) if run.is_mark => (run.event + 1, run.place),
            Some(run) => (run.first, Site::NONE),
            None => (usize::MAX, Site::NONE),
        };
        for (kind, ticks) in [(EventKind::NoCore, no_core), (EventKind::Asleep, asleep)] {
            if ticks > 0 {
                self.insert(at, TraceEvent::pack(kind, site, ticks.min(TraceEvent::MAX)));
            }
        }
    }

    fn longest(&self, since: u64) -> Option<LongestRun> {
        let (mut now, mut longest, mut found) = (self.start(), 0, None);
        let (mut decoder, mut open) = (EventDecoder::default(), Vec::new());
        let mut first = 0;
        for (at, &event) in self.events().iter().enumerate() {
            let Some((kind, site, ticks)) = decoder.decode(event) else { continue };
            // With the upper half of its value, where that is an event of its own.
            let from = std::mem::replace(&mut first, at + 1);
            if !kind.is_timed() {
                continue;
            }
            let began = now;
            now += ticks;
            let innermost = open.last().copied().unwrap_or(Site::NONE);
            let is_mark = kind == EventKind::Mark;
            if kind != EventKind::Resume && began >= since && ticks >= longest {
                longest = ticks;
                found = Some(LongestRun {
                    place: if is_mark { site } else { innermost },
                    first: from,
                    event: at,
                    is_mark,
                });
            }
            match kind {
                EventKind::Begin => open.push(site),
                EventKind::End => open.truncate(site.outside(&open, |open| *open)),
                _ => {}
            }
        }
        found
    }
}

/// An interval of a trace.
struct LongestRun {
    place: Site,
    /// Index of its first event, and of the one that ends it.
    first: usize,
    event: usize,
    is_mark: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_request_is_and_was() {
        let mut trace = Trace::new();
        trace.begin(1_000);
        assert_eq!(trace.innermost(), Site::NONE);
        trace.enter(Site(70), 1_010);
        trace.enter(Site(71), 1_020);
        assert_eq!(trace.innermost(), Site(71));
        trace.mark(Site(72), 1_520);
        assert_eq!(trace.innermost(), Site(71));
        trace.leave(Site(71), 1_530);
        assert_eq!(trace.innermost(), Site(70));
        trace.suspend(1_540);
        trace.resume(9_000);
        trace.enter(Site(73), 9_010);
        trace.enter(Site(74), 9_020);
        trace.leave(Site(73), 9_060);
        assert_eq!(trace.innermost(), Site(70), "74 was closed with 73");
        assert_eq!(trace.longest_since(1_000), Site(72));
        assert_eq!(trace.longest_since(9_000), Site(74));
        trace.end(9_065);
        assert_eq!(trace.innermost(), Site::NONE);
    }

    #[test]
    fn what_was_not_on_a_core_is_noted_where_it_was() {
        let mut trace = Trace::new();
        trace.begin(1_000);
        trace.enter(Site(70), 1_010);
        trace.mark(Site(71), 9_010);
        trace.off_core(1_000, 0, 5_000);
        trace.enter(Site(72), 9_020);
        trace.suspend(19_020);
        trace.off_core(9_015, 9_000, 500);
        trace.resume(30_000);
        trace.leave(Site(72), 30_010);
        trace.leave(Site(70), 30_020);
        trace.end(95_020);
        trace.off_core(30_000, 60_000, 0);
        let tree = trace.tree();
        let parts = |site| {
            let node = tree.nodes().iter().find(|node| node.site == site).expect("a node");
            (node.self_run, node.asleep, node.no_core)
        };
        assert_eq!(parts(Site(71)), (8_000, 0, 5_000));
        assert_eq!(parts(Site(72)), (10_010, 9_000, 500));
        // What came before the first site is its own, too.
        assert_eq!(parts(Site::NONE), (65_010, 60_000, 0));
        assert_eq!(tree.off_core(), (69_000, 5_500));
        assert_eq!(tree.nodes().len(), 4, "no node of their own");
        assert_eq!(trace.total_run(), 95_020 - 1_000 - 10_980, "run is what it was");
    }

    #[test]
    fn a_trace_that_is_full_or_folded_is_noted_at_its_end() {
        for events in [510, 511, 512, 3_000] {
            let mut trace = Trace::new();
            trace.begin(0);
            (1..=events).for_each(|n| trace.mark(Site(70), n * 2));
            trace.off_core(0, 7, 11);
            trace.end(events * 2 + 2);
            assert_eq!(trace.tree().off_core(), (7, 11), "{events}");
            assert_eq!(trace.tree().root().run, events * 2 + 2);
        }
    }
}
