//! What is known of names.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::dns_answer::DnsFailure;
use crate::event::LookupId;
use crate::name::DnsName;
use crate::wire::{RecordData, RecordType};

/// What is asked of name servers: records of a type.
pub(crate) type CacheKey = (DnsName, RecordType);

/// What is known of one name and type.
#[derive(Debug, Default)]
pub(crate) struct CacheEntry {
    /// What it says; nothing, when there is nothing of that type.
    pub(crate) known: Option<KnownRecords>,
    /// Name servers said this many times in a row that what is known is gone.
    pub(crate) denials: u32,
    /// Why the last query had no result, and until when it is not asked again for that.
    pub(crate) failure: Option<(DnsFailure, u64)>,
    /// The query that is in flight.
    pub(crate) query: Option<u64>,
    /// The look-ups that wait for it.
    pub(crate) waiting: Vec<LookupId>,
}

#[derive(Debug)]
pub(crate) struct KnownRecords {
    pub(crate) records: Vec<RecordData>,
    /// When they expire, in milliseconds of the caller's clock.
    pub(crate) until: u64,
    /// From when on a look-up has them asked for again in advance, in milliseconds of the same clock.
    pub(crate) refresh: u64,
    /// From when on they are no use as a stale answer either (they were saved by another process), in the same
    /// milliseconds; `u64::MAX`: only the setting for stale answers limits that.
    pub(crate) last: u64,
}

impl KnownRecords {
    pub(crate) fn new(records: Vec<RecordData>, now: u64, lasts: u64) -> KnownRecords {
        // In its last tenth it is asked for again in advance, when it is looked up.
        KnownRecords { records, until: now + lasts, refresh: now + lasts - lasts / 10, last: u64::MAX }
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.records.iter().filter_map(|data| match data {
            RecordData::Address(address) => Some(*address),
            _ => None,
        })
    }
}

impl CacheEntry {
    /// What holds at `now`.
    pub(crate) fn fresh(&self, now: u64) -> Option<&KnownRecords> {
        self.known.as_ref().filter(|known| now < known.until)
    }

    /// What held, not longer than `stale` ago.
    pub(crate) fn stale(&self, now: u64, stale: u64) -> Option<&KnownRecords> {
        self.known.as_ref().filter(|known| now < known.until.saturating_add(stale) && now < known.last)
    }

    /// As [`CacheEntry::stale`], if it was something.
    pub(crate) fn worth(&self, now: u64, stale: u64) -> Option<&KnownRecords> {
        self.stale(now, stale).filter(|known| !known.records.is_empty())
    }

    /// It is not needed any more.
    fn is_over(&self, now: u64, stale: u64) -> bool {
        self.query.is_none()
            && self.waiting.is_empty()
            && self.fresh(now).is_none()
            && self.worth(now, stale).is_none()
    }
}

/// All entries.
#[derive(Debug, Default)]
pub(crate) struct RecordCache {
    entries: HashMap<CacheKey, CacheEntry>,
}

impl RecordCache {
    pub(crate) fn get(&self, key: &CacheKey) -> Option<&CacheEntry> {
        self.entries.get(key)
    }

    /// All that is known.
    pub(crate) fn known(&self) -> impl Iterator<Item = (&CacheKey, &KnownRecords)> {
        self.entries.iter().filter_map(|(key, entry)| Some((key, entry.known.as_ref()?)))
    }

    pub(crate) fn entry(&mut self, key: &CacheKey) -> &mut CacheEntry {
        self.entries.entry(key.clone()).or_default()
    }

    /// Makes room when there are more than `most`: what has expired goes, and if that is not enough, what is not in use
    /// at the moment.
    pub(crate) fn limit(&mut self, most: usize, now: u64, stale: u64) {
        if self.entries.len() < most {
            return;
        }
        self.entries.retain(|_, entry| !entry.is_over(now, stale));
        if self.entries.len() >= most {
            self.entries.retain(|_, entry| entry.query.is_some() || !entry.waiting.is_empty());
        }
    }
}
