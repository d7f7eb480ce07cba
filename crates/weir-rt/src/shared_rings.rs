//! Rings of records in memory that outlives the process which writes them: a file without a name, made before the fork.
//! A process that is killed leaves what it had not settled, and the one that made the file reads it.
//!
//! Each ring has one writer, a thread; a record counts when the ring's head names its end. Another thread settles what it
//! has brought to safety: it notes what it [takes](MappedRings::taking), does its work, and gives the room back
//! ([`MappedRings::settled`]). A process that ends in between leaves both the records and how far they were taken.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use crate::process;

/// The rings as a file.
#[derive(Debug)]
pub struct SharedRings {
    file: File,
}

/// The rings as memory of the process that writes them.
#[derive(Debug)]
pub struct MappedRings {
    base: NonNull<u8>,
    /// A bit for each ring that has a writer.
    claimed: AtomicU64,
}

/// The writer of one ring. Dropped, another may have the ring.
#[derive(Debug)]
pub struct SharedRingWriter {
    rings: Arc<MappedRings>,
    index: usize,
    head: u64,
}

/// How far a ring is written: behind a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPosition {
    index: usize,
    end: u64,
}

/// A record that was not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsettledRecord {
    /// What its writer called it.
    pub kind: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// It was taken: what is done with it may have been done.
    pub taken: bool,
}

/// Number of rings.
const RINGS: usize = 64;
/// Bytes of a ring, a power of two.
const CAPACITY: usize = 64 << 10;
/// Words of the file's beginning that its user may use for what belongs to the records.
pub const NOTES: usize = 256;
/// Bytes of the file's beginning: the notes, and whether something is being taken.
const BEGINNING: usize = 4096;
/// Bytes of a ring's header: head, tail, taken.
const HEADER: usize = 64;
const TAKING: usize = NOTES * 8;
const WHOLE: usize = BEGINNING + RINGS * (HEADER + CAPACITY);
const HEAD: usize = 0;
const TAIL: usize = 8;
const TAKEN: usize = 16;

/// Where a ring begins.
fn ring(index: usize) -> usize {
    BEGINNING + index * (HEADER + CAPACITY)
}

/// Bytes that a record takes: a word for what it is, and whole words.
fn room_of(length: usize) -> usize {
    8 + length.next_multiple_of(8)
}

impl SharedRings {
    /// Empty rings; `name` is what the system shows of the file. Pages count when they are written.
    ///
    /// # Errors
    /// The errno of memfd_create(2) or ftruncate(2).
    pub fn new(name: &str) -> io::Result<SharedRings> {
        let file = process::memory_file(name)?;
        // Behind the rings is room for what their user writes to the file itself.
        file.set_len(WHOLE as u64)?;
        Ok(SharedRings { file })
    }

