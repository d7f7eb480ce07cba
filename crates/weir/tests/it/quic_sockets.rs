//! Sockets of QUIC: beside those of TCP, one for each worker, and a port that changes hands. What responds is known by a packet of a
//! version that does not exist: QUIC's servers respond with those that they have.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use weir_test::{Server, TestServerBuilder, both_drivers, wait_for};

use super::support::tls::own;

/// A packet of an unknown version with the length that a response asks for (RFC 9000, section 6.1), from `source`.
fn unknown_version(source: &[u8; 4]) -> Vec<u8> {
    let mut packet = vec![0xc0, 0x5a, 0x5a, 0x5a, 0x5a, 8];
    packet.extend(b"to-weir!");
    packet.push(4);
    packet.extend(source);
    packet.resize(1200, 0);
    packet
}

fn socket(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    socket.connect(to).expect("an address");
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
    socket
}

/// What `to` sends back for `datagram`; it is sent again as long as nothing comes.
fn response(to: SocketAddr, datagram: &[u8]) -> Vec<u8> {
    let socket = socket(to);
    let mut room = [0; 2048];
    for _ in 0..50 {
        socket.send(datagram).expect("loopback takes it");
        if let Ok(length) = socket.recv(&mut room) {
            return room[..length].to_vec();
        }
    }
    panic!("nothing responds on {to}");
}

/// The versions in a response to [`unknown_version`] (RFC 9000, section 17.2.1); `None`: it is something else.
fn versions(response: &[u8], source: &[u8; 4]) -> Option<Vec<u32>> {
    let head = [&[0, 0, 0, 0, 4][..], source, &[8], b"to-weir!"].concat();
    let (first, rest) = response.split_first()?;
    let list = rest.strip_prefix(&head[..]).filter(|_| first & 0x80 != 0)?;
    Some(list.chunks_exact(4).map(|it| u32::from_be_bytes(it.try_into().expect("four bytes"))).collect())
}

fn speaks_quic(to: SocketAddr, source: &[u8; 4]) -> bool {
    versions(&response(to, &unknown_version(source)), source).is_some_and(|all| all.contains(&1))
}

fn builder(text: &str) -> TestServerBuilder {
    let pair = own("localhost");
    Server::builder(text).file("a.crt", &pair.certificate).file("a.key", &pair.key)
}

fn http(server: &str) -> String {
    format!(
        "http {{ ssl_certificate a.crt; ssl_certificate_key a.key; access_log off; server {{ {server} }} }}"
    )
}

both_drivers! {
    fn tcp_and_quic_have_the_same_port_and_each_worker_a_socket(driver) {
        let listen = "listen 127.0.0.1:%%PORT_0%% ssl; listen 127.0.0.1:%%PORT_0%% quic;";
        let text = format!("worker_processes 3; {}", http(listen));
        let server = builder(&text).driver(driver).start();
        let addr = server.addr(0);
        TcpStream::connect(addr).expect("that of TCP");
        // From so many ports that each of the sockets gets some, most probably.
        for client in 0_u32..40 {
            assert!(speaks_quic(addr, &client.to_be_bytes()), "{client}");
        }
    }
}

both_drivers! {
    fn a_port_of_stream_may_become_one_of_quic_and_back(driver) {
        let flows = "stream { server { listen 127.0.0.1:%%PORT_0%% udp; return flows; } }";
        let quic = http("listen 127.0.0.1:%%PORT_0%% quic;");
        let mut server = builder(flows).driver(driver).start();
        let addr = server.addr(0);
        for _ in 0..3 {
            assert_eq!(response(addr, b"x"), b"flows");
            server.reload(&quic);
            wait_for("response of QUIC", || speaks_quic(addr, b"abcd").then_some(()));
            server.reload(flows);
            wait_for("response of the flow", || (response(addr, b"x") == b"flows").then_some(()));
        }
        assert_eq!(server.quit().status.code(), Some(0));
    }
}
