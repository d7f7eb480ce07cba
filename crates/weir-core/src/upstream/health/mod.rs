//! `health_check`: servers are asked now and then whether they are well, and left out while they are not.
//!
//! The [thread](crate::services) of what Weir does of its own accord checks for all workers, whatever these do: a task for
//! each group, which ends when its configuration is no longer in force. What is known of a server stands in its state, which workers share and a reload takes over. A name server's failure
//! says nothing about a server: checked are addresses.

pub(crate) mod grpc_check;
pub(crate) mod http_check;
pub(crate) mod match_block;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use weir_conf::{LineCx, Result, parse_number, parse_time_ms};

use crate::Configuration;
use crate::conf::registry::Registry;
use crate::log::{self, Level};
use crate::services;
use crate::upstream::Upstreams;
use crate::upstream::block::upstream::Group;
use crate::upstream::health::grpc_check::State;
use crate::upstream::health::http_check::{Checked, timed_out};
use crate::upstream::health::match_block::{Matches, Matching};
use crate::upstream::peer::Peer;
use crate::upstream::pool::connection::{Connection, Opening};

/// How a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A connection is enough.
    Tcp,
    Http,
    /// The health protocol of gRPC, over cleartext HTTP/2.
    Grpc,
}

/// How the servers of a group are checked.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    kind: Kind,
    /// Milliseconds between the beginnings of two rounds, and what is added to it by chance for each server.
    interval: u64,
    jitter: u64,
    /// Milliseconds a check may take; never more than the interval.
    timeout: u64,
    /// Failures in a row that take a server out, successes in a row that bring it back.
    fails: u32,
    passes: u32,
    uri: Box<str>,
    /// The service that is asked for; empty: the whole server.
    grpc_service: Box<str>,
    /// The `grpc-status` of one that is well; 0 unless another is said, and then the service has to be serving.
    grpc_status: Option<u32>,
    host: Option<Box<str>>,
    /// The statuses of one that is well.
    statuses: Vec<(u16, u16)>,
    /// The `match` block that says what its answer must be, in the place of `statuses`.
    matching: Option<Arc<OnceLock<Matching>>>,
    /// Nobody asks a server before it was found well.
    pub(crate) mandatory: bool,
}

impl HealthCheck {
    /// `health_check [type=http|tcp|grpc] [interval=time] [jitter=time] [timeout=time] [fails=number] [passes=number]
    /// [uri=uri] [host=name] [status=200-399,... | match=name] [grpc_service=name] [grpc_status=code] [mandatory]`
    pub(crate) fn parse(line: &mut LineCx<'_>) -> Result<HealthCheck> {
        let mut check = HealthCheck {
            kind: Kind::Http,
            interval: 5_000,
            jitter: 0,
            timeout: UNSAID,
            fails: 1,
            passes: 1,
            uri: "/".into(),
            grpc_service: "".into(),
            grpc_status: None,
            host: None,
            statuses: vec![(200, 399)],
            matching: None,
            mandatory: false,
        };
        for at in 0..line.args().len() {
            match line.arg(at).strip_prefix("match=").filter(|name| !name.is_empty()) {
                Some(name) => {
                    let (name, span) = (name.to_owned(), line.args()[at].span);
                    let registry: &mut Registry = line.ext();
                    check.matching = Some(registry.shared::<Matches>().want(&name, span));
                }
                None => check.parameter(line.arg(at)).ok_or_else(|| line.invalid_parameter(at))?,
            }
        }
        check
            .agree()
            .map_err(|parameter| line.fail(format!("\"{parameter}\" is of no use with this \"type\"")))?;
        if check.timeout == UNSAID {
            check.timeout = check.interval.min(5_000);
        }
        Ok(check)
    }

