//! A request's way through the cache: served from it, sent on to fill it, or sent past it.
//!
//! ```text
//!  respond_from_memory ── in this worker's memory, and fresh ──► a response, without waiting
//!     │
//!  begin ──── a file, fresh ────────────────────────► HIT
//!     ├────── too old, and may be used meanwhile ───► STALE (fetched in the background), UPDATING
//!     ├────── too old ──────────────────────────────► Fetch: EXPIRED; may become STALE or REVALIDATED
//!     ├────── another fetches it, `*_cache_lock` ───► waits, looks again
//!     └────── nothing ──────────────────────────────► Fetch: MISS
//! ```
//!
//! What comes of a [`CacheFetch`] is decided where the head of the response is known: [`crate::caching::fill`].

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use weir_http::{KnownField, Method};
use weir_trace::WaitKind;

use crate::cache::hot::{CachedResponse, HotCache, HotLookup};
use crate::cache::hot_source::HotSource;
use crate::cache::{
    CacheIndex, CacheKey, CacheLookupResult, CacheTicket, CacheTurn, CacheZones, place, variant,
};
use crate::config::cache_directives::{CacheSettings, CacheZoneSetting, UPDATING};
use crate::location::upstream_location::UpstreamLocation;
use crate::protocol::IncomingHead;
use crate::request::cache_fetch::{CacheFetch, OldResponse};
use crate::request::cache_use::CacheStatus;
use crate::request::exchange_part::part;
use crate::response::headers;
use crate::response::headers::HeaderOrigin;
use crate::worker_side::worker_part::of_worker;
use weir_engine::body::BodyBuf;
use weir_engine::body::ResponseBody;
use weir_engine::exchange::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::phase::Verdict;
use weir_engine::subrequest::SubrequestOptions;
use weir_engine::text::{Span, Text};
use weir_engine::variable::ValueScript;
use weir_engine::worker::Worker;

/// The cache of one location, on one worker.
pub(crate) struct CacheLookup {
    pub(crate) settings: Arc<CacheSettings>,
    /// The cache, where the configuration names it.
    fixed: Option<OwnTicket>,
}

/// A cache, and what this worker has of it in memory.
type OwnTicket = (Arc<CacheIndex>, Rc<HotCache>);

/// How a request begins.
pub(crate) enum CacheDecision {
    /// The response is under way.
    Done(Verdict),
    /// A server is asked, with the cache in mind.
    Fetch(Box<CacheFetch>),
    /// A server is asked; no cache has to do with it.
    Past,
}

/// A fetch that goes on in a request of its own, in the background; the request's state.
#[derive(Default)]
struct HandedOver(Option<Box<CacheFetch>>);

impl CacheLookup {
    pub(crate) fn new(settings: &Arc<CacheSettings>, worker: &Worker) -> CacheLookup {
        let fixed = match &settings.zone {
            CacheZoneSetting::Fixed(zone, _) => place::of(zone),
            CacheZoneSetting::Computed(_) => None,
        };
        let fixed = fixed.map(|cache| {
            let hot = of_worker(worker).caches.of(&cache);
            (cache, hot)
        });
        CacheLookup { settings: settings.clone(), fixed }
    }

    /// Responds to `x` from this worker's memory; `None`: what it needs is not there. `is_fixed`: all requests go to the same
    /// place, so that the key is that of all requests with this head, unless the configuration makes keys itself.
    pub(crate) fn respond_from_memory(
        &self,
        x: &mut Exchange,
        up: &UpstreamLocation,
        is_fixed: bool,
    ) -> Option<Verdict> {
        let (_, hot) = self.fixed.as_ref()?;
        if !self.is_for(x) || !self.settings.purge.is_empty() || x.state_if::<HandedOver>().is_some() {
            return None;
        }
        let key = self.key(x, up).ok()?;
        if any(x, &self.settings.bypass) {
            return None;
        }
        let response = hot.find(x.arena.get(key))?;
        let response = if response.vary.is_empty() { response } else { self.chosen(x, hot, key, response)? };
        if response.times.valid < weir_rt::unix_time().0 {
            return None;
        }
        part(x).cached.whole = true;
        let verdict = respond(x, up, hot, &response, CacheStatus::Hit)?;
        if is_fixed
            && self.settings.key.is_none()
            && self.settings.bypass.is_empty()
            && response.vary.is_empty()
        {
            x.comes_from(|arena| Rc::new(HotSource::new(hot, arena.get(key).into(), &response)));
        }
        Some(verdict)
    }

