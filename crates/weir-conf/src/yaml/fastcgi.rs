//! `fastcgi.*`: servers of FastCGI, and what is sent to them.

use super::level::{InheritedKeys, LevelLines, block, line, share, short, unknown};
use super::node::{YamlNode, YamlValue, escaped_dollars};
use crate::{DirectiveLine, Error, Result, Span};

/// What the keys `fastcgi.*` say.
#[derive(Clone, Debug, Default)]
pub(super) struct FastcgiKeys {
    /// Milliseconds.
    io: Option<u64>,
    /// Milliseconds; connections are used once without it.
    keepalive: Option<u64>,
    document_root: Option<String>,
    sends_delegated: bool,
}

/// The settings, which count for all handlers of a level and inside of it.
pub(super) fn read(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let keys = &mut level.inherited.fastcgi;
    match key.text()? {
        "fastcgi.timeout.io" => keys.io = Some(value.number()?),
        "fastcgi.timeout.keepalive" => keys.keepalive = Some(value.number()?),
        "fastcgi.document_root" => keys.document_root = Some(value.literal()?.into_owned()),
        _ => keys.sends_delegated = value.flag()?,
    }
    Ok(())
}

/// What a script is called, as texts with variables.
pub(super) struct ScriptNames<'t> {
    pub(super) script_name: &'t str,
    pub(super) path_info: &'t str,
    /// Its path on the disk, if it has one.
    pub(super) file: Option<&'t str>,
}

/// The lines of a location whose requests go to the server that `value` names.
pub(super) fn lines(
    key: &YamlNode,
    value: &YamlNode,
    inherited: &InheritedKeys<'_>,
    names: &ScriptNames<'_>,
    shared: &mut Vec<DirectiveLine>,
) -> Result<Vec<DirectiveLine>> {
    let (keys, at) = (&inherited.fastcgi, key.span);
    let upstream = match key.text()? {
        "fastcgi.spawn" => spawned(value, shared)?,
        _ => connected(value, keys, shared)?,
    };
    let io = format!("{}ms", keys.io.unwrap_or(30_000));
    let mut lines = vec![
        short("fastcgi_pass", at, &[&upstream]),
        short("fastcgi_connect_timeout", at, &[&io]),
        short("fastcgi_read_timeout", at, &[&io]),
        short("fastcgi_send_timeout", at, &[&io]),
        short("fastcgi_keep_conn", at, &[if keys.keepalive.unwrap_or(0) > 0 { "on" } else { "off" }]),
    ];
    let mut parameter = |name: &str, value: &str| lines.push(short("fastcgi_param", at, &[name, value]));
    for (name, value) in PARAMETERS {
        parameter(name, value);
    }
    let uri = if keys.sends_delegated { "$uri$is_args$args" } else { "$request_uri" };
    parameter("REQUEST_URI", uri);
    parameter("SCRIPT_NAME", names.script_name);
    if !names.path_info.is_empty() {
        parameter("PATH_INFO", names.path_info);
    }
    if let Some(file) = names.file {
        parameter("SCRIPT_FILENAME", file);
    }
    if let Some(root) = &keys.document_root {
        parameter("DOCUMENT_ROOT", root);
    }
    for (name, value) in &inherited.environment {
        parameter(name.text()?, &escaped_dollars(value.text()?));
    }
    if !inherited.error_docs.is_empty() {
        lines.push(short("fastcgi_intercept_errors", at, &["on"]));
    }
    Ok(lines)
}

const PARAMETERS: [(&str, &str); 13] = [
    ("GATEWAY_INTERFACE", "CGI/1.0"),
    ("SERVER_SOFTWARE", "weir/$nginx_version"),
    ("SERVER_PROTOCOL", "$server_protocol"),
    ("SERVER_NAME", "$host"),
    ("SERVER_ADDR", "$server_addr"),
    ("SERVER_PORT", "$server_port"),
    ("REMOTE_ADDR", "$remote_addr"),
    ("REMOTE_PORT", "$remote_port"),
    ("REQUEST_METHOD", "$request_method"),
    ("QUERY_STRING", "$query_string"),
    ("CONTENT_TYPE", "$content_type"),
    ("CONTENT_LENGTH", "$content_length"),
    ("HTTPS", "$https"),
];

