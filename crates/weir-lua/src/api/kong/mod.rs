//! What lua-kong-nginx-module's C functions do, for `weir.kong_names`, which has them under their names.

use std::sync::Arc;

use weir_engine::Exchange;
use weir_engine::log::{self, LogLevel};
use weir_tls::certificate;
use weir_upstream::UpstreamOverrides;
use weir_upstream::tls_client::TlsOverrides;

use crate::api::ssl::{ScriptTrust, client_pair, current};
use crate::luajit::state::LuaState;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, expect_number, expect_string, fail, function,
};
use crate::run::lend;
use crate::vm::phase::REQUEST;

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_kong.variables", 0, variables),
    function("_kong.tag", REQUEST, |l| {
        let tag = lend::exchange(|x| x.plan.kept::<StaticTag>().map(|tag| tag.0.clone()))?;
        match tag {
            Some(tag) => l.push_bytes(tag.as_bytes()),
            None => l.push_nil(),
        }
        Ok(CallDone::Results(1))
    }),
    function("_kong.set_next_upstream", REQUEST, |l| {
        let mask = expect_number(l, 1, "set_next_upstream")? as u32;
        // None of the bits: as if nothing had been said.
        over(|own| own.next_upstream = (mask != 0).then_some(mask))
    }),
    function("_kong.set_authority", REQUEST, |l| {
        let authority = expect_string(&l, 1, "set_authority")?;
        over(|own| own.authority = Some(authority.into()))
    }),
    function("_kong.set_log_level", 0, |l| {
        let level = expect_number(l, 1, "set_log_level")?;
        let seconds = expect_number(l, 2, "set_log_level")?.max(0.0) as u64;
        let level = crate::api::log_level(level).unwrap_or(LogLevel::Stderr);
        log::set_dynamic_level(level, seconds);
        lend::forget_debug();
        Ok(CallDone::Results(0))
    }),
    function("_kong.log_level", 0, |l| {
        let configured = lend::any_exchange(|x| x.plan.core.error_log.configured_limit());
        let configured = configured.unwrap_or_else(|_| log::configured_main_limit());
        let (level, left) = log::dynamic_level().unwrap_or((configured, 0));
        for number in [f64::from(level as u8), left as f64, f64::from(configured as u8)] {
            l.push_number(number);
        }
        Ok(CallDone::Results(3))
    }),
    function("_kong.client_chain", REQUEST, client_chain),
    function("_kong.disable_session_reuse", 0, |l| match current()? {
        Some(handshake) => {
            handshake.wishes.borrow_mut().unresumable = true;
            l.push_boolean(true);
            Ok(CallDone::Results(1))
        }
        None => fail(l, "server does not have TLS enabled"),
    }),
    function("_kong.set_cert_and_key", REQUEST, |l| {
        let Some(pair) = client_pair(l, 1, 2) else { return fail(l, "no certificate and key") };
        match pair.certificate_now() {
            Ok(certificate) => over_tls(l, |own| own.certificate = Some(certificate)),
            Err(message) => fail(l, &message),
        }
    }),
    function("_kong.set_trusted_store", REQUEST, |l| {
        let Some(trust) = l.owned::<ScriptTrust>(1) else { return fail(l, "no trusted store") };
        over_tls(l, |own| own.trust = Some(Arc::clone(&trust.0)))
    }),
    function("_kong.set_verify", REQUEST, |l| {
        let verify = l.boolean(1);
        over_tls(l, |own| own.verify = Some(verify))
    }),
    function("_kong.set_plain", REQUEST, |l| over_tls(l, |own| own.plain = true)),
    function("_kong.set_verify_depth", REQUEST, |l| {
        let depth = expect_number(l, 1, "set_verify_depth")?.max(0.0) as usize;
        over_tls(l, |own| own.depth = Some(depth))
    }),
    function("_kong.set_hosts", REQUEST, |l| {
        let names = l.lossy(1);
        over_tls(l, |own| own.hosts = Some(names.into()))
    }),
    function("_kong.set_uris", REQUEST, |l| {
        let names = l.lossy(1);
        over_tls(l, |own| own.uris = Some(names.into()))
    }),
];

/// `lua_kong_set_static_tag`, in the plan of its location.
pub(crate) struct StaticTag(pub(crate) Box<str>);

/// The names of the variables that the configuration has numbers for, in their order.
fn variables(l: LuaState) -> CallOutcome {
    let home = lend::vm(|vm| vm.home.upgrade());
    l.new_table(128, 0);
    let Some(home) = home else { return Ok(CallDone::Results(1)) };
    for (at, name) in home.configuration.variables().variables.names().enumerate() {
        l.push_bytes(name.as_bytes());
        l.raw_set_index(-2, at + 1);
    }
    Ok(CallDone::Results(1))
}

/// Changes how the request is sent to servers.
fn over(change: impl FnOnce(&mut UpstreamOverrides)) -> CallOutcome {
    lend::exchange(|x| change(x.state()))?;
    Ok(CallDone::Results(0))
}

/// As [`over`], of TLS; `true`.
fn over_tls(l: LuaState, change: impl FnOnce(&mut TlsOverrides)) -> CallOutcome {
    lend::exchange(|x| change(x.state()))?;
    l.push_boolean(true);
    Ok(CallDone::Results(1))
}

/// The client's certificates as PEM; nil where it has shown none, or its session was resumed; false without TLS.
fn client_chain(l: LuaState) -> CallOutcome {
    match lend::exchange(chain_of_client)? {
        Some(Some(pem)) => l.push_bytes(pem.as_bytes()),
        Some(None) => l.push_nil(),
        None => l.push_boolean(false),
    }
    Ok(CallDone::Results(1))
}

fn chain_of_client(x: &mut Exchange) -> Option<Option<String>> {
    let tls = x.connection.tls.get()?;
    let shown = !tls.facts.peer.is_empty() && !tls.facts.resumed;
    Some(shown.then(|| tls.facts.peer.iter().map(|der| certificate::to_pem(der)).collect()))
}
