//! Clients of sessions: they send their bytes as the plan says, and compare what comes with what their server was to send.

use weir_sim::plan::content_part;
use weir_sim::sessions::plan::{ClientHeader, SessionClientEnd, SessionDoor, SessionPlan};

use crate::addresses::SocketAddresses;
use crate::kernel::{self, unix};

use crate::world::channel::TlsChannel;
use crate::world::{MICROSECOND, OF_SESSION, World, WorldEvent};

/// After so many reads or pieces a side goes on as fast as it can.
pub(in crate::world) const PATIENT: u32 = 300;
/// How long a client stays at most.
const MOST_STAY: u64 = 400_000_000 * MICROSECOND;

/// What happens to a client of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::world) enum SessionEvent {
    Connects,
    Sends,
    Reads,
    Leaves,
    GivesUp,
}

/// A client of a session.
#[derive(Debug)]
pub(in crate::world) struct SessionClient {
    fd: i32,
    port: u16,
    channel: TlsChannel,
    /// Bytes of its server that have come.
    got: usize,
    is_right: bool,
    reads: u32,
    pieces: u32,
    is_sending: bool,
    /// It has shut down its sending side.
    has_ended: bool,
    /// All that it was to send is sent.
    has_sent: bool,
    /// The session has said that no more comes.
    hears_end: bool,
    is_gone: bool,
    /// When a byte of the session came or went last, at either end.
    pub(in crate::world) moved: u64,
    times: SideTimes,
}

/// When a side of a session had its last byte, said that no more comes, and heard it of the other side.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::world) struct SideTimes {
    pub(in crate::world) got: u64,
    pub(in crate::world) ended: u64,
    pub(in crate::world) heard: u64,
}

impl std::fmt::Display for SideTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [got, ended, heard] = [self.got, self.ended, self.heard].map(|time| time / MICROSECOND);
        write!(f, "got_at={got} ended_at={ended} heard_at={heard}")
    }
}

impl SessionClient {
    pub(in crate::world) fn new() -> SessionClient {
        SessionClient {
            fd: -1,
            port: 0,
            channel: TlsChannel::default(),
            got: 0,
            is_right: true,
            reads: 0,
            pieces: 0,
            is_sending: false,
            has_ended: false,
            has_sent: false,
            hears_end: false,
            is_gone: false,
            moved: 0,
            times: SideTimes::default(),
        }
    }

    pub(in crate::world) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The port that it has connected from.
    pub(in crate::world) fn port(&self) -> u16 {
        self.port
    }
}

/// What a client gets when all goes well.
fn due(plan: &SessionPlan) -> Vec<u8> {
    match plan.door {
        SessionDoor::Returned => weir_sim::sessions::plan::RETURNED.as_bytes().to_vec(),
        _ => plan.server_content(),
    }
}

/// What a client sends.
fn said(plan: &SessionPlan) -> Vec<u8> {
    let (header, line) = plan.beginning();
    match plan.door {
        SessionDoor::Returned => Vec::new(),
        SessionDoor::Headed(ClientHeader::Part) => header,
        _ => [header, line, plan.client_content()].concat(),
    }
}

impl World {
    pub(in crate::world) fn session_happens(
        &mut self,
        now: u64,
        which: usize,
        event: SessionEvent,
        addresses: &mut SocketAddresses,
    ) {
        match event {
            SessionEvent::Connects => self.session_connects(now, which, addresses),
            _ if self.sessions[which].is_gone => (),
            SessionEvent::Sends => self.session_sends(now, which),
            SessionEvent::Reads => self.session_reads(now, which),
            SessionEvent::Leaves => self.session_leaves(now, which, "left"),
            SessionEvent::GivesUp => self.session_leaves(now, which, "waited"),
        }
    }

    fn session_at(&mut self, time: u64, which: usize, event: SessionEvent) {
        self.at(time, WorldEvent::Session(which, event));
    }

