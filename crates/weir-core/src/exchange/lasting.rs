//! What modules keep for a whole request, through internal redirects, and for its subrequests.

use std::any::Any;

use super::Exchange;

/// See [`Exchange::lasting`].
#[derive(Default)]
pub(super) struct Lasting(Vec<Box<dyn Any>>);

impl Exchange {
    /// A module's state for the whole request, made by `Default` when asked for first: unlike
    /// [`Exchange::state`] it stays through internal redirects, and subrequests have their parent's. It is dropped
    /// when the request is over, its log phase included.
    pub fn lasting<T: Default + 'static>(&mut self) -> &mut T {
        let states = &mut self.state::<Lasting>().0;
        let at = states.iter().position(|state| state.is::<T>()).unwrap_or_else(|| {
            states.push(Box::<T>::default());
            states.len() - 1
        });
        states[at].downcast_mut().expect("found by its type")
    }

    /// A module's state for the whole request, if it has any.
    pub fn lasting_if<T: 'static>(&self) -> Option<&T> {
        self.state_if::<Lasting>()?.0.iter().find_map(|state| state.downcast_ref())
    }

    /// Gives what lasts to `other`, and takes what it has.
    pub(crate) fn swap_lasting(&mut self, other: &mut Exchange) {
        if self.state_if::<Lasting>().is_some() || other.state_if::<Lasting>().is_some() {
            std::mem::swap(self.state::<Lasting>(), other.state::<Lasting>());
        }
    }
}
