//! Name servers: what they say of a name is in the plan. The hosts that they name are upstream servers.

use weir_sim::names::message::{NameCode, NameQuestion};
use weir_sim::names::plan::{NAME_SERVERS, NAMED_HOSTS, NamePhase, NameReply, host};

use crate::addresses::{SocketAddresses, SocketName};
use crate::kernel::{self, unix};

use super::stream::flows::DatagramFlight;
use super::{BEGIN, MICROSECOND, OF_NAME_SERVER, OF_NAME_VISIT, World, WorldEvent};

/// The servers' sockets of TCP, and connections to them as they come.
#[derive(Debug, Default)]
pub(super) struct NameServers {
    servers: Vec<i32>,
    visits: Vec<NameVisit>,
}

/// A connection to a name server.
#[derive(Debug)]
struct NameVisit {
    fd: i32,
    bytes: Vec<u8>,
}

impl NameServers {
    /// Descriptors of the world's.
    pub(super) fn files(&self) -> usize {
        self.servers.len() + self.visits.iter().filter(|visit| visit.fd >= 0).count()
    }
}

impl World {
    pub(super) fn open_names(&mut self, addresses: &mut SocketAddresses) {
        if self.plan.names.settings.is_none() {
            return;
        }
        for (server, port) in NAME_SERVERS.into_iter().enumerate() {
            let fd = Self::listens(port, addresses);
            self.names.servers.push(fd);
            self.watch(fd, OF_NAME_SERVER | server as u64, 0, libc::EPOLL_CTL_ADD);
        }
    }

    /// Where a name server is asked by a datagram.
    pub(super) fn is_name_server(to: SocketName) -> bool {
        NAME_SERVERS.contains(&to.1)
    }

    /// A datagram for a name server has been sent.
    pub(super) fn name_is_asked(&mut self, now: u64, from: SocketName, to: SocketName, bytes: &[u8]) {
        let Some(settings) = self.plan.names.settings else { return };
        let question = match NameQuestion::read(bytes) {
            Ok(question) => question,
            Err(wrong) => return self.note(format_args!("bad name: {wrong}")),
        };
        // The query and the response have to come.
        if self.draw.chance(settings.lost, 1000) || self.draw.chance(settings.lost, 1000) {
            return;
        }
        let Some((response, said)) = self.response_to(now, &question, false) else { return };
        if self.draw.chance(settings.forged, 1000) {
            let forged = question.forged().response(NameCode::Good, &[host(NAMED_HOSTS - 1)], 1000, false);
            self.sends_response(now, 1, (to, from), forged, String::new());
        }
        let copies = if self.draw.chance(settings.doubled, 1000) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = 2 + self.draw.below(settings.latency);
            self.sends_response(now, delay, (to, from), response.clone(), said.clone());
        }
    }

    fn sends_response(
        &mut self,
        now: u64,
        delay: u64,
        (from, to): (SocketName, SocketName),
        bytes: Vec<u8>,
        said: String,
    ) {
        let flight = self.take_off(DatagramFlight { from, to, bytes, said });
        self.at(now + delay * MICROSECOND, WorldEvent::DatagramArrives(flight));
    }

    /// What is said to a question, and the journal's words for its addresses; `None`: nothing is.
    fn response_to(&mut self, now: u64, question: &NameQuestion, is_tcp: bool) -> Option<(Vec<u8>, String)> {
        let name = question.name.strip_prefix('h').and_then(|rest| rest.strip_suffix(".sim"));
        let name = name.and_then(|number| number.parse::<usize>().ok());
        let at = now.saturating_sub(BEGIN) / MICROSECOND;
        let phase = name.and_then(|name| self.plan.names.phase(name, at).cloned());
        let Some((name, phase)) = name.zip(phase) else {
            self.note(format_args!("bad name: {:?} was asked for", question.name));
            return None;
        };
        let NamePhase { reply, hosts, ttl, .. } = phase;
        let (code, is_good) = match reply {
            NameReply::Silent => return None,
            NameReply::Absent => (NameCode::Absent, false),
            NameReply::Fails => (NameCode::Fails, false),
            NameReply::Refuses => (NameCode::Refuses, false),
            NameReply::Empty => (NameCode::Good, false),
            NameReply::Addresses | NameReply::Long => (NameCode::Good, question.kind == 1),
        };
        let is_cut = reply == NameReply::Long && !is_tcp;
        let addresses: Vec<_> = hosts.iter().filter(|_| is_good).map(|which| host(*which)).collect();
        let response = question.response(code, &addresses, ttl, is_cut);
        let list = hosts.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let said = if is_good && !is_cut { format!("na name={name} hosts={list} ttl={ttl}") } else { String::new() };
        Some((response, said))
    }

    /// A response has come to the server.
    pub(super) fn note_named(&mut self, now: u64, said: &str) {
        if !said.is_empty() {
            self.note(format_args!("{said} t={}", now / MICROSECOND));
        }
    }

    pub(super) fn name_server_accepts(&mut self, server: usize) {
        let fd = unix::accept(self.names.servers[server], libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as i32;
        if fd >= 0 {
            let visit = self.names.visits.len();
            self.names.visits.push(NameVisit { fd, bytes: Vec::new() });
            self.watch(fd, OF_NAME_VISIT | visit as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_ADD);
        }
    }

    pub(super) fn name_visit_notices(&mut self, now: u64, which: usize) {
        let latency = self.plan.names.settings.map_or(0, |settings| settings.latency);
        let delay = self.draw.below(latency + 1);
        self.at(now + delay * MICROSECOND, WorldEvent::NameVisitReads(which));
    }

    pub(super) fn name_visit_reads(&mut self, now: u64, which: usize) {
        let visit = &mut self.names.visits[which];
        let fd = visit.fd;
        let mut bytes = vec![0; 4096];
        let got = unix::receive(fd, &mut bytes);
        if got == 0 || got < 0 && -got as i32 != libc::EAGAIN {
            kernel::close(fd);
            self.names.visits[which].fd = -1;
            return;
        }
        visit.bytes.extend_from_slice(&bytes[..usize::try_from(got).unwrap_or(0)]);
        while let Some(query) = self.next_query(which) {
            let question = match NameQuestion::read(&query) {
                Ok(question) => question,
                Err(wrong) => return self.note(format_args!("bad name: {wrong}")),
            };
            if let Some((response, said)) = self.response_to(now, &question, true) {
                let length = (response.len() as u16).to_be_bytes();
                unix::send(fd, &[&length[..], &response].concat());
                self.note_named(now, &said);
            }
        }
        self.watch(fd, OF_NAME_VISIT | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_MOD);
    }

    /// The next whole query that has come over a connection.
    fn next_query(&mut self, which: usize) -> Option<Vec<u8>> {
        let bytes = &mut self.names.visits[which].bytes;
        let length = usize::from(u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]));
        let query = bytes.get(2..2 + length)?.to_vec();
        bytes.drain(..2 + length);
        Some(query)
    }
}
