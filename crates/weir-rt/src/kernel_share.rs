//! What the kernel does for sockets, as a price of each thing it does: so that requests are charged with their part of
//! calls that the loop makes for many of them, without a clock beside each call.
//!
//! Each socket has an account ([`SocketSlot::kernel`](crate::socket::SocketSlot)). What is received, sent, accepted or
//! sealed adds its price to it, and a request that ends takes what is there ([`Stream::take_kernel`](crate::Stream)). In
//! one of [`APART`] turns the thread's CPU clock is read around all that the driver does, and the prices are corrected
//! by what that turn took beside what they said it would: those most that the turn had most of. So a common turn reads no clock
//! and makes no system call more.

use std::cell::{Cell, RefCell};

use crate::clock;

/// What has a price.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum KernelWork {
    /// A wait for events, with all that is submitted by it; shared by the events that end it.
    Wait,
    /// A receive that brought bytes or an end.
    Receive,
    /// A byte received.
    ReceivedByte,
    /// A send.
    Send,
    /// A byte sent.
    SentByte,
    /// A connection, from accept(2) or connect(2) to close(2).
    Connection,
    /// A pass of bytes through the socket's layer (TLS).
    Layer,
    /// A byte through it.
    LayerByte,
}

const KINDS: usize = 8;

/// The prices of a worker's loop, and how often each was due.
pub(crate) struct KernelMeter {
    /// Ticks; of bytes in 2⁻¹⁶ ticks.
    prices: [Cell<u32>; KINDS],
    counts: [Cell<u32>; KINDS],
    /// Each event's part of this turn's wait, in ticks.
    share: Cell<u32>,
    /// Parts of waits that are the next connection's.
    owed: Cell<u32>,
    /// Turns until the next look.
    until: Cell<u32>,
    measures: Cell<MeterState>,
    learnt: RefCell<LearntPrices>,
}

/// Whether the loop's turn is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MeterState {
    Off,
    /// It is.
    On,
    /// It is, and the driver is at work.
    Inside,
}

/// When a stretch of the driver's work began, by the thread's CPU clock in nanoseconds; 0: it is not measured.
#[must_use]
pub(crate) struct KernelStretch(u64);

/// What is needed in a turn that is measured only.
struct LearntPrices {
    /// Nanoseconds.
    prices: [f64; KINDS],
    /// The counts when the turn began.
    before: [u32; KINDS],
    /// Measured in this turn, in nanoseconds.
    turn_ns: u64,
    /// What a turn is expected to take, fading, in nanoseconds.
    usual: f64,
    /// By what factor the prices are wrong in sum.
    correction: f64,
    turns: u32,
    random: u32,
    /// What a stretch of nothing takes by the clock, in nanoseconds.
    clock_ns: u64,
}

impl KernelMeter {
    pub(crate) fn new() -> KernelMeter {
        let meter = KernelMeter {
            prices: Default::default(),
            counts: Default::default(),
            share: Cell::new(0),
            owed: Cell::new(0),
            until: Cell::new(1),
            measures: Cell::new(MeterState::Off),
            learnt: RefCell::new(LearntPrices::new()),
        };
        meter.publish(&meter.learnt.borrow());
        meter
    }

    /// A turn begins: the driver has waited, submitting what was to be sent, and what came is about to be handled. What is to be
    /// sent of that belongs to the turn with the wait after it.
    #[inline]
    pub(crate) fn turn(&self) {
        let until = self.until.get() - 1;
        self.until.set(until);
        if until == 0 {
            self.look();
        }
    }

    /// The driver begins to work. What begins inside of another stretch is that one's.
    #[inline(always)]
    pub(crate) fn begin(&self) -> KernelStretch {
        KernelStretch(if self.measures.get() == MeterState::On { self.enter() } else { 0 })
    }

    /// What began with `stretch` ends.
    #[inline(always)]
    pub(crate) fn end(&self, stretch: KernelStretch) {
        if stretch.0 != 0 {
            self.took(&stretch);
        }
    }

    /// A stretch from the beginning of `f` to its end.
    #[inline(always)]
    pub(crate) fn measure<R>(&self, f: impl FnOnce() -> R) -> R {
        let stretch = self.begin();
        let result = f();
        self.end(stretch);
        result
    }

    #[cold]
    #[inline(never)]
    fn enter(&self) -> u64 {
        self.measures.set(MeterState::Inside);
        clock_now()
    }

