//! A request's part in an entry: it is counted, may be the one that fetches the response, and gives both back when it
//! is dropped.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

use weir_rt::file::FileMeta;

use super::head::CacheTimes;
use super::index::{CacheEntry, CacheIndex};
use super::key::CacheKey;
use super::{body, write};
use weir_engine::temp::TempFileFailure;

/// A request's hold on the entry of a response, and perhaps its turn to fetch it.
pub struct CacheTicket {
    cache: Arc<CacheIndex>,
    entry: Arc<CacheEntry>,
    /// This request fetches the response; until when no other may, or 0 for as long as it takes.
    updating: Option<u64>,
    /// How often the response was asked for counts.
    counted: bool,
}

/// Whose turn it is to fetch a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheTurn {
    /// This request's.
    Mine,
    /// Another request's, which may take this many milliseconds from now on.
    Others(u64),
}

impl CacheTicket {
    pub(super) fn new(cache: Arc<CacheIndex>, entry: Arc<CacheEntry>, counted: bool) -> CacheTicket {
        CacheTicket { cache, entry, updating: None, counted }
    }

    /// The cache zone that the entry belongs to.
    pub fn cache(&self) -> &Arc<CacheIndex> {
        &self.cache
    }

    /// The entry, for the caller that serves its response later.
    pub(super) fn entry(&self) -> &Arc<CacheEntry> {
        &self.entry
    }

    /// The digest that names the response in its zone.
    pub fn key(&self) -> CacheKey {
        self.entry.key
    }

    /// The path of the response's file, whether or not it is there.
    pub fn file(&self) -> PathBuf {
        self.cache.file(self.entry.key)
    }

    /// Takes the turn to fetch the response, for `age` milliseconds, unless another has it (`*_cache_lock`).
    pub fn lock(&mut self, age: u64) -> CacheTurn {
        let now = weir_rt::clock::monotonic_ms();
        let mut state = self.entry.state();
        if state.updating && state.lock_until > now && self.updating.is_none() {
            return CacheTurn::Others(state.lock_until - now);
        }
        state.updating = true;
        state.lock_until = now.saturating_add(age.max(1));
        self.updating = Some(state.lock_until);
        CacheTurn::Mine
    }

    /// Takes the turn to fetch a response again that is too old, unless another has it: `false`.
    pub fn update(&mut self) -> bool {
        let mut state = self.entry.state();
        if state.updating && self.updating.is_none() {
            return false;
        }
        state.updating = true;
        self.updating = Some(state.lock_until);
        true
    }

    /// Whether the zone has a file with the response.
    pub fn exists(&self) -> bool {
        self.entry.state().exists
    }

    /// Ready when no request fetches the response. The caller makes sure that it does not wait for ever.
    pub(crate) fn poll_turn(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.entry.state();
        if !state.updating || state.lock_until <= weir_rt::clock::monotonic_ms() {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The file is there, and has this many bytes. Called before the turn is given back.
    pub fn stored(&self, size: u64) {
        self.cache.stored(&self.entry, size);
    }

    /// As [`CacheTicket::stored`], of the file with this `meta`: its checksum was made of the very bytes that were written.
    pub(crate) fn written(&self, size: u64, meta: &FileMeta) {
        body::written(&self.entry, meta);
        self.stored(size);
    }

    /// Writes other times into the file, which stays the one whose body was checked.
    ///
    /// Makes system calls: what is returned is not for a loop.
    ///
    /// # Errors
    /// Which call failed.
    pub(crate) fn renewal(
        &self,
        times: CacheTimes,
    ) -> impl FnOnce() -> Result<(), TempFileFailure> + Send + use<> {
        let (path, entry) = (self.file(), self.entry.clone());
        move || {
            let (before, now) = write::set_times(&path, &times)?;
            body::renewed(&entry, &before, &now);
            Ok(())
        }
    }

    /// The file is not there, or is not a response.
    pub fn lost(&self) {
        self.cache.lost(&self.entry);
    }

    /// Until and with the second `until` the response is this status, without a file.
    pub fn fail(&self, status: u16, until: u64) {
        self.entry.state().error = Some((status, until));
    }
}

impl Drop for CacheTicket {
    fn drop(&mut self) {
        let mut state = self.entry.state();
        state.holders = state.holders.saturating_sub(1);
        // Another may have taken a turn that took too long.
        let waiting = match self.updating {
            Some(until) if state.lock_until == until => {
                state.updating = false;
                std::mem::take(&mut state.waiting)
            }
            _ => Vec::new(),
        };
        let empty = state.holders == 0 && !state.exists && state.error.is_none() && !self.counted;
        drop(state);
        waiting.into_iter().for_each(std::task::Waker::wake);
        if empty {
            self.cache.drop_empty(&self.entry);
        }
    }
}
