//! `listen`: the addresses of the file and of its hosts.

use super::level::{LevelLines, unknown};
use super::node::{YamlNode, YamlValue};
use super::tls;
use crate::{DirectiveLine, Error, Result, Span};

/// An address to listen on.
#[derive(Clone)]
pub(super) struct ListenKey {
    pub(super) address: String,
    pub(super) port: Option<u16>,
    /// Without a host: all addresses of both families.
    pub(super) is_any: bool,
    pub(super) is_tls: bool,
    /// `type: quic`: datagrams, beside the same address for TCP.
    pub(super) is_quic: bool,
    /// The PROXY protocol begins its connections.
    pub(super) has_proxy_header: bool,
    /// Parameters of the socket, which one line of an address has.
    pub(super) parameters: Vec<String>,
    /// `ssl_...` lines of the server.
    pub(super) settings: Vec<DirectiveLine>,
    pub(super) span: Span,
}

impl ListenKey {
    fn plain(address: String, port: Option<u16>, span: Span) -> ListenKey {
        ListenKey {
            address,
            port,
            is_any: false,
            is_tls: false,
            is_quic: false,
            has_proxy_header: false,
            parameters: Vec::new(),
            settings: Vec::new(),
            span,
        }
    }
}

pub(super) fn read(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    for item in value.items() {
        level.listens.push(match &item.value {
            YamlValue::Map(entries) => listen(key, entries)?,
            _ => ListenKey {
                is_any: true,
                ..ListenKey::plain(item.text()?.to_owned(), port(item)?, item.span)
            },
        });
    }
    Ok(())
}

/// The port, when `node` is one.
fn port(node: &YamlNode) -> Result<Option<u16>> {
    match node.text()?.parse() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err(Error::new(format!("invalid port \"{}\"", node.text()?)).at(node.span)),
    }
}

/// `listen: {port, host, type, ssl, proxy-protocol, ...}`
fn listen(key: &YamlNode, entries: &[(YamlNode, YamlNode)]) -> Result<ListenKey> {
    let value = |name: &str| {
        entries.iter().find(|(key, _)| key.text().is_ok_and(|key| key == name)).map(|(_, value)| value)
    };
    let number = value("port").ok_or_else(|| Error::new("\"listen\" has no \"port\"").at(key.span))?;
    let kind = value("type").map_or(Ok("tcp"), YamlNode::text)?;
    let mut listen = match (kind, value("host")) {
        ("unix", _) => ListenKey::plain(format!("unix:{}", number.plain()?), None, number.span),
        ("tcp" | "quic", None) => {
            let plain = ListenKey::plain(number.text()?.to_owned(), port(number)?, number.span);
            ListenKey { is_any: true, ..plain }
        }
        ("tcp" | "quic", Some(host)) => {
            let (name, bracket) = (host.plain()?, host.text()?.contains(':'));
            let name = if bracket { format!("[{name}]") } else { name.to_owned() };
            ListenKey::plain(format!("{name}:{}", number.text()?), port(number)?, host.span)
        }
        (kind, _) => {
            let at = value("type").map_or(key.span, |node| node.span);
            let error = Error::new(format!("\"type: {kind}\" is not supported")).at(at);
            return Err(error.hint("\"tcp\", \"unix\" and \"quic\" are"));
        }
    };
    listen.is_quic = kind == "quic";
    if kind == "unix" && value("permission").is_none() {
        // What the usual umask leaves: its owner may connect.
        listen.parameters.push("mode=755".into());
    }
    for (key, value) in entries {
        parameter(&mut listen, key, value)?;
    }
    Ok(listen)
}

fn parameter(listen: &mut ListenKey, key: &YamlNode, value: &YamlNode) -> Result {
    let is_unix = listen.address.starts_with("unix:");
    match key.text()? {
        "port" | "host" | "type" => {}
        "ssl" => {
            listen.is_tls = true;
            listen.span = key.span;
            listen.settings = tls::settings(value)?;
        }
        "proxy-protocol" => listen.has_proxy_header = value.flag()?,
        "quic" if listen.is_quic => quic(value)?,
        name @ ("sndbuf" | "rcvbuf") => listen.parameters.push(format!("{name}={}", value.number()?)),
        name @ ("owner" | "group" | "permission") if is_unix => {
            let name = if name == "permission" { "mode" } else { name };
            listen.parameters.push(format!("{name}={}", value.plain()?));
        }
        // QUIC's own: congestion control is the library's.
        "initcwnd" if !listen.is_quic => {
            value.number()?;
        }
        name @ ("cc" | "initcwnd") => {
            let error = Error::new(format!("\"{name}\" is not supported")).at(key.span);
            return Err(error.hint("the system's setting net.ipv4.tcp_congestion_control is for all of TCP"));
        }
        name => return Err(unknown(key, name, KNOWN)),
    }
    Ok(())
}

/// Parameters of QUIC: those that tune the library have no counterpart.
fn quic(value: &YamlNode) -> Result {
    let YamlValue::Map(entries) = &value.value else { return Ok(()) };
    match entries.first() {
        None => Ok(()),
        Some((key, _)) => {
            let name = key.text()?;
            Err(Error::new(format!("the parameter \"{name}\" of QUIC is not supported")).at(key.span))
        }
    }
}

const KNOWN: &[&str] = &[
    "port",
    "host",
    "type",
    "ssl",
    "proxy-protocol",
    "quic",
    "sndbuf",
    "rcvbuf",
    "owner",
    "group",
    "permission",
];
