//! What the driver tests share: each body runs on both drivers, under one deadline.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use weir_rt::net::{self, ListenOptions, SockAddr};
use weir_rt::{
    DriverChoice, Listener, OutputChunk, RecvOutcome, Runtime, RuntimeOptions, Stream, Timer, blocking,
    probe_io_uring,
};

/// How long any test may take.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// `both!(name, options, async-body)`: two tests, `name::epoll` and `name::io_uring`.
#[macro_export]
macro_rules! both {
    ($name:ident, $body:expr) => {
        both!($name, 1024, $body);
    };
    ($name:ident, $buffers:expr, $body:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn epoll() {
                driver_common::run(weir_rt::DriverChoice::Epoll, $buffers, $body());
            }

            #[test]
            fn io_uring() {
                if driver_common::io_uring_works(concat!(module_path!(), "::io_uring")) {
                    driver_common::run(weir_rt::DriverChoice::IoUring, $buffers, $body());
                }
            }
        }
    };
}

/// Whether to run a test on io_uring; says by name which is skipped and why.
pub fn io_uring_works(test: &str) -> bool {
    probe_io_uring().inspect_err(|e| println!("skipped {test}: {e}")).is_ok()
}

/// A runtime of its own for `f`, which must end before the deadline.
pub fn run<T>(driver: DriverChoice, buffers: u16, f: impl Future<Output = T>) -> T {
    let rt =
        Runtime::new(&RuntimeOptions { driver, buffers, ..RuntimeOptions::default() }).expect("a runtime");
    rt.block_on(within(DEADLINE, f))
}

/// Panics if `f` takes longer than `d`.
pub async fn within<T>(d: Duration, f: impl Future<Output = T>) -> T {
    let timer = Timer::new();
    timer.arm(d.as_millis() as u64);
    let (mut f, mut late) = (pin!(f), pin!(timer.wait()));
    poll_fn(|cx| {
        if let Poll::Ready(output) = f.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        assert!(late.as_mut().poll(cx).is_pending(), "the test's deadline has passed");
        Poll::Pending
    })
    .await
}

/// Both, side by side in one task.
pub async fn join<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    poll_fn(|cx| {
        if first.is_none()
            && let Poll::Ready(v) = a.as_mut().poll(cx)
        {
            first = Some(v);
        }
        if second.is_none()
            && let Poll::Ready(v) = b.as_mut().poll(cx)
        {
            second = Some(v);
        }
        match (first.take(), second.take()) {
            (Some(x), Some(y)) => Poll::Ready((x, y)),
            (x, y) => {
                (first, second) = (x, y);
                Poll::Pending
            }
        }
    })
    .await
}

/// A listening socket on a free port of the loopback interface.
pub fn listen() -> (OwnedFd, SocketAddr) {
    let addr: SockAddr = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    let fd = net::listen(&addr, &ListenOptions::default()).expect("listen");
    let local = net::local_addr(std::os::fd::AsRawFd::as_raw_fd(&fd)).expect("local address");
    match local {
        SockAddr::V4(a) => (fd, a.into()),
        other => panic!("not an IPv4 address: {other:?}"),
    }
}

/// A listener and its address.
pub fn listener() -> (Listener, SocketAddr) {
    let (fd, addr) = listen();
    (Listener::new(fd).expect("listener"), addr)
}

/// A connected pair: our stream, and a client that blocks (for pool threads).
pub async fn pair() -> (Stream, TcpStream) {
    let (listener, addr) = listener();
    let client = blocking(move || client(addr)).await;
    (listener.accept().await.expect("accept"), client)
}

/// A client that blocks, but not for ever.
pub fn client(addr: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(addr).expect("connect");
    client.set_read_timeout(Some(DEADLINE)).expect("read timeout");
    client.set_write_timeout(Some(DEADLINE)).expect("write timeout");
    client.set_nodelay(true).expect("nodelay");
    client
}

/// Byte `at` of connection `seed`'s stream: neighbours differ, and so do connections.
pub fn pattern(seed: u32, at: usize) -> u8 {
    (at as u32).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503)).to_be_bytes()[0]
}

/// `len` bytes of [`pattern`] from `from`.
pub fn patterned(seed: u32, from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| pattern(seed, at)).collect()
}

/// Checks received bytes against [`pattern`].
pub fn check(seed: u32, from: usize, bytes: &[u8]) {
    for (n, &b) in bytes.iter().enumerate() {
        assert_eq!(b, pattern(seed, from + n), "connection {seed}, byte {}", from + n);
    }
}

/// Reads until the end of the stream, checking the pattern; the number of bytes.
pub fn read_pattern(mut from: impl Read, seed: u32) -> usize {
    let (mut at, mut buffer) = (0, vec![0; 64 * 1024]);
    loop {
        match from.read(&mut buffer).expect("read") {
            0 => return at,
            n => {
                check(seed, at, &buffer[..n]);
                at += n;
            }
        }
    }
}

/// Writes `len` bytes of the pattern.
pub fn write_pattern(mut to: impl Write, seed: u32, len: usize) {
    let mut at = 0;
    while at < len {
        let n = (len - at).min(10_000);
        to.write_all(&patterned(seed, at, n)).expect("write");
        at += n;
    }
}

/// Receives exactly `len` bytes.
pub async fn recv_exactly(stream: &Stream, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        match stream.recv(None).await {
            RecvOutcome::Data(buf) => bytes.extend_from_slice(&buf),
            other => panic!("{other:?} after {} bytes", bytes.len()),
        }
    }
    assert_eq!(bytes.len(), len);
    bytes
}

/// Sends all of `bytes`.
pub async fn send_all(stream: &Stream, bytes: &[u8]) {
    stream.queue(OutputChunk::Bytes(bytes.to_vec()));
    stream.drained(0, None).await.expect("sent");
}

/// Gives back everything that is received, until the end of the stream.
pub async fn echo(stream: Stream) {
    while let RecvOutcome::Data(buf) = stream.recv(None).await {
        let mut out = stream.spare();
        out.extend_from_slice(&buf);
        stream.queue(OutputChunk::Bytes(out));
        if stream.drained(64 * 1024, None).await.is_err() {
            return;
        }
    }
    // The other side may be gone already.
    let _gone = stream.drained(0, None).await;
}

/// Serves all connections of `listener` by [`echo`].
pub async fn serve_echo(listener: Listener) {
    loop {
        let stream = listener.accept().await.expect("accept");
        weir_rt::spawn(echo(stream));
    }
}

/// Descriptors this process has open.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc/self/fd").count()
}
