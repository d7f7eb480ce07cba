//! Entries: keys that stay as they were made, and values that are exchanged in place where they fit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_epoch::Atomic;

use super::mark::Marked;
use super::{Item, NEVER, New, Seen};

/// An entry. Key and number stay as they were made; all else is changed by who holds the stripe.
pub(super) struct Node {
    pub(super) hash: u64,
    pub(super) key: Box<[u8]>,
    content: Content,
    /// How compiled code sees whether the value is still the same.
    pub(super) marked: Marked,
    /// The stamp of its last use, but for those by compiled code.
    used: AtomicU64,
    /// Bytes that it counts for.
    pub(super) size: AtomicU64,
    /// Tells it from others that had its key.
    pub(super) number: u64,
    pub(super) next: Atomic<Node>,
}

enum Content {
    Small(Small),
    Text {
        text: Box<[u8]>,
        flags: u32,
        expires: AtomicU64,
    },
    /// From left to right. Changed in place, by who holds the stripe.
    List {
        list: Mutex<VecDeque<Item>>,
        flags: u32,
        expires: AtomicU64,
    },
}

/// Where a reader copies a small value to.
pub(crate) type Scratch = [u8; SMALL];

/// Bytes of the longest text that is exchanged in place.
pub(crate) const SMALL: usize = 256;

impl Node {
    /// A node with no stamp and no place in a chain yet. `expires`: milliseconds, or [`NEVER`].
    pub(super) fn new(
        hash: u64,
        key: &[u8],
        value: New<'_>,
        flags: u32,
        expires: u64,
        size: u64,
        number: u64,
    ) -> Node {
        let content = match value {
            New::Text(text) if text.len() > SMALL => {
                Content::Text { text: text.into(), flags, expires: AtomicU64::new(expires) }
            }
            New::List(list) => {
                Content::List { list: Mutex::new(list), flags, expires: AtomicU64::new(expires) }
            }
            value => {
                let small = Small::for_text(if let New::Text(text) = value { text.len() } else { 0 });
                small.write(&value, flags, expires);
                Content::Small(small)
            }
        };
        let (used, size) = (AtomicU64::new(0), AtomicU64::new(size));
        let (key, marked, next) = (key.into(), Marked::default(), Atomic::null());
        Node { hash, key, content, marked, used, size, number, next }
    }

    /// Whether compiled code should be able to see that the value is still the same.
    pub(super) fn wants_mark(&self) -> bool {
        self.marked.wants_mark() && matches!(self.content, Content::Small(_))
    }

    /// Notes its last use.
    pub(super) fn use_at(&self, stamp: u64) {
        self.used.store(stamp, Ordering::Relaxed);
    }

    /// The stamp of its last use.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed).max(self.marked.used())
    }

    /// The value, its flags and when it expires, which belong together whatever writers do meanwhile.
    pub(super) fn read<'s>(&'s self, scratch: &'s mut Scratch) -> (Seen<'s>, u32, u64) {
        match &self.content {
            Content::Small(small) => small.read(scratch),
            Content::Text { text, flags, expires } => {
                (Seen::Text(text), *flags, expires.load(Ordering::Relaxed))
            }
            Content::List { flags, expires, .. } => (Seen::List, *flags, expires.load(Ordering::Relaxed)),
        }
    }

    /// Gives the entry another value in place of its own, if that fits there; by who holds the stripe.
    pub(super) fn exchange(&self, value: &New<'_>, flags: u32, expires: u64) -> bool {
        match &self.content {
            Content::Small(small) if small.holds(value, flags, expires) => true,
            Content::Small(small) if small.takes(value) => {
                let _change = self.marked.change();
                small.write(value, flags, expires);
                true
            }
            _ => false,
        }
    }

    /// The list, if it is one.
    pub(super) fn list(&self) -> Option<MutexGuard<'_, VecDeque<Item>>> {
        match &self.content {
            Content::List { list, .. } => Some(list.lock().unwrap_or_else(PoisonError::into_inner)),
            _ => None,
        }
    }

    /// Milliseconds; [`NEVER`] or when it expires.
    pub(super) fn expires(&self) -> u64 {
        self.expiry().load(Ordering::Relaxed)
    }

    /// Changes when it expires; by who holds the stripe.
    pub(super) fn expire(&self, expires: u64) {
        let _change = self.marked.change();
        self.expiry().store(expires, Ordering::Relaxed);
    }

    fn expiry(&self) -> &AtomicU64 {
        match &self.content {
            Content::Small(small) => &small.slot(small.current.load(Ordering::Acquire))[1],
            Content::Text { expires, .. } | Content::List { expires, .. } => expires,
        }
    }

    pub(super) fn is_expired(&self, now: u64) -> bool {
        is_over(self.expires(), now)
    }
}

/// Whether what expires then has.
pub(super) fn is_over(expires: u64, now: u64) -> bool {
    expires != NEVER && expires <= now
}

/// A short text, a number or a boolean, in one of two slots: a writer fills the other one, and then makes that the
/// current. A reader copies what is current and looks whether it still is; so it waits for nobody, and begins again only
/// when a whole value was written meanwhile.
struct Small {
    /// The lowest bit is the slot, the rest counts.
    current: AtomicU64,
    /// Two slots. Each: flags, kind and length; when it expires; the bytes.
    words: Box<[AtomicU64]>,
}

