//! Folded stacks: one line a path, `frame;frame;frame value`, as flame graph tools read them.

use super::TicksToNanos;
use crate::site::SiteTable;
use crate::tree::TraceTree;

/// The own times of the nodes of a tree, [arranged](TraceTree::arranged), in nanoseconds, run or (with `wait`) wait; waits end in a frame of their kind.
/// Nodes without own time have no line. `root` is the first frame: the route, mostly.
#[must_use]
pub fn folded(
    tree: &TraceTree,
    root: &str,
    wait: bool,
    sites: &SiteTable,
    scale: TicksToNanos<'_>,
) -> String {
    let tree = &tree.arranged(sites);
    let mut paths: Vec<String> = Vec::with_capacity(tree.nodes().len());
    let mut out = String::new();
    for (index, node) in tree.nodes().iter().enumerate() {
        let path = match index {
            0 => frame(root),
            _ => format!("{};{}", paths[node.parent as usize], frame(&sites.info(node.site).label())),
        };
        if wait {
            for wait in tree.waits(index as u32) {
                line(&mut out, &format!("{path};wait {}", wait.kind.as_str()), scale(wait.ticks));
            }
        } else {
            line(&mut out, &path, scale(node.self_run));
        }
        paths.push(path);
    }
    out
}

fn line(out: &mut String, path: &str, ns: u64) {
    if ns > 0 {
        out.push_str(&format!("{path} {ns}\n"));
    }
}

/// A frame's name without what the format uses itself.
fn frame(name: &str) -> String {
    let clean = |c: char| match c {
        ';' => ':',
        c if c.is_control() => '_',
        c => c,
    };
    if name.is_empty() { "request".to_owned() } else { name.chars().map(clean).collect() }
}
