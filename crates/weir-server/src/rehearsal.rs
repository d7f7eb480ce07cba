//! Rehearsed requests: a head as if it had come from a client, without a connection.

use std::cell::Cell;
use std::rc::Rc;

use weir_conf::Span;
use weir_http::h1::HeadParse;
use weir_rt::net::SockAddr;
use weir_trace::{Site, SiteTable};

use crate::tls;
use crate::tls::accepted::TlsJudge;
use weir_engine::exchange::Exchange;
use weir_engine::phase::{HandlerEntry, Phase};
use weir_engine::plan::hosts::AddressServers;
use weir_engine::rehearsal::{self, Rehearsal};
use weir_engine::request_head::{self, HeadFailure};
use weir_engine::transport::ClientConnection;
use weir_engine::worker::Worker;

/// A request that is rehearsed.
pub struct RehearsedRequest<'r> {
    /// The whole head, as HTTP/1.1 has it.
    pub head: &'r [u8],
    /// The client's address.
    pub client: SockAddr,
    /// The name in the handshake, of a request over TLS; `None` without TLS.
    pub tls_name: Option<&'r str>,
}

/// What would become of a request, and by which server.
pub struct RehearsedCourse {
    /// `$server_name`.
    pub server: String,
    /// Where the server's block begins.
    pub place: Option<Span>,
    /// Why it is this server.
    pub reason: String,
    /// What runs in the block that the request came to: each handler's phase and module, in order.
    pub handlers: Vec<(&'static str, String)>,
    /// The rest.
    pub rehearsal: Rehearsal,
}

/// Lets `request` go through what the servers of `hosts` do with it, see [`weir_engine::rehearsal`].
pub async fn rehearse(
    worker: &Rc<Worker>,
    hosts: &Rc<AddressServers>,
    request: RehearsedRequest<'_>,
) -> RehearsedCourse {
    let connection = connection(worker, hosts, &request);
    let mut x = worker.take_exchange(&connection, hosts.default());
    x.start_ms = weir_rt::now_ms();
    (x.nth, x.bytes_before) = (1, 0);
    let read = read(&mut x, request.head);
    let reason = hosts.reason(x.arena.get(x.request.host));
    let rehearsal = rehearsal::rehearse(&mut x, read).await;
    let server = String::from_utf8_lossy(&x.server.name).into_owned();
    let place = x.server.plan.place;
    let handlers = handlers(&x);
    worker.give_exchange(x);
    RehearsedCourse { server, place, reason, handlers, rehearsal }
}

/// The handlers of the server and of the location that `x` is in.
fn handlers(x: &Exchange) -> Vec<(&'static str, String)> {
    let named = |phase: Phase, entry: &HandlerEntry| (phase.name(), module(entry.site));
    let mut found = Vec::new();
    for phase in Phase::ALL {
        let plan = if phase < Phase::FindConfig { &x.server.plan } else { &x.plan };
        match &plan.content {
            Some(own) if phase == Phase::Content => found.push(named(phase, own)),
            _ => found.extend(plan.phase(phase).iter().map(|entry| named(phase, entry))),
        }
        if phase == Phase::Content {
            let filters = plan.header_filters.iter().map(|entry| ("header filter", module(entry.site)));
            found.extend(filters);
        }
    }
    found
}

fn module(site: Site) -> String {
    SiteTable::global().info(site).name.to_string()
}

fn connection(
    worker: &Rc<Worker>,
    hosts: &Rc<AddressServers>,
    request: &RehearsedRequest<'_>,
) -> Rc<ClientConnection> {
    let mut connection =
        ClientConnection::unconnected(hosts.clone(), request.client.clone(), hosts.addr.clone(), worker);
    connection.requests = Cell::new(1);
    let ssl = hosts.protocols.ssl || hosts.protocols.quic;
    connection.expects_tls = ssl;
    if ssl && let Some(name) = request.tls_name {
        // A name whose pattern is given up leads to the default server, as in a handshake.
        let _given_up = connection.choose_by_name(Some(name).filter(|name| !name.is_empty()));
        if let Some(tls) = tls::rehearsed(&connection.server()) {
            let _first = connection.tls.set(Rc::new(tls));
        }
    }
    Rc::new(connection)
}

/// Makes `x` the request of `head`.
fn read(x: &mut Exchange, head: &[u8]) -> Result<(), HeadFailure> {
    let limits = x.server.settings.limits();
    match x.request.head.parse(head, &limits) {
        Ok(HeadParse::Complete) => {
            let len = x.request.head.len;
            x.arena.push(head.get(..len).unwrap_or_default());
            request_head::check::<TlsJudge>(x)
        }
        Ok(HeadParse::Incomplete { .. }) => Err(HeadFailure::Silent(400)),
        Err(bad) => Err(request_head::refuse_bad::<TlsJudge>(x, head, bad)),
    }
}