    #[cold]
    #[inline(never)]
    fn took(&self, stretch: &KernelStretch) {
        self.measures.set(MeterState::On);
        let mut learnt = self.learnt.borrow_mut();
        let ns = clock_now().saturating_sub(stretch.0).saturating_sub(learnt.clock_ns);
        learnt.turn_ns += ns;
    }

    /// The wait has ended, with this many events.
    #[inline]
    pub(crate) fn waited(&self, events: usize) {
        self.count(KernelWork::Wait, 1);
        self.share.set(self.price(KernelWork::Wait) / (events as u32).max(1));
    }

    /// What an event of this turn has to pay of the wait, in ticks.
    #[inline]
    pub(crate) fn event(&self) -> u32 {
        self.share.get()
    }

    /// The event is a connection to be accepted, which has no account yet.
    pub(crate) fn owe(&self) {
        self.owed.set(self.owed.get().saturating_add(self.event()));
    }

    /// A receive of so many bytes; its price in ticks.
    #[inline]
    pub(crate) fn receive(&self, bytes: usize) -> u32 {
        self.one(KernelWork::Receive, KernelWork::ReceivedByte, bytes)
    }

    /// A send of so many bytes; its price in ticks.
    #[inline]
    pub(crate) fn send(&self, bytes: usize) -> u32 {
        self.one(KernelWork::Send, KernelWork::SentByte, bytes)
    }

    /// So many bytes go through a layer; the price in ticks.
    pub(crate) fn layer(&self, bytes: usize) -> u32 {
        self.one(KernelWork::Layer, KernelWork::LayerByte, bytes)
    }

    /// A connection; its price in ticks.
    pub(crate) fn connection(&self) -> u32 {
        self.count(KernelWork::Connection, 1);
        self.price(KernelWork::Connection).saturating_add(self.owed.take())
    }

    /// What it will take to send so many bytes, at least one, in ticks.
    #[inline]
    pub(crate) fn ahead(&self, bytes: u64, through_layer: bool) -> u64 {
        let of = |once, each| u64::from(self.price(once)) + self.bytes(each, bytes);
        let send = of(KernelWork::Send, KernelWork::SentByte);
        if through_layer { send + of(KernelWork::Layer, KernelWork::LayerByte) } else { send }
    }

    #[inline(always)]
    fn one(&self, once: KernelWork, each: KernelWork, bytes: usize) -> u32 {
        self.count(once, 1);
        self.count(each, bytes as u32);
        self.price(once).saturating_add(self.bytes(each, bytes as u64) as u32)
    }

    #[inline(always)]
    fn bytes(&self, each: KernelWork, bytes: u64) -> u64 {
        (bytes * u64::from(self.price(each))) >> BYTE_BITS
    }

    #[inline(always)]
    fn count(&self, kind: KernelWork, times: u32) {
        let count = &self.counts[kind as usize];
        count.set(count.get().wrapping_add(times));
    }

    #[inline(always)]
    fn price(&self, kind: KernelWork) -> u32 {
        self.prices[kind as usize].get()
    }

    /// A turn is to be measured, or was.
    #[cold]
    #[inline(never)]
    fn look(&self) {
        let mut learnt = self.learnt.borrow_mut();
        let counts = self.counts.each_ref().map(Cell::get);
        if self.measures.replace(MeterState::Off) != MeterState::Off {
            learnt.learn(&counts);
            self.publish(&learnt);
            self.until.set(learnt.pause());
        } else {
            (learnt.before, learnt.turn_ns) = (counts, 0);
            learnt.time_clock();
            self.measures.set(MeterState::On);
            self.until.set(1);
        }
    }

    /// Sets the prices in use to what is known.
    fn publish(&self, learnt: &LearntPrices) {
        let scale = clock::scale();
        for (at, (price, ns)) in self.prices.iter().zip(learnt.prices).enumerate() {
            // Of a nanosecond there are hardly three ticks: in finer parts.
            let ticks = scale.ns_to_ticks((ns * learnt.correction * FINE) as u64);
            let ticks = if IS_BYTE[at] { (ticks << BYTE_BITS) / FINE as u64 } else { ticks / FINE as u64 };
            price.set(u32::try_from(ticks).unwrap_or(u32::MAX));
        }
    }
}

