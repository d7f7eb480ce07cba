//! JSON (RFC 8259): written as it goes, and read into values.

mod read;
mod write;

pub use read::{Malformed, Value};
pub use weir_sys::json::escape;
pub use write::Json;
