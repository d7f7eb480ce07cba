//! The numbers of variables.

/// A variable in a configuration, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VarIndex(pub u16);
