//! The loop itself: tasks, wakers, timers, mail, and the life of runtimes.

mod driver_common;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use driver_common::*;
use weir_rt::{
    DriverChoice, OutputChunk, RecvOutcome, Runtime, RuntimeOptions, Stream, Timer, blocking, now_ms,
    probe_io_uring, remote, set_panic_hook, sleep, spawn, unix_time, yield_now,
};

static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

both!(a_panic_ends_one_task_and_its_connection, || async {
    set_panic_hook(|message| MESSAGES.lock().expect("messages").push(message.to_owned()));
    let (listener, addr) = listener();
    spawn(async move {
        loop {
            let stream = listener.accept().await.expect("accept");
            spawn(async move {
                if let RecvOutcome::Data(buf) = stream.recv(None).await {
                    assert!(&buf[..] != b"panic", "asked for");
                    send_all(&stream, &buf).await;
                }
            });
        }
    });
    blocking(move || {
        let mut bystander = client(addr);
        let mut victim = client(addr);
        victim.write_all(b"panic").expect("write");
        assert!(matches!(victim.read(&mut [0; 9]), Ok(0) | Err(_)), "closed");
        bystander.write_all(b"fine").expect("write");
        let mut answer = String::new();
        bystander.read_to_string(&mut answer).expect("read");
        assert_eq!(answer, "fine");
    })
    .await;
    let messages = MESSAGES.lock().expect("messages").clone();
    assert!(messages.iter().any(|m| m.contains("asked for") && m.contains("driver_loop.rs")), "{messages:?}");
});

both!(spawned_tasks_run_in_turn_and_can_spawn, || async {
    let order = Rc::new(RefCell::new(Vec::new()));
    for n in 0..3 {
        let order = Rc::clone(&order);
        spawn(async move {
            order.borrow_mut().push(n);
            yield_now().await;
            let inner = Rc::clone(&order);
            spawn(async move { inner.borrow_mut().push(n + 20) });
            order.borrow_mut().push(n + 10);
        });
    }
    while order.borrow().len() < 9 {
        yield_now().await;
    }
    assert_eq!(*order.borrow(), [0, 1, 2, 10, 11, 12, 20, 21, 22]);
});

both!(timers_fire_in_order_and_never_early, || async {
    let fired = Rc::new(RefCell::new(Vec::new()));
    for ms in [60u64, 20, 100, 40] {
        let fired = Rc::clone(&fired);
        spawn(async move {
            // The loop's clock, which does not advance within a turn: what a busy machine adds to one is not waited
            // for.
            let start = now_ms();
            sleep(Duration::from_millis(ms)).await;
            assert!(now_ms() - start >= ms, "{ms} ms were {}", now_ms() - start);
            fired.borrow_mut().push(ms);
        });
    }
    while fired.borrow().len() < 4 {
        sleep(Duration::from_millis(4)).await;
    }
    assert_eq!(*fired.borrow(), [20, 40, 60, 100]);
});

both!(a_timer_moves_stops_and_starts_again, || async {
    let timer = Timer::new();
    assert!(!timer.is_armed() && !timer.expired());
    // On a busy machine a step may take longer than the timer has: then it has expired, rightly.
    let mut start = 0;
    let mut pushed_out = false;
    while !pushed_out {
        timer.arm(30);
        start = now_ms();
        let mut longest = 0;
        for _ in 0..5 {
            let before = now_ms();
            sleep(Duration::from_millis(12)).await;
            timer.touch(30);
            longest = longest.max(now_ms() - before);
        }
        pushed_out = longest < 30;
    }
    assert!(timer.is_armed() && !timer.expired(), "pushed out five times");
    timer.wait().await;
    assert!(now_ms() - start >= 5 * 12 + 30 && timer.expired() && !timer.is_armed());
    timer.arm(5);
    assert!(timer.is_armed());
    timer.disarm();
    sleep(Duration::from_millis(20)).await;
    assert!(!timer.expired() && !timer.is_armed());
    // Armed by one task while another waits.
    let timer = Rc::new(Timer::new());
    let woken = Rc::new(Cell::new(false));
    let (theirs, flag) = (Rc::clone(&timer), Rc::clone(&woken));
    spawn(async move {
        theirs.wait().await;
        flag.set(true);
    });
    yield_now().await;
    timer.arm(10_000);
    timer.disarm();
    timer.arm(8);
    while !woken.get() {
        sleep(Duration::from_millis(4)).await;
    }
});

both!(an_idle_receive_times_out_and_goes_on, || async {
    let (stream, mut client) = pair().await;
    let idle = Timer::new();
    idle.arm(30);
    let start = now_ms();
    assert!(matches!(stream.recv(Some(&idle)).await, RecvOutcome::TimedOut));
    assert!(now_ms() - start >= 30);
    client.write_all(b"late").expect("write");
    idle.arm(10_000);
    assert_eq!(recv_exactly(&stream, 4).await, b"late");
});

both!(other_threads_run_closures_here, || async {
    let (remote, counter) = (remote(), Arc::new(AtomicU32::new(0)));
    let here = std::thread::current().id();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (remote, counter) = (remote.clone(), Arc::clone(&counter));
            std::thread::spawn(move || {
                for _ in 0..500 {
                    let counter = Arc::clone(&counter);
                    remote.run(Box::new(move || {
                        assert_eq!(std::thread::current().id(), here);
                        counter.fetch_add(1, Ordering::Relaxed);
                    }));
                }
            })
        })
        .collect();
    while counter.load(Ordering::Relaxed) < 2000 {
        sleep(Duration::from_millis(4)).await;
    }
    for thread in threads {
        thread.join().expect("join");
    }
    // A closure may spawn, and may wake a loop that sleeps without a timer.
    let done = Arc::new(AtomicU32::new(0));
    let theirs = Arc::clone(&done);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        remote.run(Box::new(move || {
            spawn(async move {
                theirs.store(1, Ordering::Relaxed);
            });
        }));
    });
    while done.load(Ordering::Relaxed) == 0 {
        sleep(Duration::from_millis(4)).await;
    }
});

