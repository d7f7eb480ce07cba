//! Walks of stacks that are words in a table.

use super::*;
use proptest::prelude::*;
use std::cell::Cell;

const STACK: u64 = 0x7000_0000_0000;
const TEXT: u64 = 0x5555_0000_0000;
const LIBRARY: u64 = 0x7fff_0000_0000;

/// Code that no walker is registered for.
struct Nobody;

impl InnerWalk for Nobody {
    fn owns(&self, _: u64, _: bool) -> bool {
        false
    }

    fn pass(&self, _: WalkRegisters, _: bool, _: &mut dyn FnMut(u64) -> bool) -> Option<WalkRegisters> {
        None
    }

    fn boundary(&self, _: u64) -> Option<u64> {
        None
    }

    fn lost(&self, _: u64, _: &mut dyn FnMut(u64) -> bool) -> Option<WalkRegisters> {
        None
    }
}

/// Memory, and rules by address.
struct Memory<L>(L, &'static [(u64, UnwindRule)]);

impl<L: Fn(u64) -> Option<u64>> WalkSource for Memory<L> {
    fn load(&self, address: u64) -> Option<u64> {
        (self.0)(address)
    }

    fn rule(&self, address: u64) -> Option<UnwindRule> {
        self.1.iter().find(|(at, _)| *at == address).map(|(_, rule)| *rule)
    }
}

fn at(ip: u64, sp: u64, fp: u64) -> WalkRegisters {
    WalkRegisters { ip, sp, fp, base: 0, pc: 0 }
}

/// A stack of these words; in the code every multiple of 16 is the end of a call.
fn stack_of(words: &[u64], registers: WalkRegisters) -> Vec<u64> {
    stack_by(words, registers, &[])
}

fn stack_by(words: &[u64], registers: WalkRegisters, rules: &'static [(u64, UnwindRule)]) -> Vec<u64> {
    let limits = limits(words.len());
    let load = |address: u64| match address {
        TEXT.. if limits.text.contains(&address) => Some(match address % 16 {
            8 => u64::from_le_bytes([0, 0, 0, 0xe8, 1, 2, 3, 4]),
            _ => 0,
        }),
        _ => {
            assert!(limits.stack.contains(&address) && address.is_multiple_of(8), "read at {address:x}");
            Some(words[((address - STACK) / 8) as usize])
        }
    };
    let mut out = Vec::new();
    walk(registers, &limits, &Nobody, &Memory(load, rules), &mut |frame| {
        out.push(frame);
        out.len() < 64
    });
    out
}

fn limits(words: usize) -> WalkLimits {
    WalkLimits { stack: STACK..STACK + 8 * words as u64, text: TEXT..TEXT + 0x1_0000 }
}

fn slot(n: u64) -> u64 {
    STACK + 8 * n
}

#[test]
fn a_chain_is_followed_to_its_end() {
    let words = [1, slot(4), TEXT + 0x20, 7, 0, TEXT + 0x30, 9];
    let registers = at(TEXT + 5, slot(0), slot(1));
    assert_eq!(stack_of(&words, registers), [TEXT + 5, TEXT + 0x1f, TEXT + 0x2f]);
}

#[test]
fn a_library_leaf_does_not_hide_who_called_it() {
    // The leaf's return address, then its caller's frame, which the register still points to.
    let words = [3, TEXT + 0x40, 5, 0, TEXT + 0x20];
    let registers = at(LIBRARY, slot(0), slot(3));
    assert_eq!(stack_of(&words, registers), [LIBRARY, (TEXT + 0x3f) | GUESSED, TEXT + 0x1f]);
    // With frame pointers in the library the same stack has nothing to mend.
    let words = [3, slot(3), TEXT + 0x40, 0, TEXT + 0x20];
    let registers = WalkRegisters { fp: slot(1), ..registers };
    assert_eq!(stack_of(&words, registers), [LIBRARY, TEXT + 0x3f, TEXT + 0x1f]);
}

#[test]
fn a_broken_chain_is_taken_up_again() {
    let words = [3, TEXT + 0x21, TEXT + 0x40, 5, 6, slot(7), TEXT + 0x20, 0, TEXT + 0x30];
    let registers = at(LIBRARY, slot(0), 77);
    let expected = [LIBRARY, (TEXT + 0x3f) | GUESSED, (TEXT + 0x1f) | GUESSED, TEXT + 0x2f];
    assert_eq!(stack_of(&words, registers), expected);
}

const fn counted(base: FrameBase, offset: u32, saved: Option<u32>) -> UnwindRule {
    UnwindRule::Frame { base, offset, saved }
}

#[test]
fn rules_lead_through_a_library_past_what_earlier_calls_left() {
    // A leaf with two words, called by one that saved the frame pointer and uses the register for something else.
    const RULES: &[(u64, UnwindRule)] = &[
        (LIBRARY, counted(FrameBase::Stack, 24, None)),
        (LIBRARY + 0x4f, counted(FrameBase::Stack, 32, Some(16))),
    ];
    let stale = TEXT + 0x60;
    let words = [stale, 1, LIBRARY + 0x50, stale, stale, slot(8), TEXT + 0x20, 0, 0, TEXT + 0x30];
    let expected = [LIBRARY, LIBRARY + 0x4f, TEXT + 0x1f, TEXT + 0x2f];
    assert_eq!(stack_by(&words, at(LIBRARY, slot(0), 77), RULES), expected);
    let guessed = stack_of(&words, at(LIBRARY, slot(0), 77));
    assert_eq!(guessed[..2], [LIBRARY, (TEXT + 0x5f) | GUESSED], "without rules it is what lies there");
}

#[test]
fn rules_count_from_either_register_and_know_the_outermost() {
    const RULES: &[(u64, UnwindRule)] = &[
        (LIBRARY, UnwindRule::Linkage(11)),
        (LIBRARY + 0x0c, UnwindRule::Linkage(11)),
        (LIBRARY + 0x4f, counted(FrameBase::Frame, 16, Some(16))),
        (LIBRARY + 0x5f, UnwindRule::Outermost),
    ];
    let rest = [LIBRARY + 0x50, 0, slot(9), LIBRARY + 0x60, TEXT + 0x20];
    let expected = [LIBRARY + 0x4f, LIBRARY + 0x5f];
    assert_eq!(stack_by(&rest, at(LIBRARY, slot(0), slot(2)), RULES)[1..], expected);
    let words = [&[TEXT + 0x20], &rest[..2], &[slot(9), LIBRARY + 0x60]].concat();
    assert_eq!(stack_by(&words, at(LIBRARY + 0x0c, slot(0), slot(3)), RULES)[1..], expected);
}

#[test]
fn a_rule_that_leads_out_of_the_stack_is_not_followed() {
    const RULES: &[(u64, UnwindRule)] = &[(LIBRARY, counted(FrameBase::Stack, 80, None))];
    let words = [3, TEXT + 0x40, 5, 0, TEXT + 0x20];
    let expected = [LIBRARY, (TEXT + 0x3f) | GUESSED, TEXT + 0x1f];
    assert_eq!(stack_by(&words, at(LIBRARY, slot(0), slot(3)), RULES), expected);
}

#[test]
fn another_stack_is_not_read() {
    let registers = at(TEXT, STACK - 8, slot(0));
    assert_eq!(stack_of(&[slot(1); 4], registers), [TEXT]);
}

/// An interpreter at the end of the code, that keeps no frame pointer: three words above its stack pointer are the
/// caller's frame pointer and the address that it returns to.
struct Interpreter<'w>(&'w [u64]);

