//! A request's content on its way to a stream: what was read before, or what the client sends meanwhile, also while the
//! response is under way.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_http::h2::StreamEnd;
use weir_rt::file::{FileHandle, on_pool};

use super::call::StreamCall;
use crate::protocol::{OutgoingRequest, RequestFraming};
use weir_engine::error::EngineError;
use weir_engine::exchange::Exchange;
use weir_engine::phase::LocalFuture;
use weir_engine::read::BodyRest;

/// Where the rest of a request's content comes from.
pub(crate) enum StreamUpload {
    /// All of it was given.
    Done,
    /// The exchange reads it from its client.
    Exchange,
    /// From a file that it was read into.
    File(FromFile),
    /// From the client, beside the response.
    Client(BodyRest),
}

impl StreamUpload {
    /// What is to be sent of the content at once, and where the rest comes from.
    pub(crate) fn begin(x: &Exchange, out: &OutgoingRequest) -> (Vec<u8>, StreamUpload) {
        if let Some(body) = &out.body {
            return (body.clone(), StreamUpload::Done);
        }
        if out.framing == RequestFraming::None {
            return (Vec::new(), StreamUpload::Done);
        }
        if !x.body.is_read() {
            return (
                Vec::new(),
                if x.body.is_pending() { StreamUpload::Exchange } else { StreamUpload::Done },
            );
        }
        match x.body.file() {
            Some(file) => {
                let (handle, left) = (file.handle.clone(), file.len);
                (Vec::new(), StreamUpload::File(FromFile { handle, offset: 0, left, reading: None }))
            }
            None => (x.body.memory().to_vec(), StreamUpload::Done),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self, StreamUpload::Done)
    }

    /// The response has begun: what the client still sends is passed on without the exchange.
    pub(crate) fn let_go(&mut self, x: &mut Exchange) {
        if let StreamUpload::Exchange = self
            && let Some(rest) = BodyRest::take_over(x)
        {
            *self = StreamUpload::Client(rest);
        }
    }

    /// Gives what can be given.
    ///
    /// # Errors
    /// The client does not send the rest, or too much; the file can't be read.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, call: &StreamCall) -> Result<(), EngineError> {
        let done = match self {
            StreamUpload::Done | StreamUpload::Exchange => return Ok(()),
            StreamUpload::File(file) => file.poll(cx, call)?,
            StreamUpload::Client(rest) => pass(rest, cx, call)?,
        };
        if done {
            *self = StreamUpload::Done;
        }
        Ok(())
    }
}

/// A file, read by a thread of the pool, a piece at a time.
pub(crate) struct FromFile {
    handle: Rc<FileHandle>,
    offset: u64,
    left: u64,
    reading: Option<LocalFuture<'static, io::Result<Vec<u8>>>>,
}

impl FromFile {
    /// Whether all of it was given.
    fn poll(&mut self, cx: &mut Context<'_>, call: &StreamCall) -> Result<bool, EngineError> {
        let failed = |error: io::Error| EngineError::file(error.raw_os_error());
        loop {
            let Some(reading) = &mut self.reading else {
                if !call.has_room(cx) {
                    return Ok(false);
                }
                let (offset, len) = (self.offset, self.left.min(PIECE) as usize);
                self.reading = Some(on_pool(&self.handle, move |file| read(file, offset, len)));
                continue;
            };
            let Poll::Ready(read) = reading.as_mut().poll(cx) else { return Ok(false) };
            self.reading = None;
            let piece = read.map_err(failed)?;
            self.offset += piece.len() as u64;
            self.left -= (piece.len() as u64).min(self.left);
            call.offer(piece, StreamEnd::last_if(self.left == 0));
            if self.left == 0 {
                return Ok(true);
            }
        }
    }
}

fn read(file: &FileHandle, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; len];
    match file.pread(&mut piece, offset)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        got => {
            piece.truncate(got);
            Ok(piece)
        }
    }
}

/// Gives what has come of the client's content; whether that was all.
fn pass(rest: &mut BodyRest, cx: &mut Context<'_>, call: &StreamCall) -> Result<bool, EngineError> {
    loop {
        if !call.has_room(cx) {
            // It is the server that is waited for.
            rest.pause();
            return Ok(false);
        }
        let Poll::Ready(polled) = rest.poll(cx) else { return Ok(false) };
        let (piece, last) = polled?;
        call.offer(piece, StreamEnd::last_if(last));
        if last {
            return Ok(true);
        }
    }
}

/// Files are read in pieces of this many bytes.
const PIECE: u64 = 32 * 1024;
