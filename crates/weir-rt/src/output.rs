//! What a connection has still to send: pieces of memory and file ranges, in order.
//!
//! Invariant: the bytes of the first `flight` chunks belong to the kernel until its completion arrives. They are
//! neither appended to nor dropped; moving a chunk inside the deque moves a `Vec`'s handle, not its bytes.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use crate::file::FileHandle;
use crate::held::HeldMemory;
use crate::sys;

/// A piece of output: bytes or a part of a file.
pub enum OutputChunk {
    /// Owned bytes; the vector is recycled when sent (see [`crate::Stream::spare`]).
    Bytes(Vec<u8>),
    /// Bytes shared by several connections of this worker, such as a cached file.
    Shared(Rc<[u8]>),
    /// A range of shared bytes.
    Part(Rc<[u8]>, Range<usize>),
    /// Bytes of the program.
    Static(&'static [u8]),
    /// `len` bytes of a file from `offset` on.
    File {
        /// The file, open for reading.
        file: Rc<FileHandle>,
        /// First byte.
        offset: u64,
        /// Number of bytes; a file that turns out shorter fails the connection.
        len: u64,
    },
}

impl OutputChunk {
    /// Number of bytes in the chunk.
    pub fn len(&self) -> u64 {
        match self {
            OutputChunk::File { len, .. } => *len,
            memory => memory.bytes().len() as u64,
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of a chunk of memory; nothing for a file.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            OutputChunk::Bytes(v) => v,
            OutputChunk::Shared(s) => s,
            OutputChunk::Part(s, range) => s.get(range.clone()).unwrap_or_default(),
            OutputChunk::Static(s) => s,
            OutputChunk::File { .. } => &[],
        }
    }
}

/// Why output could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The kernel took nothing for the timer's interval.
    TimedOut,
    /// The connection is broken (an errno).
    Closed(i32),
    /// A file could not be read (an errno): both directions of the connection are shut down, and it must be closed.
    File(i32),
    /// A file ended before the range that was promised: as with [`SendError::File`].
    Truncated,
}

impl SendError {
    /// Whether a file is at fault, and not the connection.
    pub fn is_of_file(self) -> bool {
        matches!(self, SendError::File(_) | SendError::Truncated)
    }

    /// Why a file could not be read (an errno); `None` of what is not that.
    pub fn file_errno(self) -> Option<i32> {
        if let SendError::File(errno) = self { Some(errno) } else { None }
    }
}

/// Pieces of one system call. More gain nothing: 16 pieces of 64 KB are the budget of a turn already.
const PIECES: usize = 16;
/// Bytes offered to the kernel in one system call.
const CALL_BYTES: usize = 1 << 20;
/// Chunks up to this size are copied after an owned one with room for them: cheaper than one piece more.
const COPY_MAX: usize = 2048;
/// Owned chunks are joined up to this size.
const JOIN_MAX: usize = 16 * 1024;
/// File ranges up to this size are read into memory (if they are in the page cache) and leave with the head in one
/// system call; sendfile(2) has a fixed cost of some 3 us and needs a call of its own.
const SMALL_FILE: u64 = 16 * 1024;
/// At most this much is read ahead of the socket in that way.
const READ_AHEAD: usize = 64 * 1024;

/// The front of the queue as one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GatheredOutput {
    pub(crate) pieces: usize,
    pub(crate) bytes: usize,
    /// A file range comes next.
    pub(crate) file_next: bool,
}

/// A connection's output queue. Boxed and recycled: an idle connection has none.
pub(crate) struct OutputQueue {
    queue: VecDeque<OutputChunk>,
    /// Bytes of the first chunk (if of memory) that are sent already.
    offset: usize,
    /// Chunks at the front that the kernel is reading.
    flight: usize,
    unsent: u64,
    /// The front file range may be sent up to this offset without asking whether it is in the page cache: it was
    /// just read in.
    pub(crate) resident_to: u64,
    pieces: [libc::iovec; PIECES],
    message: libc::msghdr,
}

impl OutputQueue {
    pub(crate) fn new() -> OutputQueue {
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        OutputQueue {
            queue: VecDeque::new(),
            offset: 0,
            flight: 0,
            unsent: 0,
            resident_to: 0,
            pieces: [empty; PIECES],
            message: sys::empty_message(),
        }
    }

