//! Header sections in, and the peer's encoder stream, which fills the table that they refer to.

use super::fixed::fixed;
use super::instruction::{EncoderInstruction, PartialInstruction};
use super::table::InsertTable;
use super::wire::{WireFault, WireReader, WireText};
use super::{ENTRY, QpackError};
use crate::hpack::name::{FieldName, is_clean};
use crate::hpack::prefixed;
use crate::hpack::table::TableField;
use crate::hpack::{DecodedSection, HpackError, SectionLimits};

/// The reading side of a connection's header compression.
#[derive(Clone, Debug)]
pub struct QpackDecoder {
    pub(super) table: InsertTable,
    /// The capacity in bytes that the peer may give its table (`SETTINGS_QPACK_MAX_TABLE_CAPACITY`).
    limit: usize,
    /// Bytes of a name or a value that is inserted.
    longest: usize,
    /// Entries that the peer knows us to have: its Known Received Count once it has read what we sent.
    acknowledged: u64,
    /// What has come of an instruction.
    pub(super) partial: PartialInstruction,
    scratch: Vec<u8>,
    /// What is to be sent on our decoder stream.
    output: Vec<u8>,
    /// The Required Insert Count of the section that was read last.
    required: u64,
    /// Changes of the table's capacity.
    resizes: u64,
    /// Bytes that instructions have had copied out of the tables, and that no section has paid for.
    copied: usize,
}

/// How far a section was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionProgress {
    /// All of it.
    Read,
    /// Nothing: it needs this many entries, and fewer were inserted so far.
    Blocked(u64),
}

/// What precedes the fields of a section (RFC 9204 section 4.5.1).
#[derive(Clone, Copy, Debug)]
struct SectionPrefix {
    /// Required Insert Count: entries below this number may be referred to.
    required: u64,
    base: u64,
}

impl QpackDecoder {
    /// A decoder whose table may have `limit` bytes.
    pub fn new(limit: usize) -> QpackDecoder {
        QpackDecoder {
            table: InsertTable::default(),
            limit,
            longest: usize::MAX,
            acknowledged: 0,
            partial: PartialInstruction::default(),
            scratch: Vec::new(),
            output: Vec::new(),
            required: 0,
            resizes: 0,
            copied: 0,
        }
    }

    /// The same, where a name or a value that is inserted has `bytes` at most.
    #[must_use]
    pub(crate) fn with_longest(self, bytes: usize) -> QpackDecoder {
        QpackDecoder { longest: bytes, ..self }
    }

    /// Bytes of memory that it owns.
    pub fn held_bytes(&self) -> usize {
        let buffers = self.scratch.capacity() + self.output.capacity();
        self.table.held_bytes() + self.partial.held_bytes() + buffers
    }

    /// Entries inserted so far. A section that needs more of them is blocked.
    #[inline]
    pub fn inserted(&self) -> u64 {
        self.table.inserted()
    }

