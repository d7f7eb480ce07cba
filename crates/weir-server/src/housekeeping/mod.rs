//! The housekeeping thread, one per process: it watches the loops, empties the rings of CPU samples, keeps the clock's
//! scale right, and adds up what is only known over time. It never runs on a worker's loop and asks none of them
//! anything, so all it knows is there while every worker is stuck.
//!
//! [`handle`] is the way in for commands and exports. Responses are made on the caller's own thread.
//!
//! Its price: a look at a few words per worker every third [`HousekeepingSettings::blocked`] under load, and nothing while all
//! loops sleep (their first turn wakes it).

mod counters;
mod stacks;
mod switches;
mod unwind;
mod usage;
mod watchdog;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use weir_rt::sampler::{self, SampleSource, SitePlace, StackSample, ThreadProbe};
use weir_rt::{LoopSnapshot, LoopStats, clock};
use weir_trace::{LoopStall, NowReader, RecorderReader, Site};

use weir_engine::log::{self, LogLevel};
use weir_engine::trace::TraceSettings;
use weir_engine::worker::WorkerCounters;

pub use counters::{CountedEvents, CounterRecording, CounterState};
pub use stacks::{SampledStack, StackProfile, StackWeight};
use stacks::{SampledStacks, StackTally};
pub use switches::{OffCoreStack, SwitchRecording};
use usage::InKernel;
pub use usage::{ProcessUse, ThreadUse};
use watchdog::Watchdog;

/// What is watched of one worker.
#[derive(Clone)]
pub struct WatchedWorker {
    /// The worker's thread as it shows itself.
    pub probe: &'static ThreadProbe,
    /// The worker's number, counted from 0.
    pub worker: u16,
    /// Its histograms and stalls.
    pub recorder: RecorderReader,
    /// Its requests in flight.
    pub now: NowReader,
    /// The worker's counters.
    pub counters: Arc<WorkerCounters>,
    /// Its loop's account.
    pub stats: Arc<LoopStats>,
}

/// What the thread does, for the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HousekeepingSettings {
    /// CPU samples per second of each worker's CPU time; 0 for none (`profile_cpu`).
    pub cpu_hz: u32,
    /// A turn of a loop that takes longer is a stall; `None` for no watching (`profile_blocked`).
    pub blocked: Option<Duration>,
}

impl Default for HousekeepingSettings {
    fn default() -> HousekeepingSettings {
        HousekeepingSettings { cpu_hz: 99, blocked: Some(Duration::from_millis(10)) }
    }
}

impl From<&TraceSettings> for HousekeepingSettings {
    fn from(trace: &TraceSettings) -> HousekeepingSettings {
        HousekeepingSettings { cpu_hz: trace.cpu_hz(), blocked: trace.blocked() }
    }
}

/// One worker, as it is at this moment.
#[derive(Clone, Debug)]
pub struct WorkerView {
    /// The worker's number, counted from 0.
    pub worker: u16,
    /// What the kernel accounts to its thread; `None` if /proc can't be read.
    pub thread: Option<ThreadUse>,
    /// Its loop's account.
    pub turns: LoopSnapshot,
    /// How long the turn has taken that it is in; `None` while it waits for events.
    pub busy: Option<Duration>,
    /// Where it is: site and route.
    pub place: (Site, Site),
    /// Connections open now.
    pub connections: u64,
    /// Connections times milliseconds since [`WorkerView::watched`] began: the difference of two views by the time
    /// between them is the average number of live connections.
    pub connection_ms: u64,
    /// How long it has been watched.
    pub watched: Duration,
    /// CPU samples that found no room.
    pub samples_lost: u64,
    /// Number of stalls since its start.
    pub stalls: u64,
}

/// A stall, and the worker that had it.
#[derive(Clone, Debug)]
pub struct WorkerStall {
    /// The worker's number, counted from 0.
    pub worker: u16,
    /// True when it has not ended yet.
    pub ongoing: bool,
    /// What is known of it.
    pub stall: LoopStall,
}

