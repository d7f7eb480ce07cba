//! Random exchanges: many connections, both sides on one runtime, every kind of chunk, tasks that dawdle, hold
//! buffers, drop futures and time out. Whatever they do, each side receives exactly what the other sent.

mod driver_common;

use std::cell::Cell;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use driver_common::*;
use weir_rt::{FileHandle, OutputChunk, RecvOutcome, Stream, Timer, sleep, spawn, yield_now};

const FILE_LEN: usize = 1 << 20;

/// xorshift64*: reproducible, and good enough to choose by.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

/// A file whose bytes are pattern `seed`.
fn file(seed: u32) -> Rc<FileHandle> {
    let handle = weir_rt::file::create_unlinked(&std::env::temp_dir()).expect("a temporary file");
    let mut file = File::from(OwnedFd::from(handle));
    write_pattern(&mut file, seed, FILE_LEN);
    Rc::new(FileHandle::from(OwnedFd::from(file)))
}

async fn dawdle(random: &mut Random) {
    match random.below(12) {
        0 => sleep(Duration::from_millis(random.below(6))).await,
        1..=3 => yield_now().await,
        _ => (),
    }
}

/// Sends `len` bytes of pattern `seed`, then ends the direction.
async fn send_side(stream: Rc<Stream>, seed: u32, len: usize, file: Rc<FileHandle>, mut random: Random) {
    let (mut at, timer) = (0, Timer::new());
    while at < len {
        let most = [1, 100, 3000, 20_000, 200_000][random.below(5) as usize];
        let n = (1 + random.below(most) as usize).min(len - at);
        let bytes = patterned(seed, at, n);
        stream.queue(match random.below(4) {
            0 => OutputChunk::Shared(bytes.into()),
            1 if at + n <= FILE_LEN => {
                OutputChunk::File { file: Rc::clone(&file), offset: at as u64, len: n as u64 }
            }
            2 => OutputChunk::Static(Box::leak(bytes.into_boxed_slice())),
            _ => {
                let mut spare = stream.spare();
                spare.extend_from_slice(&bytes);
                OutputChunk::Bytes(spare)
            }
        });
        at += n;
        if random.below(4) == 0 {
            stream.flush();
        }
        if random.below(3) == 0 {
            let mut cx = Context::from_waker(Waker::noop());
            let _dropped = pin!(stream.drained(0, None)).poll(&mut cx);
            timer.arm(30_000);
            stream.drained(random.below(100_000), Some(&timer)).await.expect("sent");
        }
        dawdle(&mut random).await;
    }
    stream.shutdown_write().expect("shutdown");
    stream.drained(0, None).await.expect("sent");
    assert_eq!(stream.sent(), len as u64);
}

/// Receives pattern `seed` to its end; the number of bytes.
async fn receive_side(stream: Rc<Stream>, seed: u32, mut random: Random) -> usize {
    let (mut at, mut held, timer) = (0, Vec::new(), Timer::new());
    // Of a stream's receives all are short, or some are long.
    let long = random.below(2) == 0;
    loop {
        if random.below(5) == 0 {
            let mut cx = Context::from_waker(Waker::noop());
            let _dropped = pin!(stream.closed()).poll(&mut cx);
        }
        timer.arm(random.below(10));
        let most = [0, 0, 10_000, 1 << 20][random.below(if long { 4 } else { 1 }) as usize];
        let received = match most {
            0 => stream.recv(Some(&timer)).await,
            _ => poll_fn(|cx| stream.poll_recv_long(cx, Some(&timer), most)).await,
        };
        match received {
            RecvOutcome::Data(buf) => {
                let from = at;
                at += buf.len();
                if random.below(4) == 0 {
                    check(seed, from, &buf.into_vec());
                    continue;
                }
                held.push((from, buf));
                if held.len() as u64 > random.below(4) {
                    held.drain(..).for_each(|(from, buf)| check(seed, from, &buf));
                }
            }
            RecvOutcome::Eof => break,
            RecvOutcome::TimedOut => held.drain(..).for_each(|(from, buf)| check(seed, from, &buf)),
            RecvOutcome::Err(e) => panic!("connection {seed}, byte {at}: errno {e}"),
        }
        dawdle(&mut random).await;
    }
    held.drain(..).for_each(|(from, buf)| check(seed, from, &buf));
    at
}

async fn exchanges(first_seed: u64) {
    let (listener, addr) = listener();
    let left = Rc::new(Cell::new(0));
    for n in 0..12u64 {
        let (client, server) = join(Stream::connect(&addr.into()), listener.accept()).await;
        let (client, server) = (Rc::new(client.expect("connect")), Rc::new(server.expect("accept")));
        for (from, to, way) in [(&client, &server, 0), (&server, &client, 1)] {
            let seed = (n * 2 + way) as u32;
            let mut random = Random((first_seed * 64 + n * 2 + way + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let len = random.below(1_500_000) as usize;
            let (sender, receiver) = (Random(random.below(u64::MAX) | 1), Random(random.below(u64::MAX) | 1));
            spawn(send_side(Rc::clone(from), seed, len, file(seed), sender));
            let (to, left) = (Rc::clone(to), Rc::clone(&left));
            left.set(left.get() + 1);
            spawn(async move {
                assert_eq!(receive_side(to, seed, receiver).await, len, "connection {seed}");
                left.set(left.get() - 1);
            });
        }
    }
    while left.get() > 0 {
        sleep(Duration::from_millis(4)).await;
    }
}

both!(random_exchanges, || async {
    for seed in 0..3 {
        exchanges(seed).await;
    }
});

both!(random_exchanges_over_a_tiny_pool, 8, || async {
    for seed in 10..12 {
        exchanges(seed).await;
    }
});
