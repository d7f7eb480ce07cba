//! Where a request goes: the argument of `grpc_pass`, an upstream or an address, with `grpc://` or `grpcs://` before
//! it.

use std::rc::Rc;
use std::sync::Arc;

use weir_conf::{LineCx, Result, Span as Place};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::variable::ValueScript;
use weir_engine::worker::Worker;
use weir_engine::{Exchange, Text, Verdict};
use weir_upstream::discovery::server_address::unresolved;
use weir_upstream::worker_side::local_upstream::LocalUpstream;
use weir_upstream::{Upstream, Upstreams};

use crate::gateway::proxy::pass::PassGoal;

/// The argument, as written and as resolved.
#[derive(Clone)]
pub(super) struct GrpcPass {
    place: Place,
    to: GrpcDestination,
}

#[derive(Clone)]
enum GrpcDestination {
    /// Known when the configuration is read.
    Fixed { address: GrpcAddress, upstream: Option<Arc<Upstream>> },
    /// Computed for each request.
    Computed(ValueScript),
}

/// `host`, `host:port` or `unix:/path`, and whether it speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GrpcAddress {
    host: String,
    secure: bool,
}

impl GrpcAddress {
    /// Takes the scheme off, if there is one.
    fn parse(text: &str) -> GrpcAddress {
        let after = |scheme: &str| {
            let (start, rest) = text.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then_some(rest)
        };
        match (after("grpc://"), after("grpcs://")) {
            (Some(host), _) => GrpcAddress { host: host.to_owned(), secure: false },
            (_, Some(host)) => GrpcAddress { host: host.to_owned(), secure: true },
            _ => GrpcAddress { host: text.to_owned(), secure: false },
        }
    }

    /// nginx's words for an invalid address: there is no URI in it.
    fn check(&self) -> std::result::Result<(), String> {
        let is_path = self.host.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("unix:"));
        match () {
            () if self.host.is_empty() => Err("no host in upstream \"\"".to_owned()),
            () if !is_path && self.host.contains(['/', '?', '#']) => {
                Err(format!("invalid host in upstream \"{}\"", self.host))
            }
            () => Ok(()),
        }
    }

    fn port(&self) -> u16 {
        if self.secure { 443 } else { 80 }
    }
}

impl GrpcPass {
    pub(super) fn set(slot: &mut Option<GrpcPass>, line: &mut LineCx<'_>) -> Result {
        if slot.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        let script = ValueScript::compile(line, 0)?;
        let to = match script.constant() {
            None => GrpcDestination::Computed(script),
            Some(text) => {
                let address = GrpcAddress::parse(&String::from_utf8_lossy(text));
                address.check().map_err(|message| line.fail_arg(0, message))?;
                GrpcDestination::Fixed { address, upstream: None }
            }
        };
        *slot = Some(GrpcPass { place: line.args()[0].span, to });
        Ok(())
    }

    /// Whether its servers may speak TLS.
    pub(super) fn may_be_secure(&self) -> bool {
        match &self.to {
            GrpcDestination::Fixed { address, .. } => address.secure,
            GrpcDestination::Computed(_) => true,
        }
    }

    /// Finds the upstream: an `upstream` of that name, wherever in the file, or the address.
    pub(super) fn resolve(&mut self, registry: &mut ConfRegistry) -> Result {
        if let GrpcDestination::Fixed { address, upstream } = &mut self.to {
            let found = registry.shared::<Upstreams>().named(&address.host, None);
            *upstream = Some(found.map_err(|message| unresolved(message).at(self.place))?);
        }
        Ok(())
    }

    pub(super) fn install(&self, worker: &Rc<Worker>) -> GrpcTarget {
        match &self.to {
            GrpcDestination::Fixed { address, upstream } => {
                let upstream = upstream.as_ref().expect("the block was resolved");
                GrpcTarget::Fixed {
                    upstream: weir_upstream::of_worker(worker).upstreams.upstream(upstream),
                    host: Text::shared(address.host.as_bytes()),
                    secure: address.secure,
                }
            }
            GrpcDestination::Computed(script) => GrpcTarget::Computed(script.clone()),
        }
    }
}

/// Where a location's requests go, on one worker.
pub(super) enum GrpcTarget {
    Fixed { upstream: Rc<LocalUpstream>, host: Text, secure: bool },
    Computed(ValueScript),
}

impl weir_upstream::PassTarget for GrpcTarget {
    fn rehearsed(&self, x: &mut Exchange) -> std::result::Result<weir_upstream::PassDestination, Verdict> {
        match self {
            GrpcTarget::Fixed { upstream, host, secure } => {
                *x.state::<PassGoal>() =
                    PassGoal { host: Some(host.clone()), https: *secure, uri: None, whole: false };
                Ok(weir_upstream::PassDestination::Upstream(upstream.upstream.clone()))
            }
            GrpcTarget::Computed(script) => {
                let address = aimed(x, script)?;
                Ok(weir_upstream::meant(x, &address.host, address.port()))
            }
        }
    }

    /// As there; the [`PassGoal`] of `x` is set.
    async fn choose(&self, x: &mut Exchange) -> std::result::Result<Rc<LocalUpstream>, Verdict> {
        match self {
            GrpcTarget::Fixed { upstream, host, secure } => {
                *x.state::<PassGoal>() =
                    PassGoal { host: Some(host.clone()), https: *secure, uri: None, whole: false };
                Ok(upstream.clone())
            }
            GrpcTarget::Computed(script) => computed(x, script).await,
        }
    }
}

async fn computed(x: &mut Exchange, script: &ValueScript) -> std::result::Result<Rc<LocalUpstream>, Verdict> {
    let address = aimed(x, script)?;
    weir_upstream::computed(x, &address.host, address.port()).await
}

/// The address that `script` says; the [`PassGoal`] of `x` is set.
fn aimed(x: &mut Exchange, script: &ValueScript) -> std::result::Result<GrpcAddress, Verdict> {
    let value = script.value(x);
    let address = GrpcAddress::parse(&String::from_utf8_lossy(x.text(&value)));
    if let Err(message) = address.check() {
        x.log_error(&message);
        return Err(Verdict::Status(500));
    }
    let host = Text::Span(x.arena.push(address.host.as_bytes()));
    *x.state::<PassGoal>() = PassGoal { host: Some(host), https: address.secure, uri: None, whole: false };
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::GrpcAddress;

    #[test]
    fn addresses_have_a_scheme_or_none_and_no_uri() {
        let parts = |text: &str| {
            let address = GrpcAddress::parse(text);
            (address.check().is_ok(), address.host, address.secure)
        };
        assert_eq!(parts("a:1"), (true, "a:1".to_owned(), false));
        assert_eq!(parts("GRPC://a"), (true, "a".to_owned(), false));
        assert_eq!(parts("grpcs://[::1]:2"), (true, "[::1]:2".to_owned(), true));
        assert_eq!(parts("grpc://unix:/tmp/s"), (true, "unix:/tmp/s".to_owned(), false));
        assert!(!parts("grpc://a/b").0 && !parts("grpcs://").0 && !parts("http://a").0);
    }
}