    /// Of a response that depends on fields of requests the variant for `x`, if it is in memory.
    fn chosen(
        &self,
        x: &mut Exchange,
        hot: &HotCache,
        key: Span,
        main: Rc<CachedResponse>,
    ) -> Option<Rc<CachedResponse>> {
        let fields = chosen_by(x, &main.vary);
        let name = CacheKey::of(x.arena.get(key));
        if variant(name, x.arena.get(fields)) == main.variant {
            return Some(main);
        }
        let beside = name_of_variant(x, key, fields);
        let response = hot.find(x.arena.get(beside))?;
        (response.variant == variant(name, x.arena.get(fields))).then_some(response)
    }

    /// Whether requests with the method of `x` have to do with the cache.
    fn is_for(&self, x: &Exchange) -> bool {
        self.settings.methods & 1 << x.request.head.method as u32 != 0
    }

    /// The text of the key of `x`.
    fn key(&self, x: &mut Exchange, up: &UpstreamLocation) -> Result<Span, Verdict> {
        let Some(script) = &self.settings.key else { return up.protocol.cache_key(x) };
        match script.value(x) {
            Text::Span(span) => Ok(span),
            text => Ok(x.arena.append(&text)),
        }
    }

    /// Determines how `x` goes on. Where it goes is known already
    /// ([`PassTarget::aim`](crate::handler::PassTarget::aim)).
    pub(crate) async fn begin(&self, x: &mut Exchange, up: &UpstreamLocation) -> CacheDecision {
        let purges = any(x, &self.settings.purge);
        if !self.is_for(x) && !purges {
            return CacheDecision::Past;
        }
        if let Some(fetch) = x.state::<HandedOver>().0.take() {
            return CacheDecision::Fetch(self.sends(x, fetch, CacheStatus::Expired));
        }
        let (cache, hot) = match self.cache(x) {
            Ok(Some(cache)) => cache,
            Ok(None) => return CacheDecision::Past,
            Err(verdict) => return CacheDecision::Done(verdict),
        };
        let key = match self.key(x, up) {
            Ok(key) => key,
            Err(verdict) => return CacheDecision::Done(verdict),
        };
        if purges {
            return CacheDecision::Done(purge(x, cache, key).await);
        }
        let fetch = CacheFetch {
            settings: self.settings.clone(),
            cache,
            hot,
            text: x.arena.get(key).into(),
            ticket: None,
            keeps: true,
            old: None,
            old_for_errors: false,
        };
        if any(x, &self.settings.bypass) {
            return CacheDecision::Fetch(self.sends(x, Box::new(fetch), CacheStatus::Bypass));
        }
        self.look(x, up, fetch, key).await
    }

    /// The cache of `x`; `None` for none.
    fn cache(&self, x: &mut Exchange) -> Result<Option<OwnTicket>, Verdict> {
        let CacheZoneSetting::Computed(script) = &self.settings.zone else { return Ok(self.fixed.clone()) };
        let name = script.value(x);
        let name = x.text(&name);
        if matches!(name, b"" | b"off") {
            return Ok(None);
        }
        let link = x.server.generation();
        let caches = link.configuration.shared::<CacheZones>();
        match caches.and_then(|caches| caches.named(self.settings.owner, name)) {
            Some(cache) => {
                let hot = of_worker(&x.worker).caches.of(&cache);
                Ok(Some((cache, hot)))
            }
            None => {
                x.log_error(&format_args!("cache \"{}\" not found", String::from_utf8_lossy(name)));
                Err(Verdict::Status(500))
            }
        }
    }

