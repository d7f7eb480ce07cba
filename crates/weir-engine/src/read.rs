//! The request's body: read into memory or a file, in pieces, or discarded.

mod beside;
mod frames;

use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_http::h1::{ChunkStrictness, ChunkedDecoder, TrailerLimits};
use weir_rt::RecvOutcome;
use weir_trace::{Site, WaitKind};

use crate::error::{EngineError, EngineErrorKind, FaultSide};
use crate::exchange::Exchange;
pub use crate::exchange::body_file::BodyFile;
use crate::exchange::request_body::BodyFraming;
pub use crate::exchange::{RequestBody, TempFile};
use crate::log::LogLevel;
use crate::settings::location::InFileOnly;
use crate::transport::closing;
use crate::transport::wire::ClientWire;
use crate::worker::CloseReason;
pub use beside::BodyRest;

/// Sets from the head how the body ends: by its length, by chunks (RFC 9112 section 6.3), or with the stream of HTTP/2 or HTTP/3.
pub fn start(x: &mut Exchange) {
    crate::trace::enter(x);
    x.body.framing = if let Some(stream) = x.transport.stream() {
        if stream.is_ended() || x.tunnels { BodyFraming::Done } else { BodyFraming::Frames }
    } else if x.request.head.chunked {
        let limits = TrailerLimits::default();
        BodyFraming::Chunked(Box::new(ChunkedDecoder::new(ChunkStrictness::Client, limits)))
    } else {
        match x.request.head.content_length {
            Some(length) if length > 0 => BodyFraming::Length(length),
            _ => BodyFraming::Done,
        }
    };
}

/// What becomes of the end of a body that goes to a file.
#[derive(Clone, Copy)]
enum BodyEnd {
    /// It is in the file before the body counts as read.
    Settled,
    /// The caller has more to do with the file on the thread that writes it.
    Open,
}

impl Exchange {
    /// Reads the whole body, into memory up to `client_body_buffer_size` (or a quarter more), else into a file under
    /// `client_body_temp_path`. Does nothing the second time.
    ///
    /// # Errors
    /// The client left, was too slow, broke the framing or exceeded `client_max_body_size`; or the file can't be
    /// written. `EngineError::status` is the status to respond with.
    pub async fn read_body(&mut self) -> Result<(), EngineError> {
        if self.body.read {
            return Ok(());
        }
        self.read_traced(BodyEnd::Settled).await
    }

    /// As [`Exchange::read_body`]. If the body goes to a file, the file has its name until the request ends: scripts ask
    /// for it and open it.
    ///
    /// # Errors
    /// The same.
    pub async fn read_body_for_script(&mut self) -> Result<(), EngineError> {
        self.body.keeps_name = true;
        self.read_body().await
    }

    async fn read_traced(&mut self, end: BodyEnd) -> Result<(), EngineError> {
        self.trace().enter(Site::BODY_READ);
        let result = self.read_all(end).await;
        self.trace().bytes(Site::BODY_READ, self.body.received, 0);
        self.trace().leave(Site::BODY_READ);
        self.body.read = result.is_ok();
        result
    }

    /// Reads the whole body, which goes to a file that has a name: what is left of the way is
    /// [`Exchange::end_body_file`]'s. A body that was read before goes to one, too.
    ///
    /// # Errors
    /// As [`Exchange::read_body`].
    pub async fn read_body_for_file(&mut self) -> Result<(), EngineError> {
        self.body.named = true;
        if self.body.read {
            return crate::temp::name(self).await;
        }
        self.read_traced(BodyEnd::Open).await
    }

