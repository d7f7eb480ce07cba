//! Sessions that somebody else keeps: found before the handshake that asks for them, told when it has made one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::server::StoresServerSessions;

use crate::server::ServerConfig;

/// A session's identifier, and the session itself, in a form that says nothing to others.
pub(crate) type Named = (Vec<u8>, Vec<u8>);

/// The sessions of one handshake.
pub struct Elsewhere {
    found: Option<Named>,
    /// `None`: nobody wants to know.
    made: Option<Mutex<Vec<Named>>>,
    /// What the server keeps itself.
    own: Arc<dyn StoresServerSessions>,
}

impl Elsewhere {
    /// For a handshake of `config`: the session that the client has asked for, if it was `found`, and whether those that
    /// are made are wanted.
    pub fn new(config: &ServerConfig, found: Option<Named>, wanted: bool) -> Elsewhere {
        Elsewhere { found, made: wanted.then(Mutex::default), own: config.session_storage() }
    }

    /// What the handshake has made; told once.
    pub fn take_made(&self) -> Vec<Named> {
        let made = self.made.as_ref();
        made.map(|made| std::mem::take(&mut *made.lock().unwrap_or_else(PoisonError::into_inner)))
            .unwrap_or_default()
    }

    fn found(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.found.as_ref().filter(|(own, _)| own == id).map(|(_, session)| session.clone())
    }
}

impl StoresServerSessions for Elsewhere {
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

impl fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Elsewhere")
    }
}
