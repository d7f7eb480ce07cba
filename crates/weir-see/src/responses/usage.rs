//! `use`: utilisation, saturation and errors of each resource; and the facts that `weir doctor` asks for.

use std::time::Duration;

use weir_engine::worker::Worker;
use weir_rt::file::{DiskState, disk_states};
use weir_rt::{LoopSnapshot, clock};
use weir_server::housekeeping::{self, ProcessUse, ThreadUse, WorkerView};
use weir_trace::{SiteKind, SiteTable};

use super::capacity::ServerCapacity;
use super::queue::extension;
use super::reply::{ReplyFailure, ReplySink, pause};
use crate::control::protocol::ControlQuestion;
use crate::filter::duration_ns;
use crate::source::{BRIEFLY, ServerSource, WorkerThread, scale};
use crate::table::{TableCell, TableColumn, TableReport};

/// The table of the time `every`.
pub(crate) fn respond(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    let every = Duration::from_nanos(duration_ns(question.value("every").unwrap_or("1s"))?);
    let before = UsageMoment::take(source);
    pause(reply, every.min(LONGEST));
    let after = UsageMoment::take(source);
    let json = question.has("json");
    reply.out(table(&before, &after).write(json).as_bytes())?;
    if after.room.is_none() && !json {
        reply.out(b"?: a worker is busy and does not say (weir blocked)\n")?;
    }
    Ok(())
}

/// Everything at one time.
struct UsageMoment {
    at: std::time::Instant,
    turns: LoopSnapshot,
    threads: ThreadUse,
    busy: Option<Duration>,
    stalls: u64,
    process: ProcessUse,
    connections: u64,
    /// Of them those that wait for a request.
    idle: u64,
    /// `worker_connections` of all workers; `None` where not all of them respond.
    room: Option<u64>,
    /// Bytes of responses.
    sent: u64,
    /// Nanoseconds that requests were ready and their loops busy with others.
    queued: u64,
    lost_lines: u64,
    /// How often a write on a loop, or one like it, took so long that threads make these for a while.
    slow_writes: u64,
    overflows: u64,
    retransmits: u64,
    accept_p99: u64,
    receive_p99: u64,
    samples_lost: u64,
    workers: u64,
    capacity: ServerCapacity,
}

impl UsageMoment {
    fn take(source: &ServerSource) -> UsageMoment {
        let housekeeping = housekeeping::handle();
        let views = housekeeping.workers();
        let workers = source.workers();
        let netstat = std::fs::read_to_string("/proc/net/netstat").unwrap_or_default();
        let snmp = std::fs::read_to_string("/proc/net/snmp").unwrap_or_default();
        let p99 = |of: fn(&weir_trace::RecorderReader) -> weir_trace::Histogram| {
            workers.iter().map(|worker| scale(of(&worker.recorder).quantile(0.99))).max().unwrap_or(0)
        };
        UsageMoment {
            at: std::time::Instant::now(),
            turns: sum_turns(workers.iter().map(|worker| worker.stats.snapshot())),
            threads: sum_threads(&views),
            busy: views.iter().filter_map(|view| view.busy).max(),
            stalls: views.iter().map(|view| view.stalls).sum(),
            // Without /proc there are zeros, which the table shows as such.
            process: housekeeping.process().unwrap_or_default(),
            connections: workers.iter().map(|worker| worker.counters.active.get() + parked(worker)).sum(),
            idle: workers.iter().map(|worker| worker.counters.waiting.get() + parked(worker)).sum(),
            sent: sent(source),
            room: source
                .ask(BRIEFLY, Worker::most)
                .whole(|most| most.into_iter().fold(0, u64::saturating_add)),
            queued: workers
                .iter()
                .flat_map(|worker| worker.now.blame())
                .map(|blame| scale(blame.ticks))
                .sum(),
            lost_lines: workers.iter().map(|worker| worker.counters.log_lost.get()).sum(),
            slow_writes: disk_states().iter().map(|state: &DiskState| state.stalls).sum(),
            overflows: extension(&netstat, "ListenOverflows").unwrap_or(0),
            retransmits: retransmits(&snmp),
            accept_p99: p99(weir_trace::RecorderReader::accept_waits),
            receive_p99: p99(weir_trace::RecorderReader::receive_waits),
            samples_lost: views.iter().map(|view| view.samples_lost).sum(),
            workers: workers.len() as u64,
            capacity: ServerCapacity::take(source),
        }
    }
}

