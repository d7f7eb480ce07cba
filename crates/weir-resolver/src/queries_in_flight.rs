//! The resolver's queries: attempts, answers, results, heartbeats.

use crate::cache::{CacheKey, KnownRecords};
use crate::event::{ResolverEvent, SocketToken, Transmit};
use crate::name::DnsName;
use crate::query::{DnsQuery, QueryAttempt, ResponseMeaning, patience};
use crate::resolver::{Resolver, ResolverTimer, STALE_FOR, SocketPurpose};
use crate::wire::{self, DnsResponse, QueryOptions, RecordType};

/// Seconds that "there is nothing" holds at most (RFC 2308 section 7.1 allows more), and without a word about it.
const NOTHING: (u32, u32) = (300, 1);
/// Milliseconds before what seems to be gone is asked for again; doubled each time.
const CONFIRM: u64 = 100;

/// How a query goes to its server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QueryTransport {
    Datagram,
    Stream,
}

impl Resolver {
    /// A datagram has come from the server that `token`'s went to. What does not belong there is ignored: whatever sent
    /// it, the answer may still come.
    pub fn handle_datagram(&mut self, now: u64, token: SocketToken, bytes: &[u8]) {
        self.handle(now, token, bytes);
    }

    /// A message has come over the connection `token`, its length taken off.
    pub fn handle_stream(&mut self, now: u64, token: SocketToken, bytes: &[u8]) {
        self.handle(now, token, bytes);
    }

    /// The socket `token` is of no use: nothing listens there, or the connection ended.
    pub fn handle_error(&mut self, now: u64, token: SocketToken) {
        match self.sockets.get(&token) {
            Some(SocketPurpose::Query(id)) => self.fail_attempt(now, *id, token, None),
            // The next one is due anyway.
            Some(SocketPurpose::Heartbeat { .. }) => {
                self.sockets.remove(&token);
            }
            None => {}
        }
    }

    fn handle(&mut self, now: u64, token: SocketToken, bytes: &[u8]) {
        let Some(purpose) = self.sockets.get(&token).copied() else { return };
        let Some(response) = wire::parse(bytes) else { return };
        match purpose {
            SocketPurpose::Heartbeat { server, id } if response.id == id => {
                self.sockets.remove(&token);
                self.transmits.push_back(Transmit::Close(token));
                self.alive(server);
            }
            SocketPurpose::Heartbeat { .. } => {}
            SocketPurpose::Query(query) => self.answered(now, query, token, &response),
        }
    }

    fn answered(&mut self, now: u64, id: u64, token: SocketToken, response: &DnsResponse) {
        let Some(query) = self.queries.get_mut(&id) else { return };
        let Some(attempt) = query.attempts.iter().find(|attempt| attempt.token == token) else { return };
        let asked = response.question.0 == query.name && response.question.1 == query.key.1 as u16;
        if response.id != attempt.id || !asked {
            return;
        }
        let (server, stream, edns) = (attempt.server, attempt.stream, attempt.edns);
        self.alive(server);
        let Some(query) = self.queries.get_mut(&id) else { return };
        if response.truncated && !stream {
            // Each copy of such a datagram, and each server that sends one, would open a connection of its own.
            if !std::mem::replace(&mut query.streamed, true) {
                return self.attempt(now, id, server, QueryTransport::Stream);
            }
            if query.attempts.iter().any(|attempt| attempt.stream) {
                return;
            }
            // The connection has failed: what this server has can't be had.
            return self.fail_attempt(now, id, token, Some(2));
        }
        match query.meaning(response) {
            // A server of before 1999, perhaps.
            ResponseMeaning::Failed(1 | 4) if edns => {
                self.servers.without_options(server);
                self.attempt(now, id, server, QueryTransport::Datagram);
            }
            ResponseMeaning::Failed(code) => self.fail_attempt(now, id, token, Some(code)),
            ResponseMeaning::Found(records, ttl) => {
                let (min, max) = self.settings.ttl;
                let lasts = self.settings.valid.unwrap_or((u64::from(ttl) * 1000).clamp(min, max));
                let key = self.close(id);
                self.found(now, key, KnownRecords::new(records, now, lasts));
            }
            ResponseMeaning::Nothing(ttl) => {
                let key = self.close(id);
                self.nothing(now, key, ttl);
            }
            ResponseMeaning::Alias(name, ttl) => {
                query.aliases += 1;
                query.ttl = ttl;
                query.name = name;
                if query.aliases > crate::query::ALIASES {
                    return self.fail_attempt(now, id, token, Some(2));
                }
                self.restart(now, id);
            }
        }
    }

