//! Servers of sessions: what they do is in the plan of the session whose first line comes.

use std::collections::VecDeque;

use weir_sim::plan::content_part;
use weir_sim::sessions::bytes::session_beginning;
use weir_sim::sessions::plan::{SESSION_SERVERS, SessionDoor, SessionServerEnd, SessionServerPlan};

use crate::addresses::SocketAddresses;
use crate::kernel::{self, unix};

use super::clients::{PATIENT, SideTimes};
use crate::world::{MICROSECOND, OF_SESSION_SERVER, OF_VISIT, World, WorldEvent};

/// What happens to a server of sessions, or to a connection to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::world) enum VisitEvent {
    Reads,
    Sends,
}

/// A connection to a server of sessions.
#[derive(Debug)]
pub(in crate::world) struct SessionVisit {
    fd: i32,
    server: usize,
    /// What has come before the end of the first line.
    head: Vec<u8>,
    /// The session's place in the plan, once it is known.
    session: Option<usize>,
    expected: Vec<u8>,
    out: VecDeque<u8>,
    /// Bytes of the client's contents, and of the header that precedes them.
    got: usize,
    header: usize,
    sent: u64,
    is_right: bool,
    is_sending: bool,
    /// What it sends does not arrive any more.
    is_broken: bool,
    has_ended: bool,
    hears_end: bool,
    times: SideTimes,
    reads: u32,
    pieces: u32,
}

impl SessionVisit {
    pub(in crate::world) fn is_open(&self) -> bool {
        self.fd >= 0
    }
}

impl World {
    /// A server of sessions listens, if it does not yet.
    pub(in crate::world) fn session_server_rises(&mut self, server: usize, addresses: &mut SocketAddresses) {
        if self.session_servers[server] < 0 {
            let fd = Self::listens(SESSION_SERVERS[server], addresses);
            self.session_servers[server] = fd;
            self.watch(fd, OF_SESSION_SERVER | server as u64, 0, libc::EPOLL_CTL_ADD);
        }
    }

    /// A server is gone with all its connections.
    pub(in crate::world) fn session_server_falls(
        &mut self,
        now: u64,
        server: usize,
        addresses: &mut SocketAddresses,
    ) {
        let fd = std::mem::replace(&mut self.session_servers[server], -1);
        if fd < 0 {
            return;
        }
        addresses.remove(fd);
        kernel::close(fd);
        for which in 0..self.visits.len() {
            if self.visits[which].server == server {
                self.visit_ends(now, which, "fell");
            }
        }
    }

    pub(in crate::world) fn session_server_accepts(&mut self, server: usize) {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let fd = unix::accept(self.session_servers[server], flags) as i32;
        if fd < 0 {
            return;
        }
        self.visits.push(SessionVisit {
            fd,
            server,
            head: Vec::new(),
            session: None,
            expected: Vec::new(),
            out: VecDeque::new(),
            got: 0,
            header: 0,
            sent: 0,
            is_right: true,
            is_sending: false,
            is_broken: false,
            has_ended: false,
            hears_end: false,
            times: SideTimes::default(),
            reads: 0,
            pieces: 0,
        });
        let what = OF_VISIT | (self.visits.len() - 1) as u64;
        self.watch(fd, what, libc::EPOLLONESHOT, libc::EPOLL_CTL_ADD);
    }

    /// When the server reads what has come.
    pub(in crate::world) fn visit_notices(&mut self, now: u64, which: usize) {
        let gap = self.plan_of_visit(which).map_or(200, |plan| plan.read_gap);
        let gap = if self.visits[which].reads > PATIENT { 200 } else { gap };
        let delay = self.draw.below(gap);
        self.at(now + delay * MICROSECOND, WorldEvent::Visit(which, VisitEvent::Reads));
    }

    pub(in crate::world) fn visit_happens(&mut self, now: u64, which: usize, event: VisitEvent) {
        match event {
            _ if self.visits[which].fd < 0 => (),
            VisitEvent::Reads => self.visit_reads(now, which),
            VisitEvent::Sends => self.visit_sends(now, which),
        }
    }

