//! The handlers of a path to locations. H2O's `/a` is `/a` and all below `/a/`; its handlers are tried one after the other:
//! a file that is not there leaves the request to the next.

use super::fastcgi::{self, ScriptNames};
use super::files;
use super::keys;
use super::level::{InheritedKeys, KeyLevel, LevelLines, block, line, short, unknown};
use super::node::{YamlNode, YamlValue, escaped_dollars};
use super::proxy::{self, ProxyPlace};
use super::trace_names;
use crate::{DirectiveLine, Error, Errors, Result, Span};

/// The locations of the path `key`, whose settings are in `level`; `own`: it has logs of its own.
pub(super) fn locations(
    key: &YamlNode,
    level: LevelLines<'_>,
    own: bool,
    shared: &mut Vec<DirectiveLine>,
) -> Result<Vec<DirectiveLine>> {
    let written = key.plain()?;
    if !written.starts_with('/') {
        return Err(Error::new("a path begins with \"/\"").at(key.span));
    }
    let mut settings = level.lines;
    let logs = &level.inherited.logs;
    settings.extend(logs.iter().filter(|_| own).cloned());
    for (name, value) in &level.inherited.environment {
        let name = format!("$setenv_{}", name.text()?);
        settings.push(line(
            "set",
            value.span,
            &[(&name, value.span), (&escaped_dollars(value.text()?), value.span)],
        ));
    }
    settings.extend(level.inherited.hints.lines());
    // After all steps about headers, those of the levels around included.
    if let Some((seconds, at)) = level.inherited.expires {
        let field = format!("Cache-Control: max-age={seconds}");
        settings.push(short("edit_header", at, &["-s", EXPIRING, "merge", &field]));
        settings.extend((!level.inherited.has_headers).then(|| trace_names::of_expires(at)));
    }
    let last =
        level.handlers.iter().position(|(key, _)| !is_passing(key)).map_or(level.handlers.len(), |at| at + 1);
    let handlers = &level.handlers[..last];
    let bare = !written.ends_with('/');
    if let [(what, value), ..] = handlers
        && what.text()? == "status"
    {
        settings.extend(documents(&level.inherited, false)?);
        settings.push(trace_names::handler(what));
        return Ok(status(key, what, value.flag()?, &settings));
    }
    let mut all = Vec::new();
    if let Some(at) = level.inherited.reproxy {
        let name = format!("@reproxy-{}-{}", key.span.file_number(), key.span.start);
        settings.push(short("reproxy", at, &[&name, "*", "unix:*"]));
        let lines = [settings.clone(), documents(&level.inherited, false)?];
        let fetched = proxy::fetched(at, &level.inherited, shared);
        all.push(block("location", at, &[(&name, at)], [&lines.concat()[..], &fetched].concat()));
    }
    let mut shapes = vec![PathShape { written, is_bare: false, at: key.span }];
    if bare {
        shapes.push(PathShape { is_bare: true, ..shapes[0] });
    }
    for shape in shapes {
        all.extend(chain(shape, handlers, &settings, &level.inherited, shared)?);
    }
    Ok(all)
}

/// The locations of `status`: the page, and the same as JSON.
fn status(key: &YamlNode, what: &YamlNode, is_on: bool, settings: &[DirectiveLine]) -> Vec<DirectiveLine> {
    let base = key.text().unwrap_or_default().trim_end_matches('/');
    let location = |args: &[&str], content: DirectiveLine| {
        let args: Vec<_> = args.iter().map(|arg| (*arg, key.span)).collect();
        block("location", key.span, &args, [settings, &[content]].concat())
    };
    let (directory, json) = (format!("{base}/"), format!("{base}/json"));
    let mut all = vec![location(&[&directory], short("return", what.span, &["404"]))];
    for path in [base, &directory, &json].into_iter().filter(|path| is_on && !path.is_empty()) {
        all.push(location(&["=", path], short("status_json", what.span, &[])));
    }
    all
}

/// The statuses of responses that `expires` is about.
const EXPIRING: &str = "200 201 204 206 301 302 303 304 307";

