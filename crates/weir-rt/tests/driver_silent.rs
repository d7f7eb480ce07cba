//! Responses sent in one go ([`Stream::send`]): silently on io_uring, at once on epoll. What the socket does not take
//! goes the long way, and a task that waits for the end of a send is woken.

mod driver_common;

use std::cell::RefCell;
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

use driver_common::*;
use weir_rt::{OutputChunk, RecvOutcome, SendError, at_round_end, blocking, sleep, spawn, yield_now};

both!(sends_into_a_full_socket_keep_their_order, || async {
    const PIECE: usize = 9_000;
    const LEN: usize = 1200 * PIECE;
    let (stream, client) = pair().await;
    let (full, is_full) = std::sync::mpsc::channel();
    let reader = blocking(move || {
        is_full.recv().expect("the writer gets that far");
        read_pattern(client, 3)
    });
    let writer = async {
        for n in 0..LEN / PIECE {
            let bytes = patterned(3, n * PIECE, PIECE);
            match n % 3 {
                0 => stream.queue(OutputChunk::Bytes(bytes)),
                _ => stream.send(bytes),
            }
            if n % 7 == 0 {
                yield_now().await;
            }
        }
        assert!(stream.unsent() > 0, "more than a socket holds");
        full.send(()).expect("the reader waits");
        stream.drained(0, None).await.expect("sent");
        assert_eq!((stream.unsent(), stream.sent()), (0, LEN as u64));
        drop(stream);
    };
    assert_eq!(join(reader, writer).await.0, LEN);
});

both!(what_was_sent_last_arrives_before_the_end, || async {
    for way in 0..3 {
        let (stream, client) = pair().await;
        let reader = blocking(move || read_pattern(client, 5));
        let writer = async {
            stream.send(patterned(5, 0, 700));
            match way {
                0 => drop(stream),
                1 => {
                    stream.shutdown_write().expect("shutdown");
                    assert!(matches!(stream.recv(None).await, RecvOutcome::Eof));
                }
                _ => {
                    stream.drained(0, None).await.expect("sent");
                    let (fd, unread) = stream.into_fd().await.expect("idle");
                    assert!(unread.is_empty());
                    drop(fd);
                }
            }
        };
        assert_eq!(join(reader, writer).await.0, 700);
    }
});

both!(who_waits_for_a_small_send_is_woken_without_any_other_event, || async {
    let (stream, mut client) = pair().await;
    for n in 0..100 {
        stream.send(patterned(n, 0, 100));
        assert!(stream.unsent() == 0 || stream.unsent() == 100);
        stream.drained(0, None).await.expect("sent");
        assert_eq!(stream.sent(), 100 * (u64::from(n) + 1));
    }
    blocking(move || {
        let mut answers = [0; 100 * 100];
        client.read_exact(&mut answers).expect("read");
    })
    .await;
});

both!(a_send_to_a_connection_that_was_reset_is_an_error, || async {
    let (stream, client) = pair().await;
    stream.send(vec![b'a'; 10]);
    stream.drained(0, None).await.expect("sent");
    drop(client); // with a byte unread: a reset
    while !matches!(stream.recv(None).await, RecvOutcome::Err(_)) {}
    stream.send(vec![b'b'; 10]);
    assert!(matches!(stream.drained(0, None).await, Err(SendError::Closed(_))));
    assert_eq!(stream.sent(), 10);
});

both!(answers_of_many_connections_in_one_turn, || async {
    const CONNECTIONS: u32 = 200;
    let (listener, addr) = listener();
    spawn(async move {
        loop {
            let stream = listener.accept().await.expect("accept");
            spawn(async move {
                while let RecvOutcome::Data(buf) = stream.recv(None).await {
                    stream.send(buf.to_vec());
                }
            });
        }
    });
    blocking(move || {
        let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| client(addr)).collect();
        for round in 0..10 {
            for (n, client) in clients.iter_mut().enumerate() {
                client.write_all(&patterned(n as u32, round, 300)).expect("write");
            }
            for (n, client) in clients.iter_mut().enumerate() {
                let mut answer = [0; 300];
                client.read_exact(&mut answer).expect("read");
                check(n as u32, round, &answer);
            }
        }
    })
    .await;
});

both!(the_end_of_a_round_comes_after_its_tasks_and_before_the_next, || async {
    let order = Rc::new(RefCell::new(Vec::new()));
    let end: Rc<dyn Fn()> = {
        let order = order.clone();
        Rc::new(move || order.borrow_mut().push("end"))
    };
    for name in ["first", "second"] {
        let (order, end) = (order.clone(), end.clone());
        spawn(async move {
            order.borrow_mut().push(name);
            if name == "first" {
                at_round_end(end);
            }
            yield_now().await;
            order.borrow_mut().push("again");
        });
    }
    while order.borrow().len() < 5 {
        sleep(Duration::from_millis(4)).await;
    }
    assert_eq!(*order.borrow(), ["first", "second", "end", "again", "again"]);
    assert_eq!(Rc::strong_count(&end), 1, "called once and let go");
});
