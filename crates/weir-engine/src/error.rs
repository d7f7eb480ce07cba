//! What goes wrong while a request is processed: whose fault it is, and what may be done.

use std::fmt;

/// An error, small enough to be copied; it is logged once, where it is turned into a verdict or ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineError {
    /// What has failed.
    pub kind: EngineErrorKind,
    /// Whose fault it is.
    pub side: FaultSide,
    /// The system's number where there is one.
    pub errno: Option<i32>,
}

/// What has failed; with the side it gives the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineErrorKind {
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
    /// A script of the configuration failed; the error log has its message.
    Script,
    /// A filter could not change what it was given; the error log has its message.
    Filter,
    /// A bug of Weir's.
    Internal,
}

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultSide {
    /// The client's.
    Client,
    /// The upstream's.
    Upstream,
    /// This server's.
    Server,
}

impl EngineError {
    /// The client closed its connection.
    pub const CLIENT_CLOSED: EngineError =
        EngineError { kind: EngineErrorKind::Closed, side: FaultSide::Client, errno: None };
    /// The client was too slow.
    pub(crate) const CLIENT_TIMED_OUT: EngineError =
        EngineError { kind: EngineErrorKind::TimedOut, side: FaultSide::Client, errno: None };

    /// The error of a file operation that failed with `errno`; `None` if the file was cut short.
    pub fn file(errno: Option<i32>) -> EngineError {
        EngineError { kind: EngineErrorKind::File, side: FaultSide::Server, errno }
    }

    /// The status of the response, if nothing was sent yet.
    pub fn status(self) -> u16 {
        match (self.side, self.kind) {
            (FaultSide::Client, EngineErrorKind::Closed) => 499,
            (FaultSide::Client, EngineErrorKind::TimedOut) => 408,
            (FaultSide::Client, EngineErrorKind::TooLarge) => 413,
            (FaultSide::Client, _) => 400,
            (FaultSide::Upstream, EngineErrorKind::TimedOut) => 504,
            (FaultSide::Upstream, _) => 502,
            (FaultSide::Server, _) => 500,
        }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            FaultSide::Client => "client",
            FaultSide::Upstream => "upstream",
            FaultSide::Server => "server",
        };
        let kind = match self.kind {
            EngineErrorKind::Closed => "connection closed",
            EngineErrorKind::TimedOut => "timed out",
            EngineErrorKind::Protocol => "protocol error",
            EngineErrorKind::TooLarge => "too large",
            EngineErrorKind::File => "file error",
            EngineErrorKind::Script => "script failed",
            EngineErrorKind::Filter => "filter failed",
            EngineErrorKind::Internal => "internal error",
        };
        write!(f, "{side}: {kind}")?;
        match self.errno {
            Some(errno) => write!(f, " ({errno}: {})", weir_rt::file::errno_text(errno)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for EngineError {}

impl From<weir_rt::SendError> for EngineError {
    fn from(error: weir_rt::SendError) -> EngineError {
        match error {
            weir_rt::SendError::TimedOut => EngineError::CLIENT_TIMED_OUT,
            weir_rt::SendError::Closed(errno) => {
                EngineError { errno: Some(errno), ..EngineError::CLIENT_CLOSED }
            }
            weir_rt::SendError::File(errno) => EngineError::file(Some(errno)),
            weir_rt::SendError::Truncated => EngineError::file(None),
        }
    }
}
