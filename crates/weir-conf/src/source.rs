//! The texts of a configuration and places in them.
//!
//! Every [`Word`] carries a [`Span`] of twelve bytes; line and column are counted only when an error asks for
//! them.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The files read so far, in the order of their first reading: what `nginx -T` prints.
#[derive(Clone, Debug, Default)]
pub struct ConfSource {
    files: Vec<SourceFile>,
    /// The files by path, without the text of `-g`: a directory of sites has thousands.
    by_path: HashMap<PathBuf, FileId>,
}

impl ConfSource {
    /// The file of the id `id`, or `None` for an id of another `ConfSource`.
    pub fn file(&self, id: FileId) -> Option<&SourceFile> {
        self.files.get(usize::from(id.0))
    }

    /// All files, in the order of their first reading; the text of `-g`, if any, is the first.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Path, line and column of the first byte of `span`, or `None` for a span of another `ConfSource`.
    pub fn place(&self, span: Span) -> Option<SourcePlace<'_>> {
        let file = self.file(span.file)?;
        let before = file.text.get(..span.start as usize)?;
        let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        let line = file.lines_before(before.len()) + 1;
        let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
        Some(SourcePlace { path: &file.path, line: line as u32, column: column as u32 })
    }

    /// What `nginx -T` prints: each file once, headed by `# configuration file PATH:`.
    ///
    /// The text of `-g` is no file and is left out, as in nginx.
    pub fn dump(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for file in self.files.iter().filter(|file| !file.parameter) {
            out.extend_from_slice(b"# configuration file ");
            out.extend_from_slice(file.path.as_os_str().as_encoded_bytes());
            out.extend_from_slice(b":\n");
            out.extend_from_slice(&file.text);
            out.push(b'\n');
        }
        out
    }

    /// The id of a file read before, so that a file included ten times is held and dumped once.
    pub(crate) fn find(&self, path: &Path) -> Option<FileId> {
        self.by_path.get(path).copied()
    }

    /// Adds a file; `None` when 65,536 are there already.
    pub(crate) fn add_file(&mut self, path: PathBuf, text: Vec<u8>) -> Option<FileId> {
        self.add(path, text, false)
    }

    /// Adds the text of the option `-g`, which is shown as `path`.
    pub(crate) fn add_parameter(&mut self, path: PathBuf, text: Vec<u8>) -> Option<FileId> {
        self.add(path, text, true)
    }

    fn add(&mut self, path: PathBuf, text: Vec<u8>, parameter: bool) -> Option<FileId> {
        let id = u16::try_from(self.files.len()).ok()?;
        if !parameter {
            self.by_path.entry(path.clone()).or_insert(FileId(id));
        }
        let (text, utf8) = match String::from_utf8(text) {
            Ok(text) => {
                let text: Arc<str> = text.into();
                (text.clone().into(), Some(text))
            }
            Err(error) => (error.into_bytes().into(), None),
        };
        self.files.push(SourceFile { path, text, utf8, parameter, lines: OnceLock::new() });
        Some(FileId(id))
    }
}

/// One text of the configuration.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// The full path, as nginx shows it; `command line` for the text of `-g`.
    pub path: PathBuf,
    /// The bytes as read.
    pub text: Arc<[u8]>,
    /// The same, if all of it is UTF-8: words refer to it.
    pub(crate) utf8: Option<Arc<str>>,
    /// Whether this is the text of the option `-g`, not a file.
    pub parameter: bool,
    /// Newlines before each [`STRIDE`] bytes, counted when a place is asked for the first time: thousands of warnings
    /// about a large file must not count its lines each.
    lines: OnceLock<Box<[u32]>>,
}

impl SourceFile {
    /// Newlines in the first `end` bytes.
    fn lines_before(&self, end: usize) -> usize {
        let before = self.lines.get_or_init(|| {
            let counts = self.text.chunks(STRIDE).scan(0, |lines, chunk| {
                let before = *lines;
                *lines += newlines(chunk) as u32;
                Some(before)
            });
            counts.collect()
        });
        let stride = (end / STRIDE).min(before.len().saturating_sub(1));
        before.get(stride).map_or(0, |&lines| lines as usize) + newlines(&self.text[stride * STRIDE..end])
    }
}

