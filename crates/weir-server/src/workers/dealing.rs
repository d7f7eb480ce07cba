//! Which worker gets a connection: a pure function of what the workers publish, without clock, lock or socket, so that
//! it can be simulated.
//!
//! The worker with the fewest connections gets the next one, those counted that wait in its queue or are parked for it.
//! The choice sees every worker because there is one place that chooses: the better of two drawn by chance, which needs
//! no such place, leaves the largest share of 192 connections on 8 workers at 1.17 times the mean on average, where
//! this leaves it at 1.00. A worker whose turn has lasted longer than [`LATE_US`] is passed over as long as another is
//! not late: it may be stuck, and what would be in its queue would have to be taken out again ([`WorkerChoice::rescue`]).

/// What is known of a worker when a connection is dealt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerLoad {
    /// Number of open connections.
    pub open: u64,
    /// Connections that were the worker's and wait for a request outside of it.
    pub parked: u64,
    /// Connections in its queue: accepted, and not taken yet.
    pub queued: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// How long its turn has taken so far, in microseconds; 0 while it waits for events, or is about to stop waiting.
    pub turn_us: u64,
    /// True when it could go on with its turn, and has no core.
    pub lost_core: bool,
    /// The most connections it may have (`worker_connections`).
    pub most: u64,
}

impl WorkerLoad {
    /// All connections that are or will be its own.
    pub fn share(&self) -> u64 {
        self.open + self.parked + self.queued
    }

    /// True when it has as many connections as it may.
    pub fn is_full(&self) -> bool {
        self.share() >= self.most
    }

    /// True when its turn has lasted so long that it may be stuck.
    pub fn is_late(&self) -> bool {
        self.turn_us >= LATE_US
    }

    /// Late and stuck first, then the share, then the requests in flight, as one number: the smaller the better.
    fn rank(&self) -> u64 {
        let share = self.share().min((1 << 30) - 1);
        let in_flight = self.in_flight.min(u64::from(u32::MAX));
        u64::from(self.is_late()) << 63 | u64::from(self.is_stuck()) << 62 | share << 32 | in_flight
    }

    /// True when it is late, and not for want of a core.
    pub fn is_stuck(&self) -> bool {
        self.is_late() && !self.lost_core
    }
}

/// Chooses workers; the same calls give the same choices.
#[derive(Clone, Debug)]
pub struct WorkerChoice {
    /// Where the search begins, so that workers with equal shares take turns.
    next: usize,
}

impl WorkerChoice {
    /// The first of equal workers is that of number `first`.
    pub fn new(first: usize) -> WorkerChoice {
        WorkerChoice { next: first }
    }

    /// The worker for a new connection. When all are full, one whose queue is empty: it closes an idle connection for
    /// the new one, or lets it wait for the next that ends. `None`: none of them has room even for that.
    pub fn choose(&mut self, loads: &[WorkerLoad]) -> Option<usize> {
        let chosen = self.best(loads, |load| !load.is_full()).or_else(|| {
            // Their shares are equal: some may be late.
            self.best(loads, |load| load.queued == 0)
        })?;
        self.next = (chosen + 1) % loads.len();
        Some(chosen)
    }

    /// The worker for a new connection that not all of them may have: the one with the smallest share of those that `may`; `None`:
    /// none of them has room.
    pub(crate) fn choose_of(&mut self, loads: &[WorkerLoad], may: impl Fn(usize) -> bool) -> Option<usize> {
        let room = |load: &WorkerLoad| !load.is_full() || load.queued == 0;
        let those = loads.iter().enumerate().filter(|(at, load)| may(*at) && room(load));
        those.min_by_key(|(_, load)| (load.is_full(), load.rank())).map(|(at, _)| at)
    }

    /// The worker for a connection that was parked by worker `from`, and of which `loads` no longer know: that one, which
    /// has most of what its requests need in its caches, unless it is stuck, or has an eighth more than the one with the
    /// smallest share. One that has lost its core is back soon: where all cores are busy, that happens to all workers by
    /// turns, and connections would go round.
    pub(crate) fn choose_again(&mut self, loads: &[WorkerLoad], from: Option<usize>) -> Option<usize> {
        let best = self.best(loads, |load| !load.is_full());
        let kept = from.filter(|&from| {
            let smallest = best.map_or(u64::MAX, |best| loads[best].share());
            loads.get(from).is_some_and(|load| {
                !load.is_stuck()
                    && !load.is_full()
                    && load.share() <= smallest.saturating_add(smallest / 8 + SLACK)
            })
        });
        kept.or(best).or_else(|| self.choose(loads))
    }

