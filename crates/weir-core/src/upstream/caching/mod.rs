//! What the cache has to do with a request that is passed on, and `*_store`.

pub(crate) mod cache_use;
pub(crate) mod cache_writer;
pub(crate) mod fill;
pub(crate) mod lookup;
pub(crate) mod store;
