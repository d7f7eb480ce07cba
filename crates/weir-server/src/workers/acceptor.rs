//! The thread that accepts for several workers and deals the connections to them.
//!
//! One worker accepts from its own listeners. Several workers do not: a socket they share gives nearly all connections
//! to one of them (183 to 192 of 192 with io_uring, up to 59 with epoll), and one that is stuck keeps what it was woken
//! for. This thread puts each connection into the queue of the worker that [`WorkerChoice`] names, and looks again after
//! [`LOOK_MS`] while a queue is not empty: what waits for a late worker goes to another. It calls nothing that blocks and
//! deals to no worker that does not know the socket: [`Acceptor::update`] is called once the workers have the
//! configuration, and they keep their [`ListenerDoor`](crate::conn::accept::ListenerDoor) of a closed socket meanwhile.

mod evening;
mod lateness;
mod room;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_rt::net::SockAddr;
use weir_rt::poller::{self, Poller};
use weir_rt::{LoopStats, RuntimeHandle, ThreadWatch, clock};

use super::dealing::{ConnectionEvening, WorkerChoice, WorkerLoad};
use super::intake::{ConnectionIntake, DealtConnection};
use super::parking::ParkingLot;
use super::thread;
use crate::StartError;
use crate::conn::dealer::ConnectionDealer;
use crate::conn::parked::ParkedConnection;
use lateness::AcceptLateness;
use weir_engine::descriptors::ConnectionLimit;
use weir_engine::log::{self, LogLevel};
use weir_engine::settings::listen::ListenAddress;
use weir_engine::worker::configuration::Configuration;
use weir_engine::worker::{CloseReason, WorkerCounters};

/// The thread as the server holds it. Dropping it ends it.
pub(crate) struct Acceptor {
    dealer: Arc<AcceptorDealer>,
    handle: Option<JoinHandle<()>>,
}

/// A worker that connections are dealt to.
#[derive(Clone)]
pub(crate) struct AcceptorPlayer {
    pub(crate) id: u8,
    pub(crate) intake: Arc<ConnectionIntake>,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) stats: Arc<LoopStats>,
    pub(crate) remote: RuntimeHandle,
    pub(crate) watch: ThreadWatch,
}

/// A socket that is accepted from.
#[derive(Clone)]
pub(crate) struct DealtSocket {
    pub(crate) cookie: u64,
    pub(crate) fd: Arc<OwnedFd>,
    /// The name of a UNIX-domain socket, whose connections workers may not want.
    pub(crate) unix: Option<Arc<str>>,
}

impl Acceptor {
    /// Starts the thread; it deals nothing until [`Acceptor::update`].
    ///
    /// # Errors
    /// Out of descriptors, memory or threads.
    pub(crate) fn start() -> Result<Acceptor, StartError> {
        let table = AcceptorTable {
            players: Vec::new(),
            loads: Vec::new(),
            lateness: Vec::new(),
            most: ConnectionLimit::NONE,
            sockets: Vec::new(),
            finishing: Vec::new(),
            lot: ParkingLot::default(),
            reused: None,
            evening: ConnectionEvening::default(),
            even_at: None,
            choice: WorkerChoice::new(0),
            polling: PollingState::On,
            logged: None,
            look_ms: LOOK_MS,
        };
        let (poller, crowded, ended) = (Poller::new()?, AtomicBool::new(false), AtomicBool::new(false));
        let dealer = Arc::new(AcceptorDealer { poller, crowded, ended, table: Mutex::new(table) });
        let theirs = dealer.clone();
        let handle =
            std::thread::Builder::new().name("weir acceptor".to_owned()).spawn(move || theirs.run())?;
        Ok(Acceptor { dealer, handle: Some(handle) })
    }

    /// From here on accepts from `sockets`, and deals to `players`. What waits in closed sockets is still dealt, what waits
    /// for workers that are gone goes to others; idle connections whose address is gone are closed before this returns.
    pub(crate) fn update(
        &self,
        conf: &Configuration,
        sockets: Vec<DealtSocket>,
        players: Vec<AcceptorPlayer>,
    ) {
        let poller = &self.dealer.poller;
        let mut table = self.dealer.table();
        let most = ConnectionLimit::of_worker(conf.main.worker_connections());
        table.update(poller, sockets, players, most);
        let protocols = |address: &ListenAddress| (address.addr.clone(), address.protocols());
        let addresses: Vec<_> = conf.addresses.iter().map(protocols).collect();
        for token in table.lot.tokens(|parked| !parked.belongs_to(&addresses)) {
            table.close_parked(poller, token, CloseReason::Reload);
        }
        if table.players.len() < 2 {
            table.unpark_all(poller);
        }
        drop(table);
        poller.wake();
    }

