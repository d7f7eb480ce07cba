//! `average`: the mean tree of many requests.

use std::time::{Duration, Instant};

use weir_engine::deep_traces::DeepTraces;
use weir_trace::{AverageTree, AverageWatch, SiteTable, render};

use super::reply::{ReplyFailure, ReplySink, STEP};
use super::trace;
use crate::control::protocol::ControlQuestion;
use crate::filter::{RequestFilter, duration_ns};
use crate::source::{PATIENCE, ServerSource, scale};

/// The average of the next `n` requests that `match` takes; of fewer when the client has enough, or `for` is over.
pub(super) fn respond(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    let count = question.number("n", 1000)?.max(1);
    let filter = RequestFilter::parse(question.value("match").unwrap_or(""))?;
    let limit = match question.value("for") {
        Some(time) => Duration::from_nanos(duration_ns(time)?),
        None => LONGEST,
    };
    let watch = AverageWatch::new(count as usize, SiteTable::global(), move |record| filter.takes(record));
    let deep = trace::deeper(source, question);
    let (average, stuck) = collect(source, &[watch], WatchedStart::of(deep.as_ref()), limit, |left| {
        let done = count - (left as u64).min(count);
        reply.note(&format!("{done} of {count} requests"))?;
        Ok(!reply.is_stopped())
    })?;
    drop(deep);
    let average = average.into_iter().next().unwrap_or_default();
    let text = match question.has("json") {
        true => render::average_json(&average, SiteTable::global(), &scale) + "\n",
        false => render::average(&average, SiteTable::global(), &scale),
    };
    reply.out(text.as_bytes())?;
    if stuck > 0 {
        reply.note(&format!("{stuck} workers are busy; theirs are missing"))?;
    }
    Ok(())
}

/// When the requests that are watched may have begun.
#[derive(Clone, Copy, Debug)]
pub(super) enum WatchedStart {
    /// At any time.
    Any,
    /// After the worker learned that they are: what came before has not recorded all that the caller asks for.
    Later,
}

impl WatchedStart {
    /// Where requests may be asked for more than they record without a caller.
    pub(super) fn of(deep: Option<&DeepTraces>) -> WatchedStart {
        if deep.is_some() { WatchedStart::Later } else { WatchedStart::Any }
    }

    /// Of a worker that learns of it now, in ticks.
    pub(super) fn stamp(self) -> u64 {
        match self {
            WatchedStart::Any => 0,
            WatchedStart::Later => weir_rt::clock::ticks(),
        }
    }
}

/// What all workers add up for each of `watches`, until those have all they want, `limit` is over or `go_on`, which is
/// given how many are missing, says no; and how many workers did not give theirs.
pub(super) fn collect(
    source: &ServerSource,
    watches: &[AverageWatch],
    begun: WatchedStart,
    limit: Duration,
    mut go_on: impl FnMut(usize) -> Result<bool, ReplyFailure>,
) -> Result<(Vec<AverageTree>, usize), ReplyFailure> {
    let asked = watches.to_vec();
    source.tell(move |worker| {
        let mut recorder = worker.recorder.borrow_mut();
        asked.iter().for_each(|watch| recorder.average(watch.clone().since(begun.stamp())));
    });
    let until = Instant::now() + limit;
    let result = loop {
        let left: usize = watches.iter().map(AverageWatch::left).sum();
        match go_on(left) {
            Ok(true) if left > 0 && Instant::now() < until => {}
            result => break result,
        }
        std::thread::sleep(STEP.min(until.saturating_duration_since(Instant::now())));
    };
    // Also when the client has gone: workers would go on counting.
    watches.iter().for_each(AverageWatch::cancel);
    let wanted = watches.to_vec();
    let said = source.ask(PATIENCE, move |worker| {
        let mut recorder = worker.recorder.borrow_mut();
        wanted.iter().map(|watch| recorder.take_average(watch)).collect::<Vec<_>>()
    });
    result?;
    let mut averages = vec![AverageTree::new(); watches.len()];
    for parts in &said.answers {
        for (average, part) in averages.iter_mut().zip(parts) {
            part.iter().for_each(|part| average.merge(part));
        }
    }
    Ok((averages, said.stuck))
}

/// An average that does not come about is given up after this long.
const LONGEST: Duration = Duration::from_secs(3600);
