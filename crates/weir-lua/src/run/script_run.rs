//! A script that runs for a request: its coroutines, which of them is next, and what the others wait for.
//!
//! [`ScriptRun::step`] resumes coroutines as long as one is ready and never waits: a script that needs nothing ends in it, and
//! no future is made. What waits after that is awaited by [`drive`](crate::run::drive), in the request's own task.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_engine::Exchange;
use weir_engine::log::LogLevel;
use weir_trace::{Site, WaitKind};

use crate::luajit::state::{LuaState, error_text};
use crate::luajit::sys;
use crate::run::function::LuaRaise;
use crate::run::lend::lend;
use crate::run::log_notes::LogNotes;
use crate::run::op::{OpWait, ScriptEnd, ThreadOp};
use crate::run::owned_run::OwnedRun;
use crate::run::sleepers::SleepingThreads;
use crate::run::thread::{LuaThread, RunThreads, ThreadKind, ThreadStatus, ThreadWait};
use crate::run::traced_files;
use crate::vm::lua_vm::LuaVm;
use crate::vm::phase::ScriptPhase;
use crate::vm::traps;

/// See the module.
pub(crate) struct ScriptRun {
    /// None where it has ended, or has not begun.
    vm: Option<Rc<LuaVm>>,
    pub(crate) phase: ScriptPhase,
    pub(crate) threads: RunThreads,
    /// The coroutine that goes on, with how many values on its stack as results of what it called.
    ready: VecDeque<(usize, i32)>,
    /// Coroutines that wait for something the request itself must do, in the order in which it was asked for.
    pub(crate) asked: VecDeque<usize>,
    /// What the coroutine that has just yielded asks for.
    pub(crate) op: Option<ThreadOp>,
    /// What that waits for, as traces show it.
    pub(crate) wait: WaitKind,
    pub(crate) current: usize,
    /// What was said and has not left yet.
    pub(crate) said: Vec<u8>,
    /// Something was said, flushed, or the head sent: OpenResty would have sent the head by now.
    pub(crate) began: bool,
    /// `lua_use_default_type`
    pub(crate) default_type: bool,
    /// The last error of a wrapped coroutine, and the stacks it came up through.
    raised: Option<(String, Vec<String>)>,
    sleepers: SleepingThreads,
    /// Coroutines that wait for what is polled.
    polled: Vec<usize>,
    /// The coroutine that waits, or did, for a piece of the request's body.
    pub(crate) receiver: Option<usize>,
    /// What `ngx.on_abort` was given, and its anchor.
    pub(crate) on_abort: Option<(LuaState, i32)>,
    /// `ngx.eof` was called.
    pub(crate) ended: bool,
    /// The client is gone; what is said goes nowhere.
    pub(crate) broken: bool,
    /// The script has the client's connection (`ngx.req.socket(true)`).
    pub(crate) raw: bool,
    /// What waits have to say to the log; none before one asks for it.
    notes: Option<LogNotes>,
    /// The address of what has the request's sockets, once a socket has asked; it is only compared.
    pub(crate) owner: *const (),
}

/// What a resumed coroutine gives to the one that has resumed it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallResult {
    /// Values, by yielding or at its end.
    Returned,
    /// An error.
    Raised,
}

/// How far a script came without waiting.
pub(crate) enum RunStep {
    /// To its end.
    Finished,
    /// To what ends it early.
    End(ScriptEnd),
    /// To where all of it waits.
    Waits,
}

impl ScriptRun {
    /// A run of the function on top of the VM's main stack, which it takes.
    pub(crate) fn begin(vm: &Rc<LuaVm>, phase: ScriptPhase) -> OwnedRun {
        ScriptRun::with_arguments(vm, phase, 0)
    }

    /// As [`ScriptRun::begin`], of a function that has this many arguments above it.
    pub(crate) fn with_arguments(vm: &Rc<LuaVm>, phase: ScriptPhase, args: i32) -> OwnedRun {
        let (state, anchor) = vm.coroutine();
        vm.main().give(state, 1 + args);
        let mut run = OwnedRun::take();
        (run.vm, run.phase) = (Some(vm.clone()), phase);
        run.threads.add(LuaThread::new(state, anchor, ThreadKind::Entry, None));
        run.ready.push_back((0, args));
        run
    }

    /// One that has not begun.
    pub(super) fn empty() -> ScriptRun {
        ScriptRun {
            vm: None,
            phase: ScriptPhase::Content,
            threads: RunThreads::default(),
            ready: VecDeque::new(),
            asked: VecDeque::new(),
            op: None,
            wait: WaitKind::Other,
            current: 0,
            said: Vec::new(),
            began: false,
            default_type: false,
            on_abort: None,
            raised: None,
            sleepers: SleepingThreads::default(),
            polled: Vec::new(),
            receiver: None,
            ended: false,
            broken: false,
            raw: false,
            notes: None,
            owner: std::ptr::null(),
        }
    }

