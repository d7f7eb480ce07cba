//! Sockets: what is sent and received arrives whole, in order, whatever the two sides do.

mod driver_common;

use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use driver_common::*;
use weir_rt::{
    OutputChunk, PeerClosed, RecvOutcome, SendError, Stream, Timer, blocking, sleep, spawn, yield_now,
};

both!(echo_of_two_hundred_messages, || async {
    let (listener, addr) = listener();
    spawn(serve_echo(listener));
    blocking(move || {
        let mut client = client(addr);
        for n in 0..200 {
            let message = patterned(n, 0, 1 + n as usize * 37);
            client.write_all(&message).expect("write");
            let mut answer = vec![0; message.len()];
            client.read_exact(&mut answer).expect("read");
            assert_eq!(answer, message);
        }
    })
    .await;
});

both!(a_peer_that_spoke_and_left_before_the_connect_was_told_is_heard, || async {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("fcntl");
    let to = listener.local_addr().expect("bound").into();
    let mut connect = pin!(Stream::connect(&to));
    let (mut connected, mut left) = (None, false);
    let stream = poll_fn(|cx| {
        if connected.is_none()
            && let Poll::Ready(stream) = connect.as_mut().poll(cx)
        {
            connected = Some(stream);
        }
        // With epoll the kernel has connected by now, and the event is yet to be fetched.
        if !left && let Ok((mut peer, _)) = listener.accept() {
            peer.write_all(b"bye").expect("write");
            left = true;
        }
        if !left {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        connected.take().map_or(Poll::Pending, Poll::Ready)
    });
    let stream = stream.await.expect("connect");
    assert_eq!(recv_exactly(&stream, 3).await, b"bye");
    assert!(matches!(stream.recv(None).await, RecvOutcome::Eof));
});

both!(pipelined_answers_leave_in_order_and_together, || async {
    let (stream, mut client) = pair().await;
    let asked = blocking(move || {
        client.write_all(&[b'x'; 100]).expect("write");
        let mut answers = String::new();
        client.read_to_string(&mut answers).expect("read");
        answers
    });
    let answered = async {
        for byte in 0..recv_exactly(&stream, 100).await.len() {
            stream.queue(OutputChunk::Bytes(format!("{byte} ").into_bytes()));
            stream.queue(OutputChunk::Static(b"ok\n"));
        }
        stream.drained(0, None).await.expect("sent");
        let sent = stream.sent();
        drop(stream);
        sent
    };
    let (answers, sent) = join(asked, answered).await;
    let expected: String = (0..100).map(|n| format!("{n} ok\n")).collect();
    assert_eq!((answers, sent), (expected.clone(), expected.len() as u64));
});

both!(queued_answers_go_out_after_the_peers_half_close, || async {
    const LEN: usize = 3 << 20;
    let (stream, mut client) = pair().await;
    let reader = blocking(move || {
        client.write_all(b"request").expect("write");
        client.shutdown(Shutdown::Write).expect("shutdown");
        read_pattern(client, 7)
    });
    let server = async {
        assert_eq!(recv_exactly(&stream, 7).await, b"request");
        assert!(matches!(stream.recv(None).await, RecvOutcome::Eof));
        assert!(stream.is_eof());
        stream.queue(OutputChunk::Shared(patterned(7, 0, LEN).into()));
        stream.drained(0, None).await.expect("sent");
        drop(stream);
    };
    assert_eq!(join(reader, server).await.0, LEN);
});

both!(dropped_futures_lose_nothing, || async {
    const LEN: usize = 50_000;
    let (stream, client) = pair().await;
    let writer = blocking(move || {
        for (n, byte) in patterned(3, 0, LEN).into_iter().enumerate() {
            (&client).write_all(&[byte]).expect("write");
            if n % 500 == 0 {
                std::thread::yield_now();
            }
        }
    });
    let reader = async {
        let mut at = 0;
        loop {
            // Polled once and dropped, in all of them.
            let mut cx = Context::from_waker(Waker::noop());
            if let Poll::Ready(recv) = pin!(stream.recv(None)).poll(&mut cx) {
                match recv {
                    RecvOutcome::Data(buf) => {
                        check(3, at, &buf);
                        at += buf.len();
                    }
                    RecvOutcome::Eof => return at,
                    other => panic!("{other:?}"),
                }
            }
            let _dropped = pin!(stream.closed()).poll(&mut cx);
            let _dropped = pin!(stream.drained(0, None)).poll(&mut cx);
            yield_now().await;
        }
    };
    assert_eq!(join(writer, reader).await.1, LEN);
});

both!(a_slow_reader_holds_the_sender_back, || async {
    const LEN: usize = 8 << 20;
    const HIGH: u64 = 256 * 1024;
    let (stream, mut client) = pair().await;
    let reader = blocking(move || {
        let (mut at, mut buffer) = (0, vec![0; 48 * 1024]);
        loop {
            let n = client.read(&mut buffer).expect("read");
            check(9, at, &buffer[..n]);
            at += n;
            match n {
                0 => return at,
                _ if at < 1 << 20 => std::thread::sleep(Duration::from_millis(2)),
                _ => (),
            }
        }
    });
    let writer = async {
        let timer = Timer::new();
        for at in (0..LEN).step_by(32 * 1024) {
            stream.queue(OutputChunk::Bytes(patterned(9, at, 32 * 1024)));
            timer.arm(20_000);
            stream.drained(HIGH, Some(&timer)).await.expect("progress");
            assert!(stream.unsent() <= HIGH);
        }
        stream.drained(0, None).await.expect("sent");
        assert_eq!((stream.unsent(), stream.sent()), (0, LEN as u64));
        drop(stream);
    };
    assert_eq!(join(reader, writer).await.0, LEN);
});

both!(a_send_timeout_is_the_time_without_progress, || async {
    let (stream, client) = pair().await;
    let timer = Timer::new();
    stream.queue(OutputChunk::Bytes(vec![0; 64 << 20]));
    timer.arm(150);
    let (start, mut last) = (weir_rt::now_ms(), 0);
    let stopped = stream.drained(0, Some(&timer)).await;
    assert_eq!(stopped, Err(SendError::TimedOut));
    assert!(weir_rt::now_ms() - start >= 150);
    // A client that reads a little at a time, each step within the limit, is served although the whole takes longer.
    let reader = blocking(move || {
        let mut buffer = vec![0; 4 << 20];
        for _ in 0..12 {
            std::thread::sleep(Duration::from_millis(60));
            (&client).read_exact(&mut buffer).expect("read");
        }
        client
    });
    let writer = async {
        timer.arm(20_000);
        while stream.unsent() > 20 << 20 {
            assert!(stream.sent() >= last);
            last = stream.sent();
            stream.drained(stream.unsent() - 1, Some(&timer)).await.expect("progress");
        }
    };
    join(reader, writer).await;
});

both!(an_upload_nobody_reads_stops_and_goes_on, || async {
    const LEN: usize = 32 << 20;
    let (stream, client) = pair().await;
    client.set_nonblocking(true).expect("non-blocking");
    // Arm the receive, as a connection that waits for a request has.
    assert!(stream.try_recv().is_none());
    let bytes = patterned(5, 0, LEN);
    let (mut at, mut stuck) = (0, 0);
    while stuck < 50 {
        match (&client).write(&bytes[at..]) {
            Ok(n) => (at, stuck) = (at + n, 0),
            Err(_) => {
                stuck += 1;
                sleep(Duration::from_millis(2)).await;
            }
        }
    }
    assert!(at < LEN, "nobody reads, yet {at} bytes were taken");
    client.set_nonblocking(false).expect("blocking");
    let writer = blocking(move || (&client).write_all(&bytes[at..]).expect("write"));
    let reader = async {
        let mut at = 0;
        while let RecvOutcome::Data(buf) = stream.recv(None).await {
            check(5, at, &buf);
            at += buf.len();
        }
        at
    };
    assert_eq!(join(writer, reader).await.1, LEN);
});

both!(a_reset_in_mid_send_is_an_error_and_not_a_signal, || async {
    let (stream, client) = pair().await;
    let resets = blocking(move || {
        (&client).read_exact(&mut [0; 1000]).expect("read");
        weir_rt::net::linger_reset(client.as_raw_fd()).expect("linger");
    });
    let sends = async {
        stream.queue(OutputChunk::Bytes(vec![1; 32 << 20]));
        match stream.drained(0, None).await {
            Err(SendError::Closed(e)) => assert!(e == libc::ECONNRESET || e == libc::EPIPE, "errno {e}"),
            other => panic!("{other:?}"),
        }
        assert!(stream.error().is_some());
        // Of no more use, but harmless.
        stream.queue(OutputChunk::Static(b"late"));
        assert!(stream.drained(0, None).await.is_err());
        assert_eq!(stream.unsent(), 0);
    };
    join(resets, sends).await;
});

both!(dropping_a_stream_that_waits_for_bytes_sends_fin, || async {
    let (stream, mut client) = pair().await;
    assert!(stream.try_recv().is_none());
    yield_now().await;
    assert!(stream.try_recv().is_none());
    drop(stream);
    let read = blocking(move || client.read(&mut [0; 10]).expect("the end, not a reset")).await;
    assert_eq!(read, 0);
});

both!(what_is_flushed_before_the_drop_arrives, || async {
    let (stream, mut client) = pair().await;
    stream.queue(OutputChunk::Bytes(b"last ".to_vec()));
    stream.flush();
    stream.queue(OutputChunk::Static(b"words"));
    yield_now().await;
    drop(stream);
    let text = blocking(move || {
        let mut text = String::new();
        client.read_to_string(&mut text).map(|_| text)
    });
    assert_eq!(text.await.expect("read"), "last words");
});

both!(shutdown_waits_for_what_is_queued, || async {
    const LEN: usize = 8 << 20;
    let (stream, client) = pair().await;
    stream.queue(OutputChunk::Bytes(patterned(2, 0, LEN)));
    stream.shutdown_write().expect("shutdown");
    let reader = blocking(move || {
        let n = read_pattern(&client, 2);
        (&client).write_all(b"thanks").expect("write");
        n
    });
    let (n, thanks) = join(reader, recv_exactly(&stream, 6)).await;
    assert_eq!((n, thanks), (LEN, b"thanks".to_vec()));
});

both!(a_departure_is_seen_while_nobody_reads, || async {
    let (stream, client) = pair().await;
    (&client).write_all(&patterned(1, 0, 30_000)).expect("write");
    client.shutdown(Shutdown::Write).expect("shutdown");
    assert_eq!(stream.closed().await, PeerClosed::Eof);
    check(1, 0, &recv_exactly(&stream, 30_000).await);
    assert!(matches!(stream.recv(None).await, RecvOutcome::Eof));
});

both!(a_departure_behind_a_paused_receive_is_seen, || async {
    let (stream, client) = pair().await;
    client.set_nonblocking(true).expect("non-blocking");
    let closed = within(DEADLINE, stream.closed());
    let fills = async {
        // Far more than the four buffers that may be queued.
        let mut left = 60_000;
        while left > 0 {
            match (&client).write(&vec![0; left]) {
                Ok(n) => left -= n,
                Err(_) => sleep(Duration::from_millis(2)).await,
            }
        }
        sleep(Duration::from_millis(20)).await;
        client.shutdown(Shutdown::Write).expect("shutdown");
    };
    assert_eq!(join(closed, fills).await.0, PeerClosed::Eof);
    assert_eq!(recv_exactly(&stream, 60_000).await.len(), 60_000);
});

both!(a_reset_is_seen_while_nobody_reads, || async {
    let (stream, client) = pair().await;
    let resets = async move {
        sleep(Duration::from_millis(10)).await;
        weir_rt::net::linger_reset(client.as_raw_fd()).expect("linger");
        drop(client);
    };
    let (closed, ()) = join(stream.closed(), resets).await;
    assert_eq!(closed, PeerClosed::Reset(libc::ECONNRESET));
    assert!(matches!(stream.recv(None).await, RecvOutcome::Err(libc::ECONNRESET)));
});

both!(connecting_succeeds_or_says_why, || async {
    let (listener, addr) = listener();
    let (stream, accepted) = join(Stream::connect(&addr.into()), listener.accept()).await;
    let (stream, accepted) = (stream.expect("connect"), accepted.expect("accept"));
    join(send_all(&stream, b"hello"), async {
        assert_eq!(recv_exactly(&accepted, 5).await, b"hello");
    })
    .await;
    drop(listener);
    yield_now().await;
    let refused = Stream::connect(&addr.into()).await.expect_err("nobody listens");
    assert_eq!(refused.raw_os_error(), Some(libc::ECONNREFUSED));
});

both!(an_abandoned_connect_leaves_nothing, || async {
    // A documentation address: packets to it go nowhere, or it is unreachable at once.
    let nowhere = std::net::SocketAddr::from(([192, 0, 2, 1], 9)).into();
    let mut connect = pin!(Stream::connect(&nowhere));
    let _pending = connect.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    yield_now().await;
});

both!(an_idle_connection_moves_to_another_runtime, || async {
    let (stream, mut client) = pair().await;
    let mut driver = 0;
    let mut stream = Some(stream);
    while driver < 2 {
        let ours = stream.take().expect("back again");
        assert!(ours.try_recv().is_none());
        yield_now().await;
        client.write_all(b"early").expect("write");
        let (fd, unread) = ours.into_fd().await.expect("the descriptor");
        let choice = [weir_rt::DriverChoice::Epoll, weir_rt::DriverChoice::Auto][driver];
        let fd = blocking(move || {
            run(choice, 16, async move {
                let stream = Stream::from_fd(fd).expect("adopted");
                let rest = recv_exactly(&stream, 5 - unread.len()).await;
                assert_eq!([unread, rest].concat(), b"early");
                send_all(&stream, b"moved").await;
                assert!(stream.try_recv().is_none());
                stream.into_fd().await.expect("the descriptor").0
            })
        })
        .await;
        client.read_exact(&mut [0; 5]).expect("read");
        stream = Some(Stream::from_fd(fd).expect("adopted"));
        driver += 1;
    }
    let stream = stream.take().expect("back again");
    stream.queue(OutputChunk::Bytes(vec![0; 32 << 20]));
    stream.flush();
    let busy = stream.into_fd().await.expect_err("unsent bytes");
    assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
});

both!(long_receives_bring_what_there_is_and_then_the_end, || async {
    const LEN: usize = 3 << 20;
    let (stream, mut client) = pair().await;
    // Two buffers of the pool, or more, are there when the first long receive comes.
    client.write_all(&patterned(5, 0, 12_288)).expect("write");
    let first = stream.recv(None).await;
    let writer = blocking(move || {
        client.write_all(&patterned(5, 12_288, LEN - 12_288)).expect("write");
        client.shutdown(Shutdown::Write).expect("shutdown");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("read");
        answer
    });
    let reader = async {
        let RecvOutcome::Data(first) = first else { panic!("no bytes") };
        check(5, 0, &first);
        let mut at = first.len();
        loop {
            match poll_fn(|cx| stream.poll_recv_long(cx, None, 1 << 20)).await {
                RecvOutcome::Data(buf) => {
                    let bytes = buf.into_vec();
                    assert!(bytes.len() <= 65_536);
                    check(5, at, &bytes);
                    at += bytes.len();
                }
                RecvOutcome::Eof => break,
                other => panic!("byte {at}: {other:?}"),
            }
        }
        assert_eq!(at, LEN);
        stream.queue(OutputChunk::Static(b"done"));
        stream.drained(0, None).await.expect("sent");
        drop(stream);
    };
    assert_eq!(join(writer, reader).await.0, "done");
});

both!(a_stream_of_long_receives_takes_short_ones_too_and_sees_its_end, || async {
    let (stream, mut client) = pair().await;
    for round in 0..3u8 {
        client.write_all(&[round; 10]).expect("write");
        let received = match round {
            0 => poll_fn(|cx| stream.poll_recv_long(cx, None, 65_536)).await,
            _ => stream.recv(None).await,
        };
        assert!(matches!(received, RecvOutcome::Data(bytes) if *bytes == [round; 10]));
        assert!(stream.try_recv().is_none() && !stream.is_eof());
    }
    drop(client);
    assert_eq!(stream.closed().await, PeerClosed::Eof);
    assert!(matches!(stream.recv(None).await, RecvOutcome::Eof));
});

// A socket of datagrams that other workers have, too: one that lost it gets it back, as a descriptor of the same number.
both!(a_duplicate_of_a_socket_of_datagrams_may_go_and_come_back, || async {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_nonblocking(true).expect("fcntl");
    let to = socket.local_addr().expect("bound");
    let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let mut numbers = Vec::new();
    for text in [&b"one"[..], b"two", b"three"] {
        let stream = Stream::of_datagrams(duplicate(&socket)).expect("it can be waited for");
        numbers.push(stream.fd());
        client.send_to(text, to).expect("loopback takes it");
        let received = poll_fn(|cx| {
            stream.poll_datagrams(cx, 1, |batch| batch.iter().map(|it| it.bytes.to_vec()).collect::<Vec<_>>())
        });
        assert_eq!(received.await.expect("a datagram"), [text]);
        drop(stream);
        yield_now().await;
    }
    // With io_uring a descriptor is closed once the ring has let go of it.
    assert!(numbers.iter().all(|number| *number >= HIGH), "{numbers:?}");
});

/// Numbers that nothing else of this program has: the lowest free one is the one that was closed just before.
const HIGH: i32 = 800;

fn duplicate(socket: &std::net::UdpSocket) -> OwnedFd {
    // SAFETY: no pointers; the kernel has just made the descriptor that comes of it, and nothing else owns it.
    unsafe {
        let fd = libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH);
        assert!(fd >= HIGH, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}
