//! The leaky buckets. All amounts are thousandths of a request.
//!
//! A bucket's excess is how far its requests are ahead of the rate. A request adds 1000 to it, time takes away; above
//! the burst nothing is added and the request is refused. With several limits a request counts in none until every
//! one lets it pass: those before the last are held (`pending`) and counted at the end, so a bucket that is being
//! asked about never goes away.

use std::sync::Arc;

use weir_engine::Exchange;
use weir_engine::log::{self, LogLevel};
use weir_engine::variable::ValueScript;
use weir_engine::zone::{EntryHandle, LockedEntries, SharedZone, SurvivingValue, ZoneTable};

use crate::support::limit;

/// One `limit_req` on one worker.
pub(super) struct RateLimit {
    pub(super) zone: Arc<SharedZone>,
    pub(super) key: ValueScript,
    pub(super) buckets: Arc<ZoneTable<RateBucket>>,
    /// A second.
    pub(super) rate: u64,
    pub(super) burst: u64,
    /// Up to this excess no request waits.
    pub(super) delay: u64,
}

/// The requests of one key.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct RateBucket {
    excess: u64,
    /// When the excess was so, in milliseconds of the monotonic clock.
    last: u64,
    /// Requests that have asked this bucket and wait for what others say.
    pending: u32,
}

impl SurvivingValue for RateBucket {
    /// Requests that waited for what others say have ended with their process.
    fn revive(bytes: &[u8]) -> Option<(u64, RateBucket)> {
        let [excess, last] = bytes.as_chunks::<8>().0.first_chunk()?.map(u64::from_ne_bytes);
        Some((last, RateBucket { excess, last, pending: 0 }))
    }
}

impl RateBucket {
    /// The excess with one more request at `now`, and how much time passed. Workers' clocks may differ by a turn of
    /// their loops; one that goes back by more than a minute was set, and counts as one millisecond (nginx's rule).
    fn with_one(&self, now: u64, rate: u64) -> (u64, u64) {
        let passed = match now.checked_sub(self.last) {
            Some(passed) => passed,
            None if self.last - now > MINUTE => 1,
            None => 0,
        };
        let drained = rate.saturating_mul(passed) / 1000;
        ((self.excess + 1000).saturating_sub(drained), passed)
    }

    fn count(&mut self, now: u64, excess: u64, passed: u64) {
        self.excess = excess;
        if passed > 0 {
            self.last = now;
        }
    }
}

/// What becomes of a request.
pub(super) enum RateDecision<'l> {
    /// No limit has a key for it.
    Unlimited,
    /// It goes on.
    Pass,
    /// It waits this many milliseconds.
    Delay { ms: u64, excess: u64, limit: &'l RateLimit },
    /// It is refused; without excess because the zone is full.
    Refuse { excess: Option<u64>, limit: &'l RateLimit },
}

/// What becomes of a bucket that has room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BucketCounting {
    /// The request is counted: this is the last limit asked.
    Now,
    /// The bucket is held until the others have been asked.
    Held,
}

enum AskedBucket {
    /// Counted, with this excess.
    Counted(u64),
    /// Held, to be counted at the end.
    Held(EntryHandle),
    /// Above the burst by this excess.
    Over(u64),
    /// There is no room for another key.
    Full,
}

/// Asks all limits about `x`.
pub(super) fn decide<'l>(x: &mut Exchange, limits: &'l [RateLimit], now: u64) -> RateDecision<'l> {
    let mut held: Vec<(&RateLimit, EntryHandle)> = Vec::new();
    let mut counted = None;
    for (at, limit) in limits.iter().enumerate() {
        let Some(key) = limit::key(x, &limit.key, limit.zone.key(), LONGEST_KEY) else { continue };
        let counting = if at + 1 == limits.len() { BucketCounting::Now } else { BucketCounting::Held };
        match limit.ask(x.text(&key), now, counting) {
            AskedBucket::Counted(excess) => counted = Some((limit, excess)),
            AskedBucket::Held(handle) => held.push((limit, handle)),
            AskedBucket::Over(excess) => return refuse(&held, Some(excess), limit),
            AskedBucket::Full => return refuse(&held, None, limit),
        }
    }
    if counted.is_none() && held.is_empty() {
        return RateDecision::Unlimited;
    }
    let rest = held.iter().rev().map(|(limit, handle)| (*limit, limit.count_held(*handle, now)));
    let mut longest = (0, 0, None);
    for (limit, excess) in counted.into_iter().chain(rest) {
        let ms = limit.wait(excess);
        if ms > longest.0 {
            longest = (ms, excess, Some(limit));
        }
    }
    match longest {
        (ms, excess, Some(limit)) => RateDecision::Delay { ms, excess, limit },
        _ => RateDecision::Pass,
    }
}