/// The process-wide housekeeping. Cheap to copy around; every method may be called from any thread but a worker's loop.
#[derive(Clone, Copy)]
pub struct HousekeepingHandle {
    shared: &'static HousekeepingShared,
}

struct HousekeepingShared {
    settings: Mutex<HousekeepingSettings>,
    /// Replaced as a whole, so that looking at it is one count.
    watched: Mutex<Arc<[WatchedEntry]>>,
    stacks: Mutex<SampledStacks>,
    /// Taken after `stacks`, where both are.
    watchdog: Mutex<Watchdog>,
    /// Why the sampler does not run, if it does not.
    refused: Mutex<Option<String>>,
}

#[derive(Clone)]
struct WatchedEntry {
    watched: WatchedWorker,
    serial: u64,
    since: Instant,
    connection_ms: Arc<AtomicU64>,
}

/// The handle; before [`start`] it knows of nothing.
pub fn handle() -> HousekeepingHandle {
    static SHARED: OnceLock<HousekeepingShared> = OnceLock::new();
    let shared = SHARED.get_or_init(|| HousekeepingShared {
        settings: Mutex::new(HousekeepingSettings::default()),
        watched: Mutex::new(Arc::new([])),
        stacks: Mutex::default(),
        watchdog: Mutex::default(),
        refused: Mutex::default(),
    });
    HousekeepingHandle { shared }
}

/// Starts the thread, once per process. Not before a fork: threads do not come along.
///
/// # Errors
/// The errno of starting a thread.
pub fn start() -> io::Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = lock(&STARTED);
    if !*started {
        let shared = handle().shared;
        std::thread::Builder::new().name("weir watch".to_owned()).spawn(move || shared.run())?;
        *started = true;
    }
    Ok(())
}

/// Watches a worker until what is returned is dropped; to be called on its thread.
pub(crate) fn watch(watched: WatchedWorker) -> WatchGuard {
    let shared = handle().shared;
    let (probe, serial) = (watched.probe, watched.probe.serial());
    let entry = WatchedEntry { watched, serial, since: Instant::now(), connection_ms: Arc::default() };
    shared.change(|entries| entries.push(entry));
    let settings = *lock(&shared.settings);
    shared.arm(probe, settings);
    WatchGuard { serial }
}

/// A worker is watched as long as this value lives.
pub(crate) struct WatchGuard {
    serial: u64,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let shared = handle().shared;
        shared.gather();
        shared.change(|entries| entries.retain(|entry| entry.serial != self.serial));
    }
}

impl HousekeepingHandle {
    /// A copy of the settings that are in force.
    pub fn settings(&self) -> HousekeepingSettings {
        *lock(&self.shared.settings)
    }

    /// Changes rate and limit at once, for all workers and those to come.
    pub fn set(&self, settings: HousekeepingSettings) {
        if std::mem::replace(&mut *lock(&self.shared.settings), settings) == settings {
            return;
        }
        for entry in self.shared.entries().iter() {
            self.shared.arm(entry.watched.probe, settings);
        }
    }

    /// The CPU samples of the last `last`, in whole seconds, two minutes at most. Samples that many collections at higher
    /// rates took are among them; weights are times, so that does no harm.
    pub fn stacks(&self, last: Duration) -> StackProfile {
        self.shared.gather();
        lock(&self.shared.stacks).last(SampleSource::Cpu, last)
    }

