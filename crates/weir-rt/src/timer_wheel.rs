//! The timer wheel: deadlines in milliseconds, tokens out, no clock and no I/O of its own.
//!
//! One ring of 4096 slots, 4 ms each (16.4 s). Nearly every deadline of a server is moved many times before it
//! is reached (each receive pushes the idle timeout out), so [`TimerWheel::touch`] only stores the new deadline and
//! the hand re-places the entry when it meets it at its old slot. The same mechanism carries deadlines beyond
//! the horizon, at one re-placement per 16.4 s, which is why there is no second level.
//!
//! Promises: an entry never fires before its deadline, and it fires at the first [`TimerWheel::advance`] at or after
//! the next multiple of 4 ms following the later of its deadline and the moment it was armed.

use crate::held::HeldMemory;

/// Milliseconds per slot.
const TICK_MS: u64 = 4;
/// Slots of the ring: 64 words of 64, so that the next occupied slot is found through two levels of bits.
const SLOTS: usize = 4096;
const WORDS: usize = SLOTS / 64;
/// End of a list.
const NONE: u32 = u32::MAX;
/// `WheelEntry::slot` of an entry that has fired and waits for `rearm`, `touch` or `remove`.
const EXPIRED: u32 = u32::MAX;
/// `WheelEntry::slot` of an unused entry, chained through `next`.
const FREE: u32 = u32::MAX - 1;

/// 24 bytes: an idle keep-alive connection holds one of these.
#[derive(Clone, Copy)]
struct WheelEntry {
    deadline_ms: u64,
    token: u32,
    slot: u32,
    prev: u32,
    next: u32,
}

const _: () = assert!(size_of::<WheelEntry>() <= 24);

/// Deadlines of one worker. Entries are named by the index [`TimerWheel::add`] returned until [`TimerWheel::remove`];
/// using an index after its removal is a bug of the caller (caught in debug builds) but memory-safe.
pub(crate) struct TimerWheel {
    heads: Box<[u32; SLOTS]>,
    occupied: [u64; WORDS],
    /// Bit `w` is set while `occupied[w]` is not zero.
    summary: u64,
    entries: Vec<WheelEntry>,
    free: u32,
    live: u32,
    /// The last tick whose slot has been emptied.
    hand: u64,
    /// No slot before this tick is occupied; may be early (an entry was removed), never late.
    next_due: u64,
    /// Deadlines and tokens of what is due, while a sweep gathers them; else empty.
    due: Vec<(u64, u32)>,
}

impl TimerWheel {
    /// An empty wheel whose hand is at `now_ms`.
    pub(crate) fn new(now_ms: u64) -> TimerWheel {
        TimerWheel {
            heads: Box::new([NONE; SLOTS]),
            occupied: [0; WORDS],
            summary: 0,
            entries: Vec::new(),
            free: NONE,
            live: 0,
            hand: now_ms / TICK_MS,
            next_due: u64::MAX,
            due: Vec::new(),
        }
    }

    /// How many entries there are, and the bytes of the wheel with all its places.
    pub(crate) fn held(&self) -> HeldMemory {
        let entries = self.entries.capacity() * size_of::<WheelEntry>();
        let due = self.due.capacity() * size_of::<(u64, u32)>();
        HeldMemory::new(
            self.live as usize,
            size_of::<[u32; SLOTS]>() + size_of::<TimerWheel>() + entries + due,
        )
    }

    /// Arms a new entry; `token` comes back through [`TimerWheel::advance`].
    pub(crate) fn add(&mut self, deadline_ms: u64, token: u32) -> u32 {
        let entry = WheelEntry { deadline_ms, token, slot: EXPIRED, prev: NONE, next: NONE };
        let i = if self.free == NONE {
            assert!(self.entries.len() < FREE as usize, "fewer than 2^32 timers");
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        } else {
            let i = self.free;
            self.free = self.entry(i).next;
            *self.entry_mut(i) = entry;
            i
        };
        self.live += 1;
        self.link(i);
        i
    }

    /// Disarms the entry and gives its index back.
    pub(crate) fn remove(&mut self, i: u32) {
        debug_assert!(self.entry(i).slot != FREE, "timer removed twice");
        self.unlink(i);
        let free = self.free;
        let entry = self.entry_mut(i);
        entry.slot = FREE;
        entry.next = free;
        self.free = i;
        self.live -= 1;
    }

