//! `proxy.*`: upstream servers of HTTP, and what is sent to them.

use super::fastcgi::upstream;
use super::level::{InheritedKeys, LevelLines, map, share, short, unknown};
use super::node::{YamlNode, YamlValue, escaped_dollars};
use crate::{DirectiveLine, Error, Result, Span};

/// What the keys `proxy.*` say; times are milliseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct ProxyKeys {
    preserves_host: bool,
    io: Option<u64>,
    connect: Option<u64>,
    keepalive: Option<u64>,
    tunnels: bool,
    hides_forwarded: bool,
    hides_via: bool,
    preserves_proto: bool,
    sends_protocol: bool,
    /// `proxy.ssl.verify-peer: OFF`
    trusts_all: bool,
    ca_file: Option<(String, Span)>,
    forgets_sessions: bool,
    /// Percent of requests with HTTP/2: all or none.
    http2: bool,
    buffer: Option<u64>,
}

/// The settings, which count for all handlers of a level and inside of it.
pub(super) fn read(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let keys = &mut level.inherited.proxy;
    match key.text()? {
        "proxy.preserve-host" => keys.preserves_host = value.flag()?,
        "proxy.timeout.io" => keys.io = Some(value.number()?),
        "proxy.timeout.connect" => keys.connect = Some(value.number()?),
        "proxy.timeout.first_byte" => return first_byte(keys, value),
        "proxy.timeout.keepalive" => keys.keepalive = Some(value.number()?),
        "proxy.tunnel" | "proxy.websocket" => keys.tunnels = value.flag()?,
        "proxy.emit-x-forwarded-headers" => keys.hides_forwarded = !value.flag()?,
        "proxy.emit-via-header" => keys.hides_via = !value.flag()?,
        "proxy.preserve-x-forwarded-proto" => keys.preserves_proto = value.flag()?,
        "proxy.proxy-protocol" => keys.sends_protocol = value.flag()?,
        "proxy.ssl.verify-peer" => keys.trusts_all = !value.flag()?,
        "proxy.ssl.cafile" => keys.ca_file = Some((value.plain()?.to_owned(), value.span)),
        "proxy.ssl.session-cache" => keys.forgets_sessions = !session_cache(value)?,
        "proxy.http2.ratio" => keys.http2 = all_or_none(value)?,
        // Without TLS a version is not negotiated here either.
        "proxy.http2.force-cleartext" => {
            value.flag()?;
        }
        "proxy.max-buffer-size" => keys.buffer = Some(value.number()?),
        name => return Err(Error::new(format!("\"{name}\" is not supported")).at(key.span)),
    }
    Ok(())
}

/// One timeout reads both the head of a response and its body.
fn first_byte(keys: &mut ProxyKeys, value: &YamlNode) -> Result {
    let time = value.number()?;
    keys.io = Some(keys.io.map_or(time, |io| io.max(time)));
    Ok(())
}

/// `ON`, `OFF`, or `{lifetime, capacity}`, which are the library's own.
fn session_cache(value: &YamlNode) -> Result<bool> {
    let YamlValue::Map(entries) = &value.value else { return value.flag() };
    for (key, value) in entries {
        match key.text()? {
            "lifetime" | "capacity" => value.number()?,
            other => return Err(unknown(key, other, &["lifetime", "capacity"])),
        };
    }
    Ok(true)
}

fn all_or_none(value: &YamlNode) -> Result<bool> {
    match value.number()? {
        0 => Ok(false),
        100 => Ok(true),
        _ => {
            let error = Error::new("a part of the requests by HTTP/2 is not supported").at(value.span);
            Err(error.hint("0 and 100 are"))
        }
    }
}

/// A backend's URL, as written `http://host:port/path`.
struct BackendUrl<'n> {
    is_tls: bool,
    /// As the `Host` field has it.
    authority: &'n str,
    /// As `server` has it.
    address: String,
    path: &'n str,
    weight: u64,
}

