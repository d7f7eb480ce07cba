//! Clients: they send what their plan says, in its pieces, and read what comes.

use std::collections::VecDeque;

use weir_sim::framed::trailer_words;
use weir_sim::plan::{ClientEnd, RequestPlan, Target};
use weir_sim::routing::DueResponse;
use weir_sim::wire::{MessageKind, MessageReader, WireMessage};

use crate::addresses::SocketAddresses;
use crate::kernel::{self, unix};

use super::channel::TlsChannel;
use super::{MICROSECOND, OF_CLIENT, World, WorldEvent};

/// After so many reads or pieces a client goes on as fast as it can: nothing takes for ever.
const PATIENT: u32 = 300;
/// How long a client waits for a response.
const MOST_WAIT: u64 = 100_000_000 * MICROSECOND;

/// The state of a client.
#[derive(Debug)]
pub(super) struct SimClient {
    fd: i32,
    /// The next request of its plan.
    next: usize,
    channel: TlsChannel,
    /// Requests whose responses have not come: their places in the plan, and when they were begun.
    asked: VecDeque<(usize, u64)>,
    reader: MessageReader,
    /// Responses that have come on this connection.
    got: u64,
    reads: u32,
    pieces: u32,
    is_sending: bool,
    is_gone: bool,
    /// It has shut down its sending side.
    has_ended: bool,
}

