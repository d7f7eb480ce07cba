//! `trace`: the trees of the next requests.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use weir_engine::deep_traces::DeepTraces;
use weir_trace::{KeptRequest, SiteTable, TraceWatch, render};

use super::average::WatchedStart;
use super::reply::{ReplyFailure, ReplySink, STEP};
use crate::control::protocol::ControlQuestion;
use crate::filter::{RequestFilter, duration_ns};
use crate::source::{ServerSource, scale};

/// Sends the trees of the next `n` requests that `match` takes, each as it ends; those that came within `for`.
pub(super) fn next(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    let filter = RequestFilter::parse(question.value("match").unwrap_or(""))?;
    let count = question.number("n", 1)?.clamp(1, MOST) as usize;
    let (watch, kept) = TraceWatch::channel(count, move |record| filter.takes(record));
    let asked = watch.clone();
    let deep = deeper(source, question);
    let begun = WatchedStart::of(deep.as_ref());
    source.tell(move |worker| worker.recorder.borrow_mut().watch(asked.clone().since(begun.stamp())));
    let show = shown(question);
    let patience = question.value("for").map(duration_ns).transpose()?.map_or(PATIENCE, Duration::from_nanos);
    reply.note(&waiting(question.value("match"), count))?;
    let limit = Instant::now() + patience;
    let mut seen = 0;
    while seen < count {
        match kept.recv_timeout(STEP) {
            Ok(kept) => {
                seen += 1;
                reply.out(show(&kept).as_bytes())?;
                if count > 1 {
                    reply.note(&format!("{seen} of {count} requests"))?;
                }
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() < limit && !reply.is_stopped() => {}
            Err(_) => break,
        }
    }
    watch.cancel();
    drop(deep);
    // Some worker may have been about to deliver.
    for kept in kept.try_iter().take(count - seen).collect::<Vec<_>>() {
        seen += 1;
        reply.out(show(&kept).as_bytes())?;
    }
    if seen < count && !reply.is_stopped() {
        let time = crate::table::time(patience.as_nanos() as u64);
        return Err(ReplyFailure::Wrong(format!("{seen} of {count} requests ended within {time}")));
    }
    Ok(())
}

/// Where it is asked for, requests record what they do below modules as long as what is returned lives.
pub(super) fn deeper(source: &ServerSource, question: &ControlQuestion) -> Option<DeepTraces> {
    let deep = question.has("deep").then(DeepTraces::ask)?;
    // After the wish, so that they learn nothing more until it ends.
    source.tell(weir_engine::worker::Worker::forget_known);
    Some(deep)
}

/// What the command waits for, so that nobody takes it for stuck.
fn waiting(filter: Option<&str>, count: usize) -> String {
    let which = filter.map_or(String::new(), |filter| format!(" that match \"{filter}\""));
    match count {
        1 => format!("waiting for the next request{} (Ctrl-C ends)", which.replace(" match ", " matches ")),
        count => format!("waiting for the next {count} requests{which} (Ctrl-C ends)"),
    }
}

/// The form that is asked for.
pub(super) fn shown(question: &ControlQuestion) -> fn(&KeptRequest) -> String {
    match (question.has("json"), question.has("flow"), question.has("all")) {
        (true, ..) => json,
        (_, true, _) => flow,
        (.., true) => text,
        _ => short_text,
    }
}

/// Headline and tree.
pub(crate) fn text(kept: &KeptRequest) -> String {
    let sites = SiteTable::global();
    let headline = render::headline(kept.record(), sites, &scale);
    let kernel = render::kernel_line(kept.record(), &scale);
    format!("{headline}\n{kernel}{}", render::tree(&kept.tree(), sites, &scale))
}

/// Headline and what of the tree took time.
fn short_text(kept: &KeptRequest) -> String {
    let sites = SiteTable::global();
    let headline = render::headline(kept.record(), sites, &scale);
    let kernel = render::kernel_line(kept.record(), &scale);
    format!("{headline}\n{kernel}{}", render::short_tree(&kept.tree(), sites, &scale))
}

/// Headline and every boundary.
fn flow(kept: &KeptRequest) -> String {
    let sites = SiteTable::global();
    let headline = render::headline(kept.record(), sites, &scale);
    let kernel = render::kernel_line(kept.record(), &scale);
    format!("{headline}\n{kernel}{}", render::flow(kept.events(), sites, &scale))
}

/// A line of JSON.
pub(crate) fn json(kept: &KeptRequest) -> String {
    render::kept_json(kept, SiteTable::global(), &scale) + "\n"
}

/// A line of JSON, without the tree.
pub(crate) fn brief(kept: &KeptRequest) -> String {
    let record = render::record_json(kept.record(), SiteTable::global(), &scale);
    format!("{{\"why\":\"{}\",\"record\":{record}}}\n", kept.why().as_str())
}

/// Trees at once at most: each is sent as it comes, so more is another question.
const MOST: u64 = 10_000;
/// A trace that no request ends is given up after this long.
const PATIENCE: Duration = Duration::from_secs(3600);
