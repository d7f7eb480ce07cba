//! The listening sockets: opened once, retained over reloads, lent to workers as duplicates, passed between processes.
//!
//! An address has one socket, or with `reuseport` as many as there are workers, as has one of QUIC in any case. The only worker accepts from all of
//! them by itself; for several one thread does ([`acceptor`](super::acceptor)), whichever socket the kernel has chosen.
//! A socket is never closed while its `listen` line is there, whatever happens to the number of workers: the kernel
//! would reset what waits in its queue. With more workers than sockets, sockets are added.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use weir_rt::net::{self, ListenOptions, SockAddr};

use super::acceptor::DealtSocket;
use crate::StartError;
use crate::conn::own_socket::SocketUse;
use weir_engine::log::{self, LogLevel};
use weir_engine::settings::listen::{ListenAddress, SocketKey};
use weir_engine::worker::configuration::Configuration;

/// The open sockets of a server. Clones share them; a socket is closed with the last set that has it, once no worker
/// uses it any more.
#[derive(Clone, Default)]
pub struct InheritedSockets {
    groups: Vec<SocketGroup>,
    /// Their places by address: there may be thousands.
    by_addr: HashMap<SocketKey, usize>,
}

/// A socket on its way to another process, or from one.
#[derive(Debug)]
pub struct SocketPart {
    /// The address as configured; what [`InheritedSockets::reopen`] compares with a `listen` line. Of a socket whose
    /// configuration is not known, the address it is bound to.
    pub addr: SockAddr,
    /// Whether its line had `reuseport`.
    pub reuseport: bool,
    /// Which of the address' sockets it is, from 0.
    pub index: usize,
    /// The listening socket.
    pub fd: OwnedFd,
}

/// The accept queue of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketBacklog {
    /// The address, as bound.
    pub addr: SockAddr,
    /// Connections that wait to be accepted, in all of the address' sockets.
    pub waiting: u64,
    /// How many may wait there at once, in all of these sockets.
    pub room: u64,
}

/// The sockets of a server as long as they are open.
#[derive(Default)]
pub(crate) struct ListeningSockets(Vec<(SockAddr, Vec<Weak<OwnedFd>>)>);

impl ListeningSockets {
    pub(crate) fn backlogs(&self) -> Vec<SocketBacklog> {
        let backlog = |(addr, fds): &(SockAddr, Vec<Weak<OwnedFd>>)| {
            let queues = fds.iter().filter_map(Weak::upgrade).map(|fd| net::accept_queue(fd.as_raw_fd()));
            let (waiting, room) = queues.filter_map(Result::ok).fold((0, 0), |(waiting, room), queue| {
                (waiting + u64::from(queue.0), room + u64::from(queue.1))
            });
            (room > 0).then(|| SocketBacklog { addr: addr.clone(), waiting, room })
        };
        self.0.iter().filter_map(backlog).collect()
    }
}

/// The sockets of an address.
#[derive(Clone)]
struct SocketGroup {
    /// As configured.
    addr: SockAddr,
    /// They are of datagrams.
    udp: bool,
    /// As bound.
    bound: SockAddr,
    fds: Vec<Arc<OwnedFd>>,
    reuseport: bool,
    name: Arc<SocketName>,
}

/// What comes to a worker.
#[derive(Default)]
pub(crate) struct WorkerSockets {
    pub(crate) connections: Vec<WorkerSocket>,
    pub(crate) datagrams: Vec<DatagramSocket>,
}

/// A socket whose connections come to a worker, and which address of the configuration it serves.
pub(crate) struct WorkerSocket {
    /// A duplicate of the only worker's own; `None`: another thread accepts, and deals to the workers.
    pub(crate) fd: Option<OwnedFd>,
    pub(crate) address: usize,
    /// Distinguishes sockets; duplicates of one socket have the same.
    pub(crate) cookie: u64,
}

/// A socket of datagrams that a worker reads.
pub(crate) struct DatagramSocket {
    pub(crate) fd: OwnedFd,
    pub(crate) address: usize,
    pub(crate) brings: SocketUse,
    /// As of [`WorkerSocket`].
    pub(crate) cookie: u64,
    /// The cookie of the address' first socket.
    pub(crate) group: u64,
}