    /// The number of the worker for a connection that waits in the queue of worker `from`; `None`: it stays there. It
    /// is moved only from one that is late or full, and only to one that waits or turns.
    pub fn rescue(&mut self, loads: &[WorkerLoad], from: usize) -> Option<usize> {
        let stuck = loads.get(from)?;
        // Not counting the one that is to be moved.
        let full = stuck.share().saturating_sub(1) >= stuck.most;
        if stuck.queued == 0 || !(stuck.is_late() || full) {
            return None;
        }
        let chosen = self.best(loads, |load| !load.is_full() && !load.is_late())?;
        (chosen != from).then_some(chosen)
    }

    /// The worker for what is parked for worker `from`; `None`: none has less by two, or room.
    pub(crate) fn relief(&self, loads: &[WorkerLoad], from: usize) -> Option<usize> {
        let to = self.best(loads, |load| !load.is_full())?;
        (loads[to].share() + 1 < loads.get(from)?.share()).then_some(to)
    }

    /// Of the workers that `may`, one that is not late if there is one, and of those the one with the smallest share,
    /// then the fewest requests in flight, then the next in turn.
    fn best(&self, loads: &[WorkerLoad], may: impl Fn(&WorkerLoad) -> bool) -> Option<usize> {
        let mut at = self.next.checked_rem(loads.len())?;
        let mut best: Option<(u64, usize)> = None;
        // For each connection all workers are gone through: plain steps.
        for _ in loads {
            let load = loads.get(at)?;
            if may(load) {
                let rank = load.rank();
                if best.is_none_or(|(least, _)| rank < least) {
                    best = Some((rank, at));
                }
            }
            at = if at + 1 == loads.len() { 0 } else { at + 1 };
        }
        best.map(|(_, at)| at)
    }
}

/// Says of which workers connections are to end, so that their clients connect again, where shares stay uneven: for
/// connections that live long and can't be moved. Called once a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionEvening {
    /// By worker: how often in a row its share was too large.
    uneven: Vec<u32>,
}

impl ConnectionEvening {
    /// Of which workers how many connections should end now: of those whose share has been [`UNEVEN`] times the mean for
    /// [`PATIENT`] calls, a fiftieth of what they have, and no more than brings them to the mean.
    pub(crate) fn check(&mut self, loads: &[WorkerLoad]) -> Vec<(usize, u64)> {
        self.uneven.resize(loads.len(), 0);
        let mean = loads.iter().map(WorkerLoad::share).sum::<u64>() / (loads.len() as u64).max(1);
        let mut ends = Vec::new();
        for (at, load) in loads.iter().enumerate() {
            let share = load.share();
            let much = share * UNEVEN.1 > mean * UNEVEN.0 + SLACK * UNEVEN.1;
            self.uneven[at] = if much { self.uneven[at] + 1 } else { 0 };
            if self.uneven[at] >= PATIENT {
                ends.push((at, (share / 50).clamp(1, share - mean)));
            }
        }
        ends
    }

    /// Whether a worker's share was too large at the last call.
    pub(crate) fn goes_on(&self) -> bool {
        self.uneven.iter().any(|&times| times > 0)
    }
}

/// Calls in a row that find a share too large before anything is done: what is uneven for a moment, new connections mend.
const PATIENT: u32 = 3;
/// This many times the mean is uneven, as a fraction.
const UNEVEN: (u64, u64) = (13, 10);
/// From here on a turn is late: an ordinary one takes well below a millisecond, and a client may wait for a stuck worker
/// 5 ms more than for a busy machine at the most.
pub const LATE_US: u64 = 3_000;

