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
    visit(&LintScope::new(None, &tree.lines, None, tree), &mut found);
    found
}

fn visit(scope: &LintScope<'_>, found: &mut Vec<Error>) {
    TRAPS.iter().for_each(|trap| trap(scope, found));
    for line in scope.lines {
        // The lines of other blocks are no directives.
        if let Some(block) = line.block.as_ref().filter(|_| BLOCKS.contains(&line.name.str())) {
            visit(&LintScope::new(Some(line), &block.lines, Some(scope), scope.tree), found);
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
    use std::cell::Cell;

    use weir_conf::{ConfTree, MemoryFiles};

    thread_local! {
        /// How often the name of a line was read to find those of a name.
        pub(super) static READ: Cell<u64> = const { Cell::new(0) };
    }

    /// `line: message` of everything found in the server block `text`, which begins in line 1.
    pub(super) fn found(text: &str) -> Vec<String> {
        let text = format!("http {{ server {{ {text}\n}} }}");
        let tree = tree(text);
        let line = |span| tree.source.place(span).map_or(0, |place| place.line);
        let shown = |error: &weir_conf::Error| format!("{}: {}", error.span.map_or(0, line), error.message);
        super::lint(&tree).iter().map(shown).collect()
    }

    /// The configuration `text`.
    pub(super) fn tree(text: String) -> ConfTree {
        let files = MemoryFiles::new().with("/n.conf", text);
        let tree = weir_conf::load("/n.conf".as_ref(), "/".as_ref(), &files, |_| false, None);
        tree.expect("the syntax of a test is good")
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{READ, tree};

    /// Names of lines read, and warnings, of so many servers; each asks the blocks around it for all that traps look for.
    fn work(servers: usize) -> (u64, usize) {
        let location = |i: usize| {
            format!(
                "location /{i} {{ proxy_pass http://u{i}; proxy_set_header A $http_a; add_header B 1; set $t $uri; \
                 fastcgi_cache one; location ~ ^/{i}/x$ {{ grpc_pass http://$t; }} }}\n"
            )
        };
        let server = |i: usize| {
            let locations: String = (0..5).map(location).collect();
            format!("upstream u{i} {{ server 127.0.0.1; }} server {{ server_name s{i}; {locations} }}\n")
        };
        let servers: String = (0..servers).map(server).collect();
        let tree = tree(format!("http {{ fastcgi_cache_key $uri; {servers} }}"));
        READ.set(0);
        let found = super::lint(&tree).len();
        (READ.get(), found)
    }

    #[test]
    fn the_work_grows_with_the_servers_and_not_with_their_square() {
        let ((few, found_few), (many, found_many)) = (work(200), work(800));
        assert_eq!((found_few, found_many), (0, 0));
        // Four times the servers: 4.1 times the reads (878,966 to 211,870), of which a part is the sorting of the lines of
        // `http`; where every block is searched (`SEARCHED` without a bound) it is 14.5 times (19,896,024 to 1,374,024).
        assert!(many < few * 5, "{few} names of 200 servers, {many} of 800");
    }

    #[test]
    fn locations_of_one_server_are_no_square_either() {
        let work = |count: usize| {
            let locations: String = (0..count)
                .map(|i| format!("location ~ ^/{i}/x$ {{ set $t $uri; proxy_pass http://$t; }}\n"))
                .collect();
            let tree = tree(format!("http {{ server {{ {locations} }} }}"));
            READ.set(0);
            assert_eq!(super::lint(&tree).len(), 0);
            READ.get()
        };
        let (few, many) = (work(200), work(800));
        assert!(many < few * 5, "{few} names of 200 locations, {many} of 800");
    }
}
