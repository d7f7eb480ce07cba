//! The lists of `lpush` and `rpush`: values that never change. Adding and taking give another list, which shares all but a
//! few of its elements with the one before, so that a list is exchanged like any other value and no thread waits.
//!
//! Two stacks, their tops at the ends of the list. Taking at an end whose stack is empty moves half of the other one there:
//! so a queue moves each element once or twice in its life, whatever its length.

use crossbeam_epoch as epoch;
use weir_engine::file::hash::hash;
use weir_rt::zone_memory::{ZoneArc, ZonePlace, ZoneSlice};

use crate::dict::node::NodeChange;
use crate::dict::value::{EntryValue, ListValue, is_over};
use crate::dict::{CommitOutcome, DictItem, EntryPlace, EvictionRule, NEVER, NewValue, SharedDict, counted};
use crate::luajit::shared_page::now;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListEnd {
    /// That of `lpush` and `lpop`.
    Left,
    /// That of `rpush` and `rpop`.
    Right,
}

impl ListEnd {
    /// By its number between processes.
    pub(crate) fn of(number: u64) -> ListEnd {
        if number == 0 { ListEnd::Right } else { ListEnd::Left }
    }
}

/// See the module. Cloning copies two pointers. Laid out as [`crate::dict::survivors`] reads it.
#[derive(Clone, Default)]
#[repr(C)]
pub(crate) struct ItemList {
    pub(super) left: ItemStack,
    pub(super) right: ItemStack,
    /// What the elements count for.
    bytes: usize,
}

#[derive(Clone, Default)]
#[repr(C)]
pub(super) struct ItemStack {
    pub(super) top: Option<ZoneArc<ListElement>>,
    pub(super) len: usize,
}

#[repr(C)]
pub(super) struct ListElement {
    pub(super) item: ElementItem,
    pub(super) below: Option<ZoneArc<ListElement>>,
}

/// An element as it is stored.
#[repr(u64)]
pub(super) enum ElementItem {
    Text(ZoneSlice<u8>) = TEXT_ITEM,
    Number(f64) = NUMBER_ITEM,
}

/// The kinds of elements as numbers.
pub(super) const TEXT_ITEM: u64 = 1;
pub(super) const NUMBER_ITEM: u64 = 2;

impl ItemList {
    pub(crate) fn len(&self) -> usize {
        self.left.len + self.right.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that all elements count for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// This list and one element more.
    pub(crate) fn with(&self, item: &DictItem, end: ListEnd, place: ZonePlace) -> ItemList {
        let mut list = self.clone();
        list.bytes += item.size();
        list.ends(end).0.push(item, place);
        list
    }

    /// The element at an end, and the rest without it.
    pub(crate) fn without(&self, end: ListEnd, place: ZonePlace) -> Option<(DictItem, ItemList)> {
        let mut list = self.clone();
        let (end, other) = list.ends(end);
        if end.len == 0 {
            end.take_half(other, place);
        }
        let item = end.pop()?;
        list.bytes -= item.size();
        Some((item, list))
    }

    /// The stack of that end, and the other one.
    fn ends(&mut self, end: ListEnd) -> (&mut ItemStack, &mut ItemStack) {
        match end {
            ListEnd::Left => (&mut self.left, &mut self.right),
            ListEnd::Right => (&mut self.right, &mut self.left),
        }
    }
}

impl ItemStack {
    fn push(&mut self, item: &DictItem, place: ZonePlace) {
        let below = self.top.take();
        let item = match item {
            DictItem::Text(text) => ElementItem::Text(ZoneSlice::copy(text, place)),
            DictItem::Number(number) => ElementItem::Number(*number),
        };
        self.top = Some(ZoneArc::new(ListElement { item, below }, place));
        self.len += 1;
    }

    fn pop(&mut self) -> Option<DictItem> {
        let top = self.top.take()?;
        self.top.clone_from(&top.below);
        self.len -= 1;
        Some(top.item.read())
    }

    /// Takes the half of `other` that lies below, the larger one, with its lowest element on top. This one is empty.
    fn take_half(&mut self, other: &mut ItemStack, place: ZonePlace) {
        let items: Vec<DictItem> = other.items().map(ElementItem::read).collect();
        let (above, below) = items.split_at(items.len() / 2);
        let (mut kept, mut taken) = (ItemStack::default(), ItemStack::default());
        above.iter().rev().for_each(|item| kept.push(item, place));
        below.iter().for_each(|item| taken.push(item, place));
        (*self, *other) = (taken, kept);
    }

    /// From the top.
    fn items(&self) -> impl Iterator<Item = &ElementItem> {
        let mut next = self.top.as_deref();
        std::iter::from_fn(move || {
            let element = next?;
            next = element.below.as_deref();
            Some(&element.item)
        })
    }
}

impl ElementItem {
    fn read(&self) -> DictItem {
        match self {
            ElementItem::Text(text) => DictItem::Text((**text).into()),
            ElementItem::Number(number) => DictItem::Number(*number),
        }
    }
}

impl Drop for ItemStack {
    /// One element after the other: each dropping the one below it would need a stack as deep as the list is long.
    fn drop(&mut self) {
        let mut next = self.top.take();
        while let Some(element) = next.take().and_then(ZoneArc::into_inner) {
            next = element.below;
        }
    }
}

/// Why a list is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListError {
    /// The value is no list.
    OtherKind,
    /// There is no room; nothing goes for an element of a list, as in OpenResty.
    NoMemory,
}

