//! From the registers of an interrupted thread to the addresses of its callers, by frame pointers and by rules.
//!
//! Weir's code keeps frame pointers (`.cargo/config.toml`), and so does the standard library; shared libraries do not. They have
//! [rules](super::unwind). Where there are none, or they fail, the register may still be our caller's (then the function in
//! between would be skipped), or hold something else (then the chain is broken). Both are corrected by what is on the stack: a
//! word that points after a call instruction of the program's own code is a return address, and such a word after a stack
//! address is a frame. It may be one that was left there by an earlier call: such frames are marked as guesses.
//!
//! Memory is read between the stack pointer and the end of the thread's stack, and, to look for call instructions,
//! inside the program's code; nowhere else, whatever registers and memory say.

use std::ops::Range;

use super::frame::GUESSED;
use super::unwind::{FrameBase, UnwindRule};

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

    /// Where on the stack, at `sp` or above, the innermost native code is that has called it.
    fn boundary(&self, sp: u64) -> Option<u64>;

    /// The same where the chain is broken after `sp`.
    fn lost(&self, sp: u64, emit: &mut dyn FnMut(u64) -> bool) -> Option<WalkRegisters>;
}

/// What is asked of memory and code outside of the program.
pub(super) trait WalkSource {
    /// Reads a word, or says that it can't be read.
    fn load(&self, address: u64) -> Option<u64>;

    /// The rule for the instruction at `address`.
    fn rule(&self, address: u64) -> Option<UnwindRule>;
}

/// Gives the address of the instruction and one inside each call above it to `emit`, innermost first, until that
/// returns `false`; in the place of those in `inner` what that gives.
#[inline]
pub(super) fn walk(
    registers: WalkRegisters,
    limits: &WalkLimits,
    inner: &impl InnerWalk,
    source: &impl WalkSource,
    emit: &mut dyn FnMut(u64) -> bool,
) {
    let WalkRegisters { ip, sp, fp, .. } = registers;
    let in_stack = limits.stack.contains(&sp) && sp.is_multiple_of(8);
    let mut frames = FrameWalk { limits, inner, source, low: sp, recoveries: 0, passed: false };
    let found = if in_stack && frames.is_inner(ip) {
        frames.pass(registers, true, emit)
    } else if !emit(ip) || !in_stack {
        return; // on some other stack: a signal's, say
    } else {
        frames.caller_of_leaf(ip, fp).or_else(|| frames.above(fp, ip, emit))
    };
    let Some(mut found) = found else { return };
    let mut last = ip;
    loop {
        if frames.is_inner(found.address) {
            let here = WalkRegisters { ip: found.address, sp: frames.low, fp: found.fp, base: 0, pc: 0 };
            let Some(next) = frames.pass(here, false, emit) else { return };
            found = next;
        }
        let mark = if found.guessed { GUESSED } else { 0 };
        if !emit((found.address - 1) | mark) {
            return;
        }
        let next = match frames.by_rule(found.address - 1, found.fp) {
            RuleOutcome::Caller(caller) => Some(caller),
            RuleOutcome::Outermost => return,
            RuleOutcome::None => frames.above(found.fp, last, emit),
        };
        let Some(next) = next else { return };
        (found, last) = (next, next.address);
    }
}

struct FrameWalk<'a, I, S> {
    limits: &'a WalkLimits,
    inner: &'a I,
    source: &'a S,
    /// The stack pointer; what lies below has been passed.
    low: u64,
    recoveries: u32,
    /// Inner frames were found.
    passed: bool,
}

/// A caller.
#[derive(Clone, Copy, Debug)]
struct FoundFrame {
    /// Its frame pointer.
    fp: u64,
    /// Where it goes on.
    address: u64,
    /// It was looked for on the stack.
    guessed: bool,
}

impl FoundFrame {
    fn sure((fp, address): (u64, u64)) -> FoundFrame {
        FoundFrame { fp, address, guessed: false }
    }

    fn guess((fp, address): (u64, u64)) -> FoundFrame {
        FoundFrame { fp, address, guessed: true }
    }
}

/// What a rule gives.
enum RuleOutcome {
    Caller(FoundFrame),
    /// There is none.
    Outermost,
    /// There is no rule, or it leads nowhere.
    None,
}