    /// Looks into the cache until it is known how `x` goes on.
    async fn look(
        &self,
        x: &mut Exchange,
        up: &UpstreamLocation,
        mut fetch: CacheFetch,
        key: Span,
    ) -> CacheDecision {
        let main = CacheKey::of(&fetch.text);
        let mut name = main;
        let (mut remembered, mut beside) = (key, false);
        let mut patience = self.settings.lock_timeout;
        loop {
            let (ticket, look, scarce) = match fetch.cache.look_up(name, self.settings.min_uses) {
                CacheLookupResult::Error(status) => {
                    part(x).cached.status = Some(CacheStatus::Hit);
                    return CacheDecision::Done(Verdict::Status(status));
                }
                CacheLookupResult::Scarce | CacheLookupResult::Full => return self.passes(x, fetch),
                CacheLookupResult::Entry { ticket, look, scarce } => (ticket, look, scarce),
            };
            fetch.ticket = None;
            if look && let Some(response) = read(x, &fetch, &ticket, remembered).await {
                let fields = if response.vary.is_empty() { None } else { Some(chosen_by(x, &response.vary)) };
                let wanted = fields.map(|fields| variant(main, x.arena.get(fields)));
                match (fields, wanted) {
                    (Some(fields), Some(wanted)) if wanted != response.variant => {
                        if beside {
                            x.log(LogLevel::Crit, &wrong_file(&ticket, "has incorrect vary hash"));
                            fetch.ticket = Some(ticket);
                            return CacheDecision::Fetch(self.sends(x, Box::new(fetch), CacheStatus::Miss));
                        }
                        (name, remembered, beside) = (wanted, name_of_variant(x, key, fields), true);
                        continue;
                    }
                    _ => {}
                }
                fetch.ticket = Some(ticket);
                return self.found(x, up, Box::new(fetch), response);
            }
            if scarce {
                return self.passes(x, fetch);
            }
            let mut ticket = ticket;
            if let Some(age) = self.settings.lock
                && let CacheTurn::Others(_) = ticket.lock(age)
            {
                if wait(x, &ticket, &mut patience).await {
                    continue;
                }
                return self.passes(x, fetch);
            }
            fetch.ticket = Some(ticket);
            return CacheDecision::Fetch(self.sends(x, Box::new(fetch), CacheStatus::Miss));
        }
    }

    /// There is a response: is it fresh, and what if not?
    fn found(
        &self,
        x: &mut Exchange,
        up: &UpstreamLocation,
        mut fetch: Box<CacheFetch>,
        response: Rc<CachedResponse>,
    ) -> CacheDecision {
        let now = weir_rt::unix_time().0;
        let hot = fetch.hot.clone();
        let served = |x: &mut Exchange, status| {
            part(x).cached.whole = true;
            // The file has gone within this very turn: as if it could not be read.
            CacheDecision::Done(respond(x, up, &hot, &response, status).unwrap_or(Verdict::Status(500)))
        };
        if response.times.valid >= now {
            return served(x, CacheStatus::Hit);
        }
        let still = |more: u64| response.times.valid.saturating_add(more) >= now;
        let meanwhile = self.settings.use_stale & UPDATING != 0 || still(response.times.updating);
        fetch.old_for_errors = still(response.times.error);
        let mine = fetch.ticket.as_mut().is_some_and(CacheTicket::update);
        if mine && meanwhile && self.settings.background_update {
            fetch.old = OldResponse::held(response.clone(), &hot);
            hand_over(x, fetch);
            return served(x, CacheStatus::Stale);
        }
        if !mine && meanwhile {
            return served(x, CacheStatus::Updating);
        }
        fetch.old = OldResponse::held(response, &hot);
        CacheDecision::Fetch(self.sends(x, fetch, CacheStatus::Expired))
    }

    /// A server is asked, and its response is not cached.
    fn passes(&self, x: &mut Exchange, mut fetch: CacheFetch) -> CacheDecision {
        fetch.keeps = false;
        CacheDecision::Fetch(self.sends(x, Box::new(fetch), CacheStatus::Miss))
    }

    /// A server is asked: for what, and whether it may be cached.
    fn sends(&self, x: &mut Exchange, mut fetch: Box<CacheFetch>, status: CacheStatus) -> Box<CacheFetch> {
        fetch.keeps &= !is_far(x, self.settings.max_range_offset);
        let as_get = self.settings.convert_head && x.request.head.method == Method::Head;
        let cached = &mut part(x).cached;
        cached.status = Some(status);
        cached.whole = fetch.keeps;
        cached.as_get = as_get;
        if self.settings.revalidate && status == CacheStatus::Expired {
            cached.old = fetch.old.as_ref().map(|old| old.response.clone());
        }
        fetch
    }
}

/// Whether one of the values is neither empty nor `0`.
pub(crate) fn any(x: &mut Exchange, scripts: &[ValueScript]) -> bool {
    scripts.iter().any(|script| {
        let value = script.value(x);
        !matches!(x.text(&value), b"" | b"0")
    })
}

