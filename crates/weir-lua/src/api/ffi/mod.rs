//! What compiled Lua calls without leaving its machine code: the implementations of the most used of `ngx.*`.
//!
//! LuaJIT compiles calls of C functions through its FFI, and no others. So the prelude gets the address of one table of
//! functions ([`FfiTable`]), which take plain numbers and pointers, never touch the VM, and write their result into an
//! [`FfiAnswer`] that it lends. Whatever is out of the ordinary (no request, a wrong context, a value that is no text)
//! they refuse with a negative number; the prelude then calls the function of [`crate::api`] of the same purpose, which
//! knows the words for it. No panic leaves them: that would end the process.

pub(crate) mod lists;

use std::cell::RefCell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::agent;
use crate::api::{
    arg, control, coroutine, ctx, encode, errlog, header, log, output, re, req, shared, socket, time, var,
    worker,
};
use crate::dict::{EntryMark, SharedDict, ValueScratch};
use crate::luajit::shared_page::{self, SharedPage};
use crate::run::function::{ApiFunction, CallDone, function};

pub(crate) const TABLE: &[ApiFunction] = &[function("_fast", 0, |l| {
    let api = if agent::is_here() { &raw const FAR } else { &raw const NEAR };
    l.push_pointer(api.cast_mut().cast());
    Ok(CallDone::Results(1))
})];

/// Where functions put what they found; `struct weir_answer` of the prelude.
#[repr(C)]
pub(crate) struct FfiAnswer {
    /// A text, which stays until the next call.
    pub(crate) at: *const u8,
    pub(crate) len: usize,
    pub(crate) number: f64,
    pub(crate) flags: u32,
    pub(crate) flag: u32,
    /// A list, which stays until the next one.
    pub(crate) pairs: *const lists::NameValue,
    /// What says that the value which was found is still the same, as long as its version is this; or null.
    pub(crate) mark: *const EntryMark,
    pub(crate) version: f64,
    /// When that value expires, in milliseconds as [`shared_page::now`](crate::luajit::shared_page::now) counts.
    pub(crate) expires: f64,
    /// The number of the list of fields that the prelude has as Lua strings; 0 for none.
    pub(crate) strings: f64,
    /// That of the list in `pairs`.
    pub(crate) list: f64,
    /// Where short values are copied to.
    pub(crate) room: ValueScratch,
}

impl FfiAnswer {
    pub(crate) fn text(&mut self, text: &[u8]) {
        (self.at, self.len) = (text.as_ptr(), text.len());
    }

    /// Gives a text of its own as the result, which is kept here until the next call.
    pub(crate) fn own(&mut self, text: Vec<u8>) {
        self.text(&text);
        KEPT.set(text);
    }

    /// Gives a text as the result that is kept here until the next call.
    pub(crate) fn keep(&mut self, text: &[u8]) {
        self.len = text.len();
        self.at = match self.room.get_mut(..text.len()) {
            Some(room) => {
                room.copy_from_slice(text);
                room.as_ptr()
            }
            None => kept(text),
        };
    }
}

/// A copy of the text, which is kept until the next one.
pub(crate) fn kept(text: &[u8]) -> *const u8 {
    KEPT.with_borrow_mut(|kept| {
        kept.clear();
        kept.extend_from_slice(text);
        kept.as_ptr()
    })
}

