//! Counts by key (tenant, host, consumer) in bounded memory: the keys with most requests have counts of their own.
//!
//! The table has a fixed number of places. A key that comes when all are taken gets the place of the one that weighs least,
//! whose counts are added to the folded ones; it begins with the weight of that key plus one (Metwally, Agrawal and El Abbadi:
//! Efficient Computation of Frequent and Top-k Elements in Data Streams, "Space-Saving"). So a key with more than one n-th of
//! all requests, where n is the number of places, is certain to have one, whatever else comes. Weights only decide who stays:
//! the counts of a row are exact since it has its place, and all rows and the folded ones together are exact, too.

use std::collections::HashMap;
use std::sync::Arc;

/// The counts of one key, or of all that have none of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    /// Requests that ended.
    pub requests: u64,
    /// Of them those with a status of 400 to 499.
    pub client_errors: u64,
    /// Of them those with a status of 500 and above.
    pub server_errors: u64,
    /// Bytes that were received for them.
    pub bytes_in: u64,
    /// Bytes that were sent for them.
    pub bytes_out: u64,
    /// Nanoseconds that they ran on their worker's loop, as far as boundaries are recorded.
    pub run_ns: u64,
    /// Nanoseconds of processors that they took, as far as boundaries are recorded.
    pub cpu_ns: u64,
    /// How long they took, in microseconds.
    pub durations: KeyDurations,
}

/// What is counted of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyedRequest {
    /// Its status.
    pub status: u16,
    /// Bytes received for it.
    pub bytes_in: u64,
    /// Bytes sent for it.
    pub bytes_out: u64,
    /// Nanoseconds that it ran.
    pub run_ns: u64,
    /// Nanoseconds of processors that it took.
    pub cpu_ns: u64,
    /// Microseconds from its head to its end.
    pub duration_us: u64,
}

impl KeyCounts {
    /// Counts one request.
    pub fn add(&mut self, request: &KeyedRequest) {
        self.requests += 1;
        self.client_errors += u64::from((400..500).contains(&request.status));
        self.server_errors += u64::from(request.status >= 500);
        self.bytes_in += request.bytes_in;
        self.bytes_out += request.bytes_out;
        self.run_ns += request.run_ns;
        self.cpu_ns += request.cpu_ns;
        self.durations.add(request.duration_us);
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &KeyCounts) {
        self.requests += other.requests;
        self.client_errors += other.client_errors;
        self.server_errors += other.server_errors;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.run_ns += other.run_ns;
        self.cpu_ns += other.cpu_ns;
        self.durations.merge(&other.durations);
    }

    /// What was counted since `earlier`, an older copy; all of it where the row lost its place in between.
    #[must_use]
    pub fn since(&self, earlier: &KeyCounts) -> KeyCounts {
        if earlier.requests > self.requests {
            return self.clone();
        }
        KeyCounts {
            requests: self.requests - earlier.requests,
            client_errors: self.client_errors.saturating_sub(earlier.client_errors),
            server_errors: self.server_errors.saturating_sub(earlier.server_errors),
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            durations: self.durations.since(&earlier.durations),
        }
    }
}

/// Counts of durations in microseconds, four buckets in every octave: a quantile is at most a quarter above the true value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDurations {
    buckets: [u32; DURATION_BUCKETS],
    /// Microseconds of all together.
    pub sum_us: u64,
}

impl Default for KeyDurations {
    fn default() -> KeyDurations {
        KeyDurations { buckets: [0; DURATION_BUCKETS], sum_us: 0 }
    }
}

impl KeyDurations {
    fn add(&mut self, us: u64) {
        let bucket = &mut self.buckets[duration_bucket(us)];
        *bucket = bucket.saturating_add(1);
        self.sum_us = self.sum_us.saturating_add(us);
    }

    fn merge(&mut self, other: &KeyDurations) {
        for (bucket, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket = bucket.saturating_add(*count);
        }
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }

    fn since(&self, earlier: &KeyDurations) -> KeyDurations {
        KeyDurations {
            buckets: std::array::from_fn(|n| self.buckets[n].saturating_sub(earlier.buckets[n])),
            sum_us: self.sum_us.saturating_sub(earlier.sum_us),
        }
    }

    /// The microseconds at or below which the share `q` (0 to 1) of all durations lies; 0 of none.
    #[must_use]
    pub fn quantile_us(&self, q: f64) -> u64 {
        let all: u64 = self.buckets.iter().map(|count| u64::from(*count)).sum();
        let rank = ((q.clamp(0.0, 1.0) * all as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen += u64::from(*count);
            seen >= rank
        });
        found.map_or(0, duration_bound)
    }
}

/// The bucket of a duration: below 4 us one each, then four an octave, the last for all that is longer.
fn duration_bucket(us: u64) -> usize {
    if us < 4 {
        return us as usize;
    }
    let octave = us.ilog2() as usize;
    let quarter = (us >> (octave - 2)) as usize & 3;
    (4 + (octave - 2) * 4 + quarter).min(DURATION_BUCKETS - 1)
}

