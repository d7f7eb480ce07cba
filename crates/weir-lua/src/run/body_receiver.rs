//! A coroutine that receives the request's body as it comes, while the others of its run go on.

use std::rc::Rc;

use weir_rt::Timer;

use crate::run::op::{BodyPiece, PieceReceiver};
use crate::run::script_run::ScriptRun;
use crate::run::thread::ThreadWait;

impl ThreadWait {
    /// For pieces of the body, each at most `ms` milliseconds after the one before.
    pub(crate) fn pieces(ms: u64, take: PieceReceiver) -> ThreadWait {
        let timer = Timer::new();
        timer.arm(ms);
        ThreadWait::Pieces(ms, Rc::new(timer), take)
    }
}

impl ScriptRun {
    /// How long a coroutine still waits for a piece of the body; `None`: none does.
    pub(crate) fn wants_piece(&mut self) -> Option<Rc<Timer>> {
        self.threads.pieces_of(self.receiver?).map(|(_, timer, _)| timer.clone())
    }

    /// Gives it to the coroutine that waits for it, which goes on.
    pub(crate) fn give_piece(&mut self, piece: BodyPiece) {
        let Some(at) = self.receiver else { return };
        let Some((ms, timer, take)) = self.threads.pieces_of(at) else { return };
        timer.arm(ms);
        if let Some(results) = take(piece) {
            self.go_on(at, results);
        }
    }
}