    fn visit_reads(&mut self, now: u64, which: usize) {
        // A server that sends little at once reads so, too: more waits for it than its socket has room for.
        let most = self.plan_of_visit(which).map_or(1 << 16, |plan| plan.piece.max(1000) as usize);
        let visit = &mut self.visits[which];
        visit.reads += 1;
        let mut bytes = vec![0; if visit.reads > PATIENT { 1 << 18 } else { most }];
        let got = unix::receive(visit.fd, &mut bytes);
        if got < 0 && -got as i32 != libc::EAGAIN {
            return self.visit_ends(now, which, "reset");
        }
        bytes.truncate(usize::try_from(got).unwrap_or(0));
        self.hash.add(&bytes);
        match got {
            0 => (visit.hears_end, visit.times.heard) = (true, now),
            1.. => visit.times.got = now,
            _ => (),
        }
        if visit.session.is_none() {
            visit.head.extend(&bytes);
            bytes = self.visit_begins(now, which);
        }
        let visit = &mut self.visits[which];
        if let Some(session) = visit.session {
            visit.is_right &= content_part(&visit.expected, visit.got, &bytes);
            visit.got += bytes.len();
            self.sessions[session].moved = now;
        }
        if got != 0 && !self.visit_stalls(which) {
            let fd = self.visits[which].fd;
            self.watch(fd, OF_VISIT | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_MOD);
        }
        self.visit_goes_on(now, which);
    }

    fn plan_of_visit(&self, which: usize) -> Option<SessionServerPlan> {
        self.visits[which].session.map(|session| self.plan.stream.sessions[session].server)
    }

    fn visit_stalls(&self, which: usize) -> bool {
        self.plan_of_visit(which).is_some_and(|plan| plan.end == SessionServerEnd::Stalls)
    }

    /// Reads the beginning, if it is there; what comes after it.
    fn visit_begins(&mut self, now: u64, which: usize) -> Vec<u8> {
        let sent = self.plan.stream.settings.sends_header;
        let beginning = match session_beginning(sent, &self.visits[which].head) {
            Ok(Some(beginning)) => beginning,
            Ok(None) => return Vec::new(),
            Err(wrong) => {
                self.note(format_args!("bad session: {wrong}"));
                return Vec::new();
            }
        };
        let sessions = &self.plan.stream.sessions;
        let Some(session) = sessions.iter().position(|one| one.number == beginning.number) else {
            self.note(format_args!("bad session: nobody has number {}", beginning.number));
            return Vec::new();
        };
        let plan = &sessions[session];
        let client = self.sessions[session].port();
        let is_named = match plan.door {
            SessionDoor::Named(Some(server)) => server == self.visits[which].server,
            _ => true,
        };
        if beginning.port.is_some_and(|port| port != client) || !is_named {
            self.note(format_args!("bad session: {beginning:?} of port {client}, named: {is_named}"));
        }
        let plan = &self.plan.stream.sessions[session];
        let (expected, out) = (plan.client_content(), plan.server_content());
        let late = plan.server.late;
        if plan.door == SessionDoor::Limited {
            self.check_limit(session);
        }
        let visit = &mut self.visits[which];
        visit.session = Some(session);
        (visit.expected, visit.header) = (expected, beginning.header);
        visit.out.extend(out);
        visit.is_sending = true;
        let rest = visit.head.split_off(beginning.length);
        self.at(now + (1 + late) * MICROSECOND, WorldEvent::Visit(which, VisitEvent::Sends));
        rest
    }

