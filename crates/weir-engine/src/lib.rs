//! The engine: exchanges, phases, filters, variables, configuration, logs, open files.
//!
//! A module (see [`module::Module`]) uses what is public here and nothing else: that is the proof that the module API
//! is enough. The life of a request through this crate is drawn in `docs/explanation/life-of-a-request.md`.
//!
//! Its storeys, the lowest first; a file names only what is in its own or below (`cargo test -p weir-test --test storeys`):
//! values that name nothing else, [`log`], open files, names and patterns, [`settings`], the [`worker`], *the request*
//! ([`exchange`], [`plan`] and [`transport`], which name each other), the core's variables ([`variable`]), modules and their
//! directives ([`conf`]), what is done with a request ([`file`](mod@file), [`read`], [`output`] and others), [`engine`], which runs
//! it, [`rehearsal`]s, which only say what it would do, and [`subrequest`]s.
#![forbid(unsafe_code)]

pub mod agent;
pub mod cidr;
pub mod conf;
pub mod configure_arguments;
mod counters;
pub mod deep_traces;
pub mod descriptors;
pub mod engine;
pub mod error;
pub mod exchange;
mod explained_kinds;
pub mod figures;
pub mod file;
pub mod log;
pub mod name_map;
pub mod open_file;
pub mod output;
pub mod pieces;
pub mod plan;
mod presence;
pub mod privileged;
pub mod progress;
pub mod read;
pub mod recent;
pub mod regex;
pub mod rehearsal;
pub mod request_head;
pub mod request_log;
pub mod resolver;
pub mod services;
pub mod settings;
mod special;
pub mod subrequest;
pub mod temp;
#[doc(hidden)]
pub mod testing;
pub mod text;
mod text_page;
pub mod trace;
pub mod transport;
pub mod trim;
mod typed_values;
mod value_script;
pub mod variable;
mod variable_index;
pub mod wire;
pub mod worker;
pub mod zone;

pub use conf::{Configuration, module};
pub use error::EngineError;
pub use exchange::Exchange;
pub use module::{Module, ModuleDef, UnnamedBlock};
pub use phase::{Handler, LocalFuture, Phase, Verdict};
pub use plan::{body, filter, phase, redirect, rehearsed};
pub use text::{Arena, Span, Text};

/// The version of nginx whose behaviour is followed: `-v`, `$nginx_version`.
pub const NGINX_VERSION: &str = "1.31.5";
