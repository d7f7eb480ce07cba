//! Whether a response that comes from a server is cached, and for how long; and what is used in its place when the
//! server has none.

use weir_http::KnownField;
use weir_http::freshness::Freshness;
use weir_trace::WaitKind;

use crate::cache::head::CacheTimes;
use crate::cache::{CacheKey, variant, write};
use crate::caching::lookup;
use crate::caching::lookup::{any, chosen_by};
use crate::config::directives::{UpstreamSettings, ignored};
use crate::config::failure_reason::FailureReason;
use crate::protocol::IncomingHead;
use crate::request::attempt_state::Attempt;
use crate::request::cache_fetch::{CacheFetch, OldResponse};
use crate::request::cache_use::{CacheStatus, cache_status};
use crate::request::exchange_part::part_if;
use crate::response::cache_writer::{ResponseFile, WriterGoal};
use weir_engine::exchange::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::phase::Verdict;
use weir_rt::small_write::FileWrite;

/// What the head of a response says about caching it.
pub(crate) struct CacheJudgement {
    freshness: Freshness,
    /// The fields of requests that it depends on.
    vary: Vec<u8>,
    /// It may be cached, as far as the head says.
    pub(crate) keeps: bool,
}

impl CacheFetch {
    /// Reads what the head says about caching the response.
    pub(crate) fn judge(
        &self,
        x: &Exchange,
        settings: &UpstreamSettings,
        incoming: &IncomingHead,
    ) -> CacheJudgement {
        let now = weir_rt::unix_time().0;
        let heeds = |bit| settings.ignore_headers & bit == 0;
        let mut judged =
            CacheJudgement { freshness: Freshness::default(), vary: Vec::new(), keeps: self.keeps };
        // Of these the first counts.
        let (mut accel, mut expires) = (heeds(ignored::X_EXPIRES), heeds(ignored::EXPIRES));
        for field in &incoming.fields {
            let value = x.arena.get(field.value);
            match field.known {
                KnownField::XAccelExpires if std::mem::take(&mut accel) => {
                    judged.freshness.accel_expires(value, now);
                }
                KnownField::Expires if std::mem::take(&mut expires) => judged.freshness.expires(value, now),
                KnownField::CacheControl if heeds(ignored::CACHE_CONTROL) => {
                    judged.freshness.cache_control(value, now);
                }
                KnownField::SetCookie if heeds(ignored::SET_COOKIE) => judged.keeps = false,
                KnownField::Vary if heeds(ignored::VARY) => {
                    if !judged.vary.is_empty() {
                        judged.vary.extend_from_slice(b", ");
                    }
                    judged.vary.extend_from_slice(value);
                }
                _ => {}
            }
        }
        // As in nginx what may not be cached is not judged by this client's conditions either: it goes on as it came.
        judged.keeps &= !judged.freshness.refused && judged.freshness.may_be_kept();
        judged.keeps &= judged.vary.len() <= VARY && !names_all(&judged.vary);
        judged
    }

    /// Until when a response with `status` may be used; `None`: not at all.
    fn until(&self, judged: &CacheJudgement, status: u16) -> Option<u64> {
        if !judged.keeps {
            return None;
        }
        let now = weir_rt::unix_time().0;
        judged.freshness.valid.or_else(|| Some(now.saturating_add(self.settings.valid(status)?)))
    }

    /// Remembers that the response is an error page of this server's, in place of what came (`error_page`).
    pub(crate) fn keep_error(&self, judged: &CacheJudgement, status: u16) {
        if let (Some(ticket), Some(until)) = (&self.ticket, self.until(judged, status)) {
            ticket.fail(status, until);
        }
    }

    /// Remembers that there is no response.
    fn keep_failure(&self, status: u16) {
        if self.keeps
            && matches!(status, 502 | 504)
            && let (Some(ticket), Some(seconds)) = (&self.ticket, self.settings.valid(status))
        {
            ticket.fail(status, weir_rt::unix_time().0.saturating_add(seconds));
        }
    }

    /// How the response is cached; `None`: it is not.
    pub(crate) fn keep(
        mut self,
        x: &mut Exchange,
        up: &UpstreamSettings,
        incoming: &IncomingHead,
        judged: &CacheJudgement,
    ) -> Option<ResponseFile> {
        if any(x, &self.settings.no_cache) {
            return None;
        }
        let valid = self.until(judged, incoming.status)?;
        let main = CacheKey::of(&self.text);
        let wanted = if judged.vary.is_empty() {
            CacheKey::default()
        } else {
            let fields = chosen_by(x, &judged.vary);
            variant(main, x.arena.get(fields))
        };
        let asked = self.ticket.take().filter(|ticket| ticket.key() == main || ticket.key() == wanted);
        // Else the cache was not asked, or the response depends on other fields than the one before.
        let ticket = asked.or_else(|| self.cache.replace(main))?;
        let times = CacheTimes {
            valid,
            date: weir_rt::unix_time().0,
            updating: judged.freshness.updating,
            error: judged.freshness.error,
        };
        let text = head_text(x, incoming);
        let place = self.cache.place();
        let aside = match place.use_temp_path {
            true => write::FileAside::Folder((*up.temp_path.path).clone(), up.temp_path.levels),
            false => write::FileAside::Beside(ticket.file()),
        };
        let (vary, key) = (judged.vary.clone(), std::mem::take(&mut self.text).into_vec());
        let status = incoming.status;
        let goal =
            WriterGoal::Cache { ticket, root: place.path, times, status, key, vary, variant: wanted, text };
        Some(ResponseFile { goal, aside, expected: incoming.content_length })
    }
}

