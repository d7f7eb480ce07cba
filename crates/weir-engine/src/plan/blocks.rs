//! Servers and locations of a configuration as read, which a worker's are built of.

use std::sync::Arc;

use super::PlanLevel;
use super::module_confs::ModuleConfs;
use super::tables::RequestTables;
use crate::regex::RegexPattern;
use crate::worker::configuration::Configuration;

/// What `http`, or the block of another protocol, says, as read; a value that the configuration shares.
pub(crate) struct ServerBlocks {
    /// The virtual servers, in order.
    pub(crate) servers: Vec<ServerConf>,
    /// The plans of servers are of this level.
    pub(crate) level: PlanLevel,
    /// What the block itself says, for what runs without a request.
    pub(crate) nobody: Option<ServerConf>,
    /// Variables.
    pub(crate) tables: Arc<RequestTables>,
}

impl Configuration {
    /// The virtual servers, in order.
    pub fn servers(&self) -> &[ServerConf] {
        &self.blocks().servers
    }

    /// The virtual servers of all sections, those of `http` first.
    pub fn all_servers(&self) -> impl Iterator<Item = &ServerConf> {
        self.sections().flat_map(Configuration::servers)
    }

    /// The variables of its protocol.
    pub fn variables(&self) -> &RequestTables {
        &self.blocks().tables
    }

    /// What its protocol's block says; not for a request's path, since it is looked up.
    pub(crate) fn blocks(&self) -> &ServerBlocks {
        self.shared().expect("a configuration is made with its blocks")
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
    /// The path that it names; `None` of a pattern and of a named location.
    pub(crate) fn path(&self) -> Option<&[u8]> {
        match self {
            LocationMatcher::Exact(path) | LocationMatcher::Prefix(path, _) => Some(path),
            LocationMatcher::Regex(_) | LocationMatcher::Named(_) => None,
        }
    }

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
