//! What a seed draws: the configuration's settings, the clients with their requests, and what happens to the server.
//!
//! All times are microseconds of the simulation's clock.

use crate::cached::CachePlan;
use crate::crash::CrashPlan;
pub use crate::downtime::UPSTREAM_PORTS;
use crate::downtime::UpstreamDown;
use crate::draw::Draw;
use crate::files::FilePlan;
use crate::framed::{FramedAsk, FramedPlan};
use crate::health::{HEALTH_NUMBERS, HEALTH_SPAN, HealthPlan};
use crate::http2::plan::{Http2ClientPlan, Http2Plan};
use crate::limits::LimitPlan;
pub use crate::request::{
    BodyPlan, FILES, MANNERS, OBJECT_NUMBERS, OBJECTS, RequestPlan, Target, UpstreamManner, content,
    content_part,
};
use crate::routing::plan::{ROUTED_NUMBERS, ROUTED_PORT, RoutingPlan};
use crate::sessions::plan::{HTTP_PASS_PORT, StreamPlan};
use crate::tls::{TlsPlan, TlsSettings};
use crate::tunnels::plan::TunnelsPlan;
use crate::upstream_tls::UpstreamTlsPlan;

/// Everything that one simulation does, drawn from its seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The settings that are in force.
    pub settings: Settings,
    /// Those who ask.
    pub clients: Vec<ClientPlan>,
    /// When the configuration is loaded again.
    pub reloads: Vec<u64>,
    /// When upstream servers are not there.
    pub downs: Vec<UpstreamDown>,
    /// Of 1,000 calls of accept(2), so many fail.
    pub accept_faults: u64,
    /// Those who ask by HTTP/2, and the server's settings for them.
    pub http2: Http2Plan,
    /// The server's settings of TLS, if it speaks it.
    pub tls: Option<TlsSettings>,
    /// The cache, if there is one.
    pub cache: Option<CachePlan>,
    /// What happens to files.
    pub files: FilePlan,
    /// How the server ends in the middle of what it does, if it does.
    pub crash: Option<CrashPlan>,
    /// Sessions, and the settings of `stream`.
    pub stream: StreamPlan,
    /// Servers and locations with what is due from them.
    pub routing: RoutingPlan,
    /// Upstream servers that speak TLS, if there are any.
    pub upstream_tls: Option<UpstreamTlsPlan>,
    /// Limits of requests, if there are some.
    pub limits: Option<LimitPlan>,
    /// Upstream servers that fail and recover, if there are any.
    pub health: HealthPlan,
    /// WebSockets.
    pub tunnels: TunnelsPlan,
    /// Upstream servers that speak HTTP/2, if there are any.
    pub framed: Option<FramedPlan>,
}

/// Which of the requests that upstream servers are asked for are for objects of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectShare {
    /// Those without a body.
    All,
    /// Most of those that are usual.
    Some,
}

/// The values of the configuration that is served.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `worker_processes`.
    pub workers: u64,
    /// `keepalive_requests`.
    pub keepalive_requests: u64,
    /// `keepalive_timeout`, seconds.
    pub keepalive_seconds: u64,
    /// `proxy_buffering`.
    pub buffering: bool,
    /// `proxy_request_buffering`.
    pub request_buffering: bool,
    /// `keepalive` of the upstream group; 0: not there.
    pub upstream_keepalive: u64,
    /// `proxy_buffer_size` and `proxy_buffers`, bytes.
    pub buffer: u64,
    /// `gzip`.
    pub gzip: bool,
    /// `sendfile`.
    pub sendfile: bool,
    /// `reuseport` of `listen`: who accepts a connection.
    pub reuseport: bool,
    /// Whether scripts log what differs between two processes on one machine.
    pub logs_own: bool,
    /// The line of `upstream` that says how a server is chosen, one of [`BALANCES`].
    pub balance: &'static str,
    /// `open_file_cache`.
    pub keeps_files: bool,
    /// `buffer` and `flush` of `access_log`.
    pub buffers_log: bool,
}

