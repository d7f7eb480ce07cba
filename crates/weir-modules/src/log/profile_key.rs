//! `profile_key`: requests, errors, bytes, time by the value of a variable (a tenant, a host, a consumer), in bounded memory.
//!
//! Each worker counts in a [`KeySketch`] of its own; `weir top keys` and `/metrics` add them up. A sketch is behind a lock
//! that its worker only tries: while a reader copies the rows, requests are noted aside, so that no request waits for one.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};

use weir_conf::names::{ANY, ONE_OR_TWO};
use weir_conf::{Directive, LineCx, Result, parse_size};
use weir_engine::figures::{self, KeyZone, MetricFamily, MetricKind};
use weir_engine::plan::PlanBuilder;
use weir_engine::trace::SpentTime;
use weir_engine::variable::ValueScript;
use weir_engine::zone::{SharedZone, ZoneStore, ZoneUsage};
use weir_engine::{Exchange, Handler, Module, Phase, Verdict};
use weir_trace::{KEY_PLACE_BYTES, KeyCounts, KeySketch, KeyTable, KeyedRequest};

use crate::support::limit;

/// The module `profile_key`.
pub struct ProfileKey;

impl Module for ProfileKey {
    const NAME: &'static str = "profile_key";
    type Conf = ProfileKeyConf;
    const DIRECTIVES: &'static [Directive<ProfileKeyConf>] =
        &[Directive::<ProfileKeyConf>::new(OWNER, ANY, ONE_OR_TWO, ProfileKeyConf::set)
            .syntax("profile_key key zone=name[:size]\nprofile_key off")
            .default("off")
            .doc(
                "Counts requests, errors, bytes, times and CPU by the value of `key`: by tenant, host or \
                 consumer. `weir top keys` and `/metrics` show the counts. Requests with an empty key \
                 are not counted; the first 128 bytes of a key count. `size` bounds the memory of each \
                 worker (1m by default, some 1,500 keys). Where there are more keys, those with most \
                 requests have counts of their own; all others are counted together. Several \
                 directives count by several keys; they are inherited where a block has none of its own.",
            )
            .example("profile_key $http_x_customer zone=customers;\nprofile_key $host zone=hosts:256k;")];

    fn inherit(conf: &mut ProfileKeyConf, parent: &ProfileKeyConf) {
        if conf.keys.is_empty() && !conf.off {
            conf.keys = parent.keys.clone();
        }
    }

    fn install(conf: &ProfileKeyConf, plan: &mut PlanBuilder<'_>) {
        let keys: Vec<CountedKey> = conf.keys.iter().filter_map(CountedKey::of).collect();
        if !keys.is_empty() {
            plan.handler(Phase::Log, Self::NAME, KeyCounter { keys });
        }
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct ProfileKeyConf {
    /// Own zones, or the parent's.
    keys: Vec<Arc<SharedZone>>,
    /// `profile_key off`
    off: bool,
}

impl ProfileKeyConf {
    fn set(&mut self, line: &mut LineCx<'_>) -> Result {
        if line.args().len() == 1 {
            if line.bytes(0) != b"off" {
                return Err(limit::no_zone(line));
            }
            self.off = true;
            return Ok(());
        }
        let key = ValueScript::compile(line, 0)?;
        let text = line.bytes(1).strip_prefix(b"zone=").ok_or_else(|| line.invalid_parameter(1))?;
        let (name, size) = name_and_size(line, text)?;
        let zone = limit::zone(line, 1, OWNER, name)?;
        if self.keys.iter().any(|known| Arc::ptr_eq(known, &zone)) {
            return Err(line.refuse("is duplicate"));
        }
        // The same zone in several blocks is one table, as long as they say the same.
        let known = zone.settings::<KeySettings>();
        if !known.is_some_and(|known| known.size == size && zone.key() == line.arg(0)) {
            zone.declare(size, line.arg(0), KeySettings { key, size })
                .map_err(|message| line.fail(message))?;
        }
        self.keys.push(zone);
        Ok(())
    }
}

/// `name` or `name:size`, of the second argument.
fn name_and_size<'a>(line: &LineCx<'_>, text: &'a [u8]) -> Result<(&'a [u8], u64)> {
    let (name, size) = match text.iter().position(|byte| *byte == b':') {
        None => (text, Some(USUAL_SIZE)),
        Some(colon) => (&text[..colon], parse_size(&text[colon + 1..])),
    };
    let Some(size) = size.filter(|size| (SMALLEST..=LARGEST).contains(size)) else {
        let message = format!("invalid zone size \"{}\", it must be between 32k and 1g", line.arg(1));
        return Err(line.fail_arg(1, message));
    };
    if name.is_empty() {
        return Err(limit::no_zone(line));
    }
    Ok((name, size))
}

/// What the directive of a zone says.
struct KeySettings {
    key: ValueScript,
    size: u64,
}

/// Counts the requests of a location.
struct KeyCounter {
    keys: Vec<CountedKey>,
}

struct CountedKey {
    script: ValueScript,
    counts: Arc<KeyZoneCounts>,
}

impl CountedKey {
    fn of(zone: &Arc<SharedZone>) -> Option<CountedKey> {
        let script = zone.settings::<KeySettings>()?.key.clone();
        let counts = zone.store(|size| KeyZoneCounts::new(&zone.name, zone.key(), size));
        KeyZoneCounts::show(&counts);
        Some(CountedKey { script, counts })
    }
}

impl Handler for KeyCounter {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        if !x.is_subrequest() {
            let request = keyed_request(x);
            for key in &self.keys {
                let value = key.script.value(x);
                let value = x.text(&value);
                if !value.is_empty() {
                    key.counts.worker(x.worker.id).count(value, &request);
                }
            }
        }
        Verdict::Declined
    }
}

