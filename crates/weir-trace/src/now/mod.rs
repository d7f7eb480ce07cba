//! What a worker is doing now: requests in flight, and which of them made others wait inside the loop.
//!
//! The worker writes, by relaxed stores; any thread reads through a [`NowReader`], also while the worker is stuck.
//! A request is shown once its head is read ([`WorkerNow::enter`]), each time it stops and goes on, and at its end.
//! What a reader sees of one request is whole: its name is guarded by a sequence number.

mod blame;
mod flight;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::model::{RequestId, WaitKind};
use crate::site::Site;

pub use blame::RouteBlame;
use blame::{BlameLedger, LoopTurn};
use flight::FlightTable;
pub use flight::InFlight;

/// One worker's account of the present; its thread alone calls the methods.
#[derive(Debug)]
pub struct WorkerNow {
    shared: Arc<SharedNow>,
    /// The place of the request that runs, as long as it does not wait: the next one gets it, too. One that waits keeps
    /// it, and another place is taken.
    current: Cell<u16>,
    free: RefCell<Vec<u16>>,
    /// Slots that were ever given out.
    used: Cell<u16>,
    turn: LoopTurn,
}

/// A request's place in the table of those in flight; [`FlightTicket::NONE`] while it has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlightTicket(u16);

impl FlightTicket {
    /// No place: the request is not listed.
    pub const NONE: FlightTicket = FlightTicket(0);

    /// True for [`FlightTicket::NONE`].
    #[inline]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// A stretch of the loop that one request had to itself: the argument of [`WorkerNow::ran`].
#[derive(Clone, Copy, Debug)]
pub struct LoopRun {
    /// When the loop's wait ended, in ticks: the request has been ready since (or later).
    pub turn: u64,
    /// When the request began to run, in ticks.
    pub start: u64,
    /// When it stopped, in ticks.
    pub end: u64,
    /// The request's route.
    pub route: Site,
    /// It waited for the loop: false for the second of two pipelined requests.
    pub queued: bool,
}

/// Everything of a [`WorkerNow`] that others read.
#[derive(Debug)]
struct SharedNow {
    worker: u16,
    table: FlightTable,
    /// The ticket of the request that runs; 0 for none.
    running: AtomicU64,
    ledger: BlameLedger,
}

impl WorkerNow {
    /// The account of worker number `worker`, with no request in flight.
    #[must_use]
    pub fn new(worker: u16) -> WorkerNow {
        let shared = SharedNow {
            worker,
            table: FlightTable::new(),
            running: AtomicU64::new(0),
            ledger: BlameLedger::new(),
        };
        WorkerNow {
            shared: Arc::new(shared),
            current: Cell::new(1),
            free: RefCell::default(),
            used: Cell::new(1),
            turn: LoopTurn::new(blame::SHORT),
        }
    }

    /// A handle by which other threads read what the worker does now.
    #[must_use]
    pub fn reader(&self) -> NowReader {
        NowReader { shared: self.shared.clone() }
    }

    /// A request whose head was read runs from here on. `path` must hold nothing that may not be shown: arguments are
    /// the caller's to cut. Without a free place, [`FlightTicket::NONE`].
    #[inline]
    pub fn enter(&self, id: RequestId, start: u64, method: &[u8], path: &[u8]) -> FlightTicket {
        let number = self.current.get();
        let place = self.shared.table.place(number);
        if place.is_taken() {
            return self.enter_elsewhere(id, start, method, path);
        }
        place.name(id, start, method, path);
        self.shared.running.store(number.into(), Relaxed);
        FlightTicket(number)
    }

    /// [`enter`](WorkerNow::enter) where the current place is held by a request that waits.
    #[inline(never)]
    fn enter_elsewhere(&self, id: RequestId, start: u64, method: &[u8], path: &[u8]) -> FlightTicket {
        let number = self.another();
        if number > 0 {
            self.current.set(number);
            self.shared.table.place(number).name(id, start, method, path);
            self.shared.running.store(number.into(), Relaxed);
        }
        FlightTicket(number)
    }

    /// The request stops, in `site`, for `wait`.
    pub fn suspended(&self, ticket: FlightTicket, route: Site, site: Site, wait: WaitKind, now: u64) {
        if !ticket.is_none() {
            self.shared.table.place(ticket.0).state(flight::FlightState::Waits(wait), route, site, now);
            self.shared.running.store(0, Relaxed);
        }
    }

    /// Notes that the request of `ticket`, which waited, runs again since `now` (ticks).
    pub fn resumed(&self, ticket: FlightTicket, route: Site, now: u64) {
        if !ticket.is_none() {
            self.shared.table.place(ticket.0).state(flight::FlightState::Runs, route, Site::NONE, now);
            self.shared.running.store(ticket.0.into(), Relaxed);
        }
    }

    /// The request's location was found.
    #[inline]
    pub fn routed(&self, ticket: FlightTicket, route: Site) {
        if !ticket.is_none() {
            self.shared.table.place(ticket.0).route(route);
        }
    }

