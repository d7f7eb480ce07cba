//! Keys about responses that are one or two lines: compression, `expires`, `error-doc`, the environment.

use super::level::{LevelLines, line, short, unknown};
use super::node::{YamlNode, YamlValue};
use crate::{Error, Result};

/// `expires: 1 day`, `expires: off`
pub(super) fn expires(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let text = value.text()?;
    let unit = |name: &str| {
        let one = name.trim().trim_end_matches('s');
        UNITS.iter().find(|(unit, _)| one.eq_ignore_ascii_case(unit)).map(|(_, seconds)| *seconds)
    };
    let split =
        text.split_once(' ').and_then(|(number, name)| Some((number.parse::<u64>().ok()?, unit(name)?)));
    let seconds = match split {
        _ if text.eq_ignore_ascii_case("off") => {
            level.inherited.expires = None;
            return Ok(());
        }
        Some((number, seconds)) => number.checked_mul(seconds),
        None => None,
    };
    let Some(seconds) = seconds else {
        return Err(Error::new(format!("invalid time \"{text}\"")).at(value.span));
    };
    level.inherited.expires = Some((seconds, key.span));
    Ok(())
}

const DAY: u64 = 24 * 60 * 60;
const UNITS: [(&str, u64); 6] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 60 * 60),
    ("day", DAY),
    ("month", 30 * DAY),
    ("year", 365 * DAY),
];

/// `compress: ON`, `compress: [gzip, br]`, `compress: {gzip: 6}`, `gzip: ON`
pub(super) fn compress(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let mut chosen: Vec<(&str, Option<&YamlNode>)> = Vec::new();
    match (&value.value, key.text()?) {
        (YamlValue::Scalar(_), "gzip") if value.flag()? => chosen.push(("gzip", None)),
        (YamlValue::Scalar(_), "compress") if value.flag()? => {
            chosen.extend(METHODS.map(|(name, ..)| (name, None)));
        }
        (YamlValue::Scalar(_), _) => {}
        (YamlValue::List(items), _) => {
            for item in items {
                chosen.push((known(item)?, None));
            }
        }
        (YamlValue::Map(entries), _) => {
            for (name, quality) in entries {
                chosen.push((known(name)?, Some(quality)));
            }
        }
    }
    for (name, directive, default) in METHODS {
        let method = chosen.iter().find(|(chosen, _)| *chosen == name);
        let on = if method.is_some() { "on" } else { "off" };
        level.lines.push(short(directive, key.span, &[on]));
        if let Some((_, quality)) = method {
            let quality = quality.map_or(Ok(default), YamlNode::text)?;
            level.lines.push(short(&format!("{directive}_comp_level"), key.span, &[quality]));
        }
    }
    Ok(())
}

fn known(name: &YamlNode) -> Result<&'static str> {
    let text = name.text()?;
    let method = METHODS.iter().find(|(known, ..)| *known == text);
    method.map(|(known, ..)| *known).ok_or_else(|| unknown(name, text, &METHODS.map(|(known, ..)| known)))
}

/// Name, directive and quality of each method.
const METHODS: [(&str, &str, &str); 3] =
    [("gzip", "gzip", "1"), ("br", "brotli", "1"), ("zstd", "zstd", "3")];

/// What compression is where it is on, beside its types: of at least 100 bytes.
pub(super) fn compress_usual(at: crate::Span) -> Vec<crate::DirectiveLine> {
    let mut lines = vec![
        short("gzip_vary", at, &["on"]),
        short("gzip_proxied", at, &["any"]),
        short("gzip_http_version", at, &["1.0"]),
    ];
    lines.extend(METHODS.map(|(_, directive, _)| short(&format!("{directive}_min_length"), at, &["100"])));
    lines
}

/// `compress-minimum-size: NUMBER`
pub(super) fn compress_minimum(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let number = value.number()?.to_string();
    for (_, method, _) in METHODS {
        level.lines.push(line(&format!("{method}_min_length"), key.span, &[(&number, value.span)]));
    }
    Ok(())
}

/// `error-doc: {status: CODES, url: URL}`, or a list of those.
pub(super) fn error_doc<'n>(level: &mut LevelLines<'n>, _key: &'n YamlNode, value: &'n YamlNode) -> Result {
    for item in value.items() {
        let (mut statuses, mut url) = (None, None);
        for (name, value) in item.map()? {
            match name.text()? {
                "status" => statuses = Some(value),
                "url" => url = Some(value),
                other => return Err(unknown(name, other, &["status", "url"])),
            }
        }
        let (Some(statuses), Some(url)) = (statuses, url) else {
            return Err(Error::new("\"status\" and \"url\" are expected").at(item.span));
        };
        for status in statuses.items() {
            if !(400..600).contains(&status.number()?) {
                return Err(Error::new(format!("invalid status \"{}\"", status.text()?)).at(status.span));
            }
            // Here it means that the client has left: no response has it.
            if status.text()? == "499" {
                continue;
            }
            level.inherited.error_docs.insert(0, (status, url));
        }
    }
    Ok(())
}

/// `setenv: {NAME: value}`
pub(super) fn setenv<'n>(level: &mut LevelLines<'n>, _key: &'n YamlNode, value: &'n YamlNode) -> Result {
    for (name, value) in value.map()? {
        let text = name.text()?;
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(Error::new(format!("invalid name \"{text}\" of a variable")).at(name.span));
        }
        value.text()?;
        level.inherited.environment.retain(|(known, _)| known.text().is_ok_and(|known| known != text));
        level.inherited.environment.push((name, value));
    }
    Ok(())
}

/// `unsetenv: NAMES`
pub(super) fn unsetenv(level: &mut LevelLines<'_>, _key: &YamlNode, value: &YamlNode) -> Result {
    for item in value.items() {
        let text = item.text()?;
        level.inherited.environment.retain(|(known, _)| known.text().is_ok_and(|known| known != text));
    }
    Ok(())
}
