//! The command's end: asks, and goes on reading until the response ends or the user has enough.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use weir_rt::signal::{self, Signals};

use super::protocol::{ControlQuestion, FrameKind, LONGEST_FRAME, read_frame};
use crate::interrupted::uninterrupted;

/// A connection to a server.
pub(crate) struct ControlClient {
    stream: UnixStream,
    path: PathBuf,
}

/// What came of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QuestionOutcome {
    /// The response is complete.
    Whole,
    /// The user stopped it; what was collected until then has come.
    Stopped,
}

impl ControlClient {
    /// Connects to the control socket at `path`.
    ///
    /// # Errors
    /// Nothing listens there, or this user may not connect.
    pub(crate) fn connect(path: &Path) -> Result<ControlClient, String> {
        let fail = |error: io::Error| {
            let path = path.display();
            format!("no server responds at \"{path}\": {error}; \"-c FILE\" says which one is meant")
        };
        let stream = connected(path.to_path_buf()).map_err(fail)?;
        stream.set_write_timeout(Some(CONNECT_TIME)).map_err(fail)?;
        Ok(ControlClient { stream, path: path.to_path_buf() })
    }

    /// Asks and hands over every frame of the response but its end. The first Ctrl-C asks the server to stop and goes
    /// on reading, the second one gives up.
    ///
    /// # Errors
    /// The server's reason, or that it has gone.
    pub(crate) fn ask(
        self,
        question: &ControlQuestion,
        mut take: impl FnMut(FrameKind, &[u8]) -> io::Result<()>,
    ) -> Result<QuestionOutcome, String> {
        self.put(question)?;
        // Not before: nothing may come to the server in front of the question.
        let interrupts = interrupts(&self.stream).map_err(|error| self.lost(&error))?;
        let until = question.is_quick().then(|| Instant::now() + QUICK_TIME);
        self.read(until, LONGEST_FRAME, &mut take)?;
        Ok(if interrupts.stopped() { QuestionOutcome::Stopped } else { QuestionOutcome::Whole })
    }

    fn lost(&self, error: &io::Error) -> String {
        format!("the server at \"{}\" is gone: {error}", self.path.display())
    }

    fn put(&self, question: &ControlQuestion) -> Result<(), String> {
        (&self.stream).write_all(question.line().as_bytes()).map_err(|error| self.lost(&error))
    }

    /// Reads to the end of the response. The process that made the socket decides what comes: a frame that has begun
    /// has [`FRAME_TIME`] to end and `most` bytes, and the whole response ends by `until`, if that is given.
    fn read(
        &self,
        until: Option<Instant>,
        most: u64,
        take: &mut dyn FnMut(FrameKind, &[u8]) -> io::Result<()>,
    ) -> Result<(), String> {
        let mut input = BufReader::new(TimedStream { stream: &self.stream, until });
        loop {
            input.get_mut().until = until;
            input.fill_buf().map_err(|error| self.lost(&error))?;
            let frame_end = Instant::now() + FRAME_TIME;
            input.get_mut().until = Some(until.map_or(frame_end, |until| until.min(frame_end)));
            match read_frame(&mut input, most).map_err(|error| self.lost(&error))? {
                Some((FrameKind::Done, _)) => return Ok(()),
                Some((FrameKind::Fail, text)) => return Err(String::from_utf8_lossy(&text).into_owned()),
                Some((kind, bytes)) => take(kind, &bytes).map_err(|error| error.to_string())?,
                None => {
                    return Err(format!(
                        "the server at \"{}\" ended before its answer did",
                        self.path.display()
                    ));
                }
            }
        }
    }

    /// The whole response to what takes no time; notes are left out, and Ctrl-C ends the process as ever.
    ///
    /// # Errors
    /// As [`ControlClient::ask`]; and the response takes longer than [`QUICK_TIME`] or is longer than [`LONGEST_TEXT`].
    pub(crate) fn text(self, question: &ControlQuestion) -> Result<String, String> {
        let mut out = Vec::new();
        self.put(question)?;
        self.read(Some(Instant::now() + QUICK_TIME), LONGEST_TEXT, &mut |kind, bytes| {
            if kind == FrameKind::Out {
                append(&mut out, bytes, LONGEST_TEXT)?;
            }
            Ok(())
        })?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }
}

/// Adds a frame's bytes to a response of at most `most` bytes.
///
/// # Errors
/// It would be longer.
pub(crate) fn append(out: &mut Vec<u8>, bytes: &[u8], most: u64) -> io::Result<()> {
    if (out.len() + bytes.len()) as u64 > most {
        return Err(io::Error::other(format!("the server's answer is longer than {} MB", most >> 20)));
    }
    out.extend_from_slice(bytes);
    Ok(())
}

