//! The connections of one upstream that speak HTTP/2, on one worker. Of idle ones as many are kept alive as `keepalive` says, whether
//! one has been added or one has become idle; those that have been idle for longest are closed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_engine::worker::UpstreamCloseReason;

use super::session::UpstreamSession;

/// Busy and idle ones, in the order in which they were opened.
#[derive(Default)]
pub(crate) struct SessionList {
    pub(crate) sessions: RefCell<Vec<Rc<UpstreamSession>>>,
    /// The most that may be idle.
    most: Cell<usize>,
}

impl SessionList {
    /// Adds one, of which `most` may be idle.
    pub(crate) fn add(self: &Rc<SessionList>, session: &Rc<UpstreamSession>, most: usize) {
        self.most.set(most);
        self.forget_ended();
        self.sessions.borrow_mut().push(session.clone());
        session.set_list(self);
        self.close_beyond();
    }

    /// Takes out those that have ended, whose sockets are closed with that.
    pub(super) fn forget_ended(&self) {
        let all = self.sessions.take();
        let (ended, open): (Vec<_>, Vec<_>) = all.into_iter().partition(|session| session.is_lost());
        *self.sessions.borrow_mut() = open;
        drop(ended);
    }

    /// Closes idle ones beyond those that may be.
    pub(super) fn close_beyond(&self) {
        let sessions = self.sessions.borrow();
        let is_idle = |session: &&Rc<UpstreamSession>| {
            session.streams() == 0 && session.is_used() && !session.is_retired() && !session.is_lost()
        };
        let mut idle: Vec<&Rc<UpstreamSession>> = sessions.iter().filter(is_idle).collect();
        let beyond = idle.len().saturating_sub(self.most.get());
        if beyond == 0 {
            return;
        }
        idle.sort_by_key(|session| session.idle_since());
        for session in &idle[..beyond] {
            session.retire(UpstreamCloseReason::KeepaliveFull);
        }
    }
}
