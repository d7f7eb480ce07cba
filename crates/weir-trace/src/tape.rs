//! Where a request's boundaries are written while it runs.

use std::cell::Cell;

use crate::event::{EventKind, TraceEvent};
use crate::model::WaitKind;
use crate::site::Site;
use crate::tape_pattern::TapePattern;

/// The last events of a request, before its [`Trace`](crate::Trace) has them: what is written at a boundary, without
/// borrowing anything. Each method is a few instructions, and says `false` where it would take more (no room, an interval
/// of minutes, a clock that went backwards); then nothing was done, and the caller hands the tape to the trace
/// ([`Trace::take`](crate::Trace::take)) and calls the trace's method of that name.
///
/// A request that never waits is written here from its beginning to its end, and counted from here.
#[derive(Debug)]
pub struct EventTape {
    len: Cell<usize>,
    last: Cell<u64>,
    events: [Cell<TraceEvent>; ROOM],
}

impl Default for EventTape {
    fn default() -> EventTape {
        EventTape {
            len: Cell::new(0),
            last: Cell::new(0),
            events: [const { Cell::new(TraceEvent(0)) }; ROOM],
        }
    }
}

impl EventTape {
    /// A tape without events.
    #[must_use]
    pub fn new() -> EventTape {
        EventTape::default()
    }

    /// Empties it; the next interval begins at `now`.
    #[inline]
    pub fn rewind(&self, now: u64) {
        self.len.set(0);
        self.last.set(now);
    }

