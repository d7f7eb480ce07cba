//! The resolver: look-ups. Their queries are in `flight`.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::cache::{CacheEntry, CacheKey, KnownRecords, RecordCache};
use crate::dns_answer::{DnsAnswer, DnsFailure, DnsQuestion, DnsService};
use crate::event::{LookupId, ResolverEvent, SocketToken, Transmit};
use crate::name::DnsName;
use crate::query::DnsQuery;
use crate::servers::NameServers;
use crate::settings::ResolverSettings;
use crate::wire::{RecordData, RecordType};

/// A stub resolver. It does no I/O and has no clock.
///
/// After any `handle_*`, [`Resolver::resolve`] and [`Resolver::cached`] the caller takes all that
/// [`Resolver::poll_transmit`] and [`Resolver::poll_event`] give, and calls [`Resolver::handle_timeout`] when the time of
/// [`Resolver::poll_timeout`] has come. Times are milliseconds of a clock that does not go back.
pub struct Resolver {
    pub(crate) settings: ResolverSettings,
    pub(crate) random: Box<dyn FnMut() -> u64 + Send>,
    pub(crate) servers: NameServers,
    pub(crate) cache: RecordCache,
    pub(crate) queries: HashMap<u64, DnsQuery>,
    /// Which query a socket belongs to; [`None`]: a heartbeat of that server.
    pub(crate) sockets: HashMap<SocketToken, SocketPurpose>,
    pub(crate) transmits: VecDeque<Transmit>,
    pub(crate) events: VecDeque<ResolverEvent>,
    pub(crate) timers: BTreeSet<(u64, ResolverTimer)>,
    lookups: HashMap<LookupId, PendingLookup>,
    /// Answers as they were given last.
    answers: HashMap<DnsQuestion, Arc<DnsAnswer>>,
    hosts: HashMap<DnsName, Vec<IpAddr>>,
    numbers: u64,
    /// See [`Resolver::changes`].
    pub(crate) changes: u64,
}

/// What a socket is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SocketPurpose {
    Query(u64),
    Heartbeat { server: usize, id: u16 },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ResolverTimer {
    /// An attempt of a query was not answered yet: its number among them.
    Attempt(u64, u32),
    /// A query has no result.
    Query(u64),
    /// A look-up that could have a stale answer.
    Stale(LookupId),
    /// A look-up is over.
    Lookup(LookupId),
    /// What seems to be gone is asked for again.
    Confirm(CacheKey),
    /// A server is asked for a sign of life; the number of the last one's socket, if it is waited for.
    Heartbeat(usize, Option<SocketToken>),
}

/// A look-up that has not ended.
#[derive(Debug)]
struct PendingLookup {
    question: DnsQuestion,
    /// The names to try after this one.
    next: Vec<DnsName>,
    name: DnsName,
    keys: Vec<CacheKey>,
    /// The services are known, and their addresses are asked for.
    second: bool,
    /// It has waited long enough to take what has expired.
    impatient: bool,
    until: u64,
}

/// What there is for a look-up, of one key.
enum KeyState<'e> {
    Known,
    /// What has expired, and why there is nothing newer.
    Stale(&'e KnownRecords, Option<DnsFailure>),
    Pending,
    Failed(DnsFailure),
}

/// Milliseconds after which a look-up takes a stale answer (RFC 8767 section 5).
const IMPATIENT: u64 = 1_800;
/// Milliseconds that a stale answer is given again without asking.
pub(crate) const STALE_FOR: u64 = 5_000;
/// Queries in flight, each with a socket of its own; look-ups beyond fail, since clients may name what they like while no
/// name server answers.
const IN_FLIGHT: usize = 1_000;
/// Milliseconds that an answer is given again that is about to be confirmed.
const DOUBTED_FOR: u64 = 200;
/// Milliseconds between heartbeats to servers that do not answer.
const HEARTBEAT: u64 = 5_000;

impl Resolver {
    /// A resolver that knows nothing yet. `random` must not be predictable: forging answers takes guessing it.
    pub fn new(settings: ResolverSettings, random: impl FnMut() -> u64 + Send + 'static) -> Resolver {
        let mut resolver = Resolver {
            servers: NameServers::new(&settings.servers, &settings.backups),
            settings,
            random: Box::new(random),
            cache: RecordCache::default(),
            queries: HashMap::new(),
            sockets: HashMap::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            timers: BTreeSet::new(),
            lookups: HashMap::new(),
            answers: HashMap::new(),
            hosts: HashMap::new(),
            numbers: 0,
            changes: 0,
        };
        resolver.beat_all(0);
        resolver
    }