/// A client's connection.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// When it connects.
    pub at: u64,
    /// What it asks.
    pub requests: Vec<RequestPlan>,
    /// Longest piece in which it sends, bytes.
    pub piece: u64,
    /// Longest time between two pieces.
    pub gap: u64,
    /// Longest time between two of its reads.
    pub read_gap: u64,
    /// Most that it reads at once, bytes.
    pub read: u64,
    /// Whether its receive buffer is small.
    pub is_narrow: bool,
    /// How it leaves.
    pub end: ClientEnd,
    /// What it does of TLS, if it speaks it.
    pub tls: Option<TlsPlan>,
    /// Whether it comes by `pass` of `stream`, if it speaks no TLS.
    pub is_passed: bool,
}

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEnd {
    /// With `Connection: close` in its last request, after the response.
    Asks,
    /// By closing after the last response.
    Closes,
    /// It stays until the server closes.
    Stays,
    /// It closes, whatever is under way, after so long.
    Leaves(u64),
    /// It shuts down its sending side after the last request, and reads on.
    HalfCloses,
}

/// When the first client may come: the server has started by then.
pub const CLIENTS_BEGIN: u64 = 2_000_000;
/// Where the server listens.
pub const SERVER_PORT: u16 = 8080;
/// How an upstream server is chosen: lines of `upstream`.
pub const BALANCES: [&str; 9] = [
    "",
    "",
    "least_conn;",
    "ip_hash;",
    "random;",
    "random two least_conn;",
    "hash $arg_n;",
    "hash $uri consistent;",
    "least_time header;",
];
/// `proxy_read_timeout`, seconds.
pub const UPSTREAM_PATIENCE: u64 = 7;

impl Plan {
    /// What `seed` draws.
    pub fn new(seed: u64) -> Plan {
        let draw = Draw::new(seed);
        let mut few = draw.apart(1);
        let settings = Settings::drawn(&mut draw.apart(2));
        let span = few.between(1, 20) * 100_000;
        let count = *few.one_of(&[1, 3, 10, 30, 60]);
        let reloads = (0..few.below(3)).map(|_| few.below(span + 200_000)).collect();
        let downs = UpstreamDown::several(&mut few, span, UPSTREAM_PORTS.len());
        let accept_faults = *few.one_of(&[0, 0, 0, 50, 300]);
        let mut number = 0;
        let clients = (0..count)
            .map(|which| ClientPlan::drawn(&mut draw.apart(100 + which), span, &mut number))
            .collect();
        let http2 = Http2Plan::drawn(&mut draw.apart(3), span, &mut number);
        let mut secrets = draw.apart(4);
        let tls = TlsSettings::drawn(&mut secrets);
        let files = FilePlan::drawn(&mut draw.apart(6), span + 500_000);
        let crash = CrashPlan::drawn(&mut draw.apart(7), span);
        let mut plan = Plan {
            seed,
            settings,
            clients,
            reloads,
            downs,
            accept_faults,
            http2,
            tls,
            cache: None,
            files,
            crash,
            stream: StreamPlan::drawn(&mut draw.apart(9), span, tls.as_ref()),
            routing: RoutingPlan::default(),
            upstream_tls: UpstreamTlsPlan::drawn(&mut draw.apart(14)),
            limits: None,
            health: HealthPlan::drawn(&mut draw.apart(17)),
            tunnels: TunnelsPlan::default(),
            framed: FramedPlan::drawn(&mut draw.apart(31)),
        };
        plan.draw_tunnels(&mut draw.apart(30), span);
        if tls.is_some() {
            plan.draw_secrets(&mut secrets);
        }
        plan.draw_cache(&mut draw.apart(5));
        plan.draw_passed(&mut draw.apart(12));
        plan.draw_routing(&mut draw.apart(13), span);
        plan.draw_upstream_tls(&mut draw.apart(15));
        if plan.upstream_tls.is_some() {
            plan.downs.extend(UpstreamTlsPlan::downs(&mut draw.apart(16), span));
        }
        plan.draw_framed(&mut draw.apart(32));
        plan.draw_limits(&mut draw.apart(19), span);
        plan.draw_health(&mut draw.apart(18));
        plan
    }

