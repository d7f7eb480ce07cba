//! What the keys of one level (the whole file, a host, a path, a file extension) come to.

use super::fastcgi::FastcgiKeys;
use super::files::FileKeys;
use super::headers::HintFields;
use super::listen::ListenKey;
use super::node::YamlNode;
use super::proxy::ProxyKeys;
use crate::{Block, DirectiveLine, Error, Result, Span, Word};

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyLevel {
    Global,
    Host,
    Path,
    Extension,
}

impl KeyLevel {
    /// The bit of this level in a row of the table.
    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The lines of a level, and what is put together when all its keys are known.
#[derive(Default)]
pub(super) struct LevelLines<'n> {
    /// Lines of the main context.
    pub(super) main: Vec<DirectiveLine>,
    /// Lines of `events`.
    pub(super) events: Vec<DirectiveLine>,
    /// Lines of `http`, of the server or of the location.
    pub(super) lines: Vec<DirectiveLine>,
    /// Lines of `http` that belong to a place inside: formats of logs and upstreams.
    pub(super) shared: Vec<DirectiveLine>,
    pub(super) listens: Vec<ListenKey>,
    pub(super) hosts: Option<&'n YamlNode>,
    pub(super) paths: Option<&'n YamlNode>,
    /// The handlers of the path, which are tried one after the other: keys and values.
    pub(super) handlers: Vec<(&'n YamlNode, &'n YamlNode)>,
    /// `strict-match`
    pub(super) is_strict: bool,
    pub(super) limits: GlobalLimits,
    /// What levels inside have of this one.
    pub(super) inherited: InheritedKeys<'n>,
}

/// What a level inside has of the levels around, and adds to.
#[derive(Clone, Default)]
pub(super) struct InheritedKeys<'n> {
    /// `access_log` lines.
    pub(super) logs: Vec<DirectiveLine>,
    pub(super) proxy: ProxyKeys,
    pub(super) fastcgi: FastcgiKeys,
    pub(super) files: FileKeys<'n>,
    /// `header.*` with `when: early` or `all`.
    pub(super) hints: HintFields,
    /// `error-doc`: statuses and the document, of the level closest by first.
    pub(super) error_docs: Vec<(&'n YamlNode, &'n YamlNode)>,
    /// `header.*` is among the keys.
    pub(super) has_headers: bool,
    /// `expires`: seconds.
    pub(super) expires: Option<(u64, Span)>,
    /// `reproxy: ON`, and where it says so.
    pub(super) reproxy: Option<Span>,
    /// `setenv`: names and values.
    pub(super) environment: Vec<(&'n YamlNode, &'n YamlNode)>,
}

/// Numbers of the whole file.
#[derive(Default)]
pub(super) struct GlobalLimits {
    pub(super) threads: u64,
    pub(super) connections: Option<(u64, Span)>,
    /// Seconds: the longest of what `http1-request-timeout` and `http2-idle-timeout` say.
    pub(super) idle: Option<(u64, Span)>,
    /// `tcp-fastopen`
    pub(super) fastopen: Option<u64>,
    /// `http1-upgrade-to-http2: OFF`
    pub(super) refuses_upgrade: bool,
}

impl<'n> LevelLines<'n> {
    /// A level inside of this one.
    pub(super) fn inner(&self) -> LevelLines<'n> {
        LevelLines { inherited: self.inherited.clone(), ..LevelLines::default() }
    }

    /// Adds a line to `http`, once for a name and what it is about.
    pub(super) fn share(&mut self, line: DirectiveLine) {
        share(&mut self.shared, line);
    }
}

/// Adds a line that may be there already: an alias stands for the same place of the file several times.
pub(super) fn share(lines: &mut Vec<DirectiveLine>, line: DirectiveLine) {
    // A map is about the variable that it makes.
    let about = |line: &DirectiveLine| {
        line.args.get(usize::from(line.name.is("map"))).map(|word| word.bytes().to_vec())
    };
    let known =
        lines.iter().any(|known| known.name.bytes() == line.name.bytes() && about(known) == about(&line));
    if !known {
        lines.push(line);
    }
}

/// A line at `span`; its words are there too, or where their text came from.
pub(super) fn line(name: &str, span: Span, args: &[(&str, Span)]) -> DirectiveLine {
    let args = args.iter().map(|(text, span)| Word::quoted(text.as_bytes(), *span)).collect();
    DirectiveLine { name: Word::plain(name.as_bytes(), span), args, block: None, raw: None, span }
}

/// As [`line`](line()), of arguments that all come from the same place.
pub(super) fn short(name: &str, span: Span, args: &[&str]) -> DirectiveLine {
    line(name, span, &args.iter().map(|arg| (*arg, span)).collect::<Vec<_>>())
}

/// As [`line`](line()), with a block.
pub(super) fn block(
    name: &str,
    span: Span,
    args: &[(&str, Span)],
    lines: Vec<DirectiveLine>,
) -> DirectiveLine {
    DirectiveLine { block: Some(Block { lines, span }), ..line(name, span, args) }
}

/// A `map` from one variable to another.
pub(super) fn map(from: &str, to: &str, rows: Vec<DirectiveLine>, at: Span) -> DirectiveLine {
    block("map", at, &[(from, at), (to, at)], rows)
}

/// `"key" directive is duplicate`, at its key.
pub(super) fn duplicate(key: &YamlNode) -> Error {
    Error::new(format!("\"{}\" directive is duplicate", key.text().unwrap_or_default())).at(key.span)
}

/// `name` with the value's text as its only argument.
pub(super) fn copied(name: &str, key: &YamlNode, value: &YamlNode) -> Result<DirectiveLine> {
    Ok(line(name, key.span, &[(value.text()?, value.span)]))
}

/// `name` with the value's number and `unit`.
pub(super) fn numbered(name: &str, unit: &str, key: &YamlNode, value: &YamlNode) -> Result<DirectiveLine> {
    let text = format!("{}{unit}", value.number()?);
    Ok(line(name, key.span, &[(&text, value.span)]))
}

/// `name` with `on` or `off`.
pub(super) fn flagged(name: &str, key: &YamlNode, value: &YamlNode) -> Result<DirectiveLine> {
    let text = if value.flag()? { "on" } else { "off" };
    Ok(line(name, key.span, &[(text, value.span)]))
}

/// A key of an inner mapping that is not known.
pub(super) fn unknown(key: &YamlNode, name: &str, known: &[&str]) -> Error {
    let error = Error::new(format!("unknown parameter \"{name}\"")).at(key.span);
    error.hint_nearest(name, known.iter().copied())
}