/// `fastcgi.connect: PORT`, `fastcgi.connect: {host, port, type}`: the name of its upstream.
fn connected(value: &YamlNode, keys: &FastcgiKeys, shared: &mut Vec<DirectiveLine>) -> Result<String> {
    let (mut host, mut port, mut kind) = (None, value, "tcp");
    if let YamlValue::Map(entries) = &value.value {
        let mut has_port = false;
        for (key, value) in entries {
            match key.text()? {
                "host" => host = Some(value.plain()?),
                "port" => (port, has_port) = (value, true),
                "type" => kind = value.plain()?,
                other => return Err(unknown(key, other, &["host", "port", "type"])),
            }
        }
        if !has_port {
            return Err(Error::new("\"port\" is missing").at(value.span));
        }
    }
    let address = match kind {
        "unix" => format!("unix:{}", port.plain()?),
        "tcp" if port.text()?.parse::<u16>().is_ok_and(|port| port > 0) => {
            let host = host.unwrap_or("127.0.0.1");
            let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            format!("{host}:{}", port.text()?)
        }
        "tcp" => return Err(Error::new(format!("invalid port \"{}\"", port.text()?)).at(port.span)),
        other => return Err(Error::new(format!("invalid type \"{other}\"")).at(value.span)),
    };
    let name = format!("fastcgi-at-{}-{}", port.span.file_number(), port.span.start);
    upstream(&name, &[(&address, 1)], keys.keepalive, port.span, shared);
    Ok(name)
}

/// `fastcgi.spawn: COMMAND`, `fastcgi.spawn: {command: COMMAND}`: the variable with its address.
fn spawned(value: &YamlNode, shared: &mut Vec<DirectiveLine>) -> Result<String> {
    let mut command = value;
    if let YamlValue::Map(entries) = &value.value {
        for (key, value) in entries {
            match key.text()? {
                "command" => command = value,
                "user" => {
                    let error = Error::new("\"user\" of \"fastcgi.spawn\" is not supported").at(key.span);
                    return Err(error.hint("the program has the server's user; start one with another beside Weir, and name its socket with \"fastcgi.connect\""));
                }
                other => return Err(unknown(key, other, &["command", "user"])),
            }
        }
    }
    let name = format!("h2o_{}_{}", command.span.file_number(), command.span.start);
    share(
        shared,
        line("fastcgi_spawn", command.span, &[(&name, command.span), (command.text()?, command.span)]),
    );
    Ok(format!("$fastcgi_spawned_{name}"))
}

/// Adds an `upstream` of addresses with their weights to `http`; names follow DNS at run time.
pub(super) fn upstream(
    name: &str,
    servers: &[(&str, u64)],
    keepalive: Option<u64>,
    at: Span,
    shared: &mut Vec<DirectiveLine>,
) {
    let follows = |address: &str| {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let is_address = address.starts_with("unix:") || address.starts_with('[') || host == "localhost";
        !is_address && host.parse::<std::net::IpAddr>().is_err()
    };
    let mut lines = Vec::new();
    if servers.iter().any(|(address, _)| follows(address)) {
        lines.push(short("zone", at, &[name, "64k"]));
        share(shared, short("resolver", at, &["local=on"]));
    }
    for (address, weight) in servers {
        let weight = format!("weight={weight}");
        let mut args = vec![*address, &weight];
        if follows(address) {
            args.push("resolve");
        }
        if servers.len() == 1 {
            args.push("max_fails=0");
        }
        lines.push(short("server", at, &args));
    }
    if let Some(keepalive) = keepalive.filter(|time| *time > 0) {
        lines.push(short("keepalive", at, &["64"]));
        lines.push(short("keepalive_timeout", at, &[&format!("{keepalive}ms")]));
        lines.push(short("keepalive_requests", at, &[UNLIMITED]));
    }
    share(shared, block("upstream", at, &[(name, at)], lines));
}

/// A number of requests that no connection reaches.
pub(super) const UNLIMITED: &str = "1000000000000";