    /// WebSockets. Requests precede them where connections take several.
    fn draw_tunnels(&mut self, draw: &mut Draw, span: u64) {
        let may_follow = self.settings.keepalive_requests > 2 && self.settings.keepalive_seconds > 0;
        self.tunnels = TunnelsPlan::drawn(draw, span, self.tls.as_ref(), may_follow);
    }

    /// Servers of routing, and who asks them.
    fn draw_routing(&mut self, draw: &mut Draw, span: u64) {
        if draw.chance(1, 2) {
            return;
        }
        self.routing = RoutingPlan::drawn(&mut draw.apart(1));
        let mut number = ROUTED_NUMBERS;
        for _ in 0..draw.between(2, 8) {
            self.clients.push(ClientPlan::routed(draw, span, &mut number));
        }
        for _ in 0..draw.below(3) {
            self.http2.clients.push(Http2ClientPlan::routed(draw, span, &mut number));
        }
    }

    /// Which clients come by `pass`, if there is a `stream`.
    fn draw_passed(&mut self, draw: &mut Draw) {
        let has_stream = !self.stream.is_empty();
        for client in &mut self.clients {
            client.is_passed = has_stream && draw.chance(1, 5);
        }
    }

    /// Whether there is a cache, and which requests ask for its objects.
    fn draw_cache(&mut self, draw: &mut Draw) {
        if draw.chance(1, 2) && self.crash.is_none() {
            return;
        }
        self.cache = Some(CachePlan::drawn(draw));
        // What a crash leaves of the cache is what matters then.
        let share = if self.crash.is_some() { ObjectShare::All } else { ObjectShare::Some };
        self.draw_objects(draw, share);
    }

    /// Which requests ask for objects through the cache, if there is one.
    pub(crate) fn draw_objects(&mut self, draw: &mut Draw, share: ObjectShare) {
        if self.cache.is_none() {
            return;
        }
        for request in self.requests_mut() {
            let is_usual = matches!(
                request.target,
                Target::Proxied(UpstreamManner::Length | UpstreamManner::Chunked, _)
            );
            let is_meant = match share {
                ObjectShare::All => matches!(request.target, Target::Proxied(..)),
                ObjectShare::Some => is_usual && draw.chance(2, 3),
            };
            if is_meant && request.body.is_none() {
                request.target = Target::Cached(draw.below(OBJECTS.len() as u64) as usize);
            }
        }
    }

    /// Which requests ask for what servers that speak TLS have, if there are any.
    fn draw_upstream_tls(&mut self, draw: &mut Draw) {
        let Some(doors) = self.upstream_tls.as_ref().map(|tls| tls.doors.len() as u64) else { return };
        for request in self.requests_mut() {
            if let Target::Proxied(manner, size) = request.target
                && draw.chance(3, 5)
            {
                request.target = Target::Secret(draw.below(doors) as usize, manner, size);
            }
        }
    }

    /// Which requests ask for what servers that speak HTTP/2 have, if there are any.
    fn draw_framed(&mut self, draw: &mut Draw) {
        if self.framed.is_none() {
            return;
        }
        for request in self.requests_mut() {
            if let Target::Proxied(_, size) = request.target
                && draw.chance(3, 5)
            {
                request.target = Target::Framed(FramedAsk::drawn(draw, size));
            }
        }
    }

    /// Who asks the servers that fail and recover, if there are any, and when the configuration is loaded again meanwhile.
    fn draw_health(&mut self, draw: &mut Draw) {
        if self.health.is_empty() {
            return;
        }
        let count = *draw.one_of(&[20, 100, 200]);
        let clients = (1..=count).map(|which| ClientPlan::watching(draw, HEALTH_NUMBERS + which));
        self.clients.extend(clients);
        self.reloads.extend((0..draw.below(3)).map(|_| draw.below(HEALTH_SPAN)));
    }

