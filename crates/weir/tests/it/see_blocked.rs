//! A loop that does not turn: a handler that burns 3 ms, one that sleeps 20 ms, one that blocks 60 ms in a system call,
//! and what samples and stalls say of each. And the sampler at 10 kHz under load, reloads and connection churn.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use weir_conf::{ArgCount, Contexts, Directive, LineCx};
use weir_engine::body::{BodyBuf, ResponseBody};
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_engine::phase::{LocalFuture, Phase};
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Handler, Module, ModuleDef, Verdict};
use weir_modules::Static;
use weir_rt::sampler::SampleSource;
use weir_rt::{DriverChoice, clock};
use weir_server::housekeeping::{self, SampledStack, WorkerStall};
use weir_server::{Server, ServerOptions};
use weir_test::{Client, Driver, TempDir, both_drivers, free_port};
use weir_trace::SiteTable;

use crate::support::StopAtEnd;

static MODULES: [ModuleDef; CORE_MODULES.len() + 2] =
    with_core(&[ModuleDef::of::<Busy>(), ModuleDef::of::<Static>()]);

/// `busy burn|sleep|block|hold MS;`: what a content handler does before it responds.
struct Busy;

#[derive(Clone, Copy, Default)]
struct Conf {
    what: Option<What>,
    time: Duration,
}

#[derive(Clone, Copy)]
enum What {
    /// On the processor.
    Burn,
    /// As one should: the loop goes on.
    Sleep,
    /// In a system call.
    Block,
    /// Until it is let go.
    Hold,
}

impl Module for Busy {
    const NAME: &'static str = "busy";
    type Conf = Conf;
    const DIRECTIVES: &'static [Directive<Conf>] =
        &[Directive::new("busy", Contexts::LOCATION, ArgCount::TWO, set)];

    fn inherit(_: &mut Conf, _: &Conf) {}

    fn install(conf: &Conf, plan: &mut PlanBuilder<'_>) {
        if conf.what.is_some() {
            plan.handler(Phase::Content, Self::NAME, *conf);
        }
    }
}

fn set(conf: &mut Conf, cx: &mut LineCx<'_>) -> weir_conf::Result {
    conf.what = match cx.arg(0) {
        "burn" => Some(What::Burn),
        "sleep" => Some(What::Sleep),
        "hold" => Some(What::Hold),
        _ => Some(What::Block),
    };
    conf.time = Duration::from_millis(cx.arg(1).parse().unwrap_or(0));
    Ok(())
}

impl Handler for Conf {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        match self.what {
            Some(What::Burn) => burn(self.time),
            Some(What::Sleep) => return Verdict::Wait,
            Some(What::Block) => block(self.time),
            Some(What::Hold) => {
                while !FREE.load(Relaxed) {
                    block(Duration::from_millis(1));
                }
            }
            None => {}
        }
        answer(x)
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(async {
            weir_rt::sleep(self.time).await;
            answer(x)
        })
    }
}

fn answer(x: &mut Exchange) -> Verdict {
    x.response.status = 200;
    x.respond(ResponseBody::Whole(BodyBuf::Static(b"done")))
}

#[inline(never)]
fn burn(time: Duration) {
    let end = clock::thread_cpu_ns() + time.as_nanos() as u64;
    while clock::thread_cpu_ns() < end {
        std::hint::spin_loop();
    }
}

/// The standard library's sleep: clock_nanosleep(2), which blocks the thread.
#[inline(never)]
fn block(time: Duration) {
    std::thread::sleep(time);
}

/// Whether what is held may go on, which one test at a time says.
static FREE: AtomicBool = AtomicBool::new(false);
static HOLDING: Mutex<()> = Mutex::new(());

/// Lets go of what is held, also when the test fails: the server's end waits for its worker.
struct Enough;

impl Drop for Enough {
    fn drop(&mut self) {
        FREE.store(true, Relaxed);
    }
}

/// Housekeeping is the process's: at 10 kHz every worker is interrupted, and a call that was restarted no longer says
/// which one it was.
static ALONE: RwLock<()> = RwLock::new(());

struct Running {
    address: SocketAddr,
    server: Server,
    directory: TempDir,
    driver: DriverChoice,
}

fn started(driver: Driver, workers: usize) -> Running {
    let directory = TempDir::new();
    directory.write("a.txt", "a file");
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let driver = match driver {
        Driver::IoUring => DriverChoice::IoUring,
        Driver::Epoll => DriverChoice::Epoll,
    };
    let options = ServerOptions { driver: Some(driver), workers: Some(workers), ..ServerOptions::default() };
    let server = Server::start(configuration(&directory, address), options).expect("starts");
    Running { address, server, directory, driver }
}

