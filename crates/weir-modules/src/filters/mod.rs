//! Filters: modules that change responses on their way to the client.

pub mod addition;
pub mod brotli;
pub mod charset;
pub(crate) mod compress;
pub mod compress_hint;
pub mod early_hint;
pub mod edit_headers;
pub(crate) mod expires;
pub mod gunzip;
pub mod gzip;
pub mod headers;
pub mod headers_more;
pub(crate) mod media;
pub mod not_modified;
pub mod range;
pub mod reproxy;
pub mod slice;
pub mod ssi;
pub mod sub;
pub mod subs;
pub mod throttle_response;
pub mod trace_header;
pub mod userid;
pub mod zstd;
