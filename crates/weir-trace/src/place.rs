//! Questions about a trace while it goes on: where the request is, and where it was longest.

use crate::event::{EventDecoder, EventKind};
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
        let (mut now, mut longest, mut found) = (self.start(), 0, Site::NONE);
        let (mut decoder, mut open) = (EventDecoder::default(), Vec::new());
        for &event in self.events() {
            let Some((kind, site, ticks)) = decoder.decode(event) else { continue };
            if !kind.is_timed() {
                continue;
            }
            let began = now;
            now += ticks;
            let innermost = open.last().copied().unwrap_or(Site::NONE);
            let place = if kind == EventKind::Mark { site } else { innermost };
            if kind != EventKind::Resume && began >= since && ticks >= longest {
                (longest, found) = (ticks, place);
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
}
