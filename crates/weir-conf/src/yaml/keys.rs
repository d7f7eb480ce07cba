//! The known keys: where they are allowed and what they become.

use super::level::{KeyLevel, LevelLines, copied, duplicate, flagged};
use super::node::YamlNode;
use super::{access_log, fastcgi, files, global, headers, listen, mime, proxy, refused, responses, tls};
use crate::{Error, Errors, Result};

/// Reads all keys of a level.
pub(super) fn read<'n>(node: &'n YamlNode, at: KeyLevel, level: &mut LevelLines<'n>, errors: &mut Errors) {
    // A path may be a list of mappings, whose handlers H2O tries one after the other.
    for node in node.items() {
        for (key, value) in entries(node, errors) {
            read_key(level, key, value, at, errors);
        }
    }
    if at != KeyLevel::Path && at != KeyLevel::Global {
        let types = level.inherited.files.types.lines(None);
        level.lines.extend(types);
    }
}

/// Reads one key of a level.
pub(super) fn read_key<'n>(
    level: &mut LevelLines<'n>,
    key: &'n YamlNode,
    value: &'n YamlNode,
    at: KeyLevel,
    errors: &mut Errors,
) {
    if let Err(error) = find(key, at).and_then(|row| (row.read)(level, key, value)) {
        errors.push(error);
    }
}

/// The entries of a mapping; of anything else none, which is an error.
pub(super) fn entries<'n>(node: &'n YamlNode, errors: &mut Errors) -> &'n [(YamlNode, YamlNode)] {
    errors.take(node.map()).unwrap_or_default()
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

