//! The known keys: where they are allowed and what they become.

use super::level::{KeyLevel, LevelLines, ListenKey, block, copied, duplicate, line};
use super::node::{YamlNode, YamlValue};
use super::{access_log, paths};
use crate::{DirectiveLine, Error, Errors, Result, Span};

/// The lines that the document `root` is translated to.
pub(super) fn translate(root: &YamlNode, errors: &mut Errors) -> Vec<DirectiveLine> {
    let mut global = LevelLines::default();
    read(root, KeyLevel::Global, &mut global, errors);
    let start = root.span;
    let mut http = std::mem::take(&mut global.formats);
    http.extend(usual(&global, start));
    http.append(&mut global.lines);
    http.extend(global.logs.iter().cloned());
    if global.hosts.is_none() && errors.is_ok() {
        errors.push(Error::new("\"hosts\" is missing").at(start));
    }
    let hosts = global.hosts.map_or(&[][..], |hosts| entries(hosts, errors));
    for host in hosts {
        let (server, formats) = server(&global, &host.0, &host.1, errors);
        http.splice(0..0, formats);
        http.push(server);
    }
    let mut lines = std::mem::take(&mut global.main);
    let connections = global.connections.map(|(most, span)| {
        let each = most.div_ceil(global.threads.max(1)).to_string();
        line("worker_connections", span, &[(&each, span)])
    });
    global.events.extend(connections);
    lines.push(block("events", start, &[], global.events));
    lines.push(block("http", start, &[], http));
    lines
}

/// What H2O does where nothing is said, and nginx does otherwise.
fn usual(global: &LevelLines<'_>, at: Span) -> Vec<DirectiveLine> {
    let has = |name: &str| global.lines.iter().any(|line| line.name.is(name));
    let mut lines = vec![line("default_type", at, &[("application/octet-stream", at)])];
    let types = TYPES.iter().map(|(kind, names)| {
        let names: Vec<_> = names.split(' ').map(|name| (name, at)).collect();
        line(kind, at, &names)
    });
    lines.push(block("types", at, &[], types.collect()));
    if !has("index") {
        lines.push(line("index", at, &[("index.html", at), ("index.htm", at), ("index.txt", at)]));
    }
    if global.logs.is_empty() {
        lines.push(line("access_log", at, &[("off", at)]));
    }
    lines
}

/// A host: its `server` block and the formats of its logs.
fn server(
    global: &LevelLines<'_>,
    key: &YamlNode,
    value: &YamlNode,
    errors: &mut Errors,
) -> (DirectiveLine, Vec<DirectiveLine>) {
    let mut host = LevelLines { logs: global.logs.clone(), ..LevelLines::default() };
    let inherited = host.logs.len();
    read(value, KeyLevel::Host, &mut host, errors);
    let (name, port) = match key.text().unwrap_or_default().rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port.parse().ok()),
        _ => (key.text().unwrap_or_default(), None),
    };
    let name = if name == "*" { "_" } else { name };
    let mut lines = vec![line("server_name", key.span, &[(name, key.span)])];
    let mut seen: Vec<&str> = Vec::new();
    for listen in global.listens.iter().chain(&host.listens) {
        let other = port.is_some() && listen.port != port;
        if !other && !seen.contains(&listen.address.as_str()) {
            seen.push(&listen.address);
            listened(listen, name == "_", &mut lines);
        }
    }
    if seen.is_empty() && errors.is_ok() {
        errors.push(Error::new(format!("nothing to listen on for host \"{name}\"")).at(key.span));
    }
    lines.append(&mut host.lines);
    if host.logs.len() > inherited {
        lines.extend(host.logs.iter().cloned());
    }
    let mut formats = std::mem::take(&mut host.formats);
    let paths = host.paths.map_or(&[][..], |paths| entries(paths, errors));
    for path in paths {
        let mut level = LevelLines { logs: host.logs.clone(), ..LevelLines::default() };
        read(&path.1, KeyLevel::Path, &mut level, errors);
        let own = level.logs.len() > host.logs.len();
        formats.append(&mut level.formats);
        match paths::locations(&path.0, level, own) {
            Ok(locations) => lines.extend(locations),
            Err(error) => errors.push(error),
        }
    }
    (block("server", key.span, &[], lines), formats)
}

fn listened(listen: &ListenKey, default: bool, lines: &mut Vec<DirectiveLine>) {
    let mut args = vec![(listen.address.as_str(), listen.span)];
    let flags = [(default, "default_server"), (listen.ssl, "ssl"), (listen.proxy_protocol, "proxy_protocol")];
    args.extend(flags.iter().filter(|(on, _)| *on).map(|(_, name)| (*name, listen.span)));
    lines.push(line("listen", listen.span, &args));
    for setting in &listen.settings {
        if !lines.iter().any(|line| line.name.bytes() == setting.name.bytes()) {
            lines.push(setting.clone());
        }
    }
}

fn entries<'n>(node: &'n YamlNode, errors: &mut Errors) -> &'n [(YamlNode, YamlNode)] {
    node.map().unwrap_or_else(|error| {
        errors.push(error);
        &[]
    })
}