    /// Collects samples from now on, until the returned collection is dropped or `limit` is over.
    ///
    /// [`SampleSource::Cpu`] takes those that are taken anyway, at [`HousekeepingSettings::cpu_hz`] (99 if that is
    /// off), and more with `hz` above it. [`SampleSource::Wall`] samples sleeping loops as well. `hz` is samples a
    /// second, 10,000 at most.
    ///
    /// # Errors
    /// Another profiler has the signal, or the kernel gives no timer: see
    /// [`ThreadProbe::arm`](weir_rt::sampler::ThreadProbe::arm). `InvalidInput` for [`SampleSource::Asked`]
    /// and [`SampleSource::Switched`], which have no rate.
    pub fn collect(&self, source: SampleSource, hz: u32, limit: Duration) -> io::Result<StackCollection> {
        if matches!(source, SampleSource::Asked | SampleSource::Switched) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        unwind::refresh();
        let hz = hz.clamp(1, MAX_HZ);
        let tally = lock(&self.shared.stacks).collect(source, hz, limit);
        let collection = StackCollection { shared: self.shared, tally };
        if source == SampleSource::Alloc {
            // A sample comes by the same signal as those of time.
            self.shared.entries().iter().try_for_each(|entry| entry.watched.probe.prepare())?;
            sampler::sample_allocations(true);
            return Ok(collection);
        }
        for entry in self.shared.entries().iter() {
            let armed = entry.watched.probe.arm(source, self.shared.rate(source));
            armed.or_else(|error| if error.raw_os_error() == Some(ESRCH) { Ok(()) } else { Err(error) })?;
        }
        Ok(collection)
    }

    /// The stack of a worker at this moment, also of one that is stuck; `None` if it does not come within `limit`, which is
    /// so for a thread that the kernel does not let go. One that was asked before and sleeps on in the same call has the
    /// stack of then.
    ///
    /// # Errors
    /// There is no such worker, or no signal: see [`ThreadProbe::ask`](weir_rt::sampler::ThreadProbe::ask).
    pub fn stack_now(&self, worker: u16, limit: Duration) -> io::Result<Option<StackSample>> {
        let entries = self.shared.entries();
        let entry = entries.iter().find(|entry| entry.watched.worker == worker);
        let entry = entry.ok_or(io::ErrorKind::NotFound)?;
        let probe = entry.watched.probe;
        unwind::refresh();
        let (since, until) = (clock::ticks(), Instant::now() + limit);
        probe.ask(InKernel::read(probe.tid()).syscall)?;
        loop {
            self.shared.gather();
            let sample = lock(&self.shared.stacks).asked(worker, since);
            if sample.is_some() {
                return Ok(sample);
            }
            if Instant::now() >= until {
                return Ok(entry.stack_of_turn());
            }
            std::thread::sleep(HANDLED);
        }
    }

    /// What each worker that runs does at this moment, by its number.
    pub fn workers(&self) -> Vec<WorkerView> {
        let now = clock::ticks();
        let mut views: Vec<WorkerView> = self.shared.entries().iter().map(|entry| entry.view(now)).collect();
        views.sort_by_key(|view| view.worker);
        views
    }

    /// What there is to read of each worker, in order.
    pub fn watched(&self) -> Vec<WatchedWorker> {
        let mut all: Vec<WatchedWorker> =
            self.shared.entries().iter().map(|entry| entry.watched.clone()).collect();
        all.sort_by_key(|watched| watched.worker);
        all
    }

    /// The process as the kernel sees it.
    ///
    /// # Errors
    /// /proc can't be read.
    pub fn process(&self) -> io::Result<ProcessUse> {
        ProcessUse::read()
    }

    /// The last stalls of all workers, oldest first.
    pub fn stalls(&self) -> Vec<WorkerStall> {
        let mut all = Vec::new();
        for WatchedEntry { watched, .. } in self.shared.entries().iter() {
            let busy = watched.probe.busy_since();
            all.extend(watched.recorder.stalls().list().into_iter().map(|stall| WorkerStall {
                worker: watched.worker,
                ongoing: busy != 0 && busy == stall.start,
                stall,
            }));
        }
        all.sort_by_key(|stall| stall.stall.start);
        all
    }

    /// Why there are no CPU samples, if there should be some: another profiler, no timers.
    pub fn refused(&self) -> Option<String> {
        lock(&self.shared.refused).clone()
    }
}

/// Samples of a stretch of time; ends when dropped.
pub struct StackCollection {
    shared: &'static HousekeepingShared,
    tally: Arc<Mutex<StackTally>>,
}

