//! What a subrequest has given, as scripts get it.

use weir_engine::subrequest::CapturedResponse;

use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;

/// Pushes the response as `capture` returns it.
pub(crate) fn push_captured(l: LuaState, answer: &CapturedResponse) {
    l.new_table(0, 4);
    l.push_number(f64::from(answer.status));
    l.set_field(-2, c"status");
    l.push_bytes(&answer.body);
    l.set_field(-2, c"body");
    l.push_boolean(answer.truncated);
    l.set_field(-2, c"truncated");
    l.new_table(0, answer.headers.len());
    for (name, value) in &answer.headers {
        add_pair(l, name, &|| match name.as_slice() {
            b"Content-Length" => l.push_number(length(value)),
            _ => l.push_bytes(value),
        });
    }
    // Names are found in any case and with underscores.
    l.push_registered(c"weir.header_meta");
    l.set_metatable(-2);
    l.set_field(-2, c"header");
}

/// The number that the digits denote.
fn length(digits: &[u8]) -> f64 {
    digits.iter().fold(0.0, |number, digit| number * 10.0 + f64::from(digit.wrapping_sub(b'0')))
}

/// Adds what `push` pushes to the table on top: the second value of a name makes a list.
pub(crate) fn add_pair(l: LuaState, name: &[u8], push: &dyn Fn()) {
    let table = l.top();
    l.push_bytes(name);
    l.raw_get(table);
    match l.kind(-1) {
        kind::NIL => {
            l.pop(1);
            l.push_bytes(name);
            push();
            l.raw_set(table);
        }
        kind::TABLE => {
            let count = l.sequence(-1).unwrap_or(0);
            push();
            l.raw_set_index(-2, count + 1);
            l.pop(1);
        }
        _ => {
            l.new_table(4, 0);
            l.insert(-2);
            l.raw_set_index(-2, 1);
            push();
            l.raw_set_index(-2, 2);
            l.push_bytes(name);
            l.insert(-2);
            l.raw_set(table);
        }
    }
}
