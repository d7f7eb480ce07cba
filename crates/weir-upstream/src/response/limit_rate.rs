//! `*_limit_rate`: a response's bytes are taken no faster than this many a second, as nginx counts them: those of a
//! second are free from its beginning on.

use std::pin::pin;
use std::task::{Context, Poll};

use weir_engine::exchange::Exchange;
use weir_engine::variable::ValueScript;
use weir_rt::Timer;

/// A limit in force for one response.
pub(crate) struct ReadPace {
    per_second: u64,
    began: u64,
    taken: u64,
    /// Read, and not allowed yet.
    held: Vec<u8>,
    pause: Timer,
}

impl ReadPace {
    /// A limit of `per_second` bytes that begins at `now` (milliseconds) with what has come already.
    pub(crate) fn new(per_second: u64, now: u64, held: Vec<u8>) -> ReadPace {
        ReadPace { per_second, began: now, taken: 0, held, pause: Timer::new() }
    }

    /// Keeps what was read; only when nothing is held.
    pub(crate) fn hold(&mut self, bytes: Vec<u8>) {
        debug_assert!(self.held.is_empty());
        self.held = bytes;
    }

    /// Whether more may be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The bytes whose turn it is. The last `needed` of a body come with what wrongly follows them.
    pub(crate) fn take(&mut self, now: u64, needed: Option<u64>) -> Option<Vec<u8>> {
        let allowed = allowed(self.per_second, now.saturating_sub(self.began), self.taken);
        let held = self.held.len() as u64;
        if held == 0 || allowed == 0 {
            return None;
        }
        let whole = held <= allowed || needed.is_some_and(|needed| needed <= allowed);
        let rest = if whole { Vec::new() } else { self.held.split_off(allowed as usize) };
        let bytes = std::mem::replace(&mut self.held, rest);
        self.taken += bytes.len() as u64;
        Some(bytes)
    }

    /// `Ready` when the next second's bytes are free.
    pub(crate) fn poll_pause(&mut self, cx: &mut Context<'_>, now: u64) -> Poll<()> {
        let elapsed = now.saturating_sub(self.began);
        if allowed(self.per_second, elapsed, self.taken) > 0 {
            self.pause.disarm();
            return Poll::Ready(());
        }
        self.pause.arm(1000 - elapsed % 1000 + 1);
        pin!(self.pause.wait()).poll(cx)
    }
}

/// How many more bytes may be taken after this many milliseconds.
fn allowed(per_second: u64, elapsed: u64, taken: u64) -> u64 {
    per_second.saturating_mul(elapsed / 1000 + 1).saturating_sub(taken)
}

/// The limit of `*_limit_rate` for the response of `x`, and what of `rest` is free of it. nginx limits what it reads
/// ahead only.
pub(super) fn paced(
    x: &mut Exchange,
    script: Option<&ValueScript>,
    rest: Vec<u8>,
) -> (Vec<u8>, Option<ReadPace>) {
    let Some(script) = script else { return (rest, None) };
    let value = script.value(x);
    match weir_conf::parse_size(x.text(&value)) {
        None | Some(0) => (rest, None),
        Some(rate) => (Vec::new(), Some(ReadPace::new(rate, weir_rt::now_ms(), rest))),
    }
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn a_second_s_bytes_are_free_at_its_beginning() {
        assert_eq!(allowed(20_000, 0, 0), 20_000);
        assert_eq!(allowed(20_000, 999, 20_000), 0);
        assert_eq!(allowed(20_000, 1000, 20_000), 20_000);
        assert_eq!(allowed(20_000, 1000, 50_000), 0);
        assert_eq!(allowed(u64::MAX, 5000, 1), u64::MAX - 1);
    }
}
