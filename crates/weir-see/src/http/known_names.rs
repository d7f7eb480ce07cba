//! Names of this process' code, remembered: each address is looked up once, by a `weir` command of its own.

use std::collections::HashMap;
use std::sync::Mutex;

use weir_http::json::JsonValue;

use super::route::command;
use crate::formats::StackFormat;
use crate::raw_stacks::{RawFrame, RawStacks, code_maps};
use crate::stacks::{FrameOrigin, StackFrame, StackWeight};
use crate::symbols::{BareAddresses, SymbolSource};

/// The names of addresses, as far as they are known.
pub(super) struct KnownNames(HashMap<u64, Vec<StackFrame>>);

/// What was looked up before, by address; without frames what has no name.
static KNOWN: Mutex<Option<HashMap<u64, Vec<StackFrame>>>> = Mutex::new(None);

impl KnownNames {
    /// Of the addresses in `text`, `@ADDRESS@` each.
    pub(super) fn of(text: &str) -> KnownNames {
        let mut addresses: Vec<u64> = text.split('@').filter_map(address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        // Nobody panics while it holds the lock; what it protects is whole at any moment.
        let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let known = known.get_or_insert_default();
        let mut missing: Vec<u64> =
            addresses.iter().copied().filter(|address| !known.contains_key(address)).collect();
        missing.truncate(MOST);
        if known.len() + missing.len() > MOST {
            known.clear();
        }
        if !missing.is_empty() {
            let mut found = look_up(&missing);
            known.extend(missing.iter().map(|address| (*address, found.remove(address).unwrap_or_default())));
        }
        KnownNames(addresses.iter().filter_map(|one| Some((*one, known.get(one)?.clone()))).collect())
    }
}

impl SymbolSource for KnownNames {
    fn frames(&mut self, address: u64, out: &mut Vec<StackFrame>) {
        match self.0.get(&address) {
            Some(frames) if !frames.is_empty() => out.extend(frames.iter().cloned()),
            _ => BareAddresses.frames(address, out),
        }
    }
}

/// `ab12`, and `ab12?` of an address that was guessed.
fn address(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_suffix('?').unwrap_or(word), 16).ok()
}

/// Names as the command knows them: a stack for each address, which has that as its outermost frame.
fn look_up(addresses: &[u64]) -> HashMap<u64, Vec<StackFrame>> {
    let stack = |address: &u64| {
        let mark = RawFrame::Named(FrameOrigin::Route, format!("{address:x}"));
        (StackWeight { count: 1, value: 1 }, vec![mark, RawFrame::Address(*address)])
    };
    let raw = RawStacks {
        kind: "cpu".to_owned(),
        pid: std::process::id(),
        maps: code_maps(),
        stacks: addresses.iter().map(stack).collect(),
        ..RawStacks::default()
    };
    // Without the command there are no names.
    let json = command(&raw, StackFormat::Json).ok().and_then(|bytes| JsonValue::parse(&bytes).ok());
    let stacks = json.as_ref().and_then(|json| json.field("stacks")).and_then(JsonValue::list);
    stacks.unwrap_or_default().iter().filter_map(named).collect()
}

/// The address of a stack, and its frames.
fn named(stack: &JsonValue) -> Option<(u64, Vec<StackFrame>)> {
    let (mark, frames) = stack.field("frames")?.list()?.split_first()?;
    let frame = |frame: &JsonValue| {
        Some(StackFrame {
            name: frame.field("name")?.text()?.to_owned(),
            file: frame.field("file").and_then(JsonValue::text).unwrap_or_default().to_owned(),
            line: frame
                .field("line")
                .and_then(JsonValue::number)
                .and_then(|line| u32::try_from(line).ok())
                .unwrap_or(0),
            ..StackFrame::default()
        })
    };
    Some((address(mark.field("name")?.text()?)?, frames.iter().filter_map(frame).collect()))
}

/// Addresses that are remembered, at some hundred bytes each.
const MOST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_between_marks() {
        let found: Vec<u64> =
            r#"["@ab12@","a.lua:3","@cd?@","@x@"]"#.split('@').filter_map(address).collect();
        assert_eq!(found, [0xab12, 0xcd]);
    }

    #[test]
    fn a_stack_of_the_command_has_its_address() {
        let json = br#"{"frames":[{"origin":"route","name":"ab12"},{"origin":"native","name":"f","file":"a.rs","line":3},{"origin":"native","name":"inlined"}]}"#;
        let (address, frames) = named(&JsonValue::parse(json).expect("JSON")).expect("a stack");
        assert_eq!((address, frames.len()), (0xab12, 2));
        assert_eq!((&*frames[0].name, &*frames[0].file, frames[0].line), ("f", "a.rs", 3));
    }

    #[test]
    fn what_has_no_name_is_its_address() {
        let (mut names, mut out) = (KnownNames(HashMap::from([(1, Vec::new())])), Vec::new());
        names.frames(1, &mut out);
        names.frames(2, &mut out);
        assert_eq!(out.iter().map(|frame| frame.name.as_str()).collect::<Vec<_>>(), ["0x1", "0x2"]);
    }
}
