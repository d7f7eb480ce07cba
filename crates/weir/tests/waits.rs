//! Time in its place: a module that waits, or burns the processor, at one boundary after the other, and what the trees
//! of its requests say about it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use weir_conf::{Args, Contexts, Directive, LineCx};
use weir_core::body::{Body, Buf, Chain};
use weir_core::conf::http_core::HttpCore;
use weir_core::conf::main_core::MainCore;
use weir_core::conf::server_core::ServerCore;
use weir_core::filter::{BodyFilter, HeaderFilter, Slot, Step};
use weir_core::phase::{LocalFuture, Phase};
use weir_core::plan::PlanBuilder;
use weir_core::redirect::Redirect;
use weir_core::server::{Options, Server};
use weir_core::subrequest::SubrequestOptions;
use weir_core::{Error, Exchange, Handler, Module, ModuleDef, Verdict};
use weir_modules::{Index, Static};
use weir_rt::{DriverChoice, clock};
use weir_test::{Client, Driver, TempDir, both_drivers, free_port};
use weir_trace::{Kept, Kind, Node, SiteTable, Tree, WaitKind, Watch};

static MODULES: [ModuleDef; 6] = [
    ModuleDef::of::<MainCore>(),
    ModuleDef::of::<HttpCore>(),
    ModuleDef::of::<ServerCore>(),
    ModuleDef::of::<Delay>(),
    ModuleDef::of::<Index>(),
    ModuleDef::of::<Static>(),
];

/// `delay`: in every phase that runs modules, in a header filter and in a body filter, waits or burns where the query
/// string says so (`?wait=access&burn=log`; `all` is everywhere), then lets the request pass. Content answers
/// `content`, after a redirect with `/again`, or with what a subrequest for `/inner` was answered.
struct Delay;

#[derive(Default)]
struct Conf {
    on: bool,
}

impl Module for Delay {
    const NAME: &'static str = "delay";
    type Conf = Conf;
    const DIRECTIVES: &'static [Directive<Conf>] =
        &[Directive::new("delay", Contexts::SERVER.or(Contexts::LOCATION), Args::NONE, set)];

    fn inherit(conf: &mut Conf, parent: &Conf) {
        conf.on |= parent.on;
    }

    fn install(conf: &Conf, plan: &mut PlanBuilder<'_>) -> weir_conf::Result {
        if !conf.on {
            return Ok(());
        }
        for phase in PHASES {
            plan.handler(phase, Self::NAME, At(phase.name()));
        }
        let body = plan.site(Kind::BodyFilter, Self::NAME);
        plan.header_filter(Slot::Headers, Self::NAME, Filters(body));
        Ok(())
    }
}

fn set(conf: &mut Conf, _: &mut LineCx<'_>) -> weir_conf::Result {
    conf.on = true;
    Ok(())
}

/// The phases in which modules run.
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

/// Every place with a time of its own, by the name of its group in the tree.
fn places() -> impl Iterator<Item = &'static str> {
    PHASES.iter().map(|phase| phase.name()).chain(["header_filter", "body_filter"])
}

/// Whether the query string asks for `what` at `place`.
fn asked(x: &Exchange, what: &str, place: &str) -> bool {
    let args = String::from_utf8_lossy(x.args()).into_owned();
    let mut pairs = args.split('&').filter_map(|pair| pair.split_once('='));
    pairs.any(|(key, value)| key == what && (value == place || value == "all"))
}

/// A handler of that phase.
struct At(&'static str);

impl Handler for At {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        if asked(x, "burn", self.0) {
            burn();
        }
        if !["wait", "inner", "hang"].iter().any(|what| asked(x, what, self.0)) {
            return self.answer(x);
        }
        Verdict::Wait
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(async {
            if asked(x, "wait", self.0) {
                weir_rt::sleep(WAIT).await;
            }
            if asked(x, "hang", self.0) {
                std::future::pending::<()>().await;
            }
            if asked(x, "inner", self.0) {
                let inner =
                    x.subrequest(b"/inner", Some(b"wait=rewrite"), SubrequestOptions::default()).await;
                assert_eq!((inner.status, &*inner.body), (200, &b"content"[..]));
            }
            self.answer(x)
        })
    }
}

impl At {
    fn answer(&self, x: &mut Exchange) -> Verdict {
        if self.0 != Phase::Content.name() || x.uri() == b"/index/" || x.uri().ends_with(b".txt") {
            return Verdict::Declined;
        }
        if x.uri() == b"/from" {
            return Redirect::to(x, b"/to?wait=rewrite").into();
        }
        if x.uri() == b"/broken" {
            return Verdict::Status(404);
        }
        x.response.status = 200;
        x.respond(Body::Whole(Buf::Static(b"content")))
    }
}

/// The header filter, which also adds the body filter.
struct Filters(weir_trace::Site);

impl HeaderFilter for Filters {
    fn filter(&self, x: &mut Exchange) -> Verdict {
        let body = Pass { wait: asked(x, "wait", "body_filter") };
        x.body_filter(Slot::Sub, self.0, body);
        if asked(x, "burn", "header_filter") {
            burn();
        }
        if asked(x, "wait", "header_filter") {
            return Verdict::Wait;
        }
        Verdict::Ok
    }

