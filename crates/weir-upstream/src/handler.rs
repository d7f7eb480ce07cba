//! The content handler of a location whose requests are passed on.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::Upstreams;
use crate::attempt;
use crate::attempt::fast_path;
use crate::block::upstream::Upstream;
use crate::caching::lookup::{CacheDecision, CacheLookup};
use crate::config::directives::UpstreamSettings;
use crate::location::peer_sites::PeerSites;
use crate::location::upstream_location::UpstreamLocation;
use crate::protocol::{OutgoingRequest, UpstreamProtocol};
use crate::request::exchange_part::part;
use crate::request::known_request::KnownRequest;
use crate::worker_side::local_upstream::LocalUpstream;
use weir_engine::exchange::Exchange;
use weir_engine::phase::{Handler, LocalFuture, Verdict};
use weir_engine::plan::PlanBuilder;
use weir_engine::progress::Progress;
use weir_engine::rehearsed::{HandlerRehearsal, RehearsedUpstream};

/// Where a location's requests go, on one worker.
pub trait PassTarget: 'static {
    /// Determines where `x` goes, as far as that can be known without waiting: variables about it have values from here
    /// on. Called again by [`PassTarget::choose`].
    ///
    /// # Errors
    /// What the request ends with; it is logged.
    fn aim(&self, _x: &mut Exchange) -> Result<(), Verdict> {
        Ok(())
    }

    /// The upstream to ask for `x`, where that can be known without waiting; `x` is aimed then. `None`: it must be waited for.
    ///
    /// # Errors
    /// What the request ends with; it is logged.
    fn chosen(&self, _x: &mut Exchange) -> Result<Option<Rc<LocalUpstream>>, Verdict> {
        Ok(None)
    }

    /// Whether all requests go to the same place, with the same URI.
    fn is_fixed(&self) -> bool {
        false
    }

    /// Where `x` would go, as far as that is known without asking a resolver: for rehearsals.
    ///
    /// # Errors
    /// What the request ends with; it is logged.
    fn rehearsed(&self, x: &mut Exchange) -> Result<PassDestination, Verdict>;

    /// The upstream to ask for `x`.
    ///
    /// # Errors
    /// What the request ends with; it is logged.
    fn choose(&self, x: &mut Exchange) -> impl Future<Output = Result<Rc<LocalUpstream>, Verdict>>;
}

/// Where a request would go.
pub enum PassDestination {
    /// To a peer of this upstream.
    Upstream(Arc<Upstream>),
    /// To what this host, with its port, resolves to then.
    Host(String),
}

/// What `host`, computed for `x`, means: that of an `upstream` of this name, or the host itself. No resolver is asked.
pub fn meant(x: &Exchange, host: &str, default_port: u16) -> PassDestination {
    let generation = x.server.generation();
    let known = generation.configuration.shared::<Upstreams>();
    match known.and_then(|upstreams| upstreams.meant(host, default_port)) {
        Some(upstream) => PassDestination::Upstream(upstream.clone()),
        None => PassDestination::Host(host.to_owned()),
    }
}

/// Has the location's requests served by the servers of `target`, which speak `protocol`: the content handler of the
/// module `name`.
pub fn pass_to(
    plan: &mut PlanBuilder<'_>,
    name: &'static str,
    protocol: impl UpstreamProtocol + 'static,
    settings: Arc<UpstreamSettings>,
    target: impl PassTarget,
) {
    let sites = PeerSites::new(plan, name);
    let caching = settings.cache.as_ref().map(|cache| CacheLookup::new(cache, plan.worker));
    let upstream = Rc::new(UpstreamLocation { protocol: Rc::new(protocol), settings, sites });
    plan.redirect_missing_slash();
    plan.content(name, PassHandler { upstream, target, caching });
}

struct PassHandler<T> {
    upstream: Rc<UpstreamLocation>,
    target: T,
    caching: Option<CacheLookup>,
}

impl<T: PassTarget> PassHandler<T> {
    /// Where `x` would be passed to, and how its request would begin.
    fn destination(&self, x: &mut Exchange) -> Result<RehearsedUpstream, Verdict> {
        let to = self.target.rehearsed(x)?;
        let protocol = &self.upstream.protocol;
        let mut out = OutgoingRequest::default();
        protocol.request(x, &mut out)?;
        if x.refuse_unmatched() {
            return Err(Verdict::Status(500));
        }
        let line = out.head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let is_text = !line.is_empty() && line.iter().all(|byte| (b' '..0x7f).contains(byte));
        let scheme = if protocol.secure(x).is_some() { protocol.secure_scheme() } else { protocol.scheme() };
        let mut found = RehearsedUpstream {
            scheme,
            request: is_text.then(|| String::from_utf8_lossy(line).into_owned()),
            is_cached: self.caching.is_some(),
            ..RehearsedUpstream::default()
        };
        match to {
            PassDestination::Host(host) => found.name = host,
            PassDestination::Upstream(upstream) => {
                found.name = upstream.name.to_string();
                found.method = Some(upstream.method.name());
                found.peers = upstream.members().all().map(|peer| peer.name.to_string()).collect();
            }
        }
        Ok(found)
    }
}

impl<T: PassTarget> Handler for PassHandler<T> {
    fn rehearsal(&self, x: &mut Exchange) -> HandlerRehearsal {
        match self.destination(x) {
            Ok(upstream) => HandlerRehearsal::Upstream(Box::new(upstream)),
            Err(verdict) => HandlerRehearsal::Decided(verdict),
        }
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        // An error page of another location may have been stored.
        part(x).cached.clear();
        let Some(caching) = &self.caching else {
            if !self.upstream.begins_at_once(x) {
                return Verdict::Wait;
            }
            return match self.target.chosen(x) {
                Ok(Some(local)) => match self.upstream.try_attempt(x, local, self.target.is_fixed()) {
                    Progress::Done(verdict) => verdict,
                    Progress::Wait(()) => Verdict::Wait,
                },
                Ok(None) => Verdict::Wait,
                Err(verdict) => verdict,
            };
        };
        if let Err(verdict) = self.target.aim(x) {
            return verdict;
        }
        caching.respond_from_memory(x, &self.upstream, self.target.is_fixed()).unwrap_or(Verdict::Wait)
    }

    fn handle_again(&self, x: &mut Exchange, made: &Rc<dyn Any>) -> Verdict {
        let Ok(request) = made.clone().downcast::<KnownRequest>() else { return self.handle(x) };
        part(x).cached.clear();
        match self.target.chosen(x) {
            Ok(Some(local)) => self.upstream.try_known(x, local, request),
            Ok(None) => self.handle(x),
            Err(verdict) => verdict,
        }
    }

    fn is_fixed(&self, x: &Exchange) -> bool {
        x.is_sourced()
    }

    fn poll(&self, x: &mut Exchange, cx: &mut Context<'_>) -> Poll<Verdict> {
        fast_path::poll_attempt(x, cx)
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(async move {
            if let Some(mut pending) = part(x).pending.take() {
                return attempt::finish_attempt(x, &mut pending).await;
            }
            let fetch = match &self.caching {
                None => None,
                // Boxed: its future is not part of those that have no cache.
                Some(caching) => match Box::pin(caching.begin(x, &self.upstream)).await {
                    CacheDecision::Done(verdict) => return verdict,
                    CacheDecision::Fetch(fetch) => Some(fetch),
                    CacheDecision::Past => None,
                },
            };
            match self.target.choose(x).await {
                Ok(local) => self.upstream.run(x, &local, fetch).await,
                Err(verdict) => verdict,
            }
        })
    }
}