    /// Bytes at `at` behind the rings, for what is written seldom.
    ///
    /// # Errors
    /// The errno of pwrite(2).
    pub fn write_beside(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, WHOLE as u64 + at)
    }

    /// What [`SharedRings::write_beside`] has written.
    ///
    /// # Errors
    /// The errno of pread(2); `UnexpectedEof`: less was written.
    pub fn read_beside(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, WHOLE as u64 + at)
    }

    /// The rings as memory.
    ///
    /// # Errors
    /// The errno of mmap(2).
    pub fn map(&self) -> io::Result<Arc<MappedRings>> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a fresh mapping of a file as long as that, no existing memory involved.
        let p = unsafe { libc::mmap(std::ptr::null_mut(), WHOLE, prot, flags, self.file.as_raw_fd(), 0) };
        match NonNull::new(p.cast()) {
            Some(base) if p != libc::MAP_FAILED => {
                Ok(Arc::new(MappedRings { base, claimed: AtomicU64::new(0) }))
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The records that were not settled, ring by ring, after the process that wrote them has ended. What it has left is
    /// not trusted: a record that can't be is where its ring ends.
    ///
    /// # Errors
    /// The errno of pread(2).
    pub fn unsettled(&self) -> io::Result<Vec<UnsettledRecord>> {
        let taking = self.word(TAKING)? != 0;
        let mut records = Vec::new();
        for index in 0..RINGS {
            let at = ring(index);
            let (head, tail, taken) = (self.word(at + HEAD)?, self.word(at + TAIL)?, self.word(at + TAKEN)?);
            let length = head.wrapping_sub(tail);
            if length == 0 || length > CAPACITY as u64 {
                continue;
            }
            let mut data = vec![0; CAPACITY];
            self.file.read_exact_at(&mut data, (at + HEADER) as u64)?;
            data.rotate_left((tail % CAPACITY as u64) as usize);
            data.truncate(length as usize);
            split(&data, |kind, bytes, end| {
                let taken =
                    taking && taken.wrapping_sub(tail) >= end as u64 && taken.wrapping_sub(tail) <= length;
                records.push(UnsettledRecord { kind, bytes: bytes.to_vec(), taken });
            });
        }
        Ok(records)
    }

    /// A note of the process that has ended.
    ///
    /// # Errors
    /// The errno of pread(2).
    pub fn note(&self, which: usize) -> io::Result<u64> {
        self.word((which % NOTES) * 8)
    }

    fn word(&self, at: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at as u64)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// The records in `data`, with where each ends.
fn split(data: &[u8], mut each: impl FnMut(u32, &[u8], usize)) {
    let mut at = 0;
    while let Some(word) = data.get(at..at + 8) {
        let word = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
        let (length, kind) = (word as u32 as usize, (word >> 32) as u32);
        let Some(bytes) = data.get(at + 8..).and_then(|rest| rest.get(..length)) else { return };
        at += room_of(length);
        each(kind, bytes, at);
    }
}

// SAFETY: the mapping lives as long as this, and what several threads may touch of it are words, which are atomic; the
// rest of a ring is touched by the one writer that has claimed it.
unsafe impl Send for MappedRings {}
// SAFETY: the same.
unsafe impl Sync for MappedRings {}

impl MappedRings {
    /// The writer of a ring that has none; `None`: all have.
    pub fn writer(self: &Arc<Self>) -> Option<SharedRingWriter> {
        let mut claimed = self.claimed.load(Relaxed);
        loop {
            let index = (!claimed).trailing_zeros();
            let wanted = claimed | 1u64.checked_shl(index)?;
            match self.claimed.compare_exchange(claimed, wanted, AcqRel, Acquire) {
                Ok(_) => {
                    let index = index as usize;
                    let head = self.word(ring(index) + HEAD).load(Acquire);
                    return Some(SharedRingWriter { rings: self.clone(), index, head });
                }
                Err(now) => claimed = now,
            }
        }
    }

    /// Sets a note, one of [`NOTES`].
    pub fn set_note(&self, which: usize, value: u64) {
        self.word((which % NOTES) * 8).store(value, Release);
    }

    /// Records up to `positions` are being taken, which a later reader of what is left sees.
    pub fn taking(&self, positions: &[RingPosition]) {
        positions.iter().for_each(|position| self.advance(TAKEN, *position));
        self.word(TAKING).store(1, Release);
    }

    /// Records up to `positions` are settled: their room is free.
    pub fn settled(&self, positions: &[RingPosition]) {
        positions.iter().for_each(|position| self.advance(TAIL, *position));
        self.word(TAKING).store(0, Release);
    }

    /// Moves a ring's `which` word on to a position, never back: of one ring there may be several, in any order.
    fn advance(&self, which: usize, position: RingPosition) {
        let word = self.word(ring(position.index) + which);
        if position.end.wrapping_sub(word.load(Relaxed)) <= CAPACITY as u64 {
            word.store(position.end, Release);
        }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at < WHOLE);
        // SAFETY: inside of the mapping and aligned: the constants above are whole words, and indexes below their number.
        unsafe { self.base.add(at).cast::<AtomicU64>().as_ref() }
    }
}

impl Drop for MappedRings {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made; writers have kept this alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), WHOLE) };
    }
}

impl SharedRingWriter {
    /// Adds a record, and says where the ring is then; `None`: there is no room, the record is not kept.
    #[inline]
    pub fn append(&mut self, kind: u32, bytes: &[u8]) -> Option<RingPosition> {
        let (at, room) = (ring(self.index), room_of(bytes.len()));
        let tail = self.rings.word(at + TAIL).load(Acquire);
        let used = usize::try_from(self.head.wrapping_sub(tail)).ok()?;
        if used.checked_add(room)? > CAPACITY {
            return None;
        }
        let word = bytes.len() as u64 | u64::from(kind) << 32;
        let begin = (self.head % CAPACITY as u64) as usize;
        // The word never wraps: records are whole words, and so is the ring.
        self.rings.word(at + HEADER + begin).store(word, Relaxed);
        self.put((begin + 8) % CAPACITY, bytes);
        self.head = self.head.wrapping_add(room as u64);
        self.rings.word(at + HEAD).store(self.head, Release);
        Some(RingPosition { index: self.index, end: self.head })
    }

    /// Copies `bytes` to `begin` in the ring, and from its beginning on what does not fit before its end.
    #[inline]
    fn put(&self, begin: usize, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(CAPACITY - begin));
        let data = ring(self.index) + HEADER;
        // SAFETY: both parts lie in this ring's data: `begin` is below its capacity, and there is room for all bytes
        // (`append`); nothing else touches data between head and tail but the one writer of the ring, which this is.
        unsafe {
            std::ptr::copy_nonoverlapping(
                first.as_ptr(),
                self.rings.base.add(data + begin).as_ptr(),
                first.len(),
            );
            std::ptr::copy_nonoverlapping(rest.as_ptr(), self.rings.base.add(data).as_ptr(), rest.len());
        }
    }
}