/// Responds to `x` with `answer`. `None`: its file has just gone.
pub(crate) fn respond(
    x: &mut Exchange,
    up: &UpstreamLocation,
    hot: &HotCache,
    response: &Rc<CachedResponse>,
    status: CacheStatus,
) -> Option<Verdict> {
    let body = response.body(hot)?;
    Some(respond_with(x, up, body, response, status))
}

/// Responds to `x` with `response`, whose body is `body`.
pub(crate) fn respond_with(
    x: &mut Exchange,
    up: &UpstreamLocation,
    body: BodyBuf,
    response: &Rc<CachedResponse>,
    status: CacheStatus,
) -> Verdict {
    let base = x.arena.push(&response.text).start;
    let cached = &mut part(x).cached;
    cached.status = Some(status);
    cached.served = Some((response.clone(), base));
    let body = if response.length == 0 { ResponseBody::Empty } else { ResponseBody::Whole(body) };
    if response.memo().is_some_and(|memo| x.recall_head(memo)) {
        return x.respond(body);
    }
    let mut fields = x.worker.fields.take();
    fields.extend(response.fields_at(base));
    // A status alone, as of a response that came without a line for it, says no more than the usual words, whose heads
    // are kept.
    let reason = (response.reason.end - response.reason.start > 3)
        .then_some(Span { start: response.reason.start + base, end: response.reason.end + base })
        .filter(|span| {
            weir_http::status::line(response.status).map(str::as_bytes) != Some(x.arena.get(*span))
        });
    let mut incoming = IncomingHead {
        status: response.status,
        reason,
        fields,
        content_length: response.content_length,
        ..IncomingHead::default()
    };
    headers::copy(x, up, &incoming, HeaderOrigin::Cache);
    let mut fields = std::mem::take(&mut incoming.fields);
    fields.clear();
    x.worker.fields.replace(fields);
    x.respond(body)
}

/// Reads the file of `ticket`; what is wrong with it is logged.
async fn read(
    x: &mut Exchange,
    fetch: &CacheFetch,
    ticket: &CacheTicket,
    name: Span,
) -> Option<Rc<CachedResponse>> {
    let name = x.arena.get(name).to_vec();
    let looked = fetch.hot.read(ticket, &fetch.text, &name);
    let shared = x.shared.clone();
    match shared.waiting_for(WaitKind::ThreadPool, Box::pin(looked)).await {
        HotLookup::Answer(response) => {
            if !ticket.exists() {
                // The directory was not read so far yet.
                ticket.stored(response.file_size());
            }
            return Some(response);
        }
        HotLookup::Nothing => {}
        HotLookup::Bad(bad) => x.log(LogLevel::Crit, &wrong_file(ticket, bad.message())),
        HotLookup::Collision => x.log(LogLevel::Crit, &wrong_file(ticket, "has md5 collision")),
        HotLookup::Failed(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            let (path, text) = (ticket.file(), weir_rt::file::errno_text(errno));
            x.log(LogLevel::Crit, &format_args!("open() \"{}\" failed ({errno}: {text})", path.display()));
        }
    }
    ticket.lost();
    None
}

fn wrong_file(ticket: &CacheTicket, what: &str) -> String {
    format!("cache file \"{}\" {what}", ticket.file().display())
}

/// Waits until no request fetches the response any more; `false`: for so long that the server is asked.
async fn wait(x: &mut Exchange, ticket: &CacheTicket, patience: &mut u64) -> bool {
    let began = weir_rt::now_ms();
    let turn = async {
        let mut look = pin!(weir_rt::sleep(LOOK));
        poll_fn(|cx| {
            // A turn that takes too long ends without notice.
            if look.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            ticket.poll_turn(cx)
        })
        .await;
    };
    if *patience > 0 {
        let limit = weir_rt::sleep(Duration::from_millis(*patience));
        let either = weir_rt::notify::either(turn, limit);
        let shared = x.shared.clone();
        let _ = shared.waiting_for(WaitKind::Lock, Box::pin(either)).await;
        *patience = patience.saturating_sub(weir_rt::now_ms() - began);
    }
    if *patience > 0 {
        return true;
    }
    x.log(LogLevel::Info, &"cache lock timeout");
    false
}

/// Whether the client's range begins so far into the body that it is the server's business.
fn is_far(x: &Exchange, most: Option<u64>) -> bool {
    let Some(most) = most else { return false };
    let Some(range) = x.request.value(&x.arena, KnownField::Range) else { return false };
    if most == 0 {
        return true;
    }
    let Some(range) = range.get(..6).filter(|unit| unit.eq_ignore_ascii_case(b"bytes=")).map(|_| &range[6..])
    else {
        return false;
    };
    let range = range.trim_ascii_start();
    let digits = range.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // A range from the end: where it begins is not known.
    range.first() == Some(&b'-')
        || weir_http::header::decimal(&range[..digits]).is_some_and(|start| start >= most)
}

