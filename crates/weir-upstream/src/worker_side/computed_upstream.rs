//! Servers that are computed for each request: an upstream's name, an address, or a name to be resolved.

use std::cell::RefCell;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;

use weir_conf::split_port;
use weir_rt::clock;
use weir_trace::{Cause, WaitKind};

use crate::Upstreams;
use crate::discovery::server_address::{ADDRESSES, resolve};
use crate::peer::Peer;
use crate::worker_side::local_upstream::LocalUpstream;
use crate::worker_side::worker_part::of_worker;
use weir_engine::exchange::Exchange;
use weir_engine::phase::Verdict;
use weir_engine::progress::Progress;
use weir_engine::resolver::{self, DnsAnswer, DnsFailure, Resolver};
use weir_engine::text::Text;

/// The upstream that `host` means for `x`: that of an `upstream` of this name, the address it is, or the addresses that
/// the location's `resolver` finds.
///
/// # Errors
/// What the request ends with; it is logged.
pub async fn computed(x: &mut Exchange, host: &str, default_port: u16) -> Result<Rc<LocalUpstream>, Verdict> {
    match computed_now(x, host, default_port) {
        Progress::Done(found) => found,
        Progress::Wait(ResolvedPart { name, port }) => {
            let answer = look_up(x, name).await?;
            Ok(passing(x, host, &answer, port))
        }
    }
}

/// As [`computed`], as far as that goes without asking a resolver.
///
/// # Errors
/// As there.
pub(crate) fn computed_now<'h>(
    x: &mut Exchange,
    host: &'h str,
    default_port: u16,
) -> Progress<Result<Rc<LocalUpstream>, Verdict>, ResolvedPart<'h>> {
    let generation = x.server.generation();
    if let Some(upstream) =
        generation.configuration.shared::<Upstreams>().and_then(|all| all.meant(host, default_port))
    {
        return Progress::Done(Ok(of_worker(&x.worker).upstreams.named(upstream)));
    }
    if let Some(upstream) = of_worker(&x.worker).upstreams.address(host) {
        return Progress::Done(Ok(upstream));
    }
    let refuse = |message: &dyn Display| {
        x.log_error(message);
        Progress::Done(Err(Verdict::Status(500)))
    };
    // A path has no port.
    let parts = if host.starts_with("unix:") { Ok(("", None)) } else { split_port(host) };
    let Ok((name, port)) = parts else {
        return refuse(&format_args!("invalid port in upstream \"{host}\""));
    };
    if name.is_empty() && !host.starts_with("unix:") {
        return refuse(&format_args!("no host in upstream \"{host}\""));
    }
    if host.starts_with("unix:") || resolver::literal(name).is_some() {
        let addrs = match resolve(host, default_port) {
            Ok(addrs) => addrs,
            Err(message) => return refuse(&message),
        };
        let peers = addrs.into_iter().map(|addr| Arc::new(Peer::plain(addr, host))).collect();
        return Progress::Done(Ok(of_worker(&x.worker).upstreams.add_address(host, peers)));
    }
    let port = port.unwrap_or(default_port);
    match remembered_for(x, name) {
        Some(answer) => Progress::Done(Ok(passing(x, host, &answer, port))),
        None => Progress::Wait(ResolvedPart { name, port }),
    }
}

/// The part of a host that a resolver is asked for.
pub(crate) struct ResolvedPart<'h> {
    name: &'h str,
    port: u16,
}

fn passing(x: &Exchange, host: &str, answer: &DnsAnswer, port: u16) -> Rc<LocalUpstream> {
    let peers = in_turn(answer).map(|ip| Arc::new(Peer::plain((ip, port).into(), host))).collect();
    of_worker(&x.worker).upstreams.passing(host, peers)
}

/// Which upstream of the configuration a location's computed host has meant last: most locations compute the same one for all
/// requests. It is part of what is installed of a configuration, so that it holds as long as that does.
#[derive(Default)]
pub struct LastMeant(RefCell<Option<MeantUpstream>>);

struct MeantUpstream {
    host: Box<[u8]>,
    default_port: u16,
    upstream: Rc<LocalUpstream>,
}

