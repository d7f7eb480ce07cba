//! `access-log`: a path, or a path with an Apache format, which becomes a `log_format`.

use super::keys::unknown;
use super::level::{LevelLines, line};
use super::node::{YamlNode, YamlValue};
use crate::{Error, Result};

/// `access-log: PATH`, `access-log: {path: PATH, format: FORMAT, escape: apache|json}`, or a list of both.
pub(super) fn read<'n>(level: &mut LevelLines<'n>, key: &'n YamlNode, value: &'n YamlNode) -> Result {
    value.items().iter().try_for_each(|item| one(level, key, item))
}

fn one(level: &mut LevelLines<'_>, key: &YamlNode, item: &YamlNode) -> Result {
    let (mut path, mut format, mut escape) = (item, None, "default");
    if let YamlValue::Map(entries) = &item.value {
        for (name, value) in entries {
            match (name.text()?, value.text()?) {
                ("path", _) => path = value,
                ("format", _) => format = Some(value),
                ("escape", "apache") => escape = "default",
                ("escape", "json") => escape = "json",
                ("escape", other) => {
                    return Err(Error::new(format!("invalid value \"{other}\"")).at(value.span));
                }
                (other, _) => return Err(unknown(name, other, &["path", "format", "escape"])),
            }
        }
    }
    let to = path.plain()?;
    if to.starts_with('|') {
        return Err(Error::new("logging to a program is not supported").at(path.span));
    }
    let Some(format) = format else {
        level.logs.push(line("access_log", key.span, &[(to, path.span)]));
        return Ok(());
    };
    // Its place in the file makes the name unique.
    let name = format!("format-at-{}", format.span.start);
    let (escape, text) = (format!("escape={escape}"), variables(format)?);
    let args = [(name.as_str(), format.span), (escape.as_str(), format.span), (text.as_str(), format.span)];
    level.formats.push(line("log_format", format.span, &args));
    level.logs.push(line("access_log", key.span, &[(to, path.span), (&name, format.span)]));
    Ok(())
}

/// Apache's format in nginx's variables.
fn variables(format: &YamlNode) -> Result<String> {
    let text = format.plain()?;
    let fail = |what: &str| Error::new(format!("unknown format \"%{what}\"")).at(format.span);
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let after = after.trim_start_matches(['<', '>']);
        rest = match after.strip_prefix('{').and_then(|named| named.split_once('}')) {
            Some((name, tail)) => {
                let kind = tail.chars().next().unwrap_or(' ');
                let prefix = match kind {
                    'i' => "http",
                    'o' => "sent_http",
                    _ => return Err(fail(&format!("{{{name}}}{kind}"))),
                };
                out.push_str(&format!("${{{prefix}_{}}}", name.to_ascii_lowercase().replace('-', "_")));
                &tail[1..]
            }
            None => {
                let letter = after.chars().next().ok_or_else(|| fail(""))?;
                let (_, variable) = LETTERS
                    .iter()
                    .find(|(known, _)| *known == letter)
                    .ok_or_else(|| fail(&letter.to_string()))?;
                out.push_str(variable);
                &after[letter.len_utf8()..]
            }
        };
    }
    Ok(out + rest)
}

const LETTERS: [(char, &str); 17] = [
    ('%', "%"),
    ('A', "${server_addr}"),
    ('b', "${body_bytes_sent}"),
    ('B', "${body_bytes_sent}"),
    ('H', "${server_protocol}"),
    ('h', "${remote_addr}"),
    ('l', "-"),
    ('m', "${request_method}"),
    ('p', "${server_port}"),
    ('q', "${is_args}${args}"),
    ('r', "${request}"),
    ('s', "${status}"),
    ('T', "${request_time}"),
    ('t', "[${time_local}]"),
    ('U', "${uri}"),
    ('u', "${remote_user}"),
    ('V', "${host}"),
];