    /// Ends it and gives back what it has: then it is as one that has not begun, whose memory serves another run. Takes it
    /// apart, so that a new field does not compile before it is decided what becomes of it here.
    pub(super) fn end(&mut self) {
        let Some(vm) = self.vm.take() else { return };
        if let Some((_, anchor)) = self.on_abort.take() {
            vm.release(anchor);
        }
        for thread in self.threads.iter() {
            match thread.anchor {
                Some(anchor) if thread.clean && thread.kind == ThreadKind::Entry => {
                    vm.give_back(thread.state, anchor);
                }
                Some(anchor) => vm.release(anchor),
                None => {}
            }
        }
        // By groups, and so not a line each.
        #[rustfmt::skip]
        let ScriptRun {
            threads, ready, asked, op, wait, current, said, began, default_type, raised, sleepers, polled, receiver, ended, broken,
            raw, notes, owner,
            // Taken before.
            vm: _, on_abort: _,
            // Set where a run begins.
            phase: _,
        } = self;
        threads.clear();
        ready.clear();
        asked.clear();
        polled.clear();
        *op = None;
        *wait = WaitKind::Other;
        *current = 0;
        *said = Vec::new();
        (*began, *default_type, *ended, *broken, *raw) = (false, false, false, false, false);
        *raised = None;
        *sleepers = SleepingThreads::default();
        *receiver = None;
        notes.take_if(|notes| !notes.reset());
        *owner = std::ptr::null();
    }

    /// The VM whose scripts it runs.
    pub(crate) fn vm(&self) -> &Rc<LuaVm> {
        self.vm.as_ref().expect("a run has its VM until it ends")
    }

    /// Where a wait leaves lines for the log.
    pub(crate) fn notes(&mut self) -> LogNotes {
        self.notes.get_or_insert_default().clone()
    }

    /// Runs what is ready, until all has ended or waits.
    pub(crate) fn step(&mut self, x: Option<&mut Exchange>) -> RunStep {
        let vm = self.vm().clone();
        vm.limits.watch(vm.main(), self.phase, || self.resume_all(&vm, x))
    }

    fn resume_all(&mut self, vm: &LuaVm, mut x: Option<&mut Exchange>) -> RunStep {
        while let Some((at, values)) = self.ready.pop_front() {
            if self.threads[at].status().has_ended() {
                continue;
            }
            self.current = at;
            self.threads.set(at, ThreadStatus::Running);
            if let Some(notes) = &self.notes {
                notes.tell(self.phase, x.as_deref());
            }
            let state = self.threads[at].state;
            let status = lend(vm, self.phase, x.as_deref_mut(), Some(self), || {
                // SAFETY: the coroutine is at its beginning or at a yield, with `values` on its stack for it.
                vm.limits.within(|| unsafe { sys::lua_resume(state.raw(), values) })
            });
            if status == sys::status::ERRMEM {
                // SAFETY: the coroutine has ended, with an error's value.
                unsafe { sys::weir_lua_unframe(state.raw()) };
            }
            let end = match status {
                sys::status::YIELD => self.yielded(at),
                sys::status::OK => {
                    self.returned(at);
                    None
                }
                _ => self.failed(at, status, x.as_deref_mut()),
            };
            if let Some(end) = end {
                return RunStep::End(end);
            }
        }
        if self.is_over() { RunStep::Finished } else { RunStep::Waits }
    }

    /// The entry and all light threads have ended.
    fn is_over(&self) -> bool {
        self.threads.lasting() == 0
    }