impl StackCollection {
    /// The stacks that were collected so far, with how often each was seen.
    pub fn profile(&self) -> StackProfile {
        self.shared.gather();
        lock(&self.tally).profile()
    }
}

impl Drop for StackCollection {
    fn drop(&mut self) {
        let source = lock(&self.tally).end();
        self.shared.rearm(source);
    }
}

impl HousekeepingShared {
    /// The thread's life.
    fn run(&self) -> ! {
        weir_rt::process::set_timer_slack(SLACK_NS);
        let (mut second, mut minute) = (Instant::now(), Instant::now());
        let (mut before, mut drained) = (Instant::now(), Instant::now());
        let mut idle = SETTLED;
        loop {
            let entries = self.entries();
            let settings = *lock(&self.settings);
            self.account(&entries, &mut before);
            let next = lock(&self.watchdog).look(&entries, settings.blocked);
            let full = drain_every(settings.cpu_hz);
            if next.asked || drained.elapsed() >= full || lock(&self.stacks).is_collecting() {
                if next.asked {
                    std::thread::sleep(HANDLED);
                }
                drained = Instant::now();
                self.gather();
            }
            if second.elapsed() >= SECOND {
                second = Instant::now();
                clock::scale().recalibrate();
                unwind::refresh();
                if lock(&self.stacks).expire() {
                    [SampleSource::Cpu, SampleSource::Wall, SampleSource::Alloc]
                        .into_iter()
                        .for_each(|source| self.rearm(source));
                }
            }
            if minute.elapsed() >= 60 * SECOND {
                minute = Instant::now();
                self.forgive(&entries);
            }
            let collecting = lock(&self.stacks).is_collecting();
            match next.quiet && !collecting {
                true => {
                    sampler::doze(std::mem::replace(&mut idle, IDLE), || {
                        entries.iter().all(|entry| !entry.is_busy())
                    });
                }
                false if collecting => std::thread::sleep(next.wait.min(COLLECTING)),
                false => std::thread::sleep(next.wait.min(full)),
            }
        }
    }

    fn entries(&self) -> Arc<[WatchedEntry]> {
        lock(&self.watched).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<WatchedEntry>)) {
        let mut watched = lock(&self.watched);
        let mut entries = watched.to_vec();
        change(&mut entries);
        *watched = entries.into();
    }

    /// Adds connections times time.
    fn account(&self, entries: &[WatchedEntry], before: &mut Instant) {
        // Loops that slept all the time did not change theirs, however long we slept.
        let ms = before.elapsed().as_millis() as u64;
        *before += Duration::from_millis(ms);
        for entry in entries {
            let sum = entry.connection_ms.load(Relaxed) + entry.watched.counters.active.get() * ms;
            entry.connection_ms.store(sum, Relaxed);
        }
    }

    /// Takes the samples out of the rings, and shows them to the watchdog.
    fn gather(&self) {
        let entries = self.entries();
        let mut stacks = lock(&self.stacks);
        let mut watchdog = lock(&self.watchdog);
        for entry in entries.iter() {
            entry.watched.probe.drain(|sample| {
                stacks.add(entry.watched.worker, sample);
                watchdog.sampled(entry, sample);
            });
        }
    }

    /// Samples a second for `source`, as settings and collections have it.
    fn rate(&self, source: SampleSource) -> u32 {
        let wanted = lock(&self.stacks).rate(source);
        match source {
            SampleSource::Cpu => wanted.max(lock(&self.settings).cpu_hz),
            SampleSource::Wall | SampleSource::Asked | SampleSource::Alloc | SampleSource::Switched => wanted,
        }
    }

    fn rearm(&self, source: SampleSource) {
        let rate = self.rate(source);
        if source == SampleSource::Alloc {
            return sampler::sample_allocations(rate > 0);
        }
        for entry in self.entries().iter() {
            // One that ended meanwhile has no timers any more.
            let _ = entry.watched.probe.arm(source, rate);
        }
    }

    fn arm(&self, probe: &ThreadProbe, settings: HousekeepingSettings) {
        probe.set_limit_ns(settings.blocked.map_or(u64::MAX, |limit| limit.as_nanos() as u64));
        for source in [SampleSource::Cpu, SampleSource::Wall] {
            match probe.arm(source, self.rate(source)) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(ESRCH) => {}
                Err(error) => self.refuse(&error),
            }
        }
    }

    /// Logged once: a server without profiles serves all the same.
    fn refuse(&self, error: &io::Error) {
        let mut refused = lock(&self.refused);
        if refused.is_none() {
            log::cycle(LogLevel::Warn, &format_args!("no CPU samples: {error}"));
            *refused = Some(error.to_string());
        }
    }

    /// A fault now and then is forgotten; a worker whose walks fault again and again is no longer walked.
    fn forgive(&self, entries: &[WatchedEntry]) {
        for WatchedEntry { watched, .. } in entries {
            match watched.probe.faults() {
                0 => {}
                faults if faults < sampler::MAX_FAULTS => watched.probe.forgive(),
                faults => self.refuse(&io::Error::other(format!("{faults} faults in a minute"))),
            }
        }
    }
}

