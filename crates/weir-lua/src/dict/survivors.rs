//! What a dictionary takes over from the process before, which was killed: its entries in memory that the master has held
//! ([`weir_rt::zone_memory`]), read as the bytes that they are.
//!
//! Nothing need be dropped because a writer was in the middle of something. Nodes and values are whole before they are
//! linked, links are exchanged by one store, and of a short value that is exchanged in place the current slot is whole
//! ([`crate::dict::value`]); so at every moment the chains show each entry as it was before the change or after it. But a process
//! that crashed may have written anywhere. So nothing that is read here is trusted: addresses are looked up in the
//! region, the hash of a node must be that of its key and belong to its chain, and no more nodes are followed than the
//! region has room for. Where a chain breaks, what is behind is dropped and counted.

use std::mem::offset_of;

use weir_engine::file::hash::hash;
use weir_rt::zone_memory::{RegionImage, ZoneArc, ZonePlace, ZoneRegion};

use crate::dict::list::{ElementItem, ItemStack, ListElement, NUMBER_ITEM, TEXT_ITEM};
use crate::dict::node::DictNode;
use crate::dict::stripe::{DictStripe, chain_of};
use crate::dict::value::{
    BOOLEAN, HEAD, LIST_VALUE, ListValue, LongTextValue, NUMBER, SLOT, SMALL_VALUE, SmallValue, TEXT,
    TEXT_VALUE,
};
use crate::dict::{DictItem, ItemList, ListEnd, NewValue, STRIPES};

/// An entry as it was.
pub(super) struct SurvivingEntry<'i> {
    pub(super) hash: u64,
    pub(super) key: &'i [u8],
    pub(super) value: SurvivingValue<'i>,
    pub(super) flags: u32,
    pub(super) expires: u64,
    /// The stamp of its last use.
    pub(super) used: u64,
}

pub(super) enum SurvivingValue<'i> {
    Plain(NewValue<'i>),
    /// From their lowest elements on: the left stack and the right one.
    List([Vec<DictItem>; 2]),
}

/// What came of taking over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenOver {
    /// Entries that are there again.
    pub(crate) entries: u64,
    /// Chains that broke and entries that can't be: what they held is lost.
    pub(crate) damaged: u64,
}

/// Of a region's roots: what wrote it, and the chains of the first stripe.
const LAYOUT_ROOT: usize = 0;
const HASH_ROOT: usize = 1;
const CHAINS_ROOT: usize = 8;
const LAYOUT: u64 = 1;
/// The longest key that scripts can have.
const LONGEST_KEY: u64 = 65_535;

/// Notes in a region where the chains are.
pub(super) fn note(region: &ZoneRegion, stripes: &[DictStripe]) {
    for (number, stripe) in stripes.iter().enumerate() {
        let [address, count] = stripe.chains();
        region.set_root(CHAINS_ROOT + number * 2, address);
        region.set_root(CHAINS_ROOT + number * 2 + 1, count);
    }
    region.set_root(HASH_ROOT, hash(b"weir"));
    region.set_root(LAYOUT_ROOT, LAYOUT);
}

/// Shows the entries of a dictionary with so many chains in each stripe to `each`; how many chains and entries are damaged.
pub(super) fn read<'i>(
    image: &'i RegionImage,
    chains: usize,
    mut each: impl FnMut(SurvivingEntry<'i>),
) -> u64 {
    let root = |number| image.root(number).unwrap_or(0);
    if (root(LAYOUT_ROOT), root(HASH_ROOT)) != (LAYOUT, hash(b"weir")) {
        return STRIPES as u64;
    }
    let mut reader = SurvivorReader { image, left: image.length() / size_of::<ListElement>(), damaged: 0 };
    for stripe in 0..STRIPES {
        let [address, count] = [0, 1].map(|word| root(CHAINS_ROOT + stripe * 2 + word));
        let all = image.bytes(address, chains as u64 * 8).filter(|_| count == chains as u64);
        let Some(all) = all else {
            reader.damaged += 1;
            continue;
        };
        for (chain, first) in all.as_chunks::<8>().0.iter().enumerate() {
            let belongs = |hash: u64| hash as usize % STRIPES == stripe && chain_of(hash, chains) == chain;
            if reader.chain(u64::from_ne_bytes(*first), belongs, &mut each).is_none() {
                reader.damaged += 1;
            }
        }
    }
    reader.damaged
}

struct SurvivorReader<'i> {
    image: &'i RegionImage,
    /// How many more nodes and elements there can be.
    left: usize,
    damaged: u64,
}

