//! `weir doctor`: what of all this works on this machine, and why not the rest.

use std::fs;
use std::time::{Duration, Instant};

use super::control_calls::{client, print};
use super::help::CommandOption;
use super::options::CommandLine;
use super::selector::LocateSocket;
use crate::control::protocol::ControlQuestion;
use weir_http::json::{JsonValue, JsonWriter};
use weir_sys::library;

pub(super) const CHOICES: &[CommandOption] = &[];

pub(super) fn run(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(0)?;
    let mut findings = machine();
    findings.extend(server(asked, locate));
    let text = if asked.has("--json") { json(&findings) } else { text(&findings) };
    print(text.as_bytes()).map_err(|error| error.to_string())
}

/// One thing that was looked at.
struct DoctorFinding {
    what: &'static str,
    /// Whether it is as it should be.
    good: bool,
    /// How it is, and what follows.
    says: String,
}

fn good_finding(what: &'static str, says: impl Into<String>) -> DoctorFinding {
    DoctorFinding { what, good: true, says: says.into() }
}

fn bad_finding(what: &'static str, says: impl Into<String>) -> DoctorFinding {
    DoctorFinding { what, good: false, says: says.into() }
}

fn machine() -> Vec<DoctorFinding> {
    let word = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let mut all = Vec::new();
    let kernel = word("/proc/sys/kernel/osrelease").unwrap_or_else(|error| error.to_string());
    all.push(good_finding("kernel", kernel));
    all.push(match word("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Ok(source) if source == "tsc" => good_finding("clock", "tsc: a stamp costs some ten nanoseconds"),
        Ok(source) => {
            bad_finding("clock", format!("{source}: stamps go through the kernel's clock and cost more"))
        }
        Err(error) => bad_finding("clock", format!("clock source unknown: {error}")),
    });
    all.push(match weir_rt::probe_io_uring() {
        Ok(()) => good_finding("io_uring", "can be used"),
        Err(error) => bad_finding("io_uring", format!("{error}: epoll is used instead")),
    });
    all.push(match word("/proc/sys/net/ipv4/tcp_available_ulp") {
        Ok(layers) if layers.split(' ').any(|layer| layer == "tls") => {
            good_finding("kernel TLS", "there, and not used: the server seals records itself")
        }
        Ok(_) | Err(_) => {
            good_finding("kernel TLS", "not there, and not needed: the server seals records itself")
        }
    });
    all.push(match word("/proc/sys/kernel/perf_event_paranoid") {
        Ok(level) => good_finding(
            "perf events",
            format!(
                "perf_event_paranoid {level}; not needed: CPU samples come from timers of the process itself"
            ),
        ),
        Err(error) => good_finding("perf events", format!("none ({error}); not needed for CPU samples")),
    });
    all.push(match fs::read_dir("/proc/self/task") {
        Ok(_) => good_finding("/proc", "readable: states, switches and faults of threads are known"),
        Err(error) => {
            bad_finding("/proc", format!("{error}: what the kernel accounts to threads is not known"))
        }
    });
    all.push(match weir_rt::process::is_filtered() {
        false => good_finding("seccomp", "no filter"),
        true => good_finding(
            "seccomp",
            "a filter (a container's, perhaps): it may forbid io_uring and perf events",
        ),
    });
    all
}

/// The OpenSSL of scripts that look for its names by `ffi.C`; `workers`: processes that may have loaded it.
fn openssl(workers: impl Iterator<Item = u32>) -> DoctorFinding {
    let what = "OpenSSL of scripts";
    for pid in workers {
        if let Some(path) = library::mapped(pid, "libcrypto.so") {
            return good_finding(what, format!("{} is loaded", path.display()));
        }
    }
    match library::OPENSSL.iter().find_map(|(crypto, _)| library::load(crypto).ok()) {
        Some(path) => {
            good_finding(what, format!("{}, once a script looks for its names by ffi.C", path.display()))
        }
        None => good_finding(
            what,
            "not installed (libssl3, openssl-libs): needed by scripts alone that call it by ffi.C, as lua-resty-openssl does",
        ),
    }
}

