//! The streams of a connection: a slab whose places are used again, and which identifier is where.

use super::flow::{RecvWindow, SendWindow};
use super::state::StreamState;
use crate::priority::Priority;

/// A stream's place among those of its connection. It stays the stream's until the stream is released
/// ([`H2Connection::release`](super::H2Connection::release)), whatever happened to it on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey(pub(super) u32);

impl StreamKey {
    /// The place as an index: small numbers, used again, for what a caller keeps of each stream.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What is known of a stream.
#[derive(Clone, Debug)]
pub(super) struct StreamRecord {
    pub(super) id: u32,
    pub(super) state: StreamState,
    pub(super) priority: Priority,
    pub(super) send: SendWindow,
    pub(super) recv: RecvWindow,
    /// Bytes that wait to be sent.
    pub(super) pending: u64,
    /// After them the stream ends.
    pub(super) last: bool,
    /// It is in the queue of those that may send.
    pub(super) queued: bool,
    /// Its content is not at hand: it gets no turn.
    pub(super) held: bool,
    /// A head was received (of a response: the final one).
    pub(super) head: bool,
    /// The most bytes of content in a frame.
    pub(super) chunk: u32,
    /// Bytes of content announced.
    pub(super) expected: Option<u64>,
    /// Its content is not what was announced.
    pub(super) broken: bool,
    /// Bytes of content received.
    pub(super) received: u64,
}

/// The slab and the map.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamStore {
    places: Vec<Option<StreamRecord>>,
    free: Vec<u32>,
    /// Identifiers and places, by identifier. Peers open streams in this order, so adding is at the end; there are
    /// hardly ever more than a hundred.
    ids: Vec<(u32, u32)>,
}

impl StreamStore {
    /// Bytes of memory that it owns.
    pub(super) fn held_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Option<StreamRecord>>()
            + self.free.capacity() * size_of::<u32>()
            + self.ids.capacity() * size_of::<(u32, u32)>()
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn insert(&mut self, stream: StreamRecord) -> StreamKey {
        let id = stream.id;
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.places.push(None);
                self.places.len() as u32 - 1
            }
        };
        if let Some(slot) = self.places.get_mut(place as usize) {
            *slot = Some(stream);
        }
        let at = self.ids.partition_point(|(other, _)| *other < id);
        self.ids.insert(at, (id, place));
        StreamKey(place)
    }

    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<StreamKey> {
        let at = self.ids.binary_search_by_key(&id, |(other, _)| *other).ok()?;
        self.ids.get(at).map(|(_, place)| StreamKey(*place))
    }

    #[inline]
    pub(super) fn get(&self, key: StreamKey) -> Option<&StreamRecord> {
        self.places.get(key.index())?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: StreamKey) -> Option<&mut StreamRecord> {
        self.places.get_mut(key.index())?.as_mut()
    }

    pub(super) fn remove(&mut self, key: StreamKey) -> Option<StreamRecord> {
        let stream = self.places.get_mut(key.index())?.take()?;
        self.free.push(key.0);
        if let Ok(at) = self.ids.binary_search_by_key(&stream.id, |(other, _)| *other) {
            self.ids.remove(at);
        }
        Some(stream)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = StreamKey> {
        self.ids.iter().map(|(_, place)| StreamKey(*place))
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = &StreamRecord> {
        self.places.iter().flatten()
    }

    pub(super) fn streams_mut(&mut self) -> impl Iterator<Item = (StreamKey, &mut StreamRecord)> {
        let places = self.places.iter_mut().enumerate();
        places.filter_map(|(place, stream)| Some((StreamKey(place as u32), stream.as_mut()?)))
    }
}
