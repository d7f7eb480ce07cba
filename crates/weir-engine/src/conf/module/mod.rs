//! What a module is: a table of directives, a configuration per block, and what it adds to a location's plan.
//!
//! A module's `Conf` exists once for every block (main, http, server, location). While the file is read, setters
//! only record; then each block inherits from the one around it, outermost first ([`Module::inherit`]), checks what
//! it has ([`Module::resolve`]), and each worker builds what runs ([`Module::install`]). [`ModuleDef`] erases the
//! types with a handful of function pointers, so that all modules are in one static, visible list.

mod confs;
mod hooks;
mod section;

use std::any::Any;

use weir_conf::{Contexts, Directive, DirectiveLine, DirectiveSignature, Error, LineCx};

use crate::conf::registry::ConfRegistry;
use crate::plan::PlanBuilder;
use crate::variable::Variable;
use crate::worker::configuration::Configuration;

pub use crate::plan::UnnamedBlock;
pub use crate::plan::module_confs::ModuleConfs;
pub(crate) use confs::{BlockHeirs, BlockKin, ConfSettling};
use hooks::ErasedHooks;
pub use hooks::{BuildHooks, CheckAddresses, EndUpstream, MakeServerPart, PrepareInstall};
pub use section::ProtocolSection;
pub(crate) use section::SectionContexts;

/// A module of the server.
pub trait Module: 'static {
    /// Its name in traces, `-V` and documentation, as nginx names it without prefix (`gzip`, `limit_req`).
    const NAME: &'static str;

    /// Its settings as written in one block; what is not set is `None`.
    type Conf: Default + Send + Sync + 'static;

    /// The module's directives.
    const DIRECTIVES: &'static [Directive<Self::Conf>];

    /// The module's variables; by default none.
    const VARIABLES: &'static [Variable] = &[];

    /// What it keeps with plans is wanted by what runs without a request, too: [`Module::install`] is called once more,
    /// at [`PlanLevel::Alone`](crate::plan::PlanLevel::Alone).
    const ALONE: bool = false;

    /// What it does while a configuration is put together, besides its directives: few modules do.
    const HOOKS: BuildHooks<Self::Conf> = BuildHooks::NONE;

    /// Takes from `parent`, the block around, what `conf` leaves unset.
    fn inherit(_conf: &mut Self::Conf, _parent: &Self::Conf) {}

    /// As [`Module::inherit`], before it, where the block is one without a name inside the other: takes what other blocks
    /// don't, such as where requests go.
    fn nest(_conf: &mut Self::Conf, _parent: &Self::Conf, _block: UnnamedBlock) {}

    /// Called once per block after inheritance: checks and derived values.
    ///
    /// # Errors
    /// What is wrong with the block's settings taken together.
    fn resolve(_conf: &mut Self::Conf, _registry: &mut ConfRegistry) -> Result<(), Error> {
        Ok(())
    }

    /// Adds what the module does in this block to its plan; nothing when it is off. Runs on each worker, perhaps when the
    /// first request asks for the block: what may fail has its place in [`Module::resolve`] or [`BuildHooks::prepare`].
    fn install(_conf: &Self::Conf, _plan: &mut PlanBuilder<'_>) {}
}

/// A module with its types erased.
#[derive(Clone, Copy)]
pub struct ModuleDef {
    /// The module's name.
    pub name: &'static str,
    /// The variables that the module defines.
    pub variables: &'static [Variable],
    pub(crate) alone: bool,
    pub(crate) rows: fn() -> Vec<DirectiveSignature>,
    pub(crate) new: fn() -> Box<dyn Any + Send + Sync>,
    pub(crate) check: fn(usize, &DirectiveLine, Contexts) -> Result<(), Error>,
    pub(crate) set: fn(&mut dyn Any, usize, &mut LineCx<'_>) -> Result<(), Error>,
    pub(crate) inherit: fn(&mut dyn Any, &dyn Any),
    pub(crate) nest: fn(&mut dyn Any, &dyn Any, UnnamedBlock),
    pub(crate) resolve: fn(&mut dyn Any, &mut ConfRegistry) -> Result<(), Error>,
    pub(crate) install: fn(&dyn Any, &mut PlanBuilder<'_>),
    pub(crate) hooks: ErasedHooks,
}

impl ModuleDef {
    /// The entry for module `M`, with its types erased.
    pub const fn of<M: Module>() -> ModuleDef {
        ModuleDef {
            name: M::NAME,
            variables: M::VARIABLES,
            alone: M::ALONE,
            rows: || M::DIRECTIVES.iter().map(Directive::signature).collect(),
            new: || Box::<M::Conf>::default(),
            check: |index, line, here| weir_conf::check(&M::DIRECTIVES[index], line, here),
            set: |conf, index, line| (M::DIRECTIVES[index].set)(conf_of::<M>(conf), line),
            inherit: |conf, parent| {
                M::inherit(
                    conf_of::<M>(conf),
                    parent.downcast_ref().expect("a block's conf at its module's index"),
                );
            },
            nest: |conf, parent, block| {
                M::nest(
                    conf_of::<M>(conf),
                    parent.downcast_ref().expect("a block's conf at its module's index"),
                    block,
                );
            },
            resolve: |conf, registry| M::resolve(conf_of::<M>(conf), registry),
            install: |conf, plan| {
                M::install(conf.downcast_ref().expect("a block's conf at its module's index"), plan);
            },
            hooks: ErasedHooks::of::<M>(),
        }
    }

    /// The module's directives.
    pub fn directives(&self) -> Vec<DirectiveSignature> {
        (self.rows)()
    }
}

/// The modules of a configuration, which it keeps for those that install it.
#[derive(Default)]
pub(crate) struct ModuleList(pub(crate) Vec<&'static ModuleDef>);

impl Configuration {
    /// The modules, in order.
    #[must_use]
    pub fn modules(&self) -> &[&'static ModuleDef] {
        self.shared::<ModuleList>().map_or(&[], |modules| &modules.0)
    }
}

fn conf_of<M: Module>(conf: &mut dyn Any) -> &mut M::Conf {
    conf.downcast_mut().expect("a block's conf at its module's index")
}

/// Takes each named `Option` field of the parent where the own one is `None`: `inherit!(conf, parent, on, level)`.
#[macro_export]
macro_rules! inherit {
    ($conf:expr, $parent:expr, $($field:ident),+ $(,)?) => {
        $( if $conf.$field.is_none() { $conf.$field = $parent.$field.clone(); } )+
    };
}
