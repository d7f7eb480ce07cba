//! Datagrams: their network, clients and servers. Each that the server sends is judged here: it must have come, no more often
//! than it has come, from the client or server that it is of, to where it belongs, from where that one expects it.

use std::collections::BTreeMap;

use weir_sim::sessions::flows::{DatagramName, FLOW_CLIENTS, FLOW_SERVERS, FlowDoor};

use crate::addresses::{SocketAddresses, SocketName};

use crate::world::{MICROSECOND, World, WorldEvent};

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(in crate::world) struct DatagramFlight {
    from: SocketName,
    to: SocketName,
    bytes: Vec<u8>,
}

/// How often one of a name was where.
#[derive(Clone, Copy, Debug, Default)]
struct DatagramTally {
    /// It has come to the server's socket.
    came: u64,
    /// The server has sent it on.
    left: u64,
    length: u64,
}

/// What is known of datagrams.
#[derive(Debug, Default)]
pub(in crate::world) struct DatagramNetwork {
    flights: Vec<Option<DatagramFlight>>,
    tallies: BTreeMap<DatagramName, DatagramTally>,
    /// Which client the server's own port is of.
    owners: BTreeMap<u16, u64>,
    /// Notes that nothing is at a port, by clients.
    refusals: BTreeMap<u64, u64>,
    /// What `return` has sent: datagrams and bytes, by clients.
    returned: BTreeMap<u64, (u64, u64)>,
    /// Which servers are not there.
    down: [bool; FLOW_SERVERS.len()],
    /// All has been sent.
    is_over: bool,
}

impl World {
    pub(in crate::world) fn flows_are_over(&self) -> bool {
        self.plan.stream.flows.clients.is_empty() || self.network.is_over
    }

    pub(in crate::world) fn open_flows(&mut self, begin: u64) {
        let flows = self.plan.stream.flows.clone();
        let mut last = 0;
        for (which, client) in flows.clients.iter().enumerate() {
            for (place, datagram) in client.datagrams.iter().enumerate() {
                last = last.max(datagram.at);
                self.at(begin + datagram.at * MICROSECOND, WorldEvent::FlowSends(which, place));
            }
        }
        if !flows.clients.is_empty() {
            self.at(begin + (last + 3_000_000) * MICROSECOND, WorldEvent::FlowsEnd);
        }
        for down in flows.downs {
            self.at(begin + down.from * MICROSECOND, WorldEvent::FlowServerFalls(down.server));
            self.at(begin + down.to * MICROSECOND, WorldEvent::FlowServerRises(down.server));
        }
    }

    pub(in crate::world) fn flow_server_is(&mut self, server: usize, is_there: bool) {
        self.network.down[server] = !is_there;
    }

    pub(in crate::world) fn flows_end(&mut self, now: u64) {
        self.network.is_over = true;
        self.maybe_quit(now);
    }

    /// A client sends a datagram.
    pub(in crate::world) fn flow_sends(&mut self, now: u64, which: usize, place: usize) {
        let client = &self.plan.stream.flows.clients[which];
        let (from, to) = (([127, 0, 0, 1], client.port()), client.door.address());
        let bytes = client.bytes(place);
        self.carry(now, from, to, bytes);
    }

    /// A server replies.
    pub(in crate::world) fn flow_replies(&mut self, now: u64, flight: usize) {
        if let Some(flight) = self.network.flights[flight].take() {
            self.carry(now, flight.from, flight.to, flight.bytes);
        }
    }

    /// Puts a datagram on its way: it is lost, comes, or comes twice.
    fn carry(&mut self, now: u64, from: SocketName, to: SocketName, bytes: Vec<u8>) {
        let network = self.plan.stream.flows.network;
        let copies = match self.draw.below(1000) {
            draw if draw < network.lost => 0,
            draw if draw < network.lost + network.doubled => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let delay = 1 + self.draw.below(network.latency);
            let flight = self.take_off(DatagramFlight { from, to, bytes: bytes.clone() });
            self.at(now + delay * MICROSECOND, WorldEvent::DatagramArrives(flight));
        }
    }

    fn take_off(&mut self, flight: DatagramFlight) -> usize {
        self.network.flights.push(Some(flight));
        self.network.flights.len() - 1
    }

    /// A datagram is where it was sent to.
    pub(in crate::world) fn datagram_arrives(
        &mut self,
        now: u64,
        flight: usize,
        addresses: &mut SocketAddresses,
    ) {
        let Some(flight) = self.network.flights[flight].take() else { return };
        let server = FLOW_SERVERS.iter().position(|port| flight.to == ([127, 0, 0, 1], *port));
        if let Some(server) = server {
            return self.flow_server_gets(now, server, &flight, addresses);
        }
        let clients = FLOW_CLIENTS..FLOW_CLIENTS + self.plan.stream.flows.clients.len() as u16;
        if clients.contains(&flight.to.1) {
            // What comes was judged when it left.
            return self.hash.add(&flight.bytes);
        }
        if addresses.deliver(flight.from, flight.to, &flight.bytes)
            && let Some(name) = DatagramName::of(&flight.bytes)
        {
            let tally = self.network.tallies.entry(name).or_default();
            tally.came += 1;
            tally.length = flight.bytes.len() as u64;
        }
    }

