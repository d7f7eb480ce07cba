//! One request from its phases to its log line.
//!
//! The engine is a plain function, [`try_advance`]: it runs phases, follows redirects and error pages and sends the
//! response, until all is done or something must be waited for, which it names ([`EngineWait`]). The other half is a
//! future, [`finish_advance`]: it waits for that one thing and calls `try_advance` again. A request that never waits is
//! served by [`try_serve`] alone, without a future: it then costs no allocation and no state outside the processor's
//! registers. All pairs of this kind return [`Progress`].

pub mod known;
mod known_pass;
pub(crate) mod phases;
mod polled;
mod redirects;
pub mod session;
mod standalone;

use weir_http::{Method, Version};
use weir_rt::clock;
use weir_sys::probe;
use weir_trace::{
    Cause, ConnectionStep, InlineText, KeepReason, KeptRequest, RequestRecord, Site, SiteTable,
};

use crate::body::ResponseBody;
use crate::error::{EngineError, EngineErrorKind, FaultSide};
use crate::exchange::{Exchange, ResponseDelivery};
use crate::log::LogLevel;
use crate::output::{self, ResponseEnd, ResponseWait};
use crate::phase::{Phase, Verdict};
use crate::progress::Progress;
use crate::redirect::InternalRedirect;
use crate::special;
use crate::transport::ClientStream;
use phases::{LogWait, PhaseWait};
pub use polled::PolledWait;

/// What a request waits for, and the rest of it then.
pub enum ServeWait {
    /// The response of the request is being made.
    Response(RequestCourse, EngineWait),
    /// The response waits for the client's window, or for its turn: `$bytes_sent` is what was sent.
    Unsent,
    /// Its `post_action`.
    PostAction,
    /// A handler of its log phase.
    Log(LogWait),
}

/// Serves `x`, whose head is read and whose server is chosen, and logs it. What has to wait is left to [`finish_serve`].
pub fn try_serve(x: &mut Exchange) -> Progress<(), ServeWait> {
    if let Some(served) = known::try_recalled(x) {
        return served;
    }
    try_from(x, |x| phases::try_phases(x, Phase::PostRead))
}

/// Serves `x` from its `phases` on, and logs it.
#[inline(always)]
fn try_from(
    x: &mut Exchange,
    phases: impl FnOnce(&mut Exchange) -> Progress<Verdict, PhaseWait>,
) -> Progress<(), ServeWait> {
    let mut course = RequestCourse::default();
    // What nearly all requests come to is done here: the loop of `try_advance` moves what it
    // decides on, which costs a hundred instructions.
    let progress = match phases(x) {
        Progress::Done(Verdict::Respond) => {
            let body = known::wanted(x);
            match output::try_respond(x) {
                Progress::Done(ResponseEnd::Whole) => {
                    x.delivery.set(ResponseDelivery::Whole);
                    if let Some(body) = body {
                        known::learn(x, body);
                    }
                    Progress::Done(())
                }
                Progress::Done(end) => try_advance(x, &mut course, NextStep::Responded(end)),
                Progress::Wait(wait) => Progress::Wait(EngineWait::Response(wait)),
            }
        }
        Progress::Done(verdict) => try_advance(x, &mut course, NextStep::Judge(verdict)),
        Progress::Wait(wait) => Progress::Wait(EngineWait::Phases(wait)),
    };
    if let Progress::Wait(wait) = progress {
        return Progress::Wait(ServeWait::Response(course, wait));
    }
    if x.transport.stream().is_some_and(ClientStream::is_unsent) {
        return Progress::Wait(ServeWait::Unsent);
    }
    try_end(x)
}

/// What follows when the response of `x` has left; what of it has to wait is left to [`finish_serve`].
pub fn try_end(x: &mut Exchange) -> Progress<(), ServeWait> {
    if x.plan.core.post_action.is_some() {
        return Progress::Wait(ServeWait::PostAction);
    }
    if let Progress::Wait(wait) = phases::try_log(x) {
        return Progress::Wait(ServeWait::Log(wait));
    }
    record(x);
    Progress::Done(())
}

