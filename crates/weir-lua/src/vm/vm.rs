//! A LuaJIT VM: one for each worker and configuration.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weir_engine::conf::server::Link;
use weir_engine::log::Level;
use weir_engine::variable::Get;
use weir_engine::worker::AGENT;
use weir_engine::{Exchange, Text};

use crate::agent;
use crate::api;
use crate::api::errlog;
use crate::api::events::Joined;
use crate::api::socket::Pools;
use crate::api::timer::Timers;
use crate::api::worker_thread::ThreadPools;
use crate::dict::Dict;
use crate::hooks::conf::Main;
use crate::inspect::report::Figures;
use crate::luajit::shared_page;
use crate::luajit::state::{State, error_text};
use crate::luajit::sys;
use crate::luajit::times::Times;
use crate::run::drive::drive_alone;
use crate::run::run::{Lists, Run};
use crate::vm::chunk::{self, Unloaded};
use crate::vm::heap::Heap;
use crate::vm::limit::{Limits, unlimited};
use crate::vm::patterns::Patterns;
use crate::vm::phase::Phase;
use crate::vm::questions;
use crate::vm::wait_sites::Lines;

/// See the module.
pub(crate) struct Vm {
    main: State,
    heap: Box<Heap>,
    /// What its thread's collectors and compilers take; of workers.
    pub(crate) times: Option<&'static Times>,
    /// What is told of it; of those that serve.
    pub(crate) figures: Option<Arc<Figures>>,
    /// Coroutines that have run to their end, with their anchors.
    spare: RefCell<Vec<(State, i32)>>,
    /// Of runs that have ended.
    pub(crate) lists: RefCell<Vec<Lists>>,
    /// The anchor of the handler of errors.
    handler: i32,
    /// Functions of files, by name.
    files: RefCell<HashMap<PathBuf, i32>>,
    /// `lua_shared_dict`, by name.
    pub(crate) dicts: Vec<(String, Arc<Dict>)>,
    /// Settings of the `http` block.
    pub(crate) main_conf: Main,
    /// Patterns of `ngx.re`.
    pub(crate) patterns: Patterns,
    /// Lines at which scripts have waited.
    pub(crate) lines: Lines,
    /// Variables of modules that compiled code knows by number, and what follows their prefix.
    pub(crate) direct: RefCell<Vec<(Get, Rc<str>)>>,
    /// See [`Vm::ctx_fields`].
    ctx_fields: Cell<usize>,
    /// Where in the configuration the scripts begin that were loaded, by their names.
    pub(crate) places: RefCell<HashMap<String, (String, usize)>>,
    /// What scripts may use.
    pub(crate) limits: Limits,
    /// Connections that sockets keep.
    pub(crate) sockets: Rc<Pools>,
    me: RefCell<Weak<Vm>>,
    /// `init_worker_by_lua` has run.
    started: Cell<bool>,
    /// Its configuration on its worker.
    pub(crate) home: Weak<Link>,
    pub(crate) timers: Timers,
    /// Scripts have waited for changes of groups of servers.
    pub(crate) watches: Cell<bool>,
    pub(crate) thread_pools: ThreadPools,
    /// Its place among those that hear events.
    pub(crate) events: RefCell<Option<Joined>>,
}

