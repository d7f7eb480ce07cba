//! Connections to servers: opened, secured, and kept alive between requests.

pub(crate) mod shared_idle;
pub(crate) mod worker_pool;
