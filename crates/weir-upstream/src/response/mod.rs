//! A response of an upstream on its way to the client.

pub(crate) mod cache_writer;
pub(crate) mod cached_body;
mod chunked_body;
pub(crate) mod datagram_flow;
pub(crate) mod headers;
pub(crate) mod limit_rate;
pub(crate) mod read_ahead;
pub(crate) mod received_head;
pub(crate) mod response_body;
pub(crate) mod session_flow;
pub(crate) mod store;
pub(crate) mod tunnel;
pub(crate) mod upload;
