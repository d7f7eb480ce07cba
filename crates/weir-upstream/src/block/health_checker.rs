//! The tasks that check the peers of all upstreams.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::Upstreams;
use crate::block::upstream::Upstream;
use crate::health::HealthCheck;
use crate::peer::Peer;
use weir_engine::log::LogLevel;
use weir_engine::{Configuration, log, services};

/// Checks the upstreams of a server's configuration in force, until it is dropped.
#[derive(Default)]
pub struct HealthChecker {
    in_force: InForce,
    /// The thread was given something to do.
    begun: AtomicBool,
}

/// The configuration whose upstreams are checked, for the tasks; none after the end. Changed by the thread of the tasks
/// alone, so that none of them notes what it found after others have begun.
pub(crate) type InForce = Arc<Mutex<Weak<Configuration>>>;

impl HealthChecker {
    /// Makes sure that there is a thread, if the configuration has something for it.
    ///
    /// # Errors
    /// It can't start.
    pub fn prepare(configuration: &Configuration) -> io::Result<()> {
        let checks = Upstreams::all_of(configuration).any(|upstream| upstream.health_check.is_some());
        if checks { services::start() } else { Ok(()) }
    }

    /// From here on the upstreams of `configuration` are checked, and no others.
    pub fn check(&self, configuration: &Arc<Configuration>) {
        // No thread is started for a configuration without upstreams: a program with a server inside would find it left.
        if Upstreams::all_of(configuration).next().is_none() && !self.begun.load(Relaxed) {
            return;
        }
        self.begun.store(true, Relaxed);
        let (in_force, now) = (self.in_force.clone(), Arc::downgrade(configuration));
        self.on_thread(move || begin(&in_force, now));
    }

    fn on_thread(&self, task: impl FnOnce() + Send + 'static) {
        if let Err(error) = services::run(task) {
            log::cycle(LogLevel::Alert, &format_args!("no thread for health checks: {error}"));
        }
    }
}

impl Drop for HealthChecker {
    fn drop(&mut self) {
        // Only what has begun has to end: no thread is started for it.
        if lock(&self.in_force).strong_count() > 0 {
            let in_force = self.in_force.clone();
            self.on_thread(move || *lock(&in_force) = Weak::new());
        }
    }
}

pub(crate) fn begin(in_force: &InForce, now: Weak<Configuration>) {
    let Some(configuration) = now.upgrade() else { return };
    *lock(in_force) = now.clone();
    for upstream in Upstreams::all_of(&configuration) {
        if let Some(check) = &upstream.health_check {
            let of = InForceOf { now: in_force.clone(), configuration: now.clone() };
            weir_rt::spawn(rounds(of, Arc::downgrade(upstream), Rc::new(check.clone())));
        } else {
            // Without checks no peer would be found healthy again. From here on the checks of the configuration before,
            // tasks of this thread, note nothing.
            upstream.members().all().for_each(|peer| peer.state.unhealthy.store(false, Relaxed));
        }
    }
}

pub(crate) async fn rounds(of: InForceOf, upstream: Weak<Upstream>, check: Rc<HealthCheck>) {
    let mut seed = weir_rt::clock::monotonic_ns() | 1;
    // Peers that are being asked: one that takes longer than the interval is not asked again meanwhile.
    let asked: Rc<RefCell<Vec<usize>>> = Rc::default();
    while let Some(upstream) = upstream.upgrade().filter(|_| of.is_so()) {
        let members = upstream.members();
        for peer in members.all().filter(|peer| !peer.is_down()) {
            let key = Arc::as_ptr(&peer.state).addr();
            if asked.borrow().contains(&key) {
                continue;
            }
            asked.borrow_mut().push(key);
            // A step of an xorshift generator.
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let delay = Duration::from_millis((seed >> 16) % (check.jitter + 1));
            let (upstream, peer, check) = (upstream.clone(), peer.clone(), check.clone());
            let (of, asked) = (of.clone(), asked.clone());
            weir_rt::spawn(async move {
                weir_rt::sleep(delay).await;
                let result = check.ask(&upstream.name, &peer).await;
                asked.borrow_mut().retain(|other| *other != key);
                // Another configuration may not check at all, and what is noted would never be taken back.
                if of.is_so() {
                    note(&check, &upstream, &peer, result);
                }
            });
        }
        // While it sleeps the task keeps nothing of a configuration that may go.
        drop((members, upstream));
        weir_rt::sleep(Duration::from_millis(check.interval + check.jitter)).await;
    }
}

/// Whether a configuration is in force still.
#[derive(Clone)]
pub(crate) struct InForceOf {
    now: InForce,
    configuration: Weak<Configuration>,
}

impl InForceOf {
    fn is_so(&self) -> bool {
        self.configuration.strong_count() > 0 && lock(&self.now).ptr_eq(&self.configuration)
    }
}

pub(crate) fn lock(in_force: &InForce) -> MutexGuard<'_, Weak<Configuration>> {
    in_force.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes what a check found; its consequences are logged.
fn note(check: &HealthCheck, upstream: &Upstream, peer: &Peer, result: Result<(), String>) {
    let state = &peer.state;
    let unhealthy = state.unhealthy.load(Relaxed);
    if result.is_ok() != unhealthy {
        state.streak.store(0, Relaxed);
        return;
    }
    // Only tasks of one thread write it.
    let streak = state.streak.load(Relaxed) + 1;
    state.streak.store(streak, Relaxed);
    let enough = if unhealthy { check.passes } else { check.fails };
    if streak < enough {
        return;
    }
    state.streak.store(0, Relaxed);
    state.checked(!unhealthy);
    upstream.changes.tell();
    let (name, upstream) = (&peer.name, &upstream.name);
    match result {
        Ok(()) => {
            peer.recovered();
            log::cycle(
                LogLevel::Notice,
                &format_args!("peer is healthy, health check of peer {name} in upstream \"{upstream}\""),
            );
        }
        Err(why) => {
            log::cycle(
                LogLevel::Warn,
                &format_args!(
                    "peer is unhealthy: {why}, health check of peer {name} in upstream \"{upstream}\""
                ),
            );
            state.failed_check(why);
        }
    }
}