    fn parameter(&mut self, text: &str) -> Option<()> {
        let positive = |value: &str| parse_time_ms(value.as_bytes()).filter(|ms| *ms > 0);
        let count = |value: &str| {
            parse_number(value.as_bytes()).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0)
        };
        match text.split_once('=') {
            None if text == "mandatory" => self.mandatory = true,
            Some(("type", "http")) => self.kind = Kind::Http,
            Some(("type", "tcp")) => self.kind = Kind::Tcp,
            Some(("type", "grpc")) => self.kind = Kind::Grpc,
            Some(("grpc_service", value)) if !value.is_empty() => self.grpc_service = value.into(),
            Some(("grpc_status", value)) => {
                let number = parse_number(value.as_bytes())?;
                self.grpc_status = Some(u32::try_from(number).ok().filter(|status| *status <= LAST_STATUS)?);
            }
            Some(("interval", value)) => self.interval = positive(value)?,
            Some(("jitter", value)) => self.jitter = parse_time_ms(value.as_bytes())?,
            Some(("timeout", value)) => self.timeout = positive(value)?,
            Some(("fails", value)) => self.fails = count(value)?,
            Some(("passes", value)) => self.passes = count(value)?,
            Some(("uri", value)) if is_plain(value) && value.starts_with('/') => self.uri = value.into(),
            Some(("host", value)) if is_plain(value) && !value.is_empty() => self.host = Some(value.into()),
            Some(("status", value)) => {
                self.statuses = value.split(',').map(statuses).collect::<Option<_>>()?;
            }
            _ => return None,
        }
        Some(())
    }

    /// The parameter that says something about another type of check.
    fn agree(&self) -> std::result::Result<(), &'static str> {
        let of_grpc =
            [("grpc_service", !self.grpc_service.is_empty()), ("grpc_status", self.grpc_status.is_some())];
        let of_http = [("match", self.matching.is_some())];
        let wrong = match self.kind {
            Kind::Grpc => of_http.iter().find(|(_, given)| *given),
            Kind::Http | Kind::Tcp => of_grpc.iter().find(|(_, given)| *given),
        };
        wrong.map_or(Ok(()), |(parameter, _)| Err(*parameter))
    }

    /// Asks `peer` once.
    async fn ask(&self, group: &str, peer: &Peer) -> std::result::Result<(), String> {
        let how = Opening { local: peer.bind.as_ref(), ..Opening::default() };
        let connection =
            Connection::open(&peer.addr, &how, self.timeout).await.map_err(|error| {
                match error.raw_os_error() {
                    Some(errno) => {
                        format!("connect() failed ({errno}: {})", weir_rt::file::errno_text(errno))
                    }
                    None => timed_out(),
                }
            })?;
        let host = self.host.as_deref().unwrap_or(group);
        match self.kind {
            Kind::Tcp => Ok(()),
            Kind::Http => self.ask_http(&connection, host).await,
            Kind::Grpc => self.ask_grpc(&connection, host).await,
        }
    }

    /// Its service must be serving; where another status than 0 is wanted, that status is enough.
    async fn ask_grpc(&self, connection: &Connection, host: &str) -> std::result::Result<(), String> {
        connection.timer.arm(self.timeout);
        let answer = grpc_check::ask(connection, host, &self.grpc_service).await?;
        match (answer.status, answer.serving) {
            (status, _) if status != self.grpc_status.unwrap_or(0) => {
                Err(format!("the gRPC status was {status}"))
            }
            (0, serving) if serving != State::Serving => Err(format!("the service is {serving}")),
            _ => Ok(()),
        }
    }

    async fn ask_http(&self, connection: &Connection, host: &str) -> std::result::Result<(), String> {
        let uri = &self.uri;
        let request =
            format!("GET {uri} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: weir\r\nConnection: close\r\n\r\n");
        connection.stream.send(request.into_bytes());
        connection.timer.arm(self.timeout);
        let mut answer = Checked::head(connection).await?;
        let matching = self.matching.as_ref().and_then(|matching| matching.get());
        let status = answer.status();
        let well = match matching {
            Some(matching) => matching.status(status),
            None => self.statuses.iter().any(|(from, to)| (*from..=*to).contains(&status)),
        };
        if !well {
            return Err(format!("the status was {status}"));
        }
        let Some(matching) = matching else { return Ok(()) };
        if matching.needs_body() {
            answer.read_body(connection).await?;
        }
        matching.judge(&answer)
    }

    /// Notes what a check found; its consequences are logged.
    fn note(&self, group: &Group, peer: &Peer, result: std::result::Result<(), String>) {
        let state = &peer.state;
        let unhealthy = state.unhealthy.load(Relaxed);
        if result.is_ok() != unhealthy {
            state.streak.store(0, Relaxed);
            return;
        }
        // Only tasks of one thread write it.
        let streak = state.streak.load(Relaxed) + 1;
        state.streak.store(streak, Relaxed);
        let enough = if unhealthy { self.passes } else { self.fails };
        if streak < enough {
            return;
        }
        state.streak.store(0, Relaxed);
        state.checked(!unhealthy);
        group.changes.tell();
        let (name, group) = (&peer.name, &group.name);
        match result {
            Ok(()) => {
                peer.recovered();
                log::cycle(
                    Level::Notice,
                    &format_args!("peer is healthy, health check of peer {name} in upstream \"{group}\""),
                );
            }
            Err(why) => {
                log::cycle(
                    Level::Warn,
                    &format_args!(
                        "peer is unhealthy: {why}, health check of peer {name} in upstream \"{group}\""
                    ),
                );
                state.failed_check(why);
            }
        }
    }
}

/// `200` or `200-399`
pub(crate) fn statuses(text: &str) -> Option<(u16, u16)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse().ok().filter(|status| (100..600).contains(status));
    let (from, to): (u16, u16) = (number(from)?, number(to)?);
    (from <= to).then_some((from, to))
}