/// Waits for what [`try_serve`] or [`try_end`] stopped at, and does the rest.
pub async fn finish_serve(x: &mut Exchange, wait: ServeWait) {
    match wait {
        ServeWait::Response(course, wait) => {
            finish_advance(x, course, wait).await;
            sent(x).await;
            post_action(x).await;
            log_request(x).await;
        }
        ServeWait::Unsent => {
            attach(x);
            sent(x).await;
            post_action(x).await;
            log_request(x).await;
        }
        ServeWait::PostAction => {
            post_action(x).await;
            log_request(x).await;
        }
        ServeWait::Log(wait) => {
            attach(x);
            phases::finish_log(x, wait).await;
        }
    }
    record(x);
}

/// Responds to `x` with `status` without running its phases (a head that could not be read, or 200 for one that asks
/// for no resource), and logs it.
pub async fn refuse(x: &mut Exchange, status: u16) {
    x.cause = Cause::of_status(status);
    let verdict = match status {
        200 => {
            (x.response.status, x.response.content_length) = (status, Some(0));
            x.respond(ResponseBody::Empty)
        }
        _ => Verdict::Status(status),
    };
    conclude(x, NextStep::Judge(verdict)).await;
    sent(x).await;
    post_action(x).await;
    log_request(x).await;
    record(x);
}

/// Logs `x`, which is closed without a response, with `status`.
pub async fn close(x: &mut Exchange, status: u16) {
    x.cause = if status == 408 { Cause::ClientTimeout } else { Cause::ClientClosed };
    x.delivery.set(ResponseDelivery::Abandoned);
    conclude(x, NextStep::Judge(Verdict::Close(status))).await;
    log_request(x).await;
    record(x);
}

/// Waits until the response has left through its stream's window, as long as `send_timeout` allows. Of one that broke
/// off that is what had come of it: the client gets as much as by HTTP/1, then the stream is reset.
async fn sent(x: &mut Exchange) {
    if x.transport.stream().is_some_and(|stream| stream.is_unsent() && !stream.is_given_up())
        && let Err(error) = output::drained(x).await
    {
        if !x.is_complete() {
            // Its cause is known, and the first one counts.
            return crate::request_log::broken(x, error);
        }
        x.delivery.set(ResponseDelivery::Open);
        broken(x, error);
    }
}

/// `post_action`: the request goes on elsewhere when its response is out, however it came out. Boxed, since few do. One
/// that leads to itself is done once; nginx does it ten times.
async fn post_action(x: &mut Exchange) {
    let mut done = None;
    while let Some(action) = x.plan.core.post_action.clone().filter(|action| done.as_ref() != Some(action)) {
        let before = (x.delivery.get(), x.cause, x.keep_alive);
        x.answered_already = true;
        (x.response.header_sent, x.response.header_only) = (true, true);
        x.response.body = ResponseBody::Empty;
        x.body_filters.clear();
        let redirect = InternalRedirect::to(x, &action);
        Box::pin(conclude(x, NextStep::Judge(redirect.into()))).await;
        let (delivery, cause, keep_alive) = before;
        x.delivery.set(delivery);
        (x.cause, x.keep_alive) = (cause, keep_alive);
        done = Some(action);
    }
}

/// Runs the log phase.
pub(crate) async fn log_request(x: &mut Exchange) {
    x.log_complaints();
    if let Progress::Wait(wait) = phases::try_log(x) {
        attach(x);
        phases::finish_log(x, wait).await;
    }
}

/// What is to be done next for a request.
pub(crate) enum NextStep {
    /// Run its phases, from this one on.
    Run(Phase),
    /// Do what they decided.
    Judge(Verdict),
    /// See what has become of its response.
    Responded(ResponseEnd),
}

/// What the engine waits for.
pub enum EngineWait {
    /// A phase of the request waits.
    Phases(PhaseWait),
    /// The response waits: for the client, a filter or its source.
    Response(ResponseWait),
}

/// What the engine remembers of a request while it waits.
#[derive(Default)]
pub struct RequestCourse {
    /// Internal redirects that were followed, each open in the trace.
    redirects: u8,
    /// Responses that header filters refused.
    refusals: u8,
}

impl RequestCourse {
    /// A header filter has refused the response of `x`.
    pub(crate) fn refused(&mut self, x: &mut Exchange) {
        x.body_filters.clear();
        self.refusals += 1;
        if self.refusals == REFUSALS {
            unfiltered(x);
        }
    }
}

/// Runs phases, follows redirects and error pages until a response has gone out.
pub(crate) async fn conclude(x: &mut Exchange, next: NextStep) {
    let mut course = RequestCourse::default();
    if let Progress::Wait(wait) = try_advance(x, &mut course, next) {
        finish_advance(x, course, wait).await;
    }
}