    /// Bytes not yet handed to the kernel.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Appends a chunk, joining small ones.
    pub(crate) fn push(&mut self, chunk: OutputChunk, spares: &mut SpareVectors) {
        if chunk.is_empty() {
            if let OutputChunk::Bytes(v) = chunk {
                spares.give(v);
            }
            return;
        }
        self.unsent += chunk.len();
        if self.queue.len() > self.flight
            && let Some(OutputChunk::Bytes(last)) = self.queue.back_mut()
        {
            let bytes = chunk.bytes();
            let room = last.capacity() - last.len();
            let owned = matches!(chunk, OutputChunk::Bytes(_)) && last.len() + bytes.len() <= JOIN_MAX;
            if !bytes.is_empty() && (owned || bytes.len() <= COPY_MAX.min(room)) {
                last.extend_from_slice(bytes);
                if let OutputChunk::Bytes(v) = chunk {
                    spares.give(v);
                }
                return;
            }
        }
        self.queue.push_back(chunk);
    }

    /// Takes `bytes` into the empty queue, departing: as pushed, gathered and departed, at a tenth of the cost.
    pub(crate) fn depart_alone(&mut self, bytes: Vec<u8>) -> GatheredOutput {
        debug_assert!(self.queue.is_empty() && self.offset == 0 && !bytes.is_empty());
        let gathered = GatheredOutput { pieces: 1, bytes: bytes.len(), file_next: false };
        self.pieces[0] = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        self.unsent = bytes.len() as u64;
        self.queue.push_back(OutputChunk::Bytes(bytes));
        self.depart(gathered);
        gathered
    }

    /// Takes `bytes`, of which the first `sent` are sent (not all), before what is queued, none of which is.
    pub(crate) fn push_rest(&mut self, bytes: Vec<u8>, sent: usize) {
        debug_assert!(self.flight == 0 && self.offset == 0 && sent < bytes.len());
        self.unsent += (bytes.len() - sent) as u64;
        self.offset = sent;
        self.queue.push_front(OutputChunk::Bytes(bytes));
    }

    /// Prepares the memory at the front for one system call; the result stays valid until the next change.
    pub(crate) fn gather(&mut self) -> GatheredOutput {
        let mut gathered = GatheredOutput { pieces: 0, bytes: 0, file_next: false };
        let mut skip = self.offset;
        for chunk in &self.queue {
            if matches!(chunk, OutputChunk::File { .. }) {
                gathered.file_next = true;
                break;
            }
            if gathered.pieces == PIECES || gathered.bytes >= CALL_BYTES {
                break;
            }
            let bytes = &chunk.bytes()[skip..];
            skip = 0;
            let bytes = &bytes[..bytes.len().min(CALL_BYTES - gathered.bytes)];
            let base = bytes.as_ptr().cast_mut().cast();
            self.pieces[gathered.pieces] = libc::iovec { iov_base: base, iov_len: bytes.len() };
            gathered.pieces += 1;
            gathered.bytes += bytes.len();
        }
        gathered
    }

    /// The gathered pieces as a message. It points into `self`, which therefore must not move (it is boxed).
    pub(crate) fn message(&mut self, gathered: GatheredOutput) -> &libc::msghdr {
        self.message.msg_iov = self.pieces.as_mut_ptr();
        self.message.msg_iovlen = gathered.pieces as _;
        &self.message
    }

    /// The one gathered piece, where it is only one.
    pub(crate) fn single(&self, gathered: GatheredOutput) -> Option<(*const u8, usize)> {
        (gathered.pieces == 1).then(|| (self.pieces[0].iov_base.cast_const().cast(), self.pieces[0].iov_len))
    }

    /// The kernel reads the gathered pieces from now on, until [`OutputQueue::landed`].
    pub(crate) fn depart(&mut self, gathered: GatheredOutput) {
        self.flight = gathered.pieces;
    }

    /// The kernel is done with what departed.
    pub(crate) fn landed(&mut self) {
        self.flight = 0;
    }

