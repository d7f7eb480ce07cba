//! The table of requests in flight: fixed places, each written by the worker alone.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use crate::model::{RequestId, WaitKind};
use crate::record::InlineText;
use crate::site::Site;

/// One request in flight, as another thread sees it. Times are ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The request's number.
    pub id: RequestId,
    /// The worker's number.
    pub worker: u16,
    /// When the request began, in ticks.
    pub start: u64,
    /// The method, cut at 8 bytes.
    pub method: InlineText<8>,
    /// The path without arguments, cut at 64 bytes.
    pub path: InlineText<64>,
    /// Its location so far; [`Site::NONE`] before one was found.
    pub route: Site,
    /// Where it waits: the innermost open site; [`Site::NONE`] while it runs.
    pub site: Site,
    /// What it waits for; `None` while it runs.
    pub wait: Option<WaitKind>,
    /// In ticks: since when it runs, or waits for the same thing.
    pub since: u64,
    /// True when it is the one that its worker runs at this moment.
    pub is_running: bool,
}

/// What a request does.
#[derive(Clone, Copy, Debug)]
pub(super) enum FlightState {
    Runs,
    Waits(WaitKind),
}

/// Places, allocated by the chunk.
#[derive(Debug)]
pub(super) struct FlightTable {
    /// The first chunk, which is all that most workers need.
    first: Box<[FlightPlace; CHUNK]>,
    chunks: Box<[OnceLock<Box<[FlightPlace; CHUNK]>>]>,
}

impl FlightTable {
    pub(super) fn new() -> FlightTable {
        let chunks = (1..usize::from(PLACES) / CHUNK).map(|_| OnceLock::new()).collect();
        FlightTable { first: chunk(), chunks }
    }

    /// Place `number`, from 1 to [`PLACES`].
    #[inline]
    pub(super) fn place(&self, number: u16) -> &FlightPlace {
        let index = usize::from(number.wrapping_sub(1));
        if let Some(place) = self.first.get(index) {
            return place;
        }
        let chunk = self.chunks[index / CHUNK - 1].get_or_init(chunk);
        &chunk[index % CHUNK]
    }

    /// Place `number`, if it was ever used.
    pub(super) fn find(&self, number: u16) -> Option<&FlightPlace> {
        let index = usize::from(number.checked_sub(1)?);
        match (index / CHUNK).checked_sub(1) {
            None => self.first.get(index),
            Some(chunk) => Some(&self.chunks.get(chunk)?.get()?[index % CHUNK]),
        }
    }

    pub(super) fn places(&self) -> impl Iterator<Item = (u16, &FlightPlace)> {
        let others = self.chunks.iter().enumerate().filter_map(|(n, chunk)| Some((n + 1, chunk.get()?)));
        let used = std::iter::once((0, &self.first)).chain(others);
        used.flat_map(|(n, places)| {
            places.iter().enumerate().map(move |(m, place)| ((n * CHUNK + m + 1) as u16, place))
        })
    }
}

