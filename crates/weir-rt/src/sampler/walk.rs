//! From the registers of an interrupted thread to the addresses of its callers, by frame pointers.
//!
//! Weir's code keeps them (`.cargo/config.toml`), and so does the standard library; the C library does not. Inside of
//! it the register may still be our caller's (then the function in between would be skipped), or hold something else
//! (then the chain is broken). Both are corrected by what is on the stack: a word that points after a call
//! instruction of the program's own code is a return address, and such a word after a stack address is a frame.
//!
//! Memory is read between the stack pointer and the end of the thread's stack, and, to look for call instructions,
//! inside the program's code; nowhere else, whatever registers and memory say.

use std::ops::Range;

/// The registers the walk begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalkRegisters {
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
    /// rdx and rbx, which [`InnerWalk`] reads.
    pub(super) base: u64,
    pub(super) pc: u64,
}

/// What may be read: aligned words inside of `stack`, words that lie inside of `text`.
#[derive(Clone, Debug)]
pub(super) struct WalkLimits {
    /// The whole stack of the thread.
    pub(super) stack: Range<u64>,
    /// The program's own code.
    pub(super) text: Range<u64>,
}

/// Code without frame pointers that a walker is registered for.
pub(super) trait InnerWalk {
    /// Whether `address`, in the program's own code or outside of it, is in there.
    fn owns(&self, address: u64, of_program: bool) -> bool;

    /// Gives the frames there, and the registers of native code above them.
    fn pass(&self, at: WalkRegisters, leaf: bool, emit: &mut dyn FnMut(u64) -> bool)
    -> Option<WalkRegisters>;

    /// The same where the chain is broken after `sp`.
    fn lost(&self, sp: u64, emit: &mut dyn FnMut(u64) -> bool) -> Option<WalkRegisters>;
}

/// Gives the address of the instruction and one inside each call above it to `emit`, innermost first, until that
/// returns `false`; in the place of those in `inner` what that gives. `load` reads a word, or says that it can't be
/// read.
#[inline]
pub(super) fn walk(
    registers: WalkRegisters,
    limits: &WalkLimits,
    inner: &impl InnerWalk,
    load: impl Fn(u64) -> Option<u64>,
    emit: &mut dyn FnMut(u64) -> bool,
) {
    let WalkRegisters { ip, sp, fp, .. } = registers;
    let in_stack = limits.stack.contains(&sp) && sp.is_multiple_of(8);
    let mut frames = FrameWalk { limits, inner, load, low: sp, recoveries: 0, passed: false };
    let found = if in_stack && frames.is_inner(ip) {
        frames.pass(registers, true, emit)
    } else if !emit(ip) || !in_stack {
        return; // on some other stack: a signal's, say
    } else {
        frames.caller_of_leaf(ip, fp).or_else(|| frames.above(fp, ip, emit))
    };
    let Some((mut at, mut address)) = found else { return };
    let mut last = ip;
    loop {
        if frames.is_inner(address) {
            let here = WalkRegisters { ip: address, sp: frames.low, fp: at, base: 0, pc: 0 };
            let Some(next) = frames.pass(here, false, emit) else { return };
            (at, address) = next;
        }
        if !emit(address - 1) {
            return;
        }
        let Some((next, above)) = frames.above(at, last, emit) else { return };
        (at, last, address) = (next, above, above);
    }
}

struct FrameWalk<'a, I, L> {
    limits: &'a WalkLimits,
    inner: &'a I,
    load: L,
    /// What lies below has been passed.
    low: u64,
    recoveries: u32,
    /// Inner frames were found.
    passed: bool,
}

/// A frame pointer, and the address of return above it.
type FoundFrame = (u64, u64);

