//! A server whose master is gone: killed by SIGKILL, by hand or for want of memory. It serves on (`master_gone`), takes signals
//! by itself and through `weir -s`, and hands its listening sockets to the next master, over the control socket. That one is the
//! only party that speaks: nothing of a process is done for what a number in a file says.
//!
//! The question is `orphan` with `take` or `signal=NUMBER`; the reply is one message: the server's process id as text, which is
//! empty when there is a master, and for `take` the sockets. Whoever took them may say [`QUIT`] later.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_engine::log::{self, LogLevel};
use weir_rt::net::{SockAddr, UnixAddr};
use weir_rt::process::{self, ProcessChannel};
use weir_rt::signal;
use weir_see::control::protocol::ControlQuestion;
use weir_server::InheritedSockets;
use weir_sys::socket::{self, PeerProcess};

use crate::{pid, settings};

/// The server's side: what it has to give while it has no master, and nothing before.
#[derive(Clone, Default)]
pub(crate) struct OrphanOffer(Arc<Mutex<Option<OrphanedSockets>>>);

struct OrphanedSockets {
    sockets: InheritedSockets,
    /// The user whom the master ran as, who may have them besides root.
    user: u32,
}

impl OrphanOffer {
    /// From now on there is no master, which ran as `user`.
    pub(crate) fn make(&self, sockets: InheritedSockets, user: u32) {
        // Nobody else is left who would remove the files of unix sockets.
        sockets.own_files();
        *self.state() = Some(OrphanedSockets { sockets, user });
    }

    /// The server ends: its sockets close with it.
    pub(crate) fn withdraw(&self) {
        *self.state() = None;
    }

    fn state(&self) -> MutexGuard<'_, Option<OrphanedSockets>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Responds to the question `orphan`; `None` for others.
    pub(crate) fn respond(
        &self,
        question: &ControlQuestion,
        peer: PeerProcess,
        stream: &UnixStream,
    ) -> Option<()> {
        if question.verb != VERB {
            return None;
        }
        let done = stream
            .try_clone()
            .and_then(|stream| ProcessChannel::over(stream, PATIENCE))
            .and_then(|channel| self.converse(question, peer, &channel));
        if let Err(error) = done {
            log::cycle(
                LogLevel::Warn,
                &format_args!("a master process broke off: {}", settings::reason(&error)),
            );
        }
        Some(())
    }

    fn converse(
        &self,
        question: &ControlQuestion,
        peer: PeerProcess,
        channel: &ProcessChannel,
    ) -> io::Result<()> {
        let taken = self.taken(question.has(TAKE), peer)?;
        let Some(fds) = taken else { return channel.send(b"", &[]) };
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        channel.send(process::pid().to_string().as_bytes(), &fds)?;
        if let Ok(number @ 1..) = question.number(SIGNAL, 0) {
            return raise(number as i32);
        }
        let word = if question.has(TAKE) { channel.receive_patiently()? } else { None };
        match word {
            Some(word) if word.bytes == QUIT => raise(signal::SIGQUIT),
            // It came to nothing; the next one may take them as well.
            _ => Ok(()),
        }
    }

    /// Duplicates of the sockets, if they are to be `taken`; `None`: there is a master, or this is none of his.
    fn taken(&self, taken: bool, peer: PeerProcess) -> io::Result<Option<Vec<OwnedFd>>> {
        let state = self.state();
        let Some(OrphanedSockets { sockets, user }) = state.as_ref() else { return Ok(None) };
        if peer.uid != 0 && peer.uid != *user {
            log::cycle(
                LogLevel::Warn,
                &format_args!("user {} is not whose the master process was", peer.uid),
            );
            return Ok(None);
        }
        if !taken {
            return Ok(Some(Vec::new()));
        }
        log::cycle(LogLevel::Notice, &format_args!("process {} takes the listening sockets over", peer.pid));
        sockets.leave_files();
        Ok(Some(sockets.export()?.into_iter().map(|part| part.fd).collect()))
    }
}

/// Sends this process a signal, as if from outside: its main thread takes it.
fn raise(number: i32) -> io::Result<()> {
    signal::kill(process::pid() as i32, number)
}

/// The next master's side: a server without a master, and its sockets.
pub(crate) struct OrphanServer {
    channel: ProcessChannel,
    /// Its process id, for the log.
    pub(crate) pid: String,
    /// Its listening sockets.
    pub(crate) sockets: Vec<OwnedFd>,
}

impl OrphanServer {
    /// The server without a master that belongs to this pid file, if there is one.
    pub(crate) fn find(pid_file: &Path) -> Option<OrphanServer> {
        ask(pid_file, &ControlQuestion::new(VERB).with(TAKE, 1))
    }