impl InnerWalk for Interpreter<'_> {
    fn owns(&self, address: u64, _: bool) -> bool {
        (TEXT + 0x8000..TEXT + 0x9000).contains(&address)
    }

    fn pass(
        &self,
        at: WalkRegisters,
        leaf: bool,
        emit: &mut dyn FnMut(u64) -> bool,
    ) -> Option<WalkRegisters> {
        assert!(self.owns(at.ip, true));
        emit(if leaf { 1 << 60 } else { 2 << 60 });
        let word = |n| self.0.get(((at.sp - STACK) / 8) as usize + n).copied();
        Some(WalkRegisters { ip: word(4)?, sp: at.sp + 40, fp: word(3)?, ..at })
    }

    fn boundary(&self, sp: u64) -> Option<u64> {
        let caller = (sp - STACK) / 8 + 1;
        Some(slot(if self.0.get(1).is_some_and(|word| *word == TEXT + 0x8010) {
            caller + 1
        } else {
            caller - 1
        }))
    }

    fn lost(&self, sp: u64, emit: &mut dyn FnMut(u64) -> bool) -> Option<WalkRegisters> {
        emit(3 << 60);
        self.pass(at(TEXT + 0x8000, sp, 0), false, emit)
    }
}

fn stack_through(words: &[u64], registers: WalkRegisters) -> Vec<u64> {
    let load = |address: u64| match address {
        STACK.. => words.get(((address - STACK) / 8) as usize).copied(),
        _ => Some(u64::from_le_bytes([0, 0, 0, 0xe8, 1, 2, 3, 4])),
    };
    let mut out = Vec::new();
    walk(registers, &limits(words.len()), &Interpreter(words), &Memory(load, &[]), &mut |frame| {
        out.push(frame);
        true
    });
    out
}

