//! `header.*` and `proxy.header.*`: steps of `edit_header` and `edit_request_header`, in the order of the file.

use super::level::{LevelLines, line, unknown};
use super::node::{YamlNode, YamlValue};
use crate::{Error, Result};

/// `header.ACTION`, `proxy.header.ACTION`.
pub(super) fn read(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let name = key.text()?;
    let (directive, action) = match name.strip_prefix("proxy.header.") {
        Some(action) => ("edit_request_header", action),
        None => ("edit_header", name.trim_start_matches("header.")),
    };
    let fields = timed(value)?;
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

/// `{header: FIELDS, when: final}`; the fields alone stand for that.
fn timed(value: &YamlNode) -> Result<&YamlNode> {
    let YamlValue::Map(entries) = &value.value else { return Ok(value) };
    let mut fields = None;
    for (key, value) in entries {
        match (key.text()?, value) {
            ("header", value) => fields = Some(value),
            ("when", value) if value.text()? == "final" => {}
            ("when", value) => {
                let error =
                    Error::new(format!("\"when: {}\" is not supported", value.text()?)).at(value.span);
                return Err(error.hint("informational responses are passed on as the upstream sent them"));
            }
            (name, _) => return Err(unknown(key, name, &["header", "when"])),
        }
    }
    fields.ok_or_else(|| Error::new("\"header\" is missing").at(value.span))
}
