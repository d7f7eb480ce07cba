//! Whether what the server says of itself is true: a module that does a known thing at a known place, and what records,
//! trees, averages, stalls, the table of requests in flight and the account of blame say of it.

use std::time::Duration;

use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_engine::phase::Phase;
use weir_test::{Client, Driver, both_drivers, wait_for};
use weir_trace::{
    AverageTree, AverageWatch, InFlight, KeepReason, KeptRequest, LoopStall, RequestRecord, Site, SiteTable,
    TraceTree, WaitKind,
};

#[path = "it/support/inside.rs"]
mod inside;

use inside::{Act, BLOCK, BURN, Hold, PHASES, Running, SLEEP, is_about, lasted, ns, took};

static MODULES: [ModuleDef; CORE_MODULES.len() + 1] = with_core(&[ModuleDef::of::<Act>()]);

fn started(driver: Driver, http: &str, locations: &str) -> Running {
    let server = format!("{http} server {{ listen %%ADDRESS%%; act; {locations} }}");
    Running::start(driver, &MODULES, "", &server)
}

fn in_flight(running: &Running) -> Vec<InFlight> {
    running.server.threads()[0].now.requests()
}

fn stalls(running: &Running) -> Vec<LoopStall> {
    running.server.threads()[0].recorder.stalls().list()
}

/// Run and wait of the module's handler in `phase`.
fn handler(tree: &TraceTree, phase: Phase) -> (Duration, Duration) {
    let sites = SiteTable::global();
    let mine = |site: Site| {
        let info = sites.info(site);
        info.phase == Some(phase.name()) && &*info.name == "act"
    };
    let node = tree.nodes().iter().find(|node| mine(node.site));
    node.map_or_else(Default::default, |node| (took(node.run), took(node.wait)))
}

/// Whether it waited for its turn alone; where something was logged, a response waits for that, too.
fn is_alone(kept: &KeptRequest) -> bool {
    kept.record().wait() == kept.record().queue()
}

fn label(site: Site) -> (String, String) {
    let info = SiteTable::global().info(site);
    (info.phase.unwrap_or_default().to_owned(), info.name.to_string())
}

fn route(site: Site) -> String {
    SiteTable::global().info(site).location.to_string()
}

