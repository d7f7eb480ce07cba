//! Two averages side by side: what `weir diff` and `weir compare` show.
//!
//! A [`MeasuredNode`] is one average as a server reported it, a tree of means and deviations. Two of them, or many
//! rounds of two, are joined node by node ([`JoinedNode`]); each node's difference has an interval that holds the true
//! one 95 times of 100 ([`stats`]).

mod joined;
mod measured;
mod report;
pub(crate) mod stats;

pub(crate) use joined::{ComparedSide, JoinedNode};
pub(crate) use measured::MeasuredNode;
pub(crate) use report::{ShownParts, SideName, SideNames, json, text};
