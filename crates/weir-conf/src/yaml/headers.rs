//! `header.*` and `proxy.header.*`: steps of `edit_header` and `edit_request_header`, in the order of the file. Those of
//! responses 103 (`when: early` and `all`) come to the fields of one response, which `early_hint` sends.

use super::level::{LevelLines, line, unknown};
use super::node::{YamlNode, YamlValue, escaped_dollars};
use crate::{DirectiveLine, Error, Result, Span};

/// `header.ACTION`, `proxy.header.ACTION`.
pub(super) fn read(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let name = key.text()?;
    let (directive, action) = match name.strip_prefix("proxy.header.") {
        Some(action) => ("edit_request_header", action),
        None => ("edit_header", name.trim_start_matches("header.")),
    };
    let (fields, when) = timed(value)?;
    if directive == "edit_request_header" && when != EditTime::Final {
        return Err(Error::new("requests have no informational form").at(value.span));
    }
    if when != EditTime::Final {
        level.inherited.hints.edit(action, key.span, fields)?;
    }
    if when == EditTime::Early {
        return Ok(());
    }
    level.inherited.has_headers |= directive == "edit_header";
    let takes_names = action.contains("unset");
    if takes_names {
        let texts: Vec<_> =
            fields.items().iter().map(|item| Ok((item.plain()?, item.span))).collect::<Result<_>>()?;
        let args = [&[(action, key.span)], &texts[..]].concat();
        level.lines.push(line(directive, key.span, &args));
        return Ok(());
    }
    for item in fields.items() {
        if !item.text()?.contains(':') {
            return Err(Error::new("\"Name: value\" is expected").at(item.span));
        }
        let text = item.literal()?;
        level.lines.push(line(directive, key.span, &[(action, key.span), (&text, item.span)]));
    }
    Ok(())
}

/// Which responses a step is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EditTime {
    Final,
    Early,
    All,
}

/// `{header: FIELDS, when: final}`; the fields alone stand for that.
fn timed(value: &YamlNode) -> Result<(&YamlNode, EditTime)> {
    let YamlValue::Map(entries) = &value.value else { return Ok((value, EditTime::Final)) };
    let (mut fields, mut when) = (None, EditTime::Final);
    for (key, value) in entries {
        match (key.text()?, value) {
            ("header", value) => fields = Some(value),
            ("when", value) => {
                when = match value.text()? {
                    "final" => EditTime::Final,
                    "early" => EditTime::Early,
                    "all" => EditTime::All,
                    other => return Err(unknown(value, other, &["final", "early", "all"])),
                };
            }
            (name, _) => return Err(unknown(key, name, &["header", "when"])),
        }
    }
    Ok((fields.ok_or_else(|| Error::new("\"header\" is missing").at(value.span))?, when))
}

/// The fields of a path's response 103, after the steps of all levels around.
#[derive(Clone, Default)]
pub(super) struct HintFields(Vec<HintField>);

#[derive(Clone)]
struct HintField {
    name: String,
    value: String,
    at: Span,
}

impl HintFields {
    /// One step, of one or several fields or names.
    fn edit(&mut self, action: &str, at: Span, fields: &YamlNode) -> Result {
        let list = &mut self.0;
        for item in fields.items() {
            let text = item.text()?;
            let Some((name, value)) = text.split_once(':') else {
                match action {
                    "unset" => list.retain(|field| !field.name.eq_ignore_ascii_case(text)),
                    "unsetunless" => {}
                    _ => return Err(Error::new("\"Name: value\" is expected").at(item.span)),
                }
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            let known = list.iter_mut().find(|field| field.name.eq_ignore_ascii_case(name));
            let field = HintField { name: name.to_owned(), value: value.to_owned(), at };
            match (action, known) {
                ("set", _) => {
                    list.retain(|known| !known.name.eq_ignore_ascii_case(name));
                    list.push(field);
                }
                ("setifempty", Some(_)) => {}
                ("append", Some(known)) => known.value = format!("{}, {value}", known.value),
                ("merge", Some(known)) => {
                    let mut values = known.value.split(',').map(str::trim);
                    if !values.any(|known| known.eq_ignore_ascii_case(value)) {
                        known.value = format!("{}, {value}", known.value);
                    }
                }
                _ => list.push(field),
            }
        }
        if action == "unsetunless" {
            let names = fields.items().iter().map(YamlNode::text).collect::<Result<Vec<_>>>()?;
            list.retain(|field| names.iter().any(|name| field.name.eq_ignore_ascii_case(name)));
        }
        Ok(())
    }

    /// The lines of a location.
    pub(super) fn lines(&self) -> impl Iterator<Item = DirectiveLine> {
        self.0.iter().map(|field| {
            line(
                "early_hint",
                field.at,
                &[(&field.name, field.at), (&escaped_dollars(&field.value), field.at)],
            )
        })
    }
}