    /// The file range at the front: file, offset, length.
    pub(crate) fn front_file(&self) -> Option<(&Rc<FileHandle>, u64, u64)> {
        match self.queue.front() {
            Some(OutputChunk::File { file, offset, len }) => Some((file, *offset, *len)),
            _ => None,
        }
    }

    /// `n` bytes from the front have been handed to the kernel.
    pub(crate) fn advance(&mut self, n: u64, spares: &mut SpareVectors) {
        debug_assert!(self.flight == 0 && n <= self.unsent);
        self.unsent -= n;
        let mut left = n;
        while left > 0 {
            let sent = self.offset as u64;
            let Some(front) = self.queue.front_mut() else { return };
            let rest = front.len() - sent;
            if left < rest {
                match front {
                    OutputChunk::File { offset, len, .. } => {
                        *offset += left;
                        *len -= left;
                    }
                    _ => self.offset += left as usize,
                }
                return;
            }
            left -= rest;
            self.offset = 0;
            match self.queue.pop_front() {
                Some(OutputChunk::Bytes(v)) => spares.give(v),
                Some(OutputChunk::File { .. }) => self.resident_to = 0,
                _ => (),
            }
        }
    }

    /// Turns small file ranges near the front into memory, as far as the page cache has them. A range it has not,
    /// or which is shorter than it should be, is left for sendfile(2) and its error handling.
    pub(crate) fn read_small_files(&mut self, spares: &mut SpareVectors) {
        if self.flight > 0 {
            return;
        }
        let (mut at, mut ahead) = (0, 0);
        while at < self.queue.len() && ahead < READ_AHEAD {
            if let OutputChunk::File { len, .. } = &self.queue[at] {
                if *len > SMALL_FILE {
                    return;
                }
                let joined =
                    at > 0 && matches!(&self.queue[at - 1], OutputChunk::Bytes(v) if v.len() <= JOIN_MAX);
                if !self.read_file(at, joined, spares) {
                    return;
                }
                if joined {
                    continue; // the next chunk has moved to `at`
                }
            }
            ahead += self.queue[at].len() as usize;
            at += 1;
        }
    }

    /// Replaces the file range at `at` by its bytes, after those of the chunk before it if `joined`.
    fn read_file(&mut self, at: usize, joined: bool, spares: &mut SpareVectors) -> bool {
        let OutputChunk::File { file, offset, len } = &self.queue[at] else { return false };
        let (file, offset, len) = (Rc::clone(file), *offset, *len as usize);
        if joined {
            let OutputChunk::Bytes(before) = &mut self.queue[at - 1] else { return false };
            if !sys::append_resident(&file, before, offset, len) {
                return false;
            }
            self.queue.remove(at);
        } else {
            let mut bytes = spares.take();
            if !sys::append_resident(&file, &mut bytes, offset, len) {
                spares.give(bytes);
                return false;
            }
            self.queue[at] = OutputChunk::Bytes(bytes);
        }
        true
    }

    /// Bytes of memory that it takes; of what it is to send those that are its own.
    pub(crate) fn held_bytes(&self) -> usize {
        let own = |chunk: &OutputChunk| match chunk {
            OutputChunk::Bytes(bytes) => bytes.capacity(),
            _ => 0,
        };
        let chunks = self.queue.capacity() * size_of::<OutputChunk>();
        size_of::<OutputQueue>() + chunks + self.queue.iter().map(own).sum::<usize>()
    }

    /// Empties the queue (nothing may be in flight), for an error or a close.
    pub(crate) fn clear(&mut self, spares: &mut SpareVectors) {
        debug_assert!(self.flight == 0);
        while let Some(chunk) = self.queue.pop_front() {
            if let OutputChunk::Bytes(v) = chunk {
                spares.give(v);
            }
        }
        (self.offset, self.unsent, self.resident_to) = (0, 0, 0);
    }
}

/// Emptied vectors and output queues, kept for reuse.
#[derive(Default)]
pub(crate) struct SpareVectors {
    vectors: Vec<Vec<u8>>,
    /// Those for long receives, of at least [`LONG_RECEIVE`] bytes.
    long: Vec<Vec<u8>>,
    /// Those for long runs of sealed bytes, of at least [`SEALED`] bytes.
    sealed: Vec<Vec<u8>>,
    /// Bytes that `vectors` have room for.
    room: usize,
    #[allow(clippy::vec_box, reason = "they go from box to box, and are 400 bytes")]
    outputs: Vec<Box<OutputQueue>>,
}

