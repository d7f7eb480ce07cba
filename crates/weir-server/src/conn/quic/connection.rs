//! A connection of QUIC: one task from its ClientHello to its end.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{Connection, ConnectionError, ConnectionHandle, Event, VarInt};
use weir_http::h3::H3ErrorCode;
use weir_rt::Timer;
use weir_tls::quic::QuicFacts;

use super::endpoint::{DatagramCut, QuicEndpoint, QuicInbox};
use super::incoming::ComingClient;
use super::settings;
use crate::conn::h3::{H3Session, sink};
use crate::tls::quic::{self as tls, QuicHandshake};
use weir_engine::request_log;
use weir_engine::transport::ClientConnection;
use weir_engine::transport::h3::QuicEntry;
use weir_engine::worker::{CloseProtocol, CloseReason};

/// Starts the task of a client that has said all of its ClientHello.
pub(super) fn start(endpoint: &Rc<QuicEndpoint>, client: ComingClient) {
    let Some(connection) = known(endpoint, &client) else { return client.incoming.refuse() };
    let open = endpoint.worker.open_quic(&connection);
    let (endpoint, owner) = (endpoint.clone(), connection.clone());
    let begun = BegunHandshake::new(&endpoint);
    let task = async move {
        if let Some(mut quic) = accept(&endpoint, &connection, client, begun).await {
            quic.run(&open).await;
        }
        drop(open);
    };
    crate::conn::spawn(&owner, task);
}

/// What is known of a connection before its handshake.
fn known(endpoint: &QuicEndpoint, client: &ComingClient) -> Option<Rc<ClientConnection>> {
    let (generation, serial, address) = endpoint.door.leads_to();
    let hosts = generation.hosts().get(address)?.clone();
    let peer = client.incoming.from()?.into();
    let number = endpoint.worker.connection_number();
    let watched = &generation.configuration.main.debug_connections;
    let debug = watched.iter().any(|cidr| cidr.contains(&peer));
    let mut connection = ClientConnection::new(number, peer, endpoint.fd(), hosts, serial);
    connection.debug = debug;
    connection.expects_tls = true;
    connection.set_local(match client.incoming.to() {
        Some(ip) => (ip, endpoint.bound.port().unwrap_or(0)).into(),
        None => endpoint.bound.clone(),
    });
    let connection = Rc::new(connection);
    connection.narrow(&generation);
    request_log::debug::accepted(&connection);
    Some(connection)
}

/// Chooses the server, its certificates, and what else the handshake needs, and begins it. `None`: the client was refused.
async fn accept(
    endpoint: &Rc<QuicEndpoint>,
    connection: &Rc<ClientConnection>,
    client: ComingClient,
    begun: BegunHandshake,
) -> Option<QuicConnection> {
    connection.speaks(CloseProtocol::Tls);
    let ComingClient { incoming, hello } = client;
    let handshake = match tls::choose(&endpoint.worker, connection, hello).await {
        Ok(handshake) => handshake,
        Err(refusal) => {
            tls::refused(connection, refusal);
            incoming.refuse();
            return None;
        }
    };
    let config = settings::of_connection(&connection.server(), handshake.crypto.clone());
    let (incoming, mut out) = (incoming.take()?, Vec::new());
    let accepted = endpoint.protocol.borrow_mut().accept(incoming, Instant::now(), &mut out, Some(config));
    match accepted {
        Ok((handle, protocol)) => {
            let inbox = endpoint.open(handle);
            Some(QuicConnection {
                endpoint: endpoint.clone(),
                connection: connection.clone(),
                handle: Some(handle),
                protocol,
                inbox,
                handshake,
                timer: Timer::new(),
                out: Vec::new(),
                session: None,
                cut: if connection.server().http3.gso { DatagramCut::ByKernel } else { DatagramCut::Here },
                begun: Some(begun),
                is_connected: false,
                has_early: false,
                deadline: weir_rt::now_ms() + connection.server().settings.client_header_timeout,
            })
        }
        Err(error) => {
            tls::failed(connection, &error.cause.to_string());
            if let Some(transmit) = error.response {
                endpoint.send(&transmit, &out);
            }
            None
        }
    }
}

