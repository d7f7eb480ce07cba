//! One request from its phases to its log line.
//!
//! The engine is a plain function, [`advance`]: it runs phases, follows redirects and error pages and sends the
//! response, until all is done or something must be waited for, which it names ([`Wait`]). Whoever awaits is the other
//! half, [`conclude`]: it waits for that one thing and calls `advance` again. A request that never waits is served by
//! [`serve`] alone, without a future: it then costs no allocation and no state outside the processor's registers.

use weir_http::{Method, Version};
use weir_rt::clock;
use weir_sys::probe;
use weir_trace::{Cause, Kept, RequestRecord, Site, SiteTable, Step, Text, Why};

use crate::body::Body;
use crate::error::{Error, Kind, Side};
use crate::exchange::{Exchange, ResponseDelivery};
use crate::log::Level;
use crate::output::{self, Sent};
use crate::phase::{self, Phase, Phases, Verdict, Walk};
use crate::transport::h2::Stream;
use crate::{redirect, special, subrequest};

/// What is left of a request that has to wait.
pub(crate) enum Rest {
    /// Its answer.
    Answer(Course, Wait),
    /// The way of its answer to the client, whose window or turn has not come: `$bytes_sent` is what left.
    Unsent,
    /// Its `post_action`.
    After,
    /// Its log phase, from this handler on.
    Log(usize),
}

/// Answers `x`, whose head is read and whose server is chosen, and logs it. What has to wait is left to [`rest`].
pub(crate) fn serve(x: &mut Exchange) -> Option<Rest> {
    // What nearly all requests come to is done here: the loop of `advance` moves what it
    // decides on, which costs a hundred instructions.
    let next = match Walk::new(x, Phase::PostRead).run(x) {
        Phases::End(Verdict::Respond) => Next::Sent(output::respond(x)),
        phases => Next::Phases(phases),
    };
    if let Next::Sent(Sent::All) = next {
        x.delivery.set(ResponseDelivery::Whole);
    } else {
        let mut course = Course::default();
        if let Some(wait) = advance(x, &mut course, next) {
            return Some(Rest::Answer(course, wait));
        }
    }
    if x.transport.h2().is_some_and(Stream::is_unsent) {
        return Some(Rest::Unsent);
    }
    logged(x)
}

/// What follows when the answer of `x` has left; what of it has to wait is left to [`rest`].
pub(crate) fn logged(x: &mut Exchange) -> Option<Rest> {
    if x.plan.core.post_action.is_some() {
        return Some(Rest::After);
    }
    if let Some(at) = phase::log(x, 0) {
        return Some(Rest::Log(at));
    }
    record(x);
    None
}

/// Does what [`serve`] left.
pub(crate) async fn rest(x: &mut Exchange, rest: Rest) {
    match rest {
        Rest::Answer(course, wait) => {
            go_on(x, course, wait).await;
            sent(x).await;
            after(x).await;
            log(x).await;
        }
        Rest::Unsent => {
            attach(x);
            sent(x).await;
            after(x).await;
            log(x).await;
        }
        Rest::After => {
            after(x).await;
            log(x).await;
        }
        Rest::Log(at) => {
            attach(x);
            phase::log_waiting(x, at).await;
        }
    }
    record(x);
}

/// Answers `x` with `status` without running its phases (a head that could not be read, or 200 for one that asks for no
/// resource), and logs it.
pub(crate) async fn refuse(x: &mut Exchange, status: u16) {
    x.cause = Cause::of_status(status);
    let verdict = match status {
        200 => {
            (x.response.status, x.response.content_length) = (status, Some(0));
            x.respond(Body::Empty)
        }
        _ => Verdict::Status(status),
    };
    conclude(x, Next::Judge(verdict)).await;
    sent(x).await;
    after(x).await;
    log(x).await;
    record(x);
}

/// Logs `x`, which is closed without an answer, with `status`.
pub(crate) async fn close(x: &mut Exchange, status: u16) {
    x.cause = if status == 408 { Cause::ClientTimeout } else { Cause::ClientClosed };
    x.delivery.set(ResponseDelivery::Abandoned);
    conclude(x, Next::Judge(Verdict::Close(status))).await;
    log(x).await;
    record(x);
}

