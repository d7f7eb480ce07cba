//! Samples added up by stack: of the last two minutes by the second, and for a caller that collects.
//!
//! Bounded in every direction: at most this many different stacks are held; when there is no room, a sample counts for
//! its place without frames, so that sums stay right.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use weir_rt::clock;
use weir_rt::sampler::{SampleSource, SitePlace, StackSample};
use weir_trace::Site;

/// A stack that was seen, and where the engine was then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SampledStack {
    /// The worker's number, counted from 0.
    pub worker: u16,
    /// The innermost phase, handler, filter or step; [`Site::NONE`] between those.
    pub site: Site,
    /// The location; [`Site::NONE`] where none is known.
    pub route: Site,
    /// True when the loop was waiting for events.
    pub parked: bool,
    /// True when outer frames are missing: the stack was too deep.
    pub truncated: bool,
    /// State of the Lua VM; 0 outside of Lua.
    pub vm_state: u8,
    /// Frames, innermost first; see [`weir_rt::sampler::StackFrame`]. Empty if there was no room for another stack.
    pub frames: Vec<u64>,
}

/// How often a stack was seen, and how much time the samples represent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackWeight {
    /// How many samples showed the stack.
    pub samples: u64,
    /// Nanoseconds that these samples represent.
    pub ns: u64,
}

/// The stacks that were sampled during a stretch of time.
#[derive(Clone, Debug)]
pub struct StackProfile {
    /// What was sampled: CPU time or real time.
    pub source: SampleSource,
    /// When it begins, milliseconds since 1970.
    pub unix_ms: u64,
    /// How long the stretch was.
    pub duration: Duration,
    /// Nanoseconds between two samples as asked for; 0 if several rates are mixed.
    pub period_ns: u64,
    /// The stacks, heaviest first.
    pub stacks: Vec<(Arc<SampledStack>, StackWeight)>,
}

/// Everything held.
#[derive(Default)]
pub(super) struct SampledStacks {
    known: HashSet<Arc<SampledStack>>,
    /// Words of frames in `known`.
    words: usize,
    /// When room was last made: trying it for every sample would take longer than sampling.
    swept: Option<Instant>,
    seconds: VecDeque<SampledSecond>,
    collections: Vec<Weak<Mutex<StackTally>>>,
    /// The last stack that was asked for, by worker.
    asked: HashMap<u16, StackSample>,
    /// Stacks after switches, by worker, while they are recorded.
    switched: Option<Vec<(u16, StackSample)>>,
    /// Used again for each sample.
    scratch: SampledStack,
}

/// CPU samples of one second.
struct SampledSecond {
    /// Which one, of the monotonic clock.
    number: u64,
    counts: StackCounts,
}

type StackCounts = HashMap<ByAddress, StackWeight>;

impl SampledStacks {
    /// Counts a sample.
    pub(super) fn add(&mut self, worker: u16, sample: &StackSample) {
        if sample.source == SampleSource::Asked {
            // It represents no time: the watchdog's, or a query's for where a worker is.
            self.asked.insert(worker, sample.clone());
            return;
        }
        if sample.source == SampleSource::Switched {
            if let Some(switched) = self.switched.as_mut().filter(|switched| switched.len() < SWITCHED) {
                switched.push((worker, sample.clone()));
            }
            return;
        }
        let stack = ByAddress(self.intern(worker, sample));
        if sample.source == SampleSource::Cpu {
            let number = second_of(sample.time);
            if self.seconds.back().is_none_or(|second| second.number < number) {
                self.seconds.push_back(SampledSecond { number, counts: StackCounts::new() });
                self.forget(number);
            }
            // Of several workers' rings one may be drained a little later than the other.
            let second = self.seconds.iter_mut().rev().find(|second| second.number <= number);
            if let Some(second) = second {
                count(&mut second.counts, &stack, sample.weight_ns);
            }
        }
        for tally in &self.collections {
            if let Some(tally) = tally.upgrade() {
                super::lock(&tally).add(&stack, sample);
            }
        }
    }