struct QuicConnection {
    endpoint: Rc<QuicEndpoint>,
    connection: Rc<ClientConnection>,
    /// `None` once the endpoint knows it no longer.
    handle: Option<ConnectionHandle>,
    protocol: Connection,
    inbox: Rc<QuicInbox>,
    handshake: QuicHandshake,
    timer: Timer,
    /// Datagrams on their way; its memory is used again.
    out: Vec<u8>,
    /// HTTP/3, once the handshake is over.
    session: Option<H3Session>,
    cut: DatagramCut,
    /// Until the handshake is over.
    begun: Option<BegunHandshake>,
    is_connected: bool,
    /// Requests in early data may be served.
    has_early: bool,
    /// Until when the handshake is to be over, in milliseconds of the worker's clock.
    deadline: u64,
}

/// A handshake that is under way at its endpoint, until it is dropped.
struct BegunHandshake(Rc<QuicEndpoint>);

impl BegunHandshake {
    fn new(endpoint: &Rc<QuicEndpoint>) -> BegunHandshake {
        endpoint.handshaking.set(endpoint.handshaking.get() + 1);
        BegunHandshake(endpoint.clone())
    }
}

impl Drop for BegunHandshake {
    fn drop(&mut self) {
        self.0.handshaking.set(self.0.handshaking.get() - 1);
    }
}

impl Drop for QuicConnection {
    /// Also where its task ends with its worker, or in a panic: its client learns of it, and nothing more is delivered.
    fn drop(&mut self) {
        if !self.protocol.is_closed() {
            let now = Instant::now();
            let code = if std::thread::panicking() { H3ErrorCode::Internal } else { H3ErrorCode::No };
            self.protocol.close(now, sink::number(code), Bytes::new());
            self.transmit(now);
        }
        self.close_handle();
    }
}

impl QuicConnection {
    async fn run(&mut self, open: &QuicEntry) {
        loop {
            self.turn();
            if (self.is_connected || self.has_early) && self.session.is_none() && !self.protocol.is_closed() {
                self.establish(open).await;
                continue;
            }
            if self.protocol.is_drained() {
                break;
            }
            if self.session.as_ref().is_some_and(H3Session::has_more) {
                // Others have their turn, too.
                weir_rt::yield_now().await;
                continue;
            }
            self.wait().await;
        }
        // Requests may go on for long, and the next connection may have the same handle by then.
        self.close_handle();
        if let Some(session) = self.session.take() {
            session.end().await;
        }
    }

    fn close_handle(&mut self) {
        if let Some(handle) = self.handle.take() {
            if !self.protocol.is_drained() {
                let _ = self.endpoint.exchange(handle, quinn_proto::EndpointEvent::drained());
            }
            self.endpoint.close(handle);
        }
    }

