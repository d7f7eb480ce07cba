//! A connection to a server.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use weir_rt::net::{SockAddr, SocketOption, TcpKeepalive};
use weir_rt::notify::either;
use weir_rt::{RecvOutcome, SocketAccount, Stream, Timer};

use crate::connection::parked::ParkedSocket;
use crate::peer::Peer;
use crate::tls_client::SecureUpstream;
use crate::tls_client::tls_facts::UpstreamTlsFacts;
use weir_engine::descriptors::{datagrams_when_free, socket_when_free};
use weir_engine::worker::{UpstreamCloseProtocol, UpstreamCloseReason, UpstreamEnd};

/// A connection to a server, while it is used or kept alive.
pub struct UpstreamConnection {
    /// The socket, or the TLS layer on it.
    pub stream: Stream,
    /// Armed while something is waited for.
    pub timer: Timer,
    /// Requests it has taken.
    pub(crate) requests: u64,
    /// True when it has carried a response before.
    pub(crate) reused: bool,
    opened: u64,
    /// Milliseconds it was idle before the current request.
    pub(crate) idle: u64,
    /// Bytes sent before the current request.
    pub(crate) sent_before: u64,
    /// Its TLS.
    pub(crate) secure: Option<SecureUpstream>,
    /// What came of its handshake.
    pub(crate) tls: OnceCell<Rc<UpstreamTlsFacts>>,
    /// How it is kept alive, where that differs from its upstream's settings; `None` as those.
    pub(crate) own: Option<OwnKeepalive>,
    /// Why it ends.
    pub end: UpstreamEnd,
}

/// How a connection is kept alive that a chooser has decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnKeepalive {
    /// Milliseconds it may be idle.
    pub timeout: u64,
    /// Requests after which it is closed.
    pub requests: u64,
}

/// What a socket is given before it connects.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectOptions<'a> {
    /// Its own address.
    pub(crate) local: Option<&'a SockAddr>,
    /// That need not be this machine's.
    pub(crate) transparent: bool,
    /// `SO_RCVBUF` in bytes; `None`: the kernel's own measure.
    pub(crate) rcvbuf: Option<u64>,
    /// `SO_SNDBUF` likewise.
    pub(crate) sndbuf: Option<u64>,
    /// `tcp_nodelay`: small messages of a stream or tunnel leave at once, though what left before is not acknowledged; else each
    /// waits for 40 ms where both ends talk by turns. One system call for a connection.
    pub(crate) nodelay: bool,
    /// Datagrams are sent: UDP.
    pub(crate) udp: bool,
}

impl ConnectOptions<'_> {
    fn apply(&self, socket: &OwnedFd, addr: &SockAddr) -> io::Result<()> {
        if self.nodelay && !self.udp && !matches!(addr, SockAddr::Unix(_)) {
            weir_rt::net::nodelay(socket.as_raw_fd(), true)?;
        }
        let buffers = [(SocketOption::ReceiveBuffer, self.rcvbuf), (SocketOption::SendBuffer, self.sndbuf)];
        for (option, bytes) in buffers {
            if let Some(bytes) = bytes {
                let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
                weir_rt::net::set_option(socket.as_raw_fd(), option, bytes)?;
            }
        }
        let Some(local) = self.local else { return Ok(()) };
        if self.transparent {
            weir_rt::net::transparent(socket.as_raw_fd(), local)?;
        }
        bind(socket, local)
    }
}

impl UpstreamConnection {
    /// Connects, to speak `protocol`; the timer runs until the connection is established.
    ///
    /// # Errors
    /// The errno of the call that failed; `TimedOut` when the timer expired first.
    pub async fn open(
        protocol: UpstreamCloseProtocol,
        addr: &SockAddr,
        how: &ConnectOptions<'_>,
        ms: u64,
    ) -> io::Result<UpstreamConnection> {
        let timer = Timer::new();
        timer.arm(ms);
        let connect = async {
            if how.udp {
                let socket = datagrams_when_free(addr).await?;
                how.apply(&socket, addr)?;
                return Stream::connect_datagrams(socket, addr);
            }
            let socket = socket_when_free(addr).await?;
            how.apply(&socket, addr)?;
            Stream::connect_with(socket, addr).await
        };
        let stream = match either(connect, timer.wait()).await {
            Some(connected) => connected?,
            None => return Err(io::ErrorKind::TimedOut.into()),
        };
        Ok(UpstreamConnection {
            stream,
            timer,
            requests: 0,
            reused: false,
            opened: weir_rt::now_ms(),
            idle: 0,
            sent_before: 0,
            secure: None,
            tls: OnceCell::new(),
            own: None,
            end: UpstreamEnd::of(protocol),
        })
    }

