//! What servers share: keys of tickets and caches of sessions. They outlive configurations, so that clients resume their
//! sessions after a reload.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use weir_tls::{Error, SessionCache, TicketKeys};

#[derive(Default)]
struct Shared {
    /// By lifetime in seconds.
    keys: HashMap<u64, TicketKeys>,
    /// By name, with the size in bytes.
    caches: HashMap<String, (u64, Arc<SessionCache>)>,
}

fn shared() -> MutexGuard<'static, Shared> {
    static SHARED: OnceLock<Mutex<Shared>> = OnceLock::new();
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
    let mut shared = shared();
    match shared.caches.get(name) {
        Some((size, cache)) if *size == bytes => cache.clone(),
        _ => {
            let cache = Arc::new(SessionCache::new(bytes, lifetime));
            shared.caches.insert(name.to_owned(), (bytes, cache.clone()));
            cache
        }
    }
}
