//! The tables of HPACK: the static one (RFC 7541 appendix A), and the dynamic one of either side.

use std::collections::VecDeque;

use super::name::{FieldName, NameKind, is_clean};
use crate::header::KnownField;

/// The dynamic table: a ring of entries, newest first, whose text lies in one vector. Its dead front is cut off when it
/// is as long as the table may be, so that every text is one slice and eviction moves nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct DynamicTable {
    text: Vec<u8>,
    entries: VecDeque<TableEntry>,
    /// Sum of the entries' sizes as RFC 7541 section 4.1 counts them.
    size: usize,
    /// What `size` may be.
    limit: usize,
    /// Entries ever added; wraps around.
    added: u32,
}

#[derive(Clone, Copy, Debug)]
struct TableEntry {
    /// Where its name begins in the text; the value follows.
    at: usize,
    name_len: u32,
    value_len: u32,
    name: FieldName,
    clean: bool,
}

impl TableEntry {
    fn size(&self) -> usize {
        self.name_len as usize + self.value_len as usize + OVERHEAD
    }
}

/// A field as a table has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableField<'t> {
    pub(crate) name: FieldName,
    /// The name, and after it the value: copied in one go.
    pub(crate) text: &'t [u8],
    /// Bytes of the name.
    pub(crate) label: usize,
    /// [`is_clean`] of the value.
    pub(crate) clean: bool,
}

impl DynamicTable {
    /// Bytes of memory that its text and entries take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.text.capacity() + self.entries.capacity() * size_of::<TableEntry>()
    }

    /// An empty table of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> DynamicTable {
        DynamicTable { limit, ..DynamicTable::default() }
    }

    /// Entries ever added, modulo 2^32: the newest one's number.
    pub(crate) fn added(&self) -> u32 {
        self.added
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Changes the limit; what is over it goes (RFC 7541 section 4.3).
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.evict(limit);
    }

    /// The entry at `index`, 0 for the newest.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<TableField<'_>> {
        let entry = self.entries.get(index)?;
        let label = entry.name_len as usize;
        let text = self.text.get(entry.at..entry.at + label + entry.value_len as usize)?;
        Some(TableField { name: entry.name, text, label, clean: entry.clean })
    }

    /// Puts an entry in front; what has no room beside it goes, and an entry that is larger than the table empties it
    /// (RFC 7541 section 4.4).
    pub(crate) fn add(&mut self, row: TableField<'_>) {
        let size = row.text.len() + OVERHEAD;
        self.added = self.added.wrapping_add(1);
        if size > self.limit {
            // Empty as it is now, it has no entry of that number.
            self.evict(0);
            return;
        }
        self.evict(self.limit - size);
        self.tidy();
        self.entries.push_front(TableEntry {
            at: self.text.len(),
            name_len: row.label as u32,
            value_len: (row.text.len() - row.label) as u32,
            name: row.name,
            clean: row.clean,
        });
        self.text.extend_from_slice(row.text);
        self.size += size;
    }

    /// Whether an entry of that size fits.
    pub(crate) fn takes(&self, text: usize) -> bool {
        text + OVERHEAD <= self.limit
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes that the entries count.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// How many entries go to make room for one of so many bytes of text.
    pub(crate) fn goes_for(&self, text: usize) -> usize {
        let mut over = (self.size + text + OVERHEAD).saturating_sub(self.limit);
        let oldest_first = self.entries.iter().rev();
        let gone = oldest_first.take_while(|entry| {
            let goes = over > 0;
            over = over.saturating_sub(entry.size());
            goes
        });
        gone.count()
    }

    fn evict(&mut self, room: usize) {
        while self.size > room
            && let Some(entry) = self.entries.pop_back()
        {
            self.size -= entry.size();
        }
    }

    /// Cuts the dead front of the text off.
    fn tidy(&mut self) {
        let dead = self.entries.back().map_or(self.text.len(), |oldest| oldest.at);
        if dead > self.limit {
            self.text.drain(..dead);
            self.entries.iter_mut().for_each(|entry| entry.at -= dead);
        }
    }
}

/// The entry at `index` of the static table, which counts from 1.
#[inline]
pub(crate) fn fixed(index: usize) -> Option<TableField<'static>> {
    STATIC.get(index.checked_sub(1)?).map(StaticEntry::field)
}

/// The first entry of the static table called `known`; 0 if none is.
#[inline]
pub(crate) fn fixed_name(known: KnownField) -> u8 {
    NAMES.get(known as usize).copied().unwrap_or_default()
}

/// A row for a field whose name is the first `label` bytes of `text`, classified.
pub(crate) fn row(text: &[u8], label: usize) -> TableField<'_> {
    let (name, value) = text.split_at_checked(label).unwrap_or((text, b""));
    TableField { name: FieldName::of(name), text, label: name.len(), clean: is_clean(value) }
}

/// What an entry counts beside its text (RFC 7541 section 4.1).
const OVERHEAD: usize = 32;
/// Entries of the static table; the dynamic one's follow.
pub(crate) const FIXED: usize = 61;

#[derive(Debug)]
pub(crate) struct StaticEntry {
    pub(crate) label: usize,
    pub(crate) text: &'static str,
    pub(crate) name: FieldName,
}

