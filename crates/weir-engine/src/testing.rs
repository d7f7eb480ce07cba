//! Exchanges for unit tests, made of a configuration's text and a request head, without sockets.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use weir_http::h1::HeadParse;
use weir_rt::net::SockAddr;
use weir_rt::{DriverChoice, Runtime};
use weir_trace::{Recorder, RecorderSettings};

use crate::conf::{self, CORE_MODULES};
use crate::exchange::Exchange;
use crate::module::ModuleDef;
use crate::plan::hosts::AddressServers;
use crate::plan::location;
use crate::plan::server::VirtualServer;
use crate::request_head::{self, ClientJudge};
use crate::transport::ClientConnection;
use crate::worker::Worker;
use crate::worker::generation::WorkerGeneration;

/// Runs `test` with the exchange of `head`, a whole request head that is good, under `http`, the inside of an `http`
/// block with at least one server. Server and location are found, nothing else has run; the client is
/// 192.0.2.1:54321, connected to 198.51.100.1:8080, and its response goes nowhere. Inside a runtime, so that times
/// and timers work.
pub fn run<R>(http: &str, head: &str, test: impl AsyncFnOnce(&mut Exchange) -> R) -> R {
    run_all(&CORE_MODULES, http, &[head], async |mut all| test(&mut all[0]).await)
}

/// As [`run`], with one exchange for each of `heads`, and modules of which the first are the core's.
pub fn run_all<R>(
    modules: &'static [ModuleDef],
    http: &str,
    heads: &[&str],
    test: impl AsyncFnOnce(Vec<Exchange>) -> R,
) -> R {
    let options = weir_rt::RuntimeOptions {
        driver: DriverChoice::Epoll,
        worker: 0,
        buffers: 8,
        name: "test".to_owned(),
    };
    let runtime = Runtime::new(&options).expect("epoll is everywhere");
    runtime.block_on(async {
        let all = exchanges(modules, http, heads);
        test(all).await
    })
}

/// The value of variable `name`, looked up as scripts do.
pub fn value(x: &mut Exchange, name: &str) -> Option<String> {
    let text = x.variable_by_name(name)?;
    Some(x.text(&text).escape_ascii().to_string())
}

fn exchanges(modules: &'static [ModuleDef], http: &str, heads: &[&str]) -> Vec<Exchange> {
    let text = format!("error_log stderr emerg; events {{ }} http {{ {http} }}");
    let configuration = conf::test::load(&text, modules).unwrap_or_else(|errors| panic!("{errors}"));
    let recorder = Recorder::new(0, RecorderSettings::default());
    let worker = Worker::new(0, Arc::default(), recorder);
    let generation = WorkerGeneration::install(&Arc::new(configuration), &worker).expect("the core installs");
    let hosts = generation.hosts().first().expect("the test has a server").clone();
    worker.switch(Rc::new(generation));
    heads.iter().map(|head| exchange(&worker, &hosts, head)).collect()
}

fn exchange(worker: &Rc<Worker>, hosts: &Rc<AddressServers>, head: &str) -> Exchange {
    let connection = connection(hosts, worker);
    let mut x = Exchange::new(worker, &connection, hosts.default());
    x.start_ms = weir_rt::now_ms();
    x.nth = connection.requests.get();
    read(&mut x, head.as_bytes());
    assert!(location::find(&mut x).is_none(), "the location answers by itself");
    x
}

/// Connection 7, in its second request, from 192.0.2.1:54321 to 198.51.100.1:8080.
pub fn connection(hosts: &Rc<AddressServers>, worker: &Worker) -> Rc<ClientConnection> {
    let addr = |text: &str| text.parse::<SockAddr>().expect("an address");
    let (peer, local) = (addr("192.0.2.1:54321"), addr("198.51.100.1:8080"));
    Rc::new(ClientConnection {
        number: 7,
        born: 0,
        requests: Cell::new(2),
        ..ClientConnection::unconnected(hosts.clone(), peer, local, worker)
    })
}

/// Makes `x` the request whose whole head is `bytes`.
fn read(x: &mut Exchange, bytes: &[u8]) {
    let limits = x.server.settings.limits();
    assert_eq!(x.request.head.parse(bytes, &limits), Ok(HeadParse::Complete), "the head is whole and good");
    let len = x.request.head.len;
    x.arena.push(&bytes[..len]);
    assert!(request_head::check::<NoTls>(x).is_ok(), "the request is good");
}

/// Requests that came without TLS.
pub(crate) struct NoTls;

impl ClientJudge for NoTls {
    fn check(_: &mut Exchange) -> Result<(), u16> {
        Ok(())
    }

    fn is_open(_: &ClientConnection, _: &VirtualServer) -> bool {
        true
    }

    fn is_misdirected(_: &Exchange) -> bool {
        false
    }
}
