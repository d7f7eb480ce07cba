//! Folded stacks: one line a stack, `frame;frame;frame value`, as flame graph tools read them.

use crate::stacks::StackSet;

/// The stacks with their values.
pub(super) fn write(stacks: &StackSet) -> String {
    let names: Vec<String> = stacks.frames().iter().map(|frame| clean(&frame.name)).collect();
    let mut out = String::new();
    for (stack, weight) in stacks.iter().filter(|(_, weight)| weight.value > 0) {
        let path: Vec<&str> = stack.iter().map(|&frame| names[frame as usize].as_str()).collect();
        out.push_str(&format!("{} {}\n", path.join(";"), weight.value));
    }
    out
}

/// A name without what the format uses itself.
fn clean(name: &str) -> String {
    let clean = |c: char| match c {
        ';' => ':',
        c if c.is_control() => '_',
        c => c,
    };
    name.chars().map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::{FrameOrigin, StackFrame, StackWeight, WeightUnit, tests::example};

    #[test]
    fn a_line_a_stack() {
        assert_eq!(write(&example()), "/;content 10\n/;content;find 30\n/<b>;content;find 10\n");
    }

    #[test]
    fn names_do_not_break_lines() {
        let mut stacks = StackSet::new("cpu", WeightUnit::Nanoseconds);
        let frame = StackFrame::new(FrameOrigin::Route, "~ ^/a;b\n");
        stacks.add([frame], StackWeight { count: 1, value: 1 });
        assert_eq!(write(&stacks), "~ ^/a:b_ 1\n");
    }
}
