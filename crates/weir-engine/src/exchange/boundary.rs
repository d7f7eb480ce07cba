//! The boundaries of a request.
//!
//! Where nothing is recorded a boundary is a test and a jump where it is (`bench/icount/run --boundaries` counts
//! them). All else is in [`SharedPart`](super::shared::SharedPart)'s part of them.

use std::rc::Rc;

use weir_rt::clock;
use weir_trace::{Site, TapePattern};

use super::{Exchange, SharedPart};
use crate::deep_traces::{DeepKind, PatternRole};
use crate::filter::HeaderEntry;

/// The trace of an exchange, to which the loops that call modules report boundaries ([`Exchange::trace`]).
#[derive(Clone, Copy)]
pub struct ExchangeTrace<'x>(&'x Exchange);

impl Exchange {
    /// The trace of this request.
    #[inline(always)]
    pub fn trace(&self) -> ExchangeTrace<'_> {
        ExchangeTrace(self)
    }
}

impl ExchangeTrace<'_> {
    /// Charges the time since the last stamp to `site`.
    #[inline(always)]
    pub fn mark(self, site: Site) {
        if self.0.recorded.get() {
            self.0.shared.mark_on(site);
        }
    }

    /// Opens `site` now: the request's time belongs to it until [`ExchangeTrace::leave`]. Does nothing where boundaries
    /// are not recorded.
    #[inline(always)]
    pub fn enter(self, site: Site) {
        if self.0.recorded.get() {
            self.0.shared.enter_on(site);
        }
    }

    /// Closes `site`, which [`ExchangeTrace::enter`] opened. Does nothing where boundaries are not recorded.
    #[inline(always)]
    pub fn leave(self, site: Site) {
        if self.0.recorded.get() {
            self.0.shared.leave_on(site);
        }
    }

    /// Whether boundaries are recorded.
    #[inline(always)]
    pub fn is_on(self) -> bool {
        self.0.recorded.get()
    }

    /// Opens `sites` inside one another, outermost first: for what a script is in while it waits.
    pub fn enter_all(self, sites: &[Site]) {
        if self.0.recorded.get() {
            sites.iter().for_each(|site| self.0.shared.enter_on(*site));
        }
    }

    /// Closes what [`ExchangeTrace::enter_all`] opened; the request is back in what is around it.
    pub fn leave_all(self, sites: &[Site]) {
        if let (true, [outermost, ..]) = (self.0.recorded.get(), sites) {
            self.0.shared.leave_inside_on(*outermost);
        }
    }

    /// As [`leave_all`](ExchangeTrace::leave_all), to `place`, where the request was before.
    pub fn leave_all_to(self, sites: &[Site], place: Site) {
        if let (true, [outermost, ..]) = (self.0.recorded.get(), sites) {
            self.0.shared.leave_to_on(*outermost, place);
        }
    }

    /// The innermost open site; [`Site::NONE`] between sites, and where boundaries are not recorded.
    pub fn innermost(self) -> Site {
        if self.0.recorded.get() { self.0.shared.with_trace(|trace| trace.innermost()) } else { Site::NONE }
    }

    /// Of the run of the innermost open site, these ticks were a Lua VM's collector and its compiler.
    pub fn note_vm(self, collector: u64, compiler: u64) {
        if self.0.recorded.get() {
            self.0.shared.note_vm_on(collector, compiler);
        }
    }

    /// Opens `site` as of the stamp before.
    #[inline(always)]
    pub fn open(self, site: Site) {
        if self.0.recorded.get() {
            self.0.shared.open_on(site);
        }
    }

    /// Closes what [`ExchangeTrace::open`] opened.
    #[inline(always)]
    pub fn close(self, site: Site) {
        if self.0.recorded.get() {
            self.0.shared.close_on(site);
        }
    }

    /// [`ExchangeTrace::close`] where something else is opened next, or [`ExchangeTrace::nowhere`] called: for samples the request stays
    /// in `site` until then.
    #[inline(always)]
    pub(crate) fn close_before_next(self, site: Site) {
        if self.0.recorded.get() {
            self.0.shared.close_before_next_on(site);
        }
    }

    /// Notes bytes that went into and came out of `site`.
    #[inline(always)]
    pub fn bytes(self, site: Site, input: u64, output: u64) {
        if self.0.recorded.get() {
            self.0.shared.bytes_on(site, input, output);
        }
    }

    /// Charges the time since the last stamp to `site`, and records the sites of `behind`, which ran right after it,
    /// without time of their own: they took a few instructions.
    #[inline(always)]
    pub fn mark_and_pass<const N: usize>(self, site: Site, behind: [Site; N]) {
        if self.0.recorded.get() {
            self.0.shared.mark_and_pass_on(site, behind);
        }
    }

    /// Closes what [`ExchangeTrace::open`] opened, whose few instructions are left to what comes next. For samples the request
    /// stays there until something else is opened, or [`ExchangeTrace::nowhere`].
    #[inline(always)]
    pub(crate) fn close_passed(self, site: Site) {
        if self.0.recorded.get() {
            self.0.shared.close_passed_on(site);
        }
    }

    /// For samples: the request is at `site`, which takes a few instructions and the trace learns of it later.
    #[inline(always)]
    pub(crate) fn at(self, site: Site) {
        if self.0.recorded.get() {
            self.0.shared.presence.at(site);
        }
    }

    /// These filters were called and took a few instructions each, which are left to what comes next.
    #[inline(always)]
    pub(crate) fn pass_all(self, filters: &[HeaderEntry]) {
        if self.0.recorded.get() {
            self.0.shared.pass_all_on(filters);
        }
    }

    /// The time since the last stamp, of the processor's counter or clock; 0 where boundaries are not recorded.
    #[inline(always)]
    pub(crate) fn now(self) -> u64 {
        if self.0.recorded.get() { clock::ticks() } else { 0 }
    }

    /// The request did what another one had done whose marks are `pattern`, the first of them until `middle`.
    #[inline(always)]
    pub(crate) fn replay(self, pattern: &TapePattern, middle: u64) {
        if self.0.recorded.get() {
            self.0.shared.replay_on(pattern, middle);
        }
    }

    /// For samples: the request is between sites.
    #[inline(always)]
    pub(crate) fn nowhere(self) {
        if self.0.recorded.get() {
            self.0.shared.presence.at(Site::NONE);
        }
    }
}

