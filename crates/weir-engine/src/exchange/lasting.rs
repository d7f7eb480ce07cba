//! What modules store for a whole request, through internal redirects, and for its subrequests.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Exchange, FamilyState};

/// What is done with the record of a request.
pub(crate) type TraceReport = Box<dyn FnOnce(weir_trace::KeptRequest)>;

#[derive(Default)]
struct TraceReporter(Option<TraceReport>);

impl Exchange {
    /// Has `change` look at a module's state for the whole request, made by `Default` when asked for first: unlike
    /// [`Exchange::state`] it stays through internal redirects, and all subrequests have their request's, those that run
    /// beside it included; only a [background](Exchange::background) one has its own. It is dropped when the request is
    /// over, its log phase included.
    #[inline]
    pub fn lasting<T: Default + 'static, R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        match &self.common {
            None => change(self.lasting.of()),
            Some(common) => change(common.lasting.borrow_mut().of()),
        }
    }

    /// Has `look` look at a module's state for the whole request, if there is any.
    #[inline]
    pub fn lasting_if<T: 'static, R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        match &self.common {
            None => self.lasting.find().map(look),
            Some(common) => common.lasting.borrow().find().map(look),
        }
    }

    /// What the request shares with its subrequests, begun if it has had none: what lasts is there from here on.
    pub(crate) fn family_state(&mut self) -> &Rc<FamilyState> {
        let Exchange { common, lasting, .. } = self;
        common.get_or_insert_with(|| {
            let lasting = RefCell::new(std::mem::take(lasting));
            Rc::new(FamilyState { lasting, ..FamilyState::default() })
        })
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
        self.lasting(|reporter: &mut TraceReporter| reporter.0 = Some(Box::new(report)));
    }

    /// What [`when_recorded`](Exchange::when_recorded) was given.
    #[inline]
    pub(crate) fn report(&mut self) -> Option<TraceReport> {
        match &self.common {
            None if self.lasting.is_empty() => None,
            None => self.lasting.take::<TraceReporter>()?.0,
            Some(common) => common.lasting.borrow_mut().take::<TraceReporter>()?.0,
        }
    }
}

impl Exchange {
    /// A module's state that the request and all of its subrequests share, made by `Default` when asked for first. It is
    /// reached by reference, with cells inside, since several may run at a time.
    pub fn common<T: Default + 'static>(&mut self) -> Rc<T> {
        let common = self.family_state();
        let mut states = common.states.borrow_mut();
        if let Some(state) = states.iter().find_map(|state| state.clone().downcast().ok()) {
            return state;
        }
        let state = Rc::<T>::default();
        states.push(state.clone());
        state
    }
}