both!(wakes_from_other_threads_arrive, || async {
    for _ in 0..50 {
        let shared = Arc::new(Mutex::new((false, None::<Waker>)));
        let theirs = Arc::clone(&shared);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(300));
            let mut state = theirs.lock().expect("state");
            state.0 = true;
            if let Some(waker) = state.1.take() {
                waker.wake();
            }
        });
        poll_fn(|cx| {
            let mut state = shared.lock().expect("state");
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
});

/// A waker that is not ours, as combinators make them.
struct Foreign {
    woken: AtomicU32,
    parent: Waker,
}

impl Wake for Foreign {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        self.parent.wake_by_ref();
    }
}

/// Polls `f` with a waker of its own.
async fn with_foreign_waker<T>(f: impl Future<Output = T>) -> T {
    let mut f: Pin<Box<dyn Future<Output = T>>> = Box::pin(f);
    poll_fn(|cx| {
        let foreign = Arc::new(Foreign { woken: AtomicU32::new(0), parent: cx.waker().clone() });
        f.as_mut().poll(&mut Context::from_waker(&foreign.into()))
    })
    .await
}

both!(combinators_with_their_own_wakers_work, || async {
    let (stream, mut client) = pair().await;
    let peer = blocking(move || {
        std::thread::sleep(Duration::from_millis(10));
        client.write_all(b"ping").expect("write");
        std::io::copy(&mut client, &mut std::io::sink()).expect("read")
    });
    let ours = with_foreign_waker(async move {
        assert_eq!(recv_exactly(&stream, 4).await, b"ping");
        stream.queue(OutputChunk::Bytes(vec![0; 4 << 20]));
        stream.drained(0, None).await.expect("sent");
        with_foreign_waker(sleep(Duration::from_millis(5))).await;
    });
    assert_eq!(join(peer, ours).await.0, 4 << 20);
});

both!(a_blocking_call_returns_its_result_or_its_panic, || async {
    let here = std::thread::current().id();
    assert_ne!(blocking(|| std::thread::current().id()).await, here);
    let caught = Rc::new(Cell::new(false));
    let flag = Rc::clone(&caught);
    let task = async move {
        struct OnDrop(Rc<Cell<bool>>);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0.set(std::thread::panicking());
            }
        }
        let _flag = OnDrop(flag);
        blocking(|| panic!("in the pool")).await;
    };
    spawn(task);
    while !caught.get() {
        sleep(Duration::from_millis(4)).await;
    }
});

both!(the_clocks_agree_and_counters_count, || async {
    let (seconds, ms) = unix_time();
    let system = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    assert!(system.as_secs().abs_diff(seconds) <= 2 && ms < 1000);
    for _ in 0..10 {
        sleep(Duration::from_millis(4)).await;
    }
});

#[test]
fn runtimes_live_one_after_the_other_and_side_by_side() {
    for driver in [DriverChoice::Epoll, DriverChoice::Auto] {
        let threads: Vec<_> = (0..3)
            .map(|worker| {
                std::thread::spawn(move || {
                    for _ in 0..3 {
                        let options =
                            RuntimeOptions { driver, worker, buffers: 16, ..RuntimeOptions::default() };
                        let rt = Runtime::new(&options).expect("a runtime");
                        let answer = rt.block_on(async {
                            let (listener, addr) = listener();
                            spawn(serve_echo(listener));
                            let stream = Stream::connect(&addr.into()).await.expect("connect");
                            send_all(&stream, b"hello").await;
                            recv_exactly(&stream, 5).await
                        });
                        assert_eq!(answer, b"hello");
                        assert_eq!(rt.block_on(async { 7 }), 7, "it goes on where it stopped");
                        assert!(rt.stats().snapshot().turns > 0 && rt.remote().worker() == worker);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("join");
        }
    }
}

#[test]
fn handles_that_outlive_their_runtime_find_errors() {
    for driver in [DriverChoice::Epoll, DriverChoice::Auto] {
        let rt = Runtime::new(&RuntimeOptions { driver, ..RuntimeOptions::default() }).expect("a runtime");
        let (stream, buf, timer) = rt.block_on(async {
            let (stream, mut client) = pair().await;
            client.write_all(b"kept").expect("write");
            let RecvOutcome::Data(buf) = stream.recv(None).await else { panic!("no data") };
            assert!(stream.try_recv().is_none());
            stream.queue(OutputChunk::Bytes(vec![0; 32 << 20]));
            stream.flush();
            (stream, buf, Timer::new())
        });
        drop(rt);
        assert_eq!(&buf[..], b"kept");
        assert!(matches!(stream.try_recv(), Some(RecvOutcome::Err(libc::EBADF))));
        stream.queue(OutputChunk::Static(b"nowhere"));
        stream.flush();
        timer.arm(5);
        drop((stream, buf, timer));
    }
}

#[test]
#[should_panic(expected = "inside Runtime::block_on")]
fn free_functions_outside_a_runtime_say_so() {
    now_ms();
}

#[test]
fn the_reason_against_io_uring_is_text() {
    if let Err(e) = probe_io_uring() {
        assert!(e.to_string().starts_with("io_uring: "), "{e}");
    }
}
