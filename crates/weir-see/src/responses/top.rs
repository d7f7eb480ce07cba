//! `top`: which locations get the requests, and where their time goes, over the last seconds.

mod closes;
mod keys;
mod lines;
mod memory;
pub(crate) mod sites;
mod tables;
mod totals;
pub(crate) mod window;
mod workers;

use std::time::Duration;

use super::blocked::warning;
use super::reply::{ReplyFailure, ReplySink, pause};
use crate::control::protocol::ControlQuestion;
use crate::filter::duration_ns;
use crate::source::ServerSource;
use crate::table::TableReport;

use tables::TopTables;
use window::{TopSnapshot, TopWindow};

/// Tables, one every `every`, `n` of them or until the client has enough. `every=0` is one table of all time; so is one
/// of a time in which there were no requests, for people.
pub(super) fn respond(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    let of = question.value("of").unwrap_or("routes");
    let every = Duration::from_nanos(duration_ns(question.value("every").unwrap_or("1s"))?).min(LONGEST);
    let count = question.number("n", u64::MAX)?;
    let json = question.has("json");
    if of == "lines" {
        return lines::respond(source, &TopTables { every, count, json }, reply);
    }
    if of == "memory" {
        return memory::respond(source, &TopTables { every, count, json }, reply);
    }
    let view = TopView::of(of)?;
    if every.is_zero() {
        let window = TopWindow::of_all_time(source, view);
        return Ok(reply.out(shown(view, &window, json).as_bytes())?);
    }
    let mut before = TopSnapshot::take(source, view);
    for _ in 0..count {
        let stopped = !pause(reply, every);
        let after = TopSnapshot::take(source, view);
        let window = TopWindow::between(&before, &after);
        if window.is_idle() && !json && !matches!(view, TopView::Workers | TopView::Closes) {
            let all = view.report(&TopWindow::of_all_time(source, view)).text();
            reply.out((all + &nothing_ended(every) + &warning()).as_bytes())?;
        } else {
            reply.out(shown(view, &window, json).as_bytes())?;
        }
        if stopped {
            break;
        }
        before = after;
    }
    Ok(())
}

/// Below a table of all time, where one of the last interval would be empty.
pub(crate) fn nothing_ended(every: Duration) -> String {
    let time = crate::table::time(every.as_nanos() as u64);
    format!("no request ended in the last {time}: this is all since the server began\n")
}

/// The table, and below it which loops are blocked.
fn shown(view: TopView, window: &TopWindow, json: bool) -> String {
    let table = view.report(window).write(json);
    if json { table } else { table + &workers::without_core(window) + &warning() }
}

/// All that is counted, as JSON; with `of=traffic` what a page of several servers shows.
pub(super) fn totals(source: &ServerSource, question: &ControlQuestion) -> String {
    totals::write(source, question.value("of") == Some("traffic"))
}

/// The same of `source` for a page of several servers.
pub(crate) fn traffic_totals(source: &ServerSource) -> String {
    totals::write(source, true)
}

/// What a table lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TopView {
    Routes,
    Phases,
    Modules,
    Upstreams,
    Workers,
    Keys,
    Closes,
}

impl TopView {
    /// The view of that name.
    ///
    /// # Errors
    /// No table is called so.
    pub(crate) fn of(name: &str) -> Result<TopView, String> {
        match name {
            "routes" | "locations" => Ok(TopView::Routes),
            "phases" => Ok(TopView::Phases),
            "modules" => Ok(TopView::Modules),
            "upstreams" => Ok(TopView::Upstreams),
            "workers" => Ok(TopView::Workers),
            "keys" => Ok(TopView::Keys),
            "closes" => Ok(TopView::Closes),
            _ => Err(format!(
                "\"{name}\" is no table: routes, phases, modules, lines, upstreams, workers, keys, \
                 closes and memory are"
            )),
        }
    }

    /// The table of what happened in `window`.
    pub(crate) fn report(self, window: &TopWindow) -> TableReport {
        match self {
            TopView::Routes => sites::routes(window),
            TopView::Phases => sites::phases(window),
            TopView::Modules => sites::modules(window),
            TopView::Upstreams => sites::upstreams(window),
            TopView::Workers => workers::report(window),
            TopView::Keys => keys::report(window),
            TopView::Closes => closes::report(window),
        }
    }
}

/// A window at most.
const LONGEST: Duration = Duration::from_secs(3600);
