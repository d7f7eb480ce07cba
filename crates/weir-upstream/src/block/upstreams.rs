//! All upstreams of a configuration, by name.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use weir_rt::net::SockAddr;

use crate::block::source_follower;
use crate::block::upstream::{Upstream, UpstreamOrigin};
use crate::connection::keepalive_limits::KeepaliveLimits;
use crate::discovery::server_address::{lacks_port, resolve};
use crate::discovery::server_list::ServerEntry;
use crate::peer::Peer;
use crate::peer::balance::BalanceMethod;
use crate::peer::members::UpstreamMembers;
use weir_engine::conf::Configuration;
use weir_engine::resolver::Resolver;

/// The upstreams of one configuration; lent by `ConfRegistry::shared`.
#[derive(Debug, Default)]
pub struct Upstreams {
    upstreams: Vec<Arc<Upstream>>,
    /// Those of `upstream` blocks by name in lower case, and those that addresses made by address: there may be thousands.
    defined: HashMap<Box<str>, usize>,
    implicit: HashMap<Box<str>, usize>,
}

impl Upstreams {
    /// Adds an upstream that an `upstream` block defines.
    ///
    /// # Errors
    /// nginx's words for a second one of that name.
    pub fn define(&mut self, upstream: Upstream) -> Result<(), String> {
        let place = self.upstreams.len();
        let key = folded(&upstream.name).into();
        if self.defined.contains_key(&key) {
            return Err(format!("duplicate upstream \"{}\"", upstream.name));
        }
        self.defined.insert(key, place);
        self.upstreams.push(Arc::new(upstream));
        Ok(())
    }

    /// The upstream that an `upstream` block defines as `name`, in any letter case; `None` if no block does.
    pub fn find(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.defined.get(&*folded(name)).map(|place| &self.upstreams[*place])
    }

    /// The upstream that the computed `host` names, with or without a port: that of an `upstream` block, or of a
    /// `*_pass` to the same address, where `default_port` is used for a port that is not written. `None` if the
    /// configuration has neither: the caller looks the host up.
    pub fn meant(&self, host: &str, default_port: u16) -> Option<&Arc<Upstream>> {
        if let Some(found) = self.find(host) {
            return Some(found);
        }
        let host = folded(host);
        let default = format!(":{default_port}");
        let place = self.implicit.get(&*host).or_else(|| match host.strip_suffix(&*default) {
            Some(name) => self.implicit.get(name),
            None if lacks_port(&host) => self.implicit.get(&*format!("{host}{default}")),
            None => None,
        });
        place.map(|place| &self.upstreams[*place])
    }

    /// All upstreams, of blocks and of addresses, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.upstreams.iter()
    }

    /// All upstreams of all sections of `configuration`.
    pub fn all_of(configuration: &Configuration) -> impl Iterator<Item = &Arc<Upstream>> {
        configuration.sections().filter_map(Configuration::shared::<Upstreams>).flat_map(Upstreams::iter)
    }

    /// The upstream of one server that a `*_pass` names by address, made when it is not known yet.
    ///
    /// # Errors
    /// nginx's words for a host that has no address.
    pub(crate) fn implicit(&mut self, host: &str, default_port: u16) -> Result<Arc<Upstream>, String> {
        if let Some(place) = self.implicit.get(host) {
            return Ok(self.upstreams[*place].clone());
        }
        let addrs = resolve(host, default_port)?;
        // nginx keeps connections of `upstream` blocks only.
        let keep = KeepaliveLimits { connections: 0, ..KeepaliveLimits::default() };
        let upstream = Upstream::new(
            host,
            BalanceMethod::RoundRobin,
            keep,
            UpstreamMembers::default(),
            UpstreamOrigin::Address,
        );
        upstream.begin(vec![ServerEntry::of(Peer::plain(SockAddr::UNSPECIFIED, host), addrs)]);
        let upstream = Arc::new(upstream);
        self.implicit.insert(host.into(), self.upstreams.len());
        self.upstreams.push(upstream.clone());
        Ok(upstream)
    }

    /// The upstream that a `*_pass` names, or the one of the address that it is. Without a `default_port` an address
    /// must have one.
    ///
    /// # Errors
    /// As [`Upstreams::implicit`], or `no port in upstream "..."`.
    pub fn named(&mut self, host: &str, default_port: Option<u16>) -> Result<Arc<Upstream>, String> {
        match (self.find(host), default_port) {
            (Some(found), _) => Ok(found.clone()),
            (None, None) if lacks_port(host) => Err(format!("no port in upstream \"{host}\"")),
            (None, port) => self.implicit(host, port.unwrap_or(0)),
        }
    }

    /// Settles which resolver is asked for names of servers: that of the upstream, else that of `http`.
    ///
    /// # Errors
    /// nginx's words for each that has none.
    pub(crate) fn use_resolver(&self, http: Option<&Arc<Resolver>>, timeout: u64) -> Vec<weir_conf::Error> {
        self.upstreams.iter().filter_map(|upstream| upstream.use_resolver(http, timeout).err()).collect()
    }

    /// Begins to follow names of servers, and sources.
    pub fn follow(&self) {
        for upstream in &self.upstreams {
            upstream.follow();
            source_follower::follow(upstream);
        }
    }

    /// Takes over what `before` knows of upstreams that are still there.
    pub fn adopt(&self, before: &Upstreams) {
        for upstream in &self.upstreams {
            let place = match upstream.origin {
                UpstreamOrigin::Address => before.implicit.get(&upstream.name),
                UpstreamOrigin::Block => before.defined.get(&*folded(&upstream.name)),
            };
            if let Some(place) = place {
                upstream.adopt(&before.upstreams[*place]);
            }
        }
    }
}

/// Names of upstreams are compared without regard to case.
fn folded(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        name.to_ascii_lowercase().into()
    } else {
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_once() {
        let upstream = |name: &str| {
            Upstream::new(
                name,
                BalanceMethod::RoundRobin,
                KeepaliveLimits::default(),
                UpstreamMembers::default(),
                UpstreamOrigin::Block,
            )
        };
        let mut upstreams = Upstreams::default();
        assert_eq!(upstreams.define(upstream("u")), Ok(()));
        assert_eq!(upstreams.define(upstream("U")), Err("duplicate upstream \"U\"".to_owned()));
        assert!(upstreams.find("u").is_some() && upstreams.find("v").is_none());
    }
}
