//! Simulations: a resolver, name servers with a given behaviour, and a clock that only moves when nothing is to be
//! done.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;
use simple_dns::rdata::{A, AAAA, CNAME, PTR, RData, SRV};
use simple_dns::{CLASS, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};

use crate::wire::{self, QueryOptions, RecordData, RecordType};
use crate::{
    DnsAnswer, DnsFailure, DnsName, DnsQuestion, Resolver, ResolverEvent, ResolverSettings, SocketToken,
    Transmit,
};

/// Owners, their records, and seconds that these hold.
type Zone = Vec<(&'static str, RData<'static>, u32)>;

/// How a name server behaves.
#[derive(Clone, Debug)]
enum Server {
    /// Silent.
    Dead,
    /// A closed port.
    Refusing,
    /// Answers from the zone after this many milliseconds.
    Good(u64),
    /// Answers with this code.
    Says(RCODE),
    /// Answers questions that were not asked, with addresses of its own, before the right answer.
    Lying,
    /// Cuts every datagram off.
    Truncating,
    /// Cuts every datagram off, and sends that a hundred times.
    Flooding,
    /// Does not know options.
    Old,
}

struct World {
    now: u64,
    resolver: Resolver,
    servers: HashMap<SocketAddr, Server>,
    /// Messages on their way to the resolver: when, and whether over a stream.
    coming: VecDeque<(u64, SocketToken, Option<Vec<u8>>)>,
    zone: Rc<RefCell<Zone>>,
    asked: u32,
    events: Vec<ResolverEvent>,
}

fn addr(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 53))
}

fn a(n: u8) -> RData<'static> {
    RData::A(A::from(Ipv4Addr::new(192, 0, 2, n)))
}

fn ip(n: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, n).into()
}

fn world(servers: &[Server], change: impl FnOnce(&mut ResolverSettings)) -> World {
    let addrs: Vec<_> = (1..=servers.len() as u8).map(addr).collect();
    let mut settings =
        ResolverSettings { servers: addrs.clone(), ipv6: false, ..ResolverSettings::default() };
    change(&mut settings);
    let mut state = 1_u64;
    let random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    World {
        now: 1_000,
        resolver: Resolver::new(settings, random),
        servers: addrs.into_iter().zip(servers.iter().cloned()).collect(),
        coming: VecDeque::new(),
        zone: Rc::new(RefCell::new(vec![("www.example", a(1), 30)])),
        asked: 0,
        events: Vec::new(),
    }
}

impl World {
    fn set(&mut self, n: u8, server: Server) {
        self.servers.insert(addr(n), server);
    }

    fn set_all(&mut self, server: &Server) {
        self.servers.values_mut().for_each(|each| *each = server.clone());
    }

    /// Looks a name up; how long it took, and what came.
    fn look(&mut self, question: &DnsQuestion) -> (u64, Result<Arc<DnsAnswer>, DnsFailure>) {
        let began = self.now;
        if let Some(answer) = self.resolver.cached(self.now, question) {
            self.pump();
            return (0, Ok(answer));
        }
        let id = self.resolver.resolve(self.now, question.clone(), 30_000);
        loop {
            self.pump();
            let done = self
                .events
                .iter()
                .position(|event| matches!(event, ResolverEvent::Done(done, _) if *done == id));
            if let Some(at) = done {
                let ResolverEvent::Done(_, result) = self.events.remove(at) else {
                    unreachable!("matched above")
                };
                return (self.now - began, result);
            }
            self.step(u64::MAX);
        }
    }

    fn addresses(&mut self, name: &str) -> Result<Vec<IpAddr>, DnsFailure> {
        let question = DnsQuestion::Addresses(DnsName::parse(name).expect("a name"));
        self.look(&question).1.map(|answer| answer.addresses.clone())
    }

