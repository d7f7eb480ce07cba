//! `why`: gathers what the detectors of [`crate::why`] look at, over a window of seconds.

mod cpu;
mod settings;
mod tls;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_engine::figures::{self, FigureValue};
use weir_engine::log::{self, LastLine, LogLevel};
use weir_engine::worker::Worker;
use weir_rt::blocking::{self, PoolStats};
use weir_rt::sampler::StackFrame;
use weir_rt::{LoopSnapshot, clock};
use weir_server::housekeeping::{self, WorkerStall};
use weir_trace::{Site, SiteTable, SiteTotals, StatusCounts};
use weir_upstream::PeerTotals;
use weir_upstream::peer::{Peer, PeerHealth};

use super::capacity::{self, ZoneUse};
use super::log_lines::without_arguments;
use super::reply::{ReplyFailure, ReplySink, pause};
use super::reqs;
use super::upstreams::upstreams;
use crate::control::protocol::ControlQuestion;
use crate::filter::duration_ns;
use crate::handshakes::HandshakeCounts;
use crate::source::{BRIEFLY, ServerSource, WorkerThread, scale};
use crate::stall_cause;
use crate::why::errors::{message, place};
use crate::why::figures::{
    ErrorLoad, FileLoad, ListenerLoad, PeerLoad, StallCause, StallLoad, UpstreamLoad, WhyFigures, WorkerLoad,
    ZoneLoad,
};
use crate::why::{findings, json, text};

/// The heaviest findings of the time `every`, `n` at most.
pub(super) fn respond(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    let every = Duration::from_nanos(duration_ns(question.value("every").unwrap_or("2s"))?).min(LONGEST);
    let most = question.number("n", 5)? as usize;
    let before = WhyMoment::take(source);
    pause(reply, every);
    let after = WhyMoment::take(source);
    let figures = between(source, &before, &after);
    let found = findings(&figures, most);
    if question.has("json") {
        return Ok(reply.out(json(&figures, &found).as_bytes())?);
    }
    reply.out(text(&found).as_bytes())?;
    if found.is_empty() {
        reply.note(&format!("nothing is wrong that can be seen in {:.0} s", figures.seconds))?;
    }
    Ok(())
}

/// What was counted until one moment.
struct WhyMoment {
    at: Instant,
    ticks: u64,
    sites: BTreeMap<Site, SiteTotals>,
    workers: Vec<WorkerMoment>,
    peers: BTreeMap<(String, String), PeerTotals>,
    files: PoolStats,
    /// Lines of the error logs until then.
    lines: u64,
    /// Lines of logs that were lost until then.
    lost: u64,
    handshakes: HandshakeCounts,
    unix_ms: u64,
    zones: Vec<ZoneUse>,
}

struct WorkerMoment {
    worker: u16,
    turns: LoopSnapshot,
    cpu_ns: u64,
    run_queue_ns: u64,
    gc_ns: u64,
    late: u64,
}

impl WhyMoment {
    fn take(source: &ServerSource) -> WhyMoment {
        let (views, gc) = (housekeeping::handle().workers(), collected());
        let worker = |thread: &WorkerThread| {
            let worker = thread.recorder.worker();
            let view = views.iter().find(|view| view.worker == worker);
            WorkerMoment {
                worker,
                turns: thread.stats.snapshot(),
                cpu_ns: view.and_then(|view| view.thread).map_or(0, |thread| thread.cpu_ns),
                run_queue_ns: view.and_then(|view| view.thread).map_or(0, |thread| thread.run_queue_ns),
                gc_ns: gc.get(&worker).copied().unwrap_or(0),
                late: thread.counters.dealing.lost_core.get(),
            }
        };
        let mut peers = BTreeMap::<(String, String), PeerTotals>::new();
        each_peer(source, |upstream, peer| {
            let key = (upstream.to_owned(), peer.name.to_string());
            peers.entry(key).or_default().merge(&peer.state.totals());
        });
        WhyMoment {
            at: Instant::now(),
            ticks: clock::ticks(),
            sites: source.totals().into_iter().collect(),
            workers: source.workers().iter().map(worker).collect(),
            peers,
            files: blocking::pool_stats(),
            lines: log::lines_logged(),
            lost: log::lost(),
            handshakes: HandshakeCounts::of(&source.workers()),
            zones: capacity::zones(source),
            unix_ms: clock::unix_ns() / 1_000_000,
        }
    }
}

