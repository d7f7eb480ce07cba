//! Servers of a group that are names, resolved again and again at run time: `server NAME resolve [service=...]`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weir_conf::{Error, LineCx, Result, Span};
use weir_resolver::Name;
use weir_rt::net::SockAddr;

use super::group::{Group, Members, Peer, split_port};
use crate::resolver::{self, Answer, Failure, Question, Resolver, Watch};

/// The servers of a group of which some are names, in the file's order.
#[derive(Debug)]
pub(crate) struct Names {
    origins: Vec<Origin>,
    /// Where the group is written.
    place: Span,
    /// The group's own `resolver` and `resolver_timeout`.
    own: Option<Arc<Resolver>>,
    timeout: Option<u64>,
    /// Who is asked, and for how many milliseconds.
    resolver: OnceLock<(Arc<Resolver>, u64)>,
    followed: AtomicBool,
}

/// What a `server` line stands for.
#[derive(Debug)]
pub(crate) struct Origin {
    /// `backup`
    pub(crate) backup: bool,
    /// Its addresses, where they are known from the beginning.
    pub(crate) peers: Vec<Arc<Peer>>,
    /// Its name, else.
    pub(crate) named: Option<Named>,
}

/// A server that is a name.
#[derive(Debug)]
pub(crate) struct Named {
    question: Question,
    name: String,
    port: u16,
    /// What else its line says.
    model: Peer,
    answer: Mutex<Option<Arc<Answer>>>,
}

impl Named {
    /// The server of a line with `resolve`; `None` for an address, which resolves to itself.
    ///
    /// # Errors
    /// nginx's words for what `service` does not go with.
    pub(crate) fn parse(
        line: &LineCx<'_>,
        resolve: bool,
        service: Option<&str>,
        model: &Peer,
    ) -> Result<Option<Named>> {
        let text = line.arg(0);
        let fail = |reason: &str| line.fail_arg(0, format!("service upstream \"{text}\" {reason}"));
        if service.is_some() && !resolve {
            return Err(fail("requires \"resolve\" parameter"));
        }
        if !resolve || text.starts_with("unix:") {
            return Ok(None);
        }
        let parts = split_port(text);
        let (host, port) =
            parts.map_err(|_| line.fail_arg(0, format!("invalid port in upstream \"{text}\"")))?;
        if service.is_some() && port.is_some() {
            return Err(fail("may not have port"));
        }
        if resolver::literal(host).is_some() {
            return service.map_or(Ok(None), |_| Err(fail("requires domain name")));
        }
        let none = || line.fail_arg(0, format!("invalid host in upstream \"{text}\""));
        let (question, name) = match service {
            None => (Question::Addresses(Name::parse(host).ok_or_else(none)?), host.to_owned()),
            Some(service) => {
                // As in RFC 2782 unless the parts are there already.
                let full = match service.contains('.') {
                    true => format!("{service}.{host}"),
                    false => format!("_{service}._tcp.{host}"),
                };
                let question = Question::Service(Name::parse(&full).ok_or_else(none)?);
                (question, format!("service {service} of {host}"))
            }
        };
        let answer = Mutex::new(None);
        Ok(Some(Named { question, name, port: port.unwrap_or(80), model: model.clone(), answer }))
    }