fn configuration(directory: &TempDir, address: SocketAddr) -> Arc<weir_engine::Configuration> {
    let root = directory.path().display();
    let text = format!(
        "error_log {root}/error.log info; events {{ }}
        http {{ server {{ listen {address}; root {root};
            location /burn {{ busy burn 3; }} location /burn-long {{ busy burn 60; }}
            location /sleep {{ busy sleep 20; }} location /block {{ busy block 60; }}
            location /stuck {{ busy hold 0; }} }} }}"
    );
    Arc::new(weir_engine::conf::test::load(&text, &MODULES).unwrap_or_else(|e| panic!("{e}")))
}

impl Running {
    fn get(&self, path: &str) {
        assert_eq!(Client::connect(self.address).get(path).text(), "done", "{path}");
    }

    /// This server's worker among those that other tests have in this process.
    fn is_mine(&self, stall: &WorkerStall) -> bool {
        let info = SiteTable::global().info(stall.stall.route);
        self.stalls_of_mine().any(|mine| mine.start == stall.stall.start) && !info.location.is_empty()
    }

    fn stalls_of_mine(&self) -> impl Iterator<Item = weir_trace::LoopStall> + '_ {
        self.server.threads().into_iter().flat_map(|thread| thread.recorder.stalls().list())
    }

    /// Asks that location until there is a stall of it that is over, has its stack, and is what is `expected`: on a busy
    /// machine the watchdog may come too late for one, or find the thread waiting for a page of the program.
    fn stall(
        &self,
        location: &str,
        expected: impl Fn(&weir_trace::LoopStall) -> bool,
    ) -> weir_trace::LoopStall {
        weir_test::wait_for("a stall with its stack", || {
            self.get(location);
            let shown = housekeeping::handle().stalls();
            if shown.iter().any(|stall| stall.ongoing && self.is_mine(stall)) {
                return None; // the response may come before the turn is over
            }
            let right = |stall: &weir_trace::LoopStall| {
                let info = SiteTable::global().info(stall.route);
                &*info.location == location && !stall.sample.frames.is_empty() && expected(stall)
            };
            self.stalls_of_mine().find(right)
        })
    }
}

fn ms(ticks: u64) -> u64 {
    clock::scale().ticks_to_ns(ticks) / 1_000_000
}

