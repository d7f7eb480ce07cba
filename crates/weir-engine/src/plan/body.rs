//! Bodies: pieces of data, where they come from, and the queue in which they pass the filters.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_trace::WaitKind;

use crate::error::EngineError;
use crate::open_file::OpenFile;

/// What a content handler responds with; the engine pulls it through the filters.
#[derive(Default)]
pub enum ResponseBody {
    /// No body; a `Content-Length: 0` is added where the status allows one.
    #[default]
    Empty,
    /// All of it, in memory.
    Whole(BodyBuf),
    /// Several pieces, all known.
    Chain(BodyChain),
    /// Pieces that come over time; the length is not known unless `Response::content_length` says so.
    Source(Box<dyn BodySource>),
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ResponseBody::Empty => write!(f, "Empty"),
            ResponseBody::Whole(buf) => write!(f, "Whole({} bytes)", buf.len()),
            ResponseBody::Chain(chain) => write!(f, "Chain({} bytes)", chain.len()),
            ResponseBody::Source(_) => write!(f, "Source"),
        }
    }
}

/// A body that comes over time: an upstream, a script, a file read in pieces.
pub trait BodySource {
    /// The next piece. `Ready(Err(_))` breaks the response off: the connection is closed, so that the client sees
    /// that the body is not whole.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<BodyPiece, EngineError>>;