fn each_peer(source: &ServerSource, mut each: impl FnMut(&str, &Peer)) {
    for upstream in upstreams(&source.configuration()) {
        upstream.members().all().for_each(|peer| each(&upstream.name, peer));
    }
}

/// What the collectors of the workers' Lua VMs have taken, in nanoseconds.
fn collected() -> BTreeMap<u16, u64> {
    let Some(table) = figures::table("lua", "gc") else { return BTreeMap::new() };
    let column = table.columns.iter().position(|(_, key)| *key == "gc_ns");
    let row = |row: &Vec<FigureValue>| match (row.first()?, row.get(column?)?) {
        (FigureValue::Count(worker), FigureValue::Time(ns)) => Some((u16::try_from(*worker).ok()?, *ns)),
        _ => None,
    };
    table.rows.iter().filter_map(row).collect()
}

fn between(source: &ServerSource, before: &WhyMoment, after: &WhyMoment) -> WhyFigures {
    let time = after.at.duration_since(before.at);
    let workers = workers(source, before, after, time);
    let emfile = |moment: &WhyMoment| moment.workers.iter().map(|worker| worker.turns.emfile).sum::<u64>();
    let open: u64 = source.workers().iter().map(connections).sum();
    let room = source.ask(BRIEFLY, Worker::most).whole(|most| most.into_iter().fold(0, u64::saturating_add));
    let mut figures = WhyFigures {
        seconds: time.as_secs_f64(),
        modules: Vec::new(),
        stalls: stalls(&workers, before.ticks, after.ticks),
        workers,
        upstreams: peers(source, before, after),
        files: FileLoad {
            done: after.files.done - before.files.done,
            // Without what the jobs had run before, that ran then.
            ns: after.files.ran_ns.saturating_sub(before.files.ran_ns),
            running: after.files.running,
            oldest_ns: after.files.runs_ns.checked_div(after.files.running).unwrap_or(0),
        },
        listeners: source
            .backlogs()
            .iter()
            .map(|backlog| ListenerLoad {
                name: backlog.addr.to_string(),
                waiting: backlog.waiting,
                room: backlog.room,
            })
            .collect(),
        errors: errors(before, after),
        no_descriptor: emfile(after).saturating_sub(emfile(before)),
        connections: (open, room.unwrap_or(0)),
        lost_lines: after.lost.saturating_sub(before.lost),
        zones: zones(before, after),
        ..WhyFigures::default()
    };
    if figures.lost_lines > 0 {
        figures.lost_why = lost_why();
    }
    tls::add(source, &mut figures, (&before.handshakes, &after.handshakes), before.unix_ms);
    cpu::add(source, &mut figures, before, after);
    figures
}

/// Zones of limits in which something had to make room.
fn zones(before: &WhyMoment, after: &WhyMoment) -> Vec<ZoneLoad> {
    let load = |zone: &ZoneUse| {
        let was = before.zones.iter().find(|was| was.name == zone.name)?;
        let dropped = zone.full.saturating_sub(was.full);
        let is_limit = zone.name.starts_with("limit_");
        (is_limit && dropped > 0).then(|| ZoneLoad { name: zone.name.clone(), size: zone.size, dropped })
    };
    after.zones.iter().filter_map(load).collect()
}

/// What the error log says last of lines that were lost, without their number, which is another's.
fn lost_why() -> String {
    let (lines, _) = log::last_lines();
    let texts = lines.iter().rev().map(|line| String::from_utf8_lossy(&line.text));
    let said = texts.map(|text| message(&text).to_owned()).find(|said| said.ends_with(LOST));
    let said = said.as_deref().and_then(|said| said.rsplit_once(", ")).map_or("", |(why, _)| why);
    said.chars().take(LONGEST_MESSAGE).collect()
}