/// Lets go of those that were held: the request counts nowhere.
fn refuse<'l>(
    held: &[(&RateLimit, EntryHandle)],
    excess: Option<u64>,
    limit: &'l RateLimit,
) -> RateDecision<'l> {
    for (limit, handle) in held {
        limit.buckets.lock_at(*handle).value(*handle).pending -= 1;
    }
    RateDecision::Refuse { excess, limit }
}

impl RateLimit {
    /// Counts a request with `key`, or holds its bucket.
    fn ask(&self, key: &[u8], now: u64, counting: BucketCounting) -> AskedBucket {
        let last = counting == BucketCounting::Now;
        let mut buckets = self.buckets.lock(key);
        if let Some(handle) = buckets.find(key) {
            let bucket = buckets.value(handle);
            let (excess, passed) = bucket.with_one(now, self.rate);
            if excess > self.burst {
                return AskedBucket::Over(excess);
            }
            if last {
                bucket.count(now, excess, passed);
                return AskedBucket::Counted(excess);
            }
            bucket.pending += 1;
            return AskedBucket::Held(handle);
        }
        // One that is only held is counted later, from a time so long ago that its first request has no excess.
        let (last_seen, pending) = if last { (now, 0) } else { (0, 1) };
        let bucket = RateBucket { excess: 0, last: last_seen, pending };
        match self.make_room(&mut buckets, key, bucket, now) {
            None => AskedBucket::Full,
            Some(_) if last => AskedBucket::Counted(0),
            Some(handle) => AskedBucket::Held(handle),
        }
    }

    /// Adds a bucket; old ones that are empty go on the way, two at a time, and when there is no room the oldest of
    /// all, whatever is in it.
    fn make_room(
        &self,
        buckets: &mut LockedEntries<'_, RateBucket>,
        key: &[u8],
        bucket: RateBucket,
        now: u64,
    ) -> Option<EntryHandle> {
        self.expire(buckets, now, 2);
        if let Some(handle) = buckets.insert(key, bucket) {
            return Some(handle);
        }
        if let Some(oldest) = buckets.oldest()
            && buckets.value(oldest).pending == 0
        {
            buckets.remove(oldest);
            self.expire(buckets, now, 2);
        }
        let handle = buckets.insert(key, bucket);
        if handle.is_none() {
            let name = &self.zone.name;
            log::cycle(
                LogLevel::Alert,
                &format_args!("could not allocate node in limit_req zone \"{name}\""),
            );
        }
        handle
    }

    /// Drops up to `most` of the oldest buckets that have been empty for a minute.
    fn expire(&self, buckets: &mut LockedEntries<'_, RateBucket>, now: u64, most: usize) {
        for _ in 0..most {
            let Some(oldest) = buckets.oldest() else { return };
            let bucket = *buckets.value(oldest);
            let passed = now.saturating_sub(bucket.last);
            let left = bucket.excess.saturating_sub(self.rate.saturating_mul(passed) / 1000);
            if bucket.pending > 0 || passed < MINUTE || left > 0 {
                return;
            }
            buckets.remove(oldest);
        }
    }

    /// Counts a request whose bucket was held.
    fn count_held(&self, handle: EntryHandle, now: u64) -> u64 {
        let mut buckets = self.buckets.lock_at(handle);
        let bucket = buckets.value(handle);
        let (excess, passed) = bucket.with_one(now, self.rate);
        bucket.count(now, excess, passed);
        bucket.pending -= 1;
        excess
    }