/// Nothing that would end a line or a word of a request.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Checks the groups of a server's configuration in force, until it is dropped.
#[derive(Default)]
pub(crate) struct Checker {
    in_force: InForce,
}

/// The configuration whose groups are checked, for the tasks; none after the end. Changed by the thread of the tasks alone,
/// so that none of them notes what it found after others have begun.
type InForce = Arc<Mutex<Weak<Configuration>>>;

impl Checker {
    /// Makes sure that there is a thread, if the configuration has something for it.
    ///
    /// # Errors
    /// It can't start.
    pub(crate) fn prepare(configuration: &Configuration) -> io::Result<()> {
        let upstreams = configuration.tables.shared::<Upstreams>();
        let checks = upstreams.is_some_and(|all| all.iter().any(|group| group.health_check.is_some()));
        if checks { services::start() } else { Ok(()) }
    }

    /// From here on the groups of `configuration` are checked, and no others.
    pub(crate) fn check(&self, configuration: &Arc<Configuration>) {
        let (in_force, now) = (self.in_force.clone(), Arc::downgrade(configuration));
        self.on_thread(move || begin(&in_force, now));
    }

    fn on_thread(&self, task: impl FnOnce() + Send + 'static) {
        if let Err(error) = services::run(task) {
            log::cycle(Level::Alert, &format_args!("no thread for health checks: {error}"));
        }
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        // Only what has begun has to end: no thread is started for it.
        if lock(&self.in_force).strong_count() > 0 {
            let in_force = self.in_force.clone();
            self.on_thread(move || *lock(&in_force) = Weak::new());
        }
    }
}

fn begin(in_force: &InForce, now: Weak<Configuration>) {
    let Some(configuration) = now.upgrade() else { return };
    *lock(in_force) = now.clone();
    for group in configuration.tables.shared::<Upstreams>().into_iter().flat_map(Upstreams::iter) {
        if let Some(check) = &group.health_check {
            let of = InForceOf { now: in_force.clone(), configuration: now.clone() };
            weir_rt::spawn(rounds(of, Arc::downgrade(group), Rc::new(check.clone())));
        } else {
            // Nobody checks any more: nobody would find them well. From here on the checks of the configuration before,
            // tasks of this thread, note nothing.
            group.members().all().for_each(|peer| peer.state.unhealthy.store(false, Relaxed));
        }
    }
}

async fn rounds(of: InForceOf, group: Weak<Group>, check: Rc<HealthCheck>) {
    let mut seed = weir_rt::clock::monotonic_ns() | 1;
    // Peers that are being asked: who takes longer than the interval is not asked again meanwhile.
    let asked: Rc<RefCell<Vec<usize>>> = Rc::default();
    while let Some(group) = group.upgrade().filter(|_| of.is_so()) {
        let members = group.members();
        for peer in members.all().filter(|peer| !peer.is_down()) {
            let key = Arc::as_ptr(&peer.state).addr();
            if asked.borrow().contains(&key) {
                continue;
            }
            asked.borrow_mut().push(key);
            // A step of an xorshift generator.
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let delay = Duration::from_millis((seed >> 16) % (check.jitter + 1));
            let (group, peer, check) = (group.clone(), peer.clone(), check.clone());
            let (of, asked) = (of.clone(), asked.clone());
            weir_rt::spawn(async move {
                weir_rt::sleep(delay).await;
                let result = check.ask(&group.name, &peer).await;
                asked.borrow_mut().retain(|other| *other != key);
                // Another configuration may not check at all, and nobody would ever take back what is noted.
                if of.is_so() {
                    check.note(&group, &peer, result);
                }
            });
        }
        // While it sleeps the task keeps nothing of a configuration that may go.
        drop((members, group));
        weir_rt::sleep(Duration::from_millis(check.interval + check.jitter)).await;
    }
}

/// Whether a configuration is in force still.
#[derive(Clone)]
struct InForceOf {
    now: InForce,
    configuration: Weak<Configuration>,
}

impl InForceOf {
    fn is_so(&self) -> bool {
        self.configuration.strong_count() > 0 && lock(&self.now).ptr_eq(&self.configuration)
    }
}

fn lock(in_force: &InForce) -> MutexGuard<'_, Weak<Configuration>> {
    in_force.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last status that gRPC has (UNAUTHENTICATED).
const LAST_STATUS: u32 = 16;
/// No `timeout=`: no longer than the interval, and five seconds at most.
const UNSAID: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_numbers_and_ranges() {
        assert_eq!(statuses("204"), Some((204, 204)));
        assert_eq!(statuses("200-399"), Some((200, 399)));
        for wrong in ["", "99", "600", "300-200", "2xx", "200-"] {
            assert_eq!(statuses(wrong), None, "{wrong}");
        }
    }
}