/// A connection, made by a thread of its own: where a listener's queue is full because nothing accepts, connecting to a
/// UNIX socket waits without an end. The thread ends with the process.
fn connected(path: PathBuf) -> io::Result<UnixStream> {
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::Builder::new().name("connect".to_owned()).spawn(move || {
        // A caller that does not wait any more needs no connection.
        let _ = sender.send(UnixStream::connect(path));
    })?;
    receiver.recv_timeout(CONNECT_TIME).unwrap_or_else(|_| Err(late("nobody accepts connections")))
}

/// A stream whose reads end by a time.
struct TimedStream<'a> {
    stream: &'a UnixStream,
    until: Option<Instant>,
}

impl Read for TimedStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| {
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(late("its answer takes too long"));
            }
            self.stream.set_read_timeout(left)?;
            self.stream.read(into).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => late("its answer takes too long"),
                _ => error,
            })
        })
    }
}

fn late(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// Watches for Ctrl-C while a response is read.
struct InterruptWatch {
    stopped: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl InterruptWatch {
    fn stopped(&self) -> bool {
        self.stopped.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// From here on SIGINT and SIGTERM go to a thread that asks the server to stop; a second one ends the process, as
/// either would have.
fn interrupts(stream: &UnixStream) -> io::Result<InterruptWatch> {
    let signals = Signals::new(&[signal::SIGINT, signal::SIGTERM])?;
    let mut stream = stream.try_clone()?;
    let stopped = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reported = stopped.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while signals.wait().is_ok() {
            if reported.swap(true, std::sync::atomic::Ordering::Relaxed)
                || stream.write_all(b"stop\n").is_err()
            {
                std::process::exit(INTERRUPTED);
            }
        }
    })?;
    Ok(InterruptWatch { stopped })
}

/// The shell's status for a process that SIGINT ended.
const INTERRUPTED: i32 = 130;
/// How long connecting may take, and sending a question.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long a frame may take from its first byte to its last.
const FRAME_TIME: Duration = Duration::from_secs(60);
/// How long the response may take to what the server does not have to wait for. Its own conversations wait for busy
/// workers, but never for so long.
const QUICK_TIME: Duration = Duration::from_secs(30);
/// Bytes of such a response at most.
const LONGEST_TEXT: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A client of a server that sends `answer` again and again until it is not read any more.
    fn client_of(answer: &'static [u8]) -> ControlClient {
        let (stream, mut server) = UnixStream::pair().expect("two sockets");
        std::thread::spawn(move || while server.write_all(answer).is_ok() {});
        ControlClient { stream, path: PathBuf::from("s") }
    }

    #[test]
    fn an_answer_without_end_is_cut_off() {
        // Frames of 4 KB: what is asked is read to its limit in a moment.
        let frame = [&b"out 4096\n"[..], &[b'a'; 4096]].concat().leak();
        let error = client_of(frame).text(&ControlQuestion::new("facts")).expect_err("no end");
        assert!(error.contains("longer than 64 MB"), "{error}");
        let error = client_of(b"out 99999999\n")
            .text(&ControlQuestion::new("facts"))
            .expect_err("one frame too long");
        assert!(error.contains("something else"), "{error}");
    }

    #[test]
    fn a_frame_that_drips_ends_in_time() {
        let (stream, mut server) = UnixStream::pair().expect("two sockets");
        let dripping = std::thread::spawn(move || {
            while server.write_all(b"o").is_ok() {
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let client = ControlClient { stream, path: PathBuf::from("s") };
        let until = Instant::now() + Duration::from_millis(20);
        let error = client.read(Some(until), LONGEST_TEXT, &mut |_, _| Ok(())).expect_err("no frame");
        assert!(error.contains("too long") || error.contains("something else"), "{error}");
        drop(client);
        dripping.join().expect("it ends with the client");
    }

    #[test]
    fn signals_do_not_end_a_response() {
        let own = weir_rt::sampler::attach(0).expect("a thread that can be sampled");
        let (stream, mut server) = UnixStream::pair().expect("two sockets");
        let probe = own.probe();
        let slow = std::thread::spawn(move || {
            for _ in 0..20 {
                probe.ask(None).expect("a signal");
                std::thread::sleep(Duration::from_millis(1));
            }
            server.write_all(b"out 2\nokdone 0\n").expect("a client that waits");
        });
        let client = ControlClient { stream, path: PathBuf::from("s") };
        assert_eq!(client.text(&ControlQuestion::new("facts")), Ok("ok".to_owned()));
        slow.join().expect("all is sent");
    }
}
