//! A LuaJIT VM: one for each worker and configuration.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weir_engine::variable::VariableSource;
use weir_engine::worker::AGENT;
use weir_engine::worker::generation::ConfigurationLink;

use crate::dict::SharedDict;
use crate::luajit::state::LuaState;
use crate::luajit::sys;
use crate::luajit::times::VmTimes;
use crate::vm::chunk::{self, LoadError};
use crate::vm::figures::VmFigures;
use crate::vm::heap::VmHeap;
use crate::vm::limit::VmLimits;
use crate::vm::patterns::PatternCache;
use crate::vm::settings::VmSettings;
use crate::vm::wait_sites::WaitSites;

/// See the module.
pub(crate) struct LuaVm {
    pub(crate) main: LuaState,
    pub(crate) heap: Box<VmHeap>,
    /// What its thread's collectors and compilers take; of workers.
    pub(crate) times: Option<&'static VmTimes>,
    /// What is reported of it; of those that serve.
    pub(crate) figures: Option<Arc<VmFigures>>,
    /// Coroutines that have run to their end, with their anchors.
    pub(crate) spare: RefCell<Vec<(LuaState, i32)>>,
    /// The anchor of the handler of errors.
    pub(crate) handler: i32,
    /// Functions of files, by name.
    pub(crate) files: RefCell<HashMap<PathBuf, i32>>,
    /// `lua_shared_dict`, by name.
    pub(crate) dicts: Vec<(String, Arc<SharedDict>)>,
    /// Settings of the `http` block.
    pub(crate) main_conf: VmSettings,
    /// Patterns of `ngx.re`.
    pub(crate) patterns: PatternCache,
    /// Lines at which scripts have waited.
    pub(crate) lines: WaitSites,
    /// Variables of modules that compiled code knows by number, and what follows their prefix.
    pub(crate) direct: RefCell<Vec<(VariableSource, Rc<str>)>>,
    /// See [`LuaVm::ctx_fields`].
    pub(crate) ctx_fields: Cell<usize>,
    /// Where in the configuration the scripts begin that were loaded, by their names.
    pub(crate) places: RefCell<HashMap<String, (String, usize)>>,
    /// What scripts may use.
    pub(crate) limits: VmLimits,
    pub(crate) me: RefCell<Weak<LuaVm>>,
    /// `init_worker_by_lua` has run.
    pub(crate) started: Cell<bool>,
    /// Its configuration on its worker.
    pub(crate) home: Weak<ConfigurationLink>,
    /// Scripts have waited for changes of upstreams.
    pub(crate) watches: Cell<bool>,
    /// See [`VmPart`].
    pub(crate) parts: [OnceCell<Box<dyn Any>>; PARTS],
    /// What the storeys above make of a VM.
    pub(crate) wiring: VmWiring,
}

/// What a storey above stores with a VM: made when it is first used, and dropped with the VM, after Lua's state. In a
/// box, and by a checked cast: what is here (timers, pools of sockets and of threads, events) costs a system call or an
/// allocation whenever it is used.
pub(crate) trait VmPart: Default + 'static {
    /// Its own number, less than [`PARTS`].
    const PLACE: usize;
}

/// How many kinds of parts there are.
const PARTS: usize = 5;

/// What the storeys above make of a VM, which this one cannot name.
#[derive(Clone, Copy)]
pub(crate) struct VmWiring {
    /// Gives the VM its API, before the first script runs.
    pub(crate) equip: fn(&Rc<LuaVm>) -> Result<(), String>,
}

impl LuaVm {
    /// The part of that type.
    pub(crate) fn part<T: VmPart>(&self) -> &T {
        let part = self.parts[T::PLACE].get_or_init(|| Box::new(T::default()));
        part.downcast_ref().expect("each type has a place of its own")
    }

    /// Whether it is a request's own: what is loaded is not cached beyond it.
    pub(crate) fn is_single(&self) -> bool {
        self.main_conf.single
    }

