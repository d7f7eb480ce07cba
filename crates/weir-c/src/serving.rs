//! The worker's side of a request: calls the program's handler, then does what the program asks for.

use std::sync::Arc;
use std::task::{Context, Poll};

use weir::Handler;
use weir_engine::body::{BodyBuf, BodyPiece, BodySource, ResponseBody};
use weir_engine::error::{EngineErrorKind, FaultSide};
use weir_engine::log::LogLevel;
use weir_engine::phase::LocalFuture;
use weir_engine::read::BodyRest;
use weir_engine::transport::ClientSide;
use weir_engine::{EngineError, Exchange, Text, Verdict};
use weir_http::Method;
use weir_trace::WaitKind;

use crate::code::{WEIR_E_GONE, WEIR_E_STATE, WEIR_E_STOPPED, WEIR_OK, code_of};
use crate::data::OwnedData;
use crate::queue::{CallQueue, deliver};
use crate::request::{BodyWish, NextDeed, OutputPiece, RequestHandle, SharedRequest};
use crate::request_head::HeadCopy;

/// The program's function for a location.
pub(crate) type HandlerFunction = unsafe extern "C" fn(*const RequestHandle, *mut std::ffi::c_void);

/// A handler of the program's; one for each location of each worker.
#[derive(Clone)]
pub(crate) struct ForeignHandler {
    pub(crate) function: HandlerFunction,
    pub(crate) data: Arc<OwnedData>,
    pub(crate) queue: Option<Arc<CallQueue>>,
}

/// A request that the worker has, between the handler's call and its response.
#[derive(Default)]
struct ParkedRequest(Option<OpenRequest>);

/// Ends the request when the worker lets go of it.
struct OpenRequest(Arc<SharedRequest>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        // Where the client stays, the server goes: then the thread has no worker any more.
        let serves = weir_server::with_worker(|_| ()).is_some();
        self.0.finish(if serves { WEIR_E_GONE } else { WEIR_E_STOPPED });
    }
}

impl Handler for ForeignHandler {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        let shared = Arc::new(SharedRequest::new(HeadCopy::of(x), x.worker.id, self.queue.clone()));
        let open = OpenRequest(shared.clone());
        let handle = Arc::new(RequestHandle(shared.clone()));
        let (function, data) = (self.function, self.data.clone());
        deliver(self.queue.as_deref(), move || {
            // SAFETY: the program gave the function with the data, for this; the handle lives until it returns.
            unsafe { function(Arc::as_ptr(&handle), data.pointer()) };
        });
        let status = shared.lock().status;
        if !is_bodiless(x, status)
            && let Some(verdict) = try_whole(x, &shared)
        {
            return verdict;
        }
        x.state::<ParkedRequest>().0 = Some(open);
        Verdict::Wait
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(async move {
            match x.state::<ParkedRequest>().0.take() {
                Some(open) => serve(x, open).await,
                None => Verdict::Status(500),
            }
        })
    }
}

/// Waits for what the program asks for, until the response begins.
async fn serve(x: &mut Exchange, open: OpenRequest) -> Verdict {
    let shared = open.0.clone();
    let mut gone = x.client_gone().map(Box::pin);
    // What the client gets if nobody responds.
    let mut status = 500;
    loop {
        let next = x.waiting_beside_until(WaitKind::Other, |cx| match shared.poll_deed(cx) {
            Poll::Ready(deed) => Poll::Ready(Some(deed)),
            Poll::Pending => {
                gone.as_mut().map_or(Poll::Pending, |gone| gone.as_mut().poll(cx).map(|()| None))
            }
        });
        match next.await {
            None => {
                shared.finish(WEIR_E_GONE);
                return Verdict::Close(499);
            }
            Some(NextDeed::Respond) => return respond(x, open).await,
            Some(NextDeed::Read(wish)) => match read(x, &shared, wish).await {
                Ok(()) => {}
                Err(error) if x.body.is_gone() => {
                    shared.finish(WEIR_E_GONE);
                    return Verdict::Close(error.status());
                }
                Err(error) => status = error.status(),
            },
            Some(NextDeed::GiveUp) => {
                x.log(LogLevel::Error, &"a handler has let go of a request without a response");
                shared.finish(WEIR_E_STATE);
                return Verdict::Status(status);
            }
        }
    }
}