    /// Moves the deadline, keeping the token. Pushing it out is one store; pulling it in, or reviving an entry
    /// that has fired, links it again.
    #[inline]
    pub(crate) fn touch(&mut self, i: u32, deadline_ms: u64) {
        let entry = self.entry_mut(i);
        debug_assert!(entry.slot != FREE, "removed timer touched");
        if deadline_ms >= entry.deadline_ms && entry.slot != EXPIRED {
            entry.deadline_ms = deadline_ms;
        } else {
            self.replace(i, deadline_ms);
        }
    }

    /// Moves the deadline and changes the token, whether the entry has fired or not.
    pub(crate) fn rearm(&mut self, i: u32, deadline_ms: u64, token: u32) {
        self.entry_mut(i).token = token;
        self.touch(i, deadline_ms);
    }

    /// Changes which task is woken, and nothing else.
    pub(crate) fn set_token(&mut self, i: u32, token: u32) {
        self.entry_mut(i).token = token;
    }

    /// Whether the entry has fired since it was last armed.
    pub(crate) fn expired(&self, i: u32) -> bool {
        self.entry(i).slot == EXPIRED
    }

    /// The current deadline in milliseconds (of an expired entry: the one that passed).
    pub(crate) fn deadline(&self, i: u32) -> u64 {
        self.entry(i).deadline_ms
    }

    /// The current token.
    pub(crate) fn token(&self, i: u32) -> u32 {
        self.entry(i).token
    }

    /// Entries between `add` and `remove`, expired ones included.
    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    /// Fires everything due at `now_ms`, at most once per entry: calls `fire` with deadline and token, earlier deadlines
    /// first, equal ones in the order in which they were linked. Two compares when nothing can be due. A `now_ms`
    /// before an earlier one is ignored.
    #[inline]
    pub(crate) fn advance(&mut self, now_ms: u64, fire: impl FnMut(u64, u32)) {
        let target = now_ms / TICK_MS;
        if target < self.next_due {
            // Nothing is linked up to `target`, so the hand may jump; a fresh hand keeps short deadlines exact.
            self.hand = self.hand.max(target);
        } else {
            self.sweep(target, now_ms, fire);
        }
    }

    /// How long the caller may sleep at `now_ms`: 0 if something is due, `None` if nothing is armed. May be too
    /// short (an entry was touched or removed since), never too long.
    pub(crate) fn sleep_for(&self, now_ms: u64) -> Option<u64> {
        (self.next_due != u64::MAX).then(|| self.next_due.saturating_mul(TICK_MS).saturating_sub(now_ms))
    }

    fn sweep(&mut self, target: u64, now_ms: u64, mut fire: impl FnMut(u64, u32)) {
        loop {
            self.next_due = self.next_occupied();
            if self.next_due > target {
                break;
            }
            self.hand = self.next_due;
            self.empty_slot(slot_of(self.hand), now_ms);
        }
        self.hand = self.hand.max(target);
        // Slots come in the order of their ticks, yet hold four deadlines each, and later ones that were only touched.
        self.due.sort_by_key(|(deadline_ms, _)| *deadline_ms);
        self.due.drain(..).for_each(|(deadline_ms, token)| fire(deadline_ms, token));
    }

    /// Gathers what is due of a slot, the first that was linked first; the rest is linked elsewhere.
    fn empty_slot(&mut self, slot: usize, now_ms: u64) {
        let mut i = self.last_of(slot);
        while i != NONE {
            let WheelEntry { deadline_ms, token, prev, .. } = *self.entry(i);
            self.unlink(i);
            if deadline_ms <= now_ms {
                self.due.push((deadline_ms, token));
            } else {
                self.link(i); // never into this slot again: `link` places it 1..SLOTS ticks ahead
            }
            i = prev;
        }
    }

    /// The entry of a slot that was linked first: new ones are put before the others.
    fn last_of(&self, slot: usize) -> u32 {
        let (mut last, mut i) = (NONE, self.heads[slot]);
        while i != NONE {
            (last, i) = (i, self.entry(i).next);
        }
        last
    }

    fn replace(&mut self, i: u32, deadline_ms: u64) {
        self.unlink(i);
        self.entry_mut(i).deadline_ms = deadline_ms;
        self.link(i);
    }

