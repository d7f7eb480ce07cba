//! The conditions of `if`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use weir_conf::{LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::file::{self, FoundPath};
use weir_engine::log::LogLevel;
use weir_engine::regex::{LetterCase, RegexPattern};
use weir_engine::variable::{ValueScript, VarIndex};
use weir_engine::{Exchange, Text};
use weir_rt::file::errno::{EACCES, ENAMETOOLONG, ENOENT, ENOTDIR};
use weir_rt::file::{FileKind, errno_text};

use super::program::{ProgramRun, is_quoted};
use super::replace::{matches, span};

/// What an `if` tests. The flags are those of the operators that begin with `!`: the result is inverted.
#[derive(Clone)]
pub(super) enum IfCondition {
    /// `$variable`: neither empty nor `0`.
    Set(VarIndex),
    /// `=`, `!=`
    Equal(VarIndex, ValueScript, bool),
    /// `~`, `~*`, `!~`, `!~*`
    Match(VarIndex, Arc<RegexPattern>, bool),
    /// `-f`, `-d`, `-e`, `-x` and their opposites.
    File(FileTest, ValueScript, bool),
}

/// What is asked of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileTest {
    /// A regular file.
    Plain,
    /// A directory.
    Dir,
    /// Either.
    Exists,
    /// Its owner may execute it.
    Exec,
}

impl IfCondition {
    /// The arguments of `if`, parentheses included, which may be words of their own.
    pub(super) fn parse(line: &mut LineCx<'_>) -> Result<IfCondition> {
        let end = line.args().len() - 1;
        let Some(open) = line.bytes(0).strip_prefix(b"(") else {
            return Err(invalid(line, 0, line.bytes(0)));
        };
        if !line.bytes(end).ends_with(b")") {
            let word = if end == 0 && !open.is_empty() { open } else { line.bytes(end) };
            return Err(invalid(line, end, word));
        }
        let first = usize::from(open.is_empty());
        // A parenthesis may be a word of its own; with nothing before it there is no condition.
        let last = match line.bytes(end) {
            b")" if end > first => end - 1,
            b")" => return Err(invalid(line, end, b")")),
            b"()" if end == 0 => return Err(invalid(line, end, b")")),
            _ => end,
        };
        let words: Vec<&[u8]> = (first..=last).map(|at| bare(line, at, end)).collect();
        match *words {
            [[b'$', name @ ..]] if !name.is_empty() => Ok(IfCondition::Set(variable(line, first, name))),
            [[b'$', name @ ..], operator, _] if !name.is_empty() => {
                let name = variable(line, first, name);
                IfCondition::compare(line, name, first + 1, operator, end)
            }
            [[b'$', _, ..], ..] => Err(invalid(line, first, bare(line, first, end))),
            [operator, path] => match file_test(operator) {
                Some((test, negative)) => {
                    Ok(IfCondition::File(test, ValueScript::compile_text(line, last, path)?, negative))
                }
                None => Err(invalid(line, first, bare(line, first, end))),
            },
            _ => Err(invalid(line, first, bare(line, first, end))),
        }
    }

    fn compare(
        line: &mut LineCx<'_>,
        variable: VarIndex,
        at: usize,
        operator: &[u8],
        end: usize,
    ) -> Result<IfCondition> {
        let negative = operator.first() == Some(&b'!');
        let right = bare(line, at + 1, end);
        match operator {
            b"=" | b"!=" => {
                Ok(IfCondition::Equal(variable, ValueScript::compile_text(line, at + 1, right)?, negative))
            }
            b"~" | b"~*" | b"!~" | b"!~*" => {
                let caseless = operator.ends_with(b"*");
                let span = line.args()[at + 1].span;
                let pattern =
                    RegexPattern::compile_text(line, span, right, LetterCase::ignored_if(caseless))?;
                Ok(IfCondition::Match(variable, pattern, negative))
            }
            _ => Err(line.fail_arg(at, format!("unexpected \"{}\" in condition", line.arg(at)))),
        }
    }