/// The server's process and those it has started, as far as this user may look.
fn family(pid: u32) -> impl Iterator<Item = u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<u32> = children.split_whitespace().filter_map(|child| child.parse().ok()).collect();
    std::iter::once(pid).chain(children)
}

/// What the server says of itself.
fn server(asked: &CommandLine, locate: LocateSocket<'_>) -> Vec<DoctorFinding> {
    let ask = || client(asked, locate).and_then(|client| client.text(&ControlQuestion::new("facts")));
    let begun = Instant::now();
    let before = match ask() {
        Ok(facts) => facts,
        Err(error) => return vec![bad_finding("server", error)],
    };
    std::thread::sleep(WINDOW);
    let facts = match ask() {
        Ok(facts) => facts,
        Err(error) => return vec![bad_finding("server", error)],
    };
    let window = begun.elapsed();
    let fact = |key: &str| facts.lines().find_map(|line| line.strip_prefix(key)).map_or("", str::trim);
    let refused = fact("sampler refused:");
    let samples = match (fact("cpu_hz"), refused) {
        ("0", _) => bad_finding("cpu samples", "off: profile_cpu 0"),
        (hz, "no") => good_finding("cpu samples", format!("{hz} per second of CPU time")),
        (_, why) => bad_finding("cpu samples", why),
    };
    let blocked = match fact("blocked") {
        "off" => bad_finding("blocked loops", "not watched: profile_blocked off"),
        limit => good_finding("blocked loops", format!("watched from {limit} on")),
    };
    let off = match fact("switches refused:") {
        // A server of before this was asked.
        "" => None,
        "no" => Some(good_finding(
            "off-CPU",
            "exact: the kernel records when workers sleep, for `weir flame off`",
        )),
        why => Some(good_finding("off-CPU", format!("{OFF_BY_SAMPLES}: {why}"))),
    };
    let running = format!(
        "pid {}, {} workers on {}, since {}; stamps from {}",
        fact("pid"),
        fact("workers"),
        fact("driver"),
        fact("uptime"),
        fact("clock")
    );
    let mut findings = vec![good_finding("server", running), samples, blocked];
    findings.extend(off);
    findings.push(openssl(fact("pid").parse().into_iter().flat_map(family)));
    findings.extend(counters(&facts));
    let shares: Vec<u64> = fact("shares").split(' ').filter_map(|share| share.parse().ok()).collect();
    findings.extend(even(&shares));
    findings.extend(cores(&before, &facts, window));
    findings.extend(why(asked, locate));
    let stuck = facts.lines().filter_map(|line| line.strip_prefix("stuck "));
    findings.extend(stuck.map(|who| {
        bad_finding("stuck worker", format!("{who}: `weir blocked` has its stack, `weir reqs` the request"))
    }));
    findings
}

/// What `weir perf` can count, and why not the rest: a finding for what it can, and one for each reason. None of a server that does
/// not say.
fn counters(facts: &str) -> Vec<DoctorFinding> {
    let (mut counted, mut user_only) = (Vec::new(), false);
    let mut refused: Vec<(&str, Vec<&str>)> = Vec::new();
    for (kind, says) in facts.lines().filter_map(|line| line.strip_prefix("counter ")?.split_once(": ")) {
        match says.strip_prefix("refused: ") {
            None => counted.push(kind),
            Some(why) => match refused.iter_mut().find(|(other, _)| *other == why) {
                Some((_, kinds)) => kinds.push(kind),
                None => refused.push((why, vec![kind])),
            },
        }
        user_only |= says == "user";
    }
    let part = if user_only {
        ", outside of the kernel only (kernel.perf_event_paranoid 1 or CAP_PERFMON: all)"
    } else {
        ""
    };
    let can = (!counted.is_empty()).then(|| {
        good_finding("counters", format!("`weir perf` counts {} by location{part}", counted.join(", ")))
    });
    let not = |(why, kinds): (&str, Vec<&str>)| {
        bad_finding("counters", format!("`weir perf` can't count {}: {why}", kinds.join(", ")))
    };
    can.into_iter().chain(refused.into_iter().map(not)).collect()
}

