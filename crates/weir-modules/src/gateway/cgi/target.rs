//! Where requests go: the argument of `fastcgi_pass` and its like, an upstream or an address without a URI.
//!
//! Where the module has schemes (`uwsgi://`, and `suwsgi://` for servers that speak TLS), one may precede it.

use std::rc::Rc;
use std::sync::Arc;

use weir_conf::{LineCx, Result, Span as Place};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::ValueScript;
use weir_engine::worker::Worker;
use weir_engine::{Exchange, Text, Verdict};
use weir_upstream::block::upstream::Upstream;
use weir_upstream::discovery::server_address::{lacks_port, unresolved};
use weir_upstream::worker_side::local_upstream::LocalUpstream;
use weir_upstream::{UpstreamFamily, UpstreamProtocol, UpstreamSettings, Upstreams, pass_to};

/// The argument, as written and as resolved.
#[derive(Clone)]
pub(crate) struct CgiPass {
    place: Place,
    script: ValueScript,
    upstream: Option<Arc<Upstream>>,
    /// What precedes addresses, for TLS with an `s` before it.
    scheme: Option<&'static str>,
    /// The address is known, and speaks TLS.
    secure: bool,
    /// Servers speak TLS whatever the address says.
    always_secure: bool,
}

impl CgiPass {
    pub(crate) fn set(slot: &mut Option<CgiPass>, line: &mut LineCx<'_>) -> Result {
        CgiPass::set_with(slot, line, None)
    }

    /// As [`CgiPass::set`]; `scheme` may precede the address, with an `s` before it for TLS.
    pub(crate) fn set_behind(
        slot: &mut Option<CgiPass>,
        line: &mut LineCx<'_>,
        scheme: &'static str,
    ) -> Result {
        CgiPass::set_with(slot, line, Some(scheme))
    }

    fn set_with(slot: &mut Option<CgiPass>, line: &mut LineCx<'_>, scheme: Option<&'static str>) -> Result {
        let script = ValueScript::compile(line, 0)?;
        CgiPass::fill(slot, line, script, scheme)
    }

    /// As [`CgiPass::set`] for an argument that is not there: `text` in its place.
    pub(crate) fn set_text(slot: &mut Option<CgiPass>, line: &mut LineCx<'_>, text: &[u8]) -> Result {
        let script = ValueScript::compile_text(line, 0, text)?;
        CgiPass::fill(slot, line, script, None)
    }

    /// As [`CgiPass::set`] where variables mean nothing.
    pub(crate) fn set_constant(slot: &mut Option<CgiPass>, line: &mut LineCx<'_>) -> Result {
        CgiPass::fill(slot, line, ValueScript::literal(line.bytes(0)), None)
    }

    fn fill(
        slot: &mut Option<CgiPass>,
        line: &LineCx<'_>,
        script: ValueScript,
        scheme: Option<&'static str>,
    ) -> Result {
        if slot.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        let mut script = script;
        let mut secure = false;
        if let Some(text) = script.constant() {
            let text = String::from_utf8_lossy(text).into_owned();
            let (address, tls) = parts(&text, scheme);
            check(address).map_err(|message| line.fail_arg(0, message))?;
            script = ValueScript::literal(address.as_bytes());
            secure = tls;
        }
        *slot = Some(CgiPass {
            place: line.args().first().unwrap_or(&line.line().name).span,
            script,
            upstream: None,
            scheme,
            secure,
            always_secure: false,
        });
        Ok(())
    }

    /// Its servers speak TLS, whatever the address says.
    pub(crate) fn always_secure(&mut self) {
        self.always_secure = true;
        self.secure = true;
    }

    /// Whether its servers may speak TLS.
    pub(crate) fn may_be_secure(&self) -> bool {
        self.secure || self.scheme.is_some() && self.upstream.is_none()
    }

    /// Finds the upstream: an `upstream` of that name, wherever in the file, or the address, which must have a port.
    pub(crate) fn resolve(&mut self, registry: &mut ConfRegistry) -> Result {
        let Some(text) = self.script.constant() else { return Ok(()) };
        let text = String::from_utf8_lossy(text).into_owned();
        let found = registry.shared::<Upstreams>().named(&text, None);
        self.upstream = Some(found.map_err(|message| unresolved(message).at(self.place))?);
        Ok(())
    }

    pub(crate) fn install(&self, worker: &Rc<Worker>) -> CgiTarget {
        let to = match &self.upstream {
            Some(upstream) => CgiDestination::Fixed {
                upstream: weir_upstream::of_worker(worker).upstreams.upstream(upstream),
                secure: self.secure.then(|| Text::shared(self.script.constant().unwrap_or_default())),
            },
            None => CgiDestination::Computed(self.script.clone()),
        };
        CgiTarget { to, scheme: self.scheme, always_secure: self.always_secure }
    }
}

/// Has the requests of a location that has a `pass` served by its servers, in the protocol that `protocol` makes of the
/// location's settings: the last step of all modules whose `*_pass` names an address without a URI.
pub(crate) fn pass_requests<P: UpstreamProtocol + 'static>(
    plan: &mut PlanBuilder<'_>,
    module: &'static str,
    pass: Option<&CgiPass>,
    family: &UpstreamFamily,
    protocol: impl FnOnce(&Arc<UpstreamSettings>) -> P,
) {
    let (Some(pass), Some(settings)) = (pass, family.settings()) else { return };
    let protocol = protocol(&settings);
    let target = pass.install(plan.worker);
    pass_to(plan, module, protocol, settings, target);
}

