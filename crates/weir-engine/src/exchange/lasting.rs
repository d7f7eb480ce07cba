//! What modules store for a whole request, through internal redirects, and for its subrequests.

use std::rc::Rc;

use super::Exchange;

/// What is done with the record of a request.
pub(crate) type TraceReport = Box<dyn FnOnce(weir_trace::KeptRequest)>;

#[derive(Default)]
struct TraceReporter(Option<TraceReport>);

impl Exchange {
    /// A module's state for the whole request, made by `Default` when asked for first: unlike
    /// [`Exchange::state`] it stays through internal redirects, and subrequests have their parent's. It is dropped
    /// when the request is over, its log phase included.
    pub fn lasting<T: Default + 'static>(&mut self) -> &mut T {
        self.lasting.of()
    }

    /// A module's state for the whole request, if it has any.
    pub fn lasting_if<T: 'static>(&self) -> Option<&T> {
        self.lasting.find()
    }

    /// As [`Exchange::lasting`], but a subrequest has its own.
    pub fn own_lasting<T: Default + 'static>(&mut self) -> &mut T {
        self.own_lasting.of()
    }

    /// A module's state as [`Exchange::own_lasting`] gives it, if it has any.
    pub fn own_lasting_if<T: 'static>(&self) -> Option<&T> {
        self.own_lasting.find()
    }

    /// Gives `report` the request's record and boundaries when it is over: for exports. The last one counts.
    pub fn when_recorded(&mut self, report: impl FnOnce(weir_trace::KeptRequest) + 'static) {
        self.lasting.of::<TraceReporter>().0 = Some(Box::new(report));
    }

    /// What [`when_recorded`](Exchange::when_recorded) was given.
    #[inline]
    pub(crate) fn report(&mut self) -> Option<TraceReport> {
        if self.lasting.is_empty() { None } else { self.lasting.take::<TraceReporter>()?.0 }
    }

    /// Gives what lasts to `other`, and takes what it has.
    pub(crate) fn swap_lasting(&mut self, other: &mut Exchange) {
        std::mem::swap(&mut self.lasting, &mut other.lasting);
    }
}

impl Exchange {
    /// A module's state that the request and all of its subrequests share, made by `Default` when asked for first. It is
    /// reached by reference, with cells inside, since several may run at a time.
    pub fn common<T: Default + 'static>(&mut self) -> Rc<T> {
        let common = self.common.get_or_insert_default();
        let mut states = common.states.borrow_mut();
        if let Some(state) = states.iter().find_map(|state| state.clone().downcast().ok()) {
            return state;
        }
        let state = Rc::<T>::default();
        states.push(state.clone());
        state
    }
}
