//! `record`: what the workers did in the last seconds, or in the next, as a timeline for Perfetto.
//!
//! A worker is a thread, with what it ran: stretches of requests, and the turns that were too long. Requests are below
//! in lanes, as many as there were at once, each with its phases, filters and waits inside.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use weir_rt::clock::{self, ClockMoment};
use weir_trace::walk::{OpenStep, TraceStretch, TraceVisitor, walk};
use weir_trace::{InFlight, KeptRequest, LoopStall, Site, SiteTable, TraceWatch, WaitKind};

use super::reply::{ReplyFailure, ReplySink, STEP};
use super::reqs;
use crate::control::protocol::ControlQuestion;
use crate::filter::{RequestFilter, duration_ns};
use crate::formats::perfetto::{PerfettoTimeline, TrackNumber};
use crate::source::{PATIENCE, ServerSource, ticks};

/// The timeline of the requests retained in the last `for` (a time); with `next` of every request that ends in it.
pub(crate) fn respond(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    let time = Duration::from_nanos(duration_ns(question.value("for").unwrap_or("10s"))?).min(LONGEST);
    let filter = RequestFilter::parse(question.value("match").unwrap_or(""))?;
    let next = question.has("next");
    let since = clock::ticks().saturating_sub(if next { 0 } else { ticks(time.as_nanos() as u64) });
    let kept = match next {
        true => coming(source, filter, time, reply)?,
        false => last(source, &filter, since),
    };
    Ok(reply.out(&file(kept, stalls(source, since), &[], None))?)
}

/// The loops that were blocked after `since`, with their workers.
pub(crate) fn stalls(source: &ServerSource, since: u64) -> Vec<(u16, LoopStall)> {
    let mut stalls = Vec::new();
    for worker in source.workers() {
        let lately =
            worker.recorder.stalls().list().into_iter().filter(|stall| stall.start + stall.duration >= since);
        stalls.extend(lately.map(|stall| (worker.recorder.worker(), stall)));
    }
    stalls
}

/// The retained requests that ended after `since`.
fn last(source: &ServerSource, filter: &RequestFilter, since: u64) -> Vec<KeptRequest> {
    let filter = filter.clone();
    let said = source.ask(PATIENCE, move |worker| {
        let recorder = worker.recorder.borrow();
        let wanted = |kept: &&KeptRequest| end(kept) >= since && filter.takes(kept.record());
        recorder.kept().filter(wanted).cloned().collect::<Vec<_>>()
    });
    said.answers.into_iter().flatten().collect()
}

