//! What entries hold. A short value is exchanged in place, any other one is replaced with the object that holds it.
//!
//! **No writer waits for another one**, wherever that has been stopped: a thread that finds a change half done leaves
//! it where it is, seals the object against its end, and puts another object in its place.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use weir_rt::zone_memory::{ZonePlace, ZoneSlice};

use crate::dict::list::ItemList;
use crate::dict::{NEVER, NewValue, SeenValue};

/// The value of an entry with its flags and the end of its life. Laid out as [`crate::dict::survivors`] reads it.
#[repr(u64)]
pub(super) enum EntryValue {
    Small(SmallValue) = SMALL_VALUE,
    Text(LongTextValue) = TEXT_VALUE,
    List(ListValue) = LIST_VALUE,
}

/// A text that is too long to be exchanged in place.
#[repr(C)]
pub(super) struct LongTextValue {
    pub(super) text: ZoneSlice<u8>,
    pub(super) flags: u32,
    pub(super) expires: AtomicU64,
}

#[repr(C)]
pub(super) struct ListValue {
    pub(super) items: ItemList,
    pub(super) flags: u32,
    pub(super) expires: AtomicU64,
}

/// What is read of a value at one moment.
#[derive(Clone, Copy)]
pub(super) struct ValueGlimpse<'s> {
    pub(super) seen: SeenValue<'s>,
    pub(super) flags: u32,
    pub(super) expires: u64,
    /// The state in which it was.
    pub(super) state: u64,
}

impl ValueGlimpse<'_> {
    /// Whether no writer had begun to change it: of a value that is exchanged in place. Of any other one nothing is
    /// remembered.
    pub(super) fn is_quiet(&self) -> bool {
        self.state & (BUSY | SEALED) == 0
    }
}

/// Where a reader copies a small value to.
pub(crate) type ValueScratch = [u8; SMALL];

/// Bytes of the longest text that is exchanged in place.
pub(crate) const SMALL: usize = 256;

impl EntryValue {
    /// `expires`: milliseconds, or [`NEVER`].
    pub(super) fn new(value: &NewValue<'_>, flags: u32, expires: u64, place: ZonePlace) -> EntryValue {
        match value {
            NewValue::Text(text) if text.len() > SMALL => {
                let text = ZoneSlice::copy(text, place);
                EntryValue::Text(LongTextValue { text, flags, expires: AtomicU64::new(expires) })
            }
            NewValue::List(items) => {
                let items = items.clone();
                EntryValue::List(ListValue { items, flags, expires: AtomicU64::new(expires) })
            }
            value => EntryValue::Small(SmallValue::new(value, flags, expires, place)),
        }
    }

    /// All of it, which belongs together whatever writers do meanwhile.
    pub(super) fn read<'s>(&'s self, scratch: &'s mut ValueScratch) -> ValueGlimpse<'s> {
        let (seen, flags, expires) = match self {
            EntryValue::Small(small) => return small.read(scratch),
            EntryValue::Text(LongTextValue { text, flags, expires }) => {
                (SeenValue::Text(text), *flags, expires)
            }
            EntryValue::List(ListValue { flags, expires, .. }) => (SeenValue::List, *flags, expires),
        };
        ValueGlimpse { seen, flags, expires: expires.load(Ordering::Relaxed), state: SEALED }
    }

    /// As [`EntryValue::read`] without the value: its state, when it expires, and the bytes it counts for.
    pub(super) fn peek(&self) -> (u64, u64, usize) {
        match self {
            EntryValue::Small(small) => small.peek(),
            EntryValue::Text(LongTextValue { text, expires, .. }) => {
                (SEALED, expires.load(Ordering::Relaxed), text.len())
            }
            EntryValue::List(ListValue { items, expires, .. }) => {
                (SEALED, expires.load(Ordering::Relaxed), items.bytes())
            }
        }
    }

