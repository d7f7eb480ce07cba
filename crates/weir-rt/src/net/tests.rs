use super::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::packets;
use crate::sys::recv_stamped;

fn addr(text: &str) -> SockAddr {
    text.parse().expect("valid address")
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

fn port_of(fd: &OwnedFd) -> u16 {
    local_addr(fd.as_raw_fd()).expect("bound").port().expect("inet")
}

/// A client of the listener and the accepted other end.
fn connected(listener: &OwnedFd) -> (TcpStream, OwnedFd) {
    let client = TcpStream::connect(("127.0.0.1", port_of(listener))).expect("listening");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    (client, accept(listener.as_raw_fd()).expect("connected"))
}

fn accept(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: null pointers ask for no address.
    let fd = unsafe { libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
    check(fd)?;
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn option(fd: RawFd, level: c_int, name: c_int) -> c_int {
    let mut value: c_int = 0;
    // SAFETY: the options asked for in these tests give an int.
    unsafe { read_raw(fd, level, name, &mut value) }.expect("known option");
    value
}

#[test]
fn listens_without_blocking_and_says_where() {
    let fd = listen(&addr("127.0.0.1:0"), &ListenOptions::default()).expect("free port");
    assert_ne!(port_of(&fd), 0);
    assert_eq!(errno(accept(fd.as_raw_fd())), Some(libc::EAGAIN));
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags, libc::FD_CLOEXEC);
}

#[test]
fn a_taken_address_keeps_its_errno() {
    let first = listen(&addr("127.0.0.1:0"), &ListenOptions::default()).expect("free port");
    let same = local_addr(first.as_raw_fd()).expect("bound");
    assert_eq!(errno(listen(&same, &ListenOptions::default())), Some(libc::EADDRINUSE));
    assert_eq!(errno(listen(&addr("192.0.2.1:0"), &ListenOptions::default())), Some(libc::EADDRNOTAVAIL));
}

#[test]
fn accepted_sockets_inherit_the_options() {
    let keepalive = TcpKeepalive { on: true, idle: Some(77), interval: Some(5), count: Some(3) };
    let options = ListenOptions {
        keepalive: Some(keepalive),
        rcvbuf: Some(20_000),
        sndbuf: Some(30_000),
        fastopen: Some(16),
        deferred: true,
        ..ListenOptions::default()
    };
    let listener = listen(&addr("127.0.0.1:0"), &options).expect("free port");
    let lfd = listener.as_raw_fd();
    assert!(option(lfd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) > 0);
    assert_eq!(option(lfd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN), 16);
    // Without `deferred`, so that accept need not wait for data.
    start_listening(lfd, &ListenOptions { deferred: false, ..options }).expect("again");
    let (_client, fd) = connected(&listener);
    let fd = fd.as_raw_fd();
    assert_eq!(option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY), 1);
    assert_eq!(option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
    assert_eq!(option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), 77);
    assert_eq!(option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL), 5);
    assert_eq!(option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT), 3);
    assert_eq!(option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF), 40_000, "the kernel doubles it");
    assert_eq!(option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF), 60_000);
}

#[test]
fn ipv6_leaves_ipv4_alone_unless_told() {
    let default = ListenOptions::default();
    let Ok(only) = listen(&addr("[::]:0"), &default) else {
        eprintln!("skipped: no IPv6 here");
        return;
    };
    assert_eq!(option(only.as_raw_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), 1);
    let both = ListenOptions { ipv6only: Some(false), ..default };
    let both = listen(&addr("[::]:0"), &both).expect("IPv6 works");
    let (_client, fd) = connected(&both);
    let peer = peer_addr(fd.as_raw_fd()).expect("connected");
    assert_eq!(peer.host().to_string(), "::ffff:127.0.0.1");
}