/// Locations with errors, with what the lines say that were logged meanwhile.
fn errors(before: &WhyMoment, after: &WhyMoment) -> Vec<ErrorLoad> {
    let (none, table) = (StatusCounts::default(), SiteTable::global());
    let (lines, gone) = log::last_lines();
    let all = gone + lines.len() as u64;
    let new = usize::try_from(all.saturating_sub(before.lines)).unwrap_or(usize::MAX);
    let lines = &lines[lines.len().saturating_sub(new)..];
    let load = |(site, now): (&Site, &SiteTotals)| {
        let now = now.status.as_ref()?;
        let was = before.sites.get(site).and_then(|was| was.status.as_ref()).unwrap_or(&none);
        let class = |class: usize| now.classes[class].saturating_sub(was.classes[class]);
        let (refused, failed) = (class(4), class(5));
        if refused + failed == 0 {
            return None;
        }
        let named = StatusCounts::NAMED.iter().zip(now.named.iter().zip(was.named));
        let most = named.map(|(status, (now, was))| (now.saturating_sub(was), *status)).max();
        let message = most_frequent(lines, *site);
        Some(ErrorLoad {
            location: table.info(*site).location.to_string(),
            responses: now.total().saturating_sub(was.total()),
            failed,
            refused,
            status: most.filter(|(count, _)| count * 2 > failed.max(refused)).map(|(_, status)| status),
            line: place(&message),
            message,
        })
    };
    after.sites.iter().filter_map(load).collect()
}

/// The message of most lines about requests of that location, without arguments; numbers in it may differ.
fn most_frequent(lines: &[LastLine], location: Site) -> String {
    let mut kinds = BTreeMap::<String, (u64, String)>::new();
    let about = |line: &&LastLine| line.about.is_some_and(|about| about.route == location);
    for line in lines.iter().filter(about).filter(|line| line.level <= LogLevel::Error) {
        let text = String::from_utf8_lossy(&line.text);
        let said = without_arguments(message(&text));
        let kind = said.chars().map(|char| if char.is_ascii_digit() { '#' } else { char }).collect();
        let kind = kinds.entry(kind).or_default();
        *kind = (kind.0 + 1, said);
    }
    let most = kinds.into_values().max_by_key(|(count, _)| *count).unwrap_or_default().1;
    most.chars().take(LONGEST_MESSAGE).collect()
}

/// A worker's connections, those too that wait for it or for any worker.
fn connections(worker: &WorkerThread) -> u64 {
    let dealing = &worker.counters.dealing;
    worker.counters.active.get() + dealing.parked.get() + dealing.queued.get()
}

fn workers(source: &ServerSource, before: &WhyMoment, after: &WhyMoment, time: Duration) -> Vec<WorkerLoad> {
    let threads = source.workers();
    let load = |now: &WorkerMoment| {
        let was = before.workers.iter().find(|was| was.worker == now.worker)?;
        let thread = threads.iter().find(|thread| thread.recorder.worker() == now.worker)?;
        let share = |ns: u64| (ns as f64 / time.as_nanos().max(1) as f64).min(1.0);
        Some(WorkerLoad {
            worker: now.worker,
            busy: share(now.cpu_ns.saturating_sub(was.cpu_ns)),
            run_queue: share(now.run_queue_ns.saturating_sub(was.run_queue_ns)),
            gc_ns: now.gc_ns.saturating_sub(was.gc_ns),
            connections: connections(thread),
            late: now.late.saturating_sub(was.late),
        })
    };
    after.workers.iter().filter_map(load).collect()
}

