//! What the kernel did for a socket is written at the socket, and taken once.

mod driver_common;

use std::io::{Read, Write};
use std::net::TcpStream;

use driver_common::*;
use weir_rt::{RecvOutcome, Stream, blocking, clock, request_rests, request_runs, yield_now};

/// A connection: its end here and the other one.
async fn connection() -> (Stream, TcpStream) {
    let (listener, addr) = listener();
    let client = blocking(move || client(addr));
    let (stream, client) = join(async { listener.accept().await.expect("accepted") }, client).await;
    (stream, client)
}

/// Some bytes come and are received.
async fn spoken(stream: &Stream, client: TcpStream) -> TcpStream {
    let client = blocking(move || {
        (&client).write_all(b"hello").expect("written");
        client
    });
    let (received, client) = join(recv_exactly(stream, 5), client).await;
    assert_eq!(received, b"hello");
    client
}

both!(what_was_done_is_taken_once, || async {
    let (stream, client) = connection().await;
    assert!(stream.take_kernel(0) > 0, "it was accepted");
    assert_eq!(stream.take_kernel(0), 0);
    let _client = spoken(&stream, client).await;
    assert!(stream.take_kernel(0) > 0, "it has received");
    assert_eq!(stream.take_kernel(0), 0);
});

both!(a_send_is_paid_before_it_is_made_and_not_again, || async {
    let (stream, client) = connection().await;
    let client = spoken(&stream, client).await;
    stream.take_kernel(0);
    let ahead = stream.take_kernel(100);
    assert!(ahead > 0, "100 bytes are composed");
    assert!(stream.take_kernel(200) < ahead, "of a batch the first pays for the send");
    stream.send(vec![b'x'; 200]);
    let client = blocking(move || {
        let mut bytes = [0; 200];
        (&client).read_exact(&mut bytes).expect("200 bytes");
        client
    });
    let _client = client.await;
    yield_now().await;
    // Prices may have been corrected meanwhile.
    assert!(stream.take_kernel(0) < ahead);
});

both!(what_is_done_for_a_server_is_the_clients, || async {
    let (stream, client) = connection().await;
    let (server, far) = connection().await;
    stream.take_kernel(0);
    server.charge_to(Some(stream.account()));
    assert!(stream.take_kernel(0) > 0, "what the server's connection owes");
    let far = spoken(&server, far).await;
    assert_eq!(stream.take_kernel(0), 0, "it is not told yet");
    server.settle_kernel();
    assert_eq!(server.take_kernel(0), 0);
    assert!(stream.take_kernel(0) > 0);
    let far = spoken(&server, far).await;
    server.charge_to(None);
    assert!(stream.take_kernel(0) > 0, "what was done for it until then");
    let far = spoken(&server, far).await;
    assert!(server.take_kernel(0) > 0);
    assert_eq!(stream.take_kernel(0), 0);
    // A client that is gone pays nothing, and neither does the one that has its place.
    server.charge_to(Some(stream.account()));
    drop((stream, client));
    let (next, client) = connection().await;
    // epoll reports of a new socket that it can be written to.
    let _client = spoken(&next, client).await;
    next.take_kernel(0);
    let _far = spoken(&server, far).await;
    server.settle_kernel();
    assert_eq!((next.take_kernel(0), server.take_kernel(0)), (0, 0));
});

both!(a_server_that_is_gone_has_told_its_client, || async {
    let (stream, client) = connection().await;
    let (server, far) = connection().await;
    stream.take_kernel(0);
    server.charge_to(Some(stream.account()));
    stream.take_kernel(0);
    let far = spoken(&server, far).await;
    drop((server, far));
    // What the ring has under way for it ends first.
    while stream.take_kernel(0) == 0 {
        yield_now().await;
    }
    drop(client);
});

both!(a_receive_in_a_requests_run_is_not_charged_besides, || async {
    let (stream, client) = connection().await;
    let client = blocking(move || {
        (&client).write_all(b"hello").expect("written");
        client
    });
    let client = client.await;
    let mut received = None;
    while received.is_none() {
        stream.take_kernel(0);
        request_runs(clock::ticks());
        received = stream.try_recv_first();
        request_rests();
        if received.is_none() {
            yield_now().await;
        }
    }
    let Some(RecvOutcome::Data(bytes)) = received else { panic!("{received:?}") };
    assert_eq!(&bytes[..], b"hello");
    if weir_rt::receives_itself() {
        assert_eq!(stream.take_kernel(0), 0);
    }
    drop(client);
});
