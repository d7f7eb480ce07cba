//! What a request and all of its subrequests have in common, also those that run at the same time.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// See [`Exchange::common`](super::Exchange::common); also counts subrequests.
#[derive(Default)]
pub(crate) struct FamilyState {
    pub(super) states: RefCell<Vec<Rc<dyn Any>>>,
    /// Subrequests beside the request that were made, and that are running.
    pub(crate) made: Cell<u32>,
    pub(crate) alive: Cell<u32>,
}
