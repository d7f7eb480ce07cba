//! A server process from its master's side.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_engine::log::{self, LogLevel};
use weir_engine::zone::survival;
use weir_rt::SharedRings;
use weir_rt::process::{self, ForkSide, ProcessChannel, ProcessEnd, fork};
use weir_rt::signal::{self, ReceivedSignal, Signals};
use weir_rt::zone_memory::ZoneFile;
use weir_see::remains::CrashRemains;

use super::{FATAL, PendingReload, ServerSeed};
use crate::bundle::{MasterOrder, ServerReply, WantsAgent};
use crate::inherited::UNBUILT;
use crate::server::{self, ServerInheritance};
use crate::settings;

/// A server process, or the privileged agent.
pub(super) struct MasterChild {
    /// nginx's for what it is.
    pub(super) name: &'static str,
    pub(super) pid: u32,
    /// `None` once it is known to be deaf.
    pub(super) channel: Option<ProcessChannel>,
    pub(super) started: Instant,
    /// It accepts connections.
    pub(super) ready: bool,
    /// Memory in which it leaves what it did last.
    pub(super) remains: Option<CrashRemains>,
    /// Memory in which its lines of logs are until they are written.
    pub(super) lines: Option<SharedRings>,
    /// Memory in which its zones are.
    pub(super) zones: Option<Arc<ZoneFile>>,
    /// Why it could not start, which it has logged.
    pub(super) reasons: Vec<String>,
}

impl MasterChild {
    /// One that was just started, and gets no message yet.
    pub(super) fn new(name: &'static str, pid: u32) -> MasterChild {
        MasterChild {
            name,
            pid,
            channel: None,
            started: Instant::now(),
            ready: false,
            remains: None,
            lines: None,
            zones: None,
            reasons: Vec::new(),
        }
    }

    /// Sends it a signal; that it has just ended is no news.
    pub(super) fn kill(&self, number: i32) {
        if let Err(error) = signal::kill(self.pid as i32, number)
            && error.kind() != io::ErrorKind::NotFound
        {
            let (pid, reason) = (self.pid, settings::reason(&error));
            log::cycle(LogLevel::Alert, &format_args!("kill({pid}, {number}) failed ({reason})"));
        }
    }

    /// Sends it a command.
    ///
    /// # Errors
    /// It does not listen.
    pub(super) fn send(&self, order: &MasterOrder, fds: &[OwnedFd]) -> io::Result<()> {
        let channel = self.channel.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        channel.send(&order.encode(), &fds)
    }

    /// Waits until it says something or has ended, however long its scripts take. Signals that do not end the start are
    /// put off until `later`.
    ///
    /// # Errors
    /// The signal that asks for the start to end.
    fn await_word(&self, signals: &Signals, later: &mut Vec<ReceivedSignal>) -> Result<(), String> {
        let Some(channel) = &self.channel else { return Ok(()) };
        loop {
            let ready = process::readable([signals.as_fd(), channel.as_fd()], None);
            let [signalled, said] = ready.map_err(|error| settings::reason(&error))?;
            if said {
                return Ok(());
            }
            while let Some(received) = signalled.then(|| signals.receive()).flatten() {
                if let signal::SIGTERM | signal::SIGINT | signal::SIGQUIT = received.signal {
                    return Err(format!("signal {} came before it was ready", received.signal));
                }
                later.push(received);
            }
        }
    }

