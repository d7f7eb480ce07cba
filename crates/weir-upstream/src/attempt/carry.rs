//! A try to pass a session over UDP. It has no connection whose establishment says that the server is there: that it can't be
//! reached is known when a datagram was refused, and as long as nothing has come back another server may have them.

use std::rc::Rc;

use weir_rt::HeldMemory;
use weir_rt::file::errno_text;
use weir_trace::{Cause, WaitKind};

use crate::attempt::connect::proxy_header;
use crate::config::failure_reason::{AttemptFailure, AttemptFault, FailureReason};
use crate::connection::upstream_connection::UpstreamConnection;
use crate::error_log::{self, ECONNREFUSED};
use crate::request::attempt_state::Attempt;
use crate::response::datagram_flow::{DatagramCounts, DatagramFlow, DatagramPace, FlowEvent};
use crate::response::tunnel::TunnelEntry;
use crate::worker_side::local_upstream::PeerLease;
use weir_engine::exchange::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::phase::Verdict;
use weir_engine::transport::flow::ClientFlow;
use weir_engine::worker::UpstreamCloseReason;

impl Attempt {
    /// Passes the datagrams of the session `x` until it is over, or another server may have them.
    pub(crate) async fn carry(
        &self,
        x: &mut Exchange,
        client: Rc<ClientFlow>,
        connection: Box<UpstreamConnection>,
        mut lease: PeerLease,
    ) -> AttemptFailure {
        let settings = &self.up.settings;
        let manners = self.up.protocol.session(x).unwrap_or_default();
        let prefix = settings.proxy_protocol.map(|version| proxy_header(x, version)).unwrap_or_default();
        let Some(bytes) = x.session().cloned() else { return AttemptFailure::End(Verdict::Status(500)) };
        // What another server did not get is taken again.
        bytes.from_client.set(bytes.from_client.get() - self.put_back.take());
        bytes.to_server.set(0);
        let flow = DatagramFlow {
            client: &client,
            bytes,
            records: &self.records,
            server: &connection.stream,
            timer: &connection.timer,
            timeout: settings.read_timeout,
            manners,
            prefix: prefix.into(),
            counts: DatagramCounts::default(),
            paces: [DatagramPace::new(manners.upload_rate), DatagramPace::new(manners.download_rate)],
            unanswered: Default::default(),
            taken: Default::default(),
        };
        connection.timer.arm(settings.read_timeout);
        connection.end.expects(UpstreamCloseReason::Tunnel);
        let entry =
            TunnelEntry::new(&x.worker, HeldMemory::new(1, connection.held_bytes() + size_of_val(&flow)));
        let shared = x.shared.clone();
        let event = loop {
            match shared.waiting_until(WaitKind::UpstreamBody, |cx| flow.poll(cx)).await {
                FlowEvent::Responded => lease.connected(),
                event => break event,
            }
        };
        drop(entry);
        self.records.count(0, flow.bytes.to_server.get(), flow.bytes.from_server.get());
        self.end_flow(x, &flow, &mut lease, event)
    }

    /// What the end of the flow is for the session.
    fn end_flow(
        &self,
        x: &Exchange,
        flow: &DatagramFlow<'_>,
        lease: &mut PeerLease,
        event: FlowEvent,
    ) -> AttemptFailure {
        let passed = |how: &str| {
            let message = format_args!("{how}{}{}", flow.packets(), x.passed_bytes());
            x.connection.log_idle(LogLevel::Info, &message);
        };
        let verdict = match event {
            FlowEvent::Unreachable(call, errno) => {
                let fault = unreachable(x, call, errno);
                lease.fail(x, fault, PROXYING);
                self.records.failed(fault);
                if flow.counts.received.get() == 0 {
                    self.put_back.set(flow.put_back());
                    return AttemptFailure::Next(fault);
                }
                return AttemptFailure::End(Verdict::Status(502));
            }
            FlowEvent::Silent { owed: true } => {
                let fault = error_log::timed_out(x, Cause::ReadTimeout, PROXYING);
                lease.fail(x, fault, PROXYING);
                self.records.failed(fault);
                return AttemptFailure::End(Verdict::Status(502));
            }
            FlowEvent::Silent { owed: false } => {
                passed("udp timed out");
                Verdict::Done
            }
            FlowEvent::Done | FlowEvent::Responded => {
                passed("udp done");
                Verdict::Done
            }
            FlowEvent::Ended if flow.client.is_finishing() => {
                passed("disconnected on shutdown");
                Verdict::Done
            }
            FlowEvent::Ended if flow.counts.received.get() > 0 => {
                passed("udp ended");
                Verdict::Done
            }
            FlowEvent::Ended => {
                passed("udp ended");
                Verdict::Status(503)
            }
        };
        self.records.end(None);
        AttemptFailure::End(verdict)
    }
}

/// A server at which nothing is, or to which there is no way.
fn unreachable(x: &Exchange, call: &str, errno: i32) -> AttemptFault {
    let text = errno_text(errno);
    error_log::error(x, &format_args!("{call} failed ({errno}: {text}) while {PROXYING}"));
    let cause = if errno == ECONNREFUSED { Cause::ConnectRefused } else { Cause::ConnectFailed };
    AttemptFault { reason: FailureReason::ERROR, cause }
}

/// What nginx's messages say was being done.
const PROXYING: &str = "proxying connection";
