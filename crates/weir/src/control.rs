//! The control socket: a unix socket beside the pid file, through which the `weir` command asks a running server.
//!
//! One line in, text out. It is served by a thread of its own, so it answers while a worker is busy; only its owner
//! and root may connect (mode 0600).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use weir::show::{kept as show, nanoseconds as scale};
use weir_core::log::{self, Level};
use weir_core::server::{Server, with_worker};
use weir_core::worker::Worker;
use weir_rt::{Remote, clock};
use weir_trace::{
    Kept, Level as TraceLevel, RecorderReader, Scale, Site, SiteTable, SiteTotals, Watch, render,
};

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
        let workers: Workers =
            server.threads().iter().map(|thread| (thread.remote.clone(), thread.recorder.clone())).collect();
        let started = listener.and_then(|listener| {
            std::thread::Builder::new()
                .name("weir control".to_owned())
                .spawn(move || serve(&listener, &workers))
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

fn serve(listener: &UnixListener, workers: &Workers) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let workers = workers.clone();
        let answer = move || {
            if let Err(error) = answer(stream, &workers) {
                log::cycle(Level::Info, &format_args!("control connection: {error}"));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("weir control".to_owned()).spawn(answer) {
            log::cycle(Level::Warn, &format_args!("control connection: {error}"));
        }
    }
}

fn answer(mut stream: UnixStream, workers: &Workers) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["trace", "once", "--json", ref path @ ..] => {
            let json = |kept: &Kept| render::kept_json(kept, SiteTable::global(), &scale) + "\n";
            once(&mut stream, workers, path.first().copied(), json)
        }
        ["trace", "once", ref path @ ..] => once(&mut stream, workers, path.first().copied(), show),
        ["trace", "sites"] => stream.write_all(sites(workers, render::sites).as_bytes()),
        ["trace", "sites", "--json"] => writeln!(stream, "{}", sites(workers, render::totals_json)),
        ["trace", "level"] => stream.write_all(level(workers, None).as_bytes()),
        ["trace", "level", "off"] => stream.write_all(level(workers, Some(TraceLevel::Off)).as_bytes()),
        ["trace", "level", "sampled"] => {
            stream.write_all(level(workers, Some(TraceLevel::Sampled)).as_bytes())
        }
        ["trace", "level", "full"] => stream.write_all(level(workers, Some(TraceLevel::Full)).as_bytes()),
        ["trace", "level", ..] => writeln!(stream, "error: the level is off, sampled or full"),
        _ => writeln!(stream, "error: unknown request"),
    }
}

/// The counts of all sites, all workers added up: read from here, so a stuck worker's are there too.
fn sites(workers: &Workers, show: fn(&[(Site, SiteTotals)], &SiteTable, Scale<'_>) -> String) -> String {
    let totals = RecorderReader::merged(workers.iter().map(|(_, reader)| reader));
    show(&totals, SiteTable::global(), &scale)
}

/// Changes the level, if one is given, from the next request on. The answer has a line a worker, taken at that moment:
/// the level, its requests so far and the CPU time of its thread, so that levels can be compared under load.
fn level(workers: &Workers, level: Option<TraceLevel>) -> String {
    let (said, heard) = channel();
    on_all(workers, move |worker| {
        let mut recorder = worker.recorder.borrow_mut();
        if let Some(level) = level {
            recorder.set_level(level);
        }
        let (cpu_ns, requests) = (clock::thread_cpu_ns(), worker.counters.requests.get());
        // Who asked may have given up waiting.
        let _ = said.send((worker.id, recorder.settings().level, requests, cpu_ns));
    });
    let mut lines: Vec<_> = (0..workers.len()).map_while(|_| heard.recv_timeout(WORKER).ok()).collect();
    lines.sort_unstable();
    let stuck = workers.len() - lines.len();
    let mut text: String = lines
        .into_iter()
        .map(|(id, level, requests, cpu_ns)| {
            let level = match level {
                TraceLevel::Off => "off",
                TraceLevel::Sampled => "sampled",
                TraceLevel::Full => "full",
            };
            format!("worker {id} level {level} requests {requests} cpu_ns {cpu_ns}\n")
        })
        .collect();
    if stuck > 0 {
        text.push_str(&format!("{stuck} workers are busy and follow when they can\n"));
    }
    text
}

/// Sends the tree of the next request (whose path begins with `path`), or nothing when the asker has gone.
fn once(
    stream: &mut UnixStream,
    workers: &Workers,
    path: Option<&str>,
    show: fn(&Kept) -> String,
) -> std::io::Result<()> {
    let path = path.unwrap_or("").to_owned();
    let (watch, kept) = Watch::channel(1, move |record| record.path.as_bytes().starts_with(path.as_bytes()));
    let asked = watch.clone();
    on_all(workers, move |worker| worker.recorder.borrow_mut().watch(asked.clone()));
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

/// The asker sends nothing more; the end of its side means that it gave up.
fn is_open(stream: &UnixStream) -> bool {
    let mut byte = [0u8; 1];
    match std::io::Read::read(&mut &*stream, &mut byte) {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

fn on_all(workers: &Workers, f: impl Fn(&Worker) + Clone + Send + 'static) {
    for (remote, _) in workers.iter() {
        let f = f.clone();
        remote.run(Box::new(move || {
            with_worker(|worker| f(worker));
        }));
    }
}

/// What reaches each worker: by message, and its counts without asking it.
type Workers = Arc<[(Remote, RecorderReader)]>;

/// How long a worker is waited for.
const WORKER: Duration = Duration::from_secs(1);
/// A trace that nobody's request ends is given up after this long.
const PATIENCE: Duration = Duration::from_secs(3600);
