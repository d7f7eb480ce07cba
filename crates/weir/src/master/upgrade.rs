//! USR2: another binary takes over under way, as in nginx. The new master is a child of the old one and has its
//! listening sockets; both serve until one of them is asked to end.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

use weir_engine::log::{self, LogLevel};
use weir_rt::process::{self, inherit};
use weir_rt::signal::ReceivedSignal;

use super::MasterProcess;
use crate::run::log_signal;
use crate::{pid, settings};

impl MasterProcess {
    /// USR2.
    pub(super) fn upgrade(&mut self, received: ReceivedSignal) {
        let taking_over = self.predecessor.is_some() && !self.outlived_predecessor();
        if self.successor.is_some() || taking_over {
            return log_signal(received, ", ignoring");
        }
        log_signal(received, ", changing binary");
        let (here, there) = (self.pid.path().to_path_buf(), pid::oldbin(self.pid.path()));
        let name = self.program.name.to_string_lossy().into_owned();
        if let Err(error) = self.pid.rename(there.clone()) {
            let reason = settings::reason(&error);
            let (here, there) = (here.display(), there.display());
            let text = format_args!(
                "rename() {here} to {there} failed ({reason}) before executing new binary process \"{name}\""
            );
            return log::cycle(LogLevel::Alert, &text);
        }
        match self.execute() {
            Ok(pid) => {
                log::cycle(LogLevel::Notice, &format_args!("start new binary process {pid}"));
                self.successor = Some(pid);
            }
            Err(error) => {
                let reason = settings::reason(&error);
                let text =
                    format_args!("execve() failed while executing new binary process \"{name}\" ({reason})");
                log::cycle(LogLevel::Alert, &text);
                self.take_name_back();
            }
        }
    }

    /// Starts the program again, as it was called, with duplicates of all listening sockets.
    fn execute(&self) -> io::Result<u32> {
        let parts = self.hatching.cycle.sockets.export()?;
        let fds: Vec<_> = parts.iter().map(|part| part.fd.as_fd()).collect();
        for fd in &fds {
            inherit::set_inheritable(*fd, true)?;
        }
        let mut command = Command::new(&self.program.name);
        let secret = inherit::pass_secret(weir_server::conn::quic_secret())?;
        command.args(&self.program.arguments).env(inherit::VARIABLE, inherit::list(&fds));
        command.env(inherit::SECRET, secret.as_raw_fd().to_string());
        for systemds in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] {
            command.env_remove(systemds);
        }
        // It is waited for like every child, by SIGCHLD.
        command.spawn().map(|child| child.id())
    }

    /// The new binary came to nothing, or was sent back.
    pub(super) fn successor_ended(&mut self) {
        self.successor = None;
        self.take_name_back();
        self.notify.ready();
        if std::mem::take(&mut self.retired) {
            log::cycle(LogLevel::Notice, &"start worker processes");
            self.spawn();
        }
    }

    fn take_name_back(&mut self) {
        let configuration = &self.hatching.cycle.configuration;
        let path = configuration.main.pid(&configuration.prefix);
        if let Err(error) = self.pid.rename(path.clone()) {
            let (from, reason) = (self.pid.path().display(), settings::reason(&error));
            let name = self.program.name.to_string_lossy();
            let text = format_args!(
                "rename() {from} back to {} failed ({reason}) after the new binary process \"{name}\" exited",
                path.display()
            );
            log::cycle(LogLevel::Alert, &text);
        }
    }

    /// Whether this master was a new binary once, and is the only one now.
    pub(super) fn outlived_predecessor(&self) -> bool {
        self.predecessor.is_some_and(|predecessor| process::parent() != predecessor)
    }
}
