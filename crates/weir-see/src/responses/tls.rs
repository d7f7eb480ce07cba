//! `tls`: handshakes of clients and why they fail, the certificates in force, tickets, caches and threads for keys.

pub(super) mod certificates;

use std::time::{Duration, Instant};

use weir_engine::worker::HandshakeTrait;
use weir_http::json::JsonWriter;
use weir_rt::blocking::{self, PoolStats};
use weir_server::tls::inventory::{self, SessionCacheUse, TicketKeyUse};
use weir_server::tls::{FailedHandshake, last_failed};
use weir_tls::TicketKeyAge;

use super::reply::{ReplyFailure, ReplySink, pause};
use crate::control::protocol::ControlQuestion;
use crate::filter::duration_ns;
use crate::handshakes::HandshakeCounts;
use crate::source::{BRIEFLY, ServerSource, scale};
use crate::table::{TableCell, TableColumn, TableReport};

/// What each table is called, and what is above it. The order is that of the text.
const TABLES: [(&str, &str); 7] = [
    ("certificates", "certificates, those first that end first"),
    ("handshakes", "handshakes that were complete, by what they agreed upon"),
    ("times", "how long they took, from their first byte on"),
    ("failures", "handshakes that failed"),
    ("last_failures", "the last of them"),
    ("sessions", "keys of tickets, and caches of sessions"),
    ("keys", "threads for keys"),
];

/// All tables, or the one that `of` names; rates of the time `every`, without rates where that is 0.
pub(super) fn respond(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    let wanted = question.value("of").filter(|of| !of.is_empty());
    if let Some(of) = wanted
        && !TABLES.iter().any(|(name, _)| *name == of)
    {
        let names = TABLES.map(|(name, _)| name).join(", ");
        return Err(ReplyFailure::Wrong(format!("\"{of}\" is no table: {names} are")));
    }
    let every = Duration::from_nanos(duration_ns(question.value("every").unwrap_or("1s"))?).min(LONGEST);
    let before = HandshakeCounts::of(&source.workers());
    let begun = Instant::now();
    if !every.is_zero() {
        pause(reply, every);
    }
    let window = HandshakeWindow {
        seconds: if every.is_zero() { 0.0 } else { begun.elapsed().as_secs_f64() },
        all: HandshakeCounts::of(&source.workers()),
        before,
    };
    let is_wanted = |name: &str| wanted.is_none_or(|of| of == name);
    let reports = TABLES.iter().filter(|(name, _)| is_wanted(name));
    let json = question.has("json");
    let reports = reports.map(|(name, about)| (*name, *about, report(source, name, &window, json)));
    let text = if json { in_json(&window, reports) } else { text(reports) };
    Ok(reply.out(text.as_bytes())?)
}

/// What was counted before, and until now.
struct HandshakeWindow {
    /// How long it was; 0: there is none.
    seconds: f64,
    before: HandshakeCounts,
    all: HandshakeCounts,
}

impl HandshakeWindow {
    fn rate(&self, count: u64) -> TableCell {
        if self.seconds > 0.0 { TableCell::Rate(count as f64 / self.seconds) } else { TableCell::None }
    }
}

fn report(source: &ServerSource, name: &str, window: &HandshakeWindow, json: bool) -> TableReport {
    match name {
        "certificates" if json => certificates::report(&source.configuration()),
        "certificates" => certificates::report(&source.configuration()).only(&certificates::FOR_PEOPLE),
        "handshakes" => handshakes(window),
        "times" => times(window),
        "failures" => failures(window),
        "last_failures" => last_failures(source),
        "sessions" => sessions(source),
        _ => keys(),
    }
}

fn text(reports: impl Iterator<Item = (&'static str, &'static str, TableReport)>) -> String {
    let mut out = String::new();
    for (_, about, report) in reports {
        let table = if report.is_empty() { "none\n".to_owned() } else { report.text() };
        out.push_str(&format!("{}{about}:\n{table}", if out.is_empty() { "" } else { "\n" }));
    }
    out
}

