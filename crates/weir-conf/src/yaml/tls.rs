//! `listen: ssl:` and `ssl-session-resumption`.

use super::level::{LevelLines, copied, line, numbered, short, unknown};
use super::node::YamlNode;
use crate::{DirectiveLine, Error, Result};

/// The lines that the mapping `ssl` becomes.
pub(super) fn settings(value: &YamlNode) -> Result<Vec<DirectiveLine>> {
    let mut lines = Vec::new();
    let (mut lowest, mut highest) = (None, None);
    let mut staples = true;
    for (key, value) in value.map()? {
        match key.text()? {
            "identity" => identities(&mut lines, value)?,
            "cipher-suite-tls1.3" => {
                let names: Vec<_> = value.items().iter().map(YamlNode::text).collect::<Result<_>>()?;
                lines.push(short("ssl_conf_command", key.span, &["Ciphersuites", &names.join(":")]));
            }
            "cipher-preference" => {
                let server = match value.text()? {
                    "server" => "on",
                    "client" => "off",
                    other => return Err(Error::new(format!("invalid value \"{other}\"")).at(value.span)),
                };
                lines.push(line("ssl_prefer_server_ciphers", key.span, &[(server, value.span)]));
            }
            "key-exchange-tls1.3" => {
                let names: Vec<_> = value.items().iter().map(curve).collect::<Result<_>>()?;
                lines.push(line("ssl_ecdh_curve", key.span, &[(&names.join(":"), value.span)]));
            }
            "client-ca-file" => {
                lines.push(short("ssl_verify_client", key.span, &["on"]));
                lines.push(copied("ssl_client_certificate", key, value)?);
            }
            "minimum-version" | "min-version" => lowest = Some((version(value)?, key)),
            "maximum-version" | "max-version" => highest = Some((version(value)?, key)),
            "ocsp-update-interval" => staples = value.number()? > 0,
            // How often a failed responder is asked is Weir's own schedule.
            "ocsp-max-failures" => {
                value.number()?;
            }
            // Keys are not given to another process; see ssl_key_pool.
            "neverbleed" => {
                value.flag()?;
            }
            name => match COPIED.iter().find(|(known, _)| *known == name) {
                Some((_, directive)) => lines.push(copied(directive, key, value)?),
                None if REFUSED.contains(&name) => {
                    return Err(Error::new(format!("\"{name}\" is not supported")).at(key.span));
                }
                None => return Err(unknown(key, name, &COPIED.map(|(known, _)| known))),
            },
        }
    }
    if let Some((_, key)) = lowest.or(highest) {
        let (lowest, highest) =
            (lowest.map_or(0, |(at, _)| at), highest.map_or(VERSIONS.len(), |(at, _)| at + 1));
        let versions = VERSIONS.get(lowest..highest).filter(|versions| !versions.is_empty());
        let versions = versions.ok_or_else(|| Error::new("no version is left").at(key.span))?;
        let known: Vec<&str> =
            versions.iter().copied().filter(|version| version.starts_with("TLSv1.")).collect();
        lines.push(short("ssl_protocols", key.span, &known));
    }
    if staples && lines.iter().any(|line| line.name.is("ssl_certificate")) {
        lines.push(short("ssl_stapling", value.span, &["on"]));
    }
    Ok(lines)
}

/// `identity`: pairs of a certificate and a key.
fn identities(lines: &mut Vec<DirectiveLine>, value: &YamlNode) -> Result {
    for pair in value.items() {
        for (key, value) in pair.map()? {
            match key.text()? {
                "certificate-file" => lines.push(copied("ssl_certificate", key, value)?),
                "key-file" => lines.push(copied("ssl_certificate_key", key, value)?),
                name => return Err(unknown(key, name, &["certificate-file", "key-file"])),
            }
        }
    }
    Ok(())
}

fn curve(node: &YamlNode) -> Result<&'static str> {
    Ok(match node.text()? {
        "x25519" => "X25519",
        "secp256r1" => "prime256v1",
        "secp384r1" => "secp384r1",
        "secp521r1" => "secp521r1",
        "x25519mlkem768" => "X25519MLKEM768",
        other => return Err(Error::new(format!("unknown key exchange \"{other}\"")).at(node.span)),
    })
}

/// Where a version is in [`VERSIONS`].
fn version(node: &YamlNode) -> Result<usize> {
    let text = node.text()?;
    let at = VERSIONS.iter().position(|known| known.eq_ignore_ascii_case(text));
    at.ok_or_else(|| Error::new(format!("unknown protocol version \"{text}\"")).at(node.span))
}

const VERSIONS: [&str; 6] = ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];

const COPIED: [(&str, &str); 4] = [
    ("certificate-file", "ssl_certificate"),
    ("key-file", "ssl_certificate_key"),
    ("cipher-suite", "ssl_ciphers"),
    ("dh-file", "ssl_dhparam"),
];

const REFUSED: [&str; 4] = ["ech", "max-tickets", "ticket-based", "ocsp-update-cmd"];

/// `ssl-session-resumption: {mode: all, ...}`
pub(super) fn resumption(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let mut mode = "all";
    for (name, value) in value.map()? {
        match (name.text()?, value.text()?) {
            ("mode", text) if ["off", "cache", "ticket", "all"].contains(&text) => mode = text,
            ("cache-store" | "ticket-store", "internal") => {}
            ("cache-store" | "ticket-store", other) => {
                let error = Error::new(format!("the store \"{other}\" is not supported")).at(value.span);
                return Err(error.hint("the workers of a server share sessions; ssl_session_ticket_key shares keys of tickets among machines"));
            }
            ("lifetime", _) => level.lines.push(numbered("ssl_session_timeout", "s", name, value)?),
            ("cache-memcached-num-threads" | "cache-memcached-prefix" | "num-threads", _) => {
                return Err(Error::new("stores of sessions elsewhere are not supported").at(name.span));
            }
            ("mode", other) => return Err(Error::new(format!("invalid value \"{other}\"")).at(value.span)),
            (other, _) => {
                return Err(unknown(name, other, &["mode", "cache-store", "ticket-store", "lifetime"]));
            }
        }
    }
    let cache = if matches!(mode, "cache" | "all") { "shared:h2o:10m" } else { "off" };
    level.lines.push(short("ssl_session_cache", key.span, &[cache]));
    let tickets = if matches!(mode, "ticket" | "all") { "on" } else { "off" };
    level.lines.push(short("ssl_session_tickets", key.span, &[tickets]));
    Ok(())
}
