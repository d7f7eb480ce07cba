//! `ngx.ssl`

use std::cell::RefCell;
use std::ffi::c_int;
use std::rc::Rc;

use weir_engine::Exchange;
use weir_rt::net::SockAddr;
use weir_server::tls::TrustedClients;
use weir_server::tls::{client_policy, server_tls};
use weir_tls::{HandshakeSecrets, TrustStore, facts};

use crate::api::ssl::clienthello::{push_numbers, without_grease};
use crate::api::ssl::parsed::{self, CertificateChain, PrivateKey};
use crate::api::ssl::{HandshakeWishes, OVER, current};
use crate::luajit::state::LuaState;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, expect_string, fail, function,
};
use crate::run::lend;
use crate::vm::phase::ScriptPhase;

pub(super) const TABLE: &[ApiFunction] = &[
    function("_ssl.clear_certs", 0, |l| {
        wish(l, |wishes| {
            wishes.clear();
            Ok(())
        })
    }),
    function("_ssl.set_der_cert", 0, |l| {
        let chain = der_cert(l)?;
        wish(l, |wishes| {
            wishes.add_chain(chain.ok_or(NO_CERTIFICATE)?);
            Ok(())
        })
    }),
    function("_ssl.set_der_priv_key", 0, |l| {
        let key = der_key(l)?;
        wish(l, |wishes| wishes.add_key(key.ok_or(NO_KEY)?))
    }),
    function("_ssl.set_cert", 0, |l| {
        let chain = cert(l)?;
        wish(l, |wishes| {
            wishes.add_chain(chain.ok_or(INVALID_CHAIN)?);
            Ok(())
        })
    }),
    function("_ssl.set_priv_key", 0, |l| {
        let key = key(l)?;
        wish(l, |wishes| wishes.add_key(key.ok_or(INVALID_KEY)?))
    }),
    function("_ssl.parse_pem_cert", 0, |l| {
        let pem = expect_string(&l, 1, "parse_pem_cert")?;
        match parsed::chain_of_pem(&pem) {
            Some(chain) => push_chain(l, chain),
            None => fail(l, parsed::failing_reader(&pem)),
        }
    }),
    function("_ssl.parse_der_cert", 0, |l| {
        let der = expect_string(&l, 1, "parse_der_cert")?;
        let failed = if der.is_empty() { "invalid argument" } else { NO_CERTIFICATE };
        push_owned(l, parsed::chain_of_der(&der), CHAIN, failed)
    }),
    function("_ssl.parse_pem_priv_key", 0, |l| {
        let key = parsed::key_of_pem(&expect_string(&l, 1, "parse_pem_priv_key")?);
        push_owned(l, key, KEY, "PEM_read_bio_PrivateKey() failed")
    }),
    function("_ssl.parse_der_priv_key", 0, |l| {
        let der = expect_string(&l, 1, "parse_der_priv_key")?;
        let failed = if der.is_empty() { "invalid argument" } else { NO_KEY };
        push_owned(l, parsed::key_of_der(&der), KEY, failed)
    }),
    function("_ssl.chain_ders", 0, |l| {
        let chain = chain_at(l, 1, "chain_ders")?;
        l.new_table(4, 0);
        for (at, der) in chain.iter().flat_map(|chain| &chain.certificates).enumerate() {
            l.push_bytes(der);
            l.raw_set_index(-2, at + 1);
        }
        Ok(CallDone::Results(1))
    }),
    function("_ssl.device_key", 0, |l| {
        let uri = String::from_utf8_lossy(&expect_string(&l, 1, "key")?).into_owned();
        match weir_tls::pkcs11::KeyUri::parse(&uri) {
            Ok(_) => push_owned(l, Some(Rc::new(PrivateKey::Device(uri))), KEY, ""),
            Err(error) => fail(l, &error.to_string()),
        }
    }),
    function("_ssl.cert_pem_to_der", 0, |l| {
        let pem = expect_string(&l, 1, "cert_pem_to_der")?;
        match parsed::certificate_to_der(&pem) {
            Some(der) => push_bytes(l, Some(&der), ""),
            None => fail(l, parsed::failing_reader(&pem)),
        }
    }),
    function("_ssl.priv_key_pem_to_der", 0, |l| {
        let pem = expect_string(&l, 1, "priv_key_pem_to_der")?;
        let password = l.bytes(2).map(<[u8]>::to_vec);
        let der = parsed::key_to_der(&pem, password.as_deref());
        push_bytes(l, der.as_deref(), "PEM_read_bio_PrivateKey() failed")
    }),
    function("_ssl.verify_client", 0, verify_client),
    function("_ssl.raw_client_addr", 0, |l| {
        let addr = lend::any_exchange(|x| x.connection.peer.clone())?;
        push_addr(l, &addr)
    }),
    function("_ssl.raw_server_addr", 0, |l| {
        let addr = lend::any_exchange(|x| x.connection.local().clone())?;
        push_addr(l, &addr)
    }),
    function("_ssl.server_port", 0, |l| {
        match lend::any_exchange(|x| x.connection.local().to_socket_addr())? {
            Some(addr) => l.push_number(f64::from(addr.port())),
            None => return fail(l, "unix domain has no port"),
        }
        Ok(CallDone::Results(1))
    }),
    function("_ssl.server_name", 0, |l| {
        let name = lend::any_exchange(|x| x.connection.hello.get().map(|hello| hello.server_name.clone()))?;
        match name {
            Some(Some(name)) => l.push_bytes(name.as_bytes()),
            Some(None) => l.push_nil(),
            None => return fail(l, NO_TLS),
        }
        Ok(CallDone::Results(1))
    }),
    function("_ssl.version", 0, |l| {
        let handshake = current()?;
        let version = match handshake {
            Some(handshake) => Some(handshake.version()),
            None => lend::any_exchange(|x| agreed_version(x))?,
        };
        match version {
            Some(version) => l.push_number(f64::from(version)),
            None => return fail(l, NO_TLS),
        }
        Ok(CallDone::Results(1))
    }),
    function("_ssl.client_random", 0, |l| {
        let random = lend::any_exchange(|x| x.connection.hello.get().map(|hello| hello.random))?;
        push_bytes(l, random.as_ref().map(<[u8; 32]>::as_slice), NO_TLS)
    }),
    function("_ssl.server_random", 0, |l| {
        let agreed = secret(|secrets| Some(*secrets.server_random()))?;
        let random = match (agreed, current()?) {
            (Some(random), _) => Some(random),
            (None, Some(_)) if lend::phase() == ScriptPhase::SslClientHello => {
                return fail(l, "no ServerHello has been made yet");
            }
            (None, handshake) => handshake.and_then(|handshake| handshake.random()),
        };
        push_bytes(l, random.as_ref().map(<[u8; 32]>::as_slice), NO_TLS)
    }),
    function("_ssl.master_key", 0, |l| {
        if !is_complete()? {
            return if current()?.is_some() { push_bytes(l, Some(b""), "") } else { fail(l, NO_TLS) };
        }
        let key = secret(|secrets| secrets.master().map(<[u8]>::to_vec))?;
        push_bytes(l, key.as_deref(), "TLS 1.3 has no master key")
    }),
    function("_ssl.export", 0, |l| {
        let length = expect_number(l, 1, "export_keying_material")?;
        let label = expect_string(&l, 2, "export_keying_material")?.to_vec();
        let context = l.bytes(3).map(<[u8]>::to_vec);
        if !is_complete()? && current()?.is_none() {
            return fail(l, NO_TLS);
        }
        if !(0.0..=MOST_EXPORTED).contains(&length) {
            return fail(l, NO_EXPORT);
        }
        let mut out = vec![0; length as usize];
        let filled = secret(|secrets| secrets.export(&label, context.as_deref(), &mut out))?;
        push_bytes(l, filled.map(|()| &out[..]), NO_EXPORT)
    }),
    function("_ssl.shared_ciphers", 0, |l| {
        let with_grease = l.kind(1) == crate::luajit::sys::kind::BOOLEAN && !l.boolean(1);
        match lend::any_exchange(shared_ciphers)? {
            Some(shared) if with_grease => Ok(push_numbers(l, shared.iter().copied())),
            Some(shared) => Ok(push_numbers(l, without_grease(&shared))),
            None => fail(l, NO_TLS),
        }
    }),
    function("_ssl.is_resumed", 0, |l| {
        match lend::any_exchange(|x| x.connection.tls.get().map(|tls| tls.facts.resumed))? {
            Some(resumed) => l.push_boolean(resumed),
            // Before its end a handshake resumes nothing.
            None if current()?.is_some() => l.push_boolean(false),
            None => return fail(l, NO_TLS),
        }
        Ok(CallDone::Results(1))
    }),
    function("_ssl.check_request", 0, |_| {
        lend::any_exchange(|_| ())?;
        Ok(CallDone::Results(0))
    }),
];