/// What says that a server has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureSource {
    /// Its response's status.
    Status,
    /// That there is no whole response.
    NoResponse,
}

impl Attempt {
    /// What is too old in place of a response that did not come because of `reason`, if that may be.
    pub(crate) fn stale(
        &mut self,
        x: &mut Exchange,
        reason: FailureReason,
        source: FailureSource,
    ) -> Option<Verdict> {
        let fetch = self.fetch.as_ref()?;
        let old = fetch.old.clone()?;
        let allowed = fetch.settings.use_stale & reason.0 != 0
            || (fetch.old_for_errors && source == FailureSource::NoResponse);
        if !allowed || cache_status(x) != Some(CacheStatus::Expired) {
            return None;
        }
        Some(lookup::respond_with(x, &self.up, old.body, &old.response, CacheStatus::Stale))
    }

    /// How the request ends when no server responds.
    pub(crate) fn fails(&mut self, x: &mut Exchange, reason: FailureReason) -> Verdict {
        if let Some(verdict) = self.stale(x, reason, FailureSource::NoResponse) {
            return verdict;
        }
        let status = reason.status();
        if let Some(fetch) = &self.fetch {
            fetch.keep_failure(status);
        }
        Verdict::Status(status)
    }

    /// The server says that what is too old is still good: it is used again, for as long as the head that says so, the
    /// old head or the configuration wants.
    pub(crate) async fn revalidated(&mut self, x: &mut Exchange, incoming: &IncomingHead) -> Option<Verdict> {
        let fetch = self.fetch.as_ref()?;
        let old = fetch.old.clone()?;
        if incoming.status != 304
            || !fetch.settings.revalidate
            || cache_status(x) != Some(CacheStatus::Expired)
        {
            return None;
        }
        let settings = fetch.settings.clone();
        let mut judged = fetch.judge(x, &self.up.settings, incoming).freshness;
        let OldResponse { response: old, body } = old;
        let verdict = lookup::respond_with(x, &self.up, body, &old, CacheStatus::Revalidated);
        if judged.valid.is_none() {
            let again = IncomingHead {
                fields: part_if(x)
                    .into_iter()
                    .flat_map(|part| &part.cached.served)
                    .flat_map(|(old, base)| old.fields_at(*base))
                    .collect(),
                ..IncomingHead::default()
            };
            judged = self.fetch.as_ref()?.judge(x, &self.up.settings, &again).freshness;
        }
        let now = weir_rt::unix_time().0;
        let valid = judged.valid.or_else(|| Some(now.saturating_add(settings.valid(old.status)?)));
        if let Some(valid) = valid {
            let times = CacheTimes { valid, date: now, updating: judged.updating, error: judged.error };
            self.renew(x, times).await;
        }
        Some(verdict)
    }

    /// Writes other times into the file of what is cached.
    async fn renew(&mut self, x: &mut Exchange, times: CacheTimes) {
        let Some(fetch) = self.fetch.as_ref() else { return };
        let Some(ticket) = &fetch.ticket else { return };
        let root = fetch.cache.place().path;
        let write = FileWrite::replacing(x.plan.core.small_file_writes, &[&root], RENEWED);
        let written = write.run(ticket.renewal(times));
        let shared = x.shared.clone();
        if let Err(failed) = shared.waiting_for(WaitKind::ThreadPool, Box::pin(written)).await {
            x.log(LogLevel::Crit, &failed);
        }
    }
}

/// The lines of a response's head as they are cached.
fn head_text(x: &Exchange, incoming: &IncomingHead) -> Vec<u8> {
    let mut text = Vec::with_capacity(512);
    match incoming.reason {
        Some(reason) => text.extend_from_slice(x.arena.get(reason)),
        None => text.extend_from_slice(incoming.status.to_string().as_bytes()),
    }
    text.extend_from_slice(b"\r\n");
    for field in &incoming.fields {
        for part in [x.arena.get(field.name), b": ", x.arena.get(field.value), b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// Whether one of the names is `*`: the response depends on what no later request can be compared by (RFC 9111
/// section 4.1). nginx looks at `*` alone.
fn names_all(vary: &[u8]) -> bool {
    vary.split(|byte| *byte == b',').any(|name| name.trim_ascii() == b"*")
}

/// Bytes that are written for other times: about as many.
const RENEWED: u64 = 64;
/// As long as nginx lets `Vary` be.
const VARY: usize = 128;
