//! Header sections out.
//!
//! What the static table has is a reference to it. Everything else is a literal until the peer allows a dynamic table: then, as
//! in HPACK, what is sent a second time is inserted, and is a reference from the moment on at which the peer has acknowledged
//! the entry. A section that refers to an entry holds it until it is acknowledged itself (RFC 9204 section 2.1.1); the oldest
//! quarter of a table that is full is not referred to, so that nothing stays for ever, but is inserted again.

use std::collections::VecDeque;

use super::fixed::{FixedMatch, STATUS, fixed_status};
use super::instruction::{DecoderInstruction, PartialInstruction};
use super::table::InsertTable;
use super::wire::{WireFault, WireReader};
use super::{ENTRY, QpackError};
use crate::coder::{FieldIndexing, SectionCoder};
use crate::header::KnownField;
use crate::hpack::encode::hash;
use crate::hpack::prefixed;
use crate::hpack::table::row;

/// The writing side of a connection's header compression.
#[derive(Clone, Debug, Default)]
pub struct QpackEncoder {
    pub(super) table: InsertTable,
    /// Entries that a table of the peer's greatest capacity could have; 0: it has no table.
    most_entries: u64,
    /// Entries that the peer is known to have.
    received: u64,
    /// Sections that refer to the table and are not acknowledged, oldest first.
    pub(super) sent: VecDeque<SentSection>,
    /// Fields by their hash: what was sent before, and where it is in the table. Empty without one.
    seen: Vec<[SeenField; WAYS]>,
    /// What is to be sent on our encoder stream.
    output: Vec<u8>,
    partial: PartialInstruction,
    scratch: Vec<u8>,
    /// The section that is being written.
    section: OpenSection,
}

#[derive(Clone, Copy, Debug, Default)]
struct SeenField {
    hash: u32,
    /// The number of the table's entry, and one more; 0: it has none.
    entry: u64,
}

/// A section that refers to entries of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentSection {
    stream: u64,
    /// Its Required Insert Count.
    required: u64,
    /// The oldest entry that it refers to.
    oldest: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct OpenSection {
    /// Where it begins in the output.
    start: usize,
    base: u64,
    required: u64,
    oldest: u64,
    /// It may refer to the table.
    refers: bool,
}

impl QpackEncoder {
    /// An encoder for a peer that has not said anything of itself: it has no table.
    pub fn new() -> QpackEncoder {
        QpackEncoder::default()
    }

    /// Bytes of memory that it owns.
    pub fn held_bytes(&self) -> usize {
        let lists = self.sent.capacity() * size_of::<SentSection>()
            + self.seen.capacity() * size_of::<[SeenField; WAYS]>();
        let buffers = self.output.capacity() + self.scratch.capacity();
        self.table.held_bytes() + self.partial.held_bytes() + lists + buffers
    }

    /// The peer allows a dynamic table of so many bytes (`SETTINGS_QPACK_MAX_TABLE_CAPACITY`), of which 4,096 are used at most.
    /// To be called once.
    pub fn set_limit(&mut self, limit: u64) {
        self.most_entries = limit / ENTRY;
        if self.most_entries == 0 {
            return;
        }
        let capacity = limit.min(TABLE);
        prefixed::integer(&mut self.output, 0x20, 5, capacity);
        self.table.set_capacity(capacity as usize);
        self.seen = vec![[SeenField::default(); WAYS]; SEEN / WAYS];
    }

