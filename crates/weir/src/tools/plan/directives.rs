//! Which lines of a configuration are in force in a block: its own, and those it inherits.

use std::collections::{HashMap, HashSet};

use weir_conf::{Contexts, DirectiveLine, DirectiveSignature, Span};

use super::LoadedPlan;

/// A directive that is in force.
pub(crate) struct AppliedDirective {
    /// The line as it is written, without what is in its braces; of a default the directive with its arguments.
    pub(crate) text: String,
    /// The same with what is in its braces, one space between words: equal lines have equal ones.
    pub(crate) whole: String,
    /// `FILE:LINE`; `None` of a default.
    pub(crate) place: Option<String>,
    /// Where it comes from.
    pub(crate) origin: DirectiveOrigin,
}

/// Where a directive in force comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectiveOrigin {
    /// The block itself.
    Own,
    /// The location around the block.
    Location,
    /// The server.
    Server,
    /// `http`.
    Http,
    /// No line says it.
    Default,
}

impl DirectiveOrigin {
    /// In a word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DirectiveOrigin::Own => "own",
            DirectiveOrigin::Location => "location",
            DirectiveOrigin::Server => "server",
            DirectiveOrigin::Http => "http",
            DirectiveOrigin::Default => "default",
        }
    }
}

impl LoadedPlan {
    /// The lines in force in the block at `place` of the server at `server`, inner ones first. With `defaults` those that no
    /// line says, too.
    pub(crate) fn directives(
        &self,
        server: Option<Span>,
        place: Option<Span>,
        defaults: bool,
    ) -> Vec<AppliedDirective> {
        let Some(http) = self.tree.lines.iter().find(|line| line.name.is("http")) else { return Vec::new() };
        let server = lines(http).iter().find(|line| Some(line.name.span) == server);
        let mut around = vec![http];
        around.extend(server);
        if let (Some(server), Some(place)) = (server, place)
            && place != server.name.span
        {
            let mut inside = Vec::new();
            find(server, place, &mut inside);
            around.extend(inside);
        }
        let table = self.contexts();
        let mut found = Vec::new();
        let mut written = HashSet::new();
        for (depth, block) in around.iter().enumerate().rev() {
            let inner = &around[depth + 1..];
            let origin = origin(block, inner.is_empty());
            let mut here = Vec::new();
            for line in lines(block).iter().filter(|line| !BLOCKS.contains(&line.name.str())) {
                let group = group(line.name.str());
                let allowed = table.get(line.name.str()).copied().unwrap_or(Contexts::NONE);
                if reaches(line.name.str(), allowed, block, inner) && !written.contains(group) {
                    here.push(group);
                    found.push(AppliedDirective {
                        text: self.shown(line),
                        whole: whole(line),
                        place: Some(self.place(line.name.span)),
                        origin,
                    });
                }
            }
            written.extend(here.into_iter().filter(|group| !ADDED.contains(group)));
        }
        if defaults {
            found.extend(self.defaults(&written, around.len()));
        }
        found
    }

    /// Which blocks each directive may be in; one with several rows in all of theirs.
    fn contexts(&self) -> HashMap<&'static str, Contexts> {
        let mut table = HashMap::new();
        for row in self.configuration.modules().iter().flat_map(|module| module.directives()) {
            let contexts = table.entry(row.name).or_insert(Contexts::NONE);
            *contexts = contexts.or(row.contexts);
        }
        table
    }

    /// What applies because no line says otherwise, in a block that is `depth` blocks deep.
    fn defaults(&self, written: &HashSet<&str>, depth: usize) -> Vec<AppliedDirective> {
        let here = if depth > 2 { Contexts::LOCATION } else { Contexts::SERVER };
        let rows = self.configuration.modules().iter().flat_map(|module| module.directives());
        let silent = rows.filter(|row| row.contexts.allows(here) && !written.contains(group(row.name)));
        let shown = |name: &str, words: &str| AppliedDirective {
            text: format!("{name} {words}"),
            whole: String::new(),
            place: None,
            origin: DirectiveOrigin::Default,
        };
        let of = |row: DirectiveSignature| row.default.lines().map(move |words| shown(row.name, words));
        silent.flat_map(of).collect()
    }

    /// A line as it is written, up to its braces, in one line.
    pub(crate) fn shown(&self, line: &DirectiveLine) -> String {
        let end =
            line.block.as_ref().map(|block| block.span.start).or(line.raw.as_ref().map(|raw| raw.span.start));
        let text =
            self.tree.source.file(line.span.file).and_then(|file| {
                file.text.get(line.span.start as usize..end.unwrap_or(line.span.end) as usize)
            });
        let text = String::from_utf8_lossy(text.unwrap_or_default());
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        match end {
            Some(_) => format!("{} {{ ... }}", text.trim_end_matches(['{', ' '])),
            None => text.trim_end_matches(';').trim_end().to_owned(),
        }
    }
}

/// A line with all that is in its braces, as words.
pub(crate) fn whole(line: &DirectiveLine) -> String {
    let mut words: Vec<String> = line.words().map(|word| word.str().to_owned()).collect();
    words.extend(line.raw.as_ref().map(|raw| format!("{{{}}}", String::from_utf8_lossy(&raw.text))));
    if let Some(block) = &line.block {
        let inside: Vec<String> = block.lines.iter().map(whole).collect();
        words.push(format!("{{ {} }}", inside.join("; ")));
    }
    words.join(" ")
}

