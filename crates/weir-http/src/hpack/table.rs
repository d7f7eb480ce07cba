//! The tables of HPACK: the static one (RFC 7541 appendix A), and the dynamic one of either side.

use std::collections::VecDeque;

use super::name::{Kind, Name, is_clean};
use crate::header::Known;

/// The dynamic table: a ring of entries, newest first, whose text lies in one vector. Its dead front is cut off when it
/// is as long as the table may be, so that every text is one slice and eviction moves nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    text: Vec<u8>,
    entries: VecDeque<Entry>,
    /// Sum of the entries' sizes as RFC 7541 section 4.1 counts them.
    size: usize,
    /// What `size` may be.
    limit: usize,
    /// Entries ever added; wraps around.
    added: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where its name begins in the text; the value follows.
    at: usize,
    name_len: u32,
    value_len: u32,
    name: Name,
    clean: bool,
}

impl Entry {
    fn size(&self) -> usize {
        self.name_len as usize + self.value_len as usize + OVERHEAD
    }
}

/// A field as a table has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'t> {
    pub(super) name: Name,
    /// The name, and behind it the value: copied in one go.
    pub(super) text: &'t [u8],
    /// Bytes of the name.
    pub(super) label: usize,
    /// [`is_clean`] of the value.
    pub(super) clean: bool,
}

