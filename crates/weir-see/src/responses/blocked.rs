//! `blocked`: turns of a loop that took too long, what was going on, and which requests had to wait; also while one
//! lasts.

use std::collections::HashMap;
use std::time::Duration;

use weir_rt::clock;
use weir_rt::sampler::StackFrame;
use weir_server::housekeeping::{self, WorkerStall};
use weir_trace::{LoopStall, RequestId, StallConnections};

use super::reply::{ReplyFailure, ReplySink, pause};
use super::reqs;
use crate::control::protocol::ControlQuestion;
use crate::filter::duration_ns;
use crate::source::{ServerSource, scale};
use crate::table::{TableCell, TableColumn, TableReport, time};
use weir_http::json::JsonWriter;

/// The last stalls of at least `over`, oldest first; with `follow` also those to come, each once it is over.
pub(super) fn respond(question: &ControlQuestion, reply: &mut dyn ReplySink) -> Result<(), ReplyFailure> {
    let over = question.value("over").map(duration_ns).transpose()?.unwrap_or(0);
    let mut teller = StallReporter { over, json: question.has("json"), reported: HashMap::new() };
    let mut all = teller.news(StallsWanted::All);
    let count = question.number("n", u64::MAX)?.min(all.len() as u64) as usize;
    all.drain(..all.len() - count).for_each(drop);
    reply.out(all.concat().as_bytes())?;
    if !question.has("follow") {
        if all.is_empty() {
            reply.note("no loop was blocked that long")?;
        }
        return Ok(());
    }
    while pause(reply, EVERY) {
        for text in teller.news(StallsWanted::Settled) {
            reply.out(text.as_bytes())?;
        }
    }
    Ok(())
}

