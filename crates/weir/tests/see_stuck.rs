//! Seen while the loop is not turning: a worker burns two seconds, and everything that should answer does, within a
//! tenth of a second mostly (the bound here is the burn itself), and names the request.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_conf::{Args, Contexts, Directive};
use weir_core::body::{Body, Buf};
use weir_core::conf::http_core::HttpCore;
use weir_core::conf::main_core::MainCore;
use weir_core::conf::server_core::ServerCore;
use weir_core::phase::Phase;
use weir_core::plan::PlanBuilder;
use weir_core::server::{Options, Server};
use weir_core::trace::Profile;
use weir_core::{Exchange, Handler, Module, ModuleDef, Verdict};
use weir_rt::DriverChoice;
use weir_see::{Admin, Bound, Source, control};
use weir_test::{Client, Driver, TempDir, both_drivers, free_port, wait_for};

static MODULES: [ModuleDef; 5] = [
    ModuleDef::of::<MainCore>(),
    ModuleDef::of::<HttpCore>(),
    ModuleDef::of::<ServerCore>(),
    ModuleDef::of::<Profile>(),
    ModuleDef::of::<Burn>(),
];

/// `burn;`: a content handler that keeps the processor for [`BURN`].
struct Burn;

#[derive(Default)]
struct Conf {
    on: bool,
}

impl Module for Burn {
    const NAME: &'static str = "burn";
    type Conf = Conf;
    const DIRECTIVES: &'static [Directive<Conf>] =
        &[Directive::new("burn", Contexts::LOCATION, Args::NONE, |conf: &mut Conf, _| {
            conf.on = true;
            Ok(())
        })];

    fn inherit(_: &mut Conf, _: &Conf) {}

    fn install(conf: &Conf, plan: &mut PlanBuilder<'_>) -> weir_conf::Result {
        if conf.on {
            plan.handler(Phase::Content, Self::NAME, Burning);
        }
        Ok(())
    }
}

struct Burning;

impl Handler for Burning {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        let end = Instant::now() + BURN;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        x.response.status = 200;
        x.respond(Body::Whole(Buf::Static(b"burnt")))
    }
}

/// A server in this process with all that watches it.
struct Running {
    address: SocketAddr,
    admin: SocketAddr,
    socket: PathBuf,
    _server: Server,
    _admin: Admin,
    _folder: TempDir,
}

fn started(driver: Driver) -> Running {
    let folder = TempDir::new();
    let (address, admin) =
        (SocketAddr::from(([127, 0, 0, 1], free_port())), SocketAddr::from(([127, 0, 0, 1], free_port())));
    let text = format!(
        "error_log {}/error.log; admin {admin}; worker_processes 1; events {{ }}
        http {{ server {{ listen {address}; location /burn {{ burn; }} }} }}",
        folder.path().display()
    );
    let configuration = weir_core::conf::test::load(&text, &MODULES).unwrap_or_else(|e| panic!("{e}"));
    let driver = match driver {
        Driver::IoUring => DriverChoice::IoUring,
        Driver::Epoll => DriverChoice::Epoll,
    };
    let options = Options { driver: Some(driver), ..Options::default() };
    let doors = Bound::new(&configuration, None);
    let server = Server::start(Arc::new(configuration), options).expect("starts");
    let source = Source::new(&server);
    let socket = folder.path().join("control.sock");
    control::serve(UnixListener::bind(&socket).expect("binds"), source.clone()).expect("a thread");
    let doors = doors.open(&source);
    Running { address, admin, socket, _server: server, _admin: doors, _folder: folder }
}

impl Running {
    fn says(&self, words: &[&str]) -> String {
        let weir =
            Command::new(env!("CARGO_BIN_EXE_weir")).args(words).arg("--socket").arg(&self.socket).output();
        let output = weir.expect("the program runs");
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{words:?}: {text}{errors}");
        text.into_owned()
    }
}

both_drivers! {
    fn a_stuck_worker_is_seen(driver) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let server = started(driver);
        let mut client = Client::connect(server.address);
        client.send("GET /burn HTTP/1.1\r\nHost: a\r\n\r\n");
        let begun = wait_for("the request", || {
            let seen = server.says(&["reqs", "--json"]);
            seen.contains("GET /burn").then(Instant::now)
        });
        let reqs = server.says(&["reqs"]);
        assert!(reqs.contains("GET /burn") && reqs.contains("runs"), "{reqs}");
        let id = reqs.lines().nth(1).and_then(|line| line.split(' ').next()).expect("a row").to_owned();
        let top = server.says(&["top", "workers", "-b", "-d", "20ms"]);
        assert!(top.contains("worker 0 is blocked for") && top.contains(&id), "{top}");
        let asked = Instant::now();
        let metrics = Client::connect(server.admin).get("/metrics").text();
        let took = asked.elapsed();
        let line = metrics.lines().find(|line| line.starts_with("weir_worker_blocked_seconds{")).unwrap_or_else(|| panic!("{metrics}"));
        assert!(line.contains(&id) && line.contains("location=\"/burn\""), "{line}");
        assert!(Client::connect(server.admin).get("/reqs").text().contains(&id));
        // The watchdog looks every few milliseconds.
        let blocked = wait_for("the stall", || {
            Some((begun.elapsed(), server.says(&["blocked"]))).filter(|(_, text)| text.contains("is blocked since"))
        });
        let (asked_at, blocked) = blocked;
        assert!(blocked.contains(&id) && blocked.contains("location /burn"), "{blocked}");
        // All that while it was stuck, or the machine is too busy for this to mean anything.
        assert!(asked_at < BURN, "{asked_at:?}, /metrics alone {took:?}");
        eprintln!("/metrics answered in {took:?} while the worker was stuck");
        assert_eq!(client.response().text(), "burnt");
    }
}

/// Housekeeping is the process's: it would tell of the other driver's worker, too.
static ALONE: Mutex<()> = Mutex::new(());
/// How long the loop does not turn.
const BURN: Duration = Duration::from_secs(2);
