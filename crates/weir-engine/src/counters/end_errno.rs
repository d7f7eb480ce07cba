//! What an error of the system says of a connection that ends: one table, for connections of clients and to servers.
//!
//! | errno | it says |
//! |---|---|
//! | `ECONNRESET`, `EPIPE`, `ECONNABORTED`, `ECONNREFUSED` | The other side is there and has reset the connection, or closed it before what was sent had come. |
//! | `EPROTO` | What came is no TLS: the layer above the socket says it, not the kernel. |
//! | all others: `ETIMEDOUT`, `EHOSTUNREACH`, `ENETUNREACH`, `ENETDOWN`, `ENOBUFS`, `EIO`, ... | The kernel gave the connection up, and the other side has said nothing. |

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndErrno {
    /// The other side was first.
    Reset,
    /// The other side sent what is no TLS.
    NoTls,
    /// The network, or this system: the other side has said nothing.
    Lost,
}

impl EndErrno {
    /// What `errno` says.
    pub(crate) fn of(errno: i32) -> EndErrno {
        match errno {
            ECONNRESET | EPIPE | ECONNABORTED | ECONNREFUSED => EndErrno::Reset,
            EPROTO => EndErrno::NoTls,
            _ => EndErrno::Lost,
        }
    }
}

const EPIPE: i32 = 32;
const EPROTO: i32 = 71;
const ECONNABORTED: i32 = 103;
const ECONNRESET: i32 = 104;
const ECONNREFUSED: i32 = 111;

#[cfg(test)]
mod tests {
    use super::super::{CloseReason, UpstreamCloseReason};
    use super::*;

    /// A connection of a client and one to a server that end in the same way are counted in the same way.
    #[test]
    fn clients_and_servers_have_one_table() {
        const ETIMEDOUT: i32 = 110;
        const ENETUNREACH: i32 = 101;
        const EIO: i32 = 5;
        for errno in [EPIPE, ECONNABORTED, ECONNRESET, ECONNREFUSED] {
            assert_eq!(EndErrno::of(errno), EndErrno::Reset);
            assert_eq!(CloseReason::of_errno(errno, CloseReason::ResetIdle), CloseReason::ResetIdle);
            let idle = UpstreamCloseReason::ResetIdle;
            assert_eq!(UpstreamCloseReason::of_errno(errno, idle), idle);
        }
        for errno in [ETIMEDOUT, ENETUNREACH, EIO, 0] {
            assert_eq!(CloseReason::of_errno(errno, CloseReason::Reset), CloseReason::Lost);
            let found = UpstreamCloseReason::of_errno(errno, UpstreamCloseReason::Reset);
            assert_eq!(found, UpstreamCloseReason::Lost, "{errno}");
        }
        assert_eq!(CloseReason::of_errno(EPROTO, CloseReason::Reset), CloseReason::TlsBroken);
        let found = UpstreamCloseReason::of_errno(EPROTO, UpstreamCloseReason::Reset);
        assert_eq!(found, UpstreamCloseReason::BadResponse);
    }
}
