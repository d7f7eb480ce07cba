//! What a worker counts while it runs, readable by other threads even when its loop is stuck.
//!
//! One thread writes, by relaxed loads and stores: no read-modify-write, no lock, nothing ordered. A reader sees each
//! number whole and the numbers of one request perhaps not all yet, which a scrape cannot distinguish from having come
//! a microsecond earlier. Memory comes with first use: per chunk of sites, per site, per eight octaves of a histogram.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::event::EventKind;
use crate::histogram::{Histogram, OCTAVES, SUBS, bucket, small_bucket};
use crate::live_off_core::LiveOffCore;
use crate::site::Site;
use crate::stalls::StallLog;
use crate::status_counts::{LiveStatus, StatusCounts, add};

/// A reader's hold on one worker's counts.
#[derive(Clone, Debug)]
pub struct RecorderReader {
    shared: Arc<LiveCounts>,
    stalls: StallLog,
}

impl RecorderReader {
    pub(crate) fn new(shared: Arc<LiveCounts>, stalls: StallLog) -> RecorderReader {
        RecorderReader { shared, stalls }
    }

    /// Turns of its loop that took too long.
    #[must_use]
    pub fn stalls(&self) -> &StallLog {
        &self.stalls
    }

    /// The number of the worker, from 0.
    #[must_use]
    pub fn worker(&self) -> u16 {
        self.shared.worker
    }

    /// All requests of the worker by status, those without a route included.
    #[must_use]
    pub fn requests(&self) -> StatusCounts {
        self.shared.status.read()
    }

    /// How long connections waited to be accepted, in ticks; not all are asked.
    #[must_use]
    pub fn accept_waits(&self) -> Histogram {
        self.shared.accept_waits.read()
    }

    /// How long requests waited in their sockets' receive queues, in ticks; asked where the loop was late.
    #[must_use]
    pub fn receive_waits(&self) -> Histogram {
        self.shared.receive_waits.read()
    }

    /// How long complete TLS handshakes of clients took, in ticks, from their first byte on: full ones, and those that
    /// resumed a session.
    #[must_use]
    pub fn handshakes(&self) -> [Histogram; 2] {
        self.shared.handshakes.each_ref().map(LiveHistogram::read)
    }

    /// The counts of one site; nothing if it was never charged here.
    #[must_use]
    pub fn site(&self, site: Site) -> Option<SiteTotals> {
        self.shared.find(site).map(LiveSite::read)
    }

    /// What the requests of one site came to, without its histograms: for callers that look at all sites every second.
    #[must_use]
    pub fn tally(&self, site: Site) -> Option<SiteTally> {
        self.shared.find(site).map(LiveSite::tally)
    }

    /// Every site that was ever charged here.
    pub fn sites(&self) -> impl Iterator<Item = Site> + '_ {
        let chunks = self.shared.chunks.iter().enumerate();
        chunks.filter_map(|(n, chunk)| chunk.get().map(|sites| (n, sites))).flat_map(|(n, sites)| {
            let used = sites.iter().enumerate().filter(|(_, site)| site.get().is_some());
            used.map(move |(m, _)| Site((n * CHUNK + m) as u16))
        })
    }

    /// The counts of every charged site, all given workers added up, by the site's number.
    pub fn merged<'r>(readers: impl IntoIterator<Item = &'r RecorderReader>) -> Vec<(Site, SiteTotals)> {
        let mut all = std::collections::BTreeMap::<Site, SiteTotals>::new();
        for reader in readers {
            for site in reader.sites() {
                if let Some(totals) = reader.site(site) {
                    all.entry(site).or_default().merge(&totals);
                }
            }
        }
        all.into_iter().collect()
    }
}

/// The counts of a site, for one worker or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteTotals {
    /// Run per request, inclusive, in ticks.
    pub run: Histogram,
    /// Wait per request that waited there, inclusive, in ticks.
    pub wait: Histogram,
    /// The figures that sites of any kind have.
    pub counts: SiteCounts,
    /// For sites of whole requests: their whole time, in ticks, of every request at any level.
    pub total: Histogram,
    /// For sites of whole requests: numbers by status, of every request at any level; `None` for other sites.
    pub status: Option<StatusCounts>,
}

