//! Clients that speak HTTP/2: their sockets; what they do is in [`Http2Client`].

use weir_sim::http2::client::{ClientWish, Http2Client};
use weir_sim::http2::plan::Http2End;
use weir_sim::plan::SERVER_PORT;

use crate::addresses::SocketAddresses;
use crate::kernel::{self, unix};

use super::channel::TlsChannel;
use super::{MICROSECOND, OF_HTTP2, World, WorldEvent};

/// After so many reads or pieces a client goes on as fast as it can.
const PATIENT: u32 = 300;
/// How long a client stays at most, microseconds: bodies through windows of some bytes take their time.
const MOST_STAY: u64 = 4_000_000_000;

/// What happens to a client of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Http2Event {
    Connects,
    Steps,
    Sends,
    Reads,
    Leaves,
    GivesUp,
}

/// The connection of a client.
#[derive(Debug)]
pub(super) struct Http2Connection {
    fd: i32,
    client: Option<Http2Client>,
    channel: TlsChannel,
    /// When it steps next, as far as that is planned.
    step: Option<u64>,
    reads: u32,
    pieces: u32,
    is_sending: bool,
    has_ended: bool,
    is_gone: bool,
}

impl Http2Connection {
    pub(super) fn new() -> Http2Connection {
        Http2Connection {
            fd: -1,
            client: None,
            channel: TlsChannel::default(),
            step: None,
            reads: 0,
            pieces: 0,
            is_sending: false,
            has_ended: false,
            is_gone: false,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }
}

impl World {
    pub(super) fn http2_happens(
        &mut self,
        now: u64,
        which: usize,
        event: Http2Event,
        addresses: &mut SocketAddresses,
    ) {
        match event {
            Http2Event::Connects => self.http2_connects(now, which, addresses),
            _ if self.http2[which].is_gone => (),
            Http2Event::Steps => self.http2_steps(now, which),
            Http2Event::Sends => self.http2_sends(now, which),
            Http2Event::Reads => self.http2_reads(now, which),
            Http2Event::Leaves => self.http2_leaves(now, which, "left"),
            Http2Event::GivesUp => self.http2_leaves(now, which, "waited"),
        }
    }

    fn http2_at(&mut self, time: u64, which: usize, event: Http2Event) {
        self.at(time, WorldEvent::Http2(which, event));
    }

