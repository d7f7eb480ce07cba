//! What goes wrong while a request is answered: whose fault it is, and what may be done.

use std::fmt;

/// An error, small enough to be copied; it is logged once, where it is turned into a verdict or ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What happened.
    pub kind: Kind,
    /// Whose fault it is.
    pub side: Side,
    /// The system's number where there is one.
    pub errno: Option<i32>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The peer closed or reset its connection.
    Closed,
    /// Nothing came, or nothing left, in time.
    TimedOut,
    /// What came breaks the protocol.
    Protocol,
    /// A limit of the configuration is exceeded.
    TooLarge,
    /// A file could not be read or written, or was cut short.
    File,
    /// A bug of Weir's.
    Internal,
}

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client's.
    Client,
    /// The upstream's.
    Upstream,
    /// This server's.
    Server,
}

impl Error {
    /// The client closed its connection.
    pub const CLIENT_CLOSED: Error = Error { kind: Kind::Closed, side: Side::Client, errno: None };
    /// The client was too slow.
    pub const CLIENT_TIMED_OUT: Error = Error { kind: Kind::TimedOut, side: Side::Client, errno: None };

    /// A file operation failed.
    pub fn file(errno: Option<i32>) -> Error {
        Error { kind: Kind::File, side: Side::Server, errno }
    }

    /// The status that answers it when nothing was sent yet.
    pub fn status(self) -> u16 {
        match (self.side, self.kind) {
            (Side::Client, Kind::Closed) => 499,
            (Side::Client, Kind::TimedOut) => 408,
            (Side::Client, Kind::TooLarge) => 413,
            (Side::Client, _) => 400,
            (Side::Upstream, Kind::TimedOut) => 504,
            (Side::Upstream, _) => 502,
            (Side::Server, _) => 500,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Client => "client",
            Side::Upstream => "upstream",
            Side::Server => "server",
        };
        let kind = match self.kind {
            Kind::Closed => "connection closed",
            Kind::TimedOut => "timed out",
            Kind::Protocol => "protocol error",
            Kind::TooLarge => "too large",
            Kind::File => "file error",
            Kind::Internal => "internal error",
        };
        write!(f, "{side}: {kind}")?;
        match self.errno {
            Some(errno) => write!(f, " ({errno}: {})", weir_rt::file::errno_text(errno)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl From<weir_rt::SendError> for Error {
    fn from(error: weir_rt::SendError) -> Error {
        match error {
            weir_rt::SendError::TimedOut => Error::CLIENT_TIMED_OUT,
            weir_rt::SendError::Closed(errno) => Error { errno: Some(errno), ..Error::CLIENT_CLOSED },
            weir_rt::SendError::Truncated => Error::file(None),
        }
    }
}