    /// What was counted in the last `last`, whole seconds.
    pub(super) fn last(&self, source: SampleSource, last: Duration) -> StackProfile {
        let now = second_of(clock::ticks());
        let first = now.saturating_sub(last.as_secs().clamp(1, WINDOW));
        let mut sum = StackCounts::new();
        for second in self.seconds.iter().filter(|second| second.number >= first) {
            for (stack, weight) in &second.counts {
                let total = sum.entry(stack.clone()).or_default();
                total.samples += weight.samples;
                total.ns += weight.ns;
            }
        }
        let duration = Duration::from_secs(now - first);
        StackProfile {
            source,
            unix_ms: unix_ms().saturating_sub(duration.as_millis() as u64),
            duration,
            period_ns: period(sum.values()),
            stacks: sorted(&sum),
        }
    }

    /// The last stack that a worker was asked for, if that was taken at `since` or later.
    pub(super) fn asked(&self, worker: u16, since: u64) -> Option<StackSample> {
        self.asked.get(&worker).filter(|sample| sample.time >= since).cloned()
    }

    /// Keeps stacks after switches from now on; `false` if another caller has it do so.
    pub(super) fn keep_switched(&mut self) -> bool {
        let begins = self.switched.is_none();
        self.switched.get_or_insert_default();
        begins
    }

    /// Gives away those that have come, oldest first.
    pub(super) fn take_switched(&mut self) -> Vec<(u16, StackSample)> {
        self.switched.as_mut().map_or_else(Vec::new, std::mem::take)
    }

    /// Keeps no more.
    pub(super) fn forget_switched(&mut self) {
        self.switched = None;
    }

    /// Begins to collect.
    pub(super) fn collect(
        &mut self,
        source: SampleSource,
        hz: u32,
        limit: Duration,
    ) -> Arc<Mutex<StackTally>> {
        let tally = Arc::new(Mutex::new(StackTally {
            source,
            hz,
            limit,
            begin: Instant::now(),
            first_tick: clock::ticks(),
            unix_ms: unix_ms(),
            length: None,
            counts: StackCounts::new(),
        }));
        self.collections.push(Arc::downgrade(&tally));
        tally
    }

    /// Whether samples are collected.
    pub(super) fn is_collecting(&self) -> bool {
        !self.collections.is_empty()
    }

    /// Ends collections whose time is over; `true` if there was one.
    pub(super) fn expire(&mut self) -> bool {
        let before = self.collections.len();
        self.collections.retain(|tally| {
            tally.upgrade().is_some_and(|tally| {
                let mut tally = super::lock(&tally);
                if tally.begin.elapsed() >= tally.limit {
                    tally.end();
                }
                tally.length.is_none()
            })
        });
        before > self.collections.len()
    }

    /// The highest rate that a collection wants.
    pub(super) fn rate(&self, source: SampleSource) -> u32 {
        let tallies = self.collections.iter().filter_map(Weak::upgrade);
        let rates = tallies.map(|tally| super::lock(&tally).rate(source));
        rates.max().unwrap_or(0)
    }

    /// The one copy of the sample's stack.
    fn intern(&mut self, worker: u16, sample: &StackSample) -> Arc<SampledStack> {
        let SitePlace { site, route } = sample.place;
        let scratch = &mut self.scratch;
        (scratch.worker, scratch.site, scratch.route) = (worker, Site(site), Site(route));
        (scratch.parked, scratch.truncated) = (sample.parked, sample.truncated);
        scratch.vm_state = sample.vm_state;
        scratch.frames.clear();
        scratch.frames.extend_from_slice(&sample.frames);
        if let Some(known) = self.known.get(scratch) {
            return known.clone();
        }
        if self.is_full() && self.swept.is_none_or(|swept| swept.elapsed() >= Duration::from_secs(1)) {
            self.sweep();
        }
        if self.is_full() {
            self.scratch.frames.clear();
            self.scratch.truncated = true;
        }
        let new = Arc::new(self.scratch.clone());
        if !new.frames.is_empty() {
            self.words += new.frames.len();
            self.known.insert(new.clone());
        }
        new
    }

    fn is_full(&self) -> bool {
        self.known.len() >= STACKS || self.words + self.scratch.frames.len() > WORDS
    }

    /// Drops stacks that are not counted any more.
    fn sweep(&mut self) {
        self.swept = Some(Instant::now());
        self.known.retain(|stack| Arc::strong_count(stack) > 1);
        self.words = self.known.iter().map(|stack| stack.frames.len()).sum();
    }