/// Shares that differ by no more than this are even: those of a few connections always are not.
const SLACK: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parked_connection_goes_back_to_its_worker_unless_that_is_late_or_has_more_than_others() {
        let mut loads = idle(3);
        let mut choice = WorkerChoice::new(0);
        assert_eq!(choice.choose_again(&loads, Some(1)), Some(1));
        loads[1].open = SLACK + 1;
        assert_eq!(choice.choose_again(&loads, Some(1)), Some(0));
        loads.iter_mut().for_each(|load| load.open = 80);
        loads[1].open += 10;
        assert_eq!(choice.choose_again(&loads, Some(1)), Some(1));
        loads[1].turn_us = LATE_US;
        assert_ne!(choice.choose_again(&loads, Some(1)), Some(1));
        assert_eq!(choice.choose_again(&loads, None), Some(0));
        loads[1].lost_core = true;
        assert_eq!(choice.choose_again(&loads, Some(1)), Some(1), "it is back soon");
        loads.iter_mut().for_each(|load| load.turn_us = LATE_US);
        assert_eq!(choice.choose(&loads), Some(1), "the others are stuck");
    }

    fn idle(count: usize) -> Vec<WorkerLoad> {
        vec![WorkerLoad { most: 512, ..WorkerLoad::default() }; count]
    }

    /// Deals `count` connections and returns the shares.
    fn dealt(loads: &mut [WorkerLoad], count: usize) -> Vec<u64> {
        let mut choice = WorkerChoice::new(0);
        for _ in 0..count {
            let at = choice.choose(loads).expect("a worker has room");
            loads[at].open += 1;
        }
        loads.iter().map(WorkerLoad::share).collect()
    }

    #[test]
    fn shares_are_equal_and_even_out_after_some_have_left() {
        let mut loads = idle(8);
        assert_eq!(dealt(&mut loads, 192), [24; 8]);
        loads[..4].iter_mut().for_each(|load| load.open = 0);
        assert_eq!(dealt(&mut loads, 96), [24; 8]);
        assert_eq!(dealt(&mut loads, 4).iter().filter(|&&share| share == 25).count(), 4);
    }

    #[test]
    fn a_late_worker_gets_nothing_while_another_is_not() {
        let mut loads = idle(3);
        loads[1].turn_us = LATE_US;
        (loads[0].open, loads[2].open) = (100, 100);
        assert_eq!(dealt(&mut loads, 10), [105, 0, 105]);
        loads.iter_mut().for_each(|load| load.turn_us = LATE_US);
        assert_eq!(dealt(&mut loads, 10), [105, 10, 105]);
    }

    #[test]
    fn full_workers_get_one_to_wait_each_and_no_more() {
        let mut loads = idle(2);
        loads.iter_mut().for_each(|load| (load.open, load.most) = (10, 10));
        let mut choice = WorkerChoice::new(0);
        for at in [0, 1] {
            assert_eq!(choice.choose(&loads), Some(at));
            loads[at].queued += 1;
        }
        assert_eq!(choice.choose(&loads), None);
        assert_eq!(choice.rescue(&loads, 0), None, "the other one is full, too");
        loads[1].open -= 3;
        assert_eq!(choice.choose(&loads), Some(1));
        assert_eq!(choice.rescue(&loads, 0), Some(1), "room was made elsewhere");
    }

    #[test]
    fn what_waits_for_a_stuck_worker_goes_to_one_that_turns() {
        let mut loads = idle(3);
        loads[0] = WorkerLoad { queued: 2, turn_us: LATE_US, ..loads[0] };
        loads[1] = WorkerLoad { turn_us: LATE_US, ..loads[1] };
        loads[2].open = 30;
        let mut choice = WorkerChoice::new(0);
        assert_eq!(choice.rescue(&loads, 0), Some(2));
        loads[2].turn_us = LATE_US;
        assert_eq!(choice.rescue(&loads, 0), None, "all are late: the machine has no time for any of them");
        loads[2].turn_us = 0;
        loads[0].turn_us = LATE_US - 1;
        assert_eq!(choice.rescue(&loads, 0), None, "it turns");
    }

    #[test]
    fn what_is_parked_goes_to_those_with_the_least_until_shares_are_even() {
        let mut loads = idle(3);
        (loads[0].parked, loads[1].open) = (12, 2);
        let choice = WorkerChoice::new(0);
        while let Some(to) = choice.relief(&loads, 0) {
            loads[0].parked -= 1;
            loads[to].parked += 1;
        }
        assert_eq!(loads.iter().map(WorkerLoad::share).collect::<Vec<_>>(), [5, 5, 4]);
        loads[1..].iter_mut().for_each(|load| (load.open, load.most) = (1, 1));
        assert_eq!(choice.relief(&loads, 0), None, "the others are full");
    }

    #[test]
    fn shares_that_stay_uneven_are_evened_out_at_a_bounded_rate() {
        let mut loads = idle(4);
        loads[2].open = 400;
        let mut evening = ConnectionEvening::default();
        assert_eq!((evening.check(&loads), evening.check(&loads)), (vec![], vec![]));
        assert!(evening.goes_on());
        let mut seconds = 0;
        // Clients that are asked to go connect again.
        while evening.goes_on() && seconds < 1000 {
            for (at, count) in evening.check(&loads) {
                assert!(count <= loads[at].open / 50 + 1);
                loads[at].open -= count;
                let gained = dealt(&mut loads, count as usize);
                assert_eq!(gained.iter().sum::<u64>(), 400);
            }
            seconds += 1;
        }
        assert!((10..200).contains(&seconds), "{seconds}");
        let largest = loads.iter().map(WorkerLoad::share).max();
        assert!(largest <= Some(133), "{loads:?}");
        let mut few = idle(4);
        few[0].open = 2;
        let mut evening = ConnectionEvening::default();
        assert!((0..10).all(|_| evening.check(&few).is_empty()));
    }

    #[test]
    fn no_workers_no_choice() {
        assert_eq!(ConnectionEvening::default().check(&[]), []);
        assert_eq!(WorkerChoice::new(7).choose(&[]), None);
    }
}
