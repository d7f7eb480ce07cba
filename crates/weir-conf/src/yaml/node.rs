//! YAML as a tree of nodes with places. Keys of a mapping may repeat, as `listen` does in H2O's files.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, StrInput};

use crate::{Error, FileId, Result, Span};

/// A value and where it is.
#[derive(Clone, Debug)]
pub(super) struct YamlNode {
    pub(super) span: Span,
    pub(super) value: YamlValue,
}

#[derive(Clone, Debug)]
pub(super) enum YamlValue {
    Scalar(String),
    List(Vec<YamlNode>),
    Map(Vec<(YamlNode, YamlNode)>),
}

impl YamlNode {
    /// Its text; an error in the words of its key when it is not text.
    pub(super) fn text(&self) -> Result<&str> {
        match &self.value {
            YamlValue::Scalar(text) => Ok(text),
            _ => Err(Error::new("a single value is expected").at(self.span)),
        }
    }

    /// Its text, for a directive in which `$` begins a variable.
    pub(super) fn plain(&self) -> Result<&str> {
        let text = self.text()?;
        match text.contains('$') {
            true => Err(Error::new("\"$\" is not supported here").at(self.span)),
            false => Ok(text),
        }
    }

    /// Its entries, none for an empty value.
    pub(super) fn map(&self) -> Result<&[(YamlNode, YamlNode)]> {
        match &self.value {
            YamlValue::Map(entries) => Ok(entries),
            YamlValue::Scalar(text) if text.is_empty() => Ok(&[]),
            _ => Err(Error::new("a mapping is expected").at(self.span)),
        }
    }

    /// Its items; a single value is its own only item.
    pub(super) fn items(&self) -> &[YamlNode] {
        match &self.value {
            YamlValue::List(items) => items,
            _ => std::slice::from_ref(self),
        }
    }

    /// `ON` or `OFF`, as H2O writes it.
    pub(super) fn flag(&self) -> Result<bool> {
        match self.text()?.to_ascii_lowercase().as_str() {
            "on" | "yes" | "true" => Ok(true),
            "off" | "no" | "false" => Ok(false),
            _ => Err(Error::new("\"ON\" or \"OFF\" is expected").at(self.span)),
        }
    }

    /// A number that is not negative.
    pub(super) fn number(&self) -> Result<u64> {
        self.text()?.parse().map_err(|_| Error::new("a number is expected").at(self.span))
    }
}

/// Reads the one document of `text`.
///
/// # Errors
/// What the parser says, and limits: of depth, and of nodes, which aliases multiply.
pub(super) fn parse(text: &[u8], file: FileId) -> Result<YamlNode> {
    let whole = |error: Error| error.at(Span::new(file, 0, 0));
    let text = std::str::from_utf8(text).map_err(|error| {
        let at = error.valid_up_to();
        Error::new("the file is not UTF-8").at(Span::new(file, at, at + 1))
    })?;
    let mut offsets: Vec<usize> = text.char_indices().map(|(offset, _)| offset).collect();
    offsets.push(text.len());
    let events = Parser::new_from_str(text);
    let mut builder =
        NodeBuilder { events, offsets, file, text, anchors: HashMap::new(), nodes: 0, document: None };
    builder.run()?;
    builder.document.ok_or_else(|| whole(Error::new("the file is empty")))
}

struct NodeBuilder<'t> {
    events: Parser<'t, StrInput<'t>>,
    /// Where each character begins.
    offsets: Vec<usize>,
    file: FileId,
    text: &'t str,
    anchors: HashMap<usize, YamlNode>,
    /// Nodes made, those of aliases counted.
    nodes: usize,
    document: Option<YamlNode>,
}

/// A list or mapping that is not at its end.
struct OpenNode {
    anchor: usize,
    span: Span,
    is_map: bool,
    items: Vec<YamlNode>,
}

