//! A configuration installed on one worker, and what is kept with it there.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use super::configuration::Configuration;
use crate::log;
use crate::typed_values::TypedValues;

/// A configuration on one worker. Requests hold it through their server; it goes when the last of them ends.
pub struct WorkerGeneration {
    /// What it was made from.
    pub configuration: Arc<Configuration>,
    /// What serves its addresses: each protocol's, by its type.
    pub(crate) serving: TypedValues,
    pub(crate) link: Rc<ConfigurationLink>,
}

impl WorkerGeneration {
    /// Does what modules have asked for before the worker serves ([`ConfigurationLink::before_serving`]).
    pub async fn begin(&self) {
        loop {
            let next = self.link.beginning.borrow_mut().pop_front();
            let Some(next) = next else { return };
            next.await;
        }
    }

    /// Marks the generation as no longer in force: when its last request has ended, that is logged.
    pub fn retire(self: Rc<Self>) {
        self.link.retired.set(true);
        self.leave();
    }

    /// The worker is about to end, or goes on with another configuration: what waits for a time to come is notified
    /// ([`ConfigurationLink::on_leave`]).
    pub fn leave(&self) {
        self.link.leaving.set(true);
        for notify in self.link.leave_hooks.take() {
            notify();
        }
    }
}

impl Drop for WorkerGeneration {
    /// What was never notified holds the configuration, perhaps.
    fn drop(&mut self) {
        drop(self.link.leave_hooks.take());
    }
}

/// The configuration of one worker, with what lives as long as it: values of modules, and the tasks to run at its
/// beginning and end.
pub struct ConfigurationLink {
    /// The configuration.
    pub configuration: Arc<Configuration>,
    /// True when there is a newer configuration.
    pub(crate) retired: Cell<bool>,
    /// See [`ConfigurationLink::local`].
    kept: RefCell<Vec<Rc<dyn Any>>>,
    /// True when the worker is ending, or goes on with another configuration.
    leaving: Cell<bool>,
    /// See [`ConfigurationLink::on_leave`].
    leave_hooks: RefCell<Vec<Box<dyn FnOnce()>>>,
    /// See [`ConfigurationLink::before_serving`].
    beginning: RefCell<VecDeque<Pin<Box<dyn Future<Output = ()>>>>>,
}

impl Drop for ConfigurationLink {
    /// A person or program that tests or supervises a reload waits for this line: one of each worker.
    fn drop(&mut self) {
        if self.retired.get() {
            log::worker_exited();
        }
    }
}

impl ConfigurationLink {
    /// A link to `configuration`, which is to be installed on this worker.
    pub(crate) fn new(configuration: Arc<Configuration>) -> ConfigurationLink {
        let (retired, kept, leaving, leave_hooks, beginning) = Default::default();
        ConfigurationLink { configuration, retired, kept, leaving, leave_hooks, beginning }
    }

    /// What a module keeps for this configuration on this worker (a VM, a pool), made by `make` when asked for first.
    ///
    /// # Errors
    /// What `make` fails with.
    pub fn local<T: 'static, E>(&self, make: impl FnOnce() -> Result<Rc<T>, E>) -> Result<Rc<T>, E> {
        if let Some(kept) = self.kept.borrow().iter().find_map(|kept| kept.clone().downcast().ok()) {
            return Ok(kept);
        }
        let made = make()?;
        self.kept.borrow_mut().push(made.clone());
        Ok(made)
    }

    /// Whether this configuration takes no more requests on this worker: it ends, or there is a newer one.
    pub fn is_leaving(&self) -> bool {
        self.leaving.get()
    }

    /// Calls `notify` on this thread when [`ConfigurationLink::is_leaving`] becomes true; drops it if the worker ends without.
    pub fn on_leave(&self, notify: impl FnOnce() + 'static) {
        self.leave_hooks.borrow_mut().push(Box::new(notify));
    }

    /// Has the worker wait for `work` before it takes the configuration into use: a module asks for it while the
    /// configuration is installed. A reload gives up after `weir_server::ServerOptions::patience`.
    pub fn before_serving(&self, work: impl Future<Output = ()> + 'static) {
        self.beginning.borrow_mut().push_back(Box::pin(work));
    }
}