/// The lines of a location whose requests go to the backends of `value`; `path` is the path's name in the file, `rest` what
/// follows it: of the location of what is below, the bytes to cut, of the path itself nothing.
pub(super) fn lines(
    key: &YamlNode,
    value: &YamlNode,
    inherited: &InheritedKeys<'_>,
    place: &ProxyPlace<'_>,
    shared: &mut Vec<DirectiveLine>,
) -> Result<Vec<DirectiveLine>> {
    let (keys, at) = (&inherited.proxy, key.span);
    let (backends, is_least) = backends(value)?;
    let Some(first) = backends.first() else {
        return Err(Error::new("a URL is expected").at(value.span));
    };
    if backends.iter().any(|backend| (backend.is_tls, backend.path) != (first.is_tls, first.path)) {
        let error = Error::new("backends of different schemes or paths are not supported").at(value.span);
        return Err(error.hint("give them the same"));
    }
    let name = format!("proxy-at-{}-{}", value.span.file_number(), value.span.start);
    let servers: Vec<_> = backends.iter().map(|backend| (backend.address.as_str(), backend.weight)).collect();
    upstream(&name, &servers, Some(keys.keepalive.unwrap_or(2000)), value.span, shared);
    if is_least
        && let Some(block) =
            shared.iter_mut().rfind(|line| line.args.first().is_some_and(|arg| arg.is(&name)))
    {
        let lines = block.block.as_mut().map(|block| &mut block.lines);
        if let Some(lines) = lines.filter(|lines| !lines.iter().any(|line| line.name.is("least_conn"))) {
            lines.insert(0, short("least_conn", value.span, &[]));
        }
    }
    let scheme = if first.is_tls { "https" } else { "http" };
    let target = format!("{scheme}://{name}{}", place.target(&escaped_dollars(first.path)));
    let mut lines = vec![short("proxy_pass", at, &[&target])];
    lines.extend(redirects(first, place, at));
    lines.extend(keys.lines(at, Some(first), shared));
    if !inherited.error_docs.is_empty() {
        lines.push(short("proxy_intercept_errors", at, &["on"]));
    }
    Ok(lines)
}

/// The lines of a location that brings the document `url` of another server in place of an error's page.
pub(super) fn document(
    url: &YamlNode,
    inherited: &InheritedKeys<'_>,
    shared: &mut Vec<DirectiveLine>,
) -> Result<Vec<DirectiveLine>> {
    let (keys, at) = (&inherited.proxy, url.span);
    let backend = backend(url)?;
    let name = format!("document-at-{}-{}", at.file_number(), at.start);
    upstream(&name, &[(&backend.address, 1)], Some(keys.keepalive.unwrap_or(2000)), at, shared);
    let scheme = if backend.is_tls { "https" } else { "http" };
    // A `?` at its end leaves the request's own query out.
    let path = format!("{}?", escaped_dollars(backend.path));
    let mut lines = vec![
        short("rewrite", at, &["^", &path, "break"]),
        short("proxy_pass", at, &[&format!("{scheme}://{name}")]),
        short("proxy_redirect", at, &["off"]),
        short("proxy_method", at, &["GET"]),
        short("proxy_pass_request_body", at, &["off"]),
    ];
    lines.extend(keys.lines(at, Some(&backend), shared));
    Ok(lines)
}

/// The lines of a location that brings the URL in `$reproxy_url`.
pub(super) fn fetched(
    at: Span,
    inherited: &InheritedKeys<'_>,
    shared: &mut Vec<DirectiveLine>,
) -> Vec<DirectiveLine> {
    share(shared, short("resolver", at, &["local=on"]));
    let mut lines = vec![short("proxy_pass", at, &["$reproxy_url"])];
    lines.extend(inherited.proxy.lines(at, None, shared));
    if !inherited.error_docs.is_empty() {
        lines.push(short("proxy_intercept_errors", at, &["on"]));
    }
    lines
}

