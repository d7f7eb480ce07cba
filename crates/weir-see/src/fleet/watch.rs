//! The servers of the `admin_host` lines, asked on behalf of the page: only while a client looks, only these, each by a
//! thread of its own that the others do not wait for. What a client sends never says which address is asked.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_engine::log::{self, LogLevel};
use weir_engine::trace::AdminHost;

use super::fetch::{self, HostQuestion, PATIENCE};
use super::host_totals::{HostTotals, TotalsPart};
use crate::responses::top;
use crate::source::ServerSource;

/// What is known of the other servers, and of this one beside them.
#[derive(Default)]
pub(crate) struct FleetWatch {
    state: Mutex<WatchState>,
    /// A host has responded, or failed to.
    came: Condvar,
    /// Texts are read one after the other: many large ones take the memory of one.
    reading: Mutex<()>,
}

#[derive(Default)]
struct WatchState {
    /// This server, then those of the lines in their order.
    own: HostSamples,
    hosts: Vec<WatchedHost>,
    /// Of the next host: one whose line is gone gets no more responses.
    next: u64,
}

struct WatchedHost {
    id: u64,
    line: AdminHost,
    /// Since when a thread asks it.
    asked: Option<Instant>,
    /// When it was asked last.
    tried: Option<Instant>,
    samples: HostSamples,
    error: Option<String>,
}

/// The last two responses of a host.
#[derive(Clone, Default)]
struct HostSamples {
    before: Option<HostSample>,
    last: Option<HostSample>,
}

#[derive(Clone)]
struct HostSample {
    at: Instant,
    totals: Arc<HostTotals>,
}

/// A host as a client sees it.
pub(super) struct HostLook {
    pub(super) name: String,
    pub(super) state: HostState,
    /// What it has counted since it began.
    pub(super) all: Option<Arc<HostTotals>>,
    /// What was added in the last interval, and how long that was.
    pub(super) lately: Option<(HostTotals, Duration)>,
}

/// Whether a host responds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostState {
    Up,
    /// It was asked for the first time and has some time left.
    Asked,
    /// Why it does not.
    Silent(String),
    /// It is the same server as this one, by another address.
    Same(String),
}