/// The address after its scheme, and whether that is the one for TLS.
fn parts<'t>(text: &'t str, scheme: Option<&str>) -> (&'t str, bool) {
    let after = |text: &'t str, start: &str| {
        let (begin, rest) = text.split_at_checked(start.len())?;
        begin.eq_ignore_ascii_case(start).then_some(rest)
    };
    let Some(scheme) = scheme else { return (text, false) };
    if let Some(rest) = after(text, scheme) {
        return (rest, false);
    }
    match after(text, "s").and_then(|rest| after(rest, scheme)) {
        Some(rest) => (rest, true),
        None => (text, false),
    }
}

/// nginx's words for an invalid address: there is no URI in it.
fn check(address: &str) -> std::result::Result<(), String> {
    let is_path = address.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("unix:"));
    match () {
        () if address.is_empty() => Err("no host in upstream \"\"".to_owned()),
        () if !is_path && address.contains(['/', '?', '#']) => {
            Err(format!("invalid host in upstream \"{address}\""))
        }
        () => Ok(()),
    }
}

/// Where a location's requests go, on one worker.
pub(crate) struct CgiTarget {
    to: CgiDestination,
    scheme: Option<&'static str>,
    always_secure: bool,
}

enum CgiDestination {
    /// Known when the configuration is read; the name of servers that speak TLS.
    Fixed { upstream: Rc<LocalUpstream>, secure: Option<Text> },
    /// Computed for each request.
    Computed(ValueScript),
}

/// Where a request goes, if to a server that speaks TLS: what the location's `_pass` calls it.
#[derive(Default)]
pub(crate) struct SecureName(pub(crate) Option<Text>);

impl weir_upstream::PassTarget for CgiTarget {
    /// As there; where the module has schemes, [`SecureName`] of `x` is set.
    async fn choose(&self, x: &mut Exchange) -> std::result::Result<Rc<LocalUpstream>, Verdict> {
        match &self.to {
            CgiDestination::Fixed { upstream, secure } => {
                if self.may_be_secure() {
                    x.state::<SecureName>().0 = secure.clone();
                }
                Ok(upstream.clone())
            }
            CgiDestination::Computed(script) => {
                let host = self.host(x, script);
                check_host(x, &host)?;
                weir_upstream::computed(x, &host, NO_PORT).await
            }
        }
    }

    fn rehearsed(&self, x: &mut Exchange) -> std::result::Result<weir_upstream::PassDestination, Verdict> {
        match &self.to {
            CgiDestination::Fixed { upstream, secure } => {
                if self.may_be_secure() {
                    x.state::<SecureName>().0 = secure.clone();
                }
                Ok(weir_upstream::PassDestination::Upstream(upstream.upstream.clone()))
            }
            CgiDestination::Computed(script) => {
                let host = self.host(x, script);
                check_host(x, &host)?;
                Ok(weir_upstream::meant(x, &host, NO_PORT))
            }
        }
    }
}

impl CgiTarget {
    fn may_be_secure(&self) -> bool {
        self.scheme.is_some() || self.always_secure
    }

    /// The host that `script` says; where the module has schemes, [`SecureName`] of `x` is set.
    fn host(&self, x: &mut Exchange, script: &ValueScript) -> String {
        let value = script.value(x);
        let text = String::from_utf8_lossy(x.text(&value)).into_owned();
        let (host, secure) = parts(&text, self.scheme);
        if self.may_be_secure() {
            let name = (secure || self.always_secure).then(|| Text::Span(x.arena.push(host.as_bytes())));
            x.state::<SecureName>().0 = name;
        }
        host.to_owned()
    }
}

/// Whether a host that was computed can be asked.
fn check_host(x: &Exchange, host: &str) -> std::result::Result<(), Verdict> {
    let link = x.server.generation();
    let known = link.configuration.shared::<Upstreams>().is_some_and(|all| all.find(host).is_some());
    let wrong = match check(host) {
        Err(message) => message,
        Ok(()) if !known && lacks_port(host) => format!("no port in upstream \"{host}\""),
        Ok(()) => return Ok(()),
    };
    x.log_error(&wrong);
    Err(Verdict::Status(500))
}

/// Never used: hosts without a port are refused before.
const NO_PORT: u16 = 0;

#[cfg(test)]
mod tests {
    use super::{check, parts};

    #[test]
    fn schemes_stand_before_addresses_where_the_module_has_one() {
        let scheme = Some("uwsgi://");
        assert_eq!(parts("a:1", scheme), ("a:1", false));
        assert_eq!(parts("uwsgi://a:1", scheme), ("a:1", false));
        assert_eq!(parts("SUWSGI://a:1", scheme), ("a:1", true));
        assert_eq!(parts("suwsgi:", scheme), ("suwsgi:", false));
        assert_eq!(parts("suwsgi://a", None), ("suwsgi://a", false));
    }

    #[test]
    fn addresses_have_no_uri() {
        assert!(check("a:1").is_ok() && check("unix:/tmp/s").is_ok() && check("[::1]:2").is_ok());
        assert_eq!(check("a/b"), Err("invalid host in upstream \"a/b\"".to_owned()));
        assert!(check("").is_err());
    }
}
