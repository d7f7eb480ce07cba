//! What a request that is passed on has to do with the cache.

use std::rc::Rc;
use std::sync::Arc;

use crate::cache::hot::{CachedResponse, HotCache};
use crate::cache::{CacheIndex, CacheTicket};
use crate::config::cache_directives::CacheSettings;

/// What a request has to do with the cache that is sent to a server.
pub(crate) struct CacheFetch {
    pub(crate) settings: Arc<CacheSettings>,
    pub(crate) cache: Arc<CacheIndex>,
    pub(crate) hot: Rc<HotCache>,
    /// The text of the key.
    pub(crate) text: Box<[u8]>,
    /// Its part in the entry; `None` where the cache was not asked.
    pub(crate) ticket: Option<CacheTicket>,
    /// The response may be cached, as far as is known.
    pub(crate) keeps: bool,
    /// What is too old.
    pub(crate) old: Option<Rc<CachedResponse>>,
    /// The response itself allows that it is used when the server fails (`stale-if-error`).
    pub(crate) old_for_errors: bool,
}
