//! A flame graph as SVG, its roots on top: it can be read without any script; a small one adds search and zoom.

use std::fmt::Write;

use super::compared;
use super::flame::{FlameTree, amount, escape, share, title};
use crate::stacks::{FrameOrigin, StackSet};

/// The picture as a file.
pub(super) fn write(stacks: &StackSet) -> String {
    format!("<?xml version=\"1.0\" standalone=\"no\"?>\n{}", element(stacks))
}

/// The difference of two recordings as a file: what `now` has more of is red, what it has less of is blue.
pub(super) fn compared(now: &StackSet, before: &StackSet) -> String {
    let (all, flame) = compared::tree(now, before);
    let title = format!("{}, less {}", title(now), title(before));
    format!("<?xml version=\"1.0\" standalone=\"no\"?>\n{}", drawn(&all, &flame, &title))
}

/// The picture as an element, for a page.
pub(super) fn element(stacks: &StackSet) -> String {
    drawn(stacks, &FlameTree::of(stacks), &title(stacks))
}

fn drawn(stacks: &StackSet, flame: &FlameTree, title: &str) -> String {
    let height = TOP + (flame.depth() + 1) * ROW + BOTTOM;
    let mut drawing = SvgDrawing { stacks, flame, out: String::new() };
    drawing.head(title, height);
    drawing.node(0, 0, (0.0, (WIDTH - 2 * SIDE) as f64));
    drawing.out.push_str("</g>\n<script><![CDATA[");
    drawing.out.push_str(SCRIPT);
    drawing.out.push_str("]]></script>\n</svg>\n");
    drawing.out
}

struct SvgDrawing<'a> {
    stacks: &'a StackSet,
    flame: &'a FlameTree,
    out: String,
}

impl SvgDrawing<'_> {
    fn head(&mut self, title: &str, height: usize) {
        let title = escape(title);
        writeln!(
            self.out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"flame\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"Verdana, sans-serif\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fbfbf8\"/>\n\
             <text x=\"{}\" y=\"22\" text-anchor=\"middle\" font-size=\"15\">{title}</text>\n\
             <text class=\"reset\" x=\"10\" y=\"22\" style=\"cursor:pointer\"></text>\n\
             <text class=\"search\" x=\"{}\" y=\"22\" text-anchor=\"end\" style=\"cursor:pointer\"></text>\n\
             <text class=\"detail\" x=\"10\" y=\"{}\"></text>\n<g class=\"frames\">",
            WIDTH / 2,
            WIDTH - 10,
            height - 8,
        )
        .expect("writing to a String does not fail");
    }

    /// A node from `left` pixels on and as many wide, its children below it.
    fn node(&mut self, number: usize, depth: usize, (left, width): (f64, f64)) {
        if width < NARROWEST {
            return;
        }
        self.frame(number, depth, left, width);
        let children = &self.flame.node(number).children;
        let inside: f64 = children.iter().map(|&child| self.flame.size(child)).sum();
        // Of two recordings children may have had more, together, than their parent ever.
        let all = self.flame.size(number).max(inside);
        let mut at = left;
        for &child in children {
            let part = width * self.flame.size(child) / all;
            self.node(child, depth + 1, (at, part));
            at += part;
        }
    }

    /// By how much the share of a node has changed; `None` without a recording to compare with.
    fn change(&self, number: usize) -> Option<f64> {
        let (node, root) = (self.flame.node(number), self.flame.root());
        let change = compared::change((node.value, root.value), (node.before, root.before));
        (root.before > 0).then_some(change)
    }

    fn frame(&mut self, number: usize, depth: usize, left: f64, width: f64) {
        let node = self.flame.node(number);
        let frame = node.frame.map(|frame| &self.stacks.frames()[frame as usize]);
        let name = frame.map_or("all", |frame| &frame.name);
        let change = self.change(number);
        let fill = match (frame, change) {
            (_, Some(change)) => compared::colour(change),
            (Some(frame), None) => colour(frame.origin, &frame.name),
            (None, None) => "#d8d8d0".to_owned(),
        };
        let change =
            change.map(|change| format!(", {:+.1}% to the other", change * 100.0)).unwrap_or_default();
        let (x, y) = (SIDE as f64 + left, TOP + depth * ROW);
        let place = frame.filter(|frame| !frame.file.is_empty());
        let place = place.map(|frame| format!(" {}:{}", frame.file, frame.line)).unwrap_or_default();
        let percent = share(node.value, self.flame.root().value);
        let value = amount(self.stacks, node.value);
        let own =
            if node.own > 0 { format!(", own {}", amount(self.stacks, node.own)) } else { String::new() };
        writeln!(
            self.out,
            "<g><title>{}{} ({value}, {percent:.2}%{own}{change})</title>\
             <rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{fill}\" rx=\"1\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text></g>",
            escape(name),
            escape(&place),
            ROW - 1,
            x + 3.0,
            y + ROW - 5,
            escape(&fit(name, width)),
        )
        .expect("writing to a String does not fail");
    }
}

/// As much of `name` as has room in `width` pixels.
fn fit(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / LETTER) as usize;
    if name.chars().count() <= room {
        return name.to_owned();
    }
    if room < 3 {
        return String::new();
    }
    name.chars().take(room - 2).chain("..".chars()).collect()
}

/// A hue for each origin, a shade for each name: the same name has the same colour in every graph.
fn colour(origin: FrameOrigin, name: &str) -> String {
    let shade = name.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into())) % 21;
    let hue = match origin {
        FrameOrigin::Route => 205,
        FrameOrigin::Phase => 165,
        FrameOrigin::Module => 95,
        FrameOrigin::Native => 38,
        FrameOrigin::Kernel => 8,
        FrameOrigin::Lua => 285,
        FrameOrigin::Wait => 225,
    };
    format!("hsl({hue},{}%,{}%)", 52 + shade, 66 + shade / 2)
}

/// Pixels.
const WIDTH: usize = 1200;
const SIDE: usize = 10;
const TOP: usize = 34;
const BOTTOM: usize = 30;
const ROW: usize = 17;
/// A letter's, on average.
const LETTER: f64 = 6.4;
/// Narrower frames are left out: they can be neither seen nor clicked.
const NARROWEST: f64 = 0.1;
const SCRIPT: &str = include_str!("flame.js");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::tests::example;

    #[test]
    fn frames_have_their_share_of_the_width() {
        let text = write(&example());
        // 40 of 50 of 1180 pixels; the second route is to the right of it.
        assert!(
            text.contains("<g><title>/ (40 ns, 80.00%)</title><rect x=\"10.0\" y=\"51\" width=\"944.0\""),
            "{text}"
        );
        assert!(text.contains("<rect x=\"954.0\" y=\"51\" width=\"236.0\""), "{text}");
        assert!(text.contains("<title>find file.rs:7 (30 ns, 60.00%, own 30 ns)</title>"), "{text}");
        assert!(text.contains("/&lt;b&gt;</text>") && !text.contains("<b>"), "{text}");
        assert_eq!(text.matches("<g>").count(), 7);
    }

    #[test]
    fn names_are_cut_to_their_room() {
        assert_eq!(fit("content", 100.0), "content");
        assert_eq!(fit("content", 44.0), "cont..".chars().take(3).chain("..".chars()).collect::<String>());
        assert_eq!(fit("content", 20.0), "");
    }
}
