//! JSON (RFC 8259): written as it goes, and read into values.

mod framing;
mod read;
mod write;

pub use framing::{MessageBuffer, UnframedStream};
pub use read::{JsonValue, MalformedJson};
pub use weir_sys::json::escape;
pub use write::JsonWriter;