/// Where requests come from: a path of the file.
pub(super) struct ProxyPlace<'p> {
    /// The path as written.
    pub(super) written: &'p str,
    /// This is the location of the path itself, not of what is below.
    pub(super) is_bare: bool,
}

impl ProxyPlace<'_> {
    /// The path and query of the upstream's URL: the backend's path, and what follows the path's name in the request.
    pub(super) fn target(&self, path: &str) -> String {
        let skip = if self.is_bare || self.written.ends_with('/') {
            self.written.len()
        } else {
            self.written.len() + 1
        };
        if self.is_bare {
            return format!("{path}$request_uri_from_{skip}");
        }
        format!("{}/$request_uri_from_{skip}", path.trim_end_matches('/'))
    }
}

/// `Location` of the backend is this server's.
fn redirects(backend: &BackendUrl<'_>, place: &ProxyPlace<'_>, at: Span) -> Vec<DirectiveLine> {
    let from = format!("http://{}{}", backend.authority, escaped_dollars(backend.path));
    let to = format!("$scheme://$http_host{}", escaped_dollars(place.written));
    vec![short("proxy_redirect", at, &[&from, &to])]
}

impl ProxyKeys {
    /// The lines about what is sent to `backend`; `None`: to the server of a URL that is computed for each request.
    fn lines(
        &self,
        at: Span,
        backend: Option<&BackendUrl<'_>>,
        shared: &mut Vec<DirectiveLine>,
    ) -> Vec<DirectiveLine> {
        let io = format!("{}ms", self.io.unwrap_or(30_000));
        let connect = self.connect.map_or_else(|| io.clone(), |connect| format!("{connect}ms"));
        let mut lines = vec![
            short("proxy_http_version", at, &[if self.http2 { "2" } else { "1.1" }]),
            short("proxy_connect_timeout", at, &[&connect]),
            short("proxy_read_timeout", at, &[&io]),
            short("proxy_send_timeout", at, &[&io]),
            short("proxy_request_buffering", at, &["off"]),
        ];
        let host = match backend {
            None => "$proxy_host",
            Some(_) if self.preserves_host => "$http_host",
            Some(backend) => backend.authority,
        };
        let mut field = |name: &str, value: &str| lines.push(short("proxy_set_header", at, &[name, value]));
        field("Host", host);
        field("Connection", "");
        if !self.hides_forwarded {
            field("X-Forwarded-For", "$proxy_add_x_forwarded_for");
            field(
                "X-Forwarded-Proto",
                if self.preserves_proto { "$http_x_forwarded_proto" } else { "$scheme" },
            );
        } else if !self.preserves_proto {
            field("X-Forwarded-Proto", "");
        }
        if !self.hides_via {
            via(at, shared);
            field("Via", "$h2o_via$h2o_via_version $http_host");
        }
        if self.tunnels {
            lines.push(short("proxy_upgrade", at, &["on"]));
        }
        if self.sends_protocol {
            lines.push(short("proxy_protocol", at, &["on"]));
        }
        if let Some(size) = self.buffer {
            lines.push(short("proxy_max_temp_file_size", at, &[&size.to_string()]));
        }
        if backend.is_none_or(|backend| backend.is_tls) {
            lines.extend(self.tls(at, backend));
        }
        lines
    }

    fn tls(&self, at: Span, backend: Option<&BackendUrl<'_>>) -> Vec<DirectiveLine> {
        let mut lines = vec![
            short("proxy_ssl_server_name", at, &["on"]),
            short("proxy_ssl_session_reuse", at, &[if self.forgets_sessions { "off" } else { "on" }]),
        ];
        if let Some(backend) = backend {
            let host = backend.authority.rsplit_once(':').map_or(backend.authority, |(host, port)| {
                if port.bytes().all(|byte| byte.is_ascii_digit()) { host } else { backend.authority }
            });
            lines.push(short("proxy_ssl_name", at, &[host]));
        }
        if !self.trusts_all {
            let (file, span) =
                self.ca_file.as_ref().map_or((SYSTEM_CA_FILE, at), |(file, span)| (file.as_str(), *span));
            lines.push(short("proxy_ssl_verify", at, &["on"]));
            lines.push(short("proxy_ssl_verify_depth", at, &["10"]));
            lines.push(short("proxy_ssl_trusted_certificate", span, &[file]));
        }
        lines
    }
}