/// Waits for what [`try_advance`] stopped at, and goes on until a response has gone out.
async fn finish_advance(x: &mut Exchange, mut course: RequestCourse, mut wait: EngineWait) {
    attach(x);
    loop {
        let next = match wait {
            EngineWait::Phases(wait) => NextStep::Judge(phases::finish_phases(x, wait).await),
            EngineWait::Response(wait) => NextStep::Responded(output::finish_respond(x, wait).await),
        };
        match try_advance(x, &mut course, next) {
            Progress::Done(()) => return,
            Progress::Wait(again) => wait = again,
        }
    }
}

/// From here on something is waited for, and what was composed has to leave before.
fn attach(x: &Exchange) {
    if let Some(wire) = x.transport.wire() {
        x.shared.attach(wire);
    }
}

/// Goes on with a request until its response has gone out, as far as that goes without waiting; the rest is left to
/// [`finish_advance`].
fn try_advance(x: &mut Exchange, course: &mut RequestCourse, mut next: NextStep) -> Progress<(), EngineWait> {
    loop {
        next = match next {
            NextStep::Run(phase) => match phases::try_phases(x, phase) {
                Progress::Done(verdict) => NextStep::Judge(verdict),
                Progress::Wait(wait) => return Progress::Wait(EngineWait::Phases(wait)),
            },
            NextStep::Judge(Verdict::Respond) if x.instead.is_some() => wanted_instead(x),
            NextStep::Judge(Verdict::Respond) => match output::try_respond(x) {
                Progress::Done(end) => NextStep::Responded(end),
                Progress::Wait(wait) => return Progress::Wait(EngineWait::Response(wait)),
            },
            NextStep::Judge(verdict) => match judge(x, course, verdict) {
                Some(next) => next,
                None => break,
            },
            NextStep::Responded(ResponseEnd::Whole) => {
                x.delivery.set(ResponseDelivery::Whole);
                break;
            }
            NextStep::Responded(ResponseEnd::Instead(verdict)) => {
                course.refused(x);
                NextStep::Judge(verdict)
            }
            NextStep::Responded(ResponseEnd::Broken(error)) => {
                broken(x, error);
                break;
            }
        };
    }
    for _ in 0..course.redirects {
        x.trace().close(Site::REDIRECT);
    }
    Progress::Done(())
}

/// Does what the phases decided, where that is no response yet; `None`: nothing is left to do.
pub(crate) fn judge(x: &mut Exchange, course: &mut RequestCourse, verdict: Verdict) -> Option<NextStep> {
    match verdict {
        Verdict::Respond => Some(NextStep::Judge(Verdict::Respond)),
        Verdict::Redirect(to) => {
            // Opened before and closed when all is done: what runs because of it is inside it in the trace.
            x.trace().open(Site::REDIRECT);
            course.redirects += 1;
            Some(match redirects::follow(x, *to) {
                Ok(phase) => NextStep::Run(phase),
                Err(status) => NextStep::Judge(Verdict::Status(status)),
            })
        }
        Verdict::Status(status) if x.answered_already => {
            x.response.status = status;
            None
        }
        _ if x.answered_already => None,
        Verdict::Status(status) if x.response.header_sent => {
            too_late(x, status);
            None
        }
        Verdict::Done | Verdict::Close(_) | Verdict::Status(_) if x.instead.is_some() => {
            Some(wanted_instead(x))
        }
        Verdict::Status(status) => Some(NextStep::Judge(special_response(x, status))),
        Verdict::Close(status) if !x.response.header_sent && !is_deliberate(x, status) => Some(unanswered(x)),
        Verdict::Close(status) => {
            x.keep_alive = false;
            if matches!(status, 444 | 408)
                && let Some(wire) = x.transport.h1()
            {
                wire.reset_at_close(x);
            }
            x.response.status = status;
            None
        }
        Verdict::Done if x.response.header_sent || x.is_subrequest() => {
            x.delivery.set(ResponseDelivery::Whole);
            None
        }
        Verdict::Done | Verdict::Ok | Verdict::Declined | Verdict::Passed | Verdict::Wait => {
            Some(unanswered(x))
        }
    }
}

