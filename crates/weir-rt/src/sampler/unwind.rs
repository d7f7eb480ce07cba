//! From an instruction of code without frame pointers to its caller: rules that the code's compiler left, ready to be looked up in
//! a signal handler.
//!
//! Shared libraries have no frame pointers, but `.eh_frame`: how to find the caller from each instruction. Reading that takes an
//! allocator and milliseconds, so another thread reads it and [adds](add_unwind_table) what is needed here, eight bytes a rule.
//! Tables stay: a handler may be reading one. One that was added later goes before those of the same addresses.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};

/// Rules for the instructions of one library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnwindTable {
    /// Addresses of its code.
    code: Range<u64>,
    /// In the order of `at`; each holds until the next one.
    rows: Box<[UnwindRow]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnwindRow {
    /// Bytes from the beginning of the code.
    at: u32,
    rule: PackedRule,
}

/// How to get to the caller from some instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnwindRule {
    /// Not known.
    Unknown,
    /// There is no caller: the thread began here.
    Outermost,
    /// The caller's stack pointer will be `base` and `offset` bytes; the address of return is on the stack below that.
    Frame {
        /// The register from which is counted.
        base: FrameBase,
        /// Bytes, a multiple of 8, below 128 KB.
        offset: u32,
        /// How far below the caller's stack pointer its frame pointer was saved: bytes, a multiple of 8, below 8 KB; `None`
        /// while the register still has it.
        saved: Option<u32>,
    },
    /// An entry of a procedure linkage table, of 16 bytes, which pushes 8 bytes with the instruction before this one.
    Linkage(u8),
}

/// A register that a frame is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameBase {
    /// The stack pointer.
    Stack,
    /// The frame pointer.
    Frame,
}

/// A rule in 32 bits: its sort in the lowest two, then offset (14) and place (16), in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PackedRule(u32);

const SPECIAL: u32 = 0;
const OF_STACK: u32 = 1;
const OF_FRAME: u32 = 2;
const LINKAGE: u32 = 3;
const MOST_OFFSET: u32 = 1 << 14;
const MOST_SAVED: u32 = 1 << 10;

impl PackedRule {
    fn new(rule: UnwindRule) -> PackedRule {
        PackedRule(match rule {
            UnwindRule::Outermost => 1 << 2 | SPECIAL,
            UnwindRule::Linkage(push) => u32::from(push) << 2 | LINKAGE,
            UnwindRule::Frame { base, offset, saved } => {
                let words = saved.unwrap_or(0);
                let fits = (offset | words).is_multiple_of(8)
                    && offset / 8 < MOST_OFFSET
                    && words / 8 < MOST_SAVED
                    && saved != Some(0);
                let sort = if base == FrameBase::Stack { OF_STACK } else { OF_FRAME };
                if fits { ((words / 8) << 16) | ((offset / 8) << 2) | sort } else { SPECIAL }
            }
            UnwindRule::Unknown => SPECIAL,
        })
    }

    fn rule(self) -> UnwindRule {
        let PackedRule(bits) = self;
        let base = match bits & 3 {
            OF_STACK => FrameBase::Stack,
            OF_FRAME => FrameBase::Frame,
            LINKAGE => return UnwindRule::Linkage((bits >> 2) as u8),
            _ if bits >> 2 == 1 => return UnwindRule::Outermost,
            _ => return UnwindRule::Unknown,
        };
        let saved = bits >> 16;
        let offset = (bits >> 2 & (MOST_OFFSET - 1)) * 8;
        UnwindRule::Frame { base, offset, saved: (saved > 0).then_some(saved * 8) }
    }
}

impl UnwindTable {
    /// A table for `code`, at most 4 GB, of the rules that hold from each of these addresses on; of several from one address the
    /// last. What is outside of `code` is left out; what has no rule is [`UnwindRule::Unknown`], as what does not fit its field.
    #[must_use]
    pub fn new(code: Range<u64>, mut rules: Vec<(u64, UnwindRule)>) -> UnwindTable {
        rules.retain(|(at, _)| code.contains(at) && at - code.start <= u64::from(u32::MAX));
        rules.sort_by_key(|(at, _)| *at);
        let mut rows: Vec<UnwindRow> = Vec::with_capacity(rules.len());
        for (at, rule) in rules {
            let row = UnwindRow { at: (at - code.start) as u32, rule: PackedRule::new(rule) };
            match rows.last_mut() {
                Some(last) if last.at == row.at => *last = row,
                Some(last) if last.rule == row.rule => {}
                _ => rows.push(row),
            }
        }
        UnwindTable { code, rows: rows.into() }
    }

