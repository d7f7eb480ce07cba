//! What belongs to one request that is passed on: its attempts, its body, and the messages about it.

pub(crate) mod attempt_records;
pub(crate) mod attempt_state;
pub(crate) mod balancer_decision;
pub(crate) mod cache_fetch;
pub(crate) mod cache_use;
pub(crate) mod exchange_part;
pub(crate) mod known_request;
pub(crate) mod overrides;
pub(crate) mod request_body;
pub(crate) mod scratch;
