//! A side of a WebSocket: it sends in pieces, reads, and ends as its plan says.

use weir_sim::tunnels::plan::{TunnelReply, TunnelSideEnd, TunnelSidePlan};

use crate::kernel::{self, unix};

use super::TunnelEvent;
use crate::world::channel::TlsChannel;
use crate::world::stream::clients::{PATIENT, SideTimes};
use crate::world::{MICROSECOND, OF_TUNNEL, World};

/// A side.
#[derive(Debug, Default)]
pub(in crate::world) struct TunnelSide {
    pub(super) fd: i32,
    /// Which server's it is; `None`: the client's.
    pub(super) server: Option<usize>,
    /// The WebSocket's place in the plan, once it is known.
    pub(super) tunnel: Option<usize>,
    pub(super) channel: TlsChannel,
    /// What has come before the end of the head.
    pub(super) head: Vec<u8>,
    /// The head is read; what comes then is the other side's bytes.
    pub(super) is_open: bool,
    pub(super) waits_for_first: bool,
    /// It is a server that is about to refuse.
    pub(super) refuses: bool,
    /// Of the response that a client has got.
    pub(super) status: u16,
    /// What comes to it, once its head is read, and how much of it has come.
    pub(super) expected: Vec<u8>,
    pub(super) got: usize,
    pub(super) is_right: bool,
    /// It has begun to send its bytes.
    pub(super) has_begun: bool,
    pub(super) is_sending: bool,
    has_sent: bool,
    has_ended: bool,
    hears_end: bool,
    pub(super) is_gone: bool,
    times: SideTimes,
    reads: u32,
    pieces: u32,
    /// How often there has been no room in a row.
    waits: u32,
}

impl TunnelSide {
    pub(super) fn of_client(tunnel: usize) -> TunnelSide {
        TunnelSide { fd: -1, tunnel: Some(tunnel), is_right: true, ..TunnelSide::default() }
    }

    pub(super) fn of_server(fd: i32, server: usize) -> TunnelSide {
        TunnelSide { fd, server: Some(server), is_right: true, ..TunnelSide::default() }
    }
}

impl World {
    pub(super) fn plan_of_side(&self, which: usize) -> Option<TunnelSidePlan> {
        let side = &self.tunnels.sides[which];
        let plan = &self.plan.tunnels.tunnels[side.tunnel?];
        Some(if side.server.is_some() { plan.server } else { plan.client })
    }

    /// What a side sends, and what comes to it.
    pub(super) fn content_from(&self, which: usize) -> Vec<u8> {
        self.content(which, self.tunnels.sides[which].server.is_some())
    }

    pub(super) fn content_to(&self, which: usize) -> Vec<u8> {
        self.content(which, self.tunnels.sides[which].server.is_none())
    }

    /// How much comes to a side.
    fn due_to(&self, which: usize) -> usize {
        let side = &self.tunnels.sides[which];
        let plan = side.tunnel.map(|tunnel| &self.plan.tunnels.tunnels[tunnel]);
        let of_server = side.server.is_none();
        plan.map_or(0, |plan| if of_server { plan.server.sends } else { plan.client.sends }) as usize
    }

    fn content(&self, which: usize, of_server: bool) -> Vec<u8> {
        let Some(tunnel) = self.tunnels.sides[which].tunnel else { return Vec::new() };
        let plan = &self.plan.tunnels.tunnels[tunnel];
        if of_server { plan.server_content() } else { plan.client_content() }
    }

    /// When a side reads what has come.
    pub(in crate::world) fn tunnel_notices(&mut self, now: u64, which: usize) {
        let gap = self.plan_of_side(which).map_or(200, |plan| plan.read_gap);
        let gap = if self.tunnels.sides[which].reads > PATIENT { 0 } else { gap };
        let delay = self.draw.below(gap + 1);
        self.tunnel_at(now + delay * MICROSECOND, which, TunnelEvent::Reads);
    }

    pub(super) fn tunnel_reads(&mut self, now: u64, which: usize) {
        let most = self.plan_of_side(which).map_or(1 << 16, |plan| plan.read as usize);
        let side = &mut self.tunnels.sides[which];
        side.reads += 1;
        let mut bytes = vec![0; if side.reads > PATIENT { 1 << 18 } else { most }];
        let got = unix::receive(side.fd, &mut bytes);
        if got < 0 && -got as i32 != libc::EAGAIN {
            return self.tunnel_ends(now, which, "reset");
        }
        bytes.truncate(usize::try_from(got).unwrap_or(0));
        self.hash.add(&bytes);
        match got {
            0 => (side.hears_end, side.times.heard) = (true, now),
            1.. => side.times.got = now,
            _ => (),
        }
        let mut plain = side.channel.receive(now, &bytes);
        if !side.channel.out.is_empty() && !side.is_sending {
            side.is_sending = true;
            self.tunnel_at(now, which, TunnelEvent::Sends);
        }
        if !self.tunnels.sides[which].is_open {
            plain = self.tunnel_opens(now, which, &plain);
        }
        if self.tunnels.sides[which].is_gone {
            return;
        }
        if let Some(failure) = self.tunnels.sides[which].channel.failure.take() {
            let tls = self.tunnels.sides[which].tunnel.and_then(|one| self.plan.tunnels.tunnels[one].tls);
            self.tls_fails(&failure, tls);
            return self.tunnel_ends(now, which, "tls");
        }
        self.tunnel_gets(now, which, &plain);
        if got != 0 && !self.side_stalls(which) {
            let fd = self.tunnels.sides[which].fd;
            self.watch(fd, OF_TUNNEL | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_MOD);
        }
        self.tunnel_goes_on(now, which);
    }