/// The longest duration of a bucket, in microseconds.
fn duration_bound(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (octave, quarter) = ((bucket - 4) / 4 + 2, (bucket - 4) % 4);
    ((4 + quarter as u64 + 1) << (octave - 2)) - 1
}

/// The counts of the keys that have most requests, in a fixed number of places. One worker's.
#[derive(Debug)]
pub struct KeySketch {
    rows: Vec<SketchRow>,
    places: HashMap<Arc<[u8]>, usize>,
    /// Places of `rows`, as a heap whose first weighs least.
    heap: Vec<usize>,
    room: usize,
    folded: KeyCounts,
    /// Number of keys that lost their place.
    evicted: u64,
}

#[derive(Debug)]
struct SketchRow {
    key: Arc<[u8]>,
    weight: u64,
    /// Where it is in the heap.
    at: usize,
    counts: KeyCounts,
}

/// What a sketch holds at one time, or several together.
#[derive(Clone, Debug, Default)]
pub struct KeyTable {
    /// The keys with counts of their own.
    pub rows: HashMap<Arc<[u8]>, KeyCounts>,
    /// The sum of all others.
    pub folded: KeyCounts,
    /// Number of keys that lost their place, those that came back counted again.
    pub evicted: u64,
}

impl KeySketch {
    /// An empty one for `room` keys, at least one.
    #[must_use]
    pub fn new(room: usize) -> KeySketch {
        KeySketch {
            rows: Vec::new(),
            places: HashMap::new(),
            heap: Vec::new(),
            room: room.max(1),
            folded: KeyCounts::default(),
            evicted: 0,
        }
    }

    /// Counts `request` under `key`, of which the first 128 bytes count.
    pub fn count(&mut self, key: &[u8], request: &KeyedRequest) {
        let key = &key[..key.len().min(KEY_LONGEST)];
        let place = match self.places.get(key) {
            Some(&place) => {
                self.rows[place].weight += 1;
                self.sink(self.rows[place].at);
                place
            }
            None => self.admit(key),
        };
        self.rows[place].counts.add(request);
    }

    /// Number of keys that have a place.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing was counted yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of keys that lost their place.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Adds a copy of what it holds to `table`.
    pub fn add_to(&self, table: &mut KeyTable) {
        for row in &self.rows {
            table.rows.entry(row.key.clone()).or_default().merge(&row.counts);
        }
        table.folded.merge(&self.folded);
        table.evicted += self.evicted;
    }

    /// A place for a key that has none.
    fn admit(&mut self, key: &[u8]) -> usize {
        let key: Arc<[u8]> = key.into();
        if self.rows.len() < self.room {
            let (place, at) = (self.rows.len(), self.heap.len());
            self.rows.push(SketchRow { key: key.clone(), weight: 1, at, counts: KeyCounts::default() });
            self.heap.push(place);
            self.rise(at);
            self.places.insert(key, place);
            return place;
        }
        let place = self.heap[0];
        let row = &mut self.rows[place];
        self.folded.merge(&row.counts);
        self.evicted += 1;
        self.places.remove(&row.key);
        (row.counts, row.key) = (KeyCounts::default(), key.clone());
        row.weight += 1;
        self.places.insert(key, place);
        self.sink(0);
        place
    }

    fn weight_at(&self, at: usize) -> u64 {
        self.rows[self.heap[at]].weight
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.rows[self.heap[one]].at = one;
        self.rows[self.heap[other]].at = other;
    }

