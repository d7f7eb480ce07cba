//! What a table takes over from the process before, which was killed: its entries in memory that the master has held, read as
//! the bytes that they are.
//!
//! A node counts if it has the mark of its key, which it has from the moment it is whole until it is removed. A value that was being
//! changed may be partly the old one and partly the new one: so it must be of words that mean something each by itself. A
//! process that crashed may have written anywhere; nothing that is read here is trusted.

use std::mem::offset_of;

use weir_rt::zone_memory::{RegionImage, ZoneRegion, ZoneVec};

use super::table::{TableExtent, ZoneNode, mark_of};
use super::{SharedZone, ZoneTable, survival};
use crate::file::hash;
use crate::log::{self, LogLevel};

/// A value of a table that outlives its process.
pub trait SurvivingValue: Sized {
    /// What it was, by its bytes, whatever they are, and when it was last used: in which order does not matter, if it grows.
    fn revive(bytes: &[u8]) -> Option<(u64, Self)>;
}

/// Of a region's roots: what wrote it, and the nodes of the first shard.
const LAYOUT_ROOT: usize = 0;
const HASH_ROOT: usize = 1;
const NODES_ROOT: usize = 8;
const LAYOUT: u64 = 2;
/// The longest key.
const LONGEST_KEY: u64 = 65_535;

/// Notes in a region what is in it.
pub(super) fn begin(region: &ZoneRegion) {
    region.set_root(HASH_ROOT, hash(b"weir"));
    region.set_root(LAYOUT_ROOT, LAYOUT);
}

/// Notes in a region where the nodes of a shard are.
pub(super) fn note<V>(region: &ZoneRegion, shard: usize, nodes: &ZoneVec<ZoneNode<V>>) {
    region.set_root(NODES_ROOT + shard * 2, nodes.address());
    region.set_root(NODES_ROOT + shard * 2 + 1, nodes.len() as u64);
}

impl<V: SurvivingValue> ZoneTable<V> {
    /// The table of a zone: where the master holds memory for it, with what the process before has left in that.
    pub fn of(zone: &SharedZone, size: u64, overhead: u64) -> ZoneTable<V> {
        let extent = TableExtent::new(size);
        let nodes = extent.shards * (extent.most(overhead) * (size_of::<ZoneNode<V>>() + 64)) as u64;
        let length = nodes.saturating_add(size.saturating_mul(3)).saturating_add(1 << 20);
        let table = ZoneTable::within(survival::region(zone, size, length), extent, overhead);
        if let Some(image) = survival::image(zone, size) {
            let (entries, damaged) = table.take_over(&image);
            report(zone, entries, damaged);
        }
        table
    }

    /// Takes over the entries of a table of the same size: how many, and how many were damaged.
    pub(super) fn take_over(&self, image: &RegionImage) -> (u64, u64) {
        let root = |number| image.root(number).unwrap_or(0);
        if (root(LAYOUT_ROOT), root(HASH_ROOT)) != (LAYOUT, hash(b"weir")) {
            return (0, 1);
        }
        let (mut found, mut damaged) = (Vec::new(), 0);
        for shard in 0..self.shards.len() {
            let [address, count] = [0, 1].map(|word| root(NODES_ROOT + shard * 2 + word));
            if count == 0 {
                continue;
            }
            let size = size_of::<ZoneNode<V>>();
            match count.checked_mul(size as u64).and_then(|length| image.bytes(address, length)) {
                Some(nodes) => {
                    let nodes =
                        nodes.chunks_exact(size).filter(|node| u32_at(node, mark_at::<V>()) != Some(0));
                    let read = nodes.map(|node| read::<V>(image, node));
                    read.for_each(|node| node.map_or_else(|| damaged += 1, |node| found.push(node)));
                }
                None => damaged += 1,
            }
        }
        found.sort_by_key(|(used, ..)| *used);
        let mut entries = 0;
        for (_, key, value) in found {
            let mut locked = self.lock(key);
            let added = locked.find(key).is_none() && locked.insert(key, value).is_some();
            if added { entries += 1 } else { damaged += 1 }
        }
        (entries, damaged)
    }
}

/// A node: when it was used, its key and its value; `None`: it can't be.
fn read<'i, V: SurvivingValue>(image: &'i RegionImage, node: &[u8]) -> Option<(u64, &'i [u8], V)> {
    let at = offset_of!(ZoneNode<V>, key);
    let word = |at: usize| Some(u64::from_ne_bytes(*node.get(at..)?.first_chunk()?));
    let length = word(at + 8).filter(|length| *length <= LONGEST_KEY)?;
    let key = image.bytes(word(at)?, length)?;
    if u32_at(node, mark_at::<V>()) != Some(mark_of(key)) {
        return None;
    }
    let (used, value) = V::revive(node.get(offset_of!(ZoneNode<V>, value)..)?.get(..size_of::<V>())?)?;
    Some((used, key, value))
}