/// Reads all keys of a level.
fn read<'n>(node: &'n YamlNode, at: KeyLevel, level: &mut LevelLines<'n>, errors: &mut Errors) {
    // A path may be a list of mappings, whose handlers H2O tries one after the other.
    for node in node.items() {
        for (key, value) in entries(node, errors) {
            if let Err(error) = find(key, at).and_then(|row| (row.read)(level, key, value)) {
                errors.push(error);
            }
        }
    }
}

fn find(key: &YamlNode, at: KeyLevel) -> Result<&'static KnownKey> {
    let name = key.text()?;
    let Some(row) = KEYS.iter().find(|row| row.name == name) else {
        let error = Error::new(format!("unknown directive \"{name}\"")).at(key.span);
        return Err(error.hint_nearest(name, KEYS.iter().map(|row| row.name)));
    };
    if row.levels & at.bit() == 0 {
        return Err(Error::new(format!("\"{name}\" directive is not allowed here")).at(key.span));
    }
    Ok(row)
}

/// A known key.
struct KnownKey {
    name: &'static str,
    /// Bits of [`KeyLevel`].
    levels: u8,
    read: ReadKey,
}

/// Reads a key and its value into a level.
type ReadKey = for<'n> fn(&mut LevelLines<'n>, &'n YamlNode, &'n YamlNode) -> Result;

const fn key(name: &'static str, levels: u8, read: ReadKey) -> KnownKey {
    KnownKey { name, levels, read }
}