/// Every request that ends in the next `time`, [`MOST`] at most.
fn coming(
    source: &ServerSource,
    filter: RequestFilter,
    time: Duration,
    reply: &mut dyn ReplySink,
) -> Result<Vec<KeptRequest>, ReplyFailure> {
    let (watch, delivered) = TraceWatch::channel(MOST, move |record| filter.takes(record));
    let asked = watch.clone();
    source.tell(move |worker| worker.recorder.borrow_mut().watch(asked.clone()));
    let until = Instant::now() + time;
    let mut kept = Vec::new();
    while kept.len() < MOST && Instant::now() < until && !reply.is_stopped() {
        match delivered.recv_timeout(STEP) {
            Ok(one) => kept.push(one),
            Err(RecvTimeoutError::Timeout) => {
                let left = until.saturating_duration_since(Instant::now());
                reply.note(&format!("{} requests, {:.0} s left", kept.len(), left.as_secs_f64().ceil()))?;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    watch.cancel();
    kept.extend(delivered.try_iter());
    Ok(kept)
}

/// When a request ended, in ticks.
pub(crate) fn end(kept: &KeptRequest) -> u64 {
    kept.record().start + kept.record().total
}

/// The timeline of requests and blocked loops; of a process that dies of `signal` also of what was in flight.
pub(crate) fn file(
    mut kept: Vec<KeptRequest>,
    stalls: Vec<(u16, LoopStall)>,
    in_flight: &[InFlight],
    signal: Option<i32>,
) -> Vec<u8> {
    kept.sort_by_key(|kept| kept.record().start);
    let mut numbers: Vec<u16> = kept.iter().map(|kept| kept.record().worker).collect();
    numbers.extend(stalls.iter().map(|(worker, _)| *worker));
    numbers.extend(in_flight.iter().map(|request| request.worker));
    numbers.sort_unstable();
    numbers.dedup();
    let pid = std::process::id();
    let mut drawing =
        TimelineDrawing { timeline: PerfettoTimeline::new(pid, "weir"), now: ClockMoment::now() };
    for worker in numbers {
        // Threads of one process have no number twice; this one is no kernel's.
        let thread = drawing.timeline.thread(pid + 1 + u32::from(worker), &format!("worker {worker}"));
        let stalled: Vec<&LoopStall> =
            stalls.iter().filter(|(on, _)| *on == worker).map(|(_, stall)| stall).collect();
        if !stalled.is_empty() {
            drawing.stalls(worker, &stalled);
        }
        let mut lanes: Vec<(u64, TrackNumber)> = Vec::new();
        for one in kept.iter().filter(|kept| kept.record().worker == worker) {
            let free = lanes.iter().position(|(until, _)| *until <= one.record().start);
            let lane = free.unwrap_or_else(|| {
                let name = format!("worker {worker}, requests {}", lanes.len() + 1);
                lanes.push((0, drawing.timeline.track(&name)));
                lanes.len() - 1
            });
            lanes[lane].0 = end(one);
            drawing.request(one, thread, lanes[lane].1);
        }
        for request in in_flight.iter().filter(|request| request.worker == worker) {
            drawing.unfinished(request);
        }
    }
    if let Some(signal) = signal {
        let track = drawing.timeline.track("crash");
        let now = drawing.now.unix_ns;
        drawing.timeline.slice(track, now, now + MARK, &format!("signal {signal}"), &[]);
    }
    drawing.timeline.finish()
}

/// How process `pid` ended, at this moment: to follow a timeline of that process.
pub(crate) fn end_of(pid: u32, how: &str) -> Vec<u8> {
    let mut timeline = PerfettoTimeline::after(pid);
    let track = timeline.track("end");
    let now = clock::unix_ns();
    timeline.slice(track, now, now + MARK, &format!("server process {pid} {how}"), &[]);
    timeline.finish()
}

struct TimelineDrawing {
    timeline: PerfettoTimeline,
    now: ClockMoment,
}

impl TimelineDrawing {
    fn stalls(&mut self, worker: u16, stalls: &[&LoopStall]) {
        let track = self.timeline.track(&format!("worker {worker}, blocked"));
        for stall in stalls {
            let (from, to) = (self.now.unix_ns(stall.start), self.now.unix_ns(stall.start + stall.duration));
            let (site, request) = (reqs::at(stall.sample.site), stall.sample.request.to_string());
            let said = [("request", &*request), ("wait_channel", &*stall.wait_channel)];
            self.timeline.slice(track, from, to, &format!("blocked in {site}"), &said);
        }
    }

    /// A request that has not ended, on a lane of its own.
    fn unfinished(&mut self, request: &InFlight) {
        let track = self.timeline.track(&format!("worker {}, in flight", request.worker));
        let doing = match request.wait {
            Some(wait) => format!("waits {}", wait.as_str()),
            None if request.is_running => "runs".to_owned(),
            None => "ready".to_owned(),
        };
        let (id, location, site) =
            (request.id.to_string(), reqs::location(request.route), reqs::at(request.site));
        let said = [("request", &*id), ("state", &*doing), ("location", &*location), ("in", &*site)];
        let name = format!("{} {}", request.method, request.path);
        let (from, to) = (self.now.unix_ns(request.start), self.now.unix_ns);
        self.timeline.slice(track, from.min(to), to, &name, &said);
    }

    /// A request on its lane, and what it ran on its worker's thread.
    fn request(&mut self, kept: &KeptRequest, thread: TrackNumber, lane: TrackNumber) {
        let record = kept.record();
        let name = format!("{} {}", record.method, record.path);
        let (id, status) = (record.id.to_string(), record.status.to_string());
        let route =
            if record.route.is_none() { "-".into() } else { SiteTable::global().info(record.route).location };
        let said = [
            ("request", &*id),
            ("status", &*status),
            ("location", &*route),
            ("kept because", kept.why().says()),
        ];
        let (begin, end) = (record.start, end(kept));
        self.timeline.begin(lane, self.now.unix_ns(begin), &name, &said);
        let mut request = RequestDrawing { drawing: self, lane, thread, name: &name, running: Some(begin) };
        walk(kept, begin, &mut request);
        self.timeline.end(lane, self.now.unix_ns(end));
    }
}

/// A request as it is drawn on the way through it.
struct RequestDrawing<'a> {
    drawing: &'a mut TimelineDrawing,
    lane: TrackNumber,
    thread: TrackNumber,
    name: &'a str,
    /// Since when it has been running, in ticks.
    running: Option<u64>,
}

impl RequestDrawing<'_> {
    fn slice(&mut self, TraceStretch { from, to }: TraceStretch, name: &str) {
        let now = &self.drawing.now;
        let (from, to) = (now.unix_ns(from), now.unix_ns(to));
        self.drawing.timeline.slice(self.lane, from, to, name, &[]);
    }
}

impl TraceVisitor for RequestDrawing<'_> {
    type Step = ();

    fn opens(&mut self, site: Site, at: u64, _around: &[OpenStep<()>]) {
        self.drawing.timeline.begin(self.lane, self.drawing.now.unix_ns(at), &called(site), &[]);
    }

    fn closes(&mut self, (): (), at: u64) {
        self.drawing.timeline.end(self.lane, self.drawing.now.unix_ns(at));
    }

    fn passes(&mut self, site: Site, stretch: TraceStretch, _around: &[OpenStep<()>]) {
        self.slice(stretch, &called(site));
    }

    fn stops(&mut self, at: u64) {
        if let Some(since) = self.running.take() {
            let now = &self.drawing.now;
            let (from, to) = (now.unix_ns(since), now.unix_ns(at));
            self.drawing.timeline.slice(self.thread, from, to, self.name, &[]);
        }
    }

    fn waits(&mut self, kind: WaitKind, stretch: TraceStretch, _inside: Option<&()>) {
        self.slice(stretch, &format!("wait {}", kind.as_str()));
        self.running = Some(stretch.to);
    }
}

