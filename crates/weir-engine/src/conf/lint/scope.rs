//! A block of the configuration with those around it, as traps look at it.
//!
//! A configuration may have thousands of servers with fifty locations each, and a trap looks outwards from each: what it
//! asks of a large block around is looked up, not searched for ([`LintScope::all`], [`LintScope::has_upstream`]).

use std::cell::OnceCell;
use std::collections::HashSet;

use weir_conf::{ConfTree, DirectiveLine};

/// A block and those around it.
pub(super) struct LintScope<'t> {
    /// The line that opens it; `None` for the main context.
    pub(super) line: Option<&'t DirectiveLine>,
    /// For traps about this very block; of those around it they ask by name.
    pub(super) lines: &'t [DirectiveLine],
    pub(super) outer: Option<&'t LintScope<'t>>,
    pub(super) tree: &'t ConfTree,
    index: OnceCell<ScopeIndex>,
}

/// What is looked up in a block, each part made when it is asked for first.
#[derive(Default)]
struct ScopeIndex {
    /// Places of the lines, by name and then as written; empty for a block of few lines.
    by_name: Box<[u32]>,
    /// Names of `upstream` blocks, in lower case.
    upstreams: OnceCell<HashSet<String>>,
    /// Variables that a `set` gives a value of the client's.
    client_sets: OnceCell<HashSet<String>>,
}

impl<'t> LintScope<'t> {
    /// A block of `lines`, opened by `line`, in `outer`.
    pub(super) fn new(
        line: Option<&'t DirectiveLine>,
        lines: &'t [DirectiveLine],
        outer: Option<&'t LintScope<'t>>,
        tree: &'t ConfTree,
    ) -> Self {
        Self { line, lines, outer, tree, index: OnceCell::new() }
    }

    /// The name of the line that opens it; empty for the main context.
    pub(super) fn name(&self) -> &'t str {
        self.line.map_or("", |line| line.name.str())
    }

    /// Its lines called `name`, as written.
    pub(super) fn all(&self, name: &'static str) -> impl Iterator<Item = &'t DirectiveLine> + use<'_, 't> {
        let lines = self.lines;
        let by_name = &self.index().by_name[..];
        let first = by_name.partition_point(|&at| named(&lines[at as usize]) < name.as_bytes());
        let found = by_name[first..].iter().map(|&at| &lines[at as usize]);
        let searched = if by_name.is_empty() { lines } else { &[] };
        let searched = searched.iter().filter(move |line| named(line) == name.as_bytes());
        found.take_while(move |line| named(line) == name.as_bytes()).chain(searched)
    }

    /// Whether a line is called `name`.
    pub(super) fn has(&self, name: &'static str) -> bool {
        self.all(name).next().is_some()
    }

    /// Whether an `upstream` here has this name.
    pub(super) fn has_upstream(&self, name: &str) -> bool {
        let upstreams = self.index().upstreams.get_or_init(|| {
            let names = self.all("upstream").filter_map(|line| line.args.first());
            names.map(|word| word.str().to_ascii_lowercase()).collect()
        });
        !upstreams.is_empty() && upstreams.contains(&name.to_ascii_lowercase())
    }

    /// Whether a `set` here gives the variable `name` what the client sends, by `clients` of the value's text.
    pub(super) fn sets_from_client(&self, name: &str, clients: fn(&str) -> bool) -> bool {
        let sets = self.index().client_sets.get_or_init(|| {
            let set = |line: &'t DirectiveLine| match &line.args[..] {
                [to, value] if clients(value.str()) => to.str().strip_prefix('$').map(str::to_owned),
                _ => None,
            };
            self.all("set").filter_map(set).collect()
        });
        sets.contains(name)
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

    fn index(&self) -> &ScopeIndex {
        self.index.get_or_init(|| {
            let mut by_name: Box<[u32]> = match self.lines.len() {
                0..SEARCHED => Box::default(),
                count => (0..count as u32).collect(),
            };
            by_name.sort_by_key(|&at| named(&self.lines[at as usize]));
            ScopeIndex { by_name, ..ScopeIndex::default() }
        })
    }
}

/// The name of a line; tests count how often it is read.
fn named(line: &DirectiveLine) -> &[u8] {
    #[cfg(test)]
    super::testing::READ.with(|read| read.set(read.get() + 1));
    line.name.bytes()
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

/// A block of fewer lines is searched.
const SEARCHED: usize = 24;