    /// What is to be sent on our encoder stream, which the caller takes.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Takes what came on the peer's decoder stream, in order.
    ///
    /// # Errors
    /// The connection must end.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), QpackError> {
        let mut partial = std::mem::take(&mut self.partial);
        let fed = partial.feed(bytes, |bytes| self.instructions(bytes));
        self.partial = partial;
        fed
    }

    fn instructions(&mut self, input: &[u8]) -> Result<usize, QpackError> {
        let mut reader = WireReader::new(input);
        loop {
            match DecoderInstruction::read(&mut reader) {
                Ok(DecoderInstruction::Acknowledge(stream)) => self.acknowledged(stream)?,
                Ok(DecoderInstruction::Cancel(stream)) => self.sent.retain(|sent| sent.stream != stream),
                Ok(DecoderInstruction::Increment(more)) => self.incremented(more)?,
                Err(WireFault::Short) => return Ok(input.len() - reader.rest().len()),
                Err(_) => return Err(QpackError::AcknowledgedInteger),
            }
        }
    }

    /// The oldest section of `stream` was read.
    fn acknowledged(&mut self, stream: u64) -> Result<(), QpackError> {
        let at = self.sent.iter().position(|sent| sent.stream == stream);
        let section = at.and_then(|at| self.sent.remove(at)).ok_or(QpackError::Acknowledgment)?;
        self.received = self.received.max(section.required);
        Ok(())
    }

    fn incremented(&mut self, more: u64) -> Result<(), QpackError> {
        // Neither has more than 62 bits.
        let received = self.received + more;
        if more == 0 || received > self.table.inserted() {
            return Err(QpackError::Increment);
        }
        self.received = received;
        Ok(())
    }

    /// Begins a section: to be called before its first field.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        let refers = self.most_entries > 0 && self.sent.len() < MOST_SENT;
        let (start, base) = (out.len(), self.table.inserted());
        self.section = OpenSection { start, base, required: 0, oldest: u64::MAX, refers };
        out.extend_from_slice(&[0, 0]);
    }

    /// Ends the section that was begun: its prefix is filled in. It is the next one of `stream`.
    #[inline]
    pub fn finish(&mut self, stream: u64, out: &mut Vec<u8>) {
        let OpenSection { start, base, required, oldest, .. } = self.section;
        if required == 0 {
            return;
        }
        self.scratch.clear();
        prefixed::integer(&mut self.scratch, 0, 8, required % (2 * self.most_entries) + 1);
        prefixed::integer(&mut self.scratch, 0, 7, base - required);
        out.splice(start..start + 2, self.scratch.iter().copied());
        self.sent.push_back(SentSection { stream, required, oldest });
    }

    /// Appends the pseudo-header field `:status`: a byte or two for the statuses of the static table.
    pub fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        if let Some(index) = fixed_status(status) {
            return prefixed::integer(out, 0xc0, 6, u64::from(index));
        }
        let digit = |number: u16| b'0' + (number % 10) as u8;
        let text = [digit(status / 100), digit(status / 10), digit(status)];
        self.write(FixedMatch::Name(STATUS), b":status", &text, FieldIndexing::Allowed, out);
    }

    /// A field of a known name, written in lower case.
    #[inline]
    pub fn known(&mut self, known: KnownField, value: &[u8], out: &mut Vec<u8>) {
        let indexing = match known {
            // As nginx has it: a literal, without the bit that asks all after us for the same, which not all clients read.
            KnownField::SetCookie => FieldIndexing::Not,
            _ => FieldIndexing::of(known, value),
        };
        self.write(FixedMatch::known(known, value), known.lower().as_bytes(), value, indexing, out);
    }

    /// A field of any name, which is in lower case, pseudo-header fields among them.
    pub fn field(&mut self, name: &[u8], value: &[u8], indexing: FieldIndexing, out: &mut Vec<u8>) {
        self.write(FixedMatch::named(name, value), name, value, indexing, out);
    }

    fn write(
        &mut self,
        fixed: FixedMatch,
        name: &[u8],
        value: &[u8],
        indexing: FieldIndexing,
        out: &mut Vec<u8>,
    ) {
        if let FixedMatch::Field(index) = fixed {
            return prefixed::integer(out, 0xc0, 6, u64::from(index));
        }
        if self.section.refers
            && indexing == FieldIndexing::Allowed
            && let Some(number) = self.find(fixed, name, value)
        {
            let section = &mut self.section;
            section.required = section.required.max(number + 1);
            section.oldest = section.oldest.min(number);
            return prefixed::integer(out, 0x80, 6, section.base - 1 - number);
        }
        let never = indexing == FieldIndexing::Never;
        match fixed {
            FixedMatch::Name(index) => {
                prefixed::integer(out, if never { 0x70 } else { 0x50 }, 4, u64::from(index));
            }
            _ => prefixed::text(out, if never { 0x30 } else { 0x20 }, 3, name),
        }
        prefixed::text(out, 0, 7, value);
    }

    /// The entry of the field to refer to. One that came before is inserted, for sections to come.
    fn find(&mut self, fixed: FixedMatch, name: &[u8], value: &[u8]) -> Option<u64> {
        let hash = hash(name, value);
        let place = hash as usize % (SEEN / WAYS);
        let ways = self.seen.get_mut(place)?;
        let Some(way) = ways.iter().position(|seen| seen.hash == hash) else {
            // The oldest goes.
            ways.rotate_right(1);
            ways[0] = SeenField { hash, entry: 0 };
            return None;
        };
        let number = ways.get(way)?.entry.checked_sub(1);
        let found = number.filter(|number| {
            let row = self.table.at(*number);
            row.is_some_and(|row| row.text.split_at_checked(row.label) == Some((name, value)))
        });
        let inserted = match found {
            Some(number) if !self.is_draining(number) => {
                return (number < self.received).then_some(number);
            }
            Some(number) => self.insert(name, value, |table, out| {
                prefixed::integer(out, 0, 5, table.inserted() - 1 - number);
            }),
            None => self.insert(name, value, |_, out| {
                match fixed {
                    FixedMatch::Name(index) => prefixed::integer(out, 0xc0, 6, u64::from(index)),
                    _ => prefixed::text(out, 0x40, 5, name),
                }
                prefixed::text(out, 0, 7, value);
            }),
        };
        if inserted && let Some(seen) = self.seen.get_mut(place).and_then(|ways| ways.get_mut(way)) {
            seen.entry = self.table.inserted();
        }
        None
    }

    /// Whether an entry is among the oldest of a table that has little room.
    pub(super) fn is_draining(&self, number: u64) -> bool {
        let oldest = self.table.oldest();
        let entries = self.table.inserted() - oldest;
        number - oldest < entries / 4 && self.table.size() > self.table.capacity() / 4 * 3
    }

    /// Inserts an entry, where those that go for it are not needed any more; `instruct` writes the instruction.
    fn insert(
        &mut self,
        name: &[u8],
        value: &[u8],
        instruct: impl FnOnce(&InsertTable, &mut Vec<u8>),
    ) -> bool {
        let length = name.len() + value.len();
        if length + ENTRY as usize > self.table.capacity() / 2 {
            return false;
        }
        let needed = self.sent.iter().map(|sent| sent.oldest).min().unwrap_or(u64::MAX);
        let needed = needed.min(self.section.oldest).min(self.received);
        if self.table.goes_below(length).is_none_or(|gone| gone > needed) {
            return false;
        }
        instruct(&self.table, &mut self.output);
        self.scratch.clear();
        self.scratch.extend_from_slice(name);
        self.scratch.extend_from_slice(value);
        self.table.insert(row(&self.scratch, name.len()))
    }
}

impl SectionCoder for QpackEncoder {
    #[inline]
    fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        QpackEncoder::status(self, status, out);
    }

    #[inline]
    fn known(&mut self, known: KnownField, value: &[u8], out: &mut Vec<u8>) {
        QpackEncoder::known(self, known, value, out);
    }

    #[inline]
    fn field(&mut self, name: &[u8], value: &[u8], indexing: FieldIndexing, out: &mut Vec<u8>) {
        QpackEncoder::field(self, name, value, indexing, out);
    }
}

/// Bytes of the table that are used, whatever the peer allows.
const TABLE: u64 = 4096;
/// Sections that refer to the table and may wait for their acknowledgment. More of them than this only come from peers that
/// acknowledge nothing; they refer to nothing.
pub(super) const MOST_SENT: usize = 256;
/// Fields that are remembered. A table of 4 KB has about 60 entries.
const SEEN: usize = 128;
/// Places for those whose hashes are alike.
const WAYS: usize = 4;