    /// Takes care that nothing changes it from `state` on: `false`, it has changed already.
    pub(super) fn seal(&self, state: u64) -> bool {
        match self {
            EntryValue::Small(small) => small.seal(state),
            EntryValue::Text(_) | EntryValue::List(_) => true,
        }
    }
}

/// A short text, a number or a boolean, in one of two slots: a writer marks it as [busy](BUSY), fills the slot that is not
/// current, and makes that the current one. A reader copies what is current and looks whether it still is; so it waits for
/// no thread, and begins again only when a whole value was written meanwhile. A writer that finds another one at work
/// [seals](SEALED) it: that one's change fails, and what is current stays.
#[repr(C)]
pub(super) struct SmallValue {
    /// The lowest bit is the slot, then [`BUSY`] and [`SEALED`]; the rest counts.
    pub(super) state: AtomicU64,
    /// Two slots. Each: flags, kind and length; when it expires; the bytes.
    pub(super) words: ZoneSlice<AtomicU64>,
}

impl SmallValue {
    fn new(value: &NewValue<'_>, flags: u32, expires: u64, place: ZonePlace) -> SmallValue {
        let len = if let NewValue::Text(text) = value { text.len() } else { 0 };
        let words = 2 * (HEAD + len.div_ceil(16).max(1) * 2);
        let words = ZoneSlice::from_fn(words, place, |_| AtomicU64::new(0));
        let small = SmallValue { state: AtomicU64::new(0), words };
        small.fill(small.slot(0), value, flags, expires);
        small
    }

    fn slot(&self, state: u64) -> &[AtomicU64] {
        let (one, other) = self.words.split_at(self.words.len() / 2);
        if state & SLOT == 0 { one } else { other }
    }

    /// Whether the value fits in the place of its own.
    pub(super) fn takes(&self, value: &NewValue<'_>) -> bool {
        match value {
            NewValue::Text(text) => text.len() <= (self.words.len() / 2 - HEAD) * 8,
            NewValue::Number(_) | NewValue::Boolean(_) => true,
            NewValue::List(_) => false,
        }
    }

    /// Whether this is its value already, and no writer is about to change that.
    pub(super) fn holds(&self, state: u64, value: &NewValue<'_>, flags: u32, expires: u64) -> bool {
        let NewValue::Text(text) = value else { return false };
        if state & (BUSY | SEALED) != 0 {
            return false;
        }
        let slot = self.slot(state);
        let is = |at: usize, word: u64| slot[at].load(Ordering::Relaxed) == word;
        let (words, rest) = text.as_chunks::<8>();
        is(0, head_of(flags, TEXT, text.len() as u64))
            && is(1, expires)
            && words.iter().zip(HEAD..).all(|(word, at)| is(at, u64::from_ne_bytes(*word)))
            && (rest.is_empty() || is(HEAD + words.len(), last_word(rest)))
            && self.is(state)
    }

    /// Whether the state is still that one, after reads of a slot.
    fn is(&self, state: u64) -> bool {
        fence(Ordering::Acquire);
        self.state.load(Ordering::Relaxed) == state
    }

