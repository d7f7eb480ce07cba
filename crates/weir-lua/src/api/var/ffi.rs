//! Variables, fields, the context's table, the status.

use weir_core::Text;
use weir_core::conf::server::Link;
use weir_core::variable::{Get, VarIndex};
use weir_http::{Known, classify};

use crate::api::ffi::{Answer, FOUND, NOTHING, REFUSED, changing, guarded, slice};
use crate::api::ssl;
use crate::api::{ctx_anchor, is_sent, keep_ctx};
use crate::hooks::phases::Settings;
use crate::run::lend;
use crate::vm::phase::{Phase, REQUEST};
use crate::vm::vm::Vm;

/// The number of a variable, which holds as long as the VM: of the configuration, or behind those a module's. From
/// [`STEADY`] on they are of variables that have the same value as long as nothing has [changed](crate::luajit::shared_page).
pub(crate) unsafe extern "C" fn variable_index(name: *const u8, len: usize) -> i32 {
    // SAFETY: the prelude passes a Lua string, which its stack keeps during the call.
    numbered(unsafe { slice(name, len) }, |generation, name| {
        let variables = generation.variables();
        if let Some(index) = variables.find(name) {
            let own = || generation.modules_variable(name).is_none();
            let steady = is_steady(name) || variables.settable(name) == Some(true) && own();
            return Some(i32::from(index.0) + if steady { STEADY } else { 0 });
        }
        let (get, rest) = generation.modules_variable(name)?;
        let at = lend::vm(|vm| {
            let mut direct = vm.direct.borrow_mut();
            direct.push((get, rest.into()));
            direct.len() - 1
        });
        let steady = if is_steady(name) { STEADY } else { 0 };
        i32::try_from(at).ok().map(|at| DIRECT + at + steady)
    })
}

/// The number that `find` has for a variable's name, which it is given in lower case.
fn numbered(name: &[u8], find: impl FnOnce(&Link, &str) -> Option<i32>) -> i32 {
    guarded(|| {
        let Ok(name) = std::str::from_utf8(name) else { return REFUSED };
        let name = name.to_ascii_lowercase();
        let index = lend::exchange(|x| find(&x.server.generation(), &name));
        index.ok().flatten().unwrap_or(REFUSED)
    })
}

/// Whether a module's variable follows from the request and its answer alone.
fn is_steady(name: &str) -> bool {
    STEADY_NAMES.binary_search(&name).is_ok()
        || ["arg_", "cookie_", "http_"].iter().any(|prefix| name.starts_with(prefix))
}

/// The value of variable number `index`; if it is `last`, it is not told again.
pub(crate) unsafe extern "C" fn variable(
    index: i32,
    last: *const u8,
    len: usize,
    answer: *mut Answer,
) -> i32 {
    // SAFETY: the prelude lends its own answer, exclusively during the call, and passes a Lua string, or null.
    let (last, answer) = unsafe { (Last::new(last, len), &mut *answer) };
    guarded(|| {
        if !lend::phase().is_in(REQUEST) {
            return REFUSED;
        }
        let index = index & (STEADY - 1);
        let found = lend::exchange(|x| {
            let value = match u16::try_from(index) {
                Ok(index) => x.variable(VarIndex(index)),
                Err(_) => {
                    let at = (index - DIRECT) as usize;
                    match lend::vm(|vm| vm.direct.borrow().get(at).cloned()) {
                        Some((Get::Plain(get), _)) => get(x),
                        Some((Get::Prefix(get), rest)) => get(x, &rest),
                        None => return REFUSED,
                    }
                }
            };
            match value {
                Some(value) if last.is(x.text(&value)) => SAME,
                // What is shared may go with the value.
                Some(Text::Shared(text)) => {
                    answer.keep(&text);
                    FOUND
                }
                Some(value) => {
                    answer.text(x.text(&value));
                    FOUND
                }
                None => NOTHING,
            }
        });
        found.unwrap_or(REFUSED)
    })
}

