//! What others touch while a handler waits: the trace, and whether the client is still there.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;

use weir_rt::clock;
use weir_trace::{Site, Trace};

use crate::phase::LocalFuture;

/// The part of an exchange that is reached while its handler holds the exchange itself. No borrow of the trace
/// lives across an await.
#[derive(Default)]
pub struct Shared {
    trace: RefCell<Trace>,
    /// Level `off`: no boundary reads the clock.
    on: Cell<bool>,
    /// How many subrequests are running, each inside the one before.
    pub(crate) subrequests: Cell<u8>,
}

impl Shared {
    /// Starts a request's trace; `begin` says whether boundaries are recorded.
    pub(crate) fn start(&self, begin: impl FnOnce(&mut Trace) -> bool) {
        self.on.set(begin(&mut self.trace.borrow_mut()));
    }

    /// Whether boundaries are recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.get()
    }

    /// Charges the time since the last stamp to `site`.
    #[inline]
    pub fn mark(&self, site: Site) {
        if self.on.get() {
            self.trace.borrow_mut().mark(site, clock::ticks());
        }
    }

    /// Opens `site`.
    #[inline]
    pub fn enter(&self, site: Site) {
        if self.on.get() {
            self.trace.borrow_mut().enter(site, clock::ticks());
        }
    }

    /// Closes `site`.
    #[inline]
    pub fn leave(&self, site: Site) {
        if self.on.get() {
            self.trace.borrow_mut().leave(site, clock::ticks());
        }
    }

    /// Opens `site` as of the stamp before.
    #[inline]
    pub fn open(&self, site: Site) {
        if self.on.get() {
            self.trace.borrow_mut().open(site);
        }
    }

    /// Closes what [`Shared::open`] opened.
    #[inline]
    pub fn close(&self, site: Site) {
        if self.on.get() {
            self.trace.borrow_mut().close(site, clock::ticks());
        }
    }

    /// Notes bytes that went into and came out of `site`.
    #[inline]
    pub fn bytes(&self, site: Site, input: u64, output: u64) {
        if self.on.get() {
            self.trace.borrow_mut().bytes(site, input, output);
        }
    }

    /// Awaits `future`, charging the time between its polls as waiting to the innermost open site.
    pub async fn waiting<T>(self: &Rc<Self>, mut future: LocalFuture<'_, T>) -> T {
        let mut waits = false;
        poll_fn(|cx| {
            if waits {
                self.resume();
            }
            let poll = Pin::new(&mut future).poll(cx);
            if poll.is_pending() {
                waits = true;
                self.suspend();
            }
            poll
        })
        .await
    }

    /// From here on time is waiting.
    pub fn suspend(&self) {
        if self.on.get() {
            self.trace.borrow_mut().suspend(clock::ticks());
        }
    }

    /// From here on time is running.
    pub fn resume(&self) {
        if self.on.get() {
            self.trace.borrow_mut().resume(clock::ticks());
        }
    }

    /// Reads or changes the trace.
    pub fn with_trace<R>(&self, f: impl FnOnce(&mut Trace) -> R) -> R {
        f(&mut self.trace.borrow_mut())
    }
}
