//! An HTTP/3 connection: what its task does between what QUIC has brought and what it may send.
//!
//! As with HTTP/2 a request is served at once, by plain functions; only where it has to wait does it become a task of its own,
//! which leaves what it has to send with the connection ([`H3Mux`]) and wakes it.

mod request;
pub(super) mod sink;

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use quinn_proto::{Connection, ConnectionError, Dir, ReadError, StreamEvent, StreamId};
use weir_http::h3::{H3ErrorCode, H3Failure, UniInterest};
use weir_http::message::StreamEnd;

use sink::QuicSink;
use weir_engine::exchange::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::transport::ClientConnection;
use weir_engine::transport::h3::{H3Mux, H3Pause, StreamSink};
use weir_engine::worker::{CloseReason, Worker};

/// The server's side of HTTP/3 on a connection.
pub(super) struct H3Session {
    pub(super) mux: Rc<H3Mux>,
    /// Streams of which something may be read.
    readable: VecDeque<StreamId>,
    /// Our streams: control, and what acknowledges the client's table and fills our own.
    control: OwnStream,
    decoder: OwnStream,
    encoder: OwnStream,
    /// Requests of this turn whose responses are whole and not with QUIC.
    held: Vec<(usize, Box<Exchange>)>,
    spare: Option<Box<Exchange>>,
    /// Streams whose header sections wait for what is to come on another one.
    blocked: Vec<BlockedStream>,
    /// Streams that the client has given up before there was a request.
    cancelled: Vec<StreamId>,
    /// The client knows that no further request is taken.
    is_ending: bool,
    /// What is read is one of the client's own streams, not a request.
    is_of_uni: bool,
    /// Since when no request is open.
    idle_from: Option<u64>,
    /// Until when it may stay so.
    idle_until: Option<u64>,
    /// Why the connection is over.
    over: Option<H3ErrorCode>,
}

/// A stream of ours in one direction, and what of it QUIC has not taken.
#[derive(Default)]
struct OwnStream {
    id: Option<StreamId>,
    unsent: Vec<u8>,
}

/// What has come of a stream whose header section waits, beyond that section.
struct BlockedStream {
    id: StreamId,
    rest: Vec<u8>,
    end: StreamEnd,
}

impl OwnStream {
    fn open(protocol: &mut Connection) -> OwnStream {
        OwnStream { id: protocol.streams().open(Dir::Uni), unsent: Vec::new() }
    }

    fn flush(&mut self, protocol: &mut Connection) {
        let Some(id) = self.id.filter(|_| !self.unsent.is_empty()) else { return };
        // Where QUIC takes nothing it says so when there is room, and the next turn is soon.
        if let Ok(taken) = protocol.send_stream(id).write(&self.unsent) {
            self.unsent.drain(..taken);
        }
    }
}

impl H3Session {
    /// The connection's handshake is over: its streams are opened, and what they begin with is sent.
    pub(super) fn begin(
        worker: &Rc<Worker>,
        connection: &Rc<ClientConnection>,
        protocol: &mut Connection,
    ) -> H3Session {
        let mux = H3Mux::new(worker, connection);
        let [mut control, mut decoder, mut encoder] = [(); 3].map(|()| OwnStream::open(protocol));
        let h3 = mux.h3.borrow();
        h3.begin_control(&mut control.unsent);
        h3.begin_decoder(&mut decoder.unsent);
        h3.begin_encoder(&mut encoder.unsent);
        drop(h3);
        let mut session = H3Session {
            mux,
            readable: VecDeque::new(),
            control,
            decoder,
            encoder,
            held: Vec::new(),
            spare: None,
            blocked: Vec::new(),
            cancelled: Vec::new(),
            is_ending: false,
            is_of_uni: false,
            idle_from: Some(weir_rt::now_ms()),
            idle_until: None,
            over: None,
        };
        session.opened(protocol);
        session
    }

