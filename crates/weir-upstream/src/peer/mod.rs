//! One address of one server of an upstream, and what is known of it.

pub mod balance;

pub(crate) mod idle_time;
pub mod members;
pub(crate) mod outlier;
pub(crate) mod peer_figures;
pub mod response_time;
pub(crate) mod sticky;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use weir_rt::net::SockAddr;
use weir_trace::Cause;

use crate::peer::idle_time::IdleTime;
use crate::peer::outlier::PeerSlowness;
use crate::peer::peer_figures::{PeerFigures, PeerTotals};
use crate::peer::response_time::{MovingAverage, UploadLine};

/// One address of one server of an upstream.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The address and port, or the path of a UNIX-domain socket.
    pub addr: SockAddr,
    /// The address as nginx writes it in `$upstream_addr` and in messages.
    pub name: Box<str>,
    /// The server as written in the configuration (`$upstream_...` of sticky routes, the admin listener).
    pub server: Box<str>,
    /// Its share, 1 and up.
    pub weight: u32,
    /// Most connections at a time; 0: any number.
    pub max_conns: u32,
    /// Number of failures within `fail_timeout` that make it unavailable; 0: never.
    pub max_fails: u32,
    /// Seconds within which failures count, and for which it is then left out.
    pub fail_timeout: u64,
    /// True with `down`: it gets no requests.
    pub down: bool,
    /// `drain`: asked for clients that are bound to it only.
    pub drain: bool,
    /// Milliseconds in which its share grows to `weight` once it is back (`slow_start`).
    pub slow_start: u64,
    /// `route=`, for `sticky route`; empty without it.
    pub route: Box<str>,
    /// The local address of connections to it (`bind=`); port 0: any. `None`: as the location says.
    pub bind: Option<SockAddr>,
    /// The pool of its connections, separate from others to the same address; `None`: the common pool.
    pub lane: Option<Arc<ConnectionLane>>,
    /// Its connections are counted where all workers see them at once: its limit or its upstream's method compares the
    /// number. Otherwise each worker counts its own.
    pub(crate) is_compared: bool,
    /// What changes about it, shared by all workers and retained over reloads.
    pub state: Arc<PeerState>,
}

/// Connections that are pooled under a name of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLane {
    /// The name that a chooser has given the lane.
    pub name: Box<[u8]>,
    /// Idle connections that a worker keeps by it; 0: as many as the upstream says.
    pub size: usize,
}

/// What is known of a peer, by all workers together.
#[derive(Debug, Default)]
pub struct PeerState {
    /// Connections in use, of peers that [are compared](Peer::is_compared) by them; see [`PeerState::in_flight`].
    pub conns: AtomicU32,
    /// Number of failures in the current interval.
    pub fails: AtomicU32,
    /// The second of the last failure.
    pub accessed: AtomicU64,
    /// The second in which an interval of failures began.
    pub checked: AtomicU64,
    /// The millisecond of the system's monotonic clock in which it came back; 0: it was never away.
    pub recovered: AtomicU64,
    /// True when a check has found it unhealthy, or has yet to find it healthy.
    pub unhealthy: AtomicBool,
    /// A script has turned it down or up ([`DOWN`], [`UP`]), whatever the list says.
    turned: AtomicU8,
    /// Checks in a row whose result was not what is known.
    pub(crate) streak: AtomicU32,
    /// The second of the system's time since which it is as well, or as unwell, as it is; 0: from the beginning.
    pub(crate) since: AtomicU64,
    /// Its recent response times; fed where the upstream's method wants to know.
    pub time: MovingAverage,
    /// How soon it can be reached, and long bodies get there; fed with `least_time upload`.
    pub line: UploadLine,
    /// How long its responses take; fed where the upstream leaves outliers out.
    pub slowness: PeerSlowness,
    /// What went wrong last.
    pub last: LastFault,
    /// How long it leaves idle connections open.
    pub idle: IdleTime,
    /// Why it did not pass a check.
    check: Mutex<Option<String>>,
    /// What each worker counted.
    figures: Mutex<Vec<Arc<PeerFigures>>>,
}