    /// Whether it holds for `x`.
    ///
    /// # Errors
    /// The status to respond with where the condition can't be evaluated.
    pub(super) fn holds(&self, x: &mut Exchange, run: &ProgramRun) -> std::result::Result<bool, u16> {
        match self {
            IfCondition::Set(variable) => {
                let value = x.variable(*variable).unwrap_or(Text::EMPTY);
                Ok(!matches!(x.text(&value), b"" | b"0"))
            }
            IfCondition::Equal(variable, script, negative) => {
                let left = x.variable(*variable).unwrap_or(Text::EMPTY);
                let same = match script.constant() {
                    Some(right) => x.text(&left) == right,
                    None => {
                        let right = value(x, script, run);
                        x.text(&left) == x.text(&right)
                    }
                };
                Ok(same != *negative)
            }
            IfCondition::Match(variable, pattern, negative) => {
                let subject = x.variable(*variable).unwrap_or(Text::EMPTY);
                let subject = span(x, &subject);
                Ok(matches(pattern, x, subject, run)? != *negative)
            }
            IfCondition::File(test, script, negative) => {
                let path = value(x, script, run);
                Ok(test.holds(x, &path) != *negative)
            }
        }
    }
}

impl FileTest {
    fn holds(self, x: &mut Exchange, path: &Text) -> bool {
        let path = span(x, path);
        let found = match file::lookup(x, path) {
            Ok(FoundPath::File(file)) => Ok((FileKind::File, file.meta().mode)),
            Ok(FoundPath::Dir { meta }) => Ok((FileKind::Dir, meta.mode)),
            Ok(FoundPath::Other) => Ok((FileKind::Other, 0)),
            // What may not be read can still be looked at.
            Err(EACCES) => weir_rt::file::stat(Path::new(OsStr::from_bytes(x.arena.get(path))))
                .map(|meta| (meta.kind, meta.mode))
                .map_err(|error| error.raw_os_error().unwrap_or(EACCES)),
            Err(errno) => Err(errno),
        };
        match found {
            Ok((kind, mode)) => match self {
                FileTest::Plain => kind == FileKind::File,
                FileTest::Dir => kind == FileKind::Dir,
                FileTest::Exists => matches!(kind, FileKind::File | FileKind::Dir),
                FileTest::Exec => mode & OWNER_EXECUTES != 0,
            },
            Err(ENOENT | ENOTDIR | ENAMETOOLONG) => false,
            Err(errno) => {
                let path = String::from_utf8_lossy(x.arena.get(path));
                let reason = errno_text(errno);
                x.log(LogLevel::Crit, &format_args!("stat() \"{path}\" failed ({errno}: {reason})"));
                false
            }
        }
    }
}

fn value(x: &mut Exchange, script: &ValueScript, run: &ProgramRun) -> Text {
    match script.constant() {
        Some(bytes) => Text::Span(x.arena.push(bytes)),
        None if run.quote && script.has_captures() && is_quoted(x) => script.value_escaped(x),
        None => script.value(x),
    }
}

fn variable(line: &mut LineCx<'_>, at: usize, name: &[u8]) -> VarIndex {
    let span = line.args()[at].span;
    line.ext::<ConfRegistry>().use_variable(&String::from_utf8_lossy(name), span)
}

fn file_test(operator: &[u8]) -> Option<(FileTest, bool)> {
    let (operator, negative) = match operator {
        [b'!', operator @ ..] => (operator, true),
        operator => (operator, false),
    };
    let test = match operator {
        b"-f" => FileTest::Plain,
        b"-d" => FileTest::Dir,
        b"-e" => FileTest::Exists,
        b"-x" => FileTest::Exec,
        _ => return None,
    };
    Some((test, negative))
}

/// Word `at` without the parentheses of the whole condition, whose last word is `end`.
fn bare<'a>(line: &LineCx<'a>, at: usize, end: usize) -> &'a [u8] {
    let word = line.bytes(at);
    let word = if at == 0 { word.strip_prefix(b"(").unwrap_or(word) } else { word };
    if at == end { word.strip_suffix(b")").unwrap_or(word) } else { word }
}

fn invalid(line: &LineCx<'_>, at: usize, word: &[u8]) -> weir_conf::Error {
    line.fail_arg(at, format!("invalid condition \"{}\"", String::from_utf8_lossy(word)))
}

/// `S_IXUSR`
const OWNER_EXECUTES: u32 = 0o100;