/// A site as slices name it: handlers with their phase, `content static`.
fn called(site: Site) -> String {
    let info = SiteTable::global().info(site);
    match info.phase.filter(|phase| **phase != *info.name) {
        Some(phase) => format!("{phase} {}", info.name),
        None => info.label(),
    }
}

/// Requests at most: at half a kilobyte of boundaries each, some ten megabytes.
const MOST: usize = 20_000;
/// How long a moment is drawn, in nanoseconds, that it can be seen.
const MARK: u64 = 1_000_000;
/// A recording at most.
const LONGEST: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::protobuf::tests::{all, read};
    use weir_trace::{Recorder, RecorderSettings, RequestId, RequestRecord, SiteKind, Trace};

    /// A request that runs 100 ticks, waits 1,000 in the access phase, and runs 50 in a filter.
    fn kept(id: u128, start: u64) -> KeptRequest {
        let sites = SiteTable::global();
        let access = sites.intern(SiteKind::Handler(6), "/record", "access");
        let gzip = sites.intern(SiteKind::BodyFilter, "/record", "gzip");
        let mut recorder = Recorder::new(3, RecorderSettings { sample: 1, ..RecorderSettings::default() });
        let mut trace = Trace::new();
        recorder.begin(&mut trace, start);
        trace.enter(access, start);
        trace.wait_kind(WaitKind::Timer);
        trace.suspend(start + 100);
        trace.resume(start + 1_100);
        trace.leave(access, start + 1_100);
        trace.mark(gzip, start + 1_150);
        trace.end(start + 1_150);
        let mut record = RequestRecord { id: RequestId(id), status: 200, ..RequestRecord::default() };
        record.method.set(b"GET");
        record.set_path(b"/record/a");
        recorder.finish(&mut trace, record);
        recorder.kept().next().expect("every one is drawn").clone()
    }

    /// Per track the slices with their nesting, in order: `name` begins, `-` ends.
    fn tracks(file: &[u8]) -> Vec<(String, Vec<String>)> {
        let mut tracks: Vec<(u64, String, Vec<String>)> = Vec::new();
        for (_, packet) in read(file) {
            let packet = packet.fields();
            for track in all(&packet, 60) {
                let track = track.fields();
                let thread = all(&track, 4).first().map(|thread| all(&thread.fields(), 5)[0].text());
                let name =
                    thread.or_else(|| all(&track, 2).first().map(|name| name.text())).unwrap_or_default();
                tracks.push((all(&track, 1)[0].number(), name, Vec::new()));
            }
            for event in all(&packet, 11) {
                let event = event.fields();
                let on = all(&event, 11)[0].number();
                let said = all(&event, 23).first().map_or("-".to_owned(), |name| name.text());
                tracks.iter_mut().find(|(track, ..)| *track == on).expect("described before").2.push(said);
            }
        }
        tracks.into_iter().map(|(_, name, said)| (name, said)).collect()
    }

    #[test]
    fn requests_at_once_have_lanes_and_the_worker_what_it_ran() {
        // In nanoseconds whatever a tick is, so that none of it is rounded away.
        let unit = ticks(1_000_000) / 1_000;
        let (one, two, three) =
            (kept(1, unit * 10_000), kept(2, unit * 10_000 + 500), kept(3, unit * 20_000));
        let tracks = tracks(&file(vec![three, one, two], Vec::new(), &[], None));
        let names: Vec<&str> = tracks.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["", "worker 3", "worker 3, requests 1", "worker 3, requests 2"]);
        let request = ["GET /record/a", "access", "wait timer", "-", "-", "body_filter gzip", "-", "-"];
        assert_eq!(tracks[2].1, [request, request].concat());
        assert_eq!(tracks[3].1, request);
        let runs = |count| vec![["GET /record/a", "-"]; count].concat();
        assert_eq!(tracks[1].1.len(), runs(6).len());
    }

    #[test]
    fn blocked_turns_have_a_track() {
        let stall = LoopStall { start: 5, duration: 7, ..LoopStall::default() };
        let tracks = tracks(&file(Vec::new(), vec![(1, stall)], &[], None));
        assert_eq!(tracks[2].0, "worker 1, blocked");
        assert_eq!((tracks[2].1[0].starts_with("blocked in "), tracks[2].1.len()), (true, 2));
    }
    #[test]
    fn a_crash_shows_what_was_in_flight_and_how_it_ended() {
        let now = weir_trace::WorkerNow::new(4);
        now.enter(RequestId(9), clock::ticks(), b"GET", b"/crash");
        let in_flight = now.reader().requests();
        let mut record = file(vec![kept(1, 5)], Vec::new(), &in_flight, Some(11));
        record.extend(end_of(77, "exited on signal 11"));
        let tracks = tracks(&record);
        let last: Vec<(&str, &[String])> =
            tracks.iter().rev().take(3).map(|(name, said)| (name.as_str(), &said[..])).collect();
        let said = |text: &str| [text.to_owned(), "-".to_owned()];
        assert_eq!(last[0], ("end", &said("server process 77 exited on signal 11")[..]));
        assert_eq!(last[1], ("crash", &said("signal 11")[..]));
        assert_eq!(last[2], ("worker 4, in flight", &said("GET /crash")[..]));
    }
}
