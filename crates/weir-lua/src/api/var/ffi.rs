//! `ngx.var` for compiled code.

use weir_engine::Text;
use weir_engine::plan::tables::RequestTables;
use weir_engine::variable::{VarIndex, VariableSource};

use crate::api::ffi::{FOUND, FfiAnswer, LastText, NOTHING, REFUSED, SAME, changing, guarded, slice};
use crate::run::lend;
use crate::vm::phase::REQUEST;

/// The number of a variable, which holds as long as the VM: of the configuration, or after those a module's. From
/// [`STEADY`] on they are of variables that have the same value as long as nothing has [changed](crate::luajit::shared_page).
pub(crate) unsafe extern "C" fn variable_index(name: *const u8, len: usize) -> i32 {
    // SAFETY: the prelude passes a Lua string, which its stack keeps during the call.
    numbered(unsafe { slice(name, len) }, |tables, name| {
        let variables = &tables.variables;
        // Of captures' names the other function knows.
        let unknown = || name.starts_with(|first: char| !first.is_ascii_digit()).then_some(UNKNOWN);
        if let Some(index) = variables.find(name) {
            let own = || tables.modules_variable(name).is_none();
            let steady = is_steady(name) || variables.settable(name) == Some(true) && own();
            return Some(i32::from(index.0) + if steady { STEADY } else { 0 });
        }
        let Some((get, rest)) = tables.modules_variable(name) else { return unknown() };
        let at = lend::vm(|vm| {
            let mut direct = vm.direct.borrow_mut();
            (direct.len() < MOST_DIRECT).then(|| {
                direct.push((get, rest.into()));
                direct.len() - 1
            })
        });
        let steady = if is_steady(name) { STEADY } else { 0 };
        i32::try_from(at?).ok().map(|at| DIRECT + at + steady)
    })
}

/// The number that `find` has for a variable's name, which it is given in lower case.
fn numbered(name: &[u8], find: impl FnOnce(&RequestTables, &str) -> Option<i32>) -> i32 {
    guarded(|| {
        let (Ok(name), true) = (std::str::from_utf8(name), lend::phase().is_in(REQUEST)) else {
            return REFUSED;
        };
        let name = name.to_ascii_lowercase();
        let index = lend::exchange(|x| find(x.server.tables(), &name));
        index.ok().flatten().unwrap_or(REFUSED)
    })
}

/// Whether a module's variable follows from the request and its response alone.
fn is_steady(name: &str) -> bool {
    STEADY_NAMES.binary_search(&name).is_ok()
        || ["arg_", "cookie_", "http_"].iter().any(|prefix| name.starts_with(prefix))
}

/// The value of variable number `index`; if it is `last`, it is not copied again.
pub(crate) unsafe extern "C" fn variable(
    index: i32,
    last: *const u8,
    len: usize,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude lends its own result struct, exclusively during the call, and passes a Lua string, or null.
    let (last, answer) = unsafe { (LastText::new(last, len), &mut *answer) };
    guarded(|| {
        let index = index & (STEADY - 1);
        let found = lend::request(|x| {
            let value = match u16::try_from(index) {
                Ok(index) => x.variable(VarIndex(index)),
                Err(_) => {
                    let at = (index - DIRECT) as usize;
                    match lend::vm(|vm| vm.direct.borrow().get(at).cloned()) {
                        Some((VariableSource::Plain(get), _)) => get(x),
                        Some((VariableSource::Prefix(get), rest)) => get(x, &rest),
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
    // SAFETY: the prelude passes a Lua string, which its stack keeps during the call.
    numbered(unsafe { slice(name, len) }, |tables, name| {
        let variables = &tables.variables;
        let index = variables.settable(name).filter(|may| *may).and_then(|_| variables.find(name));
        index.map(|index| i32::from(index.0))
    })
}

/// Gives variable number `index`, which is [settable], a value; null for none.
pub(crate) unsafe extern "C" fn set_variable(index: i32, value: *const u8, len: usize) -> i32 {
    // SAFETY: the prelude passes a Lua string, which its stack keeps during the call, or null, which is not followed.
    let value = unsafe { (!value.is_null()).then(|| slice(value, len)) };
    changing(|| {
        let Ok(index) = u16::try_from(index) else { return REFUSED };
        let done = lend::request(|x| {
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

/// No variable has the name.
const UNKNOWN: i32 = -3;

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
/// How many have one: scripts may make names of what clients send. The others are looked up each time.
const MOST_DIRECT: usize = 4096;

/// What part `number` of the last match of a `location` or `rewrite` is; nothing for the whole of it.
pub(crate) unsafe extern "C" fn capture(number: f64, answer: *mut FfiAnswer) -> i32 {
    // SAFETY: the prelude lends its own result struct, exclusively during the call.
    let answer = unsafe { &mut *answer };
    guarded(|| {
        let found = lend::request(|x| match x.captures.get(number as usize).filter(|_| number >= 1.0) {
            Some(span) => {
                answer.text(x.arena.get(span));
                FOUND
            }
            None => NOTHING,
        });
        found.unwrap_or(REFUSED)
    })
}

/// Gives a module's variable that may be written, as `args`, a value.
pub(crate) unsafe extern "C" fn set_module_variable(
    name: *const u8,
    name_len: usize,
    value: *const u8,
    len: usize,
) -> i32 {
    // SAFETY: the prelude passes Lua strings, which its stack keeps during the call.
    let (name, value) = unsafe { (slice(name, name_len), slice(value, len)) };
    changing(|| {
        let (Ok(name), true) = (std::str::from_utf8(name), lend::phase().is_in(REQUEST)) else {
            return REFUSED;
        };
        let done = lend::exchange(|x| {
            let server = x.server.clone();
            let tables = server.tables();
            match tables.modules_setter(name).filter(|_| tables.variables.settable(name).is_none()) {
                Some(set) => {
                    set(x, value);
                    FOUND
                }
                None => REFUSED,
            }
        });
        done.unwrap_or(REFUSED)
    })
}
