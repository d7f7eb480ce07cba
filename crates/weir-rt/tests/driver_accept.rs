//! Listeners and descriptors. One test function: it counts and limits the descriptors of the whole process.

mod driver_common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use driver_common::*;
use weir_rt::{
    DriverChoice, Listener, RecvOutcome, Runtime, RuntimeOptions, Stream, blocking, process,
    process::ResourceLimit, sleep, spawn,
};

#[test]
fn listeners_and_descriptors() {
    let mut drivers = vec![DriverChoice::Epoll];
    if io_uring_works("driver_accept") {
        drivers.push(DriverChoice::IoUring);
    }
    // The blocking pool's threads and the probe take what they need now.
    run(DriverChoice::Auto, 16, async { blocking(|| ()).await });
    for driver in drivers {
        let level = descriptors();
        run(driver, 256, churn());
        assert_eq!(descriptors(), level, "{driver:?}: a thousand connections later");
        let rt = Runtime::new(&RuntimeOptions { driver, ..RuntimeOptions::default() }).expect("a runtime");
        rt.block_on(within(DEADLINE, burst(rt.stats())));
        drop(rt);
        assert_eq!(descriptors(), level, "{driver:?}: after a burst");
        run(driver, 256, abandoned());
        assert_eq!(descriptors(), level, "{driver:?}: accepted by nobody, connected by nobody");
        run(driver, 256, pause_resume_and_take());
        assert_eq!(descriptors(), level, "{driver:?}: listeners taken and closed");
        out_of_descriptors(driver);
        assert_eq!(descriptors(), level, "{driver:?}: after running out");
    }
}

/// Connections that end in every way.
async fn churn() {
    let (listener, addr) = listener();
    spawn(serve_echo(listener));
    blocking(move || {
        for n in 0..1000 {
            let mut client = client(addr);
            match n % 4 {
                0 => (), // not a word
                1 => client.write_all(b"and away").expect("write"),
                2 => {
                    client.write_all(b"echo").expect("write");
                    client.read_exact(&mut [0; 4]).expect("read");
                }
                _ => {
                    client.write_all(&[0; 30_000]).expect("write");
                    weir_rt::net::linger_reset(std::os::fd::AsRawFd::as_raw_fd(&client)).expect("linger");
                }
            }
        }
    })
    .await;
    // Let the last of them be seen.
    sleep(Duration::from_millis(50)).await;
}

/// More connections at once than are accepted ahead or in one turn, and the counters of them.
async fn burst(stats: std::sync::Arc<weir_rt::LoopStats>) {
    const CLIENTS: u32 = 200;
    let (listener, addr) = listener();
    let clients: Vec<TcpStream> = blocking(move || (0..CLIENTS).map(|_| client(addr)).collect()).await;
    let mut streams = Vec::new();
    for _ in 0..CLIENTS {
        streams.push(listener.accept().await.expect("accept"));
    }
    let all = stats.snapshot();
    assert_eq!((all.accepted, all.connections_live), (u64::from(CLIENTS), u64::from(CLIENTS)));
    drop(streams);
    for _ in 0..3 {
        weir_rt::yield_now().await;
    }
    assert_eq!(stats.snapshot().connections_live, 0);
    drop(clients);
}

/// Connections that were not taken when the runtime ends.
async fn abandoned() {
    let (ours, addr) = listener();
    let clients: Vec<TcpStream> = blocking(move || (0..40).map(|_| client(addr)).collect()).await;
    let first = ours.accept().await.expect("accept");
    let (other, to) = listener();
    let outgoing = Stream::connect(&to.into()).await.expect("connect");
    spawn(async move {
        let _keep = (first, outgoing, other, clients);
        loop {
            ours.accept().await.expect("accept");
            sleep(Duration::from_secs(100)).await;
        }
    });
    sleep(Duration::from_millis(20)).await;
}

async fn pause_resume_and_take() {
    let (listener, addr) = listener();
    let hello = move || {
        let mut client = client(addr);
        client.write_all(b"hello").expect("write");
        client
    };
    listener.pause();
    let waiting = blocking(hello).await;
    {
        let paused = within_or_none(Duration::from_millis(40), listener.accept()).await;
        assert!(paused.is_none(), "paused");
    }
    listener.resume();
    let stream = listener.accept().await.expect("accept");
    assert_eq!(recv_exactly(&stream, 5).await, b"hello");
    drop((waiting, stream));
    // What is accepted and not taken comes along; the kernel's queue stays with the descriptor.
    let early = blocking(hello).await;
    sleep(Duration::from_millis(10)).await;
    let (fd, accepted) = listener.into_fd().await.expect("the descriptor");
    let late = blocking(hello).await;
    let listener = Listener::exclusive(fd).expect("listener");
    let mut streams = accepted;
    while streams.len() < 2 {
        streams.push(listener.accept().await.expect("accept"));
    }
    for stream in &streams {
        assert_eq!(recv_exactly(stream, 5).await, b"hello");
    }
    drop((early, late));
}

async fn within_or_none<T>(d: Duration, f: impl Future<Output = T>) -> Option<T> {
    let timer = weir_rt::Timer::new();
    timer.arm(d.as_millis() as u64);
    let (mut f, mut late) = (std::pin::pin!(f), std::pin::pin!(timer.wait()));
    std::future::poll_fn(|cx| match (f.as_mut().poll(cx), late.as_mut().poll(cx)) {
        (std::task::Poll::Ready(v), _) => std::task::Poll::Ready(Some(v)),
        (_, std::task::Poll::Ready(())) => std::task::Poll::Ready(None),
        _ => std::task::Poll::Pending,
    })
    .await
}

/// More clients than descriptors: all are served in the end, and the loop does not spin meanwhile.
fn out_of_descriptors(driver: DriverChoice) {
    const CLIENTS: usize = 40;
    let rt = Runtime::new(&RuntimeOptions { driver, ..RuntimeOptions::default() }).expect("a runtime");
    let stats = rt.stats();
    let (soft, hard) = process::limit(ResourceLimit::OpenFiles).expect("limit");
    rt.block_on(within(DEADLINE, async {
        let (listener, addr) = listener();
        // The clients' descriptors first; then room for eight on our side.
        let clients: Vec<TcpStream> = blocking(move || (0..CLIENTS).map(|_| client(addr)).collect()).await;
        let highest = descriptors() as u64;
        process::set_limit(ResourceLimit::OpenFiles, highest + 8, hard).expect("limit");
        let before = stats.snapshot();
        spawn(async move {
            loop {
                // A lack of descriptors is reported once a pause.
                let Ok(stream) = listener.accept().await else { continue };
                spawn(async move {
                    while let RecvOutcome::Data(buf) = stream.recv(None).await {
                        send_all(&stream, &buf).await;
                    }
                });
            }
        });
        while stats.snapshot().emfile == before.emfile {
            sleep(Duration::from_millis(1)).await;
        }
        let met = stats.snapshot();
        sleep(Duration::from_millis(200)).await;
        let stuck = stats.snapshot();
        assert!(stuck.turns - met.turns < 500, "{} turns while stuck", stuck.turns - met.turns);
        assert!(stuck.accepted - before.accepted < CLIENTS as u64);
        blocking(move || {
            for mut client in clients {
                client.write_all(b"served").expect("write");
                client.read_exact(&mut [0; 6]).expect("read");
            }
        })
        .await;
    }));
    process::set_limit(ResourceLimit::OpenFiles, soft, hard).expect("limit");
}
