use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use super::*;
use weir_engine::transport::sharing::SharingFrame;
use weir_test::wait_for;

/// What was delivered in this process, by any of its sockets.
static DELIVERED: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn deliver(datagram: SharedDatagram<&[u8]>) {
    lock(&DELIVERED).push(datagram.bytes.to_vec());
}

fn enter(group: u64) -> SharedSocket {
    SharedSocket::enter(group, &SockAddr::UNSPECIFIED, deliver, || {})
}

/// A number that no other test has, nor another run.
fn group() -> u64 {
    u64::from_be_bytes(weir_tls::random_bytes().expect("random bytes"))
}

fn name(group: u64) -> SocketAddr {
    SocketAddr::from_abstract_name(format!("weir-sockets-{group:x}")).expect("a short name")
}

/// Another process, as far as this one sees.
struct OtherProcess {
    socket: UnixStream,
    bytes: Vec<u8>,
}

impl OtherProcess {
    fn connect(group: u64) -> OtherProcess {
        let socket = wait_for("a name", || UnixStream::connect_addr(&name(group)).ok());
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        OtherProcess { socket, bytes: Vec::new() }
    }

    fn say(&mut self, frame: &SharingFrame) {
        self.socket.write_all(&frame.write()).expect("it listens");
    }

    /// `None`: it has closed.
    fn hear(&mut self) -> Option<SharingFrame> {
        loop {
            if let Some((frame, length)) = SharingFrame::read(&self.bytes).expect("a frame") {
                self.bytes.drain(..length);
                return Some(frame);
            }
            let mut room = [0; 4096];
            match self.socket.read(&mut room).unwrap_or(0) {
                0 => return None,
                length => self.bytes.extend_from_slice(&room[..length]),
            }
        }
    }
}

fn other(byte: u8) -> ProcessTag {
    ProcessTag([byte, 0xfe, 0xff])
}

fn datagram(bytes: &[u8]) -> SharingFrame {
    let from = "127.0.0.1:9".parse().expect("an address");
    SharingFrame::Datagram(SharedDatagram { from, here: None, bytes: bytes.to_vec() })
}

fn forward(socket: &SharedSocket, to: ProcessTag, bytes: &[u8]) -> bool {
    socket.forward(to, "127.0.0.1:9".parse().expect("an address"), None, bytes)
}

fn reads(socket: &SharedSocket, reads: bool) {
    wait_for("a change of who reads", || (socket.reads() == reads).then_some(()));
}

#[test]
fn a_process_reads_until_a_newer_one_does_and_after_its_end() {
    let group = group();
    let (one, two) = (enter(group), enter(group));
    reads(&one, true);
    assert!(two.reads());
    for round in 0..3 {
        let mut newer = OtherProcess::connect(group);
        newer.say(&SharingFrame::Take(other(1)));
        assert_eq!(newer.hear(), Some(SharingFrame::Yours(vec![own_tag()])));
        assert!(!one.reads() && !two.reads());
        let content = format!("{group} {round}").into_bytes();
        newer.say(&datagram(&content));
        wait_for("a datagram", || lock(&DELIVERED).contains(&content).then_some(()));
        drop(newer);
        reads(&one, true);
    }
    drop((one, two));
    wait_for("a free name", || UnixListener::bind_addr(&name(group)).ok());
}

#[test]
fn what_is_another_process_s_goes_there() {
    let group = group();
    let socket = enter(group);
    let mut older = OtherProcess::connect(group);
    older.say(&SharingFrame::Join(other(2)));
    wait_for("the process", || forward(&socket, other(2), b"first").then_some(()));
    assert_eq!(older.hear(), Some(datagram(b"first")));
    assert!(!forward(&socket, other(3), b"nobody's"));
    // So many that there is no room for all: those that come are whole.
    for at in 0..20_000_u32 {
        assert!(forward(&socket, other(2), &[&at.to_be_bytes()[..], &[7; 1196]].concat()));
    }
    let mut last = None;
    while last.is_none_or(|last| last < 19_999) {
        if last.is_some() {
            forward(&socket, other(2), &[&19_999_u32.to_be_bytes()[..], &[7; 1196]].concat());
        }
        let Some(SharingFrame::Datagram(SharedDatagram { bytes, .. })) = older.hear() else {
            panic!("{last:?}")
        };
        let at = u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"));
        assert!(bytes.len() == 1200 && last.is_none_or(|last| last < at || at == 19_999), "{last:?} {at}");
        last = Some(at);
    }
    // It has lost its way for a moment: nobody says that its connections are gone.
    drop(older);
    wait_for("its end", || {
        let siblings = lock(&socket.sharing.siblings);
        matches!(siblings[0].way, SiblingWay::LostUntil(_)).then_some(())
    });
    assert!(forward(&socket, other(2), b"lost"));
    let mut again = OtherProcess::connect(group);
    again.say(&SharingFrame::Join(other(2)));
    wait_for("its return", || {
        let siblings = lock(&socket.sharing.siblings);
        matches!(siblings[0].way, SiblingWay::Link(_)).then_some(())
    });
    assert!(forward(&socket, other(2), b"again"));
    assert_eq!(again.hear(), Some(datagram(b"again")));
}

#[test]
fn who_says_what_is_no_frame_is_let_go_and_changes_nothing() {
    let group = group();
    let socket = enter(group);
    reads(&socket, true);
    for said in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0, 0, 0, 0], &[0, 0, 0, 2, 9, 9], &[0, 0, 0, 3, 0, 1, 2]] {
        let mut stranger = OtherProcess::connect(group);
        stranger.socket.write_all(said).expect("it listens");
        assert_eq!(stranger.hear(), None, "{said:?}");
    }
    // Yours and datagrams are not for it to say.
    for frame in [SharingFrame::Yours(vec![other(4)]), datagram(b"x")] {
        let mut stranger = OtherProcess::connect(group);
        stranger.say(&frame);
        assert_eq!(stranger.hear(), None, "{frame:?}");
    }
    assert!(socket.reads() && !forward(&socket, other(4), b"x"));
}

#[test]
fn a_process_that_does_not_answer_keeps_nobody_from_reading() {
    let group = group();
    let _silent = UnixListener::bind_addr(&name(group)).expect("a free name");
    let socket = enter(group);
    assert!(!socket.reads());
    reads(&socket, true);
}
