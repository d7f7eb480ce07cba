//! Socket options that `std` does not offer.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// Makes the next close of `socket` abortive: SO_LINGER with a time of 0 seconds, so that the peer sees a RST
/// instead of a FIN and unsent data is thrown away.
///
/// # Errors
/// The error of setsockopt(2); `ENOTSOCK` when the descriptor is not a socket.
pub fn set_linger_zero(socket: &impl AsFd) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the descriptor is borrowed, hence open, for the whole call; `linger` lives on this stack frame and the
    // kernel reads exactly the `size_of` bytes announced, keeping no pointer.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The process at the other end of a unix stream socket, as the kernel noted when it was connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProcess {
    /// The process id.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// The peer of a connected unix stream socket: SO_PEERCRED, unix(7).
///
/// # Errors
/// The error of getsockopt(2); `ENOTSOCK` when the descriptor is not a socket.
pub fn peer(socket: &impl AsFd) -> io::Result<PeerProcess> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed, hence open, for the whole call; `peer` and `len` live on this stack frame,
    // `len` is the size of `peer`, and the kernel writes no more than that and keeps no pointer.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    match failed {
        0 => Ok(PeerProcess { pid: peer.pid, uid: peer.uid, gid: peer.gid }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The effective user of this process.
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: takes no pointer and always succeeds.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_peer_of_a_lingering_zero_close_sees_a_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback binds");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (mut server, _) = listener.accept().expect("one is waiting");
        set_linger_zero(&client).expect("a TCP socket lingers");
        drop(client);
        let error = server.read(&mut [0; 1]).expect_err("a FIN would read as Ok(0)");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn both_ends_of_a_pair_are_this_process() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let peer = peer(&one).expect("a unix socket");
        assert_eq!((peer.pid.cast_unsigned(), peer.uid), (std::process::id(), effective_user()));
    }

    #[test]
    fn a_descriptor_that_is_no_socket_is_an_error() {
        let file = std::fs::File::open("/dev/null").expect("always there");
        assert_eq!(peer(&file).expect_err("no socket").raw_os_error(), Some(libc::ENOTSOCK));
        let error = set_linger_zero(&file).expect_err("no socket");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK));
    }
}