impl InheritedSockets {
    /// Opens the sockets that `configuration` listens on; an address with `reuseport` gets one for each of `workers`.
    ///
    /// # Errors
    /// nginx's words for each address that can't be bound, one a line; none is open then.
    pub fn open(configuration: &Configuration, workers: usize) -> Result<InheritedSockets, StartError> {
        InheritedSockets::default().reopen(configuration, workers)
    }

    /// The set for `configuration` and a number of `workers`: what this one has of it, and new sockets for the rest.
    /// This one stays as it is, so a reload that fails goes back to it; what it has and the new one has not is closed
    /// with it.
    ///
    /// # Errors
    /// As [`InheritedSockets::open`].
    pub fn reopen(
        &self,
        configuration: &Configuration,
        workers: usize,
    ) -> Result<InheritedSockets, StartError> {
        let wanted = configuration.addresses.iter().filter(|address| address.wildcard_of.is_none());
        let (mut groups, mut failed) = (Vec::new(), Vec::new());
        for address in wanted {
            let kept = self.find(address).cloned();
            let group = kept.map_or_else(|| SocketGroup::open(address), Ok);
            match group.and_then(|group| group.widen(address, workers)) {
                Ok(group) => groups.push(group),
                Err(error) => failed.push(failure("bind() to", &address.addr, &error)),
            }
        }
        if failed.is_empty() { Ok(Self::of_groups(groups)) } else { Err(StartError(failed.join("\n"))) }
    }

    /// The addresses, as bound: a port 0 has become a real one.
    pub fn addresses(&self) -> Vec<SockAddr> {
        self.groups.iter().map(|group| group.bound.clone()).collect()
    }

    /// References to the sockets that do not keep them open.
    pub(crate) fn listening(&self) -> ListeningSockets {
        let weak =
            |group: &SocketGroup| (group.bound.clone(), group.fds.iter().map(Arc::downgrade).collect());
        ListeningSockets(self.groups.iter().map(weak).collect())
    }

