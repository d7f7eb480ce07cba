//! The buffer pool, shared by all connections: no cross-talk, no starvation, no spinning.

mod driver_common;

use std::cell::Cell;
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

use driver_common::*;
use weir_rt::{OutputChunk, RecvOutcome, Runtime, RuntimeOptions, Stream, blocking, sleep, spawn, yield_now};

/// `clients` connections each upload `len` bytes of their own pattern, from two threads.
async fn upload_to(addr: std::net::SocketAddr, clients: u32, len: usize) {
    blocking(move || {
        let halves: Vec<_> = (0..2)
            .map(|half| {
                std::thread::spawn(move || {
                    let open = |seed: u32| {
                        let mut client = client(addr);
                        client.write_all(&seed.to_be_bytes()).expect("write");
                        client
                    };
                    let mut all: Vec<_> =
                        (0..clients).filter(|n| n % 2 == half).map(|n| (n, open(n))).collect();
                    // In slices, so that the connections' bytes interleave.
                    for from in (0..len).step_by(7_001) {
                        for (seed, client) in &mut all {
                            let slice = patterned(*seed, from, (len - from).min(7_001));
                            client.write_all(&slice).expect("write");
                        }
                    }
                })
            })
            .collect();
        for half in halves {
            half.join().expect("join");
        }
    })
    .await;
}

/// Receives a seed and then its pattern to the end, keeping up to `keep` buffers in hand for a while.
async fn check_upload(stream: Stream, keep: usize) -> usize {
    let seed = match stream.recv(None).await {
        RecvOutcome::Data(buf) => buf,
        other => panic!("{other:?}"),
    };
    let (number, rest) = seed.split_first_chunk().expect("four bytes come together");
    let number = u32::from_be_bytes(*number);
    let (mut at, mut kept) = (rest.len(), Vec::new());
    check(number, 0, rest);
    drop(seed);
    loop {
        match stream.recv(None).await {
            RecvOutcome::Data(buf) => {
                let from = at;
                at += buf.len();
                kept.push((from, buf));
                if kept.len() > keep {
                    sleep(Duration::from_millis(1)).await;
                    for (from, buf) in kept.drain(..) {
                        check(number, from, &buf);
                    }
                }
            }
            RecvOutcome::Eof => break,
            other => panic!("{other:?}"),
        }
    }
    for (from, buf) in kept {
        check(number, from, &buf);
    }
    at
}

async fn many_uploads(clients: u32, len: usize, keep: usize) {
    let (listener, addr) = listener();
    let done = Rc::new(Cell::new(0));
    let count = Rc::clone(&done);
    spawn(async move {
        loop {
            let stream = listener.accept().await.expect("accept");
            let count = Rc::clone(&count);
            spawn(async move {
                assert_eq!(check_upload(stream, keep).await, len);
                count.set(count.get() + 1);
            });
        }
    });
    upload_to(addr, clients, len).await;
    while done.get() < clients {
        sleep(Duration::from_millis(4)).await;
    }
}

both!(tagged_payloads_show_no_cross_talk, || async { many_uploads(64, 150_000, 3).await });

both!(uploads_share_a_tiny_pool, 16, || async { many_uploads(48, 60_000, 2).await });

both!(a_tiny_pool_in_other_hands_stops_nobody, 16, || async {
    // All buffers are held by connections whose tasks do nothing with them.
    let mut hoard = Vec::new();
    let mut idle = Vec::new();
    for _ in 0..20 {
        let (stream, mut client) = pair().await;
        client.write_all(&[1; 4096]).expect("write");
        if hoard.len() < 16 {
            match stream.recv(None).await {
                RecvOutcome::Data(buf) => hoard.push(buf),
                other => panic!("{other:?}"),
            }
        }
        idle.push((stream, client));
    }
    let (listener, addr) = listener();
    spawn(serve_echo(listener));
    blocking(move || {
        let mut client = client(addr);
        for n in 0..100 {
            let message = patterned(n, 0, 3000);
            client.write_all(&message).expect("write");
            let mut answer = vec![0; message.len()];
            client.read_exact(&mut answer).expect("read");
            assert_eq!(answer, message);
        }
    })
    .await;
    drop(hoard);
    yield_now().await;
    for (stream, _client) in &idle[16..] {
        assert_eq!(recv_exactly(stream, 4096).await, [1; 4096]);
    }
});

both!(uploads_that_nobody_reads_leave_the_others_alone, 256, || async {
    let mut ignored = Vec::new();
    for _ in 0..100 {
        let (stream, client) = pair().await;
        client.set_nonblocking(true).expect("non-blocking");
        assert!(stream.try_recv().is_none());
        ignored.push((stream, client));
    }
    for _ in 0..5 {
        for (_, client) in &mut ignored {
            while client.write(&[0; 16_384]).is_ok() {}
        }
        sleep(Duration::from_millis(4)).await;
    }
    let (stream, peer) = pair().await;
    let reader = blocking(move || read_pattern(peer, 4));
    let sender = async {
        for at in (0..1 << 20).step_by(1 << 16) {
            stream.queue(OutputChunk::Bytes(patterned(4, at, 1 << 16)));
            stream.drained(0, None).await.expect("sent");
        }
        drop(stream);
    };
    assert_eq!(join(reader, sender).await.0, 1 << 20);
    let (listener, addr) = listener();
    spawn(serve_echo(listener));
    blocking(move || {
        let mut client = client(addr);
        client.write_all(&patterned(6, 0, 500_000)).expect("write");
        client.shutdown(std::net::Shutdown::Write).expect("shutdown");
        assert_eq!(read_pattern(client, 6), 500_000);
    })
    .await;
});

#[test]
fn starved_sockets_do_not_spin() {
    for driver in [weir_rt::DriverChoice::Epoll, weir_rt::DriverChoice::Auto] {
        let rt = Runtime::new(&RuntimeOptions { driver, buffers: 8, ..RuntimeOptions::default() })
            .expect("a runtime");
        let stats = rt.stats();
        rt.block_on(within(DEADLINE, async {
            let mut hoard = Vec::new();
            let mut idle = Vec::new();
            for n in 0..16 {
                let (stream, mut client) = pair().await;
                assert!(stream.try_recv().is_none());
                client.write_all(&[1; 4096]).expect("write");
                if n < 8 {
                    match stream.recv(None).await {
                        RecvOutcome::Data(buf) => hoard.push(buf),
                        other => panic!("{other:?}"),
                    }
                }
                idle.push((stream, client));
            }
            let before = stats.snapshot().turns;
            sleep(Duration::from_millis(300)).await;
            let turns = stats.snapshot().turns - before;
            // Six sweeps at most, and the odd completion: a spinning loop makes tens of thousands.
            assert!(turns < 100, "{turns} turns while nothing happened");
            drop(hoard);
            for (stream, _client) in &idle[8..] {
                assert_eq!(recv_exactly(stream, 4096).await, [1; 4096]);
            }
        }));
    }
}
