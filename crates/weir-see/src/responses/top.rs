//! `top`: who gets the requests, and where their time goes, over the last moments.

mod sites;
mod window;
mod workers;

use std::time::Duration;

use super::blocked::warning;
use super::reply::{Failure, Reply, pause};
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
        return Ok(reply.out(shown(view, &window, json).as_bytes())?);
    }
    let mut before = Snapshot::take(source);
    for _ in 0..count {
        let stopped = !pause(reply, every);
        let after = Snapshot::take(source);
        let window = Window::between(&before, &after);
        reply.out(shown(view, &window, json).as_bytes())?;
        if stopped {
            break;
        }
        before = after;
    }
    Ok(())
}

/// The table, and below it which loops are blocked.
fn shown(view: View, window: &Window, json: bool) -> String {
    let table = view.report(window).write(json);
    if json { table } else { table + &warning() }
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

/// A window at most.
const LONGEST: Duration = Duration::from_secs(3600);
