//! Heads of responses that are kept with what they come from: a cached response, a head that a server sends again.

use std::cell::RefCell;
use std::rc::Weak;

use super::response::ResponseHeader;
use crate::plan::Plan;
use crate::text::Text;

/// The heads that clients of one location got of one source, which gives the same each time. It is kept beside its source, and
/// both go together.
#[derive(Debug, Default)]
pub struct HeadMemo {
    /// Of HTTP/1.
    pub(crate) composed: RefCell<Option<Box<MemoHead>>>,
    /// Of HTTP/2.
    pub(crate) numbered: RefCell<Option<Box<MemoHead>>>,
}

/// A head as its filters have left it.
#[derive(Debug)]
pub(crate) struct MemoHead {
    /// The location; what has the source may be part of its plan, so that this must not hold it.
    pub(crate) plan: Weak<Plan>,
    pub(crate) number: u32,
    pub(crate) status: u16,
    pub(crate) length: u64,
    pub(crate) modified: Option<i64>,
    pub(crate) allow_ranges: bool,
    pub(crate) reason: Option<Text>,
    pub(crate) kind: Option<Text>,
    pub(crate) charset: Option<Text>,
    pub(crate) fields: Box<[ResponseHeader]>,
    /// In HTTP/1 its bytes up to the date, ...
    pub(crate) before: Box<[u8]>,
    /// ... and after the date.
    pub(crate) after: Box<[u8]>,
}