    fn forget(&mut self, now: u64) {
        while self.seconds.front().is_some_and(|second| second.number + WINDOW < now) {
            self.seconds.pop_front();
        }
    }
}

/// What one collector has so far.
pub(super) struct StackTally {
    source: SampleSource,
    hz: u32,
    limit: Duration,
    begin: Instant,
    first_tick: u64,
    unix_ms: u64,
    /// Set when it is over.
    length: Option<Duration>,
    counts: StackCounts,
}

impl StackTally {
    fn add(&mut self, stack: &ByAddress, sample: &StackSample) {
        if self.length.is_none() && sample.source == self.source && sample.time >= self.first_tick {
            count(&mut self.counts, stack, sample.weight_ns);
        }
    }

    fn rate(&self, source: SampleSource) -> u32 {
        if self.length.is_none() && self.source == source { self.hz } else { 0 }
    }

    /// No more from here on; gives what was collected from.
    pub(super) fn end(&mut self) -> SampleSource {
        let elapsed = self.begin.elapsed();
        self.length.get_or_insert(elapsed.min(self.limit));
        self.source
    }

    pub(super) fn profile(&self) -> StackProfile {
        StackProfile {
            source: self.source,
            unix_ms: self.unix_ms,
            duration: self.length.unwrap_or_else(|| self.begin.elapsed()),
            period_ns: period(self.counts.values()),
            stacks: sorted(&self.counts),
        }
    }
}

/// A stack compared by where it lies: there is one copy of each.
#[derive(Clone)]
struct ByAddress(Arc<SampledStack>);

impl PartialEq for ByAddress {
    fn eq(&self, other: &ByAddress) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.frames.is_empty() && self.0 == other.0
    }
}

impl Eq for ByAddress {}

impl Hash for ByAddress {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Those without frames are not interned.
        if self.0.frames.is_empty() {
            self.0.hash(state);
        } else {
            Arc::as_ptr(&self.0).hash(state);
        }
    }
}

fn count(counts: &mut StackCounts, stack: &ByAddress, ns: u64) {
    if let Some(weight) = counts.get_mut(stack) {
        weight.samples += 1;
        weight.ns += ns;
    } else {
        counts.insert(stack.clone(), StackWeight { samples: 1, ns });
    }
}

fn sorted(counts: &StackCounts) -> Vec<(Arc<SampledStack>, StackWeight)> {
    let mut all: Vec<_> = counts.iter().map(|(stack, weight)| (stack.0.clone(), *weight)).collect();
    all.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then_with(|| a.0.frames.cmp(&b.0.frames)));
    all
}

/// The mean time, in nanoseconds, that a sample represents.
fn period<'w>(weights: impl Iterator<Item = &'w StackWeight>) -> u64 {
    let (samples, ns) = weights.fold((0, 0), |(n, ns), weight| (n + weight.samples, ns + weight.ns));
    ns.checked_div(samples).unwrap_or(0)
}

/// Which second of the stamps' clock.
fn second_of(ticks: u64) -> u64 {
    clock::scale().ticks_to_ns(ticks) / 1_000_000_000
}

fn unix_ms() -> u64 {
    let (seconds, ms) = clock::unix_time();
    seconds * 1000 + u64::from(ms)
}

