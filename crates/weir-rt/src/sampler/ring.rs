//! The ring of samples: written by the handler on the sampled thread, read by the thread that drains.
//!
//! Samples are of different length and lie in words one after the other, so that the ring holds thousands of shallow
//! stacks or hundreds of deep ones. A sample that finds no room is counted, not waited for. `fuzz/loom` runs this file through the
//! orders in which the two threads may see each other's writes.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use super::current::SitePlace;

/// What has caused a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum SampleSource {
    /// The timer on the thread's CPU time.
    #[default]
    Cpu,
    /// The timer on real time, which runs while the thread sleeps too.
    Wall,
    /// Another thread: [`ThreadProbe::ask`](super::ThreadProbe::ask).
    Asked,
    /// The thread itself, when it has allocated so much: [`allocated`](super::allocated).
    Alloc,
    /// The thread runs again after a switch: [`prepare_switches`](super::prepare_switches).
    Switched,
}

/// One sample, as the handler left it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackSample {
    /// When it was taken, in ticks; of [`SampleSource::Switched`] in nanoseconds of CLOCK_MONOTONIC, as the kernel has its records.
    pub time: u64,
    /// What sent the signal.
    pub source: SampleSource,
    /// How much time it represents, in nanoseconds: the timer's period, times the periods that passed unseen (the
    /// kernel looks at CPU timers once a tick). Of [`SampleSource::Alloc`] bytes; 0 for [`SampleSource::Asked`].
    pub weight_ns: u64,
    /// Where the engine was, whatever the walk found.
    pub place: SitePlace,
    /// Whose request it ran; 0 for none.
    pub request: u128,
    /// True when the loop was waiting for events.
    pub parked: bool,
    /// True when the stack was deeper than 128 frames; its outermost ones are missing.
    pub truncated: bool,
    /// State of the Lua VM; 0 outside of Lua.
    pub vm_state: u8,
    /// Innermost first: [`StackFrame`](super::StackFrame)s.
    pub frames: Vec<u64>,
}

/// Frames of a sample at most.
pub(super) const MAX_FRAMES: usize = 128;
/// Words before the frames.
const HEAD: usize = 6;
/// Words of a ring: 128 KB, which at 10 kHz and 30 frames a stack is full after 45 ms, at 99 Hz after 4 s.
const WORDS: usize = 1 << 14;

/// Words with one writer and one reader at a time.
#[derive(Debug)]
pub(super) struct SampleRing {
    words: Box<[AtomicU64]>,
    /// Words ever written and read; never wrap.
    head: AtomicU64,
    tail: AtomicU64,
    lost: AtomicU64,
}

/// What the handler knows besides the frames.
pub(super) struct SampleHeader {
    pub(super) time: u64,
    pub(super) source: SampleSource,
    pub(super) weight_ns: u64,
    pub(super) place: u64,
    pub(super) request: u128,
    pub(super) parked: bool,
    pub(super) vm_state: u8,
}

impl SampleRing {
    pub(super) fn new() -> SampleRing {
        SampleRing::with_words(WORDS)
    }