    /// A number that grows whenever the table changes. A section that was read says the same again until it does.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.table.inserted() + self.resizes
    }

    /// Takes what came on the peer's encoder stream, in order.
    ///
    /// # Errors
    /// The peers' tables differ from here on: the connection must end.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), QpackError> {
        let mut partial = std::mem::take(&mut self.partial);
        let fed = partial.feed(bytes, |bytes| self.instructions(bytes));
        self.partial = partial;
        fed
    }

    /// Follows the instructions in `input` that are whole; how many bytes they have.
    fn instructions(&mut self, input: &[u8]) -> Result<usize, QpackError> {
        let mut reader = WireReader::new(input);
        loop {
            match EncoderInstruction::read(&mut reader, self.table.capacity().min(self.longest)) {
                Ok(instruction) => self.follow(instruction)?,
                Err(WireFault::Short) => return Ok(input.len() - reader.rest().len()),
                Err(WireFault::Integer) => return Err(QpackError::InsertInteger),
                Err(WireFault::Long) => return Err(QpackError::Entry),
            }
        }
    }

    fn follow(&mut self, instruction: EncoderInstruction<'_>) -> Result<(), QpackError> {
        match instruction {
            EncoderInstruction::Capacity(capacity) => self.set_capacity(capacity),
            EncoderInstruction::FixedName(index, value) => {
                let row = fixed(index).ok_or(QpackError::InsertIndex)?;
                put(&mut self.scratch, name_of(row));
                self.insert(row.name, value)
            }
            EncoderInstruction::DynamicName(age, value) => {
                let row = aged(&self.table, age)?;
                put(&mut self.scratch, name_of(row));
                self.insert(row.name, value)
            }
            EncoderInstruction::Literal(name, value) => {
                self.scratch.clear();
                name.append(&mut self.scratch).map_err(|_| QpackError::InsertHuffman)?;
                self.insert(FieldName::of(&self.scratch), value)
            }
            EncoderInstruction::Duplicate(age) => self.duplicate(age),
        }
    }

    fn set_capacity(&mut self, capacity: u64) -> Result<(), QpackError> {
        let capacity = usize::try_from(capacity).ok().filter(|capacity| *capacity <= self.limit);
        self.table.set_capacity(capacity.ok_or(QpackError::Capacity)?);
        self.resizes += 1;
        Ok(())
    }

    /// Inserts an entry whose name is in the scratch.
    fn insert(&mut self, name: FieldName, value: WireText<'_>) -> Result<(), QpackError> {
        let label = self.scratch.len();
        self.copy(label)?;
        value.append(&mut self.scratch).map_err(|_| QpackError::InsertHuffman)?;
        let clean = is_clean(self.scratch.get(label..).unwrap_or_default());
        let row = TableField { name, text: &self.scratch, label, clean };
        if self.table.insert(row) { Ok(()) } else { Err(QpackError::Entry) }
    }

    fn duplicate(&mut self, age: u64) -> Result<(), QpackError> {
        let row = aged(&self.table, age)?;
        put(&mut self.scratch, row.text);
        let (name, label, clean) = (row.name, row.label, row.clean);
        self.copy(self.scratch.len())?;
        let row = TableField { name, text: &self.scratch, label, clean };
        if self.table.insert(row) { Ok(()) } else { Err(QpackError::Entry) }
    }

    /// So many bytes are copied for an instruction that may have one. Requests are what it is good for.
    fn copy(&mut self, bytes: usize) -> Result<(), QpackError> {
        self.copied += bytes + ENTRY as usize;
        if self.copied > MOST_COPIED { Err(QpackError::Copies) } else { Ok(()) }
    }

    /// Reads a whole section of `stream` into `section`, which is emptied first, unless it has to wait for the table.
    ///
    /// # Errors
    /// The connection must end.
    pub fn decode(
        &mut self,
        stream: u64,
        block: &[u8],
        limits: SectionLimits,
        section: &mut DecodedSection,
    ) -> Result<SectionProgress, QpackError> {
        let mut reader = WireReader::new(block);
        let prefix = self.prefix(&mut reader)?;
        if prefix.required > self.table.inserted() {
            return Ok(SectionProgress::Blocked(prefix.required));
        }
        section.clear();
        while let Some(first) = reader.peek() {
            self.line(first, &mut reader, prefix, limits, section)?;
        }
        self.required = prefix.required;
        self.again(stream);
        Ok(SectionProgress::Read)
    }

    /// The section that was read last has come on `stream`, maybe once more, with no change of the table since: the peer's encoder
    /// learns that it was read.
    pub fn again(&mut self, stream: u64) {
        self.copied = self.copied.saturating_sub(PAID_COPIES);
        if self.required > 0 {
            prefixed::integer(&mut self.output, 0x80, 7, stream);
            self.acknowledged = self.acknowledged.max(self.required);
        }
    }

    fn prefix(&self, reader: &mut WireReader<'_>) -> Result<SectionPrefix, QpackError> {
        let required = self.required(reader.integer(8).map_err(section_fault)?)?;
        let is_negative = reader.peek().is_some_and(|first| first & 0x80 != 0);
        let delta = reader.integer(7).map_err(section_fault)?;
        let base = match is_negative {
            false => required + delta,
            true => required.checked_sub(delta + 1).ok_or(QpackError::Base)?,
        };
        Ok(SectionPrefix { required, base })
    }

    /// The Required Insert Count that is encoded as `encoded`: of all with that remainder, the one near what was inserted (RFC
    /// 9204 section 4.5.1.1).
    fn required(&self, encoded: u64) -> Result<u64, QpackError> {
        if encoded == 0 {
            return Ok(0);
        }
        let most_entries = self.limit as u64 / ENTRY;
        let range = 2 * most_entries;
        if encoded > range {
            return Err(QpackError::InsertCount);
        }
        let most = self.table.inserted() + most_entries;
        let mut required = most / range * range + encoded - 1;
        if required > most {
            required = required.checked_sub(range).ok_or(QpackError::InsertCount)?;
        }
        if required == 0 { Err(QpackError::InsertCount) } else { Ok(required) }
    }

    #[inline]
    fn line(
        &self,
        first: u8,
        reader: &mut WireReader<'_>,
        prefix: SectionPrefix,
        limits: SectionLimits,
        section: &mut DecodedSection,
    ) -> Result<(), QpackError> {
        let mut index = |bits| reader.integer(bits).map_err(section_fault);
        match first {
            0xc0.. => {
                let row = fixed(index(6)?).ok_or(QpackError::Index)?;
                indexed(row, limits, section)
            }
            0x80..=0xbf => indexed(self.below(index(6)?, prefix)?, limits, section),
            0x50..=0x5f | 0x70..=0x7f => {
                let row = fixed(index(4)?).ok_or(QpackError::Index)?;
                named(row, reader, limits, section)
            }
            0x40..=0x4f | 0x60..=0x6f => {
                let row = self.below(index(4)?, prefix)?;
                named(row, reader, limits, section)
            }
            0x20..=0x3f => literal(reader, limits, section),
            0x10..=0x1f => indexed(self.above(index(4)?, prefix)?, limits, section),
            _ => {
                let row = self.above(index(3)?, prefix)?;
                named(row, reader, limits, section)
            }
        }
    }

    /// The entry so far below the Base.
    fn below(&self, index: u64, prefix: SectionPrefix) -> Result<TableField<'_>, QpackError> {
        let number = prefix.base.checked_sub(index + 1).ok_or(QpackError::Index)?;
        self.referred(number, prefix)
    }

    /// The entry so far above the Base.
    fn above(&self, index: u64, prefix: SectionPrefix) -> Result<TableField<'_>, QpackError> {
        self.referred(prefix.base + index, prefix)
    }

    fn referred(&self, number: u64, prefix: SectionPrefix) -> Result<TableField<'_>, QpackError> {
        let row = if number < prefix.required { self.table.at(number) } else { None };
        row.ok_or(QpackError::Index)
    }

    /// Nothing is read of `stream` any more: its sections, of which there may be some, use the table no longer.
    pub fn cancel(&mut self, stream: u64) {
        if self.limit > 0 {
            prefixed::integer(&mut self.output, 0x40, 6, stream);
        }
    }

    /// What is to be sent on our decoder stream, which the caller takes. Entries that no section has acknowledged are
    /// acknowledged by it.
    pub fn output(&mut self) -> &mut Vec<u8> {
        let new = self.table.inserted() - self.acknowledged;
        if new > 0 {
            prefixed::integer(&mut self.output, 0, 6, new);
            self.acknowledged = self.table.inserted();
        }
        &mut self.output
    }
}

