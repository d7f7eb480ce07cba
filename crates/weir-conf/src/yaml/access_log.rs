//! `access-log`: a path or a program, with a format, which becomes a `log_format`.

use super::level::{LevelLines, line, map, share, short, unknown};
use super::node::{YamlNode, YamlValue, escaped_dollars};
use crate::{DirectiveLine, Error, Result, Span};

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
    // A command is the shell's: its dollar signs are not variables of the server.
    let to = if path.text()?.starts_with('|') { path.text()? } else { path.plain()? };
    let Some(format) = format else {
        level.inherited.logs.push(line("access_log", key.span, &[(to, path.span)]));
        return Ok(());
    };
    // Its place in the file makes the name unique.
    let name = format!("format-at-{}-{}", format.span.file_number(), format.span.start);
    let (escape, text) = (format!("escape={escape}"), compiled(format, &mut level.shared)?);
    let args = [(name.as_str(), format.span), (escape.as_str(), format.span), (text.as_str(), format.span)];
    level.share(line("log_format", format.span, &args));
    level.inherited.logs.push(line("access_log", key.span, &[(to, path.span), (&name, format.span)]));
    Ok(())
}

/// The format in nginx's variables; those that are not there are maps of others, and go to `shared`.
fn compiled(format: &YamlNode, shared: &mut Vec<DirectiveLine>) -> Result<String> {
    let mut out = String::new();
    let mut rest = format.text()?;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(&escaped_dollars(before));
        let original = after.starts_with('<');
        let after = after.trim_start_matches(['<', '>']);
        let mut letters = after.chars();
        rest = match after.strip_prefix('{').and_then(|named| named.split_once('}')) {
            Some((name, tail)) => {
                let kind = tail.chars().next().unwrap_or(' ');
                let part = LogPart { name, kind, original, at: format.span };
                out.push_str(&part.compiled(shared)?);
                tail.get(kind.len_utf8()..).unwrap_or_default()
            }
            None => {
                let letter = letters.next().ok_or_else(|| fail("", format.span))?;
                let known = LETTERS.iter().find(|(known, _)| *known == letter);
                let (_, variable) = known.ok_or_else(|| fail(&letter.to_string(), format.span))?;
                out.push_str(if original && letter == 's' { "$h2o_original_status" } else { variable });
                if original && letter == 's' {
                    original_status(format.span, shared);
                }
                letters.as_str()
            }
        };
    }
    Ok(out + &escaped_dollars(rest))
}

fn fail(what: &str, at: Span) -> Error {
    Error::new(format!("unknown format \"%{what}\"")).at(at)
}

/// `$h2o_original_status`: of the upstream, or the response's own.
fn original_status(at: Span, shared: &mut Vec<DirectiveLine>) {
    let rows = vec![short("default", at, &["$upstream_status"]), short("", at, &["$status"])];
    share(shared, map("$upstream_status", "$h2o_original_status", rows, at));
}

/// `%{name}kind`
struct LogPart<'f> {
    name: &'f str,
    kind: char,
    /// `<`: what the upstream sent.
    original: bool,
    at: Span,
}