    fn link(&mut self, i: u32) {
        // Rounded up, so that the slot is met at or after the deadline.
        let due = self.entry(i).deadline_ms.div_ceil(TICK_MS);
        let tick = due.clamp(self.hand + 1, self.hand + SLOTS as u64 - 1);
        let slot = slot_of(tick);
        let head = self.heads[slot];
        let entry = self.entry_mut(i);
        entry.slot = slot as u32;
        entry.prev = NONE;
        entry.next = head;
        if head != NONE {
            self.entry_mut(head).prev = i;
        }
        self.heads[slot] = i;
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.summary |= 1 << (slot / 64);
        self.next_due = self.next_due.min(tick);
    }

    /// Takes the entry out of its slot, leaving it expired; nothing if it is in none.
    fn unlink(&mut self, i: u32) {
        let WheelEntry { slot, prev, next, .. } = *self.entry(i);
        if slot == EXPIRED {
            return;
        }
        let slot = slot as usize;
        if next != NONE {
            self.entry_mut(next).prev = prev;
        }
        if prev != NONE {
            self.entry_mut(prev).next = next;
        } else {
            self.heads[slot] = next;
            if next == NONE {
                self.mark_empty(slot);
            }
        }
        self.entry_mut(i).slot = EXPIRED;
    }

    fn mark_empty(&mut self, slot: usize) {
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        if self.occupied[slot / 64] == 0 {
            self.summary &= !(1 << (slot / 64));
        }
    }

    /// The first occupied tick after the hand; `u64::MAX` if all are empty. Three word operations.
    fn next_occupied(&self) -> u64 {
        if self.summary == 0 {
            return u64::MAX;
        }
        let from = slot_of(self.hand + 1);
        let (word, bit) = (from / 64, from % 64);
        let here = self.occupied[word] & (u64::MAX << bit);
        let slot = if here != 0 {
            word * 64 + here.trailing_zeros() as usize
        } else {
            // Words after this one first, then round the end; `word` itself comes last, with its low bits.
            let turn = (word as u32 + 1) % 64;
            let ahead = self.summary.rotate_right(turn).trailing_zeros();
            let word = ((turn + ahead) % 64) as usize;
            word * 64 + self.occupied[word].trailing_zeros() as usize
        };
        self.hand + 1 + ((slot + SLOTS - from) % SLOTS) as u64
    }

    #[inline]
    fn entry(&self, i: u32) -> &WheelEntry {
        &self.entries[i as usize]
    }

    #[inline]
    fn entry_mut(&mut self, i: u32) -> &mut WheelEntry {
        &mut self.entries[i as usize]
    }
}

