//! A session of `stream` from its client's connection to its line in the log: the phases that have no need of a request.
//!
//! nginx's phases of a session are, in order, post-accept, preaccess, access, ssl, preread, content and log. The handlers of
//! modules are in those of http: post-read, preaccess, access, precontent (what looks at the first bytes), server-rewrite
//! (`set`), content and log. TLS is between access and precontent, and is the caller's.

use std::future::poll_fn;
use std::rc::Rc;

use weir_trace::Cause;

use super::{attach, log_request, record};
use crate::exchange::{Exchange, ExchangeRole, ResponseDelivery, SessionBytes};
use crate::phase::{HandlerEntry, Phase, Verdict};
use crate::trace;
use crate::transport::Transport;

/// `x`, which was taken for the connection, is a session from here on; `transport` is what its client is at.
pub fn begin(x: &mut Exchange, transport: Transport) {
    let protocol = if transport.flow().is_some() { UDP } else { TCP };
    x.role = ExchangeRole::Session(Rc::new(SessionBytes::default()));
    x.bytes_before = transport.bytes_written();
    x.transport = transport;
    x.shared.detach();
    x.start_ms = weir_rt::now_ms();
    x.nth = 1;
    x.request.head = Default::default();
    x.request.head.method_span = x.arena.push(protocol);
    let address = x.connection.hosts.borrow().addr.to_string();
    let address = x.arena.push(address.as_bytes());
    (x.request.uri, x.request.unparsed_uri) = (address, address);
    trace::begin(x, Some(weir_rt::turn_stamp()));
    trace::enter_as(x, None, protocol, x.arena.get(address));
    attach(x);
}

/// Ends a session whose connection goes on elsewhere: it has no line in the log, as in nginx.
pub fn pass_on(x: &mut Exchange) {
    x.response.status = 200;
    x.delivery.set(ResponseDelivery::Whole);
    record(x);
}

/// Lets the session pass what is decided before its first byte.
///
/// # Errors
/// How it ends instead.
pub async fn admit(x: &mut Exchange) -> Result<(), Verdict> {
    for phase in [Phase::PostRead, Phase::Preaccess, Phase::Access] {
        pass(x, phase).await?;
    }
    Ok(())
}

/// The session's content, and what is looked at before: how it ends.
pub async fn serve(x: &mut Exchange) -> Verdict {
    for phase in [Phase::Precontent, Phase::ServerRewrite] {
        if let Err(end) = pass(x, phase).await {
            return end;
        }
    }
    let plan = x.plan.clone();
    match &plan.content {
        Some(entry) => ask(x, entry).await,
        None => Verdict::Status(500),
    }
}

/// Ends the session as `end` says, and logs it.
pub async fn end(x: &mut Exchange, end: Verdict) {
    match end {
        Verdict::Status(status) | Verdict::Close(status) => {
            x.response.status = status;
            if x.cause == Cause::None && status >= 400 {
                x.cause = Cause::of_status(status);
            }
            if status >= 500 {
                x.shared.failed(x.answered, status.into());
            }
            x.delivery.set(ResponseDelivery::Abandoned);
        }
        _ => {
            x.response.status = 200;
            x.delivery.set(ResponseDelivery::Whole);
        }
    }
    log_request(x).await;
    record(x);
}

/// Asks the handlers of `phase`. One that is content with the session ends the phase, but for access, where all are asked.
async fn pass(x: &mut Exchange, phase: Phase) -> Result<(), Verdict> {
    let plan = x.plan.clone();
    for entry in plan.phase(phase) {
        match ask(x, entry).await {
            Verdict::Declined | Verdict::Passed => {}
            Verdict::Ok if phase == Phase::Access => {}
            Verdict::Ok => break,
            end => return Err(end),
        }
        if x.refuse_unmatched() {
            return Err(Verdict::Status(500));
        }
    }
    Ok(())
}

/// What a handler says in the end.
async fn ask(x: &mut Exchange, entry: &HandlerEntry) -> Verdict {
    x.trace().open(entry.site);
    let mut verdict = entry.handler.handle(x);
    if let Verdict::Wait = verdict {
        let shared = x.shared.clone();
        verdict = shared.pending(Box::pin(wait(x, entry))).await;
    }
    x.trace().close(entry.site);
    x.answered = entry.site;
    verdict
}

async fn wait(x: &mut Exchange, entry: &HandlerEntry) -> Verdict {
    match poll_fn(|cx| entry.handler.poll(x, cx)).await {
        Verdict::Wait => entry.handler.wait(x).await,
        verdict => verdict,
    }
}

/// In the place of a method, where requests are listed.
const TCP: &[u8] = b"TCP";
/// As [`TCP`], of a flow of datagrams.
const UDP: &[u8] = b"UDP";
