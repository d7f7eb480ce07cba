//! Sessions that clients bring along (tickets), and those that are stored here.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use rustls::server::{ProducesTickets, StoresServerSessions};

use crate::error::{Error, content};

/// Keys of tickets, shared by all workers. Keys that are not configured are replaced every lifetime of a session; the
/// last ones still open tickets, so that one made just before is good for its whole time.
#[derive(Clone)]
pub struct TicketKeys(Arc<TicketKeySource>);

/// How old keys of tickets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketKeyAge {
    /// They are from files, which a reload reads again.
    Given {
        /// How many; the first seals.
        keys: usize,
    },
    /// They are this process' own; after `lifetime` seconds the next ticket gets a new one.
    Own {
        /// How many open tickets.
        keys: usize,
        /// Seconds since the one was made that seals.
        age: u64,
        /// Seconds.
        lifetime: u64,
    },
}

enum TicketKeySource {
    /// From `ssl_session_ticket_key`: the first seals.
    Given(Vec<TicketKey>),
    Own {
        state: RwLock<TurningKeys>,
        lifetime: u64,
    },
}

struct TurningKeys {
    current: TicketKey,
    before: Option<TicketKey>,
    since: u64,
}

struct TicketKey {
    name: [u8; NAME],
    key: LessSafeKey,
}

const NAME: usize = 16;
const STAMP: usize = 8;

impl TicketKey {
    /// From `material`, of any length.
    fn new(name: &[u8], material: &[u8]) -> Option<TicketKey> {
        let key = UnboundKey::new(&AES_256_GCM, digest(&SHA256, material).as_ref()).ok()?;
        Some(TicketKey { name: name.try_into().ok()?, key: LessSafeKey::new(key) })
    }

    fn random() -> Option<TicketKey> {
        let (mut name, mut material) = ([0; NAME], [0; 32]);
        rand::fill(&mut name).ok()?;
        rand::fill(&mut material).ok()?;
        TicketKey::new(&name, &material)
    }
}

impl TicketKeys {
    /// Keys of this process alone, for sessions of `lifetime` seconds.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn random(lifetime: u64) -> Result<TicketKeys, Error> {
        let current = TicketKey::random().ok_or_else(|| content("no random bytes can be had"))?;
        let state = RwLock::new(TurningKeys { current, before: None, since: now() });
        Ok(TicketKeys(Arc::new(TicketKeySource::Own { state, lifetime: lifetime.max(1) })))
    }

    /// Keys from files of 80 or 48 bytes, the first for new tickets.
    ///
    /// # Errors
    /// A file has another length.
    pub fn given(files: &[Vec<u8>]) -> Result<TicketKeys, Error> {
        let key = |file: &Vec<u8>| match file.len() {
            48 | 80 => TicketKey::new(&file[..NAME], &file[NAME..]),
            _ => None,
        };
        let keys: Option<Vec<TicketKey>> = files.iter().map(key).collect();
        keys.filter(|keys| !keys.is_empty())
            .map(|keys| TicketKeys(Arc::new(TicketKeySource::Given(keys))))
            .ok_or_else(|| content("must be 48 or 80 bytes"))
    }

    /// How old the keys are, and how long they are used: nothing of the keys themselves.
    pub fn age(&self) -> TicketKeyAge {
        match &*self.0 {
            TicketKeySource::Given(keys) => TicketKeyAge::Given { keys: keys.len() },
            TicketKeySource::Own { state, lifetime } => {
                let state = state.read().unwrap_or_else(PoisonError::into_inner);
                let keys = 1 + usize::from(state.before.is_some());
                TicketKeyAge::Own { keys, age: now().saturating_sub(state.since), lifetime: *lifetime }
            }
        }
    }

    /// Whether `other` is a clone of these.
    pub fn is_same(&self, other: &TicketKeys) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Tickets for the sessions of a server. `context` says which: those of others are not taken.
    pub fn tickets(&self, context: &[u8], lifetime: u64) -> ServerTickets {
        let context = digest(&SHA256, context).as_ref().to_vec();
        ServerTickets { keys: self.clone(), context, lifetime: u32::try_from(lifetime).unwrap_or(u32::MAX) }
    }

    /// Runs `f` with the key that seals now.
    fn sealing<R>(&self, f: impl FnOnce(&TicketKey) -> Option<R>) -> Option<R> {
        match &*self.0 {
            TicketKeySource::Given(keys) => f(keys.first()?),
            TicketKeySource::Own { state, lifetime } => {
                let current = state.read().unwrap_or_else(PoisonError::into_inner);
                if now() < current.since + lifetime {
                    return f(&current.current);
                }
                drop(current);
                f(&turned(state, *lifetime)?.current)
            }
        }
    }

    /// Runs `f` with the key `name`, if it is still there.
    fn opening<R>(&self, name: &[u8], f: impl FnOnce(&TicketKey) -> Option<R>) -> Option<R> {
        match &*self.0 {
            TicketKeySource::Given(keys) => f(keys.iter().find(|key| key.name == name)?),
            TicketKeySource::Own { state, .. } => {
                let state = state.read().unwrap_or_else(PoisonError::into_inner);
                let mut keys = [Some(&state.current), state.before.as_ref()].into_iter().flatten();
                f(keys.find(|key| key.name == name)?)
            }
        }
    }
}