fn sent(source: &ServerSource) -> u64 {
    let totals = source.totals();
    let whole = |site| SiteTable::global().info(site).kind == SiteKind::Request;
    totals.iter().filter(|(site, _)| whole(*site)).map(|(_, totals)| totals.counts.bytes_out).sum()
}

fn sum_turns(all: impl Iterator<Item = LoopSnapshot>) -> LoopSnapshot {
    all.fold(LoopSnapshot::default(), |mut sum, one| {
        sum.busy_ns += one.busy_ns;
        sum.parked_ns += one.parked_ns;
        sum.enobufs += one.enobufs;
        sum.small_writes += one.small_writes;
        sum.longest_small_write_ns = sum.longest_small_write_ns.max(one.longest_small_write_ns);
        sum.emfile += one.emfile;
        sum.panics += one.panics;
        sum.longest_poll_ns = sum.longest_poll_ns.max(one.longest_poll_ns);
        sum
    })
}

fn sum_threads(views: &[WorkerView]) -> ThreadUse {
    views.iter().filter_map(|view| view.thread).fold(ThreadUse::default(), |mut sum, one| {
        sum.cpu_ns += one.cpu_ns;
        sum.run_queue_ns += one.run_queue_ns;
        sum.faults_major += one.faults_major;
        sum.disk_read += one.disk_read;
        sum.disk_written += one.disk_written;
        sum
    })
}

/// `RetransSegs` of /proc/net/snmp: a line of names, then one of numbers.
fn retransmits(table: &str) -> u64 {
    let mut lines = table.lines().filter(|line| line.starts_with("Tcp:"));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return 0 };
    let at = names.split_whitespace().position(|word| word == "RetransSegs");
    at.and_then(|at| numbers.split_whitespace().nth(at)?.parse().ok()).unwrap_or(0)
}

fn table(before: &UsageMoment, after: &UsageMoment) -> TableReport {
    let mut report = TableReport::new(&COLUMNS);
    let rows = [
        cpu(before, after),
        loops(before, after),
        memory(before, after),
        network(before, after),
        connections(after),
        disk(before, after),
        small_files(before, after),
        descriptors(before, after),
        profiling(before, after),
    ];
    rows.into_iter().for_each(|row| report.row(row));
    after.capacity.rows(&before.capacity).into_iter().for_each(|row| report.row(row.map(TableCell::text)));
    report
}

/// Resource, used, saturated, errors, and errors since the server began.
type UsageRow = [TableCell; 5];

fn row(resource: &str, used: TableCell, saturated: TableCell, errors: [String; 2]) -> UsageRow {
    let [errors, all] = errors.map(TableCell::text);
    [TableCell::text(resource), used, saturated, errors, all]
}

/// Of a resource without errors.
fn no_errors() -> [String; 2] {
    ["-".to_owned(), "-".to_owned()]
}

/// What `tell` says of the numbers that `count` reads: of those of the window, and of all.
fn errors<M, const N: usize>(
    (before, after): (&M, &M),
    count: impl Fn(&M) -> [u64; N],
    tell: impl Fn([u64; N]) -> String,
) -> [String; 2] {
    let (earlier, all) = (count(before), count(after));
    let window = std::array::from_fn(|at| all[at].saturating_sub(earlier[at]));
    [tell(window), tell(all)]
}

fn percent(part: u64, whole: u64) -> TableCell {
    TableCell::text(format!("{:.1}%", part as f64 * 100.0 / whole.max(1) as f64))
}

/// Bytes a second between two moments.
fn rate(bytes: u64, before: &UsageMoment, after: &UsageMoment) -> String {
    let time = after.at.duration_since(before.at).as_nanos() as u64;
    format!("{}/s", crate::table::bytes(bytes.saturating_mul(1_000_000_000) / time.max(1)))
}