    /// Whether it is there for a configuration on its worker: tasks may serve it.
    pub(crate) fn lasts(&self) -> bool {
        !self.is_single() && !self.is_rehearsed() && self.home.strong_count() > 0
    }

    /// The VM, to hold it.
    pub(crate) fn shared(&self) -> Rc<LuaVm> {
        self.me.borrow().upgrade().expect("who has requests is held")
    }

    /// Whether it is the privileged agent's.
    pub(crate) fn is_agent(&self) -> bool {
        self.main_conf.worker == Some(AGENT)
    }

    /// Whether its worker ends, or goes on with another configuration.
    pub(crate) fn is_leaving(&self) -> bool {
        self.home.upgrade().is_none_or(|home| home.is_leaving())
    }

    /// The number of the worker.
    pub(crate) fn worker(&self) -> Option<u8> {
        self.main_conf.worker
    }

    /// The stack of the main coroutine; scripts never run on it but `init_by_lua` and what can't wait.
    pub(crate) fn main(&self) -> LuaState {
        self.main
    }

    /// For how many fields a request's `ngx.ctx` has room when it is made: as the last ones have needed, so that it does
    /// not grow step by step.
    pub(crate) fn ctx_fields(&self) -> usize {
        self.ctx_fields.get()
    }

    /// Notes how many fields one had room for in the end. Less than before counts by an eighth.
    pub(crate) fn note_ctx_fields(&self, room: usize) {
        let before = self.ctx_fields.get();
        let room = if room >= before { room } else { before - (before - room).div_ceil(8) };
        self.ctx_fields.set(room.clamp(4, 64));
    }

    /// Bytes that it has allocated since it was made.
    pub(crate) fn allocated(&self) -> u64 {
        self.heap.counts().allocated.load(Relaxed)
    }

    /// Ticks that its thread has spent in collectors and compilers.
    pub(crate) fn spent(&self) -> [u64; 2] {
        self.times.map_or([0; 2], VmTimes::spent)
    }

    /// A coroutine with an empty stack, and its anchor.
    pub(crate) fn coroutine(&self) -> (LuaState, i32) {
        if let Some(spare) = self.spare.borrow_mut().pop() {
            return spare;
        }
        // SAFETY: anchored at once.
        let state = unsafe { LuaState::new(sys::lua_newthread(self.main.raw())) };
        (state, self.main.anchor())
    }

    /// Takes a coroutine back that a script may still hold: it is not used again.
    pub(crate) fn release(&self, anchor: i32) {
        self.main.release(anchor);
    }

    /// Takes a coroutine back; one that has run to its end is used again.
    pub(crate) fn give_back(&self, state: LuaState, anchor: i32) {
        let mut spare = self.spare.borrow_mut();
        if state.status() == sys::status::OK && spare.len() < self.main_conf.spare_coroutines() {
            state.set_top(0);
            spare.push((state, anchor));
        } else {
            self.main.release(anchor);
        }
    }

    /// Pushes the function of a file on the main stack; it is read once.
    ///
    /// # Errors
    /// It can't be read, or Lua's message.
    pub(crate) fn push_file(&self, path: &Path) -> Result<(), LoadError> {
        if let Some(reference) = self.files.borrow().get(path) {
            self.main.push_anchored(*reference);
            return Ok(());
        }
        let shown = path.display();
        let text = std::fs::read(path).map_err(|error| {
            let message =
                format!("failed to load external Lua file \"{shown}\": cannot open {shown}: {error}");
            let status = if error.kind() == std::io::ErrorKind::NotFound { 404 } else { 503 };
            LoadError { status, message }
        })?;
        chunk::load(self.main, &text, &format!("@{shown}"))
            .map_err(|error| format!("failed to load external Lua file \"{shown}\": {error}"))?;
        self.main.push_value(-1);
        self.files.borrow_mut().insert(path.to_owned(), self.main.anchor());
        Ok(())
    }

    /// A VM of no worker: the configuration is only tried.
    pub(crate) fn is_rehearsed(&self) -> bool {
        self.main_conf.worker == Some(u8::MAX)
    }
}
