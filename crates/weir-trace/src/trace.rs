//! One request's marks.

use crate::event::{EventKind, TraceEvent};
use crate::keep_reason::KeepReason;
use crate::model::WaitKind;
use crate::site::Site;
use crate::tape::EventTape;
use crate::tape_pattern::TapePattern;
use crate::tree::{TraceTree, TreeBuilder};

/// The boundaries of one request, from [`begin`](Trace::begin) to [`end`](Trace::end), owned by the exchange and used
/// again for the next: memory is allocated while it warms up and then never.
///
/// Each stamp closes the interval since the stamp before and charges it to one site. `now` is in ticks of one clock
/// that does not run backwards; should it, the interval counts as 0.
///
/// | call | the interval before it is |
/// |---|---|
/// | `mark(site)` | run of `site`, as a child of the innermost open site |
/// | `enter(site)` | run of the innermost open site, before `site` opens |
/// | `leave(site)` | run of the innermost open site; `site` and what is open inside it close |
/// | `open(site)` | left to whatever comes next inside `site` |
/// | `close(site)` | as `leave` |
/// | `pass(site)` | left to what comes next; `site` counts a call |
/// | `close_unstamped(site)` | as `pass`, of a site that was opened |
/// | `suspend` | run of the innermost open site |
/// | `resume` | wait of the innermost open site |
/// | `queued(site)` | wait of `site`, as a child of the innermost open site |
///
/// While off, each call is one test of a flag. Callers whose clock costs something use the `_at` forms, which read
/// it only when on. An engine that has hardly time for that writes its boundaries to a [`EventTape`].
///
/// A request that goes on and on stays small: up to 512 events are held, of which the first 448 remain as they
/// were; the later ones are folded into calls and sums.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    on: bool,
    suspended: bool,
    sampled: bool,
    /// It is to be retained, for this.
    keep: Option<KeepReason>,
    wait_kind: WaitKind,
    len: usize,
    last: u64,
    start: u64,
    wait: u64,
    waits: [u64; WaitKind::COUNT],
    /// Of the run, a Lua VM's collector and compiler.
    vm: [u64; 2],
    /// Storage with `len` of it used: an index test is both the bounds check and the test for room.
    events: Vec<TraceEvent>,
    fold: Option<Box<TreeBuilder>>,
}

impl Trace {
    /// A trace that is off and holds no memory.
    #[must_use]
    pub fn new() -> Trace {
        Trace::default()
    }

    /// Starts recording at `now`; whatever was recorded before is dropped. A server calls
    /// [`Recorder::begin`](crate::Recorder::begin) instead, which decides whether this request is recorded.
    #[inline]
    pub fn begin(&mut self, now: u64) {
        self.clear();
        self.on = true;
        self.start = now;
        self.last = now;
    }

    /// True while recording: whether it is worth reading the clock.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Charges the time since the stamp before to `site`.
    #[inline]
    pub fn mark(&mut self, site: Site, now: u64) {
        if self.on {
            self.stamp(EventKind::Mark, site, now);
        }
    }

    /// [`mark`](Trace::mark), reading the clock only when on.
    #[inline]
    pub fn at(&mut self, site: Site, clock: impl FnOnce() -> u64) {
        if self.on {
            self.stamp(EventKind::Mark, site, clock());
        }
    }

    /// Opens `site` inside the innermost open one.
    #[inline]
    pub fn enter(&mut self, site: Site, now: u64) {
        if self.on {
            self.stamp(EventKind::Begin, site, now);
        }
    }

    /// [`enter`](Trace::enter), reading the clock only when on.
    #[inline]
    pub fn enter_at(&mut self, site: Site, clock: impl FnOnce() -> u64) {
        if self.on {
            self.stamp(EventKind::Begin, site, clock());
        }
    }

