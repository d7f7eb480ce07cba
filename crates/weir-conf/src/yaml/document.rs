//! The text of a YAML document as a tree of nodes: events to nodes, aliases, merges and the tags `!file` and `!env`.

use std::collections::HashMap;
use std::path::Path;

use saphyr_parser::{Event, Parser, StrInput};

use super::OpenYaml;
use super::node::{YamlNode, YamlValue};
use crate::{Error, FileId, Result, Span};

/// Reads the one document of `text`.
/// `open` reads the files that `!file` names.
///
/// # Errors
/// What the parser says, and limits: of depth, and of nodes, which aliases multiply.
pub(super) fn parse(text: &[u8], file: FileId, open: &mut OpenYaml<'_>) -> Result<YamlNode> {
    read(text, file, 0, &mut 0, open)
}

/// `depth`: of files in each other; `nodes`: how many values were made by now.
fn read(
    text: &[u8],
    file: FileId,
    depth: usize,
    nodes: &mut usize,
    open: &mut OpenYaml<'_>,
) -> Result<YamlNode> {
    let whole = |error: Error| error.at(Span::new(file, 0, 0));
    let text = std::str::from_utf8(text).map_err(|error| {
        let at = error.valid_up_to();
        Error::new("the file is not UTF-8").at(Span::new(file, at, at + 1))
    })?;
    let mut offsets: Vec<usize> = text.char_indices().map(|(offset, _)| offset).collect();
    offsets.push(text.len());
    let events = Parser::new_from_str(text);
    let anchors = HashMap::new();
    let mut builder = NodeBuilder { events, offsets, file, text, anchors, nodes, depth, document: None };
    builder.run(open)?;
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
    nodes: &'t mut usize,
    /// Files around this one.
    depth: usize,
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
    fn run(&mut self, files: &mut OpenYaml<'_>) -> Result<()> {
        let mut open: Vec<OpenNode> = Vec::new();
        while let Some(event) = self.events.next_event() {
            let (event, span) = event.map_err(|error| {
                let at = self.offset(error.marker().index());
                Error::new(error.info().to_owned()).at(Span::new(self.file, at, at))
            })?;
            let span = self.span(span);
            let done = match event {
                Event::Scalar(text, _, anchor, tag) => {
                    let text = if text == "~" { String::new() } else { text.into_owned() };
                    let node = YamlNode { span, value: YamlValue::Scalar(text) };
                    // A tag of YAML's own only names the type.
                    let tag = tag.filter(|tag| !tag.is_yaml_core_schema()).map(|tag| tag.suffix.clone());
                    let node = match tag {
                        Some(tag) => self.tagged(&tag, node, files)?,
                        None => node,
                    };
                    self.made(node, anchor)?
                }
                Event::Alias(anchor) => {
                    let node = self.anchors.get(&anchor).cloned();
                    let node = node.ok_or_else(|| Error::new("the alias leads into itself").at(span))?;
                    *self.nodes += size(&node);
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
        *self.nodes += 1;
        if *self.nodes > MOST {
            return Err(Error::new(format!("more than {MOST} values")).at(node.span));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// What `!file PATH` and `!env NAME` stand for.
    fn tagged(&mut self, tag: &str, node: YamlNode, files: &mut OpenYaml<'_>) -> Result<YamlNode> {
        let text = node.text()?;
        match tag {
            "env" => match std::env::var(text) {
                Ok(value) => Ok(YamlNode { span: node.span, value: YamlValue::Scalar(value) }),
                Err(_) => {
                    Err(Error::new(format!("environment variable \"{text}\" is not set")).at(node.span))
                }
            },
            "file" if self.depth >= DEEPEST_FILE => {
                Err(Error::new(format!("more than {DEEPEST_FILE} files in each other")).at(node.span))
            }
            "file" => {
                let (file, text) = files(Path::new(text)).map_err(|error| error.at(node.span))?;
                read(&text, file, self.depth + 1, self.nodes, files)
            }
            _ => Err(Error::new(format!("unknown tag \"!{tag}\""))
                .at(node.span)
                .hint("\"!file\" and \"!env\" are known")),
        }
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
/// Files in each other by `!file`.
const DEEPEST_FILE: usize = 8;
/// Values of a file.
const MOST: usize = 100_000;