impl Exchange {
    /// Runs `f` inside of a boundary of its own. For places where [`deep_traces::is_asked`](crate::deep_traces::is_asked) says so.
    #[cold]
    pub(crate) fn inside<R>(&mut self, kind: DeepKind, name: &str, f: impl FnOnce(&mut Exchange) -> R) -> R {
        if !self.trace().is_on() {
            return f(self);
        }
        let site = kind.site(name);
        self.trace().enter(site);
        let result = f(self);
        self.trace().leave(site);
        result
    }

    /// What `look` finds with the pattern `name`, in a boundary that says whether it `is_match`. For places where
    /// [`deep_traces::is_asked`](crate::deep_traces::is_asked) says so.
    #[cold]
    pub fn watched_pattern<R>(
        &self,
        role: PatternRole,
        name: &str,
        is_match: impl FnOnce(&R) -> bool,
        look: impl FnOnce() -> R,
    ) -> R {
        if !self.trace().is_on() {
            return look();
        }
        // How it is called is known after it ran, and it has no boundaries inside.
        let begun = clock::ticks();
        let found = look();
        self.shared.inside_since(role.site(name, is_match(&found)), begun);
        found
    }

    /// This request's trace for what happens below modules while others have the request; `None` where nothing is recorded.
    #[cold]
    #[must_use]
    pub fn deep_trace(&self) -> Option<DeepTrace> {
        self.trace().is_on().then(|| DeepTrace(self.shared.clone()))
    }
}

/// A request's trace where the request itself can't be reached ([`Exchange::deep_trace`]).
pub struct DeepTrace(Rc<SharedPart>);

impl DeepTrace {
    /// The request was in `site` from `since` until `until`, in ticks, inside of what it is in now, and in nothing else since then.
    pub fn ran(&self, site: Site, since: u64, until: u64) {
        self.0.with_trace(|trace| {
            trace.enter(site, since);
            trace.leave(site, until);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn what_runs_inside_gives_its_result_whether_recorded_or_not() {
        let found = testing::run("server { }", "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", async |x| {
            let name = |x: &mut Exchange| x.uri().to_vec();
            let seven = x.watched_pattern(PatternRole::Module, "~ a", |found| *found == 7, || 7);
            (x.inside(DeepKind::Variable, "uri", name), seven)
        });
        assert_eq!(found, (b"/a".to_vec(), 7));
    }
}