    /// Closes `site`, and with it any site inside that an early return left open. A `site` that is not open closes
    /// nothing.
    #[inline]
    pub fn leave(&mut self, site: Site, now: u64) {
        if self.on {
            self.stamp(EventKind::End, site, now);
        }
    }

    /// [`leave`](Trace::leave), reading the clock only when on.
    #[inline]
    pub fn leave_at(&mut self, site: Site, clock: impl FnOnce() -> u64) {
        if self.on {
            self.stamp(EventKind::End, site, clock());
        }
    }

    /// Opens `site` without reading a clock: the time since the stamp before counts as the site's. For boundaries that
    /// follow upon one another, where that time is a few instructions of the caller.
    #[inline]
    pub fn open(&mut self, site: Site) {
        if self.on {
            match self.events.get_mut(self.len) {
                Some(slot) => {
                    *slot = TraceEvent::unstamped(EventKind::Begin, site);
                    self.len += 1;
                }
                None => self.store(TraceEvent::unstamped(EventKind::Begin, site)),
            }
        }
    }

    /// Counts a call of `site` without reading a clock: it took a few instructions, which count for what comes next.
    #[inline]
    pub fn pass(&mut self, site: Site) {
        if self.on {
            match self.events.get_mut(self.len) {
                Some(slot) => {
                    *slot = TraceEvent::unstamped(EventKind::Mark, site);
                    self.len += 1;
                }
                None => self.store(TraceEvent::unstamped(EventKind::Mark, site)),
            }
        }
    }

    /// Charges the time from the stamp before to `now`, in ticks, to `site`, and [passes](Trace::pass) each site of
    /// `behind` after it.
    #[inline]
    pub fn mark_and_pass<const N: usize>(&mut self, site: Site, behind: [Site; N], now: u64) {
        if self.on {
            self.stamp(EventKind::Mark, site, now);
            behind.iter().for_each(|site| self.pass(*site));
        }
    }

    /// Closes what [`open`](Trace::open) opened, without reading a clock unless something was recorded inside: see
    /// [`pass`](Trace::pass).
    #[inline]
    pub fn close_unstamped(&mut self, site: Site, clock: impl FnOnce() -> u64) {
        if self.on {
            let opened = TraceEvent::unstamped(EventKind::Begin, site);
            match self.events.get_mut(self.len.wrapping_sub(1)) {
                Some(slot) if *slot == opened => *slot = TraceEvent::unstamped(EventKind::Mark, site),
                _ => self.stamp(EventKind::End, site, clock()),
            }
        }
    }

    /// Closes what [`open`](Trace::open) opened, as [`leave`](Trace::leave) does. A site in which nothing was recorded
    /// becomes one event, a mark: the same in every count and tree.
    #[inline]
    pub fn close(&mut self, site: Site, now: u64) {
        if self.on {
            let ticks = now.wrapping_sub(self.last);
            let opened = TraceEvent::unstamped(EventKind::Begin, site);
            match self.events.get_mut(self.len.wrapping_sub(1)) {
                Some(slot) if *slot == opened && ticks <= TraceEvent::MAX => {
                    *slot = TraceEvent::pack(EventKind::Mark, site, ticks);
                    self.last = now;
                }
                _ => self.stamp(EventKind::End, site, now),
            }
        }
    }

    /// [`EventTape::replay`] where there is no room for it on the tape.
    pub fn replay(&mut self, pattern: &TapePattern, middle: u64, now: u64) {
        for (at, event) in pattern.events().iter().enumerate() {
            match at {
                0 => self.mark(event.site(), middle),
                at if at == pattern.second() => self.mark(event.site(), now),
                _ => self.pass(event.site()),
            }
        }
    }

    /// The request stops running: a handler returned `Pending`. Ignored when already suspended.
    #[inline]
    pub fn suspend(&mut self, now: u64) {
        if self.on && !self.suspended {
            self.suspended = true;
            self.stamp(EventKind::Suspend, Site::NONE, now);
        }
    }

