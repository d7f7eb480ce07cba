//! `ngx.log` and `print`.

use weir_core::log::Level;

use super::{Done, Function, Outcome, Raise, expect_number, function, output_text};
use crate::lend;
use crate::state::State;

pub(super) const TABLE: &[Function] = &[
    function("log", 0, |l| {
        let level = expect_number(l, 1, "log")?;
        let Some(level) = LEVELS.get(level as usize).filter(|_| level >= 0.0) else {
            return Err(Raise::argument(1, "log", &format!("bad log level: {level}")));
        };
        write(l, *level, 2)
    }),
    function("_print", 0, |l| write(l, Level::Notice, 1)),
];

/// By number, from `ngx.STDERR`.
const LEVELS: [Level; 9] = [
    Level::Stderr,
    Level::Emerg,
    Level::Alert,
    Level::Crit,
    Level::Error,
    Level::Warn,
    Level::Notice,
    Level::Info,
    Level::Debug,
];

fn write(l: State, level: Level, from: i32) -> Outcome {
    let mut text = b"[lua] ".to_vec();
    text.extend_from_slice(place(l).as_bytes());
    for at in from..=l.top() {
        if l.kind(at) == crate::sys::kind::TABLE {
            // `__tostring`, or the type and address, as the prelude has made of it.
            return Err(Raise::argument(at, "log", "expected table to have __tostring metamethod"));
        }
        output_text(l, at, &mut text, &|reason| Raise::argument(at, "log", reason))?;
    }
    let message = String::from_utf8_lossy(&text);
    if lend::exchange(|x| x.log(level, &message)).is_err() {
        let context = lend::phase().context();
        weir_core::log::cycle(level, &format_args!("{message}, context: {context}"));
    }
    Ok(Done::Results(0))
}

/// `file.lua:12: function(): ` of who called, as OpenResty has it.
fn place(l: State) -> String {
    l.place(1)
}
