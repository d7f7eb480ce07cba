//! Names that a signal handler finds: chunks and functions of a language inside of the program, by number.
//!
//! What a name belongs to may be gone when a stack is read, so the handler resolves it; and what resolves must neither
//! lock nor allocate. So the table has a fixed size, a slot is claimed by its hash, and a slot once written never
//! changes. Two names with one hash of 64 bits would be taken for one.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// The number of a name, given to it when it is first seen; 0 when there is no room for another. Async-signal-safe.
pub fn number(name: &[u8]) -> u32 {
    let hash = hash(name);
    let first = hash as usize % SLOTS;
    for n in 0..PROBES {
        let at = (first + n) % SLOTS;
        let slot = &TABLE[at];
        match slot.hash.compare_exchange(0, hash, Relaxed, Relaxed) {
            Ok(_) => slot.write(name),
            Err(other) if other == hash => {}
            Err(_) => continue,
        }
        return at as u32 + 1;
    }
    0
}

/// The name of that number; long ones without their middle. `None` for 0 and for one that is being written.
pub fn name(number: u32) -> Option<String> {
    TABLE.get((number as usize).checked_sub(1)?)?.read()
}

/// Whether the name has a number.
pub fn is_known(name: &[u8]) -> bool {
    let hash = hash(name);
    let first = hash as usize % SLOTS;
    (0..PROBES).any(|n| TABLE[(first + n) % SLOTS].hash.load(Relaxed) == hash)
}

struct NameSlot {
    /// 0 while it is free.
    hash: AtomicU64,
    /// One more than the length, 0 before that is written.
    length: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl NameSlot {
    const fn new() -> NameSlot {
        NameSlot {
            hash: AtomicU64::new(0),
            length: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    fn write(&self, name: &[u8]) {
        let mut bytes = [0; 8 * WORDS];
        let length = shorten(name, &mut bytes);
        for (word, bytes) in self.words.iter().zip(bytes.chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().expect("chunks of eight")), Relaxed);
        }
        self.length.store(length as u64 + 1, Release);
    }

    fn read(&self) -> Option<String> {
        let length = self.length.load(Acquire).checked_sub(1)? as usize;
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        Some(String::from_utf8_lossy(bytes.get(..length)?).into_owned())
    }
}

/// Puts `name` into `out`, with an ellipsis for its middle where it is too long; how long that is.
fn shorten(name: &[u8], out: &mut [u8; 8 * WORDS]) -> usize {
    if name.len() <= out.len() {
        out[..name.len()].copy_from_slice(name);
        return name.len();
    }
    let (head, tail) = (16, out.len() - 16 - 3);
    out[..head].copy_from_slice(&name[..head]);
    out[head..head + 3].copy_from_slice(b"...");
    out[head + 3..].copy_from_slice(&name[name.len() - tail..]);
    out.len()
}

/// FNV-1a by eight bytes at a time; never 0.
fn hash(name: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ name.len() as u64;
    let mut mix = |word: u64| {
        hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        hash ^= hash >> 29;
    };
    let (words, rest) = name.as_chunks::<8>();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    rest.iter().for_each(|byte| mix(u64::from(*byte)));
    hash.max(1)
}

/// Different names at most; a program that makes up more shows them without.
const SLOTS: usize = 4096;
/// How many slots are looked at for a name.
const PROBES: usize = 64;
/// Of a name, eight bytes each.
const WORDS: usize = 12;

static TABLE: [NameSlot; SLOTS] = [const { NameSlot::new() }; SLOTS];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_on_all_threads() {
        let names: Vec<String> = (0..200).map(|n| format!("=names_test({n})")).collect();
        let numbers = |names: &[String]| names.iter().map(|name| number(name.as_bytes())).collect::<Vec<_>>();
        let all: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| numbers(&names))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(all.iter().all(|one| *one == all[0]));
        let read: Vec<_> = all[0].iter().map(|number| name(*number).expect("written")).collect();
        assert_eq!(read, names);
        assert!(names.iter().all(|name| is_known(name.as_bytes())) && !is_known(b"=names_test(none)"));
        assert!(!all[0].contains(&0) && name(0).is_none() && name(u32::MAX).is_none());
    }

    #[test]
    fn long_names_keep_both_ends() {
        let long = format!("@/{}/tail.lua", "x".repeat(300));
        let shown = name(number(long.as_bytes())).expect("written");
        assert_eq!(shown.len(), 8 * WORDS);
        assert!(
            shown.starts_with("@/xxx") && shown.contains("...x") && shown.ends_with("/tail.lua"),
            "{shown}"
        );
        assert_eq!(name(number(b"")).as_deref(), Some(""));
    }
}