impl SiteTotals {
    /// Adds the figures of `other`, another worker's.
    pub fn merge(&mut self, other: &SiteTotals) {
        self.run.merge(&other.run);
        self.wait.merge(&other.wait);
        self.total.merge(&other.total);
        self.counts.calls += other.counts.calls;
        self.counts.bytes_in += other.counts.bytes_in;
        self.counts.bytes_out += other.counts.bytes_out;
        self.counts.errors += other.counts.errors;
        self.counts.asleep += other.counts.asleep;
        self.counts.no_core += other.counts.no_core;
        self.counts.kernel += other.counts.kernel;
        if let Some(status) = &other.status {
            self.status.get_or_insert_with(StatusCounts::default).merge(status);
        }
    }
}

/// Plain counts of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// How often it was entered or marked; one request may do so several times.
    pub calls: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Number of errors noted.
    pub errors: u64,
    /// Ticks of its run asleep in calls that block; known of turns above a millisecond.
    pub asleep: u64,
    /// Ticks of its run ready and without a core; known of turns above a millisecond.
    pub no_core: u64,
    /// Ticks that the kernel took outside of the run to receive, send and accept for its requests, for sites of whole
    /// requests; estimated.
    pub kernel: u64,
}

/// How many requests a site had, and how many of them failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteTally {
    /// Requests that ended, for sites of whole requests; calls for others.
    pub requests: u64,
    /// Responses of 400 to 499; 0 for other sites.
    pub client_errors: u64,
    /// Responses of 500 to 599 for sites of whole requests; errors noted for others.
    pub server_errors: u64,
}

impl SiteTally {
    /// What was added since `earlier`, an older one of the same sites.
    #[must_use]
    pub fn since(&self, earlier: &SiteTally) -> SiteTally {
        SiteTally {
            requests: self.requests.saturating_sub(earlier.requests),
            client_errors: self.client_errors.saturating_sub(earlier.client_errors),
            server_errors: self.server_errors.saturating_sub(earlier.server_errors),
        }
    }

    /// Adds what another site, or another worker, had.
    pub fn merge(&mut self, other: &SiteTally) {
        self.requests += other.requests;
        self.client_errors += other.client_errors;
        self.server_errors += other.server_errors;
    }
}

/// Everything one worker writes.
#[derive(Debug)]
pub(crate) struct LiveCounts {
    worker: u16,
    pub(crate) status: LiveStatus,
    accept_waits: LiveHistogram,
    receive_waits: LiveHistogram,
    handshakes: [LiveHistogram; 2],
    chunks: Box<[OnceLock<SiteChunk>]>,
}

type SiteChunk = Box<[OnceLock<Arc<LiveSite>>; CHUNK]>;

impl LiveCounts {
    pub(crate) fn new(worker: u16) -> LiveCounts {
        let chunks = (0..=usize::from(u16::MAX) / CHUNK).map(|_| OnceLock::new()).collect();
        let (accept_waits, receive_waits) = (LiveHistogram::default(), LiveHistogram::default());
        let (status, handshakes) = Default::default();
        LiveCounts { worker, status, accept_waits, receive_waits, handshakes, chunks }
    }

    /// A connection was accepted after that many ticks.
    pub(crate) fn accepted(&self, ticks: u64) {
        self.accept_waits.record(ticks);
    }

    /// A request's bytes were read after that many ticks.
    pub(crate) fn received(&self, ticks: u64) {
        self.receive_waits.record(ticks);
    }

    /// A TLS handshake of a client was complete after that many ticks.
    pub(crate) fn shook_hands(&self, resumed: bool, ticks: u64) {
        self.handshakes[usize::from(resumed)].record(ticks);
    }

    /// The counts of a site, made at first use. The writer keeps what it gets, and need not look again.
    pub(crate) fn site(&self, site: Site) -> &Arc<LiveSite> {
        let chunk =
            self.chunks[site.index() / CHUNK].get_or_init(|| Box::new([const { OnceLock::new() }; CHUNK]));
        chunk[site.index() % CHUNK].get_or_init(Arc::default)
    }