    /// Called while the client is waited for: a source may read ahead, within its own limits, so that what it reads
    /// from is free the sooner.
    fn poll_ahead(&mut self, _cx: &mut Context<'_>) {}

    /// How many bytes of it may be on their way to the client before it is waited for; `None`: as usual.
    fn busy(&self) -> Option<u64> {
        None
    }

    /// Called once [`BodyPiece::End`] was given, before filters see the end: what is known only then (trailers).
    fn finish(&mut self, _x: &mut crate::exchange::Exchange) {}

    /// Whether what is to come is useless once the client has left: its connection is then watched while a piece is
    /// waited for, and the source notified ([`BodySource::client_left`]).
    fn is_for_client_only(&self) -> bool {
        false
    }

    /// Whether it is to be read to its end even where no body follows the head: another reader needs it.
    fn is_wanted_anyway(&self) -> bool {
        false
    }

    /// The client has left; the source will not be asked again.
    fn client_left(&mut self) {}

    /// What is waited for while no piece is there.
    fn waits_for(&self) -> WaitKind {
        WaitKind::Other
    }
}

/// What a [`BodySource`] gives.
pub enum BodyPiece {
    /// The next bytes.
    Data(BodyBuf),
    /// Everything so far shall leave now.
    Flush,
    /// The body is complete.
    End,
}

/// A piece of a body. It moves by ownership and is copied only where a filter changes bytes.
#[derive(Clone)]
pub enum BodyBuf {
    /// Bytes of this response.
    Bytes(Vec<u8>),
    /// A part of bytes that others hold too (a small file, a constant of the plan).
    Shared {
        /// The whole.
        bytes: Rc<[u8]>,
        /// First byte that belongs to this piece.
        start: usize,
        /// One past the last.
        end: usize,
    },
    /// Bytes of the program.
    Static(&'static [u8]),
    /// A part of a file, which reaches `sendfile` untouched if no filter needs its bytes.
    File {
        /// The file, open.
        file: Rc<OpenFile>,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

impl Default for BodyBuf {
    /// No bytes.
    fn default() -> BodyBuf {
        BodyBuf::Static(b"")
    }
}

impl BodyBuf {
    /// A piece that is the whole of `bytes`, without a copy.
    pub fn shared(bytes: Rc<[u8]>) -> BodyBuf {
        let end = bytes.len();
        BodyBuf::Shared { bytes, start: 0, end }
    }

    /// Number of bytes in the piece.
    pub fn len(&self) -> u64 {
        match self {
            BodyBuf::Bytes(bytes) => bytes.len() as u64,
            BodyBuf::Shared { start, end, .. } => end.saturating_sub(*start) as u64,
            BodyBuf::Static(bytes) => bytes.len() as u64,
            BodyBuf::File { len, .. } => *len,
        }
    }

    /// Whether the piece has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes when they are in memory; `None` for a file.
    pub fn memory(&self) -> Option<&[u8]> {
        match self {
            BodyBuf::Bytes(bytes) => Some(bytes),
            BodyBuf::Shared { bytes, start, end } => bytes.get(*start..*end),
            BodyBuf::Static(bytes) => Some(bytes),
            BodyBuf::File { .. } => None,
        }
    }

    /// The part `from..to` of the piece, clamped to it.
    pub fn slice(&self, from: u64, to: u64) -> BodyBuf {
        let (from, to) = (from.min(self.len()), to.min(self.len()));
        let to = to.max(from);
        match self {
            BodyBuf::Bytes(bytes) => BodyBuf::Bytes(bytes[from as usize..to as usize].to_vec()),
            BodyBuf::Shared { bytes, start, .. } => BodyBuf::Shared {
                bytes: bytes.clone(),
                start: start + from as usize,
                end: start + to as usize,
            },
            BodyBuf::Static(bytes) => BodyBuf::Static(&bytes[from as usize..to as usize]),
            BodyBuf::File { file, offset, .. } => {
                BodyBuf::File { file: file.clone(), offset: offset + from, len: to - from }
            }
        }
    }
}

impl From<Vec<u8>> for BodyBuf {
    fn from(bytes: Vec<u8>) -> BodyBuf {
        BodyBuf::Bytes(bytes)
    }
}

impl From<&'static str> for BodyBuf {
    fn from(text: &'static str) -> BodyBuf {
        BodyBuf::Static(text.as_bytes())
    }
}

/// Pieces in order, and what comes after them.
#[derive(Clone, Default)]
pub struct BodyChain {
    /// Mostly there is one piece at a time, which needs no memory of its own.
    first: Option<BodyBuf>,
    /// After the first; empty without one.
    bufs: VecDeque<BodyBuf>,
    len: u64,
    /// True when what is here must be sent now and not wait for more (nginx's `flush`).
    pub flush: bool,
    /// True when nothing follows the pieces that are here (nginx's `last_buf`).
    pub last: bool,
}

impl BodyChain {
    /// A whole body of one piece.
    pub fn whole(buf: BodyBuf) -> BodyChain {
        let mut chain = BodyChain { last: true, ..BodyChain::default() };
        chain.push(buf);
        chain
    }

    /// No bytes, and nothing follows.
    pub fn end() -> BodyChain {
        BodyChain { last: true, ..BodyChain::default() }
    }

    /// No bytes; what went before shall leave now.
    pub fn flush() -> BodyChain {
        BodyChain { flush: true, ..BodyChain::default() }
    }

    /// Adds a piece at the end; an empty one leaves no trace.
    pub fn push(&mut self, buf: BodyBuf) {
        if !buf.is_empty() {
            self.len += buf.len();
            match self.first {
                None => self.first = Some(buf),
                Some(_) => self.bufs.push_back(buf),
            }
        }
    }

    /// Takes the first piece; `None` if the chain has no bytes left.
    pub fn pop(&mut self) -> Option<BodyBuf> {
        let buf = self.first.take()?;
        self.first = self.bufs.pop_front();
        self.len -= buf.len();
        Some(buf)
    }

    /// Puts a piece back in front.
    pub fn unpop(&mut self, buf: BodyBuf) {
        if !buf.is_empty() {
            self.len += buf.len();
            if let Some(second) = self.first.replace(buf) {
                self.bufs.push_front(second);
            }
        }
    }

    /// Drops everything, keeping the memory.
    pub(crate) fn clear(&mut self) {
        self.first = None;
        self.bufs.clear();
        self.len = 0;
        (self.flush, self.last) = (false, false);
    }

    /// Moves everything of `other`, flags too, after what is here.
    pub fn append(&mut self, other: &mut BodyChain) {
        if let Some(first) = other.first.take() {
            match self.first {
                None => self.first = Some(first),
                Some(_) => self.bufs.push_back(first),
            }
            self.bufs.append(&mut other.bufs);
        }
        self.len += std::mem::take(&mut other.len);
        self.flush |= std::mem::take(&mut other.flush);
        self.last |= std::mem::take(&mut other.last);
    }

    /// Number of bytes in all pieces.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True when it holds no bytes (its flags may be set).
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The pieces, first to last.
    pub fn iter(&self) -> impl Iterator<Item = &BodyBuf> {
        self.first.iter().chain(&self.bufs)
    }

    /// Whether a piece of a file is among them.
    pub(crate) fn has_file(&self) -> bool {
        self.iter().any(|buf| matches!(buf, BodyBuf::File { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_counts_its_bytes() {
        let mut chain = BodyChain::whole("hello".into());
        chain.push(BodyBuf::Bytes(vec![b'x'; 10]));
        chain.push("".into());
        assert_eq!(chain.len(), 15);
        let first = chain.pop().expect("two pieces");
        assert_eq!(first.memory(), Some(&b"hello"[..]));
        chain.unpop(first.slice(3, 99));
        assert_eq!(chain.len(), 12);
        assert_eq!(chain.pop().and_then(|b| b.memory().map(<[u8]>::to_vec)), Some(b"lo".to_vec()));
    }

    #[test]
    fn pieces_keep_their_order() {
        let mut chain = BodyChain::default();
        assert!(chain.is_empty() && chain.pop().is_none());
        ["c", "d"].into_iter().for_each(|text| chain.push(text.into()));
        ["b", "a"].into_iter().for_each(|text| chain.unpop(text.into()));
        let mut all = BodyChain::default();
        all.append(&mut BodyChain::whole("0".into()));
        all.append(&mut chain);
        assert_eq!((chain.is_empty(), chain.len(), all.last), (true, 0, true));
        assert_eq!(all.iter().count(), 5);
        let texts: Vec<_> = std::iter::from_fn(|| all.pop()).collect();
        let texts: Vec<_> = texts.iter().filter_map(BodyBuf::memory).collect();
        assert_eq!(texts, ["0", "a", "b", "c", "d"].map(str::as_bytes));
    }

    #[test]
    fn slices_are_clamped() {
        let buf = BodyBuf::shared(Rc::from(&b"0123456789"[..]));
        assert_eq!(buf.slice(4, 6).memory(), Some(&b"45"[..]));
        assert_eq!(buf.slice(8, 600).slice(1, 2).memory(), Some(&b"9"[..]));
        assert_eq!(buf.slice(20, 10).len(), 0);
    }
}
