//! Servers of a group that are names, resolved again and again at run time: `server NAME resolve [service=...]`, and
//! names in lists that come at run time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weir_conf::{Error, LineCx, Result, Span, split_port};
use weir_resolver::DnsName;
use weir_rt::clock;
use weir_rt::net::SockAddr;

use crate::resolver::{self, DnsAnswer, DnsFailure, DnsQuestion, Resolver, Watch};
use crate::upstream::block::upstream::Group;
use crate::upstream::discovery::server_list::{Origin, Place};
use crate::upstream::peer::Peer;

/// Who is asked for the names of a group.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Where the group is written.
    pub(crate) place: Option<Span>,
    /// The group's own `resolver` and `resolver_timeout`.
    pub(crate) own: Option<Arc<Resolver>>,
    pub(crate) timeout: Option<u64>,
    /// Who is asked, and for how many milliseconds.
    resolver: OnceLock<(Arc<Resolver>, u64)>,
    /// The configuration has been in force: names that come are followed.
    begun: AtomicBool,
}

/// A server that is a name.
#[derive(Debug)]
pub(crate) struct Named {
    question: DnsQuestion,
    name: String,
    port: u16,
    service: Option<Box<str>>,
    answer: Mutex<Option<Arc<DnsAnswer>>>,
    /// The millisecond of the monotonic clock of the last answer; 0: there was none.
    answered: AtomicU64,
    followed: AtomicBool,
    /// The first look-up has ended, well or not.
    settled: AtomicBool,
}

impl Named {
    /// The server of a line with `resolve`; `None` for an address, which resolves to itself.
    ///
    /// # Errors
    /// nginx's words for what `service` does not go with.
    pub(crate) fn parse(line: &LineCx<'_>, resolve: bool, service: Option<&str>) -> Result<Option<Named>> {
        let text = line.arg(0);
        if service.is_some() && !resolve {
            let message = format!("service upstream \"{text}\" requires \"resolve\" parameter");
            return Err(line.fail_arg(0, message));
        }
        let literal = split_port(text).is_ok_and(|(host, _)| resolver::literal(host).is_some());
        if !resolve || text.starts_with("unix:") || (literal && service.is_none()) {
            return Ok(None);
        }
        Named::new(text, service).map(Some).map_err(|message| line.fail_arg(0, message))
    }

    /// The server called `text`: a name, with a port or a service.
    ///
    /// # Errors
    /// nginx's words for what it can't be.
    pub(crate) fn new(text: &str, service: Option<&str>) -> std::result::Result<Named, String> {
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
        Ok(Named {
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

    /// Whether both are answered alike.
    pub(crate) fn asks_as(&self, other: &Named) -> bool {
        self.question == other.question
    }

    /// The same, followed by nobody yet.
    pub(crate) fn anew(&self) -> Named {
        Named {
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
    pub(crate) fn adopt(&self, old: &Named) {
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

    fn answer(&self) -> Option<Arc<DnsAnswer>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, answer: Option<Arc<DnsAnswer>>) {
        self.answered.store(clock::monotonic_ms(), Relaxed);
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// The peers that the name stands for now, each with whether its service is one to ask when others fail.
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

impl Group {
    /// Settles who is asked for names: whom the group has, else whom `http` has.
    ///
    /// # Errors
    /// nginx's words when there is none and the group has names.
    pub(crate) fn use_resolver(&self, http: Option<&Arc<Resolver>>, timeout: u64) -> Result {
        let names = &self.names;
        let named = self.origins().list.iter().any(|origin| matches!(origin.place, Place::Name(_)));
        match names.own.as_ref().or(http) {
            Some(resolver) => {
                names.resolver.get_or_init(|| (resolver.clone(), names.timeout.unwrap_or(timeout)));
                Ok(())
            }
            None if named => {
                let error = Error::new(self.no_resolver());
                Err(match names.place {
                    Some(place) => error.at(place),
                    None => error,
                })
            }
            None => Ok(()),
        }
    }

    fn no_resolver(&self) -> String {
        let name = &self.name;
        format!("no resolver defined to resolve names at run time in upstream \"{name}\"")
    }

    /// Whether a name may be among the servers.
    ///
    /// # Errors
    /// nginx's words when nobody can be asked for it.
    pub(crate) fn may_ask(&self) -> std::result::Result<(), String> {
        if self.names.resolver.get().is_some() { Ok(()) } else { Err(self.no_resolver()) }
    }

    /// Begins to follow the names of the group.
    pub(crate) fn follow(self: &Arc<Self>) {
        self.names.begun.store(true, Relaxed);
        self.follow_new();
    }

    /// Follows names that are not followed yet.
    pub(crate) fn follow_new(self: &Arc<Self>) {
        let Some((resolver, timeout)) = self.names.resolver.get() else { return };
        if !self.names.begun.load(Relaxed) {
            return;
        }
        let named: Vec<_> = {
            let origins = self.origins();
            let named = origins.list.iter().filter_map(|origin| match &origin.place {
                Place::Name(named) => Some(named.clone()),
                Place::Fixed(_) => None,
            });
            named.filter(|named| !named.followed.swap(true, Relaxed)).collect()
        };
        for named in named {
            let (group, question, name) = (Arc::downgrade(self), named.question.clone(), named.name.clone());
            let told = move |found| group.upgrade().is_some_and(|group| group.found(&named, found));
            resolver.watch(Watch { question, name, timeout: *timeout, told: Box::new(told) });
        }
    }

    /// For how many milliseconds a request may wait for the first addresses of the group's names, which are being looked up
    /// for the first time; `None`: none is.
    pub(crate) fn awaits_names(&self) -> Option<u64> {
        let (_, timeout) = self.names.resolver.get()?;
        let awaited = |named: &Named| {
            named.followed.load(Relaxed) && !named.settled.load(Relaxed) && named.answer().is_none()
        };
        let origins = self.origins();
        let awaits =
            origins.list.iter().any(|origin| matches!(&origin.place, Place::Name(named) if awaited(named)));
        awaits.then_some(*timeout)
    }

    /// What became of a name; `false`: it is no server of the group any more. One that is not there has no addresses;
    /// one that nobody could tell about keeps those it has.
    fn found(&self, named: &Arc<Named>, found: resolver::Found) -> bool {
        let origins = self.origins();
        let listed = |origin: &Origin| matches!(&origin.place, Place::Name(one) if Arc::ptr_eq(one, named));
        if !origins.list.iter().any(listed) {
            return false;
        }
        named.settled.store(true, Relaxed);
        match found {
            Ok(answer) => named.set(Some(answer)),
            Err(DnsFailure::Code(3)) => named.set(None),
            Err(_) => {
                // Nobody waits for its first address any more.
                self.wake_waiting();
                return true;
            }
        }
        self.rebuild(&origins, &self.members());
        self.wake_waiting();
        true
    }
}