impl<'i> SurvivorReader<'i> {
    /// Follows a chain; `None`: it breaks.
    fn chain(
        &mut self,
        first: u64,
        belongs: impl Fn(u64) -> bool,
        each: &mut impl FnMut(SurvivingEntry<'i>),
    ) -> Option<()> {
        let mut next = first;
        while next != 0 {
            self.count()?;
            let (hash, key) = self.key(next).filter(|(hash, _)| belongs(*hash))?;
            let value = self.word(next, offset_of!(DictNode, value))?;
            let used = self.word(next, offset_of!(DictNode, used))?;
            // Null: the entry is gone.
            if value != 0 {
                match self.value(value) {
                    Some((value, flags, expires)) => {
                        each(SurvivingEntry { hash, key, value, flags, expires, used });
                    }
                    None => self.damaged += 1,
                }
            }
            next = self.word(next, offset_of!(DictNode, next))?;
        }
        Some(())
    }

    /// A node's key and the hash of it.
    fn key(&self, node: u64) -> Option<(u64, &'i [u8])> {
        let at = offset_of!(DictNode, key);
        let length = self.word(node, at + 8).filter(|length| *length <= LONGEST_KEY)?;
        let key = self.image.bytes(self.word(node, at)?, length)?;
        let noted = self.word(node, offset_of!(DictNode, hash))?;
        (hash(key) == noted).then_some((noted, key))
    }

    /// A value, its flags, and when it expires.
    fn value(&mut self, at: u64) -> Option<(SurvivingValue<'i>, u32, u64)> {
        let kind = self.image.word(at)?;
        let at = at.checked_add(8)?;
        match kind {
            SMALL_VALUE => self.small(at),
            TEXT_VALUE => {
                let text = offset_of!(LongTextValue, text);
                let text = self.image.bytes(self.word(at, text)?, self.word(at, text + 8)?)?;
                let flags = self.flags(at, offset_of!(LongTextValue, flags))?;
                let expires = self.word(at, offset_of!(LongTextValue, expires))?;
                Some((SurvivingValue::Plain(NewValue::Text(text)), flags, expires))
            }
            LIST_VALUE => {
                let list = at.checked_add(offset_of!(ListValue, items) as u64)?;
                let left = self.stack(list.checked_add(offset_of!(ItemList, left) as u64)?)?;
                let right = self.stack(list.checked_add(offset_of!(ItemList, right) as u64)?)?;
                let flags = self.flags(at, offset_of!(ListValue, flags))?;
                let expires = self.word(at, offset_of!(ListValue, expires))?;
                Some((SurvivingValue::List([left, right]), flags, expires))
            }
            _ => None,
        }
    }

    /// The current slot of a short value.
    fn small(&self, at: u64) -> Option<(SurvivingValue<'i>, u32, u64)> {
        let state = self.word(at, offset_of!(SmallValue, state))?;
        let words = offset_of!(SmallValue, words);
        let slot = self.word(at, words + 8)?.checked_mul(8)? / 2;
        let begin = self.word(at, words)?.checked_add((state & SLOT).checked_mul(slot)?)?;
        let bytes = self.image.bytes(begin, slot)?;
        let word = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at * 8..)?.first_chunk()?));
        let (head, expires, first) = (word(0)?, word(1)?, word(HEAD)?);
        let value = match head >> 16 & 0xffff {
            TEXT => NewValue::Text(bytes.get(HEAD * 8..)?.get(..(head & 0xffff) as usize)?),
            NUMBER => NewValue::Number(f64::from_bits(first)),
            BOOLEAN => NewValue::Boolean(first != 0),
            _ => return None,
        };
        Some((SurvivingValue::Plain(value), (head >> 32) as u32, expires))
    }

    /// The elements of a stack, the lowest first.
    fn stack(&mut self, at: u64) -> Option<Vec<DictItem>> {
        let length = self.word(at, offset_of!(ItemStack, len))?;
        let mut next = self.word(at, offset_of!(ItemStack, top))?;
        let mut items = Vec::new();
        while next != 0 {
            self.count()?;
            let element = next.checked_add(ZoneArc::<ListElement>::VALUE as u64)?;
            items.push(self.item(element)?);
            next = self.word(element, offset_of!(ListElement, below))?;
        }
        items.reverse();
        (items.len() as u64 == length).then_some(items)
    }

    fn item(&self, element: u64) -> Option<DictItem> {
        let at = offset_of!(ListElement, item);
        match self.word(element, at)? {
            TEXT_ITEM => {
                let text = self.image.bytes(self.word(element, at + 8)?, self.word(element, at + 16)?)?;
                Some(DictItem::Text(text.into()))
            }
            NUMBER_ITEM => Some(DictItem::Number(f64::from_bits(self.word(element, at + 8)?))),
            _ => None,
        }
    }

    /// One node or element more; `None`: there can't be so many.
    fn count(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        Some(())
    }

    fn word(&self, at: u64, offset: usize) -> Option<u64> {
        self.image.word(at.checked_add(offset as u64)?)
    }

    fn flags(&self, at: u64, offset: usize) -> Option<u32> {
        let bytes = self.image.bytes(at.checked_add(offset as u64)?, 4)?;
        Some(u32::from_ne_bytes(*bytes.first_chunk()?))
    }
}

