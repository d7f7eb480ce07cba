//! What a request and all of its subrequests have in common, also those that run at the same time.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::typed_values::TypedValues;

/// See [`Exchange::common`](super::Exchange::common); also counts subrequests.
#[derive(Default)]
pub(crate) struct FamilyState {
    pub(super) states: RefCell<Vec<Rc<dyn Any>>>,
    /// What lasts ([`Exchange::lasting`](super::Exchange::lasting)): the request's own until it has subrequests.
    pub(super) lasting: RefCell<TypedValues>,
    /// Subrequests beside the request that were made, and that are running.
    pub(crate) made: Cell<u32>,
    pub(crate) alive: Cell<u32>,
}
