//! Whole requests: what the recorder keeps, and what comes out.

use weir_trace::{
    AverageTree, AverageWatch, Cause, ConnectionStep, EventKind, EventTape, InlineText, KeepReason, KeepRule,
    KeptRequest, Recorder, RecorderReader, RecorderSettings, RequestId, RequestRecord, Site, SiteKind,
    SiteTable, SlowLimit, Trace, TraceLevel, TraceWatch, WaitKind, render,
};

struct Sites {
    table: SiteTable,
    route: Site,
    access: Site,
    auth: Site,
    content: Site,
    gzip: Site,
    proxy: Site,
}

fn sites() -> Sites {
    let table = SiteTable::new();
    Sites {
        route: table.intern(SiteKind::Request, "/img/", ""),
        access: table.intern(SiteKind::Phase(6), "/img/", ""),
        auth: table.intern(SiteKind::Handler(6), "/img/", "auth_basic"),
        content: table.intern(SiteKind::Phase(9), "/img/", ""),
        proxy: table.intern(SiteKind::UpstreamTry, "/img/", "10.0.0.7:80"),
        gzip: table.intern(SiteKind::BodyFilter, "/img/", "gzip"),
        table,
    }
}

/// Ticks are nanoseconds here.
fn same(ticks: u64) -> u64 {
    ticks
}

/// 1,000 ns a step, 5,000 in access, 812,000 waiting for the peer, 19,000 for the loop.
fn play(trace: &mut Trace, sites: &Sites) {
    trace.mark(Site::step(ConnectionStep::HeadRead), 11_000);
    trace.mark(Site::step(ConnectionStep::Parse), 12_000);
    trace.enter(sites.access, 12_000);
    trace.mark(sites.auth, 17_000);
    trace.leave(sites.access, 17_000);
    trace.enter(sites.content, 17_000);
    trace.enter(sites.proxy, 17_000);
    trace.suspend(18_000);
    trace.wait_kind(WaitKind::UpstreamFirstByte);
    trace.resume_ready(830_000, 849_000);
    trace.leave(sites.proxy, 850_000);
    trace.mark(sites.gzip, 860_000);
    trace.bytes(sites.gzip, 3_000, 1_500);
    trace.mark(sites.gzip, 870_000);
    trace.bytes(sites.gzip, 1_000, 370);
    trace.leave(sites.content, 870_000);
    trace.mark(Site::step(ConnectionStep::Write), 880_000);
    trace.end(881_000);
}

fn record(sites: &Sites, status: u16, id: u128) -> RequestRecord {
    let mut record = RequestRecord {
        id: RequestId(id),
        route: sites.route,
        status,
        bytes_out: 1_870,
        method: InlineText::new(b"GET"),
        ..RequestRecord::default()
    };
    record.set_path(b"/img/a.txt?token=hush");
    record
}

fn one(recorder: &mut Recorder, sites: &Sites, status: u16, id: u128) {
    let mut trace = Trace::new();
    recorder.begin(&mut trace, 10_000);
    play(&mut trace, sites);
    recorder.finish(&mut trace, record(sites, status, id));
}

fn kept(sites: &Sites) -> KeptRequest {
    let mut recorder = Recorder::new(1, RecorderSettings { sample: 1, ..RecorderSettings::default() });
    one(&mut recorder, sites, 200, 0x7f3a);
    recorder.kept().next().expect("every request is drawn").clone()
}

fn quiet(level: TraceLevel) -> RecorderSettings {
    RecorderSettings { level, sample: 0, slowest: 0, ..RecorderSettings::default() }
}

