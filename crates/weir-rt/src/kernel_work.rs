//! What the kernel is asked to do for a socket, and what is due for it: each kind has a price
//! ([`KernelMeter`](crate::kernel_meter::KernelMeter)).

use std::cell::Cell;

/// What has a price.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum KernelWork {
    /// An event of the socket. In the prices in use it has its part of the wait that it ended.
    Event,
    /// A receive that brought bytes or an end.
    Receive,
    ReceivedByte,
    /// A send.
    Send,
    SentByte,
    /// A connection, from accept(2) or connect(2) to close(2).
    Connection,
    /// A pass of bytes through the socket's layer (TLS).
    Layer,
    LayerByte,
    /// A wait for events, with all that is submitted by it; of the loop, not of a socket.
    Wait,
}

pub(crate) const KINDS: usize = 9;

/// What no request has paid of what was done for a socket; less than nothing of what was paid in advance. In ticks of 2⁻¹².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelDebt(i64);

/// Prices in ticks of 2⁻¹² ([`PRICE_BITS`]), by [`KernelWork`].
#[derive(Default)]
pub(crate) struct KernelPrices([Cell<u64>; KINDS]);

impl KernelDebt {
    #[inline(always)]
    pub(crate) fn add(&mut self, price: u64) {
        self.0 = self.0.wrapping_add(price as i64);
    }

    /// Both are one's.
    pub(crate) fn merge(&mut self, other: KernelDebt) {
        self.0 = self.0.wrapping_add(other.0);
    }

    /// What it is with `price` more, in ticks, which is paid then: `price` in advance.
    #[inline(always)]
    pub(crate) fn pay(&mut self, price: u64) -> u64 {
        let due = self.due(price);
        self.0 = self.0.wrapping_sub((due << PRICE_BITS) as i64);
        due
    }

    /// What it is with `price` more, in ticks; what was paid in advance is not given back.
    #[inline(always)]
    pub(crate) fn due(self, price: u64) -> u64 {
        (self.0.wrapping_add(price as i64) >> PRICE_BITS).max(0) as u64
    }
}

impl KernelPrices {
    #[inline(always)]
    pub(crate) fn of(&self, kind: KernelWork) -> u64 {
        self.0[kind as usize].get()
    }

    pub(crate) fn set(&self, prices: [u64; KINDS]) {
        self.0.iter().zip(prices).for_each(|(cell, price)| cell.set(price));
    }

    /// Of something that is done once to so many bytes.
    #[inline(always)]
    pub(crate) fn with_bytes(&self, once: KernelWork, each: KernelWork, bytes: u64) -> u64 {
        self.of(once) + bytes.wrapping_mul(self.of(each))
    }

    /// What it will take to send so many bytes.
    #[inline(always)]
    pub(crate) fn ahead(&self, bytes: u64, through_layer: bool) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let send = self.with_bytes(KernelWork::Send, KernelWork::SentByte, bytes);
        let layer = match through_layer {
            true => self.with_bytes(KernelWork::Layer, KernelWork::LayerByte, bytes),
            false => 0,
        };
        send + layer
    }
}

/// What the thread is at, as far as charging the kernel's work goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChargeMode(u8);

impl ChargeMode {
    /// The common one: nothing is measured and no request runs.
    pub(crate) const COMMON: ChargeMode = ChargeMode(0);
    const RUNS: u8 = 1;
    const MEASURED: u8 = 2;

    /// A request runs: what is done now is in its run.
    #[inline(always)]
    pub(crate) fn runs(self) -> bool {
        self.0 & ChargeMode::RUNS != 0
    }

    /// This turn of the loop is measured.
    #[inline(always)]
    pub(crate) fn measures(self) -> bool {
        self.0 & ChargeMode::MEASURED != 0
    }

    #[inline(always)]
    pub(crate) fn with_runs(self, runs: bool) -> ChargeMode {
        ChargeMode(self.0 & !ChargeMode::RUNS | u8::from(runs))
    }

    pub(crate) fn with_measures(self, measures: bool) -> ChargeMode {
        ChargeMode(self.0 & !ChargeMode::MEASURED | u8::from(measures) << 1)
    }
}

/// Bits of prices behind the point: a byte takes less than a tick.
pub(crate) const PRICE_BITS: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(each: u64) -> KernelPrices {
        let prices = KernelPrices::default();
        prices.set([each << PRICE_BITS; KINDS]);
        prices
    }

    #[test]
    fn a_send_is_paid_ahead_and_not_again() {
        let prices = prices(10);
        let mut debt = KernelDebt::default();
        debt.add(prices.of(KernelWork::Receive));
        assert_eq!(debt.pay(prices.ahead(3, false)), 10 + 10 + 3 * 10);
        assert_eq!(debt.due(0), 0, "less than nothing is nothing");
        debt.add(prices.with_bytes(KernelWork::Send, KernelWork::SentByte, 3));
        assert_eq!(debt, KernelDebt::default());
    }

    #[test]
    fn a_layer_is_paid_where_there_is_one() {
        assert_eq!(prices(1).ahead(1, true) >> PRICE_BITS, 4);
        assert_eq!(prices(1).ahead(1, false) >> PRICE_BITS, 2);
        assert_eq!(prices(1).ahead(0, true), 0);
    }

    #[test]
    fn a_terabyte_has_room() {
        let mut debt = KernelDebt::default();
        for _ in 0..1024 {
            debt.add(prices(1).with_bytes(KernelWork::Send, KernelWork::SentByte, 1 << 30));
        }
        assert_eq!(debt.due(0), (1 << 40) + 1024);
    }

    #[test]
    fn modes_are_set_one_by_one() {
        let both = ChargeMode::COMMON.with_runs(true).with_measures(true);
        assert!(both.runs() && both.measures());
        let measured = both.with_runs(false);
        assert!(measured.measures() && !measured.runs());
        assert_eq!(measured.with_measures(false), ChargeMode::COMMON);
    }
}
