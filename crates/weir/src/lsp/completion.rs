//! What may be written at the cursor.

use weir_conf::{ConfTree, Contexts, DirectiveLine};
use weir_http::json::JsonWriter;

use super::cursor::CursorLine;
use super::parser_words::parser_words;
use super::place::EditorRange;
use crate::reference;

/// Something that may be written.
#[derive(Debug)]
pub(super) struct CompletionItem {
    pub label: String,
    /// What is written.
    pub insert: String,
    pub kind: CompletionKind,
    /// A line beside the label.
    pub detail: String,
    /// Markdown; empty where there is none.
    pub text: String,
}

/// The protocol's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletionKind {
    Variable = 6,
    Directive = 10,
    Value = 12,
}

/// What may be written at the cursor, and how many units of what is written there it replaces.
pub(super) fn complete(
    line: &CursorLine,
    outer: Option<&[String]>,
    tree: Option<&ConfTree>,
) -> (Vec<CompletionItem>, usize) {
    let here = line.contexts(outer);
    let length = |text: &str| text.encode_utf16().count();
    if line.words.is_empty() {
        return (directives(here), length(&line.word));
    }
    if let Some(at) = line.word.rfind('$') {
        let braced = line.word[at..].starts_with("${");
        let written = &line.word[at + 1 + usize::from(braced)..];
        if written.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            let (open, close) = if braced { ("${", "}") } else { ("$", "") };
            return (variables(tree, open, close), length(&line.word[at..]));
        }
        return (Vec::new(), 0);
    }
    (values(line, here), length(&line.word))
}

fn directives(here: Contexts) -> Vec<CompletionItem> {
    let rows =
        reference::directives().filter(|row| row.row.contexts.allows(here) || row.row.name == "include");
    let item = |row: reference::ReferenceRow| CompletionItem {
        label: row.row.name.to_owned(),
        insert: row.row.name.to_owned(),
        kind: CompletionKind::Directive,
        detail: row.row.syntax.lines().next().unwrap_or_default().to_owned(),
        text: row.text(),
    };
    if here == Contexts::NONE { Vec::new() } else { rows.map(item).collect() }
}

/// The words that the parser's tables have here; where it has none, those of the syntax.
fn values(line: &CursorLine, here: Contexts) -> Vec<CompletionItem> {
    let Some(row) = reference::directive(&line.words[0], here) else { return Vec::new() };
    let mut values = parser_words(&line.words, &row.row, here);
    if values.iter().any(|value| row.mentions(value)) {
        values = values.iter().filter_map(|value| row.spelled(value)).collect();
    }
    if values.is_empty() {
        values = row.values().into_iter().map(str::to_owned).collect();
    }
    let item = |value: String| CompletionItem {
        label: value.clone(),
        insert: value,
        kind: CompletionKind::Value,
        detail: row.row.syntax.lines().next().unwrap_or_default().to_owned(),
        text: String::new(),
    };
    values.into_iter().map(item).collect()
}

/// Variables of the modules, and of the configuration, written between `open` and `close`.
fn variables(tree: Option<&ConfTree>, open: &str, close: &str) -> Vec<CompletionItem> {
    let item = |name: &str, rest: &str, detail: String| CompletionItem {
        label: format!("${name}{rest}"),
        insert: if rest.is_empty() { format!("{open}{name}{close}") } else { format!("{open}{name}") },
        kind: CompletionKind::Variable,
        detail,
        text: String::new(),
    };
    let mut found: Vec<_> = reference::variables()
        .map(|variable| {
            let rest = if variable.is_prefix { "NAME" } else { "" };
            item(variable.name, rest, format!("variable of {}", variable.module))
        })
        .collect();
    let mut defined = Vec::new();
    if let Some(tree) = tree {
        defined_in(&tree.lines, &mut defined);
    }
    defined.sort();
    defined.dedup();
    let described = |by: &str| format!("variable of this configuration: {by}");
    found.extend(defined.iter().map(|(name, by)| item(name.trim_start_matches('$'), "", described(by))));
    found
}

