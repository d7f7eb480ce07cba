//! Runs without a request: how an exchange for one begins and ends.

use std::rc::Rc;

use weir_http::{Method, Span};
use weir_trace::{SiteKind, SiteTable};

use crate::exchange::{Exchange, ExchangeRole, ResponseDelivery, RunOrigin, StandaloneRun};
use crate::worker::Worker;

impl Exchange {
    /// An exchange of no request, in flight from here on, whose boundaries are recorded; `name` says what runs.
    /// It ends with [`Exchange::end_alone`].
    pub fn alone(
        worker: &Rc<Worker>,
        origin: &RunOrigin,
        context: &'static str,
        name: &str,
    ) -> Box<Exchange> {
        let mut x = worker.take_exchange(&origin.connection, &origin.server);
        x.plan = origin.plan.clone();
        let route = SiteTable::fixed(SiteKind::Request, context, "");
        x.role = ExchangeRole::Alone(StandaloneRun::new(context, route, worker.busy()));
        x.nth = 0;
        x.start_ms = weir_rt::now_ms();
        x.bytes_before = 0;
        x.request.head = Default::default();
        x.request.head.method = Method::Other;
        x.request.head.method_span = x.arena.push(METHOD);
        let name = x.arena.push(name.as_bytes());
        (x.request.uri, x.request.unparsed_uri) = (name, name);
        x.begin_alone(name);
        x
    }

    fn begin_alone(&self, name: Span) {
        crate::trace::begin(self, None);
        let presence = &self.shared.presence;
        presence.set_parent(None);
        presence.enter(METHOD, self.arena.get(name));
        presence.routed(self.route());
    }

    /// Ends it; `failed`: whether it is counted as failed.
    pub fn end_alone(mut self: Box<Self>, failed: bool) {
        self.response.status = if failed { 500 } else { 200 };
        self.delivery.set(if failed { ResponseDelivery::Open } else { ResponseDelivery::Whole });
        super::record(&mut self);
        let worker = self.worker.clone();
        worker.give_exchange(self);
    }
}

/// In the place of a method, where requests are listed.
const METHOD: &[u8] = b"RUN";