/// The certificates that the system trusts.
const SYSTEM_CA_FILE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The variables of `Via`: what the request had, and the version.
fn via(at: Span, shared: &mut Vec<DirectiveLine>) {
    let rows = vec![short("default", at, &["$http_via, "]), short("", at, &[""])];
    share(shared, map("$http_via", "$h2o_via", rows, at));
    let rows = VERSIONS.map(|(protocol, version)| short(protocol, at, &[version])).to_vec();
    share(shared, map("$server_protocol", "$h2o_via_version", rows, at));
}

const VERSIONS: [(&str, &str); 4] =
    [("default", "1.1"), ("HTTP/1.0", "1.0"), ("HTTP/2.0", "2"), ("HTTP/3.0", "3")];

/// `URL`, `[URL, {url, weight}]`, `{backends: ..., balancer: round-robin}`; the flag says `least-conn`.
fn backends(value: &YamlNode) -> Result<(Vec<BackendUrl<'_>>, bool)> {
    let (mut list, mut is_least) = (value, false);
    if let YamlValue::Map(entries) = &value.value
        && entries.iter().any(|(key, _)| key.text().is_ok_and(|key| key == "backends"))
    {
        for (key, value) in entries {
            match (key.text()?, value) {
                ("backends", value) => list = value,
                ("balancer", value) => is_least = balancer(value)?,
                (other, _) => return Err(unknown(key, other, &["backends", "balancer"])),
            }
        }
    }
    Ok((list.items().iter().map(backend).collect::<Result<_>>()?, is_least))
}

fn balancer(value: &YamlNode) -> Result<bool> {
    match value.text()? {
        "round-robin" => Ok(false),
        "least-conn" => Ok(true),
        other => Err(Error::new(format!("invalid value \"{other}\"")).at(value.span)),
    }
}

fn backend(node: &YamlNode) -> Result<BackendUrl<'_>> {
    let (mut url, mut weight) = (node, 1);
    if let YamlValue::Map(entries) = &node.value {
        for (key, value) in entries {
            match key.text()? {
                "url" => url = value,
                "weight" => weight = value.number()?,
                other => return Err(unknown(key, other, &["url", "weight"])),
            }
        }
        if !(1..=256).contains(&weight) {
            return Err(Error::new(format!("invalid weight \"{weight}\"")).at(node.span));
        }
    }
    let text = url.text()?;
    let invalid = || Error::new(format!("invalid URL \"{text}\"")).at(url.span);
    let (is_tls, rest) = match text.split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        _ => return Err(invalid()),
    };
    let end = match rest.strip_prefix('[') {
        Some(inner) => {
            let close = inner.find(']').ok_or_else(invalid)? + 2;
            rest[close..].find('/').map(|at| at + close)
        }
        None => rest.find('/'),
    };
    let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
    if authority.is_empty() || authority.contains(['$', '@', ' ']) {
        return Err(invalid());
    }
    let address = match authority.strip_prefix("[unix:").and_then(|path| path.strip_suffix(']')) {
        Some(path) => format!("unix:{path}"),
        None => with_port(authority, if is_tls { 443 } else { 80 }).ok_or_else(invalid)?,
    };
    Ok(BackendUrl { is_tls, authority, address, path: if path.is_empty() { "/" } else { path }, weight })
}

/// `authority` with the scheme's port where it has none.
fn with_port(authority: &str, port: u16) -> Option<String> {
    let after = authority.rfind(']').map_or(0, |at| at + 1);
    match authority.get(after..)?.split_once(':') {
        None => Some(format!("{authority}:{port}")),
        Some((_, port)) => port.parse::<u16>().is_ok_and(|port| port > 0).then(|| authority.to_owned()),
    }
}