/// Remembers which stalls were reported.
struct StallReporter {
    over: u64,
    json: bool,
    /// By worker: when the last reported one began.
    reported: HashMap<u16, u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StallsWanted {
    All,
    /// What is over and known from all sides: worker and watchdog report a stall one after the other.
    Settled,
}

impl StallReporter {
    /// What is new, oldest first.
    fn news(&mut self, wanted: StallsWanted) -> Vec<String> {
        let now = clock::ticks();
        let mut news = Vec::new();
        for stall in housekeeping::handle().stalls() {
            let reported = self.reported.get(&stall.worker).copied().unwrap_or(0);
            let (start, lasted) = (stall.stall.start, duration(&stall, now));
            let age = scale(now.saturating_sub(start)).saturating_sub(lasted);
            let settled = wanted == StallsWanted::All || !stall.ongoing && age >= SETTLED.as_nanos() as u64;
            if start > reported && lasted >= self.over && settled {
                self.reported.insert(stall.worker, start);
                news.push(if self.json { json(&stall, now) } else { text(&stall, now) });
            }
        }
        news
    }
}

/// Nanoseconds; of one that lasts, until now.
pub(super) fn duration(stall: &WorkerStall, now: u64) -> u64 {
    match stall.ongoing {
        true => scale(now.saturating_sub(stall.stall.start)),
        false => scale(stall.stall.duration),
    }
}

fn text(reported: &WorkerStall, now: u64) -> String {
    let (stall, sample) = (&reported.stall, &reported.stall.sample);
    let verb = if reported.ongoing { "is blocked since" } else { "was blocked for" };
    let mut out = format!(
        "worker {} {verb} {} ({} ago) in {}, location {}",
        reported.worker,
        time(duration(reported, now)),
        time(scale(now.saturating_sub(stall.start))),
        reqs::at(sample.site),
        location(stall),
    );
    if sample.request != RequestId::default() {
        out.push_str(&format!(", req {}", sample.request));
    }
    out.push('\n');
    if stall.state != 0 {
        out.push_str(&format!("  thread {}", state(stall.state)));
        if let Some(number) = stall.syscall {
            out.push_str(&format!(", system call {}", syscall(number)));
        }
        if !stall.wait_channel.is_empty() {
            out.push_str(&format!(", in {}", stall.wait_channel));
        }
        out.push('\n');
    }
    if stall.asleep + stall.no_core > 0 {
        let (asleep, no_core) = (scale(stall.asleep), scale(stall.no_core));
        let on = duration(reported, now).saturating_sub(asleep + no_core);
        out.push_str(&format!(
            "  {} on the processor, {} asleep in calls, {} without a processor\n",
            time(on),
            time(asleep),
            time(no_core)
        ));
    }
    if let Some(StallConnections { handed_on, dealt_elsewhere, stayed }) = stall.connections {
        out.push_str(&format!(
            "  connections: {handed_on} handed on to other workers, {dealt_elsewhere} new ones dealt to others, {stayed} stayed\n"
        ));
    }
    for frame in &sample.frames {
        out.push_str(&format!("    {}\n", address(*frame)));
    }
    for (request, ticks) in &stall.victims {
        out.push_str(&format!("  made wait {request} {}\n", time(scale(*ticks))));
    }
    out
}

fn json(reported: &WorkerStall, now: u64) -> String {
    let (stall, sample) = (&reported.stall, &reported.stall.sample);
    JsonWriter::object(|json| {
        json.key("worker").raw(reported.worker);
        json.key("ongoing").raw(reported.ongoing);
        json.key("duration_ns").raw(duration(reported, now));
        json.key("age_ns").raw(scale(now.saturating_sub(stall.start)));
        json.key("site").text(&reqs::at(sample.site));
        json.key("location").text(&location(stall));
        json.key("request").text(&sample.request.to_string());
        if stall.state != 0 {
            json.key("state").text(&char::from(stall.state).to_string());
        }
        if let Some(number) = stall.syscall {
            json.key("syscall").text(&syscall(number));
        }
        json.key("wait_channel").text(&stall.wait_channel);
        json.key("asleep_ns").raw(scale(stall.asleep));
        json.key("no_core_ns").raw(scale(stall.no_core));
        if let Some(connections) = stall.connections {
            json.key("connections_handed_on").raw(connections.handed_on);
            json.key("connections_dealt_elsewhere").raw(connections.dealt_elsewhere);
            json.key("connections_stayed").raw(connections.stayed);
        }
        json.key("stack").list(|json| sample.frames.iter().for_each(|frame| json.text(&address(*frame))));
        json.key("victims").list(|json| {
            for (request, ticks) in &stall.victims {
                json.nested(|json| {
                    json.key("request").text(&request.to_string());
                    json.key("waited_ns").raw(scale(*ticks));
                });
            }
        });
    }) + "\n"
}

/// The location of what ran: the request's, or that of the place in which it was.
pub(super) fn location(stall: &LoopStall) -> String {
    match reqs::location(stall.route).as_str() {
        "-" => reqs::location(stall.sample.site),
        location => location.to_owned(),
    }
}

/// An address for the command to name, `?` with one that was guessed.
pub(super) fn address(word: u64) -> String {
    let frame = StackFrame::unpack(word);
    match frame {
        StackFrame::Native(address) => format!("@{address:x}@"),
        StackFrame::Guessed(address) => format!("@{address:x}?@"),
        _ => frame.lua_name().unwrap_or_default(),
    }
}

fn state(letter: u8) -> &'static str {
    match letter {
        b'R' => "runs",
        b'S' => "sleeps",
        b'D' => "sleeps uninterruptibly",
        _ => "is in another state",
    }
}

/// A system call by its name, where loops meet it; else by its number.
pub(super) fn syscall(number: u32) -> String {
    let name =
        SYSCALLS.iter().find(|(known, _)| *known == i64::from(number)).map(|(_, name)| (*name).to_owned());
    name.unwrap_or_else(|| number.to_string())
}

/// A loop that is in a turn longer than allowed, at this moment.
pub(crate) struct BlockedLoop {
    pub(crate) worker: u16,
    /// How long already.
    pub(crate) ns: u64,
    /// The request that holds it, if one does.
    pub(crate) request: Option<RequestId>,
    /// What that asks for, or nothing.
    pub(crate) what: String,
    pub(crate) location: String,
}

