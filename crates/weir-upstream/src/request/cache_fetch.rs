//! What a request that is passed on has to do with the cache.

use std::rc::Rc;
use std::sync::Arc;

use crate::cache::hot::{CachedResponse, HotCache};
use crate::cache::{CacheIndex, CacheTicket};
use crate::config::cache_directives::CacheSettings;
use weir_engine::body::BodyBuf;

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
    pub(crate) old: Option<OldResponse>,
    /// The response itself allows that it is used when the server fails (`stale-if-error`).
    pub(crate) old_for_errors: bool,
}

/// A cached response that is too old, with its body at hand as long as a server is asked: another request may renew or replace its
/// file meanwhile.
#[derive(Clone)]
pub(crate) struct OldResponse {
    pub(crate) response: Rc<CachedResponse>,
    pub(crate) body: BodyBuf,
}

impl OldResponse {
    /// `None`: its file has gone.
    pub(crate) fn held(response: Rc<CachedResponse>, hot: &HotCache) -> Option<OldResponse> {
        let body = response.body(hot)?;
        Some(OldResponse { response, body })
    }
}