    fn http2_connects(&mut self, now: u64, which: usize, addresses: &mut SocketAddresses) {
        let plan = &self.plan.http2.clients[which];
        let (end, tls) = (plan.end, plan.tls);
        let port = plan.port(SERVER_PORT);
        let fd = unix::socket(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as i32;
        let connected = addresses.connect(fd, ([127, 0, 0, 1], port), plan.pace.is_narrow);
        if let Err(error) = connected {
            kernel::close(fd);
            if error == libc::EAGAIN {
                return self.http2_at(now + 10_000 * MICROSECOND, which, Http2Event::Connects);
            }
            self.note(format_args!("c http2={which} refused={error}"));
            self.http2[which].is_gone = true;
            return self.maybe_quit(now);
        }
        // The world's descriptors are not the server's.
        addresses.remove(fd);
        let client = Http2Client::new(&self.plan.http2.clients[which], now / MICROSECOND);
        (self.http2[which].fd, self.http2[which].client) = (fd, Some(client));
        self.http2[which].channel = TlsChannel::new(tls, true, &mut self.tls);
        self.watch(fd, OF_HTTP2 | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_ADD);
        if let Http2End::Leaves(after) = end {
            self.http2_at(now + after * MICROSECOND, which, Http2Event::Leaves);
        }
        self.http2_at(now + MOST_STAY * MICROSECOND, which, Http2Event::GivesUp);
        self.http2_steps(now, which);
    }

    /// When the client reads what has come.
    pub(super) fn http2_notices(&mut self, now: u64, which: usize) {
        let gap = self.plan.http2.clients[which].pace.read_gap;
        let delay = if self.http2[which].reads > PATIENT { 0 } else { self.draw.below(gap + 1) };
        self.http2_at(now + delay * MICROSECOND, which, Http2Event::Reads);
    }

    /// The client does what it is time for; what it wants to send begins to go out.
    fn http2_steps(&mut self, now: u64, which: usize) {
        let connection = &mut self.http2[which];
        let Some(client) = &mut connection.client else { return };
        client.step(now / MICROSECOND);
        let next = client.next_time();
        let lines = client.take_lines();
        let output: Vec<u8> = client.output().drain(..).collect();
        connection.channel.send(&output);
        let sends = !connection.channel.out.is_empty() || client.wish() != ClientWish::Stay;
        let begins = sends && !connection.is_sending;
        connection.is_sending |= sends;
        for line in lines {
            self.note_of_client(now, &line);
        }
        let next = next.map(|next| (next * MICROSECOND).max(now));
        let planned = self.http2[which].step.filter(|step| *step > now);
        if let Some(next) = next.filter(|next| planned.is_none_or(|planned| *next < planned)) {
            self.http2[which].step = Some(next);
            self.http2_at(next, which, Http2Event::Steps);
        }
        if begins {
            self.http2_at(now, which, Http2Event::Sends);
        }
    }

    fn http2_sends(&mut self, now: u64, which: usize) {
        let plan = &self.plan.http2.clients[which];
        let connection = &mut self.http2[which];
        let Some(client) = &connection.client else { return };
        connection.is_sending = false;
        if let ClientWish::Cut(why) = client.wish() {
            return self.http2_leaves(now, which, why);
        }
        connection.pieces += 1;
        let is_hasty = connection.pieces > PATIENT;
        let mut most = if is_hasty { u64::MAX } else { 1 + self.draw.below(plan.pace.piece) };
        let gap = if is_hasty { 0 } else { self.draw.below(plan.pace.gap + 1) };
        if let Http2End::CutAt(end) = plan.end {
            most = most.min(end.saturating_sub(connection.channel.sent));
        }
        let piece = connection.channel.piece(most);
        let sent = if piece.is_empty() { 0 } else { unix::send(connection.fd, &piece) };
        match sent {
            0.. => connection.channel.took(sent as usize),
            // Who has closed will be seen by reading.
            _ if -sent as i32 != libc::EAGAIN => connection.channel.out.clear(),
            _ => {
                connection.is_sending = true;
                return self.http2_at(now + 1000 * MICROSECOND, which, Http2Event::Sends);
            }
        }
        if plan.end == Http2End::CutAt(connection.channel.sent) || connection.channel.is_cut() {
            return self.http2_leaves(now, which, "left");
        }
        if !connection.channel.out.is_empty() {
            connection.is_sending = true;
            return self.http2_at(now + gap * MICROSECOND, which, Http2Event::Sends);
        }
        match client.wish() {
            ClientWish::Close(why) => self.http2_leaves(now, which, why),
            ClientWish::End if !connection.has_ended && connection.channel.has_sent() => {
                connection.has_ended = true;
                connection.channel.notify_end();
                // Where there is no room the end comes without a word.
                unix::send(connection.fd, &connection.channel.piece(u64::MAX));
                unix::end(connection.fd);
            }
            _ => (),
        }
    }

    fn http2_reads(&mut self, now: u64, which: usize) {
        let plan = &self.plan.http2.clients[which];
        let connection = &mut self.http2[which];
        let Some(client) = &mut connection.client else { return };
        connection.reads += 1;
        let is_hasty = connection.reads > PATIENT;
        let mut bytes = vec![0; if is_hasty { 1 << 18 } else { plan.pace.read as usize }];
        let got = unix::receive(connection.fd, &mut bytes);
        if got > 0 {
            bytes.truncate(got as usize);
            self.hash.add(&bytes);
            let plain = connection.channel.receive(now, &bytes);
            client.receive(now / MICROSECOND, &plain);
        }
        if let Some(failure) = connection.channel.failure.take() {
            self.tls_fails(&failure, self.plan.http2.clients[which].tls);
            return self.http2_leaves(now, which, "tls");
        }
        if got == 0 || got < 0 && -got as i32 != libc::EAGAIN {
            return self.http2_leaves(now, which, if got == 0 { "closed" } else { "reset" });
        }
        let fd = connection.fd;
        self.http2_steps(now, which);
        self.watch(fd, OF_HTTP2 | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_MOD);
    }

    /// The connection ends: what has not come is noted.
    fn http2_leaves(&mut self, now: u64, which: usize, why: &str) {
        let connection = &mut self.http2[which];
        connection.is_gone = true;
        let Some(mut client) = connection.client.take() else { return };
        kernel::close(connection.fd);
        client.leave(now / MICROSECOND, why);
        for line in client.take_lines() {
            self.note_of_client(now, &line);
        }
        let goaway = client.goaway().map_or("-".to_owned(), |code| code.to_string());
        let (broke, us) = (client.has_broken(), now / MICROSECOND);
        let agreed = self.http2[which].channel.agreed();
        self.note(format_args!(
            "c http2={which} why={why} goaway={goaway} broke={broke} tls={agreed} us={us}"
        ));
        self.maybe_quit(now);
    }
}
