//! The body of a response: read from the server, freed of its framing, handed to the engine piece by piece.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use weir_rt::RecvOutcome;
use weir_trace::WaitKind;

use super::cached_body::SavedBody;
use crate::config::directives::UpstreamSettings;
use crate::error_log;
use crate::h2::{CallProgress, SessionLoss};
use crate::location::upstream_location::UpstreamLocation;
use crate::protocol::{BodyDecoder, RequestFraming};
use crate::request::attempt_records::AttemptRecords;
use crate::request::exchange_part::part;
use crate::response::cache_writer::{ResponseFile, ResponseFileWriter, WriteProgress as Progress};
use crate::response::chunked_body;
use crate::response::headers;
use crate::response::limit_rate::{ReadPace, paced};
use crate::response::read_ahead::{ReadAhead, ReadAheadRoom};
use crate::response::received_head::{ReceivedBody, ReceivedHead, UpstreamLink};
use crate::response::upload::ConnectionUpload;
use crate::worker_side::local_upstream::PeerLease;
use weir_engine::body::{BodyPiece, BodySource, ResponseBody};
use weir_engine::error::{EngineError, EngineErrorKind, FaultSide};
use weir_engine::exchange::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::phase::Verdict;
use weir_engine::worker::{UpstreamCloseReason, Worker};

/// A body that comes from a server.
pub(crate) struct UpstreamBody {
    open: Option<OpenBody>,
    decoder: BodyDecoder,
    ahead: ReadAhead,
    /// Something was handed over since the last flush.
    unflushed: bool,
    /// The server was not read from for a while: the time that it takes counts from now on.
    rested: bool,
    /// It is read from as fast as it sends.
    buffering: bool,
    /// The last receive brought as much as one may.
    long: bool,
    pub(super) failed: Option<EngineError>,
    settings: Arc<UpstreamSettings>,
    pub(super) worker: Rc<Worker>,
    pub(super) records: AttemptRecords,
    keep: bool,
    /// More has come than belongs to it.
    spoke: bool,
    /// `*_limit_rate`
    pace: Option<ReadPace>,
    /// It becomes a file.
    pub(super) saving: Option<ResponseFileWriter>,
}

/// The connection while the body is not over.
struct OpenBody {
    link: UpstreamLink,
    /// What of the request goes on leaving on a connection of its own.
    upload: Option<ConnectionUpload>,
    lease: PeerLease,
    received: ReceivedBody,
}

impl UpstreamBody {
    /// Begins to hand the body on. One that has come whole already is handed over whole.
    pub(crate) fn begin(
        x: &mut Exchange,
        up: &UpstreamLocation,
        answered: ReceivedHead,
        records: AttemptRecords,
        keep: Option<ResponseFile>,
        unfinished: Option<RequestFraming>,
    ) -> Verdict {
        x.response.end_apart = true;
        if keep.is_none()
            && let (BodyDecoder::Length(length), UpstreamLink::Own(_)) =
                (&answered.incoming.decoder, &answered.link)
            && answered.rest.len() as u64 == *length
            && x.response.content_length.is_some()
            && !x.response.expect_trailers
            && up.settings.limit_rate.is_none()
        {
            return whole(x, answered, &records, unfinished.is_none());
        }
        let ReceivedHead { incoming, link, lease, rest } = answered;
        link.touch(up.settings.read_timeout);
        let buffering = headers::buffering(x, &up.settings, &incoming);
        part(x).scratch.keep_fields(incoming.fields);
        let pace_of = if buffering { up.settings.limit_rate.as_ref() } else { None };
        let (rest, pace) = paced(x, pace_of, rest);
        let upload = unfinished.and_then(|framing| ConnectionUpload::begin(x, up, framing));
        let received = ReceivedBody { shared: x.shared.clone(), site: lease.site(&up.sites), bytes: 0 };
        let policy = x.plan.core.small_file_writes;
        let mut answer = UpstreamBody {
            open: Some(OpenBody { link, upload, lease, received }),
            decoder: incoming.decoder,
            ahead: ReadAhead::new(&up.settings, policy),
            unflushed: false,
            rested: false,
            buffering,
            long: false,
            failed: None,
            settings: up.settings.clone(),
            worker: x.worker.clone(),
            records,
            keep: incoming.keep_alive,
            spoke: false,
            pace,
            saving: keep.map(|keep| ResponseFileWriter::new(keep, policy)),
        };
        answer.take(rest);
        answer.take_paced();
        answer.take_news();
        x.response.expect_trailers |= answer.may_have_trailer();
        if answer.saving.is_some() {
            return x.respond(ResponseBody::Source(Box::new(SavedBody(Some(Box::new(answer))))));
        }
        if answer.open.is_none()
            && answer.failed.is_none()
            && !x.response.expect_trailers
            && x.response.content_length.is_some()
            && let Some(buf) = answer.ahead.pop_only()
        {
            return x.respond(ResponseBody::Whole(buf));
        }
        x.respond(ResponseBody::Source(Box::new(answer)))
    }

