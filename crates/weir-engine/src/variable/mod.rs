//! Variables: declared by modules and by the configuration, numbered when used, computed when asked for.
//!
//! What a variable is, is part of what a request goes by ([`plan::variable`](crate::plan::variable)), its value in a request
//! part of the exchange; here are those that nginx's core declares.

pub mod core;

pub use crate::plan::variable::{ValueBasis, Variable, VariableGetter, VariableSource, VariableTable};
pub use crate::value_script::ValueScript;
pub use crate::variable_index::VarIndex;
