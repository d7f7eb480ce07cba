//! Header blocks in.

use super::name::{FieldName, NameKind, is_clean};
use super::table::{DynamicTable, FIXED, TableField, fixed};
use super::{HpackError, huffman};
use crate::coder::FieldIndexing;
use crate::header::{IgnoredFields, Span};

/// The reading side of a connection's header compression.
#[derive(Clone, Debug)]
pub struct HpackDecoder {
    table: DynamicTable,
    /// The size in bytes that we allow the peer's table (`SETTINGS_HEADER_TABLE_SIZE`).
    limit: usize,
    /// Text of servers may be padded by a byte too many.
    lenient: bool,
    /// Changes of the table's size.
    resizes: u32,
}

/// A decoded header block. Reused, so that a block costs no allocation.
#[derive(Clone, Debug, Default)]
pub struct DecodedSection {
    /// The text of all names and values.
    pub text: Vec<u8>,
    /// The fields in order, pseudo-header fields among them.
    pub items: Vec<SectionField>,
    /// True when the fields were more, or longer, than allowed. Those after the limit are missing; the tables are
    /// right.
    pub too_large: bool,
    /// Bytes and fields that are missing here.
    missing: SectionLimits,
    /// So many fields have been looked at for the ones that are not counted.
    seen: usize,
    /// Those that are not counted.
    ignored: usize,
}

/// A field of a [`DecodedSection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionField {
    /// The field's name, known or not.
    pub name: FieldName,
    /// Its name in the section's text.
    pub label: Span,
    /// Its value in the section's text.
    pub value: Span,
    /// True when the value has no byte that makes the message malformed.
    pub clean: bool,
}

/// Bounds on a header section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionLimits {
    /// Bytes of all names and values.
    pub text: usize,
    /// Maximum number of fields.
    pub fields: usize,
    /// Fields that are not counted.
    pub ignored: IgnoredFields,
}

impl SectionLimits {
    /// Limits of so many bytes and fields, all of which are counted.
    pub const fn new(text: usize, fields: usize) -> SectionLimits {
        SectionLimits { text, fields, ignored: IgnoredFields::None }
    }

    const fn leaves_out(self, name: FieldName) -> bool {
        match name.kind {
            NameKind::Underscore => self.ignored.has_name(false, true),
            NameKind::Unusual => self.ignored.has_name(false, false),
            _ => false,
        }
    }
}

impl DecodedSection {
    /// Bytes of memory that it owns.
    pub fn held_bytes(&self) -> usize {
        self.text.capacity() + self.items.capacity() * size_of::<SectionField>()
    }

    /// Forgets everything but the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.items.clear();
        self.too_large = false;
        self.missing = SectionLimits::default();
        (self.seen, self.ignored) = (0, 0);
    }

    #[inline]
    pub(crate) fn mark(&self) -> usize {
        self.text.len()
    }

    /// Adds the field whose name and value are at the end of the text.
    #[inline]
    pub(crate) fn close(
        &mut self,
        name: FieldName,
        start: usize,
        middle: usize,
        clean: bool,
        limits: SectionLimits,
    ) -> Result<(), HpackError> {
        let is_full = self.items.len() >= limits.fields + self.ignored && self.is_full(name, limits);
        if self.text.len() > limits.text || is_full {
            let length = self.text.len() - start;
            self.text.truncate(start);
            return self.miss(length, limits);
        }
        let (label, value) = (Span::new(start, middle), Span::new(middle, self.text.len()));
        self.items.push(SectionField { name, label, value, clean });
        Ok(())
    }

    /// Whether there is no room for a field of that name beside those that are not counted.
    #[cold]
    fn is_full(&mut self, name: FieldName, limits: SectionLimits) -> bool {
        let unseen = self.items.get(self.seen..).unwrap_or_default();
        self.ignored += unseen.iter().filter(|item| limits.leaves_out(item.name)).count();
        self.seen = self.items.len();
        self.items.len() >= limits.fields + self.ignored && !limits.leaves_out(name)
    }

    /// A field of `length` bytes is not stored. What is twice as large as allowed, or has half as many fields again, is
    /// not read any further: a block of 16 KB may expand to 64 MB.
    #[cold]
    pub(crate) fn miss(&mut self, length: usize, limits: SectionLimits) -> Result<(), HpackError> {
        self.too_large = true;
        self.missing.text += length;
        self.missing.fields += 1;
        let text = self.text.len() + self.missing.text;
        let far = text > 2 * limits.text || self.missing.fields > limits.fields / 2;
        if far { Err(HpackError::TooLarge) } else { Ok(()) }
    }
}

impl HpackDecoder {
    /// Bytes of memory that it owns.
    pub fn held_bytes(&self) -> usize {
        self.table.held_bytes()
    }

    /// A decoder whose table may have `limit` bytes.
    pub fn new(limit: usize) -> HpackDecoder {
        HpackDecoder { table: DynamicTable::new(limit), limit, lenient: false, resizes: 0 }
    }