    /// For workers to say that they have room again.
    pub(crate) fn dealer(&self) -> Arc<AcceptorDealer> {
        self.dealer.clone()
    }

    /// Accepts no more. What waits in the sockets' queues, and what is parked, is dealt before this returns.
    pub(crate) fn close(&self) {
        let poller = &self.dealer.poller;
        let mut table = self.dealer.table();
        let (players, most) = (table.players.clone(), table.most);
        table.unpark_all(poller);
        table.update(poller, Vec::new(), players, most);
        drop(table);
        poller.wake();
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.dealer.ended.store(true, Ordering::Release);
        self.dealer.poller.wake();
        if self.handle.take().is_some_and(|handle| handle.join().is_err()) {
            log::cycle(LogLevel::Alert, &"the acceptor ended by a panic");
        }
    }
}

/// What the thread, the server and the workers share.
pub(crate) struct AcceptorDealer {
    poller: Poller,
    /// No worker has room: a worker that takes something from its queue says so.
    crowded: AtomicBool,
    ended: AtomicBool,
    table: Mutex<AcceptorTable>,
}

impl ConnectionDealer for AcceptorDealer {
    fn taken(&self) {
        if self.crowded.load(Ordering::SeqCst) {
            self.poller.wake();
        }
    }

    fn park(&self, parked: Box<ParkedConnection>) -> Result<(), Box<ParkedConnection>> {
        let mut table = self.table();
        if table.players.len() < 2 || table.sockets.is_empty() {
            return Err(parked);
        }
        let earlier = table.lot.deadline().is_none_or(|deadline| parked.deadline < deadline);
        table.park(&self.poller, parked)?;
        drop(table);
        if earlier {
            self.poller.wake();
        }
        Ok(())
    }
}

impl AcceptorDealer {
    fn table(&self) -> MutexGuard<'_, AcceptorTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let (mut ready, mut wait) = (Vec::new(), None);
        loop {
            self.poller.wait(wait, &mut ready);
            if self.ended.load(Ordering::Acquire) {
                return;
            }
            let mut table = self.table();
            table.look();
            for &token in &ready {
                match ParkingLot::is_token(token) {
                    true => table.wake_up(&self.poller, token),
                    false => table.accept_from(&self.poller, token),
                }
            }
            table.expire(&self.poller);
            table.rescue();
            table.even_out();
            table.finish();
            wait = table.wait();
            table.apply(&self.poller);
            self.crowded.store(table.polling == PollingState::Crowded, Ordering::SeqCst);
        }
    }
}

/// Whether the sockets are polled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PollingState {
    On,
    /// Descriptors or memory have run out: not before this moment.
    Starved(Instant),
    /// No worker has room.
    Crowded,
}

struct AcceptorTable {
    players: Vec<AcceptorPlayer>,
    /// What the players publish, as of this round, with what was dealt in it.
    loads: Vec<WorkerLoad>,
    /// Why those of them are late that are, by their ids.
    lateness: Vec<AcceptLateness>,
    /// Of each player.
    most: ConnectionLimit,
    sockets: Vec<PolledSocket>,
    /// Cookies of sockets that are closed: connections of theirs may be in queues, and workers may be those of then.
    finishing: Vec<(u64, Vec<AcceptorPlayer>)>,
    lot: ParkingLot,
    /// When it was logged last that idle connections are closed to make room.
    reused: Option<Instant>,
    evening: ConnectionEvening,
    /// When it is looked next whether shares are even; `None`: once something was dealt.
    even_at: Option<Instant>,
    choice: WorkerChoice,
    polling: PollingState,
    /// When it was logged last that accepting fails.
    logged: Option<Instant>,
    /// How long until the next look at queues that are not empty.
    look_ms: u64,
}

struct PolledSocket {
    socket: DealtSocket,
    /// It is in the poller's set.
    polled: bool,
}

impl AcceptorTable {
    /// Takes note of what the workers publish.
    fn look(&mut self) {
        let most = self.most.most;
        self.loads.clear();
        for player in &self.players {
            let mut load = player.load(most);
            if load.is_late() {
                load.lost_core = lateness::of(&mut self.lateness, player).has_lost_core(player);
            }
            self.loads.push(load);
        }
        match self.polling {
            PollingState::Starved(until) if Instant::now() < until => {}
            _ => self.polling = PollingState::On,
        }
    }

