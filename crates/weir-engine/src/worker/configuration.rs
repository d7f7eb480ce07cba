//! A configuration as read: shared by all workers, installed on each.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use weir_conf::ConfSource;

use crate::settings::listen::ListenAddress;
use crate::settings::main::MainConf;

/// A configuration as read and checked; immutable, shared by all workers of a generation. By default an empty one, which
/// serves nothing.
#[derive(Default)]
pub struct Configuration {
    /// The settings outside of `http`.
    pub main: MainConf,
    /// The addresses to listen on, each with the servers that share it: those of `http`, then those of `stream`, whose servers are in
    /// [`stream`](Configuration::stream).
    pub addresses: Vec<ListenAddress>,
    /// See [`Configuration::shared`].
    pub(crate) shared: SharedValues,
    /// Of a section: what those of `http` share. See [`Configuration::around`].
    pub(crate) outer: SharedValues,
    /// The files that were read (`-T`, places of late errors).
    pub source: ConfSource,
    /// The directives and entries of blocks that it was built from; those of an included file count at each `include`.
    pub lines: usize,
    /// Where relative paths begin (`-p`).
    pub prefix: PathBuf,
    /// What `stream` says, a configuration of its own with variables, upstreams and zones apart from those of `http`; its
    /// addresses are also among these here. `None` without the block, and in that configuration itself.
    pub stream: Option<Arc<Configuration>>,
    /// See [`Configuration::want_agent`].
    pub(crate) agent: AtomicBool,
}

/// Values by their types.
pub(crate) type SharedValues = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

impl Configuration {
    /// The value of type `T` that modules of this section share while the configuration is read; `None` if no module has made one. The
    /// blocks of a protocol are such a value.
    pub fn shared<T: 'static>(&self) -> Option<&T> {
        self.shared.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// As [`Configuration::shared`], of `http` also in a section's configuration: what the process has once.
    pub fn around<T: 'static>(&self) -> Option<&T> {
        let id = TypeId::of::<T>();
        self.outer.get(&id).or_else(|| self.shared.get(&id))?.downcast_ref()
    }

    /// The configuration of `http` and that of `stream`.
    pub fn sections(&self) -> impl Iterator<Item = &Configuration> {
        std::iter::once(self).chain(self.stream.as_deref())
    }

    /// Leaves nothing but the settings outside of blocks and of the process: for a master, which serves no request itself
    /// and can build the whole again from the same texts. Logs of blocks are closed unless they are held
    /// ([`log::hold`](crate::log::hold)).
    pub fn drop_blocks(&mut self) {
        self.addresses = Vec::new();
        self.shared = SharedValues::new();
        self.source = ConfSource::default();
        self.stream = None;
    }

    /// Called by a module while the configuration is installed: a privileged agent process is needed beside the
    /// server.
    pub fn want_agent(&self) {
        self.agent.store(true, Relaxed);
    }

    /// Whether an installed module wants the privileged agent ([`Configuration::want_agent`]).
    pub fn wants_agent(&self) -> bool {
        self.sections().any(|section| section.agent.load(Relaxed))
    }
}