thread_local! {
    static KEPT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The table; `struct weir_api` of the prelude has the same fields in the same order.
#[repr(C)]
pub(crate) struct FfiTable {
    variable_index: unsafe extern "C" fn(*const u8, usize) -> i32,
    variable: unsafe extern "C" fn(i32, *const u8, usize, *mut FfiAnswer) -> i32,
    header: unsafe extern "C" fn(*const u8, usize, *const u8, usize, *mut FfiAnswer) -> i32,
    set_header: unsafe extern "C" fn(*const u8, usize, *const u8, usize, i32) -> i32,
    request_header: unsafe extern "C" fn(*const u8, usize, *mut FfiAnswer) -> i32,
    ctx: extern "C" fn() -> i32,
    status: extern "C" fn() -> i32,
    set_status: extern "C" fn(i32) -> i32,
    headers_sent: extern "C" fn() -> i32,
    hears: extern "C" fn(i32) -> i32,
    is_subrequest: extern "C" fn() -> i32,
    phase: extern "C" fn() -> i32,
    now: extern "C" fn() -> f64,
    seconds: extern "C" fn() -> f64,
    text: unsafe extern "C" fn(i32, *const u8, usize, i32, *mut FfiAnswer) -> i32,
    date: unsafe extern "C" fn(i32, f64, *mut FfiAnswer) -> i32,
    dict: extern "C" fn(i32) -> *const SharedDict,
    dict_get: unsafe extern "C" fn(*const SharedDict, *const u8, usize, i32, *mut FfiAnswer) -> i32,
    dict_set: shared::ffi::FfiSet,
    dict_incr: unsafe extern "C" fn(
        *const SharedDict,
        *const u8,
        usize,
        *const shared::ffi::FfiValue,
        *mut FfiAnswer,
    ) -> i32,
    dict_whole: unsafe extern "C" fn(*const SharedDict, i32, *mut FfiAnswer) -> i32,
    re_compile: unsafe extern "C" fn(*const u8, usize, *const u8, usize, *mut FfiAnswer) -> i32,
    re_free: extern "C" fn(i32),
    re_exec: unsafe extern "C" fn(i32, *const u8, usize, f64, *mut FfiAnswer) -> i32,
    list: unsafe extern "C" fn(i32, f64, i32, *const u8, usize, *mut FfiAnswer) -> i32,
    request: unsafe extern "C" fn(i32, *mut FfiAnswer) -> i32,
    set_method: extern "C" fn(i32) -> i32,
    set_request_header: unsafe extern "C" fn(*const u8, usize, *const u8, usize) -> i32,
    arg: unsafe extern "C" fn(f64, *mut FfiAnswer) -> i32,
    monotonic: extern "C" fn() -> f64,
    set_peer: unsafe extern "C" fn(*const u8, usize, i32, *const u8, usize, *mut FfiAnswer) -> i32,
    settable: unsafe extern "C" fn(*const u8, usize) -> i32,
    set_variable: unsafe extern "C" fn(i32, *const u8, usize) -> i32,
    give_ctx: extern "C" fn(i32) -> i32,
    glance: extern "C" fn() -> *const SharedPage,
    say: unsafe extern "C" fn(*const u8, usize, i32) -> i32,
    update_time: extern "C" fn(),
    re_spans: extern "C" fn() -> *const i32,
    receive: unsafe extern "C" fn(*const c_void, f64, *mut FfiAnswer) -> i32,
    takes_sockets: extern "C" fn() -> i32,
    send: unsafe extern "C" fn(*const c_void, *const u8, usize) -> i32,
    scheduled: extern "C" fn() -> i32,
    connect: unsafe extern "C" fn(*const c_void, *const u8, usize, f64, f64, f64, f64) -> i32,
    keep: unsafe extern "C" fn(*const c_void, f64) -> i32,
    dict_key: unsafe extern "C" fn(*const SharedDict, i32, *const u8, usize, f64, *mut FfiAnswer) -> i32,
    raw_log: unsafe extern "C" fn(f64, *const u8, usize) -> i32,
    log_limit: extern "C" fn() -> i32,
    exiting: extern "C" fn() -> i32,
    worker_number: extern "C" fn(f64) -> f64,
    bypass: extern "C" fn() -> i32,
    set_reason: unsafe extern "C" fn(i32, *const u8, usize) -> i32,
    capture: unsafe extern "C" fn(f64, *mut FfiAnswer) -> i32,
    set_module_variable: unsafe extern "C" fn(*const u8, usize, *const u8, usize) -> i32,
    header_values: unsafe extern "C" fn(*const u8, usize, *mut FfiAnswer) -> i32,
    field_value: unsafe extern "C" fn(i32, *const u8, usize),
    set_field: unsafe extern "C" fn(i32, *const u8, usize, i32) -> i32,
}

const API: FfiTable = FfiTable {
    variable_index: var::ffi::variable_index,
    variable: var::ffi::variable,
    header: header::ffi::header,
    set_header: header::ffi::set_header,
    request_header: req::ffi::request_header,
    ctx: ctx::ffi::ctx,
    status: control::ffi::status,
    set_status: control::ffi::set_status,
    headers_sent: control::ffi::headers_sent,
    hears: log::hears,
    is_subrequest: control::ffi::is_subrequest,
    phase: control::ffi::phase,
    now: time::ffi::now,
    seconds: time::ffi::seconds,
    text: encode::ffi::text,
    date: time::ffi::date,
    dict: shared::ffi::place,
    dict_get: shared::ffi::get,
    dict_set: shared::ffi::set,
    dict_incr: shared::ffi::incr,
    dict_whole: shared::ffi::whole,
    re_compile: re::ffi::compile,
    re_free: re::ffi::free,
    re_exec: re::ffi::exec,
    list: lists::list,
    request: req::ffi::request,
    set_method: req::ffi::set_method,
    set_request_header: req::ffi::set_request_header,
    arg: arg::ffi::arg,
    monotonic: time::ffi::monotonic,
    set_peer: crate::api::balancer::set_peer,
    settable: var::ffi::settable,
    set_variable: var::ffi::set_variable,
    give_ctx: ctx::ffi::give_ctx,
    glance: shared_page::place,
    say: output::ffi::say,
    update_time: time::ffi::update_time,
    re_spans: re::ffi::spans,
    receive: socket::ffi::receive,
    takes_sockets: socket::ffi::is_place,
    send: socket::ffi::send,
    scheduled: coroutine::scheduled,
    connect: socket::ffi::connect,
    keep: socket::ffi::keep,
    dict_key: shared::ffi::key,
    raw_log: errlog::ffi::raw_log,
    log_limit: errlog::ffi::log_limit,
    exiting: worker::exiting,
    worker_number: worker::number,
    bypass: control::ffi::bypass,
    set_reason: control::ffi::set_reason,
    capture: var::ffi::capture,
    set_module_variable: var::ffi::set_module_variable,
    header_values: header::ffi::header_values,
    field_value: header::fields::field_value,
    set_field: header::fields::set_field,
};

static NEAR: FfiTable = API;

/// In the privileged agent's process.
static FAR: FfiTable = FfiTable {
    dict: shared::ffi_agent::place,
    dict_get: shared::ffi_agent::get,
    dict_set: shared::ffi_agent::set,
    dict_incr: shared::ffi_agent::incr,
    dict_whole: shared::ffi_agent::whole,
    dict_key: shared::ffi_agent::key,
    ..API
};

/// As [`guarded`], of what changes the request or its response.
pub(crate) fn changing(body: impl FnOnce() -> i32) -> i32 {
    shared_page::changed();
    guarded(body)
}

/// Nothing of the kind.
pub(crate) const NOTHING: i32 = 0;
/// Found, or done.
pub(crate) const FOUND: i32 = 1;
/// Not for the fast way: the prelude asks the other function.
pub(crate) const REFUSED: i32 = -1;

/// The text at `at`.
///
/// # Safety
/// `at` points at `len` bytes that stay as they are as long as the result is used.
pub(crate) unsafe fn slice<'t>(at: *const u8, len: usize) -> &'t [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: this function's contract; a text without bytes may have any address.
    unsafe { std::slice::from_raw_parts(at, len) }
}

/// Runs the body of a function; one that panics has refused.
pub(crate) fn guarded(body: impl FnOnce() -> i32) -> i32 {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(REFUSED)
}

/// The text that the prelude has as a Lua string, if it has one.
pub(crate) struct LastText<'t>(Option<&'t [u8]>);

impl LastText<'_> {
    /// # Safety
    /// As [`slice`](slice()), where `at` is not null.
    pub(crate) unsafe fn new(at: *const u8, len: usize) -> Self {
        // SAFETY: this function's contract.
        LastText((!at.is_null()).then(|| unsafe { slice(at, len) }))
    }

    pub(crate) fn is(&self, text: &[u8]) -> bool {
        self.0 == Some(text)
    }
}

/// It is what the prelude has as a Lua string.
pub(crate) const SAME: i32 = 2;
