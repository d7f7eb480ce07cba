//! How a WebSocket is opened: the request, and what is said to it.

use weir_sim::plan::content_part;
use weir_sim::tunnels::bytes::TunnelHead;
use weir_sim::tunnels::plan::{TunnelReply, TunnelSideEnd};

use crate::addresses::SocketAddresses;
use crate::kernel::{self, unix};

use super::TunnelEvent;
use crate::world::channel::TlsChannel;
use crate::world::{MICROSECOND, OF_TUNNEL, World};

/// How long a client stays at most.
const MOST_STAY: u64 = 400_000_000 * MICROSECOND;
/// One that reads nothing leaves so long after the time-outs, microseconds.
const STALL: u64 = 10_000_000;

impl World {
    pub(super) fn tunnel_connects(&mut self, now: u64, which: usize, addresses: &mut SocketAddresses) {
        let plan = self.plan.tunnels.tunnels[which].clone();
        let fd = unix::socket(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as i32;
        let port = plan.tls.map_or(weir_sim::plan::SERVER_PORT, |tls| tls.port());
        if let Err(error) = addresses.connect(fd, ([127, 0, 0, 1], port), plan.client.is_narrow) {
            kernel::close(fd);
            if error == libc::EAGAIN {
                return self.tunnel_at(now + 10_000 * MICROSECOND, which, TunnelEvent::Connects);
            }
            self.note(format_args!("wc n={} refused={error}", plan.number));
            self.tunnels.sides[which].is_gone = true;
            return self.maybe_quit(now);
        }
        // The world's descriptors are not the server's.
        addresses.remove(fd);
        let mut channel = TlsChannel::new(plan.tls, false, &mut self.tls);
        channel.send(&plan.request());
        self.tunnels.moved[which] = now;
        let side = &mut self.tunnels.sides[which];
        (side.fd, side.channel, side.is_sending) = (fd, channel, true);
        side.waits_for_first = plan.follows;
        self.watch(fd, OF_TUNNEL | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_ADD);
        if let TunnelSideEnd::Leaves(after) = plan.client.end {
            self.tunnel_at(now + after * MICROSECOND, which, TunnelEvent::Leaves);
        }
        if plan.is_early {
            self.tunnel_begins(now, which);
        }
        self.tunnel_at(now + MOST_STAY, which, TunnelEvent::GivesUp);
        self.tunnel_at(now, which, TunnelEvent::Sends);
    }

    /// A side begins to send its bytes.
    pub(super) fn tunnel_begins(&mut self, now: u64, which: usize) {
        let Some(plan) = self.plan_of_side(which) else { return };
        let mut content = self.content_from(which);
        if let TunnelSideEnd::Breaks(after) = plan.end {
            content.truncate(after as usize);
        }
        let side = &mut self.tunnels.sides[which];
        side.channel.send(&content);
        side.has_begun = true;
        if !side.is_sending {
            side.is_sending = true;
            self.tunnel_at(now, which, TunnelEvent::Sends);
        }
    }

    /// Reads the beginning of what has come; what follows it.
    pub(super) fn tunnel_opens(&mut self, now: u64, which: usize, bytes: &[u8]) -> Vec<u8> {
        self.tunnels.sides[which].head.extend(bytes);
        match self.tunnels.sides[which].server {
            None => self.tunnel_is_answered(now, which),
            Some(_) => self.tunnel_is_asked(now, which),
        }
    }

    /// A client reads the head of its response.
    fn tunnel_is_answered(&mut self, now: u64, which: usize) -> Vec<u8> {
        let plan = self.plan.tunnels.tunnels[which].clone();
        let side = &mut self.tunnels.sides[which];
        let Some((head, length)) = TunnelHead::read(&side.head) else { return Vec::new() };
        if side.waits_for_first && head.status() == 200 {
            let Some(body) = side.head.get(length..length + head.length()) else { return Vec::new() };
            let is_first = body == b"first\n";
            side.head.drain(..length + head.length());
            side.waits_for_first = false;
            if !is_first {
                self.note(format_args!("bad tunnel n={}: another first response", plan.number));
            }
            return self.tunnel_is_answered(now, which);
        }
        let status = head.status();
        if status == 101 {
            (side.status, side.is_open) = (status, true);
            let rest = side.head.split_off(length);
            self.note_head(which, &head);
            if plan.client.end == TunnelSideEnd::Stalls {
                // It does not hear that the WebSocket is closed.
                let stay = 2 * self.plan.tunnels.timeout() + STALL;
                self.tunnel_at(now + stay * MICROSECOND, which, TunnelEvent::Leaves);
            }
            if !plan.is_early {
                self.tunnel_at(now + plan.client.late * MICROSECOND, which, TunnelEvent::Begins);
            }
            return rest;
        }
        let Some(body) = side.head.get(length..length + head.length()) else { return Vec::new() };
        let is_right = status != 403 || body == plan.refusal_body();
        (side.status, side.is_right) = (status, side.is_right && is_right);
        self.note_head(which, &head);
        self.tunnel_ends(now, which, "refused");
        Vec::new()
    }

    fn note_head(&mut self, which: usize, head: &TunnelHead) {
        let plan = &self.plan.tunnels.tunnels[which];
        if let Some(fault) = plan.head_fault(head) {
            let number = plan.number;
            self.note(format_args!("bad tunnel n={number}: {fault}"));
        }
    }

    /// A server reads the head of a request.
    fn tunnel_is_asked(&mut self, now: u64, which: usize) -> Vec<u8> {
        let Some((head, length)) = TunnelHead::read(&self.tunnels.sides[which].head) else {
            return Vec::new();
        };
        let tunnels = &self.plan.tunnels.tunnels;
        let asked = head.asked().and_then(|number| {
            let place = tunnels.iter().position(|one| one.number == number);
            place.ok_or_else(|| format!("nobody has number {number}"))
        });
        let tunnel = match asked {
            Ok(tunnel) => tunnel,
            Err(wrong) => {
                self.note(format_args!("bad tunnel: {wrong}"));
                self.tunnel_ends(now, which, "bad");
                return Vec::new();
            }
        };
        let plan = self.plan.tunnels.tunnels[tunnel].clone();
        let side = &mut self.tunnels.sides[which];
        (side.tunnel, side.is_open) = (Some(tunnel), true);
        let rest = side.head.split_off(length);
        match plan.reply {
            TunnelReply::Accepts => {
                side.channel.send(&plan.acceptance());
                let after = (1 + plan.server.late) * MICROSECOND;
                self.tunnel_at(now + after, which, TunnelEvent::Begins);
                if let TunnelSideEnd::Leaves(after) = plan.server.end {
                    self.tunnel_at(now + after * MICROSECOND, which, TunnelEvent::Leaves);
                }
            }
            TunnelReply::Refuses => {
                side.channel.send(&plan.refusal());
                (side.is_sending, side.refuses) = (true, true);
                self.tunnel_at(now + plan.server.late * MICROSECOND, which, TunnelEvent::Sends);
            }
            TunnelReply::Closes => self.tunnel_ends(now, which, "closes"),
            TunnelReply::Silent => (),
        }
        rest
    }

    /// What comes to a side is as it must be; after this it has so many bytes.
    pub(super) fn tunnel_gets(&mut self, now: u64, which: usize, plain: &[u8]) {
        if plain.is_empty() {
            return;
        }
        if self.tunnels.sides[which].expected.is_empty() {
            self.tunnels.sides[which].expected = self.content_to(which);
        }
        let side = &mut self.tunnels.sides[which];
        side.is_right &= content_part(&side.expected, side.got, plain);
        side.got += plain.len();
        if let Some(tunnel) = side.tunnel {
            self.tunnels.moved[tunnel] = now;
        }
    }
}