fn newlines(text: &[u8]) -> usize {
    text.iter().filter(|&&b| b == b'\n').count()
}

/// Bytes from one counted place of a text to the next: the index of a file of 40 MB takes 40 KB.
const STRIDE: usize = 4096;

/// A file of one [`ConfSource`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileId(pub(crate) u16);

/// Bytes `start..end` of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The file of the text.
    pub file: FileId,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

impl Span {
    /// The number of the file among those of the configuration.
    pub(crate) fn file_number(self) -> usize {
        usize::from(self.file.0)
    }

    /// Bytes `start..end` of `file`. Files are at most 64 MiB, so the offsets fit.
    pub(crate) fn new(file: FileId, start: usize, end: usize) -> Self {
        Self { file, start: start as u32, end: end as u32 }
    }

    /// From the start of `self` to the end of `other`, both of one file.
    pub(crate) fn to(self, other: Self) -> Self {
        Self { end: other.end, ..self }
    }
}

/// Where a span begins, for people: nginx's `FILE:LINE` and a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePlace<'a> {
    /// The full path, as nginx shows it.
    pub path: &'a Path,
    /// The line, counted from 1.
    pub line: u32,
    /// The column in characters, from 1; a tab is one.
    pub column: u32,
}

impl fmt::Display for SourcePlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.path.display(), self.line, self.column)
    }
}

/// A directive's name or one argument, with quotes and escapes resolved.
///
/// nginx's words are bytes; [`Word::bytes`] is exact, [`Word::str`] is for keywords and messages.
#[derive(Clone)]
pub struct Word {
    text: WordText,
    /// Whether it was written in quotes.
    pub quoted: bool,
    /// Whether a line ended between the word before it in the same line of configuration and this one.
    pub(crate) after_newline: bool,
    /// Where it is, quotes included; what it says may be read there.
    pub span: Span,
}

/// What a word says.
#[derive(Clone)]
enum WordText {
    /// What is at its span of this text, but for its quotes: most words of most files, of which a large configuration has
    /// millions.
    Written(Arc<str>),
    /// Another text: one with escapes in it, or of a file that is not UTF-8.
    Resolved(Box<ResolvedText>),
}

#[derive(Clone)]
struct ResolvedText {
    bytes: Box<[u8]>,
    /// Present only when they are not UTF-8.
    lossy: Option<Box<str>>,
}

impl Word {
    /// A word without escapes, which is at `span` of `text`, with quotes around it if it is `quoted`.
    pub(crate) fn written(text: &Arc<str>, quoted: bool, span: Span) -> Self {
        Self { text: WordText::Written(text.clone()), quoted, after_newline: false, span }
    }

    /// A word that was written without quotes; `text` is resolved.
    pub(crate) fn plain(text: impl Into<Vec<u8>>, span: Span) -> Self {
        Word::new(text, false, span)
    }

    /// A word that was written in quotes; `text` is resolved.
    pub(crate) fn quoted(text: impl Into<Vec<u8>>, span: Span) -> Self {
        Word::new(text, true, span)
    }

    fn new(text: impl Into<Vec<u8>>, quoted: bool, span: Span) -> Self {
        let bytes = text.into().into_boxed_slice();
        let lossy = match std::str::from_utf8(&bytes) {
            Ok(_) => None,
            Err(_) => Some(String::from_utf8_lossy(&bytes).into()),
        };
        let text = WordText::Resolved(Box::new(ResolvedText { bytes, lossy }));
        Self { text, quoted, after_newline: false, span }
    }

    /// The text as bytes, without its quotes and with escapes resolved; it need not be UTF-8.
    pub fn bytes(&self) -> &[u8] {
        match &self.text {
            WordText::Written(text) => &text.as_bytes()[self.inside()],
            WordText::Resolved(text) => &text.bytes,
        }
    }

    /// Where the text is in the file, without quotes.
    fn inside(&self) -> std::ops::Range<usize> {
        let quote = usize::from(self.quoted);
        self.span.start as usize + quote..self.span.end as usize - quote
    }

