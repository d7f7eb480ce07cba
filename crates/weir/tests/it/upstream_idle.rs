//! Idle connections to servers belong to all workers: one that is stuck keeps few of them from the others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use weir_conf::{ArgCount, Contexts, Directive};
use weir_engine::body::{BodyBuf, ResponseBody};
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_engine::phase::Phase;
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Handler, Module, ModuleDef, Verdict};
use weir_modules::Proxy;
use weir_rt::DriverChoice;
use weir_server::{Server, ServerOptions};
use weir_test::{Backend, Client, Driver, Server as TestServer, TempDir, both_drivers, free_port, wait_for};
use weir_upstream::UpstreamModule;

static MODULES: [ModuleDef; CORE_MODULES.len() + 3] =
    with_core(&[ModuleDef::of::<UpstreamModule>(), ModuleDef::of::<Proxy>(), ModuleDef::of::<Stuck>()]);

/// `stuck;`: a content handler that keeps its worker until the test lets go; `who;`: one that names its worker.
struct Stuck;

#[derive(Default)]
struct Conf {
    stuck: bool,
    who: bool,
}

impl Module for Stuck {
    const NAME: &'static str = "stuck";
    type Conf = Conf;
    const DIRECTIVES: &'static [Directive<Conf>] = &[
        Directive::new("stuck", Contexts::LOCATION, ArgCount::NONE, |conf: &mut Conf, _| {
            conf.stuck = true;
            Ok(())
        }),
        Directive::new("who", Contexts::LOCATION, ArgCount::NONE, |conf: &mut Conf, _| {
            conf.who = true;
            Ok(())
        }),
    ];

    fn inherit(_: &mut Conf, _: &Conf) {}

    fn install(conf: &Conf, plan: &mut PlanBuilder<'_>) {
        if conf.stuck {
            plan.handler(Phase::Content, Self::NAME, Sticking);
        } else if conf.who {
            plan.handler(Phase::Content, Self::NAME, Naming);
        }
    }
}

/// How many are stuck, and whether they may go on.
static STUCK: AtomicUsize = AtomicUsize::new(0);
static GO: AtomicBool = AtomicBool::new(false);

struct Sticking;

impl Handler for Sticking {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        STUCK.fetch_add(1, SeqCst);
        while !GO.load(SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        STUCK.fetch_sub(1, SeqCst);
        x.response.status = 200;
        x.respond(ResponseBody::Whole(BodyBuf::Static(b"free")))
    }
}

struct Naming;

impl Handler for Naming {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        x.response.status = 200;
        x.respond(ResponseBody::Whole(BodyBuf::Bytes(x.worker.id.to_string().into_bytes())))
    }
}

/// Lets go of what is stuck, also when the test fails: the server's end waits for its workers.
struct Release;

impl Drop for Release {
    fn drop(&mut self) {
        GO.store(true, SeqCst);
    }
}

fn started(driver: Driver, backend: &Backend, directory: &TempDir) -> (Server, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let text = format!(
        "error_log {}/error.log; worker_processes {WORKERS}; events {{ }}
        http {{ upstream u {{ server 127.0.0.1:{}; keepalive 32; }}
        proxy_temp_path {0}/temp; client_body_temp_path {0}/temp;
        server {{ listen {address} reuseport; keepalive_requests 100000; location / {{ proxy_pass http://u; }}
            location = /who {{ who; }} location = /stuck {{ stuck; }} }} }}",
        directory.path().display(),
        backend.port(),
    );
    let configuration =
        weir_engine::conf::test::load(&text, &MODULES).unwrap_or_else(|error| panic!("{error}"));
    let driver = match driver {
        Driver::IoUring => DriverChoice::IoUring,
        Driver::Epoll => DriverChoice::Epoll,
    };
    let options = ServerOptions { driver: Some(driver), ..ServerOptions::default() };
    (Server::start(Arc::new(configuration), options).expect("starts"), address)
}

/// This many clients of each worker.
fn clients(address: SocketAddr) -> [Vec<Client>; WORKERS] {
    let mut found: [Vec<Client>; WORKERS] = Default::default();
    wait_for("clients of every worker", || {
        let mut client = Client::connect(address);
        let worker: usize = client.get("/who").text().parse().expect("a number");
        if found[worker].len() < CLIENTS {
            found[worker].push(client);
        }
        found.iter().all(|clients| clients.len() == CLIENTS).then_some(())
    });
    found
}

/// All of them ask at once, and get responses.
fn burst(clients: &mut [Client]) {
    for client in &mut *clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in clients {
        assert_eq!(client.response().text(), "served");
    }
}

both_drivers! {
    /// The load moves from worker to worker, while one of them is stuck: 95 of 100 requests find a connection.
    fn connections_go_where_the_requests_are(driver) {
        // In-process: the tests of the two drivers share the statics.
        static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        GO.store(false, SeqCst);
        let (backend, directory) = (Backend::answering("served"), TempDir::new());
        let (_server, address) = started(driver, &backend, &directory);
        let _release = Release;
        let mut clients = clients(address);
        for _ in 0..3 {
            clients.iter_mut().for_each(|clients| burst(clients));
        }
        let (blocked, others) = clients.split_at_mut(1);
        blocked[0][0].send("GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_for("the stuck worker", || (STUCK.load(SeqCst) == 1).then_some(()));
        let (visits, heads) = (backend.visits(), backend.heads());
        for _ in 0..10 {
            for clients in &mut *others {
                (0..3).for_each(|_| burst(clients));
            }
        }
        let (new, asked) = (backend.visits() - visits, backend.heads() - heads);
        assert_eq!(asked, 10 * 3 * 3 * CLIENTS);
        eprintln!("{new} new connections for {asked} requests");
        assert!(new * 20 <= asked, "{new} new connections for {asked} requests");
        GO.store(true, SeqCst);
        assert_eq!(blocked[0][0].response().text(), "free");
    }
}

/// What workers keep, own and shared, goes with its configuration: nothing else would close it for a minute.
fn what_a_reload_closes(workers: usize) {
    // A server's end of connections that have ended, and how many it has had.
    let ended = Arc::new(AtomicUsize::new(0));
    let ends = ended.clone();
    let backend = Backend::start(move |visit| {
        while visit.head().is_some() {
            visit.answer("served");
        }
        ends.fetch_add(1, SeqCst);
    });
    let conf = format!(
        "worker_processes {workers};
        http {{ upstream up {{ server 127.0.0.1:{}; keepalive 16; keepalive_timeout 1h; }}
            server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://up; proxy_http_version 1.1;
                proxy_set_header Connection ''; }} }} }}",
        backend.port()
    );
    let mut server = TestServer::builder(&conf).start();
    let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    clients.iter_mut().for_each(|client| assert_eq!(client.response().text(), "served"));
    let had = backend.visits();
    assert!(had > 0 && ended.load(SeqCst) == 0, "{had} connections are kept");
    drop(clients);
    server.reload(&conf);
    wait_for("the end of all of them", || (ended.load(SeqCst) == had).then_some(()));
    assert_eq!(server.client().get("/").text(), "served");
}

both_drivers! {
    fn a_reload_closes_what_one_worker_keeps(_driver) {
        what_a_reload_closes(1);
    }

    fn a_reload_closes_what_four_workers_keep(_driver) {
        what_a_reload_closes(4);
    }
}

const WORKERS: usize = 4;
/// More at a time than a worker's share of the idle connections.
const CLIENTS: usize = 12;
