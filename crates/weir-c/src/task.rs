//! Calls that other threads ask a worker for: now, or after a time.

use std::ffi::{c_int, c_void};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::code::{CallFailure, CallResult, WEIR_E_CANCELLED, WEIR_E_STOPPED, WEIR_OK};
use crate::data::UserData;
use crate::queue::{CallQueue, deliver};

/// Called once, whatever happens: with [`WEIR_OK`] when it is time, else with why it will never be.
pub(crate) type TaskFunction = unsafe extern "C" fn(c_int, *mut c_void);

/// A call that has not been made. Dropped, it is made with [`WEIR_E_STOPPED`].
pub(crate) struct OwedCall {
    function: TaskFunction,
    data: UserData,
    queue: Option<Arc<CallQueue>>,
    made: bool,
}

impl OwedCall {
    pub(crate) fn new(function: TaskFunction, data: *mut c_void, queue: Option<Arc<CallQueue>>) -> OwedCall {
        OwedCall { function, data: UserData::new(data), queue, made: false }
    }

    pub(crate) fn make(mut self, code: c_int) {
        self.call(code);
    }

    /// It will not be made: the data is the program's again.
    pub(crate) fn forget(mut self) {
        self.made = true;
    }

    fn call(&mut self, code: c_int) {
        self.made = true;
        let (function, data) = (self.function, self.data);
        deliver(self.queue.as_deref(), move || {
            // SAFETY: the program gave the function with the data, for this.
            unsafe { function(code, data.pointer()) };
        });
    }
}

impl Drop for OwedCall {
    fn drop(&mut self) {
        if !self.made {
            self.call(WEIR_E_STOPPED);
        }
    }
}

/// What C calls `weir_timer`.
pub(crate) struct ForeignTimer(Mutex<TimerState>);

struct TimerState {
    /// `None` once it was made.
    call: Option<OwedCall>,
    cancelled: bool,
    waker: Option<Waker>,
}

impl ForeignTimer {
    pub(crate) fn new(call: OwedCall) -> ForeignTimer {
        ForeignTimer(Mutex::new(TimerState { call: Some(call), cancelled: false, waker: None }))
    }

    /// Has the call made with [`WEIR_E_CANCELLED`], soon and on the thread where it would have been made.
    pub(crate) fn cancel(&self) -> CallResult {
        let mut state = self.lock();
        if state.call.is_none() || state.cancelled {
            return Err(CallFailure::state("the timer has run, or was cancelled"));
        }
        state.cancelled = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Ok(WEIR_OK)
    }

    /// Waits on a worker for `delay`, and makes the call.
    pub(crate) async fn run(self: Arc<Self>, delay: Duration) {
        let ending = EndingTimer(self);
        let mut sleep = pin!(weir_rt::sleep(delay));
        let code = poll_fn(|cx| {
            let mut state = ending.0.lock();
            if state.cancelled {
                return Poll::Ready(WEIR_E_CANCELLED);
            }
            state.waker = Some(cx.waker().clone());
            drop(state);
            sleep.as_mut().poll(cx).map(|()| WEIR_OK)
        });
        ending.0.fire(code.await);
    }

    fn fire(&self, code: c_int) {
        // Not under the lock.
        let call = self.lock().call.take();
        call.into_iter().for_each(|call| call.make(code));
    }

    fn lock(&self) -> MutexGuard<'_, TimerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A timer that a worker has: it is over with the worker.
struct EndingTimer(Arc<ForeignTimer>);

impl Drop for EndingTimer {
    fn drop(&mut self) {
        self.0.fire(WEIR_E_STOPPED);
    }
}
