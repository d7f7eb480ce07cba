//! `slow` and `explain`: the traces that were retained.

use weir_trace::{KeptRequest, RequestId, SiteTable};

use super::reply::ReplyFailure;
use super::{reqs, trace};
use crate::control::protocol::ControlQuestion;
use crate::filter::RequestFilter;
use crate::source::{PATIENCE, ServerSource, scale};
use crate::table::{TableCell, TableColumn, TableReport};

/// The slowest retained requests.
pub(crate) fn slow(source: &ServerSource, question: &ControlQuestion) -> Result<String, ReplyFailure> {
    let filter = RequestFilter::parse(question.value("match").unwrap_or(""))?;
    let count = question.number("n", 20)?.min(MOST) as usize;
    let said = source.ask(PATIENCE, move |worker| {
        let recorder = worker.recorder.borrow();
        let mut kept: Vec<KeptRequest> =
            recorder.kept().filter(|kept| filter.takes(kept.record())).cloned().collect();
        kept.sort_by_key(|kept| std::cmp::Reverse(kept.record().total));
        kept.truncate(count);
        kept
    });
    let mut all: Vec<KeptRequest> = said.answers.into_iter().flatten().collect();
    all.sort_by_key(|kept| std::cmp::Reverse(kept.record().total));
    all.truncate(count);
    if question.has("json") {
        return Ok(all.iter().map(trace::json).collect());
    }
    let mut text = listed(&all);
    if said.stuck > 0 {
        text.push_str(&format!("{} workers are busy; theirs are missing\n", said.stuck));
    }
    Ok(text)
}

fn listed(all: &[KeptRequest]) -> String {
    let sites = SiteTable::global();
    let (seconds, nanos) = weir_rt::clock::unix_time();
    let now = seconds * 1000 + u64::from(nanos) / 1_000_000;
    let mut report = TableReport::new(&COLUMNS);
    for kept in all {
        let record = kept.record();
        let location = if record.route.is_none() { "-".into() } else { sites.info(record.route).location };
        report.row([
            TableCell::text(record.id.to_string()),
            TableCell::text(format!("{} {}", record.method, record.path)),
            TableCell::text(&*location),
            TableCell::Count(record.status.into()),
            TableCell::text(kept.why().as_str()),
            TableCell::Time(scale(record.total)),
            TableCell::Time(scale(record.run)),
            TableCell::Time(scale(record.wait())),
            TableCell::Time(now.saturating_sub(record.unix_ms) * 1_000_000),
        ]);
    }
    report.text()
}

/// The tree of the retained request whose identifier is, or begins with, `id`.
pub(crate) fn explain(source: &ServerSource, question: &ControlQuestion) -> Result<String, ReplyFailure> {
    let id = question.value("id").unwrap_or("").to_ascii_lowercase();
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(ReplyFailure::Wrong(format!("\"{id}\" is no request id: hexadecimal digits are")));
    }
    let wanted = id.clone();
    let said = source.ask(PATIENCE, move |worker| {
        let recorder = worker.recorder.borrow();
        let mut kept = recorder.kept().filter(|kept| named(kept.record().id, &wanted));
        kept.next().cloned()
    });
    match said.answers.into_iter().flatten().next() {
        Some(kept) if question.has("json") => Ok(trace::json(&kept)),
        Some(kept) => Ok(trace::shown(question)(&kept) + &story(source, &kept)),
        None if said.stuck > 0 => Err(ReplyFailure::Wrong(format!(
            "request {id} is not kept by the workers that answer; {} are busy",
            said.stuck
        ))),
        None => Err(ReplyFailure::Wrong(format!("request {id} was not kept, or its place was needed"))),
    }
}

/// Why it was retained, and the blocked loops it had to do with: the cause of a delay that its own tree shows as
/// queueing only.
fn story(source: &ServerSource, kept: &KeptRequest) -> String {
    let id = kept.record().id;
    let mut text = format!("kept as {}\n", kept.why().as_str());
    for worker in source.workers() {
        for stall in worker.recorder.stalls().list() {
            let (blocked, place) = (crate::table::time(scale(stall.duration)), reqs::at(stall.sample.site));
            // A turn may be long for other reasons than the request that ran last in it.
            if stall.sample.request == id && kept.record().run >= stall.duration / 2 {
                let victims = stall.victims.len();
                text.push_str(&format!(
                    "blocked its worker for {blocked} in {place}; {victims} requests waited for that\n"
                ));
            }
            for (_, ticks) in stall.victims.iter().filter(|(victim, _)| *victim == id) {
                let (lost, by) = (crate::table::time(scale(*ticks)), stall.sample.request);
                text.push_str(&format!(
                    "waited {lost} because request {by} blocked its worker for {blocked} in {place}\n"
                ));
            }
        }
    }
    text
}

fn named(id: RequestId, digits: &str) -> bool {
    id.to_string().starts_with(digits)
}

const COLUMNS: [TableColumn; 9] = [
    TableColumn("id", "id"),
    TableColumn("request", "request"),
    TableColumn("location", "location"),
    TableColumn("status", "status"),
    TableColumn("kept as", "why"),
    TableColumn("total", "total_ns"),
    TableColumn("run", "run_ns"),
    TableColumn("wait", "wait_ns"),
    TableColumn("ago", "age_ns"),
];
/// Listed at most.
const MOST: u64 = 1000;