/// Whether each worker has about as many connections as the others. `None` with one worker, or of a server that does not say.
fn even(shares: &[u64]) -> Option<DoctorFinding> {
    if shares.len() < 2 {
        return None;
    }
    let all: u64 = shares.iter().sum();
    let (worker, &largest) = shares.iter().enumerate().max_by_key(|(_, share)| **share)?;
    let times = largest as f64 * shares.len() as f64 / all.max(1) as f64;
    // Of a few connections chance gives one worker twice as many.
    if all < FEW * shares.len() as u64 || times <= UNEVEN {
        return Some(good_finding(
            "shares",
            format!("{all} connections, {largest} of them with worker {worker}"),
        ));
    }
    let why = "long connections of a time when it had fewer, or the kernel deals them (reuseport): see `weir top workers`";
    Some(bad_finding(
        "shares",
        format!("worker {worker} has {largest} of {all} connections, {times:.1} times the mean: {why}"),
    ))
}

/// What `weir why` finds; what is looked at above is left out.
fn why(asked: &CommandLine, locate: LocateSocket<'_>) -> Vec<DoctorFinding> {
    let question = ControlQuestion::new("why").with("every", "1s").with("json", "");
    let said = client(asked, locate).and_then(|client| client.text(&question));
    let json = said.and_then(|text| JsonValue::parse(text.as_bytes()).map_err(|error| error.to_string()));
    // A server of before this question says nothing.
    let Ok(json) = json else { return Vec::new() };
    let found = json.field("findings").and_then(JsonValue::list).unwrap_or_default();
    let text = |finding: &JsonValue, key: &str| {
        finding.field(key).and_then(JsonValue::text).unwrap_or_default().to_owned()
    };
    let known = [crate::why::NO_CORE, crate::why::UNEVEN];
    let found = found.iter().filter(|finding| !known.contains(&&*text(finding, "kind")));
    found
        .map(|finding| bad_finding("why", format!("{}: {}", text(finding, "says"), text(finding, "command"))))
        .collect()
}

/// Whether workers had a core whenever they could run, between two responses of the server that are `window` apart.
/// `None` of a server that does not say.
fn cores(before: &str, after: &str, window: Duration) -> Option<DoctorFinding> {
    let before: Vec<CoreWait> = before.lines().filter_map(CoreWait::parse).collect();
    let waited = |now: &CoreWait| {
        let before = before.iter().find(|before| before.worker == now.worker)?;
        let share = now.waited_ns.saturating_sub(before.waited_ns) as f64 / window.as_nanos().max(1) as f64;
        Some((now.worker, now.late, share.min(1.0)))
    };
    let shares = after.lines().filter_map(CoreWait::parse).filter_map(|now| waited(&now));
    let (worker, late, share) = shares.max_by(|one, other| one.2.total_cmp(&other.2))?;
    let says = format!(
        "worker {worker} was ready and had no core for {:.0}% of the last second; {late} of its turns were late for that",
        share * 100.0
    );
    if share < LOST {
        return Some(good_finding("cores", says));
    }
    let why = "other programs, or other workers, run on its core, or a quota of its cgroup is used up (cpu.max): take them \
               elsewhere, raise the quota, start fewer workers, or give each a core by worker_cpu_affinity";
    Some(bad_finding("cores", format!("{says}: {why}")))
}

/// How long a worker has waited for a core since it began.
struct CoreWait {
    worker: u16,
    /// Turns that were found late for that.
    late: u64,
    waited_ns: u64,
}

impl CoreWait {
    /// `core WORKER LATE NANOSECONDS`
    fn parse(line: &str) -> Option<CoreWait> {
        let mut words = line.strip_prefix("core ")?.split(' ');
        let mut number = || words.next()?.parse().ok();
        let (worker, late, waited_ns): (u64, u64, u64) = (number()?, number()?, number()?);
        Some(CoreWait { worker: worker.try_into().ok()?, late, waited_ns })
    }
}

/// How it is known where workers sleep, and what would tell it exactly.
const OFF_BY_SAMPLES: &str = "`weir flame off` has the watchdog's samples; exact with CAP_PERFMON for the workers or \
                              kernel.perf_event_paranoid 1, and Linux 5.18";