    /// Duplicates of all sockets, for another process.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn export(&self) -> std::io::Result<Vec<SocketPart>> {
        let mut parts = Vec::new();
        for SocketGroup { addr, fds, reuseport, .. } in &self.groups {
            for (index, fd) in fds.iter().enumerate() {
                parts.push(SocketPart {
                    addr: addr.clone(),
                    reuseport: *reuseport,
                    index,
                    fd: fd.try_clone()?,
                });
            }
        }
        Ok(parts)
    }

    /// The set of sockets that another process opened, in any order. The files of unix sockets among them belong to
    /// that process; see [`InheritedSockets::own_files`].
    ///
    /// # Errors
    /// One of them is no socket.
    pub fn import(mut parts: Vec<SocketPart>) -> std::io::Result<InheritedSockets> {
        parts.sort_by_key(|part| part.index);
        let mut sockets = InheritedSockets::default();
        for SocketPart { addr, reuseport, fd, .. } in parts {
            let bound = net::local_addr(fd.as_raw_fd())?;
            let udp = net::is_of_datagrams(fd.as_raw_fd())?;
            let fd = Arc::new(fd);
            match sockets.by_addr.entry((addr, udp)) {
                Entry::Occupied(at) => sockets.groups[*at.get()].fds.push(fd),
                Entry::Vacant(vacant) => {
                    let addr = vacant.key().0.clone();
                    let name = SocketName::new(&addr, false);
                    vacant.insert(sockets.groups.len());
                    sockets.groups.push(SocketGroup { addr, udp, bound, fds: vec![fd], reuseport, name });
                }
            }
        }
        Ok(sockets)
    }

    /// No two are of one address.
    fn of_groups(groups: Vec<SocketGroup>) -> InheritedSockets {
        let by_addr =
            groups.iter().enumerate().map(|(at, group)| ((group.addr.clone(), group.udp), at)).collect();
        InheritedSockets { groups, by_addr }
    }

    /// The files of unix sockets are removed when their sockets are closed. That is so from the start, unless the sockets
    /// were imported. A process that takes over the sockets of another one calls this.
    pub fn own_files(&self) {
        self.groups.iter().for_each(|group| group.name.own.store(true, Relaxed));
    }

    /// The files of unix sockets stay when their sockets are closed: a process that leaves its sockets to another one
    /// calls this.
    pub fn leave_files(&self) {
        self.groups.iter().for_each(|group| group.name.own.store(false, Relaxed));
    }

    fn find(&self, address: &ListenAddress) -> Option<&SocketGroup> {
        self.by_addr.get(&address.key()).map(|at| &self.groups[*at])
    }

    /// The sockets whose connections come to a worker, if there are so many `workers`.
    pub(crate) fn of_worker(
        &self,
        configuration: &Configuration,
        workers: usize,
    ) -> Result<Vec<WorkerSocket>, StartError> {
        let mut sockets = Vec::new();
        for (address, fd) in self.of(configuration, SocketUse::Connections) {
            let cookie = net::cookie(fd.as_raw_fd())?;
            let own = if workers == 1 { Some(fd.try_clone()?) } else { None };
            sockets.push(WorkerSocket { fd: own, address, cookie });
        }
        Ok(sockets)
    }

    /// The sockets of datagrams that the worker `id` reads, if there are so many `workers`. Each is read by one worker, which
    /// depends on nothing but the port, the socket's number among those of its address, and the number of workers: so flows
    /// stay where they are when other addresses come and go.
    pub(crate) fn datagrams_of(
        &self,
        configuration: &Configuration,
        id: usize,
        workers: usize,
    ) -> Result<Vec<DatagramSocket>, StartError> {
        let mut sockets = Vec::new();
        let (mut last, mut index, mut group) = (None, 0, 0);
        let all = [SocketUse::Datagrams, SocketUse::Quic]
            .map(|brings| self.of(configuration, brings).map(move |(address, fd)| (brings, address, fd)));
        for (brings, address, fd) in all.into_iter().flatten() {
            index = if last == Some(address) { index + 1 } else { 0 };
            last = Some(address);
            if index == 0 {
                group = net::cookie(fd.as_raw_fd())?;
            }
            let port = usize::from(configuration.addresses[address].addr.port().unwrap_or(0));
            if (port + index) % workers.max(1) == id {
                let cookie = net::cookie(fd.as_raw_fd())?;
                sockets.push(DatagramSocket { fd: fd.try_clone()?, address, brings, cookie, group });
            }
        }
        Ok(sockets)
    }

    /// The sockets that are accepted from by a thread for all workers.
    pub(crate) fn dealt(&self, configuration: &Configuration) -> Result<Vec<DealtSocket>, StartError> {
        let socket = |(address, fd): (usize, &Arc<OwnedFd>)| {
            let addr = &configuration.addresses[address].addr;
            let unix = addr.to_socket_addr().is_none().then(|| addr.to_string().into());
            Ok(DealtSocket { cookie: net::cookie(fd.as_raw_fd())?, fd: fd.clone(), unix })
        };
        self.of(configuration, SocketUse::Connections).map(socket).collect()
    }

    /// The sockets of this use with the index of their address in the configuration.
    fn of<'a>(
        &'a self,
        configuration: &'a Configuration,
        wanted: SocketUse,
    ) -> impl Iterator<Item = (usize, &'a Arc<OwnedFd>)> {
        configuration.addresses.iter().enumerate().flat_map(move |(index, address)| {
            let is_wanted = address.wildcard_of.is_none() && SocketUse::of(address) == wanted;
            let group = self.find(address).filter(|_| is_wanted);
            group.into_iter().flat_map(move |group| group.fds.iter().map(move |fd| (index, fd)))
        })
    }

    /// Applies what may change of a socket that is open (`backlog=`, `deferred`, ...), once a reload can't fail any
    /// more. As in nginx a refusal is logged and no more.
    pub(crate) fn adjust(&self, configuration: &Configuration) {
        for address in &configuration.addresses {
            let Some(group) = self.find(address).filter(|_| address.wildcard_of.is_none()) else { continue };
            for fd in &group.fds {
                if let Err(error) = net::adjust(fd.as_raw_fd(), &address.options) {
                    let text = failure("listen() to", &address.addr, &error);
                    log::cycle(LogLevel::Alert, &format_args!("{text}, ignored"));
                }
            }
        }
    }
}

