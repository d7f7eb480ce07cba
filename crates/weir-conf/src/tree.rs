//! A configuration as written: lines, their words and blocks, and the texts they come from.

use std::hash::Hasher;
use std::path::PathBuf;

use crate::error::Errors;
use crate::source::{ConfSource, Span, Word};

/// A configuration as written: lines in order, each `include` replaced by what it includes.
#[derive(Clone, Debug, Default)]
pub struct ConfTree {
    /// Lines of the main context; those of `-g` come first.
    pub lines: Vec<DirectiveLine>,
    /// The texts, for the places of errors and for `-T`.
    pub source: ConfSource,
    /// What relative paths are relative to.
    pub paths: ConfPaths,
}

/// The directories that relative paths start from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfPaths {
    /// That of the server (`-p`): logs, roots.
    pub prefix: PathBuf,
    /// That of the main configuration file: included files, certificates.
    pub conf_prefix: PathBuf,
}

/// One directive as written.
#[derive(Clone, Debug)]
pub struct DirectiveLine {
    /// The first word: the directive's name.
    pub name: Word,
    /// The other words: the arguments.
    pub args: Vec<Word>,
    /// The lines in braces after the arguments; `None` if the line ends with `;`.
    pub block: Option<Block>,
    /// The raw text in braces after the arguments, for names that take one (`*_by_lua_block`); `None` for others.
    pub raw: Option<RawBlock>,
    /// From the name to the `;` or `}`.
    pub span: Span,
}

impl DirectiveLine {
    /// How many lines this is, with those in its braces.
    pub fn count(&self) -> usize {
        let inside = |block: &Block| block.lines.iter().map(DirectiveLine::count).sum::<usize>();
        1 + self.block.as_ref().map_or(0, inside)
    }

    /// Name and arguments: what blocks such as `map` call their parameters.
    pub fn words(&self) -> impl Iterator<Item = &Word> {
        std::iter::once(&self.name).chain(&self.args)
    }

    /// Adds what the line says, and the lines in its braces, to `hasher`; where they are does not count.
    pub fn hash_words(&self, hasher: &mut impl Hasher) {
        // Each number is mixed in as such: hashers may add lengths by an exclusive or, by which "" and "a" would be
        // "a" and "".
        hasher.write_u64(self.args.len() as u64);
        self.words().map(Word::bytes).chain(self.raw.iter().map(|raw| &raw.text[..])).for_each(|text| {
            hasher.write_u64(text.len() as u64);
            hasher.write(text);
        });
        if let Some(block) = &self.block {
            hasher.write_u64(block.lines.len() as u64);
            block.lines.iter().for_each(|line| line.hash_words(hasher));
        }
    }
}

/// The lines in braces after a directive.
#[derive(Clone, Debug)]
pub struct Block {
    /// The lines, in the order of the text.
    pub lines: Vec<DirectiveLine>,
    /// From the `{` to the `}`.
    pub span: Span,
}

impl Block {
    /// The place of the `{` that opens the block.
    pub fn open(&self) -> Span {
        Span { end: self.span.start + 1, ..self.span }
    }
}

/// Text in braces that is not nginx's language.
#[derive(Clone, Debug)]
pub struct RawBlock {
    /// What is between the braces, unchanged.
    pub text: Vec<u8>,
    /// Where it is, without the braces.
    pub span: Span,
}

/// A configuration that cannot be used: what is wrong, and what could be read, in which further errors may be
/// looked for to show all of them at once.
#[derive(Clone, Debug)]
pub struct LoadFailure {
    /// The lines without error. Lines that were meant may be missing.
    pub tree: ConfTree,
    /// At least one error.
    pub errors: Errors,
}
