//! Keys that are known and refused: each with the reason, and what does it here.

use super::level::LevelLines;
use super::node::YamlNode;
use crate::{Error, Result};

/// Whether a key is refused whatever its value.
pub(super) fn is_refused(name: &str) -> bool {
    REASONS.iter().any(|(known, _)| *known == name)
}

/// A key that has no counterpart.
pub(super) fn read(_level: &mut LevelLines<'_>, key: &YamlNode, _value: &YamlNode) -> Result {
    Err(refusal(key, key.text()?))
}

fn refusal(key: &YamlNode, name: &str) -> Error {
    let error = Error::new(format!("\"{name}\" is not supported")).at(key.span);
    let reasons = REASONS.iter().chain(OTHERWISE);
    match reasons.clone().find(|(known, _)| *known == name) {
        Some((_, reason)) => error.hint(*reason),
        None => error,
    }
}

/// A key whose default is what Weir does: another value is refused.
pub(super) fn unless_default(_level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let name = key.text()?;
    let default = DEFAULTS.iter().find(|(known, _)| *known == name).map_or("OFF", |(_, default)| *default);
    let text = value.text()?;
    let is_default = match default {
        "ON" | "OFF" => value.flag()? == (default == "ON"),
        default => text == default,
    };
    if is_default { Ok(()) } else { Err(refusal(key, name)) }
}

const DEFAULTS: &[(&str, &str)] = &[
    ("proxy.emit-missing-date-header", "ON"),
    ("error-log.emit-request-errors", "ON"),
    ("proxy.http3.ratio", "0"),
    ("max-reprocesses", "5"),
];

const LUA: &str = "Weir runs Lua: in an nginx.conf, content_by_lua_block { ngx.say(\"hello\") } answers a request, and \
                   access_by_lua_block { ... } lets it pass; docs/guides/from-h2o.md has the recipes";

const REASONS: &[(&str, &str)] = &[
    ("mruby.handler", LUA),
    ("mruby.handler-file", LUA),
    ("mruby.handler_path", LUA),
    ("acme", "let a client of ACME write the files that \"certificate-file\" and \"key-file\" name"),
    (
        "capabilities",
        "start Weir under a service manager that grants them, such as systemd's AmbientCapabilities",
    ),
    ("http2-debug-state", "\"admin\" of an nginx.conf shows connections and requests"),
    ("max-quic-connections", "\"max-connections\" limits the connections of all protocols"),
    ("proxy.connect", "tunnel_pass of an nginx.conf does it"),
    ("proxy.connect-udp", "tunnels of datagrams are not built"),
    ("proxy.proxy-status.identity", "the field Proxy-Status is not built"),
    ("proxy-status.identity", "the field Proxy-Status is not built"),
    ("quic-nodes", "packets are not forwarded among machines"),
    ("self-trace", "\"weir explain\" shows what a request has done"),
    ("soft-connection-limit", "idle connections are closed when \"max-connections\" is reached"),
    ("soft-connection-limit.min-age", "idle connections are closed when \"max-connections\" is reached"),
];

/// Of keys that are refused with other values than their default.
const OTHERWISE: &[(&str, &str)] = &[
    ("duration-stats", "the metrics of \"admin\" have durations"),
    ("h2olog", "\"weir explain\" shows what a request has done"),
    ("proxy.expect", "request bodies are sent as they come"),
    ("proxy.forward.close-connection", "connections of clients outlive those of upstream servers"),
    ("proxy.http3.ratio", "upstream servers are asked by HTTP/1.1 or HTTP/2"),
    ("proxy.emit-missing-date-header", "every response has a Date"),
    ("error-log.emit-request-errors", "the error log has the errors of requests"),
    ("max-reprocesses", "a cycle of internal redirects ends after ten"),
];