/// Whether a handler leaves what it has not to the next one.
fn is_passing(key: &YamlNode) -> bool {
    matches!(key.text(), Ok("file.dir" | "file.file"))
}

/// A location: of the path itself, or of all below.
#[derive(Clone, Copy)]
struct PathShape<'p> {
    written: &'p str,
    is_bare: bool,
    at: Span,
}

impl PathShape<'_> {
    /// The path with a slash at its end.
    fn directory(&self) -> String {
        format!("{}/", self.written.trim_end_matches('/'))
    }

    /// The location's name for the handler number `step`; those after the first are named.
    fn name(&self, step: usize) -> Vec<String> {
        let kind = if self.is_bare { "bare" } else { "path" };
        match (step, self.is_bare) {
            (0, false) => vec![self.directory()],
            (0, true) => vec!["=".into(), self.written.into()],
            _ => vec![format!("@{kind}-{}-{}-{step}", self.at.file_number(), self.at.start)],
        }
    }
}

/// The locations of a shape: the first handler's, and those that it leaves requests to.
fn chain(
    shape: PathShape<'_>,
    handlers: &[(&YamlNode, &YamlNode)],
    settings: &[DirectiveLine],
    inherited: &InheritedKeys<'_>,
    shared: &mut Vec<DirectiveLine>,
) -> Result<Vec<DirectiveLine>> {
    let mut all = Vec::new();
    let count = handlers.len().max(1);
    for step in 0..count {
        let next = (step + 1 < handlers.len()).then(|| shape.name(step + 1).concat());
        let mut lines = pages(shape.at, next.as_deref(), inherited)?;
        let mut ends = false;
        match handlers.get(step) {
            None => lines.push(short("return", shape.at, &["404"])),
            Some((key, value)) => {
                let place = HandlerPlace { shape, step, pages: &lines.clone(), inherited };
                let (content, is_last) = place.content(key, value, shared)?;
                lines.extend(trace_names::of_handler(key, &content));
                lines.extend(content);
                ends = is_last;
            }
        }
        let name = shape.name(step);
        let args: Vec<_> = name.iter().map(|word| (word.as_str(), shape.at)).collect();
        all.push(block("location", shape.at, &args, [settings, &lines].concat()));
        if ends {
            break;
        }
    }
    Ok(all)
}

/// `error_page` lines of a location: of the next handler, and of the documents.
fn pages(at: Span, next: Option<&str>, inherited: &InheritedKeys<'_>) -> Result<Vec<DirectiveLine>> {
    let mut lines = Vec::new();
    if let Some(next) = next {
        lines.push(short("error_page", at, &["404", "=", next]));
        lines.push(short("recursive_error_pages", at, &["on"]));
        lines.push(short("log_not_found", at, &["off"]));
    }
    lines.extend(documents(inherited, next.is_some())?);
    Ok(lines)
}

/// The lines of `error-doc`; where a handler is next, that of 404 is its.
pub(super) fn documents(inherited: &InheritedKeys<'_>, has_next: bool) -> Result<Vec<DirectiveLine>> {
    let mut lines = Vec::new();
    for (status, url) in &inherited.error_docs {
        if has_next && status.text()? == "404" {
            continue;
        }
        let written = url.literal()?;
        let to = if written.starts_with('/') { written.into_owned() } else { document_name(url) };
        lines.push(line("error_page", status.span, &[(status.text()?, status.span), (&to, url.span)]));
    }
    let named = lines.first().map(|line| trace_names::of_documents(line.span));
    lines.extend(named);
    Ok(lines)
}

/// The name of the location that brings the document `url` of another server.
fn document_name(url: &YamlNode) -> String {
    format!("@document-{}-{}", url.span.file_number(), url.span.start)
}

/// The locations of documents that other servers have.
pub(super) fn document_locations(
    inherited: &InheritedKeys<'_>,
    shared: &mut Vec<DirectiveLine>,
) -> Result<Vec<DirectiveLine>> {
    let mut all = Vec::new();
    for (_, url) in
        inherited.error_docs.iter().filter(|(_, url)| !url.text().is_ok_and(|url| url.starts_with('/')))
    {
        let lines = proxy::document(url, inherited, shared)?;
        all.push(block("location", url.span, &[(&document_name(url), url.span)], lines));
    }
    Ok(all)
}