/// What went wrong last with a peer, and when: written only when something does.
#[derive(Debug, Default)]
pub struct LastFault {
    /// The second since 1970 in the upper bits, the [`Cause`] in the lowest eight; 0: nothing went wrong yet.
    packed: AtomicU64,
}

impl LastFault {
    pub(crate) fn note(&self, cause: Cause) {
        let (seconds, _) = weir_rt::unix_time();
        self.packed.store(seconds << 8 | u64::from(cause as u8), Relaxed);
    }

    /// What went wrong last, and when, in seconds since 1970; `None` if nothing did yet.
    pub fn read(&self) -> Option<(Cause, u64)> {
        let packed = self.packed.load(Relaxed);
        let cause = Cause::ALL.into_iter().find(|cause| *cause as u64 == packed & 0xff)?;
        (cause != Cause::None).then_some((cause, packed >> 8))
    }
}

impl PeerState {
    /// Why it did not pass a check.
    pub(crate) fn failed_check(&self, why: String) {
        *self.check.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Why the peer failed its last unsuccessful health check, a text for people; `None` if it never failed one.
    pub fn check(&self) -> Option<String> {
        self.check.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A worker's own account of this peer, which no other thread writes.
    pub(crate) fn account(&self) -> Arc<PeerFigures> {
        let figures = Arc::<PeerFigures>::default();
        let mut all = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= ACCOUNTS {
            // Those of workers and configurations that are gone become one.
            let (gone, used): (Vec<_>, Vec<_>) = all.drain(..).partition(|one| Arc::strong_count(one) == 1);
            let sum = PeerFigures::default();
            gone.iter().for_each(|one| sum.add(one));
            *all = used;
            all.push(Arc::new(sum));
        }
        all.push(figures.clone());
        figures
    }

    /// The second of the system's time since which it is as well, or as unwell, as it is; 0: from the beginning.
    pub fn since(&self) -> u64 {
        self.since.load(Relaxed)
    }

    /// The sums of what all workers counted.
    pub fn totals(&self) -> PeerTotals {
        let all = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals = PeerTotals::default();
        all.iter().for_each(|one| totals.add(one));
        totals
    }

    /// Connections in use by all workers.
    pub fn in_flight(&self) -> u32 {
        let all = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        self.conns.load(Relaxed) + all.iter().map(|one| one.in_flight()).sum::<u32>()
    }

    /// From now on it is what it has just become.
    fn turned(&self) {
        self.since.store(weir_rt::clock::unix_time().0, Relaxed);
    }

    /// A check found it well, or unwell.
    pub(crate) fn checked(&self, unhealthy: bool) {
        self.unhealthy.store(unhealthy, Relaxed);
        self.turned();
    }
}

/// This many accounts are kept separately before those that are not written to any more are added up.
const ACCOUNTS: usize = 64;
/// `PeerState::turned`, where a script has said something.
const DOWN: u8 = 1;
const UP: u8 = 2;

/// How an attempt at a peer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerOutcome {
    /// Nothing is held against it.
    Fine,
    /// It failed.
    Failed,
}

/// What a script wants of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerTurn {
    /// It gets no requests.
    Down,
    /// It gets requests again.
    Up,
}

/// Which of an upstream's peers are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerTier {
    /// Those that requests go to.
    Primary,
    /// Those that requests go to when no primary one is available.
    Backup,
}

/// What may be asked of a peer, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerHealth {
    /// It gets requests.
    Up,
    /// `down`
    Down,
    /// `drain`
    Draining,
    /// Checks found it unwell, or have yet to find it well.
    Unhealthy,
    /// It failed, and is left out for `fail_timeout`.
    Unavailable,
    /// Its responses took much longer than those of others (`outlier`).
    Slow,
    /// It has `max_conns` connections.
    Busy,
}