#[test]
fn a_tree_lists_all_phases_with_run_wait_and_bytes() {
    let sites = sites();
    let kept = kept(&sites);
    let expected = "\
  -> head_read               1.0 µs
  -> parse                   1.0 µs
  -> virtual_server          0.0 µs
  -> post_read               0.0 µs
  -> server_rewrite          0.0 µs
  -> find_config             0.0 µs
  -> rewrite                 0.0 µs
  -> post_rewrite            0.0 µs
  -> preaccess               0.0 µs
  -> access                  5.0 µs
     -> auth_basic           5.0 µs
  -> post_access             0.0 µs
  -> precontent              0.0 µs
  -> content                22.0 µs   wait 831.0
     -> upstream 10.0.0.7:80         2.0 µs   wait 831.0
";
    let text = render::tree(&kept.tree(), &sites.table, &same);
    let squeeze = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(squeeze(&text)[..15], squeeze(expected)[..], "{text}");
    assert!(text.contains(".. upstream_first_byte"), "{text}");
    let lines = squeeze(&text);
    let at = lines.iter().position(|line| line.starts_with("-> body_filter 20.0")).expect("the group");
    assert!(lines[at + 1].starts_with("-> gzip 20.0"), "{text}");
    assert!(text.contains("4000 -> 1870 B   calls 2"), "{text}");
    assert!(
        text.lines().last().is_some_and(|line| line.contains("-> log ") && line.ends_with(" 0.0 µs")),
        "{text}"
    );
    let columns: Vec<usize> = text.lines().filter_map(|line| line.find(" µs")).collect();
    assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    // Without what took no time the rest is the same.
    let short = squeeze(&render::short_tree(&kept.tree(), &sites.table, &same));
    let took_time: Vec<String> = lines.into_iter().filter(|line| !line.ends_with(" 0.0 µs")).collect();
    assert_eq!(short, took_time);
    assert!(
        short.len() < text.lines().count() && short.iter().any(|line| line.starts_with("..")),
        "{short:?}"
    );
}

#[test]
fn a_headline_adds_up_and_holds_no_arguments() {
    let sites = sites();
    let line = render::headline(kept(&sites).record(), &sites.table, &same);
    assert!(line.starts_with("GET /img/a.txt  200  1870 B  location /img/  worker 1  req 0000"), "{line}");
    assert!(line.contains("total 871.0 µs = run 40.0 + wait 812.0 + in-loop queue 19.0"), "{line}");
    assert!(!line.contains("hush"));
}

#[test]
fn a_flow_shows_what_was_entered_and_left() {
    let sites = sites();
    let flow = render::flow(kept(&sites).events(), &sites.table, &same);
    let lines: Vec<&str> = flow.lines().map(|line| line[10..].trim_end()).collect();
    assert_eq!(lines[2..5], ["  -> access", "    | auth_basic  5.0 µs", "  <- access  5.0 µs"]);
    assert!(flow.contains(".. wait queue  19.0 µs"), "{flow}");
    assert!(flow.contains("<- content  853.0 µs"), "{flow}");
}

#[test]
fn json_nests_and_names() {
    let sites = sites();
    let json = render::kept_json(&kept(&sites), &sites.table, &same);
    assert!(
        json.starts_with("{\"why\":\"sampled\",\"record\":{\"id\":\"00000000000000000000000000007f3a\""),
        "{json}"
    );
    assert!(json.contains("\"path\":\"/img/a.txt\",\"location\":\"/img/\",\"status\":200"), "{json}");
    assert!(json.contains("\"waits_ns\":{\"upstream_first_byte\":812000,\"queue\":19000}"), "{json}");
    assert!(json.contains(
        "{\"kind\":\"handler\",\"phase\":\"access\",\"location\":\"/img/\",\"name\":\"auth_basic\""
    ));
    assert_eq!(json.matches(['{', '[']).count(), json.matches(['}', ']']).count());
}

#[test]
fn statuses_are_counted_by_class_and_by_name() {
    let sites = sites();
    let mut recorder = Recorder::new(0, quiet(TraceLevel::Full));
    (0..3).for_each(|id| one(&mut recorder, &sites, if id == 2 { 502 } else { 200 }, id));
    let totals = RecorderReader::merged([&recorder.reader()]);
    let json = render::totals_json(&totals, &sites.table, &same);
    assert!(
        json.contains(
            "\"status\":{\"none\":0,\"1xx\":0,\"2xx\":2,\"3xx\":0,\"4xx\":0,\"5xx\":1,\"429\":0,\"499\":0"
        ),
        "{json}"
    );
}