    /// [`suspend`](Trace::suspend), reading the clock only when on.
    #[inline]
    pub fn suspend_at(&mut self, clock: impl FnOnce() -> u64) {
        if self.on {
            self.suspend(clock());
        }
    }

    /// What the wait that has begun, or is about to, is for; forgotten when it ends.
    #[inline]
    pub fn wait_kind(&mut self, kind: WaitKind) {
        self.wait_kind = kind;
    }

    /// The request runs again: all since [`suspend`](Trace::suspend) was waiting. Ignored when not suspended.
    #[inline]
    pub fn resume(&mut self, now: u64) {
        if self.on && self.suspended {
            self.waited(now);
            self.suspended = false;
        }
    }

    /// [`resume`](Trace::resume), reading the clock only when on.
    #[inline]
    pub fn resume_at(&mut self, clock: impl FnOnce() -> u64) {
        if self.on {
            self.resume(clock());
        }
    }

    /// [`resume`](Trace::resume) of a request that was ready at `ready` and had to wait for the loop until `now`: the
    /// second part is charged to [`WaitKind::Queue`].
    pub fn resume_ready(&mut self, ready: u64, now: u64) {
        if self.on && self.suspended {
            self.waited(ready.clamp(self.last, now.max(self.last)));
            self.wait_kind = WaitKind::Queue;
            self.resume(now);
        }
    }

