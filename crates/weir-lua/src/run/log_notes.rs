//! Messages that the waits of a run log.

use std::cell::RefCell;
use std::rc::Rc;

use weir_engine::Exchange;
use weir_engine::log::LogLevel;

use crate::vm::phase::ScriptPhase;

/// Lines for the log of a request, left by its waits, which do not have it: logged before a coroutine goes on.
#[derive(Clone, Default)]
pub(crate) struct LogNotes(Rc<RefCell<Vec<(LogLevel, String)>>>);

impl LogNotes {
    pub(crate) fn push(&self, level: LogLevel, message: String) {
        self.0.borrow_mut().push((level, message));
    }

    /// Forgets them; whether nothing else can leave any.
    pub(crate) fn reset(&self) -> bool {
        self.0.borrow_mut().clear();
        Rc::strong_count(&self.0) == 1
    }

    /// Logs them: for the request, or without one.
    pub(crate) fn tell(&self, phase: ScriptPhase, x: Option<&Exchange>) {
        if self.0.borrow().is_empty() {
            return;
        }
        for (level, message) in self.0.take() {
            match x {
                Some(x) => x.log(level, &message),
                None => {
                    let context = phase.context();
                    weir_engine::log::cycle(level, &format_args!("{message}, context: {context}"));
                }
            }
        }
    }
}
