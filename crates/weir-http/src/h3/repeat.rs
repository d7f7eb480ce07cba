//! Header sections that come once more.

use super::H3Failure;
use super::conn::H3Connection;
use crate::qpack::SectionProgress;

/// The block that was read last. Clients ask in the same words again and again: one that comes once more while nothing has changed
/// the decoder's table says what is in section and message already.
#[derive(Debug, Default)]
pub(super) struct ReadBlock {
    /// Empty: it can't come again.
    bytes: Vec<u8>,
    /// The decoder's state when it came.
    changes: u64,
    /// The message was read as a request's, and is as it was read.
    pub(super) is_request: bool,
    /// How many blocks were not the one before them.
    pub(super) version: u64,
}

impl ReadBlock {
    /// Bytes of memory that it owns.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

impl H3Connection {
    /// Reads `block` of the stream `id` into the section, unless it is there.
    pub(super) fn decode(&mut self, id: u64, block: &[u8]) -> Result<SectionProgress, H3Failure> {
        let (changes, read) = (self.decoder.changes(), &mut self.read);
        if !block.is_empty() && read.bytes == block && read.changes == changes {
            self.decoder.again(id);
            return Ok(SectionProgress::Read);
        }
        let progress = self.decoder.decode(id, block, self.config.limits, &mut self.section)?;
        if progress == SectionProgress::Read {
            read.bytes.clear();
            read.is_request = false;
            read.version += 1;
            if block.len() <= USUAL {
                read.bytes.extend_from_slice(block);
                read.changes = changes;
            }
        }
        Ok(progress)
    }
}

/// Longer blocks are not stored: they have something new in them.
const USUAL: usize = 256;
