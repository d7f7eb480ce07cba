//! Keys of the whole file that become a line of the main context, of `events` or of `http`.

use super::level::{LevelLines, copied, flagged, numbered, short};
use super::node::{YamlNode, YamlValue};
use crate::{Error, Result};

pub(super) fn threads(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    // A list names the processors: as many threads as it names.
    if let YamlValue::List(items) = &value.value {
        let count = items.len().to_string();
        level.limits.threads = items.len() as u64;
        level.main.push(line_of("worker_processes", key, &count, value));
        return Ok(());
    }
    level.limits.threads = value.number()?;
    level.main.push(copied("worker_processes", key, value)?);
    Ok(())
}

pub(super) fn connections(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    level.limits.connections = Some((value.number()?, key.span));
    Ok(())
}

/// `user`: with the user's own group, whatever it is called.
pub(super) fn user(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let args = [(value.text()?, value.span), ("=primary", value.span)];
    level.main.push(super::level::line("user", key.span, &args));
    Ok(())
}

/// `handshake-timeout`: the head of the first request includes the handshake.
pub(super) fn handshake(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    if !level.lines.iter().any(|line| line.name.is("client_header_timeout")) {
        level.lines.push(numbered("client_header_timeout", "s", key, value)?);
    }
    Ok(())
}

/// Keys with one line of `http` each.
pub(super) fn line(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    level.lines.push(match key.text()? {
        "limit-request-body" => copied("client_max_body_size", key, value)?,
        "http1-request-io-timeout" => numbered("client_body_timeout", "s", key, value)?,
        "http2-input-window-size" => copied("http2_body_preread_size", key, value)?,
        "http2-reprioritize-blocking-assets" => flagged("http2_reprioritize_blocking_assets", key, value)?,
        _ => copied("server_product", key, value)?,
    });
    Ok(())
}

/// `temp-buffer-path`: what does not fit in memory.
pub(super) fn temp_path(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    for name in ["client_body_temp_path", "proxy_temp_path", "fastcgi_temp_path"] {
        let path =
            format!("{}/{}", value.plain()?.trim_end_matches('/'), name.trim_end_matches("_temp_path"));
        level.lines.push(line_of(name, key, &path, value));
    }
    Ok(())
}

fn line_of(name: &str, key: &YamlNode, text: &str, value: &YamlNode) -> crate::DirectiveLine {
    super::level::line(name, key.span, &[(text, value.span)])
}

pub(super) fn fastopen(level: &mut LevelLines<'_>, _key: &YamlNode, value: &YamlNode) -> Result {
    // The kernel's queue is no longer than its somaxconn anyway.
    level.limits.fastopen = Some(value.number()?.min(65_535)).filter(|number| *number > 0);
    Ok(())
}

/// `http1-request-timeout`, `http2-idle-timeout`: one timeout is of all idle connections, the longer of both.
pub(super) fn idle(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let time = value.number()?;
    if key.text()? == "http1-request-timeout" {
        level.lines.retain(|line| !line.name.is("client_header_timeout"));
        level.lines.push(numbered("client_header_timeout", "s", key, value)?);
    }
    let known = level.limits.idle.map_or(0, |(known, _)| known);
    level.limits.idle = Some((known.max(time), key.span));
    Ok(())
}

pub(super) fn upgrade(level: &mut LevelLines<'_>, _key: &YamlNode, value: &YamlNode) -> Result {
    level.limits.refuses_upgrade = !value.flag()?;
    Ok(())
}

/// `http2-graceful-shutdown-timeout`: 0 waits for as long as it takes.
pub(super) fn shutdown(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    if value.number()? > 0 && !level.main.iter().any(|line| line.name.is("worker_shutdown_timeout")) {
        level.main.push(numbered("worker_shutdown_timeout", "s", key, value)?);
    }
    Ok(())
}

/// `http2-max-streams`, `http2-max-concurrent-requests-per-connection`: the smaller one counts.
pub(super) fn streams(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let number = value.number()?;
    let before = level.lines.iter().position(|line| line.name.is("http2_max_concurrent_streams"));
    if let Some(at) = before {
        let known = level.lines[at].args[0].str().parse().unwrap_or(u64::MAX);
        if known <= number {
            return Ok(());
        }
        level.lines.remove(at);
    }
    level.lines.push(line_of("http2_max_concurrent_streams", key, &number.to_string(), value));
    Ok(())
}

/// Keys of server push, which browsers have given up: checked, and reported like nginx's directives of it.
pub(super) fn push(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let is_on = matches!(value.value, YamlValue::Map(_)) || value.flag()?;
    if is_on {
        level.lines.retain(|line| !line.name.is("http2_push_preload"));
        level.lines.push(short("http2_push_preload", key.span, &["on"]));
    }
    Ok(())
}

/// `send-server-name: ON | OFF | preserve`
pub(super) fn send_server_name(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    if value.text()? == "preserve" {
        level.lines.push(line_of("proxy_pass_header", key, "Server", value));
    } else if !value.flag()? {
        level.lines.push(short("edit_header", key.span, &["unset", "Server"]));
    }
    Ok(())
}

/// `send-informational: all | except-h1 | none`
pub(super) fn informational(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let condition = match value.text()? {
        "all" => "1",
        "except-h1" => "$http2$http3",
        "none" => "0",
        other => return Err(Error::new(format!("invalid value \"{other}\"")).at(value.span)),
    };
    level.lines.push(line_of("early_hints", key, condition, value));
    Ok(())
}

/// `server-timing: ON | OFF | ENFORCE`; the last one has a trailer with the whole time, which HTTP/1.1 sends after chunks.
pub(super) fn server_timing(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let enforces = value.text()?.eq_ignore_ascii_case("enforce");
    let on = enforces || value.flag()?;
    level.lines.push(line_of("server_timing", key, if on { "on" } else { "off" }, value));
    if !enforces {
        level.lines.push(short("add_trailer_inherit", key.span, &["off"]));
        return Ok(());
    }
    let rows = TOTALS.map(|(pattern, value)| short(pattern, key.span, &[value]));
    level.share(super::level::map("$request_time", "$h2o_total", rows.to_vec(), key.span));
    level.lines.push(short("add_trailer", key.span, &["server-timing", "total;dur=$h2o_total", "always"]));
    Ok(())
}

/// `$request_time`, seconds with three digits, as milliseconds.
const TOTALS: [(&str, &str); 3] = [
    (r"~^0\.0*(?<h2o_few>[1-9]\d*)$", "$h2o_few"),
    (r"~^(?<h2o_whole>[1-9]\d*)\.(?<h2o_rest>\d+)$", "$h2o_whole$h2o_rest"),
    ("default", "0"),
];

/// A key that tunes H2O's own insides: it has no effect.
pub(super) fn tuning(_level: &mut LevelLines<'_>, _key: &YamlNode, _value: &YamlNode) -> Result {
    Ok(())
}