/// The names of all known keys, with whether each is refused: for the manual.
pub fn h2o_keys() -> impl Iterator<Item = (&'static str, bool)> {
    KEYS.iter().map(|row| (row.name, refused::is_refused(row.name)))
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

fn handler<'n>(level: &mut LevelLines<'n>, key: &'n YamlNode, value: &'n YamlNode) -> Result {
    level.handlers.push((key, value));
    Ok(())
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
const OUTER: u8 = GLOBAL | HOST | PATH;
const ALL: u8 = OUTER | KeyLevel::Extension.bit();

const KEYS: &[KnownKey] = &[
    key("listen", GLOBAL | HOST, listen::read),
    key("hosts", GLOBAL, |level, key, value| once(&mut level.hosts, key, value)),
    key("paths", HOST, |level, key, value| once(&mut level.paths, key, value)),
    key("strict-match", HOST, |level, _key, value| {
        level.is_strict = value.flag()?;
        Ok(())
    }),
    key("user", GLOBAL, global::user),
    key("pid-file", GLOBAL, |level, key, value| copied("pid", key, value).map(|line| level.main.push(line))),
    key("error-log", GLOBAL, |level, key, value| {
        copied("error_log", key, value).map(|line| level.main.push(line))
    }),
    key("num-threads", GLOBAL, global::threads),
    key("max-connections", GLOBAL, global::connections),
    key("limit-request-body", GLOBAL, global::line),
    key("handshake-timeout", GLOBAL, global::handshake),
    key("temp-buffer-path", GLOBAL, global::temp_path),
    key("tcp-fastopen", GLOBAL, global::fastopen),
    key("server-name", GLOBAL, global::line),
    key("send-server-name", GLOBAL, global::send_server_name),
    key("send-informational", GLOBAL, global::informational),
    key("http1-request-timeout", GLOBAL, global::idle),
    key("http1-request-io-timeout", GLOBAL, global::line),
    key("http1-upgrade-to-http2", GLOBAL, global::upgrade),
    key("http2-idle-timeout", GLOBAL, global::idle),
    key("http2-graceful-shutdown-timeout", GLOBAL, global::shutdown),
    key("http3-graceful-shutdown-timeout", GLOBAL, global::shutdown),
    key("http2-max-streams", GLOBAL, global::streams),
    key("http2-max-concurrent-requests-per-connection", GLOBAL, global::streams),
    key("http2-input-window-size", GLOBAL, global::line),
    key("http2-push-preload", GLOBAL | HOST, global::push),
    key("http2-casper", GLOBAL | HOST, global::push),
    key("http2-allow-cross-origin-push", GLOBAL | PATH, global::push),
    key("ssl-session-resumption", GLOBAL, tls::resumption),
    key("stash", ALL, |_, _, _| Ok(())),
    key("setenv", ALL, responses::setenv),
    key("unsetenv", ALL, responses::unsetenv),
    key("access-log", ALL, access_log::read),
    key("compress", ALL, responses::compress),
    key("gzip", ALL, responses::compress),
    key("compress-minimum-size", ALL, responses::compress_minimum),
    key("error-doc", ALL, responses::error_doc),
    key("expires", ALL, responses::expires),
    key("server-timing", ALL, global::server_timing),
    key("throttle-response", ALL, |level, key, value| {
        flagged("throttle_response", key, value).map(|line| level.lines.push(line))
    }),
    key("reproxy", OUTER, |level, key, value| {
        level.inherited.reproxy = value.flag()?.then_some(key.span);
        Ok(())
    }),
    key("max-delegations", GLOBAL, |level, key, value| {
        copied("reproxy_max_delegations", key, value).map(|line| level.lines.push(line))
    }),
    key("file.dir", PATH, handler),
    key("file.file", PATH, handler),
    key("file.index", OUTER, files::index),
    key("file.etag", OUTER, files::flag),
    key("file.dirlisting", OUTER, files::flag),
    key("file.send-compressed", OUTER, files::send_compressed),
    key("file.send-gzip", OUTER, files::send_compressed),
    key("file.custom-handler", OUTER, files::custom),
    key("file.mime.settypes", OUTER, mime::read),
    key("file.mime.addtypes", OUTER, mime::read),
    key("file.mime.removetypes", OUTER, mime::read),
    key("file.mime.setdefaulttype", OUTER, mime::read),
    key("redirect", PATH, handler),
    key("status", PATH, handler),
    key("fastcgi.connect", PATH | KeyLevel::Extension.bit(), handler),
    key("fastcgi.spawn", PATH | KeyLevel::Extension.bit(), handler),
    key("fastcgi.timeout.io", ALL, fastcgi::read),
    key("fastcgi.timeout.keepalive", ALL, fastcgi::read),
    key("fastcgi.document_root", ALL, fastcgi::read),
    key("fastcgi.send-delegated-uri", ALL, fastcgi::read),
    key("proxy.reverse.url", PATH, handler),
    key("proxy.preserve-host", ALL, proxy::read),
    key("proxy.timeout.io", ALL, proxy::read),
    key("proxy.timeout.connect", ALL, proxy::read),
    key("proxy.timeout.first_byte", ALL, proxy::read),
    key("proxy.timeout.keepalive", ALL, proxy::read),
    key("proxy.tunnel", ALL, proxy::read),
    key("proxy.websocket", ALL, proxy::read),
    key("proxy.emit-x-forwarded-headers", GLOBAL, proxy::read),
    key("proxy.emit-via-header", GLOBAL, proxy::read),
    key("proxy.preserve-x-forwarded-proto", GLOBAL, proxy::read),
    key("proxy.proxy-protocol", ALL, proxy::read),
    key("proxy.ssl.verify-peer", ALL, proxy::read),
    key("proxy.ssl.cafile", ALL, proxy::read),
    key("proxy.ssl.session-cache", ALL, proxy::read),
    key("proxy.http2.ratio", ALL, proxy::read),
    key("proxy.http2.force-cleartext", ALL, proxy::read),
    key("proxy.max-buffer-size", ALL, proxy::read),
    key("header.add", ALL, headers::read),
    key("header.append", ALL, headers::read),
    key("header.merge", ALL, headers::read),
    key("header.set", ALL, headers::read),
    key("header.setifempty", ALL, headers::read),
    key("header.unset", ALL, headers::read),
    key("header.unsetunless", ALL, headers::read),
    key("proxy.header.add", ALL, headers::read),
    key("proxy.header.append", ALL, headers::read),
    key("proxy.header.merge", ALL, headers::read),
    key("proxy.header.set", ALL, headers::read),
    key("proxy.header.setifempty", ALL, headers::read),
    key("proxy.header.unset", ALL, headers::read),
    key("proxy.header.unsetunless", ALL, headers::read),
    key("proxy.header.cookie.unset", ALL, headers::read),
    key("proxy.header.cookie.unsetunless", ALL, headers::read),
    // Tuning of H2O's own insides, which has nothing to act on here.
    key("crash-handler", GLOBAL, global::tuning),
    key("crash-handler.wait-pipe-close", GLOBAL, global::tuning),
    key("num-name-resolution-threads", GLOBAL, global::tuning),
    key("num-ocsp-updaters", GLOBAL, global::tuning),
    key("num-quic-threads", GLOBAL, global::tuning),
    key("io_uring-batch-size", GLOBAL, global::tuning),
    key("max-spare-pipes", GLOBAL, global::tuning),
    key("proxy.max-spare-pipes", GLOBAL, global::tuning),
    key("neverbleed-offload", GLOBAL, global::tuning),
    key("ssl-offload", GLOBAL, global::tuning),
    key("tcp-reuseport", GLOBAL, global::tuning),
    key("temp-buffer-threshold", GLOBAL, global::tuning),
    key("file.io_uring", OUTER, global::tuning),
    key("proxy.zerocopy", GLOBAL, global::tuning),
    key("proxy.http2.max-concurrent-streams", ALL, global::tuning),
    key("proxy.http2.max-concurrent_streams", ALL, global::tuning),
    key("proxy.http3.ecn", ALL, global::tuning),
    key("proxy.happy-eyeballs.name-resolution-delay", ALL, global::tuning),
    key("proxy.happy-eyeballs.connection-attempt-delay", ALL, global::tuning),
    key("http2-reprioritize-blocking-assets", GLOBAL, global::line),
    key("http2-latency-optimization-min-rtt", GLOBAL, global::tuning),
    key("http2-latency-optimization-max-additional-delay", GLOBAL, global::tuning),
    key("http2-latency-optimization-max-cwnd", GLOBAL, global::tuning),
    key("http2-max-concurrent-streaming-requests-per-connection", GLOBAL, global::tuning),
    key("http2-dos-delay", GLOBAL, global::tuning),
    key("http3-idle-timeout", GLOBAL, global::tuning),
    key("http3-input-window-size", GLOBAL, global::tuning),
    key("http3-ack-frequency", GLOBAL, global::tuning),
    key("http3-allow-delayed-ack", GLOBAL, global::tuning),
    key("http3-gso", GLOBAL, global::tuning),
    key("http3-max-concurrent-streaming-requests-per-connection", GLOBAL, global::tuning),
    // Off by default, and no more than that.
    key("duration-stats", GLOBAL, refused::unless_default),
    key("h2olog", HOST, refused::unless_default),
    key("proxy.expect", GLOBAL, refused::unless_default),
    key("proxy.forward.close-connection", ALL, refused::unless_default),
    key("proxy.http3.ratio", ALL, refused::unless_default),
    key("proxy.connect.emit-proxy-status", ALL, refused::unless_default),
    key("proxy.connect.proxy-status", ALL, refused::unless_default),
    key("proxy.connect.masque-draft-03", ALL, refused::unless_default),
    key("proxy.emit-missing-date-header", GLOBAL, refused::unless_default),
    key("error-log.emit-request-errors", ALL, refused::unless_default),
    key("max-reprocesses", GLOBAL, refused::unless_default),
    // What Weir does in another way, or not at all.
    key("mruby.handler", PATH, refused::read),
    key("mruby.handler-file", PATH, refused::read),
    key("mruby.handler_path", PATH, refused::read),
    key("acme", GLOBAL, refused::read),
    key("capabilities", GLOBAL, refused::read),
    key("http2-debug-state", HOST, refused::read),
    key("max-quic-connections", GLOBAL, refused::read),
    key("proxy.connect", PATH, refused::read),
    key("proxy.connect-udp", PATH, refused::read),
    key("proxy.proxy-status.identity", GLOBAL, refused::read),
    key("proxy-status.identity", GLOBAL, refused::read),
    key("quic-nodes", GLOBAL, refused::read),
    key("self-trace", PATH, refused::read),
    key("soft-connection-limit", GLOBAL, refused::read),
    key("soft-connection-limit.min-age", GLOBAL, refused::read),
];
