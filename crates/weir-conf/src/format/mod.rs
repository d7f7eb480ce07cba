//! Formatting: a text in the one layout of `weir fmt`.
//!
//! * four spaces for each block, one directive a line, one space between words;
//! * columns that several lines in a row have in common stay aligned, and so do the further lines of a long directive
//!   below one of its words;
//! * at most one empty line in a row, and none at the ends of blocks;
//! * comments, words and Lua as written; Lua is moved as a whole with its directive, unless a string has several lines.
//!
//! Formatting a second time changes nothing, and what a configuration says never changes: the result is read again and
//! compared before it is returned.

mod columns;
mod lines;
mod lua;

use std::path::Path;

use crate::{ConfTree, DirectiveLine, Error, LoadFailure, Span, read_one};
use lines::FormatLine;

/// `text` in the layout; `path` is its name in messages, and `raw_block` says by a directive's name whether the text in
/// its braces is Lua.
///
/// Lines end as the first one does, with a newline alone or with CRLF; inside of quotes and Lua they stay.
///
/// # Errors
/// All errors of syntax. A text with a word that has just the length a word may have, and no room for a blank after it,
/// is an error, too.
pub fn format(path: &Path, text: &[u8], raw_block: fn(&[u8]) -> bool) -> Result<Vec<u8>, Box<LoadFailure>> {
    let tree = read_one(path, text, raw_block)?;
    let lines = lines::collect(text, &tree.lines);
    let out = columns::write(&lines, line_end(text, &tree));
    let written = WrittenLines { text, lines: &tree.lines };
    if let Ok(again) = read_one(path, &out, raw_block)
        && written.say_the_same(WrittenLines { text: &out, lines: &again.lines })
        && comments(&lines).eq(comments(&lines::collect(&out, &again.lines)))
    {
        return Ok(out);
    }
    let error = Error::new("the text has no room for the blanks of the layout: a word is too long");
    let at = tree.lines.first().map(|line| line.name.span);
    Err(Box::new(LoadFailure { errors: Error { span: at, ..error }.into(), tree }))
}

/// How the first line ends that does not end inside of a word or of Lua.
fn line_end(text: &[u8], tree: &ConfTree) -> &'static [u8] {
    let mut inside = Vec::new();
    spans(&tree.lines, &mut inside);
    let mut from = 0;
    for span in inside.iter().chain([&Span { start: text.len() as u32, ..Span::default() }]) {
        let between = &text[from..span.start as usize];
        if let Some(end) = between.iter().position(|&byte| byte == b'\n') {
            return if between[..end].ends_with(b"\r") { b"\r\n" } else { b"\n" };
        }
        from = span.end as usize;
    }
    b"\n"
}

/// Where line ends are a part of the text: words and Lua, in their order.
fn spans(lines: &[DirectiveLine], found: &mut Vec<Span>) {
    for line in lines {
        found.extend(line.words().map(|word| word.span));
        found.extend(line.raw.iter().map(|raw| raw.span));
        if let Some(block) = &line.block {
            spans(&block.lines, found);
        }
    }
}

/// Lines and the text that they are of.
#[derive(Clone, Copy)]
struct WrittenLines<'a> {
    text: &'a [u8],
    lines: &'a [DirectiveLine],
}

impl<'a> WrittenLines<'a> {
    /// Whether the lines of two texts have the same words, written in the same way, and the same blocks.
    fn say_the_same(self, other: WrittenLines<'_>) -> bool {
        self.lines.len() == other.lines.len()
            && self.lines.iter().zip(other.lines).all(|(a, b)| {
                let blocks = match (&a.block, &b.block) {
                    (Some(a), Some(b)) => WrittenLines { lines: &a.lines, ..self }
                        .say_the_same(WrittenLines { lines: &b.lines, ..other }),
                    (a, b) => a.is_none() && b.is_none(),
                };
                let raws = match (&a.raw, &b.raw) {
                    (Some(a), Some(b)) => lua::same(&a.text, &b.text),
                    (a, b) => a.is_none() && b.is_none(),
                };
                blocks && raws && self.words(a) == other.words(b)
            })
    }

    fn words(self, line: &DirectiveLine) -> Vec<&'a [u8]> {
        line.words().map(|word| slice(self.text, word.span)).collect()
    }
}

fn comments<'a>(lines: &'a [FormatLine<'_>]) -> impl Iterator<Item = &'a [u8]> {
    lines.iter().filter_map(|line| line.comment.as_ref()).map(|comment| &*comment.text)
}

fn slice(text: &[u8], span: Span) -> &[u8] {
    &text[span.start as usize..span.end as usize]
}