fn in_json(
    window: &HandshakeWindow,
    reports: impl Iterator<Item = (&'static str, &'static str, TableReport)>,
) -> String {
    JsonWriter::object(|json| {
        json.key("seconds").raw(format!("{:.3}", window.seconds));
        json.key("complete").raw(window.all.complete());
        json.key("full").raw(window.all.full());
        json.key("failed").raw(window.all.failed());
        reports.for_each(|(name, _, report)| json.key(name).raw(report.json().trim_end()));
    }) + "\n"
}

/// A row for each value of each trait that was seen.
fn handshakes(window: &HandshakeWindow) -> TableReport {
    let lately = window.all.since(&window.before);
    let mut report = TableReport::new(&HANDSHAKES);
    for of in HandshakeTrait::ALL {
        let all: u64 = window.all.values(of).map(|(_, total)| total).sum();
        for (value, total) in window.all.values(of) {
            let new = lately.values(of).find(|(other, _)| *other == value).map_or(0, |(_, count)| count);
            report.row([
                TableCell::text(of.as_str()),
                TableCell::text(value),
                window.rate(new),
                TableCell::share(total, all),
                TableCell::Count(total),
            ]);
        }
    }
    report
}

/// Of the window if there were some in it, else of all.
fn times(window: &HandshakeWindow) -> TableReport {
    let lately = window.all.since(&window.before);
    let mut report = TableReport::new(&TIMES);
    for (at, kind) in ["full", "resumed"].into_iter().enumerate() {
        let (new, all) = (&lately.times[at], &window.all.times[at]);
        let (shown, of) = if new.count() > 0 { (new, "lately") } else { (all, "since the start") };
        if shown.count() == 0 {
            continue;
        }
        let time = |ticks: u64| TableCell::Time(scale(ticks));
        report.row([
            TableCell::text(kind),
            TableCell::text(of),
            TableCell::Count(shown.count()),
            time(shown.mean()),
            time(shown.quantile(0.5)),
            time(shown.quantile(0.99)),
            time(shown.quantile(1.0)),
        ]);
    }
    report
}

/// The most frequent lately first.
fn failures(window: &HandshakeWindow) -> TableReport {
    let lately = window.all.since(&window.before);
    let all = window.all.failed();
    let new = |fault| lately.faults().find(|(other, _)| *other == fault).map_or(0, |(_, count)| count);
    let mut rows: Vec<_> = window.all.faults().map(|(fault, total)| (fault, new(fault), total)).collect();
    rows.sort_by_key(|&(_, new, total)| std::cmp::Reverse((new, total)));
    let mut report = TableReport::new(&FAILURES);
    for (fault, new, total) in rows {
        report.row([
            TableCell::text(fault.side().as_str()),
            TableCell::text(fault.as_str()),
            window.rate(new),
            TableCell::share(total, all),
            TableCell::Count(total),
            TableCell::text(fault.says()),
        ]);
    }
    report
}

/// The latest first, of the workers that respond.
fn last_failures(source: &ServerSource) -> TableReport {
    let asked = source.ask(BRIEFLY, |worker| (worker.id, last_failed()));
    let each =
        asked.answers.into_iter().flat_map(|(worker, all)| all.into_iter().map(move |it| (worker, it)));
    let mut all: Vec<(u8, FailedHandshake)> = each.collect();
    all.sort_by_key(|(_, failed)| std::cmp::Reverse(failed.unix_ms));
    let now = weir_rt::clock::unix_ns() / 1_000_000;
    let mut report = TableReport::new(&LAST);
    for (worker, failed) in all.into_iter().take(MOST_LAST) {
        report.row([
            TableCell::Time(now.saturating_sub(failed.unix_ms) * 1_000_000),
            TableCell::Count(worker.into()),
            TableCell::text(failed.client.to_string()),
            failed.server_name.map_or(TableCell::None, TableCell::Text),
            TableCell::text(failed.fault.side().as_str()),
            TableCell::text(failed.fault.as_str()),
        ]);
    }
    report
}