both_drivers! {
    fn a_blocking_call_is_found_named_and_timed(driver) {
        let _others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
        let running = started(driver, 1);
        // A call that was interrupted (io_uring does that, too, to have its work done) goes on under another number.
        let in_call = |call| call == Some(libc_nanosleep()) || call == Some(RESTART);
        let stall = running.stall("/block", |stall| {
            let (channel, restarted) = (&stall.wait_channel, stall.syscall == Some(RESTART));
            let waits = restarted || channel.is_empty() || channel.contains("nanosleep");
            stall.state == b'S' && in_call(stall.syscall) && waits && (60..1000).contains(&ms(stall.duration))
        });
        let site = SiteTable::global().info(stall.sample.site);
        assert_eq!((&*site.name, site.phase), ("busy", Some("content")));
        assert_ne!(stall.sample.request.0, 0);
    }

    fn a_long_burn_is_running_and_in_no_call(driver) {
        let _others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
        let running = started(driver, 1);
        let stall = running.stall("/burn-long", |stall| stall.state == b'R' && stall.syscall.is_none());
        assert!(ms(stall.duration) >= 60, "{} ms", ms(stall.duration));
    }

    /// Neither holds the loop for 10 ms. On a busy machine a burn of 3 ms may well take that long; not every time.
    fn what_is_short_or_waits_is_no_stall(driver) {
        let _others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
        let running = started(driver, 1);
        weir_test::wait_for("requests without a stall", || {
            let before = running.stalls_of_mine().count();
            running.get("/burn");
            running.get("/sleep");
            (running.stalls_of_mine().count() == before).then_some(())
        });
    }

    fn everything_answers_while_a_worker_is_stuck(driver) {
        let _holder = HOLDING.lock().unwrap_or_else(PoisonError::into_inner);
        let _others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
        let running = started(driver, 1);
        let mut client = Client::connect(running.address);
        FREE.store(false, Relaxed);
        let enough = Enough;
        client.send("GET /stuck HTTP/1.1\r\nHost: h\r\n\r\n");
        let stall = weir_test::wait_for("the stall, while it lasts", || {
            housekeeping::handle().stalls().into_iter().find(|stall| stall.ongoing && running.is_mine(stall))
        });
        let handle = housekeeping::handle();
        let tid = running.server.threads()[0].now.running().map(|request| request.id);
        assert_eq!(tid, Some(stall.stall.sample.request), "the request in flight is the one that is stuck");
        // Workers of other tests are among these.
        let is_stuck = handle.workers().iter().any(|view| {
            view.busy.is_some_and(|busy| busy >= Duration::from_millis(10))
                && view.thread.is_some_and(|thread| thread.tid > 0)
                && view.connections > 0
        });
        assert!(is_stuck, "it is among the workers");
        assert!(handle.process().is_ok_and(|process| process.resident > 0));
        drop(handle.stacks(Duration::from_secs(10)));
        assert!(running.server.threads()[0].now.running().is_some(), "stuck all the while");
        drop(enough);
        assert_eq!(client.response().text(), "done");
    }

    /// While a worker is stuck new connections are the other one's, and the stall says so.
    fn a_stall_says_what_became_of_connections(driver) {
        let _holder = HOLDING.lock().unwrap_or_else(PoisonError::into_inner);
        let _others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
        let running = started(driver, 2);
        let mut client = Client::connect(running.address);
        FREE.store(false, Relaxed);
        let enough = Enough;
        client.send("GET /stuck HTTP/1.1\r\nHost: h\r\n\r\n");
        let connections = weir_test::wait_for("new connections beside the stall", || {
            let stalls = housekeeping::handle().stalls();
            let stall = stalls.into_iter().find(|stall| stall.ongoing && running.is_mine(stall))?;
            for _ in 0..4 {
                assert_eq!(Client::connect(running.address).get("/a.txt").text(), "a file");
            }
            stall.stall.connections.filter(|connections| connections.dealt_elsewhere >= 4)
        });
        assert!(connections.stayed >= 1, "{connections:?}");
        drop(enough);
        assert_eq!(client.response().text(), "done");
    }

    /// The burn is what the samples show, with its place; the sleep and the block take no processor.
    fn samples_show_who_burns(driver) {
        let _others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
        let running = started(driver, 1);
        let handle = housekeeping::handle();
        let collection = handle.collect(SampleSource::Cpu, 250, Duration::from_secs(120)).expect("a timer");
        for _ in 0..20 {
            running.get("/burn-long");
            running.get("/sleep");
        }
        let profile = collection.profile();
        let of = |location: &'static str| {
            let here = move |stack: &SampledStack| &*SiteTable::global().info(stack.route).location == location;
            profile.stacks.iter().filter(|(stack, _)| here(stack)).map(|(_, w)| w.ns).sum::<u64>()
        };
        let (burnt, slept) = (of("/burn-long"), of("/sleep"));
        // Of 1.2 s; the tests for the other driver may have the same at the same time.
        assert!(burnt >= 800_000_000 && slept <= burnt / 10, "{burnt} and {slept} ns");
        let busy = |stack: &SampledStack| &*SiteTable::global().info(stack.site).name == "busy";
        let named: u64 = profile.stacks.iter().filter(|(stack, _)| busy(stack)).map(|(_, w)| w.ns).sum();
        assert!(named >= burnt * 9 / 10, "{named} of {burnt} ns have their module");
        drop(collection);
    }

    /// `WEIR_TORTURE_SECONDS=60` for the minute of the issue.
    fn ten_thousand_samples_a_second_under_load_reloads_and_churn(driver) {
        let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
        let seconds = std::env::var("WEIR_TORTURE_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
        let end = Instant::now() + Duration::from_secs(seconds);
        let running = started(driver, 2);
        let collection =
            housekeeping::handle().collect(SampleSource::Wall, 10_000, Duration::from_secs(600)).expect("a timer");
        let (stop, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _stops = StopAtEnd(&stop);
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        let mut client = Client::connect(running.address);
                        let right = (0..20).all(|_| client.get("/a.txt").text() == "a file");
                        failed.fetch_or(!right || client.get("/burn").text() != "done", Relaxed);
                    }
                });
            }
            while Instant::now() < end {
                let next = configuration(&running.directory, running.address);
                running.server.reload(next).expect("reloads");
                // More servers come and go, with threads of their own.
                let other = started_beside(&running);
                other.stop();
                assert!(other.join(Some(weir_test::DEADLINE)));
            }
            stop.store(true, Relaxed);
        });
        assert!(!failed.load(Relaxed));
        let profile = collection.profile();
        let samples: u64 = profile.stacks.iter().map(|(_, weight)| weight.samples).sum();
        println!("{samples} samples, {} stacks", profile.stacks.len());
        // Of 20,000 a second, were the processors its own.
        assert!(samples > 100 * seconds, "{samples}");
        assert!(profile.stacks.iter().any(|(stack, _)| stack.parked));
    }
}

fn started_beside(running: &Running) -> Server {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let options =
        ServerOptions { driver: Some(running.driver), workers: Some(1), ..ServerOptions::default() };
    Server::start(configuration(&running.directory, address), options).expect("starts")
}

/// restart_syscall(2).
const RESTART: u32 = if cfg!(target_arch = "x86_64") { 219 } else { 128 };

/// clock_nanosleep(2).
fn libc_nanosleep() -> u32 {
    if cfg!(target_arch = "x86_64") { 230 } else { 115 }
}
