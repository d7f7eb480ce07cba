//! One boundary of a request in eight bytes.
//!
//! ```text
//!  63 62   56 55            40 39                                     0
//! +--+-------+----------------+----------------------------------------+
//! |no|  kind |      site      | ticks since the stamp before, or count |
//! +--+-------+----------------+----------------------------------------+
//! ```
//! The first bit says that no stamp was taken ([`TraceEvent::unstamped`]): the value is then always 0.
//!
//! 40 bits hold six minutes at 3 GHz. A longer wait, or more than a tebibyte, takes an [`EventKind::High`] event
//! with the upper bits before the event itself.

use crate::site::Site;

/// An event of a trace, packed into 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct TraceEvent(pub u64);

impl TraceEvent {
    /// The largest value one event can carry.
    pub const MAX: u64 = (1 << 40) - 1;

    /// Packs; of `value` the lower 40 bits are stored.
    #[inline]
    #[must_use]
    pub const fn pack(kind: EventKind, site: Site, value: u64) -> TraceEvent {
        TraceEvent((kind as u64) << 56 | (site.0 as u64) << 40 | (value & TraceEvent::MAX))
    }

    /// An event whose time, a few instructions, is left to the next one that is stamped. Apart from that it is like
    /// one that took no time.
    #[inline]
    #[must_use]
    pub(crate) const fn unstamped(kind: EventKind, site: Site) -> TraceEvent {
        TraceEvent(TraceEvent::pack(kind, site, 0).0 | UNSTAMPED)
    }

    /// True for those of [`TraceEvent::unstamped`].
    #[inline]
    #[must_use]
    pub(crate) const fn is_unstamped(self) -> bool {
        self.0 & UNSTAMPED != 0
    }

    /// The kind of the event, such as [`EventKind::Begin`] of a site.
    #[inline]
    #[must_use]
    pub const fn kind(self) -> EventKind {
        EventKind::from_code((self.0 >> 56) as u8 & 0x7f)
    }

    /// Where; for [`EventKind::Resume`] the [`WaitKind`](crate::WaitKind) instead.
    #[inline]
    #[must_use]
    pub const fn site(self) -> Site {
        Site((self.0 >> 40) as u16)
    }

    /// Ticks since the stamp before for kinds that are timed, else a count.
    #[inline]
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0 & TraceEvent::MAX
    }
}

const UNSTAMPED: u64 = 1 << 63;

/// What an event says. The interval that ends at a timed event is a wait for `Resume` and run for all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EventKind {
    /// The upper bits of the next event's value.
    High,
    /// A site was entered: the interval before belongs to the site around it.
    Begin,
    /// A site was left: the interval belongs to it. Site 0 leaves all: the request's end.
    End,
    /// The interval belongs to this site, as a call of its own.
    Mark,
    /// The request stopped running; the interval belongs to the innermost open site.
    Suspend,
    /// It runs again; the interval is a wait of the innermost open site, of the kind in the site field.
    Resume,
    /// Bytes that went into a site; not timed.
    BytesIn,
    /// Bytes that came out of a site; not timed.
    BytesOut,
    /// An error at a site, with its code (an errno, an alert, a status); not timed.
    Error,
    /// Ticks a lock was waited for, part of the site's run; not timed.
    Lock,
    /// Ticks of garbage collection, part of the site's run; not timed.
    Gc,
    /// Where a Lua coroutine yielded: prototype and line; not timed.
    Line,
    /// Ticks of compiling Lua code, part of the site's run; not timed.
    Jit,
    /// Ticks asleep in a call that blocks, part of the site's run; not timed.
    Asleep,
    /// Ticks ready and without a core, part of the site's run; not timed.
    NoCore,
}

impl EventKind {
    /// True if the event's value is the interval since the stamp before.
    #[must_use]
    pub(crate) const fn is_timed(self) -> bool {
        matches!(self, Self::Begin | Self::End | Self::Mark | Self::Suspend | Self::Resume)
    }

    const fn from_code(code: u8) -> EventKind {
        match code {
            1 => EventKind::Begin,
            2 => EventKind::End,
            3 => EventKind::Mark,
            4 => EventKind::Suspend,
            5 => EventKind::Resume,
            6 => EventKind::BytesIn,
            7 => EventKind::BytesOut,
            8 => EventKind::Error,
            9 => EventKind::Lock,
            10 => EventKind::Gc,
            11 => EventKind::Line,
            12 => EventKind::Jit,
            13 => EventKind::Asleep,
            14 => EventKind::NoCore,
            _ => EventKind::High,
        }
    }
}

/// Joins `High` events to what follows them; keeps its state between batches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventDecoder {
    high: u64,
}

impl EventDecoder {
    /// The event with its whole value; `None` for the first half of a long one.
    #[inline]
    pub(crate) fn decode(&mut self, event: TraceEvent) -> Option<(EventKind, Site, u64)> {
        let kind = event.kind();
        if kind == EventKind::High {
            self.high = event.value();
            return None;
        }
        let value = event.value() | self.high << 40;
        self.high = 0;
        Some((kind, event.site(), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KINDS: [EventKind; 15] = [
        EventKind::High,
        EventKind::Begin,
        EventKind::End,
        EventKind::Mark,
        EventKind::Suspend,
        EventKind::Resume,
        EventKind::BytesIn,
        EventKind::BytesOut,
        EventKind::Error,
        EventKind::Lock,
        EventKind::Gc,
        EventKind::Line,
        EventKind::Jit,
        EventKind::Asleep,
        EventKind::NoCore,
    ];

    #[test]
    fn codes_and_kinds_agree() {
        for kind in KINDS {
            assert_eq!(EventKind::from_code(kind as u8), kind);
        }
    }

    #[test]
    fn what_is_not_stamped_is_an_event_of_no_time() {
        let event = TraceEvent::unstamped(EventKind::Mark, Site(u16::MAX));
        assert_eq!((event.kind(), event.site(), event.value()), (EventKind::Mark, Site(u16::MAX), 0));
        assert!(
            event.is_unstamped()
                && !TraceEvent::pack(EventKind::Line, Site(u16::MAX), TraceEvent::MAX).is_unstamped()
        );
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_out(kind in 0usize..15, site: u16, value in 0..=TraceEvent::MAX) {
            let event = TraceEvent::pack(KINDS[kind], Site(site), value);
            prop_assert_eq!((event.kind(), event.site(), event.value()), (KINDS[kind], Site(site), value));
        }

        #[test]
        fn a_long_value_survives_in_two_events(value in 0..u64::MAX >> 1) {
            let mut decoder = EventDecoder::default();
            prop_assert_eq!(decoder.decode(TraceEvent::pack(EventKind::High, Site::NONE, value >> 40)), None);
            let whole = decoder.decode(TraceEvent::pack(EventKind::Mark, Site(7), value));
            prop_assert_eq!(whole, Some((EventKind::Mark, Site(7), value)));
            let next = decoder.decode(TraceEvent::pack(EventKind::Mark, Site(7), 5));
            prop_assert_eq!(next, Some((EventKind::Mark, Site(7), 5)));
        }
    }
}
