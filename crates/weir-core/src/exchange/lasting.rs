//! What modules keep for a whole request, through internal redirects, and for its subrequests.

use std::any::Any;

use super::Exchange;
use crate::upstream::Tries;

/// See [`Exchange::lasting`]; a list of its own, whose memory serves the next request, too.
pub(super) type Lasting = Vec<Box<dyn Any>>;

impl Exchange {
    /// A module's state for the whole request, made by `Default` when asked for first: unlike
    /// [`Exchange::state`] it stays through internal redirects, and subrequests have their parent's. It is dropped
    /// when the request is over, its log phase included.
    pub fn lasting<T: Default + 'static>(&mut self) -> &mut T {
        find(&mut self.lasting)
    }

    /// A module's state for the whole request, if it has any.
    pub fn lasting_if<T: 'static>(&self) -> Option<&T> {
        self.lasting.iter().find_map(|state| state.downcast_ref())
    }

    /// As [`Exchange::lasting`], but a subrequest has its own.
    pub fn own_lasting<T: Default + 'static>(&mut self) -> &mut T {
        find(&mut self.own_lasting)
    }

    /// What is known of the servers that were asked; it lasts as well.
    pub(crate) fn tries(&mut self) -> &Tries {
        self.tries.get_or_insert_with(|| self.spare_tries.take().unwrap_or_default())
    }

    /// Whether servers were asked for it, or are about to be.
    pub fn has_asked_servers(&self) -> bool {
        self.tries.is_some()
    }

    /// Empties [`Exchange::tries`] for the next request.
    pub(super) fn clear_tries(&mut self) {
        self.spare_tries = self.tries.take().and_then(|mut tries| tries.clear().then_some(tries));
    }

    /// Gives what lasts to `other`, and takes what it has.
    pub(crate) fn swap_lasting(&mut self, other: &mut Exchange) {
        std::mem::swap(&mut self.lasting, &mut other.lasting);
        std::mem::swap(&mut self.tries, &mut other.tries);
    }
}

fn find<T: Default + 'static>(states: &mut Lasting) -> &mut T {
    let at = states.iter().position(|state| state.is::<T>()).unwrap_or_else(|| {
        states.push(Box::<T>::default());
        states.len() - 1
    });
    states[at].downcast_mut().expect("found by its type")
}
