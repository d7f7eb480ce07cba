//! A server inside the test's own process, and a module that does a known thing at a known place of a request.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weir_conf::{ArgCount, Contexts, Directive, LineCx};
use weir_engine::body::{BodyBuf, BodyChain, ResponseBody};
use weir_engine::filter::{BodyFilter, FilterSlot, FilterStep, HeaderFilter};
use weir_engine::phase::{LocalFuture, Phase};
use weir_engine::plan::PlanBuilder;
use weir_engine::redirect::InternalRedirect;
use weir_engine::subrequest::SubrequestOptions;
use weir_engine::variable::Variable;
use weir_engine::worker::Worker;
use weir_engine::{EngineError, Exchange, Handler, Module, ModuleDef, Text, Verdict};
use weir_rt::{DriverChoice, clock};
use weir_server::{Server, ServerOptions};
use weir_test::{Client, DEADLINE, Driver, TempDir, free_port};
use weir_trace::{KeptRequest, Site, SiteKind, SiteTable, TraceWatch};

/// `act`: does at each place what the query string says, then lets the request pass. Places are the phases in which
/// modules run, `header_filter` and `body_filter`; with `act slots;` also each slot of filters by itself, as `header:gzip`
/// and `body:gzip`; and `variable`, where `$act` is evaluated. Of one thing there may be several places; `all` are all.
///
/// * `burn=access` spins for [`BURN`] on the clock that the server's stamps are of, so that time in which the thread had
///   no processor is part of it;
/// * `block=access` blocks the thread for [`BLOCK`], `sleep=access` waits on a timer for [`SLEEP`]; `ms=60` is another
///   time for all of these;
/// * `hold=access` blocks the thread as long as [`Hold`] lives;
/// * `hang=access` waits for ever, `panic=access` panics, `inner=access` makes a subrequest for `/inner`, which sleeps in
///   the rewrite phase.
///
/// The content handler responds with `content`, for `/from` after a redirect to `/to`, for `/fails` with 500 and for
/// `/broken` with 404.
pub(crate) struct Act;

#[derive(Default)]
pub(crate) struct Conf {
    on: bool,
    slots: bool,
}

impl Module for Act {
    const NAME: &'static str = "act";
    type Conf = Conf;
    const DIRECTIVES: &'static [Directive<Conf>] =
        &[Directive::new("act", Contexts::SERVER.or(Contexts::LOCATION), ArgCount::NONE_OR_ONE, set)];
    const VARIABLES: &'static [Variable] = &[Variable::new("act", variable).volatile()];

    fn inherit(conf: &mut Conf, parent: &Conf) {
        conf.on |= parent.on;
        conf.slots |= parent.slots;
    }

    fn install(conf: &Conf, plan: &mut PlanBuilder<'_>) {
        if !conf.on {
            return;
        }
        for phase in PHASES {
            plan.handler(phase, Self::NAME, At(phase.name()));
        }
        let filters = if conf.slots { &SLOTS[..] } else { &[] };
        for &(slot, header, body) in filters {
            let site = plan.site(SiteKind::BodyFilter, body);
            plan.header_filter(slot, header, Filters { header, body, slot, site });
        }
        let site = plan.site(SiteKind::BodyFilter, Self::NAME);
        let filters = Filters { header: "header_filter", body: "body_filter", slot: FilterSlot::Sub, site };
        plan.header_filter(FilterSlot::Headers, Self::NAME, filters);
    }
}

fn set(conf: &mut Conf, line: &mut LineCx<'_>) -> weir_conf::Result {
    conf.on = true;
    conf.slots |= !line.args().is_empty();
    Ok(())
}

/// `$act`: empty.
fn variable(x: &mut Exchange) -> Option<Text> {
    run(x, "variable");
    Some(Text::EMPTY)
}

/// The phases in which modules run.
pub(crate) const PHASES: [Phase; 8] = [
    Phase::PostRead,
    Phase::ServerRewrite,
    Phase::Rewrite,
    Phase::Preaccess,
    Phase::Access,
    Phase::Precontent,
    Phase::Content,
    Phase::Log,
];

/// The slots in which modules filter: what the engine itself does is in the others.
pub(crate) const SLOTS: [(FilterSlot, &str, &str); 19] = [
    (FilterSlot::Reproxy, "header:reproxy", "body:reproxy"),
    (FilterSlot::Slice, "header:slice", "body:slice"),
    (FilterSlot::NotModified, "header:not_modified", "body:not_modified"),
    (FilterSlot::RangeBody, "header:range_body", "body:range_body"),
    (FilterSlot::Copy, "header:copy", "body:copy"),
    (FilterSlot::Aux, "header:aux", "body:aux"),
    (FilterSlot::Headers, "header:headers", "body:headers"),
    (FilterSlot::Trailers, "header:trailers", "body:trailers"),
    (FilterSlot::UserId, "header:userid", "body:userid"),
    (FilterSlot::Gunzip, "header:gunzip", "body:gunzip"),
    (FilterSlot::Addition, "header:addition", "body:addition"),
    (FilterSlot::Sub, "header:sub", "body:sub"),
    (FilterSlot::Charset, "header:charset", "body:charset"),
    (FilterSlot::Ssi, "header:ssi", "body:ssi"),
    (FilterSlot::Gzip, "header:gzip", "body:gzip"),
    (FilterSlot::Brotli, "header:brotli", "body:brotli"),
    (FilterSlot::Zstd, "header:zstd", "body:zstd"),
    (FilterSlot::RangeHeader, "header:range_header", "body:range_header"),
    (FilterSlot::Chunked, "header:chunked", "body:chunked"),
];

