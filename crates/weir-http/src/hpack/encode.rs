//! Header blocks out.
//!
//! What is worth an entry of the peer's table is found by seeing it twice: a field's hash is remembered when it is sent
//! first, and only when it is sent again the field is indexed. So what is said once (a length, a redirect's target)
//! evicts nothing, and what every response says (server, type, the date of this second) costs one byte from the third
//! response on.

use super::prefixed::{self, integer};
use super::table::{DynamicTable, FIXED, fixed_name, row};
use crate::coder::{FieldIndexing, SectionCoder};
use crate::header::KnownField;

/// The writing side of a connection's header compression.
#[derive(Clone, Debug)]
pub struct HpackEncoder {
    table: DynamicTable,
    /// Fields by their hash: what was sent before, and where it is in the table.
    seen: Box<[[SeenField; WAYS]; SEEN / WAYS]>,
    /// The smallest and the last limit since the last block, when the limit was changed.
    resized: Option<(usize, usize)>,
    scratch: Vec<u8>,
    /// What the next block of the same fields may be written differently for: see [`HpackEncoder::changes`].
    changes: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct SeenField {
    hash: u32,
    /// The number of the table's entry; 0: it has none.
    entry: u32,
}

impl HpackEncoder {
    /// An encoder for a peer that has not said otherwise: its table has 4,096 bytes.
    pub fn new() -> HpackEncoder {
        HpackEncoder {
            table: DynamicTable::new(TABLE),
            seen: Box::new([[SeenField::default(); WAYS]; SEEN / WAYS]),
            resized: None,
            scratch: Vec::new(),
            changes: 0,
        }
    }

    /// Bytes of memory that it owns.
    pub fn held_bytes(&self) -> usize {
        self.table.held_bytes() + size_of_val(&*self.seen) + self.scratch.capacity()
    }

    /// A number that changes, wrapping around, with each entry of the table and each field that was not seen before. A
    /// block that was written without a change may be sent again as it is until there is one.
    #[inline]
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// Sets the limit of the dynamic table to the peer's `SETTINGS_HEADER_TABLE_SIZE`, in bytes (RFC 7541, section
    /// 4.1), but to 4,096 at most. The next block begins with the table size update that informs the peer's decoder
    /// (section 6.3).
    pub fn set_limit(&mut self, limit: u32) {
        let limit = (limit as usize).min(TABLE);
        if limit == self.table.limit() && self.resized.is_none() {
            return;
        }
        let smallest = self.resized.map_or(limit, |(smallest, _)| smallest.min(limit));
        self.resized = Some((smallest, limit));
        self.changes = self.changes.wrapping_add(1);
        self.table.set_limit(limit);
    }