    /// Lets time pass.
    fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while self.now < until {
            self.pump();
            self.step(until);
        }
    }

    /// To the next moment at which something happens.
    fn step(&mut self, limit: u64) {
        let timer = self.resolver.poll_timeout().unwrap_or(u64::MAX);
        let coming = self.coming.iter().map(|(at, ..)| *at).min().unwrap_or(u64::MAX);
        self.now = timer.min(coming).min(limit).max(self.now);
        assert_ne!(self.now, u64::MAX, "a look-up waits for nothing");
        let now = self.now;
        let (due, later): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.coming).into_iter().partition(|(at, ..)| *at <= now);
        self.coming = later;
        for (_, token, bytes) in due {
            match bytes {
                Some(bytes) => self.resolver.handle_datagram(now, token, &bytes),
                None => self.resolver.handle_error(now, token),
            }
        }
        self.resolver.handle_timeout(now);
    }

    fn pump(&mut self) {
        while let Some(transmit) = self.resolver.poll_transmit() {
            match transmit {
                Transmit::Datagram { token, server, bytes } => self.serve(token, server, &bytes, false),
                Transmit::Stream { token, server, bytes } => self.serve(token, server, &bytes[2..], true),
                Transmit::Close(token) => self.coming.retain(|(_, other, _)| *other != token),
            }
        }
        while let Some(event) = self.resolver.poll_event() {
            self.events.push(event);
        }
    }

    fn serve(&mut self, token: SocketToken, server: SocketAddr, bytes: &[u8], stream: bool) {
        self.asked += 1;
        let query = Packet::parse(bytes).expect("an oracle reads our queries");
        let good = |world: &World, code| world.reply(&query, code, false);
        let (at, reply) = match self.servers[&server].clone() {
            Server::Dead => return,
            Server::Refusing => (1, None),
            Server::Good(ms) => (ms, Some(good(self, RCODE::NoError))),
            Server::Says(code) => (1, Some(good(self, code))),
            Server::Truncating => (1, Some(self.reply(&query, RCODE::NoError, !stream))),
            Server::Flooding if stream => (5, Some(good(self, RCODE::NoError))),
            Server::Flooding => {
                let cut = self.reply(&query, RCODE::NoError, true);
                self.coming.extend((0..100).map(|_| (self.now + 1, token, Some(cut.clone()))));
                (2, Some(cut))
            }
            Server::Old if query.opt().is_some() => (1, Some(good(self, RCODE::FormatError))),
            Server::Old => (1, Some(good(self, RCODE::NoError))),
            Server::Lying => {
                let mut forged = good(self, RCODE::NoError);
                forged[0] ^= 1;
                self.coming.push_back((self.now + 1, token, Some(forged)));
                let mut other = good(self, RCODE::NoError);
                other[13] ^= 1;
                self.coming.push_back((self.now + 1, token, Some(other)));
                self.coming.push_back((self.now + 1, token, Some(b"garbage".to_vec())));
                (5, Some(good(self, RCODE::NoError)))
            }
        };
        self.coming.push_back((self.now + at, token, reply));
    }

    fn reply(&self, query: &Packet<'_>, code: RCODE, truncated: bool) -> Vec<u8> {
        let mut reply = Packet::new_reply(query.id());
        let question = query.questions[0].clone();
        let mut name = question.qname.to_string();
        let zone = self.zone.borrow();
        let known = zone.iter().any(|(owner, ..)| *owner == name);
        *reply.rcode_mut() =
            if known || name.is_empty() || code != RCODE::NoError { code } else { RCODE::NameError };
        if truncated {
            reply.set_flags(PacketFlag::TRUNCATION);
        } else if code == RCODE::NoError {
            while let Some((owner, data, ttl)) =
                zone.iter().find(|(owner, data, _)| *owner == name && matches!(data, RData::CNAME(_)))
            {
                reply.answers.push(ResourceRecord::new(owner_name(owner), CLASS::IN, *ttl, data.clone()));
                let RData::CNAME(CNAME(to)) = data else { unreachable!("found as one") };
                name = to.to_string();
            }
            let wanted = |data: &RData<'_>| question.qtype == QTYPE::TYPE(data.type_code());
            for (owner, data, ttl) in zone.iter().filter(|(owner, data, _)| *owner == name && wanted(data)) {
                reply.answers.push(ResourceRecord::new(owner_name(owner), CLASS::IN, *ttl, data.clone()));
            }
        }
        reply.questions.push(question);
        reply.build_bytes_vec_compressed().expect("a small packet")
    }
}

