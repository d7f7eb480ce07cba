//! The simulation: its clock, and who runs next.

use std::fmt::Write;

use weir_sim::draw::{Draw, TraceHash};

use crate::addresses::{SocketAddresses, SocketName};
use crate::kernel;
pub(crate) use crate::start::{MONOTONIC_START, WALL_START};
use crate::thread_state::{SimThread, ThreadWait, Woken};
use crate::world::World;

/// Everything that is simulated.
pub(crate) struct Simulation {
    /// Nanoseconds since the beginning.
    pub(crate) now: u64,
    pub(crate) threads: Vec<SimThread>,
    pub(crate) addresses: SocketAddresses,
    pub(crate) world: World,
    /// Which thread ran when, and what it drew.
    pub(crate) hash: TraceHash,
    /// What threads are told by getrandom(2).
    pub(crate) random: Draw,
    order: Draw,
    choices: u64,
}

/// What a look at the clock takes, nanoseconds: what waits for time to pass sees it pass.
const LOOK: u64 = 100;
/// What a choice takes, nanoseconds.
const CHOICE: u64 = 1000;
/// A simulation that goes on for longer does not end by itself.
const MOST_CHOICES: u64 = 3_000_000;

impl Simulation {
    pub(crate) fn new(seed: u64, world: World) -> Simulation {
        let draw = Draw::new(seed);
        Simulation {
            now: 0,
            threads: vec![SimThread::new()],
            addresses: SocketAddresses::default(),
            world,
            hash: TraceHash::default(),
            random: draw.apart(10),
            order: draw.apart(11),
            choices: 0,
        }
    }

    /// The time, which passes with each look.
    pub(crate) fn look_at_clock(&mut self) -> u64 {
        self.now += LOOK;
        self.now
    }

    /// Whether a thread that could go on lets others run.
    pub(crate) fn pauses(&mut self) -> bool {
        self.order.chance(1, 8)
    }

    /// Why the next accept(2) fails; 0: it does not.
    pub(crate) fn accept_fault(&mut self) -> i32 {
        let faults = self.world.accept_faults();
        if faults == 0 || !self.order.chance(faults, 1000) {
            return 0;
        }
        *self.order.one_of(&[libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ECONNABORTED, libc::EINTR])
    }

    /// The server sends a datagram by `fd`; the error, if the system does not take it. `source`: the address it is to leave from,
    /// `to`: where it goes, if that is not the socket's peer.
    pub(crate) fn send_datagram(
        &mut self,
        fd: i32,
        source: Option<[u8; 4]>,
        to: Option<SocketName>,
        bytes: &[u8],
    ) -> Result<(), i32> {
        let faults = self.world.datagram_faults();
        if faults > 0 && self.order.chance(faults, 1000) {
            return Err(*self.order.one_of(&[libc::EAGAIN, libc::ENOBUFS, libc::EINTR]));
        }
        let to = to.or_else(|| self.addresses.peer(fd)).ok_or(libc::EDESTADDRREQ)?;
        let (host, port) = self.addresses.local(fd).unwrap_or(([127, 0, 0, 1], 0));
        let host = source.unwrap_or(if host == [0; 4] { [127, 0, 0, 1] } else { host });
        self.world.server_sends(self.now, (host, port), to, bytes);
        Ok(())
    }

    /// Who runs next: one of those that can, as the seed says. Where none can, the clock goes on until one does.
    pub(crate) fn choose(&mut self) -> usize {
        loop {
            self.now += CHOICE;
            self.choices += 1;
            if self.choices > MOST_CHOICES {
                self.give_up("it does not come to an end");
            }
            self.world.act(self.now, &mut self.addresses, self.hash);
            let ready = self.ready();
            if !ready.is_empty() {
                let (thread, reason) = *self.order.one_of(&ready);
                if let Some(chosen) = self.threads.get_mut(thread) {
                    (chosen.wait, chosen.reason, chosen.deadline) = (ThreadWait::Nothing, reason, None);
                }
                self.hash.add_number(thread as u64);
                self.hash.add_number(self.now);
                return thread;
            }
            let deadlines = self.threads.iter().filter(|thread| !matches!(thread.wait, ThreadWait::Gone));
            let next = deadlines.filter_map(|thread| thread.deadline).chain(self.world.next()).min();
            match next {
                Some(next) => self.now = self.now.max(next),
                None => self.give_up("all threads wait for something that nobody will do"),
            }
        }
    }

    /// The threads that can go on, and why.
    fn ready(&self) -> Vec<(usize, Woken)> {
        let mut polled: Vec<libc::pollfd> = Vec::new();
        for thread in &self.threads {
            if let ThreadWait::Descriptors(these) = &thread.wait {
                polled.extend(these);
            }
        }
        if !polled.is_empty() {
            kernel::ready(&mut polled);
        }
        let mut ready = Vec::new();
        let mut at = 0;
        for (number, thread) in self.threads.iter().enumerate() {
            let by_event = match &thread.wait {
                ThreadWait::Nothing => true,
                ThreadWait::Time | ThreadWait::Gone => false,
                ThreadWait::Futex(_) => thread.is_woken,
                ThreadWait::End(other) => {
                    self.threads.get(*other).is_none_or(|other| matches!(other.wait, ThreadWait::Gone))
                }
                ThreadWait::Descriptors(these) => {
                    let mine = polled.get(at..at + these.len()).unwrap_or_default();
                    at += these.len();
                    mine.iter().any(|one| one.revents != 0)
                }
            };
            let is_late = thread.deadline.is_some_and(|deadline| deadline <= self.now);
            match (by_event, &thread.wait) {
                (_, ThreadWait::Gone) => (),
                (true, _) => ready.push((number, Woken::ByEvent)),
                (false, _) if is_late => ready.push((number, Woken::ByTime)),
                (false, _) => (),
            }
        }
        ready
    }

    /// Wakes up to `most` threads that wait at `address`, the first to wait first; how many there were.
    pub(crate) fn wake(&mut self, address: usize, most: usize) -> usize {
        let waiting = |thread: &&mut SimThread| {
            !thread.is_woken && matches!(thread.wait, ThreadWait::Futex(there) if there == address)
        };
        let woken = self.threads.iter_mut().filter(waiting).take(most);
        woken.map(|thread| thread.is_woken = true).count()
    }

    /// Ends the process: what waits for what is on standard error.
    fn give_up(&mut self, why: &str) -> ! {
        let mut text =
            format!("weir-world: {why}, after {} choices, at {} us\n", self.choices, self.now / 1000);
        for (number, thread) in self.threads.iter().enumerate() {
            let _ = writeln!(text, "  thread {number}: {:?} until {:?}", thread.wait, thread.deadline);
        }
        kernel::write_all(2, text.as_bytes());
        self.world.write_journal(self.now, self.hash);
        kernel::exit(72)
    }
}
