//! A request as the program holds it: from any thread, for as long as it likes, also when client and server have gone.
//!
//! Two sides share a [`SharedRequest`]: the program, by handles ([`RequestHandle`]), and the worker ([`crate::serving`]). The
//! program writes what it wants into the state and wakes the worker; the worker does it and calls the program's functions.
//! Those are never called under the lock.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir_http::header::is_token_byte;
use weir_http::{KnownField, classify};

use crate::code::{CallFailure, CallResult, WEIR_E_STATE, WEIR_E_TIMEOUT, WEIR_FULL, WEIR_OK, code_text};
use crate::data::UserData;
use crate::queue::{CallQueue, deliver};
use crate::request_head::HeadCopy;

/// What C calls `weir_request`. When the last handle goes and the response has not been ended, it never will be.
pub(crate) struct RequestHandle(pub(crate) Arc<SharedRequest>);

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.0.change(|state| state.abandoned = true);
    }
}

/// Called with a piece of the body, or all of it.
pub(crate) type BodyFunction =
    unsafe extern "C" fn(*const RequestHandle, c_int, *const u8, usize, *mut c_void);
/// Called when there is room for more of the response.
pub(crate) type RoomFunction = unsafe extern "C" fn(*const RequestHandle, c_int, *mut c_void);
/// Called when the request is over.
pub(crate) type EndFunction = unsafe extern "C" fn(c_int, *mut c_void);

/// A wish for the body. It keeps the request as a handle does.
pub(crate) struct BodyWish {
    pub(crate) handle: Arc<RequestHandle>,
    pub(crate) whole: bool,
    pub(crate) function: BodyFunction,
    pub(crate) data: UserData,
}

impl BodyWish {
    /// Gives the program what it wanted.
    pub(crate) fn fulfil(self, code: c_int, bytes: Vec<u8>) {
        let shared = self.handle.0.clone();
        shared.lock().reading = false;
        deliver(shared.queue.as_deref(), move || {
            let BodyWish { handle, function, data, .. } = self;
            // SAFETY: the program gave the function for this; the handle and the bytes live until it returns.
            unsafe { function(Arc::as_ptr(&handle), code, bytes.as_ptr(), bytes.len(), data.pointer()) };
        });
    }
}

/// A wish for room.
pub(crate) struct RoomWish {
    pub(crate) handle: Arc<RequestHandle>,
    pub(crate) function: RoomFunction,
    pub(crate) data: UserData,
}

impl RoomWish {
    fn fulfil(self, code: c_int) {
        let shared = self.handle.0.clone();
        deliver(shared.queue.as_deref(), move || {
            let RoomWish { handle, function, data } = self;
            // SAFETY: the program gave the function for this, and the handle lives until it returns.
            unsafe { function(Arc::as_ptr(&handle), code, data.pointer()) };
        });
    }
}

/// A wish to know when the request is over.
#[derive(Clone, Copy)]
pub(crate) struct EndWish {
    pub(crate) function: EndFunction,
    pub(crate) data: UserData,
}

impl EndWish {
    fn fulfil(self, queue: Option<&CallQueue>, code: c_int) {
        deliver(queue, move || {
            // SAFETY: the program gave the function for this.
            unsafe { (self.function)(code, self.data.pointer()) };
        });
    }
}

/// A request and its response.
pub(crate) struct SharedRequest {
    pub(crate) head: HeadCopy,
    /// The number of the worker that has it.
    pub(crate) worker: u8,
    /// Where functions are called: `None`, on the worker.
    pub(crate) queue: Option<Arc<CallQueue>>,
    state: Mutex<RequestState>,
    /// There is room, or the request is over.
    changed: Condvar,
}

