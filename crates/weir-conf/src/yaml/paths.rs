//! Paths to locations. H2O's `/a` is `/a` and all below `/a/`; what follows the path is appended to the directory or
//! URL.

use super::keys::unknown;
use super::level::{LevelLines, block, line};
use super::node::{YamlNode, YamlValue};
use crate::{DirectiveLine, Error, Result};

/// The locations of the path `key`, whose other settings are in `level`; `own`: it has logs of its own.
pub(super) fn locations(key: &YamlNode, level: LevelLines<'_>, own: bool) -> Result<Vec<DirectiveLine>> {
    let written = key.plain()?;
    if !written.starts_with('/') {
        return Err(Error::new("a path begins with \"/\"").at(key.span));
    }
    let Some((what, value)) = level.content else {
        return Err(Error::new(format!("nothing answers \"{written}\"")).at(key.span));
    };
    let mut settings = level.lines;
    settings.extend(level.logs.into_iter().filter(|_| own));
    let directory = if written.ends_with('/') { written.to_owned() } else { format!("{written}/") };
    let bare = (!written.ends_with('/')).then_some(written);
    let location = |modifier: Option<&str>, path: &str, content: Vec<DirectiveLine>| {
        let mut args: Vec<_> = modifier.map(|modifier| (modifier, key.span)).into_iter().collect();
        args.push((path, key.span));
        block("location", key.span, &args, [settings.clone(), content].concat())
    };
    match what.text()? {
        "file.dir" => {
            let root = value.plain()?;
            let name = if directory == "/" { "root" } else { "alias" };
            let root =
                if directory == "/" || root.ends_with('/') { root.to_owned() } else { format!("{root}/") };
            let mut all =
                vec![location(None, &directory, vec![line(name, what.span, &[(&root, value.span)])])];
            all.extend(bare.map(|bare| {
                let to = format!("{directory}$is_args$args");
                location(
                    Some("="),
                    bare,
                    vec![line("return", what.span, &[("301", key.span), (&to, key.span)])],
                )
            }));
            Ok(all)
        }
        "file.file" => {
            let content = vec![line("alias", what.span, &[(value.plain()?, value.span)])];
            Ok(vec![location(Some("="), written, content)])
        }
        "proxy.reverse.url" => {
            let url = value.plain()?;
            // Without a path it is `/`, and what follows the location's path comes after it.
            let url = if url.ends_with('/') { url.to_owned() } else { format!("{url}/") };
            let pass = || vec![line("proxy_pass", what.span, &[(&url, value.span)])];
            let mut all = vec![location(None, &directory, pass())];
            all.extend(bare.map(|bare| location(Some("="), bare, pass())));
            Ok(all)
        }
        _ => {
            let content = redirect(what, value, &directory)?;
            let mut all = vec![location(None, &directory, content.clone())];
            all.extend(bare.map(|bare| location(Some("="), bare, content)));
            Ok(all)
        }
    }
}

/// `redirect: URL`, `redirect: {url: URL, status: CODE}`: what follows the path is put after the URL.
fn redirect(key: &YamlNode, value: &YamlNode, directory: &str) -> Result<Vec<DirectiveLine>> {
    let (mut url, mut status) = (value, None);
    if let YamlValue::Map(entries) = &value.value {
        for (name, value) in entries {
            match name.text()? {
                "url" => url = value,
                "status" => status = Some(value),
                other => return Err(unknown(name, other, &["url", "status"])),
            }
        }
    }
    let code = status.map_or(Ok("302"), YamlNode::text)?;
    let at = status.map_or(key.span, |status| status.span);
    if !matches!(code, "301" | "302" | "303" | "307" | "308") {
        return Err(Error::new(format!("invalid status \"{code}\"")).at(at));
    }
    let text = url.plain()?;
    let redirect_to = |to: &str| line("return", key.span, &[(code, at), (to, url.span)]);
    if directory == "/" {
        return Ok(vec![redirect_to(&format!("{}$request_uri", text.trim_end_matches('/')))]);
    }
    // The target as it was sent, so that nothing decoded gets into a header.
    let pattern = format!("^{}/?([^?]*))", escaped(directory.trim_end_matches('/')));
    let condition = [("($request_uri", key.span), ("~", key.span), (pattern.as_str(), key.span)];
    let rest = redirect_to(&format!("{text}$1$is_args$args"));
    Ok(vec![block("if", key.span, &condition, vec![rest]), redirect_to(text)])
}

/// `text` as an expression that matches it.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_punctuation() && c != '/' && c != '-' && c != '_' {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
