//! Where a request goes: the argument of `proxy_pass`.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use weir_conf::{LineCx, Result, Span as Place};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::variable::ValueScript;
use weir_engine::worker::Worker;
use weir_engine::{Exchange, Text, Verdict};
use weir_upstream::discovery::server_address::unresolved;
use weir_upstream::worker_side::local_upstream::LocalUpstream;
use weir_upstream::{LastMeant, Upstream, Upstreams};

/// The argument, as written and as resolved.
#[derive(Clone)]
pub(super) struct ProxyPass {
    place: Place,
    to: ProxyDestination,
    /// Scheme, host and URI as written.
    url: String,
    /// What the location's name replaces in it, or is replaced by it; `None` where the location has no name of its own.
    location: Option<String>,
}

#[derive(Clone)]
enum ProxyDestination {
    /// Known when the configuration is read.
    Fixed { url: PassUrl, upstream: Option<Arc<Upstream>> },
    /// Computed for each request.
    Computed(ValueScript),
}

/// `http://host[:port][/uri]`, in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PassUrl {
    /// `host`, `host:port` or `unix:/path`.
    pub(super) host: String,
    /// It is `https://`.
    pub(super) https: bool,
    /// Path and arguments; `None` where none is written: the client's are sent.
    pub(super) uri: Option<Vec<u8>>,
}

impl PassUrl {
    /// Where no port is written.
    fn port(&self) -> u16 {
        UrlParts::port(self.https)
    }

    /// What follows the scheme, for messages about it.
    fn behind_scheme(text: &str) -> &str {
        text.split_once("://").map_or(text, |(_, rest)| rest)
    }

    fn parse(text: &[u8]) -> std::result::Result<PassUrl, &'static str> {
        let UrlParts { host, https, uri } = UrlParts::read(text)?;
        let host = String::from_utf8_lossy(host).into_owned();
        Ok(PassUrl { host, https, uri: uri.map(Cow::into_owned) })
    }
}

/// A [`PassUrl`] where it is written.
struct UrlParts<'t> {
    host: &'t [u8],
    https: bool,
    uri: Option<Cow<'t, [u8]>>,
}

impl UrlParts<'_> {
    /// Where no port is written.
    fn port(https: bool) -> u16 {
        if https { 443 } else { 80 }
    }

    /// Reads what follows the scheme. A path may hold any bytes.
    fn read(text: &[u8]) -> std::result::Result<UrlParts<'_>, &'static str> {
        let begins = |text: &[u8], with: &str| {
            text.get(..with.len()).is_some_and(|it| it.eq_ignore_ascii_case(with.as_bytes()))
        };
        let (rest, https) = match () {
            () if begins(text, "http://") => (&text[7..], false),
            () if begins(text, "https://") => (&text[8..], true),
            () => return Err("invalid URL prefix"),
        };
        if begins(rest, "unix:") {
            let (host, uri) = match rest[5..].iter().position(|byte| *byte == b':') {
                Some(at) => (&rest[..5 + at], Some(&rest[5 + at + 1..])),
                None => (rest, None),
            };
            return Ok(UrlParts { host, https, uri: uri.filter(|uri| !uri.is_empty()).map(Cow::Borrowed) });
        }
        let at = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
        let uri = match &rest[at..] {
            [] => None,
            uri @ [b'?', ..] => Some(Cow::Owned([b"/", uri].concat())),
            uri => Some(Cow::Borrowed(uri)),
        };
        Ok(UrlParts { host: &rest[..at], https, uri })
    }
}

impl ProxyPass {
    pub(super) fn parse(line: &mut LineCx<'_>, location: Option<String>) -> Result<ProxyPass> {
        let place = line.args()[0].span;
        let script = ValueScript::compile(line, 0)?;
        let to = match script.constant() {
            None => ProxyDestination::Computed(script),
            Some(text) => {
                let url = PassUrl::parse(text).map_err(|message| line.fail_arg(0, message))?;
                if url.host.is_empty() {
                    let shown = String::from_utf8_lossy(text);
                    let message = format!("no host in upstream \"{}\"", PassUrl::behind_scheme(&shown));
                    return Err(line.fail_arg(0, message));
                }
                if url.uri.is_some() && location.is_none() {
                    return Err(line.fail(NAMELESS));
                }
                ProxyDestination::Fixed { url, upstream: None }
            }
        };
        Ok(ProxyPass { place, to, url: line.arg(0).to_owned(), location })
    }

