//! Waking tasks of the same thread.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};

/// `first`, or `None` when `second` is done before it.
pub async fn either<T>(first: impl Future<Output = T>, second: impl Future<Output = ()>) -> Option<T> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|cx| {
        if let Poll::Ready(value) = first.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        second.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// Tasks wait here until something was notified. A notification without a waiting task is stored for the next one that
/// waits.
#[derive(Default)]
pub struct Notify {
    set: Cell<bool>,
    wakers: RefCell<Vec<Waker>>,
}

impl Notify {
    /// Wakes all waiting tasks.
    pub fn notify(&self) {
        self.set.set(true);
        for waker in self.wakers.borrow_mut().drain(..) {
            waker.wake();
        }
    }

    /// Waits for the next notification, and takes it.
    pub async fn notified(&self) {
        poll_fn(|cx| {
            if self.set.take() {
                return Poll::Ready(());
            }
            self.register(cx.waker());
            Poll::Pending
        })
        .await;
    }

    /// Waits until it was notified once; the notification stays for others.
    pub async fn forever(&self) {
        poll_fn(|cx| {
            if self.set.get() {
                return Poll::Ready(());
            }
            self.register(cx.waker());
            Poll::Pending
        })
        .await;
    }

    /// True when it was notified and the notification is not taken yet.
    pub fn is_set(&self) -> bool {
        self.set.get()
    }

    fn register(&self, waker: &Waker) {
        let mut wakers = self.wakers.borrow_mut();
        if !wakers.iter().any(|other| other.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }
}
