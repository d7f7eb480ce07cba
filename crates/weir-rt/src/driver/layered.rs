//! Sockets whose bytes go through a layer.

use std::rc::Rc;

use crate::FileHandle;
use crate::layer::{OpenOutcome, SealOutcome, SocketLayer, StreamLayer};
use crate::loop_state::LoopState;
use crate::output::OutputChunk;
use crate::output::SendError;
use crate::pool::BUFFER_SIZE;
use crate::socket::{SendState, SocketSlot};

use super::send::PumpOutcome;
use super::{ReceivedInput, WorkerIo};

impl WorkerIo {
    pub(crate) fn set_layer(&mut self, i: u32, layer: Box<dyn StreamLayer>, early: Vec<u8>) {
        let slot = self.sockets.slot(i);
        slot.sent = 0;
        slot.layer = Some(Box::new(SocketLayer::new(layer, early)));
    }

    /// The next bytes that the layer makes of what the socket receives; `most`: of a long receive, this many of the
    /// socket's at once.
    pub(super) fn recv_opened(
        &mut self,
        state: &LoopState,
        i: u32,
        most: Option<usize>,
    ) -> Option<ReceivedInput> {
        if let Some(layered) = &mut self.sockets.slot(i).layer
            && !layered.early.is_empty()
        {
            return Some(ReceivedInput::Opened(std::mem::take(&mut layered.early)));
        }
        loop {
            let received = match most {
                Some(most) => self.recv_long_raw(state, i, most),
                None => self.recv_raw(state, i),
            };
            let raw = match received? {
                ReceivedInput::Data(received) => {
                    let mut raw = self.sockets.spares.take();
                    self.sockets.pool.copy_to(received, &mut raw);
                    self.sockets.pool.give(received.id);
                    raw
                }
                ReceivedInput::Opened(raw) => raw,
                ended => return Some(ended),
            };
            state.kernel.layer(&mut self.sockets.slot(i).debt, raw.len());
            let stretch = state.kernel.begin();
            let plain = self.unwrap(i, &raw);
            state.kernel.end(stretch);
            self.sockets.spares.give(raw);
            if !plain.is_empty() {
                return Some(ReceivedInput::Opened(plain));
            }
            self.sockets.spares.give(plain);
        }
    }

    /// Hands `raw` to the layer; what it wants sent is queued.
    fn unwrap(&mut self, i: u32, raw: &[u8]) -> Vec<u8> {
        let (slot, _, spares) = self.sockets.parts(i);
        // A vector that grows by doubling would copy a long receive's bytes twice.
        let mut plain = if raw.len() > BUFFER_SIZE { spares.take_long() } else { spares.take() };
        let mut out = spares.take();
        let Some(layered) = &mut slot.layer else { return plain };
        match layered.layer.open(raw, &mut plain, &mut out) {
            OpenOutcome::More => (),
            OpenOutcome::End => slot.eof = true,
            OpenOutcome::Broken => slot.recv_error = libc::EPROTO,
        }
        if out.is_empty() || slot.send_error.is_some() {
            spares.give(out);
            return plain;
        }
        slot.output.get_or_insert_with(|| spares.take_output()).push(OutputChunk::Bytes(out), spares);
        self.mark_dirty(i);
        plain
    }

    /// Seals what is queued; `Some`: the socket's own queue is empty, and why it stays so.
    pub(super) fn seal(&mut self, state: &LoopState, i: u32) -> Option<PumpOutcome> {
        let (slot, _, spares) = self.sockets.parts(i);
        let layered = slot.layer.as_mut()?;
        layered.begin(state.now_ms().saturating_sub(slot.progress_ms));
        let ahead = slot.output.as_ref().map_or(0, |output| output.unsent());
        let mut out = spares.take_sealed(layered.unsealed);
        let (end, bytes) = layered.fill(ahead, &mut out, spares);
        slot.sent += bytes;
        if out.is_empty() {
            spares.give(out);
        } else {
            slot.output.get_or_insert_with(|| spares.take_output()).push(OutputChunk::Bytes(out), spares);
        }
        if bytes > 0 {
            state.kernel.layer(&mut slot.debt, bytes as usize);
        }
        match end {
            _ if slot.output.is_some() => None,
            SealOutcome::Enough => Some(PumpOutcome::Done),
            SealOutcome::Cold => Some(PumpOutcome::Cold),
            SealOutcome::Truncated => Some(PumpOutcome::Failed(SendError::Truncated)),
            SealOutcome::Failed(errno) => Some(PumpOutcome::Failed(SendError::File(errno))),
        }
    }

    /// Seals `bytes`, which go out alone; `None`: they were queued after others.
    pub(super) fn seal_alone(&mut self, state: &LoopState, i: u32, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let (slot, _, spares) = self.sockets.parts(i);
        let layered = slot.layer.as_mut()?;
        let free = layered.unsealed == 0;
        layered.push(OutputChunk::Bytes(bytes));
        if !free {
            return None;
        }
        layered.begin(state.now_ms().saturating_sub(slot.progress_ms));
        let mut out = spares.take_sealed(layered.unsealed);
        let (_, bytes) = layered.fill(0, &mut out, spares);
        slot.sent += bytes;
        state.kernel.layer(&mut slot.debt, bytes as usize);
        Some(out)
    }

    /// The peer will get the end of data (close_notify), after all that is queued; `false`: there is no layer to do so.
    pub(super) fn close_layer(&mut self, i: u32) -> bool {
        let slot = self.sockets.slot(i);
        let broken = slot.send_error.is_some() || slot.recv_error != 0 || slot.fd < 0;
        match &mut slot.layer {
            Some(layered) if !broken => layered.closing = true,
            _ => return false,
        }
        self.mark_dirty(i);
        true
    }

    fn mark_dirty(&mut self, i: u32) {
        let slot = self.sockets.slot(i);
        if slot.sending == SendState::Idle && !slot.dirty {
            slot.dirty = true;
            self.sockets.dirty.push(i);
        }
    }
}

impl SocketSlot {
    /// `n` bytes have gone to the kernel. With a layer bytes are counted when they are sealed.
    pub(crate) fn count(&mut self, n: u64) {
        if self.layer.is_none() {
            self.sent += n;
        }
    }

    /// The file at the front is in memory up to there.
    pub(crate) fn set_resident_to(&mut self, offset: u64) {
        match (&mut self.layer, &mut self.output) {
            (Some(layered), _) => layered.resident_to = offset,
            (None, Some(output)) => output.resident_to = offset,
            (None, None) => (),
        }
    }

    /// The file range that is sent next.
    pub(crate) fn front_file(&self) -> Option<(&Rc<FileHandle>, u64, u64)> {
        match &self.layer {
            Some(layered) => layered.front_file(),
            None => self.output.as_ref().and_then(|output| output.front_file()),
        }
    }
}
