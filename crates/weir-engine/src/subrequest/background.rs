//! Subrequests that are not waited for: copies of a request that live on by themselves (`mirror`).

use super::{ParentShare, SubrequestOptions, SubrequestTarget, child, run_child};
use crate::engine;
use crate::exchange::Exchange;
use crate::phase::Phase;

impl Exchange {
    /// Starts a subrequest for the path `uri`, with `args`, and goes on at once: its response is thrown away. It has
    /// copies of what it needs of this request, its variables and its body included, so it may outlive it; a worker
    /// that stops gracefully waits for it. It is in flight by itself, with a number, a tree and figures of its own, and
    /// logged only where `log_subrequest` is on.
    ///
    /// A subrequest makes none: an error is logged in its place.
    pub fn background(&mut self, uri: &[u8], args: &[u8], options: SubrequestOptions) {
        self.begin_background(SubrequestTarget { uri, args }, options, Phase::ServerRewrite, |_| ());
    }

    /// As [`Exchange::background`], for the same location again: it begins with its content, after `prepare`. It is in no
    /// trace: the location's figures are of requests that clients made.
    pub fn background_again(
        &mut self,
        uri: &[u8],
        args: &[u8],
        options: SubrequestOptions,
        prepare: impl FnOnce(&mut Exchange),
    ) {
        self.begin_background(SubrequestTarget { uri, args }, options, Phase::Content, prepare);
    }

    fn begin_background(
        &mut self,
        target: SubrequestTarget<'_>,
        options: SubrequestOptions,
        from: Phase,
        prepare: impl FnOnce(&mut Exchange),
    ) {
        if self.is_nested_too_deep(target.uri) {
            return;
        }
        // Asked for while the descriptor is surely this connection's.
        self.connection.local();
        let (mut x, _) = child(self, target, options, ParentShare::Copies);
        if from == Phase::Content {
            self.repeat_in(&mut x);
        }
        prepare(&mut x);
        let busy = self.worker.busy();
        weir_rt::spawn(async move {
            let seen = from != Phase::Content;
            if seen {
                begin_copy(&mut x);
            }
            run_child(&mut x, from).await;
            if seen {
                engine::record(&mut x);
            }
            let worker = x.worker.clone();
            worker.give_exchange(x);
            drop(busy);
        });
    }
}

/// The copy `x` begins to run, as a request does whose head was read.
fn begin_copy(x: &mut Exchange) {
    // How long the connection waited to be accepted is its first request's.
    x.nth = 0;
    crate::trace::begin(x, None);
    let presence = &x.shared.presence;
    presence.set_parent(None);
    presence.enter(x.arena.get(x.request.head.method_span), x.uri());
}
