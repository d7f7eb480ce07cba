//! Text to statements: the words up to a `;`, `{`, `}` or the end.
//!
//! nginx's rules, with what surprises in them:
//! * a quote opens only at the start of a word; after a quoted word must follow a blank, `;`, `{` or `)`;
//! * `#` begins a comment only at the start of a word;
//! * `}` and quotes inside of a word are letters, and so is a `{` after a `$`;
//! * a backslash takes the next byte into the word; the two become one byte in `\"`, `\'`, `\\`, `\t`, `\r` and
//!   `\n`, quoted or not, and stay two otherwise (so `\.` reaches an expression as written);
//! * a word and what ends it have at most 4,096 bytes.
//!
//! After an error the lexer goes on where a reader would: see [`Statement::bad`].

use std::sync::Arc;

use crate::{Error, Errors, FileId, SourceFile, Span, Word};

/// Reads the statements of one text.
pub(crate) struct Lexer<'a> {
    text: &'a [u8],
    /// The same where words may refer to it.
    utf8: Option<&'a Arc<str>>,
    file: FileId,
    pos: usize,
    /// The text of `-g`, whose end has other words.
    parameter: bool,
    /// The words of the statement that is being read: here they grow, so that each statement takes its own at once.
    words: Vec<Word>,
}

/// Words, and what ended them.
#[derive(Debug)]
pub(crate) struct Statement {
    /// The first word; `None` only for `Close`, `Eof` and bad ones.
    pub(crate) name: Option<Word>,
    /// The words after it.
    pub(crate) args: Vec<Word>,
    pub(crate) end: StatementEnd,
    /// The `;`, `{` or `}`; empty at the end of the file.
    pub(crate) end_span: Span,
    /// Whether an error was reported in it: it has the shape of a line, but must not be used.
    pub(crate) bad: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementEnd {
    Semicolon,
    Open,
    Close,
    Eof,
}

impl<'a> Lexer<'a> {
    /// Reads the text of `source`, whose id is `file`.
    pub(crate) fn new(source: &'a SourceFile, file: FileId) -> Self {
        let SourceFile { text, utf8, parameter, .. } = source;
        Self { text, utf8: utf8.as_ref(), file, pos: 0, parameter: *parameter, words: Vec::new() }
    }

    pub(crate) fn text(&self) -> &'a [u8] {
        self.text
    }

    pub(crate) fn pos(&self) -> usize {
        self.pos
    }

    /// Goes on at `pos`, after what another scanner has read.
    pub(crate) fn seek(&mut self, pos: usize) {
        self.pos = pos;
    }

