//! The timer wheel: deadlines in milliseconds, tokens out, no clock and no I/O of its own.
//!
//! One ring of 4096 slots, 4 ms each (16.4 s). Nearly every deadline of a server is moved many times before it
//! is reached (each receive pushes the idle timeout out), so [`Wheel::touch`] only stores the new deadline and
//! the hand re-places the entry when it meets it at its old slot. The same mechanism carries deadlines beyond
//! the horizon, at one re-placement per 16.4 s, which is why there is no second level.
//!
//! Promises: an entry never fires before its deadline, and it fires at the first [`Wheel::advance`] at or after
//! the next multiple of 4 ms following the later of its deadline and the moment it was armed.

/// Milliseconds per slot.
const TICK_MS: u64 = 4;
/// Slots of the ring: 64 words of 64, so that the next occupied slot is found through two levels of bits.
const SLOTS: usize = 4096;
const WORDS: usize = SLOTS / 64;
/// End of a list.
const NONE: u32 = u32::MAX;
/// `Entry::slot` of an entry that has fired and waits for `rearm`, `touch` or `remove`.
const EXPIRED: u32 = u32::MAX;
/// `Entry::slot` of an unused entry, chained through `next`.
const FREE: u32 = u32::MAX - 1;

/// 24 bytes: an idle keep-alive connection holds one of these.
#[derive(Clone, Copy)]
struct Entry {
    deadline_ms: u64,
    token: u32,
    slot: u32,
    prev: u32,
    next: u32,
}

const _: () = assert!(size_of::<Entry>() <= 24);

/// Deadlines of one worker. Entries are named by the index [`Wheel::add`] returned until [`Wheel::remove`];
/// using an index after its removal is a bug of the caller (caught in debug builds) but memory-safe.
pub(crate) struct Wheel {
    heads: Box<[u32; SLOTS]>,
    occupied: [u64; WORDS],
    /// Bit `w` is set while `occupied[w]` is not zero.
    summary: u64,
    entries: Vec<Entry>,
    free: u32,
    live: u32,
    /// The last tick whose slot has been emptied.
    hand: u64,
    /// No slot before this tick is occupied; may be early (an entry was removed), never late.
    next_due: u64,
}

impl Wheel {
    /// An empty wheel whose hand stands at `now_ms`.
    pub(crate) fn new(now_ms: u64) -> Wheel {
        Wheel {
            heads: Box::new([NONE; SLOTS]),
            occupied: [0; WORDS],
            summary: 0,
            entries: Vec::new(),
            free: NONE,
            live: 0,
            hand: now_ms / TICK_MS,
            next_due: u64::MAX,
        }
    }

    /// Arms a new entry; `token` comes back through [`Wheel::advance`].
    pub(crate) fn add(&mut self, deadline_ms: u64, token: u32) -> u32 {
        let entry = Entry { deadline_ms, token, slot: EXPIRED, prev: NONE, next: NONE };
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
    /// that has fired, links it anew.
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

    /// Changes who is told, and nothing else.
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

    /// Fires everything due at `now_ms`, at most once per entry, earlier ticks first. Two compares when nothing
    /// can be due. A `now_ms` before an earlier one is ignored.
    #[inline]
    pub(crate) fn advance(&mut self, now_ms: u64, fire: impl FnMut(u32)) {
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

    fn sweep(&mut self, target: u64, now_ms: u64, mut fire: impl FnMut(u32)) {
        loop {
            self.next_due = self.next_occupied();
            if self.next_due > target {
                break;
            }
            self.hand = self.next_due;
            let mut i = self.heads[slot_of(self.hand)];
            while i != NONE {
                let Entry { deadline_ms, token, next, .. } = *self.entry(i);
                self.unlink(i);
                if deadline_ms <= now_ms {
                    fire(token);
                } else {
                    self.link(i); // never into this slot again: `link` places it 1..SLOTS ticks ahead
                }
                i = next;
            }
        }
        self.hand = self.hand.max(target);
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
        let Entry { slot, prev, next, .. } = *self.entry(i);
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

    /// The first occupied tick after the hand; `u64::MAX` if there is none. Three word operations.
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
    fn entry(&self, i: u32) -> &Entry {
        &self.entries[i as usize]
    }

    #[inline]
    fn entry_mut(&mut self, i: u32) -> &mut Entry {
        &mut self.entries[i as usize]
    }
}

#[inline]
fn slot_of(tick: u64) -> usize {
    (tick % SLOTS as u64) as usize
}
