//! The layer between the user of a stream and its socket: encryption.
//!
//! A socket with a [`StreamLayer`] keeps two queues: what its user queued, as it is, and the socket's own with what the layer
//! made of it. The second is filled from the first only so far ahead as the kernel can be expected to take, so a
//! large file is not turned into a large heap of records.

use std::collections::VecDeque;

use crate::output::{OutputChunk, SpareVectors};

/// Turns bytes of the user into bytes of the socket and back. It is called inside the loop's window: it must not use
/// the runtime. It does no input or output of its own.
pub trait StreamLayer {
    /// Takes bytes that the socket received. Appends what they say to the user to `plain`, and what the peer must be
    /// sent because of them to `out`.
    fn open(&mut self, received: &[u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) -> OpenOutcome;

    /// Appends to `out` what the socket is to send for `plain`.
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>);

    /// The most bytes that [`StreamLayer::seal`] is to be given next, at most 16 KB; not 0.
    fn piece(&self) -> usize {
        PIECE
    }

    /// Nothing was sent for a second: the kernel begins with few packets in flight again.
    fn rested(&mut self) {}

    /// Appends to `out` the end of data for the peer (TLS: close_notify).
    fn close(&mut self, out: &mut Vec<u8>);

    /// Bytes of memory that the layer takes, itself and what it owns.
    fn held_bytes(&self) -> usize;
}

/// What [`StreamLayer::open`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenOutcome {
    /// More may follow.
    More,
    /// The peer has said that nothing follows.
    End,
    /// What came was no good: nothing more can be received. The reader gets `EPROTO`.
    Broken,
}

/// Bytes handed to the layer at a time, unless it wants fewer: a TLS record's worth.
const PIECE: usize = 16 * 1024;
/// Up to this many sealed bytes wait for the kernel: what it usually takes in one call, so that a file of 1 MB leaves
/// in eight.
const AHEAD: u64 = 128 * 1024;

/// How filling the socket's queue ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealOutcome {
    /// Nothing is left, or enough is ahead.
    Enough,
    /// The file range in front is not in the page cache.
    Cold,
    /// A file ended before its range.
    Truncated,
    /// A file could not be read (an errno).
    Failed(i32),
}

/// A layer with what a socket keeps for it.
pub(crate) struct SocketLayer {
    pub(crate) layer: Box<dyn StreamLayer>,
    plain: VecDeque<OutputChunk>,
    /// Bytes of the first chunk (if of memory) that are sealed already.
    offset: usize,
    /// Bytes in `plain`.
    pub(crate) unsealed: u64,
    /// As `OutputQueue::resident_to`, of the file range in front.
    pub(crate) resident_to: u64,
    /// Bytes for the user that came before the layer was put in place.
    pub(crate) early: Vec<u8>,
    /// The end is to be sent to the peer after the last byte.
    pub(crate) closing: bool,
    closed: bool,
}

impl SocketLayer {
    pub(crate) fn new(layer: Box<dyn StreamLayer>, early: Vec<u8>) -> SocketLayer {
        SocketLayer {
            layer,
            plain: VecDeque::new(),
            offset: 0,
            unsealed: 0,
            resident_to: 0,
            early,
            closing: false,
            closed: false,
        }
    }

    pub(crate) fn push(&mut self, chunk: OutputChunk) {
        if !chunk.is_empty() {
            self.unsealed += chunk.len();
            self.plain.push_back(chunk);
        }
    }

    /// What is queued is to be sealed; nothing has been sent for `ms` milliseconds.
    pub(crate) fn begin(&mut self, ms: u64) {
        if ms >= REST_MS && self.unsealed > 0 {
            self.layer.rested();
        }
    }

    /// Seals what is queued as long as less than [`AHEAD`] bytes, `ahead` of them from before, would wait. The sealed
    /// bytes are appended to `out`; the second value is how many bytes of the user's they are.
    pub(crate) fn fill(
        &mut self,
        ahead: u64,
        out: &mut Vec<u8>,
        spares: &mut SpareVectors,
    ) -> (SealOutcome, u64) {
        let before = self.unsealed;
        let mut end = SealOutcome::Enough;
        while ahead + (out.len() as u64) < AHEAD {
            let step = match self.plain.front() {
                None => break,
                Some(OutputChunk::File { .. }) => self.file(out, spares),
                Some(_) => {
                    self.memory(out, spares);
                    SealOutcome::Enough
                }
            };
            if step != SealOutcome::Enough {
                end = step;
                break;
            }
        }
        if self.plain.is_empty() && self.closing && !self.closed {
            self.closed = true;
            self.layer.close(out);
        }
        (end, before - self.unsealed)
    }