    /// Begins to change it from a state in which no writer is at work; `false`: that is over.
    pub(super) fn claim(&self, state: u64) -> bool {
        state & (BUSY | SEALED) == 0
            && self.state.compare_exchange(state, state | BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends the change that was [begun](SmallValue::claim) from `state`, with a value that it [takes](SmallValue::takes); `false`:
    /// another writer has sealed it, nothing has changed.
    pub(super) fn finish(&self, state: u64, value: &NewValue<'_>, flags: u32, expires: u64) -> bool {
        let next = ((state & !(SLOT | BUSY | SEALED)) + COUNTED) | (!state & SLOT);
        // A reader that sees any of what follows sees that the slot is not current any more.
        fence(Ordering::Release);
        self.fill(self.slot(next), value, flags, expires);
        self.state.compare_exchange(state | BUSY, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn seal(&self, state: u64) -> bool {
        state & SEALED != 0
            || self.state.compare_exchange(state, state | SEALED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn fill(&self, slot: &[AtomicU64], value: &NewValue<'_>, flags: u32, expires: u64) {
        let (kind, len) = match value {
            NewValue::Text(text) => {
                let (words, rest) = text.as_chunks::<8>();
                let put =
                    |at: usize, word| slot[HEAD + at].store(u64::from_ne_bytes(word), Ordering::Relaxed);
                words.iter().enumerate().for_each(|(at, word)| put(at, *word));
                if !rest.is_empty() {
                    slot[HEAD + words.len()].store(last_word(rest), Ordering::Relaxed);
                }
                (TEXT, text.len() as u64)
            }
            NewValue::Number(number) => {
                slot[HEAD].store(number.to_bits(), Ordering::Relaxed);
                (NUMBER, 8)
            }
            NewValue::Boolean(value) => {
                slot[HEAD].store(u64::from(*value), Ordering::Relaxed);
                (BOOLEAN, 8)
            }
            NewValue::List(_) => unreachable!("what `takes` refuses is not written"),
        };
        slot[0].store(head_of(flags, kind, len), Ordering::Relaxed);
        slot[1].store(expires, Ordering::Relaxed);
    }

    /// What is current, and the state in which it was, after `copy` of its slot.
    fn current<T>(&self, mut copy: impl FnMut(&[AtomicU64]) -> T) -> (u64, T) {
        loop {
            let state = self.state.load(Ordering::Acquire);
            let copied = copy(self.slot(state));
            fence(Ordering::Acquire);
            let after = self.state.load(Ordering::Relaxed);
            // That a writer has begun, or was refused, changes nothing in the slot.
            if (after | BUSY | SEALED) == (state | BUSY | SEALED) {
                return (after, copied);
            }
        }
    }

    /// As [`EntryValue::peek`].
    pub(super) fn peek(&self) -> (u64, u64, usize) {
        let (state, (head, expires)) =
            self.current(|slot| (slot[0].load(Ordering::Relaxed), slot[1].load(Ordering::Relaxed)));
        (state, expires, size_of(head))
    }

    fn read<'s>(&self, scratch: &'s mut ValueScratch) -> ValueGlimpse<'s> {
        let (state, (head, expires)) = self.current(|slot| {
            let (head, expires) = (slot[0].load(Ordering::Relaxed), slot[1].load(Ordering::Relaxed));
            // A head that a writer was in the middle of may be longer than the slot; it is read again.
            let words = slot[HEAD..].iter().take(len_of(head).div_ceil(8));
            for (word, to) in words.zip(scratch.as_chunks_mut::<8>().0) {
                *to = word.load(Ordering::Relaxed).to_ne_bytes();
            }
            (head, expires)
        });
        let number = u64::from_ne_bytes(*scratch.first_chunk().expect("it is longer"));
        let seen = match head >> 16 & 0xffff {
            TEXT => SeenValue::Text(&scratch[..len_of(head)]),
            NUMBER => SeenValue::Number(f64::from_bits(number)),
            _ => SeenValue::Boolean(number != 0),
        };
        ValueGlimpse { seen, flags: (head >> 32) as u32, expires, state }
    }
}

/// Whether what expires then has.
pub(super) fn is_over(expires: u64, now: u64) -> bool {
    expires != NEVER && expires <= now
}

fn head_of(flags: u32, kind: u64, len: u64) -> u64 {
    u64::from(flags) << 32 | kind << 16 | len
}

/// The word of a text's last bytes, less than eight.
fn last_word(rest: &[u8]) -> u64 {
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    u64::from_ne_bytes(last)
}

/// The bytes of a slot's value, from its first word.
fn len_of(head: u64) -> usize {
    (head & 0xffff) as usize
}

/// As [`NewValue::size`].
fn size_of(head: u64) -> usize {
    if head >> 16 & 0xffff == BOOLEAN { 1 } else { len_of(head) }
}

/// The kinds of values as numbers.
pub(super) const SMALL_VALUE: u64 = 1;
pub(super) const TEXT_VALUE: u64 = 2;
pub(super) const LIST_VALUE: u64 = 3;
/// Which slot is current.
pub(super) const SLOT: u64 = 1;
/// A writer is at work.
const BUSY: u64 = 2;
/// What is current stays.
const SEALED: u64 = 4;
/// The rest counts.
const COUNTED: u64 = 8;
/// Words of a slot before its bytes.
pub(super) const HEAD: usize = 2;
pub(super) const TEXT: u64 = 0;
pub(super) const NUMBER: u64 = 1;
pub(super) const BOOLEAN: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn write(small: &SmallValue, value: &NewValue<'_>, flags: u32, expires: u64) -> bool {
        let (state, ..) = small.peek();
        small.takes(value) && small.claim(state) && small.finish(state, value, flags, expires)
    }

    fn small(text: &[u8]) -> SmallValue {
        SmallValue::new(&NewValue::Text(text), 7, NEVER, ZonePlace::HEAP)
    }

    /// Two values that have nothing in common but their length: a reader sees one of them whole, with its flags.
    #[test]
    fn a_reader_sees_one_value_or_the_other() {
        let values = [[b'a'; 40], [b'b'; 40]];
        let small = SmallValue::new(&NewValue::Text(&values[0]), 0, 0, ZonePlace::HEAP);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..50_000 {
                    let which = round & 1;
                    assert!(write(&small, &NewValue::Text(&values[which]), which as u32, which as u64));
                }
            });
            while !writer.is_finished() {
                let mut scratch = [0; SMALL];
                let ValueGlimpse { seen, flags, expires, .. } = small.read(&mut scratch);
                assert_eq!(expires, u64::from(flags));
                assert!(matches!(seen, SeenValue::Text(text) if text == values[flags as usize]));
            }
        });
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let small = small(b"0123456789abcdef");
        let mut scratch = [0; SMALL];
        assert!(!write(&small, &NewValue::Text(b"0123456789abcdefg"), 0, NEVER));
        let read = small.read(&mut scratch);
        assert!(matches!(
            read,
            ValueGlimpse { seen: SeenValue::Text(b"0123456789abcdef"), flags: 7, expires: NEVER, .. }
        ));
        assert!(write(&small, &NewValue::Text(b""), 0, 5));
        assert!(matches!(
            small.read(&mut scratch),
            ValueGlimpse { seen: SeenValue::Text(b""), flags: 0, expires: 5, .. }
        ));
        assert!(write(&small, &NewValue::Number(1.5), 0, NEVER));
        let read = small.read(&mut scratch);
        assert!(matches!(read, ValueGlimpse { seen: SeenValue::Number(1.5), flags: 0, expires: NEVER, .. }));
    }

    /// A writer that is passed by finds its change refused, however late it comes, and what is current stays.
    #[test]
    fn a_sealed_value_stays() {
        let small = small(b"before");
        let (state, ..) = small.peek();
        assert!(small.claim(state) && !small.claim(state));
        let (busy, ..) = small.peek();
        assert!(!small.claim(busy) && small.seal(busy));
        assert!(!small.finish(state, &NewValue::Text(b"late"), 0, NEVER));
        assert!(matches!(small.read(&mut [0; SMALL]).seen, SeenValue::Text(b"before")));
        let (sealed, ..) = small.peek();
        assert!(!small.claim(sealed) && !small.holds(sealed, &NewValue::Text(b"before"), 7, NEVER));
    }

    #[test]
    fn a_state_counts_and_changes_its_slot() {
        let small = small(b"a");
        let mut seen = Vec::new();
        for number in 0..5 {
            let (state, ..) = small.peek();
            assert_eq!((state & 1, state & (BUSY | SEALED)), (number & 1, 0));
            seen.push(state);
            assert!(write(&small, &NewValue::Number(number as f64), 0, NEVER));
        }
        assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
    }
}
