//! Where requests go: the argument of `fastcgi_pass` and its like, a group or an address without a URI.

use std::rc::Rc;
use std::sync::Arc;

use weir_conf::{Error, LineCx, Result, Span as Place};
use weir_core::conf::registry::Registry;
use weir_core::upstream::group::{Group, Peer, Upstreams, resolve, split_port};
use weir_core::upstream::local::LocalGroup;
use weir_core::variable::Script;
use weir_core::worker::Worker;
use weir_core::{Exchange, Verdict};

/// The argument, as written and as resolved.
pub(crate) struct Pass {
    place: Place,
    script: Script,
    group: Option<Arc<Group>>,
}

impl Pass {
    pub(crate) fn set(slot: &mut Option<Pass>, line: &mut LineCx<'_>) -> Result {
        if slot.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        let script = Script::compile(line, 0)?;
        if script.constant().is_some_and(<[u8]>::is_empty) {
            return Err(line.fail_arg(0, "no host in upstream \"\""));
        }
        *slot = Some(Pass { place: line.args()[0].span, script, group: None });
        Ok(())
    }

    /// Finds the group: an `upstream` of that name, wherever in the file, or the address, which must have a port.
    pub(crate) fn resolve(&mut self, registry: &mut Registry) -> Result {
        let Some(text) = self.script.constant() else { return Ok(()) };
        let text = String::from_utf8_lossy(text).into_owned();
        let fail = |message: String| Error::new(message).at(self.place);
        let upstreams = registry.shared::<Upstreams>();
        let found = match upstreams.find(&text) {
            Some(found) => found.clone(),
            None if lacks_port(&text) => return Err(fail(format!("no port in upstream \"{text}\""))),
            None => upstreams.implicit(&text, NO_PORT).map_err(fail)?,
        };
        self.group = Some(found);
        Ok(())
    }

    pub(crate) fn install(&self, worker: &Rc<Worker>) -> Target {
        match &self.group {
            Some(group) => Target::Fixed(worker.upstreams.group(group)),
            None => Target::Computed(self.script.clone()),
        }
    }
}

/// Where a location's requests go, on one worker.
pub(crate) enum Target {
    /// Known when the configuration is read.
    Fixed(Rc<LocalGroup>),
    /// Computed for each request.
    Computed(Script),
}

impl Target {
    /// The group to ask for `x`.
    pub(crate) fn choose(&self, x: &mut Exchange) -> std::result::Result<Rc<LocalGroup>, Verdict> {
        match self {
            Target::Fixed(group) => Ok(group.clone()),
            Target::Computed(script) => {
                let value = script.value(x);
                let text = String::from_utf8_lossy(x.text(&value)).into_owned();
                computed(x, &text)
            }
        }
    }
}

/// The group of a name or an address that was computed for `x`.
fn computed(x: &mut Exchange, host: &str) -> std::result::Result<Rc<LocalGroup>, Verdict> {
    let link = x.server.generation();
    let known = link.configuration.tables.shared::<Upstreams>().and_then(|all| all.find(host));
    if let Some(group) = known {
        return Ok(x.worker.upstreams.group(group));
    }
    if let Some(group) = x.worker.upstreams.address(host) {
        return Ok(group);
    }
    let refuse = |status: u16, message: String| {
        x.log_error(&message);
        Err(Verdict::Status(status))
    };
    if host.is_empty() {
        return refuse(500, "no host in upstream \"\"".to_owned());
    }
    if lacks_port(host) {
        return refuse(500, format!("no port in upstream \"{host}\""));
    }
    // An address needs no name server; names do.
    let name = split_port(host).map_or("", |(name, _)| name);
    if !host.starts_with("unix:") && name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_err() {
        return refuse(502, format!("no resolver defined to resolve {name}"));
    }
    match resolve(host, NO_PORT) {
        Ok(addrs) => {
            let peers = addrs.into_iter().map(|addr| Arc::new(Peer::plain(addr, host))).collect();
            Ok(x.worker.upstreams.add_address(host, peers))
        }
        Err(message) => refuse(500, message),
    }
}

/// There is no port that these protocols have by default.
fn lacks_port(host: &str) -> bool {
    !host.starts_with("unix:") && split_port(host).is_ok_and(|(_, port)| port.is_none())
}

/// Never used: hosts without a port are refused before.
const NO_PORT: u16 = 0;