/// The state with a key that is not too old; of several threads that find it old one replaces it.
fn turned(
    state: &RwLock<TurningKeys>,
    lifetime: u64,
) -> Option<std::sync::RwLockWriteGuard<'_, TurningKeys>> {
    let mut state = state.write().unwrap_or_else(PoisonError::into_inner);
    let now = now();
    if now >= state.since + lifetime {
        let last = std::mem::replace(&mut state.current, TicketKey::random()?);
        state.before = (now < state.since + 2 * lifetime).then_some(last);
        state.since = now;
    }
    Some(state)
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeys")
    }
}

/// The tickets of one server.
#[derive(Clone, Debug)]
pub struct ServerTickets {
    keys: TicketKeys,
    context: Vec<u8>,
    lifetime: u32,
}

impl ProducesTickets for ServerTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime
    }

    /// Name of the key, nonce, and the sealed session after the time of its making.
    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys.sealing(|key| {
            let mut nonce = [0; NONCE_LEN];
            rand::fill(&mut nonce).ok()?;
            let mut sealed = Vec::with_capacity(STAMP + plain.len() + 16);
            sealed.extend_from_slice(&now().to_be_bytes());
            sealed.extend_from_slice(plain);
            let nonce_used = Nonce::assume_unique_for_key(nonce);
            key.key.seal_in_place_append_tag(nonce_used, Aad::from(&self.context), &mut sealed).ok()?;
            Some([&key.name[..], &nonce, &sealed].concat())
        })
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        self.keys.opening(name, |key| {
            let mut sealed = sealed.to_vec();
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let plain = key.key.open_in_place(nonce, Aad::from(&self.context), &mut sealed).ok()?;
            let (stamp, plain) = plain.split_at_checked(STAMP)?;
            let made = u64::from_be_bytes(stamp.try_into().ok()?);
            (now() < made.saturating_add(u64::from(self.lifetime))).then(|| plain.to_vec())
        })
    }
}

/// Sessions stored for clients that bring none along (`ssl_session_cache shared:`), the oldest making room.
pub struct SessionCache {
    sessions: Mutex<SessionTable>,
    max: usize,
    lifetime: u64,
}

#[derive(Default)]
struct SessionTable {
    /// With the number of entry, and when the session is over, as far as seconds since 1970 go.
    by_id: HashMap<Vec<u8>, (u64, u64, Vec<u8>)>,
    /// Identifiers by number of entry.
    order: BTreeMap<u64, Vec<u8>>,
    entered: u64,
}

/// nginx's documentation: a megabyte holds about 4,000 sessions.
const BYTES: usize = 256;

impl SessionCache {
    /// A cache of this many bytes, for sessions of `lifetime` seconds.
    pub fn new(bytes: u64, lifetime: u64) -> SessionCache {
        let max = (usize::try_from(bytes).unwrap_or(usize::MAX) / BYTES).max(1);
        SessionCache { sessions: Mutex::default(), max, lifetime }
    }

    /// Sessions that are stored, those too that are over and have not made room yet, and how many there may be.
    pub fn used(&self) -> (usize, usize) {
        (self.lock().by_id.len(), self.max)
    }

    fn lock(&self) -> MutexGuard<'_, SessionTable> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, sessions: &SessionTable, id: &[u8]) -> Option<Vec<u8>> {
        let (_, until, session) = sessions.by_id.get(id)?;
        (now() < *until).then(|| session.clone())
    }

    /// Keeps a session for `lifetime` seconds.
    fn keep(&self, id: Vec<u8>, session: Vec<u8>, lifetime: u64) {
        let mut sessions = self.lock();
        sessions.remove(&id);
        while sessions.by_id.len() >= self.max {
            let Some((_, oldest)) = sessions.order.pop_first() else { break };
            sessions.by_id.remove(&oldest);
        }
        let entry = sessions.entered;
        sessions.entered += 1;
        sessions.order.insert(entry, id.clone());
        sessions.by_id.insert(id, (entry, now().saturating_add(lifetime), session));
    }
}