#[inline]
fn indexed(
    row: TableField<'_>,
    limits: SectionLimits,
    section: &mut DecodedSection,
) -> Result<(), QpackError> {
    // A reference of one byte may expand to kilobytes: over the limit nothing is copied any more.
    if section.too_large {
        return section.miss(row.text.len(), limits).map_err(too_large);
    }
    let start = section.mark();
    section.text.extend_from_slice(row.text);
    section.close(row.name, start, start + row.label, row.clean, limits).map_err(too_large)
}

/// A field with the name of `row`, which was read, and a value that follows.
#[inline]
fn named(
    row: TableField<'_>,
    reader: &mut WireReader<'_>,
    limits: SectionLimits,
    section: &mut DecodedSection,
) -> Result<(), QpackError> {
    let start = section.mark();
    section.text.extend_from_slice(name_of(row));
    valued(row.name, start, reader, limits, section)
}

fn literal(
    reader: &mut WireReader<'_>,
    limits: SectionLimits,
    section: &mut DecodedSection,
) -> Result<(), QpackError> {
    let start = section.mark();
    let name = reader.text(3, usize::MAX).map_err(section_fault)?;
    name.append(&mut section.text).map_err(|_| QpackError::Huffman)?;
    let name = FieldName::of(section.text.get(start..).unwrap_or_default());
    valued(name, start, reader, limits, section)
}

/// The value of a field whose name is at the end of the text.
#[inline]
fn valued(
    name: FieldName,
    start: usize,
    reader: &mut WireReader<'_>,
    limits: SectionLimits,
    section: &mut DecodedSection,
) -> Result<(), QpackError> {
    let middle = section.mark();
    let value = reader.text(7, usize::MAX).map_err(section_fault)?;
    value.append(&mut section.text).map_err(|_| QpackError::Huffman)?;
    let clean = is_clean(section.text.get(middle..).unwrap_or_default());
    section.close(name, start, middle, clean, limits).map_err(too_large)
}

/// The entry that was inserted `age` entries before the newest.
fn aged(table: &InsertTable, age: u64) -> Result<TableField<'_>, QpackError> {
    table.number(age).and_then(|number| table.at(number)).ok_or(QpackError::InsertIndex)
}

fn name_of(row: TableField<'_>) -> &[u8] {
    row.text.get(..row.label).unwrap_or_default()
}

fn put(scratch: &mut Vec<u8>, text: &[u8]) {
    scratch.clear();
    scratch.extend_from_slice(text);
}

fn section_fault(fault: WireFault) -> QpackError {
    if fault == WireFault::Integer { QpackError::Integer } else { QpackError::Truncated }
}

fn too_large(_: HpackError) -> QpackError {
    QpackError::TooLarge
}

/// Bytes that instructions may have copied before a section comes: a table of 4 KB, 256 times.
const MOST_COPIED: usize = 1 << 20;
/// Bytes that a section pays for: a request's fields, sixteen times.
const PAID_COPIES: usize = 1 << 16;
