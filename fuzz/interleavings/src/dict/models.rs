//! What threads do with a dictionary's entries, and what must hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_epoch as epoch;
use loom::thread;
use weir_rt::zone_memory::ZonePlace;

use crate::Model;
use crate::dict::mark::MarkVersion;
use crate::dict::node::{DictNode, NodeChange};
use crate::dict::stripe::DictStripe;
use crate::dict::value::ValueGlimpse;
use crate::dict::{NEVER, NewValue, SMALL, SeenValue, spare_marks};

pub(crate) const MODELS: &[Model] = &[
    ("dictionary: a value is read whole", Some(2), a_value_is_read_whole),
    ("dictionary: of two writers each has its turn", Some(3), each_writer_has_its_turn),
    ("dictionary: a mark says whether a value is still the entry's", Some(3), a_mark_tells),
    ("dictionary: a key is there once", Some(3), a_key_is_there_once),
    ("dictionary: what is removed is not read any more", Some(2), removed),
    ("dictionary: no chore is left", Some(3), no_chore_is_left),
];

const KEY: &[u8] = b"key";
const OTHER: &[u8] = b"other";
const HASH: u64 = 1;

struct Entries(DictStripe);

impl Entries {
    /// With one chain.
    fn new() -> Arc<Entries> {
        Arc::new(Entries(DictStripe::new(1, ZonePlace::HEAP)))
    }

    /// With [`KEY`], whose value is all of `byte`.
    fn with(byte: u8) -> Arc<Entries> {
        let entries = Entries::new();
        assert!(entries.insert(KEY, byte, 0));
        entries
    }

    /// As `SharedDict::set` where the key is absent.
    fn insert(&self, key: &[u8], byte: u8, number: u64) -> bool {
        let guard = epoch::pin();
        let (found, head) = self.0.find(HASH, key, &guard);
        if found.is_some() {
            return false;
        }
        let text = text(byte);
        let node = DictNode::new(HASH, key, &change(&text, byte), number, ZonePlace::HEAP);
        self.0.insert(&head, node, &guard)
    }

    /// As `SharedDict::set` where the key is there; whether it was done at the first attempt.
    fn set(&self, byte: u8) -> bool {
        let guard = epoch::pin();
        let Some(found) = self.0.find(HASH, KEY, &guard).0 else { return false };
        let state = found.value.peek().0;
        found.change(state, &change(&text(byte), byte), ZonePlace::HEAP, &guard).is_some()
    }

    /// As `SharedDict::update`, one attempt: a value that is greater by one.
    fn raise(&self) -> bool {
        let guard = epoch::pin();
        let found = self.0.find(HASH, KEY, &guard).0.expect("it is there");
        let glimpse_state;
        let mut scratch = [0; SMALL];
        let byte = {
            let glimpse = found.value.read(&mut scratch);
            glimpse_state = glimpse.state;
            whole(&glimpse) + 1
        };
        found.change(glimpse_state, &change(&text(byte), byte), ZonePlace::HEAP, &guard).is_some()
    }

    fn remove(&self, key: &[u8]) -> bool {
        let guard = epoch::pin();
        let Some(found) = self.0.find(HASH, key, &guard).0 else { return false };
        self.0.remove(&found, found.value.peek().0, &guard).is_some()
    }

    /// As `SharedDict::get`: the byte of the value, which is whole, and its version.
    fn get(&self) -> Option<(u8, Option<MarkVersion>)> {
        let guard = epoch::pin();
        let found = self.0.find(HASH, KEY, &guard).0?;
        let before = found.node.marked.version();
        let mut scratch = [0; SMALL];
        let glimpse = found.value.read(&mut scratch);
        let version = if glimpse.is_quiet() { found.node.marked.confirm(before) } else { None };
        if glimpse.is_quiet() && found.node.marked.wants_mark() {
            found.node.marked.give_mark();
        }
        Some((whole(&glimpse), version))
    }

    /// Whether what was read with that version is taken for the value, as compiled Lua does.
    fn holds(&self, version: Option<MarkVersion>) -> bool {
        let guard = epoch::pin();
        let found = self.0.find(HASH, KEY, &guard).0.expect("it is there");
        let now = found.node.marked.version();
        version.zip(now).is_some_and(|(then, now)| then.version == now.version)
    }
}