impl LearntPrices {
    fn new() -> LearntPrices {
        let mut learnt = LearntPrices {
            prices: FIRST_NS,
            before: [0; KINDS],
            turn_ns: 0,
            usual: 0.0,
            correction: 1.0,
            turns: 0,
            random: 0x9E37_79B9,
            clock_ns: 0,
        };
        learnt.time_clock();
        learnt
    }

    /// What a stretch of nothing takes, as it is found where others were at work: the second of two.
    fn time_clock(&mut self) {
        let (_, began) = (clock_now(), clock_now());
        let ns = clock_now().saturating_sub(began);
        self.clock_ns =
            if self.clock_ns == 0 { ns } else { (7 * self.clock_ns + ns.min(4 * self.clock_ns)) / 8 };
    }

    /// The turn that was measured had so much of each, counted from the beginning.
    fn learn(&mut self, counts: &[u32; KINDS]) {
        let had: [f64; KINDS] = std::array::from_fn(|at| f64::from(counts[at].wrapping_sub(self.before[at])));
        let expected: f64 = had.iter().zip(self.prices).map(|(had, price)| had * price).sum();
        // No clock, or a turn that was all in a request's own time.
        if self.turn_ns == 0 || expected <= 0.0 {
            return;
        }
        self.turns = self.turns.saturating_add(1);
        // A turn in which the processor's cache was somebody else's, or the clock stood: not believed as a whole.
        let measured = (self.turn_ns as f64).clamp(expected / FAR, expected * FAR);
        self.usual += (expected - self.usual) / FADING.min(f64::from(self.turns));
        // The sum comes right whatever the turns are like: large ones count for more.
        let wrong = measured - self.correction * expected;
        self.correction =
            (self.correction + wrong / (self.usual.max(expected / FADING) * FADING)).clamp(0.25, 4.0);
        let weights: [f64; KINDS] = std::array::from_fn(|at| self.prices[at] * self.prices[at] * had[at]);
        let norm: f64 = weights.iter().zip(had).map(|(weight, had)| weight * had).sum();
        let error = measured / self.correction - expected;
        for at in 0..KINDS {
            let price = self.prices[at] + STEP * error * weights[at] / norm;
            self.prices[at] = price.clamp(FIRST_NS[at] / FURTHEST, FIRST_NS[at] * FURTHEST);
        }
    }

    /// Turns until the next one is measured: no rhythm of the load is followed.
    fn pause(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let apart = if self.turns < HASTY { APART / 16 } else { APART };
        1 + self.random % (2 * apart - 1)
    }
}