    /// Frees `bytes` of their framing.
    fn take(&mut self, bytes: Vec<u8>) {
        match self.decode(bytes) {
            Ok(false) => {}
            Ok(true) => self.over(),
            Err(message) => self.broken(EngineErrorKind::Protocol, None, &message),
        }
    }

    fn decode(&mut self, bytes: Vec<u8>) -> Result<bool, String> {
        match &mut self.decoder {
            BodyDecoder::None => {
                self.spoke |= !bytes.is_empty();
                self.keep &= !self.spoke;
                Ok(true)
            }
            BodyDecoder::UntilClose => {
                self.push(bytes);
                Ok(false)
            }
            BodyDecoder::Length(left) => {
                let mut bytes = bytes;
                if bytes.len() as u64 > *left {
                    // What follows belongs to no request.
                    (self.keep, self.spoke) = (false, true);
                    self.records.complain(
                        LogLevel::Warn,
                        "upstream sent more data than specified in \"Content-Length\" header while reading upstream"
                            .to_owned(),
                    );
                    bytes.truncate(*left as usize);
                }
                *left -= bytes.len() as u64;
                let done = *left == 0;
                self.push(bytes);
                Ok(done)
            }
            BodyDecoder::Chunked(decoder) => {
                let mut body = bytes;
                let len = body.len();
                let (used, read) = chunked_body::unframe(decoder, &mut body);
                self.spoke |= read != Ok(false) && used != len;
                self.keep &= !self.spoke;
                if read == Ok(true) {
                    self.records.note_trailers(decoder.trailers());
                }
                // What came before a fault is the client's, however the bytes were cut into packets.
                self.push(body);
                read
            }
            BodyDecoder::Other(decoder) => {
                let mut body = Vec::with_capacity(bytes.len());
                let result = decoder.decode(&bytes, &mut body);
                for (level, message) in decoder.messages() {
                    self.records.complain(level, message);
                }
                // What came before a fault is the client's, however the bytes were cut into packets.
                self.push(body);
                let (used, done) = result?;
                self.keep &= !done || used == bytes.len();
                Ok(done)
            }
        }
    }

    /// Frees what is held back of its framing, as far as the rate allows; `false`: nothing was allowed.
    fn take_paced(&mut self) -> bool {
        let needed = if let BodyDecoder::Length(left) = self.decoder { Some(left) } else { None };
        let Some(bytes) = self.pace.as_mut().and_then(|pace| pace.take(weir_rt::now_ms(), needed)) else {
            return false;
        };
        self.take(bytes);
        true
    }