impl SessionTable {
    fn remove(&mut self, id: &[u8]) {
        if let Some((entry, ..)) = self.by_id.remove(id) {
            self.order.remove(&entry);
        }
    }
}

impl StoresServerSessions for SessionCache {
    fn put(&self, id: Vec<u8>, session: Vec<u8>) -> bool {
        self.keep(id, session, self.lifetime);
        true
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.find(&self.lock(), id)
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        let mut sessions = self.lock();
        let session = self.find(&sessions, id);
        sessions.remove(id);
        session
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// The sessions of one server in a cache that it may share with others.
#[derive(Debug)]
pub struct ServerSessions {
    cache: Arc<SessionCache>,
    /// Which server's.
    context: Vec<u8>,
    /// How long its sessions are valid, whatever other servers' are.
    lifetime: u64,
}

impl ServerSessions {
    /// The part of `cache` that `context` names, with sessions of `lifetime` seconds: those of others are not taken.
    pub fn new(cache: &Arc<SessionCache>, context: &[u8], lifetime: u64) -> ServerSessions {
        ServerSessions { cache: cache.clone(), context: digest(&SHA256, context).as_ref().to_vec(), lifetime }
    }

    fn name(&self, id: &[u8]) -> Vec<u8> {
        [&self.context[..], id].concat()
    }
}

impl StoresServerSessions for ServerSessions {
    fn put(&self, id: Vec<u8>, session: Vec<u8>) -> bool {
        self.cache.keep(self.name(&id), session, self.lifetime);
        true
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.cache.get(&self.name(id))
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.cache.take(&self.name(id))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for SessionCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionCache({})", self.max)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_opened_by_those_who_have_its_key_and_context() {
        let keys = TicketKeys::random(300).expect("random bytes");
        let tickets = keys.tickets(b"a", 300);
        let ticket = tickets.encrypt(b"session").expect("sealed");
        assert_eq!(keys.tickets(b"a", 300).decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(keys.tickets(b"b", 300).decrypt(&ticket), None);
        assert_eq!(keys.tickets(b"a", 0).decrypt(&ticket), None, "too old");
        let others = TicketKeys::random(300).expect("random bytes");
        assert_eq!(others.tickets(b"a", 300).decrypt(&ticket), None);
        assert_eq!(tickets.decrypt(&ticket[..20]), None);
    }

    #[test]
    fn keys_say_their_age_and_nothing_else() {
        let own = TicketKeys::random(300).expect("random bytes");
        assert!(matches!(own.age(), TicketKeyAge::Own { keys: 1, age: 0..=60, lifetime: 300 }));
        let given = TicketKeys::given(&[vec![1; 48], vec![2; 80]]).expect("keys");
        assert_eq!(given.age(), TicketKeyAge::Given { keys: 2 });
        assert!(own.is_same(&own.clone()) && !own.is_same(&given));
        let cache = SessionCache::new(2 * BYTES as u64, 300);
        assert_eq!(cache.used(), (0, 2));
        for id in 0..3u8 {
            cache.put(vec![id], vec![id]);
        }
        assert_eq!(cache.used(), (2, 2));
    }

    #[test]
    fn given_keys_open_what_any_of_them_sealed() {
        let (old, new) = (vec![1; 48], vec![2; 80]);
        let ticket =
            TicketKeys::given(std::slice::from_ref(&old)).expect("a key").tickets(b"", 9).encrypt(b"x");
        let both = TicketKeys::given(&[new, old]).expect("keys").tickets(b"", 9);
        assert_eq!(both.decrypt(&ticket.expect("sealed")).as_deref(), Some(&b"x"[..]));
        assert!(TicketKeys::given(&[vec![0; 49]]).is_err());
    }

    #[test]
    fn a_session_in_a_shared_cache_is_its_servers() {
        let cache = Arc::new(SessionCache::new(10 * BYTES as u64, 300));
        let [a, b] = [b"a", b"b"].map(|context| ServerSessions::new(&cache, context, 300));
        assert!(a.put(vec![1], vec![7]));
        assert_eq!((b.get(&[1]), b.take(&[1]), a.take(&[1])), (None, None, Some(vec![7])));
    }

    #[test]
    fn each_server_says_how_long_its_sessions_last() {
        let cache = Arc::new(SessionCache::new(10 * BYTES as u64, 300));
        let [short, long] = [0, 300].map(|lifetime| ServerSessions::new(&cache, b"a", lifetime));
        assert!(short.put(vec![1], vec![7]) && long.put(vec![2], vec![8]));
        assert_eq!((short.get(&[1]), short.get(&[2])), (None, Some(vec![8])));
        let cache = Arc::new(SessionCache::new(10 * BYTES as u64, 0));
        let long = ServerSessions::new(&cache, b"a", 300);
        assert!(
            long.put(vec![1], vec![7]) && long.get(&[1]).is_some(),
            "the cache was made by another server"
        );
    }

    #[test]
    fn the_cache_forgets_the_oldest() {
        let cache = SessionCache::new(2 * BYTES as u64, 300);
        for id in 0..3u8 {
            cache.put(vec![id], vec![id]);
        }
        assert_eq!(cache.get(&[0]), None);
        assert_eq!(cache.take(&[1]), Some(vec![1]));
        assert_eq!(cache.take(&[1]), None);
        assert_eq!(cache.get(&[2]), Some(vec![2]));
        let old = SessionCache::new(1000, 0);
        old.put(vec![1], vec![1]);
        assert_eq!(old.get(&[1]), None);
    }

    /// Keys whose current one was made so many seconds ago.
    fn aged(age: u64, lifetime: u64) -> TicketKeys {
        let current = TicketKey::random().expect("random bytes");
        let state = RwLock::new(TurningKeys { current, before: None, since: now() - age });
        TicketKeys(Arc::new(TicketKeySource::Own { state, lifetime }))
    }

    /// A ticket of the key that is there now, whatever its age.
    fn sealed_before(keys: &TicketKeys) -> Vec<u8> {
        let TicketKeySource::Own { state, .. } = &*keys.0 else { panic!("they are its own") };
        let since = std::mem::replace(&mut state.write().expect("no panic").since, now());
        let ticket = keys.tickets(b"", 100_000).encrypt(b"x").expect("sealed");
        state.write().expect("no panic").since = since;
        ticket
    }

    #[test]
    fn keys_turn_after_their_time_and_open_for_as_long_again() {
        for (age, turned, opens) in [
            (0, false, true),
            (900, false, true),
            (1000, true, true),
            (1900, true, true),
            (2000, true, false),
        ] {
            let keys = aged(age, 1000);
            let tickets = keys.tickets(b"", 100_000);
            let before = sealed_before(&keys);
            let after = tickets.encrypt(b"y").expect("sealed");
            assert_eq!(before[..NAME] != after[..NAME], turned, "{age}");
            assert_eq!(tickets.decrypt(&before).is_some(), opens, "{age}");
            assert_eq!(tickets.decrypt(&after).as_deref(), Some(&b"y"[..]), "{age}");
            let keys_left = 1 + usize::from(turned && opens);
            let age_left = if turned { 0..=60 } else { age..=age + 60 };
            match keys.age() {
                TicketKeyAge::Own { keys, age, lifetime: 1000 } => {
                    assert!(keys == keys_left && age_left.contains(&age), "{keys} {age}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_ticket_says_what_rustls_asks_of_it() {
        let tickets = TicketKeys::random(7).expect("random bytes").tickets(b"a", 300);
        assert!(ProducesTickets::enabled(&tickets));
        assert_eq!(ProducesTickets::lifetime(&tickets), 300);
        let keys = TicketKeys::random(0).expect("random bytes");
        assert!(matches!(keys.age(), TicketKeyAge::Own { lifetime: 1, .. }));
        let cache = Arc::new(SessionCache::new(0, 300));
        assert_eq!(cache.used(), (0, 1));
        assert!(cache.can_cache() && ServerSessions::new(&cache, b"a", 1).can_cache());
        assert!(TicketKeys::given(&[]).is_err());
    }

    #[test]
    fn a_session_that_is_stored_again_is_the_newest_and_has_one_entry() {
        let cache = SessionCache::new(2 * BYTES as u64, 300);
        for id in [0, 1, 0, 2] {
            cache.put(vec![id], vec![id]);
        }
        assert_eq!((cache.get(&[0]), cache.get(&[1]), cache.get(&[2])), (Some(vec![0]), None, Some(vec![2])));
        assert_eq!(cache.used(), (2, 2));
        cache.take(&[0]);
        cache.put(vec![3], vec![3]);
        assert_eq!((cache.get(&[2]), cache.get(&[3])), (Some(vec![2]), Some(vec![3])));
    }
}