    /// Takes what came, serves what can be served, and sends what may be sent.
    fn turn(&mut self) {
        let now = Instant::now();
        for event in self.inbox.take() {
            self.protocol.handle_event(event);
        }
        if self.protocol.poll_timeout().is_some_and(|due| due <= now) {
            self.protocol.handle_timeout(now);
        }
        while let Some(event) = self.protocol.poll() {
            self.event(event);
        }
        if let Some(session) = &mut self.session {
            if let Err((code, reason)) = session.turn(&mut self.protocol) {
                self.close(now, code, reason);
            } else if let Some(code) = self.session.as_ref().and_then(H3Session::is_over) {
                self.close(now, code, "");
            }
        }
        if !self.is_connected && weir_rt::now_ms() >= self.deadline && !self.protocol.is_closed() {
            self.connection.ends(CloseReason::HandshakeTimeout);
            tls::timed_out(&self.connection);
            self.protocol.close(now, VarInt::from_u32(0), Bytes::new());
        }
        self.settle_with_endpoint();
        self.transmit(now);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected => {
                self.is_connected = true;
                self.begun = None;
                self.handshake.early.set(false);
            }
            Event::HandshakeDataReady => self.has_early = self.protocol.has_0rtt(),
            Event::ConnectionLost { reason } => self.lost(&reason),
            Event::Stream(event) => {
                // Those that are open before are looked at when HTTP/3 begins.
                if let Some(session) = &mut self.session {
                    session.event(event);
                }
            }
            Event::DatagramReceived | Event::DatagramsUnblocked => {}
        }
    }

    /// The handshake is over: HTTP/3 begins.
    async fn establish(&mut self, open: &QuicEntry) {
        let facts = self.protocol.crypto_session().handshake_data();
        self.handshake.early.set(!self.is_connected);
        let Some(facts) = facts.and_then(|facts| facts.downcast::<QuicFacts>().ok()) else { return };
        tls::established(&self.endpoint.worker, &self.connection, &self.handshake, *facts).await;
        let session = H3Session::begin(&self.endpoint.worker, &self.connection, &mut self.protocol);
        open.serves(&session.mux);
        self.session = Some(session);
    }

    /// The connection is over without us.
    fn lost(&mut self, reason: &ConnectionError) {
        if let Some(session) = &self.session {
            return session.lost(reason);
        }
        match reason {
            ConnectionError::LocallyClosed => {}
            ConnectionError::TimedOut => {
                self.connection.ends(CloseReason::HandshakeTimeout);
                tls::timed_out(&self.connection);
            }
            other => tls::failed(&self.connection, &other.to_string()),
        }
    }

    /// Ends the connection with an error of HTTP/3, or none.
    fn close(&mut self, now: Instant, code: H3ErrorCode, reason: &'static str) {
        if self.protocol.is_closed() {
            return;
        }
        if let Some(session) = &self.session {
            session.mux.end();
        }
        self.protocol.close(now, sink::number(code), Bytes::from_static(reason.as_bytes()));
    }

    fn settle_with_endpoint(&mut self) {
        let Some(handle) = self.handle else { return };
        while let Some(event) = self.protocol.poll_endpoint_events() {
            if let Some(reply) = self.endpoint.exchange(handle, event) {
                self.protocol.handle_event(reply);
            }
        }
    }

    fn transmit(&mut self, now: Instant) {
        loop {
            self.out.clear();
            let Some(transmit) = self.protocol.poll_transmit(now, SEGMENTS, &mut self.out) else { return };
            self.endpoint.send_many(&transmit, &self.out, self.cut);
        }
    }

    /// Waits for datagrams, for streams, or for the time that something is due.
    async fn wait(&mut self) {
        let until = self.until();
        match until {
            Some(ms) => self.timer.arm(ms),
            None => self.timer.disarm(),
        }
        let idle = self.session.as_ref().is_some_and(|session| session.mux.streams() == 0);
        let waiting = &self.endpoint.worker.counters.waiting;
        if idle {
            waiting.add(1);
        }
        poll_fn(|cx| self.poll_work(cx)).await;
        if idle {
            waiting.sub(1);
        }
    }

    fn poll_work(&self, cx: &Context<'_>) -> Poll<()> {
        let woken = self.session.as_ref().is_some_and(|session| session.mux.is_woken(cx));
        if woken || self.inbox.has_some(cx) {
            return Poll::Ready(());
        }
        self.timer.poll_expired(cx)
    }

    /// How long nothing is due, in milliseconds.
    fn until(&mut self) -> Option<u64> {
        let now = Instant::now();
        let protocol = self.protocol.poll_timeout().map(|due| rounded_up(due.saturating_duration_since(now)));
        let handshake = (!self.is_connected).then(|| self.deadline.saturating_sub(weir_rt::now_ms()));
        let session = self.session.as_ref().and_then(H3Session::due);
        [protocol, handshake, session].into_iter().flatten().min()
    }
}

/// Whole milliseconds, so that the time is over when the timer expires.
fn rounded_up(left: Duration) -> u64 {
    u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// Datagrams that are made at a time.
const SEGMENTS: usize = 10;