    /// The text; what is not UTF-8 shows as U+FFFD, which no keyword contains. Values that may be anything
    /// (paths, header values) are read by [`Word::bytes`].
    pub fn str(&self) -> &str {
        match &self.text {
            WordText::Written(text) => &text[self.inside()],
            WordText::Resolved(text) => match &text.lossy {
                Some(lossy) => lossy,
                None => std::str::from_utf8(&text.bytes).expect("`new` found it to be UTF-8"),
            },
        }
    }

    /// Whether it is exactly `text`.
    pub fn is(&self, text: &str) -> bool {
        self.bytes() == text.as_bytes()
    }

    /// A question of whether a `;` is missing after it, which shows the end of a long word only.
    pub(crate) fn missing_semicolon(&self) -> String {
        let text = self.str();
        let mut ends = text.char_indices().rev().skip(SHOWN - 1).map(|(cut, _)| &text[cut..]);
        match (ends.next(), ends.next()) {
            (Some(end), Some(_)) => format!("is \";\" missing after \"...{end}\"?"),
            _ => format!("is \";\" missing after \"{text}\"?"),
        }
    }
}

impl PartialEq for Word {
    fn eq(&self, other: &Word) -> bool {
        let rest = |word: &Word| (word.quoted, word.after_newline, word.span);
        self.bytes() == other.bytes() && rest(self) == rest(other)
    }
}

impl Eq for Word {}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Word { text: _, quoted, after_newline, span } = self;
        let mut all = f.debug_struct("Word");
        all.field("text", &self.str()).field("quoted", quoted).field("after_newline", after_newline);
        all.field("span", span).finish()
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.str())
    }
}

/// Characters of a word in a hint.
const SHOWN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_counts_lines_and_characters() {
        let mut source = ConfSource::default();
        let id = source.add("/a".into(), "aé b\n\tc\n".into(), false).unwrap();
        let place = |start| source.place(Span::new(id, start, start)).map(|p| (p.line, p.column));
        assert_eq!(place(0), Some((1, 1)));
        assert_eq!(place(4), Some((1, 4)));
        assert_eq!(place(7), Some((2, 2)));
        assert_eq!(place(9), Some((3, 1)), "the end of the file is nginx's last line plus one");
        assert_eq!(place(10), None);
        assert_eq!(ConfSource::default().place(Span::new(id, 0, 0)), None);
    }

    #[test]
    fn lines_of_a_large_text_are_those_counted_from_its_beginning() {
        let text: String = (0..3000).map(|i| "x".repeat(i % 7) + "\n").collect();
        for text in [text.clone(), text[..STRIDE].to_owned(), text[..2 * STRIDE - 1].to_owned()] {
            let mut source = ConfSource::default();
            let id = source.add("/a".into(), text.clone().into(), false).unwrap();
            for start in (0..=text.len()).filter(|start| start % 61 < 2 || start % STRIDE < 2) {
                let line = source.place(Span::new(id, start, start)).map(|place| place.line as usize);
                assert_eq!(line, Some(newlines(&text.as_bytes()[..start]) + 1), "{start} of {}", text.len());
            }
        }
    }

    #[test]
    fn dump_is_that_of_nginx_and_leaves_out_the_command_line() {
        let mut source = ConfSource::default();
        source.add("command line".into(), "daemon off;".into(), true);
        source.add("/etc/nginx.conf".into(), "include m;\n".into(), false);
        source.add("/etc/m".into(), "a b;".into(), false);
        let expected =
            "# configuration file /etc/nginx.conf:\ninclude m;\n\n# configuration file /etc/m:\na b;\n";
        assert_eq!(String::from_utf8(source.dump()).unwrap(), expected);
    }

    #[test]
    fn long_words_are_short_in_hints() {
        let hint = |text: String| Word::plain(text, Span::default()).missing_semicolon();
        assert_eq!(hint("é".repeat(40)), format!("is \";\" missing after \"{}\"?", "é".repeat(40)));
        assert_eq!(hint("é".repeat(41)), format!("is \";\" missing after \"...{}\"?", "é".repeat(40)));
    }

    #[test]
    fn words_keep_bytes_that_are_not_utf8() {
        let word = Word::plain(b"a\xff".to_vec(), Span::default());
        assert_eq!((word.bytes(), word.str()), (&b"a\xff"[..], "a\u{fffd}"));
        assert!(Word::quoted("on", Span::default()).is("on"));
    }
}