fn sessions(source: &ServerSource) -> TableReport {
    let configuration = source.configuration();
    let mut report = TableReport::new(&SESSIONS);
    inventory::ticket_keys(&configuration).into_iter().for_each(|keys| report.row(ticket_keys(keys)));
    inventory::session_caches(&configuration).into_iter().for_each(|cache| report.row(session_cache(cache)));
    report
}

fn ticket_keys(keys: TicketKeyUse) -> [TableCell; 6] {
    let seconds = |seconds: u64| TableCell::Time(seconds.saturating_mul(1_000_000_000));
    let (count, age, lifetime) = match keys.age {
        TicketKeyAge::Given { keys } => (keys, TableCell::None, TableCell::None),
        TicketKeyAge::Own { keys, age, lifetime } => (keys, seconds(age), seconds(lifetime)),
    };
    let from = if keys.files.is_empty() { "this process".to_owned() } else { keys.files.join(" ") };
    [
        TableCell::text("ticket keys"),
        TableCell::Text(from),
        TableCell::Count(count as u64),
        TableCell::None,
        age,
        lifetime,
    ]
}

fn session_cache(cache: SessionCacheUse) -> [TableCell; 6] {
    let name = if cache.name.is_empty() { "a server's own".to_owned() } else { cache.name };
    [
        TableCell::text("session cache"),
        TableCell::Text(name),
        TableCell::Count(cache.sessions as u64),
        TableCell::Count(cache.room as u64),
        TableCell::None,
        TableCell::None,
    ]
}

fn keys() -> TableReport {
    let mut report = TableReport::new(&KEYS);
    let row = |name: &str, pool: PoolStats| {
        [
            TableCell::text(name),
            TableCell::Count(pool.busy as u64),
            TableCell::Count(pool.most as u64),
            TableCell::Count(pool.queued as u64),
            TableCell::Count(pool.done),
            pool.ran_ns.checked_div(pool.done).map_or(TableCell::None, TableCell::Time),
        ]
    };
    report.row(row("key threads", blocking::computing_stats()));
    report.row(row("device threads", blocking::device_stats()));
    report
}

/// A window at most.
const LONGEST: Duration = Duration::from_secs(3600);
/// Failed handshakes that are listed.
const MOST_LAST: usize = 50;
const HANDSHAKES: [TableColumn; 5] = [
    TableColumn("of", "of"),
    TableColumn("value", "value"),
    TableColumn("per s", "per_second"),
    TableColumn("share", "share"),
    TableColumn("total", "total"),
];
const TIMES: [TableColumn; 7] = [
    TableColumn("handshake", "handshake"),
    TableColumn("of", "of"),
    TableColumn("count", "count"),
    TableColumn("mean", "mean_ns"),
    TableColumn("p50", "p50_ns"),
    TableColumn("p99", "p99_ns"),
    TableColumn("max", "max_ns"),
];
const FAILURES: [TableColumn; 6] = [
    TableColumn("first", "by"),
    TableColumn("reason", "reason"),
    TableColumn("per s", "per_second"),
    TableColumn("share", "share"),
    TableColumn("total", "total"),
    TableColumn("means", "means"),
];
const LAST: [TableColumn; 6] = [
    TableColumn("ago", "ago_ns"),
    TableColumn("worker", "worker"),
    TableColumn("client", "client"),
    TableColumn("server name", "server_name"),
    TableColumn("first", "by"),
    TableColumn("reason", "reason"),
];
const SESSIONS: [TableColumn; 6] = [
    TableColumn("what", "what"),
    TableColumn("name", "name"),
    TableColumn("count", "count"),
    TableColumn("of", "room"),
    TableColumn("age", "age_ns"),
    TableColumn("lifetime", "lifetime_ns"),
];
const KEYS: [TableColumn; 6] = [
    TableColumn("threads", "threads"),
    TableColumn("busy", "busy"),
    TableColumn("of", "most"),
    TableColumn("queued", "queued"),
    TableColumn("done", "done"),
    TableColumn("mean", "mean_ns"),
];