    /// Takes coded text that ends with a whole byte of padding, an error by RFC 7541 section 5.2 that nginx does not mind
    /// in servers' responses.
    #[must_use]
    pub fn lenient(self) -> HpackDecoder {
        HpackDecoder { lenient: true, ..self }
    }

    /// A number that changes, wrapping around, whenever the table does. A block that was read without a change says the
    /// same again until there is one.
    #[inline]
    pub fn changes(&self) -> u32 {
        self.table.added().wrapping_add(self.resizes)
    }

    /// Reads a whole block into `section`, which is emptied first.
    ///
    /// # Errors
    /// The peers' tables differ from here on: the connection must end with COMPRESSION_ERROR.
    pub fn decode(
        &mut self,
        block: &[u8],
        limits: SectionLimits,
        section: &mut DecodedSection,
    ) -> Result<(), HpackError> {
        section.clear();
        let mut rest = block;
        while let Some((&first, _)) = rest.split_first() {
            match first {
                0x80.. => {
                    let index = integer(&mut rest, 7)?;
                    self.indexed(index, limits, section)?;
                }
                0x40..=0x7f => self.literal(&mut rest, 6, FieldIndexing::Allowed, limits, section)?,
                0x20..=0x3f => {
                    let limit = integer(&mut rest, 5)?;
                    // A change of size comes before the fields (RFC 7541 section 4.2).
                    if limit > self.limit || !section.items.is_empty() {
                        return Err(HpackError::TableSize);
                    }
                    self.table.set_limit(limit);
                    self.resizes = self.resizes.wrapping_add(1);
                }
                _ => self.literal(&mut rest, 4, FieldIndexing::Not, limits, section)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn indexed(
        &self,
        index: usize,
        limits: SectionLimits,
        section: &mut DecodedSection,
    ) -> Result<(), HpackError> {
        let row = self.row(index)?;
        // A reference of one byte may expand to kilobytes: over the limit nothing is copied any more.
        if section.too_large {
            return section.miss(row.text.len(), limits);
        }
        let start = section.mark();
        section.text.extend_from_slice(row.text);
        section.close(row.name, start, start + row.label, row.clean, limits)
    }

    fn literal(
        &mut self,
        rest: &mut &[u8],
        prefix: u32,
        indexing: FieldIndexing,
        limits: SectionLimits,
        section: &mut DecodedSection,
    ) -> Result<(), HpackError> {
        let start = section.mark();
        let index = integer(rest, prefix)?;
        let name = if index > 0 {
            let row = self.row(index)?;
            section.text.extend_from_slice(row.text.get(..row.label).unwrap_or_default());
            row.name
        } else {
            string(rest, self.lenient, &mut section.text)?;
            FieldName::of(section.text.get(start..).unwrap_or_default())
        };
        let middle = section.mark();
        string(rest, self.lenient, &mut section.text)?;
        let clean = is_clean(section.text.get(middle..).unwrap_or_default());
        if indexing == FieldIndexing::Allowed {
            let text = section.text.get(start..).unwrap_or_default();
            self.table.add(TableField { name, text, label: middle - start, clean });
        }
        section.close(name, start, middle, clean, limits)
    }

    #[inline]
    fn row(&self, index: usize) -> Result<TableField<'_>, HpackError> {
        let row = if index > FIXED { self.table.get(index - FIXED - 1) } else { fixed(index) };
        row.ok_or(HpackError::Index)
    }
}

/// An integer whose first byte has `prefix` bits of it (RFC 7541 section 5.1). None that means anything has more than
/// 28 bits after the prefix.
#[inline]
fn integer(rest: &mut &[u8], prefix: u32) -> Result<usize, HpackError> {
    let (&first, mut behind) = rest.split_first().ok_or(HpackError::Truncated)?;
    let full = (1_usize << prefix) - 1;
    let mut value = usize::from(first) & full;
    if value == full {
        let mut shift = 0;
        loop {
            let (&byte, after) = behind.split_first().ok_or(HpackError::Truncated)?;
            behind = after;
            if shift > 21 {
                return Err(HpackError::Integer);
            }
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
    }
    *rest = behind;
    Ok(value)
}

/// Appends a string literal (RFC 7541 section 5.2).
#[inline]
fn string(rest: &mut &[u8], lenient: bool, out: &mut Vec<u8>) -> Result<(), HpackError> {
    let coded = rest.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(rest, 7)?;
    let (text, behind) = rest.split_at_checked(length).ok_or(HpackError::Truncated)?;
    *rest = behind;
    if !coded {
        out.extend_from_slice(text);
        return Ok(());
    }
    let start = out.len();
    match (huffman::decode(text, out), text) {
        (Err(_), [text @ .., 0xff]) if lenient => {
            out.truncate(start);
            huffman::decode(text, out).map_err(|_| HpackError::Huffman)
        }
        (decoded, _) => decoded.map_err(|_| HpackError::Huffman),
    }
}
