//! The boundaries of a request that others repeat.

use crate::event::{EventKind, TraceEvent};
use crate::site::Site;

/// What a request wrote to its tape ([`EventTape::pattern`](crate::EventTape::pattern)): marks, of which the first one and one
/// other took stamps. Another request that does the same in a few steps writes it at once
/// ([`EventTape::replay`](crate::EventTape::replay)).
#[derive(Debug)]
pub struct TapePattern {
    /// Without times.
    events: Box<[TraceEvent]>,
    /// The second one that is stamped; never the first event.
    second: usize,
}

impl TapePattern {
    /// The pattern of `events`: marks alone, from that of `first`, which is stamped, as is the last one of `second`.
    pub(crate) fn of(events: &[TraceEvent], first: Site, second: Site) -> Option<TapePattern> {
        let is = |event: &TraceEvent, site| event.kind() == EventKind::Mark && event.site() == site;
        let events = &events[events.iter().rposition(|event| is(event, first))?..];
        let second = events.iter().rposition(|event| is(event, second)).filter(|at| *at > 0)?;
        let bare = |(at, event): (usize, &TraceEvent)| match at == 0 || at == second {
            true => TraceEvent::pack(EventKind::Mark, event.site(), 0),
            false => TraceEvent::unstamped(EventKind::Mark, event.site()),
        };
        let all_marks = events.iter().all(|event| event.kind() == EventKind::Mark);
        all_marks.then(|| TapePattern { events: events.iter().enumerate().map(bare).collect(), second })
    }

    /// The events, the first and the [second](TapePattern::second) of which are to be stamped.
    #[inline]
    pub(crate) fn events(&self) -> &[TraceEvent] {
        &self.events
    }

    /// Which event is the second one that takes a stamp.
    #[inline]
    pub(crate) fn second(&self) -> usize {
        self.second
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WaitKind;
    use crate::tape::EventTape;
    use crate::trace::Trace;

    const PARSE: Site = Site(70);
    const HANDLER: Site = Site(71);
    const FILTER: Site = Site(72);

    /// A tape with a request that was parsed until 110 and had its response at 130.
    fn written() -> EventTape {
        let tape = EventTape::new();
        tape.rewind(100);
        assert!(tape.mark_and_pass(PARSE, [FILTER], 110) && tape.open(HANDLER) && tape.close(HANDLER, 130));
        assert!(tape.pass_all([FILTER, FILTER].into_iter()));
        tape
    }

    fn events(tape: &EventTape) -> Vec<TraceEvent> {
        tape.events().iter().map(std::cell::Cell::get).collect()
    }

    #[test]
    fn what_is_replayed_is_what_was_written() {
        let first = written();
        let pattern = first.pattern(PARSE, HANDLER).expect("marks alone");
        let again = EventTape::new();
        again.rewind(5_000);
        assert!(again.replay(&pattern, 5_010, 5_030));
        assert_eq!((events(&again), again.last()), (events(&first), 5_030));
        assert!(again.replay(&pattern, 5_040, 5_060));
        assert_eq!(events(&again), [events(&first), events(&first)].concat());
    }

    #[test]
    fn a_tape_without_room_is_left_to_its_trace() {
        let pattern = written().pattern(PARSE, HANDLER).expect("marks alone");
        let full = EventTape::new();
        full.rewind(100);
        while full.pass(FILTER) {}
        let before = events(&full);
        assert!(!full.replay(&pattern, 110, 130));
        assert_eq!((&events(&full), full.last()), (&before, 100));
        let mut trace = Trace::new();
        trace.begin(100);
        trace.take(&full);
        trace.replay(&pattern, 110, 130);
        assert_eq!(trace.events()[before.len()..], events(&written())[..]);
        // A clock that ran backwards.
        assert!(!EventTape::new().replay(&pattern, 130, 110));
    }

    #[test]
    fn only_marks_from_the_first_on_are_a_pattern() {
        let tape = written();
        assert!(tape.pattern(HANDLER, PARSE).is_none(), "in another order");
        assert!(tape.pattern(PARSE, Site(73)).is_none(), "not there");
        assert!(tape.pattern(PARSE, PARSE).is_none(), "one stamp");
        assert!(EventTape::new().pattern(PARSE, HANDLER).is_none());
        let waited = Site(WaitKind::Other as u16);
        let before = [TraceEvent::pack(EventKind::Resume, waited, 5)];
        let all = [&before[..], &events(&tape)].concat();
        assert!(TapePattern::of(&all, PARSE, HANDLER).is_some(), "what came before is another's");
        let open = [&events(&tape)[..], &[TraceEvent::unstamped(EventKind::Begin, FILTER)]].concat();
        assert!(TapePattern::of(&open, PARSE, HANDLER).is_none(), "something is open");
    }
}