/// What both sides want of each other.
#[derive(Default)]
pub(crate) struct RequestState {
    /// The worker's task, while it waits.
    waker: Option<Waker>,
    pub(crate) status: u16,
    /// Names and values.
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes of the body, as the program has announced them.
    pub(crate) length: Option<u64>,
    /// Bytes of the body so far.
    written: u64,
    /// What is not with the connection yet.
    output: VecDeque<Vec<u8>>,
    /// Bytes in `output`.
    unsent: usize,
    /// The head can't be changed any more.
    pub(crate) begun: bool,
    flush: bool,
    pub(crate) ended: bool,
    pub(crate) aborted: bool,
    /// No handle is left.
    pub(crate) abandoned: bool,
    /// A piece of the body was asked for.
    pub(crate) streams_body: bool,
    read: Option<BodyWish>,
    /// The worker has taken the wish.
    reading: bool,
    room: Option<RoomWish>,
    end: Vec<EndWish>,
    /// How it ended.
    over: Option<c_int>,
}

/// What the worker is to do before a response has begun.
pub(crate) enum NextDeed {
    /// Read of the body.
    Read(BodyWish),
    /// Begin the response.
    Respond,
    /// Nobody will respond.
    GiveUp,
}

/// A part of the response.
pub(crate) enum OutputPiece {
    Bytes(Vec<u8>),
    Flush,
    End,
    /// It breaks off.
    Broken,
}