/// The lines in the braces of a line.
pub(crate) fn lines(line: &DirectiveLine) -> &[DirectiveLine] {
    line.block.as_ref().map_or(&[], |block| &block.lines)
}

/// The blocks that lead from `outer` to the one at `place`, outer ones first.
fn find<'t>(outer: &'t DirectiveLine, place: Span, found: &mut Vec<&'t DirectiveLine>) -> bool {
    for line in lines(outer).iter().filter(|line| INNER.contains(&line.name.str())) {
        found.push(line);
        if line.name.span == place || find(line, place, found) {
            return true;
        }
        found.pop();
    }
    false
}

fn origin(block: &DirectiveLine, is_innermost: bool) -> DirectiveOrigin {
    match block.name.str() {
        _ if is_innermost => DirectiveOrigin::Own,
        "http" => DirectiveOrigin::Http,
        "server" => DirectiveOrigin::Server,
        _ => DirectiveOrigin::Location,
    }
}

/// Whether a line of `block` is in force in the innermost of the blocks `inner` inside it, unless that says it again.
fn reaches(name: &str, allowed: Contexts, block: &DirectiveLine, inner: &[&DirectiveLine]) -> bool {
    let is = |name: &str| block.name.is(name);
    let Some(last) = inner.last() else { return true };
    if is("http") {
        // Definitions (`map`, `log_format`) are in force nowhere: lines that name them are.
        return allowed.allows(Contexts::SERVER.or(Contexts::LOCATION)) && !STAYS.contains(&name);
    }
    if is("server") {
        // Addresses and names of the server, and what runs before the location is found.
        return !allowed.allows(Contexts::LOCATION) || REWRITE.contains(&name) || !STAYS.contains(&name);
    }
    if matches!(last.name.str(), "if" | "limit_except") && inner.len() == 1 {
        return last.name.is("if") || !REWRITE.contains(&name);
    }
    let inherits =
        allowed.allows(Contexts::HTTP.or(Contexts::SERVER)) || matches!(name, "alias" | "internal");
    inherits && !REWRITE.contains(&name) && !STAYS.contains(&name)
}

/// Lines of one group replace each other: a block with any of them inherits none.
fn group(name: &str) -> &str {
    match name {
        "allow" | "deny" => "allow",
        "root" | "alias" => "root",
        _ => match name.find("_by_lua") {
            Some(at) => &name[..at + "_by_lua".len()],
            None => name,
        },
    }
}

/// Blocks that are no directives.
const BLOCKS: [&str; 5] = ["server", "location", "upstream", "limit_except", "include"];
/// Blocks inside a server.
const INNER: [&str; 3] = ["location", "if", "limit_except"];
/// What runs in a server before the location is found, and in a location by itself.
const REWRITE: [&str; 5] = ["rewrite", "return", "set", "break", "if"];
/// What is in force in its own block only.
const STAYS: [&str; 2] = ["try_files", "listen"];
/// What inner blocks add to.
const ADDED: [&str; 5] = REWRITE;

#[cfg(test)]
mod tests {
    use weir_test::TempDir;

    use super::*;
    use crate::tools::plan::within;

    /// `ORIGIN TEXT` of what is in force in the location `/a/`.
    fn in_force(server: &str) -> Vec<String> {
        let directory = TempDir::new();
        let conf = directory.path().join("n.conf");
        let text = format!("events {{ }}\nhttp {{\nserver_tokens off;\nserver {{ listen 1; {server} }} }}");
        std::fs::write(&conf, text).expect("written");
        let shown = within(async || {
            let plan = LoadedPlan::load(Some(&conf), None).unwrap_or_else(|errors| panic!("{errors}"));
            let http = plan.tree.lines.iter().find(|line| line.name.is("http")).expect("there");
            let server = lines(http).iter().find(|line| line.name.is("server")).expect("there");
            let mut deepest = Vec::new();
            let mut inside = server;
            while let Some(line) = lines(inside).iter().rfind(|line| INNER.contains(&line.name.str())) {
                deepest.push(line);
                inside = line;
            }
            let found = plan.directives(Some(server.name.span), Some(inside.name.span), false);
            found.iter().map(|line| format!("{} {}", line.origin.name(), line.text)).collect()
        });
        shown.expect("a loop")
    }

    #[test]
    fn inner_lines_replace_outer_ones_of_their_group() {
        assert_eq!(
            in_force(
                "root /r; allow 10.0.0.1; add_header A 1; set $x 1; try_files $uri =404;
                 location /a/ { deny all; alias /b/; set $y 2; }"
            ),
            [
                "own deny all",
                "own alias /b/",
                "own set $y 2",
                "server listen 1",
                "server add_header A 1",
                "server set $x 1",
                "http server_tokens off"
            ]
        );
    }

    #[test]
    fn nested_locations_inherit_settings_and_no_handlers_but_an_if_does() {
        assert_eq!(
            in_force(
                "location / { proxy_pass http://127.0.0.1:1; gzip on; return 204; location /a/ { etag off; } }"
            ),
            ["own etag off", "location gzip on", "server listen 1", "http server_tokens off"]
        );
        assert_eq!(
            in_force("location / { proxy_pass http://127.0.0.1:1; if ($arg_a) { gzip on; } }"),
            [
                "own gzip on",
                "location proxy_pass http://127.0.0.1:1",
                "location if ($arg_a) { ... }",
                "server listen 1",
                "http server_tokens off"
            ]
        );
    }
}