    fn side_stalls(&self, which: usize) -> bool {
        let side = &self.tunnels.sides[which];
        side.is_open && self.plan_of_side(which).is_some_and(|plan| plan.end == TunnelSideEnd::Stalls)
    }

    pub(super) fn tunnel_sends(&mut self, now: u64, which: usize) {
        let Some(plan) = self.plan_of_side(which) else { return };
        let side = &mut self.tunnels.sides[which];
        side.pieces += 1;
        let is_hasty = side.pieces > PATIENT;
        let most = if is_hasty { u64::MAX } else { 1 + self.draw.below(plan.piece) };
        let piece = side.channel.piece(most);
        let sent = if piece.is_empty() { 0 } else { unix::send(side.fd, &piece) };
        match sent {
            0.. => {
                side.channel.took(sent as usize);
                side.waits = 0;
            }
            // Nobody hears it; what has come is still read.
            _ if -sent as i32 != libc::EAGAIN => side.channel.out.clear(),
            _ => {
                // Where there is no room for long it is tried less often.
                side.waits = (side.waits + 1).min(6);
                let delay = (1000 << side.waits) * MICROSECOND;
                return self.tunnel_at(now + delay, which, TunnelEvent::Sends);
            }
        }
        if let (1.., Some(tunnel)) = (sent, side.tunnel) {
            self.tunnels.moved[tunnel] = now;
        }
        if side.channel.is_cut() {
            return self.tunnel_ends(now, which, "left");
        }
        if !side.channel.out.is_empty() {
            let gap = if is_hasty { 0 } else { self.draw.below(plan.gap + 1) };
            return self.tunnel_at(now + gap * MICROSECOND, which, TunnelEvent::Sends);
        }
        side.is_sending = false;
        if side.refuses {
            return self.tunnel_is_refused(now, which);
        }
        self.tunnel_goes_on(now, which);
    }

    /// A server has refused: another request may come over the connection.
    fn tunnel_is_refused(&mut self, now: u64, which: usize) {
        self.note_side(now, which, "refuses");
        let side = &mut self.tunnels.sides[which];
        let (fd, server) = (side.fd, side.server.unwrap_or_default());
        let hears_end = side.hears_end;
        *side = TunnelSide::of_server(fd, server);
        if hears_end {
            self.tunnel_ends(now, which, "closed");
        }
    }

    /// All that there was to send has gone, or something has come: whether the side ends.
    fn tunnel_goes_on(&mut self, now: u64, which: usize) {
        let due = self.due_to(which);
        let Some(plan) = self.plan_of_side(which) else {
            if self.tunnels.sides[which].hears_end {
                self.tunnel_ends(now, which, "end");
            }
            return;
        };
        let side = &mut self.tunnels.sides[which];
        if side.is_sending {
            return;
        }
        side.has_sent |= side.has_begun && side.channel.has_sent();
        // Who has not begun yet does so first.
        if side.hears_end && (side.has_begun || !side.is_open || side.server.is_some()) {
            return self.tunnel_ends(now, which, "closed");
        }
        // What comes before the response says whether it is opened decides nothing.
        let is_open = side.is_open && (side.server.is_none() || side.has_begun);
        if !is_open || !side.has_sent {
            return;
        }
        match plan.end {
            TunnelSideEnd::Closes if side.got >= due => self.tunnel_ends(now, which, "done"),
            TunnelSideEnd::Breaks(_) => self.tunnel_ends(now, which, "breaks"),
            TunnelSideEnd::HalfCloses if !side.has_ended => {
                (side.has_ended, side.times.ended) = (true, now);
                side.channel.notify_end();
                // Where there is no room the end comes without a word.
                unix::send(side.fd, &side.channel.piece(u64::MAX));
                unix::end(side.fd);
            }
            _ => (),
        }
    }

    /// A side's connection ends: what has come is noted.
    pub(super) fn tunnel_ends(&mut self, now: u64, which: usize, why: &str) {
        if std::mem::replace(&mut self.tunnels.sides[which].is_gone, true) {
            return;
        }
        self.note_side(now, which, why);
        kernel::close(self.tunnels.sides[which].fd);
        if self.tunnels.sides[which].server.is_none() {
            self.maybe_quit(now);
        }
    }

    /// What has come to a side is noted.
    fn note_side(&mut self, now: u64, which: usize, why: &str) {
        let of = self.due_to(which);
        let side = &self.tunnels.sides[which];
        let (server, tunnel, got, status) = (side.server, side.tunnel, side.got, side.status);
        let body = if side.is_right { "right" } else { "wrong" };
        let (sent, times) = (u8::from(side.has_sent), side.times);
        let tls = side.channel.agreed();
        let plan = tunnel.map(|tunnel| &self.plan.tunnels.tunnels[tunnel]);
        let number = plan.map_or(0, |plan| plan.number);
        let accepts = u8::from(plan.is_some_and(|plan| plan.reply == TunnelReply::Accepts));
        let idle = tunnel.map_or(0, |tunnel| now - self.tunnels.moved[tunnel]) / MICROSECOND;
        let begin = match server {
            None => format!("wc n={number} status={status} tls={tls}"),
            Some(server) => format!("ws n={number} server={server} accepts={accepts}"),
        };
        let t = now / MICROSECOND;
        self.note(format_args!(
            "{begin} why={why} got={got} of={of} body={body} sent={sent} idle={idle} {times} t={t}"
        ));
    }
}
