//! What few modules do while a configuration is put together, besides reading their directives.

use std::any::Any;
use std::rc::Rc;

use weir_conf::{ConfSource, DirectiveLine, Error, Span};

use super::section::ProtocolSection;
use super::{Module, ModuleConfs, conf_of};
use crate::conf::ServerConf;
use crate::conf::registry::ConfRegistry;
use crate::settings::listen::ListenAddress;
use crate::worker::Worker;
use crate::worker::generation::ConfigurationLink;

/// Ends an `upstream` block, whose line comes along.
pub type EndUpstream<C> = fn(&mut C, &mut ConfRegistry, &DirectiveLine) -> Result<(), Error>;
/// Checks the addresses of all servers, and says what is wrong with them.
pub type CheckAddresses = fn(&[ListenAddress], &[ServerConf], &ConfSource) -> Vec<Error>;
/// Makes what a module keeps with a server of its settings `C`.
pub type MakeServerPart<C> = fn(&C) -> Box<dyn Any>;

/// Makes what [`Module::install`] needs on a worker and what may fail.
pub type PrepareInstall<C> = fn(&C, &Rc<ConfigurationLink>, &Rc<Worker>) -> Result<(), Error>;

/// A module's calls while a configuration is put together, in their order; `None`: it has nothing to do there.
pub struct BuildHooks<C: 'static> {
    /// A `server` block begins, with this word.
    pub begin_server: Option<fn(&mut C, Span)>,
    /// An `upstream` block was read; its line comes along.
    pub end_upstream: Option<EndUpstream<C>>,
    /// `http` was read and settled, its servers were not.
    pub end_http: Option<fn(&ModuleConfs, &mut ConfRegistry) -> Vec<Error>>,
    /// The addresses of all servers are known: what is wrong with them, warnings among it.
    pub check_addresses: Option<CheckAddresses>,
    /// What the module keeps with each server of a worker, see [`VirtualServer::part`](crate::plan::server::VirtualServer::part).
    pub server_part: Option<MakeServerPart<C>>,
    /// Before [`Module::install`], for each block on each worker; an error stops the (re)load. It is called for all blocks
    /// before a configuration is taken into use, also for those whose plans are built when a request asks for them.
    pub prepare: Option<PrepareInstall<C>>,
    /// The block of another protocol that the module brings along (`stream`).
    pub section: Option<&'static ProtocolSection>,
}

impl<C: 'static> BuildHooks<C> {
    /// No calls at all.
    pub const NONE: BuildHooks<C> = BuildHooks {
        begin_server: None,
        end_upstream: None,
        end_http: None,
        check_addresses: None,
        server_part: None,
        prepare: None,
        section: None,
    };
}

/// [`BuildHooks`] with the module's type erased.
#[derive(Clone, Copy)]
pub(crate) struct ErasedHooks {
    pub(crate) begin_server: Option<fn(&mut dyn Any, Span)>,
    pub(crate) end_upstream: Option<EndUpstream<dyn Any>>,
    pub(crate) end_http: Option<fn(&ModuleConfs, &mut ConfRegistry) -> Vec<Error>>,
    pub(crate) check_addresses: Option<CheckAddresses>,
    pub(crate) server_part: Option<MakeServerPart<dyn Any>>,
    pub(crate) prepare: Option<PrepareInstall<dyn Any>>,
    pub(crate) section: Option<&'static ProtocolSection>,
}

impl ErasedHooks {
    pub(super) const fn of<M: Module>() -> ErasedHooks {
        ErasedHooks {
            begin_server: match M::HOOKS.begin_server {
                None => None,
                Some(_) => Some(|conf, span| {
                    if let Some(begin) = M::HOOKS.begin_server {
                        begin(conf_of::<M>(conf), span);
                    }
                }),
            },
            end_upstream: match M::HOOKS.end_upstream {
                None => None,
                Some(_) => Some(|conf, registry, line| match M::HOOKS.end_upstream {
                    Some(end) => end(conf_of::<M>(conf), registry, line),
                    None => Ok(()),
                }),
            },
            end_http: M::HOOKS.end_http,
            check_addresses: M::HOOKS.check_addresses,
            server_part: match M::HOOKS.server_part {
                None => None,
                Some(_) => Some(|conf| {
                    let make = M::HOOKS.server_part.expect("it is there, or this is not called");
                    make(conf.downcast_ref().expect("a block's conf at its module's index"))
                }),
            },
            prepare: match M::HOOKS.prepare {
                None => None,
                Some(_) => Some(|conf, link, worker| match M::HOOKS.prepare {
                    Some(prepare) => {
                        let conf = conf.downcast_ref().expect("a block's conf at its module's index");
                        prepare(conf, link, worker)
                    }
                    None => Ok(()),
                }),
            },
            section: M::HOOKS.section,
        }
    }
}
