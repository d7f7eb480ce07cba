//! The thread of a resolver: its loop asks the engine what to do, and waits for the next thing.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::Duration;

use weir_resolver::{SocketToken, Transmit, system};
use weir_rt::notify::{Notify, either};
use weir_rt::{DriverChoice, Runtime, RuntimeHandle, RuntimeOptions, clock};

use super::kept::ResolverWriter;
use super::{ResolverConfig, ResolverShared, sockets};
use crate::log::{self, LogLevel};

/// Receive buffers of the thread: each holds a datagram for the moment between its coming and its reading.
const BUFFERS: u16 = 64;
/// The longest sleep; also how often the system's files are looked at.
const LONGEST: u64 = 5_000;

/// The thread's sockets, and how it is notified that there is something to do.
#[derive(Default)]
pub(super) struct ResolverLoop {
    pub(super) wake: Notify,
    /// Each is notified when nothing is expected from it any more.
    pub(super) sockets: RefCell<HashMap<SocketToken, Rc<Notify>>>,
}

thread_local! {
    static HERE: Rc<ResolverLoop> = Rc::default();
}

/// Has the calling thread's loop look at its engine.
pub(super) fn look() {
    HERE.with(|here| here.wake.notify());
}

/// Starts the thread; it ends when the resolver is over.
///
/// # Errors
/// Out of threads, memory or descriptors.
pub(super) fn start(shared: Arc<ResolverShared>) -> io::Result<RuntimeHandle> {
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        // It moves a few small messages: epoll has it ready with the fewest resources.
        weir_rt::process::unbind();
        let name = "weir resolver".to_owned();
        let options = RuntimeOptions {
            driver: DriverChoice::Epoll,
            buffers: BUFFERS,
            name,
            ..RuntimeOptions::default()
        };
        match Runtime::new(&options) {
            Err(error) => drop(sender.send(Err(error))),
            Ok(runtime) => {
                // The caller that started it waits.
                drop(sender.send(Ok(runtime.remote())));
                runtime.block_on(run(&shared, HERE.with(Rc::clone)));
            }
        }
    };
    std::thread::Builder::new().name("weir resolver".to_owned()).spawn(run)?;
    receiver.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

async fn run(shared: &Arc<ResolverShared>, here: Rc<ResolverLoop>) {
    let (mut files, mut keeper) = (SystemFiles::default(), ResolverWriter::default());
    while !shared.over.load(Relaxed) {
        shared.reported.store(false, Relaxed);
        let (transmits, next) = {
            let now = clock::monotonic_ms();
            let mut state = shared.lock();
            if shared.config.system {
                files.follow(now, &shared.config, &mut state.engine);
            }
            state.engine.handle_timeout(now);
            state.deliver();
            let transmits: Vec<_> = std::iter::from_fn(|| state.engine.poll_transmit()).collect();
            let kept = keeper.follow(now, &shared.config, &state.engine);
            let next = state.engine.poll_timeout().into_iter().chain(kept).min();
            (transmits, next.map(|at| at.saturating_sub(now)))
        };
        for transmit in transmits {
            perform(shared, &here, transmit);
        }
        match next {
            None if !shared.config.system => here.wake.notified().await,
            next => {
                let sleep = Duration::from_millis(next.unwrap_or(LONGEST).clamp(1, LONGEST));
                either(here.wake.notified(), weir_rt::sleep(sleep)).await;
            }
        }
    }
}

fn perform(shared: &Arc<ResolverShared>, here: &Rc<ResolverLoop>, transmit: Transmit) {
    let (token, server, bytes, stream) = match transmit {
        Transmit::Close(token) => {
            if let Some(closed) = here.sockets.borrow_mut().remove(&token) {
                closed.notify();
            }
            return;
        }
        Transmit::Datagram { token, server, bytes } => (token, server, bytes, false),
        Transmit::Stream { token, server, bytes } => (token, server, bytes, true),
    };
    let closed = Rc::new(Notify::default());
    here.sockets.borrow_mut().insert(token, closed.clone());
    let (shared, here) = (shared.clone(), here.clone());
    weir_rt::spawn(async move {
        let talk = async {
            match stream {
                false => sockets::datagram(&shared, &here, token, server, &bytes).await,
                true => sockets::stream(&shared, &here, token, server, bytes).await,
            }
        };
        if let Some(ended) = either(talk, closed.notified()).await {
            if let Err(error) = ended {
                log::cycle(LogLevel::Error, &format_args!("{error} while resolving, resolver: {server}"));
            }
            shared.lock().engine.handle_error(clock::monotonic_ms(), token);
            here.sockets.borrow_mut().remove(&token);
            here.wake.notify();
        }
    });
}

/// The system's files, as they were read last.
#[derive(Default)]
struct SystemFiles {
    looked: Option<u64>,
    seen: [Option<(u64, i64, i64, u64)>; 2],
}

impl SystemFiles {
    /// Reads what has changed.
    fn follow(&mut self, now: u64, config: &ResolverConfig, engine: &mut weir_resolver::Resolver) {
        if self.looked.is_some_and(|looked| now < looked + LONGEST) {
            return;
        }
        self.looked = Some(now);
        let seen = [RESOLV_CONF, HOSTS].map(|path| std::fs::metadata(path).ok().as_ref().map(identity));
        if seen[0] != self.seen[0] {
            engine.set_servers(now, &with_system(config).settings);
        }
        if seen[1] != self.seen[1] {
            engine.set_hosts(system::hosts(&text_of(HOSTS)));
        }
        self.seen = seen;
    }
}

/// Gives the engine all that the system's files say.
pub(super) fn read_system(config: &ResolverConfig, engine: &mut weir_resolver::Resolver) {
    SystemFiles::default().follow(clock::monotonic_ms(), config, engine);
}

/// `config` with the name servers and the search list of `/etc/resolv.conf`; one that can't be read names none.
fn with_system(config: &ResolverConfig) -> ResolverConfig {
    let mut config = config.clone();
    system::apply(&text_of(RESOLV_CONF), &mut config.settings);
    config
}

/// The text of a file of the system's, which need not be there.
fn text_of(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            log::cycle(
                LogLevel::Error,
                &format_args!("\"{path}\" can't be read, and names nothing: {error}"),
            );
        }
        String::new()
    })
}

fn identity(metadata: &Metadata) -> (u64, i64, i64, u64) {
    (metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.len())
}

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";