fn owner_name(name: &str) -> simple_dns::Name<'_> {
    simple_dns::Name::new(name).expect("a name")
}

#[test]
fn all_name_servers_dead_for_an_hour_and_no_known_name_fails() {
    let mut world = world(&[Server::Good(5), Server::Good(5)], |s| s.ipv6 = true);
    assert_eq!(world.addresses("www.example"), Ok(vec![ip(1)]));
    world.set_all(&Server::Dead);
    let (mut failed, mut slow, mut looks) = (0, 0, 0);
    let end = world.now + 3_600_000;
    while world.now < end {
        let question = DnsQuestion::Addresses(DnsName::parse("www.example").expect("a name"));
        let (took, result) = world.look(&question);
        looks += 1;
        slow = slow.max(took);
        failed += u32::from(result.is_err());
        world.pass(500);
    }
    assert_eq!(failed, 0, "of {looks}");
    assert!(slow <= 1_800, "a look-up took {slow} ms");
    let downs = world.events.iter().filter(|event| matches!(event, ResolverEvent::ServerDown(_))).count();
    assert_eq!(downs, 2, "each is told once");
    // And back: what has changed meanwhile is seen within seconds.
    world.zone.replace(vec![("www.example", a(2), 30)]);
    world.set_all(&Server::Good(5));
    world.pass(11_000);
    world.addresses("www.example").expect("stale or new");
    world.pass(1_000);
    assert_eq!(world.addresses("www.example"), Ok(vec![ip(2)]));
    assert!(world.events.iter().filter(|event| matches!(event, ResolverEvent::ServerUp(_))).count() >= 1);
}

#[test]
fn a_dead_or_failing_server_costs_a_second_once_and_then_nothing() {
    for bad in
        [Server::Dead, Server::Refusing, Server::Says(RCODE::ServerFailure), Server::Says(RCODE::Refused)]
    {
        let mut world = world(&[bad.clone(), Server::Good(5)], |s| s.valid = Some(10));
        let question = DnsQuestion::Addresses(DnsName::parse("www.example").expect("a name"));
        let mut last = 0;
        for _ in 0..12 {
            let (took, result) = world.look(&question);
            assert!(result.is_ok(), "{bad:?}");
            assert!(took <= 1_100, "{bad:?}: {took} ms");
            last = took;
            world.pass(20);
        }
        assert!(last <= 10, "{bad:?}: {last} ms");
    }
}

#[test]
fn backups_are_asked_only_when_the_others_fail() {
    let mut world = world(&[Server::Good(5), Server::Dead], |s| s.backups = vec![s.servers.remove(1)]);
    assert_eq!(world.addresses("www.example"), Ok(vec![ip(1)]));
    world.set(1, Server::Dead);
    world.set(2, Server::Good(5));
    world.zone.replace(vec![("www.example", a(2), 30)]);
    world.pass(40_000);
    world.addresses("www.example").expect("stale or new");
    world.pass(6_000);
    assert_eq!(world.addresses("www.example"), Ok(vec![ip(2)]));
}

#[test]
fn forged_and_garbled_answers_are_not_taken() {
    let mut world = world(&[Server::Lying], |_| ());
    assert_eq!(world.addresses("www.example"), Ok(vec![ip(1)]));
}

#[test]
fn what_is_cut_off_is_asked_for_over_tcp_and_old_servers_without_options() {
    assert_eq!(world(&[Server::Truncating], |_| ()).addresses("www.example"), Ok(vec![ip(1)]));
    let mut old = world(&[Server::Old], |_| ());
    assert_eq!(old.addresses("www.example"), Ok(vec![ip(1)]));
    let asked = old.asked;
    assert_eq!(old.addresses("none.example"), Err(DnsFailure::Code(3)));
    assert_eq!(old.asked, asked + 1, "it is known to be old");
}

#[test]
fn copies_of_what_is_cut_off_open_no_further_connections() {
    let mut world = world(&[Server::Flooding], |_| ());
    assert_eq!(world.addresses("www.example"), Ok(vec![ip(1)]));
    assert_eq!(world.asked, 2, "a datagram and a stream");
}

