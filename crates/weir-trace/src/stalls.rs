//! Turns of a loop that took too long: reported by the worker when they are over, and by the watchdog while they last.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::{CpuSample, LoopStall, RequestId};
use crate::site::Site;

/// The last stalls of one worker. In a lock: there is at most one every few milliseconds, by definition.
#[derive(Clone, Debug)]
pub struct StallLog {
    inner: Arc<Mutex<StallLogInner>>,
}

#[derive(Debug)]
struct StallLogInner {
    last: VecDeque<LoopStall>,
    room: usize,
    count: u64,
}

impl StallLog {
    pub(crate) fn new(room: usize) -> StallLog {
        StallLog { inner: Arc::new(Mutex::new(StallLogInner { last: VecDeque::new(), room, count: 0 })) }
    }

    /// Adds what is known of a stall. What the worker and the watchdog say of the same one (their times overlap)
    /// becomes one: the worker knows its length, site and victims, the watchdog what the kernel and the stack showed.
    pub fn add(&self, stall: LoopStall) {
        let mut inner = self.lock();
        if let Some(same) = inner.last.iter_mut().rev().find(|known| known.overlaps(&stall)) {
            return same.join(stall);
        }
        inner.count += 1;
        if inner.last.len() >= inner.room {
            inner.last.pop_front();
        }
        if inner.room > 0 {
            inner.last.push_back(stall);
        }
    }

    /// A stack that was taken: that of the stall that lasted then, if it has none yet.
    pub fn stack(&self, route: Site, sample: CpuSample) {
        let (mut inner, start) = (self.lock(), sample.time);
        let lasted = |stall: &&mut LoopStall| stall.start <= start && start <= stall.start + stall.duration;
        if let Some(stall) = inner.last.iter_mut().rev().find(lasted)
            && stall.sample.frames.is_empty()
        {
            stall.join(LoopStall { start, route, sample, ..LoopStall::default() });
        }
    }

    /// The last ones, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<LoopStall> {
        self.lock().last.iter().cloned().collect()
    }

    /// How many there were since the start.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.lock().count
    }

    pub(crate) fn set_room(&self, room: usize) {
        let mut inner = self.lock();
        inner.room = room;
        while inner.last.len() > room {
            inner.last.pop_front();
        }
    }

    /// Adds to the stall that lasted at `at`, if there is one, a request that was ready then, with the ticks it lost.
    /// Of many victims the first are named. True for the first of a stall.
    pub fn victim(&self, at: u64, request: RequestId, ticks: u64) -> bool {
        let mut inner = self.lock();
        let covers = |stall: &&mut LoopStall| stall.start <= at && at <= stall.start + stall.duration;
        let Some(stall) = inner.last.iter_mut().rev().find(covers) else { return false };
        if stall.victims.len() < VICTIMS {
            stall.victims.push((request, ticks));
        }
        stall.victims.len() == 1
    }

    /// The state a panicking thread leaves is consistent: entries are pushed and joined in one step.
    fn lock(&self) -> MutexGuard<'_, StallLogInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoopStall {
    /// Whether both are about one stall: their times overlap.
    #[must_use]
    pub fn overlaps(&self, other: &LoopStall) -> bool {
        self.start <= other.start + other.duration && other.start <= self.start + self.duration
    }

    fn join(&mut self, other: LoopStall) {
        let end = (self.start + self.duration).max(other.start + other.duration);
        self.start = self.start.min(other.start);
        self.duration = end - self.start;
        if self.state == 0 {
            self.state = other.state;
        }
        if self.route.is_none() {
            self.route = other.route;
        }
        // Of the part that a request had, and of the whole turn: the whole is more.
        self.is_over |= other.is_over;
        self.asleep = self.asleep.max(other.asleep);
        self.no_core = self.no_core.max(other.no_core);
        self.syscall = self.syscall.or(other.syscall);
        if self.wait_channel.is_empty() {
            self.wait_channel = other.wait_channel;
        }
        let (mine, theirs) = (&mut self.sample, other.sample);
        if mine.site.is_none() {
            mine.site = theirs.site;
        }
        if mine.request.0 == 0 {
            mine.request = theirs.request;
        }
        if mine.frames.is_empty() {
            (mine.time, mine.vm_state, mine.frames) = (theirs.time, theirs.vm_state, theirs.frames);
        }
        self.victims.extend(other.victims);
        // A later observation has counted on.
        self.connections = other.connections.or(self.connections);
    }
}

/// Victims named with a stall.
const VICTIMS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::StallConnections;

    #[test]
    fn worker_and_watchdog_tell_of_one_stall() {
        let stalls = StallLog::new(4);
        let sample = CpuSample { frames: vec![1, 2], ..CpuSample::default() };
        stalls.add(LoopStall {
            start: 110,
            duration: 20,
            state: b'S',
            syscall: Some(61),
            sample,
            ..LoopStall::default()
        });
        let sample = CpuSample { site: Site(70), request: RequestId(9), ..CpuSample::default() };
        stalls.add(LoopStall { start: 100, duration: 60, sample, ..LoopStall::default() });
        let [stall] = &stalls.list()[..] else { panic!("one stall") };
        assert_eq!((stall.start, stall.duration, stall.state, stall.syscall), (100, 60, b'S', Some(61)));
        assert_eq!((stall.sample.site, stall.sample.request.0, stall.sample.frames.len()), (Site(70), 9, 2));
        stalls.add(LoopStall { start: 200, duration: 10, ..LoopStall::default() });
        assert_eq!((stalls.list().len(), stalls.count()), (2, 2));
    }

    #[test]
    fn a_stack_belongs_to_the_stall_that_lasted_then() {
        let stalls = StallLog::new(4);
        [100, 200].into_iter().for_each(|start| {
            stalls.add(LoopStall { start, duration: 50, asleep: 40, ..LoopStall::default() });
        });
        let taken = |time, frame| CpuSample { time, frames: vec![frame], ..CpuSample::default() };
        stalls.stack(Site(70), taken(120, 1));
        stalls.stack(Site(71), taken(130, 2));
        stalls.stack(Site(72), taken(170, 3));
        let all = stalls.list();
        let seen =
            |at: usize| (all[at].start, all[at].duration, all[at].asleep, all[at].sample.frames.clone());
        assert_eq!((all.len(), seen(0), seen(1)), (2, (100, 50, 40, vec![1]), (200, 50, 40, vec![])));
        assert_eq!(all[0].route, Site(70));
    }

    #[test]
    fn connections_are_as_the_last_look_found_them() {
        let stalls = StallLog::new(1);
        let seen = |handed_on| Some(StallConnections { handed_on, dealt_elsewhere: 5, stayed: 2 });
        for connections in [seen(1), seen(3), None] {
            stalls.add(LoopStall { start: 100, duration: 60, connections, ..LoopStall::default() });
        }
        assert_eq!(stalls.list()[0].connections, seen(3));
    }

    #[test]
    fn only_the_last_are_there() {
        let stalls = StallLog::new(2);
        (0..5).for_each(|n| stalls.add(LoopStall { start: n * 100, duration: 10, ..LoopStall::default() }));
        assert_eq!(stalls.list().iter().map(|stall| stall.start).collect::<Vec<_>>(), [300, 400]);
        let firsts = (0..100).filter(|n| stalls.victim(305, RequestId(*n), 5));
        assert_eq!(firsts.count(), 1);
        assert!(!stalls.victim(350, RequestId(1), 5));
        assert_eq!((stalls.list()[0].victims.len(), stalls.list()[1].victims.len()), (VICTIMS, 0));
        assert_eq!(stalls.count(), 5);
    }
}
