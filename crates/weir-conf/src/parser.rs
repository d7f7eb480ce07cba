//! Statements to a tree of lines, with included files in their places.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::directive::INCLUDE;
use crate::glob::is_pattern;
use crate::include::{failed_call, system_error};
use crate::lexer::{Lexer, Statement, StatementEnd};
use crate::raw::{UnclosedBlock, lua_block_end};
use crate::yaml;
use crate::{
    Block, ConfFiles, ConfPaths, ConfTree, Contexts, DirectiveLine, Error, Errors, FileId, LoadFailure,
    MemoryFiles, RawBlock, Span, Word,
};

/// Reads the file `main` (relative to `prefix`) and all it includes. One whose first significant line is a key of
/// YAML is in H2O's language.
///
/// `raw_block` says by a directive's name whether the text in its braces is Lua. `globals` is the text of the option
/// `-g`, whose lines come first.
///
/// # Errors
/// All errors of syntax and of reading files, with the texts they point into.
pub fn load(
    main: &Path,
    prefix: &Path,
    files: &dyn ConfFiles,
    raw_block: fn(&[u8]) -> bool,
    globals: Option<&str>,
) -> Result<ConfTree, Box<LoadFailure>> {
    read(main, prefix, files, raw_block, globals, LoadExtent::Whole)
}

/// As [`load`], but reads the lines of the main context alone: the content of blocks is skipped, and its `include`
/// lines are not followed. For a caller that needs one setting (the `pid` file), not a valid configuration.
///
/// # Errors
/// As [`load`], of what it reads.
pub fn outline(
    main: &Path,
    prefix: &Path,
    files: &dyn ConfFiles,
    raw_block: fn(&[u8]) -> bool,
    globals: Option<&str>,
) -> Result<ConfTree, Box<LoadFailure>> {
    read(main, prefix, files, raw_block, globals, LoadExtent::MainContext)
}

/// Reads `text` as one file: `include` lines are lines as others, and what they name is not read. The text may be a part
/// of a configuration; `path` is its name in messages.
///
/// # Errors
/// All errors of syntax.
pub fn read_one(
    path: &Path,
    text: &[u8],
    raw_block: fn(&[u8]) -> bool,
) -> Result<ConfTree, Box<LoadFailure>> {
    let files = MemoryFiles::new().with(path, text);
    read(path, Path::new(""), &files, raw_block, None, LoadExtent::OneFile)
}

/// What is read of a configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LoadExtent {
    Whole,
    /// The lines of the main context alone.
    MainContext,
    /// One file without those it includes.
    OneFile,
}

fn read(
    main: &Path,
    prefix: &Path,
    files: &dyn ConfFiles,
    raw_block: fn(&[u8]) -> bool,
    globals: Option<&str>,
    extent: LoadExtent,
) -> Result<ConfTree, Box<LoadFailure>> {
    let main = prefix.join(main);
    let conf_prefix = main.parent().unwrap_or(prefix).to_owned();
    let paths = ConfPaths { prefix: prefix.to_owned(), conf_prefix };
    let tree = ConfTree { paths, ..ConfTree::default() };
    let mut loader = TreeLoader {
        files,
        raw_block,
        extent,
        tree,
        errors: Errors::default(),
        open: Vec::new(),
        blocks: 0,
        read: 0,
    };

    let mut lines = Vec::new();
    if let Some(text) = globals {
        let file = loader.tree.source.add_parameter("command line".into(), text.into());
        loader.text(file.expect("it is the first"), &mut lines);
    }
    match loader.open_file(&main) {
        Ok(file) if loader.is_yaml(&main, file) => loader.yaml(file, &mut lines),
        Ok(file) => loader.text(file, &mut lines),
        Err(error) => loader.errors.push(error),
    }
    let TreeLoader { mut tree, mut errors, .. } = loader;
    tree.lines = lines;
    if errors.is_full() {
        errors.push(Error::new("too many errors, the rest is not read"));
    }
    if errors.is_ok() { Ok(tree) } else { Err(Box::new(LoadFailure { tree, errors })) }
}

