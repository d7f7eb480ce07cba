//! Traps: lines that are no errors and rarely do what was meant. `weir -t` shows them with place and reason.
//!
//! A pass over the tree as written, before it is built: each trap is a file, a function that looks at one block with
//! those around it. A trap that cannot be distinguished from good use is not reported: one wrong warning teaches to skip all.

mod alias;
mod backtrack;
mod cache_key;
mod client_host;
mod headers;
mod if_content;
mod looked_up;
mod pattern;
mod reach;
mod scope;
mod unchecked;

use weir_conf::{ConfTree, Error};

use scope::LintScope;

/// What looks suspicious in `tree`, in the order of its blocks, outer ones first.
pub fn lint(tree: &ConfTree) -> Vec<Error> {
    let mut found = Vec::new();
    visit(&LintScope { line: None, lines: &tree.lines, outer: None, tree }, &mut found);
    found
}

fn visit(scope: &LintScope<'_>, found: &mut Vec<Error>) {
    TRAPS.iter().for_each(|trap| trap(scope, found));
    for line in scope.lines {
        // The lines of other blocks are no directives.
        if let Some(block) = line.block.as_ref().filter(|_| BLOCKS.contains(&line.name.str())) {
            visit(
                &LintScope { line: Some(line), lines: &block.lines, outer: Some(scope), tree: scope.tree },
                found,
            );
        }
    }
}

const TRAPS: [fn(&LintScope<'_>, &mut Vec<Error>); 9] = [
    reach::trap,
    headers::trap,
    if_content::trap,
    alias::trap,
    client_host::trap,
    backtrack::trap,
    cache_key::trap,
    looked_up::trap,
    unchecked::trap,
];
const BLOCKS: [&str; 5] = ["http", "server", "location", "if", "limit_except"];

#[cfg(test)]
mod testing {
    use weir_conf::MemoryFiles;

    /// `line: message` of everything found in the server block `text`, which begins in line 1.
    pub(super) fn found(text: &str) -> Vec<String> {
        let text = format!("http {{ server {{ {text}\n}} }}");
        let files = MemoryFiles::new().with("/n.conf", text);
        let tree = weir_conf::load("/n.conf".as_ref(), "/".as_ref(), &files, |_| false, None);
        let tree = tree.expect("the syntax of a test is good");
        let line = |span| tree.source.place(span).map_or(0, |place| place.line);
        let shown = |error: &weir_conf::Error| format!("{}: {}", error.span.map_or(0, line), error.message);
        super::lint(&tree).iter().map(shown).collect()
    }
}