    /// Waits until the rate allows more, while it allows nothing.
    fn poll_pace(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pace) = &mut self.pace else { return Poll::Ready(()) };
        let paused = pace.poll_pause(cx, weir_rt::now_ms());
        if paused.is_ready()
            && let Some(open) = &self.open
        {
            // The server was not waited for meanwhile.
            open.link.touch(self.settings.read_timeout);
        }
        paused
    }

    fn push(&mut self, bytes: Vec<u8>) {
        self.records.count(bytes.len() as u64, 0, 0);
        match &mut self.saving {
            Some(saving) => saving.push(bytes),
            None => self.ahead.push(bytes),
        }
    }

    /// Reads on while there is room for it, and writes what was read. `Ready`: something changed.
    fn poll_saving(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.open.is_some() && self.saving.as_ref().is_some_and(ResponseFileWriter::has_room) {
            if self.poll_read(cx).is_pending() {
                break;
            }
        }
        let Some(saving) = &mut self.saving else { return Poll::Ready(()) };
        if self.failed.is_some() {
            // What is not whole is not cached; the client gets what there is of it.
            std::task::ready!(saving.poll_abandon(cx, &mut self.ahead));
            self.saving = None;
            return Poll::Ready(());
        }
        match std::task::ready!(saving.poll(cx, self.open.is_none(), &mut self.ahead)) {
            Progress::More => {
                self.rested = true;
                let spent = saving.take_spent();
                if let Some(OpenBody { link: UpstreamLink::Own(connection), .. }) = &self.open {
                    spent.into_iter().for_each(|piece| connection.stream.give_spare(piece));
                }
            }
            Progress::Over => self.saving = None,
            Progress::Failed(failed) => {
                self.saving = None;
                self.records.complain(LogLevel::Crit, format!("{failed} while reading upstream"));
            }
        }
        Poll::Ready(())
    }

    /// The connection is closed in the middle of the body, for `reason`.
    fn leaves(&mut self, reason: UpstreamCloseReason) {
        if let Some(open) = self.open.take() {
            open.link.ends(reason);
        }
    }

    /// The body is there whole: its connection is free for others.
    fn over(&mut self) {
        self.records.end(None);
        let clean = self.pace.as_ref().is_none_or(ReadPace::is_empty);
        let Some(OpenBody { link: UpstreamLink::Own(connection), upload, lease, .. }) = self.open.take()
        else {
            return;
        };
        if upload.is_some() {
            connection.end.ends(UpstreamCloseReason::RequestUnsent);
        } else if self.keep && clean {
            lease.upstream.pool.give(&self.worker, &lease.peer, connection);
        } else if self.spoke || !clean {
            connection.end.ends(UpstreamCloseReason::Spoke);
        }
    }

    fn broken(&mut self, kind: EngineErrorKind, errno: Option<i32>, message: &str) {
        self.records.end(None);
        let error = EngineError { kind, side: FaultSide::Upstream, errno };
        if let Some(open) = self.open.take() {
            open.link.ends(match (kind, errno) {
                (EngineErrorKind::TimedOut, _) => UpstreamCloseReason::ReadTimeout,
                (EngineErrorKind::Protocol, _) => UpstreamCloseReason::BadResponse,
                (_, Some(errno)) => UpstreamCloseReason::of_errno(errno, UpstreamCloseReason::Reset),
                _ => UpstreamCloseReason::InResponse,
            });
            open.lease.peer.state.last.note(weir_engine::engine::cause(&error));
        }
        self.failed = Some(error);
        self.records.complain(LogLevel::Error, format!("{message} while reading upstream"));
    }

    /// Reads once. `Ready`: something changed.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.pace.is_some() {
            if self.open.is_none() || self.take_paced() {
                return Poll::Ready(());
            }
            ready!(self.poll_pace(cx));
            if self.take_paced() {
                return Poll::Ready(());
            }
        }
        let Some(open) = &mut self.open else { return Poll::Ready(()) };
        if std::mem::take(&mut self.rested) {
            open.link.touch(self.settings.read_timeout);
        }
        match &mut open.link {
            UpstreamLink::Own(connection) => {
                let (stream, timer) = (&connection.stream, Some(&connection.timer));
                let room = self.saving.as_ref().map_or_else(|| self.ahead.room(), ResponseFileWriter::room);
                let received = match expected(&self.decoder, self.long, room) {
                    Some(most) if self.pace.is_none() => stream.poll_recv_long(cx, timer, most),
                    _ => stream.poll_recv(cx, timer),
                };
                self.received(ready!(received));
            }
            UpstreamLink::Talk(talk) => match ready!(talk.poll(cx)) {
                Ok(got) => self.got(got),
                Err(error) => self.given_up(error),
            },
        }
        Poll::Ready(())
    }

    /// What came on a connection.
    fn received(&mut self, received: RecvOutcome) {
        match received {
            RecvOutcome::Data(bytes) => {
                self.long = bytes.len() >= SHORT;
                self.bytes(bytes.into_vec());
            }
            RecvOutcome::Eof if matches!(self.decoder, BodyDecoder::UntilClose) => self.over(),
            RecvOutcome::Eof if matches!(&self.decoder, BodyDecoder::Other(other) if other.may_end()) => {
                self.keep = false;
                self.over();
            }
            RecvOutcome::Eof => self.broken(EngineErrorKind::Closed, None, CLOSED),
            RecvOutcome::TimedOut => self.broken(EngineErrorKind::TimedOut, None, TIMED_OUT),
            RecvOutcome::Err(errno) => self.reset(errno),
        }
    }

    /// What came on a stream.
    fn got(&mut self, got: CallProgress) {
        match got {
            CallProgress::Data(bytes) => self.bytes(bytes),
            CallProgress::Trailers(fields) if fields.is_too_large_for_trailers(self.settings.buffer_size) => {
                // A part of them may say the opposite of the whole, so that where nobody gets them they are forgotten.
                if self.settings.pass_trailers {
                    self.broken(EngineErrorKind::Protocol, None, "upstream sent too big trailers");
                }
            }
            CallProgress::Trailers(fields) => {
                for (name, value) in fields.iter() {
                    self.records.trailer(name, value);
                }
            }
            CallProgress::End => self.over(),
            CallProgress::Head(..) | CallProgress::Interim(_) => {}
            CallProgress::TimedOut => self.broken(EngineErrorKind::TimedOut, None, TIMED_OUT),
            CallProgress::Reset(_, Some(reason)) | CallProgress::Lost(SessionLoss::Broken(reason)) => {
                self.broken(EngineErrorKind::Protocol, None, &format!("upstream {reason}"));
            }
            CallProgress::Reset(code, None) => {
                let message = format!("upstream rejected request with error {}", code as u32);
                self.broken(EngineErrorKind::Closed, None, &message);
            }
            CallProgress::Lost(SessionLoss::Away(code)) => {
                let message = format!("upstream sent goaway with error {}", code as u32);
                self.broken(EngineErrorKind::Closed, None, &message);
            }
            CallProgress::Lost(SessionLoss::Closed) => self.broken(EngineErrorKind::Closed, None, CLOSED),
            CallProgress::Lost(SessionLoss::Failed(errno)) => self.reset(errno),
        }
    }

    /// Bytes of the body, in their framing.
    fn bytes(&mut self, bytes: Vec<u8>) {
        self.records.count(0, 0, bytes.len() as u64);
        if let Some(open) = &mut self.open {
            open.link.touch(self.settings.read_timeout);
            open.received.bytes += bytes.len() as u64;
        }
        match &mut self.pace {
            None => self.take(bytes),
            Some(pace) => {
                pace.hold(bytes);
                self.take_paced();
            }
        }
    }

    fn reset(&mut self, errno: i32) {
        let text = weir_rt::file::errno_text(errno);
        let call = if self.buffering { "readv" } else { "recv" };
        self.broken(EngineErrorKind::Closed, Some(errno), &format!("{call}() failed ({errno}: {text})"));
    }

    /// Passes on what has come of the rest of the request.
    fn poll_upload(&mut self, cx: &mut Context<'_>) {
        let Some(open) = &mut self.open else { return };
        let passed = match (&mut open.link, &mut open.upload) {
            (UpstreamLink::Own(_), None) => return,
            (UpstreamLink::Own(connection), Some(upload)) => upload.poll(cx, &connection.stream),
            (UpstreamLink::Talk(talk), _) => talk.poll_upload(cx).map(|()| false),
        };
        match passed {
            Ok(true) => open.upload = None,
            Ok(false) => {}
            Err(error) => self.given_up(error),
        }
    }

    /// The rest of the request can't be had: the server is notified.
    fn given_up(&mut self, error: EngineError) {
        self.records.end(None);
        self.leaves(UpstreamCloseReason::RequestFailed);
        self.failed = Some(error);
        self.records.complain(LogLevel::Error, "sending request body to upstream failed".to_owned());
    }

    /// Takes what has come on a stream before any task waits for it.
    fn take_news(&mut self) {
        while self.pace.is_none()
            && self.ahead.has_room()
            && let Some(OpenBody { link: UpstreamLink::Talk(talk), .. }) = &mut self.open
            && let Some(got) = talk.next()
        {
            self.got(got);
        }
    }

    /// Whether a trailer has come, or may come, that the client gets.
    fn may_have_trailer(&self) -> bool {
        let comes = matches!(&self.open, Some(OpenBody { link: UpstreamLink::Talk(_), .. }));
        self.settings.pass_trailers && (comes || self.records.has_trailer())
    }

    /// Moves what was read ahead to a file. `Ready(false)`: nothing more may be read ahead.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match ready!(self.ahead.poll_room(cx)) {
            Ok(ReadAheadRoom::Made) => Poll::Ready(true),
            Ok(ReadAheadRoom::NewFile(path)) => {
                let path = path.display();
                let message = format!(
                    "an upstream response is buffered to a temporary file {path} while reading upstream"
                );
                self.records.complain(LogLevel::Warn, message);
                Poll::Ready(true)
            }
            Ok(ReadAheadRoom::None) => Poll::Ready(false),
            Ok(ReadAheadRoom::Failed(failure)) => {
                // The disk is full, or not to be written: no reason to end a response that needs only a client's patience.
                self.records.complain(LogLevel::Crit, format!("{failure} while reading upstream"));
                Poll::Ready(false)
            }
            Err(failed) => {
                self.records.end(None);
                self.leaves(UpstreamCloseReason::Unwanted);
                self.failed = Some(EngineError::file(failed.error.raw_os_error()));
                self.records.complain(LogLevel::Crit, format!("{failed} while reading upstream"));
                Poll::Ready(false)
            }
        }
    }
}