fn text(byte: u8) -> [u8; 9] {
    [byte; 9]
}

fn change(text: &[u8], byte: u8) -> NodeChange<'_> {
    NodeChange { value: NewValue::Text(text), flags: byte.into(), expires: NEVER }
}

fn whole(glimpse: &ValueGlimpse<'_>) -> u8 {
    let byte = glimpse.flags as u8;
    assert_eq!(glimpse.seen, SeenValue::Text(&text(byte)), "it is not whole");
    byte
}

/// Runs `other` beside what follows.
fn beside<T: 'static>(
    entries: &Arc<Entries>,
    other: impl FnOnce(&Entries) -> T + 'static,
) -> thread::JoinHandle<T> {
    let entries = entries.clone();
    thread::spawn(move || other(&entries))
}

/// The order is over; all of it is dropped.
fn finish(entries: Arc<Entries>) {
    drop(entries);
    epoch::finish();
    spare_marks::finish();
}

fn a_value_is_read_whole() {
    let entries = Entries::with(0);
    let writer = beside(&entries, |entries| assert!(entries.set(1) && entries.set(2)));
    let seen = [entries.get(), entries.get()].map(|read| read.expect("it is there").0);
    assert!(seen.is_sorted(), "{seen:?}");
    writer.join().expect("no panic");
    assert_eq!(entries.get().map(|read| read.0), Some(2));
    finish(entries);
}

/// A change that was refused has not happened, and one that was made is not lost to one that began before it.
fn each_writer_has_its_turn() {
    let entries = Entries::with(0);
    let writer = beside(&entries, Entries::raise);
    let mine = entries.raise();
    let others = writer.join().expect("no panic");
    assert!(mine || others, "both were refused");
    let last = entries.get().expect("it is there").0;
    assert_eq!(last, u8::from(mine) + u8::from(others), "a change is lost");
    finish(entries);
}

/// A thread that knows that a change is done does not take what it has read before for the entry's value.
fn a_mark_tells() {
    let entries = Entries::with(0);
    // It is read so often that it has a mark.
    for _ in 0..3 {
        entries.get();
    }
    let done = Arc::new(AtomicBool::new(false));
    let says = done.clone();
    let writer = beside(&entries, move |entries| {
        assert!(entries.set(1));
        says.store(true, Ordering::Release);
    });
    let (byte, version) = entries.get().expect("it is there");
    let seen = entries.get().expect("it is there").0;
    assert!(seen == byte || !entries.holds(version), "it is taken for the value after the next one was seen");
    let is_done = done.load(Ordering::Acquire);
    assert!(!is_done || byte == 1 || !entries.holds(version), "it is taken for the value, which has changed");
    writer.join().expect("no panic");
    assert!(byte == 1 || !entries.holds(version), "it is taken for the value, which has changed");
    finish(entries);
}

fn a_key_is_there_once() {
    let entries = Entries::new();
    let other = beside(&entries, |entries| entries.insert(KEY, 1, 1));
    let mine = entries.insert(KEY, 2, 2);
    let others = other.join().expect("no panic");
    assert!(mine || others, "neither was first");
    assert_eq!(entries.0.entries(), usize::from(mine) + usize::from(others));
    assert_eq!(entries.0.entries(), 1, "it is there twice");
    let byte = entries.get().expect("it is there").0;
    assert!(byte == if mine { 2 } else { 1 });
    finish(entries);
}

fn removed() {
    let entries = Entries::with(0);
    let other = beside(&entries, |entries| entries.remove(KEY));
    let seen = entries.get();
    let set = entries.set(1);
    let removed = other.join().expect("no panic");
    assert!(seen.is_none_or(|(byte, _)| byte == 0));
    assert_eq!(entries.get().map(|read| read.0), (!removed).then_some(u8::from(set)));
    finish(entries);
}

/// What a thread has left for the holder of the order is done by one of the two.
fn no_chore_is_left() {
    let entries = Entries::with(0);
    assert!(entries.insert(OTHER, 1, 1));
    let other = beside(&entries, |entries| entries.remove(OTHER));
    assert!(entries.remove(KEY) && other.join().expect("no panic"));
    assert_eq!(epoch::deferred(), 4, "two values and two nodes: one is left in its chain");
    finish(entries);
}