fn keyed_request(x: &Exchange) -> KeyedRequest {
    let SpentTime { duration_us, run_ns, cpu_ns } = x.spent();
    KeyedRequest {
        status: x.response.status,
        bytes_in: x.request.head.len as u64 + x.body.received(),
        bytes_out: x.bytes_sent(),
        run_ns,
        cpu_ns,
        duration_us,
    }
}

/// What a zone counts, by worker.
struct KeyZoneCounts {
    name: Box<str>,
    key: Box<str>,
    size: u64,
    /// Made when a worker counts first.
    workers: Box<[OnceLock<WorkerKeys>]>,
    is_shown: AtomicBool,
}

impl KeyZoneCounts {
    fn new(name: &str, key: &str, size: u64) -> KeyZoneCounts {
        KeyZoneCounts {
            name: name.into(),
            key: key.into(),
            size,
            workers: (0..=u8::MAX).map(|_| OnceLock::new()).collect(),
            is_shown: AtomicBool::new(false),
        }
    }

    /// Number of keys that have counts of their own.
    fn room(&self) -> usize {
        (self.size as usize / KEY_PLACE_BYTES).max(1)
    }

    /// From here on `weir top keys` and `/metrics` show it, as long as a configuration has it.
    fn show(counts: &Arc<KeyZoneCounts>) {
        if !counts.is_shown.swap(true, Relaxed) {
            figures::register_keys(key_zones);
            figures::register_metrics(OWNER, key_metrics);
            let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|known| known.strong_count() > 0);
            all.push(Arc::downgrade(counts));
        }
    }

    fn worker(&self, id: u8) -> &WorkerKeys {
        self.workers[usize::from(id)].get_or_init(|| WorkerKeys {
            sketch: Mutex::new(KeySketch::new(self.room())),
            aside: Mutex::default(),
            is_aside: AtomicBool::new(false),
        })
    }

    fn table(&self) -> KeyTable {
        let mut table = KeyTable::default();
        self.workers.iter().filter_map(OnceLock::get).for_each(|worker| worker.add_to(&mut table));
        table.bound(self.room());
        table
    }
}

impl ZoneStore for KeyZoneCounts {
    fn usage(&self) -> ZoneUsage {
        let mut usage = ZoneUsage { used: 0, size: self.size, full: 0 };
        for worker in self.workers.iter().filter_map(OnceLock::get) {
            let sketch = worker.sketch.lock().unwrap_or_else(PoisonError::into_inner);
            usage.used = usage.used.max((sketch.len() * KEY_PLACE_BYTES) as u64);
            usage.full += sketch.evicted();
        }
        usage
    }
}