    /// How long a request with this excess waits, in milliseconds.
    fn wait(&self, excess: u64) -> u64 {
        excess.saturating_sub(self.delay) * 1000 / self.rate.max(1)
    }
}

/// What nginx spends on an entry besides its key.
pub(super) const ENTRY: u64 = 80;
/// The longest key.
const LONGEST_KEY: usize = 65535;
/// Milliseconds.
const MINUTE: u64 = 60_000;

#[cfg(test)]
mod tests {
    use weir_engine::testing;
    use weir_engine::zone::SharedZones;

    use super::*;

    /// One request a second, up to two ahead of it, the first of which does not wait.
    fn limit(name: &str) -> RateLimit {
        let zone = SharedZones::default().named("limit_req_zone", name).expect("the first");
        // Room for 32 short keys.
        let buckets = Arc::new(ZoneTable::new(4096, ENTRY));
        RateLimit { zone, key: ValueScript::literal(b"key"), buckets, rate: 1000, burst: 2000, delay: 1000 }
    }

    /// What is decided at each of these times.
    fn said<const N: usize>(limits: &[RateLimit], times: [u64; N]) -> [String; N] {
        testing::run("server { }", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", async |x| {
            times.map(|now| match decide(x, limits, now) {
                RateDecision::Unlimited => "unlimited".to_owned(),
                RateDecision::Pass => "pass".to_owned(),
                RateDecision::Delay { ms, excess, limit } => {
                    format!("{ms} ms for {excess} of {}", limit.zone.name)
                }
                RateDecision::Refuse { excess, limit } => {
                    format!("refused for {excess:?} of {}", limit.zone.name)
                }
            })
        })
    }

    fn bucket(limit: &RateLimit) -> RateBucket {
        let mut buckets = limit.buckets.lock(b"key");
        let handle = buckets.find(b"key").expect("the key was asked for");
        *buckets.value(handle)
    }

    #[test]
    fn a_bucket_fills_and_drains() {
        let (one, over) = ([limit("one")], |excess| format!("refused for Some({excess}) of one"));
        let first = said(&one, [100_000, 100_000, 100_000, 100_000]);
        assert_eq!(first, ["pass", "pass", "1000 ms for 2000 of one", &over(3000)]);
        // What is refused is not counted.
        let later = said(&one, [100_500, 101_000, 101_500]);
        assert_eq!(later, [&*over(2500), "1000 ms for 2000 of one", &over(2500)]);
        assert_eq!(said(&one, [200_000]), ["pass"]);
        assert_eq!(bucket(&one[0]).excess, 0);
    }

    #[test]
    fn a_clock_that_goes_back_drains_nothing() {
        let one = [limit("one")];
        assert_eq!(said(&one, [100_000, 99_950]), ["pass", "pass"]);
        assert_eq!(said(&one, [100_500]), ["500 ms for 1500 of one"], "the time is still the later one");
        // One that was set counts as a millisecond.
        let set = said(&one, [100_500 - MINUTE, 100_499 - MINUTE]);
        assert_eq!(set, ["refused for Some(2500) of one", "refused for Some(2499) of one"]);
    }

    #[test]
    fn a_request_counts_in_none_of_its_limits_until_all_let_it_pass() {
        let two = [limit("one"), RateLimit { burst: 0, ..limit("two") }];
        assert_eq!(said(&two, [100_000, 100_000]), ["pass", "refused for Some(1000) of two"]);
        let held = bucket(&two[0]);
        assert_eq!((held.excess, held.last, held.pending), (0, 100_000, 0));
        assert_eq!(said(&two, [101_000]), ["pass"]);
        let [first, last] = [bucket(&two[0]), bucket(&two[1])];
        assert_eq!((first.excess, first.pending, last.excess, last.pending), (0, 0, 0, 0));
        assert_eq!(said(&two[..1], [101_000, 101_000]), ["pass", "1000 ms for 2000 of one"]);
    }

    #[test]
    fn the_longest_delay_counts() {
        let slow = || RateLimit { rate: 500, delay: 0, ..limit("slow") };
        let fast = || RateLimit { delay: 0, ..limit("fast") };
        for limits in [[slow(), fast()], [fast(), slow()]] {
            assert_eq!(said(&limits, [100_000, 100_000]), ["pass", "2000 ms for 1000 of slow"]);
        }
        let alike = [RateLimit { zone: limit("first").zone, ..fast() }, fast()];
        assert_eq!(said(&alike, [100_000, 100_000]), ["pass", "1000 ms for 1000 of fast"]);
    }

    #[test]
    fn an_empty_key_is_not_limited() {
        let empty = || RateLimit { key: ValueScript::literal(b""), ..limit("empty") };
        assert_eq!(said(&[empty()], [100_000; 5]), ["unlimited"; 5]);
        let both = [limit("one"), empty()];
        assert_eq!(said(&both, [100_000; 3]), ["pass", "pass", "1000 ms for 2000 of one"]);
    }

    #[test]
    fn empty_buckets_go_after_a_minute_two_at_a_time() {
        let ask = |limit: &RateLimit, key: &[u8], now| {
            matches!(limit.ask(key, now, BucketCounting::Now), AskedBucket::Counted(0))
        };
        let filled = |rate| {
            let limit = RateLimit { rate, ..limit("one") };
            assert!([b"a", b"b", b"c"].iter().all(|key| ask(&limit, *key, 100_000)));
            limit
        };
        let limit = filled(1000);
        assert!(ask(&limit, b"d", 99_999 + MINUTE));
        assert_eq!(limit.buckets.len(), 4);
        assert!(ask(&limit, b"e", 100_000 + MINUTE));
        assert_eq!(limit.buckets.len(), 3);
        // What was asked for twice has drained, too.
        let twice = filled(1000);
        assert!(matches!(twice.ask(b"a", 100_500, BucketCounting::Now), AskedBucket::Counted(500)));
        assert!(ask(&twice, b"d", 100_500 + MINUTE));
        assert_eq!(twice.buckets.len(), 2);
        assert!(ask(&twice, b"e", 100_500 + MINUTE));
        assert_eq!(twice.buckets.len(), 2);
        // A thousandth of a request a second: what was asked for once more is not empty then.
        let slow = filled(1);
        assert!(matches!(slow.ask(b"a", 100_000, BucketCounting::Now), AskedBucket::Counted(1000)));
        assert!([b"b", b"c"].iter().all(|key| !ask(&slow, *key, 100_000)));
        assert!(ask(&slow, b"d", 100_000 + MINUTE));
        assert_eq!(slow.buckets.len(), 4);
    }

    #[test]
    fn without_room_the_oldest_goes_unless_it_is_held() {
        let limit = limit("one");
        let keys: Vec<[u8; 2]> = (0..32_u16).map(u16::to_be_bytes).collect();
        for key in &keys {
            assert!(matches!(limit.ask(key, 100_000, BucketCounting::Now), AskedBucket::Counted(0)));
        }
        assert!(matches!(limit.ask(b"next", 100_000, BucketCounting::Now), AskedBucket::Counted(0)));
        assert_eq!(limit.buckets.len(), 32);
        assert!(limit.buckets.lock(&keys[0]).find(&keys[0]).is_none());
        for key in &keys[1..] {
            assert!(matches!(limit.ask(key, 100_000, BucketCounting::Held), AskedBucket::Held(_)));
        }
        assert!(limit.buckets.lock(b"next").find(b"next").is_some(), "now the newest");
        assert!(matches!(limit.ask(b"one more", 100_000, BucketCounting::Now), AskedBucket::Full));
        // Nor does it go because it is old.
        assert!(matches!(
            limit.ask(b"one more", 100_000 + 2 * MINUTE, BucketCounting::Now),
            AskedBucket::Full
        ));
    }

    #[test]
    fn a_bucket_that_outlives_its_process_is_held_by_none() {
        let bytes = [7_u64.to_ne_bytes(), 9_u64.to_ne_bytes(), [1; 8]].concat();
        let (last, bucket) = RateBucket::revive(&bytes).expect("it is whole");
        assert_eq!((last, bucket.excess, bucket.last, bucket.pending), (9, 7, 9, 0));
        assert!(RateBucket::revive(&bytes[..15]).is_none());
    }
}
