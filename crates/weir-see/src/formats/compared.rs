//! Two recordings as one tree: what each frame has now, and what it had before.

use super::flame::{FlameTree, FlameValue};
use crate::stacks::StackSet;

/// The tree of both, and the frames that it names: those of `now` and of `before`, equal ones once.
pub(super) fn tree(now: &StackSet, before: &StackSet) -> (StackSet, FlameTree) {
    let (mut all, mut flame) = (now.without_stacks(), FlameTree::default());
    for (of, stacks) in [(FlameValue::Now, now), (FlameValue::Before, before)] {
        for (stack, weight) in stacks.iter().filter(|(_, weight)| weight.value > 0) {
            let frames = stack.iter().map(|&frame| stacks.frames()[frame as usize].clone());
            let numbers: Vec<u32> = frames.map(|frame| all.number(frame)).collect();
            flame.add(&numbers, weight.value, of);
        }
    }
    (all, flame)
}

/// By how much the share of a frame has changed: of its values now and before, and those of everything.
pub(super) fn change((now, all_now): (u64, u64), (before, all_before): (u64, u64)) -> f64 {
    let share = |part: u64, all: u64| if all == 0 { 0.0 } else { part as f64 / all as f64 };
    share(now, all_now) - share(before, all_before)
}

/// Red for what takes a larger share than before, blue for a smaller one; the page has the same.
pub(super) fn colour(change: f64) -> String {
    let strength = (change.abs() * 4.0).min(1.0);
    let hue = if change > 0.0 { 5 } else { 215 };
    format!("hsl({hue},{:.0}%,{:.0}%)", strength * 75.0, 88.0 - strength * 22.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::{FrameOrigin, StackFrame, StackWeight, WeightUnit};

    fn stacks(of: &[(&str, u64)]) -> StackSet {
        let mut set = StackSet::new("cpu", WeightUnit::Nanoseconds);
        for (path, value) in of {
            let frames = path.split(';').map(|name| StackFrame::new(FrameOrigin::Native, name));
            set.add(frames, StackWeight { count: 1, value: *value });
        }
        set
    }

    #[test]
    fn frames_of_both_are_one_tree() {
        let (now, before) = (stacks(&[("a;b", 30), ("c", 10)]), stacks(&[("a;b", 10), ("a;d", 10)]));
        let (all, flame) = tree(&now, &before);
        let names: Vec<&str> = all.frames().iter().map(|frame| frame.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert_eq!((flame.root().value, flame.root().before), (40, 20));
        let a = flame.node(flame.root().children[0]);
        assert_eq!((a.value, a.before, a.children.len()), (30, 20, 2));
        assert!((change((30, 40), (20, 20)) + 0.25).abs() < 1e-9);
        assert_eq!(change((1, 0), (1, 0)), 0.0, "nothing was recorded");
    }

    #[test]
    fn more_is_red_and_less_is_blue() {
        assert_eq!(colour(0.25), "hsl(5,75%,66%)");
        assert_eq!(colour(-0.5), "hsl(215,75%,66%)");
        assert_eq!(colour(0.0), "hsl(215,0%,88%)");
    }
}