fn address(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    for item in value.items() {
        level.listens.push(match &item.value {
            YamlValue::Map(entries) => listen(key, entries)?,
            _ => ListenKey::plain(item.text()?.to_owned(), port(item)?, item.span),
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

impl ListenKey {
    fn plain(address: String, port: Option<u16>, span: Span) -> ListenKey {
        ListenKey { address, port, ssl: false, proxy_protocol: false, settings: Vec::new(), span }
    }
}

/// `listen: {port, host, type, ssl, proxy-protocol}`
fn listen(key: &YamlNode, entries: &[(YamlNode, YamlNode)]) -> Result<ListenKey> {
    let value = |name: &str| {
        entries.iter().find(|(key, _)| key.text().is_ok_and(|key| key == name)).map(|(_, value)| value)
    };
    let number = value("port").ok_or_else(|| Error::new("\"listen\" has no \"port\"").at(key.span))?;
    let unix = value("type").map(YamlNode::text).transpose()?.is_some_and(|kind| kind == "unix");
    let mut listen = match (unix, value("host")) {
        (true, _) => ListenKey::plain(format!("unix:{}", number.text()?), None, number.span),
        (false, None) => ListenKey::plain(number.text()?.to_owned(), port(number)?, number.span),
        (false, Some(host)) => {
            let (name, bracket) = (host.text()?, host.text()?.contains(':'));
            let name = if bracket { format!("[{name}]") } else { name.to_owned() };
            ListenKey::plain(format!("{name}:{}", number.text()?), port(number)?, host.span)
        }
    };
    for (key, value) in entries {
        match key.text()? {
            "port" | "host" | "type" => {}
            "ssl" => {
                listen.ssl = true;
                listen.span = key.span;
                listen.settings =
                    value.map()?.iter().map(|(key, value)| ssl(key, value)).collect::<Result<_>>()?;
            }
            "proxy-protocol" => listen.proxy_protocol = value.flag()?,
            name => return Err(unknown(key, name, &["port", "host", "type", "ssl", "proxy-protocol"])),
        }
    }
    Ok(listen)
}

fn ssl(key: &YamlNode, value: &YamlNode) -> Result<DirectiveLine> {
    let name = key.text()?;
    let known = SSL.iter().find(|(known, _)| *known == name);
    let Some((_, directive)) = known else {
        return Err(unknown(key, name, &SSL.map(|(known, _)| known)));
    };
    copied(directive, key, value)
}

/// A key of an inner mapping that is not known.
pub(super) fn unknown(key: &YamlNode, name: &str, known: &[&str]) -> Error {
    let error = Error::new(format!("unknown parameter \"{name}\"")).at(key.span);
    error.hint_nearest(name, known.iter().copied())
}

fn threads(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    level.threads = value.number()?;
    level.main.push(copied("worker_processes", key, value)?);
    Ok(())
}

/// `header.add: "Name: value"`, one or a list; inner levels add to outer ones, as in H2O.
fn header(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    if !level.lines.iter().any(|line| line.name.is("add_header_inherit")) {
        level.lines.push(line("add_header_inherit", key.span, &[("merge", key.span)]));
    }
    for item in value.items() {
        let text = item.plain()?;
        let Some((name, text)) = text.split_once(':') else {
            return Err(Error::new("\"Name: value\" is expected").at(item.span));
        };
        let args = [(name.trim(), item.span), (text.trim(), item.span), ("always", item.span)];
        level.lines.push(line("add_header", key.span, &args));
    }
    Ok(())
}

fn more(name: &str, level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    for item in value.items() {
        level.lines.push(line(name, key.span, &[(item.plain()?, item.span)]));
    }
    Ok(())
}

fn index(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let names: Vec<_> =
        value.items().iter().map(|item| Ok((item.plain()?, item.span))).collect::<Result<_>>()?;
    level.lines.push(line("index", key.span, &names));
    Ok(())
}

/// A directive of nginx with `on` and `off`.
fn flag(name: &str, level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let text = if value.flag()? { "on" } else { "off" };
    level.lines.push(line(name, key.span, &[(text, value.span)]));
    Ok(())
}

/// `expires: 1 day`, `expires: off`
fn expires(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let text = value.text()?;
    let units =
        [("second", "s"), ("minute", "m"), ("hour", "h"), ("day", "d"), ("month", "M"), ("year", "y")];
    let unit = |name: &str| {
        units.iter().find(|(unit, _)| name.trim_end_matches('s') == *unit).map(|(_, unit)| *unit)
    };
    let time = match text.split_once(' ') {
        None if text.eq_ignore_ascii_case("off") => "off".to_owned(),
        Some((number, name)) if number.parse::<u32>().is_ok() && unit(name.trim()).is_some() => {
            format!("{number}{}", unit(name.trim()).unwrap_or_default())
        }
        _ => return Err(Error::new(format!("invalid time \"{text}\"")).at(value.span)),
    };
    level.lines.push(line("expires", key.span, &[(&time, value.span)]));
    Ok(())
}

fn content<'n>(level: &mut LevelLines<'n>, key: &'n YamlNode, value: &'n YamlNode) -> Result {
    match level.content.replace((key, value)) {
        None => Ok(()),
        Some((before, _)) => {
            let (name, before) = (key.text()?, before.text()?);
            Err(Error::new(format!(
                "\"{name}\" beside \"{before}\" is not supported: one of them answers a path"
            ))
            .at(key.span))
        }
    }
}

/// A node that is read when the rest of its level is.
fn once<'n>(slot: &mut Option<&'n YamlNode>, key: &'n YamlNode, value: &'n YamlNode) -> Result {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(duplicate(key)),
    }
}

const GLOBAL: u8 = KeyLevel::Global.bit();
const HOST: u8 = KeyLevel::Host.bit();
const PATH: u8 = KeyLevel::Path.bit();
const ALL: u8 = GLOBAL | HOST | PATH;

const KEYS: &[KnownKey] = &[
    key("listen", GLOBAL | HOST, address),
    key("hosts", GLOBAL, |level, key, value| once(&mut level.hosts, key, value)),
    key("paths", HOST, |level, key, value| once(&mut level.paths, key, value)),
    key("user", GLOBAL, |level, key, value| copied("user", key, value).map(|line| level.main.push(line))),
    key("pid-file", GLOBAL, |level, key, value| copied("pid", key, value).map(|line| level.main.push(line))),
    key("error-log", GLOBAL, |level, key, value| {
        copied("error_log", key, value).map(|line| level.main.push(line))
    }),
    key("num-threads", GLOBAL, threads),
    key("max-connections", GLOBAL, |level, key, value| {
        level.connections = Some((value.number()?, key.span));
        Ok(())
    }),
    key("limit-request-body", GLOBAL, |level, key, value| {
        copied("client_max_body_size", key, value).map(|line| level.lines.push(line))
    }),
    key("http1-request-timeout", GLOBAL, |level, key, value| {
        copied("client_header_timeout", key, value).map(|line| level.lines.push(line))
    }),
    key("access-log", ALL, access_log::read),
    key("file.dir", PATH, content),
    key("file.file", PATH, content),
    key("proxy.reverse.url", PATH, content),
    key("redirect", PATH, content),
    key("file.index", ALL, index),
    key("file.etag", ALL, |level, key, value| flag("etag", level, key, value)),
    key("file.dirlisting", ALL, |level, key, value| flag("autoindex", level, key, value)),
    key("header.add", ALL, header),
    key("header.set", ALL, |level, key, value| more("more_set_headers", level, key, value)),
    key("header.unset", ALL, |level, key, value| more("more_clear_headers", level, key, value)),
    key("expires", ALL, expires),
];

const SSL: [(&str, &str); 4] = [
    ("certificate-file", "ssl_certificate"),
    ("key-file", "ssl_certificate_key"),
    ("cipher-suite", "ssl_ciphers"),
    ("dh-file", "ssl_dhparam"),
];

/// Types of files, as H2O has them built in.
const TYPES: [(&str, &str); 20] = [
    ("text/html", "html htm"),
    ("text/plain", "txt conf log"),
    ("text/css", "css"),
    ("text/javascript", "js mjs"),
    ("text/markdown", "md"),
    ("text/xml", "xml"),
    ("application/json", "json"),
    ("application/pdf", "pdf"),
    ("application/wasm", "wasm"),
    ("application/zip", "zip"),
    ("application/gzip", "gz"),
    ("image/gif", "gif"),
    ("image/jpeg", "jpg jpeg"),
    ("image/png", "png"),
    ("image/svg+xml", "svg"),
    ("image/webp", "webp"),
    ("image/x-icon", "ico"),
    ("font/woff2", "woff2"),
    ("video/mp4", "mp4"),
    ("audio/mpeg", "mp3"),
];
