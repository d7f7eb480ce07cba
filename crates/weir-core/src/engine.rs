//! One request from its phases to its log line.

use weir_http::Version;
use weir_rt::clock;
use weir_trace::{Cause, RequestId, RequestRecord, Site, Step};

use crate::error::{Error, Kind, Side};
use crate::exchange::Exchange;
use crate::output::{self, Broken};
use crate::phase::{self, Phase, Verdict};
use crate::{redirect, special};

/// Answers `x`, whose head is read and whose server is chosen, and logs it.
pub(crate) async fn serve(x: &mut Exchange) {
    conclude(x, Next::Run(Phase::PostRead)).await;
    finish(x).await;
}

/// Answers `x` with `status` without running its phases (a head that could not be read), and logs it.
pub(crate) async fn refuse(x: &mut Exchange, status: u16) {
    x.cause = Cause::BadRequest;
    conclude(x, Next::Judge(Verdict::Status(status))).await;
    finish(x).await;
}

/// Logs `x`, which is closed without an answer, with `status`.
pub(crate) async fn close(x: &mut Exchange, status: u16) {
    x.cause = if status == 408 { Cause::ClientTimeout } else { Cause::ClientGone };
    conclude(x, Next::Judge(Verdict::Close(status))).await;
    finish(x).await;
}

/// What is to be done next for a request.
pub(crate) enum Next {
    /// Run its phases, from this one on.
    Run(Phase),
    /// Do what they decided.
    Judge(Verdict),
}

/// Runs phases, follows redirects and error pages until a response has gone out.
pub(crate) async fn conclude(x: &mut Exchange, next: Next) {
    let mut next = next;
    let mut redirects = 0u8;
    loop {
        let verdict = match next {
            Next::Run(phase) => phase::run(x, phase).await,
            Next::Judge(verdict) => verdict,
        };
        let verdict = match verdict {
            Verdict::Respond(body) => match output::respond(x, body).await {
                Ok(()) => {
                    x.complete = true;
                    break;
                }
                Err(Broken::Instead(verdict)) => {
                    x.body_filters.clear();
                    verdict
                }
                Err(Broken::Connection(error)) => break broken(x, error),
            },
            Verdict::Redirect(to) => {
                // Opened before and closed when all is done: what runs because of it stands inside it in the trace.
                x.shared.open(Site::REDIRECT);
                redirects += 1;
                match redirect::follow(x, to) {
                    Ok(phase) => {
                        next = Next::Run(phase);
                        continue;
                    }
                    Err(status) => Verdict::Status(status),
                }
            }
            Verdict::Status(status) if x.response.header_sent => break too_late(x, status),
            Verdict::Status(status) => {
                let verdict = special::answer(x, status);
                x.mark(Site::step(Step::SpecialResponse));
                verdict
            }
            Verdict::Close(status) => {
                x.keep_alive = false;
                x.response.status = status;
                break;
            }
            Verdict::Done => {
                x.complete = true;
                break;
            }
            Verdict::Ok | Verdict::Declined => break,
        };
        next = Next::Judge(verdict);
    }
    for _ in 0..redirects {
        x.shared.close(Site::REDIRECT);
    }
}

#[cold]
fn broken(x: &mut Exchange, error: Error) {
    x.keep_alive = false;
    x.cause = match (error.side, error.kind) {
        (_, Kind::TooLarge) => Cause::Limit,
        (_, Kind::File) => Cause::File,
        (Side::Upstream, _) => Cause::Upstream,
        (Side::Server, _) => Cause::Internal,
        (Side::Client, Kind::TimedOut) => Cause::ClientTimeout,
        (Side::Client, Kind::Protocol) => Cause::BadRequest,
        (Side::Client, _) => Cause::ClientGone,
    };
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

/// Log phase, and the trace's end.
async fn finish(x: &mut Exchange) {
    if !x.plan.phase(Phase::Log).is_empty() {
        phase::log(x).await;
    }
    record(x);
}

/// Hands the trace to the worker's recorder.
fn record(x: &mut Exchange) {
    let fill = |record: &mut RequestRecord| {
        record.status = x.response.status;
        record.cause = x.cause;
        record.route = x.plan.route;
        record.protocol = protocol(x.request.version);
        record.id = x.variables.request_id().map_or(RequestId::default(), |id| number(x.arena.get(id)));
        let (seconds, ms) = weir_rt::unix_time();
        let age = weir_rt::now_ms().saturating_sub(x.start_ms);
        record.unix_ms = (seconds * 1000 + u64::from(ms)).saturating_sub(age);
        record.bytes_in = x.request.len as u64 + x.body.received();
        record.bytes_out = x.bytes_sent();
        record.method.set(x.arena.get(x.request.method_span));
        record.set_path(x.arena.get(x.request.unparsed_uri));
    };
    let mut recorder = x.worker.recorder.borrow_mut();
    x.shared.finish(|trace| {
        if trace.is_on() {
            // Behind an answer that went out whole there is nothing left to do, and a stamp costs more than that.
            let now = if x.complete { trace.start() + trace.total() } else { clock::ticks() };
            trace.mark(Site::step(Step::Finalise), now);
            trace.end(now);
        }
        recorder.finish_with(trace, fill);
    });
}

fn protocol(version: Version) -> u8 {
    match version {
        Version::V09 => 9,
        Version::V10 => 10,
        Version::V11 => 11,
        Version::V20 => 20,
        Version::V30 => 30,
    }
}

/// The number that these hexadecimal digits are.
fn number(digits: &[u8]) -> RequestId {
    let digit = |byte: &u8| u128::from(char::from(*byte).to_digit(16).unwrap_or_default());
    RequestId(digits.iter().fold(0, |number, byte| number << 4 | digit(byte)))
}