    /// The request is over; the ticket is of no use any more.
    #[inline]
    pub fn left(&self, ticket: FlightTicket) {
        if ticket.is_none() {
            return;
        }
        self.shared.table.place(ticket.0).clear();
        if self.shared.running.load(Relaxed) == u64::from(ticket.0) {
            self.shared.running.store(0, Relaxed);
        }
        if ticket.0 != self.current.get() {
            self.free_place(ticket.0);
        }
    }

    #[inline(never)]
    fn free_place(&self, number: u16) {
        self.free.borrow_mut().push(number);
    }

    /// A free place that is not the current one; 0 for none.
    fn another(&self) -> u16 {
        match self.free.borrow_mut().pop() {
            Some(number) => number,
            None if self.used.get() < flight::PLACES => {
                self.used.set(self.used.get() + 1);
                self.used.get()
            }
            None => 0,
        }
    }

    /// Accounts a stretch of the loop: the request's delay since the turn began is charged to those that ran before it
    /// in this turn, what no request ran to [`Site::OTHER`] (the loop itself), and the stretch counts against those
    /// that come after it.
    #[inline]
    pub fn ran(&self, run: LoopRun) {
        self.turn.ran(run, &self.shared.ledger);
    }
}

/// A handle on one worker's present for other threads.
#[derive(Clone, Debug)]
pub struct NowReader {
    shared: Arc<SharedNow>,
}

impl NowReader {
    /// The number of the worker, from 0.
    #[must_use]
    pub fn worker(&self) -> u16 {
        self.shared.worker
    }

    /// The requests in flight, oldest first; a head that is still being read is not one yet.
    #[must_use]
    pub fn requests(&self) -> Vec<InFlight> {
        let running = self.shared.running.load(Relaxed);
        let mut requests: Vec<InFlight> = self
            .shared
            .table
            .places()
            .filter_map(|(number, place)| place.read(u64::from(number) == running, self.shared.worker))
            .collect();
        requests.sort_by_key(|request| request.start);
        requests
    }

    /// The request that runs at this moment, if one does.
    #[must_use]
    pub fn running(&self) -> Option<InFlight> {
        let number = u16::try_from(self.shared.running.load(Relaxed)).ok().filter(|&number| number > 0)?;
        self.shared.table.find(number)?.read(true, self.shared.worker)
    }

    /// Delays inside the loop since the start, by the route that waited and the one that ran meanwhile; the greatest
    /// first.
    #[must_use]
    pub fn blame(&self) -> Vec<RouteBlame> {
        self.shared.ledger.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_listed_from_its_head_to_its_end() {
        let (now, id) = (WorkerNow::new(3), RequestId(0xfeed));
        let reader = now.reader();
        let ticket = now.enter(id, 100, b"PROPFIND-AND-MORE", "/images/".repeat(20).as_bytes());
        let running = reader.running().expect("it runs");
        assert_eq!((running.id, running.worker, running.start, running.wait), (id, 3, 100, None));
        assert_eq!(running.method.as_bytes(), b"PROPFIND");
        assert_eq!(running.path.as_bytes(), "/images/".repeat(8).as_bytes());
        now.routed(ticket, Site(70));
        now.suspended(ticket, Site(70), Site(71), WaitKind::Timer, 150);
        assert_eq!(reader.running(), None);
        let [waiting] = &reader.requests()[..] else { panic!("one request") };
        assert_eq!((waiting.route, waiting.site, waiting.since), (Site(70), Site(71), 150));
        assert_eq!(waiting.wait, Some(WaitKind::Timer));
        now.resumed(ticket, Site(70), 170);
        assert!(reader.requests()[0].is_running);
        now.left(ticket);
        assert!(reader.requests().is_empty() && reader.running().is_none());
        assert_eq!(now.enter(id, 1, b"GET", b"/"), ticket, "places are used again");
    }

    #[test]
    fn what_has_no_place_is_not_listed_and_does_no_harm() {
        let now = WorkerNow::new(0);
        let tickets: Vec<FlightTicket> =
            (0..flight::PLACES).map(|n| now.enter(RequestId(n.into()), n.into(), b"GET", b"/")).collect();
        let none = now.enter(RequestId(1), 1, b"GET", b"/");
        assert!(none.is_none());
        now.suspended(none, Site(1), Site(1), WaitKind::Timer, 1);
        now.left(none);
        assert_eq!(now.reader().requests().len(), tickets.len());
        tickets.into_iter().for_each(|ticket| now.left(ticket));
        assert!(now.reader().requests().is_empty());
    }

    #[test]
    fn readers_see_whole_requests_while_they_change() {
        let now = WorkerNow::new(0);
        let reader = now.reader();
        std::thread::scope(|scope| {
            let reading = scope.spawn(move || {
                let mut seen = 0;
                while seen < 1_000 {
                    for request in reader.requests() {
                        let letter = (request.id.0 % 26) as u8 + b'a';
                        assert!(request.path.as_bytes().iter().all(|&byte| byte == letter), "{request:?}");
                        assert_eq!(u128::from(request.start), request.id.0);
                        seen += 1;
                    }
                }
            });
            let mut n = 0u64;
            while !reading.is_finished() {
                n += 1;
                let path = [(n % 26) as u8 + b'a'; 40];
                let ticket = now.enter(RequestId(n.into()), n, b"GET", &path);
                now.left(ticket);
            }
            reading.join().expect("no torn request");
        });
    }
}