/// Waits until the answer has left through its stream's window, as long as `send_timeout` allows.
async fn sent(x: &mut Exchange) {
    if x.is_complete()
        && x.transport.h2().is_some_and(Stream::is_unsent)
        && let Err(error) = output::drained(x).await
    {
        x.delivery.set(ResponseDelivery::Open);
        broken(x, error);
    }
}

/// `post_action`: the request goes on elsewhere when its answer is out, however it came out. Boxed, since few do. One
/// that leads to itself is done once; nginx does it ten times.
async fn after(x: &mut Exchange) {
    let mut done = None;
    while let Some(action) = x.plan.core.post_action.clone().filter(|action| done.as_ref() != Some(action)) {
        let before = (x.delivery.get(), x.cause, x.keep_alive);
        x.answered_already = true;
        (x.response.header_sent, x.response.header_only) = (true, true);
        x.response.body = Body::Empty;
        x.body_filters.clear();
        let redirect = redirect::Redirect::to(x, &action);
        Box::pin(conclude(x, Next::Judge(redirect.into()))).await;
        let (delivery, cause, keep_alive) = before;
        x.delivery.set(delivery);
        (x.cause, x.keep_alive) = (cause, keep_alive);
        done = Some(action);
    }
}

/// Runs the log phase.
pub(crate) async fn log(x: &mut Exchange) {
    x.log_complaints();
    if let Some(at) = phase::log(x, 0) {
        attach(x);
        phase::log_waiting(x, at).await;
    }
}

/// What is to be done next for a request.
pub(crate) enum Next {
    /// Run its phases, from this one on.
    Run(Phase),
    /// See what its phases came to.
    Phases(Phases),
    /// Do what they decided.
    Judge(Verdict),
    /// See how its response came along.
    Sent(Sent),
    /// Its response is out, or can't be.
    Responded(Result<(), Error>),
}

/// What a request waits for.
pub(crate) enum Wait {
    /// A handler.
    Handler(Walk),
    /// `auth_delay`; then this is the verdict.
    Delay(Verdict),
    /// A header filter.
    Filter(usize),
    /// Its body's way to the client.
    Body,
}

/// What the engine remembers of a request while it waits.
#[derive(Default)]
pub(crate) struct Course {
    /// Internal redirects that were followed, each open in the trace.
    redirects: u8,
    /// Answers that header filters refused.
    refusals: u8,
}

/// Runs phases, follows redirects and error pages until a response has gone out.
pub(crate) async fn conclude(x: &mut Exchange, next: Next) {
    let mut course = Course::default();
    if let Some(wait) = advance(x, &mut course, next) {
        go_on(x, course, wait).await;
    }
}

/// Waits, and goes on, until a response has gone out.
async fn go_on(x: &mut Exchange, mut course: Course, mut wait: Wait) {
    attach(x);
    loop {
        let next = match wait {
            Wait::Handler(walk) => Next::Phases(walk.wait(x).await),
            Wait::Delay(verdict) => {
                phase::delay(x).await;
                Next::Judge(verdict)
            }
            Wait::Filter(at) => Next::Sent(match output::filtered(x, at).await {
                Some(instead) => Sent::Instead(instead),
                None => output::respond_behind(x, at),
            }),
            // Boxed: what few requests need shall not make the future of all larger.
            Wait::Body => Next::Responded(Box::pin(output::send_body_attended(x)).await),
        };
        match advance(x, &mut course, next) {
            Some(again) => wait = again,
            None => return,
        }
    }
}

/// From here on something is waited for, and what was composed has to leave before.
fn attach(x: &Exchange) {
    if let Some(wire) = x.transport.wire() {
        x.shared.attach(wire);
    }
}