    fn requests_mut(&mut self) -> impl Iterator<Item = &mut RequestPlan> {
        let first = self.clients.iter_mut().flat_map(|client| &mut client.requests);
        let streams = self.http2.clients.iter_mut().flat_map(|client| &mut client.requests);
        first.chain(streams.map(|stream| &mut stream.request))
    }

    /// All requests.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &RequestPlan> {
        let first = self.clients.iter().flat_map(|client| &client.requests);
        let streams = self.http2.clients.iter().flat_map(|client| &client.requests);
        first.chain(streams.map(|stream| &stream.request))
    }

    /// The request with this number, of any client.
    pub fn request(&self, number: u64) -> Option<&RequestPlan> {
        self.requests().find(|request| request.number == number)
    }

    /// Who of the clients speaks TLS, and how.
    fn draw_secrets(&mut self, draw: &mut Draw) {
        let first = self.clients.iter_mut().map(|client| &mut client.tls);
        for tls in first.chain(self.http2.clients.iter_mut().map(|client| &mut client.tls)) {
            *tls = draw.chance(1, 2).then(|| TlsPlan::drawn(draw));
        }
    }
}

/// `max` of `open_file_cache`, of each worker.
pub const OPEN_FILES_MOST: u64 = 3;

/// Numbers of requests to the second server begin after this.
const SECOND: u64 = 500_000;

impl Plan {
    /// What happens to the server that is started after the crash: other clients, who ask for the same objects, and no faults.
    pub fn after_crash(&self) -> Plan {
        let draw = Draw::new(self.seed).apart(8);
        let mut few = draw.apart(1);
        let span = few.between(1, 5) * 100_000;
        let count = *few.one_of(&[3, 8, 16]);
        let mut number = SECOND;
        let clients = (0..count)
            .map(|which| ClientPlan::drawn(&mut draw.apart(100 + which), span, &mut number))
            .collect();
        let http2 = Http2Plan { clients: Vec::new(), ..self.http2.clone() };
        let mut plan = Plan {
            clients,
            http2,
            reloads: Vec::new(),
            downs: Vec::new(),
            accept_faults: 0,
            files: FilePlan::default(),
            crash: None,
            health: HealthPlan { ills: Vec::new(), ..self.health.clone() },
            tunnels: self.tunnels.without_clients(),
            stream: self.stream.after_crash(&mut draw.apart(3), span, self.tls.as_ref()),
            ..self.clone()
        };
        plan.draw_upstream_tls(&mut draw.apart(4));
        plan.draw_framed(&mut draw.apart(5));
        plan.draw_objects(&mut draw.apart(2), ObjectShare::All);
        plan
    }
}

impl Settings {
    fn drawn(draw: &mut Draw) -> Settings {
        Settings {
            workers: draw.between(1, 3),
            keepalive_requests: *draw.one_of(&[1, 2, 5, 1000]),
            keepalive_seconds: *draw.one_of(&[0, 1, 5, 75]),
            buffering: draw.chance(1, 2),
            request_buffering: draw.chance(1, 2),
            upstream_keepalive: *draw.one_of(&[0, 1, 8]),
            buffer: *draw.one_of(&[4096, 8192, 32_768]),
            gzip: draw.chance(1, 4),
            sendfile: draw.chance(1, 2),
            reuseport: draw.chance(1, 3),
            logs_own: draw.chance(1, 4),
            balance: BALANCES[draw.below(BALANCES.len() as u64) as usize],
            keeps_files: draw.chance(1, 3),
            buffers_log: draw.chance(1, 4),
        }
    }
}

