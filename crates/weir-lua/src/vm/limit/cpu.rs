//! `lua_cpu_limit`: scripts that do not come back to the event loop are ended.
//!
//! A timer on the worker's CPU time interrupts it four times in each such span, and only while it computes. The handler
//! sees whether the same scripts run as at the interruptions before; once they have for too long it sets a hook for every
//! instruction, which raises an error. LuaJIT's own program does so on Ctrl-C, so its functions for that may be called in a
//! handler; compiled code looks for the hook once a round. The hook stays until all of the run is over: a script that
//! catches the error has its next instruction raise another. Where LuaJIT works in C it asks for [`sys::weir_lua_overdue`]
//! (build.rs), and PCRE2 has `lua_regex_match_limit`.
//!
//! What is not seen: finalizers (`__gc`), which LuaJIT runs without hooks, and C functions of others, by FFI or as modules.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, compiler_fence};
use std::time::Duration;

use weir_rt::alarm::Alarm;

use crate::luajit::state::LuaState;
use crate::luajit::sys::{self, RawState};
use crate::vm::limit::unlimited;
use crate::vm::traps;

/// The limit of a VM.
pub(crate) struct CpuLimit {
    most: Duration,
    message: CString,
    _alarm: Alarm,
}

/// What the handler sees of its thread. Only this thread writes; the handler interrupts it anywhere.
struct CpuWatch {
    /// The VM whose scripts run; null when none do.
    vm: AtomicPtr<RawState>,
    /// Another number for each run.
    run: AtomicU64,
    /// In nanoseconds of CPU time.
    most: AtomicU64,
    message: AtomicPtr<c_char>,
    /// The run that the last interruption has seen, and the CPU time at which it was first seen.
    seen: AtomicU64,
    since: AtomicU64,
    overdue: AtomicBool,
}

thread_local! {
    static WATCH: CpuWatch = const {
        CpuWatch {
            vm: AtomicPtr::new(null_mut()),
            run: AtomicU64::new(0),
            most: AtomicU64::new(0),
            message: AtomicPtr::new(null_mut()),
            seen: AtomicU64::new(0),
            since: AtomicU64::new(0),
            overdue: AtomicBool::new(false),
        }
    };
    /// What the first error of an overdue run has said: all that follow say the same.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

impl CpuLimit {
    /// Interrupts the calling thread, which is to be that of the VM, from here on.
    ///
    /// # Errors
    /// The kernel has no timer left.
    pub(crate) fn new(most: Duration) -> io::Result<CpuLimit> {
        let message = format!("lua_cpu_limit of {}ms exceeded", most.as_millis());
        // SAFETY: `ring` reads and writes cells of its thread, and calls what LuaJIT lets handlers call.
        let alarm = unsafe { Alarm::start(most / 4, ring)? };
        Ok(CpuLimit { most, message: CString::new(message).expect("digits and letters"), _alarm: alarm })
    }

    /// Runs scripts, which are ended when they run for too long.
    pub(crate) fn watch<T>(&self, main: LuaState, scripts: impl FnOnce() -> T) -> T {
        /// Also when a panic leaves.
        struct WatchGuard;
        impl Drop for WatchGuard {
            fn drop(&mut self) {
                WATCH.with(CpuWatch::end);
            }
        }
        if WATCH.with(|watch| !watch.vm.load(Ordering::Relaxed).is_null()) {
            return scripts();
        }
        WATCH.with(|watch| watch.begin(self, main));
        let _unwatch = WatchGuard;
        scripts()
    }
}

impl CpuWatch {
    fn begin(&self, limit: &CpuLimit, main: LuaState) {
        self.run.store(self.run.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.most.store(u64::try_from(limit.most.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.message.store(limit.message.as_ptr().cast_mut(), Ordering::Relaxed);
        // Last: from here on the handler looks at the rest.
        self.vm.store(main.raw(), Ordering::Release);
    }

    fn end(&self) {
        let vm = self.vm.swap(null_mut(), Ordering::Relaxed);
        // The handler lets the VM alone from here on.
        compiler_fence(Ordering::SeqCst);
        if self.overdue.load(Ordering::Relaxed) {
            self.overdue.store(false, Ordering::Relaxed);
            SAID.with_borrow_mut(String::clear);
            // SAFETY: the VM has run until now; without a function there is no hook any more.
            unsafe {
                sys::weir_lua_overdue(std::ptr::null());
                sys::lua_sethook(vm, None, 0, 0);
            }
        }
    }
}

/// An interruption, at which the thread has used so much CPU time.
fn ring(now: u64) {
    WATCH.with(|watch| {
        let vm = watch.vm.load(Ordering::Acquire);
        if vm.is_null() {
            return;
        }
        let run = watch.run.load(Ordering::Relaxed);
        if watch.seen.load(Ordering::Relaxed) != run {
            watch.seen.store(run, Ordering::Relaxed);
            watch.since.store(now, Ordering::Relaxed);
        } else if now.saturating_sub(watch.since.load(Ordering::Relaxed))
            >= watch.most.load(Ordering::Relaxed)
        {
            watch.overdue.store(true, Ordering::Relaxed);
            // Again at each interruption: LuaJIT may have been at changing its hooks itself.
            // SAFETY: the VM runs on this thread. LuaJIT sets hooks in handlers itself; the message lives as long as the
            // run, which unsets it.
            unsafe {
                sys::weir_lua_overdue(watch.message.load(Ordering::Relaxed));
                sys::lua_sethook(vm, Some(stop), sys::MASKCOUNT, 1);
            }
        }
    });
}

/// The hook: Lua calls it before each instruction.
unsafe extern "C-unwind" fn stop(raw: *mut RawState, _: *mut sys::LuaDebug) {
    if WATCH.with(|watch| !watch.overdue.load(Ordering::Relaxed)) {
        return;
    }
    // SAFETY: Lua calls with its running coroutine.
    unlimited(|| say(unsafe { LuaState::new(raw) }));
    // SAFETY: the message is on the stack; it is raised when this function has returned.
    unsafe { sys::weir_lua_raise() };
}

/// Pushes where the run was when it was late, and what is wrong.
fn say(l: LuaState) {
    SAID.with_borrow_mut(|said| {
        if said.is_empty() {
            let message = WATCH.with(|watch| watch.message.load(Ordering::Relaxed));
            // SAFETY: the run's message, a C string that lives as long as the run.
            let message = unsafe { std::ffi::CStr::from_ptr(message) };
            let place = place(l);
            traps::count("lua_cpu_limit", &place);
            *said = place + &message.to_string_lossy();
        }
        l.push_bytes(said.as_bytes());
    });
}

/// Where the script was: level 0 is the function that the hook has interrupted, and the API's own part in Lua is not the
/// script's.
fn place(l: LuaState) -> String {
    let mut places = (0..8).map(|level| l.place(level));
    places.find(|place| !place.is_empty() && !place.starts_with("ngx/")).unwrap_or_default()
}