impl<'i> SurvivingValue<'i> {
    /// As a value to be stored there.
    pub(super) fn at(self, place: ZonePlace) -> NewValue<'i> {
        match self {
            SurvivingValue::Plain(value) => value,
            SurvivingValue::List([left, right]) => {
                let add = |list: ItemList, (item, end): (&DictItem, ListEnd)| list.with(item, end, place);
                let ends = left.iter().map(|item| (item, ListEnd::Left));
                let ends = ends.chain(right.iter().map(|item| (item, ListEnd::Right)));
                NewValue::List(ends.fold(ItemList::default(), add))
            }
        }
    }
}

const _: () = assert!(size_of::<ListElement>() <= size_of::<DictNode>() && size_of::<ElementItem>() == 24);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossbeam_epoch as epoch;
    use proptest::prelude::*;
    use weir_rt::zone_memory::ZoneFile;

    use super::*;
    use crate::dict::value::EntryValue;
    use crate::dict::{EvictionRule, SMALL, SeenValue, SharedDict, StoreCondition};

    const CAPACITY: u64 = 1 << 16;

    /// A dictionary in a region, and its file.
    fn surviving() -> (Arc<ZoneFile>, SharedDict) {
        let file = ZoneFile::new("test").expect("memory");
        let region = file.region("dict", CAPACITY, CAPACITY * 4).expect("memory");
        (file, SharedDict::within(Some(region), CAPACITY))
    }

    fn put(dict: &SharedDict, key: &str, value: NewValue<'_>, ttl: u64, flags: u32) {
        dict.set(key.as_bytes(), value, ttl, flags, StoreCondition::Always, EvictionRule::Evict);
    }

    fn push(dict: &SharedDict, key: &str, item: &DictItem, end: ListEnd) {
        dict.change_list(key.as_bytes(), |list, place| (Some(list.with(item, end, place)), ()))
            .expect("room");
    }

    fn text(text: &str) -> DictItem {
        DictItem::Text(text.as_bytes().into())
    }

    fn image(file: &ZoneFile) -> RegionImage {
        file.image("dict", CAPACITY).expect("readable").expect("it is there")
    }

    /// What the next process has.
    fn next(image: &RegionImage) -> (SharedDict, TakenOver) {
        let dict = SharedDict::within(None, CAPACITY);
        let taken = dict.take_over(image);
        (dict, taken)
    }

    /// A value as a text, its flags and when it expires.
    fn read(dict: &SharedDict, key: &str) -> Option<(String, u32, u64)> {
        dict.get(key.as_bytes(), &mut [0; SMALL], |value, about| {
            let value = match value {
                SeenValue::Text(text) => String::from_utf8_lossy(text).into_owned(),
                other => format!("{other:?}"),
            };
            (value, about.flags, about.expires)
        })
    }

    fn items(dict: &SharedDict, key: &str) -> Vec<DictItem> {
        let mut all = Vec::new();
        let pop = |list: &ItemList, place| match list.without(ListEnd::Left, place) {
            Some((item, rest)) => (Some(rest), Some(item)),
            None => (None, None),
        };
        while let Ok(Some(item)) = dict.change_list(key.as_bytes(), pop) {
            all.push(item);
        }
        all
    }

    fn filled(dict: &SharedDict) {
        put(dict, "short", NewValue::Text(b"a text"), 0, 7);
        put(dict, "long", NewValue::Text(&[b'x'; 1000]), 90_000, 9);
        put(dict, "number", NewValue::Number(1.5), 60_000, 0);
        put(dict, "number", NewValue::Number(2.5), 60_000, 0);
        put(dict, "yes", NewValue::Boolean(true), 0, 1);
        put(dict, "no", NewValue::Boolean(false), 0, 0);
        put(dict, "gone", NewValue::Number(1.0), 0, 0);
        dict.delete(b"gone");
        for (item, end) in [("b", ListEnd::Right), ("a", ListEnd::Left), ("c", ListEnd::Right)] {
            push(dict, "list", &text(item), end);
        }
        push(dict, "list", &DictItem::Number(4.0), ListEnd::Right);
        dict.expire(b"list", 70_000);
    }

    #[test]
    fn all_kinds_of_values_come_back_with_their_time_and_flags() {
        let (file, dict) = surviving();
        filled(&dict);
        let (after, taken) = next(&image(&file));
        assert_eq!(taken, TakenOver { entries: 6, damaged: 0 });
        for key in ["short", "long", "number", "yes", "no", "gone", "list"] {
            assert_eq!(read(&after, key), read(&dict, key), "{key}");
        }
        assert_eq!(read(&after, "short"), Some(("a text".to_owned(), 7, 0)));
        assert!(read(&after, "list").is_some_and(|(_, _, expires)| expires > 0));
        let list = [text("a"), text("b"), text("c"), DictItem::Number(4.0)];
        assert_eq!((items(&after, "list"), items(&dict, "list")), (list.to_vec(), list.to_vec()));
        assert_eq!(after.reported().used, dict.reported().used);
    }

    #[test]
    fn what_a_writer_was_in_the_middle_of_is_as_it_was_before() {
        let (file, dict) = surviving();
        put(&dict, "key", NewValue::Text(b"before"), 0, 3);
        put(&dict, "other", NewValue::Text(b"whole"), 0, 0);
        let (hash, guard) = (hash(b"key"), epoch::pin());
        let found = dict.stripe(hash).find(hash, b"key", &guard).0.expect("it is there");
        let EntryValue::Small(small) = found.value else { panic!("a short text is small") };
        let (state, ..) = small.peek();
        assert!(small.claim(state));
        // Half of the new value is in the other slot.
        let slot = small.words.len() / 2;
        small.words[slot].store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
        let (after, taken) = next(&image(&file));
        assert_eq!(taken, TakenOver { entries: 2, damaged: 0 });
        assert_eq!(read(&after, "key"), Some(("before".to_owned(), 3, 0)));
    }

    #[test]
    fn a_broken_chain_is_dropped_and_the_rest_survives() {
        let (file, dict) = surviving();
        (0..40).for_each(|number| put(&dict, &format!("key{number}"), NewValue::Number(number.into()), 0, 0));
        let hash = hash(b"key7");
        let chain = {
            let [chains, count] = dict.stripe(hash).chains();
            chains + chain_of(hash, count as usize) as u64 * 8
        };
        let scribble = (chain, 0x1234_5678_u64.to_ne_bytes().to_vec());
        let (after, taken) = next(&image(&file).scribbled(&[scribble]));
        assert_eq!((taken.damaged, read(&after, "key7")), (1, None));
        assert!((30..40).contains(&taken.entries), "{taken:?}");
        let lost = (0..40).filter(|number| read(&after, &format!("key{number}")).is_none()).count() as u64;
        assert_eq!(taken.entries + lost, 40);
    }

    #[test]
    fn a_region_of_another_layout_or_size_is_not_read() {
        let (file, dict) = surviving();
        filled(&dict);
        assert!(file.image("dict", CAPACITY + 1).expect("readable").is_none());
        assert!(file.image("other", CAPACITY).expect("readable").is_none());
        dict.region.as_ref().expect("it has one").set_root(LAYOUT_ROOT, LAYOUT + 1);
        assert_eq!(next(&image(&file)).1, TakenOver { entries: 0, damaged: STRIPES as u64 });
        drop(dict);
        assert!(file.image("dict", CAPACITY).expect("readable").is_none(), "it is gone");
    }

    proptest! {
        /// Whatever a process that runs wild writes into a region, the next one has a dictionary.
        #[test]
        fn any_bytes_are_read(
            places in prop::collection::vec((0..CAPACITY / 8, prop::collection::vec(any::<u8>(), 1..40)), 1..60),
            near in any::<bool>(),
        ) {
            let (file, dict) = surviving();
            filled(&dict);
            let base = dict.region.as_ref().expect("it has one").address();
            // Words that are addresses of the region get further than others.
            let written = |bytes: Vec<u8>| match near {
                true => (base + u64::from(bytes[0]) * 64).to_ne_bytes().to_vec(),
                false => bytes,
            };
            let scribbles: Vec<_> =
                places.into_iter().map(|(place, bytes)| (base + place * 8, written(bytes))).collect();
            let (after, taken) = next(&image(&file).scribbled(&scribbles));
            prop_assert_eq!(after.reported().entries, taken.entries);
            prop_assert!(after.reported().used <= CAPACITY);
            let keys = after.keys(usize::MAX);
            prop_assert!(keys.len() as u64 <= taken.entries);
            items(&after, "list");
        }
    }
}