#[test]
fn a_table_of_sites_is_merged_over_workers() {
    let sites = sites();
    let mut workers = [Recorder::new(0, quiet(TraceLevel::Full)), Recorder::new(1, quiet(TraceLevel::Full))];
    for (n, worker) in [0, 1, 1].into_iter().zip(0..) {
        one(&mut workers[n], &sites, 200, worker);
    }
    let readers = workers.each_ref().map(Recorder::reader);
    let text = render::sites(&RecorderReader::merged(&readers), &sites.table, &same);
    let squeezed: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(squeezed[0], "location site requests calls mean p50 p99 wait mean wait p99");
    let has = |line: &str| assert!(squeezed.iter().any(|row| row == line), "no {line} in\n{text}");
    has("/img/ request 3 3 871.0 871.0 871.0 831.0 831.0");
    has("/img/ access auth_basic 3 3 5.0 5.0 5.0 0.0 0.0");
    has("/img/ body_filter gzip 3 6 20.0 20.0 20.0 0.0 0.0");
    has("- parse 3 3 1.0 1.0 1.0 0.0 0.0");
    let at = |part: &str| squeezed.iter().position(|row| row.contains(part)).expect("listed");
    assert!(at("- parse") < at("request 3") && at("auth_basic") < at("gzip"), "{text}");
}

#[test]
fn folded_stacks_and_server_timing() {
    let sites = sites();
    let tree = kept(&sites).tree();
    let run = render::folded(&tree, "/img/;x", false, &sites.table, &same);
    assert!(run.contains("/img/:x;access;auth_basic 5000\n"), "{run}");
    let ns: u64 = run.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    assert_eq!(ns, tree.root().run);
    let wait = render::folded(&tree, "", true, &sites.table, &same);
    assert!(wait.contains("request;content;upstream 10.0.0.7:80;wait queue 19000\n"), "{wait}");
    let timing = render::server_timing(&tree, &sites.table, &same);
    assert_eq!(timing, "access;dur=0.005, content;dur=0.853, upstream;dur=0.833, total;dur=0.871");
}

#[test]
fn trees_are_kept_for_a_reason() {
    let sites = sites();
    let mut recorder = Recorder::new(0, quiet(TraceLevel::Full));
    one(&mut recorder, &sites, 200, 1);
    assert_eq!(recorder.kept().count(), 0);
    one(&mut recorder, &sites, 500, 2);
    recorder.set_slow(871_000);
    one(&mut recorder, &sites, 200, 3);
    recorder.set_slow(871_001);
    one(&mut recorder, &sites, 200, 4);
    let mut trace = Trace::new();
    recorder.begin(&mut trace, 10_000);
    trace.keep();
    play(&mut trace, &sites);
    recorder.finish(&mut trace, record(&sites, 200, 5));
    let kept: Vec<_> = recorder.kept().map(|kept| (kept.record().id.0, kept.why())).collect();
    assert_eq!(kept, [(2, KeepReason::Failed), (3, KeepReason::Slow), (5, KeepReason::Asked)]);
    assert_eq!(recorder.records().count(), 5);
    assert!(recorder.find(RequestId(3)).is_some() && recorder.find(RequestId(4)).is_none());
}

