//! What is written where the cursor is: the blocks around it, and the words of its line.

use std::path::Path;

use weir_conf::{ConfTree, Contexts, DirectiveLine, Span, Word, read_one};

use crate::check::is_lua_block;

/// The line at the cursor, as far as it is written before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CursorLine {
    /// The names of the blocks around it, from outside.
    pub blocks: Vec<String>,
    /// The words before the one that is being written.
    pub words: Vec<String>,
    /// What is written of that one.
    pub word: String,
}

impl CursorLine {
    /// What is before the byte `at`; `None` in comments and in Lua.
    pub(super) fn before(text: &[u8], at: usize) -> Option<CursorLine> {
        let text = &text[..at.min(text.len())];
        let open = text.iter().filter(|&&byte| byte == b'{').count().min(DEEPEST);
        // The word goes to its end in one of these ways: bare, in one kind of quotes or the other.
        ["", "\"", "'"].iter().find_map(|quote| {
            let tail = format!("{MARK}{quote} ;\n{}", "}".repeat(open));
            let completed = [text, tail.as_bytes()].concat();
            let tree = match read_one(Path::new("cursor"), &completed, is_lua_block) {
                Ok(tree) => tree,
                Err(failure) => failure.tree,
            };
            find_mark(&tree.lines, &mut Vec::new())
        })
    }

    /// The blocks in which a directive of this line may be, when the file itself is included in `outer`: several where that
    /// is not known, none in blocks whose lines are no directives.
    pub(super) fn contexts(&self, outer: Option<&[String]>) -> Contexts {
        let names = outer.unwrap_or_default().iter().chain(&self.blocks).map(String::as_str);
        let known = context(&names.collect::<Vec<_>>());
        match (outer, &self.blocks[..]) {
            (Some(_), _) => known,
            (None, [first, ..]) if ["events", "http", "stream"].contains(&first.as_str()) => known,
            // In a part of a configuration.
            (None, []) => Contexts::MAIN | Contexts::ANY | Contexts::UPSTREAM,
            (None, [first, ..]) if first == "location" => {
                context(&[&["http", "server"][..], &self.names()[..]].concat())
            }
            (None, _) => context(&[&["http"][..], &self.names()[..]].concat()),
        }
    }

    fn names(&self) -> Vec<&str> {
        self.blocks.iter().map(String::as_str).collect()
    }
}

/// The context of the lines in these blocks.
fn context(blocks: &[&str]) -> Contexts {
    match blocks {
        [] => Contexts::MAIN,
        ["events"] => Contexts::EVENTS,
        ["http"] => Contexts::HTTP,
        ["http", "server"] => Contexts::SERVER,
        ["http", "upstream"] => Contexts::UPSTREAM,
        ["stream"] => Contexts::STREAM,
        ["stream", "server"] => Contexts::STREAM_SERVER,
        ["stream", "upstream"] => Contexts::STREAM_UPSTREAM,
        ["http", "server", "if"] => Contexts::SERVER_IF,
        ["http", "server", "location", inner @ ..] => match inner.last() {
            None | Some(&"location") => Contexts::LOCATION,
            Some(&"if") => Contexts::LOCATION_IF,
            Some(&"limit_except") => Contexts::LIMIT_EXCEPT,
            Some(_) => Contexts::NONE,
        },
        _ => Contexts::NONE,
    }
}

/// The blocks in which `tree` includes the file `path`; `None` where it does not, or is it.
pub(super) fn outer_blocks(tree: &ConfTree, path: &Path) -> Option<Vec<String>> {
    fn find(tree: &ConfTree, path: &Path, lines: &[DirectiveLine], blocks: &mut Vec<String>) -> bool {
        lines.iter().any(|line| {
            let file = tree.source.file(line.span.file);
            if file.is_some_and(|file| file.path == path) {
                return true;
            }
            let Some(block) = &line.block else { return false };
            blocks.push(line.name.str().to_owned());
            let found = find(tree, path, &block.lines, blocks);
            if !found {
                blocks.pop();
            }
            found
        })
    }
    let mut blocks = Vec::new();
    find(tree, path, &tree.lines, &mut blocks).then_some(blocks)
}