/// A response whose body came with its head: most small ones. `keep`: its request has left whole.
fn whole(x: &mut Exchange, answered: ReceivedHead, records: &AttemptRecords, keep: bool) -> Verdict {
    let ReceivedHead { incoming, link, lease, rest } = answered;
    part(x).scratch.keep_fields(incoming.fields);
    records.count(rest.len() as u64, 0, 0);
    records.end(None);
    if let UpstreamLink::Own(connection) = link {
        if !keep {
            connection.end.ends(UpstreamCloseReason::RequestUnsent);
        } else if incoming.keep_alive {
            lease.upstream.pool.give(&x.worker, &lease.peer, connection);
        }
    }
    x.respond(ResponseBody::Whole(rest.into()))
}

/// How many bytes to receive at once, where they are more than a pool buffer has: as many as there is room for. One
/// more than is left shows that the server has said all, without another receive.
fn expected(decoder: &BodyDecoder, long: bool, room: u64) -> Option<usize> {
    let left = match decoder {
        BodyDecoder::Length(left) => *left as usize,
        _ if long => usize::MAX,
        _ => 0,
    };
    (left > SHORT && room > SHORT as u64).then(|| left.saturating_add(1).min(room as usize))
}

/// What a receive into a pool buffer brings at most.
const SHORT: usize = 4096;

