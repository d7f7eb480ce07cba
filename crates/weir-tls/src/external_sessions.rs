//! Sessions that the caller stores: found before the handshake that asks for them, handed over when it has made one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::server::StoresServerSessions;

/// A session's identifier, and the session itself, in a form that says nothing to others.
pub type NamedSession = (Vec<u8>, Vec<u8>);

/// The sessions of one handshake.
pub struct ExternalSessions {
    found: Option<NamedSession>,
    /// `None`: the caller does not want them.
    made: Option<Mutex<Vec<NamedSession>>>,
    /// What the server stores itself.
    own: Arc<dyn StoresServerSessions>,
}

impl ExternalSessions {
    /// See [`ServerConfig::external_sessions`](crate::ServerConfig::external_sessions); `own` is what the server stores itself.
    pub(crate) fn new(
        found: Option<NamedSession>,
        wanted: bool,
        own: Arc<dyn StoresServerSessions>,
    ) -> ExternalSessions {
        ExternalSessions { found, made: wanted.then(Mutex::default), own }
    }

    /// What the handshake has made; empty the second time.
    pub fn take_made(&self) -> Vec<NamedSession> {
        let made = self.made.as_ref();
        made.map(|made| std::mem::take(&mut *made.lock().unwrap_or_else(PoisonError::into_inner)))
            .unwrap_or_default()
    }

    fn found(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.found.as_ref().filter(|(own, _)| own == id).map(|(_, session)| session.clone())
    }
}

impl StoresServerSessions for ExternalSessions {
    fn put(&self, id: Vec<u8>, session: Vec<u8>) -> bool {
        if let Some(made) = &self.made {
            made.lock().unwrap_or_else(PoisonError::into_inner).push((id.clone(), session.clone()));
        }
        self.own.put(id, session) || self.made.is_some()
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.own.get(id).or_else(|| self.found(id))
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.own.take(id).or_else(|| self.found(id))
    }

    fn can_cache(&self) -> bool {
        self.made.is_some() || self.own.can_cache()
    }
}

impl fmt::Debug for ExternalSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExternalSessions")
    }
}
