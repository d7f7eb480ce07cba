//! HTTP without input and output: parsing, framing, URIs, dates and ranges on byte slices.
//!
//! The contract of the crate: bytes and time come in as arguments, results go out as values; no socket, no clock,
//! no global state, and no input can make it panic. Everything is therefore tested byte by byte, and fuzzed.
//!
//! * [`h1`] reads and writes HTTP/1 heads and chunked bodies; [`header`] classifies field names;
//! * [`h2`] is a connection of HTTP/2, of either side; [`hpack`] compresses and reads header blocks of HTTP/2;
//! * [`h3`] is a connection of HTTP/3, of either side, on streams of QUIC; [`qpack`] compresses and reads header sections of HTTP/3;
//! * [`message`] is what header sections of both say; [`fastcgi`] reads and writes the records of FastCGI.
#![forbid(unsafe_code)]

pub mod accept;
pub mod base32;
pub mod base64;
mod block;
pub mod coder;
pub mod cookie;
pub mod date;
pub mod deflate;
pub mod escape;
pub mod etag;
pub mod fastcgi;
pub mod freshness;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod header;
pub mod host;
pub mod hpack;
pub mod json;
pub mod memcached;
pub mod message;
mod method;
pub mod mime;
pub mod priority;
pub mod proxy_protocol;
pub mod qpack;
pub mod quote;
pub mod range;
pub mod ssi;
pub mod status;
pub mod text_coder;
mod traceparent;
pub mod uri;
pub mod uri_reference;
mod version;

pub use header::{Field, IgnoredFields, KnownField, Span, classify, resembles_framing};
pub use method::Method;
pub use traceparent::TraceParent;
pub use version::Version;