/// A handler in its place.
struct HandlerPlace<'p> {
    shape: PathShape<'p>,
    /// How many handlers come before it.
    step: usize,
    /// `error_page` lines, which locations inside have too.
    pages: &'p [DirectiveLine],
    inherited: &'p InheritedKeys<'p>,
}

impl HandlerPlace<'_> {
    /// The lines of a handler; the flag: no handler comes after it.
    fn content(
        &self,
        key: &YamlNode,
        value: &YamlNode,
        shared: &mut Vec<DirectiveLine>,
    ) -> Result<(Vec<DirectiveLine>, bool)> {
        let shape = self.shape;
        Ok(match key.text()? {
            "file.dir" if shape.is_bare => {
                let to = format!("{}$is_args$args", escaped_dollars(&shape.directory()));
                (vec![short("return", key.span, &["301", &to])], true)
            }
            "file.dir" => (self.directory(key, value, shared)?, false),
            "file.file" => (file(key, value)?, false),
            "redirect" => (redirect(shape, key, value)?, true),
            "proxy.reverse.url" => {
                let place = ProxyPlace { written: shape.written, is_bare: shape.is_bare };
                (proxy::lines(key, value, self.inherited, &place, shared)?, true)
            }
            _ => (self.program(key, value, shared)?, true),
        })
    }

    /// `file.dir`, with the custom handlers of its files.
    fn directory(
        &self,
        key: &YamlNode,
        value: &YamlNode,
        shared: &mut Vec<DirectiveLine>,
    ) -> Result<Vec<DirectiveLine>> {
        let (directory, root) = (self.shape.directory(), value.literal()?);
        let root = format!("{}/", root.trim_end_matches('/'));
        let mut lines = match (directory.as_str(), self.step) {
            ("/", _) => vec![line("root", key.span, &[(&root, value.span)])],
            (_, 0) => vec![line("alias", key.span, &[(&root, value.span)])],
            // A named location has no alias.
            _ => {
                let pattern = format!("^{}(.*)$", escaped(&directory));
                vec![
                    line("root", key.span, &[(&root, value.span)]),
                    short("rewrite", key.span, &[&pattern, "/$1", "break"]),
                ]
            }
        };
        for (key, value) in self.inherited.files.handlers.iter().filter(|_| self.step == 0) {
            lines.push(self.custom(key, value, &root, shared)?);
        }
        Ok(lines)
    }

    /// `file.custom-handler`: a location of the files that have its extensions.
    fn custom(
        &self,
        key: &YamlNode,
        value: &YamlNode,
        root: &str,
        shared: &mut Vec<DirectiveLine>,
    ) -> Result<DirectiveLine> {
        let extensions = files::extensions(key, value)?;
        let mut level = LevelLines { inherited: self.inherited.clone(), ..LevelLines::default() };
        let mut errors = Errors::default();
        for (name, value) in
            value.map()?.iter().filter(|(name, _)| name.text().is_ok_and(|name| name != "extension"))
        {
            keys::read_key(&mut level, name, value, KeyLevel::Extension, &mut errors);
        }
        if let Some(error) = errors.0.into_iter().next() {
            return Err(error);
        }
        let Some((name, value)) = level.handlers.first() else {
            return Err(Error::new("a handler is missing: \"fastcgi.connect\"").at(key.span));
        };
        let directory = self.shape.directory();
        let named =
            extensions.iter().filter(|name| **name != "default").map(|name| format!(".+?{}", escaped(name)));
        let bare = extensions.contains(&"default").then(|| "[^/.]+".to_owned());
        let scripts: Vec<String> = named.chain(bare).collect();
        let pattern = format!("^{}({})(/.*)?$", escaped(&directory), scripts.join("|"));
        let (script, file) = (format!("{}$1", escaped_dollars(&directory)), format!("{root}$1"));
        let names = ScriptNames { script_name: &script, path_info: "$2", file: Some(&file) };
        let mut lines = self.pages.to_vec();
        lines.extend(level.lines);
        let missing = vec![short("return", key.span, &["404"])];
        let condition = [("(!-f", key.span), (file.as_str(), key.span), (")", key.span)];
        lines.push(block("if", key.span, &condition, missing));
        lines.extend(trace_names::of_handler(key, &lines));
        lines.extend(fastcgi::lines(name, value, &level.inherited, &names, shared)?);
        Ok(block("location", key.span, &[("~", key.span), (&pattern, key.span)], lines))
    }

    /// `fastcgi.connect`, `fastcgi.spawn`
    fn program(
        &self,
        key: &YamlNode,
        value: &YamlNode,
        shared: &mut Vec<DirectiveLine>,
    ) -> Result<Vec<DirectiveLine>> {
        let name = self.shape.written.trim_end_matches('/');
        let script = escaped_dollars(name);
        if self.shape.is_bare {
            let names = ScriptNames { script_name: &script, path_info: "", file: None };
            return fastcgi::lines(key, value, self.inherited, &names, shared);
        }
        let split = short("fastcgi_split_path_info", key.span, &[&format!("^({})(/.*)$", escaped(name))]);
        let names = ScriptNames { script_name: &script, path_info: "$fastcgi_path_info", file: None };
        let mut lines = vec![split];
        lines.extend(fastcgi::lines(key, value, self.inherited, &names, shared)?);
        Ok(lines)
    }
}