    /// The whole times of a route's requests so far.
    pub(crate) fn total(&self, route: Site) -> Option<Histogram> {
        Some(self.find(route)?.route.get()?.total.read())
    }

    fn find(&self, site: Site) -> Option<&LiveSite> {
        let chunk = self.chunks.get(site.index() / CHUNK)?.get()?;
        chunk[site.index() % CHUNK].get().map(|site| &**site)
    }
}

#[derive(Debug, Default)]
pub(crate) struct LiveSite {
    run: LiveHistogram,
    wait: OnceLock<Box<LiveHistogram>>,
    route: OnceLock<Box<LiveRoute>>,
    /// Calls beyond the first of a request: those are in `run`'s count.
    repeats: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    errors: AtomicU64,
    off_core: LiveOffCore,
}

impl LiveSite {
    /// One request that called the site several times.
    pub(crate) fn record(&self, run: u64, wait: u64, calls: u64) {
        add(&self.repeats, calls.saturating_sub(1));
        self.record_one(run, wait);
    }

    /// One request that called the site once.
    #[inline]
    pub(crate) fn record_one(&self, run: u64, wait: u64) {
        self.run.record(run);
        if wait > 0 {
            self.wait.get_or_init(Box::default).record(wait);
        }
    }

    /// Requests that called the site `calls` times each, and ran that long in there.
    pub(crate) fn record_runs(&self, runs: &[u32], calls: u64) {
        self.run.record_all(runs);
        add(&self.repeats, (calls - 1) * runs.len() as u64);
    }

    /// This many requests called the site `calls` times each, without a stamp.
    pub(crate) fn record_passes(&self, requests: u64, calls: u64) {
        self.run.record_zeros(requests);
        add(&self.repeats, (calls - 1) * requests);
    }

    /// The waits of such requests, 0 of those that did not wait.
    pub(crate) fn record_waits(&self, waits: &[u32]) {
        if waits.iter().any(|&wait| wait > 0) {
            self.wait.get_or_init(Box::default).record_some(waits);
        }
    }

    /// The whole times of requests of this route, 0 where it was not measured.
    pub(crate) fn record_totals(&self, totals: &[u32]) {
        self.route.get_or_init(Box::default).total.record_some(totals);
    }

    /// This many requests of this route ended with that status.
    pub(crate) fn requests(&self, status: u16, count: u64) {
        self.route.get_or_init(Box::default).status.count(status, count);
        if status >= 500 {
            self.remark(EventKind::Error, count);
        }
    }

    /// Bytes, errors, or ticks off the core; other kinds have no count here.
    #[inline]
    pub(crate) fn remark(&self, kind: EventKind, count: u64) {
        match kind {
            EventKind::BytesIn => add(&self.bytes_in, count),
            EventKind::BytesOut => add(&self.bytes_out, count),
            EventKind::Error => add(&self.errors, count),
            EventKind::Asleep => self.off_core.add([count, 0]),
            EventKind::NoCore => self.off_core.add([0, count]),
            _ => {}
        }
    }

    /// The kernel took so many ticks for requests of this route.
    pub(crate) fn kernel(&self, ticks: u64) {
        add(&self.route.get_or_init(Box::default).kernel, ticks);
    }

    /// The whole time of a request of this route; 0: it was not measured.
    pub(crate) fn record_total(&self, total: u64) {
        if total > 0 {
            self.route.get_or_init(Box::default).total.record(total);
        }
    }

    fn tally(&self) -> SiteTally {
        match self.route.get().map(|route| route.status.read()) {
            Some(status) => SiteTally {
                requests: status.total(),
                client_errors: status.classes[4],
                server_errors: status.classes[5],
            },
            None => SiteTally {
                requests: self.run.count() + self.repeats.load(Relaxed),
                client_errors: 0,
                server_errors: self.errors.load(Relaxed),
            },
        }
    }

