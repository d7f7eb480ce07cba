//! `ngx.ocsp`

use std::rc::Rc;

use weir_tls::ocsp::{self, CertificateStatus, OcspSigner};

use crate::api::ssl::functions::NO_CERTIFICATE;
use crate::api::ssl::parsed::{CertificateChain, chain_of_der};
use crate::api::ssl::{OVER, current};
use crate::luajit::state::LuaState;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, expect_string, fail, function,
};

pub(super) const TABLE: &[ApiFunction] = &[
    function("_ssl.ocsp_responder", 0, responder),
    function("_ssl.ocsp_request", 0, request),
    function("_ssl.ocsp_validate", 0, validate),
    function("_ssl.set_ocsp", 0, |l| {
        let response = expect_string(&l, 1, "set_ocsp_status_resp")?;
        let Some(handshake) = current()? else { return fail(l, OVER) };
        l.push_boolean(true);
        if !handshake.greeting.hello.wants_status() {
            l.push_bytes(b"no status req");
            return Ok(CallDone::Results(2));
        }
        if response.is_empty() {
            // What OpenSSL says to a response of no bytes.
            return fail(l, "OPENSSL_malloc() failed");
        }
        handshake.wishes.borrow_mut().status = Some(response);
        Ok(CallDone::Results(1))
    }),
];

/// The chain of an argument; `None`: it is not a chain.
fn chain(l: LuaState, at: i32, name: &str) -> Result<Option<Rc<CertificateChain>>, LuaRaise> {
    Ok(chain_of_der(&expect_string(&l, at, name)?))
}

/// How long a result may be, if that is limited.
fn most(l: LuaState, at: i32, name: &str) -> Result<usize, LuaRaise> {
    if l.is_none_or_nil(at) { Ok(BUFFER) } else { Ok(expect_number(l, at, name)? as usize) }
}

/// OpenResty's buffer for results, unless scripts have another length for it.
const BUFFER: usize = 4096;

fn responder(l: LuaState) -> CallOutcome {
    const NAME: &str = "get_ocsp_responder_from_der_chain";
    let Some(chain) = chain(l, 1, NAME)? else { return fail(l, NO_CERTIFICATE) };
    let most = most(l, 2, NAME)?;
    let Some(url) = ocsp::responder(&chain.certificates[0]) else {
        l.push_nil();
        return Ok(CallDone::Results(1));
    };
    let shown = &url.as_bytes()[..url.len().min(most)];
    l.push_bytes(shown);
    if shown.len() == url.len() {
        return Ok(CallDone::Results(1));
    }
    l.push_bytes(b"truncated");
    Ok(CallDone::Results(2))
}

/// The certificate's identifier for its issuer.
fn id(chain: &CertificateChain) -> Result<Vec<u8>, &'static str> {
    let [certificate, issuer, ..] = &chain.certificates[..] else {
        return Err("no issuer certificate in chain");
    };
    match ocsp::issuer(certificate, [issuer]) {
        Some(_) => ocsp::id(certificate, issuer).ok_or("OCSP_cert_to_id() failed"),
        None => Err("issuer certificate not next to leaf"),
    }
}

fn request(l: LuaState) -> CallOutcome {
    const NAME: &str = "create_ocsp_request";
    let Some(chain) = chain(l, 1, NAME)? else { return fail(l, NO_CERTIFICATE) };
    let most = most(l, 2, NAME)?;
    match id(&chain).map(|id| ocsp::request(&id)) {
        Err(why) => fail(l, why),
        Ok(request) if request.len() > most => {
            fail(l, &format!("output buffer too small: {} > {most}", request.len()))
        }
        Ok(request) => {
            l.push_bytes(&request);
            Ok(CallDone::Results(1))
        }
    }
}

fn validate(l: LuaState) -> CallOutcome {
    const NAME: &str = "validate_ocsp_response";
    let response = expect_string(&l, 1, NAME)?;
    let chain = chain(l, 2, NAME)?;
    let most = most(l, 3, NAME)?;
    match validated(&response, chain.as_deref()) {
        Ok(until) => {
            l.push_boolean(true);
            match until {
                Some(until) => l.push_number(until as f64),
                None => l.push_nil(),
            }
            Ok(CallDone::Results(2))
        }
        Err(why) => fail(l, &why.chars().take(most).collect::<String>()),
    }
}

/// Until when the certificate is known to be good, in seconds since 1970; `None`: newer responses may be had at any
/// time.
fn validated(response: &[u8], chain: Option<&CertificateChain>) -> Result<Option<u64>, String> {
    let chain = chain.ok_or(NO_CERTIFICATE)?;
    id(chain)?;
    let (certificate, issuer) = (&chain.certificates[0], &chain.certificates[1]);
    let now = weir_rt::unix_time().0;
    let checked = ocsp::check_response(
        response,
        certificate,
        issuer,
        &chain.certificates[1..],
        OcspSigner::Issuer,
        now,
    );
    let checked = checked.map_err(|error| {
        let text = error.to_string();
        text.split(" (SSL:").next().unwrap_or(&text).to_owned()
    })?;
    match checked.status {
        CertificateStatus::Good => Ok(checked.until),
        status => Err(format!("certificate status \"{}\" in the OCSP response", status.name())),
    }
}
