//! Ranges of IPv4 addresses with values, as a `geo` block has them after `ranges`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use weir_conf::{LineCx, Result};

use super::flat::FlatGeo;
use super::{GeoValues, NOWHERE};
use weir_engine::cidr;

/// The ranges read so far, cut as nginx cuts them, into pieces with the same first 16 bits: what overlaps is judged
/// piece by piece. Pieces of one half-word are in order and apart.
#[derive(Default)]
pub(super) struct GeoRanges {
    pieces: BTreeMap<u16, Vec<RangePiece>>,
}

/// The addresses of one half-word from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RangePiece {
    first: u16,
    last: u16,
    value: u32,
}

/// Why a piece can't be added.
struct RangeOverlap(u16, RangePiece);

impl GeoRanges {
    /// `first-last value` or `delete first-last`.
    pub(super) fn add(&mut self, entry: &mut LineCx<'_>, values: &mut GeoValues) -> Result {
        let name = &entry.line().name;
        let delete = name.bytes() == b"delete";
        let shown = if delete { entry.arg(0) } else { name.str() };
        let (first, last) = range(shown).ok_or_else(|| entry.fail(format!("invalid range \"{shown}\"")))?;
        if delete {
            if !self.delete(first, last) {
                entry.warn(format!("no address range \"{shown}\" to delete"));
            }
            return Ok(());
        }
        let value = values.number(entry.bytes(0));
        let replaced = self.insert(first, last, value).map_err(|RangeOverlap(top, piece)| {
            let (from, to) = (address(top, piece.first), address(top, piece.last));
            entry.fail(format!("range \"{shown}\" overlaps \"{from}-{to}\""))
        })?;
        for old in replaced {
            let (value, old) = (entry.arg(0), values.shown(old));
            entry.warn(format!("duplicate range \"{shown}\", value: \"{value}\", old value: \"{old}\""));
        }
        Ok(())
    }

    /// The values of pieces that were there already.
    fn insert(&mut self, first: u32, last: u32, value: u32) -> std::result::Result<Vec<u32>, RangeOverlap> {
        let mut replaced = Vec::new();
        for (top, first, last) in pieces(first, last) {
            let list = self.pieces.entry(top).or_default();
            let new = RangePiece { first, last, value };
            // The last piece that does not begin after the new one; only with it may it overlap, or with those before.
            let at = list.partition_point(|old| old.first <= last);
            match at.checked_sub(1).map(|before| (before, list[before])) {
                Some((before, old)) if old.last >= first => {
                    if first < old.first || last > old.last {
                        return Err(RangeOverlap(top, old));
                    }
                    if (first, last) == (old.first, old.last) {
                        replaced.push(old.value);
                    }
                    let left = (old.first < first).then(|| RangePiece { last: first - 1, ..old });
                    let right = (last < old.last).then(|| RangePiece { first: last + 1, ..old });
                    list.splice(before..=before, left.into_iter().chain([new]).chain(right));
                }
                _ => list.insert(at, new),
            }
        }
        Ok(replaced)
    }

    /// Whether all of the range was there, in these very pieces; those that were are gone.
    fn delete(&mut self, first: u32, last: u32) -> bool {
        let mut all = true;
        for (top, first, last) in pieces(first, last) {
            let list = self.pieces.entry(top).or_default();
            match list.iter().position(|piece| (piece.first, piece.last) == (first, last)) {
                Some(at) => {
                    list.remove(at);
                }
                None => all = false,
            }
        }
        all
    }

    /// For look-ups; `default` is the value of all other addresses.
    pub(super) fn flat(self, default: u32) -> FlatGeo<u32> {
        let all = self.pieces.into_iter().flat_map(|(top, list)| {
            list.into_iter().map(move |piece| {
                (address(top, piece.first).into(), address(top, piece.last).into(), piece.value)
            })
        });
        FlatGeo::new(all, default)
    }
}

