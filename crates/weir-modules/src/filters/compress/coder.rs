//! The body filter around a compressor, or what undoes its work.

use weir_engine::Exchange;
use weir_engine::body::{BodyBuf, BodyChain};
use weir_engine::error::{EngineError, EngineErrorKind, FaultSide};
use weir_engine::filter::{BodyFilter, FilterStep};

use super::{CompressionRatios, ContentCoding, OutputRoom};

pub(crate) use weir_http::deflate::{DeflateOp, DeflateProgress};

/// What is wrong with the data, or that the library refused: it lacks memory, since its settings are checked before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoderFailure(pub(crate) &'static str);

/// A compressor of one response.
pub(crate) trait BodyCoder {
    /// Takes what it can of `input`, writes what it has to `output`.
    fn run(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        op: DeflateOp,
    ) -> Result<DeflateProgress, CoderFailure>;

    /// [`SCRATCH`] bytes in which output is gathered, lent out for the call.
    fn scratch(&mut self) -> &mut Vec<u8>;
}

/// When a coder's output is handed on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceFlushing {
    /// In full pieces.
    WhenFull,
    /// As it comes.
    AtOnce,
}

/// Passes a body through a [`BodyCoder`].
pub(crate) struct CompressingBody<C> {
    coder: C,
    /// What it makes; nothing if it unpacks.
    coding: Option<ContentCoding>,
    /// Input that is buffered until there is enough of it.
    kept: BodyChain,
    postpone: u64,
    flushing: PieceFlushing,
    /// Bytes of output that are handed on together.
    portion: usize,
    /// The piece being compressed, and how far that is.
    piece: BodyBuf,
    at: usize,
    /// Bytes in the coder's scratch.
    gathered: usize,
    taken: u64,
    given: u64,
    /// What was taken when others had their turn last.
    turn: u64,
    ended: bool,
}

impl<C: BodyCoder> CompressingBody<C> {
    /// Input is buffered until there are `postpone` bytes; output is handed on in pieces as `room` has it, or as it
    /// comes.
    pub(crate) fn new(
        coder: C,
        coding: Option<ContentCoding>,
        postpone: u64,
        flushing: PieceFlushing,
        room: OutputRoom,
    ) -> CompressingBody<C> {
        CompressingBody {
            coder,
            coding,
            kept: BodyChain::default(),
            postpone,
            flushing,
            portion: room.portion,
            piece: BodyBuf::default(),
            at: 0,
            gathered: 0,
            taken: 0,
            given: 0,
            turn: 0,
            ended: false,
        }
    }

    /// Compresses until the input is used up (`true`), enough output is there, or it is time for others.
    fn pack(&mut self, output: &mut BodyChain) -> Result<bool, CoderFailure> {
        let mut scratch = std::mem::take(self.coder.scratch());
        let portion = self.portion.min(scratch.len());
        let packed = self.pack_into(&mut scratch[..portion], output);
        *self.coder.scratch() = scratch;
        packed
    }

    fn pack_into(&mut self, scratch: &mut [u8], output: &mut BodyChain) -> Result<bool, CoderFailure> {
        loop {
            if self.at as u64 == self.piece.len() {
                (self.piece, self.at) = (self.kept.pop().unwrap_or_default(), 0);
            }
            let input = self.piece.memory().unwrap_or_default().get(self.at..).unwrap_or_default();
            let part = &input[..input.len().min(self.before_turn())];
            let op = match () {
                () if !self.kept.is_empty() || part.len() < input.len() => DeflateOp::Run,
                () if self.kept.last => DeflateOp::Finish,
                () if self.kept.flush => DeflateOp::Flush,
                () => DeflateOp::Run,
            };
            if part.is_empty() && op == DeflateOp::Run {
                break;
            }
            let progress = self.coder.run(part, &mut scratch[self.gathered..], op)?;
            self.at += progress.taken;
            self.taken += progress.taken as u64;
            self.given += progress.given as u64;
            self.gathered += progress.given;
            if progress.done && op != DeflateOp::Run {
                self.hand_on(scratch, output);
                output.flush |= std::mem::take(&mut self.kept.flush);
                self.ended = op == DeflateOp::Finish;
                output.last = self.ended;
                return Ok(true);
            }
            if self.gathered == scratch.len() {
                self.hand_on(scratch, output);
            }
            if output.len() >= ENOUGH || self.before_turn() == 0 {
                return Ok(false);
            }
        }
        if self.flushing == PieceFlushing::AtOnce {
            self.hand_on(scratch, output);
        }
        Ok(true)
    }

    /// How many bytes of input may be taken before others have a turn. A compressor needs no limit: they would take its
    /// compressor, of which a worker has few, and its input is as much work as it is long.
    fn before_turn(&self) -> usize {
        if self.coding.is_some() {
            return usize::MAX;
        }
        (self.turn + WORK).saturating_sub(self.taken) as usize
    }

    fn hand_on(&mut self, scratch: &[u8], output: &mut BodyChain) {
        output.push(BodyBuf::Bytes(scratch[..self.gathered].to_vec()));
        self.gathered = 0;
    }
}

impl<C: BodyCoder> BodyFilter for CompressingBody<C> {
    fn step(
        &mut self,
        x: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> Result<FilterStep, EngineError> {
        self.kept.append(input);
        if self.ended || (self.kept.len() < self.postpone && !self.kept.flush && !self.kept.last) {
            return Ok(FilterStep::More);
        }
        self.postpone = 0;
        let used_up = self.pack(output).map_err(|CoderFailure(message)| {
            x.log_error(&message);
            let side = if self.coding.is_some() { FaultSide::Server } else { FaultSide::Upstream };
            EngineError { kind: EngineErrorKind::Filter, side, errno: None }
        })?;
        if self.ended
            && let Some(coding) = self.coding
        {
            let (taken, given) = (self.taken, self.given);
            x.state::<CompressionRatios>().note(coding, taken, given);
        }
        if self.before_turn() == 0 && !self.ended {
            self.turn = self.taken;
            return Ok(FilterStep::Wait(Box::pin(weir_rt::yield_now())));
        }
        Ok(if used_up { FilterStep::More } else { FilterStep::Full })
    }
}

/// Most bytes in which output is gathered before it is handed on.
pub(crate) const SCRATCH: usize = 8 * 1024;
/// This many bytes of output are enough for one step: with the compressor's tables, what was read ahead and what the
/// connection holds it keeps a response below 256 KB.
const ENOUGH: u64 = 8 * 1024;
/// This many bytes are unpacked before others have a turn: packed data need not hold anything, and the most laborious
/// (tables of codes for empty blocks) take 0.1 us a byte. All that was received in one turn would hold up the loop for
/// 25 ms.
const WORK: u64 = 16 * 1024;
