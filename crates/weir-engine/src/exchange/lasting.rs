//! What modules keep for a whole request, through internal redirects, and for its subrequests.

use std::any::{Any, TypeId};

use super::Exchange;

/// Values of modules, one of a type; a list whose memory serves the next request, too.
///
/// Each stands beside the number of its type: to ask the values themselves is a call for each.
#[derive(Default)]
pub(super) struct TypedValues(Vec<(TypeId, Box<dyn Any>)>);

impl TypedValues {
    /// The value of this type, made by `Default` when there is none.
    pub(super) fn of<T: Default + 'static>(&mut self) -> &mut T {
        let wanted = TypeId::of::<T>();
        let at = self.0.iter().position(|(kind, _)| *kind == wanted).unwrap_or_else(|| {
            self.0.push((wanted, Box::<T>::default()));
            self.0.len() - 1
        });
        self.0[at].1.downcast_mut().expect("found by its type")
    }

    /// The value of this type, if there is one.
    pub(super) fn find<T: 'static>(&self) -> Option<&T> {
        let wanted = TypeId::of::<T>();
        self.0.iter().find(|(kind, _)| *kind == wanted).and_then(|(_, value)| value.downcast_ref())
    }

    /// Takes the value of this type out, if there is one.
    fn take<T: 'static>(&mut self) -> Option<Box<T>> {
        let wanted = TypeId::of::<T>();
        let at = self.0.iter().position(|(kind, _)| *kind == wanted)?;
        self.0.swap_remove(at).1.downcast().ok()
    }

    pub(super) fn clear(&mut self) {
        if !self.0.is_empty() {
            self.0.clear();
        }
    }
}

/// What somebody does with what was recorded of a request.
pub(crate) type TraceReport = Box<dyn FnOnce(weir_trace::KeptRequest)>;

#[derive(Default)]
struct Reports(Option<TraceReport>);

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
        self.lasting.of::<Reports>().0 = Some(Box::new(report));
    }

    /// What [`when_recorded`](Exchange::when_recorded) was given.
    #[inline]
    pub(crate) fn report(&mut self) -> Option<TraceReport> {
        if self.lasting.0.is_empty() { None } else { self.lasting.take::<Reports>()?.0 }
    }

    /// Gives what lasts to `other`, and takes what it has.
    pub(crate) fn swap_lasting(&mut self, other: &mut Exchange) {
        std::mem::swap(&mut self.lasting, &mut other.lasting);
    }
}