fn peers(source: &ServerSource, before: &WhyMoment, after: &WhyMoment) -> Vec<UpstreamLoad> {
    let nothing = PeerTotals::default();
    let mut all = Vec::<UpstreamLoad>::new();
    let now = clock::unix_time().0;
    each_peer(source, |upstream, peer| {
        let key = (upstream.to_owned(), peer.name.to_string());
        let Some(totals) = after.peers.get(&key) else { return };
        let lately = totals.since(before.peers.get(&key).unwrap_or(&nothing));
        let load = PeerLoad {
            name: key.1,
            requests: lately.requests,
            responses: lately.responses(),
            p50_us: lately.quantile(0.5).unwrap_or(0),
            faults: lately.faults,
            refused: lately.refused,
            reset: lately.reset,
            repeated: lately.repeated,
            out: left_out(peer, now),
        };
        match all.iter_mut().find(|known| known.name == upstream) {
            Some(known) if known.peers.iter().any(|other| other.name == load.name) => {}
            Some(known) => known.peers.push(load),
            None => all.push(UpstreamLoad { name: upstream.to_owned(), peers: vec![load] }),
        }
    });
    all
}

/// Why a peer gets no requests that should get some.
fn left_out(peer: &Peer, now: u64) -> Option<String> {
    let last = || peer.state.last.read().map_or("it failed", |(cause, _)| cause.as_str());
    match peer.health(now) {
        PeerHealth::Unhealthy => Some(peer.state.check().unwrap_or_else(|| "its check failed".to_owned())),
        PeerHealth::Unavailable => Some(last().to_owned()),
        PeerHealth::Slow => Some("it is left out for being slow".to_owned()),
        PeerHealth::Up | PeerHealth::Down | PeerHealth::Draining | PeerHealth::Busy => None,
    }
}

/// The stalls that ended after `since`, or last. One that has just ended and of which it is not known yet what was lost in
/// it is left out.
fn stalls(workers: &[WorkerLoad], since: u64, now: u64) -> Vec<StallLoad> {
    let all = housekeeping::handle().stalls();
    let lately = |stall: &&WorkerStall| {
        stall.ongoing || stall.stall.is_over && stall.stall.start + stall.stall.duration >= since
    };
    let starved = |stall: &WorkerStall| {
        workers.iter().any(|worker| worker.worker == stall.worker && worker.run_queue >= STARVED)
    };
    let mut seen: Vec<SeenStall> =
        all.iter().filter(lately).map(|stall| load(stall, now, starved(stall))).collect();
    infer(&mut seen);
    seen.into_iter().map(|seen| seen.load).collect()
}

/// A stall, and how much was seen of it while it lasted.
struct SeenStall {
    load: StallLoad,
    /// The call in which it slept.
    call: bool,
    /// Its stack.
    stack: bool,
}

impl SeenStall {
    /// Whether its cause is known from what was seen, not only from what was counted.
    fn is_sure(&self) -> bool {
        if self.load.cause.sleeps() { self.call } else { self.stack }
    }
}

/// Not each stall is seen while it lasts. Of what was not, the likeliest is what was seen in the same location, if that
/// slept, or computed, as well.
fn infer(all: &mut [SeenStall]) {
    for at in 0..all.len() {
        let this = &all[at];
        if this.is_sure() || this.load.cause == StallCause::NoCore {
            continue;
        }
        let like = |other: &&SeenStall| {
            other.is_sure()
                && other.load.location == this.load.location
                && other.load.cause != StallCause::NoCore
                && other.load.cause.sleeps() == this.load.cause.sleeps()
                && (this.load.line.is_empty() || this.load.line == other.load.line)
        };
        if let Some(other) = all.iter().find(like) {
            let (cause, by, line) = (other.load.cause, other.load.by.clone(), other.load.line.clone());
            let load = &mut all[at].load;
            (load.cause, load.by, load.line) = (cause, by, line);
        }
    }
}

