//! Compressors of which a worker has few, however many responses wait for their clients.
//!
//! The tables of brotli and zstd have megabytes, so a response must not keep them while its client reads nothing. A
//! worker has [`MOST`] of a kind at work; when another response needs one, that which has not been used for longest is
//! put away: what it holds is flushed to memory and its response keeps that alone, some ten KB as a rule. When the client
//! reads again, the response takes a place from another one and goes on with a new compressor after what was flushed.
//! Such a seam costs density, since nothing before it is referred to; a response that is read as it is made, or is one of
//! few, has none.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread::LocalKey;

use super::{BodyCoder, CoderFailure, DeflateOp, DeflateProgress, SCRATCH};

/// A stretch of a compressed stream, by one compressor from beginning to end.
pub(crate) trait CoderSession: Sized + 'static {
    /// The settings it is made with.
    type Key: Copy + PartialEq;
    /// What makes a stream one that another session can continue.
    const PAUSE: DeflateOp;

    /// Makes one for the content after the first `from` bytes.
    fn begin(key: Self::Key, from: u64) -> Result<Self, CoderFailure>;

    /// Takes what it can of `input`, writes what it has to `output`.
    fn run(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        op: DeflateOp,
    ) -> Result<DeflateProgress, CoderFailure>;

    /// Makes it as fresh from [`CoderSession::begin`] with the same key, if that can be.
    fn recycle(self) -> Option<(Self::Key, Self)> {
        None
    }

    /// Where this thread has them.
    fn places() -> &'static LocalKey<CoderPlaces<Self>>;
}

/// A response's compressor, which it has while it uses it.
pub(crate) struct CoderPlace<S: CoderSession> {
    key: S::Key,
    seat: Rc<RefCell<CoderSeat<S>>>,
    /// Bytes of content in the stream.
    taken: u64,
    scratch: Vec<u8>,
}

impl<S: CoderSession> CoderPlace<S> {
    /// One that makes a session of `key` when there is something to compress.
    pub(crate) fn new(key: S::Key) -> CoderPlace<S> {
        CoderPlace { key, seat: Rc::default(), taken: 0, scratch: vec![0; SCRATCH] }
    }
}

impl<S: CoderSession> BodyCoder for CoderPlace<S> {
    fn run(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        op: DeflateOp,
    ) -> Result<DeflateProgress, CoderFailure> {
        let given = self.seat.borrow_mut().give_rest(output)?;
        let (waiting, ended, idle) = self.seat.borrow().state();
        if waiting || ended || (idle && input.is_empty() && op != DeflateOp::Finish) {
            return Ok(DeflateProgress { taken: 0, given, done: !waiting });
        }
        S::places().with(|places| places.claim(&self.seat));
        let mut seat = self.seat.borrow_mut();
        let session = match &mut seat.session {
            Some(session) => session,
            none => none.insert(S::places().with(|places| places.session(self.key, self.taken))?),
        };
        let progress = session.run(input, &mut output[given..], op)?;
        seat.finishing = op == DeflateOp::Finish && progress.taken == input.len();
        self.taken += progress.taken as u64;
        Ok(DeflateProgress { given: given + progress.given, ..progress })
    }

    fn scratch(&mut self) -> &mut Vec<u8> {
        &mut self.scratch
    }
}

impl<S: CoderSession> Drop for CoderPlace<S> {
    fn drop(&mut self) {
        // A thread that ends has no places any more.
        let _ = S::places().try_with(|places| places.leave(&self.seat));
    }
}

/// What a response has of its compressor at the moment.
struct CoderSeat<S> {
    session: Option<S>,
    /// What the last session gave when it was put away, and how much of that went out.
    rest: Vec<u8>,
    sent: usize,
    /// The stream's end was asked for, and its content was taken.
    finishing: bool,
    /// Its end is in what was given or in `rest`.
    finished: bool,
    /// Putting the session away failed.
    failed: Option<CoderFailure>,
}

impl<S> Default for CoderSeat<S> {
    fn default() -> CoderSeat<S> {
        CoderSeat {
            session: None,
            rest: Vec::new(),
            sent: 0,
            finishing: false,
            finished: false,
            failed: None,
        }
    }
}

impl<S: CoderSession> CoderSeat<S> {
    /// Writes the rest of the session that was put away; how many bytes.
    fn give_rest(&mut self, output: &mut [u8]) -> Result<usize, CoderFailure> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let left = &self.rest[self.sent..];
        let given = left.len().min(output.len());
        output[..given].copy_from_slice(&left[..given]);
        self.sent += given;
        if self.sent == self.rest.len() {
            (self.rest, self.sent) = (Vec::new(), 0);
        }
        Ok(given)
    }

    /// Whether something is left of a session, the stream is whole, and nothing was taken that is not given.
    fn state(&self) -> (bool, bool, bool) {
        (!self.rest.is_empty(), self.finished, self.session.is_none())
    }

    /// Ends the session, so that another one can go on after it; gives it back for another stream.
    fn put_away(&mut self) -> Option<S> {
        let mut session = self.session.take()?;
        let op = if self.finishing { DeflateOp::Finish } else { S::PAUSE };
        let mut room = vec![0; SCRATCH];
        loop {
            match session.run(b"", &mut room, op) {
                Ok(progress) => {
                    self.rest.extend_from_slice(&room[..progress.given]);
                    if progress.done {
                        break;
                    }
                }
                Err(failed) => {
                    self.failed = Some(failed);
                    return None;
                }
            }
        }
        self.rest.shrink_to_fit();
        self.finished = self.finishing;
        Some(session)
    }
}