    /// What `proxy_redirect default` replaces, and by what; `None` where the address is computed.
    pub(super) fn default_redirect(&self) -> Option<(String, String)> {
        let ProxyDestination::Fixed { url, .. } = &self.to else { return None };
        Some(match url.uri {
            Some(_) => (self.url.clone(), self.location.clone().unwrap_or_default()),
            None => (format!("{}/", self.url), "/".to_owned()),
        })
    }

    /// Whether its servers may speak TLS.
    pub(super) fn may_be_secure(&self) -> bool {
        match &self.to {
            ProxyDestination::Fixed { url, .. } => url.https,
            ProxyDestination::Computed(_) => true,
        }
    }

    /// Finds the upstream: an `upstream` of that name, wherever in the file, or the address.
    pub(super) fn resolve(&mut self, registry: &mut ConfRegistry) -> Result {
        let place = self.place;
        if let ProxyDestination::Fixed { url, upstream } = &mut self.to {
            let found = registry.shared::<Upstreams>().named(&url.host, Some(url.port()));
            *upstream = Some(found.map_err(|message| unresolved(message).at(place))?);
        }
        Ok(())
    }

    pub(super) fn install(&self, worker: &Rc<Worker>) -> ProxyTarget {
        match &self.to {
            ProxyDestination::Fixed { url, upstream } => {
                let upstream = upstream.as_ref().expect("the block was resolved");
                let goal = PassGoal {
                    host: Some(Text::shared(url.host.as_bytes())),
                    https: url.https,
                    uri: url.uri.as_ref().map(|uri| Text::shared(uri)),
                    whole: false,
                };
                ProxyTarget::Fixed {
                    upstream: weir_upstream::of_worker(worker).upstreams.upstream(upstream),
                    goal,
                }
            }
            ProxyDestination::Computed(script) => {
                ProxyTarget::Computed { script: script.clone(), last: LastMeant::default() }
            }
        }
    }
}

/// nginx's words for a URI that nothing can be replaced by.
const NAMELESS: &str = "\"proxy_pass\" cannot have URI part in location given by regular expression, or inside named \
                        location, or inside \"if\" statement, or inside \"limit_except\" block";

/// Where a location's requests go, on one worker.
pub(super) enum ProxyTarget {
    Fixed { upstream: Rc<LocalUpstream>, goal: PassGoal },
    Computed { script: ValueScript, last: LastMeant },
}

/// Where a request goes: the request's state, or, where all requests of a location go to the same place, stored with
/// its plan.
#[derive(Clone, Default)]
pub(crate) struct PassGoal {
    /// `$proxy_host`: the name and port as `proxy_pass` has them.
    pub(crate) host: Option<Text>,
    /// The server speaks TLS.
    pub(crate) https: bool,
    /// The URI that `proxy_pass` has.
    pub(crate) uri: Option<Text>,
    /// That URI is all of it: it was computed.
    pub(crate) whole: bool,
}

impl PassGoal {
    /// Where `x` goes.
    pub(super) fn of(x: &Exchange) -> Option<&PassGoal> {
        match x.state_if::<PassGoal>() {
            Some(goal) => Some(goal),
            None => x.state_if::<SharedAim>().and_then(|SharedAim| x.plan.kept::<PassGoal>()),
        }
    }
}

/// The request goes where all of its location do.
#[derive(Default)]
struct SharedAim;

impl ProxyTarget {
    /// Where all requests go.
    pub(super) fn goal(&self) -> Option<PassGoal> {
        match self {
            ProxyTarget::Fixed { goal, .. } => Some(goal.clone()),
            ProxyTarget::Computed { .. } => None,
        }
    }
}

impl weir_upstream::PassTarget for ProxyTarget {
    fn is_fixed(&self) -> bool {
        matches!(self, ProxyTarget::Fixed { .. })
    }

    /// As there; the [`PassGoal`] of `x` is set.
    fn aim(&self, x: &mut Exchange) -> std::result::Result<(), Verdict> {
        match self {
            // It is stored with the plan.
            ProxyTarget::Fixed { .. } => {
                x.state::<SharedAim>();
                Ok(())
            }
            ProxyTarget::Computed { script, .. } => aim(x, script),
        }
    }