#[test]
fn both_ends_have_addresses() {
    let listener = listen(&addr("127.0.0.1:0"), &ListenOptions::default()).expect("free port");
    assert_eq!(errno(peer_addr(listener.as_raw_fd())), Some(libc::ENOTCONN));
    let (client, fd) = connected(&listener);
    let local = client.local_addr().expect("connected").into();
    assert_eq!(peer_addr(fd.as_raw_fd()).expect("connected"), local);
    assert_eq!(local_addr(fd.as_raw_fd()).expect("connected").port(), Some(port_of(&listener)));
    assert_eq!(errno(local_addr(-1)), Some(libc::EBADF));
}

#[test]
fn a_unix_socket_has_the_permissions_that_it_is_given() {
    let path = std::env::temp_dir().join(format!("weir-rt-mode-{}.sock", std::process::id()));
    // A killed process of the same number may have left one.
    let _ = std::fs::remove_file(&path);
    let addr = SockAddr::Unix(UnixAddr::from_path(&path).expect("short"));
    let own = std::fs::metadata("/proc/self").map(|meta| meta.uid());
    let own = (own.ok(), None);
    let options = ListenOptions { mode: 0o600, owner: own, ..ListenOptions::default() };
    let _listener = listen(&addr, &options).expect("new file");
    assert_eq!(std::fs::metadata(&path).expect("created").permissions().mode() & 0o777, 0o600);
    std::fs::remove_file(&path).expect("ours");
}

#[test]
fn a_unix_socket_is_open_to_all_and_never_replaced() {
    let path = std::env::temp_dir().join(format!("weir-rt-net-{}.sock", std::process::id()));
    // A killed process of the same number may have left one.
    let _ = std::fs::remove_file(&path);
    let addr = SockAddr::Unix(UnixAddr::from_path(&path).expect("short"));
    let options = ListenOptions { backlog: 5, ..ListenOptions::default() };
    let listener = listen(&addr, &options).expect("new file");
    assert_eq!(std::fs::metadata(&path).expect("created").permissions().mode() & 0o777, 0o666);
    assert_eq!(local_addr(listener.as_raw_fd()).expect("bound"), addr);
    let _client = UnixStream::connect(&path).expect("listening");
    let fd = accept(listener.as_raw_fd()).expect("connected");
    assert_eq!(peer_addr(fd.as_raw_fd()).expect("connected").to_string(), "unix:");
    assert_eq!(errno(tcp_info(fd.as_raw_fd())), Some(libc::EOPNOTSUPP));
    drop(listener);
    assert_eq!(
        errno(listen(&addr, &options)),
        Some(libc::EADDRINUSE),
        "nobody listens, but the file is there"
    );
    unlink(&addr).expect("ours");
    assert!(!path.exists());
    listen(&addr, &options).expect("new again");
    unlink(&addr).expect("ours");
}

#[test]
fn an_abstract_socket_has_no_file() {
    let addr = addr(&format!("unix:@weir-rt-net-{}", std::process::id()));
    let listener = listen(&addr, &ListenOptions::default()).expect("new name");
    assert_eq!(local_addr(listener.as_raw_fd()).expect("bound"), addr);
    unlink(&addr).expect("nothing to do");
}

#[test]
fn tcp_tells_of_a_connection_and_of_a_queue() {
    let options = ListenOptions { backlog: 7, ..ListenOptions::default() };
    let listener = listen(&addr("127.0.0.1:0"), &options).expect("free port");
    let (mut client, fd) = connected(&listener);
    client.write_all(b"x").expect("connected");
    let info = tcp_info(fd.as_raw_fd()).expect("TCP");
    assert!(info.rtt_us > 0 && info.snd_cwnd > 0 && info.rcv_space > 0, "{info:?}");
    let _waiting = TcpStream::connect(("127.0.0.1", port_of(&listener))).expect("listening");
    assert_eq!(accept_queue(listener.as_raw_fd()).expect("TCP"), (1, 7));
}

#[test]
fn sockets_tell_what_they_hold() {
    let listener = listen(&addr("127.0.0.1:0"), &ListenOptions::default()).expect("free port");
    let (mut client, fd) = connected(&listener);
    assert_eq!(held(fd.as_raw_fd()).expect("TCP"), SocketBytes::default());
    client.write_all(b"12345").expect("connected");
    let until = Instant::now() + Duration::from_secs(30);
    while held(fd.as_raw_fd()).expect("TCP").unread < 5 {
        assert!(Instant::now() < until, "the bytes come");
        std::thread::yield_now();
    }
}

