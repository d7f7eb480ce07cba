//! A VM from its first script to its last, and scripts that cannot wait.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, OsStr};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use weir_engine::log::LogLevel;
use weir_engine::worker::AGENT;
use weir_engine::worker::generation::ConfigurationLink;
use weir_engine::zone::SharedZone;
use weir_engine::{Exchange, Text};
use weir_rt::process::removed_variable;

use crate::agent;
use crate::dict::SharedDict;
use crate::luajit::shared_page;
use crate::luajit::state::{LuaState, error_text};
use crate::luajit::sys;
use crate::luajit::times::VmTimes;
use crate::run::drive::drive_alone;
use crate::run::lend::{doing, lend, log, phase};
use crate::run::schedule::VmSchedule;
use crate::run::script_run::ScriptRun;
use crate::vm::chunk::{self};
use crate::vm::figures::VmFigures;
use crate::vm::heap::VmHeap;
use crate::vm::limit::{VmLimits, unlimited};
use crate::vm::lua_vm::{LuaVm, VmWiring};
use crate::vm::patterns::PatternCache;
use crate::vm::phase::ScriptPhase;
use crate::vm::settings::VmSettings;
use crate::vm::wait_sites::WaitSites;

impl LuaVm {
    /// A VM with everything a script expects, after `init_by_lua`.
    ///
    /// # Errors
    /// What `init_by_lua` failed with.
    pub(crate) fn start(
        main_conf: VmSettings,
        home: Weak<ConfigurationLink>,
        wiring: VmWiring,
    ) -> Result<Rc<LuaVm>, String> {
        let main = open_state()?;
        // Those of the privileged agent are in the server.
        let here = |zone: &Arc<SharedZone>| match agent::is_here() {
            true => zone.store(|_| SharedDict::new(0)),
            false => zone.store(|size| SharedDict::of(zone, size)),
        };
        let dicts = main_conf.dicts.iter();
        let dicts: Vec<(String, Arc<SharedDict>)> =
            dicts.map(|zone| (zone.name.to_string(), here(zone))).collect();
        // What a process before this one has added to them is there; as after the crash of a worker of nginx.
        let mut there = main_conf.dicts.iter().zip(&dicts);
        let survived =
            there.len() > 0 && there.all(|(zone, (_, dict))| dict.survived() && !zone.is_adopted());
        let main_conf = VmSettings { repeats_init: main_conf.repeats_init || survived, ..main_conf };
        let most = main_conf.regex_cache.unwrap_or(1024);
        let patterns = PatternCache::new(most, main_conf.regex_limit.unwrap_or(0), log);
        let heap = VmHeap::attach(main);
        let worker = main_conf.worker.filter(|worker| *worker < AGENT);
        shared_page::share(main_conf.workers);
        let times = worker.map(|_| VmTimes::of_thread());
        let worker = worker.filter(|_| !main_conf.single);
        let limits = VmLimits::new(main, &main_conf);
        let vm = LuaVm {
            times,
            figures: worker.map(|worker| VmFigures::new(worker, heap.counts().clone(), Vec::clone(&dicts))),
            heap,
            main,
            places: RefCell::default(),
            limits,
            dicts,
            spare: RefCell::default(),
            handler: {
                main.push_function(traceback);
                main.anchor()
            },
            files: RefCell::default(),
            main_conf,
            patterns,
            lines: WaitSites::default(),
            direct: RefCell::default(),
            ctx_fields: Cell::new(4),
            me: RefCell::default(),
            started: Cell::new(false),
            home,
            watches: Cell::new(false),
            parts: Default::default(),
            wiring,
        };
        let vm = Rc::new(vm);
        *vm.me.borrow_mut() = Rc::downgrade(&vm);
        (wiring.equip)(&vm)?;
        vm.set_path(c"path", removed_variable("LUA_PATH".as_ref()), vm.main_conf.package_path.as_deref())?;
        vm.set_path(c"cpath", removed_variable("LUA_CPATH".as_ref()), vm.main_conf.package_cpath.as_deref())?;
        vm.init()?;
        Ok(vm)
    }

