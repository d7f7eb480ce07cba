//! A connection to a server.

use std::io;

use weir_rt::net::SockAddr;
use weir_rt::{Recv, Stream, Timer};

/// A connection to a server, while it is used or kept.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// Armed while something is waited for.
    pub(crate) timer: Timer,
    /// Requests it has taken.
    pub(crate) requests: u64,
    /// It has answered before.
    pub(crate) reused: bool,
    opened: u64,
    /// Bytes sent before the current request.
    pub(crate) sent_before: u64,
}

impl Connection {
    /// Connects; the timer runs until the connection stands.
    ///
    /// # Errors
    /// The errno of the call that failed; `TimedOut` when the timer expired first.
    pub(crate) async fn open(addr: &SockAddr, local: Option<&SockAddr>, ms: u64) -> io::Result<Connection> {
        let timer = Timer::new();
        timer.arm(ms);
        let socket = weir_rt::net::stream_socket(addr)?;
        if let Some(local) = local {
            super::request::bind(&socket, local)?;
        }
        let connect = Stream::connect_with(socket, addr);
        let stream = match crate::server::notify::either(connect, timer.wait()).await {
            Some(connected) => connected?,
            None => return Err(io::ErrorKind::TimedOut.into()),
        };
        Ok(Connection {
            stream,
            timer,
            requests: 0,
            reused: false,
            opened: weir_rt::now_ms(),
            sent_before: 0,
        })
    }

    /// Nothing has come since the last answer, and the server has not closed it.
    pub(crate) fn is_good(&self) -> bool {
        self.stream.error().is_none()
            && !self.stream.is_eof()
            && self.stream.unsent() == 0
            && self.is_silent()
    }

    /// A byte that nobody asked for makes the connection useless, and taking it away shows that.
    fn is_silent(&self) -> bool {
        !matches!(self.stream.try_recv(), Some(Recv::Data(_) | Recv::Eof | Recv::Err(_)))
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