/// The fields of the request that `vary` names, each with its value in one way of writing, at the arena's end.
pub(crate) fn chosen_by(x: &mut Exchange, vary: &[u8]) -> Span {
    let mut out = Vec::with_capacity(64);
    for name in vary.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()) {
        out.extend(name.iter().map(u8::to_ascii_lowercase));
        out.push(b':');
        let named =
            x.request.head.fields.iter().filter(|field| x.arena.get(field.name).eq_ignore_ascii_case(name));
        for field in named {
            for part in x.arena.get(field.value).split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                if !part.is_empty() {
                    out.extend_from_slice(part);
                    out.push(b',');
                }
            }
        }
        out.extend_from_slice(b"\r\n");
    }
    x.arena.push(&out)
}

/// What a variant is remembered by in memory.
fn name_of_variant(x: &mut Exchange, key: Span, fields: Span) -> Span {
    let start = x.arena.mark();
    x.arena.copy(key);
    x.arena.push(b"\n");
    x.arena.copy(fields);
    x.arena.since(start)
}

/// Lets the fetch go on in a request of its own.
fn hand_over(x: &mut Exchange, fetch: Box<CacheFetch>) {
    let (uri, args) = (x.uri().to_vec(), x.args().to_vec());
    let options =
        SubrequestOptions { method: x.request.head.method, head_only: true, ..SubrequestOptions::default() };
    x.background_again(&uri, &args, options, |child| child.state::<HandedOver>().0 = Some(fetch));
}

/// Removes what is cached of the response to `x`.
async fn purge(x: &mut Exchange, cache: Arc<CacheIndex>, key: Span) -> Verdict {
    let text = x.arena.get(key).to_vec();
    let name = CacheKey::of(&text);
    let vary = match cache.look_up(name, 1) {
        CacheLookupResult::Entry { ticket, look: true, .. } => {
            let hot = of_worker(&x.worker).caches.of(&cache);
            match hot.read(&ticket, &text, &text).await {
                HotLookup::Answer(response) => response.vary.clone(),
                _ => Box::default(),
            }
        }
        _ => Box::default(),
    };
    let fields = chosen_by(x, &vary);
    let beside = variant(name, x.arena.get(fields));
    let purged = weir_rt::blocking(move || cache.purge(beside) | cache.purge(name));
    let shared = x.shared.clone();
    if !shared.waiting_for(WaitKind::ThreadPool, Box::pin(purged)).await {
        return Verdict::Status(404);
    }
    x.response.status = 204;
    x.respond(ResponseBody::Empty)
}

/// How often is looked whether a turn has become too long.
const LOOK: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_engine::testing;

    fn with(fields: &str, test: impl AsyncFnOnce(&mut Exchange)) {
        testing::run("server { }", &format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"), test);
    }

    #[test]
    fn a_range_is_far_where_it_begins_beyond_or_nobody_knows() {
        for (range, far) in [
            ("bytes=100-", true),
            ("bytes=99-200", false),
            ("bytes= 100-101", true),
            ("bytes=-5", true),
            ("items=500-", false),
            ("bytes=x", false),
        ] {
            with(&format!("Range: {range}\r\n"), async |x| {
                assert_eq!(is_far(x, Some(100)), far, "{range}");
                assert!(!is_far(x, None));
            });
        }
        with("Range: bytes=x\r\n", async |x| assert!(is_far(x, Some(0)), "every range"));
        with("", async |x| assert!(!is_far(x, Some(0))));
    }

    #[test]
    fn values_that_mean_the_same_choose_the_same_variant() {
        with("Accept: a, b\r\nAccept-Language: de\r\nAccept:c\r\n", async |x| {
            let one = chosen_by(x, b"Accept,  accept-language");
            assert_eq!(x.arena.get(one), b"accept:a,b,c,\r\naccept-language:de,\r\n");
        });
        with("Accept: a,b ,, c\r\n", async |x| {
            let one = chosen_by(x, b"accept, x");
            assert_eq!(x.arena.get(one), b"accept:a,b,c,\r\nx:\r\n");
        });
    }
}
