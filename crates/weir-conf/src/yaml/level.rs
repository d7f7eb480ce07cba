//! What the keys of one level (the whole file, a host, a path) come to.

use super::node::YamlNode;
use crate::{Block, DirectiveLine, Error, Result, Span, Word};

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyLevel {
    Global,
    Host,
    Path,
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
    /// `log_format` lines.
    pub(super) formats: Vec<DirectiveLine>,
    /// `access_log` lines, those of the levels around included.
    pub(super) logs: Vec<DirectiveLine>,
    pub(super) listens: Vec<ListenKey>,
    pub(super) hosts: Option<&'n YamlNode>,
    pub(super) paths: Option<&'n YamlNode>,
    /// The handler of the path: key and value.
    pub(super) content: Option<(&'n YamlNode, &'n YamlNode)>,
    pub(super) threads: u64,
    pub(super) connections: Option<(u64, Span)>,
}

/// An address to listen on.
#[derive(Clone)]
pub(super) struct ListenKey {
    pub(super) address: String,
    pub(super) port: Option<u16>,
    pub(super) ssl: bool,
    pub(super) proxy_protocol: bool,
    /// `ssl_...` lines of the server.
    pub(super) settings: Vec<DirectiveLine>,
    pub(super) span: Span,
}

/// A line at `span`; its words are there too, or where their text came from.
pub(super) fn line(name: &str, span: Span, args: &[(&str, Span)]) -> DirectiveLine {
    let args = args.iter().map(|(text, span)| Word::quoted(text.as_bytes(), *span)).collect();
    DirectiveLine { name: Word::plain(name.as_bytes(), span), args, block: None, raw: None, span }
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

/// `"key" directive is duplicate`, at its key.
pub(super) fn duplicate(key: &YamlNode) -> Error {
    Error::new(format!("\"{}\" directive is duplicate", key.text().unwrap_or_default())).at(key.span)
}

/// `name` with the value's text as its only argument.
pub(super) fn copied(name: &str, key: &YamlNode, value: &YamlNode) -> Result<DirectiveLine> {
    Ok(line(name, key.span, &[(value.text()?, value.span)]))
}
