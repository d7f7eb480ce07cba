//! Hits of probes, put together to requests.
//!
//! nginx runs one function of one request at a time, so the functions that are open form a stack, and what is on top of
//! it is charged. What the probes themselves take between two hits is known ([`ProbeFloor`]) and left out of all times: the
//! clock here is stopped for as long.

use std::collections::HashMap;

use weir_sys::perf::{ProbeHit, RecordKind};
use weir_trace::{ConnectionStep, Site, SiteKind, SiteTable, WaitKind};

use super::floor::{ProbeFloor, ProbedEnd};
use super::memory::ProcessMemory;
use super::modules::{self, FunctionRole, PhaseEngine, ProbeSpot};
use super::request::ProbedRequest;

/// What goes on in the probed process.
pub(super) struct ProcessFollower<'a> {
    spots: &'a [ProbeSpot],
    /// Which of them begin with an instruction that the kernel steps over.
    stepped: Vec<bool>,
    /// What kind of place each site is.
    kinds: HashMap<Site, SiteKind>,
    engine: PhaseEngine,
    floor: ProbeFloor,
    memory: &'a ProcessMemory,
    stack: Vec<OpenCall>,
    /// By the address of nginx's own.
    pub(super) requests: HashMap<u64, ProbedRequest>,
    /// Subrequests, and the request that each is part of.
    parts: HashMap<u64, u64>,
    /// The request that was just made: its head is read.
    fresh: Option<u64>,
    before: Option<ProbeHit>,
    /// Nanoseconds without what the probes took.
    now: u64,
    /// What they took.
    pub(super) probing: u64,
    /// Requests that are over.
    pub(super) ended: Vec<(u64, ProbedRequest, u64)>,
}

/// A function that has not returned.
struct OpenCall {
    number: u32,
    site: Site,
    /// The request it is charged to.
    request: Option<u64>,
    /// Where its frame is: a return from above it means that its own was lost.
    stack: u64,
    entered: u64,
    first: u64,
}

