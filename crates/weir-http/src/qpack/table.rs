//! The dynamic table: HPACK's, with entries that have a number for ever (RFC 9204 section 3.2).

use crate::hpack::table::{DynamicTable, TableField};

/// A dynamic table, of either side.
#[derive(Clone, Debug, Default)]
pub(super) struct InsertTable {
    rows: DynamicTable,
    /// Entries ever inserted: the Insert Count.
    inserted: u64,
}

impl InsertTable {
    /// Bytes of memory that it owns.
    pub(super) fn held_bytes(&self) -> usize {
        self.rows.held_bytes()
    }

    /// Entries ever inserted.
    #[inline]
    pub(super) fn inserted(&self) -> u64 {
        self.inserted
    }

    /// The number of the oldest entry; that of the next one in an empty table.
    pub(super) fn oldest(&self) -> u64 {
        self.inserted - self.rows.len() as u64
    }

    /// What the entries may count, in bytes.
    pub(super) fn capacity(&self) -> usize {
        self.rows.limit()
    }

    /// Bytes that the entries count.
    pub(super) fn size(&self) -> usize {
        self.rows.size()
    }

    /// Changes the capacity; what is over it goes.
    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.rows.set_limit(capacity);
    }

    /// The entry of that number (its absolute index).
    #[inline]
    pub(super) fn at(&self, number: u64) -> Option<TableField<'_>> {
        let age = self.inserted.checked_sub(number)?.checked_sub(1)?;
        self.rows.get(usize::try_from(age).ok()?)
    }

    /// The number of the entry that was inserted `age` entries before the newest.
    pub(super) fn number(&self, age: u64) -> Option<u64> {
        self.inserted.checked_sub(age)?.checked_sub(1)
    }

    /// Inserts an entry, for which the oldest ones go; `false` when it is larger than the table.
    #[must_use]
    pub(super) fn insert(&mut self, row: TableField<'_>) -> bool {
        if !self.rows.takes(row.text.len()) {
            return false;
        }
        self.rows.add(row);
        self.inserted += 1;
        true
    }

    /// The number below which entries go to make room for one with so many bytes of text; `None` when it is larger than the
    /// table.
    pub(super) fn goes_below(&self, text: usize) -> Option<u64> {
        self.rows.takes(text).then(|| self.oldest() + self.rows.goes_for(text) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::table::row;

    #[test]
    fn entries_are_found_by_their_numbers_until_they_go() {
        let mut table = InsertTable::default();
        assert!(!table.insert(row(b"ab", 1)), "it has no room yet");
        table.set_capacity(3 * 34);
        for number in 0..10_u64 {
            assert_eq!(table.goes_below(2), Some(number.saturating_sub(2)));
            let text = [b'a', b'0' + number as u8];
            assert!(table.insert(row(&text, 1)));
            assert_eq!(table.at(number).map(|row| row.text), Some(&text[..]));
            assert_eq!((table.number(0), table.number(number + 1)), (Some(number), None));
            assert_eq!(table.oldest(), (number + 1).saturating_sub(3));
            assert!(table.at(number + 1).is_none());
        }
        assert!(table.at(6).is_none() && table.at(7).is_some() && table.at(u64::MAX).is_none());
        assert_eq!(
            (table.goes_below(36), table.goes_below(70), table.goes_below(71)),
            (Some(9), Some(10), None)
        );
        table.set_capacity(34);
        assert_eq!((table.oldest(), table.size(), table.capacity()), (9, 34, 34));
    }
}
