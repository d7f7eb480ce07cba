//! The server's end: a thread that accepts, and one for each question.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weir_engine::log::{self, LogLevel};
use weir_sys::socket::{self, PeerProcess};

use crate::control::protocol::{ControlQuestion, FrameKind, LONGEST_QUESTION, write_frame};
use crate::responses;
use crate::responses::reply::{ReplyFailure, ReplySink};
use crate::source::ServerSource;

/// Responds on `listener` until the process ends. Only root and the user whom this process runs as get responses,
/// whatever the socket's permissions have become. `own` is asked first.
///
/// # Errors
/// No thread can be started.
pub fn serve(listener: UnixListener, source: Arc<ServerSource>, own: OwnQuestions) -> io::Result<()> {
    let accepting = move || accept(&listener, &source, &own);
    std::thread::Builder::new().name("weir control".to_owned()).spawn(accepting)?;
    Ok(())
}

/// Questions that the program itself responds to, in a way of its own: `None` where a question is none of these, and gives the
/// stream back by not having touched it. It runs on a thread of the conversation's and may wait.
pub type OwnQuestions = Arc<dyn Fn(&ControlQuestion, PeerProcess, &UnixStream) -> Option<()> + Send + Sync>;

fn accept(listener: &UnixListener, source: &Arc<ServerSource>, own: &OwnQuestions) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                // Without descriptors the call fails even if no client connects: it takes one before it waits. The
                // clients that have them all are logged by their own messages.
                log::cycle(LogLevel::Info, &format_args!("accept() on the control socket failed: {error}"));
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let Some(place) = ConversationPermit::take(&open) else { continue };
        let (source, own) = (source.clone(), own.clone());
        let answer = move || {
            let _place = place;
            if let Err(error) = converse(stream, &source, &own) {
                log::cycle(LogLevel::Info, &format_args!("control connection: {error}"));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("weir control".to_owned()).spawn(answer) {
            log::cycle(LogLevel::Warn, &format_args!("control connection: {error}"));
        }
    }
}

/// One of the places for conversations; given back when dropped.
struct ConversationPermit(Arc<AtomicUsize>);

impl ConversationPermit {
    fn take(open: &Arc<AtomicUsize>) -> Option<ConversationPermit> {
        let place = ConversationPermit(open.clone());
        (open.fetch_add(1, Ordering::Relaxed) < MOST).then_some(place)
    }
}

impl Drop for ConversationPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn converse(mut stream: UnixStream, source: &ServerSource, own: &OwnQuestions) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let peer = socket::peer(&stream)?;
    if peer.uid != 0 && peer.uid != socket::effective_user() {
        log::cycle(LogLevel::Warn, &format_args!("control connection of user {} refused", peer.uid));
        return write_frame(&mut stream, FrameKind::Fail, b"only the server's user and root are answered");
    }
    let mut line = String::new();
    let mut input = BufReader::new((&stream).take(LONGEST_QUESTION));
    input.read_line(&mut line)?;
    // A client that stops at once may have sent `stop` already.
    let stopped = !input.buffer().is_empty();
    let question = ControlQuestion::parse(&line);
    if own(&question, peer, &stream).is_some() {
        return Ok(());
    }
    let mut reply = FrameReply { stream, stopped };
    let (kind, text) = match responses::respond(source, &question, &mut reply) {
        Ok(()) => (FrameKind::Done, String::new()),
        Err(ReplyFailure::Gone(error)) => return Err(error),
        Err(ReplyFailure::Wrong(text)) => (FrameKind::Fail, text),
    };
    write_frame(&mut reply.stream, kind, text.as_bytes())
}

/// A response on its way.
struct FrameReply {
    stream: UnixStream,
    stopped: bool,
}

impl ReplySink for FrameReply {
    fn out(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_frame(&mut self.stream, FrameKind::Out, bytes)
    }

    fn note(&mut self, text: &str) -> io::Result<()> {
        write_frame(&mut self.stream, FrameKind::Note, text.as_bytes())
    }

    /// The client sends nothing but `stop`; the end of its side means that it has gone. Waits for neither.
    fn is_stopped(&mut self) -> bool {
        if self.stopped {
            return true;
        }
        let mut byte = [0; 8];
        let read = self.stream.set_nonblocking(true).and_then(|()| (&self.stream).read(&mut byte));
        let back = self.stream.set_nonblocking(false);
        let nothing = matches!(&read, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.stopped = !nothing || back.is_err();
        self.stopped
    }
}

/// Conversations at once; more are closed without a response.
const MOST: usize = 64;
/// How long a client may take to send its question, or to make room for the response.
const PATIENCE: Duration = Duration::from_secs(10);
