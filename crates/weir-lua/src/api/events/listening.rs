//! Sockets whose connections a worker does not want: those of a broker that another worker is.

use crate::run::function::{ApiFunction, CallDone, expect_string, function};
use crate::run::lend;
use crate::vm::lua_vm::LuaVm;

pub(crate) const TABLE: &[ApiFunction] = &[function("_listening.stop", 0, |l| {
    let name = expect_string(&l, 1, "stop")?;
    let stopped = lend::vm(|vm| stop(vm, &String::from_utf8_lossy(&name)));
    l.push_boolean(stopped);
    Ok(CallDone::Results(1))
})];

/// The worker takes no more connections of the first UNIX-domain socket whose name begins like this; `false`: such a socket is absent.
fn stop(vm: &LuaVm, name: &str) -> bool {
    let (Some(home), Some(counters)) = (vm.home.upgrade(), &vm.main_conf.counters) else { return false };
    let addresses = home.configuration.addresses.iter().map(|address| &address.addr);
    let mut sockets = addresses.filter(|addr| addr.to_socket_addr().is_none()).map(ToString::to_string);
    match sockets.find(|socket| socket.starts_with(name)) {
        Some(socket) => {
            counters.refused.add(&socket);
            true
        }
        None => false,
    }
}