/// One worker's counts of a zone.
struct WorkerKeys {
    sketch: Mutex<KeySketch>,
    /// What came while a reader copied the rows.
    aside: Mutex<Vec<(Box<[u8]>, KeyedRequest)>>,
    /// Whether there may be something aside.
    is_aside: AtomicBool,
}

impl WorkerKeys {
    /// The worker's own thread alone calls it, so the lock is free but while a reader copies: two atomics of an own line.
    fn count(&self, key: &[u8], request: &KeyedRequest) {
        let mut sketch = match self.sketch.try_lock() {
            Ok(sketch) => sketch,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // Held by others for a push or a swap only.
                self.aside.lock().unwrap_or_else(PoisonError::into_inner).push((key.into(), *request));
                return self.is_aside.store(true, Relaxed);
            }
        };
        if self.is_aside.load(Relaxed) {
            self.take_aside(&mut sketch);
        }
        sketch.count(key, request);
    }

    fn add_to(&self, table: &mut KeyTable) {
        let mut sketch = self.sketch.lock().unwrap_or_else(PoisonError::into_inner);
        self.take_aside(&mut sketch);
        sketch.add_to(table);
    }

    fn take_aside(&self, sketch: &mut MutexGuard<'_, KeySketch>) {
        self.is_aside.store(false, Relaxed);
        let aside = std::mem::take(&mut *self.aside.lock().unwrap_or_else(PoisonError::into_inner));
        aside.iter().for_each(|(key, request)| sketch.count(key, request));
    }
}

/// All zones that configurations in force have.
fn shown() -> Vec<Arc<KeyZoneCounts>> {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().filter_map(Weak::upgrade).collect()
}

fn key_zones() -> Vec<KeyZone> {
    let zone = |zone: Arc<KeyZoneCounts>| {
        let table = zone.table();
        let rows = table.rows.into_iter().map(|(key, counts)| (shown_key(&key), counts));
        KeyZone {
            name: zone.name.to_string(),
            key: zone.key.to_string(),
            rows: rows.collect(),
            folded: table.folded,
            evicted: table.evicted,
        }
    };
    shown().into_iter().map(zone).collect()
}

