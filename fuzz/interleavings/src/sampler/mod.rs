//! The ring of samples: a reader has each sample whole and in order, or the writer has counted it as lost.

#[allow(dead_code, unreachable_pub, missing_docs)]
#[path = "../../../../crates/weir-rt/src/sampler/ring.rs"]
mod ring;

use std::sync::Arc;

use loom::thread;
use ring::{SampleHeader, SampleRing, SampleSource};

use crate::Model;

pub(crate) const MODELS: &[Model] = &[
    ("sampler ring: samples are whole", Some(3), samples_are_whole),
    ("sampler ring: a full one is not written over", Some(1), a_full_ring_is_not_written_over),
];

/// In place of `weir_rt::sampler::current`, and what a frame refers to.
mod current {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SitePlace(u64);

    impl SitePlace {
        pub(super) fn unpack(word: u64) -> SitePlace {
            SitePlace(word)
        }
    }
}

#[allow(dead_code)]
struct StackFrame;
#[allow(dead_code)]
struct ThreadProbe;

/// The smallest power of two with room for a sample.
const WORDS: usize = 256;
/// Of a sample with two frames.
const ROOM: usize = 8;

fn push(ring: &SampleRing, number: u64) {
    push_deep(ring, number, 2);
}

fn push_deep(ring: &SampleRing, number: u64, frames: usize) {
    let request = u128::from(number) << 64 | u128::from(number);
    let source = SampleSource::Wall;
    let header = SampleHeader {
        time: number,
        source,
        weight_ns: number,
        place: number,
        request,
        parked: true,
        vm_state: 1,
    };
    ring.push(&header, |emit| {
        let _ = (0..frames).all(|_| emit(number));
    });
}

/// The numbers of the samples that are there; each is whole.
fn drain(ring: &SampleRing) -> Vec<u64> {
    let mut numbers = Vec::new();
    ring.drain(|sample| {
        let number = sample.time;
        assert_eq!((sample.source, sample.weight_ns, sample.vm_state), (SampleSource::Wall, number, 1));
        assert_eq!(sample.request, u128::from(number) << 64 | u128::from(number));
        assert!(sample.frames.iter().all(|frame| *frame == number), "{number}: {:?}", sample.frames);
        numbers.push(number);
    });
    numbers
}

fn samples_are_whole() {
    let ring = Arc::new(SampleRing::with_words(WORDS));
    let from = ring.clone();
    let writer = thread::spawn(move || (1..3).for_each(|number| push(&from, number)));
    let mut got = drain(&ring);
    writer.join().expect("no panic");
    got.extend(drain(&ring));
    assert_eq!((got, ring.lost()), (vec![1, 2], 0));
}

fn a_full_ring_is_not_written_over() {
    let ring = Arc::new(SampleRing::with_words(WORDS));
    // The ring is at its end, and what is in it leaves no room.
    let full = ((WORDS - 6 - ring::MAX_FRAMES) / ROOM + 1) as u64;
    let before = (WORDS / ROOM) as u64 - full;
    (0..before).for_each(|number| push(&ring, number));
    assert_eq!(drain(&ring).len() as u64, before);
    (0..full).for_each(|number| push(&ring, number));
    let from = ring.clone();
    // More words than are free.
    let writer = thread::spawn(move || push_deep(&from, full, ring::MAX_FRAMES));
    let mut got = drain(&ring);
    writer.join().expect("no panic");
    got.extend(drain(&ring));
    let kept = full + 1 - ring.lost();
    assert_eq!(got, (0..kept).collect::<Vec<u64>>());
}