/// The compressors of a worker.
pub(crate) struct CoderPlaces<S: CoderSession> {
    /// Those at work, the last used at the end.
    working: RefCell<Vec<Rc<RefCell<CoderSeat<S>>>>>,
    /// One that is free, for the next response with its settings.
    spare: RefCell<Option<(S::Key, S)>>,
}

impl<S: CoderSession> CoderPlaces<S> {
    /// None yet.
    pub(crate) const fn new() -> CoderPlaces<S> {
        CoderPlaces { working: RefCell::new(Vec::new()), spare: RefCell::new(None) }
    }

    /// Makes `seat` the one used last; for one that is new here the one used longest ago is put away.
    fn claim(&self, seat: &Rc<RefCell<CoderSeat<S>>>) {
        let mut working = self.working.borrow_mut();
        if working.last().is_some_and(|last| Rc::ptr_eq(last, seat)) {
            return;
        }
        if let Some(at) = working.iter().position(|one| Rc::ptr_eq(one, seat)) {
            working.remove(at);
        } else if working.len() == MOST {
            let idle = working.remove(0);
            let session = idle.borrow_mut().put_away();
            self.keep(session);
        }
        working.push(seat.clone());
    }

    /// A compressor with `key` for what follows the first `from` bytes.
    fn session(&self, key: S::Key, from: u64) -> Result<S, CoderFailure> {
        match self.spare.take() {
            Some((made_with, spare)) if made_with == key => Ok(spare),
            _ => S::begin(key, from),
        }
    }

    /// Keeps what has ended for the next response, if it can be used again.
    fn keep(&self, session: Option<S>) {
        if let Some(spare) = session.and_then(S::recycle) {
            self.spare.replace(Some(spare));
        }
    }

    /// The response of `seat` has ended, or was given up.
    fn leave(&self, seat: &Rc<RefCell<CoderSeat<S>>>) {
        self.working.borrow_mut().retain(|one| !Rc::ptr_eq(one, seat));
        let session = seat.borrow_mut().session.take();
        self.keep(session);
    }
}

/// This many are at work: enough for what a browser asks for side by side; with brotli's tables of level 6 they have 34
/// MB.
const MOST: usize = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::filters::brotli::{BrotliStream, squeezer};
    use crate::filters::zstd::{ZstdFrame, presser};

    /// A response: what was made of it, and how far it is.
    struct Run<S: CoderSession> {
        place: CoderPlace<S>,
        content: Vec<u8>,
        at: usize,
        packed: Vec<u8>,
        done: bool,
    }

    impl<S: CoderSession> Run<S> {
        fn step(&mut self, input: usize, room: usize, op: DeflateOp) {
            let input = &self.content[self.at..(self.at + input).min(self.content.len())];
            let op = if op == DeflateOp::Finish && self.at + input.len() < self.content.len() {
                DeflateOp::Run
            } else {
                op
            };
            let mut output = vec![0; room];
            let progress = self.place.run(input, &mut output, op).expect("memory");
            self.packed.extend_from_slice(&output[..progress.given]);
            self.at += progress.taken;
            self.done = op == DeflateOp::Finish && progress.done;
        }
    }

    /// More responses than there are places, served in any order: each is what it was.
    fn interleaved<S: CoderSession>(
        make: impl Fn() -> CoderPlace<S>,
        steps: &[(usize, usize, usize, u8)],
        unpack: impl Fn(&[u8], usize) -> Vec<u8>,
    ) {
        let content = |seed: usize| (0..60_000 + seed).map(|n| ((n / 9 * (seed + 7)) >> 3) as u8).collect();
        let mut runs: Vec<Run<S>> = (0..MOST + 3)
            .map(|seed| Run { place: make(), content: content(seed), at: 0, packed: Vec::new(), done: false })
            .collect();
        let mut turn = 0;
        while runs.iter().any(|run| !run.done) {
            let (which, input, room, op) = steps[turn % steps.len()];
            turn += 1;
            let count = runs.len();
            let run = &mut runs[(which + turn / steps.len()) % count];
            if !run.done {
                // Near the end whatever is left is asked for, so that all of them end.
                let op = if turn > 40 {
                    DeflateOp::Finish
                } else {
                    [DeflateOp::Run, DeflateOp::Flush, DeflateOp::Finish][usize::from(op)]
                };
                run.step(if turn > 40 { 100_000 } else { input }, room, op);
            }
        }
        for run in &runs {
            assert!(unpack(&run.packed, run.content.len()) == run.content);
        }
        S::places().with(|places| assert!(places.working.borrow().len() <= MOST));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn streams_that_take_places_from_each_other_are_whole(
            steps in proptest::collection::vec((0_usize..11, 0_usize..9000, 1_usize..4000, 0_u8..3), 1..30),
            level in 0_u8..=9,
            window in 10_u8..=19,
        ) {
            interleaved::<BrotliStream>(
                || squeezer(level, window, None),
                &steps,
                |packed, length| weir_sys::brotli::decompress(packed, length).expect("a whole stream"),
            );
            interleaved::<ZstdFrame>(
                || presser(level.max(1), None),
                &steps,
                |packed, _| zstd::stream::decode_all(packed).expect("whole frames"),
            );
        }
    }

    #[test]
    fn what_has_ended_leaves_its_place() {
        let places = || ZstdFrame::places().with(|places| places.working.borrow().len());
        let mut all: Vec<_> = (0..MOST + 5).map(|_| presser(1, None)).collect();
        let mut output = [0; 100];
        assert_eq!(places(), 0);
        for place in &mut all {
            place.run(b"abc", &mut output, DeflateOp::Run).expect("memory");
        }
        assert_eq!(places(), MOST);
        drop(all);
        assert_eq!(places(), 0);
        assert!(ZstdFrame::places().with(|places| places.spare.borrow().is_some()));
    }
}
