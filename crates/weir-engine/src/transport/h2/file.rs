//! Files on their way into a connection: their bytes are read when their stream's turn comes.
//!
//! What is read ahead of its turn is written to memory that is cold, and is cold again when it is sent: with 512 streams that read
//! ahead a download took twice the time.

use weir_http::h2::{H2Connection, StreamEnd};

use super::slot::StreamSlot;
use super::stream::H2Stream;
use crate::body::BodyBuf;
use crate::error::EngineError;
use crate::exchange::Exchange;
use crate::transport::multiplexed::{LEAST, RequestStream};

impl H2Stream {
    /// Gives a part of a file, and waits until all of it was composed. `end`: nothing follows.
    pub(super) async fn give_file(
        &self,
        x: &mut Exchange,
        part: BodyBuf,
        end: StreamEnd,
    ) -> Result<(), EngineError> {
        let len = part.len();
        self.with_mut(|slot| slot.has_file = true);
        for at in (0..len).step_by(READ_AT_ONCE as usize) {
            let last = at + READ_AT_ONCE >= len;
            // Piece by piece: between them other streams have their turns, whatever their order.
            self.offer(part.slice(at, at + READ_AT_ONCE));
            if last && end == StreamEnd::Last {
                self.finish();
            }
            // As much again as is composed at a time: a stream that runs dry has to be waited for, or lets others go ahead.
            self.composed(x, if last { 0 } else { READ_AT_ONCE }).await?;
        }
        Ok(())
    }

    /// Waits until at most `below` bytes of the body are left to compose; reads what is not in memory meanwhile.
    async fn composed(&self, x: &mut Exchange, below: u64) -> Result<(), EngineError> {
        loop {
            let done = || self.pending() <= below || self.with(|slot| slot.unread);
            if !done() {
                self.until(x, done).await?;
            }
            if !self.with(|slot| slot.unread) {
                return Ok(());
            }
            self.fetch(x).await?;
        }
    }

    /// Reads what the page cache does not have, on a thread of the pool.
    async fn fetch(&self, x: &mut Exchange) -> Result<(), EngineError> {
        let part = self.with_mut(|slot| {
            slot.unread = false;
            slot.chain.pop()
        });
        let Some(BodyBuf::File { file, offset, len }) = part else { return Ok(()) };
        let some = len.min(READ_AT_ONCE);
        let read = x.read_file(&file, offset, some as usize).await;
        if read.is_err() {
            self.mux.h2.borrow_mut().withdraw(self.key);
        }
        let bytes = read?;
        self.with_mut(|slot| {
            if !slot.core.closed {
                slot.chain.unpop(BodyBuf::File { file, offset: offset + some, len: len - some });
                slot.chain.unpop(BodyBuf::shared(bytes.into()));
            }
        });
        self.mux.h2.borrow_mut().resume(self.key);
        self.mux.wake();
        Ok(())
    }
}

/// Has the bytes in memory that the next frame begins with; how many there are at least. `None`: the stream whose turn it was
/// waits for the disk.
#[inline]
pub(super) fn load(h2: &mut H2Connection, slots: &mut [StreamSlot]) -> Option<u64> {
    let Some((key, allowed)) = h2.next_stream() else { return Some(u64::MAX) };
    let Some(slot) = slots.get_mut(key.index()).filter(|slot| slot.has_file) else { return Some(u64::MAX) };
    let loaded = load_file(slot, allowed);
    if loaded.is_none() {
        h2.hold(key);
        slot.unread = true;
        slot.core.wake_writer();
    }
    loaded
}

/// [`load`] for a stream that has a part of a file.
fn load_file(slot: &mut StreamSlot, allowed: u64) -> Option<u64> {
    let in_memory = slot.chain.iter().map_while(|buf| buf.memory().map(<[u8]>::len)).sum::<usize>() as u64;
    if in_memory > 0 {
        return Some(in_memory);
    }
    let part = slot.chain.pop()?;
    let some = part.len().min(allowed.clamp(LEAST, READ_AT_ONCE));
    let BodyBuf::File { file, offset, len } = &part else { return Some(u64::MAX) };
    let Ok(Some(bytes)) = file.handle.bytes_cached(*offset, some as usize) else {
        slot.chain.unpop(part);
        return None;
    };
    slot.chain.unpop(part.slice(some, *len));
    slot.chain.unpop(BodyBuf::shared(bytes));
    Some(some)
}

/// How much of a file is read at once: as much as a connection has composed and not sent.
const READ_AT_ONCE: u64 = crate::transport::wire::HIGH;
