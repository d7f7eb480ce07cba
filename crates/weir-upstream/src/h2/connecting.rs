//! Connections that are being made: requests that come meanwhile wait for them instead of making more.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::peer::Peer;
use crate::tls_client::SecureUpstream;

/// Those of one upstream, on one worker.
#[derive(Default)]
pub(crate) struct SessionConnecting(RefCell<Vec<Weak<ConnectingAttempt>>>);

struct ConnectingAttempt {
    peer: Arc<Peer>,
    secure: Option<SecureUpstream>,
    /// It is over; whether it made a connection.
    over: Cell<Option<bool>>,
    waiting: RefCell<Vec<Waker>>,
}

/// A task connects; a task that waits goes on when this is dropped.
pub(crate) struct SessionSoon(Rc<ConnectingAttempt>);

impl SessionSoon {
    /// The connection is there, for all to find.
    pub(crate) fn made(self) {
        self.0.over.set(Some(true));
    }
}

impl Drop for SessionSoon {
    fn drop(&mut self) {
        self.0.over.set(self.0.over.get().or(Some(false)));
        self.0.waiting.borrow_mut().drain(..).for_each(Waker::wake);
    }
}

impl SessionConnecting {
    /// Begins to connect, unless another task does already: then it is to be waited for whether that one comes to a
    /// connection.
    pub(crate) fn begin(
        &self,
        peer: &Arc<Peer>,
        secure: Option<&SecureUpstream>,
    ) -> Result<SessionSoon, impl Future<Output = bool> + use<>> {
        let mut list = self.0.borrow_mut();
        list.retain(|attempt| attempt.upgrade().is_some_and(|attempt| attempt.over.get().is_none()));
        let same = |attempt: &Rc<ConnectingAttempt>| {
            attempt.peer.shares_line(peer) && attempt.secure.as_ref() == secure
        };
        if let Some(attempt) = list.iter().filter_map(Weak::upgrade).find(same) {
            return Err(std::future::poll_fn(move |cx| poll(&attempt, cx)));
        }
        let attempt = Rc::new(ConnectingAttempt {
            peer: peer.clone(),
            secure: secure.cloned(),
            over: Cell::new(None),
            waiting: RefCell::default(),
        });
        list.push(Rc::downgrade(&attempt));
        Ok(SessionSoon(attempt))
    }
}

fn poll(attempt: &ConnectingAttempt, cx: &mut Context<'_>) -> Poll<bool> {
    if let Some(made) = attempt.over.get() {
        return Poll::Ready(made);
    }
    let mut waiting = attempt.waiting.borrow_mut();
    if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
        waiting.push(cx.waker().clone());
    }
    Poll::Pending
}