    /// Of one that has ended without a word, which is a crash: how.
    fn silent_end(&self) -> String {
        self.kill(signal::SIGKILL);
        let end = Instant::now() + LATER;
        while Instant::now() < end {
            match process::reap() {
                Some(ended) if ended.pid == self.pid => {
                    return format!("worker process {} {} before it was ready", self.pid, words(ended.how));
                }
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        format!("worker process {} did not start", self.pid)
    }

    /// What it says; `None`: nothing more.
    pub(super) fn receive(&self) -> Option<ServerReply> {
        let message = self.channel.as_ref()?.receive().ok()??;
        ServerReply::decode(&message.bytes)
    }
}

impl ServerSeed {
    /// The first server; when it returns, connections are accepted.
    ///
    /// # Errors
    /// It did not come so far; what it had to say of it, it has said itself.
    pub(super) fn first(&mut self, signals: &Signals) -> Result<(MasterChild, WantsAgent), Vec<String>> {
        let spawned = self.spawn(&mut PendingReload::default());
        let mut child = spawned.map_err(|error| {
            vec![format!("fork() failed while spawning \"worker process\" ({})", settings::reason(&error))]
        })?;
        if let Err(why) = child.await_word(signals, &mut self.early) {
            child.kill(signal::SIGKILL);
            return Err(vec![format!("worker process {} did not start: {why}", child.pid)]);
        }
        match child.receive() {
            Some(ServerReply::Ready(wants)) => {
                child.ready = true;
                Ok((child, wants))
            }
            Some(ServerReply::Failed(_)) => Err(vec![format!("worker process {} did not start", child.pid)]),
            _ => Err(vec![child.silent_end()]),
        }
    }

    /// Forks a server. In the child this does not return.
    ///
    /// # Errors
    /// The errno of fork(2) or socketpair(2).
    pub(super) fn spawn(&mut self, reload: &mut PendingReload) -> io::Result<MasterChild> {
        let (ours, theirs) = ProcessChannel::pair()?;
        let remains = memory("what is left of a crash", CrashRemains::new());
        let lines = memory("lines of logs", SharedRings::new("weir-lines"));
        let zones = memory("zones that outlive a process", survival::memory());
        let _drawn = weir_server::conn::quic_secret();
        match fork()? {
            ForkSide::Parent(pid) => {
                log::cycle(LogLevel::Notice, &format_args!("start worker process {pid}"));
                let child = MasterChild::new("worker process", pid);
                Ok(MasterChild { channel: Some(ours), remains, lines, zones, ..child })
            }
            ForkSide::Child => {
                drop(ours);
                reload.forget();
                let code = server::run(self.bequeath(theirs, SharedMemory { remains, lines, zones }));
                // Nothing of the master's is dropped: its files are still in use.
                std::process::exit(code)
            }
        }
    }

    /// What the child goes on with. Whatever it held besides it would hold open, or in memory after its first reload.
    fn bequeath(&mut self, channel: ProcessChannel, memory: SharedMemory) -> ServerInheritance {
        if let Some(title) = &mut self.title {
            title.set("weir: server");
        }
        let sockets = std::mem::take(&mut self.cycle.sockets);
        sockets.leave_files();
        ServerInheritance {
            configuration: self.cycle.bequeath(),
            sockets,
            control: self.control.take(),
            channel,
            paths: self.paths.clone(),
            remains: memory.remains,
            lines: memory.lines,
            zones: memory.zones,
            zones_before: self.zones_before.take(),
        }
    }
}

/// Memory that a server process has with its master; each is absent if the system had none.
struct SharedMemory {
    remains: Option<CrashRemains>,
    lines: Option<SharedRings>,
    zones: Option<Arc<ZoneFile>>,
}

/// What a server process shares with its master. Without it less is known of a crash; that is no reason not to serve.
fn memory<T>(what: &str, made: io::Result<T>) -> Option<T> {
    made.inspect_err(|error| log::cycle(LogLevel::Warn, &format_args!("no memory for {what}: {error}"))).ok()
}

/// When a process that died is started again: at once, unless that did not help.
#[derive(Default)]
pub(super) struct RespawnTimer {
    /// When; `None`: nothing waits.
    pub(super) at: Option<Instant>,
    /// How often in a row one died soon after its start.
    failures: u32,
}

impl RespawnTimer {
    /// `child` has died, in this way. One that could not build its configuration may have tried that for long.
    pub(super) fn after(&mut self, child: &MasterChild, how: ProcessEnd) {
        let soon = how == ProcessEnd::Exited(UNBUILT) || child.started.elapsed() < SOON;
        self.failures = if soon { self.failures + 1 } else { 0 };
        let delay = delay(self.failures);
        if !delay.is_zero() {
            let (name, ms, times) = (child.name, delay.as_millis(), self.failures);
            let text = format_args!(
                "{name}es died {times} times soon after their start, the next starts in {ms} ms"
            );
            log::cycle(LogLevel::Alert, &text);
        }
        self.at = Some(Instant::now() + delay);
    }
}

fn delay(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        n => (FIRST_DELAY * 2u32.saturating_pow(n - 2)).min(LONGEST_DELAY),
    }
}

/// nginx's words for the end of a process.
pub(super) fn log_end(name: &str, pid: u32, how: ProcessEnd) {
    let level = if let ProcessEnd::Killed(..) = how { LogLevel::Alert } else { LogLevel::Notice };
    log::cycle(level, &format_args!("{name} {pid} {}", words(how)));
}

/// nginx's words for one that could not even begin, and would not another time.
pub(super) fn log_fatal(name: &str, pid: u32) {
    let text = format_args!("{name} {pid} exited with fatal code {FATAL} and cannot be respawned");
    log::cycle(LogLevel::Alert, &text);
}

/// How a process ended.
pub(super) fn words(how: ProcessEnd) -> String {
    match how {
        ProcessEnd::Killed(signal, true) => format!("exited on signal {signal} (core dumped)"),
        ProcessEnd::Killed(signal, false) => format!("exited on signal {signal}"),
        ProcessEnd::Exited(code) => format!("exited with code {code}"),
    }
}

/// A server that lives longer was not killed by its start.
const SOON: Duration = Duration::from_secs(1);
/// When a fork that failed is tried again.
pub(super) const LATER: Duration = Duration::from_secs(1);
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_death_costs_no_time_and_many_cost_little() {
        let ms = |failures| delay(failures).as_millis();
        assert_eq!([ms(0), ms(1), ms(2), ms(3), ms(4), ms(40)], [0, 0, 100, 200, 400, 5000]);
    }
}
