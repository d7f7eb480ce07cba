//! Whether what the server says of itself is true: a module that does a known thing at a known place, and what records,
//! trees, averages, stalls, the table of requests in flight and the account of blame say of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use weir_conf::{Args, Contexts, Directive, LineCx};
use weir_core::body::{Body, Buf};
use weir_core::conf::{CORE_MODULES, with_core};
use weir_core::phase::{LocalFuture, Phase};
use weir_core::plan::PlanBuilder;
use weir_core::server::{Options, Server};
use weir_core::worker::Worker;
use weir_core::{Exchange, Handler, Module, ModuleDef, Verdict};
use weir_rt::{DriverChoice, clock};
use weir_test::{Client, DEADLINE, Driver, TempDir, both_drivers, free_port, wait_for};
use weir_trace::{
    Average, AverageWatch, InFlight, Kept, RequestRecord, Site, SiteTable, Stall, Tree, WaitKind, Watch, Why,
};

static MODULES: [ModuleDef; CORE_MODULES.len() + 1] = with_core(&[ModuleDef::of::<Act>()]);

/// `act`: in every phase, does what the query string says: `?burn=access` spins for [`BURN`], `block=access` sleeps on
/// the thread for [`BLOCK`], `sleep=access` on a timer for [`SLEEP`], `panic=access` panics. Content answers `done`.
struct Act;

#[derive(Default)]
struct Conf {
    on: bool,
}

impl Module for Act {
    const NAME: &'static str = "act";
    type Conf = Conf;
    const DIRECTIVES: &'static [Directive<Conf>] =
        &[Directive::new("act", Contexts::SERVER, Args::NONE, |conf: &mut Conf, _: &mut LineCx<'_>| {
            conf.on = true;
            Ok(())
        })];

    fn inherit(conf: &mut Conf, parent: &Conf) {
        conf.on |= parent.on;
    }

    fn install(conf: &Conf, plan: &mut PlanBuilder<'_>) -> weir_conf::Result {
        for phase in PHASES.into_iter().filter(|_| conf.on) {
            plan.handler(phase, Self::NAME, At(phase));
        }
        Ok(())
    }
}

const PHASES: [Phase; 8] = [
    Phase::PostRead,
    Phase::ServerRewrite,
    Phase::Rewrite,
    Phase::Preaccess,
    Phase::Access,
    Phase::Precontent,
    Phase::Content,
    Phase::Log,
];

struct At(Phase);

impl At {
    fn is_asked(&self, x: &Exchange, what: &str) -> bool {
        String::from_utf8_lossy(x.args()).split('&').any(|pair| pair == format!("{what}={}", self.0.name()))
    }

    fn answer(&self, x: &mut Exchange) -> Verdict {
        if self.0 != Phase::Content {
            return Verdict::Declined;
        }
        if x.uri() == b"/fails" {
            return Verdict::Status(500);
        }
        x.response.status = 200;
        x.respond(Body::Whole(Buf::Static(b"done")))
    }
}

impl Handler for At {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        if self.is_asked(x, "burn") {
            let start = Instant::now();
            while start.elapsed() < BURN {
                std::hint::spin_loop();
            }
        }
        if self.is_asked(x, "block") {
            thread::sleep(BLOCK);
        }
        assert!(!self.is_asked(x, "panic"), "as it was asked to");
        if self.is_asked(x, "sleep") { Verdict::Wait } else { self.answer(x) }
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(async {
            weir_rt::sleep(SLEEP).await;
            self.answer(x)
        })
    }
}

/// A server in this process with one worker.
struct Running {
    address: SocketAddr,
    server: Server,
    _folder: TempDir,
}