    /// Moves what became heavier at `at` away from the first place.
    fn sink(&mut self, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2].into_iter().filter(|child| *child < self.heap.len());
            let Some(least) = children.min_by_key(|child| self.weight_at(*child)) else { return };
            if self.weight_at(at) <= self.weight_at(least) {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    /// Moves what is new at `at` towards the first place.
    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.weight_at(at) < self.weight_at((at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }
}

impl KeyTable {
    /// Keeps the `most` keys with most requests, and folds the others; those of several workers may be more than one has.
    pub fn bound(&mut self, most: usize) {
        if self.rows.len() <= most {
            return;
        }
        let mut rows: Vec<(Arc<[u8]>, KeyCounts)> = self.rows.drain().collect();
        rows.sort_unstable_by(|(key, one), (other_key, other)| {
            other.requests.cmp(&one.requests).then_with(|| key.cmp(other_key))
        });
        for (_, counts) in rows.drain(most..) {
            self.folded.merge(&counts);
        }
        self.rows = rows.into_iter().collect();
    }
}

/// Bytes of a key that count.
const KEY_LONGEST: usize = 128;

/// About how many bytes a place takes with a key of ordinary length: a row, its key, its place in the map and the heap.
pub const KEY_PLACE_BYTES: usize = 704;

/// Up to 2^27 us, more than two minutes.
const DURATION_BUCKETS: usize = 4 + 4 * 26;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(status: u16) -> KeyedRequest {
        KeyedRequest { status, bytes_in: 10, bytes_out: 100, run_ns: 5, cpu_ns: 3, duration_us: 1_000 }
    }

    fn table(sketch: &KeySketch) -> KeyTable {
        let mut table = KeyTable::default();
        sketch.add_to(&mut table);
        table
    }

    #[test]
    fn counts_are_by_key_and_by_class_of_status() {
        let mut sketch = KeySketch::new(4);
        sketch.count(b"a", &request(200));
        sketch.count(b"a", &request(404));
        sketch.count(b"b", &request(502));
        let table = table(&sketch);
        let a = &table.rows[&b"a"[..]];
        assert_eq!((a.requests, a.client_errors, a.server_errors, a.bytes_out, a.run_ns), (2, 1, 0, 200, 10));
        assert_eq!(table.rows[&b"b"[..]].server_errors, 1);
        assert_eq!((table.rows.len(), table.folded.requests, sketch.evicted()), (2, 0, 0));
    }

    #[test]
    fn a_heavy_key_keeps_its_place_in_a_flood_of_others() {
        let mut sketch = KeySketch::new(16);
        for n in 0_u32..10_000 {
            sketch.count(&n.to_be_bytes(), &request(200));
            if n % 10 == 0 {
                sketch.count(b"tenant", &request(200));
            }
        }
        let table = table(&sketch);
        assert!(table.rows[&b"tenant"[..]].requests > 990, "{:?}", table.rows[&b"tenant"[..]].requests);
        assert_eq!(table.rows.len(), 16);
        let all: u64 = table.rows.values().map(|row| row.requests).sum();
        assert_eq!(all + table.folded.requests, 11_000);
    }

    #[test]
    fn long_keys_are_one_where_their_beginning_is() {
        let mut sketch = KeySketch::new(2);
        sketch.count(&[b'a'; KEY_LONGEST], &request(200));
        sketch.count(&[b'a'; 10 * KEY_LONGEST], &request(200));
        assert_eq!(sketch.len(), 1);
    }

    #[test]
    fn a_row_that_lost_its_place_in_between_is_counted_from_nothing() {
        let (mut before, mut now) = (KeyCounts::default(), KeyCounts::default());
        (0..5).for_each(|_| before.add(&request(200)));
        (0..3).for_each(|_| now.add(&request(500)));
        assert_eq!(now.since(&before), now);
        assert_eq!(before.since(&now).requests, 2);
    }

    #[test]
    fn tables_of_several_workers_are_bounded_together() {
        let mut all = KeyTable::default();
        for worker in 0_u8..3 {
            let mut sketch = KeySketch::new(3);
            for key in [&[worker][..], b"x", b"y"] {
                sketch.count(key, &request(200));
            }
            sketch.add_to(&mut all);
        }
        all.bound(2);
        let mut keys: Vec<&[u8]> = all.rows.keys().map(|key| &**key).collect();
        keys.sort_unstable();
        assert_eq!((keys, all.folded.requests), (vec![&b"x"[..], b"y"], 3));
    }

    proptest! {
        #[test]
        fn buckets_hold_what_is_in_their_bounds(us in 0_u64..1 << 27) {
            let bound = duration_bound(duration_bucket(us));
            prop_assert!(us <= bound && bound <= us + us / 4 + 1, "{us} {bound}");
        }

        /// Against a map of all keys: sums are exact, no row has more than its key got, and each key with more than
        /// one of `room` parts has a row.
        #[test]
        fn sketches_agree_with_a_map_of_all(room in 1_usize..8, keys in prop::collection::vec(0_u8..24, 0..400)) {
            let mut sketch = KeySketch::new(room);
            let mut all: HashMap<u8, u64> = HashMap::new();
            for key in &keys {
                sketch.count(&[*key], &request(200));
                *all.entry(*key).or_default() += 1;
            }
            let table = table(&sketch);
            let rows: u64 = table.rows.values().map(|row| row.requests).sum();
            prop_assert_eq!(rows + table.folded.requests, keys.len() as u64);
            prop_assert!(table.rows.len() <= room);
            for (key, count) in &all {
                let row = table.rows.get(&[*key][..]).map(|row| row.requests);
                prop_assert!(row.is_none_or(|row| row <= *count));
                prop_assert!(row.is_some() || *count <= keys.len() as u64 / room as u64);
            }
            for (at, place) in sketch.heap.iter().enumerate() {
                prop_assert_eq!(sketch.rows[*place].at, at);
                prop_assert!(at == 0 || sketch.weight_at((at - 1) / 2) <= sketch.weight_at(at));
            }
        }
    }
}
