//! The way through the events of a retained request: what opened, closed, ran and waited when. What draws, lists or
//! exports a request over time is a [`TraceVisitor`].

use crate::event::{EventDecoder, EventKind};
use crate::kept_request::KeptRequest;
use crate::model::WaitKind;
use crate::site::Site;

/// A stretch of a request, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceStretch {
    /// When it began.
    pub from: u64,
    /// When it ended.
    pub to: u64,
}

/// A site that is open.
#[derive(Clone, Copy, Debug)]
pub struct OpenStep<S> {
    /// Which it is.
    pub site: Site,
    /// What the visitor knows of it.
    pub step: S,
}

/// What is done on the way. The open steps are those around, innermost last.
pub trait TraceVisitor {
    /// What it knows of a step that is open.
    type Step;

    /// A step begins at `at`, in ticks.
    fn opens(&mut self, site: Site, at: u64, around: &[OpenStep<Self::Step>]) -> Self::Step;

    /// A step ends at `at`, in ticks.
    fn closes(&mut self, step: Self::Step, at: u64);

    /// A step of which only the end was stamped, and in which nothing is.
    fn passes(&mut self, site: Site, stretch: TraceStretch, around: &[OpenStep<Self::Step>]) {
        let step = self.opens(site, stretch.from, around);
        self.runs(stretch, Some(&step));
        self.closes(step, stretch.to);
    }

    /// The request ran, in that step.
    fn runs(&mut self, _stretch: TraceStretch, _inside: Option<&Self::Step>) {}

    /// It stops running at `at`, in ticks, as it has to wait.
    fn stops(&mut self, _at: u64) {}

    /// It waited, in that step, and runs again.
    fn waits(&mut self, _kind: WaitKind, _stretch: TraceStretch, _inside: Option<&Self::Step>) {}

    /// An error with that code, in that step.
    fn fails(&mut self, _code: u64, _inside: Option<&Self::Step>) {}
}

/// Where a visitor is.
#[derive(Debug)]
pub struct TraceWalk<S> {
    at: u64,
    open: Vec<OpenStep<S>>,
}

impl<S> TraceWalk<S> {
    /// At the request's beginning, which is at `from`, in ticks.
    #[must_use]
    pub fn new(from: u64) -> TraceWalk<S> {
        TraceWalk { at: from, open: Vec::new() }
    }

    /// One event.
    pub fn take(
        &mut self,
        kind: EventKind,
        site: Site,
        value: u64,
        visitor: &mut impl TraceVisitor<Step = S>,
    ) {
        let from = self.at;
        if kind.is_timed() {
            self.at += value;
        }
        let stretch = TraceStretch { from, to: self.at };
        let inside = self.open.last().map(|open| &open.step);
        match kind {
            EventKind::Begin => {
                visitor.runs(stretch, inside);
                let step = visitor.opens(site, self.at, &self.open);
                self.open.push(OpenStep { site, step });
            }
            EventKind::End => {
                visitor.runs(stretch, inside);
                self.leave(site.outside(&self.open, |open| open.site), visitor);
            }
            EventKind::Mark => visitor.passes(site, stretch, &self.open),
            EventKind::Suspend => {
                visitor.runs(stretch, inside);
                visitor.stops(self.at);
            }
            EventKind::Resume => visitor.waits(WaitKind::from_code(site.0), stretch, inside),
            EventKind::Error => visitor.fails(value, inside),
            _ => {}
        }
    }

    /// The request ends at `at`, in ticks, and what is open with it: of a very long request only the beginning has events.
    pub fn end(mut self, at: u64, visitor: &mut impl TraceVisitor<Step = S>) {
        self.at = self.at.max(at);
        self.leave(0, visitor);
        visitor.stops(self.at);
    }

    fn leave(&mut self, depth: usize, visitor: &mut impl TraceVisitor<Step = S>) {
        while self.open.len() > depth
            && let Some(OpenStep { step, .. }) = self.open.pop()
        {
            visitor.closes(step, self.at);
        }
    }
}

/// The whole way through a request that begins at `from`, in ticks.
pub fn walk<V: TraceVisitor>(kept: &KeptRequest, from: u64, visitor: &mut V) {
    let mut walk = TraceWalk::new(from);
    let mut decoder = EventDecoder::default();
    for event in kept.events() {
        if let Some((kind, site, value)) = decoder.decode(*event) {
            walk.take(kind, site, value, visitor);
        }
    }
    walk.end(from + kept.record().total, visitor);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keep_reason::KeepReason;
    use crate::record::RequestRecord;
    use crate::trace::Trace;

    /// Writes down what it meets.
    #[derive(Default)]
    struct Notes(Vec<String>);

    impl TraceVisitor for Notes {
        type Step = u16;

        fn opens(&mut self, site: Site, at: u64, around: &[OpenStep<u16>]) -> u16 {
            let around: Vec<u16> = around.iter().map(|open| open.site.0).collect();
            self.0.push(format!("{at} opens {} in {around:?}", site.0));
            site.0
        }

        fn closes(&mut self, step: u16, at: u64) {
            self.0.push(format!("{at} closes {step}"));
        }

        fn runs(&mut self, TraceStretch { from, to }: TraceStretch, inside: Option<&u16>) {
            self.0.push(format!("{from} to {to} runs in {inside:?}"));
        }

        fn stops(&mut self, at: u64) {
            self.0.push(format!("{at} stops"));
        }

        fn waits(&mut self, kind: WaitKind, TraceStretch { from, to }: TraceStretch, inside: Option<&u16>) {
            self.0.push(format!("{from} to {to} waits {} in {inside:?}", kind.as_str()));
        }

        fn fails(&mut self, code: u64, inside: Option<&u16>) {
            self.0.push(format!("fails {code} in {inside:?}"));
        }
    }

    #[test]
    fn each_event_is_met_where_it_was() {
        let mut trace = Trace::new();
        trace.begin(100);
        trace.enter(Site(70), 110);
        trace.mark(Site(71), 120);
        trace.wait_kind(WaitKind::Timer);
        trace.suspend(125);
        trace.resume(225);
        trace.note(EventKind::Error, Site(70), 7);
        trace.enter(Site(72), 230);
        trace.end(300);
        let record = RequestRecord { start: 100, total: 250, ..RequestRecord::default() };
        let mut notes = Notes::default();
        walk(&KeptRequest::new(KeepReason::Asked, &record, &trace), 0, &mut notes);
        let expected = [
            "0 to 10 runs in None",
            "10 opens 70 in []",
            "10 opens 71 in [70]",
            "10 to 20 runs in Some(71)",
            "20 closes 71",
            "20 to 25 runs in Some(70)",
            "25 stops",
            "25 to 125 waits timer in Some(70)",
            "fails 7 in Some(70)",
            "125 to 130 runs in Some(70)",
            "130 opens 72 in [70]",
            "130 to 200 runs in Some(72)",
            "200 closes 72",
            "200 closes 70",
            // The record is longer than its events.
            "250 stops",
        ];
        assert_eq!(notes.0, expected);
    }
}
