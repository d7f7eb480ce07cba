//! The result of a step that may have to wait: done, or what it waits for.
//!
//! A request that never waits meets no future. So each step that may have to wait is a pair: a plain function `try_x`,
//! which goes as far as that goes and names what it stopped at, and a future `finish_x`, which waits for that and does the
//! rest. From the connection down: `try_requests`, `try_request`, `try_request_head` (`conn`), `try_serve`, `try_advance`
//! (`engine`), `try_phases`, `try_log` (`engine::phases`), `try_respond` (`output`), `try_attempt` (upstream).

use std::future::Future;
use std::pin::Pin;

/// How far a step came: done, with its result, or what it waits for.
#[derive(Debug)]
#[must_use = "what is to be waited for must be waited for"]
pub enum Progress<T, W> {
    /// To its end: this came of it.
    Done(T),
    /// To something that must be waited for.
    Wait(W),
}

/// A future that stays on its worker.
pub type LocalFuture<'x, T> = Pin<Box<dyn Future<Output = T> + 'x>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::phases::{LogWait, PhaseWait};
    use crate::engine::{EngineWait, ServeWait};
    use crate::output::{ResponseEnd, ResponseWait};
    use crate::phase::Verdict;

    /// A step's result leaves in registers or through one small slot, as it did when it was an `Option` or a `Result`.
    #[test]
    fn a_word_for_waiting_costs_nothing() {
        assert_eq!(size_of::<Progress<(), ServeWait>>(), size_of::<Option<ServeWait>>());
        assert_eq!(size_of::<Progress<(), EngineWait>>(), size_of::<Option<EngineWait>>());
        assert_eq!(size_of::<Progress<(), LogWait>>(), size_of::<Option<usize>>());
        assert_eq!(size_of::<Progress<Verdict, PhaseWait>>(), size_of::<PhaseWait>());
        assert_eq!(size_of::<Progress<ResponseEnd, ResponseWait>>(), size_of::<Verdict>());
    }
}
