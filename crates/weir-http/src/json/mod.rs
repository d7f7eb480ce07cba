//! JSON (RFC 8259): written as it goes, and read into values.

mod read;
mod write;

pub use read::{JsonValue, MalformedJson};
pub use weir_sys::json::escape;
pub use write::JsonWriter;