impl StaticEntry {
    pub(crate) fn field(&'static self) -> TableField<'static> {
        TableField { name: self.name, text: self.text.as_bytes(), label: self.label, clean: true }
    }
}

pub(crate) const fn pseudo(label: usize, text: &'static str, kind: NameKind) -> StaticEntry {
    StaticEntry { label, text, name: FieldName { known: KnownField::Other, kind } }
}

/// A field whose value is empty.
pub(crate) const fn usual(text: &'static str, known: KnownField) -> StaticEntry {
    StaticEntry { label: text.len(), text, name: FieldName { known, kind: NameKind::Usual } }
}

/// Index of the first row of each known name.
#[allow(clippy::indexing_slicing, reason = "at compile time")]
static NAMES: [u8; KnownField::COUNT] = {
    let (mut names, mut row) = ([0; KnownField::COUNT], FIXED);
    while row > 0 {
        let known = STATIC[row - 1].name.known;
        if !matches!(known, KnownField::Other) {
            names[known as usize] = row as u8;
        }
        row -= 1;
    }
    names
};

/// RFC 7541 appendix A.
static STATIC: [StaticEntry; 61] = [
    pseudo(10, ":authority", NameKind::Authority),
    pseudo(7, ":methodGET", NameKind::Method),
    pseudo(7, ":methodPOST", NameKind::Method),
    pseudo(5, ":path/", NameKind::Path),
    pseudo(5, ":path/index.html", NameKind::Path),
    pseudo(7, ":schemehttp", NameKind::Scheme),
    pseudo(7, ":schemehttps", NameKind::Scheme),
    pseudo(7, ":status200", NameKind::Status),
    pseudo(7, ":status204", NameKind::Status),
    pseudo(7, ":status206", NameKind::Status),
    pseudo(7, ":status304", NameKind::Status),
    pseudo(7, ":status400", NameKind::Status),
    pseudo(7, ":status404", NameKind::Status),
    pseudo(7, ":status500", NameKind::Status),
    usual("accept-charset", KnownField::AcceptCharset),
    StaticEntry {
        label: 15,
        text: "accept-encodinggzip, deflate",
        name: FieldName { known: KnownField::AcceptEncoding, kind: NameKind::Usual },
    },
    usual("accept-language", KnownField::AcceptLanguage),
    usual("accept-ranges", KnownField::AcceptRanges),
    usual("accept", KnownField::Accept),
    usual("access-control-allow-origin", KnownField::AccessControlAllowOrigin),
    usual("age", KnownField::Age),
    usual("allow", KnownField::Allow),
    usual("authorization", KnownField::Authorization),
    usual("cache-control", KnownField::CacheControl),
    usual("content-disposition", KnownField::ContentDisposition),
    usual("content-encoding", KnownField::ContentEncoding),
    usual("content-language", KnownField::ContentLanguage),
    usual("content-length", KnownField::ContentLength),
    usual("content-location", KnownField::ContentLocation),
    usual("content-range", KnownField::ContentRange),
    usual("content-type", KnownField::ContentType),
    usual("cookie", KnownField::Cookie),
    usual("date", KnownField::Date),
    usual("etag", KnownField::Etag),
    usual("expect", KnownField::Expect),
    usual("expires", KnownField::Expires),
    usual("from", KnownField::From),
    usual("host", KnownField::Host),
    usual("if-match", KnownField::IfMatch),
    usual("if-modified-since", KnownField::IfModifiedSince),
    usual("if-none-match", KnownField::IfNoneMatch),
    usual("if-range", KnownField::IfRange),
    usual("if-unmodified-since", KnownField::IfUnmodifiedSince),
    usual("last-modified", KnownField::LastModified),
    usual("link", KnownField::Link),
    usual("location", KnownField::Location),
    usual("max-forwards", KnownField::MaxForwards),
    usual("proxy-authenticate", KnownField::ProxyAuthenticate),
    usual("proxy-authorization", KnownField::ProxyAuthorization),
    usual("range", KnownField::Range),
    usual("referer", KnownField::Referer),
    usual("refresh", KnownField::Refresh),
    usual("retry-after", KnownField::RetryAfter),
    usual("server", KnownField::Server),
    usual("set-cookie", KnownField::SetCookie),
    usual("strict-transport-security", KnownField::StrictTransportSecurity),
    usual("transfer-encoding", KnownField::TransferEncoding),
    usual("user-agent", KnownField::UserAgent),
    usual("vary", KnownField::Vary),
    usual("via", KnownField::Via),
    usual("www-authenticate", KnownField::WwwAuthenticate),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_static_table_is_classified_as_its_texts_are() {
        for index in 1..=FIXED {
            let found = fixed(index).expect("a row");
            assert_eq!(found.name, row(found.text, found.label).name, "{index}");
            assert!(found.clean);
        }
        assert!(fixed(0).is_none() && fixed(62).is_none());
        assert_eq!(fixed_name(KnownField::ContentType), 31);
        assert_eq!(fixed_name(KnownField::WwwAuthenticate), 61);
        assert_eq!(fixed_name(KnownField::XForwardedFor), 0);
    }

    #[test]
    fn old_entries_go_and_their_text_with_them() {
        let mut table = DynamicTable::new(100);
        for round in 0..1000_u32 {
            let text = format!("name{round}");
            table.add(row(text.as_bytes(), 4));
            assert_eq!(table.get(0).map(|newest| newest.text), Some(text.as_bytes()));
            assert!(table.text.len() <= 300, "{}", table.text.len());
        }
        assert_eq!(table.entries.len(), 2);
        assert_eq!(table.get(1).map(|row| row.text), Some(&b"name998"[..]));
        table.add(row(&[b'x'; 100], 4));
        assert!(table.get(0).is_none(), "larger than the table");
        table.add(row(b"ab", 1));
        table.set_limit(0);
        assert!(table.get(0).is_none());
    }
}