    /// Since the stamp before the request was ready and the loop busy with others: waiting, inside `site`. Written to
    /// `tape`, the trace's own.
    #[inline]
    pub fn queued(&mut self, tape: &EventTape, site: Site, now: u64) {
        let before = tape.last();
        if tape.queued(site, now) {
            self.wait += now - before;
            self.waits[WaitKind::Queue as usize] += now - before;
        } else {
            self.queued_slowly(tape, site, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn queued_slowly(&mut self, tape: &EventTape, site: Site, now: u64) {
        self.take(tape);
        self.open(site);
        self.wait_kind = WaitKind::Queue;
        self.waited(now);
        self.store(TraceEvent::unstamped(EventKind::End, site));
        tape.rewind(self.last);
    }

    /// Takes over what was written to its tape, which goes on empty. What is done to the trace after that is to be made
    /// known to the tape by [`EventTape::rewind`] with [`last`](Trace::last).
    pub fn take(&mut self, tape: &EventTape) {
        let events = tape.events();
        if !events.is_empty() {
            match self.events.get_mut(self.len..self.len + events.len()) {
                Some(slots) => {
                    slots.iter_mut().zip(events).for_each(|(slot, event)| *slot = event.get());
                    self.len += events.len();
                }
                None => events.iter().for_each(|event| self.store(event.get())),
            }
            self.last = tape.last();
            tape.rewind(self.last);
        }
    }

    /// When the last stamp was taken, in ticks.
    #[inline]
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// True between [`suspend`](Trace::suspend) and [`resume`](Trace::resume).
    #[inline]
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// Bytes that went into and came out of `site` (the innermost open site, or a mark inside it).
    #[inline]
    pub fn bytes(&mut self, site: Site, input: u64, output: u64) {
        if self.on {
            self.count(EventKind::BytesIn, site, input);
            self.count(EventKind::BytesOut, site, output);
        }
    }

    /// A remark without a stamp: an error and its code, ticks of lock or garbage collection inside the run, a Lua
    /// line. Timed kinds and zeros are ignored.
    pub fn note(&mut self, kind: EventKind, site: Site, value: u64) {
        if self.on && !kind.is_timed() && kind != EventKind::High {
            match kind {
                EventKind::Gc => self.vm[0] += value,
                EventKind::Jit => self.vm[1] += value,
                _ => {}
            }
            self.count(kind, site, value);
        }
    }

    /// Puts an event that is not timed before the one at `at`; at the end where events have been folded, or are about
    /// to be.
    #[cold]
    pub(crate) fn insert(&mut self, at: usize, event: TraceEvent) {
        let room = self.fold.is_none() && self.len < MAX_EVENTS;
        let at = at.min(self.len);
        let event = if room { event } else { TraceEvent::pack(event.kind(), Site::NONE, event.value()) };
        self.store(event);
        if room && at + 1 < self.len {
            self.events[at..self.len].rotate_right(1);
        }
    }

    /// The tree is to be retained whatever happens: the request carried a signed trace header.
    pub fn keep(&mut self) {
        self.keep = Some(KeepReason::Asked);
    }

    /// The tree is to be retained for `why`, unless there is a reason already.
    #[cold]
    pub fn keep_as(&mut self, why: KeepReason) {
        self.keep.get_or_insert(why);
    }

    /// The reason to retain the tree that was given while it was recorded.
    #[inline]
    #[must_use]
    pub(crate) fn keep_reason(&self) -> Option<KeepReason> {
        self.keep
    }

    /// The request is over: what is open closes, recording stops, the totals are final.
    pub fn end(&mut self, now: u64) {
        if self.on {
            if self.suspended {
                self.resume(now);
            }
            self.stamp(EventKind::End, Site::NONE, now);
            self.on = false;
        }
    }

    /// The request was over when its tape was stamped last, and nothing is open: [`end`](Trace::end) without a stamp, and
    /// without taking the tape. When that was is returned.
    #[inline]
    pub fn end_here(&mut self, tape: &EventTape) -> u64 {
        self.on = false;
        self.last = tape.last();
        self.last
    }

    /// Forgets everything but the memory; off afterwards.
    #[inline]
    pub fn clear(&mut self) {
        (self.on, self.suspended, self.sampled, self.keep) = (false, false, false, None);
        (self.len, self.last, self.start) = (0, 0, 0);
        self.wait_kind = WaitKind::Other;
        if self.wait > 0 {
            if self.wait != self.waits[WaitKind::Queue as usize] {
                self.waits = [0; WaitKind::COUNT];
            }
            // Nearly all requests wait for the loop and for nothing else.
            self.waits[WaitKind::Queue as usize] = 0;
            self.wait = 0;
        }
        if self.fold.is_some() {
            self.fold = None;
        }
        if self.vm != [0; 2] {
            self.vm = [0; 2];
        }
    }

    /// True if something was recorded.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.len > 0
    }

    /// True if [`keep`](Trace::keep) was called.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.keep == Some(KeepReason::Asked)
    }

    /// True if the recorder drew this request.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    pub(crate) fn set_sampled(&mut self) {
        self.sampled = true;
    }