/// What a header filter wants in place of a response that its handler was sending piece by piece, whatever the handler has said
/// since. A redirect begins with nothing of that.
#[cold]
fn wanted_instead(x: &mut Exchange) -> NextStep {
    let instead = x.instead.take().unwrap_or(Verdict::Status(500));
    if let Verdict::Redirect(_) = instead {
        x.response.clear();
        x.response.body = ResponseBody::Empty;
    }
    NextStep::Responded(ResponseEnd::Instead(instead))
}

/// The response of a status, or what `error_page` makes of it.
fn special_response(x: &mut Exchange, status: u16) -> Verdict {
    x.unmatched.set(false);
    if status >= 400 {
        if x.cause == Cause::None {
            x.cause = Cause::of_status(status);
        }
        if status >= 500 {
            x.shared.failed(x.answered, status.into());
        }
    }
    if let Some(stub) = special::stub(x) {
        return stub;
    }
    // Before an internal redirect has another plan.
    let site =
        if status < 400 { Site::step(ConnectionStep::SpecialResponse) } else { x.plan.special_response };
    let verdict = special::respond(x, status);
    x.trace().mark(site);
    verdict
}

/// A connection is closed without a response only by a caller that says so: with 444, because the client has left or
/// was too slow, or by [`Exchange::abandon`].
fn is_deliberate(x: &Exchange, status: u16) -> bool {
    matches!(status, 444 | 499 | 408)
        || x.delivery.get() == ResponseDelivery::Abandoned
        || x.body.is_gone()
        || x.is_subrequest()
}

/// A handler has ended without a response: no client may be left with a closed connection and no line in the log.
#[cold]
fn unanswered(x: &mut Exchange) -> NextStep {
    let handler = SiteTable::global().info(x.answered);
    x.log_error(&format_args!("\"{}\" ended without a response in \"{}\"", handler.name, handler.location));
    x.response.status = 0;
    NextStep::Judge(Verdict::Status(500))
}

/// Header filters refuse each response that is made because of the one before: the next one passes without them.
#[cold]
fn unfiltered(x: &mut Exchange) {
    x.unfiltered = true;
    x.log(LogLevel::Alert, &"header filters refuse every response, the next one is sent without them");
}

/// What is recorded of a response that broke off.
pub fn cause(error: &EngineError) -> Cause {
    match (error.side, error.kind) {
        (_, EngineErrorKind::TooLarge) => Cause::BodyTooLarge,
        (_, EngineErrorKind::File) => Cause::File,
        (FaultSide::Upstream, EngineErrorKind::TimedOut) => Cause::ReadTimeout,
        (FaultSide::Upstream, EngineErrorKind::Closed) if error.errno.is_some() => Cause::ResetInResponse,
        (FaultSide::Upstream, EngineErrorKind::Closed) => Cause::ClosedInResponse,
        (FaultSide::Upstream, _) => Cause::InvalidBody,
        (FaultSide::Server, _) => Cause::Internal,
        (FaultSide::Client, EngineErrorKind::TimedOut) => Cause::ClientTimeout,
        (FaultSide::Client, EngineErrorKind::Protocol) => Cause::BadRequest,
        (FaultSide::Client, _) => Cause::ClientClosed,
    }
}

#[cold]
fn broken(x: &mut Exchange, error: EngineError) {
    x.keep_alive = false;
    x.cause = cause(&error);
    // What exceeds a limit is logged with its size where that is known.
    if error.kind != EngineErrorKind::TooLarge {
        crate::request_log::broken(x, error);
    }
}

/// Too late for another response: the end of the connection shows that this one is not whole.
#[cold]
fn too_late(x: &mut Exchange, status: u16) {
    x.keep_alive = false;
    x.log_error(&format_args!("header already sent, status {status} is lost"));
}

/// Hands the trace to the worker's recorder.
pub(crate) fn record(x: &mut Exchange) {
    record_as(x, describe);
}