impl SocketGroup {
    fn open(address: &ListenAddress) -> std::io::Result<SocketGroup> {
        let fd = listen(address)?;
        // Port 0: further sockets of a reuseport group share what the first got.
        let bound = net::local_addr(fd.as_raw_fd())?;
        Ok(SocketGroup {
            addr: address.addr.clone(),
            udp: address.options.udp,
            bound,
            fds: vec![Arc::new(fd)],
            reuseport: address.options.reuseport,
            name: SocketName::new(&address.addr, true),
        })
    }

    /// With a socket for each worker, if the address has `reuseport`, or is of QUIC: each worker has connections of its own.
    fn widen(mut self, address: &ListenAddress, workers: usize) -> std::io::Result<SocketGroup> {
        // Unix sockets know no groups; nginx accepts the parameter and shares the one socket.
        let reuseport = (address.options.reuseport || address.quic) && address.addr.ip().is_some();
        if reuseport && self.fds.len() < workers {
            for fd in &self.fds {
                net::share_port(fd.as_raw_fd())?;
            }
            let options = ListenOptions { reuseport, ..address.options.clone() };
            while self.fds.len() < workers {
                self.fds.push(Arc::new(net::listen(&self.bound, &options)?));
            }
        }
        self.reuseport = address.options.reuseport;
        Ok(self)
    }
}

/// Listens. A unix socket's file that nothing listens on any more was left by a server that was killed, and is no
/// reason not to start.
fn listen(address: &ListenAddress) -> std::io::Result<OwnedFd> {
    let listen = || net::listen(&address.addr, &address.options);
    match listen() {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && net::remove_stale(&address.addr)? => {
            log::cycle(LogLevel::Notice, &format_args!("removed {}, on which nobody listened", address.addr));
            listen()
        }
        result => result,
    }
}

/// The file of a unix socket; removed when the last set that has the socket is gone, if it is ours.
struct SocketName {
    addr: SockAddr,
    own: AtomicBool,
}

impl SocketName {
    fn new(addr: &SockAddr, own: bool) -> Arc<SocketName> {
        Arc::new(SocketName { addr: addr.clone(), own: AtomicBool::new(own) })
    }
}

impl Drop for SocketName {
    fn drop(&mut self) {
        if self.own.load(Relaxed) {
            // If it is removed already, that is fine.
            let _ = net::unlink(&self.addr);
        }
    }
}

