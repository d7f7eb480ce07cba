//! Unidirectional streams of the peer: what each is for, and where its bytes go (RFC 9114 section 6.2, RFC 9204 section 4.2).

use super::conn::{H3Connection, H3Role};
use super::control::ControlReader;
use super::varint;
use super::{H3ErrorCode, H3Failure};
use crate::message::StreamEnd;

/// Whether what comes on a unidirectional stream is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UniInterest {
    /// It is, or may be.
    Wanted,
    /// It is of an unknown type: what comes is dropped. The caller may ask the peer to stop, with H3_STREAM_CREATION_ERROR.
    Unwanted,
}

/// The unidirectional streams that the peer has open.
#[derive(Debug, Default)]
pub(super) struct UniStreams {
    open: Vec<UniStream>,
    /// Which of the three were opened: bits by type.
    seen: u8,
}

#[derive(Debug)]
struct UniStream {
    id: u64,
    purpose: UniPurpose,
}

#[derive(Debug)]
enum UniPurpose {
    /// Its type has not come, or in part.
    Begun(Vec<u8>),
    Control(ControlReader),
    /// The peer's encoder, which fills our decoder's table.
    Encoder,
    /// The peer's decoder, which acknowledges what our encoder sent.
    Decoder,
    /// Unknown: it is dropped.
    Dropped,
}

/// Types of unidirectional streams.
pub(super) const CONTROL: u64 = 0;
const PUSH: u64 = 1;
pub(super) const ENCODER: u64 = 2;
pub(super) const DECODER: u64 = 3;

impl UniStreams {
    /// Bytes of memory that it owns.
    pub(super) fn held_bytes(&self) -> usize {
        let held = |stream: &UniStream| match &stream.purpose {
            UniPurpose::Begun(bytes) => bytes.capacity(),
            UniPurpose::Control(reader) => reader.held_bytes(),
            _ => 0,
        };
        self.open.iter().map(held).sum::<usize>() + self.open.capacity() * size_of::<UniStream>()
    }

    /// Takes the stream out; a new one where there is no such stream.
    fn take(&mut self, id: u64) -> UniPurpose {
        match self.open.iter().position(|stream| stream.id == id) {
            Some(at) => self.open.swap_remove(at).purpose,
            None => UniPurpose::Begun(Vec::new()),
        }
    }
}

impl UniPurpose {
    /// Without it there is no connection.
    fn is_critical(&self) -> bool {
        matches!(self, UniPurpose::Control(_) | UniPurpose::Encoder | UniPurpose::Decoder)
    }
}

impl H3Connection {
    /// Takes what came on a unidirectional stream of the peer, in order; `end` says whether it has ended with that.
    ///
    /// # Errors
    /// The peer broke the protocol, or a limit: the connection has to be closed.
    pub fn receive_uni(&mut self, id: u64, bytes: &[u8], end: StreamEnd) -> Result<UniInterest, H3Failure> {
        let mut purpose = self.unis.take(id);
        let mut rest = bytes;
        if let UniPurpose::Begun(begun) = &mut purpose {
            let before = begun.len();
            begun.extend_from_slice(rest.get(..TYPE.min(rest.len())).unwrap_or_default());
            if let Some((kind, used)) = varint::read(begun) {
                rest = rest.get(used - before..).unwrap_or_default();
                purpose = self.purpose(kind)?;
            }
        }
        match &mut purpose {
            UniPurpose::Control(reader) => self.control(reader, rest)?,
            UniPurpose::Encoder => self.decoder.receive(rest)?,
            UniPurpose::Decoder => self.encoder.receive(rest)?,
            UniPurpose::Begun(_) | UniPurpose::Dropped => {}
        }
        let interest = match purpose {
            UniPurpose::Dropped => UniInterest::Unwanted,
            _ => UniInterest::Wanted,
        };
        match end {
            StreamEnd::More => self.unis.open.push(UniStream { id, purpose }),
            StreamEnd::Last if purpose.is_critical() => return Err(H3Failure::CLOSED_CRITICAL_STREAM),
            StreamEnd::Last => {}
        }
        Ok(interest)
    }

    /// The peer has reset a unidirectional stream of its own.
    ///
    /// # Errors
    /// Without that stream there is no connection.
    pub fn reset_uni(&mut self, id: u64) -> Result<(), H3Failure> {
        if self.unis.take(id).is_critical() { Err(H3Failure::CLOSED_CRITICAL_STREAM) } else { Ok(()) }
    }

    /// What a stream of this type is for.
    fn purpose(&mut self, kind: u64) -> Result<UniPurpose, H3Failure> {
        let purpose = match kind {
            CONTROL => UniPurpose::Control(ControlReader::default()),
            ENCODER => UniPurpose::Encoder,
            DECODER => UniPurpose::Decoder,
            PUSH if self.role == H3Role::Server => {
                return Err(H3Failure::new(H3ErrorCode::StreamCreation, "opened push stream"));
            }
            // Nothing may be pushed without a MAX_PUSH_ID frame, and none is sent here.
            PUSH => return Err(H3Failure::new(H3ErrorCode::Id, "opened push stream")),
            _ => return Ok(UniPurpose::Dropped),
        };
        if self.unis.seen & (1 << kind) != 0 {
            return Err(H3Failure::new(H3ErrorCode::StreamCreation, "opened critical stream twice"));
        }
        self.unis.seen |= 1 << kind;
        Ok(purpose)
    }
}

/// Bytes that a type has at most.
const TYPE: usize = 8;