/// The number of a variable that scripts may set.
pub(crate) unsafe extern "C" fn settable(name: *const u8, len: usize) -> i32 {
    // SAFETY: as `variable_index`.
    numbered(unsafe { slice(name, len) }, |generation, name| {
        let variables = generation.variables();
        let index = variables.settable(name).filter(|may| *may).and_then(|_| variables.find(name));
        index.map(|index| i32::from(index.0))
    })
}

/// Gives variable number `index`, which is [settable], a value; null for none.
pub(crate) unsafe extern "C" fn set_variable(index: i32, value: *const u8, len: usize) -> i32 {
    // SAFETY: as `variable_index`; a null value is not followed.
    let value = unsafe { (!value.is_null()).then(|| slice(value, len)) };
    changing(|| {
        let (Ok(index), true) = (u16::try_from(index), lend::phase().is_in(REQUEST)) else { return REFUSED };
        let done = lend::exchange(|x| {
            match value {
                Some(value) => {
                    let span = x.arena.push(value);
                    x.set_variable(VarIndex(index), Text::Span(span));
                }
                None => x.clear_variable(VarIndex(index)),
            }
            FOUND
        });
        done.unwrap_or(REFUSED)
    })
}

/// The value of a field of the answer that it has once, and that the server does not compose itself; if it is `last`,
/// it is not told again.
pub(crate) unsafe extern "C" fn header(
    name: *const u8,
    len: usize,
    last: *const u8,
    last_len: usize,
    answer: *mut Answer,
) -> i32 {
    // SAFETY: as `variable_index` and `variable`.
    let (name, last, answer) = unsafe { (slice(name, len), Last::new(last, last_len), &mut *answer) };
    guarded(|| {
        if !lend::phase().is_in(REQUEST) || name.contains(&b'_') || composed(classify(name)) {
            return REFUSED;
        }
        let found = lend::exchange(|x| {
            let mut values = x.response.headers.iter().filter(|header| header.name.is(&x.arena, name));
            match (values.next(), values.next()) {
                (None, _) => NOTHING,
                (Some(header), None) if last.is(x.text(&header.value)) => SAME,
                (Some(header), None) => {
                    answer.text(x.text(&header.value));
                    FOUND
                }
                (Some(_), Some(_)) => REFUSED,
            }
        });
        found.unwrap_or(REFUSED)
    })
}

/// Bytes of names that are sent as they are: letters, digits, `-` and `_`.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        plain[byte] = (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'-' | b'_');
        byte += 1;
    }
    plain
};

/// Whether the field stands elsewhere than with the others.
fn composed(known: Known) -> bool {
    matches!(
        known,
        Known::ContentType
            | Known::ContentLength
            | Known::Server
            | Known::Date
            | Known::Location
            | Known::LastModified
            | Known::Connection
            | Known::TransferEncoding
    )
}

/// Gives a field of the answer a value that needs no escaping. `plain`: the name is one without `_` that was taken before.
pub(crate) unsafe extern "C" fn set_header(
    name: *const u8,
    name_len: usize,
    value: *const u8,
    value_len: usize,
    plain: i32,
) -> i32 {
    // SAFETY: as `variable_index`.
    let (name, value) = unsafe { (slice(name, name_len), slice(value, value_len)) };
    changing(|| {
        let (phase, plain) = (lend::phase(), plain != 0);
        let is_taken = || name.iter().all(|byte| PLAIN[usize::from(*byte)]) && !composed(classify(name));
        if !phase.is_in(REQUEST)
            || name.is_empty()
            || value.is_empty()
            || value.iter().any(|byte| *byte < 0x20 || *byte == 0x7f)
            || (is_sent() && phase != Phase::HeaderFilter)
            || !(plain || is_taken())
        {
            return REFUSED;
        }
        let done = lend::exchange(|x| {
            if !plain && name.contains(&b'_') && x.plan.kept::<Settings>().is_none_or(|kept| kept.underscores)
            {
                return REFUSED;
            }
            let span = x.arena.push(value);
            x.set_response_field(name, Text::Span(span));
            FOUND
        });
        done.unwrap_or(REFUSED)
    })
}

