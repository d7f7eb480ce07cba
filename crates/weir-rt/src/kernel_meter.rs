//! What the kernel does for sockets, as a price of each thing it does: so that requests are charged with their part of
//! calls that the loop makes for many of them, without a clock beside each call.
//!
//! What is done for a socket is added to its debt ([`KernelDebt`]), and a request that ends takes what is there
//! ([`Stream::take_kernel`](crate::Stream)). In one of [`APART`] turns the thread's CPU clock is read around all that
//! the driver does, what it does is counted, and the prices are corrected ([`LearntPrices`]). So a common turn reads no
//! clock and makes no system call more.

use std::cell::{Cell, RefCell};

use crate::clock;
use crate::kernel_prices::LearntPrices;
use crate::kernel_work::{ChargeMode, KINDS, KernelDebt, KernelPrices, KernelWork, PRICE_BITS};

/// The prices of a worker's loop, and what a turn that is measured has of each kind.
pub(crate) struct KernelMeter {
    prices: KernelPrices,
    mode: Cell<ChargeMode>,
    counts: [Cell<u32>; KINDS],
    /// Turns until the next look.
    until: Cell<u32>,
    /// The driver is at work, in a turn that is measured.
    inside: Cell<bool>,
    learnt: RefCell<LearntPrices>,
}

/// When a stretch of the driver's work began, by the thread's CPU clock in nanoseconds; 0: it is not measured.
#[must_use]
pub(crate) struct KernelStretch(u64);

impl KernelMeter {
    pub(crate) fn new() -> KernelMeter {
        let meter = KernelMeter {
            prices: KernelPrices::default(),
            mode: Cell::new(ChargeMode::COMMON),
            counts: Default::default(),
            until: Cell::new(1),
            inside: Cell::new(false),
            learnt: RefCell::new(LearntPrices::new()),
        };
        meter.publish(&meter.learnt.borrow());
        meter
    }