    fn chosen(&self, x: &mut Exchange) -> std::result::Result<Option<Rc<LocalUpstream>>, Verdict> {
        match self {
            ProxyTarget::Fixed { upstream, .. } => {
                x.state::<SharedAim>();
                Ok(Some(upstream.clone()))
            }
            ProxyTarget::Computed { script, last } => {
                aim(x, script)?;
                let (host, port) = aimed_at(x);
                last.chosen(x, &host, port)
            }
        }
    }

    fn rehearsed(&self, x: &mut Exchange) -> std::result::Result<weir_upstream::PassDestination, Verdict> {
        self.aim(x)?;
        if let ProxyTarget::Fixed { upstream, .. } = self {
            return Ok(weir_upstream::PassDestination::Upstream(upstream.upstream.clone()));
        }
        let (host, port) = aimed_at(x);
        let host = String::from_utf8_lossy(x.text(&host)).into_owned();
        Ok(weir_upstream::meant(x, &host, port))
    }

    async fn choose(&self, x: &mut Exchange) -> std::result::Result<Rc<LocalUpstream>, Verdict> {
        match self {
            ProxyTarget::Fixed { upstream, .. } => {
                x.state::<SharedAim>();
                Ok(upstream.clone())
            }
            ProxyTarget::Computed { script, last } => {
                aim(x, script)?;
                let (host, port) = aimed_at(x);
                if let Some(upstream) = last.chosen(x, &host, port)? {
                    return Ok(upstream);
                }
                let host = String::from_utf8_lossy(x.text(&host)).into_owned();
                // Boxed: what few locations need shall not make the future of all larger.
                Box::pin(weir_upstream::computed(x, &host, port)).await
            }
        }
    }
}

/// Sets the goal of `x` to what `script` says.
fn aim(x: &mut Exchange, script: &ValueScript) -> std::result::Result<(), Verdict> {
    let value = script.value(x);
    let value = x.arena.keep(value);
    let text = x.arena.get(value);
    let refuse = |message: String| {
        x.log_error(&message);
        Err(Verdict::Status(500))
    };
    let UrlParts { host, https, uri } = match UrlParts::read(text) {
        Ok(url) => url,
        Err(message) => return refuse(format!("{message} in \"{}\"", String::from_utf8_lossy(text))),
    };
    if host.is_empty() {
        let shown = String::from_utf8_lossy(text);
        return refuse(format!("no host in upstream \"{}\"", PassUrl::behind_scheme(&shown)));
    }
    let host = x.arena.locate(host).map(Text::Span);
    let uri = match uri {
        Some(Cow::Borrowed(uri)) => x.arena.locate(uri).map(Text::Span),
        Some(Cow::Owned(uri)) => Some(Text::Span(x.arena.push(&uri))),
        None => None,
    };
    *x.state::<PassGoal>() = PassGoal { host, https, uri, whole: true };
    Ok(())
}

/// The host and port that `x`, which is aimed, goes to.
fn aimed_at(x: &mut Exchange) -> (Text, u16) {
    let goal = x.state::<PassGoal>();
    (goal.host.clone().unwrap_or(Text::EMPTY), UrlParts::port(goal.https))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_in_parts() {
        let parts = |text: &str| PassUrl::parse(text.as_bytes()).map(|url| (url.host, url.uri));
        assert_eq!(parts("http://a"), Ok(("a".into(), None)));
        assert_eq!(parts("HTTP://a:81/x?y"), Ok(("a:81".into(), Some("/x?y".into()))));
        assert_eq!(parts("http://a?y"), Ok(("a".into(), Some("/?y".into()))));
        assert_eq!(parts("http://unix:/tmp/s"), Ok(("unix:/tmp/s".into(), None)));
        assert_eq!(parts("http://unix:/tmp/s:/x"), Ok(("unix:/tmp/s".into(), Some("/x".into()))));
        assert_eq!(parts("https://a:1/x"), Ok(("a:1".into(), Some("/x".into()))));
        assert_eq!(parts("ftp://a"), Err("invalid URL prefix"));
    }
}
