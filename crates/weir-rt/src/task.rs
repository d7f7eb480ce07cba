//! Tasks seen from outside: their names, and what becomes of a panic inside one.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic;
use std::sync::{Once, OnceLock, PoisonError, RwLock};

/// Names one task of one runtime; never reused while the process lives (short of 2^32 reuses of one slot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

static HOOK: RwLock<Option<fn(&str)>> = RwLock::new(None);
/// What the process did with panics before; still used for panics outside tasks.
static PREVIOUS: OnceLock<StdHook> = OnceLock::new();

type StdHook = Box<dyn Fn(&panic::PanicHookInfo<'_>) + Send + Sync>;

thread_local! {
    /// Whether this thread is inside [`catch`], so that the panic is reported rather than printed.
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has `f` called, on the thread where it happened, with the message and place of every panic that ended a task.
/// One hook per process, the last one set counts; without one, panics are printed as the standard library does.
pub fn set_panic_hook(f: fn(&str)) {
    static INSTALL: Once = Once::new();
    *HOOK.write().unwrap_or_else(PoisonError::into_inner) = Some(f);
    INSTALL.call_once(|| {
        // `set` can't fail: `call_once` runs this once.
        let _first = PREVIOUS.set(panic::take_hook());
        panic::set_hook(Box::new(|info| {
            if CATCHING.get() {
                MESSAGE.set(Some(info.to_string()));
            } else if let Some(previous) = PREVIOUS.get() {
                previous(info);
            }
        }));
    });
}

/// Runs `f`; a panic in it is reported and becomes `None`.
pub(crate) fn catch<R>(f: impl FnOnce() -> R) -> Option<R> {
    let outer = CATCHING.replace(true);
    let result = panic::catch_unwind(panic::AssertUnwindSafe(f));
    CATCHING.set(outer);
    result.map_err(|payload| report(&*payload)).ok()
}

fn report(payload: &(dyn Any + Send)) {
    let hook = *HOOK.read().unwrap_or_else(PoisonError::into_inner);
    let Some(hook) = hook else { return };
    let plain =
        payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    let message = MESSAGE.take();
    hook(message.as_deref().or(plain).unwrap_or("panic with a payload that is no text"));
}