#[test]
fn an_interpreter_is_passed_through() {
    // As the leaf; then its caller, whose caller is the interpreter again, called from one more.
    let words =
        [7, 7, 7, slot(6), TEXT + 0x20, 9, 99, TEXT + 0x8010, 7, 7, 7, slot(13), TEXT + 0x30, 0, TEXT + 0x40];
    let expected = [1 << 60, TEXT + 0x1f, 2 << 60, TEXT + 0x2f, TEXT + 0x3f];
    assert_eq!(stack_through(&words, at(TEXT + 0x8005, slot(0), 3)), expected);
}

#[test]
fn a_broken_chain_below_an_interpreter_is_lost_to_it() {
    let words = [7, 7, 7, slot(6), TEXT + 0x20, 9, 0, TEXT + 0x30];
    let expected = [TEXT + 5, 3 << 60, 2 << 60, TEXT + 0x1f, TEXT + 0x2f];
    assert_eq!(stack_through(&words, at(TEXT + 5, slot(0), 3)), expected);
}

#[test]
fn a_function_without_a_frame_has_its_inner_caller() {
    let words = [5, TEXT + 0x8010, 7, 7, 7, slot(7), TEXT + 0x20, 0, TEXT + 0x30];
    let expected = [TEXT + 5, 2 << 60, TEXT + 0x1f, TEXT + 0x2f];
    assert_eq!(stack_through(&words, at(TEXT + 5, slot(0), 3)), expected);
}

#[test]
fn what_lies_about_does_not_lead_past_an_interpreter() {
    // Between the stack pointer and the interpreter's frame nothing is known, above it are good frames.
    let words = [7, 7, 7, slot(6), TEXT + 0x20, 9, 0, TEXT + 0x30];
    let expected = [LIBRARY, 3 << 60, 2 << 60, TEXT + 0x1f, TEXT + 0x2f];
    for fp in [3, slot(6)] {
        assert_eq!(stack_through(&words, at(LIBRARY, slot(0), fp)), expected);
    }
}

#[test]
fn calls_are_known_by_their_bytes() {
    let ends = |tail: &[u8]| {
        let mut bytes = [0x90; 8];
        bytes[8 - tail.len()..].copy_from_slice(tail);
        ends_in_call(bytes)
    };
    let calls: [&[u8]; 8] = [
        &[0xe8, 1, 2, 3, 4],
        &[0xff, 0xd0],                   // call rax
        &[0x41, 0xff, 0xd7],             // call r15
        &[0xff, 0x15, 1, 2, 3, 4],       // call [rip + 4030201h]
        &[0xff, 0x50, 0x18],             // call [rax + 18h]
        &[0xff, 0x14, 0xc8],             // call [rax + 8 rcx]
        &[0xff, 0x54, 0x24, 0x08],       // call [rsp + 8]
        &[0xff, 0x94, 0x24, 0, 1, 0, 0], // call [rsp + 100h]
    ];
    assert!(calls.iter().all(|call| ends(call)));
    let others: [&[u8]; 4] = [&[0xff, 0xe0], &[0xe9, 1, 2, 3, 4], &[0xff, 0x15, 1, 2], &[0x90]];
    assert!(!others.iter().any(|other| ends(other)));
}

proptest! {
    /// Whatever lies on the stack: nothing outside is read (the loader asserts it), and the walk ends.
    #[test]
    fn any_stack_is_walked_to_an_end(
        words in prop::collection::vec(
            prop_oneof![
                any::<u64>(),
                (0u64..48).prop_map(slot),
                (0u64..48 * 8).prop_map(|n| STACK + n),
                (0u64..0x1_0000).prop_map(|n| TEXT + n),
                (0u64..0x1000).prop_map(|n| TEXT + 16 * n),
            ],
            1..40,
        ),
        sp in 0u64..330,
        fp in prop_oneof![any::<u64>(), (0u64..330).prop_map(|n| STACK + n)],
        library: bool,
    ) {
        let ip = if library { LIBRARY } else { TEXT + 3 };
        let frames = stack_of(&words, at(ip, STACK + sp, fp));
        prop_assert!(!frames.is_empty() && frames.len() <= words.len() + 2);
    }
}

#[test]
fn a_load_that_fails_ends_the_walk() {
    let reads = Cell::new(0);
    let load = |_| {
        reads.set(reads.get() + 1);
        None
    };
    let mut n = 0;
    let registers = at(TEXT, slot(0), slot(0));
    walk(registers, &limits(4), &Nobody, &Memory(load, &[]), &mut |_| {
        n += 1;
        true
    });
    assert_eq!((n, reads.get()), (1, 1));
}