/// Number of each kept for reuse at most.
const SPARES: usize = 256;
/// A vector that has grown beyond this is freed rather than kept: heads with small files ([`SMALL_FILE`]) are composed in
/// spare ones, larger pieces of bodies are not, and would only be memory.
const SPARE_BYTES: usize = 20 * 1024;
/// Vectors that would have room for more bytes than this are freed rather than kept: what passes through a long
/// response would all stay otherwise.
const SPARE_ROOM: usize = 1 << 20;
/// Bytes that a long receive ([`crate::Stream::poll_recv_long`]) brings at most: what one send of a server brings on a fast
/// network, and a body's buffers hold.
pub const LONG_RECEIVE: usize = 64 * 1024;
/// Long vectors that are kept: the one used last is used next, while the processor's cache still has it.
const LONGS: usize = 16;
/// Bytes that a long run of sealed records takes: 128 KB ahead (`layer`), a record that crosses that, and what records add. A
/// vector that grew to it from nothing was copied thrice, and its pages were the system's again after each run.
const SEALED: usize = 160 * 1024;
/// Vectors for such runs that are kept.
const SEALS: usize = 4;
/// A queue with room for more chunks than this is freed rather than kept.
const SPARE_CHUNKS: usize = 64;

impl SpareVectors {
    /// How many vectors and queues there are, and the bytes that they take.
    pub(crate) fn held(&self) -> HeldMemory {
        let long = self.long.iter().chain(&self.sealed);
        let bytes = self.room + long.clone().map(Vec::capacity).sum::<usize>();
        let queues = self.outputs.iter().map(|queue| queue.held_bytes()).sum::<usize>();
        let count = self.vectors.len() + long.count() + self.outputs.len();
        HeldMemory::new(count, bytes + queues)
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        let vector = self.vectors.pop().unwrap_or_default();
        self.room -= vector.capacity();
        vector
    }

    /// An empty vector with room for [`LONG_RECEIVE`] bytes.
    pub(crate) fn take_long(&mut self) -> Vec<u8> {
        self.long.pop().unwrap_or_else(|| Vec::with_capacity(LONG_RECEIVE))
    }

    /// An empty vector with room for what `plain` bytes are when they are sealed, and at most for as many as are sealed
    /// ahead.
    pub(crate) fn take_sealed(&mut self, plain: u64) -> Vec<u8> {
        match usize::try_from(plain) {
            Ok(plain) if plain <= SPARE_BYTES => self.take(),
            Ok(plain) if plain < LONG_RECEIVE => Vec::with_capacity(plain + plain / 16),
            _ => self.sealed.pop().unwrap_or_else(|| Vec::with_capacity(SEALED)),
        }
    }

    pub(crate) fn give(&mut self, mut v: Vec<u8>) {
        if v.capacity() >= SEALED {
            if self.sealed.len() < SEALS && v.capacity() <= 2 * SEALED {
                v.clear();
                self.sealed.push(v);
            }
            return;
        }
        if v.capacity() >= LONG_RECEIVE {
            if self.long.len() < LONGS && v.capacity() <= 2 * LONG_RECEIVE {
                v.clear();
                self.long.push(v);
            }
            return;
        }
        let room = self.room + v.capacity();
        if v.capacity() > 0
            && v.capacity() <= SPARE_BYTES
            && self.vectors.len() < SPARES
            && room <= SPARE_ROOM
        {
            v.clear();
            self.room = room;
            self.vectors.push(v);
        }
    }

    pub(crate) fn take_output(&mut self) -> Box<OutputQueue> {
        self.outputs.pop().unwrap_or_else(|| Box::new(OutputQueue::new()))
    }