/// Reads of the body what is asked for. An error has been reported to the program.
async fn read(x: &mut Exchange, shared: &SharedRequest, wish: BodyWish) -> Result<(), EngineError> {
    let begun = |cx: &mut Context<'_>| shared.poll_begun(cx);
    let result = if wish.whole {
        let all = Box::pin(x.read_body_beside(begun)).await;
        all.map(|read| read.and_then(|()| weir::body_bytes(x)))
    } else {
        let piece = x.body_piece_beside(begun).await;
        piece.map(|read| read.map(Option::unwrap_or_default))
    };
    match result {
        Some(Ok(bytes)) => wish.fulfil(WEIR_OK, bytes),
        Some(Err(error)) => {
            wish.fulfil(if x.body.is_gone() { WEIR_E_GONE } else { code_of(error) }, Vec::new());
            return Err(error);
        }
        None if wish.whole => wish.fulfil(WEIR_E_STATE, Vec::new()),
        // The response has begun: it goes on beside that.
        None => shared.give_back(wish),
    }
    Ok(())
}

/// Begins the response.
async fn respond(x: &mut Exchange, open: OpenRequest) -> Verdict {
    let shared = open.0.clone();
    let (aborted, status) = {
        let state = shared.lock();
        (state.aborted, state.status)
    };
    if aborted {
        shared.finish(WEIR_E_STATE);
        return x.abandon(500);
    }
    if is_bodiless(x, status) {
        return bodiless(x, &shared).await;
    }
    if let Some(verdict) = try_whole(x, &shared) {
        return verdict;
    }
    let streams_body = {
        let state = shared.lock();
        x.response.content_length = state.length;
        state.streams_body
    };
    compose_head(x, &shared);
    let is_read = !x.body.is_pending();
    let rest = if streams_body { BodyRest::take_over(x) } else { None };
    let client = x.transport.client();
    x.respond(ResponseBody::Source(Box::new(ProgramBody { open, rest, is_read, wish: None, client })))
}

/// Whether no body follows the head.
fn is_bodiless(x: &Exchange, status: u16) -> bool {
    x.request.head.method == Method::Head || matches!(status, 204 | 304)
}

/// A response that was ended as a whole; `None`: it was not, or is to break off.
fn try_whole(x: &mut Exchange, shared: &SharedRequest) -> Option<Verdict> {
    let body = shared.take_whole()?;
    compose_head(x, shared);
    shared.finish(WEIR_OK);
    let status = x.response.status;
    Some(match body.is_empty() {
        true if status >= 300 && x.response.location.is_none() => Verdict::Status(status),
        true => x.respond(ResponseBody::Empty),
        false => x.respond(ResponseBody::Whole(BodyBuf::Bytes(body))),
    })
}

/// A response without a body: what is written all the same is dropped, and its end waited for.
async fn bodiless(x: &mut Exchange, shared: &SharedRequest) -> Verdict {
    let whole = shared.take_whole().map(|body| body.len() as u64);
    let mut gone = x.client_gone().map(Box::pin);
    let dropped = x.waiting_beside_until(WaitKind::Other, |cx| {
        loop {
            match shared.poll_output(cx) {
                Poll::Ready(OutputPiece::Bytes(_) | OutputPiece::Flush) => {}
                Poll::Ready(OutputPiece::End) => return Poll::Ready(true),
                Poll::Ready(OutputPiece::Broken) => return Poll::Ready(shared.lock().length.is_some()),
                Poll::Pending => {
                    return gone
                        .as_mut()
                        .map_or(Poll::Pending, |gone| gone.as_mut().poll(cx).map(|()| false));
                }
            }
        }
    });
    if !dropped.await {
        shared.finish(WEIR_E_GONE);
        return x.abandon(499);
    }
    compose_head(x, shared);
    x.response.content_length = shared.lock().length.or(whole);
    shared.finish(WEIR_OK);
    if x.request.head.method != Method::Head {
        return x.respond(ResponseBody::Empty);
    }
    match (x.response.content_length, x.response.status) {
        (Some(0), status) if status >= 300 && x.response.location.is_none() => Verdict::Status(status),
        // A source is not asked, and its length not known.
        _ => x.respond(ResponseBody::Source(Box::new(NoBody))),
    }
}