/// First and last address of `text`. nginx does not accept the last of all addresses.
fn range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-')?;
    let parse = |text| match cidr::ip(text)? {
        IpAddr::V4(ip) if ip != NOWHERE => Some(u32::from(ip)),
        _ => None,
    };
    let (first, last) = (parse(first)?, parse(last)?);
    (first <= last).then_some((first, last))
}

/// The range by first half-words.
fn pieces(first: u32, last: u32) -> impl Iterator<Item = (u16, u16, u16)> {
    let (low, high) = ((first >> 16) as u16, (last >> 16) as u16);
    (low..=high).map(move |top| {
        let from = if top == low { first as u16 } else { 0 };
        let to = if top == high { last as u16 } else { u16::MAX };
        (top, from, to)
    })
}

fn address(top: u16, rest: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(top) << 16 | u32::from(rest))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_added_last_counts(ranges in vec((0..300_000_u32, 0..90_000_u32), 0..40)) {
            let mut base = GeoRanges::default();
            let mut model = vec![0; 400_000];
            for (value, (first, len)) in (1..).zip(ranges) {
                let last = first + len;
                // What overlaps in part stops a configuration; pieces added before that stay.
                let end = match base.insert(first, last, value) {
                    Ok(_) => last,
                    Err(RangeOverlap(top, _)) if u32::from(top) == first >> 16 => continue,
                    Err(RangeOverlap(top, _)) => (u32::from(top) << 16) - 1,
                };
                model[first as usize..=end as usize].fill(value);
            }
            let flat = base.flat(0);
            for address in (0..400_000_u32).step_by(97) {
                prop_assert_eq!(flat.find(address), model[address as usize], "{}", address);
            }
        }
    }

    #[test]
    fn a_part_of_a_range_is_not_deleted() {
        let mut base = GeoRanges::default();
        base.insert(10, 200_000, 1).ok().expect("the first");
        assert!(!base.delete(10, 20));
        assert!(base.delete(10, 200_000));
        assert_eq!(base.flat(7).find(15), 7);
    }

    #[test]
    fn ranges_touch_overlap_and_lie_in_each_other() {
        let mut base = GeoRanges::default();
        let mut put = |first, last, value| {
            base.insert(first, last, value).map_err(|RangeOverlap(_, piece)| piece.value)
        };
        assert_eq!(put(10, 20, 1), Ok(vec![]));
        assert_eq!(
            [put(20, 30, 2), put(5, 10, 2), put(5, 30, 2), put(20, 21, 2), put(9, 10, 2)],
            [const { Err(1) }; 5]
        );
        assert_eq!([put(21, 25, 3), put(5, 9, 4)], [Ok(vec![]), Ok(vec![])]);
        assert_eq!([put(10, 20, 5), put(10, 12, 6), put(18, 20, 7)], [Ok(vec![1]), Ok(vec![]), Ok(vec![])]);
        assert_eq!([put(15, 15, 8), put(15, 15, 9)], [Ok(vec![]), Ok(vec![8])]);
        assert!(base.delete(13, 14) && base.delete(16, 17) && !base.delete(13, 17));
        let flat = base.flat(0);
        let found: Vec<u32> = (4..27).map(|address| flat.find(address)).collect();
        assert_eq!(found, [0, 4, 4, 4, 4, 4, 6, 6, 6, 0, 0, 9, 0, 0, 7, 7, 7, 3, 3, 3, 3, 3, 0]);
    }

    #[test]
    fn a_range_has_two_addresses_in_order_and_never_the_last_of_all() {
        assert_eq!(range("10.0.0.1-10.0.0.1"), Some((0x0a00_0001, 0x0a00_0001)));
        assert_eq!(range("0.0.0.0-255.255.255.254"), Some((0, u32::MAX - 1)));
        for wrong in
            ["10.0.0.2-10.0.0.1", "10.0.0.0-255.255.255.255", "10.0.0.1", "::1-::2", "10.0.0.1-", "-10.0.0.1"]
        {
            assert_eq!(range(wrong), None, "{wrong}");
        }
    }
}
