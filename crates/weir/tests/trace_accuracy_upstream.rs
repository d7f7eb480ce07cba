//! Whether times are shown where they were spent: a burn in each slot of filters, and what a server behind a proxy
//! takes for each step of its response. The phases are `trace_accuracy.rs`'.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_modules::Proxy;
use weir_rt::net::{self, ListenOptions};
use weir_test::{Backend, BackendVisit, Driver, both_drivers, wait_for};
use weir_trace::{KeptRequest, SiteKind, SiteTable, WaitKind};
use weir_upstream::UpstreamModule;

#[path = "it/support/inside.rs"]
mod inside;

use inside::{Act, Running, SLOTS, is_about, lasted, text, took};

static MODULES: [ModuleDef; CORE_MODULES.len() + 3] =
    with_core(&[ModuleDef::of::<UpstreamModule>(), ModuleDef::of::<Act>(), ModuleDef::of::<Proxy>()]);

/// Own running time of the nodes of this kind and name.
fn ran(kept: &KeptRequest, is_meant: impl Fn(SiteKind, &str) -> bool) -> Duration {
    let (tree, sites) = (kept.tree(), SiteTable::global());
    let meant = |site| {
        let info = sites.info(site);
        is_meant(info.kind, &info.name)
    };
    took(tree.nodes().iter().skip(1).filter(|node| meant(node.site)).map(|node| node.self_run).sum())
}

/// In that place within a twentieth, and in all others together as little.
fn is_only(kept: &KeptRequest, place: Duration) -> bool {
    let burn = lasted(kept);
    is_about(place, burn) && took(kept.record().run) < burn + burn / 10
}