/// The variables that lines define, each with the directive that does.
fn defined_in(lines: &[DirectiveLine], found: &mut Vec<(String, String)>) {
    for line in lines {
        let word = match line.name.str() {
            "set" | "auth_request_set" | "set_by_lua_block" | "set_by_lua_file" => line.args.first(),
            "map" | "geo" | "split_clients" => line.args.last(),
            _ => None,
        };
        let name = word.map(|word| word.str()).filter(|name| name.starts_with('$'));
        found.extend(name.map(|name| (name.to_owned(), line.name.str().to_owned())));
        if let Some(block) = &line.block {
            defined_in(&block.lines, found);
        }
    }
}

impl CompletionItem {
    /// As an object: the next value of `json`. It replaces the text in `range`.
    pub(super) fn write(&self, json: &mut JsonWriter, range: EditorRange) {
        json.nested(|json| {
            json.key("label").text(&self.label);
            json.key("kind").raw(self.kind as u8);
            json.key("detail").text(&self.detail);
            if !self.text.is_empty() {
                json.key("documentation");
                markdown(json, &self.text);
            }
            json.key("textEdit").nested(|json| {
                json.key("range");
                range.write(json);
                json.key("newText").text(&self.insert);
            });
        });
    }
}

/// Markdown, as the next value of `json`.
pub(super) fn markdown(json: &mut JsonWriter, text: &str) {
    json.nested(|json| {
        json.key("kind").text("markdown");
        json.key("value").text(text);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> (Vec<String>, usize) {
        let line = CursorLine::before(text.as_bytes(), text.len()).expect("a line");
        let (items, length) = complete(&line, None, None);
        (items.into_iter().map(|item| item.label).collect(), length)
    }

    #[test]
    fn directives_are_those_of_the_block() {
        let (found, length) = labels("http { upstream a { ke");
        assert!(found.contains(&"keepalive".to_owned()) && !found.contains(&"root".to_owned()), "{found:?}");
        assert_eq!(length, 2);
        assert_eq!(labels("http { map $a $b { x").0.len(), 0);
    }

    #[test]
    fn variables_and_values_are_arguments() {
        let (found, length) = labels("add_header a \"x${ho");
        assert!(found.contains(&"$host".to_owned()) && found.contains(&"$http_NAME".to_owned()));
        assert_eq!(length, 4);
        let line = CursorLine::before(b"add_header a ${ho", 17).expect("a line");
        let (items, _) = complete(&line, None, None);
        let insert = |label| items.iter().find(|item| item.label == label).map(|item| item.insert.as_str());
        assert_eq!((insert("$host"), insert("$http_NAME")), (Some("${host}"), Some("${http_")));
        let (found, length) = labels("http { server { listen 80 ssl re");
        assert!(
            found.contains(&"reuseport".to_owned()) && found.contains(&"backlog=".to_owned()),
            "{found:?}"
        );
        assert!(!found.contains(&"default".to_owned()), "{found:?}");
        assert_eq!(length, 2);
        let (found, _) = labels("upstream a { server 127.0.0.1:80 we");
        assert!(found.contains(&"weight=".to_owned()) && found.contains(&"backup".to_owned()), "{found:?}");
        assert_eq!(labels("gzip o"), (vec!["on".to_owned(), "off".to_owned()], 1));
        for (text, absent) in
            [("proxy_next_upstream error ", "updating"), ("uwsgi_cache_use_stale ", "non_idempotent")]
        {
            let (found, _) = labels(text);
            assert!(
                found.contains(&"http_502".to_owned()) && !found.contains(&absent.to_owned()),
                "{found:?}"
            );
        }
        assert!(labels("proxy_ignore_headers ").0.contains(&"Set-Cookie".to_owned()));
        assert!(labels("dav_methods ").0.contains(&"PUT".to_owned()));
        assert_eq!(labels("add_header a $b/c").0.len(), 0);
    }
}
