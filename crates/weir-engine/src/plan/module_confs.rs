//! The settings of all modules in one block, of which only what the block itself sets is stored with it.
//!
//! There may be a hundred thousand servers, and a hundred modules of which a block names three. What a block takes
//! unchanged from the one around it is therefore made once for all its neighbours ([`UnwrittenConfs`]): such settings follow from
//! the block around alone.

use std::any::Any;
use std::sync::{Arc, OnceLock};

/// A module's settings in a block.
pub(crate) type ModuleConf = Arc<dyn Any + Send + Sync>;

/// The settings of all modules in one block.
pub struct ModuleConfs {
    /// What the block says itself, by the module's place in the list, in that order; and what it takes from a block that does.
    pub(crate) own: Vec<(u16, ModuleConf)>,
    /// The settings of all others.
    pub(crate) base: Arc<UnwrittenConfs>,
}

/// The settings of blocks that say nothing themselves.
pub(crate) struct UnwrittenConfs {
    /// By the module's place in the list; made when a block needs it first.
    pub(crate) confs: Box<[OnceLock<ModuleConf>]>,
    /// Those of blocks inside such blocks: with a name, and of each kind without one ([`Module::nest`](crate::module::Module::nest)).
    pub(crate) inside: [OnceLock<Arc<UnwrittenConfs>>; 3],
}

impl ModuleConfs {
    /// The settings of type `C` in this block.
    pub fn get<C: 'static>(&self) -> &C {
        self.find().expect("the module is in the list")
    }

    /// The settings of type `C`; `None` if the module that has them is not in the build's list.
    pub fn find<C: 'static>(&self) -> Option<&C> {
        let own = self.own.iter().find_map(|(_, conf)| conf.downcast_ref());
        own.or_else(|| self.base.confs.iter().find_map(|conf| conf.get()?.downcast_ref()))
    }
}
