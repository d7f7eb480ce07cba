//! `reqs`: the requests in flight at this moment, also those of stuck workers.

use weir_rt::clock;
use weir_trace::{InFlight, Site, SiteTable};

use super::reply::ReplyFailure;
use crate::control::protocol::ControlQuestion;
use crate::filter::duration_ns;
use crate::source::{ServerSource, scale};
use crate::table::{TableCell, TableColumn, TableReport};

/// The requests in flight, oldest first.
pub(crate) fn respond(source: &ServerSource, question: &ControlQuestion) -> Result<String, ReplyFailure> {
    let over = question.value("over").map(duration_ns).transpose()?.unwrap_or(0);
    let count = question.number("n", 1000)? as usize;
    Ok(report(source, over, count).write(question.has("json")))
}

fn report(source: &ServerSource, over: u64, count: usize) -> TableReport {
    let now = clock::ticks();
    let age = |since: u64| scale(now.saturating_sub(since));
    let mut all: Vec<InFlight> = source.workers().iter().flat_map(|worker| worker.now.requests()).collect();
    all.retain(|request| age(request.start) >= over);
    all.sort_by_key(|request| request.start);
    let mut report = TableReport::new(&COLUMNS);
    for request in all.iter().take(count) {
        let doing = match (request.wait, request.is_running) {
            (Some(wait), _) => format!("waits {}", wait.as_str()),
            (None, true) => "runs".to_owned(),
            (None, false) => "ready".to_owned(),
        };
        report.row([
            TableCell::text(request.id.to_string()),
            TableCell::text(format!("{} {}", request.method, request.path)),
            TableCell::text(location(request.route)),
            TableCell::Count(request.worker.into()),
            TableCell::Time(age(request.start)),
            TableCell::Text(doing),
            TableCell::Time(age(request.since)),
            TableCell::text(at(request.site)),
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

const COLUMNS: [TableColumn; 8] = [
    TableColumn("id", "id"),
    TableColumn("request", "request"),
    TableColumn("location", "location"),
    TableColumn("worker", "worker"),
    TableColumn("age", "age_ns"),
    TableColumn("now", "state"),
    TableColumn("since", "state_ns"),
    TableColumn("in", "site"),
];