/// The line and word of `lines` that the byte `at` is in or after, with the context of the line.
pub(super) fn word_at(lines: &[DirectiveLine], at: usize) -> Option<(Vec<String>, &DirectiveLine, &Word)> {
    let touches = |span: Span| (span.start as usize..=span.end as usize).contains(&at);
    let line = lines.iter().find(|line| touches(line.span))?;
    if let Some(word) = line.words().find(|word| touches(word.span)) {
        return Some((Vec::new(), line, word));
    }
    let (mut blocks, inner, word) = word_at(&line.block.as_ref()?.lines, at)?;
    blocks.insert(0, line.name.str().to_owned());
    Some((blocks, inner, word))
}

fn find_mark(lines: &[DirectiveLine], blocks: &mut Vec<String>) -> Option<CursorLine> {
    for line in lines {
        let marked = line.words().position(|word| word.str().ends_with(MARK));
        if let Some(marked) = marked {
            let words: Vec<_> = line.words().map(|word| word.str().to_owned()).take(marked + 1).collect();
            let word = words[marked].trim_end_matches(MARK).to_owned();
            let words = words[..marked].to_vec();
            return Some(CursorLine { blocks: blocks.clone(), words, word });
        }
        if let Some(block) = &line.block {
            blocks.push(line.name.str().to_owned());
            if let Some(found) = find_mark(&block.lines, blocks) {
                return Some(found);
            }
            blocks.pop();
        }
    }
    None
}

/// Ends the word at the cursor: no one writes it.
const MARK: &str = "\u{1}";

/// More blocks than these are no configuration.
const DEEPEST: usize = 90;

#[cfg(test)]
mod tests {
    use super::*;

    fn before(text: &str) -> Option<(String, String, String)> {
        let line = CursorLine::before(text.as_bytes(), text.len())?;
        Some((line.blocks.join(" "), line.words.join(" "), line.word))
    }

    #[test]
    fn the_words_before_the_cursor_are_found() {
        for (text, blocks, words, word) in [
            ("", "", "", ""),
            ("http {\n  ser", "http", "", "ser"),
            ("http { server { listen 80; root ", "http server", "root", ""),
            ("http { server { listen 80; } map $a $b { x ", "http map", "x", ""),
            ("add_header a \"$ho", "", "add_header a", "$ho"),
            ("add_header a 'b ", "", "add_header a", "b "),
            ("a ${ho", "", "a", "${ho"),
            ("content_by_lua_block { a() }\ngz", "", "", "gz"),
        ] {
            let expected = (blocks.to_owned(), words.to_owned(), word.to_owned());
            assert_eq!(before(text), Some(expected), "{text}");
        }
        for text in ["# gz", "a; # ", "content_by_lua_block { a("] {
            assert_eq!(before(text), None, "{text}");
        }
    }

    #[test]
    fn contexts_follow_from_the_blocks() {
        let of = |text: &str, outer: Option<&[&str]>| {
            let outer: Option<Vec<String>> =
                outer.map(|names| names.iter().map(|&name| name.to_owned()).collect());
            CursorLine::before(text.as_bytes(), text.len()).expect("found").contexts(outer.as_deref())
        };
        assert_eq!(of("http { server { location / { if ($a) { ", None), Contexts::LOCATION_IF);
        assert_eq!(of("server { ", None), Contexts::SERVER);
        assert_eq!(of("location / { ", None), Contexts::LOCATION);
        assert_eq!(of("upstream a { ", Some(&["http"])), Contexts::UPSTREAM);
        assert_eq!(of("", Some(&[])), Contexts::MAIN);
        assert_eq!(of("", Some(&["http", "server"])), Contexts::SERVER);
        assert_eq!(of("http { map $a $b { ", None), Contexts::NONE);
        assert_eq!(of("stream { server { ", None), Contexts::STREAM_SERVER);
        assert_eq!(of("stream { server { location / { ", None), Contexts::NONE);
        assert!(of("", None).allows(Contexts::LOCATION));
    }
}