impl<I: InnerWalk, L: Fn(u64) -> Option<u64>> FrameWalk<'_, I, L> {
    /// The library's function in which the thread is may have no frame of its own: its caller then is on the
    /// stack before the frame that the register points to.
    fn caller_of_leaf(&mut self, ip: u64, fp: u64) -> Option<FoundFrame> {
        if self.limits.text.contains(&ip) {
            return None;
        }
        let (slot, address) = self.first_return()?;
        if self.peek(fp).is_some() && fp + 8 <= slot {
            return None;
        }
        self.low = slot + 8;
        Some((fp, address))
    }

    /// The frame at `fp`, or the next one that can be found above code at `last`.
    fn above(&mut self, fp: u64, last: u64, emit: &mut dyn FnMut(u64) -> bool) -> Option<FoundFrame> {
        if let Some(found) = self.record(fp).or_else(|| self.recover(last)) {
            return Some(found);
        }
        if self.passed {
            return None;
        }
        self.passed = true;
        let next = self.inner.lost(self.low, emit)?;
        self.go_on(next)
    }

    fn is_inner(&self, address: u64) -> bool {
        self.inner.owns(address, self.limits.text.contains(&address))
    }

    fn pass(
        &mut self,
        at: WalkRegisters,
        leaf: bool,
        emit: &mut dyn FnMut(u64) -> bool,
    ) -> Option<FoundFrame> {
        self.passed = true;
        let next = self.inner.pass(at, leaf, emit)?;
        self.go_on(next)
    }

    /// After inner frames; they must have come further up the stack.
    fn go_on(&mut self, next: WalkRegisters) -> Option<FoundFrame> {
        let fits = next.sp > self.low && self.limits.stack.contains(&next.sp) && CODE.contains(&next.ip);
        self.low = next.sp;
        fits.then_some((next.fp, next.ip))
    }

    /// The frame at `fp`: the caller's frame pointer and the address of return. The walk has then passed it.
    fn record(&mut self, fp: u64) -> Option<(u64, u64)> {
        let found = self.peek(fp)?;
        self.low = fp + 16;
        Some(found)
    }

    fn peek(&self, fp: u64) -> Option<(u64, u64)> {
        let fits = fp >= self.low && fp.is_multiple_of(8) && fp < self.limits.stack.end.saturating_sub(15);
        if !fits {
            return None;
        }
        let (next, address) = ((self.load)(fp)?, (self.load)(fp + 8)?);
        CODE.contains(&address).then_some((next, address))
    }

    /// The chain is broken in a function without frame pointers (`last` is in none of ours): the next frame of the
    /// program's own further up.
    fn recover(&mut self, last: u64) -> Option<(u64, u64)> {
        if self.limits.text.contains(&last) || self.recoveries == RECOVERIES {
            return None;
        }
        self.recoveries += 1;
        let fp = self.slots().find(|&slot| {
            self.peek(slot).is_some_and(|(next, address)| {
                next > slot && self.limits.stack.contains(&next) && self.is_return(address)
            })
        })?;
        self.record(fp)
    }

    /// The first slot from the stack pointer on that holds a return address of ours.
    fn first_return(&self) -> Option<(u64, u64)> {
        let found = |slot| (self.load)(slot).map(|address| (slot, address));
        self.slots().filter_map(found).find(|&(_, address)| self.is_return(address))
    }

    fn slots(&self) -> impl Iterator<Item = u64> + use<I, L> {
        let end = self.limits.stack.end.saturating_sub(7).min(self.low.saturating_add(SCAN));
        (self.low..end).step_by(8)
    }

    /// Whether a call instruction of the program ends at `address`, or of what was compiled in it.
    fn is_return(&self, address: u64) -> bool {
        let text = &self.limits.text;
        if !text.contains(&address) {
            return CODE.contains(&address)
                && !self.limits.stack.contains(&address)
                && self.is_inner(address);
        }
        address >= text.start.saturating_add(8)
            && address < text.end
            && (self.load)(address - 8).is_some_and(|bytes| ends_in_call(bytes.to_le_bytes()))
    }
}

/// Whether the last of these bytes are a near call: `E8 rel32`, or `FF /2` with one of its operands.
fn ends_in_call(bytes: [u8; 8]) -> bool {
    let indirect = |length: usize| {
        let [opcode, operand] = [bytes[8 - length], bytes[9 - length]];
        opcode == 0xff && operand & 0x38 == 0x10 && operand_length(operand) == length
    };
    bytes[3] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
}

/// Bytes of `FF` with this operand byte: the two, a SIB byte, a displacement.
fn operand_length(operand: u8) -> usize {
    let sib = usize::from(operand >> 6 != 3 && operand & 7 == 4);
    match operand >> 6 {
        0 if operand & 7 == 5 => 6,
        0 => 2 + sib,
        1 => 3 + sib,
        2 => 6 + sib,
        _ => 2,
    }
}

/// Where code can be: above the first page, below the kernel's half.
const CODE: Range<u64> = 4096..1 << 47;
/// How far the stack is searched: what the C library's functions put there between two of ours.
const SCAN: u64 = 4096;
/// How often per stack a broken chain is mended: calls back from the C library (a sort's comparison) are rare.
const RECOVERIES: u32 = 4;

#[cfg(test)]
mod tests {
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

        fn lost(&self, _: u64, _: &mut dyn FnMut(u64) -> bool) -> Option<WalkRegisters> {
            None
        }
    }

    fn at(ip: u64, sp: u64, fp: u64) -> WalkRegisters {
        WalkRegisters { ip, sp, fp, base: 0, pc: 0 }
    }

    /// A stack of these words; in the code every multiple of 16 is the end of a call.
    fn stack_of(words: &[u64], registers: WalkRegisters) -> Vec<u64> {
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
        walk(registers, &limits, &Nobody, load, &mut |frame| {
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
        assert_eq!(stack_of(&words, registers), [LIBRARY, TEXT + 0x3f, TEXT + 0x1f]);
        // With frame pointers in the library the same stack has nothing to mend.
        let words = [3, slot(3), TEXT + 0x40, 0, TEXT + 0x20];
        let registers = WalkRegisters { fp: slot(1), ..registers };
        assert_eq!(stack_of(&words, registers), [LIBRARY, TEXT + 0x3f, TEXT + 0x1f]);
    }

    #[test]
    fn a_broken_chain_is_taken_up_again() {
        let words = [3, TEXT + 0x21, TEXT + 0x40, 5, 6, slot(7), TEXT + 0x20, 0, TEXT + 0x30];
        let registers = at(LIBRARY, slot(0), 77);
        let expected = [LIBRARY, TEXT + 0x3f, TEXT + 0x1f, TEXT + 0x2f];
        assert_eq!(stack_of(&words, registers), expected);
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
        walk(registers, &limits(words.len()), &Interpreter(words), load, &mut |frame| {
            out.push(frame);
            true
        });
        out
    }

    #[test]
    fn an_interpreter_is_passed_through() {
        // As the leaf; then its caller, whose caller is the interpreter again, called from one more.
        let words = [
            7,
            7,
            7,
            slot(6),
            TEXT + 0x20,
            9,
            99,
            TEXT + 0x8010,
            7,
            7,
            7,
            slot(13),
            TEXT + 0x30,
            0,
            TEXT + 0x40,
        ];
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
        walk(registers, &limits(4), &Nobody, load, &mut |_| {
            n += 1;
            true
        });
        assert_eq!((n, reads.get()), (1, 1));
    }
}