#[test]
fn rings_forget_the_oldest() {
    let sites = sites();
    let settings =
        RecorderSettings { sample: 1, kept: 3, slowest: 0, records: 2, ..RecorderSettings::default() };
    let mut recorder = Recorder::new(0, settings);
    (0..8).for_each(|id| one(&mut recorder, &sites, 200, id));
    assert_eq!(recorder.kept().map(|kept| kept.record().id.0).collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!(recorder.records().map(|record| record.id.0).collect::<Vec<_>>(), [6, 7]);
    let mut none = Recorder::new(
        0,
        RecorderSettings { sample: 1, kept: 0, records: 0, stalls: 0, ..RecorderSettings::default() },
    );
    one(&mut none, &sites, 200, 1);
    none.stall(weir_trace::LoopStall::default());
    assert_eq!(none.kept().count() + none.records().count() + none.stalls().list().len(), 0);
}

#[test]
fn routes_have_rules_of_their_own() {
    let sites = sites();
    let one = |recorder: &mut Recorder, sites: &Sites, status, id| {
        let mut trace = Trace::new();
        recorder.begin(&mut trace, 10_000);
        play(&mut trace, sites);
        recorder.finish(&mut trace, RequestRecord { rule: 1, ..record(sites, status, id) });
    };
    let mut recorder = Recorder::new(0, quiet(TraceLevel::Full));
    let rule = KeepRule { slow: SlowLimit::Ticks(871_000), sample: 0 };
    recorder.configure(RecorderSettings { slow: 1, ..quiet(TraceLevel::Full) }, [rule]);
    one(&mut recorder, &sites, 200, 1);
    let rule = KeepRule { slow: SlowLimit::Ticks(871_001), sample: 3 };
    recorder.configure(RecorderSettings { slow: 1, ..quiet(TraceLevel::Full) }, [rule]);
    (2..=7).for_each(|id| one(&mut recorder, &sites, 200, id));
    let kept: Vec<_> = recorder.kept().map(|kept| (kept.record().id.0, kept.why())).collect();
    assert_eq!(kept, [(1, KeepReason::Slow), (4, KeepReason::Sampled), (7, KeepReason::Sampled)]);
}

#[test]
fn a_smaller_ring_keeps_the_newest() {
    let sites = sites();
    let settings =
        RecorderSettings { sample: 1, kept: 4, slowest: 0, records: 4, ..RecorderSettings::default() };
    let mut recorder = Recorder::new(0, settings);
    (0..6).for_each(|id| one(&mut recorder, &sites, 200, id));
    recorder.configure(RecorderSettings { kept: 2, records: 8, ..settings }, []);
    let kept = |recorder: &Recorder| recorder.kept().map(|kept| kept.record().id.0).collect::<Vec<_>>();
    assert_eq!(kept(&recorder), [4, 5]);
    (6..10).for_each(|id| one(&mut recorder, &sites, 200, id));
    assert_eq!(kept(&recorder), [8, 9]);
    assert_eq!(recorder.records().map(|record| record.id.0).collect::<Vec<_>>(), (2..10).collect::<Vec<_>>());
}

#[test]
fn an_average_takes_as_many_matching_requests_as_were_wanted() {
    let sites: &'static Sites = Box::leak(Box::new(sites()));
    let watch = AverageWatch::new(3, &sites.table, |record| record.status == 404);
    let mut workers = [Recorder::new(0, quiet(TraceLevel::Off)), Recorder::new(1, quiet(TraceLevel::Off))];
    workers.iter_mut().for_each(|worker| worker.average(watch.clone()));
    for (worker, status) in [(0, 404), (1, 200), (1, 404), (0, 404), (1, 404), (0, 404)] {
        one(&mut workers[worker], sites, status, 1);
    }
    assert_eq!(watch.left(), 0);
    assert!(!workers[0].is_watched(), "nothing is recorded for it any more");
    let mut average = AverageTree::new();
    for worker in &mut workers {
        average.merge(&worker.take_average(&watch).expect("not taken yet"));
        assert!(worker.take_average(&watch).is_none());
    }
    assert_eq!(average.requests(), 3);
    let (tree, spreads) = average.arranged(&sites.table);
    let at = tree.nodes().iter().position(|node| node.site == sites.gzip).expect("it ran");
    assert_eq!((tree.nodes()[at].calls, spreads[at].run.mean()), (6, 20_000));
    let text = render::average(&average, &sites.table, &same);
    let row = text.lines().find(|line| line.contains("-> gzip")).expect("a row");
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[..7], ["->", "gzip", "2.00", "20.0", "20.0", "20.0", "2.3%"], "{text}");
    assert!(text.starts_with("3 requests: mean 871.0 µs"), "{text}");
    for phase in weir_trace::PHASES {
        assert!(text.contains(&format!("-> {phase}")), "no {phase} in\n{text}");
    }
    let json = render::average_json(&average, &sites.table, &same);
    assert!(json.contains("\"name\":\"gzip\",\"calls\":6") && json.contains("\"p99_ns\":20000"), "{json}");
    assert_eq!(json.matches(['{', '[']).count(), json.matches(['}', ']']).count());
}