    /// Something has happened to a stream.
    pub(super) fn event(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Readable { id } => self.readable.push_back(id),
            StreamEvent::Writable { id } => self.mux.writable(id.into()),
            StreamEvent::Stopped { id, .. } => {
                if !self.mux.reset(id.into()) {
                    self.cancelled.push(id);
                }
            }
            // Looked at in each turn.
            StreamEvent::Opened { .. } | StreamEvent::Finished { .. } | StreamEvent::Available { .. } => {}
        }
    }

    fn opened(&mut self, protocol: &mut Connection) {
        for dir in [Dir::Uni, Dir::Bi] {
            while let Some(id) = protocol.streams().accept(dir) {
                self.readable.push_back(id);
            }
        }
    }

    /// Takes what came, serves what can be served, and hands over what is composed.
    ///
    /// # Errors
    /// The client broke the protocol: the code that it gets, and nginx's words for where.
    pub(super) fn turn(&mut self, protocol: &mut Connection) -> Result<(), (H3ErrorCode, &'static str)> {
        let mux = self.mux.clone();
        mux.serves(true);
        let result = self.turn_inside(protocol);
        mux.serves(false);
        result.map_err(|failure| {
            mux.failed(&failure);
            (failure.code, if self.is_of_uni { "stream error" } else { "request error" })
        })
    }

    fn turn_inside(&mut self, protocol: &mut Connection) -> Result<(), H3Failure> {
        if protocol.is_closed() {
            self.mux.end();
            self.scatter();
            return Ok(());
        }
        self.opened(protocol);
        while let Some(id) = self.mux.take_hungry() {
            self.readable.push_back(sink::stream(id));
        }
        for _ in 0..self.readable.len() {
            let Some(id) = self.readable.pop_front() else { break };
            self.read(protocol, id)?;
        }
        self.cancel(protocol);
        self.look(protocol);
        self.mux.expire();
        self.send(protocol);
        self.settle();
        self.send(protocol);
        Ok(())
    }

    fn send(&mut self, protocol: &mut Connection) {
        let mut sink = QuicSink(protocol);
        sink.follow_line();
        self.mux.pump(&mut sink);
        let mut h3 = self.mux.h3.borrow_mut();
        self.decoder.unsent.append(h3.decoder_output());
        self.encoder.unsent.append(h3.encoder_output());
        drop(h3);
        for own in [&mut self.control, &mut self.decoder, &mut self.encoder] {
            own.flush(protocol);
        }
    }

    /// Ends our direction of what the client has given up: only then QUIC lets it begin another stream.
    fn cancel(&mut self, protocol: &mut Connection) {
        for id in self.cancelled.drain(..) {
            let mut sink = QuicSink(protocol);
            sink.reset(id.into(), H3ErrorCode::RequestCancelled);
            sink.stop(id.into(), H3ErrorCode::RequestCancelled);
            self.mux.h3.borrow_mut().forget(id.into());
        }
    }

    /// Reads what has come of a stream, as far as its reader keeps up.
    fn read(&mut self, protocol: &mut Connection, id: StreamId) -> Result<(), H3Failure> {
        loop {
            let waits = || self.blocked.iter().any(|blocked| blocked.id == id) || !self.mux.wants(id.into());
            if id.dir() == Dir::Bi && waits() {
                return Ok(());
            }
            let mut stream = protocol.recv_stream(id);
            // One that is closed was stopped by us.
            let Ok(mut chunks) = stream.read(true) else { return Ok(()) };
            let (mut pieces, mut end) = ([const { Bytes::new() }; PIECES], None);
            for piece in &mut pieces {
                match chunks.next(MOST_READ) {
                    Ok(Some(chunk)) => *piece = chunk.bytes,
                    other => {
                        end = Some(other);
                        break;
                    }
                }
            }
            // What is to be sent because of it is sent at the end of the turn.
            let _ = chunks.finalize();
            let ends = matches!(end, Some(Ok(None)));
            let count = pieces.iter().take_while(|piece| !piece.is_empty()).count();
            for (at, piece) in pieces.iter().take(count).enumerate() {
                // That it is the last is known at once, so that a request without content is known as such.
                self.feed(protocol, id, piece, StreamEnd::last_if(ends && at + 1 == count))?;
            }
            match end {
                None => {}
                Some(Ok(_)) if count > 0 => return Ok(()),
                Some(Ok(_)) => return self.feed(protocol, id, &[], StreamEnd::Last),
                Some(Err(ReadError::Blocked)) => return Ok(()),
                Some(Err(ReadError::Reset(_))) => return self.was_reset(id),
            }
        }
    }

    fn was_reset(&mut self, id: StreamId) -> Result<(), H3Failure> {
        match id.dir() {
            Dir::Uni => self.mux.h3.borrow_mut().reset_uni(id.into()),
            Dir::Bi => {
                self.blocked.retain(|blocked| blocked.id != id);
                self.mux.h3.borrow_mut().peer_reset(id.into())?;
                if !self.mux.reset(id.into()) {
                    self.cancelled.push(id);
                }
                Ok(())
            }
        }
    }

    fn feed(
        &mut self,
        protocol: &mut Connection,
        id: StreamId,
        bytes: &[u8],
        end: StreamEnd,
    ) -> Result<(), H3Failure> {
        if id.dir() == Dir::Bi {
            return self.feed_request(id, bytes, end);
        }
        self.is_of_uni = true;
        let interest = self.mux.h3.borrow_mut().receive_uni(id.into(), bytes, end)?;
        self.is_of_uni = false;
        if interest == UniInterest::Unwanted {
            QuicSink(protocol).stop(id.into(), H3ErrorCode::StreamCreation);
        }
        loop {
            let Some(number) = self.mux.h3.borrow_mut().unblocked() else { return Ok(()) };
            let at = self.blocked.iter().position(|blocked| u64::from(blocked.id) == number);
            let Some(at) = at else { continue };
            let BlockedStream { id, rest, end } = self.blocked.swap_remove(at);
            self.feed_request(id, &rest, end)?;
            self.readable.push_back(id);
        }
    }

    fn feed_request(&mut self, id: StreamId, bytes: &[u8], end: StreamEnd) -> Result<(), H3Failure> {
        let number = u64::from(id);
        if let Some(blocked) = self.blocked.iter_mut().find(|blocked| blocked.id == id) {
            blocked.rest.extend_from_slice(bytes);
            blocked.end = end;
            return Ok(());
        }
        let mut bytes = bytes;
        loop {
            let (used, pause) = self.mux.receive(number, bytes, end)?;
            bytes = bytes.get(used..).unwrap_or_default();
            match pause {
                Some(H3Pause::Head { end }) => self.serve(number, end),
                Some(H3Pause::Blocked) => {
                    self.blocked.push(BlockedStream { id, rest: bytes.to_vec(), end });
                    return Ok(());
                }
                None => return Ok(()),
            }
        }
    }

    /// Ends the connection where the worker stops, or its address is gone, and one that has been idle for too long.
    fn look(&mut self, protocol: &mut Connection) {
        let connection = &self.mux.connection;
        if self.mux.is_to_end() {
            connection.ends_in_order();
            self.go_away(CloseReason::Shutdown);
        }
        if self.mux.streams() > 0 {
            (self.idle_from, self.idle_until) = (None, None);
            return;
        }
        let from = *self.idle_from.get_or_insert_with(weir_rt::now_ms);
        let until = from + self.patience(protocol);
        self.idle_until = Some(until);
        if weir_rt::now_ms() < until {
            return;
        }
        if !self.is_ending {
            let first = self.mux.connection.requests.get() == 0;
            self.go_away(if first { CloseReason::HeaderTimeout } else { CloseReason::KeepaliveTimeout });
        }
        self.over = Some(H3ErrorCode::No);
    }

    /// How long a connection without requests stays, in milliseconds. What its client has not acknowledged would be lost with it.
    fn patience(&self, protocol: &mut Connection) -> u64 {
        let own = [&self.control, &self.decoder, &self.encoder].iter().filter(|own| own.id.is_some()).count();
        let is_delivered = protocol.streams().send_streams() <= own;
        let delivery = if is_delivered { 0 } else { self.mux.connection.server().plan.core.send_timeout };
        if self.is_ending { delivery } else { delivery.max(self.keepalive()) }
    }

    fn keepalive(&self) -> u64 {
        let server = self.mux.connection.server();
        match server.plan.core.keepalive_timeout {
            0 => server.settings.client_header_timeout,
            timeout => timeout,
        }
    }

    /// Says that no request is taken any more beyond those that came.
    fn go_away(&mut self, reason: CloseReason) {
        self.mux.connection.ends(reason);
        if !std::mem::replace(&mut self.is_ending, true) {
            let mut h3 = self.mux.h3.borrow_mut();
            let next = h3.next_stream();
            h3.go_away(next, &mut self.control.unsent);
        }
    }

    /// Something was left for the next turn.
    pub(super) fn has_more(&self) -> bool {
        self.mux.has_more()
    }

    /// The code with which the connection is to be closed.
    pub(super) fn is_over(&self) -> Option<H3ErrorCode> {
        self.over
    }

    /// How long nothing is due, in milliseconds.
    pub(super) fn due(&self) -> Option<u64> {
        let idle = self.idle_until.map(|until| until.saturating_sub(weir_rt::now_ms()));
        [idle, self.mux.expire()].into_iter().flatten().min()
    }

    /// The connection is over without us.
    pub(super) fn lost(&self, reason: &ConnectionError) {
        let connection = &self.mux.connection;
        let (busy, first) = (self.mux.streams() > 0, connection.requests.get() == 0);
        let left = match () {
            () if busy => CloseReason::InResponse,
            () if first => CloseReason::Unused,
            () => CloseReason::Idle,
        };
        connection.ends(match reason {
            ConnectionError::ApplicationClosed(_) | ConnectionError::ConnectionClosed(_) => left,
            ConnectionError::TimedOut if busy => CloseReason::SendTimeout,
            ConnectionError::TimedOut => CloseReason::KeepaliveTimeout,
            ConnectionError::Reset => CloseReason::Reset,
            ConnectionError::TransportError(_)
            | ConnectionError::VersionMismatch
            | ConnectionError::CidsExhausted => CloseReason::ProtocolError,
            ConnectionError::LocallyClosed => CloseReason::Dropped,
        });
        if !matches!(reason, ConnectionError::LocallyClosed) {
            connection.log(LogLevel::Info, &format_args!("client connection of QUIC ended: {reason}"));
        }
        self.mux.end();
    }

    /// The connection is over: the requests that are running are waited for.
    pub(super) async fn end(mut self) {
        self.mux.end();
        self.scatter();
        if let Some(x) = self.spare.take() {
            self.mux.worker.give_exchange(x);
        }
        self.mux.ended().await;
    }
}

/// Bytes that are read of a stream at once.
const MOST_READ: usize = 64 * 1024;
/// ... and at most so many pieces.
const PIECES: usize = 4;