/// nginx's words.
const CLOSED: &str = "upstream prematurely closed connection";
const TIMED_OUT: &str = "upstream timed out (110: Connection timed out)";

impl Drop for UpstreamBody {
    /// A body of which the client gets nothing (HEAD) is not waited for: the try ends here.
    fn drop(&mut self) {
        if self.open.is_some() {
            self.records.end(None);
            self.leaves(UpstreamCloseReason::Unwanted);
        }
    }
}

impl BodySource for UpstreamBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<BodyPiece, EngineError>> {
        self.poll_upload(cx);
        loop {
            if let Some(buf) = self.ahead.pop() {
                self.unflushed = true;
                self.rested = true;
                return Poll::Ready(Ok(BodyPiece::Data(buf)));
            }
            let waits = if self.saving.is_some() {
                self.poll_saving(cx).is_pending()
            } else if self.ahead.is_writing() {
                self.poll_room(cx).is_pending()
            } else if let Some(error) = self.failed {
                return Poll::Ready(Err(error));
            } else if self.open.is_none() {
                return Poll::Ready(Ok(BodyPiece::End));
            } else {
                self.poll_read(cx).is_pending()
            };
            if waits {
                if std::mem::take(&mut self.unflushed) {
                    return Poll::Ready(Ok(BodyPiece::Flush));
                }
                return Poll::Pending;
            }
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        self.poll_upload(cx);
        while self.saving.is_some() {
            if self.poll_saving(cx).is_pending() {
                return;
            }
        }
        while self.buffering && self.open.is_some() {
            let goes_on = if self.ahead.has_room() {
                self.poll_read(cx).is_ready()
            } else {
                self.rested = true;
                self.poll_room(cx) == Poll::Ready(true)
            };
            if !goes_on {
                return;
            }
        }
    }

    fn busy(&self) -> Option<u64> {
        self.settings.busy
    }

    fn finish(&mut self, x: &mut Exchange) {
        if self.settings.pass_trailers {
            self.records.pass_trailers(x, &self.settings);
        }
    }

    fn is_for_client_only(&self) -> bool {
        !self.settings.ignore_client_abort
    }

    fn client_left(&mut self) {
        self.records.end(None);
        self.leaves(UpstreamCloseReason::ClientGone);
        self.records.complain(LogLevel::Info, error_log::client_gone("reading upstream"));
    }

    fn waits_for(&self) -> WaitKind {
        WaitKind::UpstreamBody
    }
}
