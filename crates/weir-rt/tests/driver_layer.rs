//! Layers: what a user queues goes through them whole and in order, and so does what a socket receives.

mod driver_common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::rc::Rc;

use driver_common::*;
use weir_rt::{FileHandle, OpenOutcome, OutputChunk, RecvOutcome, Stream, StreamLayer, blocking, file};

/// Records of a length in two bytes and content with every bit turned; an empty one is the end, and the byte 0 in the
/// place of content gets a record of its own as the response.
#[derive(Default)]
struct Turned {
    rest: Vec<u8>,
}

impl StreamLayer for Turned {
    fn open(&mut self, received: &[u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) -> OpenOutcome {
        self.rest.extend_from_slice(received);
        while let Some((head, behind)) = self.rest.split_at_checked(2) {
            let len = usize::from(u16::from_be_bytes([head[0], head[1]]));
            let Some(content) = behind.get(..len) else { break };
            match content {
                [] => return OpenOutcome::End,
                [0xff] => out.extend(record(b"pong")),
                [0xfe] => return OpenOutcome::Broken,
                content => plain.extend(content.iter().map(|b| !b)),
            }
            self.rest.drain(..2 + len);
        }
        OpenOutcome::More
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        assert!(!plain.is_empty() && plain.len() <= 16 * 1024);
        out.extend(record(plain));
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        out.extend([0, 0]);
    }

    fn held_bytes(&self) -> usize {
        size_of::<Turned>() + self.rest.capacity()
    }
}

fn record(plain: &[u8]) -> Vec<u8> {
    let mut out = (plain.len() as u16).to_be_bytes().to_vec();
    out.extend(plain.iter().map(|b| !b));
    out
}

/// The content of all records up to the end; whether there was an end, and how many records.
fn read_records(mut from: impl Read) -> (Vec<u8>, bool, usize) {
    let (mut bytes, mut plain, mut count) = (Vec::new(), Vec::new(), 0);
    from.read_to_end(&mut bytes).expect("read");
    let mut rest = &bytes[..];
    while let Some((head, behind)) = rest.split_at_checked(2) {
        let len = usize::from(u16::from_be_bytes([head[0], head[1]]));
        if len == 0 {
            return (plain, true, count);
        }
        plain.extend(behind[..len].iter().map(|b| !b));
        rest = &behind[len..];
        count += 1;
    }
    assert!(rest.is_empty(), "a record is cut");
    (plain, false, count)
}

async fn layered() -> (Stream, TcpStream) {
    let (stream, client) = pair().await;
    stream.set_layer(Box::<Turned>::default(), Vec::new());
    (stream, client)
}

/// A file of `len` bytes of the pattern.
fn pattern_file(len: usize) -> Rc<FileHandle> {
    let handle = file::create_unlinked(&std::env::temp_dir()).expect("a file");
    assert_eq!(handle.pwrite(&patterned(3, 0, len), 0).expect("written"), len);
    Rc::new(handle)
}

both!(memory_and_files_leave_whole_and_in_order_and_the_end_is_told, || async {
    const LEN: usize = 3 << 20;
    let (stream, client) = layered().await;
    let reader = blocking(move || read_records(client));
    let server = async {
        stream.queue(OutputChunk::Static(b"head "));
        stream.queue(OutputChunk::Bytes(b"more ".to_vec()));
        stream.queue(OutputChunk::File { file: pattern_file(LEN), offset: 0, len: LEN as u64 });
        stream.queue(OutputChunk::Shared(patterned(4, 0, 100_000).into()));
        stream.drained(0, None).await.expect("sent");
        assert_eq!(stream.sent(), (10 + LEN + 100_000) as u64, "the user's bytes are counted");
        stream.send(b"tail".to_vec());
        stream.shutdown_write().expect("open");
        stream.drained(0, None).await.expect("sent");
        assert!(matches!(stream.recv(None).await, RecvOutcome::Eof));
    };
    let ((plain, ended, _), ()) = join(reader, server).await;
    let expected = [&b"head more "[..], &patterned(3, 0, LEN), &patterned(4, 0, 100_000), b"tail"].concat();
    assert!(plain == expected, "{} bytes", plain.len());
    assert!(ended);
});

both!(small_pieces_share_a_record_and_a_dropped_stream_says_its_end, || async {
    let (stream, client) = layered().await;
    stream.send(b"alone".to_vec());
    stream.drained(0, None).await.expect("sent");
    for _ in 0..5 {
        stream.queue(OutputChunk::Static(b"piece "));
    }
    drop(stream);
    let (plain, ended, records) = blocking(move || read_records(client)).await;
    assert_eq!(plain, b"alonepiece piece piece piece piece ");
    assert!(ended);
    assert_eq!(records, 2);
});

both!(a_file_shorter_than_its_range_fails_the_connection, || async {
    let (stream, client) = layered().await;
    let reader = blocking(move || read_records(client).0.len());
    stream.queue(OutputChunk::File { file: pattern_file(100_000), offset: 0, len: 200_000 });
    let error = stream.drained(0, None).await.expect_err("the file is short");
    assert_eq!(error, weir_rt::SendError::Truncated);
    drop(stream);
    // The last piece that would be short is not sent at all.
    assert_eq!(reader.await, 100_000 / 16_384 * 16_384);
});

both!(received_bytes_are_opened_in_any_pieces, || async {
    const LEN: usize = 300_000;
    let (stream, mut client) = pair().await;
    stream.set_layer(Box::<Turned>::default(), b"early ".to_vec());
    let writer = blocking(move || {
        for (n, piece) in patterned(9, 0, LEN).chunks(10_000).enumerate() {
            let record = record(piece);
            let (first, second) = record.split_at((n * 37) % record.len());
            client.write_all(first).expect("write");
            client.write_all(second).expect("write");
        }
        client.write_all(&record(&[0])).expect("write");
        client.write_all(&[0, 0]).expect("write");
        client.shutdown(Shutdown::Write).expect("open");
        read_records(client).0
    });
    let reader = async {
        assert_eq!(recv_exactly(&stream, 6).await, b"early ");
        check(9, 0, &recv_exactly(&stream, LEN).await);
        assert!(matches!(stream.recv(None).await, RecvOutcome::Eof));
        assert!(stream.is_eof());
        drop(stream);
    };
    assert_eq!(join(writer, reader).await.0, b"pong");
});

both!(bytes_that_cannot_be_opened_break_the_stream, || async {
    let (stream, mut client) = layered().await;
    let writer = blocking(move || {
        client.write_all(&record(b"good")).expect("write");
        client.write_all(&record(&[1])).expect("write");
        client
    });
    let (client, good) = join(writer, recv_exactly(&stream, 4)).await;
    assert_eq!(good, b"good");
    assert!(matches!(stream.recv(None).await, RecvOutcome::Err(71)), "EPROTO");
    assert!(stream.into_fd().await.is_err(), "bytes would leave without their layer");
    drop(client);
});
