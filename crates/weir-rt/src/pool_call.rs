//! A call in the blocking pool that a task waits for.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use crate::blocking as pool;

/// Runs `f` on a thread of the blocking pool and waits for its result. A panic of `f` goes on in the waiting task;
/// if that has been dropped, `f` still runs to its end.
pub async fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    away(pool::submit, f).await
}

/// As [`blocking`], for what computes long rather than waits: on threads that give way to the loops.
pub async fn computing<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    away(pool::compute, f).await
}

/// As [`blocking`], for keys in devices: on threads that wait, and give way to the loops when they compute.
pub async fn asking_device<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    away(pool::ask_device, f).await
}

async fn away<T: Send + 'static>(
    submit: fn(Box<dyn FnOnce() + Send>),
    f: impl FnOnce() -> T + Send + 'static,
) -> T {
    let call = Arc::new(Mutex::new(PoolCall { result: None, waker: None }));
    let theirs = Arc::clone(&call);
    let mut job = Some(Box::new(move || {
        let result = catch_unwind(AssertUnwindSafe(f));
        let mut call = theirs.lock().unwrap_or_else(PoisonError::into_inner);
        call.result = Some(result);
        let waker = call.waker.take();
        drop(call);
        if let Some(waker) = waker {
            waker.wake();
        }
    }));
    let result = poll_fn(|cx| {
        if let Some(job) = job.take() {
            // Before: it may be done, elsewhere, before this returns.
            call.lock().unwrap_or_else(PoisonError::into_inner).waker = Some(cx.waker().clone());
            submit(job);
            return Poll::Pending;
        }
        let mut call = call.lock().unwrap_or_else(PoisonError::into_inner);
        match call.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                call.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await;
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// A call in the blocking pool: what both sides share.
struct PoolCall<T> {
    result: Option<std::thread::Result<T>>,
    waker: Option<Waker>,
}