impl SharedRequest {
    pub(crate) fn new(head: HeadCopy, worker: u8, queue: Option<Arc<CallQueue>>) -> SharedRequest {
        let state = RequestState { status: 200, ..RequestState::default() };
        SharedRequest { head, worker, queue, state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, RequestState> {
        // Nothing under the lock calls out, so a panic in between leaves no half of anything.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the worker.
    fn change<R>(&self, change: impl FnOnce(&mut RequestState) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        result
    }

    /// As [`SharedRequest::change`], if the request is not over and `allowed`.
    fn alter(
        &self,
        allowed: impl FnOnce(&RequestState) -> Result<(), CallFailure>,
        change: impl FnOnce(&mut RequestState) -> c_int,
    ) -> CallResult {
        self.change(|state| {
            state.is_on()?;
            allowed(state)?;
            Ok(change(state))
        })
    }

    /// Sets the status.
    pub(crate) fn set_status(&self, status: c_int) -> CallResult {
        let status = u16::try_from(status).ok().filter(|status| (200..=599).contains(status));
        let status = status.ok_or_else(|| CallFailure::argument("the status is not from 200 to 599"))?;
        self.alter(RequestState::has_no_head, |state| {
            state.status = status;
            WEIR_OK
        })
    }

    /// Adds a field.
    pub(crate) fn add_field(&self, name: &[u8], value: &[u8]) -> CallResult {
        check_field(name, value)?;
        self.alter(RequestState::has_no_head, |state| {
            state.fields.push((name.to_vec(), value.to_vec()));
            WEIR_OK
        })
    }

    /// Announces the length of the body.
    pub(crate) fn set_length(&self, length: u64) -> CallResult {
        self.alter(RequestState::has_no_head, |state| {
            state.length = Some(length);
            WEIR_OK
        })
    }

    /// Adds to the body, and begins the response.
    pub(crate) fn write(&self, bytes: &[u8]) -> CallResult {
        self.alter(
            |state| state.takes(bytes.len()),
            |state| {
                state.begun = true;
                state.push(bytes);
                if state.unsent >= ROOM { WEIR_FULL } else { WEIR_OK }
            },
        )
    }

    /// Sends all that was written so far, and the head if nothing was.
    pub(crate) fn flush(&self) -> CallResult {
        self.alter(
            |_| Ok(()),
            |state| {
                (state.begun, state.flush) = (true, true);
                WEIR_OK
            },
        )
    }

    /// Ends the response with `bytes`.
    pub(crate) fn end(&self, bytes: &[u8]) -> CallResult {
        self.alter(
            |state| state.takes(bytes.len()),
            |state| {
                state.push(bytes);
                (state.begun, state.ended) = (true, true);
                WEIR_OK
            },
        )
        .inspect(|_| self.changed.notify_all())
    }

    /// Breaks the response off.
    pub(crate) fn abort(&self) -> CallResult {
        self.alter(
            |_| Ok(()),
            |state| {
                (state.begun, state.ended, state.aborted) = (true, true, true);
                WEIR_OK
            },
        )
        .inspect(|_| self.changed.notify_all())
    }

    /// Bytes of the response that are not with the connection yet.
    pub(crate) fn unsent(&self) -> usize {
        self.lock().unsent
    }

    /// Asks for the body. Not the caller's any more if that is allowed.
    pub(crate) fn read(&self, wish: BodyWish) -> CallResult {
        let (whole, mut wish) = (wish.whole, Some(wish));
        let asked = self.alter(
            |state| match state.read.is_some() || state.reading {
                true => Err(CallFailure::state("the body is being read already")),
                false if whole && state.begun => Err(CallFailure::state("the response has begun")),
                false => Ok(()),
            },
            |state| {
                state.streams_body |= !whole;
                state.read = wish.take();
                WEIR_OK
            },
        );
        drop(wish); // outside of the lock: it may be the last handle
        asked
    }

    /// Asks for room.
    pub(crate) fn on_room(&self, wish: RoomWish) -> CallResult {
        let mut wish = Some(wish);
        let asked = self.alter(
            |state| match state.room.is_some() {
                true => Err(CallFailure::state("room is waited for already")),
                false => Ok(()),
            },
            |state| {
                state.room = wish.take();
                WEIR_OK
            },
        );
        drop(wish);
        asked
    }

    /// Asks for the end.
    pub(crate) fn on_end(&self, wish: EndWish) -> CallResult {
        let over = {
            let mut state = self.lock();
            if state.over.is_none() {
                state.end.push(wish);
            }
            state.over
        };
        if let Some(code) = over {
            wish.fulfil(self.queue.as_deref(), code);
        }
        Ok(WEIR_OK)
    }

    /// Blocks until there is room, for `limit` at most.
    pub(crate) fn wait_room(&self, limit: Option<Duration>) -> CallResult {
        let full = |state: &mut RequestState| state.over.is_none() && !state.ended && state.unsent >= ROOM;
        let state = match limit {
            None => self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = self.changed.wait_timeout_while(self.lock(), limit, full);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.is_on()?;
        if state.unsent >= ROOM {
            return Err(CallFailure::new(WEIR_E_TIMEOUT, "the client has taken nothing for so long"));
        }
        Ok(WEIR_OK)
    }

    /// How it ended; `None` while it goes on.
    pub(crate) fn over(&self) -> Option<c_int> {
        self.lock().over
    }

    /// What there is to do before the response has begun.
    pub(crate) fn poll_deed(&self, cx: &mut Context<'_>) -> Poll<NextDeed> {
        let mut state = self.lock();
        if state.begun {
            return Poll::Ready(NextDeed::Respond);
        }
        if let Some(wish) = state.take_read() {
            return Poll::Ready(NextDeed::Read(wish));
        }
        if state.abandoned {
            return Poll::Ready(NextDeed::GiveUp);
        }
        if let Some(room) = state.room.take() {
            drop(state);
            room.fulfil(WEIR_OK);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        state.wait(cx)
    }

    /// Ready when the response has begun, or nobody is there to want the body.
    pub(crate) fn poll_begun(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.begun { Poll::Ready(()) } else { state.wait(cx) }
    }

    /// The task of `cx` is woken when the program wants anything.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        let _pending: Poll<()> = self.lock().wait(cx);
    }

    /// A wish for the body goes back: another part of the worker is to fulfil it.
    pub(crate) fn give_back(&self, wish: BodyWish) {
        let mut state = self.lock();
        (state.read, state.reading) = (Some(wish), false);
    }

    /// A wish for a piece of the body that came while the response is under way.
    pub(crate) fn take_read(&self) -> Option<BodyWish> {
        self.lock().take_read()
    }

    /// All of a response that was ended before anything was sent; `None`: it is to be streamed.
    pub(crate) fn take_whole(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        if !state.ended || state.aborted || state.length.is_some_and(|length| length != state.written) {
            return None;
        }
        state.unsent = 0;
        let mut pieces = std::mem::take(&mut state.output).into_iter();
        let first = pieces.next().unwrap_or_default();
        Some(pieces.fold(first, |mut all, piece| {
            all.extend_from_slice(&piece);
            all
        }))
    }

    /// The next part of a response that is streamed.
    pub(crate) fn poll_output(&self, cx: &mut Context<'_>) -> Poll<OutputPiece> {
        let mut state = self.lock();
        if state.aborted {
            return Poll::Ready(OutputPiece::Broken);
        }
        let polled = if let Some(piece) = state.output.pop_front() {
            state.unsent -= piece.len();
            Poll::Ready(OutputPiece::Bytes(piece))
        } else if std::mem::take(&mut state.flush) {
            Poll::Ready(OutputPiece::Flush)
        } else if state.ended {
            let whole = state.length.is_none_or(|length| length == state.written);
            Poll::Ready(if whole { OutputPiece::End } else { OutputPiece::Broken })
        } else if state.abandoned && state.read.is_none() && state.room.is_none() {
            Poll::Ready(OutputPiece::Broken)
        } else {
            state.wait(cx)
        };
        if state.unsent >= ROOM || state.ended {
            return polled;
        }
        self.changed.notify_all();
        if let Some(room) = state.room.take() {
            drop(state);
            room.fulfil(WEIR_OK);
            // It may have written: the task looks again.
            cx.waker().wake_by_ref();
        }
        polled
    }

    /// The request is over: everybody who waits for it hears of it. What comes after the first time is too late.
    pub(crate) fn finish(&self, code: c_int) {
        let (read, room, ends) = {
            let mut state = self.lock();
            if state.over.is_some() {
                return;
            }
            state.over = Some(code);
            state.waker = None;
            state.output.clear();
            state.unsent = 0;
            (state.read.take(), state.room.take(), std::mem::take(&mut state.end))
        };
        self.changed.notify_all();
        let late = if code == WEIR_OK { WEIR_E_STATE } else { code };
        read.into_iter().for_each(|wish| wish.fulfil(late, Vec::new()));
        room.into_iter().for_each(|wish| wish.fulfil(late));
        ends.into_iter().for_each(|wish| wish.fulfil(self.queue.as_deref(), code));
    }
}

impl RequestState {
    /// Whether anything can be done for the response.
    fn is_on(&self) -> Result<(), CallFailure> {
        match (self.over, self.ended) {
            (Some(WEIR_OK), _) | (None, true) => Err(CallFailure::state("the response was ended before")),
            (Some(code), _) => {
                let message = code_text(code).to_string_lossy();
                Err(CallFailure::new(code, message))
            }
            (None, false) => Ok(()),
        }
    }

    fn take_read(&mut self) -> Option<BodyWish> {
        let wish = self.read.take();
        self.reading |= wish.is_some();
        wish
    }

    fn has_no_head(&self) -> Result<(), CallFailure> {
        if self.begun { Err(CallFailure::state("the response has begun")) } else { Ok(()) }
    }

    fn takes(&self, more: usize) -> Result<(), CallFailure> {
        match self.length {
            Some(length) if self.written + more as u64 > length => {
                Err(CallFailure::argument(format!("the body was announced to have {length} bytes")))
            }
            _ => Ok(()),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.written += bytes.len() as u64;
        self.unsent += bytes.len();
        match self.output.back_mut() {
            // Many small ones become one.
            Some(last) if last.len() + bytes.len() <= JOINED => last.extend_from_slice(bytes),
            _ if bytes.is_empty() => {}
            _ => self.output.push_back(bytes.to_vec()),
        }
    }

    fn wait<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

/// A field that may be sent: what frames the message is not the program's business.
fn check_field(name: &[u8], value: &[u8]) -> Result<(), CallFailure> {
    if name.is_empty() || !name.iter().copied().all(is_token_byte) {
        return Err(CallFailure::argument(
            "the name of a field may have letters, digits and !#$%&'*+-.^_`|~",
        ));
    }
    if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        return Err(CallFailure::argument("the value of a field can't have CR, LF or NUL"));
    }
    match classify(name) {
        KnownField::ContentLength => Err(CallFailure::argument("weir_response_length announces the length")),
        KnownField::TransferEncoding | KnownField::Connection => {
            Err(CallFailure::argument("how the message is framed is the server's business"))
        }
        _ => Ok(()),
    }
}

/// Bytes of a response that may wait before `WEIR_FULL` is returned.
const ROOM: usize = 64 << 10;
/// Up to how many bytes pieces are joined.
const JOINED: usize = 16 << 10;
