//! The servers of a configuration on one worker, and which of them serves which name.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use weir_rt::net::SockAddr;

use super::server::VirtualServer;
use crate::deep_traces::{self, PatternRole};
use crate::exchange::Exchange;
use crate::name_map::NameMap;
use crate::regex::{GivenUp, RegexPattern};
use crate::settings::listen::ListenProtocols;
use crate::settings::server_name::ServerName;
use crate::worker::generation::WorkerGeneration;

/// Builds a server that was not built when the configuration was installed: of very many most are idle.
pub(crate) trait BuildServer {
    /// The server with this index in the file. One that can't be built any more fails its requests.
    fn build_late(&self, index: usize) -> VirtualServer;
}

/// The servers of a configuration on one worker.
pub(crate) struct WorkerServers {
    /// In the order of the file; those that were asked for.
    built: Box<[OnceCell<Rc<VirtualServer>>]>,
    /// Builds the others.
    builder: Rc<dyn BuildServer>,
}

impl WorkerServers {
    /// `count` servers of which none is built.
    pub(crate) fn new(count: usize, builder: Rc<dyn BuildServer>) -> WorkerServers {
        WorkerServers { built: (0..count).map(|_| OnceCell::new()).collect(), builder }
    }

    /// The server with this index in the file, which `make` makes unless it is there.
    ///
    /// # Errors
    /// As `make`.
    pub(crate) fn get_or_build<E>(
        &self,
        index: usize,
        make: impl FnOnce() -> Result<VirtualServer, E>,
    ) -> Result<&Rc<VirtualServer>, E> {
        if self.built[index].get().is_none() {
            let made = make()?;
            return Ok(self.built[index].get_or_init(|| Rc::new(made)));
        }
        Ok(self.get(index as u32))
    }

    /// The server with this index in the file.
    #[inline]
    fn get(&self, index: u32) -> &Rc<VirtualServer> {
        let built = &self.built[index as usize];
        built.get().unwrap_or_else(|| built.get_or_init(|| Rc::new(self.builder.build_late(index as usize))))
    }
}

/// For each of the configuration's addresses, the servers that serve it, on one worker.
pub(crate) struct ServedHosts(pub(crate) Vec<Rc<AddressServers>>);

impl WorkerGeneration {
    /// For each of the configuration's addresses, the servers that serve it; looked up, as once for each connection.
    pub fn hosts(&self) -> &[Rc<AddressServers>] {
        self.serving.find().map_or(&[], |served: &ServedHosts| &served.0)
    }
}

/// A name of a server that a host matches without a regular expression.
enum ServerNameMatch<'h> {
    Exact,
    /// `*` and this end of the host.
    Head(&'h [u8]),
    /// This beginning of the host and `*`.
    Tail(&'h [u8]),
}

impl ServerNameMatch<'_> {
    /// The name as the configuration has it, by which `host` was found.
    fn shown(&self, host: &[u8]) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            ServerNameMatch::Exact => text(host),
            ServerNameMatch::Head(rest) => format!("*{}", text(rest)),
            ServerNameMatch::Tail(rest) => format!("{}*", text(rest)),
        }
    }
}

/// The servers of one address, by name.
pub struct AddressServers {
    /// The address it listens on.
    pub addr: SockAddr,
    /// How its connections begin.
    pub protocols: ListenProtocols,
    /// What the blocks of its servers say ([`ServerConf::words`](super::blocks::ServerConf::words)), in order.
    pub(crate) words: Vec<u64>,
    default: Rc<VirtualServer>,
    /// Those below, by their index in the file.
    servers: Rc<WorkerServers>,
    exact: NameMap<u32>,
    /// `*.example.com`: what follows the star, dot included.
    heads: NameMap<u32>,
    /// `example.*`: what precedes the star, dot included.
    tails: NameMap<u32>,
    patterns: Vec<(Arc<RegexPattern>, u32)>,
}

