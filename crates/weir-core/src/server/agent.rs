//! The privileged agent: a worker that listens nowhere, for scripts that no request waits for (`enable_privileged_agent` of
//! `ngx.process`). It has a thread, a loop and a number of its own, takes part in reloads behind the workers, and ends
//! with them. It shares what threads share: zones, dictionaries, and the user.

use std::sync::atomic::AtomicU8;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_rt::Remote;
use weir_trace::Recorder;

use super::crew::{Called, Exit, Stage};
use super::sockets::Sockets;
use super::{Options, StartError, on_each, prepare, thread};
use crate::conf::Configuration;
use crate::log::{self, Level};
use crate::worker::{AGENT, Counters};

/// See the module; none until a configuration wants it.
#[derive(Default)]
pub(super) struct Agent(Mutex<Option<Running>>);

struct Running {
    remote: Remote,
    handle: JoinHandle<Recorder>,
    exits: Receiver<u64>,
}

impl Agent {
    /// Starts it, gives it the configuration, or ends it, as the configuration wants that the workers have. What fails is
    /// logged: they serve without it.
    pub(super) fn follow(
        &self,
        configuration: &Arc<Configuration>,
        options: &Options,
        everyone: &Arc<[Arc<Counters>]>,
    ) {
        let mut running = self.running();
        if !configuration.wants_agent() {
            if let Some(agent) = running.take() {
                let limit = configuration.main.shutdown_timeout();
                agent.remote.run(Box::new(move || thread::quit(limit)));
            }
            return;
        }
        if running.is_none() {
            match start(configuration, options) {
                Ok(agent) => *running = Some(agent),
                Err(error) => return log::cycle(Level::Alert, &format_args!("no privileged agent: {error}")),
            }
            if configuration.main.run_as().is_some_and(|(user, _)| user.uid != 0) {
                let text = "the privileged agent is a thread of the server and has its user's rights";
                log::cycle(Level::Warn, &text);
            }
        }
        let Some(agent) = &*running else { return };
        let called = [Called { id: usize::from(AGENT), remote: agent.remote.clone(), new: false }];
        if let Err(error) = prepare(configuration, &Sockets::default(), 0, &called, options.patience) {
            agent.remote.run(Box::new(thread::abandon));
            return log::cycle(
                Level::Alert,
                &format_args!("the privileged agent keeps the configuration before: {error}"),
            );
        }
        let commit = || {
            let everyone = everyone.clone();
            move || thread::commit(everyone)
        };
        if on_each(&called, options.patience, commit).is_err() {
            log::cycle(Level::Alert, &"the privileged agent is late in taking the configuration");
        }
        agent.remote.run(Box::new(thread::release));
    }

    /// Runs `f` on its loop.
    pub(super) fn run(&self, f: impl FnOnce() + Send + 'static) {
        if let Some(agent) = &*self.running() {
            agent.remote.run(Box::new(f));
        }
    }

    /// Waits until it has ended, for `limit` at most. `true`: it has.
    pub(super) fn join(&self, limit: Option<Duration>) -> bool {
        let Some(agent) = self.running().take() else { return true };
        let ended = match limit {
            Some(limit) => agent.exits.recv_timeout(limit).is_ok(),
            None => agent.exits.recv().is_ok(),
        };
        if ended && agent.handle.join().is_err() {
            log::cycle(Level::Alert, &"the privileged agent ended by a panic");
        }
        ended
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(configuration: &Configuration, options: &Options) -> Result<Running, StartError> {
    let (exit, exits) = channel();
    let driver = options.driver.unwrap_or_else(|| configuration.main.driver());
    let recorder = thread::recorder(usize::from(AGENT), options);
    let stage = Arc::new(Stage(AtomicU8::new(Stage::WORKING)));
    let exit = Exit { number: 0, exit };
    let started = thread::start(AGENT, (driver, false), recorder, Arc::default(), stage, exit)?;
    log::cycle(Level::Notice, &"start privileged agent");
    Ok(Running { remote: started.remote, handle: started.handle, exits })
}