impl LastMeant {
    /// As [`computed_now`] of the bytes of a host.
    ///
    /// # Errors
    /// As there.
    pub fn chosen(
        &self,
        x: &mut Exchange,
        host: &Text,
        default_port: u16,
    ) -> Result<Option<Rc<LocalUpstream>>, Verdict> {
        if let Some(last) = &*self.0.borrow()
            && *last.host == *x.text(host)
            && last.default_port == default_port
        {
            return Ok(Some(last.upstream.clone()));
        }
        let name = String::from_utf8_lossy(x.text(host)).into_owned();
        let Progress::Done(upstream) = computed_now(x, &name, default_port) else { return Ok(None) };
        let upstream = upstream?;
        // What addresses and names lead to is forgotten, and made again.
        if !upstream.upstream.computed {
            let host = x.text(host).into();
            *self.0.borrow_mut() = Some(MeantUpstream { host, default_port, upstream: upstream.clone() });
        }
        Ok(Some(upstream))
    }
}

/// What `name` resolves to.
async fn look_up(x: &mut Exchange, name: &str) -> Result<Arc<DnsAnswer>, Verdict> {
    let Some((resolver, timeout)) = x.plan.core.resolver.clone() else {
        x.log_error(&format_args!("no resolver defined to resolve {name}"));
        return Err(unresolved(x));
    };
    let found = match resolver::question(name) {
        Ok(question) => {
            let shared = x.shared.clone();
            shared.waiting_for(WaitKind::Resolver, Box::pin(resolver.resolve(&question, timeout))).await
        }
        Err(failure) => Err(failure),
    };
    match found {
        Ok(answer) => {
            if answer.stale {
                x.cause = Cause::DnsStaleUsed;
            }
            remember(x, &resolver, name, &answer);
            Ok(answer)
        }
        Err(failure) => Err(failed(x, name, failure)),
    }
}

fn failed(x: &mut Exchange, name: &str, failure: DnsFailure) -> Verdict {
    x.log_error(&format_args!("{name} could not be resolved ({}: {failure})", failure.number()));
    unresolved(x)
}

/// As in nginx a session ends with another status than a request.
fn unresolved(x: &mut Exchange) -> Verdict {
    x.cause = Cause::DnsFailed;
    Verdict::Status(if x.is_session() { 500 } else { 502 })
}

/// What this worker has learned before of `name` from the location's resolver, if it has one.
fn remembered_for(x: &mut Exchange, name: &str) -> Option<Arc<DnsAnswer>> {
    let (resolver, _) = x.plan.core.resolver.as_ref()?;
    let answer = remembered(x, resolver, name)?;
    if answer.stale {
        x.cause = Cause::DnsStaleUsed;
    }
    Some(answer)
}

/// What this worker learned before, if it holds and need not be asked for in advance: without the resolver's lock.
fn remembered(x: &Exchange, resolver: &Arc<Resolver>, name: &str) -> Option<Arc<DnsAnswer>> {
    let names = of_worker(&x.worker).upstreams.names.borrow();
    let (whose, answer) = names.get(name)?;
    let same = std::ptr::eq(whose.as_ptr(), Arc::as_ptr(resolver));
    (same && clock::monotonic_ms() < answer.refresh.min(answer.until)).then(|| answer.clone())
}

fn remember(x: &Exchange, resolver: &Arc<Resolver>, name: &str, answer: &Arc<DnsAnswer>) {
    let mut names = of_worker(&x.worker).upstreams.names.borrow_mut();
    if names.len() >= ADDRESSES {
        names.clear();
    }
    names.insert(name.into(), (Arc::downgrade(resolver), answer.clone()));
}

/// The addresses of a response, IPv4 first, beginning with any of each kind: a caller that asks often asks all of them.
fn in_turn(answer: &DnsAnswer) -> impl Iterator<Item = std::net::IpAddr> {
    let (v4, v6) = answer.addresses.split_at(answer.addresses.partition_point(std::net::IpAddr::is_ipv4));
    let turn = clock::monotonic_ns() as usize / 1_000;
    let rotated = |part: &[std::net::IpAddr]| {
        let part = part.to_vec();
        let count = part.len();
        (0..count).map(move |at| part[(at + turn) % count])
    };
    rotated(v4).chain(rotated(v6))
}
