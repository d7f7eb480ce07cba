//! The boundaries of a request.
//!
//! Where nothing is recorded a boundary is a test and a jump where it stands (`bench/icount/run --boundaries` counts
//! them). All else is in [`Shared`]'s part of them.

use weir_trace::Site;

use super::Exchange;
use crate::filter::HeaderEntry;

impl Exchange {
    /// Charges the time since the last stamp to `site`.
    #[inline(always)]
    pub fn mark(&self, site: Site) {
        if self.recorded.get() {
            self.shared.mark_on(site);
        }
    }

    /// Opens `site`.
    #[inline(always)]
    pub fn enter(&self, site: Site) {
        if self.recorded.get() {
            self.shared.enter_on(site);
        }
    }

    /// Closes `site`.
    #[inline(always)]
    pub fn leave(&self, site: Site) {
        if self.recorded.get() {
            self.shared.leave_on(site);
        }
    }

    /// Whether boundaries are recorded.
    #[inline(always)]
    pub fn is_traced(&self) -> bool {
        self.recorded.get()
    }

    /// Opens `sites` inside one another, outermost first: for what a script stands in while it waits.
    pub fn enter_all(&self, sites: &[Site]) {
        if self.recorded.get() {
            sites.iter().for_each(|site| self.shared.enter_on(*site));
        }
    }

    /// Closes what [`Exchange::enter_all`] opened; the request is back in what is around it.
    pub fn leave_all(&self, sites: &[Site]) {
        if let (true, [outermost, ..]) = (self.recorded.get(), sites) {
            self.shared.leave_inside_on(*outermost);
        }
    }

    /// Of the run of the innermost open site, these ticks were a Lua VM's collector and its compiler.
    pub fn note_vm(&self, collector: u64, compiler: u64) {
        if self.recorded.get() {
            self.shared.note_vm_on(collector, compiler);
        }
    }

    /// Opens `site` as of the stamp before.
    #[inline(always)]
    pub(crate) fn open(&self, site: Site) {
        if self.recorded.get() {
            self.shared.open_on(site);
        }
    }

    /// Closes what [`Exchange::open`] opened.
    #[inline(always)]
    pub(crate) fn close(&self, site: Site) {
        if self.recorded.get() {
            self.shared.close_on(site);
        }
    }

    /// [`Exchange::close`] where something else is opened next, or [`Exchange::nowhere`] called: for samples the request stays
    /// in `site` until then.
    #[inline(always)]
    pub(crate) fn close_before_next(&self, site: Site) {
        if self.recorded.get() {
            self.shared.close_before_next_on(site);
        }
    }

    /// Notes bytes that went into and came out of `site`.
    #[inline(always)]
    pub(crate) fn bytes(&self, site: Site, input: u64, output: u64) {
        if self.recorded.get() {
            self.shared.bytes_on(site, input, output);
        }
    }

    /// Charges the time since the last stamp to `site`, and passes `behind` it: those took a few instructions.
    #[inline(always)]
    pub(crate) fn mark_and_pass<const N: usize>(&self, site: Site, behind: [Site; N]) {
        if self.recorded.get() {
            self.shared.mark_and_pass_on(site, behind);
        }
    }

    /// Closes what [`Exchange::open`] opened, whose few instructions are left to what comes next. For samples the request
    /// stays there until something else is opened, or [`Exchange::nowhere`].
    #[inline(always)]
    pub(crate) fn close_passed(&self, site: Site) {
        if self.recorded.get() {
            self.shared.close_passed_on(site);
        }
    }

    /// For samples: the request is at `site`, which takes a few instructions and is told the trace later.
    #[inline(always)]
    pub(crate) fn at(&self, site: Site) {
        if self.recorded.get() {
            self.shared.presence.at(site);
        }
    }

    /// These filters were called and took a few instructions each, which are left to what comes next.
    #[inline(always)]
    pub(crate) fn pass_all(&self, filters: &[HeaderEntry]) {
        if self.recorded.get() {
            self.shared.pass_all_on(filters);
        }
    }

    /// For samples: the request is between sites.
    #[inline(always)]
    pub(crate) fn nowhere(&self) {
        if self.recorded.get() {
            self.shared.presence.at(Site::NONE);
        }
    }
}
