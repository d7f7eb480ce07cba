//! Scripts in handshakes: `ssl_client_hello_by_lua`, `ssl_session_fetch_by_lua`, `ssl_certificate_by_lua` and
//! `ssl_session_store_by_lua`, with `ngx.ssl`, `ngx.ssl.clienthello`, `ngx.ssl.session` and `ngx.ocsp`.
//!
//! The scripts run between the ClientHello and the first byte of rustls' handshake, in an exchange of no request; what
//! they call notes wishes in the [`Handshake`], and [`Scripts`](handler::Scripts) makes them the handshake's choice when
//! they are over. So they may wait as long as they like, and no key is used while they run.
//!
//! `proxy_ssl_certificate_by_lua` and `proxy_ssl_verify_by_lua` run in the request, before and behind the handshake with
//! its server ([`upstream`]).

mod client;
mod clienthello;
mod ctx;
mod handler;
mod ocsp;
mod parsed;
mod session;
mod ssl;
mod upstream;

use std::cell::RefCell;
use std::rc::Rc;

use weir_core::tls::{Clients, Greeting};
use weir_tls::suites::Protocols;

use crate::api::Raise;
use crate::lend;

pub(crate) use client::{ClientPair, client_pair};
pub(crate) use ctx::{is_inherited, push_inherited};
pub(crate) use handler::{Scripts, Sources};
use parsed::{Chain, Key};
pub(crate) use upstream::UpstreamScripts;

pub(crate) const TABLES: [&[crate::api::Function]; 5] =
    [clienthello::TABLE, ocsp::TABLE, session::TABLE, ssl::TABLE, upstream::TABLE];

/// A handshake, for the scripts that run in it.
struct Handshake {
    greeting: Greeting,
    wishes: RefCell<Wishes>,
}

/// What scripts have said so far.
#[derive(Default)]
struct Wishes {
    cleared: bool,
    chains: Vec<Rc<Chain>>,
    keys: Vec<Rc<Key>>,
    /// OCSP, as encoded.
    status: Option<Vec<u8>>,
    protocols: Option<Protocols>,
    /// The random bytes of the ServerHello, if a script has asked for them.
    random: Option<[u8; 32]>,
    clients: Option<Clients>,
    /// The session that was found.
    found: Option<Vec<u8>>,
    /// The session that was made: identifier and content.
    made: Option<(Vec<u8>, Vec<u8>)>,
}

/// The handshake that a script's exchange is of.
#[derive(Default)]
struct Current(Option<Rc<Handshake>>);

impl Wishes {
    fn clear(&mut self) {
        (self.cleared, self.chains, self.keys) = (true, Vec::new(), Vec::new());
    }

    fn add_chain(&mut self, chain: Rc<Chain>) {
        // As OpenSSL has it: a key that does not fit the new certificate goes.
        self.keys.retain(|key| !chain.mismatches(key));
        self.chains.push(chain);
    }

    fn add_key(&mut self, key: Rc<Key>) -> Result<(), &'static str> {
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
fn current() -> Result<Option<Rc<Handshake>>, Raise> {
    lend::any_exchange(|x| x.state_if::<Current>().and_then(|current| current.0.clone()))
}

/// Why something that is of a handshake can't be had.
const OVER: &str = "not in a handshake";
