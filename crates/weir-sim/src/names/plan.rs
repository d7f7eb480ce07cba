//! What a seed draws of names: which addresses they have when, what their servers say, and what the network does with it.

use std::fmt::Write;
use std::net::Ipv4Addr;

use crate::draw::Draw;
use crate::plan::UPSTREAM_PATIENCE;

/// Where the name servers are.
pub const NAME_SERVERS: [u16; 2] = [9531, 9532];
/// Where the hosts of names listen.
pub const NAMED_PORT: u16 = 9301;
/// How many hosts there are; the last one has no name: it is what forged responses say.
pub const NAMED_HOSTS: usize = 6;
/// The numbers of requests for them begin after this.
pub const NAMED_NUMBERS: u64 = 800_000;
/// They come within so many microseconds.
pub const NAMES_SPAN: u64 = 30_000_000;
/// How many names there are.
pub const NAMES: u64 = 4;

/// The address of a host.
pub fn host(which: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, 1 + which as u8)
}

/// Names and name servers, where there are some.
#[derive(Clone, Debug, Default)]
pub struct NamesPlan {
    /// The settings.
    pub settings: Option<NameSettings>,
    /// What becomes of each name, in the order of time.
    pub names: Vec<Vec<NamePhase>>,
}

/// The values of `resolver`, and what the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameSettings {
    /// `valid`, seconds.
    pub valid: Option<u64>,
    /// `resolver_timeout`, seconds.
    pub timeout: u64,
    /// Of 1,000 datagrams, so many are lost.
    pub lost: u64,
    /// So many come twice.
    pub doubled: u64,
    /// So many come after one that somebody else has sent.
    pub forged: u64,
    /// The longest way of one, microseconds.
    pub latency: u64,
}

/// What is said of a name from a time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePhase {
    /// From when, microseconds after the first client may come.
    pub from: u64,
    /// What is said.
    pub reply: NameReply,
    /// The hosts.
    pub hosts: Vec<usize>,
    /// The TTL, seconds.
    pub ttl: u32,
}

/// What a name server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameReply {
    /// Addresses.
    Addresses,
    /// The same, over TCP only.
    Long,
    /// That there are none.
    Empty,
    /// That there is no such name.
    Absent,
    /// That it can't say.
    Fails,
    /// That it does not want to.
    Refuses,
    /// Nothing.
    Silent,
}

impl NameReply {
    /// Whether addresses come.
    pub fn is_good(self) -> bool {
        matches!(self, NameReply::Addresses | NameReply::Long)
    }
}

/// What is asked of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedAsk {
    /// By its name in a variable, else by `server NAME resolve`.
    pub is_variable: bool,
    /// Which name.
    pub name: usize,
}

impl NamedAsk {
    /// What `draw` draws.
    pub(crate) fn drawn(draw: &mut Draw) -> NamedAsk {
        NamedAsk { is_variable: draw.chance(1, 2), name: draw.below(NAMES) as usize }
    }

    /// The path and arguments.
    pub(crate) fn path(self, number: u64) -> String {
        let door = if self.is_variable { "variable" } else { "resolve" };
        format!("/named/{door}/{}/length?n={number}&size=60", self.name)
    }
}

impl NamesPlan {
    /// What `draw` draws.
    pub(crate) fn drawn(draw: &mut Draw) -> NamesPlan {
        if draw.chance(3, 4) {
            return NamesPlan::default();
        }
        let is_calm = draw.chance(1, 2);
        let rate = |draw: &mut Draw| if is_calm { 0 } else { *draw.one_of(&[0, 100, 300]) };
        let settings = NameSettings {
            valid: draw.chance(1, 3).then(|| draw.between(1, 5)),
            timeout: *draw.one_of(&[2, 5, 30]),
            lost: rate(draw),
            doubled: rate(draw),
            forged: rate(draw),
            latency: *draw.one_of(&[1000, 20_000, 200_000]),
        };
        let names = (0..NAMES).map(|_| NamePhase::several(draw)).collect();
        NamesPlan { settings: Some(settings), names }
    }

    /// What is said of a name at a time.
    pub fn phase(&self, name: usize, at: u64) -> Option<&NamePhase> {
        self.names.get(name)?.iter().rfind(|phase| phase.from <= at)
    }