/// Userdata of certificates, and of keys.
const CHAIN: &std::ffi::CStr = c"weir.chain";
const KEY: &std::ffi::CStr = c"weir.private_key";
const NO_TLS: &str = "bad request";
const NO_EXPORT: &str = "SSL_export_keying_material() failed";
/// More than TLS 1.3 gives with any hash (RFC 5869, section 2.3).
const MOST_EXPORTED: f64 = 65536.0;
pub(crate) const NO_CERTIFICATE: &str = "d2i_X509_bio() failed";
pub(crate) const NO_KEY: &str = "d2i_PrivateKey_bio() failed";
pub(crate) const INVALID_CHAIN: &str = "invalid certificate chain";
pub(crate) const INVALID_KEY: &str = "invalid private key";

/// The chain in the first argument of `set_der_cert`; `None`: it is not a chain.
pub(crate) fn der_cert(l: LuaState) -> Result<Option<Rc<CertificateChain>>, LuaRaise> {
    Ok(parsed::chain_of_der(&expect_string(&l, 1, "set_der_cert")?))
}

/// The key in the first argument of `set_der_priv_key`; `None`: it is not a key.
pub(crate) fn der_key(l: LuaState) -> Result<Option<Rc<PrivateKey>>, LuaRaise> {
    Ok(parsed::key_of_der(&expect_string(&l, 1, "set_der_priv_key")?))
}