#[test]
fn one_in_sixty_four_is_drawn() {
    let mut recorder =
        Recorder::new(0, RecorderSettings { level: TraceLevel::Sampled, ..RecorderSettings::default() });
    let mut trace = Trace::new();
    let mut drawn = 0;
    for now in 0..64_000 {
        recorder.begin(&mut trace, now);
        drawn += u32::from(trace.is_on());
        trace.end(now);
        recorder.finish(&mut trace, RequestRecord::default());
    }
    assert!((900..1_100).contains(&drawn), "{drawn}");
    assert_eq!(recorder.kept().count(), 256);
    recorder.settle();
    assert_eq!(recorder.reader().requests().total(), 64_000);
}

#[test]
fn a_watch_takes_the_next_matching_requests_of_all_workers_at_any_level() {
    let sites = sites();
    let (watch, receiver) = TraceWatch::channel(2, |record| record.status == 404);
    let mut workers = [Recorder::new(0, quiet(TraceLevel::Off)), Recorder::new(1, quiet(TraceLevel::Off))];
    for worker in &mut workers {
        one(worker, &sites, 404, 0); // nothing watches yet
        worker.watch(watch.clone());
    }
    for (worker, status, id) in [(0, 200, 1), (1, 404, 2), (0, 404, 3), (1, 404, 4)] {
        one(&mut workers[worker], &sites, status, id);
    }
    let got: Vec<_> = receiver.try_iter().map(|kept| (kept.record().id.0, kept.tree().root().run)).collect();
    assert_eq!(got, [(2, 40_000), (3, 40_000)]);
    assert!(!workers[0].is_watched() && !workers[1].is_watched());
}

#[test]
fn a_watch_that_has_a_beginning_leaves_out_what_began_before() {
    let sites: &'static Sites = Box::leak(Box::new(sites()));
    let mut recorder = Recorder::new(0, quiet(TraceLevel::Off));
    let (watch, receiver) = TraceWatch::channel(2, |_| true);
    recorder.watch(watch.clone());
    one(&mut recorder, sites, 200, 1);
    let begun = receiver.try_iter().next().expect("a tree").record().start;
    watch.cancel();
    for (since, taken) in [(begun, 1), (begun + 1, 0)] {
        let (watch, receiver) = TraceWatch::channel(1, |_| true);
        recorder.watch(watch.since(since));
        let average = AverageWatch::new(1, &sites.table, |_| true).since(since);
        recorder.average(average.clone());
        one(&mut recorder, sites, 200, 2);
        let seen = (receiver.try_iter().count(), 1 - average.left());
        assert_eq!(seen, (taken, taken));
        assert_eq!(recorder.take_average(&average).expect("not taken yet").requests(), taken as u64);
    }
}

#[test]
fn a_watch_ends_with_its_receiver_or_when_cancelled() {
    let sites = sites();
    let mut recorder = Recorder::new(0, quiet(TraceLevel::Off));
    let (watch, receiver) = TraceWatch::channel(10, |_| true);
    recorder.watch(watch);
    drop(receiver);
    one(&mut recorder, &sites, 200, 1);
    assert!(!recorder.is_watched());
    let (watch, _receiver) = TraceWatch::channel(10, |_| false);
    recorder.watch(watch.clone());
    watch.cancel();
    one(&mut recorder, &sites, 200, 2);
    assert!(!recorder.is_watched());
}

