//! Bytes that a connection received and that are not used yet.

use weir_rt::RecvBuf;

use crate::exchange::request_body::FramedBytes;

/// The unread input of a connection: the pooled buffer of the last receive, or, when a head or line does not end
/// in it, bytes copied out so that the pooled buffer goes back. An idle connection holds neither.
#[derive(Default)]
pub struct WireInput {
    buf: Option<RecvBuf>,
    at: usize,
    held: Vec<u8>,
}

impl WireInput {
    /// The bytes that were received and not used yet; empty without any.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let all: &[u8] = match &self.buf {
            Some(buf) => buf,
            None => &self.held,
        };
        all.get(self.at..).unwrap_or_default()
    }

    /// Bytes of its own; a buffer of the loop's pool is the loop's.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.capacity()
    }

    /// Whether all that was received is used.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Adds what was received. When the rest of the last receive is still unused the two are joined in memory.
    pub fn push(&mut self, buf: RecvBuf) {
        if self.is_empty() {
            self.held.clear();
            self.at = 0;
            self.buf = Some(buf);
            return;
        }
        self.hold();
        self.held.extend_from_slice(&buf);
    }

    /// Copies the unused bytes out of the pooled buffer, which goes back.
    pub fn hold(&mut self) {
        if let Some(buf) = self.buf.take() {
            self.held.clear();
            self.held.extend_from_slice(buf.get(self.at..).unwrap_or_default());
            self.at = 0;
        } else if self.at > 0 {
            self.held.drain(..self.at.min(self.held.len()));
            self.at = 0;
        }
    }

    /// Drops the first `n` bytes, which were used; gives all memory back if no others are left.
    pub fn consume(&mut self, n: usize) {
        self.at += n;
        if self.is_empty() {
            self.release();
        }
    }

    /// Takes what the body's framing found: the content, without a copy where that is all there is.
    pub(crate) fn take_content(&mut self, found: &FramedBytes) -> Vec<u8> {
        if found.content == (0..self.bytes().len()) {
            return self.take();
        }
        let content = self.bytes()[found.content.clone()].to_vec();
        self.consume(found.used);
        content
    }

    /// Replaces the input, which must be empty, by `bytes`.
    pub fn give(&mut self, bytes: Vec<u8>) {
        self.release();
        self.held = bytes;
    }

    /// Takes all bytes out: a copy, unless they are what a long receive brought, or were held. Gives other memory back.
    pub fn take(&mut self) -> Vec<u8> {
        if self.at == 0 {
            return match self.buf.take() {
                Some(buf) => buf.into_vec(),
                None => std::mem::take(&mut self.held),
            };
        }
        let bytes = self.bytes().to_vec();
        self.release();
        bytes
    }

    /// Gives the buffer and all other memory back; what was received is dropped.
    pub fn release(&mut self) {
        self.buf = None;
        self.at = 0;
        if self.held.capacity() > 0 {
            self.held = Vec::new();
        }
    }
}