    fn yielded(&mut self, at: usize) -> Option<ScriptEnd> {
        let state = self.threads[at].state;
        let waiting = match self.op.take() {
            Some(ThreadOp::End(end)) => return Some(end),
            // A third-party C library that yields: as `coroutine.yield`.
            Some(ThreadOp::Yield) | None => {
                self.gave(at);
                return None;
            }
            Some(ThreadOp::Resume(other)) => {
                self.hand_over(at, other);
                return None;
            }
            Some(ThreadOp::Spawn(new)) => {
                self.spawned(at, new);
                return None;
            }
            Some(ThreadOp::Threads(list)) => ThreadWait::Threads(list),
            Some(ThreadOp::Wait(wait)) => ThreadWait::Wait(wait),
            Some(ThreadOp::Sleep(ms, reported)) => {
                let vm = self.vm().clone();
                ThreadWait::Sleep(self.sleepers.add(&vm, at, ms), reported)
            }
            Some(ThreadOp::Body) => ThreadWait::Body,
            Some(ThreadOp::Append(piece, limit)) => ThreadWait::Append(piece, limit),
            Some(ThreadOp::Pieces(ms, pieces)) => ThreadWait::pieces(ms, pieces),
            Some(ThreadOp::Flush) => ThreadWait::Flush,
            Some(ThreadOp::Capture(list)) => ThreadWait::Capture(list),
        };
        state.set_top(0);
        self.threads.get_mut(at).wait = std::mem::take(&mut self.wait);
        match waiting {
            ThreadWait::Threads(_) | ThreadWait::Sleep(..) => {}
            ThreadWait::Pieces(..) => self.receiver = Some(at),
            ThreadWait::Wait(_) => self.polled.push(at),
            _ => self.asked.push_back(at),
        }
        self.threads.set(at, ThreadStatus::Waiting(waiting));
        None
    }

    /// `coroutine.yield`: a coroutine gives its values to its resumer; the entry and light threads let the others
    /// run.
    fn gave(&mut self, at: usize) {
        let state = self.threads[at].state;
        let parent = self.threads[at].parent;
        match (self.threads[at].kind, parent) {
            (ThreadKind::Coroutine, Some(parent)) => {
                self.threads.set(at, ThreadStatus::Suspended);
                let count = state.top();
                self.resume_parent(parent, state, count, CallResult::Returned);
            }
            _ => {
                state.set_top(0);
                self.ready.push_back((at, 0));
            }
        }
    }

    /// `coroutine.resume(other, ...)`; the arguments are on the stack of `at`.
    fn hand_over(&mut self, at: usize, other: LuaState) {
        let state = self.threads[at].state;
        let Some(to) = self.find(other) else { return };
        let count = state.top();
        state.give(other, count);
        self.threads.set(at, ThreadStatus::Normal);
        self.threads.get_mut(to).parent = Some(at);
        self.threads.set(to, ThreadStatus::Running);
        self.ready.push_front((to, count));
    }

    /// `ngx.thread.spawn`: the new thread runs at once, its maker after the others.
    fn spawned(&mut self, at: usize, new: LuaState) {
        let state = self.threads[at].state;
        let Some(to) = self.find(new) else { return };
        let count = state.top();
        state.give(new, count);
        new.push_self();
        new.give(state, 1);
        self.ready.push_back((at, 1));
        self.ready.push_front((to, count));
    }

    fn returned(&mut self, at: usize) {
        self.threads.get_mut(at).clean = true;
        let (state, parent) = (self.threads[at].state, self.threads[at].parent);
        match self.threads[at].kind {
            ThreadKind::Entry => drop(self.threads.set(at, ThreadStatus::Dead)),
            ThreadKind::Coroutine => {
                self.threads.set(at, ThreadStatus::Dead);
                if let Some(parent) = parent {
                    let count = state.top();
                    self.resume_parent(parent, state, count, CallResult::Returned);
                }
            }
            ThreadKind::Light => {
                state.push_boolean(true);
                state.insert(1);
                self.light_ended(at);
            }
        }
    }

    fn failed(&mut self, at: usize, status: i32, x: Option<&mut Exchange>) -> Option<ScriptEnd> {
        let (state, parent) = (self.threads[at].state, self.threads[at].parent);
        if self.threads[at].kind == ThreadKind::Coroutine
            && let Some(parent) = parent
        {
            if self.threads[at].wrap {
                let reason = error_text(state);
                let before = self.raised.take().filter(|(same, _)| *same == reason);
                let mut traces = before.map(|(_, traces)| traces).unwrap_or_default();
                traces.push(self.trace_of(state, status));
                self.raised = Some((reason, traces));
            }
            self.threads.set(at, ThreadStatus::Dead);
            self.resume_parent(parent, state, 1, CallResult::Raised);
            return None;
        }
        let light = self.threads[at].kind == ThreadKind::Light;
        let what = if light { "lua user thread" } else { "lua entry thread" };
        let kind = if status == sys::status::ERRMEM { "memory allocation error" } else { "runtime error" };
        let reason = error_text(state);
        let below = self.raised.take().filter(|(same, _)| *same == reason).map(|(_, traces)| traces);
        let backtrace = traced_files::known(self.backtrace(at, status, below.unwrap_or_default()));
        let place = self.vm().place_of(&reason, x.as_deref());
        let message = format!("{what} aborted: {kind}: {reason}\nstack traceback:{backtrace}{place}");
        match x {
            Some(x) => x.log(LogLevel::Error, &message),
            None => weir_engine::log::cycle(LogLevel::Error, &message),
        }
        if !light {
            return Some(ScriptEnd::Error);
        }
        // Below the error's value is what the function that failed had there: of `error` its argument, which is what
        // OpenResty gives to the coroutine that waits, without the place.
        let bare = state.top() > 1
            && state.kind(1) == sys::kind::STRING
            && state.bytes(-1).zip(state.bytes(1)).is_some_and(|(whole, bare)| whole.ends_with(bare));
        match state.top() {
            0 => state.push_nil(),
            _ if bare => {}
            _ => state.insert(1),
        }
        state.set_top(1);
        state.push_boolean(false);
        state.insert(1);
        self.light_ended(at);
        None
    }