/// `file.file`: whatever the path, this file.
fn file(key: &YamlNode, value: &YamlNode) -> Result<Vec<DirectiveLine>> {
    let path = value.literal()?;
    let (directory, name) = path.rsplit_once('/').unwrap_or((".", &path));
    if name.is_empty() {
        return Err(Error::new("a file is expected").at(value.span));
    }
    let directory = if directory.is_empty() { "/" } else { directory };
    let name = format!("/{name}");
    Ok(vec![
        line("root", key.span, &[(directory, value.span)]),
        line("rewrite", key.span, &[("^", key.span), (&name, value.span), ("break", key.span)]),
    ])
}

/// `redirect: URL`, `redirect: {url: URL, status: CODE, internal: YES}`: what follows the path is put after the URL.
fn redirect(shape: PathShape<'_>, key: &YamlNode, value: &YamlNode) -> Result<Vec<DirectiveLine>> {
    let (mut url, mut status, mut is_internal) = (value, None, false);
    if let YamlValue::Map(entries) = &value.value {
        for (name, value) in entries {
            match name.text()? {
                "url" => url = value,
                "status" => status = Some(value),
                "internal" => is_internal = value.flag()?,
                other => return Err(unknown(name, other, &["url", "status", "internal"])),
            }
        }
    }
    let code = status.map_or(Ok("302"), YamlNode::text)?;
    let at = status.map_or(key.span, |status| status.span);
    if !matches!(code, "301" | "302" | "303" | "307" | "308") {
        return Err(Error::new(format!("invalid status \"{code}\"")).at(at));
    }
    let text = url.literal()?;
    if is_internal {
        return internal(shape, key, url, &text);
    }
    let to = ProxyPlace { written: shape.written, is_bare: shape.is_bare }.target(&text);
    Ok(vec![line("return", key.span, &[(code, at), (&to, url.span)])])
}

/// A redirect inside of the server.
fn internal(shape: PathShape<'_>, key: &YamlNode, url: &YamlNode, text: &str) -> Result<Vec<DirectiveLine>> {
    if !text.starts_with('/') {
        let error = Error::new("an internal redirect leads to a path that begins with \"/\"").at(url.span);
        return Err(error.hint("\"proxy.reverse.url\" brings the response of another server"));
    }
    let (pattern, to) = match shape.is_bare {
        true => ("^".to_owned(), text.to_owned()),
        false => {
            (format!("^{}(.*)$", escaped(&shape.directory())), format!("{}/$1", text.trim_end_matches('/')))
        }
    };
    Ok(vec![line("rewrite", key.span, &[(&pattern, key.span), (&to, url.span), ("last", key.span)])])
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