    pub(crate) fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.file, start, end)
    }

    /// The next statement; errors in it are added to `errors`.
    pub(crate) fn statement(&mut self, errors: &mut Errors) -> Statement {
        let mut bad = false;
        loop {
            let newline = self.skip_blanks();
            let end = match self.text.get(self.pos) {
                None => StatementEnd::Eof,
                Some(b';') => StatementEnd::Semicolon,
                Some(b'{') => StatementEnd::Open,
                Some(b'}') => StatementEnd::Close,
                Some(_) => match self.word() {
                    Ok(mut word) => {
                        word.after_newline = newline && !self.words.is_empty();
                        self.words.push(word);
                        continue;
                    }
                    Err(WordError { error, resume }) => {
                        errors.push(error);
                        bad = true;
                        if resume.is_none() && !errors.is_full() {
                            continue;
                        }
                        self.pos = resume.unwrap_or(self.pos);
                        return self.ended(StatementEnd::Semicolon, bad);
                    }
                },
            };
            return self.end(end, bad, errors);
        }
    }

    /// Ends a statement before `end`, which is read unless it is a `}` that comes too early.
    fn end(&mut self, end: StatementEnd, bad: bool, errors: &mut Errors) -> Statement {
        let here = self.span(self.pos, self.pos + 1);
        let error = match (end, self.words.last()) {
            // One error a statement: errors that follow from it are not reported.
            _ if bad => None,
            (StatementEnd::Semicolon, None) => Some(Error::new("unexpected \";\"").at(here)),
            (StatementEnd::Open, None) => Some(Error::new("unexpected \"{\"").at(here)),
            (StatementEnd::Close, Some(last)) => {
                Some(Error::new("unexpected \"}\"").at(here).hint(last.missing_semicolon()))
            }
            (StatementEnd::Eof, Some(_)) => Some(self.unexpected_end()),
            _ => None,
        };
        let bad = bad || error.is_some();
        errors.0.extend(error);
        match end {
            StatementEnd::Close if bad => self.ended(StatementEnd::Semicolon, bad),
            StatementEnd::Eof => self.ended(end, bad),
            _ => {
                self.pos += 1;
                self.ended(end, bad)
            }
        }
    }

    fn ended(&mut self, end: StatementEnd, bad: bool) -> Statement {
        let length = match end {
            StatementEnd::Open | StatementEnd::Close => 1,
            StatementEnd::Semicolon => usize::from(!bad),
            StatementEnd::Eof => 0,
        };
        let end_span = self.span(self.pos - length, self.pos);
        let mut words = self.words.drain(..);
        Statement { name: words.next(), args: words.collect(), end, end_span, bad }
    }

    /// Skips blanks and comments; returns whether a line ended there.
    fn skip_blanks(&mut self) -> bool {
        let mut newline = false;
        while let Some(&byte) = self.text.get(self.pos) {
            match byte {
                b'#' => self.pos = self.line_end(self.pos),
                _ if is_blank(byte) => {
                    newline |= byte == b'\n';
                    self.pos += 1;
                }
                _ => break,
            }
        }
        newline
    }

    fn word(&mut self) -> Result<Word, WordError> {
        match self.text[self.pos] {
            quote @ (b'"' | b'\'') => self.quoted(quote),
            _ => self.bare(),
        }
    }

    fn bare(&mut self) -> Result<Word, WordError> {
        let start = self.pos;
        loop {
            let rest = &self.text[self.pos..];
            self.pos += rest.iter().position(|&byte| IS_SPECIAL[usize::from(byte)]).unwrap_or(rest.len());
            match self.text.get(self.pos) {
                // nginx takes any number of `{` after a `$`.
                Some(b'$') => {
                    let opened = self.text[self.pos + 1..].iter().take_while(|&&byte| byte == b'{');
                    self.pos += 1 + opened.count();
                }
                // It may be the last byte.
                Some(b'\\') => self.pos = (self.pos + 2).min(self.text.len()),
                _ => break,
            }
        }
        self.fits(start)?;
        let span = self.span(start, self.pos);
        Ok(match (self.utf8, &self.text[start..self.pos]) {
            (Some(text), raw) if !raw.contains(&b'\\') => Word::written(text, false, span),
            (_, raw) => Word::plain(unescape(raw), span),
        })
    }

    fn quoted(&mut self, quote: u8) -> Result<Word, WordError> {
        let start = self.pos;
        let Some(end) = self.closing_quote(start + 1, quote) else { return Err(self.unclosed(start, quote)) };
        self.pos = end + 1;
        if let Some(&next) = self.text.get(self.pos)
            && !is_blank(next)
            && !matches!(next, b';' | b'{' | b')' | b'}')
        {
            return Err(self.glued(start, next));
        }
        self.fits(start + 1)?;
        let span = self.span(start, end + 1);
        Ok(match (self.utf8, &self.text[start + 1..end]) {
            (Some(text), raw) if !raw.contains(&b'\\') => Word::written(text, true, span),
            (_, raw) => Word::quoted(unescape(raw), span),
        })
    }

    /// The place of the closing quote, if it comes before the word is too long.
    fn closing_quote(&self, start: usize, quote: u8) -> Option<usize> {
        let limit = self.text.len().min(start + LONGEST);
        let mut i = start;
        while i < limit {
            match self.text[i] {
                b'\\' => i += 2,
                byte if byte == quote => return Some(i),
                _ => i += 1,
            }
        }
        None
    }

    /// Whether nginx's buffer holds the word from `start` to here, what ends it, and after a blank the byte that
    /// begins the next one.
    fn fits(&self, start: usize) -> Result<(), WordError> {
        let blank = self.text.get(self.pos).is_some_and(|&byte| is_blank(byte));
        let used = self.pos - start + 1 + usize::from(blank);
        if used <= LONGEST || self.text.len() <= start + LONGEST {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(&self.text[start..start + 10]);
        let error = Error::new(format!("too long parameter \"{shown}...\" started"));
        Err(WordError { error: error.at(self.span(start, start + 10)), resume: None })
    }

    /// A quote without its pair: goes on in the line after the one it is in.
    fn unclosed(&mut self, start: usize, quote: u8) -> WordError {
        let resume = Some(self.line_end(start));
        if self.text.len() <= start + 1 + LONGEST {
            let line = self.line_number(start);
            let error = self.unexpected_end().hint(format!("the quote opened in line {line} is not closed"));
            return WordError { error, resume };
        }
        let quote = char::from(quote);
        let words = format!("too long parameter, probably missing terminating \"{quote}\" character");
        WordError { error: Error::new(words).at(self.span(start, start + 1)), resume }
    }

    /// A letter after a closing quote. If the quoted text has several lines, the quote was probably opened by
    /// mistake: goes on in the line after that.
    fn glued(&mut self, start: usize, next: u8) -> WordError {
        let length = char_length(&self.text[self.pos..]);
        let shown = String::from_utf8_lossy(&self.text[self.pos..self.pos + length]);
        let error = Error::new(format!("unexpected \"{shown}\"")).at(self.span(self.pos, self.pos + length));
        let first_line_end = self.line_end(start);
        if first_line_end < self.pos {
            let (line, quote) = (self.line_number(start), char::from(self.text[start]));
            let hint = format!("the {quote} opened in line {line} closes here");
            return WordError { error: error.hint(hint), resume: Some(first_line_end) };
        }
        let error = if matches!(next, b'"' | b'\'') {
            error.hint("a blank must follow a closing quote")
        } else {
            error
        };
        WordError { error, resume: None }
    }

    fn unexpected_end(&self) -> Error {
        let words = match self.parameter {
            true => "unexpected end of parameter, expecting \";\"",
            false => "unexpected end of file, expecting \";\" or \"}\"",
        };
        Error::new(words).at(self.span(self.text.len(), self.text.len()))
    }

    /// The offset of the newline at or after `from`, or of the end.
    fn line_end(&self, from: usize) -> usize {
        self.text[from..].iter().position(|&b| b == b'\n').map_or(self.text.len(), |i| from + i)
    }

    pub(crate) fn line_number(&self, pos: usize) -> usize {
        self.text[..pos].iter().filter(|&&b| b == b'\n').count() + 1
    }
}