/// Over how long it is looked whether workers have their cores.
const WINDOW: Duration = Duration::from_secs(1);
/// The part of that time without a core from which on it is lost: responses then take a quarter more than they should.
const LOST: f64 = 0.2;
/// Connections a worker, on average, from which on shares are judged.
const FEW: u64 = 16;
/// The largest share over the mean that is called even.
const UNEVEN: f64 = 1.3;

fn text(findings: &[DoctorFinding]) -> String {
    let line = |finding: &DoctorFinding| {
        format!("{:<4} {:<13} {}\n", if finding.good { "ok" } else { "no" }, finding.what, finding.says)
    };
    findings.iter().map(line).collect()
}

fn json(findings: &[DoctorFinding]) -> String {
    JsonWriter::array(|json| {
        for finding in findings {
            json.nested(|json| {
                json.key("what").text(finding.what);
                json.key("good").raw(finding.good);
                json.key("says").text(&finding.says);
            });
        }
    }) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(shares: &[u64]) -> (bool, String) {
        let DoctorFinding { good, says, .. } = even(shares).expect("several workers");
        (good, says)
    }

    #[test]
    fn uneven_shares_are_a_finding() {
        let (good, text) = says(&[1, 190, 1, 0, 0, 0, 0, 0]);
        assert!(
            !good && text.starts_with("worker 1 has 190 of 192 connections, 7.9 times the mean: "),
            "{text}"
        );
        assert!(says(&[24, 25, 23, 24]).0 && says(&[31, 24, 20, 21]).0, "within 1.3 times the mean");
        assert!(!says(&[33, 21, 21, 21]).0);
    }

    #[test]
    fn a_worker_without_a_core_is_a_finding() {
        let before = "workers 3\ncore 0 7 1000\ncore 1 2 5000000000\n";
        let after = "workers 3\ncore 0 7 50001000\ncore 1 12 5650000000\ncore 2 0 9000000000\nstuck x\n";
        let DoctorFinding { good, says, .. } =
            cores(before, after, Duration::from_secs(1)).expect("two workers");
        assert!(
            !good && says.starts_with("worker 1 was ready and had no core for 65% of the last second; 12 of")
        );
        assert!(says.contains("cpu.max") && says.contains("worker_cpu_affinity"), "{says}");
        let DoctorFinding { good, says, .. } =
            cores(before, before, Duration::from_secs(1)).expect("two workers");
        assert!(good && says.contains("for 0% of"), "{says}");
        for none in ["", "core\n", "core 0 1\n", "core 99999 1 1\n", "core 0 1 x\n", "core -1 0 0"] {
            assert!(cores(none, after, WINDOW).is_none() && cores(before, none, WINDOW).is_none(), "{none}");
        }
    }

    #[test]
    fn counters_that_are_refused_have_their_reasons() {
        let facts = "pid 1\ncounter CPU time: user\ncounter cycles: refused: no such counter: see KVM\n\
                     counter instructions: refused: no such counter: see KVM\ncounter page faults: user\n\
                     counter context switches: refused: paranoid\nshares 1\n";
        let found = counters(facts);
        let says: Vec<(bool, &str)> = found.iter().map(|finding| (finding.good, &*finding.says)).collect();
        assert_eq!(says.len(), 3);
        assert!(
            says[0].0
                && says[0].1.starts_with("`weir perf` counts CPU time, page faults by location, outside")
        );
        assert_eq!(
            says[1],
            (false, "`weir perf` can't count cycles, instructions: no such counter: see KVM")
        );
        assert_eq!(says[2], (false, "`weir perf` can't count context switches: paranoid"));
        assert!(counters("pid 1\n").is_empty(), "a server of before");
        assert_eq!(counters("counter cycles: all\n")[0].says, "`weir perf` counts cycles by location");
    }

    #[test]
    fn few_connections_and_one_worker_are_not_judged() {
        assert!(says(&[0, 30]).0 && says(&[0, 0]).0);
        assert!(even(&[500]).is_none() && even(&[]).is_none());
    }
}
