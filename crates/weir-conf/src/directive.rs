//! Directive tables: what a module declares, and the checks that nginx makes before a setter runs.

use crate::{ArgCount, Contexts, DirectiveEnd, DirectiveLine, Error, LineCx, Result};

/// One directive of a module whose configuration is a `C`.
///
/// The setter only records the value as written into a slot of `C`; it runs after [`check`] has passed.
#[derive(Debug)]
pub struct Directive<C: 'static> {
    /// The name, as written in the configuration.
    pub name: &'static str,
    /// The blocks it is allowed in.
    pub contexts: Contexts,
    /// How many arguments it takes, and what ends it.
    pub args: ArgCount,
    /// Records a line of it.
    pub set: fn(&mut C, &mut LineCx<'_>) -> Result,
    /// See [`DirectiveSignature::syntax`].
    pub syntax: &'static str,
    /// See [`DirectiveSignature::default`].
    pub default: &'static str,
    /// What it does, for the reference manual.
    pub doc: &'static str,
    /// See [`DirectiveSignature::example`].
    pub example: &'static str,
}

impl<C: 'static> Directive<C> {
    /// A row of a module's table: a directive `name` that may be used in `contexts` with `args` arguments. `set`
    /// records a line of it; the texts for the reference manual are empty.
    pub const fn new(
        name: &'static str,
        contexts: Contexts,
        args: ArgCount,
        set: fn(&mut C, &mut LineCx<'_>) -> Result,
    ) -> Self {
        Self { name, contexts, args, set, syntax: "", default: "", doc: "", example: "" }
    }

    /// The same row for other blocks.
    pub const fn within(mut self, contexts: Contexts) -> Self {
        self.contexts = contexts;
        self
    }

    /// Adds the syntax for the reference manual: see [`DirectiveSignature::syntax`].
    pub const fn syntax(mut self, syntax: &'static str) -> Self {
        self.syntax = syntax;
        self
    }

    /// Adds the default for the reference manual: see [`DirectiveSignature::default`].
    pub const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    /// Adds an example for the reference manual: see [`DirectiveSignature::example`].
    pub const fn example(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }

    /// Adds the description for the reference manual: one sentence or two.
    pub const fn doc(mut self, doc: &'static str) -> Self {
        self.doc = doc;
        self
    }

    /// The row without its setter, the same type for all modules.
    pub const fn signature(&self) -> DirectiveSignature {
        DirectiveSignature {
            name: self.name,
            contexts: self.contexts,
            args: self.args,
            syntax: self.syntax,
            default: self.default,
            doc: self.doc,
            example: self.example,
        }
    }
}

/// Whether `line` may be a line of `directive` in the block `here`: context, then what ends it, then the number of
/// arguments, in nginx's order and words.
///
/// A name with rows in several tables is checked against the row whose contexts contain `here`.
///
/// # Errors
/// `"x" directive is not allowed here`, `directive "x" is not terminated by ";"`, `directive "x" has no opening "{"`
/// and `invalid number of arguments in "x" directive`, with their place.
pub fn check<C>(directive: &Directive<C>, line: &DirectiveLine, here: Contexts) -> Result {
    let Directive { name, contexts, args, .. } = *directive;
    DirectiveForm { name, contexts, args }.check(line, here)
}

/// What is checked of a line before its setter runs.
struct DirectiveForm {
    name: &'static str,
    contexts: Contexts,
    args: ArgCount,
}

impl DirectiveForm {
    fn check(&self, line: &DirectiveLine, here: Contexts) -> Result {
        if !self.contexts.allows(here) {
            return Err(DirectiveSignature::not_allowed(line, self.contexts));
        }
        let opened = line.block.is_some() || line.raw.is_some();
        let wants_block = matches!(self.args.kind, DirectiveEnd::Block | DirectiveEnd::Raw);
        if opened == wants_block && self.args.allows(line.args.len()) {
            return Ok(());
        }
        Err(self.misshapen(line, opened, wants_block))
    }

    #[cold]
    fn misshapen(&self, line: &DirectiveLine, opened: bool, wants_block: bool) -> Error {
        let name = self.name;
        let error = |message: String| Error::new(message).at(line.name.span);
        if opened && !wants_block {
            let error = error(format!("directive \"{name}\" is not terminated by \";\""));
            return self.missing_semicolon(line, error);
        }
        if !opened && wants_block {
            return error(format!("directive \"{name}\" has no opening \"{{\""));
        }
        self.missing_semicolon(line, error(format!("invalid number of arguments in \"{name}\" directive")))
    }

    /// Adds the usual reason of this error, if the words up to some line's end would do.
    fn missing_semicolon(&self, line: &DirectiveLine, error: Error) -> Error {
        let mut cuts = line.args.iter().enumerate().filter(|(_, arg)| arg.after_newline);
        match cuts.find(|(count, _)| self.args.allows(*count)) {
            Some((count, _)) => {
                let last = count.checked_sub(1).map_or(&line.name, |i| &line.args[i]);
                error.hint(last.missing_semicolon())
            }
            None => error,
        }
    }
}

/// A directive without its setter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectiveSignature {
    /// The name, as written in the configuration.
    pub name: &'static str,
    /// The blocks it is allowed in.
    pub contexts: Contexts,
    /// How many arguments it takes, and what ends it.
    pub args: ArgCount,
    /// Name and arguments without what ends them, as nginx's manual writes it: `a | b` are alternatives of one argument,
    /// `[a]` may be absent, `a ...` means one or more. Each line is a form of its own and begins with the name.
    pub syntax: &'static str,
    /// The arguments that mean the same as no such line, each line those of one directive; empty where there are none.
    pub default: &'static str,
    /// What it does, for the reference manual.
    pub doc: &'static str,
    /// Lines of a configuration that use it; may be empty.
    pub example: &'static str,
}

impl DirectiveSignature {
    /// A directive without a text for the manual.
    pub const fn new(name: &'static str, contexts: Contexts, args: ArgCount) -> Self {
        Self { name, contexts, args, syntax: "", default: "", doc: "", example: "" }
    }

    /// Whether `line` may be a line of this directive in the block `here`.
    ///
    /// # Errors
    /// As [`check`].
    pub fn check(&self, line: &DirectiveLine, here: Contexts) -> Result {
        let DirectiveSignature { name, contexts, args, .. } = *self;
        DirectiveForm { name, contexts, args }.check(line, here)
    }

    /// The error of a name that is known, but not in this block; `contexts` are those of all its rows.
    pub fn not_allowed(line: &DirectiveLine, contexts: Contexts) -> Error {
        Error::new(format!("\"{}\" directive is not allowed here", line.name))
            .at(line.name.span)
            .hint(format!("it is allowed in {contexts}"))
    }

    /// The error of a name that no table has; `names` are all known ones, without `include`.
    pub fn unknown<'a>(line: &DirectiveLine, names: impl Iterator<Item = &'a str>) -> Error {
        let error = Error::new(format!("unknown directive \"{}\"", line.name)).at(line.name.span);
        if line.name.str().starts_with('\u{feff}') {
            return error.hint("the file begins with a byte order mark; save it without");
        }
        error.hint_nearest(line.name.str(), names.chain([INCLUDE.name]))
    }
}

/// The one directive that the loader itself runs, in all contexts.
pub const INCLUDE: DirectiveSignature = DirectiveSignature {
    syntax: "include file | mask",
    doc: "Reads lines from another file, or from all files that match a mask, in the order of their names.",
    ..DirectiveSignature::new("include", Contexts::MAIN, ArgCount::ONE)
};
