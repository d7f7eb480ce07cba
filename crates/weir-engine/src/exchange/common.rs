//! What a request and all of its subrequests have in common, also those that run at the same time.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::Exchange;

/// See [`Exchange::common`]; also counts subrequests.
#[derive(Default)]
pub(crate) struct FamilyState {
    states: RefCell<Vec<Rc<dyn Any>>>,
    /// Subrequests beside the request that were made, and that are running.
    pub(crate) made: Cell<u32>,
    pub(crate) alive: Cell<u32>,
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