/// The value of a field of the request that it has once.
pub(crate) unsafe extern "C" fn request_header(name: *const u8, len: usize, answer: *mut Answer) -> i32 {
    // SAFETY: as `variable_index` and `variable`.
    let (name, answer) = unsafe { (slice(name, len), &mut *answer) };
    guarded(|| {
        let found = lend::exchange(|x| match x.request_field(name) {
            Some(value) => {
                answer.text(value);
                FOUND
            }
            None => NOTHING,
        });
        found.unwrap_or(REFUSED)
    })
}

/// The anchor of the request's `ngx.ctx`; -2 when it has none yet, and less by the number of fields to make room for.
pub(crate) extern "C" fn ctx() -> i32 {
    guarded(|| match ctx_anchor() {
        Ok(Some(anchor)) => anchor,
        // What it inherits from is the other function's business.
        Ok(None) if ssl::is_inherited() => REFUSED,
        Ok(None) => -2 - lend::vm(Vm::ctx_fields) as i32,
        Err(_) => REFUSED,
    })
}

/// Makes the table that the prelude has anchored the request's `ngx.ctx`.
pub(crate) extern "C" fn give_ctx(anchor: i32) -> i32 {
    guarded(|| keep_ctx(anchor).map_or(REFUSED, |()| FOUND))
}

/// The status of the answer so far.
pub(crate) extern "C" fn status() -> i32 {
    guarded(|| {
        if !lend::phase().is_in(REQUEST) {
            return REFUSED;
        }
        let status = lend::exchange(|x| match (x.response.err_status, x.response.status) {
            // A script before this one may have ended with one.
            (0, 0) if x.internal => REFUSED,
            (0, status) => i32::from(status),
            (error, _) => i32::from(error),
        });
        status.unwrap_or(REFUSED)
    })
}

/// Gives the answer a status, as long as its head has not gone.
pub(crate) extern "C" fn set_status(status: i32) -> i32 {
    changing(|| {
        if !lend::phase().is_in(REQUEST) || !(100..1000).contains(&status) || is_sent() {
            return REFUSED;
        }
        let done = lend::exchange(|x| {
            (x.response.status, x.response.err_status, x.response.reason) = (status as u16, 0, None);
            FOUND
        });
        done.unwrap_or(REFUSED)
    })
}

/// Whether the head has gone, or would have by now in OpenResty.
pub(crate) extern "C" fn headers_sent() -> i32 {
    guarded(|| lend::exchange(|_| ()).map_or(REFUSED, |()| i32::from(is_sent())))
}

/// Whether the request is a subrequest.
pub(crate) extern "C" fn is_subrequest() -> i32 {
    guarded(|| lend::exchange(|x| i32::from(x.is_subrequest())).unwrap_or(REFUSED))
}

/// The running script's context, as a bit.
pub(crate) extern "C" fn phase() -> i32 {
    guarded(|| lend::phase() as i32)
}

/// The text that the prelude has as a Lua string, if it has one.
struct Last<'t>(Option<&'t [u8]>);

impl Last<'_> {
    /// # Safety
    /// As [`slice`], where `at` is not null.
    unsafe fn new(at: *const u8, len: usize) -> Self {
        // SAFETY: this function's contract.
        Last((!at.is_null()).then(|| unsafe { slice(at, len) }))
    }

    fn is(&self, text: &[u8]) -> bool {
        self.0 == Some(text)
    }
}

/// It is what the prelude has as a Lua string.
const SAME: i32 = 2;
/// Is added to the numbers of variables that stay as they are.
const STEADY: i32 = 1 << 24;
/// Variables of modules that do, in order.
const STEADY_NAMES: &[&str] = &[
    "args",
    "binary_remote_addr",
    "document_uri",
    "host",
    "hostname",
    "https",
    "is_args",
    "query_string",
    "remote_addr",
    "remote_port",
    "request",
    "request_id",
    "request_method",
    "request_uri",
    "scheme",
    "server_addr",
    "server_name",
    "server_port",
    "server_protocol",
    "uri",
];
/// Where the numbers of modules' variables begin that the configuration does not name; the others have 16 bits.
const DIRECT: i32 = 1 << 16;