    fn wait<'x>(&'x self, _: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(async {
            weir_rt::sleep(WAIT).await;
            Verdict::Ok
        })
    }
}

struct Pass {
    /// Still to be waited.
    wait: bool,
}

impl BodyFilter for Pass {
    fn step(&mut self, x: &mut Exchange, input: &mut Chain, output: &mut Chain) -> Result<Step, Error> {
        if std::mem::take(&mut self.wait) {
            let sleep: LocalFuture<'static, ()> = Box::pin(weir_rt::sleep(WAIT));
            return Ok(Step::Wait(sleep));
        }
        if asked(x, "burn", "body_filter") && !input.is_empty() {
            burn();
        }
        output.append(input);
        Ok(Step::More)
    }
}

fn burn() {
    let start = clock::thread_cpu_ns();
    while clock::thread_cpu_ns() - start < BURN.as_nanos() as u64 {
        std::hint::spin_loop();
    }
}

/// A server in this process with the module on.
struct Running {
    address: SocketAddr,
    server: Server,
    _folder: TempDir,
}

fn started(driver: Driver) -> Running {
    let folder = TempDir::new();
    folder.write("index/index.txt", "the index");
    folder.write("gone.txt", "not there");
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let root = folder.path().display();
    let text = format!(
        "error_log {root}/error.log info; worker_processes 1; events {{ }}
        http {{ server {{ listen {address}; root {root}; delay; index index.txt;
            location /broken {{ error_page 404 /gone.txt; }} }} }}"
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
    /// From when this returns every request's tree arrives here.
    fn watch(&self) -> Receiver<Kept> {
        let (watch, kept) = Watch::channel(1000, |_| true);
        let (done, is_done) = std::sync::mpsc::channel();
        self.server.on_worker(0, move |worker| {
            worker.recorder.borrow_mut().watch(watch);
            done.send(()).expect("it is waited for");
        });
        is_done.recv().expect("the worker lives");
        kept
    }

    fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// The tree of one request, whose answer must have this body.
    fn tree(&self, target: &str, body: &str) -> Seen {
        let kept = self.watch();
        let mut client = self.client();
        let start = Instant::now();
        let response = client.get(target);
        let outside = start.elapsed();
        assert_eq!(response.text(), body, "{target}");
        let kept = kept.recv_timeout(weir_test::DEADLINE).expect("its tree");
        Seen { tree: kept.tree().arranged(SiteTable::global()), kept, outside }
    }
}

/// A request as it was recorded.
struct Seen {
    tree: Tree,
    kept: Kept,
    /// How long the client waited for the answer.
    outside: Duration,
}

impl Seen {
    /// The group of that name directly below `parent`.
    fn group_in(&self, parent: u32, name: &str) -> Option<u32> {
        self.tree.children(parent).find(|&child| {
            let info = SiteTable::global().info(self.tree.nodes()[child as usize].site);
            &*info.name == name || (info.name.is_empty() && info.kind.as_str() == name)
        })
    }

    fn path(&self, path: &[&str]) -> &Node {
        let found = path.iter().try_fold(0, |parent, name| self.group_in(parent, name));
        &self.tree.nodes()[found.unwrap_or_else(|| panic!("no {path:?} in\n{}", self.text())) as usize]
    }

    fn text(&self) -> String {
        weir_trace::render::tree(&self.kept.tree(), SiteTable::global(), &ns)
    }

    /// Run and wait, in nanoseconds, of each place; nothing for a place that the tree has not.
    fn times(&self) -> impl Iterator<Item = (&'static str, u64, u64)> + '_ {
        places().filter_map(|place| {
            let node = &self.tree.nodes()[self.group_in(0, place)? as usize];
            Some((place, ns(node.run), ns(node.wait)))
        })
    }
}

fn ns(ticks: u64) -> u64 {
    clock::scale().ticks_to_ns(ticks)
}

both_drivers! {
    /// Issue 2: a module that waits in every phase, in a header filter and in the log phase.
    fn a_wait_shows_as_wait_where_it_was_and_nowhere_else(driver) {
        let running = started(driver);
        for place in places() {
            let seen = running.tree(&format!("/x?wait={place}"), "content");
            assert_eq!(seen.times().count(), places().count(), "{}", seen.text());
            for (at, run, wait) in seen.times() {
                let right = if at == place { wait >= LEAST } else { wait == 0 };
                assert!(right, "{wait} ns of wait in {at}, to be in {place}:\n{}", seen.text());
                assert!(run < LEAST / 2, "{run} ns of run in {at}:\n{}", seen.text());
            }
            // The time after the timer and before the poll is the loop's, not the module's.
            let record = seen.kept.record();
            let of_client = record.waits[WaitKind::ClientRead as usize] + record.waits[WaitKind::ClientWrite as usize];
            assert_eq!(of_client, 0, "{}", seen.text());
            assert!(ns(record.run + record.wait()) == ns(record.total));
        }
    }

    /// All of them at once: each keeps its own, and together they are what the client saw, but for the log phase.
    fn waits_everywhere_add_up(driver) {
        let running = started(driver);
        let seen = running.tree("/x?wait=all", "content");
        let mut all = Duration::ZERO;
        for (at, _, wait) in seen.times() {
            assert!(wait >= LEAST, "{wait} ns in {at}:\n{}", seen.text());
            all += WAIT;
        }
        let total = Duration::from_nanos(ns(seen.kept.record().total));
        assert!(total >= all * 9 / 10, "{total:?}");
        assert!(seen.outside >= (all - WAIT) * 9 / 10, "{:?}", seen.outside);
    }

    fn a_burn_shows_as_run_where_it_was(driver) {
        let running = started(driver);
        for place in places() {
            // The machine may take the processor away in the wrong moment: the best of some tries counts.
            let seen = (0..20).map(|_| running.tree(&format!("/x?burn={place}"), "content")).find(|seen| {
                let total = ns(seen.tree.root().run);
                seen.times().all(|(at, run, _)| {
                    if at == place { run * 10 >= total * 6 } else { run < BURN.as_nanos() as u64 / 4 }
                })
            });
            let seen = seen.unwrap_or_else(|| panic!("{place} never has most of the time"));
            for (at, run, wait) in seen.times() {
                assert!(at != place || run >= BURN.as_nanos() as u64, "{run} ns in {at}:\n{}", seen.text());
                assert_eq!(wait, 0, "{at}:\n{}", seen.text());
            }
        }
    }

    fn what_a_redirect_leads_to_stands_inside_it(driver) {
        let running = started(driver);
        let seen = running.tree("/from?wait=rewrite", "content");
        let outer = seen.path(&["rewrite", "delay"]);
        let inner = seen.path(&["internal_redirect", "rewrite", "delay"]);
        for node in [outer, inner] {
            assert!(node.calls == 1 && ns(node.wait) >= LEAST, "{}", seen.text());
        }
        seen.path(&["content", "delay"]);
        seen.path(&["internal_redirect", "content", "delay"]);
        seen.path(&["internal_redirect", "header_filter", "header"]);
        assert!(seen.group_in(0, "header_filter").is_none(), "{}", seen.text());
        seen.path(&["log", "delay"]);
    }

    fn index_and_error_page_lead_to_another_location(driver) {
        let running = started(driver);
        let seen = running.tree("/index/", "the index");
        seen.path(&["content", "index"]);
        seen.path(&["internal_redirect", "content", "static"]);
        let seen = running.tree("/broken", "not there");
        seen.path(&["content", "delay"]);
        seen.path(&["special_response"]);
        seen.path(&["internal_redirect", "find_config"]);
        seen.path(&["internal_redirect", "content", "static"]);
        assert_eq!(seen.kept.record().status, 404);
    }

    fn a_subrequest_stands_in_the_handler_that_made_it(driver) {
        let running = started(driver);
        let seen = running.tree("/x?inner=access", "content");
        let inner = seen.path(&["access", "delay", "subrequest", "rewrite", "delay"]);
        assert!(ns(inner.wait) >= LEAST, "{}", seen.text());
        assert_eq!(seen.path(&["access"]).wait, inner.wait, "{}", seen.text());
        assert_eq!(seen.path(&["rewrite"]).wait, 0, "{}", seen.text());
    }

    /// A request that is ready while the loop is busy with another one: its time is the loop's queue.
    fn who_waits_for_the_loop_is_in_its_queue(driver) {
        let running = started(driver);
        let kept = running.watch();
        let queued = weir_test::wait_for("a request that came with another", || {
            let mut clients: Vec<Client> = (0..8).map(|_| running.client()).collect();
            for client in &mut clients {
                client.send("GET /x?burn=access HTTP/1.1\r\nHost: h\r\n\r\n");
            }
            for client in &mut clients {
                assert_eq!(client.response().text(), "content");
            }
            let trees: Vec<Kept> = (0..8).map(|_| kept.recv_timeout(weir_test::DEADLINE).expect("its tree")).collect();
            trees.into_iter().find(|kept| ns(kept.record().queue()) >= BURN.as_nanos() as u64)
        });
        assert_eq!(queued.record().wait(), queued.record().queue(), "it waited for nothing else");
    }

    /// An answer that is complete waits neither for its log phase nor for the next request's handler.
    fn a_complete_answer_does_not_wait(driver) {
        let running = started(driver);
        let mut client = running.client();
        client.send("GET /x?hang=log HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.response().text(), "content");
        let mut client = running.client();
        client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\nGET /x?hang=access HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.response().text(), "content");
    }
}

/// Longer than anything else takes, so that it stands out.
const WAIT: Duration = Duration::from_millis(60);
/// Of it, in nanoseconds, what a timer of whole milliseconds gives at least.
const LEAST: u64 = 54_000_000;
/// As the issue has it.
const BURN: Duration = Duration::from_millis(3);
