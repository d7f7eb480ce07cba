//! Prints what a boundary and a request's end cost, in nanoseconds, with a clock that costs nothing.
//!
//! `cargo run --release -p weir-trace --example mark_cost`

use std::hint::black_box;
use std::time::Instant;

use weir_trace::{
    AverageTree, ConnectionStep, EventTape, LoopRun, Recorder, RecorderSettings, RequestId, RequestRecord,
    Site, SiteKind, SiteTable, Trace, TraceLevel, WorkerNow,
};

const REQUESTS: u64 = 300_000;

fn main() {
    let sites = Sites::new();
    for (name, level) in
        [("off", TraceLevel::Off), ("sampled", TraceLevel::Sampled), ("full", TraceLevel::Full)]
    {
        let settings = RecorderSettings { level, ..RecorderSettings::default() };
        let marks = best(|| marks(settings));
        println!("{name:>8}: {marks:6.2} ns a mark");
        let bare = best(|| requests(settings, &sites, false));
        let whole = best(|| requests(settings, &sites, true));
        println!("{name:>8}: {bare:6.1} ns a request of 24 boundaries, {whole:6.1} with its end");
    }
    println!(
        "{:6.1} ns a request through twelve filters: 25 boundaries on a tape, 8 of them stamped",
        best(filtered)
    );
    println!("{:6.1} ns a request in flight, with its blame", best(flight));
    println!("{:6.1} ns a request of 24 boundaries added to an average", best(|| average(&sites)));
    println!("{} bytes a trace, {} a record", size_of::<Trace>(), size_of::<RequestRecord>());
}

/// The best of several rounds: others use this machine too.
fn best(mut round: impl FnMut() -> f64) -> f64 {
    (0..7).map(|_| round()).fold(f64::MAX, f64::min)
}

/// 48 marks a request, none of them ended in the recorder.
fn marks(settings: RecorderSettings) -> f64 {
    let mut recorder = Recorder::new(0, settings);
    let mut trace = Trace::new();
    let mut now = 0u64;
    let begun = Instant::now();
    for _ in 0..REQUESTS {
        recorder.begin(&mut trace, now);
        for site in 64..112 {
            now += 37;
            black_box(&mut trace).at(Site(site), || now);
        }
    }
    begun.elapsed().as_nanos() as f64 / (REQUESTS * 48) as f64
}

fn requests(settings: RecorderSettings, sites: &Sites, finish: bool) -> f64 {
    let mut recorder = Recorder::new(0, settings);
    let mut trace = Trace::new();
    let mut now = 0u64;
    let mut record = RequestRecord { route: sites.route, status: 200, ..RequestRecord::default() };
    record.set_path(b"/img/a.txt");
    let begun = Instant::now();
    for _ in 0..REQUESTS {
        recorder.begin(&mut trace, now);
        sites.play(black_box(&mut trace), &mut now);
        if finish {
            recorder.finish(&mut trace, black_box(record));
        }
    }
    begun.elapsed().as_nanos() as f64 / REQUESTS as f64
}

/// A file through twelve header filters and a body filter, as an engine writes it to a tape: what recording costs of
/// itself, besides its stamps.
fn filtered() -> f64 {
    let mut recorder = Recorder::new(0, RecorderSettings::default());
    let (mut trace, tape, mut now) = (Trace::new(), EventTape::new(), 0_u64);
    let filters: Vec<Site> = (80..92).map(Site).collect();
    let site = |number: u16| black_box(Site(number));
    let begun = Instant::now();
    for _ in 0..REQUESTS {
        let mut tick = || {
            now += 53;
            black_box(now)
        };
        recorder.begin(&mut trace, tick());
        tape.rewind(trace.last());
        trace.queued(&tape, site(64), tick());
        let mut whole = tape.mark_and_pass(site(65), [Site(66), Site(67)], tick());
        whole &= tape.pass(site(68)) && tape.mark(site(69), tick());
        for worked in [2, 4] {
            whole &= tape.pass_all(black_box(&filters[worked - 2..worked]).iter().copied());
            whole &= tape.open(site(80)) && tape.close(site(80), tick());
        }
        whole &= tape.pass_all(black_box(&filters[6..]).iter().copied()) && tape.mark(Site::HEADER, tick());
        whole &= tape.open(site(92)) && tape.close(site(92), tick()) && tape.bytes(site(92), 6, 6);
        whole &= tape.mark_and_pass(
            Site::step(ConnectionStep::Write),
            [Site::step(ConnectionStep::Finalise)],
            tick(),
        );
        assert!(whole, "the tape has room for all");
        trace.end_here(&tape);
        recorder.finish_with(&mut trace, &tape, |record| {
            record.clear();
            (record.status, record.route) = (200, Site(70));
        });
    }
    begun.elapsed().as_nanos() as f64 / REQUESTS as f64
}

/// A request that enters the table of those in flight, is routed, accounted and leaves; 16 in a turn of the loop.
fn flight() -> f64 {
    let now = WorkerNow::new(0);
    let begun = Instant::now();
    for n in 1..=REQUESTS {
        let ticket = now.enter(RequestId(n.into()), n, black_box(b"GET"), black_box(b"/images/a.txt"));
        now.routed(ticket, Site(70));
        let turn = n & !15;
        now.ran(LoopRun { turn, start: n, end: n + 1, route: Site(70), queued: true });
        now.left(ticket);
    }
    begun.elapsed().as_nanos() as f64 / REQUESTS as f64
}

fn average(sites: &Sites) -> f64 {
    let (mut trace, mut now) = (Trace::new(), 0);
    trace.begin(now);
    sites.play(&mut trace, &mut now);
    let mut average = AverageTree::new();
    let begun = Instant::now();
    for _ in 0..REQUESTS {
        average.add(black_box(&trace), &sites.table);
    }
    begun.elapsed().as_nanos() as f64 / REQUESTS as f64
}

struct Sites {
    table: SiteTable,
    route: Site,
    phases: Vec<(Site, Site)>,
    filters: Vec<Site>,
}

impl Sites {
    fn new() -> Sites {
        let table = SiteTable::new();
        let pair = |phase| {
            (table.intern(SiteKind::Phase(phase), "/", ""), table.intern(SiteKind::Handler(phase), "/", "h"))
        };
        Sites {
            route: table.intern(SiteKind::Request, "/", ""),
            phases: [1, 3, 6, 9].map(pair).to_vec(),
            filters: ["not_modified", "headers", "range", "chunked"]
                .map(|name| table.intern(SiteKind::HeaderFilter, "/", name))
                .to_vec(),
            table,
        }
    }

    /// A static file: read, parsed, four phases with a handler each, four filters, written.
    fn play(&self, trace: &mut Trace, now: &mut u64) {
        let mut tick = || {
            *now += 53;
            *now
        };
        trace.at(Site::step(ConnectionStep::HeadRead), &mut tick);
        trace.at(Site::step(ConnectionStep::Parse), &mut tick);
        trace.at(Site::step(ConnectionStep::VirtualServer), &mut tick);
        for &(phase, handler) in &self.phases {
            trace.enter_at(phase, &mut tick);
            trace.at(handler, &mut tick);
            trace.leave_at(phase, &mut tick);
        }
        for &filter in &self.filters {
            trace.at(filter, &mut tick);
        }
        trace.bytes(self.filters[3], 4_000, 4_100);
        trace.at(Site::step(ConnectionStep::Write), &mut tick);
        trace.at(Site::step(ConnectionStep::Finalise), &mut tick);
        trace.end(tick());
    }
}