/// Seconds that are retained.
const WINDOW: u64 = 120;
/// Different stacks held: addresses differ, so nearly every sample of two minutes may have a stack of its own.
const STACKS: usize = 32_768;
/// Words of frames held: 8 MB.
const WORDS: usize = 1 << 20;
/// Stacks after switches that wait to be taken: many more than come between two looks.
const SWITCHED: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(frames: &[u64], source: SampleSource) -> StackSample {
        StackSample {
            time: clock::ticks(),
            source,
            weight_ns: 10,
            place: SitePlace { site: 70, route: 71 },
            frames: frames.to_vec(),
            ..StackSample::default()
        }
    }

    fn frames_of(profile: &StackProfile) -> Vec<(Vec<u64>, u64, u64)> {
        let stacks = profile.stacks.iter();
        stacks.map(|(stack, weight)| (stack.frames.clone(), weight.samples, weight.ns)).collect()
    }

    #[test]
    fn equal_stacks_are_counted_together() {
        let mut stacks = SampledStacks::default();
        for frames in [&[1, 2][..], &[1, 3], &[1, 2]] {
            stacks.add(0, &sample(frames, SampleSource::Cpu));
        }
        stacks.add(0, &sample(&[9], SampleSource::Asked));
        stacks.add(0, &sample(&[8], SampleSource::Wall));
        let profile = stacks.last(SampleSource::Cpu, Duration::from_secs(100));
        assert_eq!(frames_of(&profile), [(vec![1, 2], 2, 20), (vec![1, 3], 1, 10)]);
        let first = &profile.stacks[0].0;
        assert_eq!((first.site, first.route, profile.period_ns), (Site(70), Site(71), 10));
        stacks.add(1, &sample(&[1, 2], SampleSource::Cpu));
        let by_worker = stacks.last(SampleSource::Cpu, Duration::from_secs(100));
        assert_eq!(by_worker.stacks.len(), 3, "of another worker it is another stack");
    }

    #[test]
    fn a_collection_has_what_came_while_it_lasted() {
        let mut stacks = SampledStacks::default();
        stacks.add(0, &sample(&[1], SampleSource::Wall));
        let early = sample(&[2], SampleSource::Wall);
        let tally = stacks.collect(SampleSource::Wall, 200, Duration::from_secs(60));
        stacks.add(0, &early); // still in the ring when collecting began
        stacks.add(0, &sample(&[3], SampleSource::Wall));
        stacks.add(0, &sample(&[4], SampleSource::Cpu));
        assert_eq!((stacks.rate(SampleSource::Wall), stacks.rate(SampleSource::Cpu)), (200, 0));
        assert!(stacks.is_collecting() && !stacks.expire());
        super::super::lock(&tally).end();
        stacks.add(0, &sample(&[5], SampleSource::Wall));
        assert_eq!(stacks.rate(SampleSource::Wall), 0);
        assert_eq!(frames_of(&super::super::lock(&tally).profile()), [(vec![3], 1, 10)]);
        assert!(stacks.expire() && !stacks.is_collecting());
    }

    #[test]
    fn a_collection_ends_at_its_limit_or_with_its_collector() {
        let mut stacks = SampledStacks::default();
        let short = stacks.collect(SampleSource::Cpu, 99, Duration::ZERO);
        assert!(stacks.expire());
        assert_eq!(super::super::lock(&short).profile().duration, Duration::ZERO);
        drop(stacks.collect(SampleSource::Cpu, 99, Duration::from_secs(60)));
        assert!(stacks.expire() && !stacks.is_collecting());
    }

    #[test]
    fn memory_is_bounded_and_sums_stay_right() {
        let mut stacks = SampledStacks::default();
        let many = STACKS as u64 + 5_000;
        for n in 0..many {
            stacks.add(0, &sample(&[n], SampleSource::Cpu));
        }
        assert_eq!(stacks.known.len(), STACKS);
        let profile = stacks.last(SampleSource::Cpu, Duration::from_secs(120));
        assert_eq!(profile.stacks.iter().map(|(_, weight)| weight.samples).sum::<u64>(), many);
        let rest = profile.stacks.iter().find(|(stack, _)| stack.frames.is_empty()).expect("no room");
        assert_eq!((rest.1.samples, rest.0.site, rest.0.truncated), (5_000, Site(70), true));
        stacks.seconds.clear();
        stacks.swept = None;
        drop(profile);
        stacks.add(0, &sample(&[1 << 40], SampleSource::Cpu));
        assert_eq!(stacks.known.len(), 1, "what nobody counts makes room");
    }

    #[test]
    fn old_seconds_go() {
        let mut stacks = SampledStacks::default();
        let second = clock::scale().ns_to_ticks(1_000_000_000);
        let now = clock::ticks();
        for ago in (0..WINDOW + 50).rev() {
            let time = now + (WINDOW + 50 - ago) * second;
            stacks.add(0, &StackSample { time, ..sample(&[ago], SampleSource::Cpu) });
        }
        assert!(stacks.seconds.len() as u64 <= WINDOW + 1);
    }
}
