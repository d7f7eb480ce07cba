//! Scripts in handshakes: `ssl_client_hello_by_lua`, `ssl_session_fetch_by_lua`, `ssl_certificate_by_lua` and
//! `ssl_session_store_by_lua`, with `ngx.ssl`, `ngx.ssl.clienthello`, `ngx.ssl.session` and `ngx.ocsp`.
//!
//! The scripts run between the ClientHello and the first byte of rustls' handshake, in an exchange of no request; what
//! they call notes wishes in the [`ClientHandshake`], and [`ClientScripts`](crate::hooks::tls::clients::ClientScripts) makes them the handshake's choice when
//! they are over. So they may wait as long as they like, and no key is used while they run.
//!
//! `proxy_ssl_certificate_by_lua` and `proxy_ssl_verify_by_lua` run in the request, before and after the handshake with
//! its server ([`upstream`]).

pub(crate) mod client_pair;
pub(crate) mod clienthello;
pub(crate) mod functions;
mod hashed_directory;
pub(crate) mod ocsp;
pub(crate) mod parsed;
pub(crate) mod session;
pub(crate) mod trust;
pub(crate) mod upstream;

use std::cell::RefCell;
use std::rc::Rc;

use weir_server::tls::{ClientGreeting, TrustedClients};
use weir_tls::suites::ProtocolVersions;

use crate::run::function::LuaRaise;
use crate::run::lend;

pub(crate) use crate::api::ctx::connection as ctx;
pub(crate) use client_pair::{ClientPair, client_pair};
pub(crate) use ctx::{is_inherited, push_inherited};
pub(crate) use trust::ScriptTrust;

use parsed::{CertificateChain, PrivateKey};

pub(crate) const TABLES: [&[crate::run::function::ApiFunction]; 6] =
    [clienthello::TABLE, ocsp::TABLE, session::TABLE, functions::TABLE, trust::TABLE, upstream::TABLE];

/// A handshake, for the scripts that run in it.
pub(crate) struct ClientHandshake {
    pub(crate) greeting: ClientGreeting,
    pub(crate) wishes: RefCell<HandshakeWishes>,
}

/// What scripts have said so far.
#[derive(Default)]
pub(crate) struct HandshakeWishes {
    pub(crate) cleared: bool,
    pub(crate) chains: Vec<Rc<CertificateChain>>,
    pub(crate) keys: Vec<Rc<PrivateKey>>,
    /// OCSP, as encoded.
    pub(crate) status: Option<Vec<u8>>,
    pub(crate) protocols: Option<ProtocolVersions>,
    /// The random bytes of the ServerHello, if a script has asked for them.
    pub(crate) random: Option<[u8; 32]>,
    pub(crate) clients: Option<TrustedClients>,
    /// No session is resumed.
    pub(crate) unresumable: bool,
    /// The session that was found.
    pub(crate) found: Option<Vec<u8>>,
    /// The session that was made: identifier and content.
    pub(crate) made: Option<(Vec<u8>, Vec<u8>)>,
}

/// The handshake that a script's exchange is of.
#[derive(Default)]
pub(crate) struct CurrentHandshake(pub(crate) Option<Rc<ClientHandshake>>);

impl HandshakeWishes {
    pub(crate) fn clear(&mut self) {
        (self.cleared, self.chains, self.keys) = (true, Vec::new(), Vec::new());
    }

    pub(crate) fn add_chain(&mut self, chain: Rc<CertificateChain>) {
        // As OpenSSL has it: a key that does not fit the new certificate goes.
        self.keys.retain(|key| !chain.mismatches(key));
        self.chains.push(chain);
    }

    pub(crate) fn add_key(&mut self, key: Rc<PrivateKey>) -> Result<(), &'static str> {
        if self.chains.last().is_some_and(|chain| chain.mismatches(&key)) {
            return Err("SSL_use_PrivateKey() failed");
        }
        self.keys.push(key);
        Ok(())
    }
}

/// The handshake in which the running script runs, if it does.
///
/// # Errors
/// The script has neither handshake nor request.
pub(crate) fn current() -> Result<Option<Rc<ClientHandshake>>, LuaRaise> {
    lend::any_exchange(|x| x.state_if::<CurrentHandshake>().and_then(|current| current.0.clone()))
}

/// Why something that is of a handshake can't be had.
pub(crate) const OVER: &str = "not in a handshake";
