//! `weir_server_*`, but for what is asked of workers.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use crate::builder::ForeignBuilder;
use crate::code::{CallFailure, WEIR_OK, guard, guard_value};
use crate::server::ForeignServer;
use crate::text::{bytes, put, reference, utf8};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_start(
    builder: *const ForeignBuilder,
    server: *mut *mut ForeignServer,
) -> c_int {
    guard(|| {
        // SAFETY: the header's rules for builders, and for places of results.
        let builder = unsafe {
            put(server, std::ptr::null_mut(), "server")?;
            reference(builder, "builder")?
        };
        let started = Box::into_raw(Box::new(builder.start()?));
        // SAFETY: it was written to before.
        unsafe { put(server, started, "server") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_free(server: *mut ForeignServer) -> c_int {
    guard(|| {
        if server.is_null() {
            return Ok(WEIR_OK);
        }
        // SAFETY: it came from `weir_server_start`, and is freed once.
        unsafe { &*server }.close()?;
        // SAFETY: the same, and no other thread uses it any more.
        drop(unsafe { Box::from_raw(server) });
        Ok(WEIR_OK)
    })
}

/// Calls `f` with a server.
///
/// # Safety
/// NULL, or a server that is not freed meanwhile.
unsafe fn with(
    server: *const ForeignServer,
    f: impl FnOnce(&ForeignServer) -> Result<c_int, CallFailure>,
) -> c_int {
    // SAFETY: as the caller says.
    guard(|| f(unsafe { reference(server, "server")? }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_reload(
    server: *const ForeignServer,
    text: *const c_char,
    length: usize,
) -> c_int {
    let reload = |server: &ForeignServer| {
        if text.is_null() {
            return server.reload(None);
        }
        // SAFETY: the header's rules for bytes.
        let text = unsafe { bytes(text, length, "text")? };
        server.reload(Some(utf8(text, "text")?))
    };
    // SAFETY: the header's rules for servers.
    unsafe { with(server, reload) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_quit(server: *const ForeignServer) -> c_int {
    // SAFETY: the header's rules for servers.
    unsafe { with(server, ForeignServer::quit) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_stop(server: *const ForeignServer) -> c_int {
    // SAFETY: the header's rules for servers.
    unsafe { with(server, ForeignServer::stop) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_join(server: *const ForeignServer, milliseconds: i64) -> c_int {
    // SAFETY: the header's rules for servers.
    unsafe { with(server, |server| server.join(limit(milliseconds))) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_run(server: *const ForeignServer) -> c_int {
    // SAFETY: the header's rules for servers.
    unsafe { with(server, ForeignServer::run) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_fd(server: *const ForeignServer) -> c_int {
    // SAFETY: the header's rules for servers.
    unsafe { with(server, |server| Ok(server.queue()?.fd())) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_turn(server: *const ForeignServer) -> c_int {
    let turn = |server: &ForeignServer| {
        server.is_ours()?;
        let turned = server.queue()?.turn();
        let made = turned.ok_or_else(|| CallFailure::state("a turn inside of a turn"))?;
        Ok(c_int::try_from(made).unwrap_or(c_int::MAX))
    };
    // SAFETY: the header's rules for servers.
    unsafe { with(server, turn) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_worker_count(server: *const ForeignServer) -> c_int {
    // SAFETY: the header's rules for servers.
    unsafe { with(server, |server| Ok(c_int::try_from(server.workers()).unwrap_or(c_int::MAX))) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_address_count(server: *const ForeignServer) -> c_int {
    // SAFETY: the header's rules for servers.
    unsafe { with(server, |server| Ok(c_int::try_from(server.addresses().len()).unwrap_or(c_int::MAX))) }
}

/// The address of that number.
fn address_at(server: &ForeignServer, index: c_int) -> Result<weir::SockAddr, CallFailure> {
    let address = usize::try_from(index).ok().and_then(|index| server.addresses().into_iter().nth(index));
    address.ok_or_else(|| CallFailure::argument("there is no such address"))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_address(
    server: *const ForeignServer,
    index: c_int,
    text: *mut c_char,
    room: usize,
) -> usize {
    guard_value(0, || {
        // SAFETY: the header's rules for servers.
        let address = address_at(unsafe { reference(server, "server")? }, index)?.to_string();
        if !text.is_null() && room > 0 {
            let length = address.len().min(room - 1);
            // SAFETY: `room` bytes may be written at `text`, as the header asks for.
            unsafe {
                std::ptr::copy_nonoverlapping(address.as_ptr(), text.cast(), length);
                text.add(length).write(0);
            }
        }
        Ok(address.len())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_server_port(server: *const ForeignServer, index: c_int) -> c_int {
    let port = |server: &ForeignServer| {
        let none = || CallFailure::argument("the address is that of a unix socket");
        Ok(address_at(server, index)?.port().ok_or_else(none)?.into())
    };
    // SAFETY: the header's rules for servers.
    unsafe { with(server, port) }
}

/// A time as C gives it: below 0 for ever.
pub(crate) fn limit(milliseconds: i64) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}