    /// Gives `count` values of `from`, after the flag whether it went well, to the coroutine that has resumed it.
    fn resume_parent(&mut self, parent: usize, from: LuaState, count: i32, result: CallResult) {
        let to = self.threads[parent].state;
        to.set_top(0);
        to.push_boolean(result == CallResult::Returned);
        from.give(to, count);
        self.ready.push_front((parent, count + 1));
    }

    /// A light thread has ended; what it gave is on its stack. The thread that waits for it gets that.
    fn light_ended(&mut self, at: usize) {
        let state = self.threads[at].state;
        match self.threads.waiter_of(state) {
            None => {
                self.threads.set(at, ThreadStatus::Zombie);
            }
            Some(waiter) => {
                let count = self.collect(at, self.threads[waiter].state);
                self.threads.set(waiter, ThreadStatus::Running);
                self.ready.push_back((waiter, count));
            }
        }
    }

    /// Moves what the ended light thread `at` gave to `to`, and buries it.
    pub(crate) fn collect(&mut self, at: usize, to: LuaState) -> i32 {
        let state = self.threads[at].state;
        let count = state.top();
        state.give(to, count);
        self.bury(at);
        count
    }

    /// Adds a coroutine with the function on top of `from`, which it takes.
    ///
    /// # Errors
    /// There are `lua_max_coroutines` already.
    pub(crate) fn add(&mut self, kind: ThreadKind, from: LuaState, wrap: bool) -> Result<LuaState, LuaRaise> {
        let most = self.vm().main_conf.most_coroutines();
        if self.threads.living() > most {
            traps::count("lua_max_coroutines", &from.place(1));
            return Err(LuaRaise::text(format!("lua_max_coroutines of {most} exceeded")));
        }
        let (state, anchor) = self.vm().coroutine();
        from.give(state, 1);
        let mut thread = LuaThread::new(state, anchor, kind, Some(self.current));
        thread.wrap = wrap;
        if let (_, Some(LuaThread { anchor: Some(anchor), .. })) = self.threads.add(thread) {
            self.vm().release(anchor);
        }
        Ok(state)
    }

    /// A light thread that has ended is over; it is freed with its last reference.
    fn bury(&mut self, at: usize) {
        self.threads.set(at, ThreadStatus::Dead);
        if let Some(anchor) = self.threads.get_mut(at).anchor.take() {
            self.vm().release(anchor);
        }
    }

    /// Ends a light thread that has ended and that was not waited for.
    pub(crate) fn dismiss(&mut self, at: usize) {
        self.bury(at);
    }

    /// The client has left: what `ngx.on_abort` was given runs as a light thread. `false` where nothing was.
    pub(crate) fn aborted(&mut self) -> bool {
        let Some((state, anchor)) = self.on_abort.take() else { return false };
        let (at, _) = self.threads.add(LuaThread::new(state, anchor, ThreadKind::Light, Some(0)));
        self.ready.push_back((at, 0));
        true
    }

    pub(crate) fn find(&self, state: LuaState) -> Option<usize> {
        self.threads.find(state)
    }

    /// The coroutine that was the first to wait for something the request itself must do.
    pub(crate) fn take_request_op(&mut self) -> Option<(usize, ThreadWait)> {
        let of_request = |status: &ThreadStatus| {
            matches!(
                status,
                ThreadStatus::Waiting(
                    ThreadWait::Body | ThreadWait::Append(..) | ThreadWait::Flush | ThreadWait::Capture(..)
                )
            )
        };
        let at = loop {
            let at = self.asked.pop_front()?;
            if of_request(self.threads[at].status()) {
                break at;
            }
        };
        match self.threads.set(at, ThreadStatus::Running) {
            ThreadStatus::Waiting(waiting) => Some((at, waiting)),
            _ => None,
        }
    }

