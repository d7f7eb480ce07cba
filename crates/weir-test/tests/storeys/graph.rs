//! Circles in a graph.

use std::collections::{BTreeMap, BTreeSet};

/// The circles of a graph: sets of more than one node in which each leads to every other, the largest first.
pub(crate) fn circles(arrows: &BTreeSet<(String, String)>) -> Vec<BTreeSet<String>> {
    let reach = reachable(arrows);
    let nodes: BTreeSet<&String> = arrows.iter().flat_map(|(from, to)| [from, to]).collect();
    let mut circles: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for node in nodes {
        let both =
            reach[node].iter().filter(|other| reach.get(*other).is_some_and(|back| back.contains(node)));
        let circle: BTreeSet<String> = both.cloned().collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    let mut circles: Vec<_> = circles.into_iter().collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// What each node leads to, over any number of arrows.
fn reachable(arrows: &BTreeSet<(String, String)>) -> BTreeMap<String, BTreeSet<String>> {
    let mut next: BTreeMap<&String, Vec<&String>> = BTreeMap::new();
    for (from, to) in arrows {
        next.entry(from).or_default().push(to);
        next.entry(to).or_default();
    }
    let from = |start: &String| {
        let mut seen = BTreeSet::new();
        let mut open = next[start].clone();
        while let Some(node) = open.pop() {
            if seen.insert(node.clone()) {
                open.extend(&next[node]);
            }
        }
        seen
    };
    next.keys().map(|node| ((*node).clone(), from(node))).collect()
}

#[test]
fn circles_are_found() {
    let arrows = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("f", "a")];
    let arrows = arrows.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    let found: Vec<Vec<String>> =
        circles(&arrows).into_iter().map(|circle| circle.into_iter().collect()).collect();
    assert_eq!(found, [vec!["a", "b", "c"], vec!["d", "e"]]);
}
