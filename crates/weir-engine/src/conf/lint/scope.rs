//! A block of the configuration with those around it, as traps look at it.

use weir_conf::{ConfTree, DirectiveLine};

/// A block and those around it.
pub(super) struct LintScope<'t> {
    /// The line that opens it; `None` for the main context.
    pub(super) line: Option<&'t DirectiveLine>,
    pub(super) lines: &'t [DirectiveLine],
    pub(super) outer: Option<&'t LintScope<'t>>,
    pub(super) tree: &'t ConfTree,
}

impl<'t> LintScope<'t> {
    /// The name of the line that opens it; empty for the main context.
    pub(super) fn name(&self) -> &'t str {
        self.line.map_or("", |line| line.name.str())
    }

    /// Its lines called `name`.
    pub(super) fn all(&self, name: &'static str) -> impl Iterator<Item = &'t DirectiveLine> + use<'t> {
        self.lines.iter().filter(move |line| line.name.is(name))
    }

    /// Whether a line is called `name`.
    pub(super) fn has(&self, name: &'static str) -> bool {
        self.all(name).next().is_some()
    }

    /// This scope and those around it, from inside.
    pub(super) fn outwards(&self) -> impl Iterator<Item = &LintScope<'t>> {
        std::iter::successors(Some(self), |scope| scope.outer)
    }

    /// `line 12`, for messages that speak of another line; with the file's name when that is another one.
    pub(super) fn line_of(&self, line: &DirectiveLine, from: &DirectiveLine) -> String {
        match self.tree.source.place(line.name.span) {
            Some(place) if line.name.span.file == from.name.span.file => format!("line {}", place.line),
            Some(place) => format!("{}:{}", place.path.display(), place.line),
            None => "the command line".to_owned(),
        }
    }

    /// What the location is for, if it is one: modifier and path, apart as a rule, or glued.
    pub(super) fn location(&self) -> Option<(&'t str, &'t [u8])> {
        self.line.filter(|line| line.name.is("location")).and_then(location_of)
    }
}

/// Modifier and path of a `location` line.
pub(super) fn location_of(line: &DirectiveLine) -> Option<(&str, &[u8])> {
    if let [modifier, path] = &line.args[..] {
        return Some((modifier.str(), path.bytes()));
    }
    let path = line.args.first()?.bytes();
    let glued = ["=", "^~", "~*", "~"].into_iter().find(|modifier| path.starts_with(modifier.as_bytes()));
    Some(glued.map_or(("", path), |modifier| (modifier, &path[modifier.len()..])))
}
