//! Names at run time: the directive `resolver`, and its look-ups.
//!
//! A [`Resolver`] is the cache and the name servers of one `resolver` directive, shared by all workers and by all places
//! that say the same, through reloads too. What it decides is `weir-resolver`'s; its sockets are served by a thread of
//! its own, which starts with the first look-up: a worker that is stuck keeps no other from a name, and what is known
//! costs a worker a lock and no change of threads.

mod conf;
pub mod kept;
mod names;
mod sockets;
mod thread;

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use weir_resolver::{DnsName, LookupId, ResolverEvent, ResolverSettings};
use weir_rt::{RuntimeHandle, clock};

use crate::log::{self, LogLevel};
pub use conf::{DEFAULT_TIMEOUT, parse};
pub use names::NameWatch;
pub use weir_resolver::{DnsAnswer, DnsFailure, DnsQuestion, DnsService};

/// The name servers of a `resolver` directive, and what is known from them.
#[derive(Debug)]
pub struct Resolver {
    shared: Arc<ResolverShared>,
}

/// What a directive says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolverConfig {
    pub(crate) settings: ResolverSettings,
    /// Name servers, search list and hosts are the system's.
    pub(crate) system: bool,
}

/// What workers and the thread share.
#[derive(Debug)]
struct ResolverShared {
    config: ResolverConfig,
    state: Mutex<ResolverState>,
    /// The thread has been notified that there is something to do.
    reported: AtomicBool,
    /// Nothing refers to the resolver any more.
    over: AtomicBool,
}

struct ResolverState {
    engine: weir_resolver::Resolver,
    waiting: HashMap<LookupId, Arc<Mutex<LookupSlot>>>,
    thread: ResolverThread,
}

enum ResolverThread {
    None,
    Running(RuntimeHandle),
    /// It can't be started.
    Refused,
}

/// Where a look-up's result is left for the task that waits for it.
#[derive(Default)]
struct LookupSlot {
    result: Option<LookupResult>,
    waker: Option<Waker>,
}

/// The result of a look-up.
pub type LookupResult = Result<Arc<DnsAnswer>, DnsFailure>;

impl Resolver {
    /// The resolver of this configuration: one that is in use already, or a new one.
    pub(crate) fn of(config: ResolverConfig) -> Arc<Resolver> {
        static ALL: Mutex<Vec<Weak<Resolver>>> = Mutex::new(Vec::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|resolver| resolver.strong_count() > 0);
        let known = all.iter().filter_map(Weak::upgrade).find(|resolver| resolver.shared.config == config);
        known.unwrap_or_else(|| {
            let resolver = Arc::new(Resolver { shared: Arc::new(ResolverShared::new(config)) });
            all.push(Arc::downgrade(&resolver));
            resolver
        })
    }

    /// What is known at this moment, without a query.
    pub fn cached(&self, question: &DnsQuestion) -> Option<Arc<DnsAnswer>> {
        self.shared.lock().engine.cached(clock::monotonic_ms(), question)
    }

    /// Looks `question` up; waits `timeout` milliseconds at most.
    ///
    /// # Errors
    /// What the name servers said, or that `timeout` milliseconds were not enough.
    pub async fn resolve(&self, question: &DnsQuestion, timeout: u64) -> LookupResult {
        self.shared.resolve(question, timeout).await
    }

    /// Calls `watch` with what its name resolves to, now and whenever that may have changed, as long as it is there.
    pub fn watch(&self, watch: NameWatch) {
        let shared = self.shared.clone();
        self.shared.on_thread(Box::new(move || weir_rt::spawn(names::follow(shared, watch))));
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.shared.over.store(true, Relaxed);
        self.shared.tell(&self.shared.lock());
    }
}

/// The question for the addresses of `host`, or what it is already: an address.
///
/// # Errors
/// It is no name.
pub fn question(host: &str) -> Result<DnsQuestion, DnsFailure> {
    DnsName::parse(host).map(DnsQuestion::Addresses).ok_or(DnsFailure::Code(3))
}