    /// Accepts what waits in a socket, a bounded number, as long as a worker has room.
    fn accept_from(&mut self, poller: &Poller, cookie: u64) {
        let Some(DealtSocket { fd, unix, .. }) = self.socket(cookie) else { return };
        for _ in 0..AT_ONCE {
            if self.polling != PollingState::On {
                return;
            }
            let Some(at) = self.choose(unix.as_deref()) else {
                self.polling = PollingState::Crowded;
                return;
            };
            if self.loads[at].is_full() {
                self.make_room(poller, at);
            }
            match self.accept(&fd) {
                Some((fd, peer)) => self.deal(at, DealtConnection::New { fd, peer, cookie }),
                None => return,
            }
        }
    }

    fn socket(&self, cookie: u64) -> Option<DealtSocket> {
        self.sockets.iter().map(|polled| &polled.socket).find(|socket| socket.cookie == cookie).cloned()
    }

    /// The worker for a new connection of a socket with that name, if it is a UNIX-domain socket: one that wants it.
    fn choose(&mut self, unix: Option<&str>) -> Option<usize> {
        let refuses = |player: &AcceptorPlayer| unix.is_some_and(|unix| player.counters.refused.has(unix));
        let players = &self.players;
        if players.iter().any(refuses) && !players.iter().all(refuses) {
            return self.choice.choose_of(&self.loads, |at| !refuses(&players[at]));
        }
        self.choice.choose(&self.loads)
    }

    /// Whether worker `at` does not want a connection that waits for another one.
    fn refuses(&self, at: usize, dealt: &DealtConnection) -> bool {
        let DealtConnection::New { cookie, .. } = dealt else { return false };
        let (refused, unix) = (&self.players[at].counters.refused, || self.socket(*cookie)?.unix);
        refused.is_any() && unix().is_some_and(|unix| refused.has(&unix))
    }

    /// One connection; `None`: none waits, or accepting fails.
    fn accept(&mut self, listener: &OwnedFd) -> Option<(OwnedFd, SockAddr)> {
        poller::accept(listener).unwrap_or_else(|error| {
            self.failed(&error);
            None
        })
    }

    /// Accepting pauses: descriptors or memory have run out, or it is not a socket.
    fn failed(&mut self, error: &io::Error) {
        let now = Instant::now();
        self.polling = PollingState::Starved(now + Duration::from_millis(RETRY_MS));
        if let Some(player) = self.players.first() {
            player.stats.accept_failed();
        }
        if self.logged.is_some_and(|logged| now < logged + Duration::from_millis(TELL_MS)) {
            return;
        }
        self.logged = Some(now);
        let errno = error.raw_os_error().unwrap_or(0);
        let text = weir_rt::file::errno_text(errno);
        log::cycle(LogLevel::Crit, &format_args!("accept4() failed ({errno}: {text})"));
    }

    /// Puts a connection into the queue of a worker.
    fn deal(&mut self, at: usize, dealt: DealtConnection) {
        self.players[at].counters.dealing.dealt.add(1);
        if self.even_at.is_none() {
            self.even_at = Some(Instant::now() + EVEN);
        }
        self.hand(at, dealt);
        self.look_ms = LOOK_MS;
    }

    fn hand(&mut self, at: usize, dealt: DealtConnection) {
        let player = &self.players[at];
        self.loads[at].queued += 1;
        if player.intake.push(dealt) {
            // Without captures the closure is no allocation.
            player.remote.run(Box::new(thread::take_dealt));
        }
    }

    /// Keeps a connection for the worker that had it.
    fn park(&mut self, poller: &Poller, parked: Box<ParkedConnection>) -> Result<(), Box<ParkedConnection>> {
        let Some(from) = self.player(parked.from) else { return Err(parked) };
        if parked.has_asked() {
            self.look();
            self.deal_again(parked, Some(from));
            return Ok(());
        }
        let token = self.lot.insert(parked);
        let watched = self.lot.get(token).is_some_and(|parked| poller.watch_once(&parked.fd, token).is_ok());
        if !watched {
            // Out of memory: its worker keeps it.
            return self.lot.remove(token).map_or(Ok(()), Err);
        }
        self.players[from].counters.dealing.parked.add(1);
        Ok(())
    }

