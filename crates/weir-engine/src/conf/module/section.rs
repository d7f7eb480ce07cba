//! A block of the main context whose servers speak another protocol than HTTP, with modules and variables of its own.

use weir_conf::Contexts;

use super::ModuleDef;
use crate::plan::PlanLevel;

/// The block of a protocol that a module brings along ([`BuildHooks::section`](super::BuildHooks::section)). Its lines are read
/// as a configuration of their own ([`Configuration::stream`](crate::worker::configuration::Configuration::stream)), with other
/// variables and zones than those of `http`.
pub struct ProtocolSection {
    /// The block's name: `stream`.
    pub name: &'static str,
    /// Its modules, the core's first; some of them are modules of `http`, too.
    pub modules: &'static [ModuleDef],
    /// Of the variables of modules that are not the protocol's alone, those that it has.
    pub variables: &'static [&'static str],
}

/// The blocks of a protocol.
#[derive(Clone, Copy)]
pub(crate) struct SectionContexts {
    /// The block itself.
    pub(crate) section: Contexts,
    /// `server` in it.
    pub(crate) server: Contexts,
    /// `upstream` in it.
    pub(crate) upstream: Contexts,
    /// The plans of its servers are of this level.
    pub(crate) level: PlanLevel,
}

impl SectionContexts {
    pub(crate) const HTTP: SectionContexts = SectionContexts {
        section: Contexts::HTTP,
        server: Contexts::SERVER,
        upstream: Contexts::UPSTREAM,
        level: PlanLevel::Server,
    };
    pub(crate) const STREAM: SectionContexts = SectionContexts {
        section: Contexts::STREAM,
        server: Contexts::STREAM_SERVER,
        upstream: Contexts::STREAM_UPSTREAM,
        level: PlanLevel::Session,
    };
}