/// Goes on with a request until its response has gone out, or to what must be waited for.
fn advance(x: &mut Exchange, course: &mut Course, mut next: Next) -> Option<Wait> {
    loop {
        next = match next {
            Next::Run(phase) => Next::Phases(Walk::new(x, phase).run(x)),
            Next::Phases(Phases::End(verdict)) => Next::Judge(verdict),
            Next::Phases(Phases::Handler(walk)) => return Some(Wait::Handler(walk)),
            Next::Phases(Phases::Delay(verdict)) => return Some(Wait::Delay(verdict)),
            Next::Judge(Verdict::Respond) => Next::Sent(output::respond(x)),
            Next::Judge(verdict) => match judge(x, course, verdict) {
                Some(next) => next,
                None => break,
            },
            Next::Sent(Sent::All) | Next::Responded(Ok(())) => {
                x.delivery.set(ResponseDelivery::Whole);
                break;
            }
            Next::Sent(Sent::Filter(at)) => return Some(Wait::Filter(at)),
            Next::Sent(Sent::Body) => return Some(Wait::Body),
            Next::Sent(Sent::Instead(verdict)) => {
                x.body_filters.clear();
                course.refusals += 1;
                if course.refusals == REFUSALS {
                    unfiltered(x);
                }
                Next::Judge(verdict)
            }
            Next::Responded(Err(error)) => {
                broken(x, error);
                break;
            }
        };
    }
    for _ in 0..course.redirects {
        x.trace().close(Site::REDIRECT);
    }
    None
}