#[inline]
fn slot_of(tick: u64) -> usize {
    (tick % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn fired(wheel: &mut TimerWheel, now_ms: u64) -> Vec<u32> {
        let mut tokens = Vec::new();
        wheel.advance(now_ms, |_, token| tokens.push(token));
        tokens
    }

    #[test]
    fn a_late_advance_fires_earlier_deadlines_first_and_equal_ones_as_linked() {
        let mut wheel = TimerWheel::new(1000);
        for (token, delay) in [5, 1, 3, 0, 3, 900, 2, 20_000, 1, 900].into_iter().enumerate() {
            wheel.add(1000 + delay, token as u32);
        }
        // Stays in the slot of 1008 though it is due at 1700.
        let touched = wheel.add(1007, 10);
        wheel.touch(touched, 1700);
        assert_eq!(fired(&mut wheel, 2000), [3, 1, 8, 6, 2, 4, 0, 10, 5, 9]);
        assert_eq!(fired(&mut wheel, 22_000), [7]);
    }

    #[test]
    fn equal_deadlines_beyond_the_horizon_fire_as_linked() {
        let mut wheel = TimerWheel::new(0);
        (0..5).for_each(|token| _ = wheel.add(40_000, token));
        assert!(fired(&mut wheel, 17_000).is_empty());
        assert!(fired(&mut wheel, 34_000).is_empty());
        assert_eq!(fired(&mut wheel, 40_000), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn fires_at_the_tick_after_the_deadline_and_once() {
        for start in [0, 3, 4, 16_380, 1_000_000_007] {
            for delay in 1..40 {
                let mut wheel = TimerWheel::new(start);
                let i = wheel.add(start + delay, 7);
                let due = (start + delay).div_ceil(TICK_MS) * TICK_MS;
                assert_eq!(wheel.sleep_for(start), Some(due - start));
                assert!(fired(&mut wheel, start + delay - 1).is_empty(), "early");
                assert!(!wheel.expired(i));
                assert_eq!(fired(&mut wheel, due), [7]);
                assert!(wheel.expired(i));
                assert!(fired(&mut wheel, due + 100_000).is_empty(), "twice");
                assert_eq!(wheel.sleep_for(due), None);
            }
        }
    }

    #[test]
    fn a_deadline_already_past_fires_at_the_next_tick() {
        let mut wheel = TimerWheel::new(1000);
        wheel.add(10, 1);
        assert!(fired(&mut wheel, 1003).is_empty());
        assert_eq!(fired(&mut wheel, 1004), [1]);
    }

    #[test]
    fn a_deadline_days_away_is_kept_through_many_rounds() {
        const WEEK: u64 = 7 * 86_400_000;
        let mut wheel = TimerWheel::new(5);
        wheel.add(WEEK, 1);
        let (mut now, mut wakes) = (5, 0);
        let mut tokens = Vec::new();
        while tokens.is_empty() {
            now += wheel.sleep_for(now).expect("armed");
            wakes += 1;
            tokens = fired(&mut wheel, now);
        }
        assert_eq!((now, tokens), (WEEK, vec![1]));
        assert!(wakes <= WEEK / (TICK_MS * (SLOTS as u64 - 1)) + 2, "woke {wakes} times");
    }

    #[test]
    fn the_end_of_time_is_no_overflow() {
        let mut wheel = TimerWheel::new(0);
        let i = wheel.add(u64::MAX, 1);
        assert!(fired(&mut wheel, 1 << 40).is_empty());
        wheel.touch(i, u64::MAX - 1);
        assert!(wheel.sleep_for(1 << 40).is_some());
        wheel.remove(i);
        assert!(fired(&mut wheel, u64::MAX).is_empty());
        wheel.add(0, 2);
        assert_eq!(wheel.sleep_for(u64::MAX), Some(0));
    }

    #[test]
    fn touching_later_needs_no_relinking_and_earlier_is_obeyed() {
        let mut wheel = TimerWheel::new(0);
        let i = wheel.add(100, 1);
        for now in 1..50 {
            wheel.touch(i, now + 100);
            assert!(fired(&mut wheel, now).is_empty());
        }
        assert!(fired(&mut wheel, 148).is_empty());
        wheel.touch(i, 5000);
        wheel.touch(i, 160);
        assert_eq!(wheel.deadline(i), 160);
        assert_eq!(fired(&mut wheel, 160), [1]);
    }

    #[test]
    fn touch_and_rearm_revive_an_expired_entry() {
        let mut wheel = TimerWheel::new(0);
        let i = wheel.add(10, 1);
        assert_eq!(fired(&mut wheel, 12), [1]);
        wheel.touch(i, 20);
        assert!(!wheel.expired(i));
        assert_eq!(fired(&mut wheel, 20), [1]);
        wheel.rearm(i, 30, 9);
        assert_eq!(wheel.token(i), 9);
        assert_eq!(fired(&mut wheel, 32), [9]);
        wheel.set_token(i, 3);
        wheel.touch(i, 0);
        assert_eq!(fired(&mut wheel, 36), [3]);
    }

    #[test]
    fn indexes_are_used_again() {
        let mut wheel = TimerWheel::new(0);
        let all: Vec<u32> = (0..100).map(|n| wheel.add(n, n as u32)).collect();
        assert_eq!(wheel.live(), 100);
        for &i in &all {
            wheel.remove(i);
        }
        assert_eq!((wheel.live(), wheel.summary), (0, 0));
        let mut again: Vec<u32> = (0..100).map(|n| wheel.add(n, 0)).collect();
        again.sort_unstable();
        assert_eq!(again, all);
    }

    #[test]
    fn a_clock_that_steps_back_is_ignored() {
        let mut wheel = TimerWheel::new(10_000);
        assert!(fired(&mut wheel, 10).is_empty());
        wheel.add(10_001, 1);
        assert!(fired(&mut wheel, 20).is_empty());
        assert_eq!(fired(&mut wheel, 10_004), [1]);
    }

    #[derive(Debug, Clone)]
    enum Op {
        Add(u64),
        Remove(usize),
        Touch(usize, u64),
        Rearm(usize, u64),
        Advance(u64),
    }

    fn span() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0u64..50, 4 => 0u64..20_000, 2 => 16_370u64..16_400, 1 => 0u64..400_000_000]
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => span().prop_map(Op::Add),
            2 => any::<usize>().prop_map(Op::Remove),
            4 => (any::<usize>(), span()).prop_map(|(k, d)| Op::Touch(k, d)),
            2 => (any::<usize>(), span()).prop_map(|(k, d)| Op::Rearm(k, d)),
            5 => span().prop_map(Op::Advance),
        ]
    }

    /// What is true of one entry: when it must have fired at the latest (`None`: it has).
    struct Expected {
        deadline: u64,
        token: u32,
        latest: Option<u64>,
    }

    /// The wheel beside a map of what must hold.
    struct Model {
        wheel: TimerWheel,
        now: u64,
        entries: BTreeMap<u32, Expected>,
        tokens: u32,
    }

    impl Model {
        fn apply(&mut self, op: &Op) {
            match *op {
                Op::Add(delay) => {
                    let (deadline, token) = self.next(delay);
                    let i = self.wheel.add(deadline, token);
                    assert!(self.entries.insert(i, self.armed(deadline, token)).is_none(), "index in use");
                }
                Op::Remove(k) => {
                    if let Some(i) = self.pick(k) {
                        self.entries.remove(&i);
                        self.wheel.remove(i);
                    }
                }
                Op::Touch(k, delay) => {
                    if let Some(i) = self.pick(k) {
                        let (deadline, token) = (self.now + delay, self.entries[&i].token);
                        self.wheel.touch(i, deadline);
                        self.entries.insert(i, self.armed(deadline, token));
                    }
                }
                Op::Rearm(k, delay) => {
                    if let Some(i) = self.pick(k) {
                        let (deadline, token) = self.next(delay);
                        self.wheel.rearm(i, deadline, token);
                        self.entries.insert(i, self.armed(deadline, token));
                    }
                }
                Op::Advance(by) => self.advance(by),
            }
            self.check_sleep();
        }

        fn advance(&mut self, by: u64) {
            self.now += by;
            for token in fired(&mut self.wheel, self.now) {
                let e = self.entries.values_mut().find(|e| e.token == token).expect("token of a live entry");
                assert!(e.deadline <= self.now, "early");
                assert!(e.latest.take().is_some(), "twice");
            }
            for (&i, e) in &self.entries {
                assert!(e.latest.is_none_or(|at| at > self.now), "late: {} at {}", e.deadline, self.now);
                assert_eq!(self.wheel.expired(i), e.latest.is_none());
                assert_eq!(self.wheel.deadline(i), e.deadline);
            }
        }

        fn check_sleep(&self) {
            let sleep = self.wheel.sleep_for(self.now);
            if let Some(first) = self.entries.values().filter_map(|e| e.latest).min() {
                let wake = self.now + sleep.expect("something is armed");
                assert!(wake <= first.max(self.now), "would sleep to {wake}, past {first}");
            }
        }

        /// The next multiple of the tick after the later of deadline and now.
        fn armed(&self, deadline: u64, token: u32) -> Expected {
            let tick = deadline.div_ceil(TICK_MS).max(self.now / TICK_MS + 1);
            Expected { deadline, token, latest: Some(tick * TICK_MS) }
        }

        fn next(&mut self, delay: u64) -> (u64, u32) {
            self.tokens += 1;
            (self.now + delay, self.tokens)
        }

        fn pick(&self, k: usize) -> Option<u32> {
            self.entries.keys().nth(k % self.entries.len().max(1)).copied()
        }
    }

    proptest! {
        #[test]
        fn never_early_at_most_a_tick_late(start in 0u64..100_000, ops in prop::collection::vec(op(), 1..200)) {
            let mut model = Model { wheel: TimerWheel::new(start), now: start, entries: BTreeMap::new(), tokens: 0 };
            for op in &ops {
                model.apply(op);
            }
        }
    }
}