#[test]
fn a_name_that_worked_is_gone_when_that_was_said_three_times() {
    let mut world = world(&[Server::Good(1)], |_| ());
    assert_eq!(world.addresses("www.example"), Ok(vec![ip(1)]));
    let zone = world.zone.replace(Vec::new());
    world.pass(31_000);
    let asked = world.asked;
    assert_eq!(world.addresses("www.example"), Ok(vec![ip(1)]), "said once");
    world.pass(150);
    assert_eq!((world.asked - asked, world.addresses("www.example")), (2, Ok(vec![ip(1)])), "said twice");
    world.pass(250);
    assert_eq!(world.addresses("www.example"), Err(DnsFailure::Code(3)));
    world.zone.replace(zone);
    world.pass(1_500);
    assert_eq!(world.addresses("www.example"), Ok(vec![ip(1)]), "and it may come back");
}

#[test]
fn a_slip_of_a_server_harms_no_name() {
    let mut world = world(&[Server::Says(RCODE::NameError), Server::Good(1)], |s| s.valid = Some(1_000));
    world.set(1, Server::Good(1));
    assert_eq!(world.addresses("www.example"), Ok(vec![ip(1)]));
    world.set(1, Server::Says(RCODE::NameError));
    for _ in 0..100 {
        assert_eq!(world.addresses("www.example"), Ok(vec![ip(1)]), "every other server denies it");
        world.pass(700);
    }
}

#[test]
fn failures_have_their_codes() {
    assert_eq!(world(&[Server::Dead], |_| ()).addresses("www.example"), Err(DnsFailure::TimedOut));
    assert_eq!(world(&[Server::Refusing], |_| ()).addresses("www.example"), Err(DnsFailure::TimedOut));
    assert_eq!(world(&[], |_| ()).addresses("www.example"), Err(DnsFailure::TimedOut));
    let refused = Server::Says(RCODE::Refused);
    assert_eq!(world(&[refused], |_| ()).addresses("www.example"), Err(DnsFailure::Code(5)));
    assert_eq!(world(&[Server::Good(1)], |_| ()).addresses("no.example"), Err(DnsFailure::Code(3)));
}

#[test]
fn queries_in_flight_are_limited() {
    let mut world = world(&[Server::Dead], |_| ());
    for number in 0..3_000 {
        let name = DnsName::parse(&format!("n{number}.example")).expect("a name");
        world.resolver.resolve(world.now, DnsQuestion::Addresses(name), 30_000);
    }
    world.pump();
    let failed = |event: &&ResolverEvent| matches!(event, ResolverEvent::Done(_, Err(DnsFailure::Code(2))));
    assert_eq!((world.asked, world.events.iter().filter(failed).count()), (1_000, 2_000));
    world.pass(30_001);
    assert_eq!(world.events.iter().filter(|event| matches!(event, ResolverEvent::Done(..))).count(), 3_000);
    world.set_all(&Server::Good(1));
    assert_eq!(world.addresses("www.example"), Ok(vec![ip(1)]));
}

#[test]
fn one_query_is_in_flight_for_a_name_and_names_in_use_are_refreshed() {
    let mut world = world(&[Server::Good(50)], |_| ());
    let question = DnsQuestion::Addresses(DnsName::parse("www.example").expect("a name"));
    for _ in 0..100 {
        world.resolver.resolve(world.now, question.clone(), 30_000);
    }
    world.pass(100);
    assert_eq!((world.asked, world.events.len()), (1, 100));
    for _ in 0..600 {
        let (took, result) = world.look(&question);
        assert!(result.is_ok() && took == 0, "nobody waits for a name in use: {took} ms");
        world.pass(100);
    }
    assert!((2..=4).contains(&world.asked), "{}", world.asked);
}