    /// Names that are known without asking (`/etc/hosts`).
    pub fn set_hosts(&mut self, hosts: HashMap<DnsName, Vec<IpAddr>>) {
        self.hosts = hosts;
        self.answers.clear();
    }

    /// Takes other name servers and another search list; what is known of names stays.
    pub fn set_servers(&mut self, now: u64, settings: &ResolverSettings) {
        self.settings.search.clone_from(&settings.search);
        self.settings.ndots = settings.ndots;
        if (&self.settings.servers, &self.settings.backups) == (&settings.servers, &settings.backups) {
            return;
        }
        self.settings.servers.clone_from(&settings.servers);
        self.settings.backups.clone_from(&settings.backups);
        self.servers = NameServers::new(&settings.servers, &settings.backups);
        // Numbers of servers mean others now: what is in flight begins again.
        let queries: Vec<u64> = self.queries.keys().copied().collect();
        queries.into_iter().for_each(|id| self.restart(now, id));
        let sockets = std::mem::take(&mut self.sockets);
        let (kept, gone): (HashMap<_, _>, HashMap<_, _>) =
            sockets.into_iter().partition(|(_, purpose)| matches!(purpose, SocketPurpose::Query(_)));
        self.sockets = kept;
        self.transmits.extend(gone.into_keys().map(Transmit::Close));
        self.timers.retain(|(_, timer)| !matches!(timer, ResolverTimer::Heartbeat(..)));
        self.beat_all(now);
    }

    /// How often something new became known: what [`Resolver::keep`] gives is another text then.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What is known, if it need not be asked for. In the last tenth of its time it is asked for again meanwhile.
    pub fn cached(&mut self, now: u64, question: &DnsQuestion) -> Option<Arc<DnsAnswer>> {
        let answer = self.answers.get(question).filter(|answer| now < answer.until)?.clone();
        if now >= answer.refresh && !answer.stale {
            self.refresh(now, question);
        }
        Some(answer)
    }

    /// Begins a look-up; [`ResolverEvent::Done`] ends it, after `timeout` milliseconds at the latest.
    pub fn resolve(&mut self, now: u64, question: DnsQuestion, timeout: u64) -> LookupId {
        self.numbers += 1;
        let id = LookupId(self.numbers);
        let known = match &question {
            DnsQuestion::Addresses(name) => self.hosts.get(name).cloned(),
            _ => None,
        };
        if let Some(addresses) = known {
            let answer = self.of_hosts(now, addresses);
            if let Ok(answer) = &answer {
                self.answers.insert(question, answer.clone());
            }
            self.events.push_back(ResolverEvent::Done(id, answer));
            return id;
        }
        if self.queries.len() >= IN_FLIGHT {
            self.events.push_back(ResolverEvent::Done(id, Err(DnsFailure::Code(2))));
            return id;
        }
        let mut names = self.candidates(&question);
        let name = names.pop().expect("there is one at least");
        let until = now + timeout;
        let keys = self.keys(&question, &name);
        let lookup =
            PendingLookup { question, next: names, name, keys, second: false, impatient: false, until };
        self.timers.insert((until, ResolverTimer::Lookup(id)));
        if IMPATIENT < timeout && self.settings.stale > 0 {
            self.timers.insert((now + IMPATIENT, ResolverTimer::Stale(id)));
        }
        self.lookups.insert(id, lookup);
        self.ask_missing(now, id);
        self.settle(now, id);
        id
    }

    /// Ends a look-up whose result is not wanted any more.
    pub fn cancel(&mut self, id: LookupId) {
        if let Some(lookup) = self.lookups.remove(&id) {
            self.forget(id, &lookup);
        }
    }

    /// The next thing for the caller to do on its sockets, such as sending a query; `None` when all was taken.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next event, such as the end of a look-up; `None` when all were taken.
    pub fn poll_event(&mut self) -> Option<ResolverEvent> {
        self.events.pop_front()
    }