fn cpu(before: &UsageMoment, after: &UsageMoment) -> UsageRow {
    // Of all workers together.
    let time = after.at.duration_since(before.at).as_nanos() as u64 * after.workers.max(1);
    let cpu = after.threads.cpu_ns.saturating_sub(before.threads.cpu_ns);
    let queue = after.threads.run_queue_ns.saturating_sub(before.threads.run_queue_ns);
    row("cpu", percent(cpu, time), with("run queue", percent(queue, time)), no_errors())
}

fn loops(before: &UsageMoment, after: &UsageMoment) -> UsageRow {
    let busy = after.turns.busy_ns.saturating_sub(before.turns.busy_ns);
    let parked = after.turns.parked_ns.saturating_sub(before.turns.parked_ns);
    let stuck = after.busy.map_or(0, |busy| busy.as_nanos() as u64);
    row(
        "loops",
        percent(busy, busy + parked),
        TableCell::text(format!(
            "longest turn {}, queued {}",
            crate::table::time(after.turns.longest_poll_ns.max(stuck)),
            crate::table::time(after.queued.saturating_sub(before.queued))
        )),
        errors(
            (before, after),
            |m| [m.stalls, m.turns.panics],
            |[stalls, panics]| format!("{stalls} stalls, {panics} panics"),
        ),
    )
}

fn memory(before: &UsageMoment, after: &UsageMoment) -> UsageRow {
    row(
        "memory",
        TableCell::text(crate::table::bytes(after.process.resident)),
        with(
            "major faults",
            TableCell::Count(after.threads.faults_major.saturating_sub(before.threads.faults_major)),
        ),
        errors((before, after), |m| [m.turns.enobufs], |[count]| format!("{count} receives without buffer")),
    )
}

fn network(before: &UsageMoment, after: &UsageMoment) -> UsageRow {
    let waits = format!(
        "accept p99 {}, receive p99 {}",
        crate::table::time(after.accept_p99),
        crate::table::time(after.receive_p99)
    );
    row(
        "network",
        TableCell::text(format!("{} out", rate(after.sent.saturating_sub(before.sent), before, after))),
        TableCell::text(waits),
        // The host counts since it was started, whatever ran there.
        {
            let [window, _] = errors(
                (before, after),
                |m| [m.overflows, m.retransmits],
                |[full, again]| format!("host: {full} overflows, {again} retransmits"),
            );
            [window, "-".to_owned()]
        },
    )
}

fn connections(after: &UsageMoment) -> UsageRow {
    row(
        "connections",
        TableCell::text(format!("{} of {}", after.connections, after.room.map_or_else(unknown, limit))),
        TableCell::text(format!("{} idle", after.idle)),
        no_errors(),
    )
}

fn disk(before: &UsageMoment, after: &UsageMoment) -> UsageRow {
    let disk = |moment: &UsageMoment| moment.process.disk_read + moment.process.disk_written;
    row(
        "disk",
        TableCell::text(rate(disk(after).saturating_sub(disk(before)), before, after)),
        TableCell::text("-"),
        errors((before, after), |m| [m.lost_lines], |[count]| format!("{count} log lines lost")),
    )
}

/// Those that loops write (`small_file_writes`).
fn small_files(before: &UsageMoment, after: &UsageMoment) -> UsageRow {
    let count = after.turns.small_writes.saturating_sub(before.turns.small_writes);
    row(
        "small files",
        TableCell::text(format!("{count} on loops")),
        TableCell::text(format!(
            "{} writes, longest {}",
            after.turns.small_writes,
            crate::table::time(after.turns.longest_small_write_ns)
        )),
        errors((before, after), |m| [m.slow_writes], |[count]| format!("{count} stalls")),
    )
}

fn descriptors(before: &UsageMoment, after: &UsageMoment) -> UsageRow {
    row(
        "descriptors",
        TableCell::text(format!(
            "{} of {}",
            after.process.descriptors,
            limit(after.process.descriptors_limit)
        )),
        TableCell::text("-"),
        errors((before, after), |m| [m.turns.emfile], |[count]| format!("{count} accepts without")),
    )
}

fn profiling(before: &UsageMoment, after: &UsageMoment) -> UsageRow {
    row(
        "profiling",
        TableCell::text(format!("{} Hz", housekeeping::handle().settings().cpu_hz)),
        TableCell::text("-"),
        errors((before, after), |m| [m.samples_lost], |[count]| format!("{count} samples lost")),
    )
}