impl ClientPlan {
    pub(crate) fn drawn(draw: &mut Draw, span: u64, number: &mut u64) -> ClientPlan {
        let count = *draw.one_of(&[1, 1, 2, 4, 10]);
        let requests = (0..count).map(|at| RequestPlan::drawn(draw, at > 0, number)).collect();
        ClientPlan {
            at: draw.below(span),
            requests,
            piece: *draw.one_of(&[1, 7, 100, 1500, 1 << 20]),
            gap: *draw.one_of(&[0, 10, 1000, 30_000]),
            read_gap: *draw.one_of(&[0, 10, 1000, 5000]),
            read: *draw.one_of(&[100, 1500, 1 << 16]),
            is_narrow: draw.chance(1, 3),
            end: match draw.below(8) {
                0 | 1 => ClientEnd::Asks,
                2 | 3 => ClientEnd::Closes,
                4 => ClientEnd::Stays,
                5 => ClientEnd::HalfCloses,
                _ => ClientEnd::Leaves(draw.below(400_000)),
            },
            tls: None,
            is_passed: false,
        }
    }

    /// One that asks the servers that fail and recover, once.
    fn watching(draw: &mut Draw, number: u64) -> ClientPlan {
        // Some come at once: what is for one of them is not for the other.
        let at =
            if draw.chance(1, 2) { draw.below(HEALTH_SPAN) } else { draw.below(30) * (HEALTH_SPAN / 30) };
        ClientPlan {
            at,
            requests: vec![RequestPlan::watching(number)],
            end: ClientEnd::Closes,
            is_narrow: false,
            read: 1500,
            ..ClientPlan::drawn(draw, 1, &mut 0)
        }
    }

    /// One that asks the servers of routing.
    fn routed(draw: &mut Draw, span: u64, number: &mut u64) -> ClientPlan {
        let count = *draw.one_of(&[1, 4, 10, 20]);
        let requests = (1..=count).map(|at| RequestPlan::routed(draw, at == count, number)).collect();
        let mut client = ClientPlan { requests, ..ClientPlan::drawn(draw, span, &mut 0) };
        if draw.chance(3, 4) {
            // It is there to see responses.
            client.end = if draw.chance(1, 2) { ClientEnd::Asks } else { ClientEnd::Closes };
            (client.piece, client.read) = (1500, 1500);
        }
        client
    }

    /// Where it connects.
    pub fn port(&self) -> u16 {
        let door = if self.is_passed { HTTP_PASS_PORT } else { SERVER_PORT };
        match self.requests.first() {
            Some(request) if request.ask.is_some() => ROUTED_PORT,
            _ => self.tls.map_or(door, |tls| tls.port()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan() {
        for seed in 0..200 {
            let (one, other) = (Plan::new(seed), Plan::new(seed));
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
            let numbers: Vec<u64> =
                one.clients.iter().flat_map(|c| &c.requests).map(|request| request.number).collect();
            let numbers = numbers.into_iter().filter(|number| *number < ROUTED_NUMBERS).collect::<Vec<_>>();
            assert!(numbers.iter().zip(1..).all(|(n, at)| *n == at), "numbers are given once");
        }
    }

    #[test]
    fn all_manners_and_ends_are_drawn() {
        let plans: Vec<Plan> = (0..100).map(Plan::new).collect();
        let text = format!("{plans:?}");
        for word in
            ["Return", "File", "Lua", "Silent", "CutShort", "ToClose", "HalfCloses", "Leaves", "Stays"]
        {
            assert!(text.contains(word), "{word}");
        }
    }

    #[test]
    fn the_second_server_has_the_same_configuration_and_other_requests() {
        let seed = (0..).find(|seed| Plan::new(*seed).crash.is_some()).unwrap_or(0);
        let (plan, second) = (Plan::new(seed), Plan::new(seed).after_crash());
        assert_eq!(plan.configuration("/d"), second.configuration("/d"));
        let numbers = |plan: &Plan| -> Vec<u64> {
            plan.clients.iter().flat_map(|client| &client.requests).map(|request| request.number).collect()
        };
        assert!(numbers(&second).iter().all(|number| !numbers(&plan).contains(number)));
    }

    #[test]
    fn some_seeds_crash() {
        let crashes: Vec<CrashPlan> = (0..200).filter_map(|seed| Plan::new(seed).crash).collect();
        assert!((20..80).contains(&crashes.len()), "{}", crashes.len());
        assert!(crashes.iter().any(|one| one.is_power_loss) && crashes.iter().any(|one| !one.is_power_loss));
    }
}
