//! What scripts of handshakes with upstream servers call: `ngx.ssl.proxysslcert`, `ngx.ssl.proxysslverify`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_upstream::tls_client::MetServer;

use crate::api::ssl::functions::{self, noted};
use crate::api::ssl::parsed::CertificateChain;
use crate::api::ssl::{HandshakeWishes, OVER};
use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, fail, function};
use crate::run::lend;
use crate::vm::phase::ScriptPhase;

/// A handshake with a server, for the script that runs.
#[derive(Default)]
pub(crate) struct UpstreamHandshake {
    pub(crate) wishes: RefCell<HandshakeWishes>,
    /// The version, where that is known.
    pub(crate) version: Option<&'static str>,
    /// After the handshake.
    pub(crate) met: Option<MetServer>,
    /// The verdict, by OpenSSL's number; 0: the certificate will do.
    pub(crate) result: Cell<u16>,
}

/// The handshake that a request's script runs for.
#[derive(Default)]
pub(crate) struct CurrentUpstreamHandshake(pub(crate) Option<Rc<UpstreamHandshake>>);

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_ssl.proxy_clear_certs", 0, |l| {
        wish(l, |wishes| {
            wishes.clear();
            Ok(())
        })
    }),
    function("_ssl.proxy_set_der_cert", 0, |l| {
        let chain = functions::der_cert(l)?;
        wish(l, |wishes| {
            wishes.add_chain(chain.ok_or(functions::NO_CERTIFICATE)?);
            Ok(())
        })
    }),
    function("_ssl.proxy_set_der_priv_key", 0, |l| {
        let key = functions::der_key(l)?;
        wish(l, |wishes| wishes.add_key(key.ok_or(functions::NO_KEY)?))
    }),
    function("_ssl.proxy_set_cert", 0, |l| {
        let chain = functions::cert(l)?;
        wish(l, |wishes| {
            wishes.add_chain(chain.ok_or(functions::INVALID_CHAIN)?);
            Ok(())
        })
    }),
    function("_ssl.proxy_set_priv_key", 0, |l| {
        let key = functions::key(l)?;
        wish(l, |wishes| wishes.add_key(key.ok_or(functions::INVALID_KEY)?))
    }),
    function("_ssl.proxy_version", 0, |l| {
        match current()?.map(|toward| toward.version) {
            Some(Some("TLSv1.3")) => l.push_number(f64::from(0x0304)),
            Some(Some(_)) => l.push_number(f64::from(0x0303)),
            Some(None) => return fail(l, "the version is not agreed upon yet"),
            None => return fail(l, OVER),
        }
        Ok(CallDone::Results(1))
    }),
    function("_ssl.proxy_set_verify_result", 0, |l| {
        let toward = verifying()?;
        toward.result.set(expect_number(l, 1, "set_verify_result")? as u16);
        l.push_boolean(true);
        Ok(CallDone::Results(1))
    }),
    function("_ssl.proxy_verify_result", 0, |l| {
        l.push_number(f64::from(verifying()?.result.get()));
        Ok(CallDone::Results(1))
    }),
    function("_ssl.proxy_verify_cert", 0, |l| {
        let peer = verifying()?.met.as_ref().map(|met| met.peer.clone());
        match peer.and_then(CertificateChain::new) {
            Some(chain) => functions::push_chain(l, Rc::new(chain)),
            None => fail(l, "no certificate of the server"),
        }
    }),
];

/// The handshake that the running script is for, if it is for one.
fn current() -> Result<Option<Rc<UpstreamHandshake>>, LuaRaise> {
    lend::exchange(|x| x.state_if::<CurrentUpstreamHandshake>().and_then(|current| current.0.clone()))
}

fn wish(l: LuaState, note: impl FnOnce(&mut HandshakeWishes) -> Result<(), &'static str>) -> CallOutcome {
    let toward = current()?.filter(|_| lend::phase() == ScriptPhase::ProxySslCertificate);
    noted(l, toward.as_ref().map(|toward| &toward.wishes), note)
}

/// The handshake of `proxy_ssl_verify_by_lua`, the only place where its functions may be called.
fn verifying() -> Result<Rc<UpstreamHandshake>, LuaRaise> {
    let toward = current()?.filter(|_| lend::phase() == ScriptPhase::ProxySslVerify);
    toward.ok_or_else(|| LuaRaise::text("API disabled in the current context"))
}
