//! What servers share: keys of tickets, caches of sessions and of issuers' responses. They outlive configurations, so
//! that clients resume their sessions after a reload.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use weir_tls::{Error, SessionCache, TicketKeys};

use super::ocsp::clients::AnswerCache;

#[derive(Default)]
struct SharedCaches {
    /// By lifetime in seconds.
    keys: HashMap<u64, TicketKeys>,
    /// By name, with the size in bytes.
    caches: HashMap<String, (u64, Arc<SessionCache>)>,
    /// By name, with the size in bytes.
    answers: HashMap<String, (u64, Arc<AnswerCache>)>,
}

fn shared() -> MutexGuard<'static, SharedCaches> {
    static SHARED: OnceLock<Mutex<SharedCaches>> = OnceLock::new();
    SHARED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process' own keys for sessions of `lifetime` seconds.
///
/// # Errors
/// The system gives no random bytes.
pub(super) fn ticket_keys(lifetime: u64) -> Result<TicketKeys, Error> {
    let mut shared = shared();
    if let Some(keys) = shared.keys.get(&lifetime) {
        return Ok(keys.clone());
    }
    let keys = TicketKeys::random(lifetime)?;
    shared.keys.insert(lifetime, keys.clone());
    Ok(keys)
}

/// The cache `name`. One of another size replaces it, which a reload may ask for.
pub(super) fn cache(name: &str, bytes: u64, lifetime: u64) -> Arc<SessionCache> {
    named(&mut shared().caches, name, bytes, || SessionCache::new(bytes, lifetime))
}

/// The cache of OCSP responses called `name`, of `bytes` bytes, for clients' certificates; one for all servers that
/// name it.
pub(super) fn answers(name: &str, bytes: u64) -> Arc<AnswerCache> {
    named(&mut shared().answers, name, bytes, || AnswerCache::new(bytes))
}

fn named<T>(
    all: &mut HashMap<String, (u64, Arc<T>)>,
    name: &str,
    bytes: u64,
    make: impl FnOnce() -> T,
) -> Arc<T> {
    match all.get(name) {
        Some((size, cache)) if *size == bytes => cache.clone(),
        _ => {
            let cache = Arc::new(make());
            all.insert(name.to_owned(), (bytes, cache.clone()));
            cache
        }
    }
}
