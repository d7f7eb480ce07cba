//! A configuration: read once, shared by all workers, installed on each.

pub mod absent;
pub mod build;
pub mod core;
pub mod http2;
pub mod http3;
pub mod http_core;
pub mod lint;
pub mod listen;
pub mod location;
mod location_settings;
pub mod main_core;
pub mod module;
pub mod names;
mod patterns;
mod plans;
pub(crate) mod profile;
pub mod registry;
pub mod server;
pub mod server_core;
pub mod temp_path;
#[doc(hidden)]
pub mod test;
mod title;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use weir_conf::ConfSource;

use crate::module::{ModuleConfs, ModuleDef};
use crate::regex::RegexPattern;
use listen::ListenAddress;
use registry::RequestTables;

pub use http_core::HttpCore;
pub use main_core::MainCore;
use profile::Profile;
pub use server_core::ServerCore;

/// The modules that every configuration needs, the first of any list.
pub static CORE_MODULES: [ModuleDef; 6] = [
    ModuleDef::of::<MainCore>(),
    ModuleDef::of::<ServerCore>(),
    ModuleDef::of::<HttpCore>(),
    ModuleDef::of::<http2::Http2>(),
    ModuleDef::of::<http3::Http3>(),
    ModuleDef::of::<Profile>(),
];

/// The core's modules and `own` after them: the list of a build, with `N` entries.
///
/// # Panics
/// When `N` is not the number of both; in a constant, that is an error of the compiler.
pub const fn with_core<const N: usize>(own: &[ModuleDef]) -> [ModuleDef; N] {
    assert!(N == CORE_MODULES.len() + own.len());
    let mut all = [CORE_MODULES[0]; N];
    let mut at = 1;
    while at < N {
        all[at] = if at < CORE_MODULES.len() { CORE_MODULES[at] } else { own[at - CORE_MODULES.len()] };
        at += 1;
    }
    all
}

/// A configuration as read and checked; immutable, shared by all workers of a generation.
pub struct Configuration {
    /// The settings outside of `http`.
    pub main: main_core::MainConf,
    /// The virtual servers, in order.
    pub servers: Vec<ServerConf>,
    /// What `http` itself says, for what runs without a request.
    pub(crate) nobody: Option<ServerConf>,
    /// The addresses to listen on, each with the servers that share it.
    pub addresses: Vec<ListenAddress>,
    /// Variables and what modules share.
    pub tables: RequestTables,
    /// The modules, in order.
    pub modules: Vec<&'static ModuleDef>,
    /// The files that were read (`-T`, places of late errors).
    pub source: ConfSource,
    /// Where relative paths begin (`-p`).
    pub prefix: PathBuf,
    /// See [`Configuration::want_agent`].
    pub(crate) agent: AtomicBool,
}

impl Configuration {
    /// Called by a module while the configuration is installed: a privileged agent process is needed beside the
    /// server.
    pub fn want_agent(&self) {
        self.agent.store(true, Relaxed);
    }

    /// Whether an installed module wants the privileged agent ([`Configuration::want_agent`]).
    pub fn wants_agent(&self) -> bool {
        self.agent.load(Relaxed)
    }
}

/// One `server` block: its settings and locations.
pub struct ServerConf {
    /// The settings of all modules in the block.
    pub confs: ModuleConfs,
    /// Its locations, in the order of the text.
    pub locations: Vec<LocationConf>,
    /// Blocks inside that inherit all of its settings (`if`), in order.
    pub nested: Vec<ModuleConfs>,
    /// Of what the block says: another number is another block.
    pub words: u64,
}

/// A `location` block, or one that is treated as such.
pub struct LocationConf {
    /// Which URIs it matches.
    pub matcher: LocationMatcher,
    /// The settings of all modules in the block.
    pub confs: ModuleConfs,
    /// The locations inside it, in the order of the text.
    pub locations: Vec<LocationConf>,
    /// `limit_except`: the methods that are not limited (bits by `Method as u32`), and the settings for all others;
    /// `None` without it.
    pub limit_except: Option<(u32, ModuleConfs)>,
    /// Blocks inside that inherit all of its settings (`if`), in order.
    pub nested: Vec<ModuleConfs>,
}

/// What a location is for.
#[derive(Clone)]
pub enum LocationMatcher {
    /// `= /path`
    Exact(Vec<u8>),
    /// `/path`, or `^~ /path`, which keeps regular expressions out.
    Prefix(Vec<u8>, bool),
    /// `~ pattern`, `~* pattern`
    Regex(Arc<RegexPattern>),
    /// `@name`
    Named(Vec<u8>),
}

impl LocationMatcher {
    /// As it is written in the configuration; names the location in traces.
    pub fn name(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            LocationMatcher::Exact(path) => format!("= {}", text(path)),
            LocationMatcher::Prefix(path, false) => text(path),
            LocationMatcher::Prefix(path, true) => format!("^~ {}", text(path)),
            LocationMatcher::Regex(pattern) => pattern.name(),
            LocationMatcher::Named(name) => text(name),
        }
    }
}