impl SharedDict {
    /// Changes the list of `key`, an empty one where there is nothing; an empty result is removed. `change` says what
    /// is to be there instead, if anything changes, with new elements at the place that it is given, and its caller's
    /// result; it is asked again when another writer was faster.
    pub(crate) fn change_list<T>(
        &self,
        key: &[u8],
        mut change: impl FnMut(&ItemList, ZonePlace) -> (Option<ItemList>, T),
    ) -> Result<T, ListError> {
        let (hash, guard, empty) = (hash(key), epoch::pin(), ItemList::default());
        let stripe = self.stripe(hash);
        loop {
            let (found, head) = stripe.find(hash, key, &guard);
            let (state, expires, _) = found.map_or((0, NEVER, 0), |found| found.value.peek());
            let living = found.filter(|_| !is_over(expires, now()));
            let (items, flags, expires) = match living.map(|found| found.value) {
                None => (&empty, 0, NEVER),
                Some(EntryValue::List(ListValue { items, flags, .. })) => (items, *flags, expires),
                Some(_) => return Err(ListError::OtherKind),
            };
            let (next, result) = change(items, stripe.place);
            let Some(next) = next else {
                living.inspect(|found| found.node.touch(now()));
                return Ok(result);
            };
            let place = EntryPlace { stripe, hash, key, found, state, head };
            match self.exchange_list(&place, next, flags, expires, &guard) {
                CommitOutcome::Done => return Ok(result),
                CommitOutcome::Again(_) => {}
                CommitOutcome::Full(_) => return Err(ListError::NoMemory),
            }
        }
    }

    fn exchange_list(
        &self,
        place: &EntryPlace<'_>,
        next: ItemList,
        flags: u32,
        expires: u64,
        guard: &epoch::Guard,
    ) -> CommitOutcome {
        let EntryPlace { stripe, key, found, state, .. } = *place;
        let before = found.map_or(0, |found| counted(key, found.value.peek().2));
        let size = counted(key, next.bytes());
        let done = match found {
            None if next.is_empty() => true,
            Some(found) if next.is_empty() => {
                let removed = stripe.remove(&found, state, guard);
                removed.into_iter().for_each(|size| self.gone(counted(key, size)));
                removed.is_some()
            }
            _ if size > before && !self.fits(size, before) => {
                let (made, _) = self.make_room(size - before, EvictionRule::Refuse, guard);
                return if made { CommitOutcome::Again(false) } else { CommitOutcome::Full(false) };
            }
            _ => self.put(place, &NodeChange { value: NewValue::List(next), flags, expires }, guard),
        };
        if done { CommitOutcome::Done } else { CommitOutcome::Again(false) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn with(list: &ItemList, number: i32, end: ListEnd) -> ItemList {
        list.with(&DictItem::Number(f64::from(number)), end, ZonePlace::HEAP)
    }

    fn number(item: DictItem) -> f64 {
        match item {
            DictItem::Number(number) => number,
            DictItem::Text(text) => panic!("{text:?}"),
        }
    }

    proptest! {
        /// As a deque, whatever is done to it; what it was before stays.
        #[test]
        fn a_list_is_a_deque(steps in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 0..300)) {
            let (mut list, mut model) = (ItemList::default(), VecDeque::new());
            for (step, (adds, more, left)) in steps.into_iter().enumerate() {
                let end = ListEnd::of(left.into());
                let (before, len) = (list.clone(), model.len());
                if adds || more {
                    list = list.with(&DictItem::Number(step as f64), end, ZonePlace::HEAP);
                    if left { model.push_front(step as f64) } else { model.push_back(step as f64) }
                } else {
                    let expected = if left { model.pop_front() } else { model.pop_back() };
                    let taken = list.without(end, ZonePlace::HEAP).map(|(item, rest)| {
                        list = rest;
                        number(item)
                    });
                    prop_assert_eq!(taken, expected);
                }
                prop_assert_eq!((list.len(), list.bytes()), (model.len(), model.len() * DictItem::Number(0.0).size()));
                prop_assert_eq!(before.len(), len);
            }
        }
    }

    #[test]
    fn a_queue_keeps_its_order() {
        let mut list = (0..10).fold(ItemList::default(), |list, n| with(&list, n, ListEnd::Left));
        let mut taken = Vec::new();
        while let Some((item, rest)) = list.without(ListEnd::Right, ZonePlace::HEAP) {
            taken.push(number(item));
            list = rest;
        }
        assert!(taken.iter().copied().eq((0..10).map(f64::from)) && list.is_empty() && list.bytes() == 0);
    }

    /// Also where two let go of it at the same moment.
    #[test]
    fn a_long_list_is_dropped_on_a_small_stack() {
        let list = (0..300_000).fold(ItemList::default(), |list, n| {
            with(&list, n, if n % 2 == 0 { ListEnd::Left } else { ListEnd::Right })
        });
        let other = list.clone();
        let drops = |list: ItemList| {
            std::thread::Builder::new().stack_size(64 << 10).spawn(move || drop(list)).expect("a thread")
        };
        for thread in [drops(list), drops(other)] {
            thread.join().expect("no overflow");
        }
    }
}