    /// The addresses that the table is for.
    #[must_use]
    pub fn code(&self) -> &Range<u64> {
        &self.code
    }

    /// The rule for the instruction at `address`; `None` outside of the table's code.
    #[must_use]
    pub fn rule(&self, address: u64) -> Option<UnwindRule> {
        if !self.code.contains(&address) {
            return None;
        }
        let at = u32::try_from(address - self.code.start).ok()?;
        let after = self.rows.partition_point(|row| row.at <= at);
        let row = after.checked_sub(1).and_then(|before| self.rows.get(before));
        Some(row.map_or(UnwindRule::Unknown, |row| row.rule.rule()))
    }
}

/// Libraries that may be known in the life of a process, those that were unloaded included.
const MOST_TABLES: usize = 256;

static TABLES: [OnceLock<UnwindTable>; MOST_TABLES] = [const { OnceLock::new() }; MOST_TABLES];
static USED: AtomicUsize = AtomicUsize::new(0);

/// Stacks are walked by this table from now on. `false` if there is no room for it: the walk goes on as without.
pub fn add_unwind_table(table: UnwindTable) -> bool {
    let Some(free) = TABLES.iter().position(|place| place.get().is_none()) else { return false };
    // Two threads may have found the same place: the later one looks again.
    if let Err(table) = TABLES[free].set(table) {
        return add_unwind_table(table);
    }
    USED.fetch_max(free + 1, Release);
    true
}

/// The newest rule for `address`. Async-signal-safe.
pub(super) fn rule_at(address: u64) -> Option<UnwindRule> {
    let used = USED.load(Acquire).min(MOST_TABLES);
    TABLES[..used].iter().rev().filter_map(OnceLock::get).find_map(|table| table.rule(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(base: FrameBase, offset: u32, saved: Option<u32>) -> UnwindRule {
        UnwindRule::Frame { base, offset, saved }
    }

    proptest! {
        #[test]
        fn rules_survive_their_word(offset in 0u32..MOST_OFFSET, saved in 0u32..MOST_SAVED, of_stack: bool, push: u8) {
            let base = if of_stack { FrameBase::Stack } else { FrameBase::Frame };
            let saved = (saved > 0).then_some(saved * 8);
            for rule in [frame(base, offset * 8, saved), UnwindRule::Linkage(push)] {
                prop_assert_eq!(PackedRule::new(rule).rule(), rule);
            }
        }

        #[test]
        fn what_does_not_fit_is_unknown(offset: u32, saved: u32) {
            let rule = frame(FrameBase::Stack, offset, Some(saved));
            let read = PackedRule::new(rule).rule();
            prop_assert!(read == rule || read == UnwindRule::Unknown, "{:?}", read);
        }

        /// The rule is that of the last address that is not above.
        #[test]
        fn rules_hold_until_the_next_one(rules in prop::collection::vec((900u64..1200, 1u32..40), 0..60), asked in 900u64..1200) {
            let of = |words: u32| frame(FrameBase::Stack, words * 8, None);
            let table = UnwindTable::new(1000..1100, rules.iter().map(|(at, words)| (*at, of(*words))).collect());
            let last = rules.iter().filter(|(at, _)| (1000..1100).contains(at) && *at <= asked).map(|(at, _)| *at).max();
            let expected = last.and_then(|at| rules.iter().rev().find(|rule| rule.0 == at)).map(|rule| of(rule.1));
            let inside = (1000..1100).contains(&asked);
            prop_assert_eq!(table.rule(asked), inside.then(|| expected.unwrap_or(UnwindRule::Unknown)));
        }
    }

    #[test]
    fn ends_and_unknown_rules_differ() {
        for rule in [UnwindRule::Unknown, UnwindRule::Outermost] {
            assert_eq!(PackedRule::new(rule).rule(), rule);
        }
    }

    #[test]
    fn a_later_table_goes_first() {
        let code = 1 << 60..(1 << 60) + 100;
        for words in [1, 2] {
            let rule = frame(FrameBase::Frame, words * 8, None);
            assert!(add_unwind_table(UnwindTable::new(code.clone(), vec![(code.start, rule)])));
            assert_eq!(rule_at(code.start + 5), Some(rule));
        }
        assert_eq!(rule_at(code.end), None);
    }
}
