//! What belongs to one request that is passed on: its attempts, its body, and the messages about it.

pub(crate) mod attempt_records;
pub(crate) mod error_log;
pub(crate) mod exchange_part;
pub(crate) mod peer_sites;
pub(crate) mod request_body;
