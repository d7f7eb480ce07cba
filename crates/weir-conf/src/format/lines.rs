//! From a tree to lines of the layout: which words, braces and comments share one.

use std::borrow::Cow;

use super::columns::{INDENT, advance};
use super::{lua, slice};
use crate::{Block, DirectiveLine, RawBlock, Span};

/// A line of the layout.
#[derive(Debug)]
pub(super) struct FormatLine<'a> {
    /// How many blocks it is in.
    pub depth: usize,
    /// Whether an empty line precedes it.
    pub after_empty: bool,
    /// The line that begins the directive which this one continues; `None` at the beginning of a directive, at a brace
    /// that closes, and at comments between directives.
    pub continues: Option<usize>,
    /// Words and braces; none in a line that is only a comment.
    pub cells: Vec<FormatCell<'a>>,
    /// The comment at its end.
    pub comment: Option<FormatCell<'a>>,
    /// Whether its columns may be those of the lines around it: a whole directive in one line.
    pub alignable: bool,
}

/// What is written without a change.
#[derive(Debug)]
pub(super) struct FormatCell<'a> {
    pub text: Cow<'a, [u8]>,
    /// Where it was written.
    pub column: usize,
    /// Whether nothing may come between what precedes it and itself: the `;`, and the `)` after a quote.
    pub glued: bool,
}

/// The lines of `text`, of which `tree` are the directives.
pub(super) fn collect<'a>(text: &'a [u8], tree: &[DirectiveLine]) -> Vec<FormatLine<'a>> {
    let mut collector =
        LineCollector { text, lines: Vec::new(), at: 0, depth: 0, statement: None, opened: true };
    collector.block(tree, text.len());
    collector.lines
}

struct LineCollector<'a> {
    text: &'a [u8],
    lines: Vec<FormatLine<'a>>,
    /// Up to where the text is in `lines`.
    at: usize,
    depth: usize,
    /// The first line of the directive that is being read.
    statement: Option<usize>,
    /// Nothing has come yet in this block.
    opened: bool,
}

/// What was between two tokens.
struct PassedGap {
    /// Line ends after the last comment, its own included.
    newlines: usize,
    /// Whether there were comments, which are in the lines now.
    commented: bool,
}

impl<'a> LineCollector<'a> {
    /// Directives and comments up to `end`, where a `}` or the end of the text is.
    fn block(&mut self, lines: &[DirectiveLine], end: usize) {
        for line in lines {
            self.directive(line);
        }
        self.pass(end);
    }

    fn directive(&mut self, line: &DirectiveLine) {
        let gap = self.pass(line.name.span.start as usize);
        let first = self.lines.len();
        self.push_line(gap.newlines);
        for word in line.words() {
            let start = word.span.start as usize;
            let glued = self.at == start;
            let gap = self.pass(start);
            if gap.newlines > 0 {
                self.push_line(0);
            }
            self.push_cell(slice(self.text, word.span), start, glued);
            self.at = word.span.end as usize;
            self.statement = Some(first);
        }
        match (&line.block, &line.raw) {
            (Some(block), _) => self.braces(block),
            (None, Some(raw)) => self.raw(raw, line.name.span),
            (None, None) => self.semicolon(line.span.end as usize - 1, first),
        }
        self.statement = None;
        self.opened = false;
    }

    fn semicolon(&mut self, at: usize, first: usize) {
        if self.pass(at).commented {
            self.push_line(0);
        }
        self.push_cell(b";", at, true);
        self.at = at + 1;
        if let [line] = &mut self.lines[first..] {
            line.alignable = !line.cells.iter().any(|cell| cell.text.contains(&b'\n'));
        }
    }

    fn braces(&mut self, block: &Block) {
        let (open, close) = (block.span.start as usize, block.span.end as usize - 1);
        if self.pass(open).commented {
            self.push_line(0);
        }
        if self.text[open + 1..close].iter().all(u8::is_ascii_whitespace) {
            self.push_cell(b"{}", open, false);
        } else {
            self.push_cell(b"{", open, false);
            (self.at, self.statement, self.opened) = (open + 1, None, true);
            self.depth += 1;
            self.block(&block.lines, close);
            self.depth -= 1;
            self.opened = true;
            self.push_line(0);
            self.push_cell(b"}", close, false);
        }
        self.at = close + 1;
    }

    fn raw(&mut self, raw: &RawBlock, name: Span) {
        let open = raw.span.start as usize - 1;
        if self.pass(open).commented {
            self.push_line(0);
        }
        let line_start = line_start(self.text, name.start as usize);
        let before = &self.text[line_start..name.start as usize];
        let old = before.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let new = " ".repeat(self.depth * INDENT);
        let body = lua::moved(slice(self.text, raw.span), &before[..old], new.as_bytes());
        let column = self.column(open);
        self.cells().push(FormatCell { text: [b"{", &*body, b"}"].concat().into(), column, glued: false });
        self.at = raw.span.end as usize + 1;
    }

    /// Passes over blanks and comments up to `end`; the comments become lines, or the ends of lines.
    fn pass(&mut self, end: usize) -> PassedGap {
        let (mut newlines, mut commented) = (0, false);
        while self.at < end {
            match self.text[self.at] {
                b'#' => {
                    self.comment(newlines);
                    (newlines, commented) = (0, true);
                }
                byte => {
                    newlines += usize::from(byte == b'\n');
                    self.at += 1;
                }
            }
        }
        PassedGap { newlines, commented }
    }

    /// The comment that begins here, with so many line ends before it.
    fn comment(&mut self, newlines: usize) {
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        let returns = rest[..length].iter().rev().take_while(|&&byte| byte == b'\r').count();
        let text = Cow::Borrowed(&rest[..length - returns]);
        let comment = Some(FormatCell { text, column: self.column(self.at), glued: false });
        self.at += length;
        if newlines > 0 || self.lines.is_empty() {
            self.push_line(newlines);
            self.opened = false;
        }
        self.lines.last_mut().expect("one was pushed if there was none").comment = comment;
    }

    fn push_line(&mut self, newlines: usize) {
        self.lines.push(FormatLine {
            depth: self.depth,
            after_empty: newlines >= 2 && !self.opened && self.statement.is_none(),
            continues: self.statement,
            cells: Vec::new(),
            comment: None,
            alignable: false,
        });
    }

    /// Adds what begins at `at`.
    fn push_cell(&mut self, text: &'a [u8], at: usize, glued: bool) {
        let column = self.column(at);
        self.cells().push(FormatCell { text: text.into(), column, glued });
    }

    fn cells(&mut self) -> &mut Vec<FormatCell<'a>> {
        &mut self.lines.last_mut().expect("a directive begins with a line").cells
    }

    fn column(&self, at: usize) -> usize {
        advance(0, &self.text[line_start(self.text, at)..at])
    }
}

fn line_start(text: &[u8], at: usize) -> usize {
    text[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)
}