fn started(driver: Driver, http: &str, locations: &str) -> Running {
    let folder = TempDir::new();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let root = folder.path().display();
    let text = format!(
        "error_log {root}/error.log; worker_processes 1; events {{ }}
        http {{ {http} server {{ listen {address}; root {root}; act; {locations} }} }}"
    );
    let configuration = weir_core::conf::test::load(&text, &MODULES).unwrap_or_else(|e| panic!("{e}"));
    let driver = match driver {
        Driver::IoUring => DriverChoice::IoUring,
        Driver::Epoll => DriverChoice::Epoll,
    };
    let options = Options { driver: Some(driver), ..Options::default() };
    let server = Server::start(Arc::new(configuration), options).expect("starts");
    Running { address, server, _folder: folder }
}

impl Running {
    /// What `ask` gives on the worker's thread.
    fn on_worker<T: Send + 'static>(&self, ask: impl FnOnce(&Worker) -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        self.server.on_worker(0, move |worker| tell.send(ask(worker)).expect("it is waited for"));
        told.recv_timeout(DEADLINE).expect("the worker lives")
    }

    fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request: its record and tree, and how long its client waited.
    fn seen(&self, target: &str) -> (Kept, Duration) {
        let (watch, kept) = Watch::channel(1, |_| true);
        self.on_worker(|worker| worker.recorder.borrow_mut().watch(watch));
        let mut client = self.client();
        let start = Instant::now();
        client.get(target);
        let outside = start.elapsed();
        (kept.recv_timeout(DEADLINE).expect("its tree"), outside)
    }

    /// Of some requests the first that is as it should be. The machine may take the processor away in the wrong moment:
    /// what is true shows itself in some of them, what is false in none.
    #[track_caller]
    fn find(&self, target: &str, good: impl Fn(&Kept, Duration) -> bool) -> Kept {
        let mut last = None;
        for _ in 0..100 {
            let (kept, outside) = self.seen(target);
            if good(&kept, outside) {
                return kept;
            }
            last = Some((kept, outside));
        }
        let (kept, outside) = last.expect("a hundred were made");
        panic!("{target}, {outside:?} outside:\n{}", text(&kept));
    }

    fn in_flight(&self) -> Vec<InFlight> {
        self.server.threads()[0].now.requests()
    }

    fn stalls(&self) -> Vec<Stall> {
        self.server.threads()[0].recorder.stalls().list()
    }
}

fn text(kept: &Kept) -> String {
    let sites = SiteTable::global();
    let headline = weir_trace::render::headline(kept.record(), sites, &ns);
    format!("{headline}\n{}", weir_trace::render::tree(&kept.tree(), sites, &ns))
}

fn ns(ticks: u64) -> u64 {
    clock::scale().ticks_to_ns(ticks)
}

fn took(ticks: u64) -> Duration {
    Duration::from_nanos(ns(ticks))
}

/// Run and wait of the module's handler in `phase`.
fn handler(tree: &Tree, phase: Phase) -> (Duration, Duration) {
    let sites = SiteTable::global();
    let mine = |site: Site| {
        let info = sites.info(site);
        info.phase == Some(phase.name()) && &*info.name == "act"
    };
    let node = tree.nodes().iter().find(|node| mine(node.site));
    node.map_or_else(Default::default, |node| (took(node.run), took(node.wait)))
}

