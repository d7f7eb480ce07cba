//! Targets for the modules: the lines and blocks of their directives, and what they read of requests, files and bodies.

use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, test, with_core};
use weir_modules::{
    Browser, Charset, Geo, Headers, LimitConn, LimitReq, Log, Map, Realip, Referer, SplitClients, Sub, Subs,
};

static MODULES: [ModuleDef; CORE_MODULES.len() + 13] = with_core(&[
    ModuleDef::of::<Log>(),
    ModuleDef::of::<Realip>(),
    ModuleDef::of::<Geo>(),
    ModuleDef::of::<Map>(),
    ModuleDef::of::<SplitClients>(),
    ModuleDef::of::<Referer>(),
    ModuleDef::of::<Browser>(),
    ModuleDef::of::<LimitReq>(),
    ModuleDef::of::<LimitConn>(),
    ModuleDef::of::<Headers>(),
    ModuleDef::of::<Subs>(),
    ModuleDef::of::<Sub>(),
    ModuleDef::of::<Charset>(),
]);

/// `map`: texts, host names, patterns.
pub fn map(data: &[u8]) {
    lines("map $arg_a $b { ", data, " }");
}

/// `geo` with networks.
pub fn geo(data: &[u8]) {
    lines("geo $b { ", data, " }");
}

/// `geo` with ranges of addresses.
pub fn geo_ranges(data: &[u8]) {
    lines("geo $b { ranges; ", data, " }");
}

/// `charset_map`, of bytes and of UTF-8. The first byte chooses.
pub fn charset_map(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let head =
        if first % 2 == 0 { "charset_map koi8-r windows-1251 { " } else { "charset_map koi8-r utf-8 { " };
    lines(head, rest, " }");
}

/// Texts and patterns of `sub_filter` and `subs_filter`. The first byte chooses.
pub fn sub_lines(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    lines(if first % 2 == 0 { "sub_filter " } else { "subs_filter " }, rest, ";");
}

/// Zones, keys, rates, shares, addresses, times: directives whose arguments have a form of their own.
pub fn forms(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let (head, tail) = FORMS[usize::from(first) % FORMS.len()];
    lines(head, rest, tail);
}

const FORMS: [(&str, &str); 8] = [
    ("limit_req_zone $arg_a zone=", ";"),
    ("limit_req_zone $arg_a zone=a:1m rate=", "; limit_req zone=a;"),
    ("limit_conn_zone ", " zone=c:1m;"),
    ("split_clients $arg_a $b { ", " }"),
    ("set_real_ip_from ", ";"),
    ("expires ", ";"),
    ("modern_browser ", ";"),
    ("server { valid_referers ", "; }"),
];

/// Where logs go: addresses of `tcp://`, `udp://` and syslog servers, parameters of syslog. One word without letters, so that no
/// name is looked up, or one of parameters.
pub fn log_servers(data: &[u8]) {
    let is_address = |byte: &u8| byte.is_ascii_digit() || b".:[]-+%_,=".contains(byte);
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-=,.:".contains(byte);
    if data.iter().all(is_address) {
        for head in ["access_log tcp://", "access_log udp://", "access_log syslog:server="] {
            lines(head, data, ";");
        }
    } else if data.iter().all(is_word) && !data.windows(7).any(|word| word == b"server=") {
        lines("access_log syslog:server=127.0.0.1,", data, ";");
    }
}

/// `data` between `head` and `tail` in `http` is taken, or refused with places. What could end the block or open a log
/// file is left out.
fn lines(head: &str, data: &[u8], tail: &str) {
    let opens_log = data.windows(4).any(|word| word == b"_log") || data.contains(&b'}');
    let (Ok(data), false) = (std::str::from_utf8(data), opens_log) else { return };
    let text =
        format!("error_log stderr; events {{ }} http {{ access_log off; {head}{data}{tail} server {{ }} }}");
    if let Err(errors) = test::load(&text, &MODULES) {
        assert!(errors.contains(test::FILE), "{errors}");
    }
}
