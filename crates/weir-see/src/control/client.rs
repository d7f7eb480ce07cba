//! The command's end: asks, and goes on reading until the answer ends or the user has enough.

use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use weir_rt::signal::{self, Signals};

use super::protocol::{Kind, Question, read_frame};

/// A connection to a server.
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
}

/// What came of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The answer is whole.
    Whole,
    /// The user stopped it; what was collected until then has come.
    Stopped,
}

impl Client {
    /// Connects to the control socket at `path`.
    ///
    /// # Errors
    /// Nobody listens there, or this user may not connect.
    pub fn connect(path: &Path) -> Result<Client, String> {
        let fail = |error: io::Error| format!("no server answers at \"{}\": {error}", path.display());
        let stream = UnixStream::connect(path).map_err(fail)?;
        Ok(Client { stream, path: path.to_path_buf() })
    }

    /// Asks and hands over every frame of the answer but its end. The first Ctrl-C asks the server to stop and goes on
    /// reading, the second one gives up.
    ///
    /// # Errors
    /// The server's reason, or that it has gone.
    pub fn ask(
        self,
        question: &Question,
        mut take: impl FnMut(Kind, &[u8]) -> io::Result<()>,
    ) -> Result<End, String> {
        self.put(question)?;
        // Not before: nothing may come to the server in front of the question.
        let interrupts = interrupts(&self.stream).map_err(|error| self.lost(&error))?;
        self.read(&mut take)?;
        Ok(if interrupts.stopped() { End::Stopped } else { End::Whole })
    }

    fn lost(&self, error: &io::Error) -> String {
        format!("the server at \"{}\" is gone: {error}", self.path.display())
    }

    fn put(&self, question: &Question) -> Result<(), String> {
        (&self.stream).write_all(question.line().as_bytes()).map_err(|error| self.lost(&error))
    }

    /// Reads to the end of the answer.
    fn read(&self, take: &mut dyn FnMut(Kind, &[u8]) -> io::Result<()>) -> Result<(), String> {
        let mut input = BufReader::new(&self.stream);
        loop {
            match read_frame(&mut input).map_err(|error| self.lost(&error))? {
                Some((Kind::Done, _)) => return Ok(()),
                Some((Kind::Fail, text)) => return Err(String::from_utf8_lossy(&text).into_owned()),
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

    /// The whole answer to what takes no time; notes are left out, and Ctrl-C ends the process as ever.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn text(self, question: &Question) -> Result<String, String> {
        let mut out = Vec::new();
        self.put(question)?;
        self.read(&mut |kind, bytes| {
            if kind == Kind::Out {
                out.extend_from_slice(bytes);
            }
            Ok(())
        })?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }
}

/// Watches for Ctrl-C while an answer is read.
struct Interrupts {
    stopped: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Interrupts {
    fn stopped(&self) -> bool {
        self.stopped.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// From here on SIGINT and SIGTERM go to a thread that tells the server to stop; a second one ends the process, as
/// either would have.
fn interrupts(stream: &UnixStream) -> io::Result<Interrupts> {
    let signals = Signals::new(&[signal::SIGINT, signal::SIGTERM])?;
    let mut stream = stream.try_clone()?;
    let stopped = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = stopped.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while signals.wait().is_ok() {
            if told.swap(true, std::sync::atomic::Ordering::Relaxed) || stream.write_all(b"stop\n").is_err() {
                std::process::exit(INTERRUPTED);
            }
        }
    })?;
    Ok(Interrupts { stopped })
}

/// The shell's status for a process that SIGINT ended.
const INTERRUPTED: i32 = 130;
