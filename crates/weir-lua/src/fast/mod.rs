//! What compiled Lua calls without leaving its machine code: the functions behind the most used of `ngx.*`.
//!
//! LuaJIT compiles calls of C functions through its FFI, and no others. So the prelude gets the address of one table of
//! functions ([`Api`]), which take plain numbers and pointers, never touch the VM, and answer in an [`Answer`] that it
//! lends. Whatever is out of the ordinary (no request, a wrong context, a value that is no text) they refuse with a
//! negative number; the prelude then calls the function of [`crate::api`] of the same purpose, which knows the words for
//! it. No panic leaves them: that would end the process.

mod dict;
mod far;
mod fields;
mod output;
mod re;
mod request;
mod text;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::agent;
use crate::api::{Done, Function, function};
use crate::dict::{Dict, Mark, Scratch};
use crate::glance::{self, Glance};
pub(crate) use fields::version;

pub(crate) const TABLE: &[Function] = &[function("_fast", 0, |l| {
    let api = if agent::is_here() { &raw const FAR } else { &raw const NEAR };
    l.push_pointer(api.cast_mut().cast());
    Ok(Done::Results(1))
})];

/// Where functions put what they found; `struct weir_answer` of the prelude.
#[repr(C)]
pub(crate) struct Answer {
    /// A text, which stays until the next call.
    at: *const u8,
    len: usize,
    number: f64,
    flags: u32,
    flag: u32,
    /// Pairs of offsets, -1 for a group that took no part; they stay until the next call.
    spans: *const i32,
    /// A list, which stays until the next one.
    pairs: *const fields::Pair,
    /// What says that the value which was found is still the same, as long as its version is this; or null.
    mark: *const Mark,
    version: f64,
    /// When that value expires, as [`glance::now`] counts.
    expires: f64,
    /// The number of the list of fields that the prelude has as Lua strings; 0 for none.
    strings: f64,
    /// That of the list in `pairs`.
    list: f64,
    /// Where short values are copied to.
    room: Scratch,
}

impl Answer {
    fn text(&mut self, text: &[u8]) {
        (self.at, self.len) = (text.as_ptr(), text.len());
    }

    /// Answers with a text of its own, which is kept here until the next call.
    fn own(&mut self, text: Vec<u8>) {
        self.text(&text);
        KEPT.set(text);
    }

    /// Answers with a text that is kept here until the next call.
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
fn kept(text: &[u8]) -> *const u8 {
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
pub(crate) struct Api {
    variable_index: unsafe extern "C" fn(*const u8, usize) -> i32,
    variable: unsafe extern "C" fn(i32, *const u8, usize, *mut Answer) -> i32,
    header: unsafe extern "C" fn(*const u8, usize, *const u8, usize, *mut Answer) -> i32,
    set_header: unsafe extern "C" fn(*const u8, usize, *const u8, usize, i32) -> i32,
    request_header: unsafe extern "C" fn(*const u8, usize, *mut Answer) -> i32,
    ctx: extern "C" fn() -> i32,
    status: extern "C" fn() -> i32,
    set_status: extern "C" fn(i32) -> i32,
    headers_sent: extern "C" fn() -> i32,
    is_subrequest: extern "C" fn() -> i32,
    phase: extern "C" fn() -> i32,
    now: extern "C" fn() -> f64,
    seconds: extern "C" fn() -> f64,
    text: unsafe extern "C" fn(i32, *const u8, usize, i32, *mut Answer) -> i32,
    date: unsafe extern "C" fn(i32, f64, *mut Answer) -> i32,
    dict: extern "C" fn(i32) -> *const Dict,
    dict_get: unsafe extern "C" fn(*const Dict, *const u8, usize, i32, *mut Answer) -> i32,
    dict_set: dict::Set,
    dict_incr: unsafe extern "C" fn(*const Dict, *const u8, usize, *const dict::Given, *mut Answer) -> i32,
    dict_whole: unsafe extern "C" fn(*const Dict, i32, *mut Answer) -> i32,
    re_compile: unsafe extern "C" fn(*const u8, usize, *const u8, usize, *mut Answer) -> i32,
    re_free: extern "C" fn(i32),
    re_exec: unsafe extern "C" fn(i32, *const u8, usize, f64, *mut Answer) -> i32,
    list: unsafe extern "C" fn(i32, f64, i32, *const u8, usize, *mut Answer) -> i32,
    request: unsafe extern "C" fn(i32, *mut Answer) -> i32,
    set_method: extern "C" fn(i32) -> i32,
    set_request_header: unsafe extern "C" fn(*const u8, usize, *const u8, usize) -> i32,
    arg: unsafe extern "C" fn(f64, *mut Answer) -> i32,
    monotonic: extern "C" fn() -> f64,
    set_peer: unsafe extern "C" fn(*const u8, usize, i32, *const u8, usize, *mut Answer) -> i32,
    settable: unsafe extern "C" fn(*const u8, usize) -> i32,
    set_variable: unsafe extern "C" fn(i32, *const u8, usize) -> i32,
    give_ctx: extern "C" fn(i32) -> i32,
    glance: extern "C" fn() -> *const Glance,
    say: unsafe extern "C" fn(*const u8, usize, i32) -> i32,
    update_time: extern "C" fn(),
}

const API: Api = Api {
    variable_index: request::variable_index,
    variable: request::variable,
    header: request::header,
    set_header: request::set_header,
    request_header: request::request_header,
    ctx: request::ctx,
    status: request::status,
    set_status: request::set_status,
    headers_sent: request::headers_sent,
    is_subrequest: request::is_subrequest,
    phase: request::phase,
    now: text::now,
    seconds: text::seconds,
    text: text::text,
    date: text::date,
    dict: dict::place,
    dict_get: dict::get,
    dict_set: dict::set,
    dict_incr: dict::incr,
    dict_whole: dict::whole,
    re_compile: re::compile,
    re_free: re::free,
    re_exec: re::exec,
    list: fields::list,
    request: fields::request,
    set_method: fields::set_method,
    set_request_header: fields::set_request_header,
    arg: fields::arg,
    monotonic: text::monotonic,
    set_peer: crate::balancer::set_peer,
    settable: request::settable,
    set_variable: request::set_variable,
    give_ctx: request::give_ctx,
    glance: glance::place,
    say: output::say,
    update_time: text::update_time,
};

static NEAR: Api = API;

/// In the privileged agent's process.
static FAR: Api = Api {
    dict: far::place,
    dict_get: far::get,
    dict_set: far::set,
    dict_incr: far::incr,
    dict_whole: far::whole,
    ..API
};

/// As [`guarded`], of what changes the request or its answer.
fn changing(body: impl FnOnce() -> i32) -> i32 {
    glance::changed();
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
