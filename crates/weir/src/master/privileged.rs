//! The privileged agent from its master's side: a process for each configuration that wants one, beside the server whose
//! dictionaries and events it shares, and started again when it dies.

use std::io;
use std::time::Instant;

use weir_engine::log::{self, LogLevel};
use weir_rt::process::{ForkSide, ProcessEnd, fork};
use weir_rt::signal;

use super::child::{self, MasterChild, RespawnTimer};
use super::{FATAL, MasterProcess, MasterStage};
use crate::bundle::{MasterOrder, WantsAgent};
use crate::privileged::{self, PrivilegedInheritance, PrivilegedLink};
use crate::settings;

/// See the module.
#[derive(Default)]
pub(super) struct PrivilegedChild {
    running: Option<MasterChild>,
    pub(super) respawn: RespawnTimer,
}

impl PrivilegedChild {
    /// It opens its logs again, as it may itself.
    pub(super) fn reopen(&self) {
        if let Some(agent) = &self.running {
            agent.kill(signal::SIGUSR1);
        }
    }
}

impl MasterProcess {
    /// The server serves: as its configuration wants, there is an agent of that configuration, or none.
    pub(super) fn employ(&mut self, WantsAgent(wanted): WantsAgent) {
        let before = self.agent.running.take();
        if wanted {
            self.spawn_agent();
        }
        self.send_away(before);
    }

    /// The agent ends: the server does.
    pub(super) fn dismiss_agent(&mut self) {
        self.agent.respawn.at = None;
        let before = self.agent.running.take();
        self.send_away(before);
    }

    fn send_away(&mut self, agent: Option<MasterChild>) {
        let Some(agent) = agent else { return };
        agent.kill(signal::SIGQUIT);
        self.leaving.push(agent);
    }

    /// Starts it, or tries again later. In the agent this does not return.
    pub(super) fn spawn_agent(&mut self) {
        self.agent.respawn.at = None;
        match self.fork_agent() {
            Ok(agent) => self.agent.running = Some(agent),
            Err(error) => {
                let reason = settings::reason(&error);
                let text = format_args!("fork() failed while spawning \"{NAME}\" ({reason})");
                log::cycle(LogLevel::Alert, &text);
                self.agent.respawn.at = Some(Instant::now() + child::LATER);
            }
        }
    }

    fn fork_agent(&mut self) -> io::Result<MasterChild> {
        let (link, servers) = PrivilegedLink::pair()?;
        match fork()? {
            ForkSide::Parent(pid) => {
                log::cycle(LogLevel::Notice, &format_args!("start {NAME} {pid}"));
                let fds = [servers.calls.into(), servers.heard.into()];
                if let Some(Err(error)) =
                    self.server.as_ref().map(|server| server.send(&MasterOrder::Agent, &fds))
                {
                    // It sees that it has no server, and ends.
                    let reason = settings::reason(&error);
                    let text = format_args!("the server process can't be given the {NAME} ({reason})");
                    log::cycle(LogLevel::Alert, &text);
                }
                Ok(MasterChild::new(NAME, pid))
            }
            ForkSide::Child => {
                drop(servers);
                let configuration = self.hatching.cycle.bequeath();
                self.let_go();
                let paths = self.hatching.paths.clone();
                let code = privileged::run(PrivilegedInheritance { configuration, paths, link });
                // Nothing of the master's is dropped: its files are still in use.
                std::process::exit(code)
            }
        }
    }

    /// In the agent: closes what the master holds, which would seem to live on with it.
    fn let_go(&mut self) {
        if let Some(title) = &mut self.hatching.title {
            title.set(&format!("weir: {NAME}"));
        }
        self.server = None;
        self.leaving.clear();
        self.reload.forget();
        std::mem::take(&mut self.hatching.cycle.sockets).leave_files();
        self.hatching.control = None;
    }

    /// The process `pid` has ended: whether it was the agent.
    pub(super) fn loses_agent(&mut self, pid: u32, how: ProcessEnd) -> bool {
        let Some(agent) = self.agent.running.take_if(|agent| agent.pid == pid) else { return false };
        child::log_end(NAME, pid, how);
        if self.stage == MasterStage::Serving && self.server.is_some() {
            match how {
                ProcessEnd::Exited(FATAL) => child::log_fatal(NAME, pid),
                _ => self.agent.respawn.after(&agent, how),
            }
        }
        true
    }
}

/// nginx's name for it.
const NAME: &str = "privileged agent process";