    /// Begins a block: to be called before its first field.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some((smallest, last)) = self.resized.take() {
            if smallest < last {
                integer(out, 0x20, 5, smallest as u64);
            }
            integer(out, 0x20, 5, last as u64);
        }
    }

    /// Appends the pseudo-header field `:status`: one byte for the seven statuses of the static table (RFC 7541,
    /// appendix A), otherwise three digits as a literal.
    pub fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let digit = |number: u16| b'0' + (number % 10) as u8;
                let text = [digit(status / 100), digit(status / 10), digit(status)];
                return self.write(out, 8, b":status", &text, FieldIndexing::Allowed);
            }
        };
        out.push(0x80 | index);
    }

    /// A field of a known name, written in lower case.
    #[inline]
    pub fn known(&mut self, known: KnownField, value: &[u8], out: &mut Vec<u8>) {
        let indexing = FieldIndexing::of(known, value);
        self.write(out, fixed_name(known), known.lower().as_bytes(), value, indexing);
    }

    /// A field of any name, which is in lower case.
    pub fn field(&mut self, name: &[u8], value: &[u8], indexing: FieldIndexing, out: &mut Vec<u8>) {
        self.write(out, 0, name, value, indexing);
    }

    /// `:method`, `:scheme`, `:authority`, `:path` or `:protocol` of a request.
    pub fn pseudo(&mut self, name: &'static str, value: &[u8], out: &mut Vec<u8>) {
        let whole = match (name, value) {
            (":method", b"GET") => 2,
            (":method", b"POST") => 3,
            (":path", b"/") => 4,
            (":scheme", b"http") => 6,
            (":scheme", b"https") => 7,
            _ => 0,
        };
        if whole != 0 {
            return out.push(0x80 | whole);
        }
        let index = match name {
            ":authority" => 1,
            ":method" => 2,
            ":path" => 4,
            ":scheme" => 6,
            _ => 0,
        };
        let indexing = if name == ":path" { FieldIndexing::Not } else { FieldIndexing::Allowed };
        self.write(out, index, name.as_bytes(), value, indexing);
    }

    /// Writes a field; `name_index` is that of its name in the static table, 0 for none.
    fn write(
        &mut self,
        out: &mut Vec<u8>,
        name_index: u8,
        name: &[u8],
        value: &[u8],
        indexing: FieldIndexing,
    ) {
        let (mark, prefix) = match indexing {
            FieldIndexing::Allowed => match self.find(name, value) {
                TableMatch::At(index) => return integer(out, 0x80, 7, index as u64),
                TableMatch::Again => (0x40, 6),
                TableMatch::New => (0, 4),
            },
            FieldIndexing::Not => (0, 4),
            FieldIndexing::Never => (0x10, 4),
        };
        integer(out, mark, prefix, u64::from(name_index));
        if name_index == 0 {
            prefixed::text(out, 0, 7, name);
        }
        prefixed::text(out, 0, 7, value);
    }

    /// Where the table has the field; it is put in when it came before.
    fn find(&mut self, name: &[u8], value: &[u8]) -> TableMatch {
        let hash = hash(name, value);
        let Some(ways) = self.seen.get_mut(hash as usize % (SEEN / WAYS)) else { return TableMatch::New };
        let Some(seen) = ways.iter_mut().find(|seen| seen.hash == hash) else {
            // The oldest goes. With one place for each, two fields of every response could put each other out for ever.
            ways.rotate_right(1);
            ways[0] = SeenField { hash, entry: 0 };
            self.changes = self.changes.wrapping_add(1);
            return TableMatch::New;
        };
        if seen.entry != 0 {
            let age = self.table.added().wrapping_sub(seen.entry) as usize;
            if let Some(row) = self.table.get(age)
                && row.text.split_at_checked(row.label) == Some((name, value))
            {
                return TableMatch::At(FIXED + 1 + age);
            }
        }
        if !self.table.takes(name.len() + value.len()) {
            return TableMatch::New;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(name);
        self.scratch.extend_from_slice(value);
        self.table.add(row(&self.scratch, name.len()));
        seen.entry = self.table.added();
        self.changes = self.changes.wrapping_add(1);
        TableMatch::Again
    }
}

impl SectionCoder for HpackEncoder {
    #[inline]
    fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        HpackEncoder::status(self, status, out);
    }

    #[inline]
    fn known(&mut self, known: KnownField, value: &[u8], out: &mut Vec<u8>) {
        HpackEncoder::known(self, known, value, out);
    }

    #[inline]
    fn field(&mut self, name: &[u8], value: &[u8], indexing: FieldIndexing, out: &mut Vec<u8>) {
        HpackEncoder::field(self, name, value, indexing, out);
    }
}

impl Default for HpackEncoder {
    fn default() -> HpackEncoder {
        HpackEncoder::new()
    }
}

/// What the table has of a field.
enum TableMatch {
    /// It, at this index.
    At(usize),
    /// It did not have it, and has it now.
    Again,
    /// Nothing.
    New,
}

/// Mixes both texts; equal hashes are compared.
#[inline]
pub(crate) fn hash(name: &[u8], value: &[u8]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = (name.len() as u64) << 32 ^ value.len() as u64;
    let mut mix = |word: u64| hash = (hash.rotate_left(23) ^ word).wrapping_mul(ODD);
    // Of a name its ends are enough: values distinguish the rest.
    mix(tail(name));
    let mut words = value.chunks_exact(8);
    for word in &mut words {
        mix(word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
    }
    mix(tail(words.remainder()));
    (hash >> 32) as u32 | 1
}

/// The last eight bytes of `text`, or all.
#[inline]
fn tail(text: &[u8]) -> u64 {
    match text.last_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => text.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Bytes of the table: the protocol's default, which is also the most that is used.
const TABLE: usize = 4096;
/// Fields that are remembered. A table of 4 KB has about 60 entries.
const SEEN: usize = 128;
/// Places for those whose hashes are alike.
const WAYS: usize = 4;