fn load(reported: &WorkerStall, now: u64, starved: bool) -> SeenStall {
    let stall = &reported.stall;
    let ns = super::blocked::duration(reported, now);
    let stack: Vec<String> =
        stall.sample.frames.iter().filter_map(|word| StackFrame::unpack(*word).lua_name()).collect();
    let stack: Vec<&str> = stack.iter().map(String::as_str).collect();
    let (syscall, site) = (stall.syscall.map(super::blocked::syscall), reqs::at(stall.sample.site));
    let line = stack.iter().find(|frame| stall_cause::is_line_of_lua(frame));
    let load = StallLoad {
        location: super::blocked::location(stall),
        by: stall_cause::cause(&stack, syscall.as_deref(), &site),
        line: line.map_or_else(String::new, |line| (*line).to_owned()),
        cause: cause(reported, ns, syscall.as_deref(), starved),
        ns,
        waited: stall.victims.len() as u64,
        waited_ns: stall.victims.iter().map(|(_, ticks)| scale(*ticks)).sum(),
    };
    SeenStall { load, call: syscall.is_some(), stack: !stall.sample.frames.is_empty() }
}

/// What most of the time of a stall went to.
fn cause(reported: &WorkerStall, ns: u64, syscall: Option<&str>, starved: bool) -> StallCause {
    let stall = &reported.stall;
    // What was lost is known when it is over.
    let (asleep, no_core) = match (reported.ongoing, stall.state) {
        (false, _) => (scale(stall.asleep), scale(stall.no_core)),
        (true, b'S' | b'D') => (ns, 0),
        (true, _) if starved => (0, ns),
        (true, _) => (0, 0),
    };
    if no_core * 2 >= ns {
        return StallCause::NoCore;
    }
    if asleep * 2 < ns - no_core {
        return if stall.sample.vm_state == COLLECTS { StallCause::Collects } else { StallCause::Computes };
    }
    let uninterruptible = stall.state == b'D';
    match syscall {
        Some("futex" | "flock" | "fcntl") => StallCause::Locked,
        Some(call) if FILES.contains(&call) => StallCause::Disk,
        // Calls of pipes and sockets, too: these can be interrupted.
        Some("read" | "write" | "readv" | "writev" | "openat" | "close") | None if uninterruptible => {
            StallCause::Disk
        }
        _ => StallCause::Sleeps,
    }
}

/// Calls that sleep for a disk and nothing else.
const FILES: [&str; 7] = ["fsync", "fdatasync", "pread64", "preadv2", "pwrite64", "getdents64", "sendfile"];
/// A Lua VM's state: it collects garbage.
const COLLECTS: u8 = 3;
/// The share of the time without a core from which on a turn that lasts is taken to want one.
const STARVED: f64 = 0.4;
/// Characters of what an error log says of a location.
const LONGEST_MESSAGE: usize = 200;
/// How a line of the error log about lost lines ends.
const LOST: &str = " lines lost";
/// A window at most.
const LONGEST: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(location: &str, cause: StallCause, by: &str, (call, stack): (bool, bool)) -> SeenStall {
        let line = if stack { "a.lua:3".to_owned() } else { String::new() };
        let load = StallLoad {
            location: location.to_owned(),
            by: by.to_owned(),
            line,
            cause,
            ns: 20,
            waited: 0,
            waited_ns: 0,
        };
        SeenStall { load, call, stack }
    }

    #[test]
    fn what_was_not_seen_is_inferred_from_its_location() {
        let mut all = [
            seen("/a", StallCause::Sleeps, "content", (false, false)),
            seen("/a", StallCause::Locked, "flock at a.lua:3", (true, true)),
            seen("/b", StallCause::Sleeps, "content", (false, false)),
            seen("/a", StallCause::Computes, "content", (false, false)),
            seen("/a", StallCause::NoCore, "content", (false, false)),
            seen("/b", StallCause::Computes, "content", (false, false)),
            seen("/b", StallCause::Collects, "a.lua:3", (false, true)),
        ];
        infer(&mut all);
        let of = |at: usize| (all[at].load.cause, &*all[at].load.by);
        assert_eq!(of(0), (StallCause::Locked, "flock at a.lua:3"));
        assert_eq!(of(2), (StallCause::Sleeps, "content"));
        assert_eq!(of(3), (StallCause::Computes, "content"), "no other one computed there");
        assert_eq!(of(4), (StallCause::NoCore, "content"));
        assert_eq!(of(5), (StallCause::Collects, "a.lua:3"));
    }
}
