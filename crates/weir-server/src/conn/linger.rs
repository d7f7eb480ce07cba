//! Closing a connection without losing the response.
//!
//! A socket closed while the peer's bytes are unread sends a reset, which may take the response away from a client that
//! still writes. So: send everything, see that the request's log line is written, shut the writing side, read what
//! comes for a bounded time, then close.

use std::rc::Rc;

use weir_rt::RecvOutcome;
use weir_trace::{ConnectionStep, Site};

use weir_engine::exchange::Exchange;
use weir_engine::settings::location::LingeringClose;
use weir_engine::transport::wire::ClientWire;
use weir_engine::transport::write::drained_after;

/// Sends what is queued and closes; lingers where the client may still be sending: `unread` says that it was not read
/// to the end of its request.
pub(crate) async fn close(x: &mut Exchange, wire: &Rc<ClientWire>, unread: bool) {
    wire.flush();
    if wire.stream.unsent() > 0 && drained_after(x, wire, 0).await.is_err() {
        return;
    }
    x.worker.logs.written().await;
    if wire.resets.get() {
        return;
    }
    let lingers = match x.plan.core.lingering_close {
        LingeringClose::Off => false,
        LingeringClose::On => {
            unread
                || x.body.is_pending()
                || !wire.input.borrow().is_empty()
                || matches!(wire.stream.try_recv(), Some(RecvOutcome::Data(_)))
        }
        LingeringClose::Always => true,
    };
    if !lingers || wire.stream.is_eof() || wire.stream.shutdown_write().is_err() {
        return;
    }
    let until = weir_rt::now_ms() + x.plan.core.lingering_time;
    loop {
        let left = until.saturating_sub(weir_rt::now_ms());
        if left == 0 {
            break;
        }
        wire.timer.arm(left.min(x.plan.core.lingering_timeout));
        match wire.stream.recv(Some(&wire.timer)).await {
            RecvOutcome::Data(buf) => drop(buf),
            RecvOutcome::Eof | RecvOutcome::TimedOut | RecvOutcome::Err(_) => break,
        }
    }
    x.trace().mark(Site::step(ConnectionStep::Lingering));
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use weir_engine::testing;
    use weir_engine::transport::keepalive;
    use weir_rt::{OutputChunk, Stream, file};
    use weir_test::TempDir;

    use super::*;

    #[test]
    fn a_file_that_fails_after_its_request_was_logged_is_the_connection_s_to_log() {
        let directory = TempDir::new();
        let log = directory.path().join("error.log");
        let http = format!("error_log {}; server {{ }}", log.display());
        testing::run(&http, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", async |x| {
            let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
            let wire = Rc::new(ClientWire::new(Stream::from_fd(ours.into()).expect("a socket")));
            // The first page of no process can be read.
            let file = Rc::new(file::open(Path::new("/proc/self/mem")).expect("on every Linux"));
            wire.stream.queue(OutputChunk::File { file, offset: 0, len: 100 });
            close(x, &wire, false).await;
            keepalive::lost_file(&x.connection, &wire);
            x.worker.logs.written().await;
        });
        let text = std::fs::read_to_string(&log).expect("it was written");
        assert!(
            text.contains("file error (5: Input/output error) while sending response to client"),
            "{text:?}"
        );
    }
}
