//! How other threads query a VM: on its worker's own thread, between two rounds, when no script runs.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::mpsc;
use std::time::Duration;

use weir_rt::RuntimeHandle;

use crate::vm::lua_vm::LuaVm;

thread_local! {
    static OPEN: RefCell<Vec<Weak<LuaVm>>> = const { RefCell::new(Vec::new()) };
}

/// The VM can be asked from here on, by the number of its figures.
pub(crate) fn open(vm: &Rc<LuaVm>) {
    OPEN.with_borrow_mut(|open| {
        open.retain(|vm| vm.strong_count() > 0);
        open.push(Rc::downgrade(vm));
    });
}

/// Asks the VM of that number on the worker of `remote`. `None` when that does not come to it in time, since it is busy or
/// gone.
pub(crate) fn ask<T: Send + 'static>(
    remote: &RuntimeHandle,
    number: u64,
    question: fn(&LuaVm) -> T,
) -> Option<T> {
    let (answer, answered) = mpsc::sync_channel(1);
    remote.run(Box::new(move || {
        if let Some(vm) = find(number) {
            // The caller has gone if it took too long.
            let _ = answer.send(question(&vm));
        }
    }));
    answered.recv_timeout(PATIENCE).ok()
}

fn find(number: u64) -> Option<Rc<LuaVm>> {
    let is = |vm: &Rc<LuaVm>| vm.figures.as_ref().is_some_and(|figures| figures.number == number);
    OPEN.with_borrow(|open| open.iter().filter_map(Weak::upgrade).find(is))
}

/// A worker that is blocked for longer is what `weir blocked` is for.
const PATIENCE: Duration = Duration::from_secs(2);
