//! A session that a client keeps by itself, to resume it in a handshake of its choice.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// What a server has given a client to resume a session with; empty before it has. It is good for the name of the server
/// that gave it alone.
#[derive(Clone, Default)]
pub struct KeptSession(Arc<SessionStore>);

/// In a lock since handshakes may run on other threads; it is never contended.
#[derive(Default)]
struct SessionStore(Mutex<StoredSession>);

#[derive(Default)]
struct StoredSession {
    name: Option<ServerName<'static>>,
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tls13: VecDeque<Tls13ClientSessionValue>,
}

impl KeptSession {
    /// Nothing can be resumed with it (yet: TLS 1.3 brings tickets after the handshake).
    pub fn is_empty(&self) -> bool {
        let kept = self.0.lock();
        kept.tls12.is_none() && kept.tls13.is_empty()
    }

    /// A number that distinguishes it from others, for logs.
    pub fn number(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(crate) fn store(&self) -> Arc<dyn ClientSessionStore> {
        self.0.clone()
    }
}

impl fmt::Debug for KeptSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptSession")
    }
}

impl SessionStore {
    fn lock(&self) -> MutexGuard<'_, StoredSession> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session stored for `name`; another server's is forgotten.
    fn of(&self, name: ServerName<'static>) -> MutexGuard<'_, StoredSession> {
        let mut kept = self.lock();
        if kept.name.as_ref() != Some(&name) {
            *kept = StoredSession { name: Some(name), ..StoredSession::default() };
        }
        kept
    }
}

impl fmt::Debug for SessionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

impl ClientSessionStore for SessionStore {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.of(name).group = Some(group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        let kept = self.lock();
        kept.group.filter(|_| kept.name.as_ref() == Some(name))
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.of(name).tls12 = Some(value);
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let kept = self.lock();
        kept.tls12.clone().filter(|_| kept.name.as_ref() == Some(name))
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        let mut kept = self.lock();
        if kept.name.as_ref() == Some(name) {
            kept.tls12 = None;
        }
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut kept = self.of(name);
        if kept.tls13.len() == TICKETS {
            kept.tls13.pop_front();
        }
        kept.tls13.push_back(value);
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut kept = self.lock();
        if kept.name.as_ref() != Some(name) {
            return None;
        }
        kept.tls13.pop_back()
    }
}

/// Number of TLS 1.3 tickets that are stored, each for one handshake; as many as servers usually give at once, and
/// some.
const TICKETS: usize = 4;