/// An error in a word. With `resume` the statement ends, and the next one begins there; otherwise the word is
/// passed over and the statement goes on.
struct WordError {
    error: Error,
    resume: Option<usize>,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// The bytes that are not just letters of a word without quotes.
const IS_SPECIAL: [bool; 256] = {
    let (mut special, mut at) = ([false; 256], 0);
    let all = b" \t\r\n;{$\\";
    while at < all.len() {
        special[all[at] as usize] = true;
        at += 1;
    }
    special
};

fn unescape(raw: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(raw.len()), raw);
    loop {
        let (byte, tail) = match rest {
            [] => return out,
            [b'\\', byte @ (b'"' | b'\'' | b'\\'), tail @ ..] => (*byte, tail),
            [b'\\', b't', tail @ ..] => (b'\t', tail),
            [b'\\', b'r', tail @ ..] => (b'\r', tail),
            [b'\\', b'n', tail @ ..] => (b'\n', tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        out.push(byte);
        rest = tail;
    }
}

/// Bytes of the first character of `text`, one if it is not UTF-8.
fn char_length(text: &[u8]) -> usize {
    (1..=text.len().min(4)).find(|&n| std::str::from_utf8(&text[..n]).is_ok()).unwrap_or(1)
}

/// The size of nginx's buffer, into which a word must fit with what ends it.
const LONGEST: usize = 4096;
