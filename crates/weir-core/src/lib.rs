//! The engine: exchanges, phases, filters, variables, connections, configuration, reload.
//!
//! A module (see [`module::Module`]) uses what is public here and nothing else: that is the proof that the module API
//! is enough. The life of a request through this crate is drawn in `docs/life-of-a-request.md`.
#![forbid(unsafe_code)]

pub mod agent;
pub mod body;
pub mod cache;
pub mod cidr;
pub mod conf;
pub mod conn;
pub mod descriptors;
mod engine;
pub mod error;
pub mod exchange;
pub mod figures;
pub mod file;
pub mod filter;
pub mod housekeeping;
pub mod log;
pub mod module;
mod output;
pub mod phase;
mod pieces;
pub mod plan;
pub mod privileged;
mod progress;
pub mod read;
mod recent;
pub mod redirect;
pub mod regex;
pub mod resolver;
pub mod server;
mod services;
mod special;
pub mod subrequest;
mod temp;
pub mod text;
pub mod tls;
pub mod tls_client;
pub mod trace;
pub mod transport;
mod trim;
pub mod upstream;
pub mod variable;
pub mod wire;
pub mod worker;
pub mod zone;

pub use conf::Configuration;
pub use error::Error;
pub use exchange::Exchange;
pub use module::{Module, ModuleDef, Unnamed};
pub use phase::{Handler, LocalFuture, Phase, Verdict};
pub use text::{Arena, Span, Text};

/// The version of nginx whose behaviour is followed: `-v`, `$nginx_version`.
pub const NGINX_VERSION: &str = "1.31.5";