impl Small {
    /// One with room for a text of so many bytes.
    fn for_text(len: usize) -> Small {
        let words = 2 * (HEAD + len.div_ceil(16).max(1) * 2);
        Small { current: AtomicU64::new(0), words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    fn slot(&self, current: u64) -> &[AtomicU64] {
        let (one, other) = self.words.split_at(self.words.len() / 2);
        if current & 1 == 0 { one } else { other }
    }

    fn takes(&self, value: &New<'_>) -> bool {
        match value {
            New::Text(text) => text.len() <= (self.words.len() / 2 - HEAD) * 8,
            New::Number(_) | New::Boolean(_) => true,
            New::List(_) => false,
        }
    }

    /// Whether this is its value already; by who holds the stripe.
    fn holds(&self, value: &New<'_>, flags: u32, expires: u64) -> bool {
        let New::Text(text) = value else { return false };
        let slot = self.slot(self.current.load(Ordering::Relaxed));
        let is = |at: usize, word: u64| slot[at].load(Ordering::Relaxed) == word;
        let (words, rest) = text.as_chunks::<8>();
        is(0, head_of(flags, TEXT, text.len() as u64))
            && is(1, expires)
            && words.iter().zip(HEAD..).all(|(word, at)| is(at, u64::from_ne_bytes(*word)))
            && (rest.is_empty() || is(HEAD + words.len(), last_word(rest)))
    }

    /// By who holds the stripe, a value that it [takes](Small::takes).
    fn write(&self, value: &New<'_>, flags: u32, expires: u64) {
        let next = self.current.load(Ordering::Relaxed) + 1;
        let slot = self.slot(next);
        // A reader that sees any of what follows sees that the slot is not current any more.
        fence(Ordering::Release);
        let (kind, len) = match value {
            New::Text(text) => {
                let (words, rest) = text.as_chunks::<8>();
                let put =
                    |at: usize, word| slot[HEAD + at].store(u64::from_ne_bytes(word), Ordering::Relaxed);
                words.iter().enumerate().for_each(|(at, word)| put(at, *word));
                if !rest.is_empty() {
                    slot[HEAD + words.len()].store(last_word(rest), Ordering::Relaxed);
                }
                (TEXT, text.len() as u64)
            }
            New::Number(number) => {
                slot[HEAD].store(number.to_bits(), Ordering::Relaxed);
                (NUMBER, 8)
            }
            New::Boolean(value) => {
                slot[HEAD].store(u64::from(*value), Ordering::Relaxed);
                (BOOLEAN, 8)
            }
            New::List(_) => unreachable!("what `takes` refuses is not written"),
        };
        slot[0].store(head_of(flags, kind, len), Ordering::Relaxed);
        slot[1].store(expires, Ordering::Relaxed);
        self.current.store(next, Ordering::Release);
    }

    fn read<'s>(&self, scratch: &'s mut Scratch) -> (Seen<'s>, u32, u64) {
        let (head, expires) = loop {
            let current = self.current.load(Ordering::Acquire);
            let slot = self.slot(current);
            let (head, expires) = (slot[0].load(Ordering::Relaxed), slot[1].load(Ordering::Relaxed));
            let words = &slot[HEAD..][..len_of(head).div_ceil(8)];
            for (word, to) in words.iter().zip(scratch.as_chunks_mut::<8>().0) {
                *to = word.load(Ordering::Relaxed).to_ne_bytes();
            }
            fence(Ordering::Acquire);
            if self.current.load(Ordering::Relaxed) == current {
                break (head, expires);
            }
        };
        let number = u64::from_ne_bytes(*scratch.first_chunk().expect("it is longer"));
        let value = match head >> 16 & 0xffff {
            TEXT => Seen::Text(&scratch[..len_of(head)]),
            NUMBER => Seen::Number(f64::from_bits(number)),
            _ => Seen::Boolean(number != 0),
        };
        (value, (head >> 32) as u32, expires)
    }
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

/// Words of a slot before its bytes.
const HEAD: usize = 2;
const TEXT: u64 = 0;
const NUMBER: u64 = 1;
const BOOLEAN: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two values that have nothing in common but their length: whoever reads sees one of them whole, with its flags.
    #[test]
    fn a_reader_sees_one_value_or_the_other() {
        let small = Small::for_text(40);
        let values = [[b'a'; 40], [b'b'; 40]];
        small.write(&New::Text(&values[0]), 0, 0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..50_000 {
                    let which = round & 1;
                    small.write(&New::Text(&values[which]), which as u32, which as u64);
                }
            });
            while !writer.is_finished() {
                let mut scratch = [0; SMALL];
                let (value, flags, expires) = small.read(&mut scratch);
                assert_eq!(expires, u64::from(flags));
                assert!(matches!(value, Seen::Text(text) if text == values[flags as usize]));
            }
        });
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let node = Node::new(0, b"key", New::Text(b"0123456789abcdef"), 7, NEVER, 0, 1);
        let mut scratch = [0; SMALL];
        assert!(!node.exchange(&New::Text(b"0123456789abcdefg"), 0, NEVER));
        assert!(matches!(node.read(&mut scratch), (Seen::Text(b"0123456789abcdef"), 7, NEVER)));
        assert!(node.exchange(&New::Text(b""), 0, 5));
        assert!(matches!(node.read(&mut scratch), (Seen::Text(b""), 0, 5)));
        assert!(node.exchange(&New::Number(1.5), 0, NEVER) && node.list().is_none());
        assert!(matches!(node.read(&mut scratch), (Seen::Number(1.5), 0, NEVER)));
        let large = Node::new(0, b"key", New::Text(&[b'x'; SMALL + 1]), 0, NEVER, 0, 1);
        assert!(!large.exchange(&New::Boolean(true), 0, NEVER), "others may be reading it");
    }
}
