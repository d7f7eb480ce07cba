//! The privileged agent's process: one worker that listens nowhere, for scripts that no request waits for
//! (`enable_privileged_agent` of `ngx.process`), with one configuration for its life.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_rt::RuntimeHandle;
use weir_trace::Recorder;

use super::crew::{CalledWorker, WorkerExit, WorkerStage};
use super::sockets::InheritedSockets;
use super::thread;
use super::thread::ThreadOptions;
use crate::{ServerOptions, StartError, late, on_each, prepare};
use weir_engine::log::{self, LogLevel};
use weir_engine::worker::configuration::Configuration;
use weir_engine::worker::{AGENT, WorkerCounters};

/// See the module. Its process ends with it.
pub struct AgentProcess {
    remote: RuntimeHandle,
    handle: Option<JoinHandle<Recorder>>,
    exits: Receiver<u64>,
    limit: Option<Duration>,
}

impl AgentProcess {
    /// Starts the worker's thread and gives it the configuration; when it returns, what `init_worker` has to do is done.
    ///
    /// # Errors
    /// The thread can't start, or a module refuses the configuration.
    pub fn start(
        configuration: &Arc<Configuration>,
        options: &ServerOptions,
    ) -> Result<AgentProcess, StartError> {
        let (exit, exits) = channel();
        let driver = options.driver.unwrap_or_else(|| configuration.main.driver());
        let recorder = thread::recorder(usize::from(AGENT), options);
        // What its end means, its process says.
        let stage = Arc::new(WorkerStage(AtomicU8::new(WorkerStage::ENDED)));
        let exit = WorkerExit { number: 0, exit };
        let counters = Arc::<WorkerCounters>::default();
        let thread_options = ThreadOptions { driver, watched: false };
        let started = thread::start(AGENT, thread_options, recorder, counters.clone(), stage, exit)?;
        let limit = configuration.main.shutdown_timeout();
        let agent = AgentProcess { remote: started.remote, handle: Some(started.handle), exits, limit };
        let called = [CalledWorker { id: usize::from(AGENT), remote: agent.remote.clone(), new: false }];
        prepare(configuration, &InheritedSockets::default(), 0, &called, options.patience)?;
        let everyone: Arc<[_]> = Arc::new([counters]);
        let commit = || {
            let everyone = everyone.clone();
            move || thread::commit(everyone, None)
        };
        on_each(&called, options.patience, commit).map_err(|_| late())?;
        agent.remote.run(Box::new(thread::release));
        Ok(agent)
    }

    /// Asks it to end when its work is done, or at `worker_shutdown_timeout`. Returns at once; see
    /// [`AgentProcess::join`].
    pub fn quit(&self) {
        let limit = self.limit;
        self.remote.run(Box::new(move || thread::quit(limit)));
    }

    /// Ends the agent at once, without its `worker_shutdown_timeout`; returns without waiting.
    pub fn stop(&self) {
        self.remote.run(Box::new(thread::stop));
    }

    /// Waits until it has ended, for `limit` at most. `true`: it has.
    pub fn join(&mut self, limit: Duration) -> bool {
        if self.exits.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            return false;
        }
        if self.handle.take().is_some_and(|handle| handle.join().is_err()) {
            log::cycle(LogLevel::Alert, &"the privileged agent ended by a panic");
        }
        true
    }
}