    /// Asks for `key` unless a query for it is in flight; until `until` at least.
    pub(crate) fn ask(&mut self, now: u64, key: &CacheKey, until: u64) {
        if let Some(id) = self.entry(key).query {
            if let Some(query) = self.queries.get_mut(&id)
                && query.until < until
            {
                self.timers.remove(&(query.until, ResolverTimer::Query(id)));
                query.until = until;
                self.timers.insert((until, ResolverTimer::Query(id)));
            }
            return;
        }
        let id = self.number();
        let (most, stale) = (self.settings.names, self.settings.stale);
        self.entry(key).query = Some(id);
        self.cache.limit(most, now, stale);
        let query = DnsQuery {
            key: key.clone(),
            name: key.0.clone(),
            aliases: 0,
            ttl: u32::MAX,
            order: Vec::new(),
            asked: 0,
            code: None,
            attempts: Vec::new(),
            streamed: false,
            until,
        };
        self.queries.insert(id, query);
        self.timers.insert((until, ResolverTimer::Query(id)));
        self.restart(now, id);
    }

    /// Asks all servers again.
    pub(crate) fn restart(&mut self, now: u64, id: u64) {
        let order = self.servers.order();
        let Some(query) = self.queries.get_mut(&id) else { return };
        query.code = None;
        query.streamed = false;
        query.order = order;
        query.order.reverse();
        for attempt in query.attempts.drain(..) {
            self.sockets.remove(&attempt.token);
            self.transmits.push_back(Transmit::Close(attempt.token));
        }
        self.next_server(now, id);
    }

    /// The next server of this round, or the first of another one when the last was long enough ago.
    fn next_server(&mut self, now: u64, id: u64) {
        let Some(query) = self.queries.get_mut(&id) else { return };
        match query.order.pop() {
            Some(server) => self.attempt(now, id, server, QueryTransport::Datagram),
            // All said that they can't say.
            None if query.code.is_some() => self.give_up(now, id),
            None => {
                query.asked += 1;
                let timer = ResolverTimer::Attempt(id, query.asked);
                self.timers.insert((now + patience(query.asked), timer));
                // No look-up waits for what can't be reached, if there is something to go on with.
                let key = query.key.clone();
                self.impatience(now, &key);
            }
        }
    }

    /// No server can be reached: look-ups that can have a stale answer get it now.
    fn impatience(&mut self, now: u64, key: &CacheKey) {
        let stale = self.settings.stale;
        let entry = self.entry(key);
        if entry.stale(now, stale).is_some()
            && entry.fresh(now).is_none()
            && let Some(id) = entry.query
        {
            self.give_up(now, id);
        }
    }

    fn attempt(&mut self, now: u64, id: u64, server: usize, transport: QueryTransport) {
        let stream = transport == QueryTransport::Stream;
        let (number, random) = (self.number(), (self.random)());
        let token = SocketToken(number);
        let Some(query) = self.queries.get_mut(&id) else { return };
        let to = self.servers.get(server);
        let edns = !to.plain;
        let attempt = QueryAttempt { token, server, id: random as u16, stream, edns, late: false };
        let mut bytes = wire::query(
            attempt.id,
            &query.name,
            query.key.1,
            if edns { QueryOptions::Edns } else { QueryOptions::None },
        );
        if stream {
            let length = bytes.len() as u16;
            bytes.splice(..0, length.to_be_bytes());
        }
        query.asked += 1;
        query.attempts.push(attempt);
        self.timers.insert((now + patience(query.asked), ResolverTimer::Attempt(id, query.asked)));
        self.sockets.insert(token, SocketPurpose::Query(id));
        self.transmits.push_back(match stream {
            true => Transmit::Stream { token, server: to.addr, bytes },
            false => Transmit::Datagram { token, server: to.addr, bytes },
        });
    }

    /// Attempt number `asked` was not answered so far. Its answer is taken when it comes after all.
    pub(crate) fn late(&mut self, now: u64, id: u64, asked: u32) {
        let Some(query) = self.queries.get_mut(&id).filter(|query| query.asked == asked) else { return };
        if let Some(attempt) = query.attempts.last_mut().filter(|attempt| !attempt.late) {
            attempt.late = true;
            let server = attempt.server;
            self.failed(now, server);
        }
        let Some(query) = self.queries.get_mut(&id) else { return };
        if query.order.is_empty() {
            if query.code.is_some() {
                return self.give_up(now, id);
            }
            let key = query.key.clone();
            self.impatience(now, &key);
            let order = self.servers.order();
            let Some(query) = self.queries.get_mut(&id) else { return };
            query.order = order;
            query.order.reverse();
        }
        // Without servers there is nothing but to wait.
        if self.servers.len() > 0 {
            self.next_server(now, id);
        }
    }