#[test]
fn stamped_packets_say_how_long_they_waited() {
    let listener = listen(&addr("127.0.0.1:0"), &ListenOptions::default()).expect("free port");
    let (mut client, fd) = connected(&listener);
    stamp_packets(fd.as_raw_fd(), true).expect("TCP");
    let mut room = [0u8; 64];
    let until = Instant::now() + Duration::from_secs(30);
    // The kernel begins to stamp when it comes to it.
    loop {
        client.write_all(b"12345").expect("connected");
        // SAFETY: the buffer is ours, of that length, and outlives the call.
        let _ = unsafe { recv_stamped(fd.as_raw_fd(), room.as_mut_ptr(), room.len()) };
        if let [ns, ..] = packets::take()[..] {
            assert!(ns < 30_000_000_000, "{ns}");
            break;
        }
        assert!(Instant::now() < until, "no stamps");
    }
    stamp_packets(fd.as_raw_fd(), false).expect("TCP");
}

#[test]
fn linger_reset_resets() {
    let listener = listen(&addr("127.0.0.1:0"), &ListenOptions::default()).expect("free port");
    let (mut client, fd) = connected(&listener);
    nodelay(fd.as_raw_fd(), false).expect("TCP");
    assert_eq!(socket_error(fd.as_raw_fd()).expect("a socket"), 0);
    linger_reset(fd.as_raw_fd()).expect("TCP");
    drop(fd);
    assert_eq!(errno(client.read(&mut [0; 8])), Some(libc::ECONNRESET));
}

#[test]
fn a_bound_client_chooses_its_address() {
    let listener = listen(&addr("127.0.0.1:0"), &ListenOptions::default()).expect("free port");
    let socket = stream_socket(&addr("127.0.0.1:0")).expect("descriptors");
    bind_address_no_port(socket.as_raw_fd()).expect("inet");
    bind_to(socket.as_raw_fd(), &addr("127.0.0.2:0")).expect("loopback");
    let raw = local_addr(listener.as_raw_fd()).expect("bound").to_raw();
    // SAFETY: `raw` holds `len` initialised bytes.
    let result = unsafe { libc::connect(socket.as_raw_fd(), raw.as_ptr(), raw.len()) };
    assert!(result == 0 || errno(check(result)) == Some(libc::EINPROGRESS));
    let fd = accept(listener.as_raw_fd()).expect("loopback connects at once");
    assert_eq!(peer_addr(fd.as_raw_fd()).expect("connected").host().to_string(), "127.0.0.2");
}

#[test]
fn an_end_is_known_before_anybody_reads() {
    let (mut near, far) = UnixStream::pair().expect("descriptors");
    let fd = far.as_raw_fd();
    assert!(!has_ended(fd));
    near.write_all(b"x").expect("room");
    drop(near);
    assert!(!has_ended(fd), "something is there to read before the end");
    (&far).read_exact(&mut [0]).expect("the byte");
    assert!(has_ended(fd));
    assert!(has_ended(-1));
}

/// What takes the place of the kernel's number where the kernel has no such number distinguishes sockets, too, not their descriptors.
#[test]
fn sockets_have_numbers_of_their_own() {
    let (one, other) = (std::net::UdpSocket::bind("127.0.0.1:0"), std::net::UdpSocket::bind("127.0.0.1:0"));
    let (one, other) = (one.expect("loopback"), other.expect("loopback"));
    let again = one.try_clone().expect("a descriptor");
    for number in [cookie, inode] {
        let of = |socket: &std::net::UdpSocket| number(socket.as_raw_fd()).expect("a socket");
        assert_eq!(of(&one), of(&again));
        assert_ne!(of(&one), of(&other));
    }
    assert!(cookie(-1).is_err() && inode(-1).is_err());
}
