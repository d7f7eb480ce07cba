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
    /// That of the section `stream`, if there is one.
    pub(crate) stream: Option<Rc<ConfigurationLink>>,
}

impl WorkerGeneration {
    /// All workers have built the configuration ([`ConfigurationLink::when_built`]).
    pub fn all_built(&self) {
        self.links().for_each(|link| run_hooks(&link.built_hooks));
    }

    /// What waits for the configuration to be in force goes on ([`ConfigurationLink::when_in_force`]).
    pub fn take_force(&self) {
        for link in self.links() {
            link.in_force.set(true);
            run_hooks(&link.force_hooks);
        }
    }

    /// Does what modules have asked for before the worker serves ([`ConfigurationLink::before_serving`]).
    pub async fn begin(&self) {
        for link in self.links() {
            loop {
                let next = link.beginning.borrow_mut().pop_front();
                let Some(next) = next else { break };
                next.await;
            }
        }
    }

    /// Marks the generation as no longer in force: when its last request has ended, that is logged.
    pub fn retire(self: Rc<Self>) {
        self.links().for_each(|link| link.retired.set(true));
        self.leave();
    }

    /// The worker is about to end, or goes on with another configuration: what waits for a time to come is notified
    /// ([`ConfigurationLink::on_leave`]).
    pub fn leave(&self) {
        for link in self.links() {
            link.leaving.set(true);
            run_hooks(&link.leave_hooks);
        }
    }

    fn links(&self) -> impl Iterator<Item = &ConfigurationLink> {
        std::iter::once(&*self.link).chain(self.stream.as_deref())
    }
}

impl Drop for WorkerGeneration {
    /// What was never notified holds the configuration, perhaps. Where it was given up, scripts of its start may still run.
    fn drop(&mut self) {
        for link in self.links() {
            link.leaving.set(true);
            for hooks in [&link.built_hooks, &link.force_hooks, &link.leave_hooks] {
                drop(hooks.take());
            }
        }
    }
}

/// What is to be called once.
type LinkHooks = RefCell<Vec<Box<dyn FnOnce()>>>;

fn run_hooks(hooks: &LinkHooks) {
    for notify in hooks.take() {
        notify();
    }
}

/// The configuration of one worker, with what lives as long as it: values of modules, and the tasks to run at its
/// beginning and end.
pub struct ConfigurationLink {
    /// The configuration, or one section of it.
    pub configuration: Arc<Configuration>,
    /// Of a section inside another: the link of that one, which lives as long.
    outer: Option<Rc<ConfigurationLink>>,
    /// True when there is a newer configuration.
    pub(crate) retired: Cell<bool>,
    /// See [`ConfigurationLink::local`].
    kept: RefCell<Vec<Rc<dyn Any>>>,
    /// True when the worker is ending, or goes on with another configuration.
    leaving: Cell<bool>,
    /// See [`ConfigurationLink::when_built`].
    built_hooks: LinkHooks,
    /// See [`ConfigurationLink::when_in_force`].
    in_force: Cell<bool>,
    force_hooks: LinkHooks,
    /// See [`ConfigurationLink::on_leave`].
    leave_hooks: LinkHooks,
    /// See [`ConfigurationLink::before_serving`].
    beginning: RefCell<VecDeque<Pin<Box<dyn Future<Output = ()>>>>>,
}

impl Drop for ConfigurationLink {
    /// A person or program that tests or supervises a reload waits for this line: one of each worker.
    fn drop(&mut self) {
        if self.retired.get() && self.outer.is_none() {
            log::worker_exited();
        }
    }
}

impl ConfigurationLink {
    /// A link to `configuration`, which is to be installed on this worker; `outer` is that of the section around.
    pub(crate) fn new(
        configuration: Arc<Configuration>,
        outer: Option<Rc<ConfigurationLink>>,
    ) -> ConfigurationLink {
        ConfigurationLink {
            configuration,
            outer,
            retired: Cell::default(),
            kept: RefCell::default(),
            leaving: Cell::default(),
            built_hooks: LinkHooks::default(),
            in_force: Cell::default(),
            force_hooks: LinkHooks::default(),
            leave_hooks: LinkHooks::default(),
            beginning: RefCell::default(),
        }
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

    /// The link of the whole configuration: what is its own and not a section's is there.
    pub fn outermost(&self) -> &ConfigurationLink {
        self.outer.as_deref().map_or(self, ConfigurationLink::outermost)
    }

    /// Whether this configuration takes no more requests on this worker: it ends, or there is a newer one.
    pub fn is_leaving(&self) -> bool {
        self.leaving.get()
    }

    /// Calls `notify` on this thread when [`ConfigurationLink::is_leaving`] becomes true; drops it if the worker ends without.
    pub fn on_leave(&self, notify: impl FnOnce() + 'static) {
        self.leave_hooks.borrow_mut().push(Box::new(notify));
    }

    /// Calls `work` on this thread when all workers have built the configuration, some workers after others so that those
    /// serve meanwhile; drops it if the configuration is given up before. A module asks for it while the configuration is
    /// installed.
    pub fn when_built(&self, work: impl FnOnce() + 'static) {
        self.built_hooks.borrow_mut().push(Box::new(work));
    }

    /// Calls `resume` on this thread when all workers have taken the configuration into use, at once if they have; drops it
    /// if the configuration is given up. It comes earlier where [work before serving](Self::before_serving) has to wait,
    /// on any worker: it may wait for what `resume` lets go on.
    pub fn when_in_force(&self, resume: impl FnOnce() + 'static) {
        match self.in_force.get() {
            true => resume(),
            false => self.force_hooks.borrow_mut().push(Box::new(resume)),
        }
    }

    /// Has the worker wait for `work` before it takes the configuration into use: a module asks for it while the
    /// configuration is installed. A reload gives up after `weir_server::ServerOptions::patience`.
    pub fn before_serving(&self, work: impl Future<Output = ()> + 'static) {
        self.beginning.borrow_mut().push_back(Box::pin(work));
    }
}