    /// When the last stamp was taken, in ticks.
    #[inline]
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last.get()
    }

    /// True if there is nothing on it.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// The events so far.
    #[inline]
    pub(crate) fn events(&self) -> &[Cell<TraceEvent>] {
        &self.events[..self.len.get().min(ROOM)]
    }

    /// Charges the time since the stamp before to `site`.
    #[inline]
    pub fn mark(&self, site: Site, now: u64) -> bool {
        self.stamp(EventKind::Mark, site, now)
    }

    /// Charges the time since the stamp before to what is open, and opens `site` inside it.
    #[inline]
    pub fn enter(&self, site: Site, now: u64) -> bool {
        self.stamp(EventKind::Begin, site, now)
    }

    /// Closes what [`enter`](EventTape::enter) opened.
    #[inline]
    pub fn leave(&self, site: Site, now: u64) -> bool {
        self.stamp(EventKind::End, site, now)
    }

    /// Opens `site` without a stamp: the time since the stamp before counts as the site's.
    #[inline]
    pub fn open(&self, site: Site) -> bool {
        self.put(TraceEvent::unstamped(EventKind::Begin, site))
    }

    /// Counts a call of `site` that took a few instructions, which count for what comes next.
    #[inline]
    pub fn pass(&self, site: Site) -> bool {
        self.put(TraceEvent::unstamped(EventKind::Mark, site))
    }

    /// [`pass`](EventTape::pass) for each of these sites.
    #[inline]
    pub fn pass_all(&self, sites: impl ExactSizeIterator<Item = Site>) -> bool {
        let (len, count) = (self.len.get(), sites.len());
        let Some(slots) = self.events.get(len..len + count) else { return false };
        slots
            .iter()
            .zip(sites)
            .for_each(|(slot, site)| slot.set(TraceEvent::unstamped(EventKind::Mark, site)));
        self.len.set(len + count);
        true
    }

    /// Closes what [`open`](EventTape::open) opened. A site in which nothing was recorded becomes one event, a mark: the same
    /// in every count and tree.
    #[inline]
    pub fn close(&self, site: Site, now: u64) -> bool {
        let ticks = now.wrapping_sub(self.last.get());
        match self.events.get(self.len.get().wrapping_sub(1)) {
            Some(slot)
                if slot.get() == TraceEvent::unstamped(EventKind::Begin, site)
                    && ticks <= TraceEvent::MAX =>
            {
                slot.set(TraceEvent::pack(EventKind::Mark, site, ticks));
                self.last.set(now);
                true
            }
            _ => self.stamp(EventKind::End, site, now),
        }
    }

    /// Closes what [`open`](EventTape::open) opened and in which nothing was recorded: it becomes a [`pass`](EventTape::pass).
    #[inline]
    pub fn close_passed(&self, site: Site) -> bool {
        match self.events.get(self.len.get().wrapping_sub(1)) {
            Some(slot) if slot.get() == TraceEvent::unstamped(EventKind::Begin, site) => {
                slot.set(TraceEvent::unstamped(EventKind::Mark, site));
                true
            }
            _ => false,
        }
    }

    /// Charges the time from the stamp before to `now`, in ticks, to `site`, and [passes](EventTape::pass) each site of
    /// `behind` after it.
    #[inline]
    pub fn mark_and_pass<const N: usize>(&self, site: Site, behind: [Site; N], now: u64) -> bool {
        let (len, ticks) = (self.len.get(), now.wrapping_sub(self.last.get()));
        match self.events.get(len..len + 1 + N) {
            Some([slot, slots @ ..]) if ticks <= TraceEvent::MAX => {
                slot.set(TraceEvent::pack(EventKind::Mark, site, ticks));
                slots
                    .iter()
                    .zip(behind)
                    .for_each(|(slot, site)| slot.set(TraceEvent::unstamped(EventKind::Mark, site)));
                self.len.set(len + 1 + N);
                self.last.set(now);
                true
            }
            _ => false,
        }
    }

    /// Bytes that went into and came out of `site`, which is open or was closed last.
    #[inline]
    pub fn bytes(&self, site: Site, input: u64, output: u64) -> bool {
        let len = self.len.get();
        match self.events.get(len..len + 2) {
            Some([first, second]) if input <= TraceEvent::MAX && output <= TraceEvent::MAX => {
                let (has_input, has_output) = (input > 0, output > 0);
                first.set(TraceEvent::pack(EventKind::BytesIn, site, input));
                let slot = if has_input { second } else { first };
                slot.set(TraceEvent::pack(EventKind::BytesOut, site, output));
                self.len.set(len + usize::from(has_input) + usize::from(has_output));
                true
            }
            _ => false,
        }
    }

    /// Since the stamp before the request was ready and the loop busy with others: a wait for the loop, inside `site`.
    /// [`Trace::queued`](crate::Trace::queued) is the rest of it.
    #[inline]
    pub(crate) fn queued(&self, site: Site, now: u64) -> bool {
        let (len, ticks) = (self.len.get(), now.wrapping_sub(self.last.get()));
        match self.events.get(len..len + 3) {
            Some([open, wait, close]) if ticks <= TraceEvent::MAX => {
                open.set(TraceEvent::unstamped(EventKind::Begin, site));
                wait.set(TraceEvent::pack(EventKind::Resume, Site(WaitKind::Queue as u16), ticks));
                close.set(TraceEvent::unstamped(EventKind::End, site));
                self.len.set(len + 3);
                self.last.set(now);
                true
            }
            _ => false,
        }
    }

    /// What is on it from the last mark of `first` on, for [`replay`](EventTape::replay); `None` where that is more than marks, or
    /// `second` is not among those after it.
    #[must_use]
    pub fn pattern(&self, first: Site, second: Site) -> Option<TapePattern> {
        let events: Vec<TraceEvent> = self.events().iter().map(Cell::get).collect();
        TapePattern::of(&events, first, second)
    }

    /// Writes the marks of `pattern`: the time up to `middle`, in ticks, is charged to its first site, that from there to
    /// `now` to its other stamped one.
    #[inline]
    pub fn replay(&self, pattern: &TapePattern, middle: u64, now: u64) -> bool {
        let (first, second) = (middle.wrapping_sub(self.last.get()), now.wrapping_sub(middle));
        let (len, events) = (self.len.get(), pattern.events());
        match self.events.get(len..len + events.len()) {
            Some(slots) if first | second <= TraceEvent::MAX => {
                slots.iter().zip(events).for_each(|(slot, event)| slot.set(*event));
                let stamp = |at: usize, ticks: u64| {
                    if let (Some(slot), Some(event)) = (slots.get(at), events.get(at)) {
                        slot.set(TraceEvent(event.0 | ticks));
                    }
                };
                stamp(0, first);
                stamp(pattern.second(), second);
                self.len.set(len + events.len());
                self.last.set(now);
                true
            }
            _ => false,
        }
    }

    #[inline(always)]
    fn put(&self, event: TraceEvent) -> bool {
        let len = self.len.get();
        let Some(slot) = self.events.get(len) else { return false };
        slot.set(event);
        self.len.set(len + 1);
        true
    }

    /// The whole cost of a boundary: a subtraction, tests for room and range, eight bytes.
    #[inline(always)]
    fn stamp(&self, kind: EventKind, site: Site, now: u64) -> bool {
        let (len, ticks) = (self.len.get(), now.wrapping_sub(self.last.get()));
        match self.events.get(len) {
            Some(slot) if ticks <= TraceEvent::MAX => {
                slot.set(TraceEvent::pack(kind, site, ticks));
                self.len.set(len + 1);
                self.last.set(now);
                true
            }
            _ => false,
        }
    }
}

/// Events it holds: a static file's request has 15, one through twelve filters 25.
const ROOM: usize = 48;