fn proxy(driver: Driver, port: u16, more: &str) -> Running {
    let server = format!(
        "upstream u {{ server 127.0.0.1:{port}; }}
         server {{ listen %%ADDRESS%%; act; location /declined {{ proxy_pass http://u; {more} }} }}"
    );
    Running::start(driver, &MODULES, "", &server)
}

/// What the request waited for in all, by kind.
fn waited(kept: &KeptRequest, kind: WaitKind) -> Duration {
    took(kept.record().waits[kind as usize])
}

/// It waited for this as long as `known`, and for nothing else that servers are waited for.
fn is_wait(kept: &KeptRequest, kind: WaitKind, known: Duration) -> bool {
    let kinds = [
        WaitKind::UpstreamConnect,
        WaitKind::UpstreamSend,
        WaitKind::UpstreamFirstByte,
        WaitKind::UpstreamBody,
    ];
    let others: Duration =
        kinds.into_iter().filter(|&other| other != kind).map(|other| waited(kept, other)).sum();
    is_about(waited(kept, kind), known) && others < known / 20 && took(kept.record().run) < known / 20
}

/// Responds after `pause` before the head, and after `pause` in the middle of the body, where asked to.
fn pausing(visit: &mut BackendVisit) {
    while let Some(head) = visit.head() {
        if head.contains("at=head") {
            thread::sleep(PAUSE);
        }
        if head.contains("at=body") {
            let (begin, end) = ANSWER.split_at(ANSWER.len() - 2);
            visit.send(begin);
            thread::sleep(PAUSE);
            visit.send(end);
        } else {
            visit.send(ANSWER);
        }
    }
}

both_drivers! {
    fn a_burn_in_any_slot_of_filters_is_in_that_filter_and_nowhere_else(driver) {
        let running = Running::start(driver, &MODULES, "", "server { listen %%ADDRESS%%; act slots; }");
        for (_, header, body) in SLOTS {
            running.find(&format!("/?burn={header}"), |kept, _| {
                is_only(kept, ran(kept, |kind, name| kind == SiteKind::HeaderFilter && name == header))
            });
            running.find(&format!("/?burn={body}"), |kept, _| {
                is_only(kept, ran(kept, |kind, name| kind == SiteKind::BodyFilter && name == body))
            });
        }
    }

    /// What runs for a server is in that server's node, or in the handler that prepares the request.
    fn a_burn_for_a_server_is_in_its_node_and_nowhere_else(driver) {
        // An address of our own is asked for where a connection is made: none is kept alive.
        let backend = Backend::start(|visit| {
            visit.head();
            visit.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        });
        let name = format!("127.0.0.1:{}", backend.port());
        // Making a connection takes more than a twentieth of the usual burn where nothing is optimised.
        let running = proxy(driver, backend.port(), "proxy_bind $act;");
        running.find("/declined?burn=variable&ms=20", |kept, _| {
            is_only(kept, ran(kept, |kind, site| kind == SiteKind::UpstreamTry && site == name))
        });
        let running = proxy(driver, backend.port(), "proxy_set_header X-Act \"a$act\";");
        running.find("/declined?burn=variable&ms=20", |kept, _| {
            is_only(kept, ran(kept, |kind, site| kind == SiteKind::Handler(9) && site == "proxy"))
        });
    }

    fn a_pause_of_a_server_is_in_the_step_it_was_in(driver) {
        let backend = Backend::start(pausing);
        let running = proxy(driver, backend.port(), "proxy_buffering off;");
        running.find("/declined?at=head", |kept, _| is_wait(kept, WaitKind::UpstreamFirstByte, PAUSE));
        let kept = running.find("/declined?at=body", |kept, _| is_wait(kept, WaitKind::UpstreamBody, PAUSE));
        let (tree, sites) = (kept.tree(), SiteTable::global());
        let server = tree.nodes().iter().find(|node| sites.info(node.site).kind == SiteKind::UpstreamTry);
        let server = server.expect("it was asked");
        assert_eq!(server.bytes_in, ANSWER.len() as u64, "head and both parts of the body");
        assert!(server.bytes_out > 40, "a head: {}", text(&kept));
    }

    /// A server that does not read: what it was sent fills all buffers first.
    fn a_server_that_reads_late_is_waited_for_while_sending(driver) {
        let backend = Backend::start(|visit| {
            visit.head();
            thread::sleep(LONG);
            for _ in 0..BODY >> 20 {
                visit.bytes(1 << 20);
            }
            visit.answer("read");
        });
        let more = "client_max_body_size 0; client_body_buffer_size 64m;";
        let running = proxy(driver, backend.port(), more);
        let head = format!("POST /declined HTTP/1.1\r\nHost: h\r\nContent-Length: {BODY}\r\n\r\n");
        let request = head + &"x".repeat(BODY);
        running.find_request(&request, |kept, _| {
            let (sending, first_byte) =
                (waited(kept, WaitKind::UpstreamSend), waited(kept, WaitKind::UpstreamFirstByte));
            sending + LONG / 20 >= LONG && first_byte < sending / 5
        });
    }

    /// A server whose queue is full drops whom it can't take, whose kernel knocks again a second later.
    fn a_server_that_accepts_late_is_waited_for_while_connecting(driver) {
        let options = ListenOptions { backlog: 0, ..ListenOptions::default() };
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::from(net::listen(&loopback.into(), &options).expect("loopback binds"));
        listener.set_nonblocking(false).expect("it is open");
        let address = listener.local_addr().expect("it is bound");
        let running = proxy(driver, address.port(), "");
        let (kept, outside) = thread::scope(|scope| {
            let _first = TcpStream::connect(address).expect("there is room for one");
            let asking = scope.spawn(|| running.seen("GET /declined HTTP/1.1\r\nHost: h\r\n\r\n"));
            wait_for("the request", || (!running.server.threads()[0].now.requests().is_empty()).then_some(()));
            thread::sleep(LONG);
            drop(listener.accept().expect("the first"));
            let (mut stream, _) = listener.accept().expect("the server's");
            stream.read_exact(&mut [0; 16]).expect("the beginning of a request");
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("it is waited for");
            asking.join().expect("it was asked")
        });
        let connecting = waited(&kept, WaitKind::UpstreamConnect);
        assert!(connecting >= LONG && connecting <= outside, "{outside:?} outside:\n{}", text(&kept));
        // The rest is what a busy machine takes.
        assert!(took(kept.record().wait()) - connecting <= outside - connecting, "{}", text(&kept));
    }
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd";
const PAUSE: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_millis(300);
/// More than all sockets' buffers hold.
const BODY: usize = 32 << 20;
