//! Shared dictionaries: entries, their values and marks, and the chains that they are in.

#[allow(dead_code, unreachable_pub)]
#[path = "../../../../crates/weir-lua/src/dict/chores.rs"]
mod chores;
mod list;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../../crates/weir-lua/src/dict/mark.rs"]
mod mark;
mod models;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../../crates/weir-lua/src/dict/node.rs"]
mod node;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../../crates/weir-lua/src/dict/script_value.rs"]
mod script_value;
mod spare_marks;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../../crates/weir-lua/src/dict/stripe.rs"]
mod stripe;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../../crates/weir-lua/src/dict/value.rs"]
mod value;

pub(crate) use models::MODELS;
pub(crate) use script_value::{NewValue, SeenValue};
pub(crate) use value::SMALL;

/// As in `weir_lua::dict`.
const NEVER: u64 = 0;

/// As in `weir_lua::dict`, without what an entry costs beside its key and value.
fn counted(key: &[u8], value: usize) -> u64 {
    (key.len() + value) as u64
}
