//! The coroutines of a run: its entry, its light threads, and those that scripts make.
//!
//! Scripts make them by the thousand, so nothing of [`RunThreads`] that happens once per coroutine looks at all of them.

use std::collections::{HashMap, VecDeque};
use std::ops::Index;
use std::rc::Rc;

use weir_engine::subrequest::SubrequestCall;
use weir_rt::Timer;
use weir_trace::WaitKind;

use crate::luajit::state::LuaState;
use crate::run::op::{OpWait, PieceReceiver};
use crate::vm::key_hash::FoldedState;

/// One coroutine of a run.
pub(crate) struct LuaThread {
    pub(crate) state: LuaState,
    /// What keeps Lua from collecting it; none once it is over, and then `state` only distinguishes it from others.
    pub(crate) anchor: Option<i32>,
    pub(crate) kind: ThreadKind,
    /// The coroutine that made it (light threads), or resumed it last (coroutines).
    pub(crate) parent: Option<usize>,
    status: ThreadStatus,
    /// What it waits for, as traces show it.
    pub(crate) wait: WaitKind,
    /// It can be used again: it ended without an error.
    pub(crate) clean: bool,
    /// Its errors are raised again in its resumer (`coroutine.wrap`).
    pub(crate) wrap: bool,
}

impl LuaThread {
    pub(crate) fn new(state: LuaState, anchor: i32, kind: ThreadKind, parent: Option<usize>) -> LuaThread {
        let status =
            if kind == ThreadKind::Coroutine { ThreadStatus::Suspended } else { ThreadStatus::Running };
        let (anchor, wait) = (Some(anchor), WaitKind::Other);
        LuaThread { state, anchor, kind, parent, status, wait, clean: false, wrap: false }
    }

    pub(crate) fn status(&self) -> &ThreadStatus {
        &self.status
    }

    /// The run is not over before it is.
    fn lasts(&self) -> bool {
        self.kind != ThreadKind::Coroutine && !self.status.has_ended()
    }
}

/// All coroutines of a run, by place. One that is over leaves its place to another: at once, unless it is a light thread,
/// which scripts may ask for later.
#[derive(Default)]
pub(crate) struct RunThreads {
    list: Vec<LuaThread>,
    /// Places of coroutines that are over.
    vacant: Vec<usize>,
    /// Places of light threads that are over, the oldest first.
    over: VecDeque<usize>,
    /// Where coroutines are, once there are many. Each run makes a map, so its hasher must be made of nothing.
    places: HashMap<LuaState, usize, FoldedState>,
    /// Entry and light threads that have not ended.
    lasting: usize,
    /// Those that wait for light threads.
    joining: usize,
    /// Those that wait for anything else.
    waiting: usize,
}

impl Index<usize> for RunThreads {
    type Output = LuaThread;

    fn index(&self, at: usize) -> &LuaThread {
        &self.list[at]
    }
}