    /// Ends the file that [`Exchange::read_body_for_file`] began, and does `then` with it, which puts it at `place`, on the
    /// same thread: a small body costs one trip to the pool, or none. The file is removed after `then` unless it is
    /// [kept](BodyFile::keep).
    ///
    /// # Errors
    /// The file can't be made or written, which is logged: `then` is not called.
    pub async fn end_body_file<T: Send + 'static>(
        &mut self,
        place: &Path,
        then: impl FnOnce(BodyFile) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        crate::temp::finish_and(self, place, then).await
    }

    /// Adds a piece to a body that is made again ([`RequestBody::replace`]): in memory up to `limit` bytes, else in a
    /// file under `client_body_temp_path`.
    ///
    /// # Errors
    /// The file can't be written.
    pub async fn append_body(&mut self, piece: Vec<u8>, limit: usize) -> Result<(), EngineError> {
        if self.body.file.is_none() && self.body.memory.len() + piece.len() <= limit {
            self.body.memory.extend_from_slice(&piece);
            return Ok(());
        }
        // Scripts ask for its name.
        self.body.named = true;
        let reported = self.body.file.is_some();
        crate::temp::append(self, piece).await?;
        crate::temp::finish(self).await?;
        if let (false, Some(path)) = (reported, self.body.file.as_ref().and_then(|file| file.path.clone())) {
            let path = path.display();
            self.log(
                LogLevel::Warn,
                &format_args!("a client request body is buffered to a temporary file {path}"),
            );
        }
        Ok(())
    }

    async fn read_all(&mut self, end: BodyEnd) -> Result<(), EngineError> {
        let room = self.body_room();
        if let BodyFraming::Length(length) = self.body.framing
            && length <= room
            && !self.goes_to_file()
        {
            self.body.memory.reserve_exact(length as usize);
        }
        while let Some(piece) = self.body_piece().await? {
            self.keep_piece(piece, room).await?;
        }
        self.end_reading(end).await
    }

    /// Bytes of the body that stay in memory: `client_body_buffer_size`, and as in nginx up to a quarter more where that is known to be
    /// all of it. Scripts rely on it that find nothing in memory of a body in a file.
    fn body_room(&self) -> u64 {
        let size = self.plan.core.client_body_buffer_size;
        match self.body.framing {
            BodyFraming::Length(length)
                if self.transport.stream().is_none() && length < size.saturating_add(size / 4) =>
            {
                length.max(size)
            }
            _ => size,
        }
    }

    /// Whether even a short body is wanted as a file.
    fn goes_to_file(&self) -> bool {
        self.body.named || self.plan.core.client_body_in_file_only != InFileOnly::Off
    }

    /// In memory as long as there is room, else in a file.
    async fn keep_piece(&mut self, piece: Vec<u8>, room: u64) -> Result<(), EngineError> {
        let length = (self.body.memory.len() + piece.len()) as u64;
        if self.body.writer.is_none() && !self.goes_to_file() && length <= room {
            self.body.memory.extend_from_slice(&piece);
            return Ok(());
        }
        crate::temp::append(self, piece).await
    }

    async fn end_reading(&mut self, end: BodyEnd) -> Result<(), EngineError> {
        if self.goes_to_file() && self.body.writer.is_none() {
            crate::temp::append(self, Vec::new()).await?;
        }
        match end {
            BodyEnd::Settled => crate::temp::finish(self).await,
            BodyEnd::Open => Ok(()),
        }
    }

    /// The body is not wanted: what comes of it is dropped.
    pub fn discard_body(&mut self) {
        if !self.body.read {
            self.body.discard();
        }
    }

    /// The next piece of the body as it comes; `None` at its end. For handlers that pass it on.
    ///
    /// # Errors
    /// As [`Exchange::read_body`].
    pub async fn body_piece(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        if let Some(stream) = self.transport.stream().cloned() {
            return frames::piece(self, &stream).await;
        }
        let Some(wire) = self.transport.h1().cloned() else { return Ok(None) };
        loop {
            if !self.body.is_pending() {
                return Ok(None);
            }
            self.send_continue(&wire);
            if let Some(piece) = self.take_piece(&wire)? {
                if !piece.is_empty() {
                    return Ok(Some(piece));
                }
                continue;
            }
            self.more(&wire).await?;
        }
    }

    /// As [`Exchange::body_piece`], unless `others` is ready before: `None`, and what comes meanwhile is not lost.
    /// Subrequests that were included go on.
    ///
    /// # Errors
    /// As [`Exchange::read_body`].
    pub async fn body_piece_beside(
        &mut self,
        mut others: impl FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Option<Result<Option<Vec<u8>>, EngineError>> {
        let (shared, family) = (self.shared.clone(), self.family.clone());
        let both = async {
            let mut piece = pin!(self.body_piece());
            poll_fn(|cx| match others(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => piece.as_mut().poll(cx).map(Some),
            })
            .await
        };
        match family {
            None => both.await,
            Some(family) => family.attend(&shared, both).await,
        }
    }

    /// A piece from what was received; `None` when nothing is there.
    fn take_piece(&mut self, wire: &ClientWire) -> Result<Option<Vec<u8>>, EngineError> {
        let mut input = wire.input.borrow_mut();
        let bytes = input.bytes();
        if bytes.is_empty() {
            return Ok(None);
        }
        let taken = match self.body.framing.take(bytes) {
            None => return Ok(None),
            Some(Ok(taken)) => taken,
            Some(Err(_)) => {
                drop(input);
                self.body.framing = BodyFraming::Done;
                self.body.broken = true;
                self.keep_alive = false;
                self.log_error(&"client sent invalid chunked body");
                return Err(EngineError {
                    kind: EngineErrorKind::Protocol,
                    side: FaultSide::Client,
                    errno: None,
                });
            }
        };
        let piece = input.take_content(&taken);
        drop(input);
        if taken.last {
            self.body.framing = BodyFraming::Done;
            wire.stream.end_long();
        }
        self.body.received += piece.len() as u64;
        if !self.body.discarded {
            self.body.framed += taken.used as u64;
        }
        self.check_size()?;
        Ok(Some(piece))
    }

    /// A chunked body announces no size, so `client_max_body_size` is checked as it comes.
    fn check_size(&mut self) -> Result<(), EngineError> {
        let limit = self.plan.core.client_max_body_size;
        if limit == 0 || self.body.received <= limit || self.body.discarded {
            return Ok(());
        }
        let size = self.body.received;
        self.log_error(&format_args!("client intended to send too large chunked body: {size} bytes"));
        Err(EngineError { kind: EngineErrorKind::TooLarge, side: FaultSide::Client, errno: None })
    }

    /// Waits for more bytes.
    async fn more(&mut self, wire: &Rc<ClientWire>) -> Result<(), EngineError> {
        wire.flush();
        wire.timer.arm(self.plan.core.client_body_timeout);
        let shared = self.shared.clone();
        let long = self.body.framing.long_receive(self.body.received);
        let received = Box::pin(poll_fn(|cx| wire.poll_body(cx, Some(&wire.timer), long)));
        let received = shared.waiting_for(WaitKind::ClientRead, received).await;
        if !matches!(received, RecvOutcome::Data(_)) {
            let reason = closing::in_the_middle(&received, CloseReason::InBody, CloseReason::BodyTimeout);
            self.connection.ends(reason);
        }
        match received {
            RecvOutcome::Data(buf) => {
                wire.input.borrow_mut().push(buf);
                Ok(())
            }
            RecvOutcome::TimedOut => {
                self.log(
                    LogLevel::Info,
                    &"client timed out (110: Connection timed out) while reading client request body",
                );
                Err(self.broken(EngineError::CLIENT_TIMED_OUT))
            }
            RecvOutcome::Eof => {
                self.body.gone = true;
                self.log(
                    LogLevel::Info,
                    &"client prematurely closed connection while reading client request body",
                );
                Err(self
                    .broken(EngineError { kind: EngineErrorKind::Protocol, ..EngineError::CLIENT_CLOSED }))
            }
            RecvOutcome::Err(errno) => {
                self.body.gone = true;
                Err(self.broken(EngineError {
                    kind: EngineErrorKind::Protocol,
                    errno: Some(errno),
                    ..EngineError::CLIENT_CLOSED
                }))
            }
        }
    }

    fn broken(&mut self, error: EngineError) -> EngineError {
        self.keep_alive = false;
        self.body.framing = BodyFraming::Done;
        error
    }

    /// `Expect: 100-continue`: 100 is sent when the body is first wanted, whether it is on its way or not, as in nginx.
    fn send_continue(&mut self, wire: &ClientWire) {
        if self.request.head.expect_continue
            && !self.body.continued
            && self.body.received == 0
            && !self.response.header_sent
        {
            self.body.continued = true;
            wire.compose(|out| out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"));
        }
    }
}

/// Drops what came of a body that was not read, before the response: wrong framing changes the response to 400, or ends
/// the connection after an error's page. A client that asks whether to send the body gets 100, unless it gets an
/// error.
///
/// # Errors
/// The status to respond with instead.
pub(crate) fn before_answer(x: &mut Exchange) -> Result<(), u16> {
    if !x.body.is_pending() || x.response.header_sent || x.body.beside().is_some() {
        return Ok(());
    }
    if let Some(stream) = x.transport.stream() {
        stream.discard();
        x.body.discarded = true;
        return if stream.is_broken() && x.response.status < 400 { Err(400) } else { Ok(()) };
    }
    let Some(wire) = x.transport.h1().cloned() else { return Ok(()) };
    let refused = x.response.status >= 400;
    if !refused {
        x.send_continue(&wire);
    }
    x.body.discarded = true;
    loop {
        match x.take_piece(&wire) {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(_) if refused => return Ok(()),
            Err(_) => return Err(400),
        }
    }
}

/// Reads and drops the rest of the body, so that the next request can be found. `false`: give the connection up.
pub async fn rest(x: &mut Exchange, wire: &Rc<ClientWire>) -> bool {
    if !x.body.is_pending() {
        return true;
    }
    if x.body.beside().is_some() {
        return false;
    }
    x.body.discarded = true;
    wire.flush();
    let until = weir_rt::now_ms() + x.plan.core.lingering_time;
    loop {
        match x.take_piece(wire) {
            Ok(_) if !x.body.is_pending() => return true,
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(_) => return false,
        }
        if weir_rt::now_ms() >= until {
            return false;
        }
        wire.timer.arm(x.plan.core.lingering_timeout);
        let long = x.body.framing.long_receive(x.body.received);
        match poll_fn(|cx| wire.poll_body(cx, Some(&wire.timer), long)).await {
            RecvOutcome::Data(buf) => wire.input.borrow_mut().push(buf),
            gone => {
                let reason = closing::in_the_middle(&gone, CloseReason::InBody, CloseReason::UnreadBody);
                x.connection.ends(reason);
                return false;
            }
        }
    }
}