fn compose_head(x: &mut Exchange, shared: &SharedRequest) {
    let (status, fields) = {
        let mut state = shared.lock();
        (state.status, std::mem::take(&mut state.fields))
    };
    x.response.status = status;
    for (name, value) in fields {
        let value = Text::from(x.arena.push(&value));
        x.add_response_field(&name, value);
    }
}

/// What the program writes, piece by piece, and beside it what it reads.
struct ProgramBody {
    open: OpenRequest,
    /// The rest of the request's body, where the program reads that piece by piece.
    rest: Option<BodyRest>,
    /// The request's body is at its end.
    is_read: bool,
    /// What it waits for of `rest`.
    wish: Option<BodyWish>,
    /// Watched while nothing is read: reading reports that it has left as well.
    client: Option<ClientSide>,
}

impl BodySource for ProgramBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<BodyPiece, EngineError>> {
        self.poll_read(cx);
        let piece = self.open.0.poll_output(cx);
        if piece.is_pending() {
            // What has passed the filters leaves now: nobody knows when more comes.
            self.client.iter().for_each(ClientSide::flush);
            if self.has_left(cx) {
                self.open.0.finish(WEIR_E_GONE);
                return Poll::Ready(Err(EngineError::CLIENT_CLOSED));
            }
        }
        piece.map(|piece| match piece {
            OutputPiece::Bytes(bytes) => Ok(BodyPiece::Data(BodyBuf::Bytes(bytes))),
            OutputPiece::Flush => Ok(BodyPiece::Flush),
            OutputPiece::End => {
                self.open.0.finish(WEIR_OK);
                Ok(BodyPiece::End)
            }
            OutputPiece::Broken => {
                self.open.0.finish(WEIR_E_STATE);
                Err(EngineError { kind: EngineErrorKind::Closed, side: FaultSide::Server, errno: None })
            }
        })
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        self.poll_read(cx);
        self.open.0.register(cx);
    }
}

impl ProgramBody {
    /// Whether the client is gone and nothing is read that would tell so.
    fn has_left(&self, cx: &mut Context<'_>) -> bool {
        let client = self.client.as_ref().filter(|_| self.wish.is_none());
        client.is_some_and(|client| client.poll_gone(cx).is_ready())
    }

    /// Reads what the program wants of the request's body.
    fn poll_read(&mut self, cx: &mut Context<'_>) {
        loop {
            self.wish = self.wish.take().or_else(|| self.open.0.take_read());
            let Some(wish) = self.wish.take() else {
                return self.rest.iter().for_each(BodyRest::pause);
            };
            let Some(rest) = &mut self.rest else {
                wish.fulfil(if self.is_read { WEIR_OK } else { WEIR_E_STATE }, Vec::new());
                continue;
            };
            match rest.poll(cx) {
                Poll::Pending => return self.wish = Some(wish),
                Poll::Ready(Ok((piece, last))) => {
                    if last {
                        (self.rest, self.is_read) = (None, true);
                    }
                    match piece.is_empty() && !last {
                        true => self.wish = Some(wish),
                        false => wish.fulfil(WEIR_OK, piece),
                    }
                }
                Poll::Ready(Err(error)) => {
                    self.rest = None;
                    wish.fulfil(code_of(error), Vec::new());
                }
            }
        }
    }
}

impl Drop for ProgramBody {
    fn drop(&mut self) {
        if let Some(wish) = self.wish.take() {
            let code = self.open.0.over().filter(|code| *code != WEIR_OK);
            wish.fulfil(code.unwrap_or(WEIR_E_GONE), Vec::new());
        }
    }
}

/// A body that is not asked for.
struct NoBody;

impl BodySource for NoBody {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Result<BodyPiece, EngineError>> {
        Poll::Ready(Ok(BodyPiece::End))
    }
}