impl FleetWatch {
    /// Looks at the hosts of `source`'s configuration: this server first. Those that were not asked for [`AGAIN`] are,
    /// and are waited for a little; later what they respond is seen by the next look.
    pub(super) fn look(self: &Arc<Self>, source: &ServerSource) -> Vec<HostLook> {
        let due = self.state().due(source.configuration().trace().hosts());
        due.into_iter().for_each(|(id, line)| self.begin(id, line));
        let own = self.own(source);
        let is_awaited = |host: &WatchedHost| host.asked.is_some_and(|at| at.elapsed() < BRIEFLY);
        let waiting = |state: &mut WatchState| state.hosts.iter().any(is_awaited);
        let waited = self.came.wait_timeout_while(self.state(), BRIEFLY, waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let mut looks = vec![own];
        for host in &state.hosts {
            let look = host.look(&looks);
            looks.push(look);
        }
        looks
    }

    /// This server, which is not asked more often than the others either.
    fn own(&self, source: &ServerSource) -> HostLook {
        // Asking waits for workers: without the lock.
        let now = if self.state().own.is_fresh() {
            None
        } else {
            Some(self.read(top::traffic_totals(source).as_bytes()))
        };
        let mut state = self.state();
        let error = match now {
            Some(Ok(totals)) => {
                // Another client may have looked meanwhile: a rate is of no shorter time.
                if !state.own.is_fresh() {
                    state.own.add(totals);
                }
                None
            }
            Some(Err(error)) => Some(error),
            None => None,
        };
        state.own.look(OWN.to_owned(), error.map_or(HostState::Up, HostState::Silent))
    }

    fn begin(self: &Arc<Self>, id: u64, line: AdminHost) {
        let pending = PendingHost { watch: self.clone(), id, found: None };
        let thread = std::thread::Builder::new().name("weir hosts".to_owned()).stack_size(STACK);
        // Where there is no thread the host is reported as one that could not be asked, when `pending` is dropped.
        if let Err(error) = thread.spawn(move || pending.ask(&line)) {
            log::cycle(LogLevel::Warn, &format_args!("no thread asks an admin_host: {error}"));
        }
    }

    fn read(&self, text: &[u8]) -> Result<HostTotals, String> {
        let _alone = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        HostTotals::parse(text, TotalsPart::Traffic)
    }

    fn state(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A host whose response is on its way. It is settled when this is dropped, whatever happens.
struct PendingHost {
    watch: Arc<FleetWatch>,
    id: u64,
    found: Option<Result<HostTotals, String>>,
}

impl PendingHost {
    fn ask(mut self, line: &AdminHost) {
        let question = HostQuestion {
            address: &line.address,
            path: "/totals?of=traffic",
            token: line.token.as_deref(),
            largest: LARGEST,
        };
        self.found = Some(fetch::get(&question).and_then(|text| self.watch.read(&text)));
    }
}

impl Drop for PendingHost {
    fn drop(&mut self) {
        let found = self.found.take().unwrap_or_else(|| Err("could not be asked".to_owned()));
        let watch = self.watch.clone();
        if let Some(host) = watch.state().hosts.iter_mut().find(|host| host.id == self.id) {
            host.settle(found);
        }
        watch.came.notify_all();
    }
}

impl WatchState {
    /// Follows the lines of the configuration, and gives the hosts that are asked now: their threads must be begun.
    fn due(&mut self, lines: &[AdminHost]) -> Vec<(u64, AdminHost)> {
        let mut before = std::mem::take(&mut self.hosts);
        for line in lines {
            // One with another token is another host.
            let known = before.iter().position(|host| host.line == *line).map(|at| before.swap_remove(at));
            self.hosts.push(known.unwrap_or_else(|| {
                self.next += 1;
                WatchedHost::new(self.next, line.clone())
            }));
        }
        let due = |host: &&mut WatchedHost| {
            host.asked.is_none() && host.tried.is_none_or(|at| at.elapsed() >= AGAIN)
        };
        let begin = |host: &mut WatchedHost| {
            host.asked = Some(Instant::now());
            host.tried = host.asked;
            (host.id, host.line.clone())
        };
        self.hosts.iter_mut().filter(due).map(begin).collect()
    }
}

impl WatchedHost {
    fn new(id: u64, line: AdminHost) -> WatchedHost {
        WatchedHost { id, line, asked: None, tried: None, samples: HostSamples::default(), error: None }
    }

    fn settle(&mut self, found: Result<HostTotals, String>) {
        self.asked = None;
        match found {
            Ok(totals) => {
                self.samples.add(totals);
                self.error = None;
            }
            Err(error) => self.error = Some(error),
        }
    }

    /// What is known of it, besides `others`.
    fn look(&self, others: &[HostLook]) -> HostLook {
        // A name server, or a socket whose queue is full, may hold its thread for longer than a host has time.
        let is_old = |sample: &HostSample| sample.at.elapsed() > 2 * PATIENCE;
        let late = self.asked.is_some_and(|at| at.elapsed() > PATIENCE + BRIEFLY)
            && self.samples.last.as_ref().is_none_or(is_old);
        let twin = self.samples.last.as_ref().and_then(|sample| sample.twin(others));
        let state = match (&self.error, twin) {
            (Some(error), _) => HostState::Silent(error.clone()),
            (None, _) if late => HostState::Silent("does not respond in time".to_owned()),
            (None, Some(twin)) => HostState::Same(twin),
            (None, None) if self.samples.last.is_none() => HostState::Asked,
            (None, None) => HostState::Up,
        };
        self.samples.look(self.line.address.to_string(), state)
    }
}

impl HostSamples {
    /// The last one is so new that none is added.
    fn is_fresh(&self) -> bool {
        self.last.as_ref().is_some_and(|sample| sample.at.elapsed() < AGAIN)
    }

    fn add(&mut self, totals: HostTotals) {
        // A rate is of the last seconds: nobody has looked in the meantime.
        self.before = self.last.take().filter(|last| last.at.elapsed() < OLD);
        self.last = Some(HostSample { at: Instant::now(), totals: Arc::new(totals) });
    }

    fn look(&self, name: String, state: HostState) -> HostLook {
        let last = if state == HostState::Up { self.last.as_ref() } else { None };
        let lately = last
            .zip(self.before.as_ref())
            .map(|(last, before)| (last.totals.since(&before.totals), last.at.duration_since(before.at)));
        HostLook { name, state, all: last.map(|last| last.totals.clone()), lately }
    }
}

impl HostSample {
    /// The name of the host among `others` that is the same server.
    fn twin(&self, others: &[HostLook]) -> Option<String> {
        let instance = &self.totals.instance;
        let is_it = |other: &&HostLook| {
            !instance.is_empty() && other.all.as_ref().is_some_and(|all| all.instance == *instance)
        };
        others.iter().find(is_it).map(|other| other.name.clone())
    }
}

/// What this server is called among the others.
pub(super) const OWN: &str = "this server";
/// How long a look waits for hosts, if they were asked just now.
const BRIEFLY: Duration = Duration::from_millis(400);
/// A host is not asked more often, however many clients look.
const AGAIN: Duration = Duration::from_millis(950);
/// Between two responses that a rate is made of, at most.
const OLD: Duration = Duration::from_secs(15);
/// Bytes of a response at most: some 2,500 locations and peers.
const LARGEST: usize = 8 << 20;
/// Of a thread that asks: a look-up of a name, a buffer of 64 KiB, a reader of nested JSON.
const STACK: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use weir_engine::trace::HostAddress;

    use super::*;

    fn line(name: &str, token: Option<&str>) -> AdminHost {
        let address = HostAddress::parse(name).expect("an address");
        AdminHost { address, token: token.map(str::to_owned) }
    }

    fn totals(instance: &str) -> HostTotals {
        let text = format!("{{\"instance\":\"{instance}\",\"uptime_ms\":5,\"sites\":[]}}");
        HostTotals::parse(text.as_bytes(), TotalsPart::Traffic).expect("totals")
    }

    #[test]
    fn hosts_follow_the_lines_and_are_asked_once_at_a_time() {
        let mut state = WatchState::default();
        let (a, b) = (line("a", None), line("b", None));
        let ids = |due: Vec<(u64, AdminHost)>| due.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(state.due(&[a.clone(), b.clone()])), [1, 2]);
        assert_eq!(ids(state.due(&[a.clone(), b.clone()])), [0; 0], "their threads ask");
        state.hosts[0].settle(Ok(totals("x")));
        assert_eq!(ids(state.due(&[a.clone(), b.clone()])), [0; 0], "it was asked just now");
        // Another token is another host; a line that is gone takes what was known of it along.
        assert_eq!(ids(state.due(&[line("a", Some("secret")), b])), [3]);
        assert!(state.hosts[0].samples.last.is_none() && state.hosts[1].asked.is_some());
        assert_eq!(ids(state.due(&[])), [0; 0]);
        assert!(state.hosts.is_empty());
    }

    #[test]
    fn states_of_hosts() {
        let mut host = WatchedHost::new(1, line("a", None));
        host.asked = Some(Instant::now());
        assert_eq!(host.look(&[]).state, HostState::Asked);
        host.settle(Ok(totals("x")));
        let look = host.look(&[]);
        assert_eq!(
            (look.state.clone(), look.all.is_some(), look.lately.is_some()),
            (HostState::Up, true, false)
        );
        host.settle(Ok(totals("x")));
        assert!(host.look(&[]).lately.is_some());
        // The same server by another address is not counted twice; servers of older versions are not alike.
        let twin = host.look(&[look]);
        assert_eq!((twin.state, twin.all.is_none()), (HostState::Same("a:9180".to_owned()), true));
        host.settle(Ok(totals("")));
        assert_eq!(host.look(&[host.look(&[])]).state, HostState::Up);
        host.settle(Err("is ill".to_owned()));
        let look = host.look(&[]);
        assert_eq!((look.state, look.all.is_none()), (HostState::Silent("is ill".to_owned()), true));
        // Its thread is held up. What is known of it is shown a little longer.
        host.asked = Instant::now().checked_sub(PATIENCE * 2);
        host.error = None;
        assert_eq!(host.look(&[]).state, HostState::Up);
        host.samples.last = None;
        assert!(matches!(host.look(&[]).state, HostState::Silent(_)));
    }
}
