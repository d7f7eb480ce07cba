//! `ngx.ssl.clienthello`

use std::rc::Rc;

use weir_tls::suites::ProtocolVersions;

use crate::api::ssl::{ClientHandshake, current};
use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, fail, function};
use crate::run::lend;
use crate::vm::phase::ScriptPhase;

pub(super) const TABLE: &[ApiFunction] = &[
    function("_ssl.hello_server_name", 0, |l| {
        match hello()?.greeting.hello.name_as_sent() {
            Some(name) => l.push_bytes(name),
            None => l.push_nil(),
        }
        Ok(CallDone::Results(1))
    }),
    function("_ssl.hello_ext", 0, |l| {
        let hello = hello()?;
        let kind = expect_number(l, 1, "get_client_hello_ext")? as u16;
        match hello.greeting.hello.extension_of(kind) {
            Some(content) => l.push_bytes(content),
            None => l.push_nil(),
        }
        Ok(CallDone::Results(1))
    }),
    function("_ssl.hello_ext_present", 0, |l| {
        let hello = hello()?;
        let kinds: Vec<u16> = hello.greeting.hello.extensions().map(|(kind, _)| kind).collect();
        Ok(push_numbers(l, without_grease(&kinds)))
    }),
    function("_ssl.hello_ciphers", 0, |l| {
        let hello = hello()?;
        Ok(push_numbers(l, without_grease(&hello.greeting.hello.cipher_suites)))
    }),
    function("_ssl.hello_versions", 0, |l| {
        let hello = hello()?;
        let Some(versions) = hello.greeting.hello.supported_versions() else {
            l.push_nil();
            return Ok(CallDone::Results(1));
        };
        l.new_table(versions.len(), 0);
        // OpenResty reads the list from its end.
        for (at, name) in versions.iter().rev().filter_map(|version| name_of(*version)).enumerate() {
            l.push_bytes(name.as_bytes());
            l.raw_set_index(-2, at + 1);
        }
        Ok(CallDone::Results(1))
    }),
    function("_ssl.set_protocols", 0, set_protocols),
];

/// The handshake of `ssl_client_hello_by_lua`, the only place where these functions may be called.
fn hello() -> Result<Rc<ClientHandshake>, LuaRaise> {
    let handshake = current()?.filter(|_| lend::phase() == ScriptPhase::SslClientHello);
    handshake.ok_or_else(|| LuaRaise::text("API disabled in the current context"))
}

/// Pushes a list of numbers.
pub(super) fn push_numbers(l: LuaState, numbers: impl Iterator<Item = u16>) -> CallDone {
    l.new_table(numbers.size_hint().1.unwrap_or(0), 0);
    for (at, number) in numbers.enumerate() {
        l.push_number(f64::from(number));
        l.raw_set_index(-2, at + 1);
    }
    CallDone::Results(1)
}

/// The numbers that mean something.
pub(super) fn without_grease(numbers: &[u16]) -> impl Iterator<Item = u16> {
    numbers.iter().copied().filter(|number| !is_grease(*number))
}

/// RFC 8701, section 2: `0x0a0a`, `0x1a1a` …
fn is_grease(number: u16) -> bool {
    number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff
}

/// The versions' names in OpenSSL's words.
const NAMES: [(u16, &str); 6] = [
    (0x0002, "SSLv2"),
    (0x0300, "SSLv3"),
    (0x0301, "TLSv1"),
    (0x0302, "TLSv1.1"),
    (0x0303, "TLSv1.2"),
    (0x0304, "TLSv1.3"),
];

fn name_of(version: u16) -> Option<&'static str> {
    NAMES.iter().find(|(number, _)| *number == version).map(|(_, name)| *name)
}

/// `set_protocols { "TLSv1.2", … }`; of those that are no more none is offered.
fn set_protocols(l: LuaState) -> CallOutcome {
    let hello = hello()?;
    let mut protocols = ProtocolVersions { tls12: false, tls13: false };
    for at in 1.. {
        l.raw_get_index(1, at);
        let name = l.lossy(-1);
        let over = l.is_none_or_nil(-1);
        l.pop(1);
        if over {
            break;
        }
        match NAMES.iter().find(|(_, known)| *known == name) {
            Some((0x0303, _)) => protocols.tls12 = true,
            Some((0x0304, _)) => protocols.tls13 = true,
            Some(_) => {}
            None => return fail(l, "invalid protocols failed"),
        }
    }
    hello.wishes.borrow_mut().protocols = Some(protocols);
    l.push_boolean(true);
    Ok(CallDone::Results(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grease_is_known() {
        let all = (0..=u16::MAX).filter(|number| is_grease(*number)).count();
        assert_eq!((all, is_grease(0x0a0a), is_grease(0xfafa), is_grease(0x0a1a)), (16, true, true, false));
    }
}
