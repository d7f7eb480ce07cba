//! The control socket: a unix socket beside the pid file, through which the `weir` command asks a running server.
//!
//! One line in, text out. It is served by a thread of its own, so it answers while a worker is busy; only its owner
//! and root may connect (mode 0600).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use weir_core::log::{self, Level};
use weir_core::server::{Server, with_worker};
use weir_rt::Remote;
use weir_trace::{Kept, Level as TraceLevel, SiteTable, Watch, render};

use crate::pid;

/// The socket; gone when dropped.
pub(crate) struct Control {
    path: PathBuf,
}

impl Control {
    /// Listens beside `pid`. A server without control socket serves all the same: the reason is logged.
    pub(crate) fn start(pid: &Path, server: &Server) -> Option<Control> {
        let path = pid::socket(pid);
        // One left by a server that was killed; a living one has its pid file, and the address would be in use.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).and_then(|listener| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        });
        let remotes: Vec<Remote> = server.threads().iter().map(|thread| thread.remote.clone()).collect();
        let started = listener.and_then(|listener| {
            std::thread::Builder::new()
                .name("weir control".to_owned())
                .spawn(move || serve(&listener, &remotes))
        });
        match started {
            Ok(_) => Some(Control { path }),
            Err(error) => {
                log::cycle(Level::Warn, &format_args!("no control socket \"{}\": {error}", path.display()));
                None
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The thread ends with the process; the name must not outlive it.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(listener: &UnixListener, remotes: &[Remote]) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let remotes = remotes.to_vec();
        let answer = move || {
            if let Err(error) = answer(stream, &remotes) {
                log::cycle(Level::Info, &format_args!("control connection: {error}"));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("weir control".to_owned()).spawn(answer) {
            log::cycle(Level::Warn, &format_args!("control connection: {error}"));
        }
    }
}

fn answer(mut stream: UnixStream, remotes: &[Remote]) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["trace", "once", ref path @ ..] => once(&mut stream, remotes, path.first().copied()),
        ["trace", "level", level] => {
            let level = match level {
                "off" => TraceLevel::Off,
                "sampled" => TraceLevel::Sampled,
                "full" => TraceLevel::Full,
                _ => return writeln!(stream, "error: the level is off, sampled or full"),
            };
            on_all(remotes, move |recorder| recorder.set_level(level));
            writeln!(stream, "level {}", words[2])
        }
        _ => writeln!(stream, "error: unknown request"),
    }
}

/// Sends the tree of the next request (whose path begins with `path`), or nothing when the asker has gone.
fn once(stream: &mut UnixStream, remotes: &[Remote], path: Option<&str>) -> std::io::Result<()> {
    let path = path.unwrap_or("").to_owned();
    let (watch, kept) = Watch::channel(1, move |record| record.path.as_bytes().starts_with(path.as_bytes()));
    let asked = watch.clone();
    on_all(remotes, move |recorder| recorder.watch(asked.clone()));
    stream.set_nonblocking(true)?;
    let limit = Instant::now() + PATIENCE;
    loop {
        match kept.recv_timeout(Duration::from_millis(100)) {
            Ok(kept) => {
                stream.set_nonblocking(false)?;
                return stream.write_all(show(&kept).as_bytes());
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() < limit && is_open(stream) => {}
            Err(_) => {
                watch.cancel();
                return Ok(());
            }
        }
    }
}

/// Headline and tree, as `weir trace` prints them.
pub(crate) fn show(kept: &Kept) -> String {
    let sites = SiteTable::global();
    let scale = |ticks| weir_rt::clock::scale().ticks_to_ns(ticks);
    let headline = render::headline(kept.record(), sites, &scale);
    format!("{headline}\n{}", render::tree(&kept.tree(), sites, &scale))
}

/// The asker sends nothing more; the end of its side means that it gave up.
fn is_open(stream: &UnixStream) -> bool {
    let mut byte = [0u8; 1];
    match std::io::Read::read(&mut &*stream, &mut byte) {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

fn on_all(remotes: &[Remote], f: impl Fn(&mut weir_trace::Recorder) + Clone + Send + 'static) {
    for remote in remotes {
        let f = f.clone();
        remote.run(Box::new(move || {
            with_worker(|worker| f(&mut worker.recorder.borrow_mut()));
        }));
    }
}

/// A trace that nobody's request ends is given up after this long.
const PATIENCE: Duration = Duration::from_secs(3600);
