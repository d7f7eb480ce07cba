//! Stacks merged from their outermost frames on: the tree that a flame graph draws.

use crate::stacks::StackSet;

/// The tree; the root is everything.
pub(super) struct FlameTree {
    nodes: Vec<FlameNode>,
}

/// Which of two recordings a value is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlameValue {
    Now,
    Before,
}

/// A frame below a path of frames.
#[derive(Clone, Debug, Default)]
pub(super) struct FlameNode {
    /// Its place in [`StackSet::frames`]; the root has none.
    pub frame: Option<u32>,
    /// Values of all stacks that pass here.
    pub value: u64,
    /// Values of those that end here.
    pub own: u64,
    /// The values of the recording that it is compared with; 0 without one.
    pub before: u64,
    /// In the order of the stacks.
    pub children: Vec<usize>,
}

impl FlameNode {
    fn gets(&mut self, value: u64, of: FlameValue) {
        match of {
            FlameValue::Now => self.value += value,
            FlameValue::Before => self.before += value,
        }
    }
}

impl Default for FlameTree {
    fn default() -> FlameTree {
        FlameTree { nodes: vec![FlameNode::default()] }
    }
}

impl FlameTree {
    /// Merges `stacks`.
    pub(super) fn of(stacks: &StackSet) -> FlameTree {
        let mut flame = FlameTree::default();
        for (stack, weight) in stacks.iter().filter(|(_, weight)| weight.value > 0) {
            flame.add(stack, weight.value, FlameValue::Now);
        }
        flame
    }

    /// Adds a stack, outermost frame first.
    pub(super) fn add(&mut self, stack: &[u32], value: u64, of: FlameValue) {
        let mut at = 0;
        self.nodes[0].gets(value, of);
        for &frame in stack {
            at = self.child(at, frame);
            self.nodes[at].gets(value, of);
        }
        if of == FlameValue::Now {
            self.nodes[at].own += value;
        }
    }

    /// How large a node is drawn: as what it has now, or had before in a recording of another length.
    pub(super) fn size(&self, number: usize) -> f64 {
        let (node, root) = (&self.nodes[number], &self.nodes[0]);
        if root.before == 0 {
            return node.value as f64;
        }
        let all = if root.value > 0 { root.value } else { root.before };
        (node.value as f64).max(node.before as f64 * all as f64 / root.before as f64)
    }

    /// Everything.
    pub(super) fn root(&self) -> &FlameNode {
        &self.nodes[0]
    }

    /// The node of that number.
    pub(super) fn node(&self, number: usize) -> &FlameNode {
        &self.nodes[number]
    }

    /// Frames on top of each other at most, the root not counted.
    pub(super) fn depth(&self) -> usize {
        self.depth_below(0)
    }

    fn depth_below(&self, at: usize) -> usize {
        self.nodes[at].children.iter().map(|&child| 1 + self.depth_below(child)).max().unwrap_or(0)
    }

    fn child(&mut self, at: usize, frame: u32) -> usize {
        let found = self.nodes[at].children.iter().find(|&&child| self.nodes[child].frame == Some(frame));
        if let Some(&child) = found {
            return child;
        }
        let child = self.nodes.len();
        self.nodes.push(FlameNode { frame: Some(frame), ..FlameNode::default() });
        self.nodes[at].children.push(child);
        child
    }
}

/// A value for people: `12.4 ms`, `3 samples` would say less.
pub(super) fn amount(stacks: &StackSet, value: u64) -> String {
    let steps: &[(u64, &str)] = match stacks.unit {
        crate::stacks::WeightUnit::Nanoseconds => {
            &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")]
        }
        crate::stacks::WeightUnit::Bytes => &[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")],
    };
    let &(step, name) = steps.iter().find(|(step, _)| value >= *step).unwrap_or(&(1, steps[3].1));
    if step == 1 { format!("{value} {name}") } else { format!("{:.2} {name}", value as f64 / step as f64) }
}

/// `value` in percent of everything.
pub(super) fn share(value: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { value as f64 * 100.0 / total as f64 }
}

/// What is above a graph: `cpu: 1.20 s in 10.0 s, a sample every 10.1 ms`.
pub(super) fn title(stacks: &StackSet) -> String {
    let mut title = format!("{}: {}", stacks.kind, amount(stacks, stacks.total().value));
    if stacks.duration_ns > 0 {
        title.push_str(&format!(" in {:.1} s", stacks.duration_ns as f64 / 1e9));
    }
    if stacks.period_ns > 0 {
        title.push_str(&format!(", a sample every {:.1} ms", stacks.period_ns as f64 / 1e6));
    }
    title
}

/// Text in XML and HTML, also in attributes; what XML forbids becomes U+FFFD.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::tests::example;

    #[test]
    fn stacks_share_their_beginnings() {
        let flame = FlameTree::of(&example());
        assert_eq!((flame.root().value, flame.root().children.len(), flame.depth()), (50, 2, 3));
        let slash = flame.node(flame.root().children[0]);
        let content = flame.node(slash.children[0]);
        assert_eq!((slash.value, slash.own, content.value, content.own), (40, 0, 40, 10));
    }

    #[test]
    fn amounts_are_for_people() {
        let stacks = example();
        for (ns, text) in [(0, "0 ns"), (999, "999 ns"), (12_400_000, "12.40 ms"), (3_000_000_000, "3.00 s")]
        {
            assert_eq!(amount(&stacks, ns), text);
        }
        assert_eq!(title(&stacks), "cpu: 50 ns in 0.0 s, a sample every 0.0 ms");
        assert_eq!(escape("a<b>\"&\0"), "a&lt;b&gt;&quot;&amp;\u{fffd}");
    }
}