    /// Takes it from this worker's event loop, for any worker to use; `None`: it is of no use.
    pub(crate) async fn park(self, peer: &Peer, since: u64) -> Option<ParkedSocket> {
        let UpstreamConnection { stream, requests, opened, end, .. } = self;
        let (addr, bind, state) = (peer.addr.clone(), peer.bind.clone(), peer.state.clone());
        let Ok((fd, unasked)) = stream.into_fd().await else {
            end.ends(UpstreamCloseReason::ResetIdle);
            return None;
        };
        if !unasked.is_empty() {
            end.ends(UpstreamCloseReason::Spoke);
            return None;
        }
        Some(ParkedSocket { fd, addr, bind, state, requests, opened, since, end })
    }

    /// Takes it over, on this worker; `None`: the event loop has no room.
    pub(crate) fn unpark(parked: ParkedSocket) -> Option<Box<UpstreamConnection>> {
        let ParkedSocket { fd, requests, opened, end, .. } = parked;
        let stream = Stream::from_fd(fd).ok()?;
        let sent_before = stream.sent();
        Some(Box::new(UpstreamConnection {
            stream,
            timer: Timer::new(),
            requests,
            reused: true,
            opened,
            idle: 0,
            sent_before,
            secure: None,
            tls: OnceCell::new(),
            own: None,
            end,
        }))
    }

    /// Bytes of memory that it takes, its socket and its layer among them.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<UpstreamConnection>()
            + self.stream.held_bytes()
            + self.tls.get().map_or(0, |tls| tls.held_bytes())
    }

    /// A request begins; `client` pays for what the kernel does.
    pub(crate) fn begin(&mut self, client: Option<SocketAccount>) {
        self.stream.charge_to(client);
        self.sent_before = self.stream.sent();
        self.requests += 1;
    }

    /// Nothing has come since the last response, and the server has not closed it; else why it ends is noted.
    pub(crate) fn is_good(&self) -> bool {
        match self.fault() {
            None => true,
            Some(reason) => {
                self.end.ends(reason);
                false
            }
        }
    }

    /// Why it takes no further request. An unexpected byte makes it useless, and taking it away shows that.
    #[inline]
    fn fault(&self) -> Option<UpstreamCloseReason> {
        let lost = |errno| UpstreamCloseReason::of_errno(errno, UpstreamCloseReason::ResetIdle);
        if let Some(errno) = self.stream.error() {
            return Some(lost(errno));
        }
        if self.stream.is_eof() {
            return Some(UpstreamCloseReason::Idle);
        }
        if self.stream.unsent() > 0 {
            return Some(UpstreamCloseReason::RequestUnsent);
        }
        match self.stream.try_recv() {
            Some(RecvOutcome::Data(_)) => Some(UpstreamCloseReason::Spoke),
            Some(RecvOutcome::Eof) => Some(UpstreamCloseReason::Idle),
            Some(RecvOutcome::Err(errno)) => Some(lost(errno)),
            Some(RecvOutcome::TimedOut) | None => None,
        }
    }

    /// It stays on its worker: it has state that can't leave.
    pub(crate) fn is_bound(&self) -> bool {
        self.stream.has_layer() || self.own.is_some()
    }

    /// Milliseconds since it was opened.
    pub(crate) fn age(&self) -> u64 {
        weir_rt::now_ms().saturating_sub(self.opened)
    }

    /// Bytes of the current request that were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.stream.sent().saturating_sub(self.sent_before)
    }
}

/// Binds a socket that is to connect.
pub(crate) fn bind(socket: &OwnedFd, local: &SockAddr) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    if local.port() == Some(0) {
        // Older kernels choose the port at once, and then there are fewer of them: no reason not to go on.
        let _ = weir_rt::net::bind_address_no_port(socket.as_raw_fd());
    }
    weir_rt::net::bind_to(socket.as_raw_fd(), local)
}

/// `*_socket_keepalive`
pub(crate) fn probe(connection: &UpstreamConnection) {
    let on = TcpKeepalive { on: true, ..TcpKeepalive::default() };
    // A connection that can't be probed serves all the same.
    let _ = weir_rt::net::keepalive(connection.stream.fd(), &on);
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn sockets_send_small_messages_at_once_unless_told_otherwise() {
        let addr = SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
        for nodelay in [true, false] {
            let socket = weir_rt::net::stream_socket(&addr).expect("a socket");
            let how = ConnectOptions { nodelay, ..ConnectOptions::default() };
            how.apply(&socket, &addr).expect("TCP has the option");
            assert_eq!(TcpStream::from(socket).nodelay().expect("a socket"), nodelay);
        }
    }
}