/// The first argument of `set_cert`; `None`: it is absent.
pub(crate) fn cert(l: LuaState) -> Result<Option<Rc<CertificateChain>>, LuaRaise> {
    chain_at(l, 1, "set_cert")
}

/// The first argument of `set_priv_key`; `None`: it is absent.
pub(crate) fn key(l: LuaState) -> Result<Option<Rc<PrivateKey>>, LuaRaise> {
    match l.owned::<PrivateKey>(1) {
        None if !l.is_none_or_nil(1) => Err(LuaRaise::argument(1, "set_priv_key", "no private key")),
        key => Ok(key),
    }
}

/// A chain of certificates, or nil.
fn chain_at(l: LuaState, at: c_int, function: &str) -> Result<Option<Rc<CertificateChain>>, LuaRaise> {
    match l.owned::<CertificateChain>(at) {
        None if !l.is_none_or_nil(at) => Err(LuaRaise::argument(at, function, "no certificate")),
        chain => Ok(chain),
    }
}

/// Pushes a chain as scripts have them.
pub(crate) fn push_chain(l: LuaState, chain: Rc<CertificateChain>) -> CallOutcome {
    push_owned(l, Some(chain), CHAIN, "")
}

/// Notes something for the running handshake: `true`, or nil and why not.
fn wish(l: LuaState, note: impl FnOnce(&mut HandshakeWishes) -> Result<(), &'static str>) -> CallOutcome {
    let handshake = current()?;
    if handshake.is_none() && lend::any_exchange(|x| x.connection.hello.get().is_none())? {
        return fail(l, NO_TLS);
    }
    noted(l, handshake.as_ref().map(|handshake| &handshake.wishes), note)
}