impl Vm {
    /// A VM with everything a script expects, after `init_by_lua`.
    ///
    /// # Errors
    /// What `init_by_lua` failed with.
    pub(crate) fn start(main_conf: Main, home: Weak<Link>) -> Result<Rc<Vm>, String> {
        // SAFETY: the VM stays on this thread, in the `Vm`, which closes it.
        let main = unsafe {
            let l = sys::luaL_newstate();
            if l.is_null() {
                return Err("no memory for a Lua VM".to_owned());
            }
            sys::luaL_openlibs(l);
            State::new(l)
        };
        #[cfg(lua_walk)]
        crate::inspect::sampler::install();
        // Those of the privileged agent are in the server.
        let make = |size| Dict::new(if agent::is_here() { 0 } else { size });
        let dicts = main_conf.dicts.iter();
        let dicts: Vec<(String, Arc<Dict>)> =
            dicts.map(|zone| (zone.name.to_string(), zone.store(make))).collect();
        let most = main_conf.regex_cache.unwrap_or(1024);
        let patterns = Patterns::new(most, main_conf.regex_limit.unwrap_or(0));
        let heap = Heap::attach(main);
        let worker = main_conf.worker.filter(|worker| *worker < AGENT);
        shared_page::share(main_conf.workers > 1);
        let times = worker.map(|_| Times::of_thread());
        let worker = worker.filter(|_| !main_conf.single);
        let limits = Limits::new(main, &main_conf);
        let vm = Vm {
            times,
            figures: worker.map(|worker| Figures::show(worker, heap.counts().clone(), Vec::clone(&dicts))),
            heap,
            main,
            places: RefCell::default(),
            limits,
            sockets: Rc::default(),
            dicts,
            spare: RefCell::default(),
            lists: RefCell::default(),
            handler: {
                main.push_function(traceback);
                main.anchor()
            },
            files: RefCell::default(),
            main_conf,
            patterns,
            lines: Lines::default(),
            direct: RefCell::default(),
            ctx_fields: Cell::new(4),
            me: RefCell::default(),
            started: Cell::new(false),
            home,
            timers: Timers::default(),
            watches: Cell::new(false),
            thread_pools: ThreadPools::default(),
            events: RefCell::default(),
        };
        if !vm.is_single() && !vm.is_rehearsed() {
            errlog::keep(vm.main_conf.captured);
        }
        let vm = Rc::new(vm);
        *vm.me.borrow_mut() = Rc::downgrade(&vm);
        if vm.figures.is_some() {
            questions::open(&vm);
        }
        vm.register();
        crate::luajit::symbols::keep();
        vm.prelude()?;
        vm.init()?;
        vm.started.set(true);
        Ok(vm)
    }

    /// Another one of the same settings, for a single request.
    ///
    /// # Errors
    /// As [`Vm::start`].
    pub(crate) fn again(&self) -> Result<Rc<Vm>, String> {
        let main = Main { init_worker: None, exit_worker: None, single: true, ..self.main_conf.clone() };
        Vm::start(main, self.home.clone())
    }

    /// Whether it is a request's own: what is loaded is not kept beyond it.
    pub(crate) fn is_single(&self) -> bool {
        self.main_conf.single
    }

    /// Whether it is there for a configuration on its worker: tasks may serve it.
    pub(crate) fn lasts(&self) -> bool {
        !self.is_single() && !self.is_rehearsed() && self.home.strong_count() > 0
    }

