//! `reqs`: the requests that are being answered at this moment, also those of stuck workers.

use weir_rt::clock;
use weir_trace::{InFlight, Site, SiteTable};

use super::reply::Failure;
use crate::control::protocol::Question;
use crate::filter::duration_ns;
use crate::source::{Source, scale};
use crate::table::{Cell, Column, Report};

/// The requests in flight, oldest first.
pub(crate) fn answer(source: &Source, question: &Question) -> Result<String, Failure> {
    let over = question.value("over").map(duration_ns).transpose()?.unwrap_or(0);
    let count = question.number("n", 1000)? as usize;
    Ok(report(source, over, count).write(question.has("json")))
}

fn report(source: &Source, over: u64, count: usize) -> Report {
    let now = clock::ticks();
    let age = |since: u64| scale(now.saturating_sub(since));
    let mut all: Vec<InFlight> = source.workers().iter().flat_map(|worker| worker.now.requests()).collect();
    all.retain(|request| age(request.start) >= over);
    all.sort_by_key(|request| request.start);
    let mut report = Report::new(&COLUMNS);
    for request in all.iter().take(count) {
        let doing = match (request.wait, request.is_running) {
            (Some(wait), _) => format!("waits {}", wait.as_str()),
            (None, true) => "runs".to_owned(),
            (None, false) => "ready".to_owned(),
        };
        report.row([
            Cell::text(request.id.to_string()),
            Cell::text(format!("{} {}", request.method, request.path)),
            Cell::text(location(request.route)),
            Cell::Count(request.worker.into()),
            Cell::Time(age(request.start)),
            Cell::Text(doing),
            Cell::Time(age(request.since)),
            Cell::text(at(request.site)),
        ]);
    }
    report
}

/// The location of a route; `-` before one was found.
pub(super) fn location(route: Site) -> String {
    let info = SiteTable::global().info(route);
    if route.is_none() || info.location.is_empty() { "-".to_owned() } else { info.location.to_string() }
}

/// A site with its phase, for people; `-` of none.
pub(super) fn at(site: Site) -> String {
    if site.is_none() {
        return "-".to_owned();
    }
    let info = SiteTable::global().info(site);
    match info.phase {
        Some(phase) if phase != &*info.name => format!("{phase} {}", info.label()),
        _ => info.label(),
    }
}

const COLUMNS: [Column; 8] = [
    Column("id", "id"),
    Column("request", "request"),
    Column("location", "location"),
    Column("worker", "worker"),
    Column("age", "age_ns"),
    Column("now", "state"),
    Column("since", "state_ns"),
    Column("in", "site"),
];