impl LogPart<'_> {
    fn compiled(&self, shared: &mut Vec<DirectiveLine>) -> Result<String> {
        let fail = || fail(&format!("{{{}}}{}", self.name, self.kind), self.at);
        let field = self.name.to_ascii_lowercase().replace('-', "_");
        let is_word =
            !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match (self.kind, self.name) {
            ('i', _) if is_word => Ok(format!("${{http_{field}}}")),
            ('o', _) if is_word && self.original => Ok(format!("${{upstream_http_{field}}}")),
            ('o', _) if is_word => Ok(format!("${{sent_http_{field}}}")),
            ('e', _) if is_word => {
                share(shared, short("set", self.at, &[&format!("$setenv_{}", self.name), "-"]));
                Ok(format!("${{setenv_{}}}", self.name))
            }
            ('p', "local") => Ok("${server_port}".into()),
            ('p', "remote") => Ok("${remote_port}".into()),
            ('t', _) => self.time(shared),
            ('x', "ssl.session-reused") => {
                let rows = [("r", "1"), (".", "0"), ("", "-")].map(|(from, to)| short(from, self.at, &[to]));
                let name = "$h2o_session_reused";
                share(shared, map("$ssl_session_reused", name, rows.to_vec(), self.at));
                Ok(name.into())
            }
            ('x', "http1.request-index") => {
                let rows = vec![
                    short("default", self.at, &["-"]),
                    short("~^HTTP/1", self.at, &["$connection_requests"]),
                ];
                let name = "$h2o_request_index";
                share(shared, map("$server_protocol", name, rows, self.at));
                Ok(name.into())
            }
            ('x', name) => match EXTENSIONS.iter().find(|(known, _)| *known == name) {
                Some((_, variable)) => Ok((*variable).into()),
                None => Err(fail().hint_nearest(name, EXTENSIONS.iter().map(|(known, _)| *known))),
            },
            _ => Err(fail()),
        }
    }

    /// `%{FORMAT}t`: parts of the variables `$msec`, `$time_iso8601` and `$time_local`.
    fn time(&self, shared: &mut Vec<DirectiveLine>) -> Result<String> {
        let of_msec = [
            ("sec", "$h2o_s"),
            ("msec", "$h2o_s$h2o_ms"),
            ("usec", "$h2o_s${h2o_ms}000"),
            ("msec_frac", "$h2o_ms"),
            ("usec_frac", "${h2o_ms}000"),
        ];
        let (variable, from, pattern, value) = match of_msec.iter().find(|(name, _)| *name == self.name) {
            Some((name, value)) => (format!("$h2o_time_{name}"), "$msec", SECONDS, (*value).to_owned()),
            None => {
                let hex: String = self.name.bytes().map(|byte| format!("{byte:02x}")).collect();
                (format!("$h2o_time_{hex}"), "$time_iso8601 $time_local", PARTS, self.strftime()?)
            }
        };
        let rows = vec![short(pattern, self.at, &[&value])];
        share(shared, map(from, &variable, rows, self.at));
        Ok(format!("${{{}}}", variable.trim_start_matches('$')))
    }

    /// The format of strftime(3) in the parts of [`PARTS`].
    fn strftime(&self) -> Result<String> {
        let mut out = String::new();
        let mut letters = self.name.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                out.push_str(&escaped_dollars(&letter.to_string()));
                continue;
            }
            let conversion = letters.next().unwrap_or(' ');
            out.push_str(match conversion {
                'Y' => "${h2o_Y}",
                'm' => "${h2o_m}",
                'd' => "${h2o_d}",
                'H' => "${h2o_H}",
                'M' => "${h2o_M}",
                'S' => "${h2o_S}",
                'b' | 'h' => "${h2o_b}",
                'z' => "${h2o_z}",
                'F' => "${h2o_Y}-${h2o_m}-${h2o_d}",
                'T' => "${h2o_H}:${h2o_M}:${h2o_S}",
                '%' => "%",
                other => {
                    let what = format!("\"%{other}\" of a time is not supported");
                    return Err(Error::new(what).at(self.at).hint("%Y %m %d %H %M %S %b %z %F and %T are"));
                }
            });
        }
        Ok(out)
    }
}

const SECONDS: &str = r"~^(?<h2o_s>\d+)\.(?<h2o_ms>\d+)$";
const PARTS: &str = r"~^(?<h2o_Y>\d+)-(?<h2o_m>\d+)-(?<h2o_d>\d+)T(?<h2o_H>\d+):(?<h2o_M>\d+):(?<h2o_S>\d+)\S* \d+/(?<h2o_b>\w+)/\S+ (?<h2o_z>\S+)$";

const LETTERS: [(char, &str); 18] = [
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
    ('u', "-"),
    ('V', "${host}"),
    ('v', "${server_name}"),
];

/// Names of `%{name}x`.
const EXTENSIONS: [(&str, &str); 15] = [
    ("connection-id", "${connection}"),
    ("duration", "${request_time}"),
    ("total-time", "${request_time}"),
    ("ssl.protocol-version", "${ssl_protocol}"),
    ("ssl.session-id", "${ssl_session_id}"),
    ("ssl.cipher", "${ssl_cipher}"),
    ("ssl.server-name", "${ssl_server_name}"),
    ("proxy.connect-time", "${upstream_connect_time}"),
    ("proxy.process-time", "${upstream_header_time}"),
    ("proxy.total-time", "${upstream_response_time}"),
    ("proxy.request-bytes", "${upstream_bytes_sent}"),
    ("proxy.response-bytes", "${upstream_bytes_received}"),
    ("proxy.response-bytes-body", "${upstream_response_length}"),
    ("request-id", "${request_id}"),
    ("ssl.negotiated-protocol", "${ssl_alpn_protocol}"),
];