    /// When [`Resolver::handle_timeout`] is to be called, in milliseconds of the caller's clock; `None` when nothing is
    /// pending.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Does what is due at `now`, in milliseconds: repeats queries, gives them up, and ends look-ups whose time is
    /// over.
    pub fn handle_timeout(&mut self, now: u64) {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            let Some((_, timer)) = self.timers.pop_first() else { return };
            match timer {
                ResolverTimer::Attempt(query, attempt) => self.late(now, query, attempt),
                ResolverTimer::Query(query) => self.give_up(now, query),
                ResolverTimer::Stale(id) => {
                    if let Some(lookup) = self.lookups.get_mut(&id) {
                        lookup.impatient = true;
                        self.settle(now, id);
                    }
                }
                ResolverTimer::Lookup(id) => self.end_late(now, id),
                ResolverTimer::Confirm(key) => self.ask(now, &key, now + crate::query::patience(9)),
                ResolverTimer::Heartbeat(server, waited) => self.beat(now, server, waited),
            }
        }
    }

    /// Settles all look-ups that wait for `key`.
    pub(crate) fn tell(&mut self, now: u64, key: &CacheKey) {
        let waiting = std::mem::take(&mut self.cache.entry(key).waiting);
        waiting.into_iter().for_each(|id| self.settle(now, id));
    }

    /// The interval of heartbeats to `server`; `None`: it needs none.
    pub(crate) fn heartbeat(&self, server: usize) -> Option<u64> {
        if self.servers.is_down(server) {
            return Some(self.settings.heartbeat.unwrap_or(HEARTBEAT).min(HEARTBEAT));
        }
        self.settings.heartbeat
    }

    /// The names to try, the first one last.
    fn candidates(&self, question: &DnsQuestion) -> Vec<DnsName> {
        match question {
            DnsQuestion::Service(name) => vec![name.clone()],
            DnsQuestion::Names(address) => vec![DnsName::of_address(*address)],
            DnsQuestion::Addresses(name) => {
                let within: Vec<_> =
                    self.settings.search.iter().rev().filter_map(|domain| name.within(domain)).collect();
                match name.dots() >= self.settings.ndots {
                    true => [&within[..], std::slice::from_ref(name)].concat(),
                    false => [std::slice::from_ref(name), &within[..]].concat(),
                }
            }
        }
    }

    fn keys(&self, question: &DnsQuestion, name: &DnsName) -> Vec<CacheKey> {
        match question {
            DnsQuestion::Service(_) => vec![(name.clone(), RecordType::Srv)],
            DnsQuestion::Names(_) => vec![(name.clone(), RecordType::Ptr)],
            DnsQuestion::Addresses(_) => self.address_keys(name).collect(),
        }
    }

    fn address_keys(&self, name: &DnsName) -> impl Iterator<Item = CacheKey> + use<> {
        let (v4, v6) =
            (self.settings.ipv4.then_some(RecordType::A), self.settings.ipv6.then_some(RecordType::Aaaa));
        let name = name.clone();
        v4.into_iter().chain(v6).map(move |kind| (name.clone(), kind))
    }

    fn of_hosts(&self, now: u64, addresses: Vec<IpAddr>) -> Result<Arc<DnsAnswer>, DnsFailure> {
        let wanted = |ip: &IpAddr| if ip.is_ipv4() { self.settings.ipv4 } else { self.settings.ipv6 };
        let mut addresses: Vec<IpAddr> = addresses.into_iter().filter(wanted).collect();
        addresses.sort_by_key(IpAddr::is_ipv6);
        if addresses.is_empty() {
            return Err(DnsFailure::Code(3));
        }
        let until = now + STALE_FOR;
        let (services, names) = (Vec::new(), Vec::new());
        Ok(Arc::new(DnsAnswer { addresses, services, names, until, refresh: until, stale: false }))
    }

    /// Asks for what a look-up needs, is not known, and was not asked for yet.
    fn ask_missing(&mut self, now: u64, id: LookupId) {
        let Some(lookup) = self.lookups.get(&id) else { return };
        let until = lookup.until;
        for key in lookup.keys.clone() {
            let entry = self.cache.get(&key);
            // No server could tell a moment ago, and there is something to go on with.
            let stale = entry.filter(|entry| entry.stale(now, self.settings.stale).is_some());
            let quiet = stale.is_some_and(|entry| {
                entry.denials > 0 || entry.failure.is_some_and(|(_, until)| now < until)
            });
            if !quiet && entry.is_none_or(|entry| entry.fresh(now).is_none()) {
                self.ask(now, &key, until);
            }
            let entry = self.cache.entry(&key);
            if entry.query.is_some() {
                entry.waiting.push(id);
            }
        }
    }

    /// Asks in advance for what an answer was made of.
    fn refresh(&mut self, now: u64, question: &DnsQuestion) {
        let Some(name) = self.candidates(question).pop() else { return };
        let mut keys = self.keys(question, &name);
        let targets: Vec<DnsName> = keys.iter().flat_map(|key| self.targets(key)).collect();
        keys.extend(targets.iter().flat_map(|target| self.address_keys(target)));
        for key in keys {
            let due = self.cache.get(&key).and_then(|entry| entry.known.as_ref()).map(|known| known.refresh);
            if due.is_none_or(|due| now >= due) {
                self.ask(now, &key, now + 2 * STALE_FOR);
            }
        }
    }

    /// Ends a look-up if everything it needs is there, or can't be had.
    fn settle(&mut self, now: u64, id: LookupId) {
        let Some(lookup) = self.lookups.get(&id) else { return };
        let (mut stale, mut failure) = (false, None);
        for key in &lookup.keys {
            match self.state(now, key, lookup.impatient) {
                KeyState::Pending => return,
                KeyState::Known => {}
                // Nothing that has expired is less than what could not be determined.
                KeyState::Stale(known, why) if known.records.is_empty() => failure = failure.or(why),
                KeyState::Stale(..) => stale = true,
                // Some servers of a service are better than none.
                KeyState::Failed(why) if lookup.second => failure = failure.or(Some(why)),
                KeyState::Failed(why) => return self.end(id, Err(why)),
            }
        }
        if !lookup.second && matches!(lookup.question, DnsQuestion::Service(_)) {
            return self.ask_targets(now, id);
        }
        match (self.assemble(now, lookup, stale), failure) {
            (Some(answer), _) => self.end(id, Ok(Arc::new(answer))),
            (None, Some(failure)) => self.end(id, Err(failure)),
            (None, None) => self.try_next(now, id),
        }
    }

    /// The services are known: now their addresses.
    fn ask_targets(&mut self, now: u64, id: LookupId) {
        let Some(service) = self.lookups.get(&id).and_then(|lookup| lookup.keys.first().cloned()) else {
            return;
        };
        let targets = self.targets(&service);
        let keys: Vec<CacheKey> = targets.iter().flat_map(|target| self.address_keys(target)).collect();
        if let Some(lookup) = self.lookups.get_mut(&id) {
            lookup.second = true;
            lookup.keys = keys;
            self.ask_missing(now, id);
            if let Some(lookup) = self.lookups.get_mut(&id) {
                lookup.keys.push(service);
            }
            self.settle(now, id);
        }
    }

    /// The names that the services of `key` are at; the root means "not here" (RFC 2782).
    fn targets(&self, key: &CacheKey) -> Vec<DnsName> {
        let known = self.cache.get(key).and_then(|entry| entry.known.as_ref());
        let mut targets = Vec::new();
        for data in known.iter().flat_map(|known| &known.records) {
            if let RecordData::Service { target, .. } = data
                && *target != DnsName::root()
                && !targets.contains(target)
            {
                targets.push(target.clone());
            }
        }
        targets
    }

    fn state(&self, now: u64, key: &CacheKey, impatient: bool) -> KeyState<'_> {
        let Some(entry) = self.cache.get(key) else { return KeyState::Pending };
        if entry.fresh(now).is_some() {
            return KeyState::Known;
        }
        let stale = entry.stale(now, self.settings.stale);
        // What is being confirmed is in use until it is.
        let settled = entry.query.is_none() || impatient || entry.denials > 0;
        match (stale, entry.failure) {
            (Some(known), failure) if settled => KeyState::Stale(known, failure.map(|(why, _)| why)),
            (None, Some((failure, _))) if entry.query.is_none() => KeyState::Failed(failure),
            (None, None) if entry.query.is_none() => KeyState::Failed(DnsFailure::TimedOut),
            _ => KeyState::Pending,
        }
    }

    /// The answer of what is known; `None`: there is nothing.
    fn assemble(&self, now: u64, lookup: &PendingLookup, stale: bool) -> Option<DnsAnswer> {
        let entries = lookup.keys.iter().filter_map(|key| self.known(key));
        let mut answer = DnsAnswer {
            addresses: Vec::new(),
            services: Vec::new(),
            names: Vec::new(),
            until: entries.clone().map(|known| known.until).min()?,
            refresh: entries.map(|known| known.refresh).min()?,
            stale,
        };
        if stale || answer.until <= now {
            // What is being confirmed will be known soon.
            let doubted = |key| self.cache.get(key).is_some_and(|entry| entry.denials > 0);
            let lasts = if lookup.keys.iter().any(doubted) { DOUBTED_FOR } else { STALE_FOR };
            (answer.until, answer.refresh) = (now + lasts, now + lasts);
        }
        match &lookup.question {
            DnsQuestion::Addresses(_) => answer.addresses = self.addresses(&lookup.name),
            DnsQuestion::Service(_) => answer.services = self.services(lookup.keys.last()?),
            DnsQuestion::Names(_) => {
                let known = self.known(lookup.keys.first()?)?;
                answer.names.extend(known.records.iter().filter_map(|data| match data {
                    RecordData::Name(name) => Some(name.clone()),
                    _ => None,
                }));
            }
        }
        let nothing = answer.addresses.is_empty()
            && answer.names.is_empty()
            && answer.services.iter().all(|service| service.addresses.is_empty());
        (!nothing).then_some(answer)
    }

    fn known(&self, key: &CacheKey) -> Option<&KnownRecords> {
        self.cache.get(key).and_then(|entry| entry.known.as_ref())
    }

    fn addresses(&self, name: &DnsName) -> Vec<IpAddr> {
        self.address_keys(name).filter_map(|key| self.known(&key)).flat_map(KnownRecords::addresses).collect()
    }

    fn services(&self, key: &CacheKey) -> Vec<DnsService> {
        let records = self.known(key).map(|known| &known.records[..]).unwrap_or_default();
        let mut services: Vec<DnsService> = records
            .iter()
            .filter_map(|data| match data {
                RecordData::Service { priority, weight, port, target } => Some(DnsService {
                    priority: *priority,
                    weight: *weight,
                    port: *port,
                    target: target.clone(),
                    addresses: self.addresses(target),
                }),
                _ => None,
            })
            .collect();
        services.sort_by_key(|service| service.priority);
        services
    }

    /// There is no such name: the next of the search list, if there is one.
    fn try_next(&mut self, now: u64, id: LookupId) {
        let Some(lookup) = self.lookups.get_mut(&id) else { return };
        let Some(name) = lookup.next.pop() else { return self.end(id, Err(DnsFailure::Code(3))) };
        lookup.name = name.clone();
        let question = lookup.question.clone();
        let keys = self.keys(&question, &name);
        if let Some(lookup) = self.lookups.get_mut(&id) {
            lookup.keys = keys;
        }
        self.ask_missing(now, id);
        self.settle(now, id);
    }

    /// The time of a look-up is over: what has expired is better than nothing.
    fn end_late(&mut self, now: u64, id: LookupId) {
        if let Some(lookup) = self.lookups.get_mut(&id) {
            lookup.impatient = true;
            self.settle(now, id);
            self.end(id, Err(DnsFailure::TimedOut));
        }
    }

    fn end(&mut self, id: LookupId, result: Result<Arc<DnsAnswer>, DnsFailure>) {
        let Some(lookup) = self.lookups.remove(&id) else { return };
        self.forget(id, &lookup);
        match &result {
            Ok(answer) => {
                if self.answers.len() >= self.settings.names {
                    self.answers.clear();
                }
                self.answers.insert(lookup.question, answer.clone());
            }
            Err(_) => {
                self.answers.remove(&lookup.question);
            }
        }
        self.events.push_back(ResolverEvent::Done(id, result));
    }

    fn forget(&mut self, id: LookupId, lookup: &PendingLookup) {
        self.timers.remove(&(lookup.until, ResolverTimer::Lookup(id)));
        for key in &lookup.keys {
            self.cache.entry(key).waiting.retain(|waiting| *waiting != id);
        }
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Whether anybody waits for what an entry is about.
    pub(crate) fn entry(&mut self, key: &CacheKey) -> &mut CacheEntry {
        self.cache.entry(key)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queries, lookups) = (self.queries.len(), self.lookups.len());
        f.debug_struct("Resolver")
            .field("queries", &queries)
            .field("lookups", &lookups)
            .finish_non_exhaustive()
    }
}
