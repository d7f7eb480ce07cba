//! What a request knows of the cache's part in its response.

use std::rc::Rc;

use crate::cache::hot::CachedResponse;
use crate::request::exchange_part::part_if;
use weir_engine::exchange::Exchange;
use weir_engine::text::Text;

/// Where a response comes from, as `$upstream_cache_status` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheStatus {
    /// There was no cached response.
    Miss,
    /// The cache was not asked.
    Bypass,
    /// There was one, too old, and the server has sent another.
    Expired,
    /// One that is too old, since the server has none.
    Stale,
    /// One that is too old, while a newer one is fetched.
    Updating,
    /// One that the server says is still good.
    Revalidated,
    /// One that is fresh.
    Hit,
}

impl CacheStatus {
    /// nginx's word for it, in upper case: the value of `$upstream_cache_status`.
    pub fn as_str(self) -> &'static str {
        match self {
            CacheStatus::Miss => "MISS",
            CacheStatus::Bypass => "BYPASS",
            CacheStatus::Expired => "EXPIRED",
            CacheStatus::Stale => "STALE",
            CacheStatus::Updating => "UPDATING",
            CacheStatus::Revalidated => "REVALIDATED",
            CacheStatus::Hit => "HIT",
        }
    }
}

/// The cache's part in a response.
#[derive(Default)]
pub(crate) struct CacheUse {
    pub(crate) status: Option<CacheStatus>,
    /// What is sent to the server is for the cache: for the whole response, whatever this client needs of it.
    pub(crate) whole: bool,
    /// It is sent as GET.
    pub(crate) as_get: bool,
    /// The response that is served, and where its text begins in the arena.
    pub(crate) served: Option<(Rc<CachedResponse>, u32)>,
    /// The one that is too old, whose validators the server is asked with.
    pub(crate) old: Option<Rc<CachedResponse>>,
}

impl CacheUse {
    /// As of a request that has nothing to do with a cache.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.status.is_some() || self.whole {
            *self = CacheUse::default();
        }
    }
}

/// Whether the response that a server is asked for is to be cached: conditions and ranges of the client are then not
/// passed on, since it shall be whole; those of the cache are ([`cache_validators`]).
pub fn is_for_cache(x: &Exchange) -> bool {
    part_if(x).is_some_and(|part| part.cached.whole)
}

/// Where the response comes from; `None`: no cache had to do with it.
pub(crate) fn cache_status(x: &Exchange) -> Option<CacheStatus> {
    part_if(x)?.cached.status
}

/// Whether a server is asked with GET though the client has asked with HEAD.
pub fn is_sent_as_get(x: &Exchange) -> bool {
    part_if(x).is_some_and(|part| part.cached.as_get)
}

/// `Last-Modified` and `ETag` of the cached response that is too old, for the conditions of a request that asks whether
/// it is still good.
pub fn cache_validators(x: &mut Exchange) -> (Option<Text>, Option<Text>) {
    let Some(old) = part_if(x).and_then(|part| part.cached.old.clone()) else { return (None, None) };
    let modified = old.last_modified().map(|time| x.arena.push(&weir_http::date::http(time)));
    let etag = old.etag().map(|etag| x.arena.push(etag));
    (modified.map(Text::Span), etag.map(Text::Span))
}