    /// Takes a connection out of the lot.
    fn unpark(&mut self, poller: &Poller, token: u64) -> Option<Box<ParkedConnection>> {
        let parked = self.lot.remove(token)?;
        poller.forget(&parked.fd);
        if let Some(from) = self.player(parked.from) {
            self.players[from].counters.dealing.parked.sub(1);
            if let Some(load) = self.loads.get_mut(from) {
                load.parked = load.parked.saturating_sub(1);
            }
        }
        Some(parked)
    }

    /// A parked connection's client asks, or has left, or its time is over: a worker goes on with it.
    fn wake_up(&mut self, poller: &Poller, token: u64) {
        let Some(parked) = self.unpark(poller, token) else { return };
        let from = self.player(parked.from);
        self.deal_again(parked, from);
    }

    /// A worker goes on with a connection that worker `from` had.
    fn deal_again(&mut self, parked: Box<ParkedConnection>, from: Option<usize>) {
        // Without workers it can not be served.
        let Some(at) = self.choice.choose_again(&self.loads, from).or(from) else { return };
        if from != Some(at) {
            if let Some(from) = from {
                self.players[from].counters.dealing.handed_on.add(1);
            }
            self.players[at].counters.dealing.taken_over.add(1);
        }
        self.hand(at, DealtConnection::Again(parked));
        self.look_ms = LOOK_MS;
    }

    fn unpark_all(&mut self, poller: &Poller) {
        self.look();
        for token in self.lot.tokens(|_| true) {
            self.wake_up(poller, token);
        }
    }

    fn expire(&mut self, poller: &Poller) {
        for token in self.lot.expired(clock::monotonic_ms()) {
            self.wake_up(poller, token);
        }
    }

    fn player(&self, id: u8) -> Option<usize> {
        self.players.iter().position(|player| player.id == id)
    }

    /// What waits for a worker that is late, or full, goes to one that has time.
    fn rescue(&mut self) {
        let mut moved = false;
        for from in 0..self.players.len() {
            while let Some(to) = self.choice.rescue(&self.loads, from) {
                // What was parked stays with a worker that has lost its core alone: it is back soon.
                let all = self.loads[from].is_stuck() || self.loads[from].is_full();
                let intake = &self.players[from].intake;
                let Some(dealt) = (if all { intake.pop() } else { intake.pop_new() }) else {
                    break;
                };
                if self.refuses(to, &dealt) {
                    self.players[from].intake.push(dealt);
                    break;
                }
                self.loads[from].queued -= 1;
                self.players[from].counters.dealing.handed_on.add(1);
                self.players[to].counters.dealing.taken_over.add(1);
                self.hand(to, dealt);
                moved = true;
            }
        }
        if moved {
            self.look_ms = LOOK_MS;
        }
    }

    /// Workers may forget the sockets of which no connection waits any more.
    fn finish(&mut self) {
        let AcceptorTable { finishing, players, .. } = self;
        finishing.retain(|(cookie, known)| {
            let cookie = *cookie;
            if players.iter().any(|player| player.intake.may_have(cookie)) {
                return true;
            }
            known.iter().for_each(|player| player.remote.run(Box::new(move || thread::finish(cookie))));
            false
        });
    }

    /// How long the thread may wait.
    fn wait(&mut self) -> Option<u64> {
        let retry = match self.polling {
            PollingState::On => None,
            PollingState::Starved(_) => Some(RETRY_MS),
            PollingState::Crowded => Some(CROWDED_MS),
        };
        let parked = self.lot.deadline().map(|at| at.saturating_sub(clock::monotonic_ms()) + 1);
        let even = self.even_at.map(|at| at.saturating_duration_since(Instant::now()).as_millis() as u64 + 1);
        let retry = [retry, parked, even].into_iter().flatten().min();
        let queued = self.players.iter().any(|player| !player.intake.is_empty());
        if !queued && self.finishing.is_empty() {
            return retry;
        }
        let look = self.look_ms;
        self.look_ms = (look * 2).min(CROWDED_MS);
        Some(retry.map_or(look, |retry| retry.min(look)))
    }