impl WatchedEntry {
    fn is_busy(&self) -> bool {
        self.watched.probe.busy_since() != 0
    }

    /// The stack that was taken in the turn that lasts.
    fn stack_of_turn(&self) -> Option<StackSample> {
        let (probe, stalls) = (self.watched.probe, self.watched.recorder.stalls().list());
        let busy = probe.busy_since();
        let lasts = |stall: &&LoopStall| busy != 0 && stall.start == busy && !stall.sample.frames.is_empty();
        stalls.iter().rev().find(lasts).map(|stall| StackSample {
            time: stall.sample.time,
            source: SampleSource::Asked,
            place: SitePlace { site: stall.sample.site.0, route: stall.route.0 },
            request: stall.sample.request.0,
            vm_state: stall.sample.vm_state,
            frames: stall.sample.frames.clone(),
            ..StackSample::default()
        })
    }

    fn view(&self, now: u64) -> WorkerView {
        let WatchedWorker { probe, worker, recorder, counters, stats, .. } = &self.watched;
        let SitePlace { site, route } = probe.current().place();
        let busy = match probe.busy_since() {
            0 => None,
            since => Some(Duration::from_nanos(clock::scale().ticks_to_ns(now.saturating_sub(since)))),
        };
        WorkerView {
            worker: *worker,
            thread: ThreadUse::read(probe.tid()).ok(),
            turns: stats.snapshot(),
            busy,
            place: (Site(site), Site(route)),
            connections: counters.active.get(),
            connection_ms: self.connection_ms.load(Relaxed),
            watched: self.since.elapsed(),
            samples_lost: probe.lost(),
            stalls: recorder.stalls().count(),
        }
    }
}

/// Half the time in which samples of the deepest stacks fill a ring.
fn drain_every(hz: u32) -> Duration {
    SECOND * 60 / hz.max(60)
}

/// The state a panicking thread leaves is consistent: nothing here is changed in two steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long after a worker is asked its sample is in the ring (measured: 0.1 ms; later if it can't take signals).
const HANDLED: Duration = Duration::from_micros(500);
/// How late a look may be: it then rides on a tick of the kernel that a loop under load has anyway. An interrupt of its
/// own is dear in a guest (15 µs measured, against 2 for the look).
const SLACK_NS: u32 = 4_000_000;
const SECOND: Duration = Duration::from_secs(1);
/// How long after its start a server that has nothing to do reads how stacks go through its libraries.
const SETTLED: Duration = SECOND;
/// How long it sleeps while all loops do.
const IDLE: Duration = Duration::from_secs(10);
/// How often rings are emptied while samples are collected: at 10 kHz they are full after 45 ms.
const COLLECTING: Duration = Duration::from_millis(20);
/// The highest rate: a sample of 15 to 20 µs (measured in a guest) is then a fifth of the time.
const MAX_HZ: u32 = 10_000;
const ESRCH: i32 = 3;