    fn read(&self) -> SiteTotals {
        let [asleep, no_core] = self.off_core.read();
        let run = self.run.read();
        let calls = run.count() + self.repeats.load(Relaxed);
        SiteTotals {
            run,
            wait: self.wait.get().map(|wait| wait.read()).unwrap_or_default(),
            counts: SiteCounts {
                calls,
                bytes_in: self.bytes_in.load(Relaxed),
                bytes_out: self.bytes_out.load(Relaxed),
                errors: self.errors.load(Relaxed),
                asleep,
                no_core,
                kernel: self.route.get().map_or(0, |route| route.kernel.load(Relaxed)),
            },
            total: self.route.get().map(|route| route.total.read()).unwrap_or_default(),
            status: self.route.get().map(|route| route.status.read()),
        }
    }
}

/// What only the sites of whole requests have.
#[derive(Debug, Default)]
struct LiveRoute {
    status: LiveStatus,
    total: LiveHistogram,
    kernel: AtomicU64,
}

/// A histogram with one writer. Eight octaves' 1,024 bytes come with their first value: what takes less than a
/// microsecond, less than a fifth of a millisecond, and so on.
#[derive(Debug, Default)]
struct LiveHistogram {
    parts: [OnceLock<Box<BucketPart>>; PARTS],
    sum: AtomicU64,
    max: AtomicU64,
}

type BucketPart = [AtomicU64; PART];

impl LiveHistogram {
    #[inline]
    fn record(&self, value: u64) {
        let bucket = bucket(value);
        add(&self.part(bucket / PART)[bucket % PART], 1);
        add(&self.sum, value);
        if value > self.max.load(Relaxed) {
            self.max.store(value, Relaxed);
        }
    }

    /// Counts this many values of 0.
    fn record_zeros(&self, count: u64) {
        add(&self.part(0)[0], count);
    }

    /// [`record_all`](LiveHistogram::record_all) but for zeros.
    fn record_some(&self, values: &[u32]) {
        if values.contains(&0) {
            values.iter().filter(|&&value| value > 0).for_each(|&value| self.record(value.into()));
        } else {
            self.record_all(values);
        }
    }

    /// Counts values, none above `i32::MAX`. That there are [`MANY`] is the case to be fast in: loops of known length are
    /// made vector operations.
    fn record_all(&self, values: &[u32]) {
        let Ok(values) = <&[u32; MANY]>::try_from(values) else {
            values.iter().for_each(|&value| self.record(value.into()));
            return;
        };
        // At least the largest, and less than twice as much.
        let bits = values.iter().fold(0, |bits, value| bits | value);
        if u64::from(bits) > self.max.load(Relaxed) {
            self.raise(values);
        }
        add(&self.sum, sum(values, bits));
        let mut buckets = [0; MANY];
        buckets.iter_mut().zip(values).for_each(|(bucket, &value)| *bucket = small_bucket(value));
        // Values of one site are alike: of one part, mostly. Then the bits that identify it are those of the first.
        let first = buckets[0];
        if buckets.iter().fold(0, |other, bucket| other | (bucket ^ first)) / PART as u32 == 0 {
            let counts = self.part(first as usize / PART);
            buckets.iter().for_each(|bucket| add(&counts[*bucket as usize % PART], 1));
        } else {
            for bucket in buckets {
                add(&self.part(bucket as usize / PART)[bucket as usize % PART], 1);
            }
        }
    }

    /// One of the values may be the largest so far.
    #[cold]
    #[inline(never)]
    fn raise(&self, values: &[u32; MANY]) {
        let max = values.iter().fold(0, |max, value| max.max(*value)).into();
        self.max.store(self.max.load(Relaxed).max(max), Relaxed);
    }

    #[inline]
    fn part(&self, part: usize) -> &BucketPart {
        let part = &self.parts[part % PARTS];
        match part.get() {
            Some(counts) => counts,
            None => first(part),
        }
    }

    /// How many values were recorded.
    fn count(&self) -> u64 {
        let parts = self.parts.iter().filter_map(OnceLock::get);
        parts.flat_map(|counts| counts.iter()).map(|count| count.load(Relaxed)).sum()
    }