thread_local! {
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Whether what this thread does from here on counts as the run of a request: what the kernel does then is in there, and is not
/// charged besides. Until it is set again.
#[inline]
pub fn set_request_runs(runs: bool) {
    // Not `LocalKey::set`, which is no inline function.
    RUNS.with(|cell| cell.set(runs));
}

/// What was set last by [`set_request_runs`].
#[inline]
pub(crate) fn request_runs() -> bool {
    RUNS.with(Cell::get)
}

fn clock_now() -> u64 {
    clock::thread_cpu_ns()
}

/// One of so many turns is measured.
const APART: u32 = 64;
/// Measured turns after which prices are no guess any more.
const HASTY: u32 = 64;
/// A measured turn corrects the prices by this part of what they were wrong.
const STEP: f64 = 0.1;
/// Measured turns that the sum's correction is made of, about.
const FADING: f64 = 64.0;
/// A turn is believed up to so many times what was expected.
const FAR: f64 = 8.0;
/// A price is at most so many times the first one, and at least that part of it.
const FURTHEST: f64 = 32.0;
const BYTE_BITS: u32 = 16;
/// Parts of a nanosecond in which prices are converted.
const FINE: f64 = 65_536.0;
/// Nanoseconds, as measured on a virtual machine over the loopback interface, by [`KernelWork`].
const FIRST_NS: [f64; KINDS] = [1_000.0, 700.0, 0.1, 3_000.0, 0.15, 9_000.0, 500.0, 0.3];
const IS_BYTE: [bool; KINDS] = [false, false, true, false, true, false, false, true];

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: [f64; KINDS] = [2_500.0, 400.0, 0.05, 5_000.0, 0.3, 20_000.0, 900.0, 0.5];

    /// Turns with `had` of each take what they take in [`WORLD`].
    fn live(learnt: &mut LearntPrices, turns: u32, had: impl Fn(u32) -> [u32; KINDS]) {
        for turn in 0..turns {
            let had = had(turn);
            learnt.before = [u32::MAX - 3; KINDS];
            learnt.turn_ns = had.iter().zip(WORLD).map(|(had, ns)| f64::from(*had) * ns).sum::<f64>() as u64;
            learnt.learn(&had.map(|had| had.wrapping_add(u32::MAX - 3)));
        }
    }

    fn told(learnt: &LearntPrices, had: [u32; KINDS]) -> f64 {
        had.iter().zip(learnt.prices).map(|(had, price)| f64::from(*had) * price * learnt.correction).sum()
    }

    fn takes(had: [u32; KINDS]) -> f64 {
        had.iter().zip(WORLD).map(|(had, price)| f64::from(*had) * price).sum()
    }

    #[test]
    fn one_kind_of_turn_is_learnt_as_a_whole() {
        let mut learnt = LearntPrices::new();
        let had = [1, 8, 800, 8, 2_000, 0, 0, 0];
        live(&mut learnt, 300, |_| had);
        let ratio = told(&learnt, had) / takes(had);
        assert!((0.98..1.02).contains(&ratio), "{ratio}");
    }

    #[test]
    fn different_turns_tell_the_kinds_apart() {
        let mut learnt = LearntPrices::new();
        let kinds = [
            [1, 1, 100, 1, 300, 0, 0, 0],
            [1, 20, 2_000, 20, 6_000, 0, 0, 0],
            [1, 2, 200, 4, 1 << 20, 0, 0, 0],
            [1, 4, 300, 3, 900, 3, 0, 0],
            [1, 40, 160_000, 0, 0, 0, 0, 0],
            [1, 5, 500, 5, 80_000, 0, 10, 80_000],
        ];
        live(&mut learnt, 6_000, |turn| kinds[turn as usize % kinds.len()]);
        for had in kinds {
            let ratio = told(&learnt, had) / takes(had);
            assert!((0.8..1.25).contains(&ratio), "{had:?}: {ratio}");
        }
    }

    #[test]
    fn no_clock_leaves_the_first_prices() {
        let mut learnt = LearntPrices::new();
        for _ in 0..100 {
            learnt.turn_ns = 0;
            learnt.learn(&[1; KINDS]);
        }
        assert_eq!((learnt.prices, learnt.correction, learnt.turns), (FIRST_NS, 1.0, 0));
    }

    #[test]
    fn one_turn_that_was_far_too_long_changes_little() {
        let mut learnt = LearntPrices::new();
        let had = [1, 8, 800, 8, 2_000, 0, 0, 0];
        live(&mut learnt, 300, |_| had);
        let before = told(&learnt, had);
        (learnt.before, learnt.turn_ns) = ([0; KINDS], 3_000_000_000);
        learnt.learn(&had);
        assert!(told(&learnt, had) < 1.8 * before);
        live(&mut learnt, 300, |_| had);
        let ratio = told(&learnt, had) / takes(had);
        assert!((0.95..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn turns_are_measured_now_and_then_and_never_two_in_a_row() {
        let meter = KernelMeter::new();
        let measured: Vec<bool> = (0..20_000)
            .map(|_| {
                meter.turn();
                let stretch = meter.begin();
                let is_measured = stretch.0 != 0;
                assert_eq!(meter.begin().0, 0, "inside of another");
                meter.end(stretch);
                is_measured
            })
            .collect();
        let count = measured.iter().filter(|measured| **measured).count();
        assert!((20_000 / 200..20_000 / 4).contains(&count), "{count}");
        assert!(measured.windows(2).all(|two| two != [true, true]));
    }

    #[test]
    fn prices_are_in_ticks_and_counts_wrap() {
        let meter = KernelMeter::new();
        meter.counts.iter().for_each(|count| count.set(u32::MAX));
        let scale = clock::scale();
        let near = |ticks: u64, ns: u64| scale.ticks_to_ns(ticks).abs_diff(ns) <= ns / 10 + 2;
        assert!(near(meter.receive(0).into(), 700));
        assert!(near(meter.send(1 << 20).into(), 3_000 + 157_286));
        assert!(near(meter.ahead(1 << 20, true), 3_000 + 157_286 + 500 + 314_572));
        meter.waited(4);
        assert!(near(meter.event().into(), 250));
        meter.waited(0);
        assert!(near(meter.event().into(), 1_000));
        assert_eq!(meter.counts[KernelWork::Wait as usize].get(), 1);
    }
}