    /// In force, by kind.
    #[inline(always)]
    pub(crate) fn prices(&self) -> &KernelPrices {
        &self.prices
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

    /// See [`request_runs`](crate::request_runs).
    #[inline(always)]
    pub(crate) fn set_runs(&self, runs: bool) {
        self.mode.set(self.mode.get().with_runs(runs));
    }

    /// The driver begins to work. What begins inside of another stretch is that one's.
    #[inline(always)]
    pub(crate) fn begin(&self) -> KernelStretch {
        KernelStretch(if self.mode.get().measures() { self.enter() } else { 0 })
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
        if self.mode.get().measures() { self.measured(f) } else { f() }
    }

    #[cold]
    #[inline(never)]
    fn measured<R>(&self, f: impl FnOnce() -> R) -> R {
        let stretch = self.begin();
        let result = f();
        self.end(stretch);
        result
    }

    #[cold]
    #[inline(never)]
    fn enter(&self) -> u64 {
        if self.inside.replace(true) { 0 } else { clock::thread_cpu_ns() }
    }

    #[cold]
    #[inline(never)]
    fn took(&self, stretch: &KernelStretch) {
        self.inside.set(false);
        self.learnt.borrow_mut().took(clock::thread_cpu_ns().saturating_sub(stretch.0));
    }

    /// The wait has ended, with this many events.
    #[inline]
    pub(crate) fn waited(&self, events: usize) {
        if self.mode.get().measures() {
            self.count(KernelWork::Wait, 1);
            self.count(KernelWork::Event, events as u32);
        }
    }

    /// An event is a socket's.
    #[inline(always)]
    pub(crate) fn event(&self, debt: &mut KernelDebt) {
        debt.add(self.prices.of(KernelWork::Event));
    }

    /// So many bytes are received for a socket.
    #[inline(always)]
    pub(crate) fn receive(&self, debt: &mut KernelDebt, bytes: usize) {
        self.charge(debt, KernelWork::Receive, KernelWork::ReceivedByte, bytes);
    }

    /// So many bytes are sent for a socket.
    #[inline(always)]
    pub(crate) fn send(&self, debt: &mut KernelDebt, bytes: usize) {
        self.charge(debt, KernelWork::Send, KernelWork::SentByte, bytes);
    }

    /// So many bytes are to be sent by the turn's system call, which is in no request's run.
    #[inline(always)]
    pub(crate) fn submit(&self, debt: &mut KernelDebt, bytes: usize) {
        debt.add(self.prices.with_bytes(KernelWork::Send, KernelWork::SentByte, bytes as u64));
        if self.mode.get().measures() {
            self.count_bytes(KernelWork::Send, KernelWork::SentByte, bytes);
        }
    }

    /// So many bytes go through a socket's layer.
    #[inline(always)]
    pub(crate) fn layer(&self, debt: &mut KernelDebt, bytes: usize) {
        self.charge(debt, KernelWork::Layer, KernelWork::LayerByte, bytes);
    }

    /// A socket is there.
    pub(crate) fn connection(&self, debt: &mut KernelDebt) {
        debt.add(self.prices.of(KernelWork::Connection));
        if self.mode.get().measures() {
            self.count(KernelWork::Connection, 1);
        }
    }

    #[inline(always)]
    fn charge(&self, debt: &mut KernelDebt, once: KernelWork, each: KernelWork, bytes: usize) {
        let mode = self.mode.get();
        if mode != ChargeMode::COMMON {
            if mode.measures() {
                self.count_bytes(once, each, bytes);
            }
            if mode.runs() {
                return;
            }
        }
        debt.add(self.prices.with_bytes(once, each, bytes as u64));
    }

    #[cold]
    #[inline(never)]
    fn count_bytes(&self, once: KernelWork, each: KernelWork, bytes: usize) {
        self.count(once, 1);
        self.count(each, bytes as u32);
    }

    fn count(&self, kind: KernelWork, times: u32) {
        let count = &self.counts[kind as usize];
        count.set(count.get().wrapping_add(times));
    }

    /// A turn is to be measured, or was.
    #[cold]
    #[inline(never)]
    fn look(&self) {
        let mut learnt = self.learnt.borrow_mut();
        let counts = self.counts.each_ref().map(Cell::take);
        let mode = self.mode.get();
        self.mode.set(mode.with_measures(!mode.measures()));
        if mode.measures() {
            learnt.learn(&counts);
            self.publish(&learnt);
            self.until.set(learnt.pause(APART));
        } else {
            learnt.begin();
            self.inside.set(false);
            self.until.set(1);
        }
    }

    /// Sets the prices in use to what is known.
    fn publish(&self, learnt: &LearntPrices) {
        let scale = clock::scale();
        // Of a nanosecond there are hardly three ticks: in finer parts.
        let ticks = |ns: f64| (scale.ns_to_ticks((ns * FINE) as u64) << PRICE_BITS) / FINE as u64;
        self.prices.set(learnt.in_force().map(ticks));
    }
}

/// One of so many turns is measured.
const APART: u32 = 64;
/// Parts of a nanosecond in which prices are converted.
const FINE: f64 = 65_536.0;

#[cfg(test)]
mod tests {
    use super::*;

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
    fn prices_are_in_ticks() {
        let meter = KernelMeter::new();
        let near = |debt: KernelDebt, ns: u64| {
            let priced = clock::scale().ticks_to_ns(debt.due(0));
            assert!(priced.abs_diff(ns) <= ns / 100 + 2, "{priced} for {ns}");
        };
        let mut debt = KernelDebt::default();
        meter.receive(&mut debt, 0);
        near(debt, 700);
        meter.send(&mut debt, 1 << 20);
        near(debt, 700 + 3_000 + 157_286);
        meter.layer(&mut debt, 1 << 20);
        near(debt, 700 + 3_000 + 157_286 + 500 + 314_572);
        let mut debt = KernelDebt::default();
        meter.event(&mut debt);
        near(debt, 1_000);
    }

    #[test]
    fn what_is_done_in_a_run_is_counted_and_not_charged() {
        let meter = KernelMeter::new();
        let mut debt = KernelDebt::default();
        meter.set_runs(true);
        meter.send(&mut debt, 100);
        meter.turn();
        meter.send(&mut debt, 100);
        meter.set_runs(false);
        assert_eq!(debt, KernelDebt::default());
        assert_eq!(meter.counts[KernelWork::Send as usize].get(), 1);
        meter.send(&mut debt, 100);
        assert_ne!(debt, KernelDebt::default());
        assert_eq!(meter.counts[KernelWork::SentByte as usize].get(), 200);
    }
}