    /// When the request began, in ticks.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Ticks from the beginning to the last stamp.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.last - self.start
    }

    /// Of the total, ticks the request ran.
    #[must_use]
    pub fn total_run(&self) -> u64 {
        self.total() - self.wait
    }

    /// Of the total, ticks it waited, the loop's queue included.
    #[must_use]
    pub fn total_wait(&self) -> u64 {
        self.wait
    }

    /// The waiting by [`WaitKind`].
    #[must_use]
    pub fn waits(&self) -> &[u64; WaitKind::COUNT] {
        &self.waits
    }

    /// Of the run, ticks of Lua's collector and of its compiler.
    #[must_use]
    pub fn vm(&self) -> [u64; 2] {
        self.vm
    }

    /// Writes [`waits`](Trace::waits) into an empty list: one number, mostly, since requests wait for the loop and for
    /// nothing else.
    #[inline]
    pub(crate) fn tell_waits(&self, waits: &mut [u64; WaitKind::COUNT]) {
        let queue = self.waits[WaitKind::Queue as usize];
        if self.wait == queue {
            waits[WaitKind::Queue as usize] = queue;
        } else {
            *waits = self.waits;
        }
    }

    /// The events in order; of a folded trace only the first ones.
    #[must_use]
    pub fn events(&self) -> &[TraceEvent] {
        let len = if self.is_folded() { KEPT_EVENTS } else { self.len };
        &self.events[..len]
    }

    /// True if later events were folded into sums.
    #[must_use]
    pub fn is_folded(&self) -> bool {
        self.fold.is_some()
    }

    /// The tree of the request as far as it went. Allocates.
    #[must_use]
    pub fn tree(&self) -> TraceTree {
        let Some(fold) = &self.fold else { return TraceTree::from_events(self.events()) };
        let mut builder = fold.as_ref().clone();
        builder.absorb(&self.events[KEPT_EVENTS..self.len]);
        builder.finish()
    }

    /// Takes over an event of another trace, whose interval went by in this one, too.
    pub(crate) fn copy(&mut self, kind: EventKind, site: Site, value: u64) {
        self.push(kind, site, value);
        if kind.is_timed() {
            self.last += value;
        }
    }

    /// Drops the events so far; sites that are open are so no more.
    pub(crate) fn forget(&mut self) {
        self.len = 0;
        self.fold = None;
    }

    #[inline]
    fn stamp(&mut self, kind: EventKind, site: Site, now: u64) {
        let ticks = now.wrapping_sub(self.last);
        match self.events.get_mut(self.len) {
            Some(slot) if ticks <= TraceEvent::MAX => {
                *slot = TraceEvent::pack(kind, site, ticks);
                self.len += 1;
                self.last = now;
            }
            _ => self.stamp_slowly(kind, site, now),
        }
    }

    /// No room, a very long interval, or a clock that went backwards (which then looks very long).
    #[cold]
    #[inline(never)]
    fn stamp_slowly(&mut self, kind: EventKind, site: Site, now: u64) {
        let now = if now.wrapping_sub(self.last) as i64 >= 0 { now } else { self.last };
        self.push(kind, site, now - self.last);
        self.last = now;
    }

    fn waited(&mut self, now: u64) {
        let kind = std::mem::take(&mut self.wait_kind);
        let before = self.last;
        self.stamp(EventKind::Resume, Site(kind as u16), now);
        self.wait += self.last - before;
        self.waits[kind as usize] += self.last - before;
    }

    #[inline]
    fn count(&mut self, kind: EventKind, site: Site, value: u64) {
        if value == 0 {
            return;
        }
        match self.events.get_mut(self.len) {
            Some(slot) if value <= TraceEvent::MAX => {
                *slot = TraceEvent::pack(kind, site, value);
                self.len += 1;
            }
            _ => self.push(kind, site, value),
        }
    }

    #[cold]
    fn push(&mut self, kind: EventKind, site: Site, value: u64) {
        if value > TraceEvent::MAX {
            self.store(TraceEvent::pack(EventKind::High, Site::NONE, value >> 40));
        }
        self.store(TraceEvent::pack(kind, site, value));
    }

    fn store(&mut self, event: TraceEvent) {
        if self.len == self.events.len() {
            self.make_room();
        }
        self.events[self.len] = event;
        self.len += 1;
    }

    /// Doubles the storage up to its bound, then folds: the first time all, later what came after the retained events.
    fn make_room(&mut self) {
        if self.events.len() < MAX_EVENTS {
            self.events
                .resize((self.events.len() * 2).clamp(FIRST_EVENTS, MAX_EVENTS), TraceEvent::default());
            return;
        }
        match &mut self.fold {
            Some(fold) => fold.absorb(&self.events[KEPT_EVENTS..]),
            None => self.fold.insert(Box::default()).absorb(&self.events),
        }
        self.len = KEPT_EVENTS;
    }
}

/// Events held at first: a static file's request has about 20.
const FIRST_EVENTS: usize = 64;
/// Events held at most: 4 KiB.
const MAX_EVENTS: usize = 512;
/// Of a folded trace, the first events that stay as they were; the rest of the room collects what is folded next.
const KEPT_EVENTS: usize = 448;