/// Whether the query string asks for `what` at `place`.
fn asked(x: &Exchange, what: &str, place: &str) -> bool {
    let args = String::from_utf8_lossy(x.args()).into_owned();
    let mut pairs = args.split('&').filter_map(|pair| pair.split_once('='));
    pairs.any(|(key, value)| key == what && (value == place || value == "all"))
}

/// How long, if the query string says so.
fn time(x: &Exchange, otherwise: Duration) -> Duration {
    let args = String::from_utf8_lossy(x.args()).into_owned();
    let ms = args.split('&').find_map(|pair| pair.strip_prefix("ms=")?.parse().ok());
    ms.map_or(otherwise, Duration::from_millis)
}

/// What takes no waiting.
fn run(x: &Exchange, place: &str) {
    let start = Instant::now();
    let (burns, blocks) = (asked(x, "burn", place), asked(x, "block", place));
    if burns {
        burn(time(x, BURN));
    }
    if blocks {
        thread::sleep(time(x, BLOCK));
    }
    if burns || blocks {
        let mut lasted = LASTED.lock().unwrap_or_else(PoisonError::into_inner);
        *lasted.entry(x.id().0).or_default() += start.elapsed();
    }
    if asked(x, "hold", place) {
        while HELD.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(!asked(x, "panic", place), "as it was asked to");
}

/// How long burns and blocks of each request lasted: where others want the processor, longer than they should.
static LASTED: Mutex<BTreeMap<u128, Duration>> = Mutex::new(BTreeMap::new());

/// How long those of this request lasted.
pub(crate) fn lasted(kept: &KeptRequest) -> Duration {
    let lasted = LASTED.lock().unwrap_or_else(PoisonError::into_inner);
    lasted.get(&kept.record().id.0).copied().unwrap_or_default()
}

/// Whether what holds goes on holding.
static HELD: AtomicBool = AtomicBool::new(false);
static HOLDER: Mutex<()> = Mutex::new(());

/// As long as this lives what holds does, also when the test fails; one test at a time may have it.
pub(crate) struct Hold {
    _alone: MutexGuard<'static, ()>,
}

impl Hold {
    pub(crate) fn new() -> Hold {
        let alone = HOLDER.lock().unwrap_or_else(PoisonError::into_inner);
        HELD.store(true, Relaxed);
        Hold { _alone: alone }
    }

    /// Lets go, and goes on keeping other tests from holding.
    pub(crate) fn release(&self) {
        HELD.store(false, Relaxed);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.release();
    }
}

/// Ends what burns, before its time.
pub(crate) static ENOUGH: AtomicBool = AtomicBool::new(false);

fn burn(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time && !ENOUGH.load(Relaxed) {
        std::hint::spin_loop();
    }
}

/// A handler of that phase.
struct At(&'static str);

impl Handler for At {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        run(x, self.0);
        if ["sleep", "inner", "hang"].iter().any(|what| asked(x, what, self.0)) {
            return Verdict::Wait;
        }
        self.answer(x)
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(async {
            if asked(x, "sleep", self.0) {
                weir_rt::sleep(time(x, SLEEP)).await;
            }
            if asked(x, "hang", self.0) {
                std::future::pending::<()>().await;
            }
            if asked(x, "inner", self.0) {
                let args = Some(&b"sleep=rewrite&ms=60"[..]);
                let inner = x.subrequest(b"/inner", args, SubrequestOptions::default()).await;
                assert_eq!((inner.status, &*inner.body), (200, &b"content"[..]));
            }
            self.answer(x)
        })
    }
}

impl At {
    fn answer(&self, x: &mut Exchange) -> Verdict {
        let declines =
            x.uri() == b"/index/" || x.uri().ends_with(b".txt") || x.uri().starts_with(b"/declined");
        if self.0 != Phase::Content.name() || declines {
            return Verdict::Declined;
        }
        match x.uri() {
            b"/from" => return InternalRedirect::to(x, b"/to?sleep=rewrite&ms=60").into(),
            b"/fails" => return Verdict::Status(500),
            b"/broken" => return Verdict::Status(404),
            _ => {}
        }
        x.response.status = 200;
        x.respond(ResponseBody::Whole(BodyBuf::Static(b"content")))
    }
}

/// A header filter, which also adds a body filter.
struct Filters {
    header: &'static str,
    body: &'static str,
    slot: FilterSlot,
    /// Of the body filter.
    site: Site,
}

impl HeaderFilter for Filters {
    fn filter(&self, x: &mut Exchange) -> Verdict {
        x.body_filter(self.slot, self.site, Pass { place: self.body, is_first: true });
        run(x, self.header);
        if asked(x, "sleep", self.header) { Verdict::Wait } else { Verdict::Ok }
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(async {
            weir_rt::sleep(time(x, SLEEP)).await;
            Verdict::Ok
        })
    }
}

/// The body filter: does it once.
struct Pass {
    place: &'static str,
    is_first: bool,
}

impl BodyFilter for Pass {
    fn step(
        &mut self,
        x: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> Result<FilterStep, EngineError> {
        if !input.is_empty() && std::mem::take(&mut self.is_first) {
            run(x, self.place);
            if asked(x, "sleep", self.place) {
                let sleep: LocalFuture<'static, ()> = Box::pin(weir_rt::sleep(time(x, SLEEP)));
                return Ok(FilterStep::Wait(sleep));
            }
        }
        output.append(input);
        Ok(FilterStep::More)
    }
}

/// A server in this process.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) server: Server,
    pub(crate) directory: TempDir,
}

impl Running {
    /// Starts with one worker and these blocks in `http`, `%%ADDRESS%%` for the address to listen on.
    pub(crate) fn start(driver: Driver, modules: &'static [ModuleDef], main: &str, http: &str) -> Running {
        let directory = TempDir::new();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let http = http.replace("%%ADDRESS%%", &address.to_string());
        let text = configuration(directory.path(), main, &http);
        let configuration = weir_engine::conf::test::load(&text, modules).unwrap_or_else(|e| panic!("{e}"));
        let server = Server::start(Arc::new(configuration), options(driver)).expect("starts");
        Running { address, server, directory }
    }

    /// What `ask` gives on the worker's thread.
    pub(crate) fn on_worker<T: Send + 'static>(&self, ask: impl FnOnce(&Worker) -> T + Send + 'static) -> T {
        let (tell, reported) = channel();
        self.server.on_worker(0, move |worker| tell.send(ask(worker)).expect("it is waited for"));
        reported.recv_timeout(DEADLINE).expect("the worker lives")
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request: its record and tree, and how long its client waited.
    pub(crate) fn seen(&self, request: &str) -> (KeptRequest, Duration) {
        let (watch, kept) = TraceWatch::channel(1, |_| true);
        self.on_worker(|worker| worker.recorder.borrow_mut().watch(watch));
        let mut client = self.client();
        let start = Instant::now();
        client.request(request);
        let outside = start.elapsed();
        (kept.recv_timeout(DEADLINE).expect("its tree"), outside)
    }

    /// Of some requests the first that is as it should be. The machine may take the processor away in the wrong moment:
    /// what is true shows itself in some of them, what is false in none.
    #[track_caller]
    pub(crate) fn find(&self, target: &str, good: impl Fn(&KeptRequest, Duration) -> bool) -> KeptRequest {
        self.find_request(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"), good)
    }

    #[track_caller]
    pub(crate) fn find_request(
        &self,
        request: &str,
        good: impl Fn(&KeptRequest, Duration) -> bool,
    ) -> KeptRequest {
        let end = Instant::now() + DEADLINE;
        let (kept, outside) = loop {
            let (kept, outside) = self.seen(request);
            if good(&kept, outside) {
                return kept;
            }
            if Instant::now() >= end {
                break (kept, outside);
            }
        };
        let line = request.lines().next().unwrap_or_default();
        panic!("{line}, {outside:?} outside:\n{}", text(&kept));
    }
}

/// The text of a configuration with one worker and a log in `folder`.
pub(crate) fn configuration(directory: &Path, main: &str, http: &str) -> String {
    let directory = directory.display();
    format!(
        "error_log {directory}/error.log info; {main} worker_processes 1; events {{ }} http {{ root {directory}; {http} }}"
    )
}

pub(crate) fn options(driver: Driver) -> ServerOptions {
    let driver = match driver {
        Driver::IoUring => DriverChoice::IoUring,
        Driver::Epoll => DriverChoice::Epoll,
    };
    ServerOptions { driver: Some(driver), ..ServerOptions::default() }
}

/// A retained request as a person sees it.
pub(crate) fn text(kept: &KeptRequest) -> String {
    let sites = SiteTable::global();
    let headline = weir_trace::render::headline(kept.record(), sites, &ns);
    format!("{headline}\n{}", weir_trace::render::tree(&kept.tree(), sites, &ns))
}

pub(crate) fn ns(ticks: u64) -> u64 {
    clock::scale().ticks_to_ns(ticks)
}

pub(crate) fn took(ticks: u64) -> Duration {
    Duration::from_nanos(ns(ticks))
}

/// Within one in twenty.
pub(crate) fn is_about(time: Duration, known: Duration) -> bool {
    time >= known - known / 1000 && time <= known + known / 20
}

pub(crate) const BURN: Duration = Duration::from_millis(3);
pub(crate) const SLEEP: Duration = Duration::from_millis(20);
/// Longer than a stall, so that it is one.
pub(crate) const BLOCK: Duration = Duration::from_millis(60);