#[test]
fn aliases_services_and_names_of_addresses() {
    let mut world = world(&[Server::Good(1)], |s| s.ipv6 = true);
    let srv = |priority, weight, port, target| {
        RData::SRV(SRV { priority, weight, port, target: owner_name(target) })
    };
    world.zone.replace(vec![
        ("alias.example", RData::CNAME(CNAME(owner_name("www.example"))), 5),
        ("loop.example", RData::CNAME(CNAME(owner_name("out.example"))), 5),
        ("www.example", a(1), 30),
        ("www.example", RData::AAAA(AAAA { address: 1 }), 30),
        ("_http._tcp.example", srv(2, 1, 81, "www.example"), 30),
        ("_http._tcp.example", srv(1, 7, 80, "alias.example"), 30),
        ("1.2.0.192.in-addr.arpa", RData::PTR(PTR(owner_name("www.example"))), 30),
    ]);
    assert_eq!(world.addresses("ALIAS.example."), Ok(vec![ip(1), "::1".parse().expect("an address")]));
    assert_eq!(world.addresses("loop.example"), Err(DnsFailure::Code(3)));
    let service = DnsQuestion::Service(DnsName::parse("_http._tcp.example").expect("a name"));
    let answer = world.look(&service).1.expect("a service");
    let found: Vec<_> = answer.services.iter().map(|s| (s.priority, s.port, s.addresses.len())).collect();
    assert_eq!(found, [(1, 80, 2), (2, 81, 2)]);
    let names = world.look(&DnsQuestion::Names(ip(1))).1.expect("a name").names.clone();
    assert_eq!(names, [DnsName::parse("www.example").expect("a name")]);
}

#[test]
fn short_names_are_searched_for_and_hosts_need_no_server() {
    let mut world = world(&[Server::Good(1)], |s| {
        s.search = ["nowhere", "example"].map(|name| DnsName::parse(name).expect("a name")).to_vec();
    });
    assert_eq!(world.addresses("www"), Ok(vec![ip(1)]));
    assert_eq!(world.addresses("www.example"), Ok(vec![ip(1)]));
    world.resolver.set_hosts(crate::system::hosts("192.0.2.9 here"));
    world.set_all(&Server::Dead);
    assert_eq!(world.addresses("here"), Ok(vec![ip(9)]));
}

proptest! {
    /// Whatever comes, nothing panics, and what simple-dns wrote is read alike.
    #[test]
    fn messages_of_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = wire::parse(&bytes);
    }

    #[test]
    fn responses_of_an_oracle(id: u16, ttl in 0..i32::MAX as u32, last: u8, name in "[a-z]{1,20}(\\.[a-z0-9-]{1,20}){0,5}") {
        let mut reply = Packet::new_reply(id);
        let kind = QTYPE::TYPE(TYPE::A);
        let owner = simple_dns::Name::new(&name).expect("a name");
        reply.questions.push(simple_dns::Question::new(owner.clone(), kind, CLASS::IN.into(), false));
        reply.answers.push(ResourceRecord::new(owner, CLASS::IN, ttl, a(last)));
        let bytes = reply.build_bytes_vec_compressed().expect("a small packet");
        let read = wire::parse(&bytes).expect("a response");
        prop_assert_eq!((read.id, read.question.1), (id, RecordType::A as u16));
        prop_assert_eq!(&read.question.0.to_string(), &name);
        prop_assert_eq!(&read.records[0].data, &RecordData::Address(ip(last)));
        prop_assert_eq!(read.records[0].ttl, ttl);
        for cut in 12..bytes.len() {
            prop_assert_eq!(wire::parse(&bytes[..cut]), None, "cut to {} bytes", cut);
        }
    }

    #[test]
    fn queries_for_an_oracle(id: u16, edns: bool, name in "[a-z]{1,20}(\\.[a-z0-9-]{1,20}){0,5}") {
        let bytes = wire::query(id, &DnsName::parse(&name).expect("a name"), RecordType::Srv, if edns { QueryOptions::Edns } else { QueryOptions::None });
        let packet = Packet::parse(&bytes).expect("a query");
        prop_assert_eq!((packet.id(), packet.opt().is_some()), (id, edns));
        prop_assert_eq!(packet.questions[0].qname.to_string(), name);
        prop_assert!(packet.has_flags(PacketFlag::RECURSION_DESIRED));
    }
}
