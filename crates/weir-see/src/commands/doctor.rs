//! `weir doctor`: what of all this works on this machine, and why not the rest.

use std::fs;

use super::Locate;
use super::ask::{client, print};
use super::options::{Asked, Choice};
use crate::control::protocol::Question;
use weir_http::json::Json;

pub(super) const CHOICES: &[Choice] = &[];

pub(super) fn run(asked: &Asked, locate: Locate<'_>) -> Result<(), String> {
    asked.at_most(0)?;
    let mut findings = machine();
    findings.extend(server(asked, locate));
    let text = if asked.has("--json") { json(&findings) } else { text(&findings) };
    print(text.as_bytes()).map_err(|error| error.to_string())
}

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    /// Whether it is as it should be.
    good: bool,
    /// How it is, and what follows.
    says: String,
}

fn finding(what: &'static str, good: bool, says: impl Into<String>) -> Finding {
    Finding { what, good, says: says.into() }
}

fn machine() -> Vec<Finding> {
    let word = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let mut all = Vec::new();
    let kernel = word("/proc/sys/kernel/osrelease").unwrap_or_else(|error| error.to_string());
    all.push(finding("kernel", true, kernel));
    all.push(match word("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Ok(source) if source == "tsc" => finding("clock", true, "tsc: a stamp costs some ten nanoseconds"),
        Ok(source) => {
            finding("clock", false, format!("{source}: stamps go through the kernel's clock and cost more"))
        }
        Err(error) => finding("clock", false, format!("clock source unknown: {error}")),
    });
    all.push(match weir_rt::probe_io_uring() {
        Ok(()) => finding("io_uring", true, "can be used"),
        Err(error) => finding("io_uring", false, format!("{error}: epoll is used instead")),
    });
    all.push(match word("/proc/sys/net/ipv4/tcp_available_ulp") {
        Ok(layers) if layers.split(' ').any(|layer| layer == "tls") => {
            finding("kernel TLS", true, "there, and not used: the server seals records itself")
        }
        Ok(_) | Err(_) => {
            finding("kernel TLS", true, "not there, and not needed: the server seals records itself")
        }
    });
    all.push(match word("/proc/sys/kernel/perf_event_paranoid") {
        Ok(level) => finding(
            "perf events",
            true,
            format!(
                "perf_event_paranoid {level}; not needed: CPU samples come from timers of the process itself"
            ),
        ),
        Err(error) => finding("perf events", true, format!("none ({error}); not needed for CPU samples")),
    });
    all.push(match fs::read_dir("/proc/self/task") {
        Ok(_) => finding("/proc", true, "readable: states, switches and faults of threads are known"),
        Err(error) => {
            finding("/proc", false, format!("{error}: what the kernel accounts to threads is not known"))
        }
    });
    all.push(match seccomp() {
        Some(0) | None => finding("seccomp", true, "no filter"),
        Some(_) => finding(
            "seccomp",
            true,
            "a filter (a container's, perhaps): it may forbid io_uring and perf events",
        ),
    });
    all
}

fn seccomp() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?.trim().parse().ok()
}

/// What the server says of itself.
fn server(asked: &Asked, locate: Locate<'_>) -> Vec<Finding> {
    let facts = client(asked, locate).and_then(|client| client.text(&Question::new("facts")));
    let facts = match facts {
        Ok(facts) => facts,
        Err(error) => return vec![finding("server", false, error)],
    };
    let fact = |key: &str| facts.lines().find_map(|line| line.strip_prefix(key)).map_or("", str::trim);
    let refused = fact("sampler refused:");
    let samples = match (fact("cpu_hz"), refused) {
        ("0", _) => finding("cpu samples", false, "off: profile_cpu 0"),
        (hz, "no") => finding("cpu samples", true, format!("{hz} per second of CPU time")),
        (_, why) => finding("cpu samples", false, why),
    };
    let blocked = match fact("blocked") {
        "off" => finding("blocked loops", false, "not watched: profile_blocked off"),
        limit => finding("blocked loops", true, format!("watched from {limit} on")),
    };
    let running = format!(
        "pid {}, {} workers on {}, since {}; stamps from {}",
        fact("pid"),
        fact("workers"),
        fact("driver"),
        fact("uptime"),
        fact("clock")
    );
    let mut findings = vec![finding("server", true, running), samples, blocked];
    let shares: Vec<u64> = fact("shares").split(' ').filter_map(|share| share.parse().ok()).collect();
    findings.extend(even(&shares));
    let stuck = facts.lines().filter_map(|line| line.strip_prefix("stuck "));
    findings.extend(stuck.map(|who| {
        finding(
            "stuck worker",
            false,
            format!("{who}: `weir blocked` has its stack, `weir reqs` the request"),
        )
    }));
    findings
}

/// Whether each worker has about as many connections as the others. `None` with one worker, or of a server that does not say.
fn even(shares: &[u64]) -> Option<Finding> {
    if shares.len() < 2 {
        return None;
    }
    let all: u64 = shares.iter().sum();
    let (worker, &largest) = shares.iter().enumerate().max_by_key(|(_, share)| **share)?;
    let times = largest as f64 * shares.len() as f64 / all.max(1) as f64;
    // Of a few connections chance gives one worker twice as many.
    if all < FEW * shares.len() as u64 || times <= UNEVEN {
        return Some(finding(
            "shares",
            true,
            format!("{all} connections, {largest} of them with worker {worker}"),
        ));
    }
    let why = "long connections of a time when it had fewer, or the kernel deals them (reuseport): see `weir top workers`";
    Some(finding(
        "shares",
        false,
        format!("worker {worker} has {largest} of {all} connections, {times:.1} times the mean: {why}"),
    ))
}

/// Connections a worker, on average, from which on shares are judged.
const FEW: u64 = 16;
/// The largest share over the mean that is called even.
const UNEVEN: f64 = 1.3;

fn text(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        format!("{:<4} {:<13} {}\n", if finding.good { "ok" } else { "no" }, finding.what, finding.says)
    };
    findings.iter().map(line).collect()
}

fn json(findings: &[Finding]) -> String {
    Json::array(|json| {
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
        let Finding { good, says, .. } = even(shares).expect("several workers");
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
    fn few_connections_and_one_worker_are_not_judged() {
        assert!(says(&[0, 30]).0 && says(&[0, 0]).0);
        assert!(even(&[500]).is_none() && even(&[]).is_none());
    }
}