#[test]
fn off_reads_no_clock_and_still_counts() {
    let sites = sites();
    let mut recorder = Recorder::new(0, quiet(TraceLevel::Off));
    let mut trace = Trace::new();
    recorder.begin_at(&mut trace, || panic!("the clock was read"));
    trace.at(sites.gzip, || panic!("the clock was read"));
    trace.enter_at(sites.access, || panic!("the clock was read"));
    trace.suspend_at(|| panic!("the clock was read"));
    trace.resume_at(|| panic!("the clock was read"));
    trace.leave_at(sites.access, || panic!("the clock was read"));
    trace.bytes(sites.gzip, 1, 1);
    trace.end(9);
    assert!(!trace.is_recorded());
    recorder.finish(
        &mut trace,
        RequestRecord { total: 77, cause: Cause::ClientClosed, ..record(&sites, 499, 1) },
    );
    let totals = recorder.reader().site(sites.route).expect("a request of this route");
    assert_eq!((totals.total.sum(), totals.run.count(), totals.counts.bytes_out), (77, 0, 1_870));
    assert_eq!(totals.status.map(|status| status.named[1]), Some(1));
}

#[test]
fn other_threads_read_while_the_worker_writes() {
    let sites = sites();
    let mut recorder = Recorder::new(0, quiet(TraceLevel::Full));
    let reader = recorder.reader();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut seen = 0;
            while seen < 2_000 {
                let now = reader.site(sites.gzip).map_or(0, |totals| totals.run.count());
                assert!(now >= seen, "counts only grow");
                seen = now;
                std::thread::yield_now();
            }
        });
        (0..2_000).for_each(|id| one(&mut recorder, &sites, 200, id));
        recorder.settle();
        reading.join().expect("the reader finds nothing wrong");
    });
}

#[test]
fn an_early_return_leaves_nothing_open() {
    let sites = sites();
    let mut trace = Trace::new();
    trace.begin(0);
    trace.enter(sites.content, 10);
    trace.enter(sites.proxy, 20);
    trace.leave(sites.content, 50); // the peer was never left
    trace.mark(Site::step(ConnectionStep::Write), 60);
    trace.leave(sites.gzip, 70); // never entered
    trace.note(EventKind::Error, Site::step(ConnectionStep::Write), 104);
    trace.end(80);
    let tree = trace.tree();
    let names: Vec<_> = tree.children(0).map(|c| tree.nodes()[c as usize].site).collect();
    assert_eq!(names, [sites.content, Site::step(ConnectionStep::Write)]);
    assert_eq!((tree.root().self_run, tree.root().run), (30, 80));
    assert_eq!(tree.nodes().last().map(|node| (node.errors, node.last_error)), Some((1, 104)));
}

#[test]
fn an_engine_that_never_leaves_grows_nothing() {
    let sites = sites();
    let mut trace = Trace::new();
    trace.begin(0);
    for now in 1..=100_000 {
        trace.enter(Site(64 + (now % 1_000) as u16), now);
    }
    trace.end(100_001);
    let tree = trace.tree();
    assert!(tree.nodes().len() <= 65);
    assert_eq!(tree.root().run, 100_001);
    let mut recorder = Recorder::new(0, quiet(TraceLevel::Full));
    recorder.finish(&mut trace, record(&sites, 200, 1));
    trace.clear();
    assert!(!trace.is_recorded() && trace.tree().nodes().len() == 1);
}