fn with(what: &str, cell: TableCell) -> TableCell {
    let mut report = TableReport::new(&[TableColumn("", "")]);
    report.row([cell]);
    TableCell::text(format!("{what} {}", report.text().trim()))
}

/// What only workers know that are busy with something else.
pub(super) fn unknown() -> String {
    "?".to_owned()
}

fn limit(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".to_owned() } else { limit.to_string() }
}

/// What only the server knows of what works: lines of `key value`.
pub(crate) fn facts(source: &ServerSource) -> String {
    let housekeeping = housekeeping::handle();
    let settings = housekeeping.settings();
    let workers = source.workers();
    let driver = workers.first().map_or_else(String::new, |worker| {
        let why = worker.why_epoll(source.configuration().main.driver);
        why.map_or_else(|| worker.driver.to_string(), |why| format!("{} ({why})", worker.driver))
    });
    let blocked =
        settings.blocked.map_or("off".to_owned(), |limit| crate::table::time(limit.as_nanos() as u64));
    let refused = housekeeping.refused().unwrap_or_else(|| "no".to_owned());
    let switches = housekeeping.switches_refused().unwrap_or_else(|| "no".to_owned());
    let counter = if clock::ticks_are_counter() { "the CPU's counter" } else { "the kernel's clock" };
    let counters = housekeeping.counters();
    format!(
        "pid {}\nworkers {}\nuptime {} s\ndriver {driver}\nclock {counter}\ncpu_hz {}\nblocked {blocked}\nsampler refused: {refused}\nswitches refused: {switches}\n{}{}{}{}",
        std::process::id(),
        workers.len(),
        source.uptime().as_secs(),
        settings.cpu_hz,
        super::perf::facts(&counters),
        shares(&workers),
        cores(&workers),
        stuck(),
    )
}

/// Connections that wait for a request outside of the worker.
fn parked(worker: &WorkerThread) -> u64 {
    worker.counters.dealing.parked.get()
}

/// How many connections each worker has.
fn shares(workers: &[WorkerThread]) -> String {
    let share = |worker: &WorkerThread| {
        let (counters, dealing) = (&worker.counters, &worker.counters.dealing);
        (counters.active.get() + dealing.parked.get() + dealing.queued.get()).to_string()
    };
    format!("shares {}\n", workers.iter().map(share).collect::<Vec<_>>().join(" "))
}

/// A line for each worker whose thread the kernel accounts for: since it began, how many of its turns were found late
/// because it had no core, and the nanoseconds that it was ready and had none.
fn cores(workers: &[WorkerThread]) -> String {
    let views = housekeeping::handle().workers();
    let line = |view: &WorkerView| {
        let worker = workers.iter().find(|worker| worker.recorder.worker() == view.worker)?;
        let (late, waited) = (worker.counters.dealing.lost_core.get(), view.thread.as_ref()?.run_queue_ns);
        Some(format!("core {} {late} {waited}\n", view.worker))
    };
    views.iter().filter_map(line).collect()
}

/// A line for each worker that is stuck.
fn stuck() -> String {
    let line = |blocked: super::blocked::BlockedLoop| {
        let time = crate::table::time(blocked.ns);
        format!("stuck worker {} for {time} in location {}\n", blocked.worker, blocked.location)
    };
    super::blocked::now().into_iter().map(line).collect()
}

/// A window at most.
const LONGEST: Duration = Duration::from_secs(3600);
const COLUMNS: [TableColumn; 5] = [
    TableColumn("resource", "resource"),
    TableColumn("utilisation", "utilisation"),
    TableColumn("saturation", "saturation"),
    TableColumn("errors", "errors"),
    TableColumn("since start", "since_start"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_the_window_and_all() {
        let tell = |[lost, late]: [u64; 2]| format!("{lost} lost, {late} late");
        let count = |moment: &(u64, u64)| [moment.0, moment.1];
        assert_eq!(
            errors((&(198_000, 2), &(198_000, 5)), count, tell),
            ["0 lost, 3 late", "198000 lost, 5 late"]
        );
        // A worker that ended took its counts along.
        assert_eq!(errors((&(7, 0), &(3, 0)), count, tell), ["0 lost, 0 late", "3 lost, 0 late"]);
    }
}