    /// Another one of the same settings, for a single request.
    ///
    /// # Errors
    /// As [`LuaVm::start`].
    pub(crate) fn again(&self) -> Result<Rc<LuaVm>, String> {
        let main =
            VmSettings { init_worker: None, exit_worker: None, single: true, ..self.main_conf.clone() };
        LuaVm::start(main, self.home.clone(), self.wiring)
    }

    /// Calls the function on top of the main stack, below which `args` values are its arguments, where nothing can
    /// be waited for; this many `results` are on the stack afterwards.
    ///
    /// # Errors
    /// The error's text with its traceback.
    pub(crate) fn call(&self, args: i32, results: i32) -> Result<(), String> {
        let at = self.main.top() - args;
        self.main.push_anchored(self.handler);
        self.main.insert(at);
        let status = self.limits.watch(self.main, phase(), || {
            // SAFETY: function and arguments are on the stack, the handler below them.
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

    /// What follows the message of an error: its line as the configuration has it, where scripts count from their own
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

    /// [`LuaVm::call`] for a request, whose errors are logged with all that is known.
    fn call_for(&self, phase: ScriptPhase, x: &mut Exchange, results: i32) -> Result<(), String> {
        let called = lend(self, phase, Some(x), None, || self.call(0, results));
        called.map_err(|error| {
            let place = self.place_of(&error, Some(x));
            let doing = if phase == ScriptPhase::Log { doing(phase) } else { "" };
            format!("failed to run {}: {error}{place}{doing}", phase.context())
        })
    }

    /// `lua_package_path`: `;;` is replaced by what was there before, `$prefix` by the prefix. What was there is LuaJIT's own, or
    /// that of the environment that the server was `started_with`, as OpenResty's master reads it.
    fn set_path(
        &self,
        field: &CStr,
        started_with: Option<&OsStr>,
        wanted: Option<&str>,
    ) -> Result<(), String> {
        if started_with.is_none() && wanted.is_none() {
            return Ok(());
        }
        let l = self.main;
        l.field(sys::GLOBALS, c"package");
        l.field(-1, field);
        let mut path = l.lossy(-1);
        l.pop(1);
        if let Some(started_with) = started_with {
            path = started_with.to_string_lossy().replace(";;", &format!(";{path};"));
        }
        if let Some(wanted) = wanted {
            let prefix = self.main_conf.prefix.display().to_string();
            let wanted = wanted.replace("$prefix", &prefix).replace("${prefix}", &prefix);
            path = wanted.replace(";;", &format!(";{path};"));
        }
        l.push_bytes(path.as_bytes());
        l.set_field(-2, field);
        l.pop(1);
        Ok(())
    }

    fn init(self: &Rc<Self>) -> Result<(), String> {
        if let Some(source) = &self.main_conf.init {
            self.run_plain(source, ScriptPhase::Init)?;
        }
        let Some(home) = self.home.upgrade().filter(|_| self.lasts()) else {
            self.started.set(true);
            return self.guard();
        };
        let vm = Rc::downgrade(self);
        home.when_built(move || {
            if let Some(vm) = vm.upgrade() {
                vm.begin();
            }
        });
        // As nginx' new workers, whose loops begin when their scripts have run and the sockets are theirs.
        self.part::<VmSchedule>().hold_timers();
        let vm = Rc::downgrade(self);
        home.when_in_force(move || {
            if let Some(vm) = vm.upgrade() {
                vm.part::<VmSchedule>().let_timers_fire(&vm);
            }
        });
        Ok(())
    }

    /// Runs the script of the worker's start. A worker serves without what it was for when it fails, as in OpenResty; that
    /// is logged.
    fn begin(&self) {
        self.started.set(true);
        let ran = match &self.main_conf.init_worker {
            Some(source) if self.main_conf.yields == Some(true) => return self.begin_waiting(source),
            Some(source) => self.run_plain(source, ScriptPhase::InitWorker),
            None => Ok(()),
        };
        for message in [ran, self.guard()].into_iter().filter_map(Result::err) {
            weir_engine::log::cycle(LogLevel::Error, &message);
        }
    }

    /// From here on a global that is written is logged.
    fn guard(&self) -> Result<(), String> {
        self.main.field(sys::GLOBALS, c"__weir_guard");
        self.call(0, 0)
    }

    /// Runs the script before the worker serves, as one that may wait.
    fn begin_waiting(&self, source: &chunk::ScriptSource) {
        let (vm, source) = (Rc::downgrade(&self.shared()), source.clone());
        let Some(home) = self.home.upgrade() else { return };
        home.before_serving(async move {
            let Some(vm) = vm.upgrade() else { return };
            let Some(origin) = vm.home.upgrade().and_then(|home| home.nobody()) else { return };
            let ran = match chunk::ScriptChunk::new(source).push(&vm, None) {
                Ok(()) => {
                    let run = ScriptRun::begin(&vm, ScriptPhase::InitWorkerWaits);
                    // What it ended with, it has said itself.
                    drive_alone(run, &origin, "init_worker_by_lua").await;
                    Ok(())
                }
                Err(unloaded) => Err(format!("init_worker_by_lua error: {}", unloaded.message)),
            };
            if let Err(message) = ran.and_then(|()| vm.guard()) {
                weir_engine::log::cycle(LogLevel::Error, &message);
            }
        });
    }

    /// Runs the script of a request in a phase that can't wait.
    ///
    /// # Errors
    /// As messages have it.
    pub(crate) fn run_for(
        &self,
        chunk: &chunk::ScriptChunk,
        phase: ScriptPhase,
        x: &mut Exchange,
    ) -> Result<(), String> {
        chunk.push(self, Some(x)).map_err(|unloaded| unloaded.message)?;
        self.call_for(phase, x, 0)
    }

    /// Runs the script of `set_by_lua`; what it returns as a text.
    ///
    /// # Errors
    /// As messages have it.
    pub(crate) fn value_for(
        &self,
        chunk: &chunk::ScriptChunk,
        phase: ScriptPhase,
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
    pub(crate) fn run_plain(&self, source: &chunk::ScriptSource, phase: ScriptPhase) -> Result<(), String> {
        let file = matches!(source.code, chunk::ScriptCode::File(..));
        let directive = format!("{}{}", phase.label(), if file { "_file" } else { "" });
        let loaded = chunk::ScriptChunk::new(source.clone()).push(self, None);
        let ran = match loaded {
            Ok(()) => lend(self, phase, None, None, || self.call(0, 0)),
            Err(unloaded) => {
                let words = ["failed to load inlined Lua code: ", "failed to load external Lua file "];
                let message = unloaded.message.as_str();
                // Of the syntax of a script without a request only Lua's own message is logged.
                let bare = words.iter().find_map(|words| message.strip_prefix(words)).unwrap_or(message);
                Err(bare.rsplit_once("\": ").map_or(bare, |(_, reason)| reason).to_owned())
            }
        };
        ran.map_err(|error| format!("{directive} error: {error}"))
    }
}

/// A state with the standard library.
fn open_state() -> Result<LuaState, String> {
    // SAFETY: the VM stays on this thread, in the `LuaVm`, which closes it.
    unsafe {
        let l = sys::luaL_newstate();
        if l.is_null() {
            return Err("no memory for a Lua VM".to_owned());
        }
        sys::luaL_openlibs(l);
        Ok(LuaState::new(l))
    }
}

impl Drop for LuaVm {
    fn drop(&mut self) {
        if let (true, Some(source)) =
            (self.started.get() && !self.is_rehearsed(), self.main_conf.exit_worker.take())
            && let Err(message) = self.run_plain(&source, ScriptPhase::ExitWorker)
        {
            weir_engine::log::cycle(LogLevel::Error, &message);
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

/// The handler of errors in [`LuaVm::call`].
unsafe extern "C-unwind" fn traceback(raw: *mut sys::RawState) -> i32 {
    // SAFETY: Lua calls with its running coroutine, the error's value on its stack.
    let l = unsafe { LuaState::new(raw) };
    unlimited(|| {
        // A value that is no text stays what it is, as in OpenResty: nothing is known of it, nor where it comes from.
        if l.bytes(-1).is_some() {
            let text = format!("{}\nstack traceback:\n{}", error_text(l), l.traceback(l, 1));
            l.push_bytes(text.as_bytes());
        }
    });
    1
}