/// nginx's words.
fn failure(call: &str, addr: &SockAddr, error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => format!("{call} {addr} failed ({errno}: {})", weir_rt::file::errno_text(errno)),
        None => format!("{call} {addr} failed ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_engine::conf::{CORE_MODULES, test};

    fn configuration(http: &str) -> Configuration {
        test::load(&format!("events {{ }} http {{ {http} }}"), &CORE_MODULES).expect("valid")
    }

    fn cookies(sockets: &InheritedSockets, conf: &Configuration, workers: usize) -> Vec<u64> {
        let of = sockets.of_worker(conf, workers).expect("descriptors are left");
        of.iter().map(|socket| socket.cookie).collect()
    }

    fn listening(parameters: &str) -> Configuration {
        configuration(&format!("server {{ listen 127.0.0.1:0 {parameters}; }}"))
    }

    #[test]
    fn only_a_single_worker_accepts_by_itself() {
        let conf = listening("");
        let sockets = InheritedSockets::open(&conf, 3).expect("loopback binds");
        let of = |workers| sockets.of_worker(&conf, workers).expect("a socket");
        assert_eq!((of(3).len(), of(1).len()), (1, 1));
        assert!(of(3)[0].fd.is_none() && of(1)[0].fd.is_some());
        let dealt = sockets.dealt(&conf).expect("a socket");
        assert_eq!((dealt.len(), dealt[0].cookie), (1, of(3)[0].cookie));
    }

    #[test]
    fn with_reuseport_no_socket_is_lost_whatever_the_number_of_workers() {
        let conf = listening("reuseport");
        let four = InheritedSockets::open(&conf, 4).expect("loopback binds");
        let all = cookies(&four, &conf, 4);
        assert!(all.len() == 4 && (1..4).all(|at| all[at] != all[0]), "{all:?}");
        let two = four.reopen(&conf, 2).expect("nothing to open");
        assert_eq!(cookies(&two, &conf, 2), all);
        let six = two.reopen(&conf, 6).expect("two more");
        let more = cookies(&six, &conf, 6);
        assert!(more.len() == 6 && more[..4] == all[..], "{more:?}");
        assert_eq!(six.addresses(), four.addresses());
    }

    fn datagrams(
        sockets: &InheritedSockets,
        conf: &Configuration,
        workers: usize,
    ) -> Vec<Vec<(SocketUse, u64)>> {
        let of = |id| sockets.datagrams_of(conf, id, workers).expect("descriptors are left");
        (0..workers).map(|id| of(id).iter().map(|socket| (socket.brings, socket.cookie)).collect()).collect()
    }

    #[test]
    fn each_worker_has_a_socket_of_quic_beside_the_one_of_tcp() {
        let conf = configuration("server { listen 127.0.0.1:0; listen 127.0.0.1:0 quic; }");
        let two = InheritedSockets::open(&conf, 2).expect("loopback binds");
        let of_two = datagrams(&two, &conf, 2);
        let all: Vec<u64> = of_two
            .iter()
            .flatten()
            .map(|(brings, cookie)| {
                assert_eq!(*brings, SocketUse::Quic);
                *cookie
            })
            .collect();
        assert!(of_two.iter().all(|own| own.len() == 1) && all[0] != all[1], "{of_two:?}");
        assert_eq!(cookies(&two, &conf, 2).len(), 1, "that of TCP");
        let four = two.reopen(&conf, 4).expect("two more");
        let of_four = datagrams(&four, &conf, 4);
        assert!(of_four.iter().all(|own| own.len() == 1), "{of_four:?}");
        assert!(all.iter().all(|cookie| of_four.iter().flatten().any(|(_, it)| it == cookie)));
        let one = four.reopen(&conf, 1).expect("nothing to open");
        assert_eq!(datagrams(&one, &conf, 1)[0].len(), 4, "none is closed that clients may send to");
        let theirs = InheritedSockets::import(one.export().expect("descriptors are left")).expect("sockets");
        let same = theirs.reopen(&conf, 1).expect("nothing to open");
        assert_eq!(datagrams(&same, &conf, 1), datagrams(&one, &conf, 1));
    }

    #[test]
    fn a_line_may_gain_and_lose_reuseport() {
        let (plain, reuse) = (listening(""), listening("reuseport"));
        let one = InheritedSockets::open(&plain, 2).expect("loopback binds");
        let two = one.reopen(&reuse, 2).expect("the second joins the first");
        let all = cookies(&two, &reuse, 2);
        assert!(all.len() == 2 && all[0] == cookies(&one, &plain, 1)[0], "{all:?}");
        let back = two.reopen(&plain, 3).expect("nothing to open");
        assert_eq!(cookies(&back, &plain, 3), all);
    }

    #[test]
    fn another_process_gets_the_same_sockets() {
        let conf = listening("reuseport");
        let ours = InheritedSockets::open(&conf, 3).expect("loopback binds");
        let mut parts = ours.export().expect("descriptors are left");
        parts.reverse();
        let theirs = InheritedSockets::import(parts).expect("sockets");
        assert_eq!(cookies(&theirs, &conf, 3), cookies(&ours, &conf, 3));
        assert_eq!(theirs.addresses(), ours.addresses());
        let same = theirs.reopen(&conf, 3).expect("nothing to open");
        assert_eq!(cookies(&same, &conf, 3), cookies(&ours, &conf, 3));
    }

    #[test]
    fn the_file_of_a_unix_socket_goes_with_its_last_owner() {
        let directory = weir_test::TempDir::new();
        let path = directory.path().join("socket");
        let conf = configuration(&format!("server {{ listen unix:{}; }}", path.display()));
        let ours = InheritedSockets::open(&conf, 1).expect("a free name");
        let theirs =
            InheritedSockets::import(ours.export().expect("descriptors are left")).expect("a socket");
        drop(theirs);
        let next = ours.reopen(&conf, 2).expect("nothing to open");
        drop(ours);
        assert!(path.exists());
        drop(next);
        assert!(!path.exists());
    }
}