/// As [`wish`], for wishes of whichever side.
pub(crate) fn noted(
    l: LuaState,
    wishes: Option<&RefCell<HandshakeWishes>>,
    note: impl FnOnce(&mut HandshakeWishes) -> Result<(), &'static str>,
) -> CallOutcome {
    let Some(wishes) = wishes else { return fail(l, OVER) };
    match note(&mut wishes.borrow_mut()) {
        Ok(()) => {
            l.push_boolean(true);
            Ok(CallDone::Results(1))
        }
        Err(why) => fail(l, why),
    }
}

fn push_owned<T: 'static>(
    l: LuaState,
    value: Option<Rc<T>>,
    kind: &std::ffi::CStr,
    failed: &str,
) -> CallOutcome {
    match value {
        Some(value) => {
            l.push_owned(value, kind);
            Ok(CallDone::Results(1))
        }
        None => fail(l, failed),
    }
}

fn push_bytes(l: LuaState, bytes: Option<&[u8]>, failed: &str) -> CallOutcome {
    match bytes {
        Some(bytes) => {
            l.push_bytes(bytes);
            Ok(CallDone::Results(1))
        }
        None => fail(l, failed),
    }
}

/// An address in its own bytes, and which kind it is of.
fn push_addr(l: LuaState, addr: &SockAddr) -> CallOutcome {
    match addr.to_socket_addr().map(|addr| addr.ip()) {
        Some(std::net::IpAddr::V4(ip)) => {
            l.push_bytes(&ip.octets());
            l.push_bytes(b"inet");
        }
        Some(std::net::IpAddr::V6(ip)) => {
            l.push_bytes(&ip.octets());
            l.push_bytes(b"inet6");
        }
        None => {
            let path = addr.to_string();
            l.push_bytes(path.strip_prefix("unix:").unwrap_or(&path).as_bytes());
            l.push_bytes(b"unix");
        }
    }
    Ok(CallDone::Results(2))
}

/// Whether the connection's handshake is over.
fn is_complete() -> Result<bool, LuaRaise> {
    lend::any_exchange(|x| x.connection.tls.get().is_some())
}

/// What the connection's handshake has agreed upon in secret, if it is complete and has that.
fn secret<R>(of: impl FnOnce(&HandshakeSecrets) -> Option<R>) -> Result<Option<R>, LuaRaise> {
    lend::any_exchange(|x| x.connection.tls.get()?.secrets.as_deref().and_then(of))
}

/// The version of a handshake that is complete, by its number.
fn agreed_version(x: &Exchange) -> Option<u16> {
    match x.connection.tls.get()?.facts.version {
        "TLSv1.3" => Some(0x0304),
        _ => Some(0x0303),
    }
}

/// The ciphers that both sides have, in the client's order.
fn shared_ciphers(x: &mut Exchange) -> Option<Vec<u16>> {
    let hello = x.connection.hello.get()?;
    let own = server_tls(&x.connection.server()).map(|tls| tls.suites()).unwrap_or_default();
    Some(hello.cipher_suites.iter().copied().filter(|suite| own.contains(suite)).collect())
}

/// `verify_client(client_certs?, depth?, trusted_certs?)`
fn verify_client(l: LuaState) -> CallOutcome {
    let (reported, known) = (chain_at(l, 1, "verify_client")?, chain_at(l, 3, "verify_client")?);
    if current()?.is_none() {
        return fail(l, "API disabled in the current context");
    }
    let depth = l.number(2).filter(|depth| *depth >= 0.0).map(|depth| depth as usize);
    let configured = lend::any_exchange(|x| client_policy(&x.connection.server()).depth)?;
    let all = |chain: &Option<Rc<CertificateChain>>| {
        chain.as_ref().map(|chain| chain.certificates.clone()).unwrap_or_default()
    };
    let subjects = all(&reported).iter().filter_map(|der| facts::raw_subject(der)).collect();
    let certificates = all(&reported).into_iter().chain(all(&known)).collect();
    let clients = TrustedClients {
        subjects,
        trust: TrustStore { certificates, crls: Vec::new() },
        depth: depth.unwrap_or(configured),
    };
    wish(l, |wishes| {
        wishes.clients = Some(clients);
        Ok(())
    })
}