impl SimClient {
    pub(super) fn new() -> SimClient {
        SimClient {
            fd: -1,
            next: 0,
            channel: TlsChannel::default(),
            asked: VecDeque::new(),
            reader: MessageReader::new(MessageKind::Response),
            got: 0,
            reads: 0,
            pieces: 0,
            is_sending: false,
            is_gone: false,
            has_ended: false,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Whether it has been slow for long enough.
    pub(super) fn is_hasty(&self) -> bool {
        self.reads > PATIENT
    }
}

impl World {
    pub(super) fn connects(&mut self, now: u64, which: usize, addresses: &mut SocketAddresses) {
        let plan = &self.plan.clients[which];
        let fd = unix::socket(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as i32;
        let tls = plan.tls;
        match addresses.connect(fd, ([127, 0, 0, 1], plan.port()), plan.is_narrow) {
            Ok(()) => (),
            Err(libc::EAGAIN) => {
                kernel::close(fd);
                return self.at(now + 10_000 * MICROSECOND, WorldEvent::Connects(which));
            }
            Err(error) => {
                self.note(format_args!("c client={which} refused={error}"));
                kernel::close(fd);
                self.clients[which].is_gone = true;
                return self.maybe_quit(now);
            }
        }
        // The world's descriptors are not the server's.
        addresses.remove(fd);
        self.clients[which].fd = fd;
        self.clients[which].channel = TlsChannel::new(tls, false, &mut self.tls);
        self.sends_later(now, which);
        self.watch(fd, OF_CLIENT | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_ADD);
        if let ClientEnd::Leaves(after) = self.plan.clients[which].end {
            self.at(now + after * MICROSECOND, WorldEvent::Leaves(which));
        }
        self.at(now + MOST_WAIT * 4, WorldEvent::GivesUp(which));
        self.asks_later(now, which);
    }

    fn asks_later(&mut self, now: u64, which: usize) {
        let plan = &self.plan.clients[which];
        if let Some(request) = plan.requests.get(self.clients[which].next) {
            self.at(now + request.pause * MICROSECOND, WorldEvent::Asks(which));
        }
    }

    /// The next request begins, and those that are sent with it.
    pub(super) fn asks(&mut self, now: u64, which: usize) {
        let (plan, client) = (&self.plan.clients[which], &mut self.clients[which]);
        if client.is_gone {
            return;
        }
        let mut is_first = true;
        while let Some(request) = plan.requests.get(client.next) {
            if !is_first && !request.is_pipelined {
                break;
            }
            is_first = false;
            let is_last = client.next + 1 == plan.requests.len();
            client.channel.send(&request.bytes(is_last && plan.end == ClientEnd::Asks));
            client.asked.push_back((client.next, now));
            client.next += 1;
        }
        self.sends_later(now, which);
    }

    /// What there is to send begins to go out.
    fn sends_later(&mut self, now: u64, which: usize) {
        let client = &mut self.clients[which];
        if !client.is_sending && !client.channel.out.is_empty() {
            client.is_sending = true;
            self.at(now, WorldEvent::Sends(which));
        }
    }

    pub(super) fn sends(&mut self, now: u64, which: usize) {
        let (plan, client) = (&self.plan.clients[which], &mut self.clients[which]);
        if client.is_gone {
            return;
        }
        client.pieces += 1;
        let is_hasty = client.pieces > PATIENT;
        let most = if is_hasty { u64::MAX } else { 1 + self.draw.below(plan.piece) };
        let gap = if is_hasty { 0 } else { self.draw.below(plan.gap + 1) };
        let piece = client.channel.piece(most);
        let sent = if piece.is_empty() { 0 } else { unix::send(client.fd, &piece) };
        match sent {
            0.. => client.channel.took(sent as usize),
            // Who has closed will be seen by reading.
            _ if -sent as i32 != libc::EAGAIN => client.channel.out.clear(),
            _ => return self.at(now + 1000 * MICROSECOND, WorldEvent::Sends(which)),
        }
        if client.channel.is_cut() {
            return self.leaves(now, which, "left");
        }
        if !client.channel.out.is_empty() {
            return self.at(now + gap * MICROSECOND, WorldEvent::Sends(which));
        }
        client.is_sending = false;
        let is_last = client.next == plan.requests.len();
        if is_last && plan.end == ClientEnd::HalfCloses && !client.has_ended && client.channel.has_sent() {
            client.has_ended = true;
            client.channel.notify_end();
            let rest = client.channel.piece(u64::MAX);
            // Where there is no room the end comes without a word.
            unix::send(client.fd, &rest);
            unix::end(client.fd);
        }
    }

    pub(super) fn reads(&mut self, now: u64, which: usize) {
        let (plan, client) = (&self.plan.clients[which], &mut self.clients[which]);
        if client.is_gone {
            return;
        }
        client.reads += 1;
        let mut bytes = vec![0; if client.is_hasty() { 1 << 18 } else { plan.read as usize }];
        let got = unix::receive(client.fd, &mut bytes);
        if got > 0 {
            bytes.truncate(got as usize);
            self.hash.add(&bytes);
            let plain = client.channel.receive(now, &bytes);
            client.reader.add(&plain);
            self.sends_later(now, which);
        }
        let is_end = got == 0 || got < 0 && -got as i32 != libc::EAGAIN;
        loop {
            match self.clients[which].reader.next(is_end && got == 0) {
                Ok(None) => break,
                Ok(Some(message)) => self.responded(now, which, &message),
                Err(bad) => {
                    self.note(format_args!("bad client={which} {}", bad.0));
                    return self.leaves(now, which, "bad");
                }
            }
            if self.clients[which].is_gone {
                return;
            }
        }
        if let Some(failure) = self.clients[which].channel.failure.take() {
            self.tls_fails(&failure, self.plan.clients[which].tls);
            return self.leaves(now, which, "tls");
        }
        if is_end {
            return self.leaves(now, which, if got == 0 { "closed" } else { "reset" });
        }
        self.watch(self.clients[which].fd, OF_CLIENT | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_MOD);
    }

    fn responded(&mut self, now: u64, which: usize, message: &WireMessage) {
        if message.status() / 100 == 1 {
            return;
        }
        let client = &mut self.clients[which];
        let Some((place, since)) = client.asked.pop_front() else {
            self.note(format_args!(
                "bad client={which} a response that nobody has asked for: {}",
                message.line
            ));
            return self.leaves(now, which, "bad");
        };
        client.got += 1;
        let request = self.plan.clients[which].requests[place].clone();
        let body = match request.target.body(request.number) {
            Some(body) if body == message.body => "right",
            _ if message.body.starts_with(b"<html>") => "page",
            _ => "wrong",
        };
        if request.target == Target::Watched && message.status() == 200 {
            self.note_received(now, request.number);
        }
        if request.ask.is_some() {
            let words = DueResponse::of(message.status(), &message.body, message.pairs()).words();
            self.note(format_args!("w n={} {words}", request.number));
        }
        if matches!(request.target, Target::Framed(_)) && message.status() == 200 {
            let trailers = message.trailers.iter().filter_map(|line| line.split_once(": "));
            self.note(format_args!("gt n={} trailers={}", request.number, trailer_words(trailers)));
        }
        let us = (now - since) / MICROSECOND;
        let (number, status) = (request.number, message.status());
        let at = self.clients[which].got;
        let t = now / MICROSECOND;
        self.note(format_args!(
            "r n={number} at={at} status={status} end=whole body={body} why=- us={us} t={t}"
        ));
        let plan = &self.plan.clients[which];
        let is_done = place + 1 == plan.requests.len();
        if message.closes() {
            // Nothing else may be asked on this connection; what has been is not responded to.
            self.clients[which].next = plan.requests.len();
            return;
        }
        if is_done && plan.end == ClientEnd::Closes {
            return self.leaves(now, which, "done");
        }
        if self.clients[which].asked.is_empty() && !is_done {
            self.asks_later(now, which);
        }
    }

    /// The client's connection ends: what has not come is noted.
    pub(super) fn leaves(&mut self, now: u64, which: usize, why: &str) {
        if self.clients[which].is_gone {
            return;
        }
        self.clients[which].is_gone = true;
        let status = self.clients[which].reader.status_of_part();
        let asked = std::mem::take(&mut self.clients[which].asked);
        for (at, (place, since)) in asked.into_iter().enumerate() {
            let RequestPlan { number, .. } = self.plan.clients[which].requests[place];
            let (status, end) = if at == 0 && status > 0 { (status, "cut") } else { (0, "none") };
            let (place, us) = (self.clients[which].got + 1 + at as u64, (now - since) / MICROSECOND);
            self.note(format_args!(
                "r n={number} at={place} status={status} end={end} body=- why={why} us={us} t={}",
                now / MICROSECOND
            ));
        }
        let agreed = self.clients[which].channel.agreed();
        self.note(format_args!("c client={which} why={why} tls={agreed} us={}", now / MICROSECOND));
        kernel::close(self.clients[which].fd);
        self.maybe_quit(now);
    }
}