    /// `output` must be empty.
    pub(crate) fn give_output(&mut self, output: Box<OutputQueue>) {
        debug_assert!(output.queue.is_empty());
        if self.outputs.len() < SPARES && output.queue.capacity() <= SPARE_CHUNKS {
            self.outputs.push(output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GatheredOutput, OutputChunk, OutputQueue, SEALED, SEALS, SpareVectors};
    use proptest::prelude::*;

    fn sent(output: &mut OutputQueue, n: usize) -> Vec<u8> {
        let gathered = output.gather();
        let mut bytes = Vec::new();
        for piece in &output.pieces[..gathered.pieces] {
            // SAFETY: just gathered from chunks that are still queued.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(piece.iov_base.cast_const().cast(), piece.iov_len)
            });
        }
        bytes.truncate(n);
        bytes
    }

    #[test]
    fn runs_of_sealed_bytes_have_room_at_once_and_use_the_same_memory_again() {
        let mut spares = SpareVectors::default();
        let first = spares.take_sealed(1 << 30);
        assert!((SEALED..2 * SEALED).contains(&first.capacity()));
        let memory = first.as_ptr();
        spares.give(first);
        let again = spares.take_sealed(1 << 20);
        assert_eq!((again.as_ptr(), spares.sealed.len()), (memory, 0));
        assert!((50_000..SEALED).contains(&spares.take_sealed(50_000).capacity()));
        for _ in 0..2 * SEALS {
            spares.give(Vec::with_capacity(SEALED));
        }
        spares.give(Vec::with_capacity(4 * SEALED));
        assert_eq!((spares.sealed.len(), spares.long.len()), (SEALS, 0));
    }

    #[test]
    fn small_chunks_are_joined_into_one_piece() {
        let (mut output, mut spares) = (OutputQueue::new(), SpareVectors::default());
        let mut head = Vec::with_capacity(64);
        head.extend_from_slice(b"head ");
        output.push(OutputChunk::Bytes(head), &mut spares);
        output.push(OutputChunk::Static(b"static "), &mut spares);
        output.push(OutputChunk::Bytes(b"owned".to_vec()), &mut spares);
        let one = GatheredOutput { pieces: 1, bytes: 17, file_next: false };
        assert_eq!((output.gather(), output.unsent()), (one, 17));
        assert_eq!(spares.vectors.len(), 1, "the joined vector is recycled");
    }

    #[test]
    fn nothing_is_appended_to_what_is_in_flight() {
        let (mut output, mut spares) = (OutputQueue::new(), SpareVectors::default());
        output.push(OutputChunk::Bytes(b"first".to_vec()), &mut spares);
        let gathered = output.gather();
        let (start, len) = output.single(gathered).expect("one piece");
        output.depart(gathered);
        output.push(OutputChunk::Bytes(b"second".to_vec()), &mut spares);
        assert_eq!(output.queue.len(), 2);
        output.landed();
        output.gather();
        assert_eq!(output.pieces[0].iov_base.cast_const().cast(), start, "it has not moved");
        output.advance(len as u64, &mut spares);
        assert_eq!(sent(&mut output, 99), b"second");
    }

    proptest! {
        #[test]
        fn any_chunks_leave_whole_and_in_order(
            chunks in prop::collection::vec((0u8..3, 0usize..5000), 0..40),
            steps in prop::collection::vec(1usize..9000, 1..50),
        ) {
            let (mut output, mut spares) = (OutputQueue::new(), SpareVectors::default());
            let (mut expected, mut got) = (Vec::new(), Vec::new());
            for (n, (kind, len)) in chunks.into_iter().enumerate() {
                let bytes = vec![n as u8; len];
                expected.extend_from_slice(&bytes);
                output.push(match kind {
                    0 => OutputChunk::Bytes(bytes),
                    1 => OutputChunk::Shared(bytes.into()),
                    _ => OutputChunk::Static(&[7u8; 5000][..len]),
                }, &mut spares);
                if kind == 2 {
                    let from = expected.len() - len;
                    expected[from..].fill(7);
                }
            }
            let mut steps = steps.into_iter().cycle();
            while output.unsent() > 0 {
                let bytes = sent(&mut output, steps.next().expect("a cycle never ends"));
                got.extend_from_slice(&bytes);
                output.advance(bytes.len() as u64, &mut spares);
            }
            prop_assert_eq!(got, expected);
            prop_assert!(output.queue.is_empty());
        }
    }
}