both_drivers! {
    /// The words: in that node within 5%, and nowhere else.
    fn a_burn_is_in_its_phase_within_a_twentieth_and_nowhere_else(driver) {
        let running = started(driver, "", "");
        for phase in PHASES {
            running.find(&format!("/?burn={}", phase.name()), |kept, _| {
                let tree = kept.tree();
                let burn = lasted(kept);
                is_alone(kept) && is_about(handler(&tree, phase).0, burn) && took(tree.root().run) < burn + burn / 10
            });
        }
    }

    fn a_sleep_is_waiting_and_a_block_is_running(driver) {
        let running = started(driver, "", "");
        for phase in PHASES {
            running.find(&format!("/?sleep={}", phase.name()), |kept, _| {
                let (run, wait) = handler(&kept.tree(), phase);
                // Timers are of whole milliseconds.
                let all = took(kept.record().run);
                all < SLEEP / 4 && run < SLEEP / 20 && wait + Duration::from_millis(1) >= SLEEP && wait < SLEEP + SLEEP / 10
            });
            running.find(&format!("/?block={}", phase.name()), |kept, _| {
                is_alone(kept) && is_about(handler(&kept.tree(), phase).0, lasted(kept))
            });
        }
    }

    fn the_parts_are_the_whole_and_the_whole_is_what_a_client_sees(driver) {
        let running = started(driver, "", "");
        let kept = running.find("/?sleep=access&block=content&burn=rewrite", |kept, outside| {
            let total = took(kept.record().total);
            // Timers count from the beginning of the turn, as nginx's do: the burn before is part of the sleep.
            total >= BLOCK + SLEEP - Duration::from_millis(1) && total <= outside && total + outside / 20 >= outside
        });
        let (record, tree) = (kept.record(), kept.tree());
        assert_eq!(record.total, record.run + record.wait());
        assert_eq!((tree.root().run, tree.root().wait), (record.run, record.wait()));
    }

    fn an_average_is_of_the_requests_it_was_asked_for(driver) {
        let running = started(driver, "", "");
        let watch = AverageWatch::new(200, SiteTable::global(), |record| record.path.as_bytes() == b"/mine");
        let mine = watch.clone();
        running.on_worker(move |worker| worker.recorder.borrow_mut().average(mine));
        let mut client = running.client();
        for number in 0..400 {
            assert!(watch.left() > 0, "others were taken");
            client.get(if number % 2 == 0 { "/other?burn=content" } else { "/mine?burn=access" });
        }
        // The response may come before its request is recorded.
        wait_for("all of them", || (watch.left() == 0).then_some(()));
        let mut average = AverageTree::new();
        average.merge(&running.on_worker(move |worker| {
            worker.recorder.borrow_mut().take_average(&watch).expect("it was wanted")
        }));
        assert_eq!(average.requests(), 200);
        let (tree, spreads) = average.arranged(SiteTable::global());
        let access = tree.nodes().iter().position(|node| label(node.site) == ("access".into(), "act".into()));
        let access = access.expect("it ran");
        assert_eq!(tree.nodes()[access].calls, 200);
        // A busy machine makes the most of them longer, but not all; a class of the histogram is a sixteenth wide.
        let shortest = took(spreads[access].run.quantile(0.005));
        assert!(shortest >= BURN && shortest < BURN * 9 / 8, "{shortest:?}");
        assert!(took(tree.nodes()[access].run / 200) >= BURN, "the mean");
        let content = tree.nodes().iter().position(|node| label(node.site) == ("content".into(), "act".into()));
        assert!(took(spreads[content.expect("it ran")].run.quantile(0.5)) < BURN / 4);
        let text = weir_trace::render::average(&average, SiteTable::global(), &ns);
        assert!(text.starts_with("200 requests: mean ") && text.contains("-> post_access "), "{text}");
    }

    /// While its worker is stuck a request is shown by name; afterwards the stall is, with the requests that had to
    /// wait.
    fn a_block_is_seen_while_it_lasts_and_a_stall_afterwards(driver) {
        let running = started(driver, "profile_blocked 30ms;", "location /slow { }");
        let hold = Hold::new();
        let mut stuck = running.client();
        let mut late = running.client();
        late.get("/");
        stuck.send("GET /slow/one?hold=access&secret=1 HTTP/1.1\r\nHost: h\r\n\r\n");
        let seen = wait_for("the request in flight", || {
            in_flight(&running).into_iter().find(|request| request.is_running && !request.route.is_none())
        });
        assert_eq!((seen.method.as_bytes(), seen.path.as_bytes()), (&b"GET"[..], &b"/slow/one"[..]));
        assert_eq!((route(seen.route).as_str(), seen.wait), ("/slow", None));
        late.send("GET /late HTTP/1.1\r\nHost: h\r\n\r\n");
        std::thread::sleep(BLOCK);
        hold.release();
        assert_eq!((stuck.response().text(), late.response().text()), ("content".to_owned(), "content".to_owned()));
        wait_for("nothing in flight", || in_flight(&running).is_empty().then_some(()));
        let stall = wait_for("the stall", || stalls(&running).into_iter().find(|stall| stall.sample.request == seen.id));
        assert!(took(stall.duration) >= BLOCK, "{:?}", took(stall.duration));
        assert_eq!(route(stall.route), "/slow");
        assert_eq!(label(stall.sample.site), ("access".to_owned(), "act".to_owned()));
        // The second one came while the loop was stuck: the kernel knows since when, to its tick.
        let (late, waited) = *stall.victims.first().expect("one had to wait");
        let record = running.on_worker(move |worker| {
            worker.recorder.borrow().records().find(|record| record.id == late).copied().expect("it is over")
        });
        assert_eq!(record.path.as_bytes(), b"/late");
        assert!(waited == record.receive_wait && took(waited) <= took(stall.duration) + TICK, "{:?}", took(waited));
        assert!(took(running.server.threads()[0].recorder.receive_waits().sum()) >= took(waited) - TICK);
        let kept = running.on_worker(move |worker| {
            let recorder = worker.recorder.borrow();
            [seen.id, late].map(|id| recorder.find(id).map(|kept| kept.why()))
        });
        assert_eq!(kept, [Some(KeepReason::Blocker), Some(KeepReason::Waiter)], "whoever looks later finds both");
    }

    /// Nothing has to be configured for the worst request of a location to be there afterwards.
    fn the_slowest_request_of_a_location_is_kept_among_thousands(driver) {
        let locations = "location /a { } location /b { } location /quiet { trace slow=off sample=off; }";
        let running = started(driver, "trace keep=10;", locations);
        let mut client = running.client();
        for target in ["/a?sleep=access&ms=150", "/b?sleep=access&ms=100", "/quiet?sleep=access&ms=100"] {
            client.get(target);
        }
        for _ in 0..3 {
            // A connection takes a thousand requests.
            client = running.client();
            (0..900).for_each(|n| drop(client.get(["/a", "/b", "/quiet"][n % 3])));
        }
        let kept = running.on_worker(|worker| -> Vec<(String, KeepReason)> {
            let recorder = worker.recorder.borrow();
            let slept = recorder.kept().filter(|kept| took(kept.record().total).as_millis() >= 100);
            slept.map(|kept| (kept.record().path.to_string(), kept.why())).collect()
        });
        let slowest = |path: &str| kept.iter().any(|(kept, why)| kept == path && *why == KeepReason::Slowest);
        assert!(slowest("/a") && slowest("/b") && !slowest("/quiet"), "{kept:?}");
    }

    /// Two that are ready at once: the second one's delay is the first one's doing.
    fn who_runs_first_is_blamed_for_who_waits(driver) {
        let running = started(driver, "profile_blocked 30ms;", "location /a { } location /b { }");
        let blame = wait_for("two in one turn", || {
            // What comes while the loop is stuck is ready at once.
            let hold = Hold::new();
            let mut clients: Vec<Client> = (0..3).map(|_| running.client()).collect();
            for (client, target) in clients.iter_mut().zip(["/?hold=content", "/a?block=content", "/b?block=content"]) {
                client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
                wait_for("the first one", || in_flight(&running).iter().any(|request| request.is_running).then_some(()));
            }
            hold.release();
            clients.iter_mut().for_each(|client| assert_eq!(client.response().text(), "content"));
            let blame = running.server.threads()[0].now.blame();
            blame.into_iter().find(|blame| {
                let pair = [route(blame.victim), route(blame.culprit)];
                (pair == ["/a", "/b"] || pair == ["/b", "/a"]) && took(blame.ticks) >= BLOCK
            })
        });
        assert!(blame.times >= 1);
        let victims = stalls(&running).iter().map(|stall| stall.victims.len()).sum::<usize>();
        assert!(victims >= 1, "the stalls name who waited");
    }

    fn a_waiting_request_says_what_for_and_where(driver) {
        let running = started(driver, "", "location /held { }");
        let mut client = running.client();
        client.send("GET /held?hang=access HTTP/1.1\r\nHost: h\r\n\r\n");
        let seen = wait_for("the waiting request", || in_flight(&running).into_iter().find(|r| r.wait.is_some()));
        assert_eq!((route(seen.route).as_str(), seen.wait), ("/held", Some(WaitKind::Other)));
        assert_eq!(label(seen.site), ("access".to_owned(), "act".to_owned()));
        assert!(seen.since >= seen.start && !seen.is_running);
    }

    /// Whatever becomes of a request, its place is given back.
    fn a_request_that_was_dropped_is_not_in_flight(driver) {
        let running = started(driver, "", "");
        for phase in ["access", "content", "log"] {
            let mut client = running.client();
            client.send(format!("GET /?panic={phase} HTTP/1.1\r\nHost: h\r\n\r\n"));
            wait_for("nothing in flight", || in_flight(&running).is_empty().then_some(()));
            assert_eq!(running.client().get("/").text(), "content", "the others go on");
        }
        wait_for("nothing in flight", || in_flight(&running).is_empty().then_some(()));
        assert_eq!(running.server.threads()[0].now.running(), None);
    }

    /// Slow by the location's bound, failed, drawn; what a location does not want is not retained.
    fn trees_are_kept_for_the_reasons_of_their_location(driver) {
        let running = started(
            driver,
            "trace sample=off slow=off keep=10;",
            "location /slow { trace slow=2s; } location /drawn { trace sample=1/2; } location /off { profile off; }",
        );
        let mut client = running.client();
        for target in ["/fast?sleep=access", "/slow?sleep=access&ms=2100", "/slow", "/off?sleep=access", "/drawn", "/drawn", "/fails"] {
            client.get(target);
        }
        let kept = wait_for("the failed one", || {
            let kept = running.on_worker(|worker| -> Vec<(RequestRecord, KeepReason)> {
                let recorder = worker.recorder.borrow();
                // A minute may end between two requests: whichever is first in a minute is its slowest so far.
                let others = recorder.kept().filter(|kept| kept.why() != KeepReason::Slowest);
                others.map(|kept| (*kept.record(), kept.why())).collect()
            });
            (kept.last()?.1 == KeepReason::Failed).then_some(kept)
        });
        let paths: Vec<_> = kept.iter().map(|(record, why)| (record.path.to_string(), *why)).collect();
        let expected = [("/slow", KeepReason::Slow), ("/drawn", KeepReason::Sampled), ("/fails", KeepReason::Failed)];
        assert_eq!(paths, expected.map(|(path, why)| (path.to_owned(), why)));
        assert!(kept.iter().all(|(record, _)| record.id.0 != 0));
        let off = running.on_worker(|worker| {
            let recorder = worker.recorder.borrow();
            recorder.records().find(|record| record.path.as_bytes() == b"/off").copied().expect("it has a record")
        });
        assert_eq!((off.status, off.run, off.wait()), (200, 0, 0), "nothing of it was recorded");
        let failed = running.on_worker(|worker| worker.recorder.borrow().kept().last().expect("just seen").tree());
        let site = failed.nodes().iter().find(|node| node.errors > 0).expect("the handler failed");
        assert_eq!((label(site.site), site.last_error), (("content".to_owned(), "act".to_owned()), 500));
        assert_eq!(running.server.configuration().trace().keep(), 10);
    }
}

/// The kernel's clock for TCP may be this coarse.
const TICK: Duration = Duration::from_millis(10);