    fn flow_server_gets(
        &mut self,
        now: u64,
        server: usize,
        flight: &DatagramFlight,
        addresses: &mut SocketAddresses,
    ) {
        let Some(name) = DatagramName::of(&flight.bytes) else { return };
        if self.network.down[server] {
            if self.plan.stream.flows.network.reports && addresses.refuse(flight.to, flight.from) {
                *self.network.refusals.entry(name.client).or_default() += 1;
            }
            return;
        }
        self.hash.add(&flight.bytes);
        let clients = &self.plan.stream.flows.clients;
        let Some(datagram) = clients
            .get(name.client as usize - 1)
            .and_then(|client| client.datagrams.get(name.place))
            .copied()
        else {
            return;
        };
        for reply in 1..=datagram.replies {
            let bytes = DatagramName { reply, ..name }.bytes(datagram.length);
            let flight = self.take_off(DatagramFlight { from: flight.to, to: flight.from, bytes });
            let delay = datagram.delay * reply;
            self.at(now + delay * MICROSECOND, WorldEvent::FlowReplies(flight));
        }
    }

    /// The server has sent a datagram.
    pub(crate) fn server_sends(&mut self, now: u64, from: SocketName, to: SocketName, bytes: &[u8]) {
        let wrong = match FLOW_SERVERS.contains(&to.1) {
            true => self.judge_forth(from, bytes),
            false => self.judge_back(from, to, bytes),
        };
        if let Err(wrong) = wrong {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
            self.note(format_args!("bad datagram: {wrong}: {text:?} from {from:?} to {to:?}"));
        }
        self.carry(now, from, to, bytes.to_vec());
    }

    /// What goes to a server.
    fn judge_forth(&mut self, from: SocketName, bytes: &[u8]) -> Result<(), &'static str> {
        let network = &mut self.network;
        let name = DatagramName::of(bytes).ok_or("nobody's")?;
        if *network.owners.entry(from.1).or_insert(name.client) != name.client {
            return Err("of two clients from one port");
        }
        // Each refusal sends all that has come without a reply to the next server.
        let again = network.refusals.get(&name.client).copied().unwrap_or(0);
        let tally = network.tallies.get_mut(&name).ok_or("it has not come")?;
        tally.left += 1;
        if name.reply > 0 || tally.length != bytes.len() as u64 || tally.left > tally.came * (1 + again) {
            return Err("more or another than has come");
        }
        Ok(())
    }

    /// What goes to a client.
    fn judge_back(&mut self, from: SocketName, to: SocketName, bytes: &[u8]) -> Result<(), &'static str> {
        let clients = &self.plan.stream.flows.clients;
        let place = usize::from(to.1.wrapping_sub(FLOW_CLIENTS));
        let client = clients.get(place).filter(|_| to.0 == [127, 0, 0, 1]).ok_or("to nobody")?;
        if from != client.door.address() {
            return Err("from another address than the client has sent to");
        }
        let network = &mut self.network;
        if client.door == FlowDoor::Returned {
            let returned = network.returned.entry(client.number).or_default();
            *returned = (returned.0 + 1, returned.1 + bytes.len() as u64);
            let is_right = bytes == format!("returned to {}", to.1).as_bytes();
            return if is_right { Ok(()) } else { Err("not what is returned") };
        }
        let name = DatagramName::of(bytes).ok_or("nobody's")?;
        if name.client != client.number || name.reply == 0 {
            return Err("to another client");
        }
        let tally = network.tallies.get_mut(&name).ok_or("it has not come")?;
        tally.left += 1;
        let is_same = tally.length == bytes.len() as u64 && tally.left <= tally.came;
        if is_same { Ok(()) } else { Err("more or another than has come") }
    }

    /// Notes what became of each client's datagrams.
    pub(in crate::world) fn note_flows(&mut self) {
        let clients = self.plan.stream.flows.clients.clone();
        for client in clients {
            let mut sums = [0; 6];
            let [came, came_bytes, forwarded_bytes, unforwarded, unreturned, back_bytes] = &mut sums;
            for (name, tally) in self.network.tallies.iter().filter(|(name, _)| name.client == client.number)
            {
                let less = u64::from(tally.left < tally.came);
                if name.reply == 0 {
                    *came += tally.came;
                    *came_bytes += tally.came * tally.length;
                    *forwarded_bytes += tally.left * tally.length;
                    *unforwarded += less;
                } else {
                    *unreturned += less;
                    *back_bytes += tally.left * tally.length;
                }
            }
            let (returned, bytes) = self.network.returned.get(&client.number).copied().unwrap_or_default();
            let (n, sent) = (client.number, bytes + *back_bytes);
            self.note(format_args!(
                "d c={n} came={came} came_bytes={came_bytes} forwarded_bytes={forwarded_bytes} \
                 unforwarded={unforwarded} unreturned={unreturned} returned={returned} returned_bytes={sent}"
            ));
        }
    }
}