    fn read(&self) -> Histogram {
        let mut copy = Histogram::new();
        for (n, part) in self.parts.iter().enumerate() {
            let Some(counts) = part.get() else { continue };
            for (at, count) in counts.iter().enumerate() {
                copy.add(n * PART + at, count.load(Relaxed));
            }
        }
        copy.set_sum_and_max(self.sum.load(Relaxed), self.max.load(Relaxed));
        copy
    }
}

/// The sum of values in which no other bits are set: additions of 32 bits are a fourth of those of 64.
#[inline]
fn sum(values: &[u32; MANY], bits: u32) -> u64 {
    if bits <= u32::MAX / MANY as u32 {
        values.iter().fold(0u32, |sum, value| sum.wrapping_add(*value)).into()
    } else {
        values.iter().map(|&value| u64::from(value)).sum()
    }
}

/// Apart from the path that finds a part there: it then saves no registers for this.
#[cold]
#[inline(never)]
fn first(part: &OnceLock<Box<BucketPart>>) -> &BucketPart {
    part.get_or_init(|| Box::new([const { AtomicU64::new(0) }; PART]))
}

/// Requests that are counted together: a batch is full with them, and loops over this many values have a known length.
pub(crate) const MANY: usize = 64;
/// Buckets allocated together.
const PART: usize = 8 * SUBS;
const PARTS: usize = (OCTAVES * SUBS).div_ceil(PART);
/// Sites allocated together: an empty table is 1,024 chunks of 16 bytes.
const CHUNK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_values_at_once_are_the_same_as_one_by_one() {
        let (one, many) = (LiveHistogram::default(), LiveHistogram::default());
        let mut random = 1u32;
        for len in 0..=MANY {
            let values: Vec<u32> = (0..len)
                .map(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (random >> 1) >> (random % 31)
                })
                .collect();
            values.iter().for_each(|&value| one.record(value.into()));
            many.record_all(&values);
        }
        one.record(0);
        many.record_all(&[0]);
        assert_eq!(one.read(), many.read());
    }

    #[test]
    fn a_reader_sees_what_a_plain_histogram_has() {
        let live = LiveHistogram::default();
        let mut plain = Histogram::new();
        for value in [0, 1, 15, 16, 1_000, 1_001, 3_000_000_000, u64::MAX >> 1] {
            live.record(value);
            plain.record(value);
        }
        assert_eq!(live.read(), plain);
    }

    #[test]
    fn sites_are_found_at_both_ends_of_the_table() {
        let shared = Arc::new(LiveCounts::new(3));
        let reader = RecorderReader::new(shared.clone(), StallLog::new(0));
        assert_eq!(reader.sites().count(), 0);
        for site in [Site(0), Site(64), Site(u16::MAX)] {
            shared.site(site).record(10, 5, 2);
        }
        assert_eq!(reader.sites().collect::<Vec<_>>(), [Site(0), Site(64), Site(u16::MAX)]);
        let totals = reader.site(Site(u16::MAX)).expect("just charged");
        assert_eq!((totals.run.sum(), totals.wait.sum(), totals.counts.calls), (10, 5, 2));
        assert_eq!(reader.site(Site(1)), None);
    }

    #[test]
    fn a_tally_is_what_the_whole_counts_say() {
        let shared = Arc::new(LiveCounts::new(0));
        let reader = RecorderReader::new(shared.clone(), StallLog::new(0));
        let (route, peer) = (Site(70), Site(71));
        [200, 404, 500, 503].into_iter().for_each(|status| shared.site(route).requests(status, 2));
        shared.site(peer).record(10, 5, 3);
        shared.site(peer).remark(EventKind::Error, 1);
        let first = SiteTally { requests: 8, client_errors: 2, server_errors: 4 };
        assert_eq!(reader.tally(route), Some(first));
        assert_eq!(reader.tally(peer), Some(SiteTally { requests: 3, client_errors: 0, server_errors: 1 }));
        assert_eq!(reader.tally(Site(72)), None);
        shared.site(route).requests(502, 1);
        let lately = reader.tally(route).expect("charged").since(&first);
        assert_eq!(lately, SiteTally { requests: 1, client_errors: 0, server_errors: 1 });
        assert_eq!(first.since(&SiteTally { requests: 9, ..first }).requests, 0, "never below nothing");
    }
}
