//! `$ssl_...`: empty (not found) on connections without TLS.

use weir_http::escape;
use weir_tls::{HelloFields, certificate, facts, suites};

use super::accepted;
use weir_engine::exchange::Exchange;
use weir_engine::text::Text;
use weir_engine::transport::tls::ConnectionTls;
use weir_engine::variable::Variable;

pub(super) const VARIABLES: &[Variable] = &[
    variable("ssl_protocol", |x| with(x, |tls| Some(tls.facts.version.to_owned()))),
    variable("ssl_cipher", |x| with(x, |tls| Some(tls.facts.cipher.to_owned()))),
    variable("ssl_ciphers", |x| said(x, |hello| Some(ciphers(hello)))),
    variable("ssl_curve", |x| with(x, |tls| some(tls.facts.curve.to_owned()))),
    variable("ssl_curves", |x| said(x, |hello| some(curves(hello)))),
    variable("ssl_sigalg", |x| with(x, |tls| some(tls.facts.signature.to_owned()))),
    variable("ssl_sigalgs", |x| said(x, |hello| some(signatures(hello)))),
    variable("ssl_session_id", |x| said(x, |hello| some(hex(&hello.session_id)))),
    variable("ssl_session_reused", |x| {
        with(x, |tls| Some(if tls.facts.resumed { "r" } else { "." }.to_owned()))
    }),
    variable("ssl_early_data", early_data).volatile(),
    variable("ssl_server_name", server_name),
    variable("ssl_alpn_protocol", |x| {
        with(x, |tls| tls.facts.alpn.as_ref().map(|it| String::from_utf8_lossy(it).into_owned()))
    }),
    // There is no ECH here; nginx without it says nothing, too.
    variable("ssl_ech_status", |_| None),
    variable("ssl_ech_outer_server_name", |_| None),
    variable("ssl_client_sigalg", |x| with(x, |tls| some(tls.facts.peer_signature.to_owned()))),
    variable("ssl_client_cert", |x| client(x, |der| Some(one_line(&certificate::to_pem(der))))),
    variable("ssl_client_raw_cert", |x| {
        client(x, |der| Some(certificate::to_pem(der).trim_end().to_owned()).map(|pem| pem + "\n"))
    }),
    variable("ssl_client_escaped_cert", |x| client(x, |der| Some(escaped(&certificate::to_pem(der))))),
    variable("ssl_client_s_dn", |x| client(x, facts::subject)),
    variable("ssl_client_i_dn", |x| client(x, facts::issuer)),
    variable("ssl_client_s_dn_legacy", |x| client(x, facts::subject_oneline)),
    variable("ssl_client_i_dn_legacy", |x| client(x, facts::issuer_oneline)),
    variable("ssl_client_serial", |x| client(x, facts::serial)),
    variable("ssl_client_fingerprint", |x| client(x, |der| Some(facts::fingerprint(der)))),
    variable("ssl_client_verify", verify),
    variable("ssl_client_v_start", |x| client(x, facts::valid_from)),
    variable("ssl_client_v_end", |x| client(x, facts::valid_until)),
    variable("ssl_client_v_remain", |x| {
        client(x, |der| facts::days_left(der, weir_rt::unix_time().0).map(|days| days.to_string()))
    }),
];

/// All may be given another value by `set` and `map`, as in nginx: behind a proxy that has ended TLS they are what it says.
const fn variable(name: &'static str, get: fn(&mut Exchange) -> Option<Text>) -> Variable {
    Variable::new(name, get).changeable()
}

/// Something of the connection's TLS.
fn with(x: &mut Exchange, f: impl FnOnce(&ConnectionTls) -> Option<String>) -> Option<Text> {
    let connection = x.connection.clone();
    let value = f(connection.tls.get()?)?;
    Some(Text::Span(x.arena.push(value.as_bytes())))
}

/// Something that the client said at first.
fn said(x: &mut Exchange, f: impl FnOnce(&HelloFields) -> Option<String>) -> Option<Text> {
    let connection = x.connection.clone();
    let value = f(connection.hello.get()?)?;
    Some(Text::Span(x.arena.push(value.as_bytes())))
}

/// Something of the client's certificate.
fn client(x: &mut Exchange, f: impl FnOnce(&[u8]) -> Option<String>) -> Option<Text> {
    with(x, |tls| f(tls.certificate()?))
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// `SUCCESS`, `FAILED:why`, `NONE`
fn verify(x: &mut Exchange) -> Option<Text> {
    let connection = x.connection.clone();
    let tls = connection.tls.get()?;
    if tls.certificate().is_none() {
        return Some(Text::Static(b"NONE"));
    }
    match accepted::verdict(x, tls) {
        Ok(()) => Some(Text::Static(b"SUCCESS")),
        Err(why) => Some(Text::Span(x.arena.push(format!("FAILED:{why}").as_bytes()))),
    }
}

/// `1` as long as the handshake is not over.
fn early_data(x: &mut Exchange) -> Option<Text> {
    let tls = x.connection.tls.get()?;
    tls.early.get().then_some(Text::Static(b"1"))
}

/// The name of the ClientHello; known while certificates are chosen, too.
fn server_name(x: &mut Exchange) -> Option<Text> {
    let connection = x.connection.clone();
    let name = connection.hello.get()?.server_name.as_ref()?;
    Some(Text::Span(x.arena.push(name.as_bytes())))
}

fn ciphers(hello: &HelloFields) -> String {
    let name = |n: &u16| suites::known_suite(*n).map_or_else(|| format!("0x{n:04x}"), str::to_owned);
    hello.cipher_suites.iter().map(name).collect::<Vec<_>>().join(":")
}

fn curves(hello: &HelloFields) -> String {
    let name = |n: &u16| match suites::group_name(*n) {
        "" => format!("0x{n:04x}"),
        known => known.to_owned(),
    };
    hello.groups.iter().map(name).collect::<Vec<_>>().join(":")
}

fn signatures(hello: &HelloFields) -> String {
    let name = |n: &u16| match suites::signature_name(*n) {
        "" => format!("0x{n:04x}"),
        known => known.to_owned(),
    };
    hello.signature_schemes.iter().map(name).collect::<Vec<_>>().join(":")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Lines after the first begin with a tab, so that it can be a field's value.
fn one_line(pem: &str) -> String {
    pem.trim_end().replace('\n', "\n\t")
}

fn escaped(pem: &str) -> String {
    let mut out = Vec::new();
    escape::escape(&mut out, pem.as_bytes(), escape::EscapeSet::UriComponent);
    String::from_utf8_lossy(&out).into_owned()
}