impl Drop for SharedRingWriter {
    fn drop(&mut self) {
        self.rings.claimed.fetch_and(!(1 << self.index), AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u32, bytes: &[u8], taken: bool) -> UnsettledRecord {
        UnsettledRecord { kind, bytes: bytes.to_vec(), taken }
    }

    #[test]
    fn what_was_not_settled_is_left() {
        let rings = SharedRings::new("test").expect("memory");
        let mapped = rings.map().expect("memory");
        let (mut one, mut other) = (mapped.writer().expect("free"), mapped.writer().expect("free"));
        let first = one.append(1, b"first").expect("room");
        let second = one.append(2, b"").expect("room");
        let third = other.append(3, b"the third").expect("room");
        assert_eq!(rings.unsettled().expect("read").len(), 3);
        mapped.taking(&[first]);
        mapped.settled(&[first]);
        assert_eq!(rings.unsettled().expect("read"), [record(2, b"", false), record(3, b"the third", false)]);
        mapped.taking(&[second, third]);
        let _fourth = one.append(4, b"later").expect("room");
        let left = [record(2, b"", true), record(4, b"later", false), record(3, b"the third", true)];
        assert_eq!(rings.unsettled().expect("read"), left);
        mapped.settled(&[second, third]);
        assert_eq!(rings.unsettled().expect("read"), [record(4, b"later", false)]);
        mapped.set_note(5, 77);
        assert_eq!(rings.note(5).expect("read"), 77);
        rings.write_beside(b"beside", 10).expect("written");
        let mut bytes = [0; 6];
        rings.read_beside(&mut bytes, 10).expect("read");
        assert_eq!(&bytes, b"beside");
    }

    #[test]
    fn what_was_settled_stays_so_in_whatever_order_it_is_named() {
        let rings = SharedRings::new("test").expect("memory");
        let mapped = rings.map().expect("memory");
        let mut writer = mapped.writer().expect("free");
        let (first, second) = (writer.append(1, b"a").expect("room"), writer.append(2, b"b").expect("room"));
        mapped.taking(&[second, first]);
        assert!(rings.unsettled().expect("read").iter().all(|record| record.taken));
        mapped.settled(&[second, first]);
        assert_eq!(rings.unsettled().expect("read"), []);
    }

    #[test]
    fn rings_are_given_to_one_writer_each() {
        let rings = SharedRings::new("test").expect("memory");
        let mapped = rings.map().expect("memory");
        let mut writers: Vec<_> = (0..RINGS).map(|_| mapped.writer().expect("free")).collect();
        assert!(mapped.writer().is_none());
        writers[7].append(1, b"x").expect("room");
        writers.remove(7);
        // The next one goes on where the ring was.
        let end = mapped.writer().expect("free").append(2, b"y").expect("room");
        assert_eq!(end, RingPosition { index: 7, end: 32 });
    }

    #[test]
    fn a_full_ring_takes_nothing_until_it_is_settled() {
        let rings = SharedRings::new("test").expect("memory");
        let mapped = rings.map().expect("memory");
        let mut writer = mapped.writer().expect("free");
        assert!(writer.append(0, &vec![0; CAPACITY]).is_none(), "more than a ring");
        let end = writer.append(0, &vec![1; CAPACITY - 8]).expect("all of it");
        assert!(writer.append(0, b"").is_none());
        mapped.settled(&[end]);
        assert!(writer.append(0, b"").is_some());
    }

    #[test]
    fn what_can_not_be_is_where_a_ring_ends() {
        let rings = SharedRings::new("test").expect("memory");
        let mapped = rings.map().expect("memory");
        let mut writer = mapped.writer().expect("free");
        writer.append(1, b"good").expect("room");
        writer.append(2, b"bad").expect("room");
        // The length of the second.
        mapped.word(ring(0) + HEADER + 16).store(u64::MAX, Relaxed);
        assert_eq!(rings.unsettled().expect("read"), [record(1, b"good", false)]);
        mapped.word(ring(0) + HEAD).store(u64::MAX, Relaxed);
        assert_eq!(rings.unsettled().expect("read"), []);
    }

    proptest! {
        #[test]
        fn records_come_back_as_they_were(lengths in proptest::collection::vec(0usize..9000, 1..60), settles in 1usize..5) {
            let rings = SharedRings::new("test").expect("memory");
            let mapped = rings.map().expect("memory");
            let mut writer = mapped.writer().expect("free");
            let mut left: Vec<(UnsettledRecord, RingPosition)> = Vec::new();
            for (kind, length) in lengths.into_iter().enumerate() {
                let bytes = vec![kind as u8; length];
                if let Some(end) = writer.append(kind as u32, &bytes) {
                    left.push((record(kind as u32, &bytes, false), end));
                }
                if kind % settles == 0 && !left.is_empty() {
                    mapped.settled(&[left.remove(0).1]);
                }
            }
            let wanted: Vec<UnsettledRecord> = left.into_iter().map(|(record, _)| record).collect();
            prop_assert_eq!(rings.unsettled().expect("read"), wanted);
        }
    }
}