    /// Where a script is that waits, outermost first, and for what: its first coroutine that does.
    pub(crate) fn standing(&self, at: Option<usize>) -> (Rc<[Site]>, WaitKind) {
        let waits = |thread: &LuaThread| {
            matches!(
                thread.status(),
                ThreadStatus::Waiting(
                    ThreadWait::Wait(_)
                        | ThreadWait::Sleep(..)
                        | ThreadWait::Captured(_)
                        | ThreadWait::Pieces(..)
                )
            )
        };
        match at.or_else(|| self.threads.iter().position(waits)) {
            Some(at) => (self.vm().lines.sites(self.threads[at].state), self.threads[at].wait),
            None => (Rc::default(), WaitKind::Other),
        }
    }

    /// Whether others of the run can go on while `at` waits.
    pub(crate) fn has_others(&self, at: usize) -> bool {
        let own = self.threads[at].kind != ThreadKind::Coroutine && !self.threads[at].status().has_ended();
        self.threads.lasting() > usize::from(own)
    }

    /// Lets the coroutine `at` wait for subrequests that run by themselves.
    pub(crate) fn capture_beside(&mut self, at: usize, answers: OpWait) {
        self.threads.set(at, ThreadStatus::Waiting(ThreadWait::Captured(answers)));
        self.polled.push(at);
    }

    /// Whether subrequests of other coroutines are under way: the run must not end early.
    pub(crate) fn has_subrequests(&self) -> bool {
        let captures = |thread: &LuaThread| {
            matches!(
                thread.status(),
                ThreadStatus::Waiting(ThreadWait::Capture(..) | ThreadWait::Captured(_))
            )
        };
        self.threads.iter().any(captures)
    }

    /// Lets the coroutine `at` go on with what `push` puts on its stack.
    pub(crate) fn go_on(&mut self, at: usize, push: impl FnOnce(LuaState) -> i32) {
        let state = self.threads[at].state;
        state.set_top(0);
        let count = push(state);
        self.threads.set(at, ThreadStatus::Running);
        self.ready.push_back((at, count));
    }

    /// Polls everything that is waited for; ready when a coroutine may go on.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut sleepers = std::mem::take(&mut self.sleepers);
        sleepers.poll(cx, |at, due| self.wake(at, due));
        self.sleepers = sleepers;
        let mut polled = std::mem::take(&mut self.polled);
        polled.retain(|at| {
            let Some(wait) = self.threads.wait_of(*at) else { return false };
            match wait.as_mut().poll(cx) {
                Poll::Ready(results) => self.go_on(*at, results),
                Poll::Pending => return true,
            }
            false
        });
        self.polled = polled;
        if self.ready.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Lets the coroutine go on that sleeps until `due`, if it still does.
    fn wake(&mut self, at: usize, due: u64) {
        if let ThreadStatus::Waiting(ThreadWait::Sleep(until, reported)) = self.threads[at].status()
            && *until == due
        {
            if let Some(reported) = reported {
                weir_engine::log::cycle(LogLevel::Debug, reported);
            }
            self.go_on(at, |_| 0);
        }
    }

    /// The coroutine that has asked for something can't wait for it.
    pub(crate) fn call_off(&mut self) {
        match self.op.take() {
            Some(ThreadOp::Spawn(new)) => {
                if let Some(at) = self.find(new) {
                    self.kill(at);
                }
            }
            Some(ThreadOp::Sleep(..)) => {
                self.wait = WaitKind::Other;
                crate::run::lend::log_plain(LogLevel::Debug, &"lua clean up the timer for pending ngx.sleep");
            }
            _ => {}
        }
    }

    /// Nothing will ever go on: all that is left waits for one another.
    pub(crate) fn is_stuck(&self) -> bool {
        self.ready.is_empty() && !self.threads.any_waits()
    }

    /// Ends a light thread (`ngx.thread.kill`).
    pub(crate) fn kill(&mut self, at: usize) {
        let mut next = Some(at);
        // With the coroutines it has resumed, which would have no resumer to give their values to.
        while let Some(at) = next {
            let of_it = |thread: &LuaThread| {
                let rests = matches!(thread.status(), ThreadStatus::Suspended) || thread.status().has_ended();
                thread.kind == ThreadKind::Coroutine && thread.parent == Some(at) && !rests
            };
            let resumed = matches!(self.threads[at].status(), ThreadStatus::Normal);
            next = if resumed { self.threads.iter().position(of_it) } else { None };
            self.threads.set(at, ThreadStatus::Dead);
            self.ready.retain(|(ready, _)| *ready != at);
        }
    }
}