impl PeerHealth {
    /// The state as one word in lower case, for status pages and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            PeerHealth::Up => "up",
            PeerHealth::Down => "down",
            PeerHealth::Draining => "draining",
            PeerHealth::Unhealthy => "unhealthy",
            PeerHealth::Unavailable => "unavailable",
            PeerHealth::Slow => "slow",
            PeerHealth::Busy => "busy",
        }
    }
}

impl Peer {
    /// A server at `addr` with the defaults of nginx's `server` parameters; `server` is its name in the configuration.
    pub fn plain(addr: SockAddr, server: &str) -> Peer {
        Peer {
            name: addr.to_string().into(),
            addr,
            server: server.into(),
            weight: 1,
            max_conns: 0,
            max_fails: 1,
            fail_timeout: 10,
            down: false,
            drain: false,
            slow_start: 0,
            route: "".into(),
            bind: None,
            lane: None,
            is_compared: true,
            state: Arc::default(),
        }
    }

    /// Whether what the configuration says of it is what it says of `other`.
    pub(crate) fn is_set_as(&self, other: &Peer) -> bool {
        let numbers = |peer: &Peer| {
            (
                peer.weight,
                peer.max_conns,
                peer.max_fails,
                peer.fail_timeout,
                peer.slow_start,
                peer.down,
                peer.drain,
            )
        };
        numbers(self) == numbers(other)
            && self.route == other.route
            && self.server == other.server
            && self.bind == other.bind
    }

    /// Whether a connection to `other` is one to this: the same address, by the same line.
    pub(crate) fn shares_line(&self, other: &Peer) -> bool {
        self.addr == other.addr && self.bind == other.bind && self.lane == other.lane
    }

    /// The peer's state at `now`, in seconds since 1970.
    pub fn health(&self, now: u64) -> PeerHealth {
        match () {
            () if self.is_down() => PeerHealth::Down,
            () if self.state.unhealthy.load(Relaxed) => PeerHealth::Unhealthy,
            () if self.is_out(now) => PeerHealth::Unavailable,
            () if self.state.slowness.is_out(now) => PeerHealth::Slow,
            () if self.drain => PeerHealth::Draining,
            () if !self.is_reachable(now) => PeerHealth::Busy,
            () => PeerHealth::Up,
        }
    }

    /// Whether it is down: a script's word counts more than the list's.
    pub fn is_down(&self) -> bool {
        match self.state.turned.load(Relaxed) {
            DOWN => true,
            UP => false,
            _ => self.down,
        }
    }

    /// Whether it failed, and is left out for it.
    fn is_out(&self, now: u64) -> bool {
        let state = &self.state;
        self.max_fails > 0
            && state.fails.load(Relaxed) >= self.max_fails
            && now.saturating_sub(state.checked.load(Relaxed)) <= self.fail_timeout
    }

    /// Whether it may be asked at second `now`.
    pub(crate) fn is_available(&self, now: u64) -> bool {
        !self.drain && self.is_reachable(now)
    }

    /// Whether one that is bound to it may ask it at second `now`: not down, not failing, with room for a connection.
    pub(crate) fn is_reachable(&self, now: u64) -> bool {
        !self.is_down()
            && !self.state.unhealthy.load(Relaxed)
            && !self.is_out(now)
            && !self.state.slowness.is_out(now)
            && (self.max_conns == 0 || self.state.conns.load(Relaxed) < self.max_conns)
    }

    /// Begins a new interval when the last one is over: called when the peer is chosen.
    pub fn chosen(&self, now: u64) {
        let state = &self.state;
        if self.is_compared {
            state.conns.fetch_add(1, Relaxed);
        }
        if now.saturating_sub(state.checked.load(Relaxed)) > self.fail_timeout {
            state.checked.store(now, Relaxed);
        }
    }

    /// A try has failed. `true`: this failure takes the peer out.
    pub fn fail(&self, now: u64) -> bool {
        let state = &self.state;
        let fails = state.fails.fetch_add(1, Relaxed) + 1;
        state.accessed.store(now, Relaxed);
        state.checked.store(now, Relaxed);
        if self.max_fails > 0 && fails == self.max_fails {
            state.turned();
        }
        self.max_fails > 0 && fails >= self.max_fails
    }

