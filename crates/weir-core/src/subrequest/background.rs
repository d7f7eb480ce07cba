//! Subrequests that nobody waits for: copies of a request that live on by themselves (`mirror`).

use super::{Capture, SubrequestBody, SubrequestOptions, body, request};
use crate::conn::Transport;
use crate::engine::{self, Next};
use crate::exchange::Exchange;
use crate::phase::Phase;
use crate::read::RequestBody;

impl Exchange {
    /// Starts a subrequest for the path `uri`, with `args`, and goes on at once: its answer is thrown away. It has
    /// copies of what it needs of this request, its variables and its body included, so it may outlive it; a worker
    /// that stops gracefully waits for it. It is in no trace, and logged only where `log_subrequest` is on.
    ///
    /// A subrequest makes none: an error is logged in its place.
    pub fn background(&mut self, uri: &[u8], args: &[u8], options: SubrequestOptions) {
        if self.is_nested_too_deep(uri) {
            return;
        }
        // Asked for while the descriptor is surely this connection's.
        self.connection.local();
        let mut x = self.worker.take_exchange(&self.connection, &self.server);
        x.arena.copy_from(&self.arena);
        x.variables = self.variables.clone();
        x.transport = Transport::Capture(Capture {
            bytes: Vec::new(),
            head_only: options.head_only,
            limit: options.limit,
            limited: false,
        });
        x.internal = true;
        x.client = self.client.clone();
        x.keep_alive = true;
        x.start_ms = weir_rt::now_ms();
        x.bytes_before = 0;
        x.subrequest_of = Some(self.request.uri);
        request(&mut x, &self.request, (uri, args), options.method);
        let mut copy = match options.body {
            SubrequestBody::Parent => self.body.copy(),
            _ => RequestBody::default(),
        };
        body(&mut x, &mut copy, options.body);
        let busy = self.worker.busy();
        weir_rt::spawn(async move {
            engine::conclude(&mut x, Next::Run(Phase::ServerRewrite)).await;
            if x.plan.core.log_subrequest {
                engine::log(&mut x).await;
            }
            let worker = x.worker.clone();
            worker.give_exchange(x);
            drop(busy);
        });
    }
}
