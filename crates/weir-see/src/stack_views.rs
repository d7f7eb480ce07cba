//! Other looks at the same stacks: some of them, from the innermost frame outwards, or the callers of one function.

use std::collections::BTreeSet;

use crate::stacks::{StackFrame, StackSet};

/// Those stacks that have a frame with `text` in its name, in whatever letters.
pub(crate) fn with_text(stacks: &StackSet, text: &str) -> StackSet {
    let text = text.to_lowercase();
    let found: Vec<bool> =
        stacks.frames().iter().map(|frame| frame.name.to_lowercase().contains(&text)).collect();
    changed(stacks, |frames| frames.iter().any(|&frame| found[frame as usize]).then(|| frames.to_vec()))
}

/// All stacks, innermost frame first.
pub(crate) fn inverted(stacks: &StackSet) -> StackSet {
    changed(stacks, |frames| Some(frames.iter().rev().copied().collect()))
}

/// The function `name` with what called it, its caller next: of one that called itself from the outermost call on.
pub(crate) fn callers(stacks: &StackSet, name: &str) -> StackSet {
    let is_it = |frame: &u32| stacks.frames()[*frame as usize].name == name;
    changed(stacks, |frames| {
        let at = frames.iter().position(is_it)?;
        Some(frames[..=at].iter().rev().copied().collect())
    })
}

/// The name of the function that is meant by `text`: the one of that name, else the only one with it in its name.
///
/// # Errors
/// There is none, or which of several is meant is not known: some of them.
pub(crate) fn function<'s>(stacks: &'s StackSet, text: &str) -> Result<&'s str, String> {
    let names = stacks.frames().iter().map(|frame| frame.name.as_str());
    if let Some(name) = names.clone().find(|name| *name == text) {
        return Ok(name);
    }
    let lower = text.to_lowercase();
    let found: BTreeSet<&str> = names.filter(|name| name.to_lowercase().contains(&lower)).collect();
    match found.first() {
        None => Err(format!("no function that was recorded has \"{text}\" in its name")),
        Some(name) if found.len() == 1 => Ok(name),
        Some(_) => {
            let some: Vec<&str> = found.iter().take(SHOWN).copied().collect();
            let more = found.len().saturating_sub(SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Err(format!("\"{text}\" is in the names of several functions: {}{more}", some.join(", ")))
        }
    }
}

/// The stacks that `change` makes of those of `stacks`, which are frames outermost first.
fn changed(stacks: &StackSet, change: impl Fn(&[u32]) -> Option<Vec<u32>>) -> StackSet {
    let mut new = stacks.without_stacks();
    for (frames, weight) in stacks.iter() {
        if let Some(frames) = change(frames) {
            let frame = |number: u32| -> StackFrame { stacks.frames()[number as usize].clone() };
            new.add(frames.into_iter().map(frame), weight);
        }
    }
    new
}

/// Functions that are named where several are meant.
const SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::StackFormat;
    use crate::stacks::tests::example;

    fn folded(stacks: &StackSet) -> String {
        String::from_utf8(StackFormat::Folded.write(stacks)).expect("text")
    }

    #[test]
    fn stacks_are_chosen_turned_and_cut() {
        let stacks = example();
        assert_eq!(folded(&with_text(&stacks, "FIND")), "/;content;find 30\n/<b>;content;find 10\n");
        assert_eq!(folded(&inverted(&stacks)), "content;/ 10\nfind;content;/ 30\nfind;content;/<b> 10\n");
        assert_eq!(folded(&callers(&stacks, "content")), "content;/ 40\ncontent;/<b> 10\n");
        assert_eq!(folded(&with_text(&stacks, "nothing of it")), "");
    }

    #[test]
    fn a_function_is_meant_by_a_part_of_its_name() {
        let stacks = example();
        assert_eq!(function(&stacks, "/"), Ok("/"), "its whole name, though others have it in theirs");
        assert_eq!(function(&stacks, "CONT"), Ok("content"));
        assert!(function(&stacks, "n").is_err_and(|why| why.ends_with("several functions: content, find")));
        assert!(function(&stacks, "xyz").is_err());
    }
}