fn shown_key(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

/// The metrics of all zones; the row with an empty key has all keys that have no counts of their own.
fn key_metrics() -> Vec<MetricFamily> {
    let zones = key_zones();
    let family = |(name, help, kind, of): &KeyMetric| MetricFamily {
        name,
        help,
        kind: *kind,
        rows: zones.iter().flat_map(|zone| metric_rows(zone, *of)).collect(),
    };
    METRICS.iter().map(family).collect()
}

fn metric_rows(zone: &KeyZone, of: fn(&KeyCounts) -> u64) -> Vec<(Vec<(&'static str, String)>, u64)> {
    let row = |key: &str, counts: &KeyCounts| {
        (vec![("zone", zone.name.clone()), ("key", key.to_owned())], of(counts))
    };
    let own = zone.rows.iter().map(|(key, counts)| row(key, counts));
    own.chain((zone.evicted > 0 || zone.folded.requests > 0).then(|| row("", &zone.folded))).collect()
}

/// A family: name, help, kind, and what of the counts it has.
type KeyMetric = (&'static str, &'static str, MetricKind, fn(&KeyCounts) -> u64);

const METRICS: &[KeyMetric] = &[
    ("weir_key_requests", "Requests by the key of a zone.", MetricKind::Counter, |counts| counts.requests),
    ("weir_key_client_errors", "Requests with a status of 400 to 499.", MetricKind::Counter, |counts| {
        counts.client_errors
    }),
    ("weir_key_server_errors", "Requests with a status of 500 and above.", MetricKind::Counter, |counts| {
        counts.server_errors
    }),
    ("weir_key_received_bytes", "Bytes received.", MetricKind::Counter, |counts| counts.bytes_in),
    ("weir_key_sent_bytes", "Bytes sent.", MetricKind::Counter, |counts| counts.bytes_out),
    ("weir_key_run_seconds", "Time that requests ran.", MetricKind::Time, |counts| counts.run_ns),
    ("weir_key_cpu_seconds", "Time of processors that requests took.", MetricKind::Time, |counts| {
        counts.cpu_ns
    }),
    ("weir_key_duration_seconds", "Time that requests took.", MetricKind::Time, |counts| {
        counts.durations.sum_us.saturating_mul(1_000)
    }),
];

/// Zones of configurations in force, and of those that are about to end.
static ALL: Mutex<Vec<Weak<KeyZoneCounts>>> = Mutex::new(Vec::new());

/// The directive that declares zones.
const OWNER: &str = "profile_key";
/// Bytes of a zone whose size is not written.
const USUAL_SIZE: u64 = 1 << 20;
/// nginx's smallest zone.
const SMALLEST: u64 = 8 * 4096;
const LARGEST: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use weir_engine::ModuleDef;
    use weir_engine::conf;

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<ProfileKey>();

    #[test]
    fn mistakes_are_named() {
        for (lines, words) in [
            ("profile_key $uri;", "\"profile_key\" must have \"zone\" parameter"),
            ("profile_key $uri foo;", "invalid parameter \"foo\""),
            ("profile_key $uri zone=;", "\"profile_key\" must have \"zone\" parameter"),
            ("profile_key $uri zone=a:1;", "invalid zone size \"zone=a:1\""),
            ("profile_key $uri zone=a:2g;", "invalid zone size \"zone=a:2g\""),
            ("profile_key $uri zone=a; profile_key $uri zone=a;", "\"profile_key\" directive is duplicate"),
            (
                "profile_key $uri zone=a; server { profile_key $host zone=a; }",
                "profile_key \"a\" is already bound to key \"$uri\"",
            ),
            (
                "profile_key $uri zone=a; server { profile_key $uri zone=a:64k; }",
                "the size 65536 of shared memory zone \"a\" conflicts with already declared size 1048576",
            ),
        ] {
            let found =
                conf::test::headlines(&format!("events {{ }} http {{ {lines} server {{ }} }}"), &MODULES);
            assert!(found[0].starts_with(words), "{lines}: {found:?}");
        }
    }

    #[test]
    fn the_same_zone_may_be_named_in_several_blocks() {
        let text = "events { } http { profile_key $uri zone=a; server { profile_key off; \
                    location / { profile_key $uri zone=a; profile_key $host zone=b:32k; } } }";
        assert_eq!(conf::test::load(text, &MODULES).err(), None);
    }

    /// What a request meets while the rows are copied.
    #[test]
    fn what_comes_while_rows_are_copied_is_counted_afterwards() {
        let counts = KeyZoneCounts::new("a", "$uri", USUAL_SIZE);
        let (worker, request) = (counts.worker(0), KeyedRequest { status: 200, ..KeyedRequest::default() });
        worker.count(b"x", &request);
        let copying = worker.sketch.lock().unwrap();
        worker.count(b"x", &request);
        worker.count(b"y", &request);
        drop(copying);
        let table = counts.table();
        assert_eq!((table.rows[&b"x"[..]].requests, table.rows[&b"y"[..]].requests), (2, 1));
        worker.count(b"y", &request);
        assert_eq!(counts.table().rows[&b"y"[..]].requests, 2);
    }

    #[test]
    fn workers_are_added_up_and_bounded() {
        let counts = KeyZoneCounts::new("a", "$uri", SMALLEST);
        let request = KeyedRequest { status: 500, bytes_out: 7, ..KeyedRequest::default() };
        for worker in 0..4_u8 {
            for key in 0..1_000_u32 {
                counts.worker(worker).count(&(key % 100).to_be_bytes(), &request);
            }
        }
        let table = counts.table();
        assert_eq!(table.rows.len(), counts.room());
        let rows: u64 = table.rows.values().map(|row| row.server_errors).sum();
        assert_eq!(rows + table.folded.server_errors, 4_000);
        assert!(counts.usage().used <= SMALLEST && counts.usage().full > 0);
    }
}