/// Within one in twenty.
fn is_about(time: Duration, known: Duration) -> bool {
    time >= known && time <= known + known / 20
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
            let kept = running.find(&format!("/?burn={}", phase.name()), |kept, _| {
                let tree = kept.tree();
                is_about(handler(&tree, phase).0, BURN) && took(tree.root().run) < BURN + BURN / 10
            });
            assert_eq!(kept.record().wait(), kept.record().queue(), "{}", text(&kept));
        }
    }

    fn a_sleep_is_waiting_and_a_block_is_running(driver) {
        let running = started(driver, "", "");
        for phase in PHASES {
            let kept = running.find(&format!("/?sleep={}", phase.name()), |kept, _| {
                let (run, wait) = handler(&kept.tree(), phase);
                // Timers are of whole milliseconds.
                run < SLEEP / 20 && wait + Duration::from_millis(1) >= SLEEP && wait < SLEEP + SLEEP / 10
            });
            assert!(took(kept.record().run) < SLEEP / 4, "{}", text(&kept));
            let kept = running.find(&format!("/?block={}", phase.name()), |kept, _| {
                is_about(handler(&kept.tree(), phase).0, BLOCK)
            });
            assert_eq!(kept.record().wait(), kept.record().queue(), "{}", text(&kept));
        }
    }

    fn the_parts_are_the_whole_and_the_whole_is_what_a_client_sees(driver) {
        let running = started(driver, "", "");
        let kept = running.find("/?sleep=access&block=content&burn=rewrite", |kept, outside| {
            let total = took(kept.record().total);
            total <= outside && total + outside / 20 >= outside
        });
        let (record, tree) = (kept.record(), kept.tree());
        assert_eq!(record.total, record.run + record.wait());
        assert_eq!((tree.root().run, tree.root().wait), (record.run, record.wait()));
        // Timers count from the beginning of the turn, as nginx's do: the burn before is part of the sleep.
        assert!(took(record.total) >= BLOCK + SLEEP - Duration::from_millis(1), "{}", text(&kept));
    }

    fn an_average_is_of_the_requests_it_was_asked_for(driver) {
        let running = started(driver, "", "");
        let watch = AverageWatch::new(200, SiteTable::global(), |record| record.path.as_bytes() == b"/mine");
        let mine = watch.clone();
        running.on_worker(move |worker| worker.recorder.borrow_mut().average(mine));
        let mut client = running.client();
        let mut asked = 0;
        while watch.left() > 0 {
            asked += 1;
            assert!(asked <= 400, "{} are still wanted", watch.left());
            client.get(if asked % 2 == 0 { "/mine?burn=access" } else { "/other?burn=content" });
        }
        let mut average = Average::new();
        average.merge(&running.on_worker(move |worker| {
            worker.recorder.borrow_mut().take_average(&watch).expect("it was wanted")
        }));
        assert_eq!((average.requests(), asked), (200, 400));
        let (tree, spreads) = average.arranged(SiteTable::global());
        let access = tree.nodes().iter().position(|node| label(node.site) == ("access".into(), "act".into()));
        let access = access.expect("it ran");
        assert_eq!(tree.nodes()[access].calls, 200);
        let median = took(spreads[access].run.quantile(0.5));
        assert!(median >= BURN && median < BURN * 5 / 4, "{median:?}");
        assert!(took(tree.nodes()[access].run / 200) >= BURN, "the mean");
        let content = tree.nodes().iter().position(|node| label(node.site) == ("content".into(), "act".into()));
        assert!(took(spreads[content.expect("it ran")].run.quantile(0.5)) < BURN / 4);
        let text = weir_trace::render::average(&average, SiteTable::global(), &ns);
        assert!(text.starts_with("200 requests: mean ") && text.contains("-> post_access "), "{text}");
    }

    /// While its worker is stuck a request is told by name; afterwards the stall is, with who had to wait.
    fn a_block_is_seen_while_it_lasts_and_a_stall_afterwards(driver) {
        let running = started(driver, "profile_blocked 30ms;", "location /slow { }");
        let mut stuck = running.client();
        let mut late = running.client();
        late.get("/");
        stuck.send("GET /slow/one?block=access&secret=1 HTTP/1.1\r\nHost: h\r\n\r\n");
        let seen = wait_for("the request in flight", || {
            running.in_flight().into_iter().find(|request| request.is_running && !request.route.is_none())
        });
        assert_eq!((seen.method.as_bytes(), seen.path.as_bytes()), (&b"GET"[..], &b"/slow/one"[..]));
        assert_eq!((route(seen.route).as_str(), seen.wait), ("/slow", None));
        late.send("GET /late HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!((stuck.response().text(), late.response().text()), ("done".to_owned(), "done".to_owned()));
        wait_for("nothing in flight", || running.in_flight().is_empty().then_some(()));
        let stall = wait_for("the stall", || running.stalls().into_iter().find(|stall| stall.sample.request == seen.id));
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
    }

    /// Two that are ready at once: the second one's delay is the first one's doing.
    fn who_runs_first_is_blamed_for_who_waits(driver) {
        let running = started(driver, "profile_blocked 30ms;", "location /a { } location /b { }");
        let blame = wait_for("two in one turn", || {
            // What comes while the loop is stuck is ready at once.
            let mut clients: Vec<Client> = (0..3).map(|_| running.client()).collect();
            for (client, target) in clients.iter_mut().zip(["/?block=content", "/a?block=content", "/b?block=content"]) {
                client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
                wait_for("the first one", || running.in_flight().iter().any(|request| request.is_running).then_some(()));
            }
            clients.iter_mut().for_each(|client| assert_eq!(client.response().text(), "done"));
            let blame = running.server.threads()[0].now.blame();
            blame.into_iter().find(|blame| {
                let pair = [route(blame.victim), route(blame.culprit)];
                (pair == ["/a", "/b"] || pair == ["/b", "/a"]) && took(blame.ticks) >= BLOCK
            })
        });
        assert!(blame.times >= 1);
        let victims = running.stalls().iter().map(|stall| stall.victims.len()).sum::<usize>();
        assert!(victims >= 1, "the stalls name who waited");
    }

    fn a_waiting_request_says_what_for_and_where(driver) {
        let running = started(driver, "", "location /held { }");
        let mut client = running.client();
        client.send("GET /held?sleep=access HTTP/1.1\r\nHost: h\r\n\r\n");
        let seen = wait_for("the waiting request", || running.in_flight().into_iter().find(|r| r.wait.is_some()));
        assert_eq!((route(seen.route).as_str(), seen.wait), ("/held", Some(WaitKind::Other)));
        assert_eq!(label(seen.site), ("access".to_owned(), "act".to_owned()));
        assert!(seen.since >= seen.start && !seen.is_running);
        assert_eq!(client.response().text(), "done");
    }

    /// Whatever becomes of a request, its place is given back.
    fn a_request_that_was_dropped_is_not_in_flight(driver) {
        let running = started(driver, "", "");
        for phase in ["access", "content", "log"] {
            let mut client = running.client();
            client.send(format!("GET /?panic={phase} HTTP/1.1\r\nHost: h\r\n\r\n"));
            wait_for("nothing in flight", || running.in_flight().is_empty().then_some(()));
            assert_eq!(running.client().get("/").text(), "done", "the others go on");
        }
        wait_for("nothing in flight", || running.in_flight().is_empty().then_some(()));
        assert_eq!(running.server.threads()[0].now.running(), None);
    }

    /// Slow by the location's bound, failed, drawn; what a location does not want is not kept.
    fn trees_are_kept_for_the_reasons_of_their_location(driver) {
        let running = started(
            driver,
            "trace sample=off slow=off keep=10;",
            "location /slow { trace slow=15ms; } location /drawn { trace sample=1/2; } location /off { profile off; }",
        );
        let mut client = running.client();
        for target in ["/fast?sleep=access", "/slow?sleep=access", "/slow", "/off?sleep=access", "/drawn", "/drawn", "/fails"] {
            client.get(target);
        }
        let kept = wait_for("the failed one", || {
            let kept = running.on_worker(|worker| -> Vec<(RequestRecord, Why)> {
                worker.recorder.borrow().kept().map(|kept| (*kept.record(), kept.why())).collect()
            });
            (kept.last()?.1 == Why::Failed).then_some(kept)
        });
        let paths: Vec<_> = kept.iter().map(|(record, why)| (record.path.to_string(), *why)).collect();
        let expected = [("/slow", Why::Slow), ("/drawn", Why::Sampled), ("/fails", Why::Failed)];
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

const BURN: Duration = Duration::from_millis(3);
const SLEEP: Duration = Duration::from_millis(20);
/// Longer than a stall, so that it is one.
const BLOCK: Duration = Duration::from_millis(60);
/// The kernel's clock for TCP may be this coarse.
const TICK: Duration = Duration::from_millis(10);
