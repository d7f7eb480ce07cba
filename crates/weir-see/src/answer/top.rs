//! `top`: who gets the requests, and where their time goes, over the last moments.

mod sites;
mod window;
mod workers;

use std::time::Duration;

use super::{Failure, Reply, pause};
use crate::control::protocol::Question;
use crate::filter::duration_ns;
use crate::source::Source;
use crate::table::Report;

use window::{Snapshot, Window};

/// Tables, one every `every`, `n` of them or until whoever asked has enough. `every=0` is one table of all time.
pub(super) fn answer(source: &Source, question: &Question, reply: &mut dyn Reply) -> Result<(), Failure> {
    let view = View::of(question.value("of").unwrap_or("routes"))?;
    let every = Duration::from_nanos(duration_ns(question.value("every").unwrap_or("1s"))?).min(LONGEST);
    let count = question.number("n", u64::MAX)?;
    let json = question.has("json");
    if every.is_zero() {
        let window = Window::of_all_time(source);
        return Ok(reply.out(view.report(&window).write(json).as_bytes())?);
    }
    let mut before = Snapshot::take(source);
    for _ in 0..count {
        let connections = watch_connections(source, reply, every);
        let after = Snapshot::take(source);
        let stopped = reply.is_stopped();
        let mut window = Window::between(&before, &after);
        window.connections = connections;
        reply.out(view.report(&window).write(json).as_bytes())?;
        if stopped {
            break;
        }
        before = after;
    }
    Ok(())
}

/// Waits for `time`, looking now and then how many connections each worker has: their averages.
fn watch_connections(source: &Source, reply: &mut dyn Reply, time: Duration) -> Vec<f64> {
    let steps = (time.as_millis() / LOOK.as_millis()).clamp(1, 1000) as u32;
    let mut sums: Vec<u64> = Vec::new();
    let mut looked = 0;
    for _ in 0..steps {
        let go_on = pause(reply, time / steps);
        let workers = source.workers();
        sums.resize(workers.len(), 0);
        for (sum, worker) in sums.iter_mut().zip(workers.iter()) {
            *sum += worker.counters.active.get();
        }
        looked += 1;
        if !go_on {
            break;
        }
    }
    sums.into_iter().map(|sum| sum as f64 / f64::from(looked)).collect()
}

/// What a table lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum View {
    Routes,
    Phases,
    Modules,
    Upstreams,
    Workers,
}

impl View {
    fn of(name: &str) -> Result<View, String> {
        match name {
            "routes" | "locations" => Ok(View::Routes),
            "phases" => Ok(View::Phases),
            "modules" => Ok(View::Modules),
            "upstreams" => Ok(View::Upstreams),
            "workers" => Ok(View::Workers),
            _ => Err(format!("\"{name}\" is no table: routes, phases, modules, upstreams and workers are")),
        }
    }

    fn report(self, window: &Window) -> Report {
        match self {
            View::Routes => sites::routes(window),
            View::Phases => sites::phases(window),
            View::Modules => sites::modules(window),
            View::Upstreams => sites::upstreams(window),
            View::Workers => workers::report(window),
        }
    }
}

/// How often connections are counted.
const LOOK: Duration = Duration::from_millis(50);
/// A window at most.
const LONGEST: Duration = Duration::from_secs(3600);