struct TreeLoader<'a> {
    files: &'a dyn ConfFiles,
    raw_block: fn(&[u8]) -> bool,
    /// Blocks are passed over.
    extent: LoadExtent,
    tree: ConfTree,
    errors: Errors,
    /// The files being read, each included by the one before.
    open: Vec<FileId>,
    /// Blocks around the current line, across files.
    blocks: usize,
    /// Files read, repeated ones counted.
    read: usize,
}

impl TreeLoader<'_> {
    /// Reads a file into `lines`; `include` is the argument that names it.
    fn file(&mut self, path: &Path, include: Option<Span>, lines: &mut Vec<DirectiveLine>) {
        let at = |error: Error| match include {
            Some(span) => error.at(span),
            None => error,
        };
        match self.open_file(path) {
            Ok(file) => self.text(file, lines),
            Err(error) => self.errors.push(at(error)),
        }
    }

    /// Whether a file is in H2O's language; one that is looked at alone is not read as that.
    fn is_yaml(&self, path: &Path, file: FileId) -> bool {
        let text = self.tree.source.file(file).map(|file| &file.text);
        self.extent != LoadExtent::OneFile && text.is_some_and(|text| yaml::is_h2o_language(path, text))
    }

    /// Reads a file in H2O's language.
    fn yaml(&mut self, file: FileId, lines: &mut Vec<DirectiveLine>) {
        let text = self.source_text(file);
        let has_ipv6 = self.files.read(Path::new(IPV6_ADDRESSES)).is_ok_and(|text| !text.is_empty());
        let prefix = self.tree.paths.prefix.clone();
        // H2O's paths have one origin, the directory that it is started in.
        self.tree.paths.conf_prefix.clone_from(&prefix);
        let mut errors = std::mem::take(&mut self.errors);
        let mut open = |path: &Path| {
            let file = self.open_file(&prefix.join(path))?;
            Ok((file, self.source_text(file)))
        };
        let source = yaml::YamlSource { text: &text, file, has_ipv6, open: &mut open };
        lines.extend(yaml::lines(source, &mut errors));
        self.errors = errors;
    }

    fn source_text(&self, file: FileId) -> Arc<[u8]> {
        self.tree.source.file(file).map(|file| Arc::clone(&file.text)).unwrap_or_default()
    }

    /// The id of a file to be read now.
    fn open_file(&mut self, path: &Path) -> Result<FileId, Error> {
        let shown = path.display();
        self.read += 1;
        if self.read > MOST_FILES {
            return Err(Error::new(format!(
                "too many included files: more than {MOST_FILES} at \"{shown}\""
            )));
        }
        if let Some(file) = self.tree.source.find(path) {
            return if self.open.contains(&file) {
                Err(Error::new(format!("\"{shown}\" includes itself")))
            } else {
                Ok(file)
            };
        }
        if self.open.len() >= DEEPEST_INCLUDE {
            return Err(Error::new(format!(
                "too deep include of \"{shown}\": more than {DEEPEST_INCLUDE} files"
            )));
        }
        let text = self.files.read(path).map_err(|error| {
            Error::new(format!("{} \"{shown}\" failed ({})", failed_call(&error), system_error(&error)))
        })?;
        let file = self.tree.source.add_file(path.to_owned(), text);
        Ok(file.expect("fewer than 65,536, since MOST_FILES are fewer"))
    }

    /// Reads the whole of a text.
    fn text(&mut self, file: FileId, lines: &mut Vec<DirectiveLine>) {
        let Some(source) = self.tree.source.file(file).cloned() else { return };
        self.open.push(file);
        self.lines(&mut Lexer::new(&source, file), None, source.parameter, lines);
        self.open.pop();
    }

    /// Reads lines up to the `}` of the block opened by `open`, or to the end of the text; returns the `}`, or
    /// the end.
    fn lines(
        &mut self,
        lexer: &mut Lexer<'_>,
        open: Option<Span>,
        parameter: bool,
        lines: &mut Vec<DirectiveLine>,
    ) -> Span {
        loop {
            let statement = lexer.statement(&mut self.errors);
            if self.errors.is_full() {
                lexer.seek(lexer.text().len());
                return statement.end_span;
            }
            match (statement.end, open) {
                (StatementEnd::Close, Some(_)) => return statement.end_span,
                (StatementEnd::Close, None) => {
                    self.errors.push(Error::new("unexpected \"}\"").at(statement.end_span));
                }
                (StatementEnd::Eof, Some(open)) if !statement.bad => {
                    self.unclosed(lexer.line_number(open.start as usize), statement.end_span);
                    return statement.end_span;
                }
                (StatementEnd::Eof, _) => return statement.end_span,
                (StatementEnd::Open, _) if parameter => {
                    let words = "block directives are not supported in -g option";
                    self.errors.push(Error::new(words).at(statement.end_span));
                    lexer.seek(lexer.text().len());
                }
                (StatementEnd::Open, _) => lines.extend(self.opened(lexer, statement)),
                (StatementEnd::Semicolon, _) => self.semicolon(statement, lines),
            }
        }
    }

    /// A file that ends in a block; of blocks in each other only the innermost is reported.
    fn unclosed(&mut self, line: usize, end: Span) {
        if self.errors.0.last().is_none_or(|error| error.span != Some(end)) {
            let error = Error::new("unexpected end of file, expecting \"}\"").at(end);
            self.errors.push(error.hint(format!("the \"{{\" in line {line} is not closed")));
        }
    }

    fn semicolon(&mut self, statement: Statement, lines: &mut Vec<DirectiveLine>) {
        let Statement { name: Some(name), args, end_span, bad: false, .. } = statement else { return };
        match &args[..] {
            [argument] if name.is(INCLUDE.name) && self.extent != LoadExtent::OneFile => {
                self.include(argument, lines);
            }
            _ => lines.extend(self.checked(line(name, args, None, None, end_span))),
        }
    }

    /// A line that ends with `{`, with its block.
    fn opened(&mut self, lexer: &mut Lexer<'_>, statement: Statement) -> Option<DirectiveLine> {
        let Statement { name, args, end_span: open, bad, .. } = statement;
        if self.extent == LoadExtent::MainContext {
            self.skip_block(lexer, name.as_ref());
            return None;
        }
        let (raw, block, end) = match &name {
            Some(name) if (self.raw_block)(name.bytes()) => {
                let raw = self.raw(lexer, open)?;
                let end = Span { start: raw.span.end, end: raw.span.end + 1, ..raw.span };
                (Some(raw), None, end)
            }
            _ => {
                let block = self.block(lexer, open)?;
                let end = block.span;
                (None, Some(block), end)
            }
        };
        if bad { None } else { self.checked(line(name?, args, block, raw, end)) }
    }

    /// Takes out an `include` that is not valid.
    fn checked(&mut self, line: DirectiveLine) -> Option<DirectiveLine> {
        if !line.name.is(INCLUDE.name) {
            return Some(line);
        }
        match INCLUDE.check(&line, Contexts::MAIN) {
            Ok(()) => Some(line),
            Err(error) => {
                self.errors.push(error);
                None
            }
        }
    }

    fn block(&mut self, lexer: &mut Lexer<'_>, open: Span) -> Option<Block> {
        if self.blocks >= DEEPEST_BLOCK {
            self.errors.push(Error::new(format!("too deep blocks: more than {DEEPEST_BLOCK}")).at(open));
            self.skip_block(lexer, None);
            return None;
        }
        let mut lines = Vec::new();
        self.blocks += 1;
        let close = self.lines(lexer, Some(open), false, &mut lines);
        self.blocks -= 1;
        lines.shrink_to_fit();
        Some(Block { lines, span: open.to(close) })
    }

    /// Passes over the block of `name`, with a count instead of a call for each level inside.
    fn skip_block(&mut self, lexer: &mut Lexer<'_>, name: Option<&Word>) {
        if name.is_some_and(|name| self.skip_raw(lexer, name)) {
            return;
        }
        let (mut depth, mut passed_over) = (1_usize, Errors::default());
        while depth > 0 {
            passed_over.0.clear();
            let statement = lexer.statement(&mut passed_over);
            match statement.end {
                StatementEnd::Open
                    if statement.name.as_ref().is_some_and(|name| self.skip_raw(lexer, name)) => {}
                StatementEnd::Open => depth += 1,
                StatementEnd::Close => depth -= 1,
                StatementEnd::Eof => return,
                StatementEnd::Semicolon => {}
            }
        }
    }

    /// Passes over Lua, if the block of `name` is that.
    fn skip_raw(&self, lexer: &mut Lexer<'_>, name: &Word) -> bool {
        let is_raw = (self.raw_block)(name.bytes());
        if is_raw {
            let end = lua_block_end(lexer.text(), lexer.pos());
            lexer.seek(end.map_or(lexer.text().len(), |end| end + 1));
        }
        is_raw
    }

    fn raw(&mut self, lexer: &mut Lexer<'_>, open: Span) -> Option<RawBlock> {
        let (text, start) = (lexer.text(), lexer.pos());
        match lua_block_end(text, start) {
            Ok(end) => {
                lexer.seek(end + 1);
                Some(RawBlock { text: text[start..end].to_vec(), span: lexer.span(start, end) })
            }
            Err(unclosed) => {
                lexer.seek(text.len());
                let line = lexer.line_number(open.start as usize);
                self.errors.push(match unclosed {
                    UnclosedBlock::Block => Error::new(END_IN_LUA)
                        .at(lexer.span(text.len(), text.len()))
                        .hint(format!("the \"{{\" of Lua code in line {line} is not closed")),
                    UnclosedBlock::Bracket { at, level } => {
                        let closing = format!("]{}]", "=".repeat(level));
                        Error::new(format!(
                            "Lua code block missing the closing long bracket \"{closing}\"{MAY_BE_LONG}"
                        ))
                        .at(lexer.span(at, at + level + 2))
                    }
                });
                None
            }
        }
    }

    /// Puts the lines of the files that `argument` names in the place of the include.
    fn include(&mut self, argument: &Word, lines: &mut Vec<DirectiveLine>) {
        let path = self.tree.paths.conf_prefix.join(OsStr::from_bytes(argument.bytes()));
        if !is_pattern(path.as_os_str().as_bytes()) {
            return self.file(&path, Some(argument.span), lines);
        }
        match self.files.glob(&path) {
            Ok(paths) => {
                for path in paths {
                    self.file(&path, Some(argument.span), lines);
                }
            }
            Err(error) => {
                let message = format!("glob() \"{}\" failed ({})", path.display(), system_error(&error));
                self.errors.push(Error::new(message).at(argument.span));
            }
        }
    }
}

/// A line, whose last byte is that of `end`.
fn line(
    name: Word,
    args: Vec<Word>,
    block: Option<Block>,
    raw: Option<RawBlock>,
    end: Span,
) -> DirectiveLine {
    let span = name.span.to(end);
    DirectiveLine { name, args, block, raw, span }
}

/// The words of ngx_lua.
const END_IN_LUA: &str = "unexpected end of file, expecting terminating characters for lua code block";
const MAY_BE_LONG: &str = ", the inlined Lua code may be too long";

/// nginx has no such limit, and a stack that ends. Real files stay below ten.
const DEEPEST_BLOCK: usize = 64;

/// Files open at once, each including the next.
const DEEPEST_INCLUDE: usize = 32;

/// Files read, repeated ones counted: what files that include each other twice come to.
const MOST_FILES: usize = 20_000;

/// Lists the addresses of IPv6 that the machine has; absent or empty without IPv6.
const IPV6_ADDRESSES: &str = "/proc/net/if_inet6";