/// One place: two cache lines. The name (number, start, method, path) is after a sequence number, odd while it is
/// being written; the state is one word.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct FlightPlace {
    sequence: AtomicU64,
    /// Kind of doing, wait kind, site, route; 0 while the place is free.
    state: AtomicU64,
    since: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl FlightPlace {
    #[inline]
    pub(super) fn name(&self, id: RequestId, start: u64, method: &[u8], path: &[u8]) {
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence | 1, Relaxed);
        fence(Release);
        let [id_high, id_low, began, verb, words @ ..] = &self.words;
        id_high.store((id.0 >> 64) as u64, Relaxed);
        id_low.store(id.0 as u64, Relaxed);
        began.store(start, Relaxed);
        let method = method.first_chunk().map_or_else(|| tail(method), |bytes| u64::from_le_bytes(*bytes));
        verb.store(method, Relaxed);
        let path = &path[..path.len().min(PATH)];
        let (whole, _) = path.as_chunks::<8>();
        for (slot, bytes) in words.iter().zip(whole) {
            slot.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        // A zero ends the text; the words after it are of no meaning.
        if let Some(slot) = words.get(whole.len()) {
            slot.store(tail(path), Relaxed);
        }
        self.since.store(start, Relaxed);
        self.state.store(RUNS, Relaxed);
        self.sequence.store((sequence | 1) + 1, Release);
    }

    pub(super) fn state(&self, doing: FlightState, route: Site, site: Site, now: u64) {
        let kind = match doing {
            FlightState::Runs => RUNS,
            FlightState::Waits(wait) => WAITS | (wait as u64) << 32,
        };
        self.since.store(now, Relaxed);
        self.state.store(kind | u64::from(route.0) << 16 | u64::from(site.0), Relaxed);
    }

    #[inline]
    pub(super) fn route(&self, route: Site) {
        self.state.store(RUNS | u64::from(route.0) << 16, Relaxed);
    }

    #[inline]
    pub(super) fn is_taken(&self) -> bool {
        self.state.load(Relaxed) != 0
    }

    #[inline]
    pub(super) fn clear(&self) {
        self.state.store(0, Relaxed);
    }

    /// The request in here; `None` if the place is empty, or it changes faster than it can be read.
    pub(super) fn read(&self, is_running: bool, worker: u16) -> Option<InFlight> {
        (0..TRIES).find_map(|_| self.try_read(is_running, worker))
    }

    fn try_read(&self, is_running: bool, worker: u16) -> Option<InFlight> {
        let sequence = self.sequence.load(Acquire);
        let (state, since) = (self.state.load(Relaxed), self.since.load(Relaxed));
        let words: [u64; WORDS] = std::array::from_fn(|n| self.words[n].load(Relaxed));
        fence(Acquire);
        if state == 0 || sequence & 1 == 1 || self.sequence.load(Relaxed) != sequence {
            return None;
        }
        let [id_high, id_low, start, method, path @ ..] = words;
        let text: Vec<u8> = path.iter().flat_map(|word| word.to_le_bytes()).collect();
        let wait = (state & WAITS != 0).then(|| WaitKind::from_code((state >> 32) as u16 & 0xff));
        Some(InFlight {
            id: RequestId(u128::from(id_high) << 64 | u128::from(id_low)),
            worker,
            start,
            method: InlineText::new(until_zero(&method.to_le_bytes())),
            path: InlineText::new(until_zero(&text)),
            route: Site((state >> 16) as u16),
            site: Site(state as u16),
            wait,
            since,
            is_running,
        })
    }
}

/// What follows the last whole word of `bytes`, as a word with zeros after it: by loads that overlap, since copying so
/// few bytes costs a call.
#[inline]
fn tail(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if let Some(last) = bytes.last_chunk::<8>() {
        return match len % 8 {
            0 => 0,
            rest => u64::from_le_bytes(*last) >> (64 - 8 * rest),
        };
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << (8 * (len - 4));
    }
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

fn chunk() -> Box<[FlightPlace; CHUNK]> {
    Box::new(std::array::from_fn(|_| FlightPlace::default()))
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Requests listed at most; those beyond are served and not listed.
pub(super) const PLACES: u16 = 4096;
/// Places allocated together: 8 KiB.
const CHUNK: usize = 64;
const PATH: usize = 64;
const WORDS: usize = 4 + PATH / 8;
const RUNS: u64 = 1 << 62;
const WAITS: u64 = 1 << 63;
/// A worker that starts a request every microsecond leaves a gap at the second try.
const TRIES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_every_length_come_out_as_they_went_in() {
        let text = b"/abcdefghijklmnopqrstuvwxyz/ABCDEFGHIJKLMNOPQRSTUVWXYZ/0123456789-0123456789";
        let place = FlightPlace::default();
        for len in 0..text.len() {
            place.name(RequestId(len as u128), 1, &text[..len], &text[..len]);
            let read = place.read(false, 0).expect("it is there");
            assert_eq!(read.method.as_bytes(), &text[..len.min(8)]);
            assert_eq!(read.path.as_bytes(), &text[..len.min(PATH)]);
        }
    }
}