    /// A try has ended; one that [`failed`](Peer::fail) has been counted. `true`: by this one the peer is back.
    pub fn done(&self, outcome: PeerOutcome) -> bool {
        if self.is_compared {
            self.state.conns.fetch_sub(1, Relaxed);
        }
        outcome == PeerOutcome::Fine && self.succeeded()
    }

    /// It has done what was asked. `true`: by this it is back.
    pub(crate) fn succeeded(&self) -> bool {
        let state = &self.state;
        // It responded in an interval that began after its last failure: that one is forgotten.
        if state.fails.load(Relaxed) > 0 && state.accessed.load(Relaxed) < state.checked.load(Relaxed) {
            let fails = state.fails.swap(0, Relaxed);
            if self.max_fails > 0 && fails >= self.max_fails {
                self.recovered();
                return true;
            }
        }
        false
    }

    /// Turns it down, or up again with its failures forgotten, for all workers.
    pub(crate) fn turn(&self, turn: PeerTurn) {
        match turn {
            PeerTurn::Down => {
                self.state.turned.store(DOWN, Relaxed);
                self.state.turned();
            }
            PeerTurn::Up => {
                self.state.turned.store(UP, Relaxed);
                self.recovered();
            }
        }
    }

    /// From now on the list's word counts.
    pub(crate) fn turn_as_listed(&self) {
        self.state.turned.store(0, Relaxed);
    }

    /// It was away, and is back: what it did before is forgotten.
    pub(crate) fn recovered(&self) {
        self.state.fails.store(0, Relaxed);
        self.state.turned();
        if self.slow_start > 0 {
            self.state.recovered.store(clock_ms().max(1), Relaxed);
        }
    }

    /// Its weight at the moment, in 1024ths of its configured weight: less than the whole during `slow_start`.
    pub fn share(&self) -> i64 {
        let whole = i64::from(self.weight) * 1024;
        if self.slow_start == 0 {
            return whole;
        }
        match self.state.recovered.load(Relaxed) {
            0 => whole,
            since => {
                let age = clock_ms().saturating_sub(since).min(self.slow_start);
                (whole as u64 * age / self.slow_start).max(1) as i64
            }
        }
    }
}

/// The clock that all threads share.
fn clock_ms() -> u64 {
    weir_rt::clock::monotonic_ns() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_failed_is_left_out_for_its_time_and_forgiven_later() {
        let peer = Peer::plain("127.0.0.1:80".parse().expect("an address"), "a");
        assert!(peer.is_available(100));
        peer.chosen(100);
        assert!(peer.fail(100), "one failure is enough by default");
        peer.done(PeerOutcome::Failed);
        assert!(!peer.is_available(105));
        assert!(peer.is_available(111));
        peer.chosen(111);
        assert!(!peer.is_available(111) || peer.state.fails.load(Relaxed) == 1);
        peer.done(PeerOutcome::Fine);
        assert_eq!(peer.state.fails.load(Relaxed), 0);
        assert_eq!(peer.state.conns.load(Relaxed), 0);
    }

    #[test]
    fn a_slow_start_begins_with_little_and_ends_with_the_weight() {
        let plain = Peer::plain("127.0.0.1:80".parse().expect("an address"), "a");
        let peer = Peer { weight: 4, slow_start: 3_600_000, ..plain };
        assert_eq!(peer.share(), 4096, "it was never away");
        for outcome in [PeerOutcome::Failed, PeerOutcome::Fine] {
            peer.chosen(100);
            if outcome == PeerOutcome::Failed {
                peer.fail(100);
                peer.state.checked.store(111, Relaxed);
            }
            peer.done(outcome);
        }
        assert!(peer.share() < 100, "{}", peer.share());
        let drained = Peer { drain: true, ..peer };
        assert!(drained.is_reachable(200) && !drained.is_available(200));
    }
}