impl RunThreads {
    pub(crate) fn get_mut(&mut self, at: usize) -> &mut LuaThread {
        &mut self.list[at]
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, LuaThread> {
        self.list.iter()
    }

    /// Adds a coroutine: its place, and the coroutine that was there before.
    pub(crate) fn add(&mut self, thread: LuaThread) -> (usize, Option<LuaThread>) {
        let (state, lasts) = (thread.state, thread.lasts());
        self.lasting += usize::from(lasts);
        let old = self.over.len() > KEPT_OVER;
        let place = self.vacant.pop().or_else(|| if old { self.over.pop_front() } else { None });
        let (at, gone) = match place {
            Some(at) => {
                let gone = std::mem::replace(&mut self.list[at], thread);
                if self.places.get(&gone.state) == Some(&at) {
                    self.places.remove(&gone.state);
                }
                (at, Some(gone))
            }
            None => {
                self.list.push(thread);
                (self.list.len() - 1, None)
            }
        };
        match self.list.len() {
            0..FEW => {}
            FEW if self.places.is_empty() => {
                let places = || self.list.iter().enumerate().map(|(at, thread)| (thread, at));
                let over = places().filter(|(thread, _)| thread.anchor.is_none());
                let others = places().filter(|(thread, _)| thread.anchor.is_some());
                self.places = over.chain(others).map(|(thread, at)| (thread.state, at)).collect();
            }
            _ => {
                self.places.insert(state, at);
            }
        }
        (at, gone)
    }

    /// Where a coroutine is. Of one that is over the memory may be another's by now, which comes first.
    pub(crate) fn find(&self, state: LuaState) -> Option<usize> {
        if !self.places.is_empty() {
            return self.places.get(&state).copied();
        }
        let of = |anchored: bool| {
            self.list.iter().rposition(|thread| thread.state == state && thread.anchor.is_some() == anchored)
        };
        of(true).or_else(|| of(false))
    }

    /// Changes what a coroutine does; what it did before.
    pub(crate) fn set(&mut self, at: usize, status: ThreadStatus) -> ThreadStatus {
        // From one script to another and back, which no count is of.
        if self.list[at].status.is_plain() && status.is_plain() {
            return std::mem::replace(&mut self.list[at].status, status);
        }
        let lasted = self.list[at].lasts();
        let before = std::mem::replace(&mut self.list[at].status, status);
        let (thread, now) = (&self.list[at], &self.list[at].status);
        self.lasting = self.lasting + usize::from(thread.lasts()) - usize::from(lasted);
        self.joining = self.joining + usize::from(now.joins()) - usize::from(before.joins());
        self.waiting = self.waiting + usize::from(now.waits()) - usize::from(before.waits());
        if matches!(now, ThreadStatus::Dead) && !matches!(before, ThreadStatus::Dead) {
            match thread.kind {
                ThreadKind::Entry => {}
                ThreadKind::Light => self.over.push_back(at),
                ThreadKind::Coroutine => self.vacant.push(at),
            }
        }
        before
    }

    /// How many there are that are not over.
    pub(crate) fn living(&self) -> usize {
        self.list.len() - self.vacant.len() - self.over.len()
    }

    /// Entry and light threads that have not ended.
    pub(crate) fn lasting(&self) -> usize {
        self.lasting
    }

    /// Whether any waits for anything but light threads.
    pub(crate) fn any_waits(&self) -> bool {
        self.waiting > 0
    }

    /// The coroutine that waits for the light thread `state`.
    pub(crate) fn waiter_of(&self, state: LuaState) -> Option<usize> {
        let waits = |thread: &LuaThread| matches!(&thread.status, ThreadStatus::Waiting(ThreadWait::Threads(list)) if list.contains(&state));
        // The parent alone may, and is the entry as a rule.
        if self.joining > 0 { self.list.iter().position(waits) } else { None }
    }

    /// What the coroutine waits for that is polled.
    pub(crate) fn wait_of(&mut self, at: usize) -> Option<&mut OpWait> {
        match &mut self.list[at].status {
            ThreadStatus::Waiting(ThreadWait::Wait(wait) | ThreadWait::Captured(wait)) => Some(wait),
            _ => None,
        }
    }

    /// What takes pieces of the body for the coroutine, if it waits for one: and this many milliseconds for each.
    pub(crate) fn pieces_of(&mut self, at: usize) -> Option<(u64, &Rc<Timer>, &mut PieceReceiver)> {
        match &mut self.list[at].status {
            ThreadStatus::Waiting(ThreadWait::Pieces(ms, timer, take)) => Some((*ms, timer, take)),
            _ => None,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.list.capacity()
    }

    /// Forgets all of them; what they waited for is dropped.
    pub(crate) fn clear(&mut self) {
        let RunThreads { list, vacant, over, places, lasting, joining, waiting } = self;
        list.clear();
        vacant.clear();
        over.clear();
        places.clear();
        (*lasting, *joining, *waiting) = (0, 0, 0);
    }
}

/// Up to here a look at each is cheaper than a map.
const FEW: usize = 32;
/// Light threads that are over and still known to be ("already waited or killed").
const KEPT_OVER: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadKind {
    /// The script itself.
    Entry,
    /// `ngx.thread.spawn`
    Light,
    /// `coroutine.create`
    Coroutine,
}

pub(crate) enum ThreadStatus {
    /// It was not resumed yet, or is at a `coroutine.yield` of its own.
    Suspended,
    /// It runs, or is in the queue to.
    Running,
    /// It has resumed another coroutine.
    Normal,
    /// It waits.
    Waiting(ThreadWait),
    /// It has ended and was not waited for: what it returned is on its stack, after its success flag.
    Zombie,
    Dead,
}

/// What for.
pub(crate) enum ThreadWait {
    Wait(OpWait),
    Threads(Vec<LuaState>),
    /// Its time ([`SleepingThreads::add`](crate::run::sleepers::SleepingThreads::add)), and what is logged then.
    Sleep(u64, Option<Box<str>>),
    Body,
    Append(Vec<u8>, usize),
    /// Pieces of the body, each at most this many milliseconds after the one before: for this one `Timer` runs.
    Pieces(u64, Rc<Timer>, PieceReceiver),
    Flush,
    Capture(Vec<SubrequestCall>),
    /// Responses of subrequests that run while others of the run go on.
    Captured(OpWait),
}

impl ThreadStatus {
    /// As `coroutine.status` says.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ThreadStatus::Suspended => "suspended",
            ThreadStatus::Running | ThreadStatus::Waiting(_) => "running",
            ThreadStatus::Normal => "normal",
            ThreadStatus::Zombie => "zombie",
            ThreadStatus::Dead => "dead",
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, ThreadStatus::Zombie | ThreadStatus::Dead)
    }

    /// It goes on, now or once it is resumed.
    fn is_plain(&self) -> bool {
        matches!(self, ThreadStatus::Suspended | ThreadStatus::Running | ThreadStatus::Normal)
    }

    fn joins(&self) -> bool {
        matches!(self, ThreadStatus::Waiting(ThreadWait::Threads(_)))
    }

    fn waits(&self) -> bool {
        matches!(self, ThreadStatus::Waiting(_)) && !self.joins()
    }
}
