//! Reports the server's state to systemd (sd_notify(3)): one datagram a state.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use weir_engine::log::{self, LogLevel};
use weir_rt::clock;

/// The socket of the service manager; `None` without `NOTIFY_SOCKET`.
pub(crate) struct NotifySocket {
    socket: Option<(UnixDatagram, SocketAddr)>,
}

impl NotifySocket {
    /// Reads `NOTIFY_SOCKET`, which may be a path or, after an `@`, an abstract name.
    pub(crate) fn from_environment() -> NotifySocket {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return NotifySocket { socket: None } };
        match open(&name) {
            Ok(socket) => NotifySocket { socket: Some(socket) },
            Err(error) => {
                log::cycle(
                    LogLevel::Warn,
                    &format_args!("NOTIFY_SOCKET {} can't be used: {error}", name.display()),
                );
                NotifySocket { socket: None }
            }
        }
    }

    /// Connections are accepted, by this process and those below it.
    pub(crate) fn ready(&self) {
        self.send(&format!("READY=1\nMAINPID={}\nSTATUS=Serving", std::process::id()));
    }

    /// A reload has begun; [`NotifySocket::ready`] ends it.
    pub(crate) fn reloading(&self) {
        let now = clock::monotonic_ns() / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now}\nSTATUS=Reading the configuration"));
    }

    /// A reload came to nothing; the server goes on.
    pub(crate) fn unchanged(&self) {
        self.send("READY=1\nSTATUS=Serving; the last reload failed, see the error log");
    }

    /// The end has begun.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=Ending");
    }

    /// The process `pid` goes on in place of this one.
    pub(crate) fn successor(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}"));
    }

    fn send(&self, state: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            log::cycle(LogLevel::Warn, &format_args!("systemd can't be told: {error}"));
        }
    }
}

fn open(name: &OsString) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // systemd reads at once; a full queue must not hold the server up.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}
