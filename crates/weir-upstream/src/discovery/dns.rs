//! Servers of an upstream that are names, resolved again and again at run time: `server NAME resolve [service=...]`,
//! and names in lists that come at run time.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weir_conf::{LineCx, Result, Span, split_port};
use weir_resolver::DnsName;
use weir_rt::clock;
use weir_rt::net::SockAddr;

use crate::peer::Peer;
use weir_engine::resolver::{self, DnsAnswer, DnsQuestion, Resolver};

/// The resolver that is asked for the names of an upstream.
#[derive(Debug, Default)]
pub(crate) struct UpstreamNames {
    /// Where the upstream is written.
    pub(crate) place: Option<Span>,
    /// The upstream's own `resolver` and `resolver_timeout`.
    pub(crate) own: Option<Arc<Resolver>>,
    pub(crate) timeout: Option<u64>,
    /// The resolver, and for how many milliseconds it is asked.
    pub(crate) resolver: OnceLock<(Arc<Resolver>, u64)>,
    /// The configuration has been in force: names that come are followed.
    pub(crate) begun: AtomicBool,
}

/// A server that is a name.
#[derive(Debug)]
pub(crate) struct FollowedName {
    pub(crate) question: DnsQuestion,
    pub(crate) name: String,
    port: u16,
    service: Option<Box<str>>,
    answer: Mutex<Option<Arc<DnsAnswer>>>,
    /// The millisecond of the monotonic clock of the last answer; 0: none yet.
    answered: AtomicU64,
    pub(crate) followed: AtomicBool,
    /// The first look-up has ended, well or not.
    pub(crate) settled: AtomicBool,
}

impl FollowedName {
    /// The server of a line with `resolve`; `None` for an address, which resolves to itself.
    ///
    /// # Errors
    /// nginx's words for what `service` does not go with.
    pub(crate) fn parse(
        line: &LineCx<'_>,
        resolve: bool,
        service: Option<&str>,
    ) -> Result<Option<FollowedName>> {
        let text = line.arg(0);
        if service.is_some() && !resolve {
            let message = format!("service upstream \"{text}\" requires \"resolve\" parameter");
            return Err(line.fail_arg(0, message));
        }
        let literal = split_port(text).is_ok_and(|(host, _)| resolver::literal(host).is_some());
        if !resolve || text.starts_with("unix:") || (literal && service.is_none()) {
            return Ok(None);
        }
        FollowedName::new(text, service).map(Some).map_err(|message| line.fail_arg(0, message))
    }

    /// The server called `text`: a name, with a port or a service.
    ///
    /// # Errors
    /// nginx's words for what it can't be.
    pub(crate) fn new(text: &str, service: Option<&str>) -> std::result::Result<FollowedName, String> {
        let (host, port) = split_port(text).map_err(|_| format!("invalid port in upstream \"{text}\""))?;
        let fail = |reason: &str| Err(format!("service upstream \"{text}\" {reason}"));
        if service.is_some() && port.is_some() {
            return fail("may not have port");
        }
        if service.is_some() && resolver::literal(host).is_some() {
            return fail("requires domain name");
        }
        let none = || format!("invalid host in upstream \"{text}\"");
        let (question, name) = match service {
            None => (DnsQuestion::Addresses(DnsName::parse(host).ok_or_else(none)?), host.to_owned()),
            Some(service) => {
                // As in RFC 2782 unless the parts are there already.
                let full = match service.contains('.') {
                    true => format!("{service}.{host}"),
                    false => format!("_{service}._tcp.{host}"),
                };
                let question = DnsQuestion::Service(DnsName::parse(&full).ok_or_else(none)?);
                (question, format!("service {service} of {host}"))
            }
        };
        Ok(FollowedName {
            question,
            name,
            port: port.unwrap_or(80),
            service: service.map(Box::from),
            answer: Mutex::new(None),
            answered: AtomicU64::new(0),
            followed: AtomicBool::new(false),
            settled: AtomicBool::new(false),
        })
    }

    /// `service=`
    pub(crate) fn service(&self) -> Option<&str> {
        self.service.as_deref()
    }

    /// Whether both get the same answer.
    pub(crate) fn asks_as(&self, other: &FollowedName) -> bool {
        self.question == other.question
    }

    /// The same name, not followed yet.
    pub(crate) fn anew(&self) -> FollowedName {
        FollowedName {
            question: self.question.clone(),
            name: self.name.clone(),
            port: self.port,
            service: self.service.clone(),
            answer: Mutex::new(self.answer()),
            answered: AtomicU64::new(self.answered.load(Relaxed)),
            followed: AtomicBool::new(false),
            settled: AtomicBool::new(false),
        }
    }

    /// Takes over what `old` knows, unless something is known.
    pub(crate) fn adopt(&self, old: &FollowedName) {
        if self.answer().is_none() {
            *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = old.answer();
            self.answered.store(old.answered.load(Relaxed), Relaxed);
        }
    }

    /// What name servers said last, and how many milliseconds ago.
    pub(crate) fn last(&self) -> Option<(Arc<DnsAnswer>, u64)> {
        let age = clock::monotonic_ms().saturating_sub(self.answered.load(Relaxed));
        self.answer().map(|answer| (answer, age))
    }

    pub(crate) fn answer(&self) -> Option<Arc<DnsAnswer>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, answer: Option<Arc<DnsAnswer>>) {
        self.answered.store(clock::monotonic_ms(), Relaxed);
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// The peers that the name resolves to now, each with whether its service is one to ask when others fail.
    pub(crate) fn peers(&self, model: &Peer) -> Vec<(Peer, bool)> {
        let Some(answer) = self.answer() else { return Vec::new() };
        let peer = |addr: SockAddr, weight: u32| Peer {
            name: addr.to_string().into(),
            addr,
            weight: model.weight.saturating_mul(weight.max(1)),
            state: Arc::default(),
            ..model.clone()
        };
        let plain = answer.addresses.iter().map(|ip| (peer((*ip, self.port).into(), 1), false));
        let first = answer.services.first().map_or(0, |service| service.priority);
        let services = answer.services.iter().flat_map(|service| {
            let at = |ip: &std::net::IpAddr| peer((*ip, service.port).into(), service.weight.into());
            service.addresses.iter().map(move |ip| (at(ip), service.priority != first))
        });
        plain.chain(services).collect()
    }
}