impl Table {
    /// An empty table of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Table {
        Table { limit, ..Table::default() }
    }

    /// Entries ever added, modulo 2^32: the newest one's number.
    pub(super) fn added(&self) -> u32 {
        self.added
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Changes the limit; what is over it goes (RFC 7541 section 4.3).
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.evict(limit);
    }

    /// The entry at `index`, 0 for the newest.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<Row<'_>> {
        let entry = self.entries.get(index)?;
        let label = entry.name_len as usize;
        let text = self.text.get(entry.at..entry.at + label + entry.value_len as usize)?;
        Some(Row { name: entry.name, text, label, clean: entry.clean })
    }

    /// Puts an entry in front; what has no room beside it goes, and an entry that is larger than the table empties it
    /// (RFC 7541 section 4.4).
    pub(super) fn add(&mut self, row: Row<'_>) {
        let size = row.text.len() + OVERHEAD;
        self.added = self.added.wrapping_add(1);
        if size > self.limit {
            // Empty as it is now, it has no entry of that number.
            self.evict(0);
            return;
        }
        self.evict(self.limit - size);
        self.tidy();
        self.entries.push_front(Entry {
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
    pub(super) fn takes(&self, text: usize) -> bool {
        text + OVERHEAD <= self.limit
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
pub(super) fn fixed(index: usize) -> Option<Row<'static>> {
    let Fixed { label, text, name } = STATIC.get(index.checked_sub(1)?)?;
    Some(Row { name: *name, text: text.as_bytes(), label: *label, clean: true })
}

/// The first entry of the static table called `known`; 0 if none is.
#[inline]
pub(super) fn fixed_name(known: Known) -> u8 {
    NAMES.get(known as usize).copied().unwrap_or_default()
}

/// A row for a field whose name is the first `label` bytes of `text`, classified.
pub(super) fn row(text: &[u8], label: usize) -> Row<'_> {
    let (name, value) = text.split_at_checked(label).unwrap_or((text, b""));
    Row { name: Name::of(name), text, label: name.len(), clean: is_clean(value) }
}

/// What an entry counts beside its text (RFC 7541 section 4.1).
const OVERHEAD: usize = 32;
/// Entries of the static table; the dynamic one's follow.
pub(super) const FIXED: usize = 61;

struct Fixed {
    label: usize,
    text: &'static str,
    name: Name,
}

const fn pseudo(label: usize, text: &'static str, kind: Kind) -> Fixed {
    Fixed { label, text, name: Name { known: Known::Other, kind } }
}

/// A field whose value is empty.
const fn usual(text: &'static str, known: Known) -> Fixed {
    Fixed { label: text.len(), text, name: Name { known, kind: Kind::Usual } }
}

/// Index of the first row of each known name.
#[allow(clippy::indexing_slicing, reason = "at compile time")]
static NAMES: [u8; Known::COUNT] = {
    let (mut names, mut row) = ([0; Known::COUNT], FIXED);
    while row > 0 {
        let known = STATIC[row - 1].name.known;
        if !matches!(known, Known::Other) {
            names[known as usize] = row as u8;
        }
        row -= 1;
    }
    names
};

/// RFC 7541 appendix A.
static STATIC: [Fixed; 61] = [
    pseudo(10, ":authority", Kind::Authority),
    pseudo(7, ":methodGET", Kind::Method),
    pseudo(7, ":methodPOST", Kind::Method),
    pseudo(5, ":path/", Kind::Path),
    pseudo(5, ":path/index.html", Kind::Path),
    pseudo(7, ":schemehttp", Kind::Scheme),
    pseudo(7, ":schemehttps", Kind::Scheme),
    pseudo(7, ":status200", Kind::Status),
    pseudo(7, ":status204", Kind::Status),
    pseudo(7, ":status206", Kind::Status),
    pseudo(7, ":status304", Kind::Status),
    pseudo(7, ":status400", Kind::Status),
    pseudo(7, ":status404", Kind::Status),
    pseudo(7, ":status500", Kind::Status),
    usual("accept-charset", Known::AcceptCharset),
    Fixed {
        label: 15,
        text: "accept-encodinggzip, deflate",
        name: Name { known: Known::AcceptEncoding, kind: Kind::Usual },
    },
    usual("accept-language", Known::AcceptLanguage),
    usual("accept-ranges", Known::AcceptRanges),
    usual("accept", Known::Accept),
    usual("access-control-allow-origin", Known::AccessControlAllowOrigin),
    usual("age", Known::Age),
    usual("allow", Known::Allow),
    usual("authorization", Known::Authorization),
    usual("cache-control", Known::CacheControl),
    usual("content-disposition", Known::ContentDisposition),
    usual("content-encoding", Known::ContentEncoding),
    usual("content-language", Known::ContentLanguage),
    usual("content-length", Known::ContentLength),
    usual("content-location", Known::ContentLocation),
    usual("content-range", Known::ContentRange),
    usual("content-type", Known::ContentType),
    usual("cookie", Known::Cookie),
    usual("date", Known::Date),
    usual("etag", Known::Etag),
    usual("expect", Known::Expect),
    usual("expires", Known::Expires),
    usual("from", Known::From),
    usual("host", Known::Host),
    usual("if-match", Known::IfMatch),
    usual("if-modified-since", Known::IfModifiedSince),
    usual("if-none-match", Known::IfNoneMatch),
    usual("if-range", Known::IfRange),
    usual("if-unmodified-since", Known::IfUnmodifiedSince),
    usual("last-modified", Known::LastModified),
    usual("link", Known::Link),
    usual("location", Known::Location),
    usual("max-forwards", Known::MaxForwards),
    usual("proxy-authenticate", Known::ProxyAuthenticate),
    usual("proxy-authorization", Known::ProxyAuthorization),
    usual("range", Known::Range),
    usual("referer", Known::Referer),
    usual("refresh", Known::Refresh),
    usual("retry-after", Known::RetryAfter),
    usual("server", Known::Server),
    usual("set-cookie", Known::SetCookie),
    usual("strict-transport-security", Known::StrictTransportSecurity),
    usual("transfer-encoding", Known::TransferEncoding),
    usual("user-agent", Known::UserAgent),
    usual("vary", Known::Vary),
    usual("via", Known::Via),
    usual("www-authenticate", Known::WwwAuthenticate),
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
        assert_eq!(fixed_name(Known::ContentType), 31);
        assert_eq!(fixed_name(Known::WwwAuthenticate), 61);
        assert_eq!(fixed_name(Known::XForwardedFor), 0);
    }

    #[test]
    fn old_entries_go_and_their_text_with_them() {
        let mut table = Table::new(100);
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