impl<I: InnerWalk, S: WalkSource> FrameWalk<'_, I, S> {
    /// The caller of the library's function that the thread is in. Without a rule: that may have no frame of its own, so its
    /// caller is on the stack before the frame that the register points to.
    fn caller_of_leaf(&mut self, ip: u64, fp: u64) -> Option<FoundFrame> {
        if self.limits.text.contains(&ip) {
            return None;
        }
        if let RuleOutcome::Caller(found) = self.by_rule(ip, fp) {
            return Some(found);
        }
        let (slot, address) = self.first_return()?;
        if self.peek(fp).is_some() && fp + 8 <= slot || self.passes_inner(slot) {
            return None;
        }
        self.low = slot + 8;
        Some(FoundFrame::guess((fp, address)))
    }

    /// The caller of the instruction at `address` outside of the program, as its library has it.
    fn by_rule(&mut self, address: u64, fp: u64) -> RuleOutcome {
        if self.limits.text.contains(&address) {
            return RuleOutcome::None;
        }
        let (after, saved) = match self.source.rule(address) {
            Some(UnwindRule::Frame { base: FrameBase::Stack, offset, saved }) => {
                (self.low.wrapping_add(offset.into()), saved)
            }
            Some(UnwindRule::Frame { base: FrameBase::Frame, offset, saved }) => {
                (fp.wrapping_add(offset.into()), saved)
            }
            Some(UnwindRule::Linkage(push)) => {
                let pushed = address & 15 >= u64::from(push);
                (self.low.wrapping_add(if pushed { 16 } else { 8 }), None)
            }
            Some(UnwindRule::Outermost) => return RuleOutcome::Outermost,
            Some(UnwindRule::Unknown) | None => return RuleOutcome::None,
        };
        self.caller(after, saved, fp).map_or(RuleOutcome::None, RuleOutcome::Caller)
    }

    /// The caller whose stack pointer will be `after`.
    fn caller(&mut self, after: u64, saved: Option<u32>, fp: u64) -> Option<FoundFrame> {
        let in_stack =
            |at: u64| at >= self.low && at.is_multiple_of(8) && at < self.limits.stack.end.saturating_sub(7);
        let word = |at: u64| if in_stack(at) { self.source.load(at) } else { None };
        let address = word(after.checked_sub(8)?).filter(|address| CODE.contains(address))?;
        let fp = match saved {
            Some(below) => word(after.checked_sub(below.into())?)?,
            None => fp,
        };
        self.low = after;
        Some(FoundFrame::sure((fp, address)))
    }

    /// The frame at `fp`, or the next one that can be found above code at `last`.
    fn above(&mut self, fp: u64, last: u64, emit: &mut dyn FnMut(u64) -> bool) -> Option<FoundFrame> {
        let sure = self.limits.text.contains(&last);
        if (sure || !self.passes_inner(fp))
            && let Some(found) = self.record(fp)
        {
            return Some(FoundFrame::sure(found));
        }
        if let Some(found) = self.recover(last) {
            return Some(FoundFrame::guess(found));
        }
        if self.passed {
            return None;
        }
        if let Some((slot, address)) = self.inner_caller() {
            self.low = slot + 8;
            return Some(FoundFrame::sure((fp, address)));
        }
        self.passed = true;
        let next = self.inner.lost(self.low, emit)?;
        self.go_on(next)
    }

    /// Inner code that has called a small function, which has no frame of its own and at most some registers on the stack.
    fn inner_caller(&self) -> Option<(u64, u64)> {
        let below = self.inner.boundary(self.low)?;
        let near = self.slots().take(NEAR).take_while(|slot| *slot < below);
        let mut near = near.map_while(|slot| self.source.load(slot).map(|address| (slot, address)));
        near.find(|&(_, address)| {
            CODE.contains(&address) && !self.limits.stack.contains(&address) && self.is_inner(address)
        })
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
        fits.then_some(FoundFrame::sure((next.fp, next.ip)))
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
        let (next, address) = (self.source.load(fp)?, self.source.load(fp + 8)?);
        CODE.contains(&address).then_some((next, address))
    }

    /// The chain is broken in a function without frame pointers (`last` is in none of ours): the next frame of the
    /// program's own further up.
    fn recover(&mut self, last: u64) -> Option<(u64, u64)> {
        if self.limits.text.contains(&last) || self.recoveries == RECOVERIES {
            return None;
        }
        self.recoveries += 1;
        let below = if self.passed { None } else { self.inner.boundary(self.low) };
        let fp = self.slots().take_while(|slot| below.is_none_or(|below| *slot < below)).find(|&slot| {
            self.peek(slot).is_some_and(|(next, address)| {
                next > slot && self.limits.stack.contains(&next) && self.is_return(address)
            })
        })?;
        self.record(fp)
    }

    /// Whether a step from here to `to` would leave out inner frames.
    fn passes_inner(&self, to: u64) -> bool {
        !self.passed && self.inner.boundary(self.low).is_some_and(|below| to >= below)
    }

    /// The first slot from the stack pointer on that holds a return address of ours.
    fn first_return(&self) -> Option<(u64, u64)> {
        let found = |slot| self.source.load(slot).map(|address| (slot, address));
        self.slots().filter_map(found).find(|&(_, address)| self.is_return(address))
    }

    fn slots(&self) -> impl Iterator<Item = u64> + use<I, S> {
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
            && self.source.load(address - 8).is_some_and(|bytes| ends_in_call(bytes.to_le_bytes()))
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
/// Words in which a function without a frame keeps registers, its address of return after them.
const NEAR: usize = 8;
/// How often per stack a broken chain is mended: calls back from the C library (a sort's comparison) are rare.
const RECOVERIES: u32 = 4;

#[cfg(test)]
mod tests;