impl NodeBuilder<'_> {
    fn run(&mut self) -> Result<()> {
        let mut open: Vec<OpenNode> = Vec::new();
        while let Some(event) = self.events.next_event() {
            let (event, span) = event.map_err(|error| {
                let at = self.offset(error.marker().index());
                Error::new(error.info().to_owned()).at(Span::new(self.file, at, at))
            })?;
            let span = self.span(span);
            let done = match event {
                Event::Scalar(text, _, anchor, tag) => {
                    // A tag of YAML's own only names the type.
                    if tag.is_some_and(|tag| !tag.is_yaml_core_schema()) {
                        return Err(Error::new("tags are not supported").at(span));
                    }
                    let text = if text == "~" { String::new() } else { text.into_owned() };
                    self.made(YamlNode { span, value: YamlValue::Scalar(text) }, anchor)?
                }
                Event::Alias(anchor) => {
                    let node = self.anchors.get(&anchor).cloned();
                    let node = node.ok_or_else(|| Error::new("the alias leads into itself").at(span))?;
                    self.nodes += size(&node);
                    self.made(node, 0)?
                }
                Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                    if open.len() >= DEEPEST {
                        return Err(Error::new(format!("more than {DEEPEST} levels")).at(span));
                    }
                    let is_map = matches!(event, Event::MappingStart(..));
                    open.push(OpenNode { anchor, span, is_map, items: Vec::new() });
                    continue;
                }
                Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                    Some(mut ended) => {
                        self.made(YamlNode { span: ended.span, value: ended.value()? }, ended.anchor)?
                    }
                    None => continue,
                },
                _ => continue,
            };
            match open.last_mut() {
                Some(outer) => outer.items.push(done),
                None if self.document.is_some() => {
                    return Err(Error::new("more than one document").at(span));
                }
                None => self.document = Some(done),
            }
        }
        Ok(())
    }

    /// Counts a node and notes its anchor.
    fn made(&mut self, node: YamlNode, anchor: usize) -> Result<YamlNode> {
        self.nodes += 1;
        if self.nodes > MOST {
            return Err(Error::new(format!("more than {MOST} values")).at(node.span));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn offset(&self, index: usize) -> usize {
        self.offsets.get(index).copied().unwrap_or(self.text.len())
    }

    /// The parser's span in bytes, without blanks at its end.
    fn span(&self, span: saphyr_parser::Span) -> Span {
        let (start, end) = (self.offset(span.start.index()), self.offset(span.end.index()));
        let text = self.text.get(start..end).unwrap_or_default();
        Span::new(self.file, start, start + text.trim_end().len())
    }
}

impl OpenNode {
    fn value(&mut self) -> Result<YamlValue> {
        let items = std::mem::take(&mut self.items);
        if !self.is_map {
            return Ok(YamlValue::List(items));
        }
        let mut entries: Vec<(YamlNode, YamlNode)> = Vec::new();
        let mut merged = Vec::new();
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            match key.text()? {
                "<<" => value.items().iter().try_for_each(|from| {
                    merged.extend_from_slice(from.map()?);
                    Ok(())
                })?,
                _ => entries.push((key, value)),
            }
        }
        let own = entries.len();
        for (key, value) in merged {
            let name = key.text()?;
            if !entries[..own].iter().any(|(known, _)| known.text().is_ok_and(|known| known == name)) {
                entries.push((key, value));
            }
        }
        Ok(YamlValue::Map(entries))
    }
}

fn size(node: &YamlNode) -> usize {
    match &node.value {
        YamlValue::Scalar(_) => 0,
        YamlValue::List(items) => items.iter().map(|item| 1 + size(item)).sum(),
        YamlValue::Map(entries) => entries.iter().map(|(key, value)| 2 + size(key) + size(value)).sum(),
    }
}

/// Levels inside of each other; H2O's files have seven.
const DEEPEST: usize = 32;
/// Values of a file.
const MOST: usize = 100_000;