    /// Has the poller poll the sockets, or not.
    fn apply(&mut self, poller: &Poller) {
        let on = self.polling == PollingState::On && !self.players.is_empty();
        for polled in &mut self.sockets {
            if polled.polled == on {
                continue;
            }
            if !on {
                poller.forget(&polled.socket.fd);
            } else if let Err(error) = poller.watch(&polled.socket.fd, polled.socket.cookie) {
                log::cycle(LogLevel::Alert, &format_args!("epoll_ctl() failed: {error}"));
                continue;
            }
            polled.polled = on;
        }
    }

    fn update(
        &mut self,
        poller: &Poller,
        sockets: Vec<DealtSocket>,
        players: Vec<AcceptorPlayer>,
        most: ConnectionLimit,
    ) {
        let before = std::mem::replace(&mut self.players, players);
        self.most = ConnectionLimit::NONE; // what was accepted, or waits in a socket that is closed, is not refused
        self.look();
        let retired: Vec<AcceptorPlayer> = before.into_iter().filter(|player| !self.plays(player)).collect();
        self.adopt_parked(&retired);
        for gone in &retired {
            while let Some(dealt) = gone.intake.pop() {
                gone.counters.dealing.handed_on.add(1);
                let Some(at) = self.choice.choose(&self.loads) else { break };
                self.players[at].counters.dealing.taken_over.add(1);
                self.hand(at, dealt);
            }
        }
        let by_cookie = |polled: PolledSocket| (polled.socket.cookie, polled);
        let mut old: HashMap<u64, _> = std::mem::take(&mut self.sockets).into_iter().map(by_cookie).collect();
        let wanted: HashSet<u64> = sockets.iter().map(|socket| socket.cookie).collect();
        self.finishing.retain(|(cookie, _)| !wanted.contains(cookie));
        for socket in sockets {
            let known = old.remove(&socket.cookie);
            self.sockets.push(known.unwrap_or(PolledSocket { socket, polled: false }));
        }
        for gone in old.into_values() {
            if gone.polled {
                poller.forget(&gone.socket.fd);
            }
            self.drain(&gone.socket);
            let mut known = self.players.clone();
            known.extend(retired.iter().cloned());
            self.finishing.push((gone.socket.cookie, known));
        }
        self.most = most;
        self.even_at = Some(Instant::now() + EVEN);
        self.look_ms = LOOK_MS;
        self.finish();
    }

    /// What was parked by workers that are gone is counted for those that are left, by turns.
    fn adopt_parked(&mut self, retired: &[AcceptorPlayer]) {
        if self.players.is_empty() {
            return;
        }
        for gone in retired {
            for (turn, token) in self.lot.tokens(|parked| parked.from == gone.id).into_iter().enumerate() {
                let player = &self.players[turn % self.players.len()];
                gone.counters.dealing.parked.sub(1);
                player.counters.dealing.parked.add(1);
                self.lot.belongs_now(token, player.id);
            }
        }
    }

    fn plays(&self, player: &AcceptorPlayer) -> bool {
        self.players.iter().any(|other| Arc::ptr_eq(&other.intake, &player.intake))
    }

    /// Deals what waits in a socket that is closed: its closing would reset it.
    fn drain(&mut self, gone: &DealtSocket) {
        for _ in 0..DRAIN_MOST {
            let Some(at) = self.choice.choose(&self.loads) else { return };
            let Some((fd, peer)) = self.accept(&gone.fd) else { return };
            self.deal(at, DealtConnection::New { fd, peer, cookie: gone.cookie });
        }
    }
}

impl AcceptorPlayer {
    fn load(&self, most: u64) -> WorkerLoad {
        let counters = &self.counters;
        WorkerLoad {
            open: counters.active.get(),
            parked: counters.dealing.parked.get(),
            queued: counters.dealing.queued.get(),
            in_flight: counters.writing.get(),
            turn_us: self.stats.turn_ns() / 1000,
            lost_core: false,
            most,
        }
    }
}

/// Connections accepted from one socket before the others, and the queues, are looked at again.
const AT_ONCE: usize = 64;
/// Connections taken at most of a socket that is closed: more than come meanwhile is not what waited before.
const DRAIN_MOST: usize = 4096;
/// After this many milliseconds a queue that is not empty is looked at again.
const LOOK_MS: u64 = 3;
/// How long at most no worker has room without a look.
const CROWDED_MS: u64 = 50;
/// How long accepting pauses when it fails.
const RETRY_MS: u64 = 50;
/// How often it is looked whether shares are even.
const EVEN: Duration = Duration::from_secs(1);
/// That it fails is logged every half a second at most, as nginx tries.
const TELL_MS: u64 = 500;
