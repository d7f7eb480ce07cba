//! What the cache has to do with a request that is passed on, and `*_store`.

pub(crate) mod fill;
pub(crate) mod lookup;
