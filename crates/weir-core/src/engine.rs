//! One request from its phases to its log line.

use std::rc::Rc;

use weir_rt::clock;
use weir_trace::{RequestRecord, Site, Step};

use crate::error::Kind;
use crate::exchange::Exchange;
use crate::output::{self, Broken};
use crate::phase::{self, Phase, Verdict};
use crate::{redirect, special};

/// Answers `x`, whose head is read and whose server is chosen, and logs it.
pub(crate) async fn serve(x: &mut Exchange) {
    let verdict = phase::run(x, Phase::PostRead).await;
    conclude(x, verdict).await;
    finish(x).await;
}

/// Answers `x` with `status` without running its phases (a head that could not be read), and logs it.
pub(crate) async fn refuse(x: &mut Exchange, status: u16) {
    conclude(x, Verdict::Status(status)).await;
    finish(x).await;
}

/// Logs `x`, which is closed without an answer, with `status`.
pub(crate) async fn close(x: &mut Exchange, status: u16) {
    conclude(x, Verdict::Close(status)).await;
    finish(x).await;
}

/// Follows redirects and error pages until a response has gone out.
pub(crate) async fn conclude(x: &mut Exchange, verdict: Verdict) {
    let mut verdict = verdict;
    loop {
        verdict = match verdict {
            Verdict::Redirect(to) => match redirect::follow(x, to) {
                Ok(phase) => phase::run(x, phase).await,
                Err(status) => Verdict::Status(status),
            },
            Verdict::Status(status) if x.response.header_sent => {
                // Too late for another answer: the connection tells that this one is not whole.
                x.keep_alive = false;
                x.log_error(&format_args!("header already sent, status {status} is lost"));
                return;
            }
            Verdict::Status(status) => special::answer(x, status),
            Verdict::Respond(body) => match output::respond(x, body).await {
                Ok(()) => {
                    x.complete = true;
                    return;
                }
                Err(Broken::Instead(verdict)) => {
                    x.body_filters.clear();
                    verdict
                }
                Err(Broken::Connection(error)) => {
                    x.keep_alive = false;
                    // What exceeds a limit is logged with its size where that is known.
                    if error.kind != Kind::TooLarge {
                        crate::log::broken(x, error);
                    }
                    return;
                }
            },
            Verdict::Close(status) => {
                x.keep_alive = false;
                x.response.status = status;
                return;
            }
            Verdict::Done => {
                x.complete = true;
                return;
            }
            Verdict::Ok | Verdict::Declined => return,
        };
    }
}

/// Log phase, and the trace's end.
async fn finish(x: &mut Exchange) {
    phase::log(x).await;
    x.mark(Site::step(Step::Finalise));
    record(x);
}

/// Hands the trace to the worker's recorder.
fn record(x: &mut Exchange) {
    let worker = x.worker.clone();
    let mut recorder = worker.recorder.borrow_mut();
    let shared: Rc<_> = x.shared.clone();
    let mut record =
        RequestRecord { status: x.response.status, route: x.plan.route, ..RequestRecord::default() };
    record.bytes_in = x.request.len as u64 + x.body.received();
    record.bytes_out = x.bytes_sent();
    record.method = weir_trace::Text::new(x.arena.get(x.request.method_span));
    record.set_path(x.arena.get(x.request.unparsed_uri));
    if shared.is_on() {
        shared.with_trace(|trace| {
            trace.end(clock::ticks());
            recorder.finish(trace, record);
        });
    } else {
        recorder.finish(&weir_trace::Trace::new(), record);
    }
}