/// `host` as an address, with or without brackets.
pub fn literal(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.parse().ok()
}

impl ResolverShared {
    fn new(config: ResolverConfig) -> ResolverShared {
        // Randomly keyed by the operating system, so that ids can't be guessed.
        let (keys, mut count) = (std::hash::RandomState::new(), 0_u64);
        let random = move || {
            count += 1;
            keys.hash_one(count)
        };
        let mut engine = weir_resolver::Resolver::new(config.settings.clone(), random);
        if config.system {
            thread::read_system(&config, &mut engine);
        }
        let state = ResolverState { engine, waiting: HashMap::new(), thread: ResolverThread::None };
        ResolverShared {
            config,
            state: Mutex::new(state),
            reported: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ResolverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn resolve(self: &Arc<Self>, question: &DnsQuestion, timeout: u64) -> LookupResult {
        let (id, slot) = {
            let now = clock::monotonic_ms();
            let mut state = self.lock();
            if let Some(answer) = state.engine.cached(now, question) {
                // It may have begun to ask again.
                self.tell(&state);
                return Ok(answer);
            }
            self.start(&mut state);
            if matches!(state.thread, ResolverThread::Refused) {
                return Err(DnsFailure::TimedOut);
            }
            let id = state.engine.resolve(now, question.clone(), timeout);
            let slot = Arc::new(Mutex::new(LookupSlot::default()));
            state.waiting.insert(id, slot.clone());
            state.deliver();
            self.tell(&state);
            (id, slot)
        };
        let _waiting = LookupWait { shared: self, id };
        poll_fn(|cx| {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(result) = slot.result.take() {
                return Poll::Ready(result);
            }
            slot.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Wakes the thread, which looks at the engine.
    fn tell(&self, state: &ResolverState) {
        if let ResolverThread::Running(remote) = &state.thread
            && !self.reported.swap(true, Relaxed)
        {
            remote.run(Box::new(thread::look));
        }
    }

    /// Runs `task` on the thread.
    fn on_thread(self: &Arc<Self>, task: Box<dyn FnOnce() -> weir_rt::TaskId + Send>) {
        let mut state = self.lock();
        self.start(&mut state);
        if let ResolverThread::Running(remote) = &state.thread {
            remote.run(Box::new(move || {
                task();
            }));
        }
    }

    fn start(self: &Arc<Self>, state: &mut ResolverState) {
        if matches!(state.thread, ResolverThread::None) {
            kept::recall(&self.config, &mut state.engine);
            state.thread = match thread::start(self.clone()) {
                Ok(remote) => ResolverThread::Running(remote),
                Err(error) => {
                    log::cycle(LogLevel::Alert, &format_args!("the resolver's thread can't start: {error}"));
                    ResolverThread::Refused
                }
            };
        }
    }
}

impl ResolverState {
    /// Leaves results where they are waited for.
    fn deliver(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                ResolverEvent::Done(id, result) => {
                    let Some(slot) = self.waiting.remove(&id) else { continue };
                    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
                    slot.result = Some(result);
                    if let Some(waker) = slot.waker.take() {
                        waker.wake();
                    }
                }
                ResolverEvent::ServerDown(server) => {
                    log::cycle(
                        LogLevel::Warn,
                        &format_args!("name server {server} does not answer, it is asked last"),
                    );
                }
                ResolverEvent::ServerUp(server) => {
                    log::cycle(LogLevel::Notice, &format_args!("name server {server} answers again"));
                }
            }
        }
    }
}

impl std::fmt::Debug for ResolverState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.engine.fmt(f)
    }
}

/// A look-up whose caller waits for it; dropped, it is given up.
struct LookupWait<'s> {
    shared: &'s Arc<ResolverShared>,
    id: LookupId,
}

impl Drop for LookupWait<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.waiting.remove(&self.id).is_some() {
            state.engine.cancel(self.id);
        }
    }
}