    /// An attempt has failed: the next server, at once.
    fn fail_attempt(&mut self, now: u64, id: u64, token: SocketToken, code: Option<u8>) {
        self.sockets.remove(&token);
        self.transmits.push_back(Transmit::Close(token));
        let Some(query) = self.queries.get_mut(&id) else { return };
        let Some(at) = query.attempts.iter().position(|attempt| attempt.token == token) else { return };
        let attempt = query.attempts.remove(at);
        query.code = query.code.or(code);
        let last = at == query.attempts.len();
        if !attempt.late && code.is_none() {
            self.failed(now, attempt.server);
        }
        // A late one's successor is on its way already.
        if last && !attempt.late {
            self.next_server(now, id);
        }
    }

    /// There is no result, and will not be one.
    pub(crate) fn give_up(&mut self, now: u64, id: u64) {
        let Some(query) = self.queries.get(&id) else { return };
        let failure = query.failure();
        let key = self.close(id);
        self.entry(&key).failure = Some((failure, now + STALE_FOR));
        self.tell(now, &key);
    }

    fn found(&mut self, now: u64, key: CacheKey, known: KnownRecords) {
        self.changes += 1;
        let entry = self.entry(&key);
        entry.known = Some(known);
        entry.failure = None;
        entry.denials = 0;
        self.tell(now, &key);
    }

    /// Nothing is there. If something was, that must be said several times.
    fn nothing(&mut self, now: u64, key: CacheKey, ttl: Option<u32>) {
        let (stale, confirm, valid) = (self.settings.stale, self.settings.confirm, self.settings.valid);
        let entry = self.entry(&key);
        entry.failure = None;
        if entry.worth(now, stale).is_some() {
            entry.denials += 1;
            if entry.denials < confirm {
                let again = now + (CONFIRM << (entry.denials - 1).min(16));
                self.timers.insert((again, ResolverTimer::Confirm(key.clone())));
                return self.tell(now, &key);
            }
        }
        let seconds = ttl.map_or(NOTHING.1, |ttl| ttl.clamp(NOTHING.1, NOTHING.0));
        let lasts = (u64::from(seconds) * 1000).min(valid.unwrap_or(u64::MAX));
        entry.denials = 0;
        entry.known = Some(KnownRecords::new(Vec::new(), now, lasts));
        self.changes += 1;
        self.tell(now, &key);
    }

    /// Takes a query out, with its sockets.
    fn close(&mut self, id: u64) -> CacheKey {
        let query = self.queries.remove(&id).expect("the caller has found it");
        self.timers.remove(&(query.until, ResolverTimer::Query(id)));
        for attempt in query.attempts {
            self.sockets.remove(&attempt.token);
            self.transmits.push_back(Transmit::Close(attempt.token));
        }
        self.entry(&query.key).query = None;
        query.key
    }

    fn failed(&mut self, now: u64, server: usize) {
        if self.servers.failed(server) {
            self.events.push_back(ResolverEvent::ServerDown(self.servers.get(server).addr));
            // With a heartbeat of its own it has one on the way already.
            if self.settings.heartbeat.is_none()
                && let Some(interval) = self.heartbeat(server)
            {
                self.timers.insert((now + interval, ResolverTimer::Heartbeat(server, None)));
            }
        }
    }

    fn alive(&mut self, server: usize) {
        if self.servers.is_down(server) {
            self.events.push_back(ResolverEvent::ServerUp(self.servers.get(server).addr));
            if self.settings.heartbeat.is_none() {
                self.timers
                    .retain(|(_, timer)| !matches!(timer, ResolverTimer::Heartbeat(at, _) if *at == server));
            }
        }
        self.servers.answered(server);
    }

    /// Begins the heartbeats of all servers, if there are to be some.
    pub(crate) fn beat_all(&mut self, now: u64) {
        if let Some(interval) = self.settings.heartbeat {
            let beats = (0..self.servers.len())
                .map(|server| (now + interval, ResolverTimer::Heartbeat(server, None)));
            self.timers.extend(beats);
        }
    }

    /// Asks a server for a sign of life; any answer is one. The one before was not answered when its socket is open.
    pub(crate) fn beat(&mut self, now: u64, server: usize, waited: Option<SocketToken>) {
        if let Some(token) = waited
            && self.sockets.remove(&token).is_some()
        {
            self.transmits.push_back(Transmit::Close(token));
            self.failed(now, server);
        }
        let Some(interval) = self.heartbeat(server) else { return };
        let (token, id) = (SocketToken(self.number()), (self.random)() as u16);
        let bytes = wire::query(id, &DnsName::root(), RecordType::Ns, QueryOptions::None);
        let to = self.servers.get(server).addr;
        self.sockets.insert(token, SocketPurpose::Heartbeat { server, id });
        self.transmits.push_back(Transmit::Datagram { token, server: to, bytes });
        self.timers.insert((now + interval, ResolverTimer::Heartbeat(server, Some(token))));
    }
}
