//! Values as scripts give and see them.

use std::sync::Arc;

use crate::dict::list::ItemList;

/// A value to be stored.
#[derive(Clone)]
pub(crate) enum NewValue<'v> {
    Text(&'v [u8]),
    Number(f64),
    Boolean(bool),
    /// Of texts and numbers, from left to right.
    List(ItemList),
}

/// A value that is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SeenValue<'v> {
    Text(&'v [u8]),
    Number(f64),
    Boolean(bool),
    /// See [`SharedDict::change_list`](crate::dict::SharedDict::change_list).
    List,
}

impl<'v> NewValue<'v> {
    /// As a value that was read; `None`: it is a list.
    pub(super) fn of(seen: SeenValue<'v>) -> Option<NewValue<'v>> {
        Some(match seen {
            SeenValue::Text(text) => NewValue::Text(text),
            SeenValue::Number(number) => NewValue::Number(number),
            SeenValue::Boolean(value) => NewValue::Boolean(value),
            SeenValue::List => return None,
        })
    }

    pub(super) fn size(&self) -> usize {
        match self {
            NewValue::Text(text) => text.len(),
            NewValue::Number(_) => 8,
            NewValue::Boolean(_) => 1,
            NewValue::List(list) => list.bytes(),
        }
    }
}

/// An element of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DictItem {
    Text(Arc<[u8]>),
    Number(f64),
}

impl DictItem {
    pub(super) fn size(&self) -> usize {
        32 + if let DictItem::Text(text) = self { text.len() } else { 8 }
    }
}