fn mark_at<V>() -> usize {
    offset_of!(ZoneNode<V>, mark)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn report(zone: &SharedZone, entries: u64, damaged: u64) {
    let name = &zone.name;
    if entries > 0 {
        let text = format_args!("{entries} entries of shared memory zone \"{name}\" are there again");
        log::cycle(LogLevel::Notice, &text);
    }
    if damaged > 0 {
        let text = format_args!(
            "{damaged} parts of shared memory zone \"{name}\" were damaged when the process before was killed: what they \
             held is lost"
        );
        log::cycle(LogLevel::Warn, &text);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use weir_rt::zone_memory::ZoneFile;

    use super::*;
    use crate::zone::ZoneStore;

    const SIZE: u64 = 1 << 20;

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Count {
        used: u64,
        count: u64,
    }

    impl SurvivingValue for Count {
        fn revive(bytes: &[u8]) -> Option<(u64, Count)> {
            let [used, count] = bytes.as_chunks::<8>().0.first_chunk()?.map(u64::from_ne_bytes);
            Some((used, Count { used, count }))
        }
    }

    fn surviving() -> (Arc<ZoneFile>, ZoneTable<Count>, u64) {
        let file = ZoneFile::new("test").expect("memory");
        let region = file.region("zone", SIZE, SIZE * 8).expect("memory");
        let address = region.address();
        (file, ZoneTable::within(Some(region), TableExtent::new(SIZE), 40), address)
    }

    fn add(table: &ZoneTable<Count>, number: u64) {
        let key = format!("key {number}");
        table.lock(key.as_bytes()).insert(key.as_bytes(), Count { used: number, count: number * 2 });
    }

    fn remove(table: &ZoneTable<Count>, number: u64) {
        let key = format!("key {number}");
        let mut entries = table.lock(key.as_bytes());
        let handle = entries.find(key.as_bytes()).expect("it is there");
        entries.remove(handle);
    }

    fn count(table: &ZoneTable<Count>, number: u64) -> Option<u64> {
        let key = format!("key {number}");
        let mut entries = table.lock(key.as_bytes());
        let handle = entries.find(key.as_bytes())?;
        Some(entries.value(handle).count)
    }

    fn next(image: &RegionImage) -> (ZoneTable<Count>, (u64, u64)) {
        let table = ZoneTable::within(None, TableExtent::new(SIZE), 40);
        let taken = table.take_over(image);
        (table, taken)
    }

    #[test]
    fn entries_come_back_in_the_order_of_their_use() {
        let (file, table, _) = surviving();
        (0..1000).rev().for_each(|number| add(&table, number));
        (0..1000).filter(|number| number % 3 == 0).for_each(|number| remove(&table, number));
        add(&table, 3);
        let image = file.image("zone", SIZE).expect("readable").expect("it is there");
        let (after, taken) = next(&image);
        assert_eq!(taken, (667, 0));
        for number in 0..1000 {
            assert_eq!(count(&after, number), count(&table, number), "{number}");
        }
        assert_eq!((count(&after, 3), count(&after, 4), count(&after, 6)), (Some(6), Some(8), None));
        assert_eq!(after.usage(), table.usage());
        let (again, _) = next(&image);
        let mut entries = again.lock_part(0);
        let oldest = entries.oldest().expect("it has entries");
        let first = entries.value(oldest).used;
        entries.remove(oldest);
        let second = entries.oldest().expect("it has entries");
        assert!(first < entries.value(second).used);
    }

    proptest! {
        /// Whatever a process that runs wild writes into a region, the next one has a table.
        #[test]
        fn any_bytes_are_read(
            places in prop::collection::vec((0_u64..20_000, prop::collection::vec(any::<u8>(), 1..40)), 1..60),
        ) {
            let (file, table, base) = surviving();
            (0..200).for_each(|number| add(&table, number));
            let image = file.image("zone", SIZE).expect("readable").expect("it is there");
            let scribbles: Vec<_> = places.into_iter().map(|(place, bytes)| (base + place, bytes)).collect();
            let (after, (entries, _)) = next(&image.scribbled(&scribbles));
            prop_assert_eq!(after.len() as u64, entries);
            prop_assert!(entries <= 200);
        }
    }
}
