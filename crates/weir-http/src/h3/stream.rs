//! Request streams: how far each has come.

use super::frame::PartialHead;
use crate::priority::Priority;

/// What is known of a request's stream.
#[derive(Debug)]
pub(super) struct H3Stream {
    pub(super) id: u64,
    pub(super) phase: StreamPhase,
    pub(super) reading: StreamReading,
    /// The header section that is coming in, or waits for the dynamic table.
    pub(super) block: Vec<u8>,
    /// Bytes of content announced.
    pub(super) expected: Option<u64>,
    /// Bytes of content in DATA frames so far.
    pub(super) received: u64,
    pub(super) priority: Priority,
    /// A PRIORITY_UPDATE frame has said more than the head.
    pub(super) is_reprioritized: bool,
    /// After the head of a CONNECT request there is content alone (RFC 9114 section 4.4).
    pub(super) is_tunnel: bool,
    /// The end of the peer's direction has come.
    pub(super) is_ended: bool,
    /// A final head was written.
    pub(super) is_responded: bool,
}

/// Which part of its message comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamPhase {
    /// A head: a request's, or a response's, of which there may be interim ones.
    Head,
    /// Content, and maybe trailers.
    Content,
    /// Nothing.
    Over,
}

/// What comes next of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum StreamReading {
    /// Its head.
    Head(PartialHead),
    /// So many bytes of a header section.
    Section(u64),
    /// So many bytes of content.
    Content(u64),
    /// So many bytes of a frame that means nothing.
    Skip(u64),
    /// The header section has come, and needs so many entries of the dynamic table.
    Blocked(u64),
    /// All that comes is dropped.
    Dropped,
}

impl StreamReading {
    /// The next frame begins.
    pub(super) fn next() -> StreamReading {
        StreamReading::Head(PartialHead::default())
    }

    /// Whether nothing of a frame is still to come.
    pub(super) fn is_between(&self) -> bool {
        matches!(self, StreamReading::Head(partial) if partial.is_empty())
    }
}

impl H3Stream {
    /// All header sections that there will be were read.
    pub(super) fn is_read(&self) -> bool {
        self.is_ended && !matches!(self.reading, StreamReading::Dropped)
    }

    pub(super) fn new(id: u64) -> H3Stream {
        H3Stream {
            id,
            phase: StreamPhase::Head,
            reading: StreamReading::next(),
            block: Vec::new(),
            expected: None,
            received: 0,
            priority: Priority::default(),
            is_reprioritized: false,
            is_tunnel: false,
            is_ended: false,
            is_responded: false,
        }
    }
}

/// The streams of a connection, by identifier: hardly ever more than a hundred, and new ones are at the end.
#[derive(Debug, Default)]
pub(super) struct StreamList {
    streams: Vec<H3Stream>,
}

impl StreamList {
    /// Bytes of memory that it owns.
    pub(super) fn held_bytes(&self) -> usize {
        let blocks: usize = self.streams.iter().map(|stream| stream.block.capacity()).sum();
        self.streams.capacity() * size_of::<H3Stream>() + blocks
    }

    fn place(&self, id: u64) -> Result<usize, usize> {
        self.streams.binary_search_by_key(&id, |stream| stream.id)
    }

    pub(super) fn get(&self, id: u64) -> Option<&H3Stream> {
        self.place(id).ok().and_then(|at| self.streams.get(at))
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut H3Stream> {
        self.place(id).ok().and_then(|at| self.streams.get_mut(at))
    }

    pub(super) fn add(&mut self, stream: H3Stream) {
        if let Err(at) = self.place(stream.id) {
            self.streams.insert(at, stream);
        }
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<H3Stream> {
        self.place(id).ok().map(|at| self.streams.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_found_whatever_their_order() {
        let mut list = StreamList::default();
        for id in [8, 0, 4, 8, 16] {
            list.add(H3Stream::new(id));
        }
        assert_eq!(list.streams.iter().map(|stream| stream.id).collect::<Vec<_>>(), [0, 4, 8, 16]);
        assert!(list.get(12).is_none() && list.remove(12).is_none());
        assert_eq!(list.remove(4).map(|stream| stream.id), Some(4));
        assert!(list.get(4).is_none() && list.get_mut(16).is_some());
    }
}
