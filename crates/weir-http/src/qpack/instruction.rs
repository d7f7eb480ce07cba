//! The instructions of encoder and decoder streams (RFC 9204 sections 4.3 and 4.4), which may come in any pieces.

use super::wire::{WireFault, WireReader, WireText};

/// What an encoder has a decoder do.
#[derive(Clone, Copy, Debug)]
pub(super) enum EncoderInstruction<'i> {
    /// Set Dynamic Table Capacity.
    Capacity(u64),
    /// Insert with the name of an entry of the static table.
    FixedName(u64, WireText<'i>),
    /// Insert with the name of an entry of the dynamic table, which is so many entries old.
    DynamicName(u64, WireText<'i>),
    /// Insert with a literal name.
    Literal(WireText<'i>, WireText<'i>),
    /// Duplicate the entry that is so many entries old.
    Duplicate(u64),
}

impl<'i> EncoderInstruction<'i> {
    /// Takes the next instruction; texts may be `most` bytes long. Nothing is taken of one that is not whole.
    #[inline]
    pub(super) fn read(input: &mut WireReader<'i>, most: usize) -> Result<EncoderInstruction<'i>, WireFault> {
        let mut reader = *input;
        let instruction = match reader.peek().ok_or(WireFault::Short)? {
            0xc0.. => EncoderInstruction::FixedName(reader.integer(6)?, reader.text(7, most)?),
            0x80..=0xbf => EncoderInstruction::DynamicName(reader.integer(6)?, reader.text(7, most)?),
            0x40..=0x7f => EncoderInstruction::Literal(reader.text(5, most)?, reader.text(7, most)?),
            0x20..=0x3f => EncoderInstruction::Capacity(reader.integer(5)?),
            _ => EncoderInstruction::Duplicate(reader.integer(5)?),
        };
        *input = reader;
        Ok(instruction)
    }
}

/// What a decoder says to an encoder.
#[derive(Clone, Copy, Debug)]
pub(super) enum DecoderInstruction {
    /// Section Acknowledgment, of this stream.
    Acknowledge(u64),
    /// Stream Cancellation.
    Cancel(u64),
    /// Insert Count Increment.
    Increment(u64),
}

impl DecoderInstruction {
    /// Takes the next instruction. Nothing is taken of one that is not whole.
    #[inline]
    pub(super) fn read(input: &mut WireReader<'_>) -> Result<DecoderInstruction, WireFault> {
        Ok(match input.peek().ok_or(WireFault::Short)? {
            0x80.. => DecoderInstruction::Acknowledge(input.integer(7)?),
            0x40..=0x7f => DecoderInstruction::Cancel(input.integer(6)?),
            _ => DecoderInstruction::Increment(input.integer(6)?),
        })
    }
}

/// The bytes of an instruction that has come in part.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialInstruction {
    bytes: Vec<u8>,
}

impl PartialInstruction {
    /// Bytes of memory that it owns.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Hands `input` to `read` after what is here of an instruction; what that does not take stays for the next time. `read`
    /// returns how many bytes it took.
    pub(super) fn feed<E>(
        &mut self,
        input: &[u8],
        read: impl FnOnce(&[u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        if self.bytes.is_empty() {
            let used = read(input)?;
            self.bytes.extend_from_slice(input.get(used..).unwrap_or_default());
            return Ok(());
        }
        self.bytes.extend_from_slice(input);
        let used = read(&self.bytes)?;
        self.bytes.drain(..used);
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
        Ok(())
    }
}