/// The loops that are blocked now.
pub(crate) fn now() -> Vec<BlockedLoop> {
    let housekeeping = housekeeping::handle();
    let limit = housekeeping.settings().blocked.unwrap_or(UNWATCHED);
    let watched = housekeeping.watched();
    let views = housekeeping.workers();
    let late = views.iter().filter_map(|view| Some((view, view.busy.filter(|busy| *busy >= limit)?)));
    late.map(|(view, busy)| {
        let running = watched.iter().find(|one| one.worker == view.worker).and_then(|one| one.now.running());
        BlockedLoop {
            worker: view.worker,
            ns: busy.as_nanos() as u64,
            request: running.map(|request| request.id),
            what: running.map_or(String::new(), |request| format!("{} {}", request.method, request.path)),
            location: reqs::location(running.map_or(view.place.1, |request| request.route)),
        }
    })
    .collect()
}

/// Lines about the loops that are blocked now, to be below a table.
pub(crate) fn warning() -> String {
    let line = |blocked: BlockedLoop| {
        let request = blocked.request.map_or(String::new(), |id| format!(" by {} (req {id})", blocked.what));
        format!(
            "worker {} is blocked for {} in location {}{request}\n",
            blocked.worker,
            time(blocked.ns),
            blocked.location
        )
    };
    now().into_iter().map(line).collect()
}

/// `blame`: which locations made which others wait inside the loop, since the server began.
pub(crate) fn blame(source: &ServerSource, question: &ControlQuestion) -> String {
    let mut sums: HashMap<(String, String), (u64, u64)> = HashMap::new();
    for blame in source.workers().iter().flat_map(|worker| worker.now.blame()) {
        let sum = sums.entry((reqs::location(blame.victim), culprit(blame.culprit))).or_default();
        *sum = (sum.0 + blame.ticks, sum.1 + blame.times);
    }
    let mut report = TableReport::new(&BLAME);
    for ((victim, culprit), (ticks, times)) in sums {
        report.row([
            TableCell::Text(victim),
            TableCell::Text(culprit),
            TableCell::Count(times),
            TableCell::Time(scale(ticks)),
            TableCell::Time(scale(ticks / times.max(1))),
        ]);
    }
    report.sort_by(|row| if let TableCell::Time(time) = row[3] { time as f64 } else { 0.0 });
    report.write(question.has("json"))
}

/// Delay that no request caused is the loop's own: accepting, timers, receiving.
fn culprit(route: weir_trace::Site) -> String {
    if route == weir_trace::Site::OTHER { "the loop".to_owned() } else { reqs::location(route) }
}

/// System calls in which a thread may be found, by their numbers.
const SYSCALLS: [(i64, &str); 42] = [
    (libc::SYS_read, "read"),
    (libc::SYS_write, "write"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_close, "close"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_futex, "futex"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_poll, "poll"),
    (libc::SYS_preadv2, "preadv2"),
    (libc::SYS_nanosleep, "nanosleep"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_wait4, "wait4"),
    (libc::SYS_clone, "clone"),
    (libc::SYS_clone3, "clone3"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_sendfile, "sendfile"),
    (libc::SYS_getdents64, "getdents64"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_pselect6, "pselect6"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_accept4, "accept4"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_waitid, "waitid"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_newfstatat, "newfstatat"),
    (libc::SYS_statx, "statx"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_fallocate, "fallocate"),
    (libc::SYS_copy_file_range, "copy_file_range"),
    (libc::SYS_msync, "msync"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
];
const BLAME: [TableColumn; 5] = [
    TableColumn("location that waited", "victim"),
    TableColumn("because of", "culprit"),
    TableColumn("times", "times"),
    TableColumn("total", "total_ns"),
    TableColumn("mean", "mean_ns"),
];
/// A turn that is long where no limit is set.
const UNWATCHED: Duration = Duration::from_millis(100);
/// How often is looked for news.
const EVERY: Duration = Duration::from_millis(100);
/// A stall is reported this long after its end, when worker and watchdog have both said what they know.
pub(super) const SETTLED: Duration = Duration::from_millis(30);
