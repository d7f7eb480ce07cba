//! Where the engine calls scripts: the module, its directives, the phases, filters, handshakes, the balancer.

pub(crate) mod balancer;
pub(crate) mod conf;
pub(crate) mod filters;
mod install;
pub(crate) mod kong;
pub(crate) mod lmdb;
pub(crate) mod malloc_trim;
pub(crate) mod module;
pub(crate) mod phases;
pub mod privileged_agent;
mod session;
pub(crate) mod set_by;
pub(crate) mod tls;
pub(crate) mod wiring;