impl<'a> ProcessFollower<'a> {
    pub(super) fn new(
        spots: &'a [ProbeSpot],
        stepped: Vec<bool>,
        engine: PhaseEngine,
        floor: ProbeFloor,
        memory: &'a ProcessMemory,
    ) -> ProcessFollower<'a> {
        let table = SiteTable::global();
        let sites = spots.iter().filter_map(|spot| match spot.role {
            FunctionRole::At(site) | FunctionRole::Upstream(site) => Some(site),
            _ => None,
        });
        let kinds = sites.map(|site| (site, table.info(site).kind)).collect();
        ProcessFollower {
            spots,
            stepped,
            kinds,
            engine,
            floor,
            memory,
            stack: Vec::new(),
            requests: HashMap::new(),
            parts: HashMap::new(),
            fresh: None,
            before: None,
            now: 0,
            probing: 0,
            ended: Vec::new(),
        }
    }

    /// The request that a hit forgets, or in whose place it makes another one.
    pub(super) fn ended_by(&self, hit: &ProbeHit) -> Option<u64> {
        let role = self.spots.get(hit.number as usize).map(|spot| spot.role);
        match (hit.what, role) {
            (RecordKind::Entry, Some(FunctionRole::Free)) => Some(hit.first),
            (RecordKind::Return, Some(FunctionRole::Create)) => Some(hit.result),
            _ => None,
        }
    }

    /// Forgets what was under way: hits were lost.
    pub(super) fn restart(&mut self) {
        self.stack.clear();
        self.requests.clear();
        self.parts.clear();
        (self.fresh, self.before) = (None, None);
    }

    /// Takes the next hit.
    pub(super) fn take(&mut self, hit: ProbeHit) {
        self.advance(&hit);
        match hit.what {
            RecordKind::Entry => self.enter(&hit),
            RecordKind::Return => self.leave(&hit),
            RecordKind::Off | RecordKind::On => {}
        }
        self.before = Some(hit);
    }

    /// Lets the clock run until `hit`, and charges that time.
    fn advance(&mut self, hit: &ProbeHit) {
        let Some(before) = self.before else { return };
        let time = hit.time.saturating_sub(before.time);
        let stepped = self.stepped.get(before.number as usize).copied().unwrap_or(false);
        let cost = self
            .floor
            .cost(ProbedEnd { kind: before.what, stepped }, hit.what, time, !self.stack.is_empty())
            .min(time);
        let spent = time - cost;
        self.now += spent;
        let (request, site) = match (self.stack.last(), self.fresh) {
            (Some(open), _) => (open.request, open.site),
            (None, fresh) => (fresh, Site::step(ConnectionStep::Parse)),
        };
        if let Some(request) = request.and_then(|key| self.requests.get_mut(&key)) {
            match before.what {
                RecordKind::Off => request.stood(site, spent),
                _ => request.ran(site, spent),
            }
            self.probing += cost;
        }
    }

    fn enter(&mut self, hit: &ProbeHit) {
        let Some(spot) = self.spots.get(hit.number as usize) else { return };
        let role = spot.role;
        // Frames above have returned without our knowing.
        while self.stack.last().is_some_and(|open| open.stack < hit.stack) {
            self.pop();
        }
        if role == FunctionRole::Turn {
            self.turn();
            return;
        }
        if self.stack.len() >= DEEPEST {
            self.restart();
        }
        let request = if role == FunctionRole::Create { None } else { self.request_of(hit.first) };
        let site = self.site(role, hit);
        if let Some(request) = request.and_then(|key| self.requests.get_mut(&key)) {
            request.enter(self.now);
            match role {
                FunctionRole::At(Site::NONE) => self.fresh = None,
                FunctionRole::At(_) | FunctionRole::Filter(..) => request.called(site),
                FunctionRole::Upstream(_) => {
                    request.called(site);
                    request.hands_on(site, matches!(self.kinds.get(&site), Some(SiteKind::Handler(_))));
                }
                FunctionRole::Chain(Site::HEADER_FILTERS) => request.sends_headers(),
                FunctionRole::Free => request.freed = true,
                _ => {}
            }
            match self.kinds.get(&site) {
                Some(SiteKind::Handler(_)) if !matches!(role, FunctionRole::Upstream(_)) => {
                    request.stands_in(site, WaitKind::Other);
                }
                Some(SiteKind::BodyRead) => request.stands_in(site, WaitKind::ClientRead),
                _ => {}
            }
        }
        let (number, stack, first) = (hit.number, hit.stack, hit.first);
        self.stack.push(OpenCall { number, site, request, stack, entered: self.now, first });
    }

    /// Where the time of a function is charged.
    fn site(&self, role: FunctionRole, hit: &ProbeHit) -> Site {
        match role {
            FunctionRole::At(site) => match (self.kinds.get(&site), self.stack.last()) {
                // A module may have one handler for two phases.
                (Some(SiteKind::Handler(phase)), Some(open))
                    if *phase < 9 && open.site != Site::phase(*phase) =>
                {
                    let here = (0..9).find(|phase| open.site == Site::phase(*phase)).unwrap_or(*phase);
                    modules::handler(here, &self.spots[hit.number as usize].name)
                }
                _ => site,
            },
            FunctionRole::Upstream(site) | FunctionRole::Chain(site) => site,
            FunctionRole::Checker => {
                let entry = hit.second.wrapping_sub(self.engine.begins) / 24;
                self.engine.phases.get(entry as usize).map_or(Site::NONE, |phase| Site::phase(*phase))
            }
            FunctionRole::Filter(header, body) => {
                let chains =
                    self.stack.iter().rev().filter_map(|open| match self.spots[open.number as usize].role {
                        FunctionRole::Chain(site) => Some(site),
                        _ => None,
                    });
                if chains.take(1).eq([Site::HEADER_FILTERS]) { header } else { body }
            }
            FunctionRole::Create => Site::step(ConnectionStep::Parse),
            FunctionRole::Free => Site::step(ConnectionStep::Finalise),
            FunctionRole::Turn => Site::NONE,
        }
    }

    fn leave(&mut self, hit: &ProbeHit) {
        // The return's stack pointer is a word above the entry's.
        while self.stack.last().is_some_and(|open| open.stack.saturating_add(8) < hit.stack) {
            self.pop();
        }
        let Some(open) = self.stack.last().filter(|open| open.number == hit.number) else { return };
        let (role, entered, connection) = (self.spots[open.number as usize].role, open.entered, open.first);
        self.pop();
        if role == FunctionRole::Create && hit.result != 0 {
            self.parts.retain(|_, whole| *whole != hit.result);
            if self.requests.len() >= MOST_REQUESTS {
                self.restart();
            }
            let mut request = ProbedRequest::new(entered, connection);
            request.ran(Site::step(ConnectionStep::Parse), self.now - entered);
            self.requests.insert(hit.result, request);
            self.fresh = Some(hit.result);
        }
    }

    fn pop(&mut self) {
        let Some(open) = self.stack.pop() else { return };
        let Some(key) = open.request else { return };
        let Some(request) = self.requests.get_mut(&key) else { return };
        request.leave(self.now);
        if request.freed && request.open == 0 {
            self.parts.retain(|_, whole| *whole != key);
            if let Some(request) = self.requests.remove(&key) {
                self.ended.push((key, request, self.now));
            }
        }
    }

    /// The loop begins its next turn: nothing runs, and a head that was being read is not complete.
    fn turn(&mut self) {
        while !self.stack.is_empty() {
            self.pop();
        }
        if let Some(request) = self.fresh.take().and_then(|key| self.requests.get_mut(&key)) {
            request.suspend(self.now);
        }
    }

    /// The request that a function's first argument means: itself, a part of it, or an event of a connection for it.
    fn request_of(&mut self, first: u64) -> Option<u64> {
        if self.requests.contains_key(&first) {
            return Some(first);
        }
        if let Some(whole) = self.parts.get(&first) {
            return Some(*whole);
        }
        let word = self.memory.word(first)?;
        if word as u32 == SIGNATURE {
            let connection = self.memory.word(first.wrapping_add(8))?;
            let whole = self.requests.iter().find(|(_, request)| request.connection == connection)?;
            let whole = *whole.0;
            if self.parts.len() >= MOST_REQUESTS {
                self.parts.clear();
            }
            self.parts.insert(first, whole);
            return Some(whole);
        }
        // `ngx_event_t` begins with its connection, and that with its request.
        let request = self.memory.word(word)?;
        self.requests.contains_key(&request).then_some(request).or_else(|| self.parts.get(&request).copied())
    }
}

/// What a request of nginx begins with: "HTTP".
const SIGNATURE: u32 = 0x5054_5448;
/// Requests that are followed at once, and subrequests: a process that forgets none would fill our memory.
const MOST_REQUESTS: usize = 65_536;
/// Functions that are open at once: nginx has some tens.
const DEEPEST: usize = 4096;