    fn answer(&self) -> Option<Arc<Answer>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, answer: Option<Arc<Answer>>) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// The peers that the name stands for now, each with whether its service is one to ask when others fail.
    fn peers(&self) -> Vec<(Peer, bool)> {
        let Some(answer) = self.answer() else { return Vec::new() };
        let peer = |addr: SockAddr, weight: u32| Peer {
            name: addr.to_string().into(),
            addr,
            weight: self.model.weight.saturating_mul(weight.max(1)),
            state: Arc::default(),
            ..self.model.clone()
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

impl Names {
    /// The servers of a group, with what it says itself about who is asked, and for how many milliseconds.
    pub(crate) fn new(
        origins: Vec<Origin>,
        place: Span,
        own: Option<Arc<Resolver>>,
        timeout: Option<u64>,
    ) -> Names {
        let (resolver, followed) = (OnceLock::new(), AtomicBool::new(false));
        Names { origins, place, own, timeout, resolver, followed }
    }

    fn named(&self) -> impl Iterator<Item = &Named> {
        self.origins.iter().filter_map(|origin| origin.named.as_ref())
    }

    /// The members of now. Peers of `before` that are still there stay what they are, with what is known of them.
    fn members(&self, before: &Members) -> Members {
        let mut old: Vec<&Arc<Peer>> = before.primary.iter().chain(&before.backup).collect();
        let mut members = Members::default();
        for origin in &self.origins {
            let named = origin.named.iter().flat_map(Named::peers);
            let fixed = origin.peers.iter().map(|peer| ((**peer).clone(), false));
            for (peer, behind) in fixed.chain(named) {
                let known = old.iter().position(|old| old.name == peer.name && old.server == peer.server);
                // One of the same address and weight is the same; of several such lines each finds its own.
                let peer = match known.map(|at| old.swap_remove(at)) {
                    Some(old) if old.weight == peer.weight => old.clone(),
                    Some(old) => Arc::new(Peer { state: old.state.clone(), ..peer }),
                    None => Arc::new(peer),
                };
                let into = if origin.backup || behind { &mut members.backup } else { &mut members.primary };
                into.push(peer);
            }
        }
        members
    }
}

impl Group {
    /// Settles who is asked for names: whom the group has, else whom `http` has.
    ///
    /// # Errors
    /// nginx's words when there is none.
    pub(crate) fn use_resolver(&self, http: Option<&Arc<Resolver>>, timeout: u64) -> Result {
        let Some(names) = self.names.get() else { return Ok(()) };
        let none = || {
            let name = &self.name;
            let message = format!("no resolver defined to resolve names at run time in upstream \"{name}\"");
            Error::new(message).at(names.place)
        };
        let resolver = names.own.as_ref().or(http).ok_or_else(none)?;
        names.resolver.get_or_init(|| (resolver.clone(), names.timeout.unwrap_or(timeout)));
        Ok(())
    }

    /// Takes what the group of this name in the configuration before knows of names, until they are asked for again.
    pub(crate) fn adopt_names(&self, before: &Group) {
        let Some(names) = self.names.get() else { return };
        for named in names.named().filter(|named| named.answer().is_none()) {
            let old =
                before.names.get().and_then(|old| old.named().find(|old| old.question == named.question));
            named.set(old.and_then(Named::answer));
        }
        // Who they were is told by their addresses, for all members alike.
        self.set_members(names.members(&Members::default()));
    }

    /// Begins to follow the names of the group, once.
    pub(crate) fn follow(self: &Arc<Self>) {
        let Some(names) = self.names.get() else { return };
        let Some((resolver, timeout)) = names.resolver.get() else { return };
        if names.followed.swap(true, Relaxed) {
            return;
        }
        for (at, named) in names.named().enumerate() {
            let group = Arc::downgrade(self);
            let told = move |found| group.upgrade().is_some_and(|group| group.found(at, found));
            let (question, name) = (named.question.clone(), named.name.clone());
            resolver.watch(Watch { question, name, timeout: *timeout, told: Box::new(told) });
        }
    }

    /// What became of name number `at`. One that is not there has no addresses; one that nobody could tell about keeps
    /// those it has.
    fn found(&self, at: usize, found: resolver::Found) -> bool {
        let Some(names) = self.names.get() else { return false };
        let Some(named) = names.named().nth(at) else { return false };
        let before = named.peers();
        match found {
            Ok(answer) => named.set(Some(answer)),
            Err(Failure::Code(3)) => named.set(None),
            Err(_) => return true,
        }
        let same = |(a, b): (&(Peer, bool), &(Peer, bool))| {
            (&a.0.name, a.0.weight, a.1) == (&b.0.name, b.0.weight, b.1)
        };
        let now = named.peers();
        if before.len() != now.len() || !before.iter().zip(&now).all(same) {
            self.set_members(names.members(&self.members()));
        }
        true
    }
}