    fn session_connects(&mut self, now: u64, which: usize, addresses: &mut SocketAddresses) {
        let plan = self.plan.stream.sessions[which].clone();
        let fd = unix::socket(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as i32;
        let connected = addresses.connect(fd, ([127, 0, 0, 1], plan.door.port()), plan.pace.is_narrow);
        if let Err(error) = connected {
            kernel::close(fd);
            if error == libc::EAGAIN {
                return self.session_at(now + 10_000 * MICROSECOND, which, SessionEvent::Connects);
            }
            self.note(format_args!("c session={which} refused={error}"));
            self.sessions[which].is_gone = true;
            return self.maybe_quit(now);
        }
        let port = addresses.local(fd).map_or(0, |name| name.1);
        // The world's descriptors are not the server's.
        addresses.remove(fd);
        let mut channel = TlsChannel::new(plan.tls, false, &mut self.tls);
        channel.send(&said(&plan));
        let client = &mut self.sessions[which];
        (client.fd, client.port, client.channel, client.moved) = (fd, port, channel, now);
        client.is_sending = true;
        self.watch(fd, OF_SESSION | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_ADD);
        if let SessionClientEnd::Leaves(after) = plan.end {
            self.session_at(now + after * MICROSECOND, which, SessionEvent::Leaves);
        }
        self.session_at(now + MOST_STAY, which, SessionEvent::GivesUp);
        self.session_at(now, which, SessionEvent::Sends);
    }

    /// When the client reads what has come.
    pub(in crate::world) fn session_notices(&mut self, now: u64, which: usize) {
        let gap = self.plan.stream.sessions[which].pace.read_gap;
        let delay = if self.sessions[which].reads > PATIENT { 0 } else { self.draw.below(gap + 1) };
        self.session_at(now + delay * MICROSECOND, which, SessionEvent::Reads);
    }

    fn session_sends(&mut self, now: u64, which: usize) {
        let (plan, client) = (&self.plan.stream.sessions[which], &mut self.sessions[which]);
        client.pieces += 1;
        let is_hasty = client.pieces > PATIENT;
        let most = if is_hasty { u64::MAX } else { 1 + self.draw.below(plan.pace.piece) };
        let gap = if is_hasty { 0 } else { self.draw.below(plan.pace.gap + 1) };
        let piece = client.channel.piece(most);
        let sent = if piece.is_empty() { 0 } else { unix::send(client.fd, &piece) };
        let mut is_broken = false;
        match sent {
            0.. => client.channel.took(sent as usize),
            // Who has closed will be seen by reading.
            _ if -sent as i32 != libc::EAGAIN => is_broken = true,
            _ => return self.session_at(now + 1000 * MICROSECOND, which, SessionEvent::Sends),
        }
        if is_broken {
            client.channel.out.clear();
            client.is_sending = false;
            return self.session_goes_on(now, which);
        }
        if sent > 0 {
            client.moved = now;
        }
        if client.channel.is_cut() {
            return self.session_leaves(now, which, "left");
        }
        if !client.channel.out.is_empty() {
            return self.session_at(now + gap * MICROSECOND, which, SessionEvent::Sends);
        }
        client.is_sending = false;
        client.has_sent |= client.channel.has_sent();
        self.session_goes_on(now, which);
    }

    /// All that there was to send has gone, or something has come: whether the client ends.
    fn session_goes_on(&mut self, now: u64, which: usize) {
        let (plan, client) = (&self.plan.stream.sessions[which], &mut self.sessions[which]);
        if client.is_sending {
            return;
        }
        if client.hears_end {
            return self.session_leaves(now, which, "closed");
        }
        if !client.has_sent {
            return;
        }
        match plan.end {
            SessionClientEnd::Closes if client.got >= due(plan).len() => {
                self.session_leaves(now, which, "done");
            }
            SessionClientEnd::HalfCloses if !client.has_ended => {
                client.has_ended = true;
                client.times.ended = now;
                client.channel.notify_end();
                // Where there is no room the end comes without a word.
                unix::send(client.fd, &client.channel.piece(u64::MAX));
                unix::end(client.fd);
            }
            _ => (),
        }
    }

    fn session_reads(&mut self, now: u64, which: usize) {
        let (plan, client) = (&self.plan.stream.sessions[which], &mut self.sessions[which]);
        client.reads += 1;
        let mut bytes = vec![0; if client.reads > PATIENT { 1 << 18 } else { plan.pace.read as usize }];
        let got = unix::receive(client.fd, &mut bytes);
        if got > 0 {
            bytes.truncate(got as usize);
            self.hash.add(&bytes);
            (client.moved, client.times.got) = (now, now);
            let plain = client.channel.receive(now, &bytes);
            client.is_right &= content_part(&due(plan), client.got, &plain);
            client.got += plain.len();
            if !client.is_sending && !client.channel.out.is_empty() {
                client.is_sending = true;
                self.session_at(now, which, SessionEvent::Sends);
            } else if client.channel.out.is_empty() && !client.is_sending {
                client.has_sent |= client.channel.has_sent();
            }
        }
        if let Some(failure) = self.sessions[which].channel.failure.take() {
            self.tls_fails(&failure, self.plan.stream.sessions[which].tls);
            return self.session_leaves(now, which, "tls");
        }
        if got < 0 && -got as i32 != libc::EAGAIN {
            return self.session_leaves(now, which, "reset");
        }
        if got == 0 {
            (self.sessions[which].hears_end, self.sessions[which].times.heard) = (true, now);
        } else {
            let fd = self.sessions[which].fd;
            self.watch(fd, OF_SESSION | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_MOD);
        }
        self.session_goes_on(now, which);
    }

    /// The client's connection ends: what has come of its session is noted.
    fn session_leaves(&mut self, now: u64, which: usize, why: &str) {
        let (plan, client) = (&self.plan.stream.sessions[which], &mut self.sessions[which]);
        client.is_gone = true;
        let (n, of, port, got) = (plan.number, due(plan).len(), client.port, client.got);
        let body = if client.is_right { "right" } else { "wrong" };
        let (all, ended) = (u8::from(client.has_sent), u8::from(client.has_ended));
        let (idle, t) = ((now - client.moved) / MICROSECOND, now / MICROSECOND);
        let (tls, times) = (client.channel.agreed(), client.times);
        let fd = client.fd;
        self.note(format_args!(
            "s n={n} port={port} why={why} sent={all} ended={ended} got={got} of={of} body={body} idle={idle} tls={tls} {times} t={t}"
        ));
        kernel::close(fd);
        self.maybe_quit(now);
    }
}