    /// The VM, to hold it.
    pub(crate) fn shared(&self) -> Rc<Vm> {
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
    pub(crate) fn main(&self) -> State {
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
        self.times.map_or([0; 2], Times::spent)
    }

    /// A coroutine with an empty stack, and its anchor.
    pub(crate) fn coroutine(&self) -> (State, i32) {
        if let Some(spare) = self.spare.borrow_mut().pop() {
            return spare;
        }
        // SAFETY: anchored at once.
        let state = unsafe { State::new(sys::lua_newthread(self.main.raw())) };
        (state, self.main.anchor())
    }

    /// Takes a coroutine back; one that has run to its end is used again.
    pub(crate) fn give_back(&self, state: State, anchor: i32, again: bool) {
        let mut spare = self.spare.borrow_mut();
        if again && state.status() == sys::status::OK && spare.len() < self.main_conf.spare_coroutines() {
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
    pub(crate) fn push_file(&self, path: &Path) -> Result<(), Unloaded> {
        if let Some(reference) = self.files.borrow().get(path) {
            self.main.push_anchored(*reference);
            return Ok(());
        }
        let shown = path.display();
        let text = std::fs::read(path).map_err(|error| {
            let message =
                format!("failed to load external Lua file \"{shown}\": cannot open {shown}: {error}");
            let status = if error.kind() == std::io::ErrorKind::NotFound { 404 } else { 503 };
            Unloaded { status, message }
        })?;
        chunk::load(self.main, &text, &format!("@{shown}"))
            .map_err(|error| format!("failed to load external Lua file \"{shown}\": {error}"))?;
        self.main.push_value(-1);
        self.files.borrow_mut().insert(path.to_owned(), self.main.anchor());
        Ok(())
    }

    /// Calls the function on top of the main stack, below which `args` values stand as its arguments, where nothing can
    /// be waited for; so many `results` are on the stack behind.
    ///
    /// # Errors
    /// The error's text with its traceback.
    pub(crate) fn call(&self, args: i32, results: i32) -> Result<(), String> {
        let at = self.main.top() - args;
        self.main.push_anchored(self.handler);
        self.main.insert(at);
        let status = self.limits.watch(self.main, crate::run::lend::phase(), || {
            // SAFETY: function and arguments stand on the stack, the handler below them.
            self.limits.within(|| unsafe { sys::lua_pcall(self.main.raw(), args, results, at) })
        });
        self.main.remove(at);
        if status == sys::status::OK {
            return Ok(());
        }
        let message = error_text(self.main);
        self.main.pop(1);
        Err(message)
    }

    /// What stands behind the message of an error: its line as the configuration has it, where scripts count from their own
    /// first, and the request.
    pub(crate) fn place_of(&self, message: &str, x: Option<&Exchange>) -> String {
        let mut text = String::new();
        if let Some((name, rest)) = message.split_once("):")
            && let Some((file, first)) = self.places.borrow().get(&format!("{name})"))
            && let Some(line) = rest.split_once(':').and_then(|(line, _)| line.parse::<usize>().ok())
        {
            text = format!("\nin {file}:{}", first + line.saturating_sub(1));
        }
        if let Some(x) = x {
            text.push_str(if text.is_empty() { "\n" } else { ", " });
            text.push_str(&format!("request id: {}", x.id()));
        }
        text
    }

    /// [`Vm::call`] for a request, whose errors are told with all that is known.
    fn call_for(&self, phase: Phase, x: &mut Exchange, results: i32) -> Result<(), String> {
        let called = crate::run::lend::lend(self, phase, Some(x), None, || self.call(0, results));
        called.map_err(|error| {
            let place = self.place_of(&error, Some(x));
            let doing = if phase == Phase::Log { crate::run::lend::doing(phase) } else { "" };
            format!("failed to run {}: {error}{place}{doing}", phase.context())
        })
    }

    /// Makes the tables `ngx` and `ndk` with the functions of [`api::TABLES`].
    fn register(&self) {
        let l = self.main;
        l.new_table(0, 128);
        for function in api::TABLES.iter().copied().flatten() {
            let mut parts: Vec<&str> = function.name.split('.').collect();
            let name = parts.pop().unwrap_or_default();
            l.push_value(-1);
            for part in parts {
                l.push_bytes(part.as_bytes());
                l.raw_get(-2);
                if l.is_none_or_nil(-1) {
                    l.pop(1);
                    l.new_table(0, 16);
                    l.push_bytes(part.as_bytes());
                    l.push_value(-2);
                    l.raw_set(-4);
                }
                l.remove(-2);
            }
            l.push_bytes(name.as_bytes());
            api::push(l, function);
            l.raw_set(-3);
            l.pop(1);
        }
        l.push_null();
        l.set_field(-2, c"null");
        l.push_mark();
        l.set_field(sys::REGISTRY, c"weir.json_empty_array");
        // SAFETY: the globals are a table without a metatable yet.
        l.set_field(sys::GLOBALS, c"ngx");
    }

    /// Runs the part of the API that is written in Lua.
    fn prelude(&self) -> Result<(), String> {
        for (name, text) in api::prelude::PRELUDE {
            chunk::load(self.main, text.as_bytes(), name)?;
            crate::run::lend::lend(self, Phase::Init, None, None, || self.call(0, 0))?;
        }
        self.set_path(c"path", self.main_conf.package_path.as_deref())?;
        self.set_path(c"cpath", self.main_conf.package_cpath.as_deref())
    }

    /// `lua_package_path`: `;;` stands for what was there before, `$prefix` for the prefix.
    fn set_path(&self, field: &CStr, wanted: Option<&str>) -> Result<(), String> {
        let Some(wanted) = wanted else { return Ok(()) };
        let l = self.main;
        l.field(sys::GLOBALS, c"package");
        l.field(-1, field);
        let before = l.lossy(-1);
        l.pop(1);
        let prefix = self.main_conf.prefix.display().to_string();
        let path = wanted.replace("$prefix", &prefix).replace("${prefix}", &prefix);
        l.push_bytes(path.replace(";;", &format!(";{before};")).as_bytes());
        l.set_field(-2, field);
        l.pop(1);
        Ok(())
    }

    /// A VM of no worker: the configuration is only tried.
    fn is_rehearsed(&self) -> bool {
        self.main_conf.worker == Some(u8::MAX)
    }

    fn init(&self) -> Result<(), String> {
        if let Some(source) = &self.main_conf.init {
            self.run_plain(source, Phase::Init)?;
        }
        // A worker serves without what this script was for, as in OpenResty; that is told.
        if let (Some(source), false) = (&self.main_conf.init_worker, self.is_rehearsed()) {
            if self.main_conf.yields == Some(true) && self.lasts() {
                self.init_later(source);
                return Ok(());
            }
            if let Err(message) = self.run_plain(source, Phase::InitWorker) {
                weir_engine::log::cycle(Level::Error, &message);
            }
        }
        self.guard()
    }

    /// From here on a global that is written is told.
    fn guard(&self) -> Result<(), String> {
        self.main.field(sys::GLOBALS, c"__weir_guard");
        self.call(0, 0)
    }

    /// Runs the script before the worker serves, as one that may wait.
    fn init_later(&self, source: &chunk::Source) {
        let (vm, source) = (Rc::downgrade(&self.shared()), source.clone());
        let Some(home) = self.home.upgrade() else { return };
        home.before_serving(async move {
            let Some(vm) = vm.upgrade() else { return };
            let Some(origin) = vm.home.upgrade().and_then(|home| home.nobody()) else { return };
            let ran = match chunk::Chunk::new(source).push(&vm, None) {
                Ok(()) => {
                    let run = Run::new(&vm, Phase::InitWorkerWaits, false);
                    // What it ended with, it has said itself.
                    drive_alone(run, &origin, "init_worker_by_lua").await;
                    Ok(())
                }
                Err(unloaded) => Err(format!("init_worker_by_lua error: {}", unloaded.message)),
            };
            if let Err(message) = ran.and_then(|()| vm.guard()) {
                weir_engine::log::cycle(Level::Error, &message);
            }
        });
    }

    /// Runs the script of a request in a phase that can't wait.
    ///
    /// # Errors
    /// As messages have it.
    pub(crate) fn run_for(&self, chunk: &chunk::Chunk, phase: Phase, x: &mut Exchange) -> Result<(), String> {
        chunk.push(self, Some(x)).map_err(|unloaded| unloaded.message)?;
        self.call_for(phase, x, 0)
    }

    /// Runs the script of `set_by_lua`; what it returns as a text.
    ///
    /// # Errors
    /// As messages have it.
    pub(crate) fn value_for(
        &self,
        chunk: &chunk::Chunk,
        phase: Phase,
        x: &mut Exchange,
    ) -> Result<Text, String> {
        chunk.push(self, Some(x)).map_err(|unloaded| unloaded.message)?;
        self.call_for(phase, x, 1)?;
        let value = x.arena.push(self.main.bytes(-1).unwrap_or_default());
        self.main.pop(1);
        Ok(Text::Span(value))
    }

    /// Runs a script that has no request and can't wait.
    ///
    /// # Errors
    /// As OpenResty's messages have it: `init_by_lua error: `…
    pub(crate) fn run_plain(&self, source: &chunk::Source, phase: Phase) -> Result<(), String> {
        let file = matches!(source.code, chunk::Code::File(..));
        let directive = format!("{}{}", phase.label(), if file { "_file" } else { "" });
        let loaded = chunk::Chunk::new(source.clone()).push(self, None);
        let ran = match loaded {
            Ok(()) => crate::run::lend::lend(self, phase, None, None, || self.call(0, 0)),
            Err(unloaded) => {
                let words = ["failed to load inlined Lua code: ", "failed to load external Lua file "];
                let message = unloaded.message.as_str();
                // Of the syntax of a script without a request only Lua's own words are told.
                let bare = words.iter().find_map(|words| message.strip_prefix(words)).unwrap_or(message);
                Err(bare.rsplit_once("\": ").map_or(bare, |(_, reason)| reason).to_owned())
            }
        };
        ran.map_err(|error| format!("{directive} error: {error}"))
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if let (true, Some(source)) =
            (self.started.get() && !self.is_rehearsed(), self.main_conf.exit_worker.take())
            && let Err(message) = self.run_plain(&source, Phase::ExitWorker)
        {
            weir_engine::log::cycle(Level::Error, &message);
        }
        // In the opposite order of their coming.
        if let Some(memory) = &self.limits.memory {
            memory.leave();
        }
        self.heap.detach(self.main);
        // SAFETY: runs hold the VM, so none is left; finalizers see no loan.
        unsafe { sys::lua_close(self.main.raw()) }
    }
}

/// The handler of errors in [`Vm::call`].
unsafe extern "C-unwind" fn traceback(raw: *mut sys::LuaState) -> i32 {
    // SAFETY: Lua calls with its running coroutine, the error's value on its stack.
    let l = unsafe { State::new(raw) };
    unlimited(|| {
        // A value that is no text stays what it is, as in OpenResty: nothing is known of it, nor where it comes from.
        if l.bytes(-1).is_some() {
            let text = format!("{}\nstack traceback:\n{}", error_text(l), l.traceback(l, 1));
            l.push_bytes(text.as_bytes());
        }
    });
    1
}