    /// One of so many words, a power of two.
    pub(super) fn with_words(words: usize) -> SampleRing {
        SampleRing {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Samples that found no room.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Writes a sample whose frames `walk` gives one by one to the function it gets, until that returns `false`. For
    /// the one writer.
    pub(super) fn push(&self, header: &SampleHeader, walk: impl FnOnce(&mut dyn FnMut(u64) -> bool)) {
        let head = self.head.load(Relaxed);
        let used = head.wrapping_sub(self.tail.load(Acquire)) as usize;
        if self.words.len() - used < HEAD + MAX_FRAMES {
            self.lost.store(self.lost.load(Relaxed) + 1, Relaxed);
            return;
        }
        let mut n = 0;
        let mut truncated = false;
        walk(&mut |frame| {
            truncated = n == MAX_FRAMES;
            if !truncated {
                self.put(head, HEAD + n, frame);
                n += 1;
            }
            !truncated
        });
        let kind = u64::from(header.source as u8) << 16
            | u64::from(header.parked) << 24
            | u64::from(truncated) << 25
            | u64::from(header.vm_state) << 32;
        self.put(head, 0, n as u64 | kind);
        self.put(head, 1, header.time);
        self.put(head, 2, header.place);
        self.put(head, 3, (header.request >> 64) as u64);
        self.put(head, 4, header.request as u64);
        self.put(head, 5, header.weight_ns);
        self.head.store(head + (HEAD + n) as u64, Release);
    }

    /// Gives every sample to `each`, oldest first; the sample is used again for the next. For one reader at a time.
    pub(super) fn drain(&self, mut each: impl FnMut(&StackSample)) {
        let mut sample = StackSample::default();
        let mut tail = self.tail.load(Relaxed);
        while tail != self.head.load(Acquire) {
            let kind = self.at(tail, 0);
            let n = (kind as u16 as usize).min(MAX_FRAMES);
            sample.source = match kind >> 16 & 0xff {
                0 => SampleSource::Cpu,
                1 => SampleSource::Wall,
                3 => SampleSource::Alloc,
                4 => SampleSource::Switched,
                _ => SampleSource::Asked,
            };
            sample.parked = kind >> 24 & 1 == 1;
            sample.truncated = kind >> 25 & 1 == 1;
            sample.vm_state = (kind >> 32) as u8;
            sample.time = self.at(tail, 1);
            sample.place = SitePlace::unpack(self.at(tail, 2));
            sample.request = u128::from(self.at(tail, 3)) << 64 | u128::from(self.at(tail, 4));
            sample.weight_ns = self.at(tail, 5);
            sample.frames.clear();
            sample.frames.extend((0..n).map(|i| self.at(tail, HEAD + i)));
            tail += (HEAD + n) as u64;
            self.tail.store(tail, Release);
            each(&sample);
        }
    }

    #[inline]
    fn put(&self, start: u64, n: usize, word: u64) {
        self.word(start, n).store(word, Relaxed);
    }

    #[inline]
    fn at(&self, start: u64, n: usize) -> u64 {
        self.word(start, n).load(Relaxed)
    }

    #[inline]
    fn word(&self, start: u64, n: usize) -> &AtomicU64 {
        &self.words[(start as usize + n) & (self.words.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(time: u64) -> SampleHeader {
        let request = u128::from(time) << 64 | 9;
        SampleHeader {
            time,
            source: SampleSource::Wall,
            weight_ns: time * 3,
            place: 7,
            request,
            parked: true,
            vm_state: 4,
        }
    }

    fn push(ring: &SampleRing, time: u64, frames: usize) {
        ring.push(&header(time), |emit| {
            let _ = (0..frames as u64).all(|n| emit(time + n));
        });
    }

    #[test]
    fn samples_come_out_as_they_went_in() {
        let ring = SampleRing::new();
        push(&ring, 5, 3);
        push(&ring, 6, 0);
        push(&ring, 7, MAX_FRAMES + 1);
        let mut out = Vec::new();
        ring.drain(|sample| out.push(sample.clone()));
        assert_eq!(out.len(), 3);
        assert_eq!((out[0].time, &*out[0].frames), (5, &[5, 6, 7][..]));
        assert_eq!((out[0].source, out[0].weight_ns, out[0].request), (SampleSource::Wall, 15, 5 << 64 | 9));
        assert!(out[0].parked && out[0].vm_state == 4 && !out[0].truncated && out[1].frames.is_empty());
        assert_eq!((out[0].place.site, out[2].frames.len(), out[2].truncated), (7, MAX_FRAMES, true));
        ring.drain(|_| panic!("all were taken"));
    }

    #[test]
    fn a_full_ring_counts_what_it_loses_and_goes_on_when_drained() {
        let ring = SampleRing::new();
        let many = 2 * WORDS / (HEAD + 10);
        (0..many).for_each(|n| push(&ring, n as u64, 10));
        let mut next = 0;
        let mut check = |sample: &StackSample| {
            assert_eq!(sample.time, next);
            next += 1;
        };
        ring.drain(&mut check);
        assert_eq!(ring.lost() + next, many as u64);
        push(&ring, 1, 10);
        let mut after = 0;
        ring.drain(|_| after += 1);
        assert_eq!(after, 1);
    }

    #[test]
    fn a_reader_beside_the_writer_sees_whole_samples_in_order() {
        const N: u64 = 50_000;
        let ring = SampleRing::new();
        let done = std::sync::atomic::AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut seen, mut last) = (0, 0);
                while !done.load(Acquire) {
                    ring.drain(|s| {
                        assert!(s.time > last, "{} after {last}", s.time);
                        assert_eq!((s.weight_ns, s.frames.len() as u64), (s.time * 3, s.time % 40));
                        assert!(s.frames.iter().enumerate().all(|(n, &f)| f == s.time + n as u64));
                        last = s.time;
                        seen += 1;
                    });
                }
                ring.drain(|_| seen += 1);
                seen
            });
            (1..=N).for_each(|time| push(&ring, time, time as usize % 40));
            done.store(true, Release);
            reader.join().expect("the reader's assertions hold")
        });
        assert_eq!(seen + ring.lost(), N);
    }
}