impl AddressServers {
    /// Of no address.
    pub(crate) fn nobodys(default: Rc<VirtualServer>, servers: &Rc<WorkerServers>) -> AddressServers {
        AddressServers {
            addr: SockAddr::UNSPECIFIED,
            protocols: ListenProtocols::default(),
            words: Vec::new(),
            default,
            servers: servers.clone(),
            exact: NameMap::default(),
            heads: NameMap::default(),
            tails: NameMap::default(),
            patterns: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, name: &ServerName, server: u32) {
        let put = |map: &mut NameMap<u32>, key: &[u8]| {
            // The first server of that name keeps it, as nginx warns ("conflicting server name ..., ignored").
            map.entry(key.into()).or_insert(server);
        };
        match name {
            ServerName::Exact(name) => put(&mut self.exact, name),
            ServerName::Head(rest) => put(&mut self.heads, rest),
            ServerName::Dot(rest) => {
                put(&mut self.heads, rest);
                put(&mut self.exact, rest.get(1..).unwrap_or_default());
            }
            ServerName::Tail(rest) => put(&mut self.tails, rest),
            ServerName::Regex(pattern) => self.patterns.push((pattern.clone(), server)),
        }
    }

    /// The address has one server and no pattern whose captures may be wanted: names need not be looked at.
    #[inline]
    pub fn is_single(&self) -> bool {
        self.exact.is_empty() && self.heads.is_empty() && self.tails.is_empty() && self.patterns.is_empty()
    }

    /// Some names are regular expressions.
    #[inline]
    pub fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// The address' default server.
    pub fn default(&self) -> &Rc<VirtualServer> {
        &self.default
    }

    /// Points `x` at the server for its host: exact name, longest leading wildcard, longest trailing wildcard, first
    /// matching pattern, default.
    ///
    /// # Errors
    /// A pattern was given up; `x` stays with the default server.
    pub fn choose(&self, x: &mut Exchange) -> Result<(), GivenUp> {
        let (found, error) = match self.by_plain_name(x) {
            Some(server) => (Some(server), None),
            None => match self.by_pattern(x) {
                Ok(found) => (found, None),
                Err(error) => (None, Some(error)),
            },
        };
        let server = found.unwrap_or_else(|| self.default.clone());
        x.plan = server.plan.clone();
        x.server = server;
        error.map_or(Ok(()), Err)
    }

    /// The server for the host of `x` by its plain and wildcard names.
    #[inline]
    fn by_plain_name(&self, x: &Exchange) -> Option<Rc<VirtualServer>> {
        let host = x.arena.get(x.request.host);
        match deep_traces::is_asked() {
            false => self.by_name(host).cloned(),
            true => self.watched_name(x, host),
        }
    }

    /// The same in a boundary of its own.
    #[cold]
    fn watched_name(&self, x: &Exchange, host: &[u8]) -> Option<Rc<VirtualServer>> {
        let name = match self.matched(host) {
            Some((found, _)) => found.shown(host),
            None => "without patterns".to_owned(),
        };
        let look = || self.by_name(host).cloned();
        x.watched_pattern(PatternRole::ServerName, &name, Option::is_some, look)
    }

    /// The server for `host` by its plain and wildcard names.
    pub(crate) fn by_name(&self, host: &[u8]) -> Option<&Rc<VirtualServer>> {
        self.index(host).map(|index| self.servers.get(index))
    }

    #[inline]
    fn index(&self, host: &[u8]) -> Option<u32> {
        self.matched(host).map(|(_, server)| server)
    }

    /// The server of the plain or wildcard name that matches `host`, and the name.
    #[inline]
    fn matched<'h>(&self, host: &'h [u8]) -> Option<(ServerNameMatch<'h>, u32)> {
        if let Some(server) = self.exact.get(host) {
            return Some((ServerNameMatch::Exact, *server));
        }
        if !self.heads.is_empty() {
            let dots = host.iter().enumerate().filter(|(_, b)| **b == b'.');
            let found = |rest| self.heads.get(rest).map(|server| (ServerNameMatch::Head(rest), *server));
            if let Some(found) = dots.map(|(at, _)| &host[at..]).find_map(found) {
                return Some(found);
            }
        }
        if !self.tails.is_empty() {
            let dots = host.iter().enumerate().rev().filter(|(_, b)| **b == b'.');
            let found = |rest| self.tails.get(rest).map(|server| (ServerNameMatch::Tail(rest), *server));
            return dots.map(|(at, _)| &host[..=at]).find_map(found);
        }
        None
    }

    /// Why `host` is served by the server it is: which name matched, in the form of the configuration.
    pub fn reason(&self, host: &[u8]) -> String {
        match self.matched(host).map(|(name, _)| name) {
            _ if self.is_single() => "the only server of the address".to_owned(),
            Some(found) => format!("name \"{}\"", found.shown(host)),
            None => {
                let matches = |(pattern, _): &&(Arc<RegexPattern>, u32)| {
                    !host.is_empty() && pattern.is_match(host).is_ok_and(|matches| matches)
                };
                match self.patterns.iter().find(matches) {
                    Some((pattern, _)) => format!("name \"{}\"", pattern.name()),
                    None => "the default server of the address".to_owned(),
                }
            }
        }
    }

    /// The server for `host`, by patterns as well; their captures are not wanted.
    ///
    /// # Errors
    /// Why a pattern was given up, for the log.
    pub(crate) fn by_any_name(&self, host: &[u8]) -> Result<Option<Rc<VirtualServer>>, String> {
        if let Some(index) = self.index(host) {
            return Ok(Some(self.servers.get(index).clone()));
        }
        for (pattern, index) in &self.patterns {
            if pattern.is_match(host).map_err(|error| pattern.explain(host, error))? {
                return Ok(Some(self.servers.get(*index).clone()));
            }
        }
        Ok(None)
    }

    fn by_pattern(&self, x: &mut Exchange) -> Result<Option<Rc<VirtualServer>>, GivenUp> {
        let host = x.request.host;
        if host.start == host.end {
            return Ok(None);
        }
        for (pattern, index) in &self.patterns {
            if pattern.captures_as(PatternRole::ServerName, x, host)? {
                return Ok(Some(self.servers.get(*index).clone()));
            }
        }
        Ok(None)
    }
}
