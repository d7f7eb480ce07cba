//! What a boundary does while it is recorded.
//!
//! Where nothing is recorded a boundary is a test of a flag where it is. All else is here, each in a function of its
//! own, and split again: the common case ends in itself or in a call, so that it saves no registers.

use weir_rt::clock;
use weir_trace::{EventKind, Site, TapePattern};

use super::SharedPart;
use crate::filter::HeaderEntry;

impl SharedPart {
    #[inline(never)]
    pub(in crate::exchange) fn mark_on(&self, site: Site) {
        match clock::quick_ticks() {
            Some(now) if self.tape.mark(site, now) => {}
            _ => self.mark_slowly(site),
        }
    }

    #[cold]
    #[inline(never)]
    fn mark_slowly(&self, site: Site) {
        self.with_trace(|trace| trace.mark(site, clock::ticks()));
    }

    #[inline(never)]
    pub(in crate::exchange) fn enter_on(&self, site: Site) {
        self.presence.at(site);
        match clock::quick_ticks() {
            Some(now) if self.tape.enter(site, now) => {}
            _ => self.enter_slowly(site),
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_slowly(&self, site: Site) {
        self.with_trace(|trace| trace.enter(site, clock::ticks()));
    }

    #[inline(never)]
    pub(in crate::exchange) fn leave_on(&self, site: Site) {
        self.presence.at(Site::NONE);
        match clock::quick_ticks() {
            Some(now) if self.tape.leave(site, now) => {}
            _ => self.leave_slowly(site),
        }
    }

    #[cold]
    #[inline(never)]
    fn leave_slowly(&self, site: Site) {
        self.with_trace(|trace| trace.leave(site, clock::ticks()));
    }

    /// [`leave_on`](SharedPart::leave_on) of a site inside of another one, to which the request returns.
    pub(in crate::exchange) fn leave_inside_on(&self, site: Site) {
        self.with_trace(|trace| {
            trace.leave(site, clock::ticks());
            self.presence.at(trace.innermost());
        });
    }

    /// The request was in `site` since the stamp `begun`, inside of what it is in now.
    pub(in crate::exchange) fn inside_since(&self, site: Site, begun: u64) {
        self.with_trace(|trace| {
            trace.enter(site, begun);
            trace.leave(site, clock::ticks());
        });
    }

    /// [`leave_on`](SharedPart::leave_on) of a site inside of `place`, to which the request returns.
    pub(in crate::exchange) fn leave_to_on(&self, site: Site, place: Site) {
        self.leave_on(site);
        self.presence.at(place);
    }

    /// See [`ExchangeTrace::note_vm`](super::super::ExchangeTrace::note_vm).
    #[cold]
    #[inline(never)]
    pub(in crate::exchange) fn note_vm_on(&self, collector: u64, compiler: u64) {
        self.with_trace(|trace| {
            trace.note(EventKind::Gc, Site::NONE, collector);
            trace.note(EventKind::Jit, Site::NONE, compiler);
        });
    }

    #[inline(never)]
    pub(in crate::exchange) fn open_on(&self, site: Site) {
        self.presence.at(site);
        if !self.tape.open(site) {
            self.open_slowly(site);
        }
    }

    #[cold]
    #[inline(never)]
    fn open_slowly(&self, site: Site) {
        self.with_trace(|trace| trace.open(site));
    }

    #[inline(never)]
    pub(in crate::exchange) fn close_on(&self, site: Site) {
        self.presence.at(Site::NONE);
        match clock::quick_ticks() {
            Some(now) if self.tape.close(site, now) => {}
            _ => self.close_slowly(site),
        }
    }

    /// [`close_on`](SharedPart::close_on) where something else is opened next.
    #[inline(never)]
    pub(in crate::exchange) fn close_before_next_on(&self, site: Site) {
        match clock::quick_ticks() {
            Some(now) if self.tape.close(site, now) => {}
            _ => self.close_slowly(site),
        }
    }

    #[cold]
    #[inline(never)]
    fn close_slowly(&self, site: Site) {
        self.with_trace(|trace| trace.close(site, clock::ticks()));
    }

    #[inline(never)]
    pub(in crate::exchange) fn mark_and_pass_on<const N: usize>(&self, site: Site, behind: [Site; N]) {
        match clock::quick_ticks() {
            Some(now) if self.tape.mark_and_pass(site, behind, now) => {}
            _ => self.mark_and_pass_slowly(site, behind),
        }
    }

    #[cold]
    #[inline(never)]
    fn mark_and_pass_slowly<const N: usize>(&self, site: Site, behind: [Site; N]) {
        self.with_trace(|trace| trace.mark_and_pass(site, behind, clock::ticks()));
    }

    #[inline(never)]
    pub(in crate::exchange) fn close_passed_on(&self, site: Site) {
        if !self.tape.close_passed(site) {
            self.close_passed_slowly(site);
        }
    }

    #[cold]
    #[inline(never)]
    fn close_passed_slowly(&self, site: Site) {
        self.with_trace(|trace| trace.close_unstamped(site, clock::ticks));
    }

    #[inline(never)]
    pub(in crate::exchange) fn pass_all_on(&self, filters: &[HeaderEntry]) {
        if !self.tape.pass_all(filters.iter().map(|entry| entry.site)) {
            self.pass_all_slowly(filters);
        }
    }

    #[cold]
    #[inline(never)]
    fn pass_all_slowly(&self, filters: &[HeaderEntry]) {
        self.with_trace(|trace| filters.iter().for_each(|entry| trace.pass(entry.site)));
    }

    #[inline]
    pub(in crate::exchange) fn replay_on(&self, pattern: &TapePattern, middle: u64) {
        match clock::quick_ticks() {
            Some(now) if self.tape.replay(pattern, middle, now) => {}
            _ => self.replay_slowly(pattern, middle),
        }
    }

    #[cold]
    #[inline(never)]
    fn replay_slowly(&self, pattern: &TapePattern, middle: u64) {
        self.with_trace(|trace| trace.replay(pattern, middle, clock::ticks()));
    }

    #[inline(never)]
    pub(in crate::exchange) fn bytes_on(&self, site: Site, input: u64, output: u64) {
        if !self.tape.bytes(site, input, output) {
            self.bytes_slowly(site, input, output);
        }
    }

    #[cold]
    #[inline(never)]
    fn bytes_slowly(&self, site: Site, input: u64, output: u64) {
        self.with_trace(|trace| trace.bytes(site, input, output));
    }
}
