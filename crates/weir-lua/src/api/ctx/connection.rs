//! `ngx.ctx` of a connection: one table for all scripts of its handshake, which the tables of its requests inherit from.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use weir_engine::Exchange;

use crate::api;
use crate::luajit::state::LuaState;
use crate::run::lend;
use crate::vm::lua_vm::LuaVm;

/// The table of a connection.
#[derive(Default)]
struct OfConnection(RefCell<Option<ConnectionTable>>);

/// An anchored table. It goes with its VM: a connection does not hold the VM of a configuration that is no more.
struct ConnectionTable {
    vm: Weak<LuaVm>,
    anchor: i32,
}

impl Drop for ConnectionTable {
    fn drop(&mut self) {
        if let Some(vm) = self.vm.upgrade() {
            vm.main().release(self.anchor);
        }
    }
}

impl ConnectionTable {
    fn is_of(&self, vm: &Rc<LuaVm>) -> bool {
        std::ptr::eq(self.vm.as_ptr(), Rc::as_ptr(vm))
    }
}

/// Gives `x` the connection's table, if there is one.
pub(crate) fn adopt(x: &mut Exchange, vm: &Rc<LuaVm>) {
    let Some(kept) = x.connection.state_if::<OfConnection>() else { return };
    let kept = kept.0.borrow();
    if let Some(kept) = kept.as_ref().filter(|kept| kept.is_of(vm)) {
        vm.main().push_anchored(kept.anchor);
        api::give_ctx(x, vm.clone(), vm.main().anchor());
    }
}

/// Keeps the table of `x`, if it has one, for the connection.
pub(crate) fn keep(x: &mut Exchange, vm: &Rc<LuaVm>) {
    let Some(anchor) = api::ctx_of(x) else { return };
    vm.main().push_anchored(anchor);
    let kept = ConnectionTable { vm: Rc::downgrade(vm), anchor: vm.main().anchor() };
    *x.connection.state::<OfConnection>().0.borrow_mut() = Some(kept);
}

/// Whether scripts of the connection's handshake have left a table, which those of its requests inherit from.
pub(crate) fn is_inherited() -> bool {
    lend::any_exchange(|x| x.connection.state_if::<OfConnection>().is_some()).unwrap_or(false)
}

/// Lets the table on top inherit from that of the request's connection, if it has one.
pub(crate) fn push_inherited(l: LuaState) {
    let Ok(Some(kept)) = lend::any_exchange(|x| x.connection.state_if::<OfConnection>()) else { return };
    let anchor = lend::vm(|vm| {
        let kept = kept.0.borrow();
        kept.as_ref().filter(|kept| std::ptr::eq(kept.vm.as_ptr(), vm)).map(|kept| kept.anchor)
    });
    if let Some(anchor) = anchor {
        l.new_table(0, 1);
        l.push_anchored(anchor);
        l.set_field(-2, c"__index");
        l.set_metatable(-2);
    }
}
