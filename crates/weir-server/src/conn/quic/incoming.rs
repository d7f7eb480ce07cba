//! Clients whose ClientHello has not come whole: one with keys for the time after quantum computers takes two datagrams.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use quinn_proto::Incoming;
use weir_tls::HelloFields;
use weir_tls::quic::{InitialProgress, InitialReader};

use super::endpoint::QuicEndpoint;

/// A client that wants a connection. Dropping it forgets the client, as if nothing had come.
pub(super) struct HeldIncoming {
    endpoint: Rc<QuicEndpoint>,
    /// `None` once it was taken.
    incoming: Option<Incoming>,
}

impl HeldIncoming {
    pub(super) fn new(endpoint: &Rc<QuicEndpoint>, incoming: Incoming) -> HeldIncoming {
        HeldIncoming { endpoint: endpoint.clone(), incoming: Some(incoming) }
    }

    /// Where the client is.
    pub(super) fn from(&self) -> Option<SocketAddr> {
        self.incoming.as_ref().map(Incoming::remote_address)
    }

    /// To which of our addresses it has sent.
    pub(super) fn to(&self) -> Option<std::net::IpAddr> {
        self.incoming.as_ref().and_then(Incoming::local_ip)
    }

    /// Whether the client may be asked to show that it is where it says.
    pub(super) fn may_retry(&self) -> bool {
        self.incoming
            .as_ref()
            .is_some_and(|incoming| !incoming.remote_address_validated() && incoming.may_retry())
    }

    /// The client as quinn-proto has it.
    pub(super) fn take(mut self) -> Option<Incoming> {
        self.incoming.take()
    }

    /// Refuses the client a connection.
    pub(super) fn refuse(mut self) {
        if let Some(incoming) = self.incoming.take() {
            let mut out = Vec::new();
            let refusal = self.endpoint.protocol.borrow_mut().refuse(incoming, &mut out);
            self.endpoint.send(&refusal, &out);
        }
    }

    /// Has the client begin again with a token, which shows that it is where it says.
    pub(super) fn retry(mut self) {
        if let Some(incoming) = self.incoming.take() {
            let mut out = Vec::new();
            let retried = self.endpoint.protocol.borrow_mut().retry(incoming, &mut out);
            match retried {
                Ok(transmit) => self.endpoint.send(&transmit, &out),
                Err(error) => self.incoming = Some(error.into_incoming()),
            }
        }
    }
}

impl Drop for HeldIncoming {
    fn drop(&mut self) {
        if let Some(incoming) = self.incoming.take() {
            self.endpoint.protocol.borrow_mut().ignore(incoming);
        }
    }
}

/// A client with what it said.
pub(super) struct ComingClient {
    pub(super) incoming: HeldIncoming,
    pub(super) hello: HelloFields,
}

/// Clients that have said a part, as they came.
#[derive(Default)]
pub(super) struct ComingClients(VecDeque<HalfClient>);

struct HalfClient {
    incoming: HeldIncoming,
    reader: InitialReader,
    /// Milliseconds of the worker's clock.
    until: u64,
}

impl ComingClients {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// A client has sent its first datagram; the client where that has all of its ClientHello.
    pub(super) fn greet(&mut self, incoming: HeldIncoming, bytes: &[u8]) -> Option<ComingClient> {
        let mut reader = InitialReader::new();
        match reader.push(bytes) {
            InitialProgress::Hello(hello) => return Some(ComingClient { incoming, hello: *hello }),
            InitialProgress::NeedsMore => {}
            InitialProgress::NotInitial | InitialProgress::Malformed => return None,
        }
        let now = weir_rt::now_ms();
        while self.0.front().is_some_and(|half| half.until <= now) || self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(HalfClient { incoming, reader, until: now + PATIENCE_MS });
        None
    }

    /// A datagram has come from `from` that belongs to no connection; the client whose ClientHello is whole with it.
    pub(super) fn hear_more(&mut self, from: SocketAddr, bytes: &[u8]) -> Option<ComingClient> {
        let at = self.0.iter().position(|half| half.incoming.from() == Some(from))?;
        match self.0[at].reader.push(bytes) {
            InitialProgress::NeedsMore | InitialProgress::NotInitial => None,
            InitialProgress::Malformed => {
                self.0.remove(at);
                None
            }
            InitialProgress::Hello(hello) => {
                let half = self.0.remove(at)?;
                Some(ComingClient { incoming: half.incoming, hello: *hello })
            }
        }
    }
}

/// So many are held at a time: some 5 MB.
const MOST: usize = 1024;
/// The rest of a ClientHello comes at once, or again after some hundred milliseconds where it was lost.
const PATIENCE_MS: u64 = 10_000;
