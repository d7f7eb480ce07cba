//! `slow` and `explain`: the traces that were retained.

use weir_trace::{KeptRequest, RequestId, SiteTable};

use super::reply::ReplyFailure;
use super::{log_lines, reqs, spans, trace};
use crate::control::protocol::ControlQuestion;
use crate::filter::RequestFilter;
use crate::source::{PATIENCE, ServerSource, scale};
use crate::table::{TableCell, TableColumn, TableReport};

/// Which retained requests come first.
#[derive(Clone, Copy, Debug)]
enum KeptOrder {
    Slowest,
    Latest,
}

impl KeptOrder {
    fn of(name: &str) -> Result<KeptOrder, String> {
        match name {
            "slowest" => Ok(KeptOrder::Slowest),
            "latest" => Ok(KeptOrder::Latest),
            _ => Err(format!("\"{name}\" is no order: slowest and latest are")),
        }
    }

    fn sort(self, kept: &mut [KeptRequest]) {
        kept.sort_by_key(|kept| {
            let record = kept.record();
            std::cmp::Reverse(match self {
                KeptOrder::Slowest => record.total,
                KeptOrder::Latest => record.start.wrapping_add(record.total),
            })
        });
    }
}

/// The slowest retained requests, or with `order=latest` those that ended last; as JSON each with its tree, unless
/// `brief` is asked for.
pub(crate) fn slow(source: &ServerSource, question: &ControlQuestion) -> Result<String, ReplyFailure> {
    let filter = RequestFilter::parse(question.value("match").unwrap_or(""))?;
    let order = KeptOrder::of(question.value("order").unwrap_or("slowest"))?;
    let count = question.number("n", 20)?.min(MOST) as usize;
    let said = source.ask(PATIENCE, move |worker| {
        let recorder = worker.recorder.borrow();
        let mut kept: Vec<KeptRequest> =
            recorder.kept().filter(|kept| filter.takes(kept.record())).cloned().collect();
        order.sort(&mut kept);
        kept.truncate(count);
        kept
    });
    let mut all: Vec<KeptRequest> = said.answers.into_iter().flatten().collect();
    order.sort(&mut all);
    all.truncate(count);
    if question.has("json") {
        let shown = if question.has("brief") { trace::brief } else { trace::json };
        return Ok(all.iter().map(shown).collect());
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
            TableCell::text(kept.why().as_str().replace('_', " ")),
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
    let kept = find(source, question)?;
    Ok(match question.has("json") {
        true => trace::json(&kept),
        false => trace::shown(question)(&kept) + &story(source, &kept),
    })
}

/// The times at which that request began and left each of its steps, as JSON, with the blocked loops it had to do with.
pub(crate) fn spans(source: &ServerSource, question: &ControlQuestion) -> Result<String, ReplyFailure> {
    let kept = find(source, question)?;
    let mut story = story(source, &kept);
    story.truncate(story.trim_end().len());
    Ok(spans::json(&kept, &story))
}

/// The retained request that is meant.
fn find(source: &ServerSource, question: &ControlQuestion) -> Result<KeptRequest, ReplyFailure> {
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
        Some(kept) => Ok(kept),
        None if said.stuck > 0 => Err(ReplyFailure::Wrong(format!(
            "request {id} is not kept by the workers that answer; {} are busy",
            said.stuck
        ))),
        None => Err(ReplyFailure::Wrong(format!("request {id} was not kept, or its place was needed"))),
    }
}

/// Why it was retained, why it failed, and the blocked loops it had to do with: the cause of a delay that its own tree shows as
/// queueing only.
fn story(source: &ServerSource, kept: &KeptRequest) -> String {
    let id = kept.record().id;
    let mut text = format!("kept because {}\n", kept.why().says());
    let cause = kept.record().cause.says();
    if !cause.is_empty() {
        text.push_str(&format!("failed because {cause}\n"));
    }
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
    text + &log_lines::of_request(id)
}

fn named(id: RequestId, digits: &str) -> bool {
    id.to_string().starts_with(digits)
}

const COLUMNS: [TableColumn; 9] = [
    TableColumn("id", "id"),
    TableColumn("request", "request"),
    TableColumn("location", "location"),
    TableColumn("status", "status"),
    TableColumn("why kept", "why"),
    TableColumn("total", "total_ns"),
    TableColumn("run", "run_ns"),
    TableColumn("wait", "wait_ns"),
    TableColumn("ago", "age_ns"),
];
/// Listed at most.
const MOST: u64 = 1000;