    /// Where as many sessions at a time pass as `limit_conn` says, no more than that are open: those that the server has
    /// closed are known by the hang-up of their sockets.
    fn check_limit(&mut self, new: usize) {
        let is_limited = |visit: &&SessionVisit| {
            let door = visit.session.map(|session| self.plan.stream.sessions[session].door);
            visit.is_open() && door == Some(SessionDoor::Limited) && visit.session != Some(new)
        };
        let is_connected = |visit: &&SessionVisit| !kernel::is_hung_up(visit.fd);
        let others = self.visits.iter().filter(is_limited).filter(is_connected).count() as u64;
        if others + 1 > self.plan.stream.settings.limit {
            self.note(format_args!("bad session: {} are open where there is a limit", others + 1));
        }
    }

    fn visit_sends(&mut self, now: u64, which: usize) {
        let Some(plan) = self.plan_of_visit(which) else { return };
        let visit = &mut self.visits[which];
        visit.pieces += 1;
        let is_hasty = visit.pieces > PATIENT;
        let mut most = if is_hasty { u64::MAX } else { 1 + self.draw.below(plan.piece) };
        if let SessionServerEnd::Resets(after) = plan.end {
            most = most.min(after.saturating_sub(visit.sent));
        }
        let piece: Vec<u8> = visit.out.iter().take(most as usize).copied().collect();
        let sent = if piece.is_empty() { 0 } else { unix::send(visit.fd, &piece) };
        match sent {
            0.. => drop(visit.out.drain(..sent as usize)),
            // Nobody hears it; what has come is still read.
            _ if -sent as i32 != libc::EAGAIN => {
                (visit.is_broken, visit.is_sending) = (true, false);
                visit.out.clear();
                return self.visit_goes_on(now, which);
            }
            _ => return self.at(now + 1000 * MICROSECOND, WorldEvent::Visit(which, VisitEvent::Sends)),
        }
        visit.sent += sent as u64;
        if let (1.., Some(session)) = (sent, visit.session) {
            self.sessions[session].moved = now;
        }
        if plan.end == SessionServerEnd::Resets(self.visits[which].sent) {
            return self.visit_ends(now, which, "resets");
        }
        if !self.visits[which].out.is_empty() {
            let gap = if is_hasty { 0 } else { self.draw.below(plan.gap + 1) };
            return self.at(now + gap * MICROSECOND, WorldEvent::Visit(which, VisitEvent::Sends));
        }
        self.visits[which].is_sending = false;
        self.visit_goes_on(now, which);
    }

    /// Whether the server ends its side, after what has come or gone.
    fn visit_goes_on(&mut self, now: u64, which: usize) {
        let visit = &self.visits[which];
        let Some(plan) = self.plan_of_visit(which) else {
            // Nothing says whose it is.
            if visit.hears_end {
                self.visit_ends(now, which, "end");
            }
            return;
        };
        if visit.is_sending {
            return;
        }
        let has_all = visit.got >= visit.expected.len();
        if visit.hears_end || plan.end == SessionServerEnd::Closes && has_all {
            let why = if visit.hears_end { "end" } else { "closes" };
            return self.visit_ends(now, which, if visit.is_broken { "broken" } else { why });
        }
        if plan.end == SessionServerEnd::HalfCloses && !visit.has_ended {
            unix::end(visit.fd);
            (self.visits[which].has_ended, self.visits[which].times.ended) = (true, now);
        }
    }

    /// The connection ends: what has come is noted.
    pub(in crate::world) fn visit_ends(&mut self, now: u64, which: usize, why: &str) {
        let visit = &mut self.visits[which];
        let fd = std::mem::replace(&mut visit.fd, -1);
        if fd < 0 {
            return;
        }
        kernel::close(fd);
        let n = visit.session.map_or(0, |session| self.plan.stream.sessions[session].number);
        let (server, got, header) = (visit.server, visit.got, visit.header);
        let (sent, of) = (visit.sent, visit.expected.len());
        let body = if visit.is_right { "right" } else { "wrong" };
        let (ended, heard, times) = (u8::from(visit.has_ended), u8::from(visit.hears_end), visit.times);
        self.note(format_args!(
            "v n={n} server={server} why={why} got={got} of={of} body={body} sent={sent} header={header} ended={ended} heard={heard} {times} t={}",
            now / MICROSECOND
        ));
    }
}
