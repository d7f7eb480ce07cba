//! The listening sockets of the process: opened once, kept over reloads, lent to workers as duplicates.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use weir_rt::net::{self, SockAddr};

use super::StartError;
use crate::conf::Configuration;
use crate::conf::listen::Address;

/// The open sockets. Cloning shares them, so a reload that fails leaves the old set as it was.
#[derive(Clone, Default)]
pub(crate) struct Sockets {
    open: Vec<Socket>,
}

#[derive(Clone)]
struct Socket {
    /// As configured: what a reload compares.
    addr: SockAddr,
    /// As bound.
    bound: SockAddr,
    /// One, or one per worker with `reuseport`.
    fds: Arc<[OwnedFd]>,
    reuseport: bool,
}

/// A socket for one worker, and which address of the configuration it serves.
pub(crate) struct WorkerSocket {
    pub(crate) fd: OwnedFd,
    pub(crate) address: usize,
    pub(crate) key: (SockAddr, bool),
}

impl Sockets {
    /// Opens what `configuration` wants and is not open yet.
    pub(crate) fn open(&mut self, configuration: &Configuration, workers: usize) -> Result<(), StartError> {
        let wanted = configuration.addresses.iter().filter(|address| address.wildcard_of.is_none());
        let mut failed = Vec::new();
        for address in wanted {
            if self.find(address).is_some() {
                continue;
            }
            match open(address, workers) {
                Ok(socket) => self.open.push(socket),
                Err(error) => failed.push(failure(&address.addr, &error)),
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(StartError(failed.join("\n"))) }
    }

    /// Forgets sockets that `configuration` does not name; they close when the last worker gave its own back.
    pub(crate) fn retain(&mut self, configuration: &Configuration) {
        self.open.retain(|socket| configuration.addresses.iter().any(|address| socket.serves(address)));
    }

    fn find(&self, address: &Address) -> Option<&Socket> {
        self.open.iter().find(|socket| socket.serves(address))
    }

    /// The sockets that worker `id` accepts from.
    pub(crate) fn of_worker(
        &self,
        configuration: &Configuration,
        id: usize,
    ) -> Result<Vec<WorkerSocket>, StartError> {
        let mut sockets = Vec::new();
        for (index, address) in configuration.addresses.iter().enumerate() {
            let Some(socket) = self.find(address).filter(|_| address.wildcard_of.is_none()) else { continue };
            let fd = &socket.fds[if socket.reuseport { id % socket.fds.len() } else { 0 }];
            let key = (socket.addr.clone(), socket.reuseport);
            sockets.push(WorkerSocket { fd: fd.try_clone()?, address: index, key });
        }
        Ok(sockets)
    }

    pub(crate) fn bound(&self) -> Vec<SockAddr> {
        self.open.iter().map(|socket| socket.bound.clone()).collect()
    }
}

impl Socket {
    fn serves(&self, address: &Address) -> bool {
        self.addr == address.addr && self.reuseport == address.options.reuseport
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A unix socket's name goes with the last user; that somebody removed it already is fine.
        if Arc::strong_count(&self.fds) == 1 {
            let _ = net::unlink(&self.addr);
        }
    }
}

fn open(address: &Address, workers: usize) -> std::io::Result<Socket> {
    let reuseport = address.options.reuseport;
    let count = if reuseport { workers.max(1) } else { 1 };
    let mut fds: Vec<OwnedFd> = Vec::new();
    let mut addr = address.addr.clone();
    for _ in 0..count {
        let fd = net::listen(&addr, &address.options)?;
        // Port 0: the others of a reuseport group share what the first got.
        addr = net::local_addr(std::os::fd::AsRawFd::as_raw_fd(&fd)).unwrap_or(addr);
        fds.push(fd);
    }
    Ok(Socket { addr: address.addr.clone(), bound: addr, fds: fds.into(), reuseport })
}

/// nginx's words.
fn failure(addr: &SockAddr, error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => format!("bind() to {addr} failed ({errno}: {})", weir_rt::file::errno_text(errno)),
        None => format!("bind() to {addr} failed ({error})"),
    }
}
