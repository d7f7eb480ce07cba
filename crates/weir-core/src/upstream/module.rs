//! `upstream { }`: its directives, and the variables of tries.

use std::sync::Arc;

use weir_conf::names::{MORE, ONE, UPSTREAM};
use weir_conf::{Directive, Error, Line, LineCx, Result, parse_number, parse_time_s};

use super::balance::Method;
use super::group::{Group, Keep, Members, Peer, Upstreams, resolve};
use super::tries;
use crate::conf::registry::Registry;
use crate::module::Module;
use crate::variable::Variable;

/// The module of `upstream` blocks.
pub struct UpstreamModule;

impl Module for UpstreamModule {
    const NAME: &'static str = "upstream";
    type Conf = UpstreamConf;
    const DIRECTIVES: &'static [Directive<UpstreamConf>] = &[
        Row::new("server", UPSTREAM, MORE, UpstreamConf::set_server).doc("A server of the group."),
        Row::new("keepalive", UPSTREAM, ONE, |c, l| l.number(&mut c.keepalive, ..))
            .doc("How many idle connections each worker keeps."),
        Row::new("keepalive_requests", UPSTREAM, ONE, |c, l| l.number(&mut c.keepalive_requests, ..))
            .doc("After how many requests a connection is closed."),
        Row::new("keepalive_time", UPSTREAM, ONE, |c, l| l.time_ms(&mut c.keepalive_time))
            .doc("The age from which on a connection takes no further request."),
        Row::new("keepalive_timeout", UPSTREAM, ONE, |c, l| l.time_ms(&mut c.keepalive_timeout))
            .doc("How long an idle connection is kept."),
    ];
    const VARIABLES: &'static [Variable] = tries::VARIABLES;
}

/// Tells the closures of the table what they are given.
type Row = Directive<UpstreamConf>;

/// What one `upstream` block says.
#[derive(Debug, Default)]
pub struct UpstreamConf {
    servers: Vec<Server>,
    method: Option<Method>,
    keepalive: Option<usize>,
    keepalive_requests: Option<u64>,
    keepalive_time: Option<u64>,
    keepalive_timeout: Option<u64>,
}

/// A `server` line.
#[derive(Debug)]
struct Server {
    backup: bool,
    peers: Vec<Peer>,
}

impl UpstreamConf {
    /// `server address [parameters]`
    fn set_server(&mut self, line: &mut LineCx<'_>) -> Result {
        let mut model = Peer::plain(weir_rt::net::SockAddr::UNSPECIFIED, line.arg(0));
        let mut backup = false;
        for at in 1..line.args().len() {
            parameter(line, at, &mut model, &mut backup)?;
        }
        let addrs = resolve(line.arg(0), 80).map_err(|message| line.fail_arg(0, message))?;
        let peer = |addr: weir_rt::net::SockAddr| Peer {
            name: addr.to_string().into(),
            addr,
            state: Arc::default(),
            ..model.clone()
        };
        self.servers.push(Server { backup, peers: addrs.into_iter().map(peer).collect() });
        Ok(())
    }

    /// Makes the block's group.
    ///
    /// # Errors
    /// nginx's words: no servers, a second block of that name.
    pub(crate) fn define(&mut self, registry: &mut Registry, line: &Line) -> Result {
        let name = line.args.first().map_or("", |word| word.str());
        let fail = |message: String| Error::new(message).at(line.name.span);
        if self.servers.is_empty() {
            return Err(fail("no servers are inside upstream".to_owned()));
        }
        let mut members = Members::default();
        for server in self.servers.drain(..) {
            let into = if server.backup { &mut members.backup } else { &mut members.primary };
            into.extend(server.peers.into_iter().map(Arc::new));
        }
        let default = Keep::default();
        let keep = Keep {
            connections: self.keepalive.unwrap_or(default.connections),
            requests: self.keepalive_requests.unwrap_or(default.requests),
            time: self.keepalive_time.unwrap_or(default.time),
            timeout: self.keepalive_timeout.unwrap_or(default.timeout),
        };
        let method = self.method.take().unwrap_or_default();
        let group = Group::new(name, method, keep, members, false);
        registry.shared::<Upstreams>().define(group).map_err(fail)
    }
}

/// One `name=value` of a `server` line.
fn parameter(line: &LineCx<'_>, at: usize, peer: &mut Peer, backup: &mut bool) -> Result {
    let text = line.bytes(at);
    let invalid = || line.invalid_parameter(at);
    let (name, value) = match text.iter().position(|byte| *byte == b'=') {
        Some(cut) => (&text[..cut], Some(&text[cut + 1..])),
        None => (text, None),
    };
    let number = || value.and_then(parse_number).and_then(|n| u32::try_from(n).ok()).ok_or_else(invalid);
    match (name, value) {
        (b"weight", Some(_)) => peer.weight = Some(number()?).filter(|n| *n > 0).ok_or_else(invalid)?,
        (b"max_conns", Some(_)) => peer.max_conns = number()?,
        (b"max_fails", Some(_)) => peer.max_fails = number()?,
        (b"fail_timeout", Some(value)) => peer.fail_timeout = parse_time_s(value).ok_or_else(invalid)?,
        (b"backup", None) => *backup = true,
        (b"down", None) => peer.down = true,
        _ => return Err(invalid()),
    }
    Ok(())
}