    /// What is said of a name within a time.
    pub(crate) fn phases(&self, name: usize, from: u64, to: u64) -> impl Iterator<Item = &NamePhase> {
        let all = self.names.get(name).map_or(&[][..], Vec::as_slice);
        let next = |at: usize| all.get(at + 1).map_or(u64::MAX, |phase| phase.from);
        let is_in = move |(at, phase): &(usize, &NamePhase)| phase.from <= to && next(*at) > from;
        all.iter().enumerate().filter(is_in).map(|(_, phase)| phase)
    }

    /// Lines of `http`.
    pub(crate) fn block(&self) -> String {
        let Some(settings) = self.settings else { return String::new() };
        let valid = settings.valid.map_or(String::new(), |valid| format!(" valid={valid}s"));
        let servers = NAME_SERVERS.map(|port| format!("127.0.0.1:{port}")).join(" ");
        let mut text = format!(
            "    resolver {servers} ipv6=off stale=off confirm=1{valid};\n    resolver_timeout {}s;\n",
            settings.timeout
        );
        for name in 0..self.names.len() {
            let _ = writeln!(
                text,
                "    upstream named{name} {{ zone named{name} 64k; server h{name}.sim:{NAMED_PORT} resolve max_fails=0; \
                 keepalive 0; }}"
            );
        }
        text
    }

    /// The locations.
    pub(crate) fn locations(&self) -> String {
        if self.settings.is_none() {
            return String::new();
        }
        let common = format!(
            "proxy_http_version 1.1; proxy_set_header Connection close; proxy_connect_timeout 3s; \
             proxy_read_timeout {UPSTREAM_PATIENCE}s;"
        );
        let mut text = format!(
            "        location ~ ^/named/variable/(?<named>[0-9]) {{ proxy_pass http://h$named.sim:{NAMED_PORT}; \
             {common} }}\n"
        );
        for name in 0..self.names.len() {
            let _ = writeln!(
                text,
                "        location /named/resolve/{name}/ {{ proxy_pass http://named{name}; {common} }}"
            );
        }
        text
    }
}

impl NamePhase {
    fn several(draw: &mut Draw) -> Vec<NamePhase> {
        let mut from = 0;
        let count = draw.between(1, 4);
        let mut phases = Vec::new();
        for _ in 0..count {
            phases.push(NamePhase::drawn(draw, from));
            from += draw.between(1_000_000, NAMES_SPAN / 2);
        }
        phases
    }

    fn drawn(draw: &mut Draw, from: u64) -> NamePhase {
        use NameReply::{Absent, Addresses, Empty, Fails, Long, Refuses, Silent};
        let reply = match draw.chance(2, 3) {
            true => *draw.one_of(&[Addresses, Addresses, Long]),
            false => *draw.one_of(&[Empty, Absent, Fails, Refuses, Silent]),
        };
        let mut hosts: Vec<usize> =
            (0..draw.between(1, 3)).map(|_| draw.below(NAMED_HOSTS as u64 - 1) as usize).collect();
        hosts.sort_unstable();
        hosts.dedup();
        NamePhase { from, reply, hosts, ttl: *draw.one_of(&[0, 1, 3, 10]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_replies_are_drawn_and_each_time_has_its_own() {
        let plans: Vec<NamesPlan> = (0..100).map(|seed| NamesPlan::drawn(&mut Draw::new(seed))).collect();
        let text = format!("{plans:?}");
        for word in ["Addresses", "Long", "Empty", "Absent", "Fails", "Refuses", "Silent"] {
            assert!(text.contains(word), "{word}");
        }
        let phase = |from, ttl| NamePhase { from, reply: NameReply::Empty, hosts: Vec::new(), ttl };
        let plan = NamesPlan { settings: None, names: vec![vec![phase(0, 1), phase(100, 2), phase(200, 3)]] };
        assert_eq!(plan.phase(0, 150).map(|phase| phase.ttl), Some(2));
        let ttls = |from, to| plan.phases(0, from, to).map(|phase| phase.ttl).collect::<Vec<_>>();
        assert_eq!((ttls(100, 199), ttls(99, 200), ttls(300, 400)), (vec![2], vec![1, 2, 3], vec![3]));
    }
}
