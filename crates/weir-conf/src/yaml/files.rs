//! `file.*`: settings of files.

use super::level::{LevelLines, flagged, line};
use super::mime::{self, MimeTypes};
use super::node::{YamlNode, YamlValue};
use crate::{Error, Result};

/// What the keys `file.*` say.
#[derive(Clone, Default)]
pub(super) struct FileKeys<'n> {
    pub(super) types: MimeTypes,
    /// `file.custom-handler`: keys and mappings.
    pub(super) handlers: Vec<(&'n YamlNode, &'n YamlNode)>,
    /// `file.index`, and where.
    pub(super) index: Option<&'n YamlNode>,
}

pub(super) fn index<'n>(level: &mut LevelLines<'n>, key: &'n YamlNode, value: &'n YamlNode) -> Result {
    let names: Vec<_> =
        value.items().iter().map(|item| Ok((item.plain()?, item.span))).collect::<Result<_>>()?;
    level.inherited.files.index = Some(value);
    level.lines.push(match names.is_empty() {
        true => line("index", key.span, &[("=none", value.span)]),
        false => line("index", key.span, &names),
    });
    Ok(())
}

/// `file.send-compressed: ON`, `gunzip` or `OFF`; `file.send-gzip` is its older name.
pub(super) fn send_compressed(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let gunzips = value.text()?.eq_ignore_ascii_case("gunzip");
    let on = if gunzips || value.flag()? { "on" } else { "off" };
    for method in ["gzip_static", "brotli_static", "zstd_static"] {
        let on = if gunzips && method == "gzip_static" { "always" } else { on };
        level.lines.push(line(method, key.span, &[(on, value.span)]));
    }
    if gunzips {
        level.lines.push(line("gunzip", key.span, &[("on", value.span)]));
    }
    Ok(())
}

/// `file.etag`, `file.dirlisting`
pub(super) fn flag(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let name = if key.text()? == "file.etag" { "etag" } else { "autoindex" };
    level.lines.push(flagged(name, key, value)?);
    Ok(())
}

/// `file.custom-handler: {extension: .php, fastcgi.connect: ...}`
pub(super) fn custom<'n>(level: &mut LevelLines<'n>, key: &'n YamlNode, value: &'n YamlNode) -> Result {
    extensions(key, value)?;
    // The level's own come before those of the levels around.
    level.inherited.files.handlers.insert(0, (key, value));
    Ok(())
}

/// The extensions of a custom handler with their dots; `default` is that of files without one.
pub(super) fn extensions<'n>(key: &YamlNode, value: &'n YamlNode) -> Result<Vec<&'n str>> {
    let YamlValue::Map(entries) = &value.value else {
        return Err(Error::new("a mapping is expected").at(value.span));
    };
    let extension = entries.iter().find(|(key, _)| key.text().is_ok_and(|key| key == "extension"));
    let (_, extension) = extension.ok_or_else(|| Error::new("\"extension\" is missing").at(key.span))?;
    let checked = |item: &'n YamlNode| match item.plain()? {
        "default" => Ok("default"),
        text => mime::extension(item).map(|_| text),
    };
    extension.items().iter().map(checked).collect()
}
