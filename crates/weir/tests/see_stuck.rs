//! Seen while the loop is not turning: a worker burns until all has been asked that should respond and name the
//! request, which takes a tenth of a second mostly.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_see::{AdminListeners, BoundListeners, ServerSource, control_server};
use weir_test::{Client, Driver, both_drivers, free_port, wait_for};

#[path = "it/support/inside.rs"]
mod inside;
#[path = "it/support/says.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod says;

static MODULES: [ModuleDef; CORE_MODULES.len() + 1] = with_core(&[ModuleDef::of::<inside::Act>()]);

/// A server in this process with all that watches it.
struct Running {
    inside: inside::Running,
    admin: SocketAddr,
    socket: PathBuf,
    _admin: AdminListeners,
}

fn started(driver: Driver) -> Running {
    let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let server = "server { listen %%ADDRESS%%; location /burn { act; } }";
    let inside = inside::Running::start(driver, &MODULES, &format!("admin {admin};"), server);
    let source = ServerSource::new(&inside.server);
    let socket = inside.directory.path().join("control.sock");
    control_server::serve(
        UnixListener::bind(&socket).expect("binds"),
        source.clone(),
        Arc::new(|_, _, _| None),
    )
    .expect("a thread");
    let doors = BoundListeners::new(&inside.server.configuration(), None).open(&source);
    Running { inside, admin, socket, _admin: doors }
}

impl Running {
    #[track_caller]
    fn says(&self, words: &[&str]) -> String {
        says::says(words, &["--socket".as_ref(), self.socket.as_os_str()])
    }
}

both_drivers! {
    fn a_stuck_worker_is_seen(driver) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        inside::ENOUGH.store(false, Relaxed);
        let server = started(driver);
        let mut client = server.inside.client();
        client.send("GET /burn?burn=content&ms=60000 HTTP/1.1\r\nHost: a\r\n\r\n");
        let enough = Enough;
        wait_for("the request", || server.says(&["reqs", "--json"]).contains("GET /burn").then_some(()));
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
        let turn = metrics.lines().find_map(|line| line.strip_prefix("weir_loop_turn_seconds{worker=\"0\"} "));
        assert!(turn.and_then(|turn| turn.parse::<f64>().ok()).is_some_and(|turn| turn > 0.0), "{turn:?}");
        for name in ["dealt_total", "handed_on_total", "taken_over_total", "evened_out_total", "parked", "queued"] {
            assert!(metrics.contains(&format!("weir_connections_{name}{{worker=\"0\"}} ")), "{name}: {metrics}");
        }
        let workers = server.says(&["top", "workers", "--json", "-d", "0"]);
        let turn = workers.split_once("\"turn_ns\":").map(|(_, rest)| rest.split([',', '}']).next().unwrap_or_default());
        assert!(turn.and_then(|turn| turn.parse::<u64>().ok()).is_some_and(|turn| turn > 0), "{workers}");
        let doctor = server.says(&["doctor"]);
        assert!(doctor.contains("no   stuck worker  worker 0 for ") && doctor.contains("in location /burn"), "{doctor}");
        assert!(Client::connect(server.admin).get("/reqs").text().contains(&id));
        // The watchdog looks every few milliseconds.
        let blocked = wait_for("the stall", || {
            Some(server.says(&["blocked", "-v"])).filter(|text| text.contains("is blocked since"))
        });
        assert!(blocked.contains(&id) && blocked.contains("location /burn"), "{blocked}");
        drop(enough);
        eprintln!("/metrics answered in {took:?} while the worker was stuck");
        assert_eq!(client.response().text(), "content");
    }
}

/// Housekeeping is the process's: it would report the other driver's worker, too.
static ALONE: Mutex<()> = Mutex::new(());

/// Ends the burn, also when the test fails: the server's end waits for its worker.
struct Enough;

impl Drop for Enough {
    fn drop(&mut self) {
        inside::ENOUGH.store(true, Relaxed);
    }
}