    /// Its successor accepts connections: it ends with its last request.
    pub(crate) fn dismiss(self) {
        if let Err(error) = self.channel.send(QUIT, &[]) {
            let reason = settings::reason(&error);
            let pid = self.pid;
            log::cycle(
                LogLevel::Alert,
                &format_args!("server process {pid} can't be asked to end ({reason})"),
            );
        }
    }
}

/// Has the server without a master that belongs to this pid file do what the signal says; whether there is one.
pub(crate) fn signalled(pid_file: &Path, number: i32) -> bool {
    ask(pid_file, &ControlQuestion::new(VERB).with(SIGNAL, number)).is_some()
}

/// Whether there is a server without a master that belongs to this pid file.
pub(crate) fn is_there(pid_file: &Path) -> bool {
    ask(pid_file, &ControlQuestion::new(VERB)).is_some()
}

/// What cannot be asked, or responds otherwise, is no such server: an older version, or a server with its master.
fn ask(pid_file: &Path, question: &ControlQuestion) -> Option<OrphanServer> {
    let addr = SockAddr::Unix(UnixAddr::from_path(&pid::socket(pid_file)).ok()?);
    let channel = ProcessChannel::connect(&addr, PATIENCE).ok()?;
    // The kernel keeps who called listen(2): the master that is gone. Nobody else's server is taken over.
    let maker = socket::peer(&channel).ok()?;
    if maker.uid != socket::effective_user() && maker.uid != 0 {
        return None;
    }
    channel.stream().write_all(question.line().as_bytes()).ok()?;
    let message = channel.receive().ok()??;
    let pid = String::from_utf8(message.bytes).ok().filter(|pid| pid.parse::<u32>().is_ok())?;
    Some(OrphanServer { channel, pid, sockets: message.fds })
}

const VERB: &str = "orphan";
const TAKE: &str = "take";
const SIGNAL: &str = "signal";
/// What the next master says when it serves.
const QUIT: &[u8] = b"quit";
/// How long the other side may take.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use weir_test::TempDir;

    use super::*;

    /// What comes of a question by a process of the user `uid`: the id, and whether the conversation ended well.
    fn asked(offer: &OrphanOffer, question: &ControlQuestion, uid: u32) -> Option<String> {
        let (ours, theirs) = UnixStream::pair().expect("descriptors");
        let peer = PeerProcess { pid: 1, uid, gid: 1 };
        let channel = ProcessChannel::over(ours, PATIENCE).expect("a socket");
        std::thread::scope(|scope| {
            let responding = scope.spawn(|| offer.respond(question, peer, &theirs));
            let message = channel.receive().expect("a message").map(|message| message.bytes);
            drop(channel);
            assert!(responding.join().expect("no panic").is_some());
            message.and_then(|bytes| String::from_utf8(bytes).ok())
        })
    }

    #[test]
    fn only_root_and_the_master_s_user_have_the_sockets_and_only_of_an_orphan() {
        let offer = OrphanOffer::default();
        let take = ControlQuestion::new(VERB).with(TAKE, 1);
        assert_eq!(asked(&offer, &take, 0).as_deref(), Some(""), "there is a master");
        offer.make(InheritedSockets::default(), 1000);
        let own = process::pid().to_string();
        for (uid, said) in [(0, &*own), (1000, &own), (1001, ""), (65_534, "")] {
            assert_eq!(asked(&offer, &take, uid).as_deref(), Some(said), "{uid}");
        }
        offer.withdraw();
        assert_eq!(asked(&offer, &take, 0).as_deref(), Some(""), "it ends");
        let (stream, _other) = UnixStream::pair().expect("descriptors");
        let peer = PeerProcess { pid: 1, uid: 0, gid: 0 };
        assert_eq!(offer.respond(&ControlQuestion::new("top"), peer, &stream), None);
    }

    /// What is there but no server, or an older one, is none without a master.
    #[test]
    fn what_responds_otherwise_is_no_orphan() {
        let directory = TempDir::new();
        let file = directory.path().join("x.pid");
        assert!(!is_there(&file));
        for reply in
            [&b"fail 5\nwrong"[..], b"", &[0xff; 40], &[0; 16], b"\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0-1"]
        {
            let _ = std::fs::remove_file(pid::socket(&file));
            let listener = std::os::unix::net::UnixListener::bind(pid::socket(&file)).expect("a fresh name");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().expect("a client");
                    let _ = stream.write_all(reply);
                });
                assert!(!is_there(&file), "{reply:?}");
            });
        }
    }
}
