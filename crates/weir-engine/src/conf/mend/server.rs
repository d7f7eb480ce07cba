//! The `server` blocks of a tree, and which addresses they share.

use weir_conf::{ConfTree, DirectiveLine, Span};

/// A `server` of `http`.
pub(super) struct MendedServer<'t> {
    pub lines: &'t [DirectiveLine],
    /// The lines of the `http` around it.
    pub outer: &'t [DirectiveLine],
}

impl<'t> MendedServer<'t> {
    /// All of the tree.
    pub(super) fn all(tree: &'t ConfTree) -> Vec<MendedServer<'t>> {
        blocks(&tree.lines, "http")
            .flat_map(|outer| blocks(outer, "server").map(move |lines| MendedServer { lines, outer }))
            .collect()
    }

    /// The lines called `name`.
    pub(super) fn named(&self, name: &'static str) -> impl Iterator<Item = &'t DirectiveLine> + use<'t> {
        self.lines.iter().filter(move |line| line.name.is(name))
    }

    /// Its `listen` lines with one of the addresses of the line `other`.
    pub(super) fn listens_as(&self, other: &DirectiveLine) -> Vec<&'t DirectiveLine> {
        let wanted = address(other);
        self.named("listen").filter(|line| wanted.is_some() && address(line) == wanted).collect()
    }

    /// Whether the server's own value of a flag, or that of `http`, is `on`; `None` where neither says.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        let value = |lines: &[DirectiveLine]| {
            let line = lines.iter().find(|line| line.name.is(name))?;
            Some(line.args.first()?.str().eq_ignore_ascii_case("on"))
        };
        value(self.lines).or_else(|| value(self.outer))
    }
}

/// The one server that has a line whose name is at `at`; `None` where several have it from one file.
pub(super) fn owner<'a, 't>(servers: &'a [MendedServer<'t>], at: Span) -> Option<&'a MendedServer<'t>> {
    let mut found = servers.iter().filter(|server| server.lines.iter().any(|line| line.name.span == at));
    let server = found.next()?;
    found.next().is_none().then_some(server)
}

fn blocks<'t>(lines: &'t [DirectiveLine], name: &'static str) -> impl Iterator<Item = &'t [DirectiveLine]> {
    let named = lines.iter().filter(move |line| line.name.is(name));
    named.filter_map(|line| line.block.as_ref()).map(|block| &*block.lines)
}

/// The address of a `listen` line in one form: `443`, `*:443` and `0.0.0.0:443` are the same, and without a port it is 80.
fn address(line: &DirectiveLine) -> Option<String> {
    let text = line.args.first()?.str();
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(format!("*:{text}"));
    }
    if text.starts_with("unix:") || text.contains("]:") {
        return Some(text.to_owned());
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) if !text.starts_with('[') => (host, port),
        _ => (text, "80"),
    };
    Some(format!("{}:{port}", if host == "0.0.0.0" { "*" } else { host }))
}
