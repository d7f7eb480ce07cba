//! `resolver address... [parameters]`, read alike in all blocks.

use std::net::SocketAddr;
use std::sync::Arc;

use weir_conf::{LineCx, Result, parse_number, parse_time_ms, parse_time_s};
use weir_resolver::ResolverSettings;

use super::{Resolver, ResolverConfig};
use crate::privileged;
use weir_conf::split_port;

/// `resolver_timeout`, milliseconds.
pub const DEFAULT_TIMEOUT: u64 = 30_000;
/// The port of name servers.
const PORT: u16 = 53;

/// Reads a `resolver` line: nginx's parameters, and `backup=address`, `stale=time`, `confirm=number`, `heartbeat=time`,
/// `local=on`.
///
/// # Errors
/// nginx's words.
pub fn parse(line: &LineCx<'_>) -> Result<Arc<Resolver>> {
    let mut config = ResolverConfig { settings: ResolverSettings::default(), system: false };
    for at in 0..line.args().len() {
        let text = line.arg(at);
        let settings = &mut config.settings;
        let invalid = || line.fail_arg(at, format!("invalid parameter: {text}"));
        match text.split_once('=') {
            Some(("valid", time)) => {
                settings.valid = Some(parse_time_s(time.as_bytes()).ok_or_else(invalid)? * 1000);
            }
            Some(("ipv4", value)) => settings.ipv4 = flag(value).ok_or_else(invalid)?,
            Some(("ipv6", value)) => settings.ipv6 = flag(value).ok_or_else(invalid)?,
            Some(("local", value)) => config.system = flag(value).ok_or_else(invalid)?,
            Some(("stale", "off")) => settings.stale = 0,
            Some(("stale", time)) => settings.stale = parse_time_ms(time.as_bytes()).ok_or_else(invalid)?,
            Some(("confirm", number)) => {
                let number = parse_number(number.as_bytes()).and_then(|number| u32::try_from(number).ok());
                settings.confirm = number.filter(|number| (1..=16).contains(number)).ok_or_else(invalid)?;
            }
            Some(("heartbeat", time)) => {
                let time = parse_time_ms(time.as_bytes()).filter(|time| *time > 0);
                settings.heartbeat = Some(time.ok_or_else(invalid)?);
            }
            Some(("backup", server)) => settings.backups.extend(servers(line, at, server)?),
            _ => settings.servers.extend(servers(line, at, text)?),
        }
    }
    if !config.settings.ipv4 && !config.settings.ipv6 {
        return Err(line.fail("\"ipv4\" and \"ipv6\" cannot both be \"off\""));
    }
    if config.settings.servers.is_empty() && !config.system {
        return Err(line.fail("no name servers defined"));
    }
    Ok(Resolver::of(config))
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// The addresses of a name server, which may be a name that the system knows.
fn servers(line: &LineCx<'_>, at: usize, text: &str) -> Result<Vec<SocketAddr>> {
    let fail = |reason: &str| line.fail_arg(at, format!("{reason} in resolver \"{text}\""));
    let (host, port) = split_port(text).map_err(|_| fail("invalid port"))?;
    if host.is_empty() {
        return Err(fail("no host"));
    }
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    privileged::look_up(host, port.unwrap_or(PORT)).map_err(|_| fail("host not found"))
}

#[cfg(test)]
mod tests {
    use crate::conf::CORE_MODULES;
    use crate::conf::test::{headlines, load};

    #[test]
    fn mistakes_have_nginx_s_words() {
        for (text, message) in [
            ("resolver 127.0.0.1 valid=x;", "invalid parameter: valid=x"),
            ("resolver 127.0.0.1 ipv6=no;", "invalid parameter: ipv6=no"),
            ("resolver 127.0.0.1 confirm=0;", "invalid parameter: confirm=0"),
            ("resolver 127.0.0.1 ipv4=off ipv6=off;", "\"ipv4\" and \"ipv6\" cannot both be \"off\""),
            ("resolver valid=1s;", "no name servers defined"),
            ("resolver 127.0.0.1:0;", "invalid port in resolver \"127.0.0.1:0\""),
            ("resolver 127.0.0.1; resolver 127.0.0.1;", "\"resolver\" directive is duplicate"),
        ] {
            let found = headlines(&format!("http {{ {text} }}"), &CORE_MODULES);
            assert!(found.iter().any(|line| line.starts_with(message)), "{text}: {found:?}");
        }
    }

    #[test]
    fn the_same_words_are_the_same_resolver() {
        let text =
            "http { resolver 127.0.0.1:5353 [::1]:5353 valid=1s stale=1h backup=127.0.0.2 local=off; }";
        assert!(load(text, &CORE_MODULES).is_ok());
        let config = || {
            let settings =
                super::ResolverSettings { servers: vec![([127, 0, 0, 1], 1).into()], ..Default::default() };
            super::ResolverConfig { settings, system: false }
        };
        let (one, other) = (super::Resolver::of(config()), super::Resolver::of(config()));
        assert!(std::sync::Arc::ptr_eq(&one, &other));
    }
}