#[test]
fn frequent_requests_are_counted_in_batches_and_none_is_lost() {
    let sites = sites();
    let mut recorder = Recorder::new(0, quiet(TraceLevel::Full));
    let (reader, mut trace, tape) = (recorder.reader(), Trace::new(), EventTape::new());
    let (mut waits, mut runs) = (0, 0);
    for n in 0..10_000u64 {
        recorder.begin(&mut trace, n);
        let queued = n % 3 * 100;
        tape.rewind(n);
        trace.queued(&tape, Site::step(ConnectionStep::HeadRead), n + queued);
        assert!(tape.open(sites.access));
        let run = if n % 1_000 == 7 { 3 << 30 } else { n % 777 };
        assert!(tape.close(sites.access, n + queued + run));
        if n % 2 == 0 {
            // Others look at the trace before its end.
            trace.take(&tape);
        }
        trace.end_here(&tape);
        let status = if n % 10 == 9 { 503 } else { 200 };
        recorder.finish_with(&mut trace, &tape, |place| *place = record(&sites, status, n.into()));
        (waits, runs) = (waits + queued, runs + run);
        let seen = reader.requests().total();
        assert!(seen <= n + 1 && seen + 2 * 64 > n, "{seen} of {n}");
    }
    recorder.settle();
    let route = reader.site(sites.route).expect("counted");
    assert_eq!((route.run.sum(), route.wait.sum(), route.total.sum()), (runs, waits, runs + waits));
    assert_eq!((route.run.count(), route.wait.count()), (10_000, 6_666));
    assert_eq!((route.counts.bytes_out, route.counts.errors), (18_700_000, 1_000));
    let status = route.status.expect("of a route");
    assert_eq!((status.classes[2], status.classes[5], status.named[5]), (9_000, 1_000, 1_000));
    assert_eq!(reader.requests(), status);
    let access = reader.site(sites.access).expect("counted");
    assert_eq!((access.run.sum(), access.run.count(), access.run.max()), (runs, 10_000, 3 << 30));
    assert!(access.run.quantile(0.5) >= 388 && access.run.quantile(0.5) <= 388 + 388 / 16);
    assert_eq!(reader.site(Site::step(ConnectionStep::HeadRead)).expect("counted").wait.sum(), waits);
}

/// A request that slept in a call and lost its processor: both are said of its run, of the line and of the site.
#[test]
fn run_is_split_where_it_was_not_on_a_processor() {
    let sites = sites();
    let mut recorder = Recorder::new(0, RecorderSettings { sample: 1, ..RecorderSettings::default() });
    let reader = recorder.reader();
    let mut average = AverageTree::new();
    for n in 1..=3 {
        let mut trace = Trace::new();
        recorder.begin(&mut trace, 0);
        trace.enter(sites.content, 1_000);
        trace.mark(sites.gzip, 31_000);
        trace.leave(sites.content, 32_000);
        trace.end(33_000);
        trace.off_core(0, 20_000, 4_000);
        average.add(&trace, &sites.table);
        recorder.finish(
            &mut trace,
            RequestRecord { id: RequestId(n), route: sites.route, ..RequestRecord::default() },
        );
    }
    recorder.settle();
    let kept = recorder.find(RequestId(3)).expect("it was drawn");
    assert_eq!(kept.record().run, 33_000);
    let text = render::tree(&kept.tree(), &sites.table, &same);
    let split = "  run 33.0 µs = on the processor 9.0 + asleep in calls 20.0 + without a processor 4.0\n";
    assert!(text.starts_with(split), "{text}");
    assert!(text.contains("-> gzip") && text.contains("30.0 µs   asleep 20.0   no core 4.0\n"), "{text}");
    let json = render::kept_json(kept, &sites.table, &same);
    assert!(json.contains("\"asleep_ns\":20000,\"no_core_ns\":4000"), "{json}");
    let text = render::average(&average, &sites.table, &same);
    assert!(text.lines().nth(1).is_some_and(|line| line == split.trim_end()), "{text}");
    let counts = reader.site(sites.gzip).expect("it was charged").counts;
    assert_eq!((counts.calls, counts.asleep, counts.no_core), (3, 60_000, 12_000));
}
