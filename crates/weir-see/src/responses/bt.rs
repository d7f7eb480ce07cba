//! `bt`: the stacks of workers at this moment.

use std::time::Duration;

use weir_http::json::JsonWriter;
use weir_rt::clock;
use weir_rt::sampler::StackSample;
use weir_server::housekeeping;
use weir_trace::{RequestId, Site};

use super::blocked::address;
use super::reply::ReplyFailure;
use super::reqs;
use crate::control::protocol::ControlQuestion;
use crate::source::scale;
use crate::table::time;

/// Of one worker, or of all.
pub(super) fn respond(question: &ControlQuestion) -> Result<String, ReplyFailure> {
    let housekeeping = housekeeping::handle();
    let wanted = question.value("worker").map(|_| question.number("worker", 0)).transpose()?;
    let workers = housekeeping.workers();
    let workers: Vec<u16> = workers.iter().map(|view| view.worker).collect();
    let workers =
        workers.into_iter().filter(|worker| wanted.is_none_or(|wanted| wanted == u64::from(*worker)));
    let mut out = String::new();
    for worker in workers {
        let sample = housekeeping.stack_now(worker, LONGEST);
        let sample = sample.map_err(|error| format!("no stack of worker {worker}: {error}"))?;
        out.push_str(&match question.has("json") {
            true => json(worker, sample.as_ref()),
            false => text(worker, sample.as_ref()),
        });
    }
    if out.is_empty() {
        return Err(ReplyFailure::Wrong("there is no such worker".to_owned()));
    }
    Ok(out)
}

fn text(worker: u16, sample: Option<&StackSample>) -> String {
    let Some(sample) = sample else {
        return format!("worker {worker} does not answer: the kernel holds it (weir blocked tells where)\n");
    };
    let mut out = match sample.parked {
        true => format!("worker {worker} waits for events\n"),
        false => {
            let (site, route) = (Site(sample.place.site), Site(sample.place.route));
            format!("worker {worker} is in {}, location {}", reqs::at(site), reqs::location(route))
        }
    };
    if !sample.parked {
        if sample.request != 0 {
            out.push_str(&format!(", req {}", RequestId(sample.request)));
        }
        if let Some(busy) = busy(worker) {
            out.push_str(&format!(", its turn runs for {}", time(busy)));
        }
        out.push('\n');
    }
    sample.frames.iter().for_each(|frame| out.push_str(&format!("    {}\n", address(*frame))));
    out
}

fn json(worker: u16, sample: Option<&StackSample>) -> String {
    JsonWriter::object(|json| {
        json.key("worker").raw(worker);
        json.key("answers").raw(sample.is_some());
        let Some(sample) = sample else { return };
        json.key("parked").raw(sample.parked);
        json.key("site").text(&reqs::at(Site(sample.place.site)));
        json.key("location").text(&reqs::location(Site(sample.place.route)));
        json.key("request").text(&RequestId(sample.request).to_string());
        json.key("busy_ns").raw(busy(worker).unwrap_or(0));
        json.key("stack").list(|json| sample.frames.iter().for_each(|frame| json.text(&address(*frame))));
    }) + "\n"
}

/// For how long the worker's turn has lasted, in nanoseconds.
fn busy(worker: u16) -> Option<u64> {
    let watched = housekeeping::handle().watched();
    let since = watched.iter().find(|one| one.worker == worker)?.probe.busy_since();
    (since != 0).then(|| scale(clock::ticks().saturating_sub(since)))
}

/// A signal takes about 0.1 ms; a busy machine more.
const LONGEST: Duration = Duration::from_secs(5);