/// Does what the phases decided, where that is no response yet; `None`: nothing is left to do.
fn judge(x: &mut Exchange, course: &mut Course, verdict: Verdict) -> Option<Next> {
    match verdict {
        Verdict::Respond => Some(Next::Judge(Verdict::Respond)),
        Verdict::Redirect(to) => {
            // Opened before and closed when all is done: what runs because of it stands inside it in the trace.
            x.trace().open(Site::REDIRECT);
            course.redirects += 1;
            Some(match redirect::follow(x, *to) {
                Ok(phase) => Next::Run(phase),
                Err(status) => Next::Judge(Verdict::Status(status)),
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
            x.instead.take().map(|instead| Next::Sent(Sent::Instead(instead)))
        }
        Verdict::Status(status) => {
            x.unmatched.set(false);
            if status >= 400 {
                if x.cause == Cause::None {
                    x.cause = Cause::of_status(status);
                }
                if status >= 500 {
                    x.shared.failed(x.answered, status.into());
                }
            }
            if let Some(stub) = subrequest::stub(x) {
                return Some(Next::Judge(stub));
            }
            let verdict = special::answer(x, status);
            x.trace().mark(Site::step(Step::SpecialResponse));
            Some(Next::Judge(verdict))
        }
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

/// A connection is closed without a response only by who says so: with 444, because the client has left or was too
/// slow, or by [`Exchange::abandon`].
fn is_deliberate(x: &Exchange, status: u16) -> bool {
    matches!(status, 444 | 499 | 408)
        || x.delivery.get() == ResponseDelivery::Abandoned
        || x.body.is_gone()
        || x.is_subrequest()
}

/// A handler has ended without a response: nobody may be left with a closed connection and no line in the log.
#[cold]
fn unanswered(x: &mut Exchange) -> Next {
    let handler = SiteTable::global().info(x.answered);
    x.log_error(&format_args!("\"{}\" ended without a response in \"{}\"", handler.name, handler.location));
    x.response.status = 0;
    Next::Judge(Verdict::Status(500))
}

/// Header filters refuse each answer that is made because of the one before: the next one passes without them.
#[cold]
fn unfiltered(x: &mut Exchange) {
    x.unfiltered = true;
    x.log(Level::Alert, &"header filters refuse every response, the next one is sent without them");
}

/// What is recorded of an answer that broke off.
pub(crate) fn cause(error: &Error) -> Cause {
    match (error.side, error.kind) {
        (_, Kind::TooLarge) => Cause::BodyTooLarge,
        (_, Kind::File) => Cause::File,
        (Side::Upstream, Kind::TimedOut) => Cause::ReadTimeout,
        (Side::Upstream, Kind::Closed) if error.errno.is_some() => Cause::ResetInResponse,
        (Side::Upstream, Kind::Closed) => Cause::ClosedInResponse,
        (Side::Upstream, _) => Cause::InvalidBody,
        (Side::Server, _) => Cause::Internal,
        (Side::Client, Kind::TimedOut) => Cause::ClientTimeout,
        (Side::Client, Kind::Protocol) => Cause::BadRequest,
        (Side::Client, _) => Cause::ClientClosed,
    }
}

#[cold]
fn broken(x: &mut Exchange, error: Error) {
    x.keep_alive = false;
    x.cause = cause(&error);
    // What exceeds a limit is logged with its size where that is known.
    if error.kind != Kind::TooLarge {
        crate::log::broken(x, error);
    }
}

/// Too late for another answer: the connection tells that this one is not whole.
#[cold]
fn too_late(x: &mut Exchange, status: u16) {
    x.keep_alive = false;
    x.log_error(&format_args!("header already sent, status {status} is lost"));
}

/// Hands the trace to the worker's recorder.
pub(crate) fn record(x: &mut Exchange) {
    let report = x.report();
    let fill = |record: &mut RequestRecord| {
        record.status = x.response.status;
        record.cause = x.cause;
        record.route = x.route();
        record.protocol = protocol(x.request.head.version);
        record.id = x.id();
        record.receive_wait = x.shared.presence.receive_wait();
        if x.nth == 1 {
            record.accept_wait = x.connection.accept_wait;
        }
        let (seconds, ms) = weir_rt::unix_time();
        let age = weir_rt::now_ms().saturating_sub(x.start_ms);
        record.unix_ms = (seconds * 1000 + u64::from(ms)).saturating_sub(age);
        record.bytes_in = x.request.head.len as u64 + x.body.received();
        record.bytes_out = x.bytes_sent();
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
    };
    let mut recorder = x.worker.recorder.borrow_mut();
    if !x.worker.present.is_settling.get() {
        crate::trace::settle_later(&x.worker);
    }
    crate::log::debug::ended(x);
    x.shared.finish(|trace, tape| {
        let mut end = None;
        if trace.is_on() {
            // Behind an answer that went out whole there is nothing left to do, and a stamp costs more than that.
            if x.is_complete() && tape.pass(Site::step(Step::Finalise)) {
                end = Some(trace.end_here(tape));
            } else {
                trace.take(tape);
                let now = clock::ticks();
                trace.mark(Site::step(Step::Finalise), now);
                trace.end(now);
                end = Some(now);
            }
        }
        recorder.finish_with(trace, tape, fill);
        if let Some(report) = report {
            trace.take(tape);
            let record = recorder.newest().copied().unwrap_or_default();
            report(Kept::new(Why::Asked, &record, trace));
        }
        if probe::traces_done() || probe::traces_sites() {
            trace.take(tape);
            if let Some(record) = recorder.records().last() {
                crate::trace::probes::ended(record, trace);
            }
        }
        x.shared.presence.end(end, || {
            trace.take(tape);
            trace
        });
    });
    x.recorded.set(false);
}

/// The method of nearly all requests.
const GET: Text<16> = Text::of(b"GET");

fn protocol(version: Version) -> u8 {
    match version {
        Version::V09 => 9,
        Version::V10 => 10,
        Version::V11 => 11,
        Version::V20 => 20,
        Version::V30 => 30,
    }
}

/// So many answers of a request may be refused by header filters. A refusal is answered by a page or an `error_page`,
/// and that goes through filters, too: more than one for each change of the URI that a request may have is a loop.
const REFUSALS: u8 = 12;

#[cfg(test)]
mod tests {
    use weir_trace::EventKind;

    use super::*;
    use crate::exchange::testing;

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
            conclude(x, Next::Judge(Verdict::Status(505))).await;
            let failed: Vec<(Site, u64)> = x.shared.events(|events| {
                let errors = events.iter().filter(|event| event.kind() == EventKind::Error);
                errors.map(|event| (event.site(), event.value())).collect()
            });
            assert_eq!(failed, [(Site::OTHER, 505)], "not {before:?}");
        });
    }
}