/// [`record`] with what `describe` says of the request, in the record of an earlier one.
#[inline(always)]
fn record_as(x: &mut Exchange, describe: impl FnOnce(&Exchange, &mut RequestRecord)) {
    let report = x.report();
    let fill = |record: &mut RequestRecord| describe(x, record);
    let mut recorder = x.worker.recorder.borrow_mut();
    if !x.worker.present.is_settling.get() {
        crate::trace::settle_later(&x.worker);
    }
    crate::request_log::debug::ended(x);
    x.shared.finish(|trace, tape| {
        let mut end = None;
        if trace.is_on() {
            // After a response that went out whole there is nothing left to do, and a stamp costs more than that.
            if x.is_complete() && tape.pass(Site::step(ConnectionStep::Finalise)) {
                end = Some(trace.end_here(tape));
            } else {
                trace.take(tape);
                let now = clock::ticks();
                trace.mark(Site::step(ConnectionStep::Finalise), now);
                trace.end(now);
                end = Some(now);
            }
        }
        x.shared.presence.end(end, || {
            trace.take(tape);
            trace
        });
        if let Some(part) = x.shared.presence.part_in_stall() {
            trace.keep_as(part);
        }
        recorder.finish_with(trace, tape, fill);
        if let Some(report) = report {
            trace.take(tape);
            let record = recorder.newest().copied().unwrap_or_default();
            report(KeptRequest::new(KeepReason::Asked, &record, trace));
        }
        if probe::traces_done() || probe::traces_sites() {
            trace.take(tape);
            if let Some(record) = recorder.records().last() {
                crate::trace::probes::ended(record, trace);
            }
        }
    });
    x.recorded.set(false);
}

/// What the record says of the request.
#[inline]
fn describe(x: &Exchange, record: &mut RequestRecord) {
    record.clear();
    describe_alike(x, record);
    describe_own(x, record);
}

/// [`describe`], for what differs by request.
#[inline]
fn describe_own(x: &Exchange, record: &mut RequestRecord) {
    record.id = x.id();
    record.kernel = x.transport.take_kernel();
    record.receive_wait = x.shared.presence.receive_wait();
    if x.nth == 1 {
        record.accept_wait = x.connection.accept_wait;
    }
    let (seconds, ms) = weir_rt::unix_time();
    let age = weir_rt::now_ms().saturating_sub(x.start_ms);
    record.unix_ms = (seconds * 1000 + u64::from(ms)).saturating_sub(age);
}

/// [`describe`], for what is alike for requests that have the same head and get the same response.
#[inline(always)]
fn describe_alike(x: &Exchange, record: &mut RequestRecord) {
    record.status = x.response.status;
    record.cause = x.cause;
    record.route = x.route();
    record.protocol = protocol(x.request.head.version);
    record.bytes_out = x.bytes_sent();
    record.bytes_in = x.request.head.len as u64 + x.body.received();
    if x.request.head.method == Method::Get {
        record.method = GET;
    } else {
        record.method.set(x.arena.get(x.request.head.method_span));
    }
    record.rule = x.plan.rule;
    // Arguments are secrets, unless `profile_redact` says otherwise.
    record.set_target(match x.plan.redact_args || x.args().is_empty() {
        true => x.request.sent_path(&x.arena),
        false => x.arena.get(x.request.unparsed_uri),
    });
}

/// The method of nearly all requests.
const GET: InlineText<16> = InlineText::of(b"GET");

fn protocol(version: Version) -> u8 {
    match version {
        Version::V09 => 9,
        Version::V10 => 10,
        Version::V11 => 11,
        Version::V20 => 20,
        Version::V30 => 30,
    }
}

/// This many responses of a request may be refused by header filters. The response to a refusal is a page or an
/// `error_page`, and that goes through filters, too: more than one for each change of the URI that a request may have
/// is a loop.
const REFUSALS: u8 = 12;

#[cfg(test)]
mod tests {
    use weir_trace::EventKind;

    use super::*;
    use crate::testing;

    /// A request's failure is charged to the handler that produced the response. A head that is refused has met no
    /// handler, least of all that of the request that used the exchange before.
    #[test]
    fn a_refused_head_is_not_charged_to_the_handler_of_the_request_before() {
        testing::run("server { }", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", async |x| {
            let before = Site::phase(Phase::Content as u8);
            x.answered = before;
            let (connection, server) = (x.connection.clone(), x.server.clone());
            x.reset(&connection, &server);
            crate::trace::begin(x, None);
            conclude(x, NextStep::Judge(Verdict::Status(505))).await;
            let failed: Vec<(Site, u64)> = x.shared.events(|events| {
                let errors = events.iter().filter(|event| event.kind() == EventKind::Error);
                errors.map(|event| (event.site(), event.value())).collect()
            });
            assert_eq!(failed, [(Site::OTHER, 505)], "not {before:?}");
        });
    }
}
