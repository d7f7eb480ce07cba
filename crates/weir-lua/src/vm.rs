//! A LuaJIT VM: one for each worker and configuration.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use weir_core::Exchange;

use crate::api;
use crate::chunk;
use crate::conf::Main;
use crate::dict::Dict;
use crate::phase::Phase;
use crate::regex::Patterns;
use crate::run::error_text;
use crate::state::State;
use crate::sys;

/// See the module.
pub(crate) struct Vm {
    main: State,
    /// Coroutines that have run to their end, with their anchors.
    spare: RefCell<Vec<(State, i32)>>,
    /// Functions of files, by name.
    files: RefCell<HashMap<PathBuf, i32>>,
    /// `lua_shared_dict`, by name.
    pub(crate) dicts: Vec<(String, Arc<Dict>)>,
    /// Settings of the `http` block.
    pub(crate) main_conf: Main,
    /// Patterns of `ngx.re`.
    pub(crate) patterns: Patterns,
    me: RefCell<Weak<Vm>>,
}

impl Vm {
    /// A VM with everything a script expects, after `init_by_lua`.
    ///
    /// # Errors
    /// What `init_by_lua` failed with.
    pub(crate) fn start(main_conf: Main) -> Result<Rc<Vm>, String> {
        // SAFETY: the VM stays on this thread, in the `Vm`, which closes it.
        let main = unsafe {
            let l = sys::luaL_newstate();
            if l.is_null() {
                return Err("no memory for a Lua VM".to_owned());
            }
            sys::luaL_openlibs(l);
            State::new(l)
        };
        let dicts = main_conf.dicts.iter();
        let dicts = dicts.map(|zone| (zone.name.to_string(), zone.store(Dict::new))).collect();
        let vm = Vm {
            main,
            dicts,
            spare: RefCell::default(),
            files: RefCell::default(),
            main_conf,
            patterns: Patterns::default(),
            me: RefCell::default(),
        };
        vm.register();
        vm.prelude()?;
        vm.init()?;
        let vm = Rc::new(vm);
        *vm.me.borrow_mut() = Rc::downgrade(&vm);
        Ok(vm)
    }

    /// The VM, to hold it.
    pub(crate) fn shared(&self) -> Rc<Vm> {
        self.me.borrow().upgrade().expect("who has requests is held")
    }

    /// The number of the worker.
    pub(crate) fn worker(&self) -> Option<u8> {
        self.main_conf.worker
    }

    /// The stack of the main coroutine; scripts never run on it but `init_by_lua` and what can't wait.
    pub(crate) fn main(&self) -> State {
        self.main
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
    pub(crate) fn push_file(&self, path: &Path) -> Result<(), String> {
        if let Some(reference) = self.files.borrow().get(path) {
            self.main.push_anchored(*reference);
            return Ok(());
        }
        let shown = path.display();
        let text = std::fs::read(path).map_err(|error| {
            format!("failed to load external Lua file \"{shown}\": cannot open {shown}: {error}")
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
        self.main.push_function(traceback);
        self.main.insert(at);
        // SAFETY: function and arguments stand on the stack, the handler below them.
        let status = unsafe { sys::lua_pcall(self.main.raw(), args, results, at) };
        self.main.remove(at);
        if status == sys::status::OK {
            return Ok(());
        }
        let message = error_text(self.main);
        self.main.pop(1);
        Err(message)
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
        for (name, text) in PRELUDE {
            chunk::load(self.main, text.as_bytes(), name)?;
            crate::lend::lend(self, Phase::Init, None, None, || self.call(0, 0))?;
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

    fn init(&self) -> Result<(), String> {
        if let Some(source) = &self.main_conf.init {
            self.run_plain(source, Phase::Init)?;
        }
        if let Some(source) = &self.main_conf.init_worker {
            self.run_plain(source, Phase::InitWorker)?;
        }
        // From here on a global that is written is told.
        self.main.field(sys::GLOBALS, c"__weir_guard");
        self.call(0, 0)
    }

    /// Runs the script of a request in a phase that can't wait.
    ///
    /// # Errors
    /// As messages have it.
    pub(crate) fn run_for(&self, chunk: &chunk::Chunk, phase: Phase, x: &mut Exchange) -> Result<(), String> {
        chunk.push(self, Some(x))?;
        crate::lend::lend(self, phase, Some(x), None, || self.call(0, 0))
            .map_err(|error| format!("failed to run {}: {error}", phase.context()))
    }

    /// Runs a script that has no request and can't wait.
    ///
    /// # Errors
    /// As messages have it.
    pub(crate) fn run_plain(&self, source: &chunk::Source, phase: Phase) -> Result<(), String> {
        chunk::Chunk::new(source.clone()).push(self, None)?;
        crate::lend::lend(self, phase, None, None, || self.call(0, 0))
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // SAFETY: runs hold the VM, so none is left; finalizers see no loan.
        unsafe { sys::lua_close(self.main.raw()) }
    }
}

/// The handler of errors in [`Vm::call`].
unsafe extern "C-unwind" fn traceback(raw: *mut sys::LuaState) -> i32 {
    // SAFETY: Lua calls with its running coroutine, the error's value on its stack.
    let l = unsafe { State::new(raw) };
    let text = format!("{}\nstack traceback:\n{}", error_text(l), l.traceback(l, 1));
    l.push_bytes(text.as_bytes());
    1
}

/// The API's part in Lua, file by file, in order.
const PRELUDE: &[(&str, &str)] = &[
    ("=ngx/base", include_str!("prelude/base.lua")),
    ("=ngx/coroutine", include_str!("prelude/coroutine.lua")),
    ("=ngx/tables", include_str!("prelude/tables.lua")),
    ("=ngx/re", include_str!("prelude/re.lua")),
    ("=ngx/json", include_str!("prelude/json.lua")),
    ("=ngx/shared", include_str!("prelude/shared.lua")),
    ("=ngx/modules", include_str!("prelude/modules.lua")),
];