    /// Bytes of memory that it takes, files and shared chunks not among them.
    pub(crate) fn held_bytes(&self) -> usize {
        let queue = self.plain.capacity() * size_of::<OutputChunk>();
        size_of::<SocketLayer>() + self.layer.held_bytes() + queue + self.early.capacity()
    }

    /// The file range that is waited for.
    pub(crate) fn front_file(&self) -> Option<(&std::rc::Rc<crate::FileHandle>, u64, u64)> {
        match self.plain.front() {
            Some(OutputChunk::File { file, offset, len }) => Some((file, *offset, *len)),
            _ => None,
        }
    }

    /// The end is still to be sent.
    pub(crate) fn owes_end(&self) -> bool {
        self.closing && !self.closed
    }

    /// Drops what is not sealed.
    pub(crate) fn clear(&mut self) {
        self.plain.clear();
        (self.offset, self.unsealed, self.closed) = (0, 0, true);
    }

    /// Seals the memory in front: one large piece, or several small ones together.
    fn memory(&mut self, out: &mut Vec<u8>, spares: &mut SpareVectors) {
        let piece = self.layer.piece();
        let rest = self.plain.front().map_or(0, |chunk| chunk.bytes().len() - self.offset);
        let alone = rest >= piece || self.plain.get(1).is_none_or(|next| next.bytes().is_empty());
        if alone {
            let n = rest.min(piece);
            if let Some(chunk) = self.plain.front() {
                self.layer.seal(&chunk.bytes()[self.offset..self.offset + n], out);
            }
            return self.advance(n, spares);
        }
        let mut joined = spares.take();
        while let Some(chunk) = self.plain.front().filter(|chunk| !chunk.bytes().is_empty()) {
            let bytes = &chunk.bytes()[self.offset..];
            let n = bytes.len().min(piece - joined.len());
            joined.extend_from_slice(&bytes[..n]);
            self.advance(n, spares);
            if joined.len() == piece {
                break;
            }
        }
        self.layer.seal(&joined, out);
        spares.give(joined);
    }

    /// Reads some of the file range in front and seals it.
    fn file(&mut self, out: &mut Vec<u8>, spares: &mut SpareVectors) -> SealOutcome {
        let Some((file, offset, len)) = self.front_file() else { return SealOutcome::Enough };
        let n = len.min(PIECE as u64) as usize;
        let mut bytes = spares.take();
        let mut end = SealOutcome::Enough;
        if !crate::sys::append_resident(file, &mut bytes, offset, n) {
            // Read in, and yet not had without waiting: the file is short, or its file system knows no such reads.
            if offset < self.resident_to {
                bytes.resize(n, 0);
                match file.pread_full(&mut bytes, offset) {
                    Ok(read) if read == n => (),
                    Ok(_) => end = SealOutcome::Truncated,
                    Err(error) => end = SealOutcome::Failed(error.raw_os_error().unwrap_or(libc::EIO)),
                }
            } else {
                end = SealOutcome::Cold;
            }
        }
        if end == SealOutcome::Enough {
            self.seal_all(&bytes, out);
            self.advance(n, spares);
        }
        spares.give(bytes);
        end
    }

    fn seal_all(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        let mut rest = plain;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(self.layer.piece()));
            self.layer.seal(piece, out);
            rest = after;
        }
    }

    /// `n` bytes of the front are sealed.
    fn advance(&mut self, n: usize, spares: &mut SpareVectors) {
        self.unsealed -= n as u64;
        let sealed = self.offset;
        let Some(front) = self.plain.front_mut() else { return };
        let whole = match *front {
            OutputChunk::File { ref mut offset, ref mut len, .. } => {
                *offset += n as u64;
                *len -= n as u64;
                *len == 0
            }
            ref memory => sealed + n == memory.bytes().len(),
        };
        if !whole {
            if !matches!(front, OutputChunk::File { .. }) {
                self.offset += n;
            }
            return;
        }
        self.offset = 0;
        match self.plain.pop_front() {
            Some(OutputChunk::Bytes(v)) => spares.give(v),
            Some(OutputChunk::File { .. }) => self.resident_to = 0,
            _ => (),
        }
    }
}

/// After so many milliseconds without output the kernel begins with few packets in flight again: RFC 5681, section 4.1, says so of a
/// retransmission timeout, which is seldom longer.
const REST_MS: u64 = 1_000;
